//! The live figures of a load, readable from any thread while it runs.
//!
//! Promises: counters are exact at the end of each iteration of a driver; the histogram is at most `MERGE_NS` behind.
//! Refuses: per-request events.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Mutex, OnceLock, PoisonError};
use std::time::{Duration, Instant};

use hdrhistogram::Histogram;

use crate::binary::Status;
use crate::limits::LATENCY_US_MAX;

/// Defines the counters once: as plain numbers of a driver's iteration, and as shared atomics.
macro_rules! counters {
    ($($(#[$doc:meta])* $name:ident,)*) => {
        /// Counted events of a load.
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
        pub struct LoadCounts {
            $($(#[$doc])* pub $name: u64,)*
            /// Error replies by status, in the order of [`Status::ALL`].
            pub by_status: [u64; Status::ALL.len()],
        }

        #[derive(Debug, Default)]
        struct Shared {
            $($name: AtomicU64,)*
            by_status: [AtomicU64; Status::ALL.len()],
        }

        impl Shared {
            fn add(&self, counts: &LoadCounts) {
                $(if counts.$name > 0 { self.$name.fetch_add(counts.$name, Ordering::Relaxed); })*
                if counts.errors > 0 {
                    for (shared, count) in self.by_status.iter().zip(counts.by_status) {
                        shared.fetch_add(count, Ordering::Relaxed);
                    }
                }
            }

            fn load(&self) -> LoadCounts {
                LoadCounts {
                    $($name: self.$name.load(Ordering::Relaxed),)*
                    by_status: std::array::from_fn(|at| self.by_status[at].load(Ordering::Relaxed)),
                }
            }
        }
    };
}

counters! {
    /// Requests written to a socket or its send buffer, warm-up included.
    requests,
    /// Replies that answered a request, warm-up excluded; errors, misses and wrong values are among them.
    replies,
    /// Replies that answered a request, warm-up included.
    replies_total,
    /// Reads that found nothing, warm-up excluded; legal, and zero after a `populate` that nothing evicts.
    misses,
    /// Error replies.
    errors,
    /// Replies that do not match their request: unknown opaque, another key's value, a damaged or unparsable reply.
    wrong,
    /// Requests that were sent and never answered.
    lost,
    /// Open-loop requests that were due and could not be sent before the end.
    unsent,
    /// Open-loop requests that were due after the warm-up, whether they were sent or not.
    due,
    /// Connections that ended before the load did.
    disconnects,
    /// Connections that could not be opened, or were not before the load had waited `CONNECT_WAIT_MAX` for them.
    connect_failures,
    /// Connections that were opened, the first ones and those after a loss included.
    connects,
    /// Bytes sent, warm-up excluded.
    sent_bytes,
    /// Bytes received, warm-up excluded.
    received_bytes,
}

impl LoadCounts {
    /// Returns the number of faults; a run with faults is void.
    pub fn faults(&self) -> u64 {
        self.errors + self.wrong + self.lost + self.unsent + self.disconnects + self.connect_failures
    }
}

/// LoadLatency of the replies that were neither errors nor wrong, in microseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct LoadLatency {
    /// Arithmetic mean.
    pub mean_us: f64,
    /// Median.
    pub p50_us: u64,
    /// 90th percentile.
    pub p90_us: u64,
    /// 99th percentile.
    pub p99_us: u64,
    /// 99.9th percentile.
    pub p999_us: u64,
    /// The slowest.
    pub max_us: u64,
}

impl LoadLatency {
    fn of(histogram: &Histogram<u64>) -> LoadLatency {
        LoadLatency {
            mean_us: histogram.mean(),
            p50_us: histogram.value_at_quantile(0.5),
            p90_us: histogram.value_at_quantile(0.9),
            p99_us: histogram.value_at_quantile(0.99),
            p999_us: histogram.value_at_quantile(0.999),
            max_us: histogram.max(),
        }
    }
}

/// The state of a load at one moment.
#[derive(Clone, Copy, Debug)]
pub struct LoadSnapshot {
    /// Time at which it was taken.
    pub at: Instant,
    /// Time since the warm-up ended; zero before.
    pub elapsed: Duration,
    /// Everything counted so far.
    pub counts: LoadCounts,
    /// Replies so far, warm-up excluded: the same as in `counts`.
    pub replies: u64,
    /// LoadLatency so far, warm-up excluded.
    pub latency: LoadLatency,
    /// Connections open now.
    pub open: usize,
}

impl LoadSnapshot {
    /// Returns the replies per second since an earlier snapshot, warm-up included.
    pub fn rate_since(&self, earlier: &LoadSnapshot) -> f64 {
        let seconds = self.at.saturating_duration_since(earlier.at).as_secs_f64();
        let replies = self.counts.replies_total.saturating_sub(earlier.counts.replies_total);
        if seconds > 0.0 { replies as f64 / seconds } else { 0.0 }
    }
}

/// The live figures of a load, shared by its threads and its watchers.
#[derive(Debug)]
pub struct LoadProgress {
    shared: Shared,
    latency: Mutex<Histogram<u64>>,
    served: Mutex<Histogram<u64>>,
    error_latency_us_max: AtomicU64,
    measured_from: OnceLock<Instant>,
    first_wrong: OnceLock<String>,
    first_error: OnceLock<String>,
    http_statuses: Mutex<BTreeMap<u16, u64>>,
    open: AtomicUsize,
}

impl LoadProgress {
    pub(super) fn new() -> LoadProgress {
        LoadProgress {
            shared: Shared::default(),
            latency: Mutex::new(new_histogram()),
            served: Mutex::new(new_histogram()),
            error_latency_us_max: AtomicU64::new(0),
            measured_from: OnceLock::new(),
            first_wrong: OnceLock::new(),
            first_error: OnceLock::new(),
            http_statuses: Mutex::new(BTreeMap::new()),
            open: AtomicUsize::new(0),
        }
    }

    /// Returns the figures of this moment. Costs a walk over the histogram, some tens of microseconds.
    pub fn snapshot(&self) -> LoadSnapshot {
        let counts = self.counts();
        LoadSnapshot {
            at: Instant::now(),
            elapsed: self.measured_from.get().map_or(Duration::ZERO, Instant::elapsed),
            counts,
            replies: counts.replies,
            latency: self.latency(),
            open: self.open.load(Ordering::Relaxed),
        }
    }

    /// Returns the counters alone, which costs a few loads.
    pub fn counts(&self) -> LoadCounts {
        self.shared.load()
    }

    /// Returns whether the warm-up is over.
    pub fn is_measuring(&self) -> bool {
        self.measured_from.get().is_some()
    }

    /// Returns what was wrong with the first wrong reply.
    pub fn first_wrong(&self) -> Option<&str> {
        self.first_wrong.get().map(String::as_str)
    }

    /// Returns the text of the first error reply.
    pub fn first_error(&self) -> Option<&str> {
        self.first_error.get().map(String::as_str)
    }

    /// Returns the statuses of HTTP with their numbers, warm-up excluded; at most `MERGE_NS` behind.
    pub fn http_statuses(&self) -> BTreeMap<u16, u64> {
        self.http_statuses.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    pub(super) fn latency(&self) -> LoadLatency {
        LoadLatency::of(&self.latency.lock().unwrap_or_else(PoisonError::into_inner))
    }

    pub(super) fn served(&self) -> LoadLatency {
        LoadLatency::of(&self.served.lock().unwrap_or_else(PoisonError::into_inner))
    }

    pub(super) fn error_latency_us_max(&self) -> u64 {
        self.error_latency_us_max.load(Ordering::Relaxed)
    }

    pub(super) fn add(&self, counts: &LoadCounts) {
        self.shared.add(counts);
    }

    pub(super) fn connection_opened(&self) {
        self.open.fetch_add(1, Ordering::Relaxed);
    }

    pub(super) fn connection_closed(&self) {
        self.open.fetch_sub(1, Ordering::Relaxed);
    }

    pub(super) fn begin_measuring(&self) {
        self.measured_from.get_or_init(Instant::now);
    }

    pub(super) fn note_error_latency(&self, latency_us: u64) {
        self.error_latency_us_max.fetch_max(latency_us, Ordering::Relaxed);
    }

    pub(super) fn note_wrong(&self, describe: impl FnOnce() -> String) {
        self.first_wrong.get_or_init(describe);
    }

    pub(super) fn note_error(&self, describe: impl FnOnce() -> String) {
        self.first_error.get_or_init(describe);
    }

    /// Adds the statuses that were counted, and forgets them.
    pub(super) fn merge_statuses(&self, statuses: &mut Vec<(u16, u64)>) {
        if !statuses.is_empty() {
            let mut shared = self.http_statuses.lock().unwrap_or_else(PoisonError::into_inner);
            for (status, count) in statuses.drain(..) {
                *shared.entry(status).or_default() += count;
            }
        }
    }

    /// Moves everything that was recorded into the shared histograms.
    pub(super) fn merge(&self, latency: &mut Histogram<u64>, served: &mut Histogram<u64>) {
        for (local, shared) in [(latency, &self.latency), (served, &self.served)] {
            if !local.is_empty() {
                let mut shared = shared.lock().unwrap_or_else(PoisonError::into_inner);
                shared.add(&*local).expect("both histograms have the same bounds");
                local.reset();
            }
        }
    }
}

/// Builds a histogram from 1 µs to `LATENCY_US_MAX` with three significant digits.
pub(super) fn new_histogram() -> Histogram<u64> {
    Histogram::new_with_bounds(1, LATENCY_US_MAX, 3).expect("the bounds are legal constants")
}

#[cfg(test)]
mod tests {
    use super::new_histogram;

    #[test]
    fn a_latency_above_a_minute_was_recorded_as_a_minute() {
        let mut histogram = new_histogram();
        histogram.saturating_record(90_000_000);
        assert!(histogram.max() >= 90_000_000, "{}", histogram.max());
    }
}
