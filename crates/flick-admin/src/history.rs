//! The last ten minutes of each service, for an admin page that is opened after something went wrong.
//! Promises: at most `HISTORY_SAMPLES_MAX` samples for a service, and none for a service that has been removed.
//! Not here: when samples are taken (`server.rs`).

use std::collections::{BTreeMap, VecDeque};

use serde::Serialize;

use crate::limits::HISTORY_SAMPLES_MAX;
use crate::state::{Service, StateReport, Times};

/// A service between two samples.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Sample {
    /// Time of the second sample, in milliseconds since 1970.
    pub at_ms: u64,
    /// Requests per second.
    pub requests_per_s: f64,
    /// Errors per second.
    pub errors_per_s: f64,
    /// Median duration of a request; `None` without requests.
    pub p50_ns: Option<u64>,
    /// 99th percentile of the durations.
    pub p99_ns: Option<u64>,
}

/// The samples of all services.
#[derive(Debug, Default)]
pub struct History {
    services: BTreeMap<String, Recorded>,
}

/// The samples of one service, and what the next one is computed from.
#[derive(Debug, Default)]
struct Recorded {
    at_ms: u64,
    requests: u64,
    errors: u64,
    times: Times,
    samples: VecDeque<Sample>,
}

impl History {
    /// Adds a sample of each service. Services that are not in the state are removed.
    pub fn add(&mut self, state: &StateReport) {
        self.services.retain(|name, _| state.services.iter().any(|service| service.name == *name));
        for service in &state.services {
            let at_ms = state.process.now_ms;
            match self.services.get_mut(&service.name) {
                Some(recorded) => recorded.add(service, at_ms),
                None => {
                    self.services.insert(service.name.clone(), Recorded::first(service, at_ms));
                }
            }
        }
    }

    /// Returns the samples of each service, oldest first.
    pub fn samples(&self) -> BTreeMap<String, Vec<Sample>> {
        let each = self.services.iter();
        each.map(|(name, recorded)| (name.clone(), recorded.samples.iter().copied().collect())).collect()
    }
}

impl Recorded {
    fn first(service: &Service, at_ms: u64) -> Self {
        Self {
            at_ms,
            requests: service.counter("requests"),
            errors: service.errors(),
            times: service.times.clone(),
            samples: VecDeque::new(),
        }
    }

    fn add(&mut self, service: &Service, at_ms: u64) {
        let now = Self::first(service, at_ms);
        // The clock may have been set back.
        let seconds = at_ms.saturating_sub(self.at_ms) as f64 / 1000.0;
        if seconds > 0.0 {
            let per_s = |now: u64, before: u64| now.saturating_sub(before) as f64 / seconds;
            let times = now.times.since(&self.times);
            self.samples.push_back(Sample {
                at_ms,
                requests_per_s: per_s(now.requests, self.requests),
                errors_per_s: per_s(now.errors, self.errors),
                p50_ns: times.quantile_ns(0.5),
                p99_ns: times.quantile_ns(0.99),
            });
        }
        if self.samples.len() > HISTORY_SAMPLES_MAX {
            self.samples.pop_front();
        }
        *self = Self { samples: std::mem::take(&mut self.samples), ..now };
    }
}

#[cfg(test)]
mod tests {
    use super::{History, Sample};
    use crate::limits::HISTORY_SAMPLES_MAX;
    use crate::state::{CounterValue, Process, Service, StateReport, Times};

    /// The state at a time, with a number of requests that took a millisecond each.
    fn state(seconds: u64, requests: u64) -> StateReport {
        let counter = |name: &str, value: u64| CounterValue {
            name: name.to_owned(),
            value: value as i64,
            ..CounterValue::default()
        };
        let service = Service {
            name: "Proxy".to_owned(),
            counters: vec![counter("requests", requests), counter("errors_timeout", requests / 10)],
            times: Times { sum_ns: 0, buckets: vec![(1_000_000, requests)] },
            ..Service::default()
        };
        let process = Process { now_ms: 1000 * seconds, ..Process::default() };
        StateReport { process, services: vec![service], ..StateReport::default() }
    }

    #[test]
    fn samples_are_rates_between_two_states() {
        let mut history = History::default();
        history.add(&state(10, 100));
        assert_eq!(history.samples()["Proxy"], []);
        history.add(&state(15, 200));
        history.add(&state(20, 200));
        let sample = |at_ms, requests_per_s, errors_per_s, of_all| Sample {
            at_ms,
            requests_per_s,
            errors_per_s,
            p50_ns: of_all,
            p99_ns: of_all,
        };
        let expected = [sample(15_000, 20.0, 2.0, Some(1_000_000)), sample(20_000, 0.0, 0.0, None)];
        assert_eq!(history.samples()["Proxy"], expected);
    }

    #[test]
    fn only_the_last_samples_of_present_services_are_kept() {
        let mut history = History::default();
        for second in 0..2 * HISTORY_SAMPLES_MAX as u64 {
            history.add(&state(second, second));
        }
        let samples = history.samples()["Proxy"].clone();
        assert_eq!(samples.len(), HISTORY_SAMPLES_MAX);
        assert_eq!(samples.last().map(|last| last.at_ms), Some(2000 * HISTORY_SAMPLES_MAX as u64 - 1000));
        // A clock that was set back adds no sample, and the next one is a rate again.
        history.add(&state(5, 7));
        assert_eq!(history.samples()["Proxy"].last(), samples.last());
        history.add(&StateReport::default());
        assert!(history.samples().is_empty());
    }
}
