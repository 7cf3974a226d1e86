//! The atomics: those of the core library, or loom's when the models are run (`--cfg loom`).

#[cfg(not(loom))]
pub use core::sync::atomic::{AtomicU32, AtomicU64, fence};
#[cfg(loom)]
pub use loom::sync::atomic::{AtomicU32, AtomicU64, fence};
