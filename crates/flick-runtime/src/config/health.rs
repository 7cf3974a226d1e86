//! Configuration of outlier ejection, health checks and retries.

use std::time::Duration;

/// Limits on requests to backends: outlier ejection, slow start, bounds per backend and health checks.
#[derive(Clone, Debug)]
pub struct HealthLimits {
    /// Requests that must fail in a row before a backend gets no more for a while; 0: it always gets them. `None`:
    /// [`OUTLIER_FAILURES`](crate::limits::OUTLIER_FAILURES) of those that picks without a key sent there, and then
    /// only these picks avoid it.
    pub outlier_consecutive_failures: Option<u32>,
    /// Percentage of its requests that must fail before a backend is ejected; 0: no minimum.
    pub outlier_failure_percent: u32,
    /// Fewest requests within ten seconds for which `outlier_failure_percent` applies.
    pub outlier_min_requests: u32,
    /// Length of a first ejection; the next one soon after is twice as long.
    pub outlier_ejection_time: Duration,
    /// Largest share of a channel's backends that may be ejected at one time, in percent.
    pub outlier_max_ejected_percent: u32,
    /// Time for which a recovered backend gets less than its share of the picks without a key; zero: it gets its whole
    /// share at once.
    pub slow_start: Duration,
    /// Clients that may wait for a connection to one backend, over all workers. Further ones get an overload response
    /// at once; 0: no bound.
    pub max_pending_per_backend: u32,
    /// Requests in flight on one backend, over all workers. Further ones fail at once; 0: no bound.
    pub max_requests_per_backend: u32,
    /// Interval between health checks of each backend by each worker; zero: no checks.
    pub health_check_interval: Duration,
    /// Longest time that a health check may take.
    pub health_check_timeout: Duration,
    /// Bytes that a health check sends. If these and the expected bytes are empty, a check succeeds once the connection
    /// is up.
    pub health_check_send: Vec<u8>,
    /// Bytes that the answer to a health check must begin with.
    pub health_check_expect: Vec<u8>,
    /// Checks that must fail in a row before a backend gets no more requests.
    pub health_check_fall: u32,
    /// Checks that must succeed in a row before it gets requests again.
    pub health_check_rise: u32,
}

impl Default for HealthLimits {
    fn default() -> Self {
        Self {
            outlier_consecutive_failures: None,
            outlier_failure_percent: 0,
            outlier_min_requests: 20,
            outlier_ejection_time: Duration::from_secs(10),
            outlier_max_ejected_percent: 50,
            slow_start: Duration::ZERO,
            max_pending_per_backend: 0,
            max_requests_per_backend: 0,
            health_check_interval: Duration::ZERO,
            health_check_timeout: Duration::from_secs(1),
            health_check_send: Vec::new(),
            health_check_expect: Vec::new(),
            health_check_fall: 3,
            health_check_rise: 2,
        }
    }
}

impl HealthLimits {
    /// Whether an ejected backend gets no requests at all: the settings ask for ejection.
    pub(crate) fn ejects_from_everything(&self) -> bool {
        self.outlier_consecutive_failures.is_some() || self.outlier_failure_percent > 0
    }
}

/// Retry budget: bounds on requests that are sent again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RetryLimits {
    /// Retries per hundred requests of a second.
    pub percent: u32,
    /// Retries allowed in each second in addition to `percent`, however few requests there are.
    pub min_per_second: u32,
}

impl Default for RetryLimits {
    fn default() -> Self {
        Self { percent: 20, min_per_second: 10 }
    }
}
