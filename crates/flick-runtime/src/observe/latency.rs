//! How long things took, as counts by length: one writer, a worker, and any number of readers.
//! Promises: noting a time is two additions to memory that only this worker writes; a time is in a bucket whose width is an
//! eighth of the times in it; nothing is allocated after `new`.
//! Source: log-linear buckets as in HdrHistogram; powers of two, so that finding one is a shift.

use crate::limits::{LATENCY_FIRST_BITS, LATENCY_LAST_BITS, LATENCY_SHARE_BITS};
use crate::observe::counters::Counter;

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

/// Times of many workers at one moment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LatencyTotals {
    counts: Vec<u64>,
    sum_ns: u64,
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

    /// Forgets all times. Only the owning worker calls this.
    pub fn clear(&self) {
        self.counts.iter().for_each(Counter::clear);
        self.sum_ns.clear();
    }
}

impl Default for LatencyTotals {
    fn default() -> Self {
        Self { counts: vec![0; BUCKETS], sum_ns: 0 }
    }
}

impl LatencyTotals {
    /// Adds what one worker has noted.
    pub fn absorb(&mut self, latency: &LatencyHistogram) {
        for (sum, count) in self.counts.iter_mut().zip(&latency.counts) {
            *sum = sum.wrapping_add(count.get());
        }
        self.sum_ns = self.sum_ns.wrapping_add(latency.sum_ns.get());
    }

    /// Adds what others have noted.
    pub fn merge(&mut self, other: &LatencyTotals) {
        for (sum, count) in self.counts.iter_mut().zip(&other.counts) {
            *sum = sum.wrapping_add(*count);
        }
        self.sum_ns = self.sum_ns.wrapping_add(other.sum_ns);
    }

    /// How many times were noted.
    pub fn count(&self) -> u64 {
        self.counts.iter().sum()
    }

    /// All of them together.
    pub fn sum_ns(&self) -> u64 {
        self.sum_ns
    }

    /// Powers of two in nanoseconds, and how many times were shorter than each.
    pub fn powers(&self) -> impl Iterator<Item = (u64, u64)> {
        (LATENCY_FIRST_BITS..=LATENCY_LAST_BITS).map(|bits| {
            let shorter = 1 + (((bits - LATENCY_FIRST_BITS) as usize) << LATENCY_SHARE_BITS);
            (1 << bits, self.counts[..shorter].iter().sum())
        })
    }

    /// Buckets that are not empty: the longest time of each, and how many.
    pub fn filled(&self) -> impl Iterator<Item = (u64, u64)> {
        let filled = self.counts.iter().enumerate().filter(|(_, count)| **count > 0);
        filled.map(|(index, count)| (end_of(index), *count))
    }

    /// A time that this share of all was not longer than, 0 without any.
    pub fn quantile_ns(&self, share: f64) -> u64 {
        let wanted = (self.count() as f64 * share).ceil().max(1.0) as u64;
        let mut seen = 0;
        for (end_ns, count) in self.filled() {
            seen += count;
            if seen >= wanted {
                return end_ns;
            }
        }
        0
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

    fn times(took_ns: impl IntoIterator<Item = u64>) -> LatencyTotals {
        let latency = LatencyHistogram::default();
        took_ns.into_iter().for_each(|took_ns| latency.note(took_ns));
        let mut times = LatencyTotals::default();
        times.absorb(&latency);
        times
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
            let ratio = times.quantile_ns(share) as f64 / exact;
            assert!((1.0..=1.126).contains(&ratio), "{share}: {ratio}");
        }
        assert_eq!((times.count(), times.sum_ns()), (1000, 5_005_000_000));
        assert_eq!(self::times([]).quantile_ns(0.5), 0);
    }

    #[test]
    fn counts_of_shorter_times_grow_and_leave_out_what_is_longer() {
        let times = times([0, 1023, 1024, 2000, 5_000_000_000, u64::MAX >> 1]);
        let powers: Vec<_> = times.powers().collect();
        assert_eq!(powers[0], (1024, 2));
        assert_eq!(powers[1], (2048, 4));
        assert!(powers.is_sorted_by_key(|(_, below)| *below), "{powers:?}");
        assert_eq!(powers.last(), Some(&(1 << LATENCY_LAST_BITS, 5)));
        assert_eq!(times.count(), 6);
    }
}
