//! The run queue of a worker: first in, first out; `task-scheduling` says how long a task runs.
//! Promises: a task is in the queue at most once; no task is interrupted; how often and how long tasks run is counted
//! by kind, at the cost of reading the clock for each task in one iteration of [`SAMPLE_EVERY_ITERATIONS`].
//! Refuses: the clock in the simulator: there a task yields after a number of messages only.
//! Source: FLICK §5 and §6.4; `docs/internals/scheduling.md`.

use std::time::Instant;

use flick_buffers::BufClass;
use flick_net::Driver;

use super::Worker;
use crate::limits::{RUN_NS_MAX, SAMPLE_EVERY_ITERATIONS};
use crate::observe::task_counters::TaskKind;
use crate::run_queue::{Flow, Task};
use crate::slab::Key;

impl<D: Driver> Worker<D> {
    pub(super) fn enqueue_session(&mut self, key: Key) {
        if let Some(session) = self.downstream.client_mut(key)
            && session.queue()
        {
            self.tasks.push(Task::Session(key));
        }
    }

    pub(super) fn enqueue_backend_conn(&mut self, backend_conn: u32) {
        if !self.upstream.conn_mut(backend_conn).set_queued() {
            self.tasks.push(Task::BackendConn(backend_conn));
        }
    }

    /// Runs each task that is in the queue now once; what they make runnable runs too, for a few rounds more.
    pub(super) fn run_tasks(&mut self) {
        let (mut rounds_left, mut ran) = (self.clock.rounds_max(), 0_u32);
        let mut sampled = if self.tasks.is_empty() { None } else { self.clock.sample() };
        while self.tasks.needs_round() && rounds_left > 0 {
            rounds_left -= 1;
            let mut preloaded = 0;
            for _ in 0..self.tasks.len() {
                if preloaded == 0 {
                    preloaded = self.preload_tasks();
                }
                preloaded -= 1;
                let Some(task) = self.tasks.pop() else { break };
                self.run_task(task, &mut sampled);
                self.clock.note_task(self.io.now_ns());
                ran += 1;
                let looks = self.clock.looks_after(ran);
                if looks {
                    self.relieve_buffers();
                }
                if self.clock.iteration_is_over() || (looks && self.has_run_long()) {
                    return;
                }
            }
            if self.tasks.needs_huge() && self.io.pool().free_count(BufClass::Huge) > 0 {
                self.tasks.free_huge();
            }
            if self.tasks.take_freed_capacity() {
                self.resume_waiting();
            }
        }
    }

    /// Whether tasks have run for so long that their output is sent now, although tasks are queued.
    fn has_run_long(&self) -> bool {
        self.clock.is_past(self.io.now_ns() + RUN_NS_MAX)
    }

    /// Runs a task. `sampled`: when the one before it ended, where they are timed.
    fn run_task(&mut self, task: Task, sampled: &mut Option<Instant>) {
        match task {
            Task::Session(key) => self.run_session(key),
            Task::BackendConn(backend_conn) => self.run_backend_conn(backend_conn),
            Task::SuspendedRule(key) => self.run_suspended_rule(key),
            Task::Merge(task) => self.run_merge(task),
        }
        let counters = self.observe.counters().tasks.of(task.kind());
        counters.runs.add(1);
        if let Some(before) = sampled {
            let now = Instant::now();
            let took_ns = now.duration_since(std::mem::replace(before, now)).as_nanos() as u64;
            counters.busy_ns.add(took_ns * u64::from(SAMPLE_EVERY_ITERATIONS));
            self.observe.counters().slices.note(took_ns);
        }
    }

    /// Runs a task's steps until it stops or its time slice is over; returns whether it stopped by itself.
    pub(super) fn run_steps(&mut self, kind: TaskKind, mut step: impl FnMut(&mut Self) -> Flow) -> bool {
        self.clock.begin_run();
        while self.clock.take_message() {
            if step(self) == Flow::Stop {
                return true;
            }
            if self.clock.run_is_over() {
                break;
            }
        }
        if self.clock.counts_slices() {
            self.observe.counters().slices_exceeded.add(1);
            self.observe.counters().tasks.of(kind).slices_exceeded.add(1);
        }
        false
    }
}
