//! The atomics: those of the standard library, or loom's when its models are run (`--cfg loom`).

#[cfg(loom)]
pub(crate) use loom::sync::atomic::{AtomicU32, AtomicU64, fence};
#[cfg(not(loom))]
pub(crate) use std::sync::atomic::{AtomicU32, AtomicU64, fence};

pub(crate) use std::sync::atomic::Ordering;

/// Waits a moment for another thread: first busily, later by yielding the core.
pub(crate) fn back_off(attempt: u32) {
    #[cfg(loom)]
    {
        let _ = attempt;
        loom::thread::yield_now();
    }
    #[cfg(not(loom))]
    if attempt < crate::limits::LOCK_BUSY_WAITS_MAX {
        std::hint::spin_loop();
    } else {
        std::thread::yield_now();
    }
}
