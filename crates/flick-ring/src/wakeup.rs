//! Wake-ups between threads: a flag that is requested once, and a set of tasks to run.
//! Promises: what a thread writes before it requests a wake-up is visible to the thread that takes it; each request is
//! taken once and none is lost, however many threads request at once; only the first of several requests needs a
//! signal.
//! Refuses: signalling. The caller that gets `true` writes to the eventfd of the driver that sleeps.

use crate::sync::{AtomicBool, AtomicU64, Ordering};

/// A wake-up that is requested and not yet taken.
#[derive(Debug)]
pub struct WakeFlag(AtomicBool);

impl Default for WakeFlag {
    fn default() -> Self {
        Self(AtomicBool::new(false))
    }
}

impl WakeFlag {
    /// Requests a wake-up. Returns `true` if the caller must signal; otherwise an earlier request has signalled.
    #[must_use = "the sleeper must be signalled"]
    pub fn request(&self) -> bool {
        !self.0.swap(true, Ordering::AcqRel)
    }

    /// Takes the wake-up; returns whether there was one. A signal stored elsewhere (an eventfd) must be consumed
    /// *before* this call: a request between the two steps relies on the check that follows.
    pub fn take(&self) -> bool {
        self.0.swap(false, Ordering::AcqRel)
    }

    /// Returns whether a wake-up is requested.
    pub fn is_requested(&self) -> bool {
        self.0.load(Ordering::Acquire)
    }
}

/// The tasks of one thread that other threads want to run, by number.
#[derive(Debug)]
pub struct WakeSet {
    tasks: Box<[AtomicU64]>,
    flag: WakeFlag,
}

impl WakeSet {
    /// Creates a set for `tasks` tasks.
    pub fn new(tasks: u32) -> Self {
        let words = (tasks as usize).div_ceil(64);
        Self { tasks: (0..words).map(|_| AtomicU64::new(0)).collect(), flag: WakeFlag::default() }
    }

    /// Requests a task. Returns `true` if the caller must signal the thread.
    #[must_use = "the sleeper must be signalled"]
    pub fn wake(&self, task: u32) -> bool {
        self.tasks[task as usize / 64].fetch_or(1 << (task % 64), Ordering::AcqRel);
        self.flag.request()
    }

    /// Requests the thread without a task. Returns `true` if the caller must signal it.
    #[must_use = "the sleeper must be signalled"]
    pub fn wake_thread(&self) -> bool {
        self.flag.request()
    }

    /// Returns whether a wake-up was requested since the last [`take`](Self::take).
    pub fn is_requested(&self) -> bool {
        self.flag.is_requested()
    }

    /// Takes all requests and calls `run` once per requested task.
    pub fn take(&self, mut run: impl FnMut(u32)) {
        if !self.flag.take() {
            return;
        }
        for (at, word) in self.tasks.iter().enumerate() {
            let mut left = word.swap(0, Ordering::AcqRel);
            while left != 0 {
                run(at as u32 * 64 + left.trailing_zeros());
                left &= left - 1;
            }
        }
    }
}

#[cfg(all(test, not(any(loom, shuttle))))]
mod tests {
    use super::{WakeFlag, WakeSet};

    #[test]
    fn the_first_request_signals_and_each_task_is_taken_once() {
        let set = WakeSet::new(130);
        assert!(!set.is_requested());
        assert!(set.wake(129) && !set.wake(0) && !set.wake(129) && !set.wake_thread());
        assert!(set.is_requested());
        let mut taken = Vec::new();
        set.take(|task| taken.push(task));
        assert_eq!(taken, [0, 129]);
        set.take(|_| panic!("no task was requested since"));
        assert!(!set.is_requested());
        assert!(set.wake(63), "the next request is the first again");
    }

    #[test]
    fn a_thread_is_signalled_without_a_task() {
        let set = WakeSet::new(1);
        assert!(set.wake_thread(), "the first request needs the signal");
        assert!(!set.wake_thread() && set.is_requested());
        set.take(|task| panic!("task {task} was not requested"));
        assert!(!set.is_requested());
    }

    #[test]
    fn a_wake_up_is_requested_once_until_it_is_taken() {
        let flag = WakeFlag::default();
        assert!(!flag.take() && flag.request() && !flag.request() && flag.is_requested());
        assert!(flag.take() && !flag.take() && flag.request());
    }
}
