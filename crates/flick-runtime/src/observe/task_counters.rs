//! What a worker counts of its tasks, by kind.
//! Promises: one writer, as for all counters.

use crate::observe::counters::Counter;

/// Kinds of tasks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TaskKind {
    /// What a client sends.
    Client,
    /// What a backend sends.
    Backend,
    /// A rule that waited for replies, a handler or a timer.
    Rule,
    /// A feeder, node or sink of a merge.
    Merge,
}

/// All kinds, with their names.
pub const KINDS: [(TaskKind, &str); 4] = [
    (TaskKind::Client, "client"),
    (TaskKind::Backend, "backend"),
    (TaskKind::Rule, "rule"),
    (TaskKind::Merge, "merge"),
];

/// Counters of one kind.
#[derive(Debug, Default)]
pub struct TaskCounters {
    /// Times that a task ran.
    pub runs: Counter,
    /// How long, as seen in one turn of a few.
    pub busy_ns: Counter,
    /// Times that a task had more to do when its time slice was over.
    pub slices_exceeded: Counter,
    /// Tasks that this worker took over from another.
    pub stolen: Counter,
}

/// Counters of all kinds.
#[derive(Debug, Default)]
pub struct Tasks([TaskCounters; KINDS.len()]);

impl Tasks {
    /// Those of one kind.
    pub fn of(&self, kind: TaskKind) -> &TaskCounters {
        &self.0[kind as usize]
    }
}

/// The same at one moment, of one worker or of several.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TaskTotals {
    /// Times that a task ran.
    pub runs: u64,
    /// How long, as seen in one turn of a few.
    pub busy_ns: u64,
    /// Times that a task had more to do when its time slice was over.
    pub slices_exceeded: u64,
    /// Tasks that a worker took over from another.
    pub stolen: u64,
}

impl TaskTotals {
    /// Adds what others have counted.
    pub fn merge(&mut self, other: &TaskTotals) {
        self.runs = self.runs.wrapping_add(other.runs);
        self.busy_ns = self.busy_ns.wrapping_add(other.busy_ns);
        self.slices_exceeded = self.slices_exceeded.wrapping_add(other.slices_exceeded);
        self.stolen = self.stolen.wrapping_add(other.stolen);
    }

    /// Adds those of one worker.
    pub fn absorb(&mut self, counters: &TaskCounters) {
        self.runs = self.runs.wrapping_add(counters.runs.get());
        self.busy_ns = self.busy_ns.wrapping_add(counters.busy_ns.get());
        self.slices_exceeded = self.slices_exceeded.wrapping_add(counters.slices_exceeded.get());
        self.stolen = self.stolen.wrapping_add(counters.stolen.get());
    }
}
