//! Counters of a worker's tasks, by kind.
//! Promises: one writer, as for all counters.

use flick_stats::TaskRuns;

use crate::observe::counter::Counter;

/// Kinds of tasks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TaskKind {
    /// A task that handles input of a client.
    Client,
    /// A task that handles input of a backend.
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
    /// Time that tasks ran, in nanoseconds, estimated from one in `SAMPLE_EVERY_ITERATIONS` iterations.
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

impl TaskCounters {
    /// Their values now, of the kind with this name.
    pub fn totals(&self, kind: &str) -> TaskRuns {
        TaskRuns {
            kind: kind.to_owned(),
            runs: self.runs.get(),
            busy_ns: self.busy_ns.get(),
            slices_exceeded: self.slices_exceeded.get(),
            stolen: self.stolen.get(),
        }
    }
}
