//! Replacing a file of the user.
//! Promises: the new text is written to a file beside the old one, synced and renamed; symbolic links, owner, group and
//! permissions stay.

use std::fs::{self, OpenOptions};
use std::io::Write;
use std::os::unix::fs::{MetadataExt, fchown};
use std::path::Path;

/// Replaces the text of the file at `path`.
///
/// Errors: it is not there, read-only, or cannot be written; the new file cannot be given to the owner and group of the
/// old one. Nothing was changed then.
pub fn replace_file(path: &Path, text: &str) -> std::io::Result<()> {
    let path = path.canonicalize()?;
    let old = fs::metadata(&path)?;
    if old.permissions().readonly() {
        return Err(std::io::Error::new(std::io::ErrorKind::PermissionDenied, "the file is read-only"));
    }
    let name = path.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
    let beside = path.with_file_name(format!(".{name}.{}.tmp", std::process::id()));
    let result = write_new(&beside, text, &old).and_then(|()| fs::rename(&beside, &path));
    if result.is_err() {
        // The file may not have been created.
        let _ = fs::remove_file(&beside);
    }
    result
}

fn write_new(path: &Path, text: &str, old: &fs::Metadata) -> std::io::Result<()> {
    let mut file = OpenOptions::new().write(true).create_new(true).open(path)?;
    let new = file.metadata()?;
    let changed = |old, new| (old != new).then_some(old);
    let (owner, group) = (changed(old.uid(), new.uid()), changed(old.gid(), new.gid()));
    if owner.or(group).is_some() {
        // Before the permissions, of which it clears some.
        fchown(&file, owner, group)?;
    }
    file.set_permissions(old.permissions())?;
    file.write_all(text.as_bytes())?;
    file.sync_all()
}
