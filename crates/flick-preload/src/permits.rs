//! Permits to poll, which all programs share that one user has started with `flick accel --move`.
//! Promises: one permit less than the machine has cores, so that polling never takes all of them; a permit lapses, so
//! that a process which is stopped or killed while it polls keeps none from others.
//! Not here: when a wait needs one (`polling.rs`).

use core::sync::atomic::Ordering::Relaxed;
use core::sync::atomic::{AtomicU32, AtomicU64};

use crate::limits::{PAGE_BYTES, PERMIT_CYCLES, PERMITS_MAX};
use crate::ring::OwnLine;

/// Name of the file, in the directory of states.
pub const PERMITS_FILE: &str = "polling";

/// The page of the file that `flick accel --move` makes. All zero has no permit.
#[derive(Debug)]
#[repr(C)]
pub struct PollingPermits {
    /// Number of permits. Written before the file has its name.
    pub count: OwnLine<AtomicU32>,
    /// Counter of cycles when each was taken. 0: it is free.
    taken: [OwnLine<AtomicU64>; PERMITS_MAX],
}

const _: () = assert!(size_of::<PollingPermits>() == PAGE_BYTES);

/// The right to poll. Having one means: fewer threads than the machine has cores have one, except such as were stopped
/// for [`PERMIT_CYCLES`].
#[derive(Debug)]
pub struct Permit<'a> {
    word: &'a AtomicU64,
    taken: u64,
}

impl PollingPermits {
    /// Takes a permit when the counter of cycles is `now`. `None`: others have all of them. Threads on different cores
    /// begin at different permits.
    pub fn take(&self, now: u64, core: u32) -> Option<Permit<'_>> {
        let count = (self.count.0.load(Relaxed) as usize).min(PERMITS_MAX);
        let first = (core as usize).checked_rem(count)?;
        let (before, from) = self.taken.get(..count)?.split_at_checked(first)?;
        let own = now.max(1);
        let take = |word: &AtomicU64| {
            let taken = word.load(Relaxed);
            let is_free = taken == 0 || now.abs_diff(taken) > PERMIT_CYCLES;
            is_free && word.compare_exchange(taken, own, Relaxed, Relaxed).is_ok()
        };
        let word = from.iter().chain(before).map(|line| &line.0).find(|word| take(word))?;
        Some(Permit { word, taken: own })
    }
}

impl Drop for Permit<'_> {
    fn drop(&mut self) {
        // It may have lapsed, and be another thread's.
        let _ = self.word.compare_exchange(self.taken, 0, Relaxed, Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn permits(count: u32) -> PollingPermits {
        PollingPermits {
            count: OwnLine(AtomicU32::new(count)),
            taken: [const { OwnLine(AtomicU64::new(0)) }; PERMITS_MAX],
        }
    }

    #[test]
    fn no_more_threads_poll_than_there_are_permits() {
        let permits = permits(3);
        let held: Vec<_> = (0..3).map(|core| permits.take(1000, core).expect("one is free")).collect();
        assert!(permits.take(1000, 7).is_none());
        drop(held);
        assert!(permits.take(1000, 7).is_some());
    }

    #[test]
    fn machine_with_one_core_has_no_permit() {
        assert!(permits(0).take(1000, 0).is_none());
    }

    #[test]
    fn permit_of_a_killed_process_lapses() {
        let permits = permits(1);
        let killed = permits.take(1000, 0).expect("it is free");
        assert!(permits.take(1000 + PERMIT_CYCLES, 0).is_none());
        let next = permits.take(1001 + PERMIT_CYCLES, 0).expect("it has lapsed");
        // A process that was only stopped gives up what another one has by now.
        drop(killed);
        assert!(permits.take(1003 + PERMIT_CYCLES, 0).is_none());
        drop(next);
        assert!(permits.take(1004 + PERMIT_CYCLES, 0).is_some());
    }

    #[test]
    fn count_beyond_the_page_is_cut() {
        let permits = permits(u32::MAX);
        let held: Vec<_> = (0..PERMITS_MAX as u32 + 5).filter_map(|core| permits.take(9, core)).collect();
        assert_eq!(held.len(), PERMITS_MAX);
    }
}
