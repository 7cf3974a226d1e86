//! When memory of free buffers goes back to the kernel: a pass every two seconds, in small steps.
//! Promises: buffers that a peak has used and the load since then has not lose their memory within some seconds; a
//! worker that never used much has no timer.
//! Refuses: steps while tasks are queued; the worker calls [`IdleMemory::release`] when none is.

use flick_buffers::Pool;

use crate::limits::{IDLE_MEMORY_BYTES, RELEASE_INTERVAL_NS, RELEASE_TICK_NS};

/// The passes over a worker's buffers.
#[derive(Debug, Default)]
pub(super) struct IdleMemory {
    /// Time of the next step; `None`: little memory is in use.
    due_ns: Option<u64>,
    /// The next step goes on with a pass.
    in_pass: bool,
}

impl IdleMemory {
    /// Makes the step that is due.
    #[inline]
    pub(super) fn release(&mut self, pool: &Pool, now_ns: u64) {
        match self.due_ns {
            Some(due_ns) if due_ns > now_ns => {}
            Some(_) => self.step(pool, now_ns),
            None => self.wait_for_pass(pool, now_ns),
        }
    }

    /// Returns when the next step is due.
    pub(super) fn due_ns(&self) -> Option<u64> {
        self.due_ns
    }

    fn step(&mut self, pool: &Pool, now_ns: u64) {
        if !self.in_pass {
            pool.begin_release();
        }
        self.in_pass = pool.release_some(IDLE_MEMORY_BYTES);
        if self.in_pass {
            self.due_ns = Some(now_ns + RELEASE_TICK_NS);
        } else {
            self.wait_for_pass(pool, now_ns);
        }
    }

    /// Buffers in use count too: they may be freed by an iteration that ends in a sleep without end.
    fn wait_for_pass(&mut self, pool: &Pool, now_ns: u64) {
        self.due_ns = pool.is_above(IDLE_MEMORY_BYTES).then_some(now_ns + RELEASE_INTERVAL_NS);
    }
}

#[cfg(test)]
mod tests {
    use flick_buffers::{Buf, BufClass, LARGE_BYTES, PoolConfig};

    use super::*;

    const COUNT: u32 = 1000;

    #[test]
    fn memory_of_a_peak_is_given_back_within_seconds_and_the_timer_ends() {
        let pool = Pool::new(PoolConfig { small_count: 0, large_count: COUNT, huge_count: 0 });
        let mut idle = IdleMemory::default();
        idle.release(&pool, 0);
        assert_eq!(idle.due_ns(), None, "nothing was used");
        let peak: Vec<Buf> = (0..COUNT).map(|_| pool.alloc(BufClass::Large).expect("one is free")).collect();
        idle.release(&pool, 0);
        drop(peak);
        let (mut steps, mut last_ns) = (0, 0);
        while let Some(due_ns) = idle.due_ns() {
            assert!(
                due_ns > last_ns && steps < COUNT,
                "a step is later than the one before, and the last one comes"
            );
            idle.release(&pool, due_ns);
            (steps, last_ns) = (steps + 1, due_ns);
        }
        assert!(!pool.is_above(IDLE_MEMORY_BYTES), "the rest is kept for the next load");
        let bytes = u64::from(COUNT) * u64::from(LARGE_BYTES);
        assert!(last_ns < 3 * RELEASE_INTERVAL_NS + bytes / 10_000_000 * 1_000_000_000, "after {last_ns} ns");
    }
}
