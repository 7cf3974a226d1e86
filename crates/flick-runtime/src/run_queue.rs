//! The run queue of a worker: first in, first out.

use std::collections::VecDeque;

use crate::observe::task_counters::TaskKind;
use crate::slab::Key;

/// A schedulable unit: the input and compute tasks of one connection, fused because they share a worker.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Task {
    Session(Key),
    BackendConn(u32),
    /// A suspended rule that can go on: all its asks are answered, or it has yielded.
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

/// Tasks that can run, and whether the worker looks at clients that wait for capacity again.
///
/// Component of the worker.
pub(crate) struct RunQueue {
    queue: VecDeque<Task>,
    /// Capacity was freed: blocked sessions and stalled backend connections are looked at again.
    capacity_freed: bool,
    /// A message waits for a huge buffer.
    needs_huge: bool,
    huge_reserve: u32,
}

impl RunQueue {
    /// An empty queue for `tasks_max` tasks. Requests leave `huge_reserve` huge buffers to replies.
    pub(crate) fn new(tasks_max: usize, huge_reserve: u32) -> Self {
        Self {
            queue: VecDeque::with_capacity(tasks_max),
            capacity_freed: false,
            needs_huge: false,
            huge_reserve,
        }
    }

    /// Appends a task. The caller has checked that it is not in the queue.
    #[inline]
    pub(crate) fn push(&mut self, task: Task) {
        self.queue.push_back(task);
    }

    /// Removes the oldest task.
    #[inline]
    pub(crate) fn pop(&mut self) -> Option<Task> {
        self.queue.pop_front()
    }

    /// The tasks, from the oldest one on.
    pub(crate) fn iter(&self) -> impl Iterator<Item = &Task> {
        self.queue.iter()
    }

    /// Tasks in the queue.
    pub(crate) fn len(&self) -> usize {
        self.queue.len()
    }

    /// Whether no task can run.
    pub(crate) fn is_empty(&self) -> bool {
        self.queue.is_empty()
    }

    /// Whether the worker has nothing to do: no task can run and no capacity was freed.
    pub(crate) fn is_idle(&self) -> bool {
        self.queue.is_empty() && !self.capacity_freed
    }

    /// Whether `run_tasks` has something to look at.
    pub(crate) fn needs_round(&self) -> bool {
        self.capacity_freed || self.needs_huge || !self.queue.is_empty()
    }

    /// Notes that something was freed for which blocked sessions or stalled backend connections may wait.
    #[inline]
    pub(crate) fn free_capacity(&mut self) {
        self.capacity_freed = true;
    }

    /// Whether capacity was freed since the last call.
    pub(crate) fn take_freed_capacity(&mut self) -> bool {
        std::mem::replace(&mut self.capacity_freed, false)
    }

    /// Notes that a message waits for a huge buffer.
    pub(crate) fn need_huge(&mut self) {
        self.needs_huge = true;
    }

    /// Whether a message waits for a huge buffer.
    pub(crate) fn needs_huge(&self) -> bool {
        self.needs_huge
    }

    /// Notes that a huge buffer is free: those that wait for one are looked at again.
    pub(crate) fn free_huge(&mut self) {
        (self.needs_huge, self.capacity_freed) = (false, true);
    }

    /// Huge buffers that requests leave to replies.
    #[inline]
    pub(crate) fn huge_reserve(&self) -> u32 {
        self.huge_reserve
    }
}
