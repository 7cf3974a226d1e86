//! Busy polling before a sleep: a wake-up costs a thread more than a bounded number of looks.
//! Promises: a wait polls for the configured time at most; waits that end without success make further ones rare, so
//! that slow peers cost little, until a sleep was short; a peer on the same core gets the core; beside a program that
//! does not give the core back there is no polling, since a thread that yields to it loses its share.
//! Not here: what is looked at (the callers).
//! Source: the adaptive polling of `kvm.halt_poll_ns`.

use core::hint::spin_loop;

use rustix::thread::sched_yield;
use rustix::time::{ClockId, clock_gettime};

use crate::limits::{
    BUSY_POLL_LOOKS, BUSY_POLL_PAUSE_MAX, BUSY_POLL_YIELD_NS, CORE_LOST_AGAIN, CORE_LOST_NS,
    CORE_LOST_PAUSE_NS_MAX, CORE_LOST_PAUSE_NS_MIN, CORE_SWITCH_NS,
};

/// Decides whether a wait polls before it sleeps, and for how long.
#[derive(Clone, Copy, Debug)]
pub struct BusyPoll {
    time_ns: u64,
    /// Waits that do not poll after the next failure.
    pause: u32,
    /// Waits until the next one that polls.
    left: u32,
    /// Whether the other side appears to run on this core: the last success was behind a call that let it run.
    is_core_shared: bool,
    /// Time before which no wait polls, and length of this pause: another program has kept the core.
    lost_until_ns: u64,
    lost_pause_ns: u64,
    /// Time at which the present wait began, if it sleeps at once.
    sleeps_from_ns: Option<u64>,
}

impl BusyPoll {
    /// `time_us`: longest time that a wait polls; 0 means never.
    pub fn new(time_us: u32) -> Self {
        let time_ns = u64::from(time_us) * 1000;
        Self {
            time_ns,
            pause: 0,
            left: 0,
            is_core_shared: false,
            lost_until_ns: 0,
            lost_pause_ns: 0,
            sleeps_from_ns: None,
        }
    }

    /// Longest time in nanoseconds that a wait polls.
    pub fn time_ns(&self) -> u64 {
        self.time_ns
    }

    /// Looks until `is_ready`, which gets the nanoseconds since the first look, or for the time of a wait; returns
    /// whether it was ready. If not, the caller sleeps, and calls [`slept`](Self::slept).
    ///
    /// Errors: those of `is_ready`.
    pub fn run<E>(&mut self, mut is_ready: impl FnMut(u64) -> Result<bool, E>) -> Result<bool, E> {
        self.sleeps_from_ns = None;
        if is_ready(0)? {
            return Ok(true);
        }
        if self.time_ns == 0 {
            return Ok(false);
        }
        let begun = now_ns();
        if self.left > 0 || begun < self.lost_until_ns {
            self.left = self.left.saturating_sub(1);
            self.sleeps_from_ns = Some(begun);
            return Ok(false);
        }
        let mut elapsed = 0;
        while elapsed < self.time_ns {
            if self.is_core_shared || elapsed >= BUSY_POLL_YIELD_NS {
                sched_yield();
                let after = now_ns().saturating_sub(begun);
                self.note_yield(begun + after, after.saturating_sub(elapsed));
                elapsed = after;
                if is_ready(elapsed)? {
                    // Behind other work of this core the call takes long; a sleep is better then.
                    self.settle(elapsed < self.time_ns);
                    return Ok(true);
                }
            }
            if self.is_core_shared {
                continue;
            }
            for _ in 0..BUSY_POLL_LOOKS {
                spin_loop();
                if is_ready(elapsed)? {
                    self.settle(true);
                    return Ok(true);
                }
            }
            elapsed = now_ns().saturating_sub(begun);
        }
        self.settle(false);
        Ok(false)
    }

    /// Ends a wait that has slept. One that was over within the time to poll ends the pauses: the other side is fast
    /// again.
    pub fn slept(&mut self) {
        let Some(from_ns) = self.sleeps_from_ns.take() else { return };
        if now_ns().saturating_sub(from_ns) < self.time_ns {
            (self.pause, self.left) = (0, 0);
        }
    }

    /// The core was yielded until now, for `took_ns`.
    fn note_yield(&mut self, now_ns: u64, took_ns: u64) {
        self.is_core_shared = took_ns >= CORE_SWITCH_NS;
        if took_ns >= CORE_LOST_NS {
            let is_again = now_ns.saturating_sub(self.lost_until_ns) < CORE_LOST_AGAIN * took_ns;
            let pause_ns = if is_again { 2 * self.lost_pause_ns } else { 0 };
            self.lost_pause_ns = pause_ns.clamp(CORE_LOST_PAUSE_NS_MIN, CORE_LOST_PAUSE_NS_MAX);
            self.lost_until_ns = now_ns + self.lost_pause_ns;
        }
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
            let is_ready = busy_poll.run(|_| {
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
            let is_ready = busy_poll.run(|_| {
                looks += 1;
                Ok::<_, ()>(looks == 2)
            });
            assert_eq!(is_ready, Ok(looks == 2));
        }
        let mut looks = 0;
        assert_eq!(
            busy_poll.run(|_| {
                looks += 1;
                Ok::<_, ()>(looks == 3)
            }),
            Ok(true)
        );
    }

    #[test]
    fn short_sleep_ends_the_pauses() {
        let mut busy_poll = BusyPoll::new(1_000_000);
        (busy_poll.pause, busy_poll.left) = (BUSY_POLL_PAUSE_MAX, BUSY_POLL_PAUSE_MAX);
        let mut looks = 0;
        let mut look = |_| {
            looks += 1;
            Ok::<_, ()>(looks == 3)
        };
        assert_eq!(busy_poll.run(&mut look), Ok(false), "it is to sleep at once");
        // It was shorter than a second.
        busy_poll.slept();
        assert_eq!(busy_poll.run(&mut look), Ok(true), "it polls");
    }

    #[test]
    fn core_was_yielded_again_and_again_to_a_program_that_keeps_it() {
        let mut busy_poll = BusyPoll::new(1_000_000);
        let mut looks = 0;
        let mut look = |_| {
            looks += 1;
            Ok::<_, ()>(looks % 3 == 0)
        };
        busy_poll.note_yield(now_ns(), CORE_LOST_NS - 1);
        assert_eq!(busy_poll.run(&mut look), Ok(true), "it polls");
        // On a busy machine this has yielded the core to other programs, too.
        let mut busy_poll = BusyPoll::new(1_000_000);
        let mut at_ns = now_ns();
        let mut pause_ns = CORE_LOST_PAUSE_NS_MIN;
        while pause_ns < 2 * CORE_LOST_PAUSE_NS_MAX {
            busy_poll.note_yield(at_ns, CORE_LOST_NS);
            assert_eq!(busy_poll.lost_pause_ns, pause_ns.min(CORE_LOST_PAUSE_NS_MAX));
            at_ns = busy_poll.lost_until_ns;
            pause_ns *= 2;
        }
        assert_eq!(busy_poll.run(&mut look), Ok(false), "it is to sleep at once");
        busy_poll.slept();
        assert_eq!(busy_poll.run(&mut look), Ok(false), "a short sleep does not change that");
        // That program ended some time ago.
        busy_poll.note_yield(at_ns + CORE_LOST_AGAIN * CORE_LOST_NS, CORE_LOST_NS);
        assert_eq!(busy_poll.lost_pause_ns, CORE_LOST_PAUSE_NS_MIN);
    }

    #[test]
    fn a_stream_without_busy_polling_looks_once() {
        let mut looks = 0;
        assert_eq!(
            BusyPoll::new(0).run(|_| {
                looks += 1;
                Ok::<_, ()>(false)
            }),
            Ok(false)
        );
        assert_eq!(looks, 1);
    }
}
