//! Time of a worker: what is due, how long tasks run, and how long it waits.

use std::time::{Duration, Instant};

use crate::config::TaskScheduling;
use crate::limits::{
    CLOCK_EVERY_MESSAGES, CLOCK_STEPS, COMPLETION_MESSAGES_MAX, MERGE_STEP_ELEMENTS, ROBIN_ROUNDS_MAX,
    RUN_ROUNDS_MAX, SAMPLE_EVERY_ITERATIONS, TASK_MESSAGES_MAX,
};
use crate::overload::batch_delay::BatchDelay;
use crate::overload::detector::OverloadDetector;
use crate::setup::Setup;

/// Component of the worker. What is due, time slices, batch delay, busy poll and the overload detector.
pub(crate) struct Clock {
    pub(crate) due: NextDue,
    /// How long a task may run.
    pub(crate) pace: Pace,
    pub(crate) batch_delay: BatchDelay,
    pub(crate) shedder: OverloadDetector,
    pub(crate) busy_poll: BusyPoll,
    /// The worker may sleep for more events: its thread is its own, and time is real.
    pub(crate) may_wait: bool,
    /// Version of the tunables in force.
    pub(crate) tunables_version: u64,
    /// Where several services share the thread: when this iteration should end.
    pub(crate) iteration_end: Option<Instant>,
}

impl Clock {
    /// Time slices as `setup` says. `has_clock`: measured with the real clock; off in the simulator.
    pub(crate) fn new(setup: &Setup, has_clock: bool) -> Self {
        Self {
            due: NextDue::default(),
            pace: Pace::new(setup, has_clock),
            batch_delay: BatchDelay::new(Duration::ZERO),
            shedder: OverloadDetector::new(Duration::ZERO),
            busy_poll: BusyPoll::default(),
            may_wait: has_clock,
            tunables_version: u64::MAX,
            iteration_end: None,
        }
    }
}

/// Polling before sleeping.
#[derive(Debug, Default)]
pub(crate) struct BusyPoll {
    /// How long it polls before it sleeps; zero: it sleeps at once.
    pub max_ns: u64,
    /// Time spent so, in all.
    pub spent_ns: u64,
}

/// When a worker looks at what is due.
#[derive(Debug)]
pub(crate) struct NextDue {
    /// Something may be due then.
    pub(crate) due_ns: Option<u64>,
    /// When it last looked.
    pub(crate) looked_ns: u64,
    /// Until when nothing is called late, as the worker stood still.
    pub(crate) second_look_ns: Option<u64>,
}

impl Default for NextDue {
    fn default() -> Self {
        // What is due from the start is not late.
        Self { due_ns: Some(0), looked_ns: 0, second_look_ns: Some(0) }
    }
}

/// How long tasks run.
pub(crate) struct Pace {
    pub(crate) policy: TaskScheduling,
    /// Messages of one run.
    pub(crate) messages_max: u32,
    /// Time of one run; looked at every so many messages.
    pub(crate) slice: Option<Duration>,
    pub(crate) clock_every: u32,
    pub(crate) rounds_max: u32,
    pub(crate) has_clock: bool,
    /// Turns until the next one whose tasks are timed.
    pub(crate) sample_in: u32,
}

impl Pace {
    /// As the limits of the service say. `has_clock`: by the real clock.
    pub(crate) fn new(setup: &Setup, has_clock: bool) -> Self {
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
    pub(crate) fn set_slice(&mut self, slice: Duration) {
        self.slice = self.slice.map(|_| slice);
    }

    /// The real clock may be looked at.
    pub(crate) fn has_clock(&self) -> bool {
        self.has_clock
    }

    /// Elements of a step of a merge, which stand for a message.
    pub(crate) fn elements(&self) -> u32 {
        if self.policy == TaskScheduling::RoundRobin { 1 } else { MERGE_STEP_ELEMENTS }
    }

    /// When this turn began, if its tasks are timed.
    pub(crate) fn sample(&mut self) -> Option<Instant> {
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
