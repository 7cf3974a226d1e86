//! Whether the batch delay pays, measured in alternate epochs with and without it.
//! Promises: no delay until a trial has shown that the worker handles more messages with it, for less processor time
//! each; a trial that costs throughput ends after its first pair of epochs, and such trials become rarer; a delay in
//! force is tried again every second, and at once when the rate falls.
//! Refuses: trials of a worker that has idle time.
//!
//! Clients that wait for replies send the faster the sooner they are answered (Little's law), so a delay that raises
//! the rate has lowered their mean latency. With few clients it lowers the rate, and the trial ends.

/// Length of an epoch.
const EPOCH_NS: u64 = 10_000_000;
/// Beginning of an epoch that does not count: messages of the epoch before are on their way.
const SETTLE_NS: u64 = 2_000_000;
/// Pairs of epochs of a trial.
const PAIRS: u32 = 4;
/// A worker that used less processor time than this in an epoch has idle time.
const SATURATED_PERCENT_MIN: u64 = 75;
/// The delay comes into force if the rate is so much higher with it.
const GAIN_PERCENT_MIN: u64 = 105;
/// The delay stays in force if a message takes at most so much of the processor time.
const CPU_PERCENT_MAX: u64 = 95;
/// A trial ends early if the rate is so much lower with the delay.
const LOSS_PERCENT: u64 = 90;
/// The delay is tried again when the rate has fallen to so much of what the trial showed.
const FALL_PERCENT: u64 = 70;
/// Time between two looks at a worker that has idle time, or whose rate is too low.
const LOOK_NS: u64 = 100_000_000;
/// Time for which a delay stays in force.
const KEPT_NS: u64 = 1_000_000_000;
/// Time after the first failed trial, and after many of them.
const REST_NS: (u64, u64) = (1_000_000_000, 16_000_000_000);

/// Messages and processor time of a worker since its start.
#[derive(Clone, Copy, Debug, Default)]
pub struct WorkDone {
    /// Messages handled.
    pub messages: u64,
    /// Processor time of its thread.
    pub cpu_ns: u64,
}

/// Work in a span of time, or in several.
#[derive(Clone, Copy, Debug, Default)]
struct Span {
    messages: u64,
    cpu_ns: u64,
    ns: u64,
}

impl Span {
    fn since(from_ns: u64, from: WorkDone, now_ns: u64, now: WorkDone) -> Self {
        Self {
            messages: now.messages - from.messages,
            cpu_ns: now.cpu_ns - from.cpu_ns,
            ns: now_ns - from_ns,
        }
    }

    fn add(&mut self, other: Span) {
        self.messages += other.messages;
        self.cpu_ns += other.cpu_ns;
        self.ns += other.ns;
    }

    /// Whether its rate is at least `percent` of the other's.
    fn rate_is_at_least(self, percent: u64, other: Span) -> bool {
        let product = |a: u64, b: u64, c: u64| u128::from(a) * u128::from(b) * u128::from(c);
        product(self.messages, other.ns, 100) >= product(other.messages, self.ns, percent)
    }

    /// Whether a message took at most `percent` of the other's processor time.
    fn cpu_is_at_most(self, percent: u64, other: Span) -> bool {
        let product = |a: u64, b: u64, c: u64| u128::from(a) * u128::from(b) * u128::from(c);
        product(self.cpu_ns, other.messages, 100) <= product(other.cpu_ns, self.messages, percent)
    }
}

/// Decides whether the delay is in force.
#[derive(Debug)]
pub struct BatchTrial {
    phase: Phase,
    /// Time of the next [`Self::step`].
    next_ns: u64,
    /// Time without a trial after the next one that fails.
    rest_ns: u64,
}

#[derive(Clone, Copy, Debug)]
enum Phase {
    /// No delay, until the next step.
    Off,
    /// The epoch of this number; a delay in the odd ones. `from`: its work is counted from there.
    Trial { epoch: u32, from: Option<(u64, WorkDone)>, spans: [Span; 2], was_kept: bool },
    /// A delay until `until_ns`; `rate`: what the trial showed, `from`: since the last look.
    Kept { until_ns: u64, rate: Span, from: (u64, WorkDone) },
}

/// Result of a trial.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TrialResult {
    /// The delay is in force from now on, or stays so.
    Kept,
    /// It is not.
    Dropped,
}

impl BatchTrial {
    /// No delay is in force.
    pub fn new() -> Self {
        Self { phase: Phase::Off, next_ns: 0, rest_ns: REST_NS.0 }
    }

    /// Whether the delay is in force at the moment.
    pub fn delays(&self) -> bool {
        match self.phase {
            Phase::Off => false,
            Phase::Trial { epoch, .. } => epoch % 2 == 1,
            Phase::Kept { .. } => true,
        }
    }

    /// Time from which on [`Self::step`] has something to do.
    #[inline]
    pub fn next_ns(&self) -> u64 {
        self.next_ns
    }

    /// Goes on. `can_batch`: messages arrive so fast that a delay batches several.
    pub fn step(&mut self, now_ns: u64, done: WorkDone, can_batch: bool) -> Option<TrialResult> {
        match self.phase {
            Phase::Off if can_batch => self.begin(now_ns, false),
            Phase::Off => self.next_ns = now_ns + LOOK_NS,
            Phase::Trial { epoch, from: None, spans, was_kept } => {
                self.phase = Phase::Trial { epoch, from: Some((now_ns, done)), spans, was_kept };
                self.next_ns = now_ns + EPOCH_NS - SETTLE_NS;
            }
            Phase::Trial { epoch, from: Some((from_ns, from)), mut spans, was_kept } => {
                spans[(epoch % 2) as usize].add(Span::since(from_ns, from, now_ns, done));
                return self.end_epoch(epoch, spans, was_kept, now_ns, done);
            }
            Phase::Kept { until_ns, rate, from: (from_ns, from) } => {
                let now = Span::since(from_ns, from, now_ns, done);
                if !can_batch {
                    self.rest(now_ns, LOOK_NS);
                } else if now_ns >= until_ns || !now.rate_is_at_least(FALL_PERCENT, rate) {
                    self.begin(now_ns, true);
                } else {
                    self.phase = Phase::Kept { until_ns, rate, from: (now_ns, done) };
                    self.next_ns = now_ns + EPOCH_NS;
                }
            }
        }
        None
    }

    fn begin(&mut self, now_ns: u64, was_kept: bool) {
        self.phase = Phase::Trial { epoch: 0, from: None, spans: [Span::default(); 2], was_kept };
        self.next_ns = now_ns + SETTLE_NS;
    }

    fn rest(&mut self, now_ns: u64, rest_ns: u64) {
        self.phase = Phase::Off;
        self.next_ns = now_ns + rest_ns;
    }

    fn end_epoch(
        &mut self,
        epoch: u32,
        spans: [Span; 2],
        was_kept: bool,
        now_ns: u64,
        done: WorkDone,
    ) -> Option<TrialResult> {
        let [without, with] = spans;
        if epoch == 0 && without.cpu_ns * 100 < without.ns * SATURATED_PERCENT_MIN {
            self.rest(now_ns, LOOK_NS);
            return None;
        }
        let is_pair = epoch % 2 == 1;
        if is_pair && !with.rate_is_at_least(LOSS_PERCENT, without) {
            return Some(self.drop_delay(now_ns));
        }
        if epoch + 1 < 2 * PAIRS {
            self.phase = Phase::Trial { epoch: epoch + 1, from: None, spans, was_kept };
            self.next_ns = now_ns + SETTLE_NS;
            return None;
        }
        // A delay that is in force does not end by the noise of a measurement.
        let gain = if was_kept { 100 } else { GAIN_PERCENT_MIN };
        if with.rate_is_at_least(gain, without) && with.cpu_is_at_most(CPU_PERCENT_MAX, without) {
            self.phase = Phase::Kept { until_ns: now_ns + KEPT_NS, rate: with, from: (now_ns, done) };
            self.next_ns = now_ns + EPOCH_NS;
            self.rest_ns = REST_NS.0;
            Some(TrialResult::Kept)
        } else {
            Some(self.drop_delay(now_ns))
        }
    }

    fn drop_delay(&mut self, now_ns: u64) -> TrialResult {
        self.rest(now_ns, self.rest_ns);
        self.rest_ns = (self.rest_ns * 2).min(REST_NS.1);
        TrialResult::Dropped
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Messages and processor time of a millisecond.
    #[derive(Clone, Copy)]
    struct Load {
        messages: u64,
        cpu_ns: u64,
    }

    const MS: u64 = 1_000_000;
    const BUSY: Load = Load { messages: 80, cpu_ns: MS };

    /// A worker under a load that depends on whether it delays.
    struct Scene {
        trial: BatchTrial,
        now_ns: u64,
        done: WorkDone,
        delayed_ms: u64,
    }

    impl Scene {
        fn new() -> Self {
            Self { trial: BatchTrial::new(), now_ns: 0, done: WorkDone::default(), delayed_ms: 0 }
        }

        /// Runs for some time; returns the verdicts.
        fn run(&mut self, ms: u64, without: Load, with: Load) -> Vec<TrialResult> {
            let mut verdicts = Vec::new();
            for _ in 0..ms {
                let load = if self.trial.delays() { with } else { without };
                self.delayed_ms += u64::from(self.trial.delays());
                self.done.messages += load.messages;
                self.done.cpu_ns += load.cpu_ns;
                self.now_ns += MS;
                if self.now_ns >= self.trial.next_ns() {
                    verdicts.extend(self.trial.step(self.now_ns, self.done, load.messages >= 60));
                }
            }
            verdicts
        }
    }

    #[test]
    fn a_delay_that_raises_the_rate_comes_into_force() {
        let mut scene = Scene::new();
        let better = Load { messages: 120, cpu_ns: MS };
        assert_eq!(scene.run(200, BUSY, better), [TrialResult::Kept]);
        scene.delayed_ms = 0;
        let verdicts = scene.run(10_000, BUSY, better);
        assert!(verdicts.iter().all(|verdict| *verdict == TrialResult::Kept), "{verdicts:?}");
        assert!((8..=10).contains(&verdicts.len()), "it is tried again every second: {verdicts:?}");
        assert!(scene.delayed_ms > 9_500, "{} ms of 10 s with the delay", scene.delayed_ms);
    }

    #[test]
    fn few_clients_that_wait_for_replies_are_delayed_for_a_thousandth_of_the_time() {
        let mut scene = Scene::new();
        let worse = Load { messages: 30, cpu_ns: MS / 3 };
        let verdicts = scene.run(100_000, BUSY, worse);
        assert!(!verdicts.is_empty() && verdicts.iter().all(|verdict| *verdict == TrialResult::Dropped));
        assert!(scene.delayed_ms <= 100, "{} ms of 100 s with the delay", scene.delayed_ms);
    }

    #[test]
    fn a_worker_with_idle_time_is_never_delayed() {
        let mut scene = Scene::new();
        let idle = Load { messages: 80, cpu_ns: MS / 2 };
        assert_eq!(scene.run(10_000, idle, Load { messages: 120, cpu_ns: MS / 2 }), []);
        assert_eq!(scene.delayed_ms, 0);
    }

    #[test]
    fn a_rate_that_does_not_change_with_the_delay_is_no_reason_for_it() {
        let mut scene = Scene::new();
        let verdicts = scene.run(10_000, BUSY, Load { messages: 80, cpu_ns: MS / 2 });
        assert!(!verdicts.is_empty() && verdicts.iter().all(|verdict| *verdict == TrialResult::Dropped));
    }

    #[test]
    fn the_delay_ends_when_most_clients_leave() {
        let mut scene = Scene::new();
        let better = Load { messages: 120, cpu_ns: MS };
        scene.run(200, BUSY, better);
        assert!(scene.trial.delays());
        scene.delayed_ms = 0;
        let few = (Load { messages: 70, cpu_ns: MS }, Load { messages: 61, cpu_ns: MS });
        assert_eq!(scene.run(100, few.0, few.1), [TrialResult::Dropped], "{:?}", scene.trial);
        assert!(scene.delayed_ms <= 30, "{} ms with the delay", scene.delayed_ms);
    }

    #[test]
    fn the_delay_ends_when_the_load_is_low() {
        let mut scene = Scene::new();
        scene.run(200, BUSY, Load { messages: 120, cpu_ns: MS });
        let low = Load { messages: 10, cpu_ns: MS / 8 };
        scene.run(20, low, low);
        assert!(!scene.trial.delays());
    }
}
