//! A lock between the threads of this process, for what is rarely used.
//! Promises: one thread at a time has the value; a thread that waits sleeps; a panic frees the lock.
//! Refuses: the data path; other processes. The child of a fork may find it locked by a thread that it does not have.
//! Source: the second mutex of Drepper, "Futexes Are Tricky".

use core::cell::UnsafeCell;
use core::fmt;
use core::sync::atomic::{AtomicU32, Ordering};

use super::{futex_wait, futex_wake};

/// No thread has the value.
const FREE: u32 = 0;
/// A thread has it.
const HELD: u32 = 1;
/// A thread has it, and others may sleep.
const AWAITED: u32 = 2;

/// A value that one thread at a time may use.
pub(crate) struct Lock<T> {
    word: AtomicU32,
    value: UnsafeCell<T>,
}

// SAFETY: `with` lets one thread at a time have the value, so it is sent between threads and never shared.
unsafe impl<T: Send> Sync for Lock<T> {}

impl<T> fmt::Debug for Lock<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Lock").finish_non_exhaustive()
    }
}

/// Frees the lock when the use of the value ends, also by a panic.
struct Held<'a>(&'a AtomicU32);

impl Drop for Held<'_> {
    fn drop(&mut self) {
        if self.0.swap(FREE, Ordering::Release) == AWAITED {
            futex_wake(self.0);
        }
    }
}

impl<T> Lock<T> {
    /// Returns a lock that is free.
    pub fn new(value: T) -> Self {
        Self { word: AtomicU32::new(FREE), value: UnsafeCell::new(value) }
    }

    /// Calls `run` with the value. `run` must not use this lock again.
    ///
    /// Cost: blocks while another thread has the value.
    pub fn with<R>(&self, run: impl FnOnce(&mut T) -> R) -> R {
        if self.word.compare_exchange(FREE, HELD, Ordering::Acquire, Ordering::Relaxed).is_err() {
            while self.word.swap(AWAITED, Ordering::Acquire) != FREE {
                futex_wait(&self.word, AWAITED, None);
            }
        }
        let _held = Held(&self.word);
        // SAFETY: this thread has changed the word from `FREE`, and no other thread can before `_held` is dropped,
        // behind the last use of the reference.
        run(unsafe { &mut *self.value.get() })
    }
}

#[cfg(all(test, not(miri)))]
mod tests {
    use super::*;

    #[test]
    fn one_thread_at_a_time_has_the_value() {
        let lock = Lock::new(0_u64);
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| {
                    for _ in 0..20_000 {
                        lock.with(|value| {
                            let before = *value;
                            core::hint::black_box(&lock);
                            *value = before + 1;
                        });
                    }
                });
            }
        });
        assert_eq!(lock.with(|value| *value), 80_000);
    }

    #[test]
    fn a_panic_frees_the_lock() {
        let lock = std::sync::Arc::new(Lock::new(1));
        let panicking = std::sync::Arc::clone(&lock);
        let ended = std::thread::spawn(move || panicking.with(|_| std::panic!("a test"))).join();
        assert!(ended.is_err());
        assert_eq!(lock.with(|value| *value), 1);
    }
}
