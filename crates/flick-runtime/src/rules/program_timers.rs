//! Timers of the program (`every 5s:`); the first worker of a service runs them.

use flick_abi::{FuncId, Program, Start};

use crate::observe::edge_counters::StartId;

/// A timer of the program.
#[derive(Debug)]
pub(crate) struct ProgramTimer {
    /// Time between two runs, in nanoseconds.
    pub(crate) interval_ns: u64,
    /// Rule that it runs.
    pub(crate) rule: FuncId,
    /// Number of the timer among all that starts rules.
    pub(crate) start: StartId,
    /// Time of the next run, by the driver's clock.
    pub due_ns: u64,
    /// Its last activation is not over.
    pub is_running: bool,
}

/// The timers of a program that starts now: the first worker's.
pub(crate) fn timers(program: &Program, worker: usize, now_ns: u64) -> Vec<ProgramTimer> {
    let start = |(index, timer): (usize, &flick_abi::Timer)| {
        let interval_ns = timer.interval_ns.max(1);
        let due_ns = now_ns.saturating_add(interval_ns);
        let start = StartId::of(program, Start::Timer(index));
        ProgramTimer { interval_ns, rule: timer.rule, start, due_ns, is_running: false }
    };
    program.timers.iter().enumerate().filter(|_| worker == 0).map(start).collect()
}
