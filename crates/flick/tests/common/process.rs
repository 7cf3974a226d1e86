//! Processes: their resource usage, as the kernel reports it, and handles that end them.

use std::ops::{Deref, DerefMut};
use std::process::Child;
use std::time::Duration;

use rustix::process::{Resource, Rlimit};

/// Resident memory in KiB.
pub fn resident_kib(pid: u32) -> u64 {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).expect("the process lives");
    let line = status.lines().find(|line| line.starts_with("VmRSS:")).expect("Linux says so");
    line.split_whitespace().nth(1).and_then(|kib| kib.parse().ok()).expect("a number")
}

/// Open descriptors.
pub fn descriptors(pid: u32) -> usize {
    std::fs::read_dir(format!("/proc/{pid}/fd")).expect("the process lives").count()
}

/// Open sockets, and open descriptors of other kinds.
pub fn sockets_and_others(pid: u32) -> (usize, usize) {
    let entries = std::fs::read_dir(format!("/proc/{pid}/fd")).expect("the process lives");
    // A descriptor may have been closed since the directory was read.
    let (sockets, others): (Vec<_>, Vec<_>) = entries
        .flatten()
        .filter_map(|entry| std::fs::read_link(entry.path()).ok())
        .partition(|target| target.to_string_lossy().starts_with("socket:"));
    (sockets.len(), others.len())
}

/// Resident memory in KiB, and open descriptors.
pub fn held(pid: u32) -> (u64, usize) {
    (resident_kib(pid), descriptors(pid))
}

/// CPU time of the current threads of a process.
pub fn processor_time(pid: u32) -> Duration {
    let threads = std::fs::read_dir(format!("/proc/{pid}/task")).expect("the process lives");
    let used_ns = threads.flatten().map(|thread| {
        // The thread may have ended meanwhile.
        let schedstat = std::fs::read_to_string(thread.path().join("schedstat")).unwrap_or_default();
        schedstat.split_whitespace().next().and_then(|ns| ns.parse::<u64>().ok()).unwrap_or(0)
    });
    Duration::from_nanos(used_ns.sum())
}

/// Voluntary context switches of the current threads of a process.
pub fn sleeps(pid: u32) -> u64 {
    let threads = std::fs::read_dir(format!("/proc/{pid}/task")).expect("the process lives");
    let sleeps = threads.flatten().filter_map(|thread| {
        let status = std::fs::read_to_string(thread.path().join("status")).unwrap_or_default();
        let line = status.lines().find_map(|line| line.strip_prefix("voluntary_ctxt_switches:"))?;
        line.trim().parse::<u64>().ok()
    });
    sleeps.sum()
}

/// Raises the limit on descriptors of this process and its future children to the hard limit. Panics if that is below
/// `needed`.
pub fn want_descriptors(needed: u64) {
    let limit = rustix::process::getrlimit(Resource::Nofile);
    if limit.maximum.is_some_and(|most| most < needed) {
        // Root may raise the hard limit; without that permission the assertion below fails.
        let raised = Rlimit { current: Some(needed), maximum: Some(needed) };
        let _ = rustix::process::setrlimit(Resource::Nofile, raised);
    }
    let limit = rustix::process::getrlimit(Resource::Nofile);
    let most = limit.maximum.unwrap_or(u64::MAX);
    assert!(
        most >= needed,
        "the test needs {needed} descriptors; the hard limit is {most} (see `ulimit -Hn`)"
    );
    let raised = Rlimit { current: Some(most), maximum: limit.maximum };
    rustix::process::setrlimit(Resource::Nofile, raised)
        .expect("the soft limit may be raised up to the hard limit");
}

/// A child of the test; dropping it kills it and waits for its end.
pub struct OwnedChild(pub Child);

impl Deref for OwnedChild {
    type Target = Child;

    fn deref(&self) -> &Child {
        &self.0
    }
}

impl DerefMut for OwnedChild {
    fn deref_mut(&mut self) -> &mut Child {
        &mut self.0
    }
}

impl Drop for OwnedChild {
    fn drop(&mut self) {
        // One that has ended cannot be killed; after `wait` it is gone in any case.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// A process that is not a child of the test; dropping it kills the process.
pub struct OwnedPid(pub u32);

impl OwnedPid {
    /// Whether the process exists.
    pub fn is_there(&self) -> bool {
        std::path::Path::new(&format!("/proc/{}", self.0)).exists()
    }
}

impl Drop for OwnedPid {
    fn drop(&mut self) {
        if self.is_there() {
            super::peers::signal(self.0, "KILL");
        }
    }
}
