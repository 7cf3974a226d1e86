//! The run queue of a worker: first in, first out.

use std::collections::VecDeque;

use crate::observe::task_counters::TaskKind;
use crate::slab::Key;

/// A schedulable unit: the input and compute tasks of one connection, fused because they share a worker.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Task {
    Session(Key),
    BackendConn(u32),
    /// An activation that waited: its asks are answered, or its turn has come.
    SuspendedRule(Key),
    /// A task of a merge.
    Merge(u32),
}

impl Task {
    pub(crate) fn kind(self) -> TaskKind {
        match self {
            Task::Session(_) => TaskKind::Client,
            Task::BackendConn(_) => TaskKind::Backend,
            Task::SuspendedRule(_) => TaskKind::Rule,
            Task::Merge(_) => TaskKind::Merge,
        }
    }
}

/// Whether a task goes on with its next message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Flow {
    Go,
    Stop,
}

/// Component of the worker. Tasks that can run, and why clients that wait for capacity are looked at again.
pub(crate) struct RunQueue {
    pub(crate) queue: VecDeque<Task>,
    /// Capacity was freed: blocked sessions and stalled backend connections are looked at again.
    pub(crate) unblock: bool,
    /// A message waits for a huge buffer.
    pub(crate) wants_huge: bool,
    /// Huge buffers that requests leave to replies.
    pub(crate) huge_reserve: u32,
}

impl RunQueue {
    /// Capacity for `tasks_max` tasks.
    pub(crate) fn new(tasks_max: usize, huge_reserve: u32) -> Self {
        Self { queue: VecDeque::with_capacity(tasks_max), unblock: false, wants_huge: false, huge_reserve }
    }
}
