//! Statistics of a service at one moment: the platform fills them in, the admin endpoint shows them.
//! Promises: plain data; counters only grow, so that a reader computes rates from two moments.
//! Not here: the counters that workers write (`flick-runtime`), the state of the whole process (`flick-admin`).
#![forbid(unsafe_code)]

use serde::{Deserialize, Serialize};

/// A histogram of durations.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Times {
    /// Sum of all durations.
    pub sum_ns: u64,
    /// Non-empty buckets in ascending order: longest duration in nanoseconds, and count.
    pub buckets: Vec<(u64, u64)>,
}

impl Times {
    /// Number of durations.
    pub fn count(&self) -> u64 {
        self.buckets.iter().map(|(_, count)| count).sum()
    }

    /// Adds the durations of another histogram.
    pub fn merge(&mut self, other: &Times) {
        // The sum of many long durations wraps within weeks, as the workers' own does.
        self.sum_ns = self.sum_ns.wrapping_add(other.sum_ns);
        for (end, count) in &other.buckets {
            match self.buckets.binary_search_by_key(end, |(own, _)| *own) {
                Ok(at) => self.buckets[at].1 += count,
                Err(at) => self.buckets.insert(at, (*end, *count)),
            }
        }
    }

    /// The durations since `before`.
    pub fn since(&self, before: &Times) -> Times {
        let earlier =
            |end: u64| before.buckets.iter().find(|(at, _)| *at == end).map_or(0, |(_, count)| *count);
        let buckets = self.buckets.iter().map(|(end, count)| (*end, count.saturating_sub(earlier(*end))));
        Times {
            sum_ns: self.sum_ns.saturating_sub(before.sum_ns),
            buckets: buckets.filter(|(_, count)| *count > 0).collect(),
        }
    }

    /// The quantile `share`, 0 to 1; `None` if the histogram is empty.
    pub fn quantile_ns(&self, share: f64) -> Option<u64> {
        let wanted = (self.count() as f64 * share).ceil().max(1.0) as u64;
        let mut seen = 0;
        self.buckets.iter().find_map(|(end, count)| {
            seen += count;
            (seen >= wanted).then_some(*end)
        })
    }
}

/// Task runs of one kind on one worker.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct TaskRuns {
    /// The kind of task.
    pub kind: String,
    /// Number of runs.
    pub runs: u64,
    /// Total duration, estimated from samples.
    pub busy_ns: u64,
    /// Runs that ended with their time slice.
    pub slices_exceeded: u64,
    /// Tasks taken from another worker.
    pub stolen: u64,
}

impl TaskRuns {
    /// Adds the counters of another worker or generation.
    pub fn merge(&mut self, other: &TaskRuns) {
        self.runs += other.runs;
        self.busy_ns += other.busy_ns;
        self.slices_exceeded += other.slices_exceeded;
        self.stolen += other.stolen;
    }
}

/// A backend.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct BackendStats {
    /// Its channel.
    pub channel: String,
    /// Its index in the channel's array.
    pub element: u64,
    /// Its address.
    pub address: String,
    /// Whether it was removed from its list and is draining.
    pub is_draining: bool,
    /// `ready`, `drain` or `maint`: what the operator lets it have.
    #[serde(default)]
    pub mode: String,
    /// Workers that have ejected it: too many requests have failed, or its health checks fail.
    pub workers_ejected: u64,
    /// Workers whose health checks of it fail, whether they have ejected it or not.
    pub workers_failing: u64,
    /// Ejections because of failed requests.
    pub ejections: u64,
    /// Failed health checks.
    pub health_check_failures: u64,
    /// Requests rejected because it had `max_requests_per_backend` in flight.
    pub rejected: u64,
    /// Requests sent to it.
    pub requests: u64,
    /// Requests for it that flick answered with an error.
    pub failures: u64,
    /// Responses received from it by status class, 1xx to 5xx; `None` if its protocol has no status.
    #[serde(default)]
    pub responses_by_class: Option<[u64; 5]>,
    /// Bytes sent to it.
    #[serde(default)]
    pub bytes_sent: u64,
    /// Bytes received from it.
    #[serde(default)]
    pub bytes_received: u64,
    /// Workers that are connected to it.
    pub workers_connected: u64,
    /// Whether workers connect to it without a client; if not, `workers_connected` has no meaning.
    pub is_monitored: bool,
    /// Durations from request to response.
    pub times: Times,
}

impl BackendStats {
    /// Its health, as people read it: `up`, `ejected by 1 of 2`, ...; of `workers` workers.
    pub fn health(&self, workers: usize) -> String {
        match (self.is_monitored, self.workers_connected as usize) {
            _ if self.workers_ejected > 0 => format!("ejected by {} of {workers}", self.workers_ejected),
            _ if self.workers_failing > 0 => "health check fails".to_owned(),
            (false, _) => "per client".to_owned(),
            (true, 0) => "down".to_owned(),
            (true, connected) if connected < workers => format!("up on {connected} of {workers}"),
            (true, _) => "up".to_owned(),
        }
    }

    /// Merges the state of the same address: its counters are added, its gauges are the larger ones.
    pub fn merge(&mut self, other: &BackendStats) {
        self.is_draining &= other.is_draining;
        self.workers_ejected = self.workers_ejected.max(other.workers_ejected);
        self.workers_failing = self.workers_failing.max(other.workers_failing);
        self.workers_connected = self.workers_connected.max(other.workers_connected);
        self.add_counters(other);
    }

    /// Whether both are of the same backend of the same channel.
    pub fn is_of_same(&self, other: &BackendStats) -> bool {
        self.channel == other.channel && self.address == other.address
    }

    /// Finds it among the backends of an earlier moment: an address may stand in a list more than once.
    pub fn former<'a>(&self, earlier: &'a [BackendStats]) -> Option<&'a BackendStats> {
        let same = earlier.iter().filter(|old| old.is_of_same(self));
        same.min_by_key(|old| (old.is_draining != self.is_draining, old.element != self.element))
    }

    /// Adds the counters of another generation; its gauges are not this one's.
    pub fn add_counters(&mut self, other: &BackendStats) {
        self.ejections += other.ejections;
        self.health_check_failures += other.health_check_failures;
        self.rejected += other.rejected;
        self.requests += other.requests;
        self.failures += other.failures;
        if let (Some(own), Some(other)) = (&mut self.responses_by_class, &other.responses_by_class) {
            own.iter_mut().zip(other).for_each(|(own, other)| *own += other);
        }
        self.bytes_sent += other.bytes_sent;
        self.bytes_received += other.bytes_received;
        self.times.merge(&other.times);
    }
}

/// A dictionary.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct DictionaryStats {
    /// Its name.
    pub name: String,
    /// Number of entries.
    pub entries: u64,
    /// Maximum number of entries.
    pub entries_max: u64,
    /// Allocated memory.
    pub bytes: u64,
    /// Memory that the entries take.
    #[serde(default)]
    pub bytes_used: u64,
    /// Lookups that found an entry.
    pub hits: u64,
    /// Lookups that found none.
    pub misses: u64,
    /// Entries removed for new ones.
    pub evictions: u64,
    /// Entries removed because they expired.
    pub expirations: u64,
    /// Writes rejected because the dictionary was full.
    pub refusals: u64,
    /// Snapshots that could not be written.
    #[serde(default)]
    pub snapshot_errors: u64,
}

/// A counter or gauge.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct CounterValue {
    /// Its name.
    pub name: String,
    /// Its description.
    pub help: String,
    /// Whether it is a gauge.
    pub is_gauge: bool,
    /// Its value.
    pub value: i64,
}
