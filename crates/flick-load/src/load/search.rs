//! The search for the highest rate at which a latency stays below a bound.
//!
//! Promises: a rate is found only if a trial at this rate kept the bound; the number of trials is bounded.
//! Refuses: running the trials; the caller does.
//! Source: the search of mutilate, with a bisection in place of its steps.

use crate::limits::{SEARCH_CLOSER_PER_CENT, SEARCH_TRIALS_MAX};

/// Result of a load at one rate.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct RateTrial {
    /// Rate at which requests were due; of the first trial, whose loop is closed, the rate that was reached.
    pub rate_per_s: f64,
    /// Replies per second.
    pub replies_per_s: f64,
    /// The latency that is bounded, in microseconds.
    pub latency_us: u64,
    /// Whether the latency kept the bound, every request was answered, and the rate was reached.
    pub is_good: bool,
}

/// Returns the best good trial and all trials in their order. `run` makes one, with `None` in a closed loop, whose rate
/// no trial exceeds.
///
/// Errors: those of `run`.
pub fn search<E>(
    mut run: impl FnMut(Option<f64>) -> Result<RateTrial, E>,
) -> Result<(Option<RateTrial>, Vec<RateTrial>), E> {
    let peak = run(None)?;
    let mut trials = vec![peak];
    let (mut low, mut high) = (0.0, peak.replies_per_s);
    let mut best: Option<RateTrial> = None;
    let mut rate = high;
    while trials.len() < SEARCH_TRIALS_MAX && (high - low) * 100.0 > high * SEARCH_CLOSER_PER_CENT {
        let trial = run(Some(rate))?;
        trials.push(trial);
        if trial.is_good {
            best = Some(trial);
            low = rate;
        } else {
            high = rate;
        }
        rate = f64::midpoint(low, high);
    }
    Ok((best, trials))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A queue with one server that serves `peak` requests per second: its 99th percentile grows towards the peak.
    fn trial(peak: f64, bound_us: f64, rate: Option<f64>) -> RateTrial {
        let rate_per_s = rate.unwrap_or(peak);
        let latency_us = 4.6e6 / (peak - rate_per_s).max(1e-3);
        let is_good = latency_us <= bound_us && rate_per_s < peak;
        RateTrial { rate_per_s, replies_per_s: rate_per_s, latency_us: latency_us as u64, is_good }
    }

    #[test]
    fn the_search_finds_where_a_queue_crosses_the_bound() {
        let run = |rate| Ok::<_, ()>(trial(100_000.0, 230.0, rate));
        let (best, trials) = search(run).unwrap();
        let best = best.expect("it exists").rate_per_s;
        assert!((78_000.0..=80_000.0).contains(&best), "4.6 s / 230 us below the peak is 80,000: {best}");
        assert!(trials.len() <= 9, "{}", trials.len());
    }

    #[test]
    fn a_bound_that_no_rate_keeps_is_not_found() {
        let (best, trials) = search(|rate| Ok::<_, ()>(trial(100_000.0, 1.0, rate))).unwrap();
        assert_eq!(best, None);
        assert_eq!(trials.len(), SEARCH_TRIALS_MAX);
        assert_eq!(search(|_| Err::<RateTrial, _>("no server")).err(), Some("no server"));
    }
}
