//! Polling: a wait looks again and again for a short time before it sleeps.
//! Promises: a wait polls for [`POLL_CYCLES`] at most, and only where that has helped before; beyond
//! [`FREE_POLL_CYCLES`] only with a permit; where the other end was last on this core, it yields the core instead.
//! Not here: what is waited for, and the sleep (`transfer.rs`, `wait.rs`, `threads.rs`).

use core::sync::atomic::AtomicU32;
use core::sync::atomic::Ordering::Relaxed;

use crate::limits::{FREE_POLL_CYCLES, POLL_CYCLES, POLL_SKIPS_MAX, YIELD_CYCLES};
use crate::permits::Permit;
use crate::sys;
use crate::sys::pipe::{core_number, cycles, yield_core};

/// The polling of one wait, up to its bounds.
#[derive(Debug)]
pub struct BoundedPoll {
    began: u64,
    has_yielded: bool,
    permit: Option<Permit<'static>>,
}

impl BoundedPoll {
    /// Begins.
    pub fn new() -> Self {
        Self { began: cycles(), has_yielded: false, permit: None }
    }

    /// Whether the time is over.
    pub fn is_over(&self) -> bool {
        self.elapsed() > POLL_CYCLES
    }

    fn elapsed(&self) -> u64 {
        cycles().wrapping_sub(self.began)
    }

    /// Pauses between two looks. Returns false if this thread may not poll on: the time is over, or other programs poll
    /// on all cores but one.
    pub fn pause(&mut self) -> bool {
        let elapsed = self.elapsed();
        if elapsed > FREE_POLL_CYCLES && self.permit.is_none() {
            let now = self.began.wrapping_add(elapsed);
            self.permit = sys::polling_permits().and_then(|permits| permits.take(now, core_number()));
            if self.permit.is_none() {
                if let Some(state) = sys::state() {
                    state.polls_refused.fetch_add(1, Relaxed);
                }
                return false;
            }
        }
        // The other end may wait for this core. More than once would favour other programs.
        if elapsed > YIELD_CYCLES && !self.has_yielded {
            self.has_yielded = true;
            yield_core();
        } else {
            core::hint::spin_loop();
        }
        elapsed <= POLL_CYCLES
    }
}

/// Whether to poll before a wait sleeps: polling that was in vain is left out for a while.
#[derive(Debug)]
pub struct Polling {
    /// Waits that sleep at once.
    skip: AtomicU32,
    /// The next number of such waits.
    skips: AtomicU32,
}

impl Polling {
    /// One that polls the next time.
    pub const fn new() -> Self {
        Self { skip: AtomicU32::new(0), skips: AtomicU32::new(0) }
    }

    /// Polls the next time.
    pub fn reset(&self) {
        self.skip.store(0, Relaxed);
        self.skips.store(0, Relaxed);
    }

    /// Polls for a short time, where that has helped before. Returns whether `is_ready`. An end that `shares_core` with
    /// the other one yields it once, for that one to answer.
    pub fn poll(&self, shares_core: impl FnOnce() -> bool, is_ready: impl Fn() -> bool) -> bool {
        let skip = self.skip.load(Relaxed);
        if skip > 0 {
            self.skip.store(skip - 1, Relaxed);
            return false;
        }
        let mut poll = BoundedPoll::new();
        // If nothing has run meanwhile, the other end is no more on this core.
        let has_shared = shares_core() && {
            yield_core();
            poll.elapsed() > FREE_POLL_CYCLES
        };
        loop {
            let (is_over, is_found) = (poll.is_over(), is_ready());
            // Also what is found late cost more than a sleep: other programs had the core.
            if is_found && !is_over {
                self.skips.store(0, Relaxed);
                return true;
            }
            if is_over || has_shared {
                let skips = (self.skips.load(Relaxed) * 2 + 1).min(POLL_SKIPS_MAX);
                self.skips.store(skips, Relaxed);
                self.skip.store(skips, Relaxed);
                return is_found;
            }
            if !poll.pause() && !poll.is_over() {
                // Refused, which says nothing of the next time.
                return is_ready();
            }
        }
    }
}
