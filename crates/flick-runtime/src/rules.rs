//! The program: its host, the state of sessions, and rules that are suspended.

pub mod host;
pub(crate) mod locals;
pub(crate) mod program_timers;
pub(crate) mod scratch;
pub(crate) mod suspended;
pub(crate) mod timer_heap;

use self::host::WorkerHost;
use self::locals::Locals;
use self::program_timers::ProgramTimer;
use self::scratch::Scratch;
use self::suspended::SuspendedRules;

/// Component of the worker. Suspended rules, the state of sessions, timers of the program, and its host.
pub(crate) struct Rules {
    pub(crate) suspended: SuspendedRules,
    pub(crate) locals: Locals,
    pub(crate) host: WorkerHost,
    /// Absent while a rule runs.
    pub(crate) scratch: Option<Box<Scratch>>,
    pub(crate) timers: Vec<ProgramTimer>,
    /// When to remove expired entries of dictionaries; the first worker does.
    pub(crate) sweep_due_ns: Option<u64>,
}
