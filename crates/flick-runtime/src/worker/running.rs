//! The run queue of a worker: first in, first out; how long a task runs is the policy's.
//! Promises: a task is in the queue at most once; no task is interrupted; how often and how long tasks run is counted
//! by kind, at the cost of a look at the clock for each task in one turn of [`SAMPLE_EVERY_ITERATIONS`].
//! Refuses: the clock in the simulator: there a task yields after a number of messages only.
//! Source: FLICK §5 and §6.4; `docs/internals/scheduling.md`.

use std::time::{Duration, Instant};

use flick_buffers::BufClass;
use flick_net::{Driver, monotonic_ns};

use super::Worker;
use crate::config::TaskScheduling;
use crate::limits::{
    TASK_MESSAGES_MAX, CLOCK_EVERY_MESSAGES, CLOCK_EVERY_TASKS, CLOCK_STEPS, COMPLETION_MESSAGES_MAX,
    MERGE_STEP_ELEMENTS, ROBIN_ROUNDS_MAX, RUN_NS_MAX, RUN_ROUNDS_MAX, SAMPLE_EVERY_ITERATIONS,
};
use crate::observe::task_counters::TaskKind;
use crate::setup::Setup;
use crate::slab::Key;

/// A schedulable unit: the input and compute tasks of one connection, fused because they share a worker.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Task {
    Session(Key),
    BackendConn(u32),
    /// An activation that waited: its asks are answered, or its turn has come.
    SuspendedRule(Key),
    /// A task of a merge.
    Merge(u32),
}

impl Task {
    fn kind(self) -> TaskKind {
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
pub(super) enum Flow {
    Go,
    Stop,
}

/// How long tasks run.
pub(super) struct Pace {
    policy: TaskScheduling,
    /// Messages of one run.
    messages_max: u32,
    /// Time of one run; looked at every so many messages.
    slice: Option<Duration>,
    clock_every: u32,
    rounds_max: u32,
    has_clock: bool,
    /// Turns until the next one whose tasks are timed.
    sample_in: u32,
}

impl Pace {
    /// As the limits of the service say. `has_clock`: by the real clock.
    pub(super) fn new(setup: &Setup, has_clock: bool) -> Self {
        let limits = &setup.limits;
        let (messages_max, rounds_max) = match limits.task_scheduling {
            TaskScheduling::Cooperative => (TASK_MESSAGES_MAX, RUN_ROUNDS_MAX),
            TaskScheduling::RunToCompletion => (COMPLETION_MESSAGES_MAX, RUN_ROUNDS_MAX),
            TaskScheduling::RoundRobin => (1, ROBIN_ROUNDS_MAX),
        };
        let has_slice = has_clock && limits.task_scheduling == TaskScheduling::Cooperative;
        let is_dear = setup.program.bounds.steps_per_message_max >= CLOCK_STEPS;
        Self {
            policy: limits.task_scheduling,
            messages_max,
            slice: has_slice.then_some(setup.tunables.get().time_slice),
            clock_every: if is_dear { 1 } else { CLOCK_EVERY_MESSAGES },
            rounds_max,
            has_clock,
            sample_in: SAMPLE_EVERY_ITERATIONS,
        }
    }

    /// How long a task may run from now on, where that is bounded.
    pub(super) fn set_slice(&mut self, slice: Duration) {
        self.slice = self.slice.map(|_| slice);
    }

    /// The real clock may be looked at.
    pub(super) fn has_clock(&self) -> bool {
        self.has_clock
    }

    /// Elements of a step of a merge, which stand for a message.
    pub(super) fn elements(&self) -> u32 {
        if self.policy == TaskScheduling::RoundRobin { 1 } else { MERGE_STEP_ELEMENTS }
    }

    /// When this turn began, if its tasks are timed.
    fn sample(&mut self) -> Option<Instant> {
        if !self.has_clock {
            return None;
        }
        self.sample_in -= 1;
        if self.sample_in > 0 {
            return None;
        }
        self.sample_in = SAMPLE_EVERY_ITERATIONS;
        Some(Instant::now())
    }
}

impl<D: Driver> Worker<D> {
    pub(super) fn enqueue_session(&mut self, key: Key) {
        if let Some(session) = self.sessions.get_mut(key)
            && !session.queued
        {
            session.queued = true;
            self.run_queue.push_back(Task::Session(key));
        }
    }

    pub(super) fn enqueue_backend_conn(&mut self, backend_conn: u32) {
        let state = &mut self.backend_conns[backend_conn as usize];
        if !state.queued {
            state.queued = true;
            self.run_queue.push_back(Task::BackendConn(backend_conn));
        }
    }

    /// Runs each task that is in the queue now once; what they make runnable runs too, for a few rounds more.
    pub(super) fn run_tasks(&mut self) {
        let (mut rounds_left, mut ran) = (self.pace.rounds_max, 0_u32);
        let mut sampled = if self.run_queue.is_empty() { None } else { self.pace.sample() };
        while (self.unblock || self.wants_huge || !self.run_queue.is_empty()) && rounds_left > 0 {
            rounds_left -= 1;
            for _ in 0..self.run_queue.len() {
                let Some(task) = self.run_queue.pop_front() else { break };
                self.run_task(task, &mut sampled);
                self.note_taken();
                ran += 1;
                let is_over = self.iteration_end.is_some_and(|end| Instant::now() >= end)
                    || (ran % CLOCK_EVERY_TASKS == 0 && self.has_run_long());
                if is_over {
                    return;
                }
            }
            if self.wants_huge && self.pool.free_count(BufClass::Huge) > 0 {
                (self.wants_huge, self.unblock) = (false, true);
            }
            if self.unblock {
                self.unblock = false;
                self.resume_waiting();
            }
        }
    }

    /// What tasks have left to send has waited long enough, though others are still in the queue.
    fn has_run_long(&self) -> bool {
        self.pace.has_clock && monotonic_ns() > self.driver.now_ns() + RUN_NS_MAX
    }

    /// Runs a task. `sampled`: when the one before it ended, where they are timed.
    fn run_task(&mut self, task: Task, sampled: &mut Option<Instant>) {
        match task {
            Task::Session(key) => self.run_session(key),
            Task::BackendConn(backend_conn) => self.run_backend_conn(backend_conn),
            Task::SuspendedRule(key) => self.run_suspended_rule(key),
            Task::Merge(task) => self.run_merge(task),
        }
        let counters = self.counters.tasks.of(task.kind());
        counters.runs.add(1);
        if let Some(before) = sampled {
            let now = Instant::now();
            let took_ns = now.duration_since(std::mem::replace(before, now)).as_nanos() as u64;
            counters.busy_ns.add(took_ns * u64::from(SAMPLE_EVERY_ITERATIONS));
            self.counters.slices.note(took_ns);
        }
    }

    /// Whether a task that has run since about `begun` must let others run. On a thread that services share, a turn that
    /// is over is so whatever the policy.
    fn is_late(&self, begun: &mut Option<Instant>) -> bool {
        if self.pace.slice.is_none() && self.iteration_end.is_none() {
            return false;
        }
        let now = Instant::now();
        let begun = *begun.get_or_insert(now);
        self.pace.slice.is_some_and(|slice| now.duration_since(begun) > slice)
            || self.iteration_end.is_some_and(|end| now >= end)
    }

    /// Runs a task's steps until it stops or its turn is over; says whether it stopped by itself.
    pub(super) fn run_steps(&mut self, kind: TaskKind, mut step: impl FnMut(&mut Self) -> Flow) -> bool {
        // Where messages are cheap the clock is first read behind a few of them: most runs end before that.
        let mut begun = (self.pace.clock_every == 1 && self.pace.slice.is_some()).then(Instant::now);
        for count in 1..=self.pace.messages_max {
            if step(self) == Flow::Stop {
                return true;
            }
            if count % self.pace.clock_every == 0 && self.is_late(&mut begun) {
                break;
            }
        }
        if self.pace.policy != TaskScheduling::RoundRobin {
            self.counters.slices_exceeded.add(1);
            self.counters.tasks.of(kind).slices_exceeded.add(1);
        }
        false
    }
}
