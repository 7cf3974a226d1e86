//! Everything there is to see at one moment, as the page and `flick top` get it from `/api/state`.
//! Promises: counts only grow; a reader makes rates of two states.

use serde::{Deserialize, Serialize};

/// One moment of a process.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct State {
    /// Of flick.
    pub version: String,
    /// Its process.
    pub process: Process,
    /// What it has given up, in a line for people.
    #[serde(default)]
    pub confined: String,
    /// It takes no new clients any more.
    pub is_draining: bool,
    /// What it serves.
    pub services: Vec<Service>,
    /// How often they were replaced.
    pub reloads: Reloads,
    /// The latest faults, oldest first.
    pub faults: Vec<Fault>,
    /// Faults that are not kept any more, or could not be.
    pub faults_lost: u64,
    /// Lines of the access log that its file did not take.
    #[serde(default)]
    pub access_unwritten: u64,
}

/// Some of the clients that there are.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Sessions {
    /// How many there are.
    pub open: u64,
    /// Those that are named: a few of each worker of each service.
    pub sessions: Vec<Session>,
}

/// A client.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Session {
    /// The service that serves it.
    pub service: String,
    /// The worker that does.
    pub worker: u64,
    /// Its address.
    pub client: String,
    /// Since it came.
    pub age_ms: u64,
    /// Since it sent something.
    pub quiet_ms: u64,
    /// What it does, in a few words.
    pub state: String,
    /// Its requests under way.
    pub under_way: u64,
    /// What it has sent.
    pub bytes_in: u64,
    /// What was passed on to it.
    pub bytes_out: u64,
}

/// Reloads of the process.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Reloads {
    /// Number of what runs now: the first is 1.
    pub generation: u64,
    /// How long it has been running.
    pub age_ms: u64,
    /// Reloads that worked.
    pub ok: u64,
    /// Reloads that changed nothing because something was wrong.
    pub failed: u64,
    /// Services of older generations that still serve somebody.
    pub older: u64,
}

/// What the system says of the process.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Process {
    /// Its number.
    pub id: u32,
    /// Since its start.
    pub uptime_ms: u64,
    /// When this was read, since 1970.
    pub now_ms: u64,
    /// Memory that it has in use.
    pub resident_bytes: u64,
    /// Time of the processor that it has had.
    pub cpu_ms: u64,
    /// Open files, connections among them.
    pub open_files: u64,
}

/// One service.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Service {
    /// Its name.
    pub name: String,
    /// The channel that clients connect to.
    pub channel: String,
    /// Where clients connect, by channel.
    pub listens: Vec<(String, String)>,
    /// The kernel interface that carries the bytes.
    pub io: String,
    /// Most sessions at a time.
    pub sessions_max: u64,
    /// Counters of the platform, over all workers.
    pub counters: Vec<Counter>,
    /// How long requests took, over all workers.
    pub times: Times,
    /// By worker.
    pub workers: Vec<Worker>,
    /// By backend.
    pub backends: Vec<Backend>,
    /// Counters and gauges of the program.
    pub program: Vec<Counter>,
    /// Dictionaries of the program.
    pub dictionaries: Vec<Dictionary>,
    /// Its tasks.
    pub graph: Graph,
}

/// A counter or gauge.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Counter {
    /// Its name.
    pub name: String,
    /// What it counts.
    pub help: String,
    /// It goes down too.
    pub is_gauge: bool,
    /// Now.
    pub value: i64,
}

/// One worker of a service.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Worker {
    /// In the order of the service's counters.
    pub values: Vec<i64>,
    /// How long its requests took.
    pub times: Times,
    /// How long its tasks ran at a time, in a part of the turns.
    #[serde(default)]
    pub slices: Times,
    /// By kind of task: what it ran.
    #[serde(default)]
    pub tasks: Vec<TaskRuns>,
}

/// Tasks of one kind on one worker.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct TaskRuns {
    /// The kind.
    pub kind: String,
    /// Times that one ran.
    pub runs: u64,
    /// How long, estimated from a part of the turns.
    pub busy_ns: u64,
    /// Times that one had more to do when its time slice was over.
    pub slices_exceeded: u64,
    /// Taken over from another worker.
    pub stolen: u64,
}

/// How long things took.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Times {
    /// All of them together.
    pub sum_ns: u64,
    /// Buckets that are not empty, shortest first: their longest time in nanoseconds, and how many times are in them.
    pub buckets: Vec<(u64, u64)>,
}

impl Times {
    /// How many.
    pub fn count(&self) -> u64 {
        self.buckets.iter().map(|(_, count)| count).sum()
    }

    /// What came since `before`.
    pub fn since(&self, before: &Times) -> Times {
        let earlier =
            |end: u64| before.buckets.iter().find(|(at, _)| *at == end).map_or(0, |(_, count)| *count);
        let buckets = self.buckets.iter().map(|(end, count)| (*end, count.saturating_sub(earlier(*end))));
        Times {
            sum_ns: self.sum_ns.saturating_sub(before.sum_ns),
            buckets: buckets.filter(|(_, count)| *count > 0).collect(),
        }
    }

    /// A time that this share of all was not longer than; `None` without any.
    pub fn quantile_ns(&self, share: f64) -> Option<u64> {
        let wanted = (self.count() as f64 * share).ceil().max(1.0) as u64;
        let mut seen = 0;
        self.buckets.iter().find_map(|(end, count)| {
            seen += count;
            (seen >= wanted).then_some(*end)
        })
    }
}

/// One backend.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Backend {
    /// Its channel.
    pub channel: String,
    /// Its number in the channel's array.
    pub element: u64,
    /// Where it is.
    pub address: String,
    /// It has left its list, and what is under way on it finishes.
    pub is_leaving: bool,
    /// Workers that send it nothing: too many requests have failed, or its checks do.
    pub out: u64,
    /// Workers whose checks of it fail, whether they send it nothing for that or not.
    pub failing: u64,
    /// Times that a worker put it out because too many requests in a row had failed.
    pub ejections: u64,
    /// Checks that failed.
    pub check_failures: u64,
    /// Requests that were not sent because it had as many as it may.
    pub shed: u64,
    /// Requests sent to it.
    pub requests: u64,
    /// Requests for it that flick answered itself.
    pub failures: u64,
    /// Workers that are connected to it.
    pub up: u64,
    /// Workers connect to it without a client; otherwise `up` says nothing.
    pub is_watched: bool,
    /// From the request to its last reply.
    pub times: Times,
}

/// One dictionary.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Dictionary {
    /// Its name.
    pub name: String,
    /// Entries now.
    pub entries: u64,
    /// Entries at most.
    pub entries_max: u64,
    /// Memory, whatever is in it.
    pub bytes: u64,
    /// Reads that found something.
    pub hits: u64,
    /// Reads that did not.
    pub misses: u64,
    /// Entries that made room.
    pub evictions: u64,
    /// Entries whose time was over.
    pub expirations: u64,
    /// Writes for which there was no room.
    pub refusals: u64,
}

/// Tasks and the ways that messages take between them.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Graph {
    /// Inputs, what runs, outputs and state.
    pub tasks: Vec<Task>,
    /// Between them.
    pub edges: Vec<Edge>,
}

/// One task.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Task {
    /// `input`, `event`, `compute`, `merge`, `output` or `state`.
    pub role: String,
    /// Its name.
    pub name: String,
    /// A line more.
    pub detail: String,
    /// 0 what starts, 1 what runs, 2 what leaves and stays.
    pub column: u8,
}

/// One edge.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Edge {
    /// Index of a task.
    pub from: usize,
    /// Index of a task.
    pub to: usize,
    /// `sends`, `asks` or `keeps`.
    pub kind: String,
    /// Messages that went along it, where that is counted.
    pub count: Option<u64>,
}

/// Something that went wrong.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Fault {
    /// Since 1970.
    pub at_ms: u64,
    /// How bad: `error` or `warn`.
    pub level: String,
    /// What.
    pub text: String,
}
