//! Whether a worker still runs: a count of its iterations, written once in each, read by the watchdog.
//! Promises: an iteration costs a load and a store of a line that only its worker writes; the reader can tell a worker
//! that has ended from one that is stalled. Refuses: judging; a sleeping worker has no iterations either, so the
//! watchdog wakes it first.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// Value of the count when its worker has ended, by return or by panic.
const ENDED: u64 = u64::MAX;

/// The count, on lines of its own.
#[derive(Debug, Default)]
#[repr(align(128))]
struct Beats(AtomicU64);

/// The worker's side; dropped with it.
#[derive(Debug, Default)]
pub(crate) struct Heartbeat(Arc<Beats>);

/// The watcher's side.
#[derive(Clone, Debug)]
pub(crate) struct HeartbeatReader(Arc<Beats>);

impl Heartbeat {
    /// Counts an iteration that begins.
    pub(crate) fn beat(&self) {
        self.0.0.store(self.0.0.load(Ordering::Relaxed) + 1, Ordering::Relaxed);
    }

    /// Returns a reader for the watchdog.
    pub(crate) fn reader(&self) -> HeartbeatReader {
        HeartbeatReader(Arc::clone(&self.0))
    }
}

impl Drop for Heartbeat {
    fn drop(&mut self) {
        self.0.0.store(ENDED, Ordering::Relaxed);
    }
}

impl HeartbeatReader {
    /// Returns the number of iterations so far; `None`: the worker has ended.
    pub(crate) fn iterations(&self) -> Option<u64> {
        Some(self.0.0.load(Ordering::Relaxed)).filter(|iterations| *iterations != ENDED)
    }
}
