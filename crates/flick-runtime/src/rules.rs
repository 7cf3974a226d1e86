//! The program: its host, the state of sessions, and rules that are suspended.

pub mod host;
pub(crate) mod locals;
pub(crate) mod program_timers;
pub(crate) mod scratch;
pub(crate) mod suspended;
pub(crate) mod timer_heap;

use std::sync::Arc;
use std::sync::atomic::AtomicU64;

use flick_abi::FuncId;

use self::host::WorkerHost;
use self::locals::{Locals, StateId};
use self::program_timers::ProgramTimer;
use self::scratch::Scratch;
use self::suspended::SuspendedRules;
use crate::limits::SWEEP_TICK_MS;
use crate::observe::edge_counters::StartId;

/// Nanoseconds of a millisecond.
const MS: u64 = 1_000_000;

/// Suspended rules, the state of sessions, timers of the program, and its host.
///
/// Component of the worker.
pub(crate) struct Rules {
    suspended: SuspendedRules,
    locals: Locals,
    host: WorkerHost,
    /// The program's counters of this worker.
    counters: Arc<[AtomicU64]>,
    /// Absent while a rule runs.
    scratch: Option<Box<Scratch>>,
    timers: Vec<ProgramTimer>,
    /// Messages in front of the session that runs whose dictionary entries have been loaded.
    preloaded: u32,
    /// Time of the next removal of expired dictionary entries, by the first worker; `None`: this one removes none.
    sweep_due_ns: Option<u64>,
}

/// Parts of [`Rules`] that a rule needs while it runs, borrowed separately.
pub(crate) struct RuleParts<'a> {
    pub(crate) suspended: &'a SuspendedRules,
    pub(crate) locals: &'a mut Locals,
    pub(crate) host: &'a mut WorkerHost,
    pub(crate) counters: &'a [AtomicU64],
}

impl Rules {
    /// No rule is suspended; `sweeps`: this worker removes expired entries of dictionaries.
    pub(crate) fn new(
        suspended: SuspendedRules,
        locals: Locals,
        host: WorkerHost,
        timers: Vec<ProgramTimer>,
        sweeps: bool,
    ) -> Self {
        let sweep_due_ns = sweeps.then_some(0);
        let counters = Arc::clone(host.counters());
        Self {
            suspended,
            locals,
            host,
            counters,
            scratch: Some(Box::default()),
            timers,
            preloaded: 0,
            sweep_due_ns,
        }
    }

    /// The table of suspended rules.
    #[inline]
    pub(crate) fn suspended(&self) -> &SuspendedRules {
        &self.suspended
    }

    /// The table of suspended rules.
    #[inline]
    pub(crate) fn suspended_mut(&mut self) -> &mut SuspendedRules {
        &mut self.suspended
    }

    /// The states of sessions and rules.
    #[inline]
    pub(crate) fn locals(&self) -> &Locals {
        &self.locals
    }

    /// The states of sessions and rules.
    #[inline]
    pub(crate) fn locals_mut(&mut self) -> &mut Locals {
        &mut self.locals
    }

    /// Returns the host that the program's code calls.
    #[inline]
    pub(crate) fn host_mut(&mut self) -> &mut WorkerHost {
        &mut self.host
    }

    /// Borrows the parts that a rule needs while it runs.
    #[inline]
    pub(crate) fn parts(&mut self) -> RuleParts<'_> {
        let Self { suspended, locals, host, counters, .. } = self;
        RuleParts { suspended, locals, host, counters }
    }

    /// Takes the memory that a rule works in, until [`Self::return_scratch`].
    #[inline]
    pub(crate) fn take_scratch(&mut self) -> Box<Scratch> {
        self.scratch.take().expect("activations never nest")
    }

    /// Takes back what [`Self::take_scratch`] gave.
    #[inline]
    pub(crate) fn return_scratch(&mut self, scratch: Box<Scratch>) {
        self.scratch = Some(scratch);
    }

    /// Notes in front of how many messages of the session that runs the dictionary entries have been loaded.
    #[inline]
    pub(crate) fn set_preloaded(&mut self, messages: u32) {
        self.preloaded = messages;
    }

    /// Whether the dictionary entry of the next message has been loaded. It counts as handled.
    #[inline]
    pub(crate) fn take_preloaded(&mut self) -> bool {
        let is_preloaded = self.preloaded > 0;
        self.preloaded = self.preloaded.saturating_sub(1);
        is_preloaded
    }

    /// Returns in front of how many further messages the dictionary entries have been loaded.
    #[inline]
    pub(crate) fn preloaded(&self) -> u32 {
        self.preloaded
    }

    /// Timers of the program.
    pub(crate) fn timer_count(&self) -> usize {
        self.timers.len()
    }

    /// Whether a timer is due; if so, moves it past `now_ns` by whole intervals.
    pub(crate) fn timer_fires(&mut self, at: usize, now_ns: u64) -> bool {
        let timer = &mut self.timers[at];
        if timer.due_ns > now_ns {
            return false;
        }
        let missed = (now_ns - timer.due_ns) / timer.interval_ns + 1;
        timer.due_ns = timer.due_ns.saturating_add(missed.saturating_mul(timer.interval_ns));
        true
    }

    /// Begins a run of a timer, with a state of its own. `None`: its last run is not over, or no rule can be added.
    pub(crate) fn begin_timer(&mut self, at: usize) -> Option<(FuncId, StartId, StateId)> {
        let timer = &mut self.timers[at];
        if self.suspended.is_full() || std::mem::replace(&mut timer.is_running, true) {
            return None;
        }
        Some((timer.rule, timer.start, self.locals.take()))
    }

    /// Ends the run of a timer.
    pub(crate) fn end_timer(&mut self, at: usize) {
        self.timers[at].is_running = false;
    }

    /// Stops the timers of the program: they run in the successor.
    pub(crate) fn stop_timers(&mut self) {
        self.timers.iter_mut().for_each(|timer| timer.due_ns = u64::MAX);
    }

    /// Returns the time at which a timer, the timeout of an ask or the sweep of the dictionaries is due next.
    pub(crate) fn next_due_ns(&self) -> Option<u64> {
        let timers = self.timers.iter().map(|timer| timer.due_ns);
        timers.chain(self.suspended.next_ns()).chain(self.sweep_due_ns).min()
    }

    /// Removes some of the expired entries of dictionaries, if it is time.
    pub(crate) fn sweep(&mut self, now_ns: u64) {
        if self.sweep_due_ns.is_some_and(|due_ns| due_ns <= now_ns) {
            self.host.sweep();
            self.sweep_due_ns = Some(now_ns + SWEEP_TICK_MS * MS);
        }
    }

    /// Leaves the sweep of the dictionaries to another worker.
    pub(crate) fn never_sweep(&mut self) {
        self.sweep_due_ns = None;
    }
}
