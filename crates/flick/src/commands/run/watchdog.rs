//! Watchdog: finds stalled workers by their count of event-loop iterations.
//! Promises: a sleeping worker is woken before it counts as stalled; if the whole process was stopped, no worker counts
//! as stalled, because checks are counted instead of seconds.
//! Refuses: to end a stalled worker; whatever polls `/healthz` decides.

use std::time::{Duration, Instant};

/// Consecutive checks without an iteration after which a worker counts as stalled.
const MISSED_MAX: u32 = 5;

/// Watches the workers of one generation.
pub struct Watchdog {
    interval: Duration,
    last: Instant,
    workers: Vec<LastIteration>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct LastIteration {
    iterations: Option<u64>,
    missed: u32,
}

/// The result of a check, as indices of workers.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct WatchdogReport {
    /// Workers to wake.
    pub wake: Vec<usize>,
    /// Stalled workers.
    pub stalled: Vec<usize>,
}

impl Watchdog {
    /// A watchdog for which a worker is stalled after `timeout` without an iteration; zero: never.
    pub fn new(timeout: Duration) -> Self {
        Self { interval: timeout / MISSED_MAX, last: Instant::now(), workers: Vec::new() }
    }

    /// Time until the next check; `None`: there is none.
    pub fn due_in(&self) -> Option<Duration> {
        (!self.interval.is_zero()).then(|| self.interval.saturating_sub(self.last.elapsed()))
    }

    /// Whether a check is due. Starts the next interval if so.
    pub fn is_due(&mut self) -> bool {
        let is_due = self.due_in().is_some_and(|wait| wait.is_zero());
        if is_due {
            self.last = Instant::now();
        }
        is_due
    }

    /// Checks the iteration count of each worker; `None` is a worker that has ended.
    pub fn check(&mut self, iterations: &[Option<u64>]) -> WatchdogReport {
        self.workers.resize(iterations.len(), LastIteration { iterations: None, missed: 0 });
        let mut report = WatchdogReport::default();
        for (at, (worker, iterations)) in self.workers.iter_mut().zip(iterations).enumerate() {
            if iterations.is_none() || worker.iterations != *iterations {
                *worker = LastIteration { iterations: *iterations, missed: 0 };
                continue;
            }
            worker.missed = (worker.missed + 1).min(MISSED_MAX);
            report.wake.push(at);
            if worker.missed == MISSED_MAX {
                report.stalled.push(at);
            }
        }
        report
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::{MISSED_MAX, Watchdog, WatchdogReport};

    /// Checks these counts one after the other, and compares the last report.
    fn check(checks: &[&[Option<u64>]], wake: &[usize], stalled: &[usize]) {
        let mut watchdog = Watchdog::new(Duration::from_secs(5));
        let last = checks.iter().map(|iterations| watchdog.check(iterations)).last();
        let expected = WatchdogReport { wake: wake.to_vec(), stalled: stalled.to_vec() };
        assert_eq!(last, Some(expected), "{checks:?}");
    }

    #[test]
    fn worker_without_iterations_is_woken_then_stalled() {
        let (before, after) = ([Some(7), Some(1)], [Some(7), Some(2)]);
        check(&[&before], &[], &[]);
        check(&[&before, &after], &[0], &[]);
        let mut checks: Vec<Vec<Option<u64>>> =
            (0..MISSED_MAX as u64).map(|at| vec![Some(7), Some(at)]).collect();
        let all = |checks: &[Vec<Option<u64>>], wake: &[usize], stalled: &[usize]| {
            check(&checks.iter().map(Vec::as_slice).collect::<Vec<_>>(), wake, stalled);
        };
        all(&checks, &[0], &[]);
        checks.push(vec![Some(7), Some(99)]);
        all(&checks, &[0], &[0]);
        checks.push(vec![Some(7), Some(99)]);
        all(&checks, &[0, 1], &[0]);
        checks.push(vec![Some(8), None]);
        all(&checks, &[], &[]);
    }

    #[test]
    fn ended_worker_is_not_stalled() {
        check(&[[None].as_slice(); 9], &[], &[]);
    }
}
