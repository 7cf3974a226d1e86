//! The machine of the tests: exclusive use for measurements, and what a process uses.

use std::sync::{PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};

use rustix::process::{Pid, Resource, Rlimit};

pub use crate::common::lateness::Lateness;
use crate::common::process::{self, resident_kib};
pub use crate::common::process::{processor_time, sleeps, want_descriptors};

static MACHINE: RwLock<()> = RwLock::new(());

/// Runs beside other tests.
pub fn together() -> RwLockReadGuard<'static, ()> {
    MACHINE.read().unwrap_or_else(PoisonError::into_inner)
}

/// Runs alone, for tests that measure.
pub fn alone() -> RwLockWriteGuard<'static, ()> {
    MACHINE.write().unwrap_or_else(PoisonError::into_inner)
}

/// Rounds of a test with a misbehaving peer; `FLICK_MOCKS` overrides them.
pub fn rounds(usual: u32) -> u32 {
    std::env::var("FLICK_MOCKS").ok().and_then(|text| text.parse().ok()).unwrap_or(usual)
}

/// Resident memory of a process, in bytes.
pub fn resident_bytes(pid: u32) -> u64 {
    resident_kib(pid) * 1024
}

/// Whether every thread of a process is stopped by a signal.
pub fn is_stopped(pid: u32) -> bool {
    let threads = std::fs::read_dir(format!("/proc/{pid}/task")).expect("the process lives");
    threads.flatten().all(|thread| {
        let stat = std::fs::read_to_string(thread.path().join("stat")).unwrap_or_default();
        stat.rsplit_once(')').is_some_and(|(_, rest)| rest.trim_start().starts_with('T'))
    })
}

/// Descriptors that a process has open.
pub fn descriptors(pid: u32) -> u64 {
    process::descriptors(pid) as u64
}

/// Caps the number of descriptors another process may have open, so that it cannot raise it itself.
pub fn cap_descriptors(pid: u32, most: u64) {
    let pid = Pid::from_raw(pid as i32).expect("a process has a positive id");
    let cap = Rlimit { current: Some(most), maximum: Some(most) };
    rustix::process::prlimit(Some(pid), Resource::Nofile, cap).expect("our own child");
}

/// Sets the number of descriptors another process may have open; returns the former one.
pub fn limit_descriptors(pid: u32, current: u64) -> u64 {
    let pid = Pid::from_raw(pid as i32).expect("a process has a positive id");
    let hard = rustix::process::getrlimit(Resource::Nofile).maximum;
    let set = Rlimit { current: Some(current), maximum: hard };
    let old = rustix::process::prlimit(Some(pid), Resource::Nofile, set).expect("our own child");
    old.current.unwrap_or(u64::MAX)
}
