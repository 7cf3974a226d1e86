//! What `use NAME` finds: the standard library, which is part of the binary, or a file beside the program.
//! Promises: a name means one thing. A file beside the program with the name of a library file is refused, so that a
//! program never changes its meaning with the directory it lies in.

use std::cell::RefCell;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};

/// Names and texts of the standard library.
const LIBRARY: &[(&str, &str)] = &[
    ("frames", include_str!("../../../stdlib/frames.flick")),
    ("hadoop", include_str!("../../../stdlib/hadoop.flick")),
    ("http", include_str!("../../../stdlib/http.flick")),
    ("lines", include_str!("../../../stdlib/lines.flick")),
    ("memcached_binary", include_str!("../../../stdlib/memcached_binary.flick")),
    ("memcached_text", include_str!("../../../stdlib/memcached_text.flick")),
    ("pcap", include_str!("../../../stdlib/pcap.flick")),
    ("raw", include_str!("../../../stdlib/raw.flick")),
    ("resp", include_str!("../../../stdlib/resp.flick")),
];

/// Finds the files that one program uses.
pub struct Loader {
    directory: PathBuf,
    troubles: RefCell<Vec<String>>,
}

impl Loader {
    /// For the program at `path`.
    pub fn beside(path: &Path) -> Self {
        let directory = path.parent().unwrap_or(Path::new("")).to_path_buf();
        Self { directory, troubles: RefCell::default() }
    }

    /// Name and text of what `use name` means, if there is such a file.
    pub fn load(&self, name: &str) -> Option<(String, String)> {
        let file = format!("{name}.flick");
        let standard = LIBRARY.iter().find(|(known, _)| *known == name).map(|(_, text)| *text);
        let path = self.directory.join(&file);
        let own = match crate::console::read_source(&path) {
            Ok(text) => Some((path.display().to_string(), text)),
            Err(error) if error.kind() == ErrorKind::NotFound => None,
            Err(error) => {
                self.troubles.borrow_mut().push(format!("cannot read {}: {error}", path.display()));
                None
            }
        };
        match (standard, own) {
            // The library's own files may use each other from where they lie.
            (Some(standard), Some((_, text))) if text == standard => Some((shown(&file), text)),
            (Some(standard), Some((path, _))) => {
                self.troubles.borrow_mut().push(format!(
                    "`use {name}` means the standard library's file, but {path} has the same name; rename it"
                ));
                Some((shown(&file), standard.to_owned()))
            }
            (Some(standard), None) => Some((shown(&file), standard.to_owned())),
            (None, own) => own,
        }
    }

    /// What went wrong while loading.
    pub fn troubles(&self) -> Vec<String> {
        self.troubles.take()
    }
}

fn shown(file: &str) -> String {
    format!("<stdlib>/{file}")
}
