//! Rotation of the access log by its size: `access.log` becomes `access.log.1`, that `access.log.2`, and so on.
//! Promises: at most `keep` old files beside the current one; a rotation that fails leaves the current file in use.
//! Not here: rotation by others, which send SIGUSR1.

use std::ffi::OsString;
use std::fs::File;
use std::io::{self, ErrorKind};
use std::path::{Path, PathBuf};

/// Limits of rotation by size.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RotationLimits {
    /// Size from which it is rotated.
    pub bytes_max: u64,
    /// Number of old files.
    pub keep: u32,
}

/// Rotation of one file.
#[derive(Debug)]
pub struct Rotation {
    path: PathBuf,
    limits: RotationLimits,
    /// Bytes of the current file.
    bytes: u64,
}

impl Rotation {
    /// Rotation of the file at `path`, which is open.
    pub fn new(path: &Path, file: &File, limits: RotationLimits) -> Self {
        let bytes = file.metadata().map_or(0, |found| found.len());
        Self { path: path.to_path_buf(), limits, bytes }
    }

    /// Counts bytes that were written. Returns the next file if the current one is full.
    ///
    /// Errors: a file cannot be renamed, or the next one not opened; the next attempt is after as many bytes again.
    pub fn written(
        &mut self,
        bytes: u64,
        open: impl FnOnce(&Path) -> io::Result<File>,
    ) -> io::Result<Option<File>> {
        self.bytes += bytes;
        if self.bytes < self.limits.bytes_max {
            return Ok(None);
        }
        self.bytes = 0;
        // An earlier attempt has renamed it and could not open the next one, or another process has removed it.
        if !is_missing(&self.path) {
            self.rename()?;
        }
        open(&self.path).map(Some)
    }

    /// Renames the current file and the old ones.
    fn rename(&self) -> io::Result<()> {
        for number in (1..self.limits.keep).rev() {
            match std::fs::rename(self.numbered(number), self.numbered(number + 1)) {
                Err(error) if error.kind() != ErrorKind::NotFound => return Err(error),
                _ => {}
            }
        }
        match self.limits.keep {
            0 => std::fs::remove_file(&self.path),
            _ => std::fs::rename(&self.path, self.numbered(1)),
        }
    }

    /// The path of an old file.
    fn numbered(&self, number: u32) -> PathBuf {
        let mut name = OsString::from(&self.path);
        name.push(format!(".{number}"));
        PathBuf::from(name)
    }
}

fn is_missing(path: &Path) -> bool {
    std::fs::symlink_metadata(path).is_err_and(|error| error.kind() == ErrorKind::NotFound)
}

#[cfg(test)]
mod tests {
    use super::{Rotation, RotationLimits};
    use std::fs::File;
    use std::io::Write;

    #[test]
    fn full_file_is_renamed_and_the_oldest_is_dropped() {
        let directory = std::env::temp_dir().join(format!("flick-rotation-{}", std::process::id()));
        std::fs::create_dir_all(&directory).expect("the temporary directory is writable");
        let path = directory.join("log");
        let open = |path: &std::path::Path| File::options().append(true).create(true).open(path);
        std::fs::write(&path, "old\n").expect("it can be written");
        let mut file = open(&path).expect("it can be opened");
        let mut rotation = Rotation::new(&path, &file, RotationLimits { bytes_max: 10, keep: 2 });
        for number in 0..9 {
            let line = format!("line {number}\n");
            file.write_all(line.as_bytes()).expect("it can be written");
            if let Some(next) = rotation.written(line.len() as u64, open).expect("it can be rotated") {
                file = next;
            }
        }
        let read = |name: &str| std::fs::read_to_string(directory.join(name)).ok();
        assert_eq!(read("log").as_deref(), Some(""));
        assert_eq!(read("log.1").as_deref(), Some("line 7\nline 8\n"));
        assert_eq!(read("log.2").as_deref(), Some("line 5\nline 6\n"));
        assert_eq!(read("log.3"), None);
        // A failed attempt renames once, and the next one opens the file.
        assert!(rotation.written(10, |_| Err(std::io::ErrorKind::PermissionDenied.into())).is_err());
        assert!(rotation.written(10, |_| Err(std::io::ErrorKind::PermissionDenied.into())).is_err());
        assert_eq!((read("log"), read("log.1").as_deref()), (None, Some("")));
        assert_eq!(read("log.2").as_deref(), Some("line 7\nline 8\n"));
        assert!(rotation.written(10, open).expect("it can be opened again").is_some());
        assert_eq!((read("log").as_deref(), read("log.1").as_deref()), (Some(""), Some("")));
        std::fs::remove_dir_all(&directory).expect("it is ours");
    }
}
