//! The state of a process at one moment, as `/api/state` returns it to the admin page and `flick top`.
//! Promises: counters only grow; a reader computes rates from two states.

pub use flick_stats::{BackendStats, CounterValue, DictionaryStats, TaskRuns, Times};
use serde::{Deserialize, Serialize};

/// The state of a process.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct StateReport {
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
    /// Lines of the log that were dropped because standard error was not read.
    #[serde(default)]
    pub log_lines_dropped: u64,
    /// Lines of the log that programs wrote beyond the limit of lines per second, and that were dropped.
    #[serde(default)]
    pub program_lines_dropped: u64,
}

/// A sample of the clients.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Sessions {
    /// Number of client connections.
    pub open: u64,
    /// Some of them: a few of each worker of each service.
    pub sessions: Vec<Session>,
    /// Some connections to backends, likewise.
    #[serde(default)]
    pub backend_connections: Vec<BackendConnection>,
}

/// A connection to a backend.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct BackendConnection {
    /// The name by which `flick tap` knows it.
    pub id: String,
    /// Its service.
    pub service: String,
    /// Its worker.
    pub worker: u64,
    /// The channel of the backend.
    pub channel: String,
    /// Address of the backend.
    pub backend: String,
    /// `tcp`, `unix`, `shm`, or `upgraded`: a connection of a socket that has moved to shared memory.
    pub transport: String,
    /// The reason for which a connection of a socket is not in shared memory, in a word of
    /// `flick_shm_upgrades_refused_total`, `few_exchanges`, `asking` or `not_asked`; empty if it is.
    #[serde(default)]
    pub plain_reason: String,
    /// Times that the other process had to signal input in shared memory, because the worker no longer looked for it.
    #[serde(default)]
    pub wake_ups: u64,
    /// Its requests in flight.
    pub inflight: u64,
    /// Bytes received from it.
    pub bytes_in: u64,
    /// Bytes sent to it.
    pub bytes_out: u64,
}

/// A client connection.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Session {
    /// Its service.
    pub service: String,
    /// Its worker.
    pub worker: u64,
    /// The name by which `flick tap` knows its connection.
    #[serde(default)]
    pub id: String,
    /// Its address.
    pub client: String,
    /// `tcp`, `unix`, `shm`, or `upgraded`: a connection of a socket that has moved to shared memory.
    #[serde(default)]
    pub transport: String,
    /// The reason for which a connection of a socket is not in shared memory, in a word of
    /// `flick_shm_upgrades_refused_total`, `few_exchanges`, `asking` or `not_asked`; empty if it is.
    #[serde(default)]
    pub plain_reason: String,
    /// Times that the other process had to signal input in shared memory, because the worker no longer looked for it.
    #[serde(default)]
    pub wake_ups: u64,
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
    pub counters: Vec<CounterValue>,
    /// Request durations, over all workers.
    pub times: Times,
    /// Its workers.
    pub workers: Vec<WorkerReport>,
    /// Its backends.
    pub backends: Vec<BackendStats>,
    /// The program's counters and gauges.
    pub program: Vec<CounterValue>,
    /// The program's dictionaries.
    pub dictionaries: Vec<DictionaryStats>,
    /// Its task graph.
    pub graph: Graph,
    /// Settings that can be changed while it runs.
    #[serde(default)]
    pub tunables: TunableNanos,
}

/// Counters that add up to the errors of a service.
const ERRORS: [&str; 4] = ["errors_unavailable", "errors_timeout", "errors_overload", "errors_malformed"];

impl Service {
    /// Returns a platform counter; 0 if there is none of this name.
    pub fn counter(&self, name: &str) -> u64 {
        let found = self.counters.iter().find(|counter| counter.name == name);
        found.map_or(0, |counter| counter.value.max(0) as u64)
    }

    /// Returns the number of error responses.
    pub fn errors(&self) -> u64 {
        ERRORS.iter().map(|name| self.counter(name)).sum()
    }
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

/// A worker of a service.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct WorkerReport {
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

/// A backend as its list has it, and what the operator lets it have.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct BackendEntry {
    /// Name of the service.
    pub service: String,
    /// Name of the channel.
    pub channel: String,
    /// Index in the channel's list.
    pub element: usize,
    /// Its address as the list has it.
    pub backend: String,
    /// The address that it has now.
    pub address: String,
    /// `ready`, `drain` or `maint`.
    pub mode: String,
    /// Its weight; 0 if the operator has set that, which drains it.
    pub weight: u32,
    /// Whether it stands in only while the others are down.
    #[serde(default)]
    pub is_backup: bool,
    /// Its health, as people read it: `up`, `down`, `ejected by 1 of 2`.
    #[serde(default)]
    pub health: String,
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

/// A line of a tap: a piece of what passed through a connection.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct TapLine {
    /// Time, in microseconds since 1970.
    pub at_us: u64,
    /// The connection.
    pub id: String,
    /// Content of `data`.
    pub kind: TapLineKind,
    /// The peer is a client, not a backend.
    #[serde(default)]
    pub is_client: bool,
    /// Bytes that have passed in this direction before.
    #[serde(default)]
    pub offset: u64,
    /// The bytes, in hexadecimal; the address of the peer; or the reason of the end.
    #[serde(default)]
    pub data: String,
    /// Bytes that were left out so far, over all connections.
    #[serde(default)]
    pub dropped_bytes: u64,
}

/// Content of a line of a tap.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum TapLineKind {
    /// A connection is observed from here on.
    #[default]
    Begin,
    /// Bytes from the peer.
    Received,
    /// Bytes to the peer.
    Sent,
    /// The connection has ended.
    End,
    /// More was left out.
    Dropped,
    /// The tap has ended.
    Over,
}
