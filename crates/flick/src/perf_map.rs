//! The file in which perf looks for the names of compiled functions: `/tmp/perf-PID.map`.
//! Promises: opened before anything is given up, and kept up to date over reloads; it stays when the process has ended,
//! because perf reads it after that.
//! Refuses: a file that somebody else has put there, or a link.
//! Source: the kernel's `tools/perf/Documentation/jit-interface.txt`.

use std::fs::OpenOptions;
use std::io;
use std::os::unix::fs::OpenOptionsExt;
use std::path::PathBuf;

/// Keeps the file from here on. What does not work is told; the service runs all the same.
pub fn keep() {
    let path = PathBuf::from(format!("/tmp/perf-{}.map", std::process::id()));
    // An earlier process may have had our number; a link is removed, not followed.
    let opened = match std::fs::remove_file(&path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
        _ => OpenOptions::new().write(true).create_new(true).mode(0o644).open(&path),
    };
    match opened.and_then(flick_codegen::keep_perf_map) {
        Ok(()) => tracing::info!(path = %path.display(), "perf map"),
        Err(error) => {
            tracing::warn!(%error, path = %path.display(), "perf gets no names of compiled functions")
        }
    }
}
