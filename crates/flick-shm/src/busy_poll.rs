//! Busy polling before a sleep: a wake-up costs a thread more than a bounded number of looks.
//! Promises: a wait polls for the configured time at most, for twice as long behind a pause; waits that end without
//! success make further ones rare, so that slow peers cost little; a peer on the same core gets the core.
//! Not here: what is looked at (`stream.rs`).
//! Source: the adaptive polling of `kvm.halt_poll_ns`.

use core::hint::spin_loop;

use rustix::thread::sched_yield;
use rustix::time::{ClockId, clock_gettime};

use crate::limits::{BUSY_POLL_LOOKS, BUSY_POLL_PAUSE_MAX, BUSY_POLL_YIELD_NS, CORE_SWITCH_NS};

/// Decides for one stream whether a wait polls first, and for how long.
#[derive(Clone, Copy, Debug)]
pub(crate) struct BusyPoll {
    time_ns: u64,
    /// Waits that do not poll after the next failure.
    pause: u32,
    /// Waits until the next one that polls.
    left: u32,
    /// Whether the other side appears to run on this core: the last success was behind a call that let it run.
    is_core_shared: bool,
}

impl BusyPoll {
    /// `time_us`: longest time that a wait polls; 0 means never.
    pub fn new(time_us: u32) -> Self {
        Self { time_ns: u64::from(time_us) * 1000, pause: 0, left: 0, is_core_shared: false }
    }

    /// Looks until `is_ready`, or for the time of a wait; returns whether it was ready.
    ///
    /// Errors: those of `is_ready`.
    pub fn run<E>(&mut self, mut is_ready: impl FnMut() -> Result<bool, E>) -> Result<bool, E> {
        if is_ready()? {
            return Ok(true);
        }
        if self.time_ns == 0 {
            return Ok(false);
        }
        if self.left > 0 {
            self.left -= 1;
            return Ok(false);
        }
        // Behind a pause the other side may sleep as well: this side then waits for its wake-up too.
        let time_ns = if self.pause == 0 { self.time_ns } else { 2 * self.time_ns };
        let begun = now_ns();
        let mut elapsed = 0;
        while elapsed < time_ns {
            if self.is_core_shared || elapsed >= BUSY_POLL_YIELD_NS {
                sched_yield();
                let after = now_ns().saturating_sub(begun);
                self.is_core_shared = after.saturating_sub(elapsed) >= CORE_SWITCH_NS;
                elapsed = after;
                if is_ready()? {
                    // Behind other work of this core the call takes long; a sleep is better then.
                    self.settle(elapsed < time_ns);
                    return Ok(true);
                }
            }
            if self.is_core_shared {
                continue;
            }
            for _ in 0..BUSY_POLL_LOOKS {
                spin_loop();
                if is_ready()? {
                    self.settle(true);
                    return Ok(true);
                }
            }
            elapsed = now_ns().saturating_sub(begun);
        }
        self.settle(false);
        Ok(false)
    }

    fn settle(&mut self, is_success: bool) {
        self.pause = if is_success { 0 } else { (2 * self.pause + 1).min(BUSY_POLL_PAUSE_MAX) };
        self.left = self.pause;
    }
}

fn now_ns() -> u64 {
    let now = clock_gettime(ClockId::Monotonic);
    (now.tv_sec as u64).wrapping_mul(1_000_000_000).wrapping_add(now.tv_nsec as u64)
}

#[cfg(all(test, not(miri)))]
mod tests {
    use super::*;

    #[test]
    fn waits_that_never_succeed_poll_ever_more_rarely() {
        let mut busy_poll = BusyPoll::new(1);
        let (mut looks, mut polled) = (0_u64, 0_u32);
        for _ in 0..4 * BUSY_POLL_PAUSE_MAX {
            let before = looks;
            let is_ready = busy_poll.run(|| {
                looks += 1;
                Ok::<_, ()>(false)
            });
            assert_eq!(is_ready, Ok(false));
            polled += u32::from(looks - before > 1);
        }
        // One with each pause until the longest one, and then one behind each.
        assert!(polled <= BUSY_POLL_PAUSE_MAX.ilog2() + 4, "{polled} waits polled");
        // A success ends the pauses.
        let mut looks = 0;
        while looks < 2 {
            looks = 0;
            let is_ready = busy_poll.run(|| {
                looks += 1;
                Ok::<_, ()>(looks == 2)
            });
            assert_eq!(is_ready, Ok(looks == 2));
        }
        let mut looks = 0;
        assert_eq!(
            busy_poll.run(|| {
                looks += 1;
                Ok::<_, ()>(looks == 3)
            }),
            Ok(true)
        );
    }

    #[test]
    fn a_stream_without_busy_polling_looks_once() {
        let mut looks = 0;
        assert_eq!(
            BusyPoll::new(0).run(|| {
                looks += 1;
                Ok::<_, ()>(false)
            }),
            Ok(false)
        );
        assert_eq!(looks, 1);
    }
}
