//! Time of a worker: what is due, how long tasks run, and how long it waits.
//! Not here: which connection or client is due; each component knows its own deadlines.

use std::time::{Duration, Instant};

use flick_net::{QueueDelay, monotonic_ns};

use crate::config::TaskScheduling;
use crate::limits::{
    BATCH_MESSAGES_MAX, BATCH_STEPS, CLOCK_EVERY_MESSAGES, CLOCK_EVERY_TASKS, CLOCK_STEPS,
    COMPLETION_MESSAGES_MAX, LOOK_STEPS, MERGE_STEP_ELEMENTS, ROBIN_ROUNDS_MAX, RUN_ROUNDS_MAX,
    SAMPLE_EVERY_ITERATIONS, SECOND_LOOK_MS, STOOD_STILL_MS, TASK_MESSAGES_MAX,
};
use crate::overload::batch_delay::{Arrivals, BatchDelay};
use crate::overload::batch_trial::{BatchTrial, TrialResult, WorkDone};
use crate::overload::detector::OverloadDetector;
use crate::setup::Setup;
use crate::stopwatch::{Stopwatch, Tick};

/// Nanoseconds of a millisecond.
const MS: u64 = 1_000_000;

/// The next deadline, time slices, batch delay, busy poll and the overload detector.
///
/// Component of the worker.
pub(crate) struct Clock {
    due: NextDue,
    slices: TimeSlices,
    batch_delay: BatchDelay,
    batch_trial: BatchTrial,
    overload: OverloadDetector,
    busy_poll: BusyPoll,
    /// The worker may sleep for more events: its thread is its own, and time is real.
    may_wait: bool,
    /// Version of the tunables in force.
    tunables_version: u64,
    /// End of this iteration, if several services share the thread.
    iteration_end: Option<Tick>,
    /// Measures slices and iterations.
    stopwatch: Stopwatch,
}

/// Polling before sleeping.
#[derive(Debug, Default)]
struct BusyPoll {
    /// Time that the worker polls before it sleeps. Zero: it sleeps at once.
    max_ns: u64,
    /// Time spent polling since the start.
    spent_ns: u64,
}

/// Next time at which the worker checks its deadlines.
#[derive(Debug)]
struct NextDue {
    /// The earliest deadline.
    due_ns: Option<u64>,
    /// Time of the worker's last check.
    looked_ns: u64,
    /// The worker was stopped: nothing is overdue before that time.
    pause_until_ns: Option<u64>,
}

/// Limits on how long a task runs before the next one.
struct TimeSlices {
    policy: TaskScheduling,
    /// Messages of one run.
    messages_max: u32,
    /// Time of one run.
    slice: Option<Duration>,
    /// Messages that the task that runs may still handle.
    messages_left: u32,
    /// Messages that it has handled since the clock was last read.
    unseen: u32,
    /// Messages between two looks at the clock.
    clock_every: u32,
    /// When the run began, or about then, once the clock has been read.
    begun: Option<Tick>,
    /// The task must let others run.
    is_over: bool,
    /// Messages that a task may handle in one step.
    batch: u32,
    /// Tasks between two checks of how long the iteration has taken.
    tasks_every: u32,
    /// Elements that a task of a merge handles in a step.
    merge_elements: u32,
    /// Rounds through the run queue in one iteration.
    rounds_max: u32,
    /// The real clock may be read; off in the simulator.
    has_clock: bool,
    /// Iterations until the next one whose tasks are timed.
    sample_in: u32,
}

impl Clock {
    /// Time slices as `setup` says. `has_clock`: measured with the real clock; off in the simulator.
    pub(crate) fn new(setup: &Setup, has_clock: bool) -> Self {
        Self {
            // What is due from the start is not late.
            due: NextDue { due_ns: Some(0), looked_ns: 0, pause_until_ns: Some(0) },
            slices: TimeSlices::new(setup, has_clock),
            batch_delay: BatchDelay::new(Duration::ZERO),
            batch_trial: BatchTrial::new(),
            overload: OverloadDetector::new(Duration::ZERO),
            busy_poll: BusyPoll::default(),
            may_wait: has_clock,
            tunables_version: u64::MAX,
            iteration_end: None,
            stopwatch: Stopwatch::new(),
        }
    }

    /// Takes over tunables that have changed.
    pub(crate) fn read_tunables(&mut self, setup: &Setup) {
        let Some(values) = setup.tunables.changed_since(&mut self.tunables_version) else { return };
        // The more has arrived, the more a merge has to do at once: it waits for nothing.
        let batches = self.may_wait && setup.merge.is_none();
        // Shedding needs an error response, and messages that are requests.
        let sheds = setup.has_overload_response() && !setup.is_relay;
        self.busy_poll.max_ns = if self.may_wait { values.busy_poll.as_nanos() as u64 } else { 0 };
        self.batch_delay.set_max(if batches { values.batch_delay_max } else { Duration::ZERO });
        self.overload.set_target(if sheds { values.overload_queue_delay } else { Duration::ZERO });
        self.slices.slice = self.slices.slice.map(|_| values.time_slice);
    }

    /// The worker shares its thread from now on: it never sleeps or polls by itself.
    pub(crate) fn share_thread(&mut self) {
        self.may_wait = false;
    }

    /// Ends the tasks of this iteration after `length`.
    pub(crate) fn limit_iteration(&mut self, length: Duration) {
        self.iteration_end = Some(self.stopwatch.after(self.stopwatch.now(), length));
    }

    /// Adds time in which the worker waited for events to this iteration, if its length is limited.
    #[inline]
    pub(crate) fn extend_iteration(&mut self, waited_ns: u64) {
        if let Some(end) = self.iteration_end {
            self.iteration_end = Some(self.stopwatch.after(end, Duration::from_nanos(waited_ns)));
        }
    }

    /// The present time: of the real clock where it may be read, else `driver_ns`.
    #[inline]
    pub(crate) fn now_ns(&self, driver_ns: u64) -> u64 {
        if self.slices.has_clock { monotonic_ns() } else { driver_ns }
    }

    /// The earliest deadline.
    pub(crate) fn due_ns(&self) -> Option<u64> {
        self.due.due_ns
    }

    /// Notes a deadline. A deadline that is cancelled stays noted; the look that finds nothing is cheap.
    #[inline]
    pub(crate) fn note_due(&mut self, at_ns: u64) {
        self.due.due_ns = Some(self.due.due_ns.map_or(at_ns, |due| due.min(at_ns)));
    }

    /// Whether deadlines have passed: then the worker acts on all that have and calls [`Self::set_next_due`]. Not while
    /// the worker, after it was stopped, gives its peers a moment to catch up.
    pub(crate) fn is_due(&mut self, now_ns: u64) -> bool {
        match self.due.due_ns.filter(|due_ns| *due_ns <= now_ns) {
            Some(due_ns) => !self.has_been_stopped(due_ns, now_ns),
            None => {
                self.due.looked_ns = now_ns;
                false
            }
        }
    }

    /// Sets the earliest deadline after the worker has acted on those that had passed at `now_ns`.
    pub(crate) fn set_next_due(&mut self, now_ns: u64, next_ns: Option<u64>) {
        (self.due.looked_ns, self.due.due_ns) = (now_ns, next_ns);
    }

    /// Returns the time at which the worker last checked its deadlines.
    pub(crate) fn looked_ns(&self) -> u64 {
        self.due.looked_ns
    }

    /// Whether a deadline is so late that the worker must have been stopped: with its machine, or by the kernel. What
    /// arrived meanwhile may come with the next poll only, so the worker waits a moment, once.
    fn has_been_stopped(&mut self, due_ns: u64, now_ns: u64) -> bool {
        let until_ns = match self.due.pause_until_ns {
            Some(until_ns) => until_ns,
            None if now_ns - due_ns < STOOD_STILL_MS * MS => return false,
            None => now_ns + SECOND_LOOK_MS * MS,
        };
        let waits = now_ns < until_ns;
        self.due.pause_until_ns = waits.then_some(until_ns);
        if waits {
            self.due.due_ns = Some(until_ns);
        }
        waits
    }

    /// Returns the time that the worker polls before it sleeps; zero: it does not poll.
    pub(crate) fn busy_poll_max_ns(&self) -> u64 {
        self.busy_poll.max_ns
    }

    /// Notes time that the worker spent polling.
    pub(crate) fn note_busy_poll(&mut self, spent_ns: u64) {
        self.busy_poll.spent_ns += spent_ns;
    }

    /// Time that the worker has spent polling since its start.
    pub(crate) fn busy_polled_ns(&self) -> u64 {
        self.busy_poll.spent_ns
    }

    /// Returns how long to wait for more messages before those that `arrived` are handled; `None`: no wait.
    pub(crate) fn batch_wait(&self, arrived: Arrivals) -> Option<Duration> {
        if self.batch_trial.delays() { self.batch_delay.wait(arrived) } else { None }
    }

    /// Ends an iteration. `now_ns`: the driver's time.
    #[inline]
    pub(crate) fn end_iteration(&mut self, now_ns: u64) {
        if self.slices.has_clock {
            self.stopwatch.measure(now_ns);
        }
    }

    /// Goes on with the trial of the batch delay, when it is time. `messages`: how many the worker has handled.
    #[inline]
    pub(crate) fn try_batch_delay(&mut self, messages: u64, now_ns: u64) -> Option<TrialResult> {
        if !self.batch_delay.is_on() || now_ns < self.batch_trial.next_ns() {
            return None;
        }
        let done = WorkDone { messages, cpu_ns: thread_cpu_ns() };
        self.batch_trial.step(now_ns, done, self.batch_delay.can_batch())
    }

    /// Notes what arrived in this iteration.
    pub(crate) fn note_arrivals(&mut self, arrived: Arrivals, now_ns: u64) {
        self.batch_delay.note(arrived, now_ns);
    }

    /// Notes how many tasks are queued, and how long ready connections wait for the driver.
    pub(crate) fn note_queue(&mut self, queued: usize, driver: QueueDelay, now_ns: u64) {
        self.overload.mark(queued, driver, now_ns);
    }

    /// Notes that a task has run: its queueing delay is measured now and then.
    pub(crate) fn note_task(&mut self, driver_ns: u64) {
        if self.overload.pass() {
            let now_ns = self.now_ns(driver_ns);
            self.overload.reach(now_ns);
        }
    }

    /// Whether overload is looked for at all.
    pub(crate) fn may_shed(&self) -> bool {
        self.overload.is_on()
    }

    /// Whether the queueing delay says that the next request is shed.
    pub(crate) fn sheds_next(&mut self) -> bool {
        self.overload.sheds()
    }

    /// Whether the queueing delay is so short that no request is shed.
    pub(crate) fn sheds_none(&self) -> bool {
        self.overload.sheds_none()
    }

    /// Notes requests that were handled while none was shed.
    pub(crate) fn note_unshed(&mut self, requests: u64) {
        self.overload.note_unshed(requests);
    }

    /// Rounds through the run queue in one iteration.
    pub(crate) fn rounds_max(&self) -> u32 {
        self.slices.rounds_max
    }

    /// Elements that a task of a merge handles in a step.
    pub(crate) fn merge_elements(&self) -> u32 {
        self.slices.merge_elements
    }

    /// Whether a task that uses up its slice is counted: with round robin each one does.
    pub(crate) fn counts_slices(&self) -> bool {
        self.slices.policy != TaskScheduling::RoundRobin
    }

    /// Begins a run of a task. Where the clock is not read after each message, it is first read after a few, as most
    /// runs end before that.
    #[inline]
    pub(crate) fn begin_run(&mut self) {
        let (slices, stopwatch) = (&mut self.slices, &self.stopwatch);
        (slices.messages_left, slices.unseen, slices.is_over) = (slices.messages_max, 0, false);
        slices.begun = (slices.clock_every == 1 && slices.slice.is_some()).then(|| stopwatch.now());
    }

    /// Counts a message that the task is about to handle; `false` if it has handled as many as it may.
    #[inline]
    pub(crate) fn take_message(&mut self) -> bool {
        let may_take = self.slices.messages_left > 0;
        if may_take {
            self.note_batch(1);
        }
        may_take
    }

    /// Returns how many messages the task may handle in this step, the one that it has taken included.
    #[inline]
    pub(crate) fn batch_max(&self) -> u32 {
        1 + self.slices.messages_left.min(self.slices.batch - 1)
    }

    /// Counts messages that the task has handled in this step beside the one that it has taken.
    #[inline]
    pub(crate) fn note_batch(&mut self, messages: u32) {
        self.slices.messages_left -= messages;
        self.slices.unseen += messages;
    }

    /// Whether the task must let others run. A thread that services share has iterations of limited length, whatever
    /// the policy.
    #[inline]
    pub(crate) fn run_is_over(&mut self) -> bool {
        if self.slices.unseen >= self.slices.clock_every {
            self.slices.unseen = 0;
            self.slices.is_over = self.is_late();
        }
        self.slices.is_over
    }

    /// Counts a further message of a step, before it is handled; `false` if the task must let others run before.
    #[inline]
    pub(crate) fn take_further(&mut self) -> bool {
        !self.run_is_over() && self.take_message()
    }

    fn is_late(&mut self) -> bool {
        if self.slices.slice.is_none() && self.iteration_end.is_none() {
            return false;
        }
        let now = self.stopwatch.now();
        let begun = *self.slices.begun.get_or_insert(now);
        self.slices.slice.is_some_and(|slice| now > self.stopwatch.after(begun, slice))
            || self.iteration_end.is_some_and(|end| now >= end)
    }

    /// Whether the length of the iteration is checked after this many tasks.
    pub(crate) fn looks_after(&self, tasks: u32) -> bool {
        tasks.is_multiple_of(self.slices.tasks_every)
    }

    /// Whether the iteration of a thread that services share is over.
    #[inline]
    pub(crate) fn iteration_is_over(&self) -> bool {
        self.iteration_end.is_some_and(|end| self.stopwatch.now() >= end)
    }

    /// Whether it is later than `at_ns` by the real clock.
    pub(crate) fn is_past(&self, at_ns: u64) -> bool {
        self.slices.has_clock && monotonic_ns() > at_ns
    }

    /// Returns the time at which this iteration begins, if its tasks are timed.
    pub(crate) fn sample(&mut self) -> Option<Instant> {
        if !self.slices.has_clock {
            return None;
        }
        self.slices.sample_in -= 1;
        if self.slices.sample_in > 0 {
            return None;
        }
        self.slices.sample_in = SAMPLE_EVERY_ITERATIONS;
        Some(Instant::now())
    }
}

impl TimeSlices {
    fn new(setup: &Setup, has_clock: bool) -> Self {
        let limits = &setup.limits;
        let (messages_max, rounds_max) = match limits.task_scheduling {
            TaskScheduling::Cooperative => (TASK_MESSAGES_MAX, RUN_ROUNDS_MAX),
            TaskScheduling::RunToCompletion => (COMPLETION_MESSAGES_MAX, RUN_ROUNDS_MAX),
            TaskScheduling::RoundRobin => (1, ROBIN_ROUNDS_MAX),
        };
        let has_slice = has_clock && limits.task_scheduling == TaskScheduling::Cooperative;
        let steps = setup.program.bounds.steps_per_message_max;
        // As many as take about `LOOK_STEPS` at worst, and at least one.
        let few = |most: u32| (LOOK_STEPS / steps.max(1)).clamp(1, u64::from(most)) as u32;
        let is_round_robin = limits.task_scheduling == TaskScheduling::RoundRobin;
        Self {
            policy: limits.task_scheduling,
            messages_max,
            slice: has_slice.then_some(setup.tunables.get().time_slice),
            messages_left: 0,
            unseen: 0,
            begun: None,
            is_over: false,
            clock_every: if steps >= CLOCK_STEPS { 1 } else { CLOCK_EVERY_MESSAGES },
            batch: (BATCH_STEPS / steps.max(1)).clamp(1, u64::from(BATCH_MESSAGES_MAX)) as u32,
            tasks_every: few(CLOCK_EVERY_TASKS),
            merge_elements: if is_round_robin { 1 } else { few(MERGE_STEP_ELEMENTS) },
            rounds_max,
            has_clock,
            sample_in: SAMPLE_EVERY_ITERATIONS,
        }
    }
}

/// Processor time of the calling thread since its start; time that the kernel gave to other threads does not count.
/// Cost: a system call.
pub(crate) fn thread_cpu_ns() -> u64 {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ThreadCPUTime);
    time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64
}

#[cfg(test)]
impl Clock {
    /// Lets the worker sleep although its driver is simulated.
    pub(crate) fn allow_waiting(&mut self) {
        self.may_wait = true;
    }
}
