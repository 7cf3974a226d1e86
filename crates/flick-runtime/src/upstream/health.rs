//! What one worker thinks of a backend: requests that failed in a row, checks, how warm it is, what was said in the log.
//! Promises: plain numbers, no allocation; time is given, so that runs can be repeated.
//! Source: outlier ejection as proxies of services do it: for a time that doubles, never too many at once.

use std::time::Duration;

use flick_net::Handle;

use crate::config::HealthLimits;
use crate::limits::{BACKEND_LOG_MS, EJECT_SHIFT_MAX, EJECT_WINDOW_NS, SLOW_START_MIN_PER_MILLE};

/// What one worker thinks of one backend.
#[derive(Debug, Default)]
pub struct BackendHealth {
    /// Requests that failed since the last one that did not.
    pub failures_in_row: u32,
    /// When it was last begun to count.
    pub counted_ns: u64,
    /// Requests since then that ended, one way or the other.
    pub ended: u32,
    /// Those of them that failed.
    pub failed: u32,
    /// It is out for what became of requests, until `until_ns`.
    pub is_ejected: bool,
    /// When it is back, or was.
    pub until_ns: u64,
    /// Times in short order that it was.
    pub ejections: u32,
    /// It is out for what became of checks.
    pub fails_checks: bool,
    /// So many others are out too that it is not.
    pub is_needed: bool,
    /// Since when it is back.
    pub back_ns: Option<u64>,
    /// The check.
    pub check: HealthCheck,
    /// What is said of it in the log.
    pub log_throttle: LogThrottle,
}

impl BackendHealth {
    /// It gets no requests.
    pub fn is_out(&self) -> bool {
        self.is_ejected || (self.fails_checks && !self.is_needed)
    }

    /// A request was answered.
    pub fn note_answer(&mut self, now_ns: u64) {
        self.failures_in_row = 0;
        self.count(now_ns);
    }

    /// A request failed; whether it should be out for that.
    pub fn note_failure(&mut self, now_ns: u64, limits: &HealthLimits) -> bool {
        self.failures_in_row = self.failures_in_row.saturating_add(1);
        self.count(now_ns);
        self.failed += 1;
        let in_row = limits.outlier_consecutive_failures > 0
            && self.failures_in_row >= limits.outlier_consecutive_failures;
        let share =
            u64::from(self.failed) * 100 >= u64::from(self.ended) * u64::from(limits.outlier_failure_percent);
        in_row || limits.outlier_failure_percent > 0 && self.ended >= limits.outlier_min_requests && share
    }

    fn count(&mut self, now_ns: u64) {
        if now_ns.saturating_sub(self.counted_ns) >= EJECT_WINDOW_NS || self.ended == u32::MAX {
            (self.counted_ns, self.ended, self.failed) = (now_ns, 0, 0);
        }
        self.ended += 1;
    }

    /// Puts it out. Until when.
    pub fn eject(&mut self, now_ns: u64, limits: &HealthLimits) -> u64 {
        let base_ns = limits.outlier_ejection_time.as_nanos() as u64;
        // Who was good for as long as it had been out begins anew.
        let last_ns = base_ns << self.ejections.saturating_sub(1).min(EJECT_SHIFT_MAX);
        if now_ns > self.until_ns.saturating_add(last_ns) {
            self.ejections = 0;
        }
        self.until_ns = now_ns.saturating_add(base_ns << self.ejections.min(EJECT_SHIFT_MAX));
        self.ejections += 1;
        (self.is_ejected, self.failures_in_row) = (true, 0);
        (self.counted_ns, self.ended, self.failed) = (now_ns, 0, 0);
        self.until_ns
    }

    /// What it gets of its share, in thousandths.
    pub fn share_per_mille(&self, now_ns: u64, slow_start: Duration) -> u64 {
        let (Some(back_ns), whole_ns @ 1..) = (self.back_ns, slow_start.as_nanos() as u64) else {
            return 1000;
        };
        let passed_ns = now_ns.saturating_sub(back_ns).min(whole_ns);
        let share = u128::from(passed_ns) * 1000 / u128::from(whole_ns);
        (share as u64).max(SLOW_START_MIN_PER_MILLE)
    }
}

/// A check of a backend.
#[derive(Debug, Default)]
pub struct HealthCheck {
    /// Its connection, while it runs.
    pub conn: Option<Handle>,
    /// When it begins, or must be over.
    pub due_ns: u64,
    /// Bytes of the answer that were right so far.
    pub len: usize,
    /// Outcomes in a row that say other than what is thought.
    pub against: u32,
}

/// One line of the log for each backend in a while.
#[derive(Debug, Default)]
pub struct LogThrottle {
    next_ns: u64,
    unsaid: u64,
}

impl LogThrottle {
    /// Whether something may be said now; then also how often it was not since the last time.
    pub fn admit(&mut self, now_ns: u64) -> Option<u64> {
        if now_ns < self.next_ns {
            self.unsaid += 1;
            return None;
        }
        self.next_ns = now_ns + BACKEND_LOG_MS * 1_000_000;
        Some(std::mem::take(&mut self.unsaid))
    }
}

#[cfg(test)]
mod tests {
    use super::{BackendHealth, LogThrottle};
    use crate::config::HealthLimits;
    use std::time::Duration;

    const S: u64 = 1_000_000_000;

    #[test]
    fn each_time_in_short_order_is_twice_as_long() {
        let limits =
            HealthLimits { outlier_ejection_time: Duration::from_secs(10), ..HealthLimits::default() };
        let mut health = BackendHealth::default();
        for (at_s, until_s) in [(100, 110), (111, 131), (132, 172), (200, 280), (441, 451)] {
            assert_eq!(health.eject(at_s * S, &limits), until_s * S, "at {at_s} s");
        }
    }

    /// Tells it of requests, each a time in milliseconds and whether it failed: when it should be out.
    fn out_at(limits: &HealthLimits, requests: impl Iterator<Item = (u64, bool)>) -> Option<u64> {
        let mut health = BackendHealth::default();
        let mut out = requests.filter(|(at_ms, failed)| match failed {
            true => health.note_failure(at_ms * S / 1_000, limits),
            false => {
                health.note_answer(at_ms * S / 1_000);
                false
            }
        });
        out.next().map(|(at_ms, _)| at_ms)
    }

    #[test]
    fn failures_count_in_a_row_or_by_their_share() {
        let by = |outlier_consecutive_failures, outlier_failure_percent| HealthLimits {
            outlier_consecutive_failures,
            outlier_failure_percent,
            outlier_min_requests: 20,
            ..HealthLimits::default()
        };
        let every = |some: u64, pace_ms: u64| (1..1_000).map(move |at| (at * pace_ms, at % some == 0));
        assert_eq!(out_at(&by(3, 0), every(1, 10)), Some(30), "three in a row");
        assert_eq!(out_at(&by(3, 0), every(2, 10)), None, "never two in a row");
        assert_eq!(out_at(&by(0, 50), every(2, 10)), Some(200), "half of them, once there are twenty");
        assert_eq!(out_at(&by(0, 50), every(3, 10)), None, "a third of them");
        assert_eq!(out_at(&by(0, 50), every(1, 600)), None, "too few in ten seconds to tell");
        assert_eq!(out_at(&by(0, 0), every(1, 10)), None, "never");
    }

    #[test]
    fn who_is_back_gets_more_and_more() {
        let health = BackendHealth { back_ns: Some(100 * S), ..BackendHealth::default() };
        let share = |at_s: u64| health.share_per_mille(at_s * S, Duration::from_secs(10));
        assert_eq!([100, 105, 109, 110, 500].map(share), [50, 500, 900, 1000, 1000]);
        assert_eq!(health.share_per_mille(100 * S, Duration::ZERO), 1000);
        assert_eq!(BackendHealth::default().share_per_mille(0, Duration::from_secs(10)), 1000);
    }

    #[test]
    fn a_backend_that_fails_often_is_one_line_in_a_second() {
        let mut log_throttle = LogThrottle::default();
        let lines: Vec<u64> = (0..4_000).filter_map(|at| log_throttle.admit(at * S / 2_000)).collect();
        assert_eq!(lines, [0, 1_999]);
        assert_eq!(log_throttle.admit(9 * S), Some(1_999));
    }
}
