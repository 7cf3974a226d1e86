//! Backend lists in files: one backend per line, `#` starts a comment, the last line ends with a line break.

use std::path::Path;
use std::time::SystemTime;

use flick_runtime::BackendAddress;

use crate::address::{check_changeable, parse_backends};
use crate::limits::FILE_BYTES_MAX;

/// Size, modification time and inode of a file: another value means that the file may have changed.
pub type FileStamp = (u64, Option<SystemTime>, u64);

/// Returns the stamp of a file, or `None` if its metadata cannot be read.
pub fn stamp(path: &Path) -> Option<FileStamp> {
    use std::os::unix::fs::MetadataExt;
    let data = std::fs::metadata(path).ok()?;
    Some((data.len(), data.modified().ok(), data.ino()))
}

/// Reads the backends of a file.
///
/// Errors: the file cannot be read, is too large or incomplete, or a line is not a backend that can come at run time.
pub fn read(path: &Path) -> Result<Vec<BackendAddress>, String> {
    let cannot = |error: std::io::Error| format!("cannot read {}: {error}", path.display());
    let data = std::fs::metadata(path).map_err(cannot)?;
    if !data.is_file() {
        // To open a pipe would block until it has a writer.
        return Err(format!("{} is not a regular file", path.display()));
    }
    if data.len() > FILE_BYTES_MAX {
        return Err(format!("{} has more than {FILE_BYTES_MAX} bytes", path.display()));
    }
    let text = std::fs::read_to_string(path).map_err(cannot)?;
    // A file that is written in place may be incomplete now. An empty list is written as a comment.
    if !text.ends_with('\n') {
        return Err(format!("{} does not end with a line break: it may be incomplete", path.display()));
    }
    let mut list = Vec::new();
    for (number, line) in text.lines().enumerate() {
        let line = line.split('#').next().unwrap_or_default().trim();
        if !line.is_empty() {
            let at = |error: String| format!("{}:{}: {error}", path.display(), number + 1);
            let backends = parse_backends(line).map_err(at)?;
            backends.iter().try_for_each(|backend| check_changeable(&backend.endpoint)).map_err(at)?;
            list.extend(backends);
        }
    }
    Ok(list)
}
