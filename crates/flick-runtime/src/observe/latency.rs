//! Latency histogram: counts of durations by length, with one writer, a worker, and any number of readers.
//! Promises: noting a time is two additions to memory that only this worker writes; a time is in a bucket whose width
//! is an eighth of the times in it; nothing is allocated after `new`.
//! Source: log-linear buckets as in HdrHistogram; powers of two, so that finding one is a shift.

use flick_stats::Times;

use crate::limits::{LATENCY_FIRST_BITS, LATENCY_LAST_BITS, LATENCY_SHARE_BITS};
use crate::observe::counter::Counter;

/// Buckets of a histogram: one for everything short, then eight for each power of two.
pub const BUCKETS: usize =
    1 + ((LATENCY_LAST_BITS - LATENCY_FIRST_BITS) as usize + 1) * (1 << LATENCY_SHARE_BITS);

/// Times by length.
#[derive(Debug)]
#[repr(align(64))]
pub struct LatencyHistogram {
    counts: [Counter; BUCKETS],
    sum_ns: Counter,
}

impl Default for LatencyHistogram {
    fn default() -> Self {
        Self { counts: std::array::from_fn(|_| Counter::default()), sum_ns: Counter::default() }
    }
}

impl LatencyHistogram {
    /// Notes a time. Only the owning worker calls this.
    pub fn note(&self, took_ns: u64) {
        self.counts[bucket_of(took_ns)].add(1);
        self.sum_ns.add(took_ns);
    }

    /// The times now, without the buckets that are empty.
    pub fn totals(&self) -> Times {
        let filled = self.counts.iter().map(Counter::get).enumerate().filter(|(_, count)| *count > 0);
        let buckets = filled.map(|(index, count)| (end_of(index), count)).collect();
        Times { sum_ns: self.sum_ns.get(), buckets }
    }

    /// Forgets all times. Only the owning worker calls this.
    pub fn clear(&self) {
        self.counts.iter().for_each(Counter::clear);
        self.sum_ns.clear();
    }
}

fn bucket_of(took_ns: u64) -> usize {
    let bits = took_ns.checked_ilog2().unwrap_or(0);
    if bits < LATENCY_FIRST_BITS {
        return 0;
    }
    let share = (took_ns >> (bits - LATENCY_SHARE_BITS)) as usize & ((1 << LATENCY_SHARE_BITS) - 1);
    let power = (bits - LATENCY_FIRST_BITS) as usize;
    (1 + (power << LATENCY_SHARE_BITS) + share).min(BUCKETS - 1)
}

/// The longest time of a bucket.
fn end_of(bucket: usize) -> u64 {
    let Some(at) = bucket.checked_sub(1) else { return (1 << LATENCY_FIRST_BITS) - 1 };
    let bits = LATENCY_FIRST_BITS + (at >> LATENCY_SHARE_BITS) as u32;
    let share = (at & ((1 << LATENCY_SHARE_BITS) - 1)) as u64;
    (1 << bits) + ((share + 1) << (bits - LATENCY_SHARE_BITS)) - 1
}

#[cfg(test)]
mod tests {
    use super::*;

    fn times(took_ns: impl IntoIterator<Item = u64>) -> Times {
        let latency = LatencyHistogram::default();
        took_ns.into_iter().for_each(|took_ns| latency.note(took_ns));
        latency.totals()
    }

    #[test]
    fn every_time_is_in_the_bucket_that_ends_behind_it() {
        let edges = (0..63).flat_map(|bits| [1_u64 << bits, (1 << bits) - 1, (1 << bits) + 1, 3 << bits]);
        for took_ns in edges {
            let bucket = bucket_of(took_ns);
            assert!(end_of(bucket) >= took_ns || bucket == BUCKETS - 1, "{took_ns}");
            assert!(bucket == 0 || end_of(bucket - 1) < took_ns, "{took_ns}");
        }
        assert_eq!(end_of(BUCKETS - 1), (1 << (LATENCY_LAST_BITS + 1)) - 1);
    }

    #[test]
    fn a_quantile_is_at_most_an_eighth_too_long() {
        let times = times((1..=1000).map(|at| at * 10_000));
        for (share, exact) in
            [(0.5, 5_000_000.0), (0.99, 9_900_000.0), (1.0, 10_000_000.0), (0.001, 10_000.0)]
        {
            let ratio = times.quantile_ns(share).expect("times") as f64 / exact;
            assert!((1.0..=1.126).contains(&ratio), "{share}: {ratio}");
        }
        assert_eq!((times.count(), times.sum_ns), (1000, 5_005_000_000));
        assert_eq!(self::times([]).quantile_ns(0.5), None);
    }

    #[test]
    fn totals_have_the_buckets_that_are_not_empty() {
        let times = times([0, 1023, 1024, 2000, 5_000_000_000, u64::MAX >> 1]);
        assert_eq!(times.buckets[..2], [(1023, 2), (1151, 1)]);
        assert!(times.buckets.is_sorted() && times.buckets.len() == 5, "{times:?}");
        assert_eq!(times.count(), 6);
    }
}
