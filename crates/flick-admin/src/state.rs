//! The state of a process at one moment, as `/api/state` returns it to the admin page and `flick top`.
//! Promises: counters only grow; a reader computes rates from two states.

use serde::{Deserialize, Serialize};

/// The state of a process.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct State {
    /// Version of flick.
    pub version: String,
    /// Commit that flick was built from, if known.
    #[serde(default)]
    pub commit: String,
    /// Target that flick was built for.
    #[serde(default)]
    pub target: String,
    /// Statistics of the process.
    pub process: Process,
    /// The active sandbox, as a line of text.
    #[serde(default)]
    pub sandbox: String,
    /// Whether it is draining: it accepts no new clients.
    pub is_draining: bool,
    /// Its services.
    pub services: Vec<Service>,
    /// Reloads.
    pub reloads: Reloads,
    /// Recent warnings and errors of the log, oldest first.
    pub events: Vec<LogEvent>,
    /// Warnings and errors that are not in `events`.
    pub events_dropped: u64,
    /// Lines of the access log that could not be written.
    #[serde(default)]
    pub access_dropped: u64,
}

/// A sample of the clients.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Sessions {
    /// Number of client connections.
    pub open: u64,
    /// Some of them: a few of each worker of each service.
    pub sessions: Vec<Session>,
}

/// A client connection.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Session {
    /// Its service.
    pub service: String,
    /// Its worker.
    pub worker: u64,
    /// Its address.
    pub client: String,
    /// Time since it connected.
    pub age_ms: u64,
    /// Time since it sent something.
    pub idle_ms: u64,
    /// Its state, in a few words.
    pub state: String,
    /// Its requests in flight.
    pub inflight: u64,
    /// Bytes received from it.
    pub bytes_in: u64,
    /// Bytes sent to it.
    pub bytes_out: u64,
}

/// Reloads of the process.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Reloads {
    /// Number of the current generation; the first is 1.
    pub generation: u64,
    /// Time since it started.
    pub age_ms: u64,
    /// Successful reloads.
    pub succeeded: u64,
    /// Failed reloads, which changed nothing.
    pub failed: u64,
    /// Services of older generations that still serve clients.
    pub draining: u64,
}

/// Statistics of the process.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Process {
    /// Its process id.
    pub id: u32,
    /// Time since its start.
    pub uptime_ms: u64,
    /// Time of this state, since 1970.
    pub now_ms: u64,
    /// Resident memory.
    pub resident_bytes: u64,
    /// CPU time.
    pub cpu_ms: u64,
    /// Open file descriptors.
    pub open_files: u64,
}

/// A service.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Service {
    /// Its name.
    pub name: String,
    /// The channel that clients connect to.
    pub channel: String,
    /// Listening addresses, by channel.
    pub listens: Vec<(String, String)>,
    /// Kernel interface for network I/O.
    pub io: String,
    /// Maximum number of client connections.
    pub max_connections: u64,
    /// Platform counters, over all workers.
    pub counters: Vec<Counter>,
    /// Request durations, over all workers.
    pub times: Times,
    /// Its workers.
    pub workers: Vec<Worker>,
    /// Its backends.
    pub backends: Vec<Backend>,
    /// The program's counters and gauges.
    pub program: Vec<Counter>,
    /// The program's dictionaries.
    pub dictionaries: Vec<Dictionary>,
    /// Its task graph.
    pub graph: Graph,
    /// Settings that can be changed while it runs.
    #[serde(default)]
    pub tunables: TunableNanos,
}

/// The settings of a service that can be changed while it runs, in nanoseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct TunableNanos {
    /// Time that an idle worker polls before it sleeps.
    pub busy_poll_ns: u64,
    /// Longest time that a busy worker waits to batch messages.
    pub batch_delay_max_ns: u64,
    /// Longest time that a task runs before the next one.
    pub time_slice_ns: u64,
    /// Target queueing delay, above which the service sheds load.
    pub overload_queue_delay_ns: u64,
}

/// A counter or gauge.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Counter {
    /// Its name.
    pub name: String,
    /// Its description.
    pub help: String,
    /// Whether it is a gauge.
    pub is_gauge: bool,
    /// Its value.
    pub value: i64,
}

/// A worker of a service.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Worker {
    /// Platform counters, in the order of the service's.
    pub values: Vec<i64>,
    /// Request durations.
    pub times: Times,
    /// Durations of task runs, sampled.
    #[serde(default)]
    pub slices: Times,
    /// Task runs by kind.
    #[serde(default)]
    pub tasks: Vec<TaskRuns>,
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
        self.sum_ns += other.sum_ns;
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

/// A backend.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Backend {
    /// Its channel.
    pub channel: String,
    /// Its index in the channel's array.
    pub element: u64,
    /// Its address.
    pub address: String,
    /// Whether it was removed from its list and is draining.
    pub is_draining: bool,
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
    /// Workers that are connected to it.
    pub workers_connected: u64,
    /// Whether workers connect to it without a client; if not, `workers_connected` has no meaning.
    pub is_monitored: bool,
    /// Durations from request to response.
    pub times: Times,
}

impl Backend {
    /// Merges the state of the same address: its counters are added, its gauges are the larger ones.
    pub fn merge(&mut self, other: &Backend) {
        self.is_draining &= other.is_draining;
        self.workers_ejected = self.workers_ejected.max(other.workers_ejected);
        self.workers_failing = self.workers_failing.max(other.workers_failing);
        self.workers_connected = self.workers_connected.max(other.workers_connected);
        self.ejections += other.ejections;
        self.health_check_failures += other.health_check_failures;
        self.rejected += other.rejected;
        self.requests += other.requests;
        self.failures += other.failures;
        self.times.merge(&other.times);
    }
}

/// A dictionary.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Dictionary {
    /// Its name.
    pub name: String,
    /// Number of entries.
    pub entries: u64,
    /// Maximum number of entries.
    pub entries_max: u64,
    /// Allocated memory.
    pub bytes: u64,
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
}

/// A task graph.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Graph {
    /// Inputs, computations, outputs and state.
    pub tasks: Vec<Task>,
    /// Edges between the tasks.
    pub edges: Vec<Edge>,
}

/// A task of the graph.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Task {
    /// `input`, `event`, `compute`, `merge`, `output` or `state`.
    pub role: String,
    /// Its name.
    pub name: String,
    /// A second line of text.
    pub detail: String,
    /// Column of the drawing: 0 inputs, 1 computations, 2 outputs and state.
    pub column: u8,
}

/// An edge of the graph.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Edge {
    /// Index of its source task.
    pub from: usize,
    /// Index of its target task.
    pub to: usize,
    /// `sends`, `asks` or `keeps`.
    pub kind: String,
    /// Messages along it; `None` if they are not counted.
    pub count: Option<u64>,
}

/// An event of the log.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct LogEvent {
    /// Time, since 1970.
    pub at_ms: u64,
    /// `error` or `warn`.
    pub level: String,
    /// Message and fields.
    pub text: String,
}
