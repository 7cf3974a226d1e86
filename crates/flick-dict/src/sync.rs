//! The atomics of this crate: the real ones, or loom's when its models are run (`--cfg loom`).

#[cfg(loom)]
pub(crate) use loom::sync::atomic::{AtomicU32, AtomicU64, fence};
#[cfg(not(loom))]
pub(crate) use std::sync::atomic::{AtomicU32, AtomicU64, fence};

pub(crate) use std::sync::atomic::Ordering;

/// Waits a moment for another thread: first by spinning, later by giving the core away.
pub(crate) fn relax(turn: u32) {
    #[cfg(loom)]
    {
        let _ = turn;
        loom::thread::yield_now();
    }
    #[cfg(not(loom))]
    if turn < crate::limits::LOCK_SPINS_MAX {
        std::hint::spin_loop();
    } else {
        std::thread::yield_now();
    }
}
