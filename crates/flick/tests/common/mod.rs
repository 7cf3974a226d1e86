//! Support for tests of the command line: running the tool, and running it beside other processes.
//! Promises: every process that is started is ended by its own handle; waiting is for a condition, with a deadline.
#![allow(dead_code, reason = "each test program uses its part")]

pub mod client;
pub mod hadoop;
pub mod http;
pub mod lateness;
pub mod peers;
pub mod process;
pub mod service;
pub mod wait;

use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};

/// The tool under test; `FLICK_BINARY` names another one, for figures of a release build.
pub fn flick() -> Command {
    let tool = std::env::var_os("FLICK_BINARY").unwrap_or_else(|| env!("CARGO_BIN_EXE_flick").into());
    let mut command = Command::new(tool);
    command.current_dir(root()).stdin(Stdio::null()).env_remove("FLICK_LOG").env("NO_COLOR", "1");
    command
}

/// The root of the workspace.
pub fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").canonicalize().expect("the workspace has a root")
}

/// The program of Listing 1, from the root.
pub const PROXY: &str = "examples/memcached_proxy/memcached_proxy.flick";

/// Status, stdout and stderr of the tool with these arguments.
pub fn run(args: &[&str]) -> (i32, String, String) {
    captured(flick().args(args).output().expect("the tool starts"))
}

/// Status, stdout and stderr.
pub fn captured(output: Output) -> (i32, String, String) {
    let text = |bytes: Vec<u8>| String::from_utf8_lossy(&bytes).into_owned();
    (output.status.code().unwrap_or(-1), text(output.stdout), text(output.stderr))
}

/// A directory for one test's files, removed when dropped.
pub struct Scratch(PathBuf);

impl Scratch {
    /// A new, empty directory; each call makes another one, because tests run in parallel.
    pub fn new(test: &str) -> Self {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let (id, number) = (std::process::id(), NEXT.fetch_add(1, Ordering::Relaxed));
        let path = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("{test}-{id}-{number}"));
        // Left over from a run that was killed, if it exists at all.
        let _ = std::fs::remove_dir_all(&path);
        std::fs::create_dir_all(&path).expect("the target directory can be written");
        Self(path)
    }

    /// The directory.
    pub fn path(&self) -> &Path {
        &self.0
    }

    /// Writes a file and returns its path.
    pub fn write(&self, name: &str, text: &str) -> PathBuf {
        let path = self.0.join(name);
        std::fs::write(&path, text).expect("the directory can be written");
        path
    }

    /// As [`Scratch::write`], a file that only this user can read.
    pub fn write_private(&self, name: &str, text: &str) -> PathBuf {
        let path = self.write(name, text);
        let private = std::os::unix::fs::PermissionsExt::from_mode(0o600);
        std::fs::set_permissions(&path, private).expect("the file is ours");
        path
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        // What cannot be removed is in the target directory anyway.
        let _ = std::fs::remove_dir_all(&self.0);
    }
}
