//! The retry budget: a share of the requests of the last second may be retried, and a minimum in any case.
//! Promises: when every backend fails, retries add at most that share of load; a service with few requests may retry
//! all. Source: the retry budgets of Finagle and Envoy; a window of one second needs no timer.

use crate::config::RetryLimits;
use crate::limits::RETRY_WINDOW_NS;

/// Use of the retry budget by one worker in the present window of one second.
#[derive(Debug, Default)]
pub struct RetryBudget {
    /// Start of the present window.
    since_ns: u64,
    /// Requests taken before the present window.
    requests_before: u64,
    /// Requests of the window before, per second.
    last_requests: u64,
    /// Retries of the present window.
    used: u64,
}

impl RetryBudget {
    /// Notes the time and the requests taken so far, ever: once a second the next window begins. Called in every
    /// iteration, so that the window before a failure is the second before it, and not the time since the last retry.
    #[inline]
    pub fn note_time(&mut self, now_ns: u64, requests: u64) {
        let passed_ns = now_ns.saturating_sub(self.since_ns);
        if passed_ns < RETRY_WINDOW_NS {
            return;
        }
        let fresh = requests.saturating_sub(self.requests_before);
        let of_a_second = u128::from(fresh) * u128::from(RETRY_WINDOW_NS) / u128::from(passed_ns);
        *self =
            Self { since_ns: now_ns, requests_before: requests, last_requests: of_a_second as u64, used: 0 };
    }

    /// Takes one, if there is one. `requests`: taken so far, ever.
    pub fn take(&mut self, now_ns: u64, requests: u64, limits: RetryLimits) -> bool {
        self.note_time(now_ns, requests);
        let fresh = requests.saturating_sub(self.requests_before).max(self.last_requests);
        let most = u64::from(limits.min_per_second) + fresh * u64::from(limits.percent) / 100;
        let is_left = self.used < most;
        self.used += u64::from(is_left);
        is_left
    }

    /// Gives back what was just taken.
    pub fn give_back(&mut self) {
        self.used -= 1;
    }
}

#[cfg(test)]
mod tests {
    use super::RetryBudget;
    use crate::config::RetryLimits;

    const MS: u64 = 1_000_000;

    /// Returns how many retries are allowed in three seconds when `wanted` are asked for per millisecond.
    fn check(limits: (u32, u32), requests: u64, wanted: u64) -> [u64; 3] {
        let limits = RetryLimits { percent: limits.0, min_per_second: limits.1 };
        let (mut budget, mut had) = (RetryBudget::default(), [0; 3]);
        for at_ms in 0..3_000 {
            for _ in 0..wanted {
                let now_ns = (10_000 + at_ms) * MS;
                had[(at_ms / 1_000) as usize] += u64::from(budget.take(now_ns, at_ms * requests, limits));
            }
        }
        had
    }

    #[test]
    fn retries_are_a_part_of_the_requests() {
        assert_eq!(check((20, 10), 10, 10), [10 + 1_998, 10 + 2_000, 10 + 2_000]);
        assert_eq!(check((20, 10), 0, 3), [10, 10, 10], "a few in any case");
        assert_eq!(check((0, 0), 10, 10), [0, 0, 0], "none at all");
        assert_eq!(check((100, 0), 1, 1), [999, 1_000, 1_000], "all of them");
    }

    #[test]
    fn the_first_outage_after_a_start_has_the_budget_of_the_second_before() {
        let limits = RetryLimits { percent: 20, min_per_second: 1 };
        let mut budget = RetryBudget::default();
        let uptime_ms = 3_600_000;
        for at_ms in 0..2_500 {
            budget.note_time((uptime_ms + at_ms) * MS, at_ms * 50);
        }
        let retried = (0..20_000).filter(|_| budget.take((uptime_ms + 2_500) * MS, 125_000, limits)).count();
        assert_eq!(retried, 10_001);
    }

    #[test]
    fn a_quiet_time_is_no_credit() {
        let limits = RetryLimits { percent: 20, min_per_second: 1 };
        let mut budget = RetryBudget::default();
        assert!(budget.take(3_600_000 * MS, 3_600, limits), "one request a second for an hour");
        assert!(!budget.take(3_600_001 * MS, 3_600, limits));
    }

    #[test]
    fn a_retry_that_was_given_back_is_there_again() {
        let limits = RetryLimits { percent: 0, min_per_second: 1 };
        let mut budget = RetryBudget::default();
        assert!(budget.take(3_600_000 * MS, 0, limits));
        budget.give_back();
        assert!(budget.take(3_600_001 * MS, 0, limits));
        assert!(!budget.take(3_600_002 * MS, 0, limits));
    }
}
