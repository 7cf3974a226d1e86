//! The times at which the requests of an open loop are due.
//!
//! Promises: the times do not depend on the server; a request that waits for a connection stays the next one until it
//! is asked, so a backlog of any length takes no memory.
//! Source: open-loop timing as in Gil Tene's wrk2.

use crate::random::Random;

use super::distribution::{etc_gap, exponential_gap};

/// The gaps between the due times of an open loop; their mean follows from the rate.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Gaps {
    /// All the same.
    Fixed,
    /// Those of a Poisson process: independent clients.
    Poisson,
    /// Those of Facebook's pool ETC: a generalized Pareto distribution.
    Etc,
}

/// The due times of one thread.
#[derive(Debug)]
pub(super) struct Schedule {
    gaps: Gaps,
    gap_ns: f64,
    next_ns: f64,
    random: Random,
}

impl Schedule {
    /// Returns a schedule whose first request is due `offset` gaps after 0.
    pub(super) fn new(gaps: Gaps, rate_per_s: f64, offset: f64, seed: u64) -> Schedule {
        let gap_ns = 1e9 / rate_per_s;
        Schedule { gaps, gap_ns, next_ns: offset * gap_ns, random: Random::new(seed) }
    }

    /// Moves all times by the time at which the load begins.
    pub(super) fn begin(&mut self, now_ns: u64) {
        self.next_ns += now_ns as f64;
    }

    /// Returns when the next request is due.
    pub(super) fn next_ns(&self) -> u64 {
        self.next_ns as u64
    }

    /// Goes on to the request after it.
    pub(super) fn advance(&mut self) {
        let gap = match self.gaps {
            Gaps::Fixed => 1.0,
            Gaps::Poisson => exponential_gap(&mut self.random),
            Gaps::Etc => etc_gap(&mut self.random),
        };
        self.next_ns += gap * self.gap_ns;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_schedule_keeps_its_rate() {
        for gaps in [Gaps::Fixed, Gaps::Poisson, Gaps::Etc] {
            let mut schedule = Schedule::new(gaps, 50_000.0, 0.5, 3);
            schedule.begin(1_000);
            assert_eq!(schedule.next_ns(), 11_000);
            for _ in 0..100_000 {
                schedule.advance();
            }
            let seconds = schedule.next_ns() as f64 / 1e9;
            let tolerance = if gaps == Gaps::Fixed { 1e-6 } else { 0.02 };
            assert!((seconds / 2.0 - 1.0).abs() < tolerance + 1e-5, "{gaps:?}: {seconds} s");
        }
    }
}
