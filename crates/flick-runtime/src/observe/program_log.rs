//! Count of the log lines of programs that the rate limit of `log()` left out, of all workers of the process.
//! Promises: a line that is left out costs one atomic addition.
//! Not here: the limit itself (`rules/host.rs`); lines that standard error did not take, which the tool counts.

use std::sync::atomic::{AtomicU64, Ordering};

static LEFT_OUT: AtomicU64 = AtomicU64::new(0);

/// Counts a line that is left out.
pub(crate) fn leave_out() {
    LEFT_OUT.fetch_add(1, Ordering::Relaxed);
}

/// Lines that were left out since the process started.
pub fn left_out() -> u64 {
    LEFT_OUT.load(Ordering::Relaxed)
}
