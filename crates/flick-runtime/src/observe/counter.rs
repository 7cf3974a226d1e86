//! A counter with one writer and any number of readers.
//! Promises: an update is a load and a store of a cache line that only its writer writes.

use std::sync::atomic::{AtomicU64, Ordering};

/// A counter with one writer.
#[derive(Debug, Default)]
pub struct Counter(AtomicU64);

impl Counter {
    /// Adds. Only the owning worker calls this.
    pub fn add(&self, amount: u64) {
        if cfg!(feature = "uncounted") {
            return;
        }
        self.0.store(self.0.load(Ordering::Relaxed).wrapping_add(amount), Ordering::Relaxed);
    }

    /// Subtracts. Only the owning worker calls this.
    pub fn sub(&self, amount: u64) {
        self.0.store(self.0.load(Ordering::Relaxed).wrapping_sub(amount), Ordering::Relaxed);
    }

    /// Sets it. Only the owning worker calls this.
    pub fn set(&self, value: u64) {
        self.0.store(value, Ordering::Relaxed);
    }

    /// Sets it to zero. Only the owning worker calls this.
    pub fn clear(&self) {
        self.0.store(0, Ordering::Relaxed);
    }

    /// Reads.
    pub fn get(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}
