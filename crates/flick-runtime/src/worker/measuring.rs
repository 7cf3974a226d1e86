//! Operations of a worker between messages, run by themselves so that they can be measured.
//! Promises: the code that runs is the platform's own, on the sessions that are open; they are as they were afterwards.
//! Refuses: messages. What a message costs is measured from outside.

use flick_net::Driver;

use super::Worker;

impl<D: Driver> Worker<D> {
    /// Queues the task of every session and runs them all, `times` times; returns the number of runs. No task has work,
    /// so that the cost is that of the run queue.
    pub fn run_idle_tasks(&mut self, times: u32) -> u64 {
        let before = self.task_runs();
        for _ in 0..times {
            for index in 0..self.downstream.slots_used() {
                if let Some(key) = self.downstream.key_at(index) {
                    self.enqueue_session(key);
                }
            }
            self.run_tasks();
        }
        self.task_runs() - before
    }

    fn task_runs(&self) -> u64 {
        self.observe.counters().tasks.of(crate::observe::task_counters::TaskKind::Client).runs.get()
    }

    /// Releases the session of every client and opens a new one, as for a client that has just been accepted, `times`
    /// times; returns the number of sessions opened.
    pub fn reopen_sessions(&mut self, times: u32) -> u64 {
        let mut count = 0;
        for _ in 0..times {
            for index in 0..self.downstream.slots_used() {
                let Some(key) = self.downstream.key_at(index) else { continue };
                let Some(session) = self.downstream.remove(key) else { continue };
                self.rules.locals_mut().give(session.stream().state());
                self.observe.counters().connections_open.sub(1);
                self.release_session_slot(session.handle());
                self.accepted(session.handle());
                count += 1;
            }
        }
        count
    }
}
