//! The files of this machine below `sys` and `proc`, or those of a test.
//! Promises: a missing or unreadable file is a reason and not an error; at most `ENTRIES_MAX` entries of a directory
//! are read.

use std::fs;
use std::path::{Path, PathBuf};

/// Entries of a directory that are read: CPUs, interfaces, idle states, energy zones.
const ENTRIES_MAX: usize = 1024;

/// The directory with `sys` and `proc`.
#[derive(Debug)]
pub(super) struct Tree<'a>(pub(super) &'a Path);

impl Tree<'_> {
    /// The path of a file.
    pub(super) fn at(&self, path: &str) -> PathBuf {
        self.0.join(path)
    }

    pub(super) fn exists(&self, path: &str) -> bool {
        self.at(path).exists()
    }

    /// The text of a file, or why there is none.
    pub(super) fn text(&self, path: &str) -> Result<String, String> {
        match fs::read_to_string(self.at(path)) {
            Ok(text) => Ok(text.trim().to_owned()),
            Err(error) => Err(format!("cannot read /{path}: {error}")),
        }
    }

    /// The reason why the kernel lacks what it has from a version on (major and minor number), if so.
    pub(super) fn older_than(&self, (major, minor): (u32, u32)) -> Option<String> {
        match self.text("proc/sys/kernel/osrelease").ok().as_deref().and_then(kernel_version) {
            Some(version) if version >= (major, minor) => None,
            Some(version) => {
                Some(format!("Linux {major}.{minor} has it, this is {}.{}", version.0, version.1))
            }
            None => Some("the kernel's version is unknown".to_owned()),
        }
    }

    /// Names in a directory, in order.
    pub(super) fn entries(&self, path: &str) -> Vec<String> {
        let Ok(entries) = fs::read_dir(self.at(path)) else { return Vec::new() };
        let names = entries.take(ENTRIES_MAX).filter_map(|entry| entry.ok()?.file_name().into_string().ok());
        let mut names: Vec<String> = names.collect();
        names.sort_unstable();
        names
    }
}

/// The reason why this user cannot write a file, if so.
pub(super) fn not_writable(path: &Path) -> Option<String> {
    let result = rustix::fs::access(path, rustix::fs::Access::WRITE_OK);
    result.err().map(|error| format!("cannot write {}: {}", path.display(), std::io::Error::from(error)))
}

/// Major and minor number of a release such as `6.8.0-45-generic`.
fn kernel_version(release: &str) -> Option<(u32, u32)> {
    let mut numbers = release.split(['.', '-', '+']).map(str::parse);
    match (numbers.next(), numbers.next()) {
        (Some(Ok(major)), Some(Ok(minor))) => Some((major, minor)),
        _ => None,
    }
}

#[cfg(test)]
pub(super) mod tests {
    use std::path::PathBuf;

    /// A machine as its files describe it, removed when dropped.
    pub(in crate::commands::tune) struct FakeTree(pub(in crate::commands::tune) PathBuf);

    impl FakeTree {
        pub(in crate::commands::tune) fn new(name: &str, files: &[(&str, &str)]) -> Self {
            let root = std::env::temp_dir().join(format!("flick-knobs-{name}-{}", std::process::id()));
            let tree = Self(root);
            files.iter().for_each(|(path, text)| tree.write(path, text));
            tree
        }

        pub(in crate::commands::tune) fn write(&self, path: &str, text: &str) {
            let path = self.0.join(path);
            std::fs::create_dir_all(path.parent().expect("it is below the root")).expect("a directory");
            std::fs::write(path, text).expect("a file");
        }

        pub(in crate::commands::tune) fn read(&self, path: &str) -> String {
            std::fs::read_to_string(self.0.join(path)).expect("a file").trim().to_owned()
        }
    }

    impl Drop for FakeTree {
        fn drop(&mut self) {
            // A machine without files has no directory.
            let _ = std::fs::remove_dir_all(&self.0);
        }
    }
}
