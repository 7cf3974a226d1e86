//! `/tmp/perf-PID.map`: the names of compiled functions, for perf.
//! Promises: opened before the sandbox is active, and current after each reload; it stays when the process has ended,
//! because `perf report` reads it later.
//! Refuses: to write through a file or symbolic link that exists already.
//! Source: the kernel's `tools/perf/Documentation/jit-interface.txt`.

use std::fs::OpenOptions;
use std::io;
use std::os::unix::fs::OpenOptionsExt;
use std::path::PathBuf;

/// Writes the file from now on. If that fails, the service runs without it and logs a warning.
pub fn start() {
    let path = PathBuf::from(format!("/tmp/perf-{}.map", std::process::id()));
    // An earlier process may have had this id. A symbolic link is removed, not followed.
    let opened = match std::fs::remove_file(&path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
        _ => OpenOptions::new().write(true).create_new(true).mode(0o644).open(&path),
    };
    match opened.and_then(flick_codegen::keep_perf_map) {
        Ok(()) => tracing::info!(path = %path.display(), "perf map"),
        Err(error) => {
            tracing::warn!(%error, path = %path.display(), "cannot write the perf map")
        }
    }
}
