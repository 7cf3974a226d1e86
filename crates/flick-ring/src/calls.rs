//! How one thread gets another's attention: a wake-up that is asked for once, and a set of tasks that are called.
//! Promises: what was written before a call is seen by who takes it; a call is taken once, and none is lost, however many
//! threads call at once; only the first of several calls costs a signal.
//! Refuses: to signal. Who is told that one is due has the means: a descriptor of the driver that sleeps.

use crate::sync::{AtomicBool, AtomicU64, Ordering};

/// A wake-up that was asked for and not yet seen.
#[derive(Debug)]
pub struct Pending(AtomicBool);

impl Default for Pending {
    fn default() -> Self {
        Self(AtomicBool::new(false))
    }
}

impl Pending {
    /// Asks for one. `true`: a signal is due; otherwise one is on its way already.
    #[must_use = "the sleeper must be signalled"]
    pub fn ask(&self) -> bool {
        !self.0.swap(true, Ordering::AcqRel)
    }

    /// Takes the wake-up; says whether there was one. Signals that are kept anywhere must have been taken *before*: a
    /// wake-up that comes between the two steps relies on the look that follows this.
    pub fn take(&self) -> bool {
        self.0.swap(false, Ordering::AcqRel)
    }

    /// Whether one was asked for.
    pub fn is_asked(&self) -> bool {
        self.0.load(Ordering::Acquire)
    }
}

/// Tasks by number that are called, of one thread.
#[derive(Debug)]
pub struct Calls {
    tasks: Box<[AtomicU64]>,
    pending: Pending,
}

impl Calls {
    /// For so many tasks.
    pub fn new(tasks: u32) -> Self {
        let words = (tasks as usize).div_ceil(64);
        Self { tasks: (0..words).map(|_| AtomicU64::new(0)).collect(), pending: Pending::default() }
    }

    /// Calls a task. `true`: a signal is due.
    #[must_use = "the sleeper must be signalled"]
    pub fn call(&self, task: u32) -> bool {
        self.tasks[task as usize / 64].fetch_or(1 << (task % 64), Ordering::AcqRel);
        self.pending.ask()
    }

    /// Calls the thread for no task in particular. `true`: a signal is due.
    #[must_use = "the sleeper must be signalled"]
    pub fn call_thread(&self) -> bool {
        self.pending.ask()
    }

    /// Whether anybody has called since the last [`take`](Self::take).
    pub fn is_called(&self) -> bool {
        self.pending.is_asked()
    }

    /// Hands each task that was called to `run`, once.
    pub fn take(&self, mut run: impl FnMut(u32)) {
        if !self.pending.take() {
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
    use super::{Calls, Pending};

    #[test]
    fn the_first_call_is_told_and_each_task_is_taken_once() {
        let calls = Calls::new(130);
        assert!(!calls.is_called());
        assert!(calls.call(129) && !calls.call(0) && !calls.call(129) && !calls.call_thread());
        assert!(calls.is_called());
        let mut taken = Vec::new();
        calls.take(|task| taken.push(task));
        assert_eq!(taken, [0, 129]);
        calls.take(|_| panic!("nobody has called since"));
        assert!(!calls.is_called());
        assert!(calls.call(63), "the next call is the first again");
    }

    #[test]
    fn a_thread_that_rests_is_signalled_though_no_task_was_called() {
        let calls = Calls::new(1);
        assert!(calls.call_thread(), "the first call needs the signal");
        assert!(!calls.call_thread() && calls.is_called());
        calls.take(|task| panic!("task {task} was not called"));
        assert!(!calls.is_called());
    }

    #[test]
    fn a_wake_up_is_asked_for_once_until_it_is_taken() {
        let pending = Pending::default();
        assert!(!pending.take() && pending.ask() && !pending.ask() && pending.is_asked());
        assert!(pending.take() && !pending.take() && pending.ask());
    }
}
