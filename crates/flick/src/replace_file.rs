//! Replacing a file of the user.
//! Promises: the new text is written to a file beside the old one, synced and renamed; symbolic links and permissions
//! stay.

use std::fs::{self, OpenOptions};
use std::io::Write;
use std::path::Path;

/// Replaces the text of the file at `path`.
///
/// Errors: it is not there, read-only, or cannot be written; nothing was changed then.
pub fn replace_file(path: &Path, text: &str) -> std::io::Result<()> {
    let path = path.canonicalize()?;
    let permissions = fs::metadata(&path)?.permissions();
    if permissions.readonly() {
        return Err(std::io::Error::new(std::io::ErrorKind::PermissionDenied, "the file is read-only"));
    }
    let name = path.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
    let beside = path.with_file_name(format!(".{name}.{}.tmp", std::process::id()));
    let result = write_new(&beside, text, permissions).and_then(|()| fs::rename(&beside, &path));
    if result.is_err() {
        // The file may not have been created.
        let _ = fs::remove_file(&beside);
    }
    result
}

fn write_new(path: &Path, text: &str, permissions: fs::Permissions) -> std::io::Result<()> {
    let mut file = OpenOptions::new().write(true).create_new(true).open(path)?;
    file.set_permissions(permissions)?;
    file.write_all(text.as_bytes())?;
    file.sync_all()
}
