//! Follows load and an SLA: moves along a ladder of settings, of which each next one takes less energy and adds
//! latency.
//! Promises: one step at a time towards less energy, or back to a proven one, and only after `CALM_PERIODS` with a
//! margin; back at once when the limit is near or exceeded, and to the lowest latency when it is far exceeded or the
//! load jumps, but not for a single period of a proven step; at a steady load a step that has failed is tried again
//! after waits that grow, so that changes become rare.
//! Not here: what a step is, its measurement, and the change itself (`flick run --tune-sla`).

/// Share of the limit above which the next faster step is taken.
const NEAR: f64 = 0.9;

/// Share of the limit below which there is a margin for a cheaper step.
const MARGIN: f64 = 0.75;

/// Latency over its limit from which the fastest step is taken.
const FAR: f64 = 1.5;

/// Growth of the load within a period from which the fastest step is taken.
const JUMP: f64 = 1.3;

/// Periods in a row with a margin, before a cheaper step.
const CALM_PERIODS: u32 = 3;

/// Share of the load of a failure below which a step may be tried again.
const LIGHTER: f64 = 0.9;

/// Periods after a failure until a step is tried again at the same load: the first time, and at most; each further time
/// `WAIT_GROWTH` times as many.
const WAIT_PERIODS: u32 = 16;
const WAIT_PERIODS_MAX: u32 = 512;
const WAIT_GROWTH: u32 = 2;

/// The same after a limit that was far exceeded: one step makes no such difference, so that it most probably was not
/// for the step.
const WAIT_PERIODS_FAR: u32 = 3;

/// Periods within the limit that prove a step at such a load: a single one beyond it does not tell against it then, and
/// it is returned to without the steps between.
const PROVEN_PERIODS: u32 = 6;

/// Measurements of one period.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Period {
    /// Requests per second.
    pub requests_per_s: f64,
    /// The quantity that has a limit.
    pub limited: f64,
}

/// Reason of a decision.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reason {
    /// The limit was exceeded.
    Exceeded,
    /// The limit is near.
    Near,
    /// The load has grown within a period.
    Jumped,
    /// The limit was exceeded, and there is no faster step.
    Fastest,
    /// The limit was exceeded, or is near, for one period of a step that has kept it at such a load.
    Disturbed,
    /// The limit is kept with a margin.
    Margin,
    /// A cheaper step has failed at such a load, and is not tried again yet.
    Failed,
    /// The limit is kept, without a margin for a cheaper step, or not for long enough.
    Kept,
    /// There is no cheaper step.
    Cheapest,
}

impl Reason {
    /// The reason in words.
    pub fn text(self) -> &'static str {
        match self {
            Self::Exceeded => "the SLA is exceeded",
            Self::Near => "the SLA is nearly exceeded",
            Self::Jumped => "the load has grown",
            Self::Fastest => "the SLA is exceeded by the fastest setting",
            Self::Disturbed => "the SLA is exceeded, or nearly, by a setting that has kept it at this load",
            Self::Margin => "the SLA is kept with a margin",
            Self::Failed => "the next cheaper setting has exceeded the SLA at this load",
            Self::Kept => "the SLA is kept",
            Self::Cheapest => "the SLA is kept by the cheapest setting",
        }
    }
}

/// A step that has failed.
#[derive(Clone, Copy, Debug)]
struct FailedStep {
    step: usize,
    /// The lowest load at which it has failed.
    requests_per_s: f64,
    /// Periods until it is tried again.
    wait: u32,
    /// The first value of `wait`.
    waits: u32,
}

/// Periods of the present step.
#[derive(Clone, Copy, Debug, Default)]
struct Record {
    /// Whether there was one.
    has_begun: bool,
    /// Periods within the limit.
    kept: u32,
    /// The highest load of these.
    requests_per_s: f64,
    /// Whether the last period was one that does not count.
    is_disturbed: bool,
}

impl FailedStep {
    fn fails_at(&self, requests_per_s: f64) -> bool {
        requests_per_s > LIGHTER * self.requests_per_s
    }
}

impl Record {
    fn is_proven(&self, requests_per_s: f64) -> bool {
        self.kept >= PROVEN_PERIODS && requests_per_s <= self.requests_per_s / LIGHTER
    }

    fn keep(&mut self, requests_per_s: f64) {
        self.kept = self.kept.saturating_add(1);
        self.requests_per_s = self.requests_per_s.max(requests_per_s);
        self.is_disturbed = false;
    }
}

/// The state of following.
#[derive(Clone, Debug)]
pub struct Follower {
    /// Index of the cheapest step.
    last: usize,
    step: usize,
    limit: f64,
    /// Periods in a row with a margin.
    calm: u32,
    record: Record,
    /// The cheapest step that is proven, and the highest load at which it is.
    proven: (usize, f64),
    /// At most one failure of each step.
    failed: Vec<FailedStep>,
    requests_per_s: Option<f64>,
}

impl Follower {
    /// Starts at a step of a ladder with `steps`, from the fastest to the cheapest one.
    ///
    /// Panics if there is no such step.
    pub fn new(steps: usize, step: usize, limit: f64) -> Self {
        assert!(step < steps, "the step is one of the ladder");
        let record = Record::default();
        Self {
            last: steps - 1,
            step,
            limit,
            calm: 0,
            record,
            proven: (0, 0.0),
            failed: Vec::with_capacity(steps),
            requests_per_s: None,
        }
    }

    /// The present step.
    pub fn step(&self) -> usize {
        self.step
    }

    /// Notes that the step has remained this one, whatever was decided.
    pub fn remain(&mut self, step: usize) {
        self.take(step);
    }

    /// Decides about the step of the next period.
    pub fn decide(&mut self, period: Period) -> Reason {
        let rate = period.requests_per_s;
        let before = self.requests_per_s.replace(rate);
        self.failed.iter_mut().for_each(|failed| failed.wait = failed.wait.saturating_sub(1));
        let share = period.limited / self.limit;
        let is_first = !std::mem::replace(&mut self.record.has_begun, true);
        if share > 1.0 && self.step == 0 {
            self.calm = 0;
            if !is_first {
                // The fastest step exceeds the limit, too: it was not for the cheaper one that it was exceeded.
                self.failed.retain(|failed| !failed.fails_at(rate));
            }
            return Reason::Fastest;
        }
        if before.is_some_and(|before| rate > JUMP * before) && self.step > 0 && share > MARGIN {
            self.fail(rate, WAIT_PERIODS_FAR);
            return self.back(0, Reason::Jumped);
        }
        if share > NEAR && self.step > 0 {
            if self.record.is_proven(rate) && !self.record.is_disturbed {
                (self.record.is_disturbed, self.calm) = (true, 0);
                return Reason::Disturbed;
            }
            let to = if share > FAR { 0 } else { self.step - 1 };
            let wait = if share > FAR { WAIT_PERIODS_FAR } else { WAIT_PERIODS };
            self.fail(rate, wait);
            return self.back(to, if share > 1.0 { Reason::Exceeded } else { Reason::Near });
        }
        self.record.keep(rate);
        if self.record.kept >= PROVEN_PERIODS && (self.step, self.record.requests_per_s) > self.proven {
            self.proven = (self.step, self.record.requests_per_s);
        }
        let (step, kept) = (self.step, self.record.kept);
        self.failed.retain(|failed| step < failed.step || kept < failed.waits || !failed.fails_at(rate));
        if share > MARGIN {
            self.calm = 0;
            return Reason::Kept;
        }
        self.calm = (self.calm + 1).min(CALM_PERIODS);
        self.forward(rate)
    }

    /// Takes a cheaper step, if there was a margin for long enough and it has not failed.
    fn forward(&mut self, requests_per_s: f64) -> Reason {
        if self.step == self.last {
            return Reason::Cheapest;
        }
        if self.calm < CALM_PERIODS {
            return Reason::Kept;
        }
        let (proven, proven_load) = self.proven;
        let known = if requests_per_s <= proven_load / LIGHTER { proven } else { 0 };
        let next = known.max(self.step + 1);
        let failed = self.failed.iter().filter(|failed| failed.wait > 0 && failed.fails_at(requests_per_s));
        let below_failed = failed.map(|failed| failed.step - 1).min().unwrap_or(self.last);
        if next.min(below_failed) <= self.step {
            return Reason::Failed;
        }
        self.take(next.min(below_failed));
        Reason::Margin
    }

    /// Notes that the present step has failed at a load, and is not tried for this many periods, or more of them than
    /// the last time.
    fn fail(&mut self, requests_per_s: f64, wait: u32) {
        let step = self.step;
        if requests_per_s <= self.proven.1 / LIGHTER {
            self.proven.0 = self.proven.0.min(step - 1);
        }
        let known =
            self.failed.iter_mut().find(|failed| failed.step == step && failed.fails_at(requests_per_s));
        let Some(failed) = known else {
            self.failed.retain(|failed| failed.step != step);
            self.failed.push(FailedStep { step, requests_per_s, wait, waits: wait });
            return;
        };
        if requests_per_s <= failed.requests_per_s / LIGHTER {
            failed.waits = (WAIT_GROWTH * failed.waits).clamp(wait, WAIT_PERIODS_MAX);
            failed.wait = failed.waits;
        }
        // A failure at a higher load says nothing new.
        failed.wait = failed.wait.max(wait);
    }

    fn back(&mut self, to: usize, reason: Reason) -> Reason {
        self.take(to);
        reason
    }

    fn take(&mut self, step: usize) {
        (self.step, self.calm, self.record) = (step, 0, Record::default());
    }
}

#[cfg(test)]
mod tests {
    use super::{Follower, Period, Reason, WAIT_PERIODS};

    fn period(requests_per_s: f64, limited: f64) -> Period {
        Period { requests_per_s, limited }
    }

    #[test]
    fn one_step_at_a_time_and_back_at_once() {
        let mut follower = Follower::new(5, 0, 100.0);
        let reasons: Vec<Reason> = (0..6).map(|_| follower.decide(period(1e4, 50.0))).collect();
        assert_eq!(reasons, [Reason::Kept, Reason::Kept, Reason::Margin].repeat(2));
        assert_eq!(follower.step(), 2);
        assert_eq!((follower.decide(period(1e4, 80.0)), follower.step()), (Reason::Kept, 2));
        assert_eq!((follower.decide(period(1e4, 95.0)), follower.step()), (Reason::Near, 1));
        assert_eq!((follower.decide(period(1e4, 170.0)), follower.step()), (Reason::Exceeded, 0));
        assert_eq!((follower.decide(period(1e4, 170.0)), follower.step()), (Reason::Fastest, 0));
    }

    #[test]
    fn a_jump_of_the_load_takes_the_fastest_step() {
        let mut follower = Follower::new(5, 4, 100.0);
        assert_eq!(follower.decide(period(1e4, 70.0)), Reason::Cheapest);
        assert_eq!((follower.decide(period(1.5e4, 80.0)), follower.step()), (Reason::Jumped, 0));
    }

    #[test]
    fn at_a_steady_load_changes_become_rare() {
        let mut follower = Follower::new(3, 0, 100.0);
        // The cheapest step never keeps the limit.
        let mut changes = Vec::new();
        for at in 0..1440_u32 {
            let before = follower.step();
            follower.decide(period(1e4, if before == 2 { 120.0 } else { 60.0 }));
            if follower.step() != before {
                changes.push(at);
            }
        }
        // A period is 10 s: four hours.
        for hour in 0..4 {
            let count = changes.iter().filter(|at| **at / 360 == hour).count();
            assert!(count <= 12, "hour {hour}: {changes:?}");
        }
        assert!(changes.len() <= 20, "{changes:?}");
        // With less load it is tried again at once.
        let reasons: Vec<Reason> = (0..3).map(|_| follower.decide(period(8e3, 60.0))).collect();
        assert!(reasons.contains(&Reason::Margin) && follower.step() == 2, "{reasons:?}");
    }

    #[test]
    fn a_failed_step_waits() {
        let mut follower = Follower::new(2, 1, 100.0);
        assert_eq!(follower.decide(period(1e4, 120.0)), Reason::Exceeded);
        let waited = (0..).take_while(|_| follower.decide(period(1e4, 50.0)) != Reason::Margin).count();
        assert_eq!(waited + 1, WAIT_PERIODS as usize);
    }

    /// A follower of which steps keep the limit but for the noise of other programs, and the shares of its periods at
    /// each step; and its changes in each hour.
    fn noisy(
        steps: usize,
        periods: usize,
        mut latency: impl FnMut(usize, f64) -> f64,
    ) -> (Vec<f64>, Vec<usize>) {
        let mut follower = Follower::new(steps, 0, 100.0);
        let mut random = crate::SeededRandom::new(7);
        let (mut shares, mut changes) = (vec![0.0; steps], vec![0; periods.div_ceil(360)]);
        for at in 0..periods {
            let step = follower.step();
            shares[step] += 1.0 / periods as f64;
            follower.decide(period(1e4, latency(step, random.uniform())));
            changes[at / 360] += usize::from(follower.step() != step);
        }
        (shares, changes)
    }

    #[test]
    fn noise_of_other_programs_does_not_keep_a_service_at_expensive_steps() {
        // One period of 20 is beyond the limit at any step, most of these far beyond.
        let (shares, changes) = noisy(6, 3600, |_, luck| match luck {
            luck if luck < 0.04 => 300.0,
            luck if luck < 0.05 => 110.0,
            _ => 50.0,
        });
        assert!(shares[5] > 0.85, "{shares:.2?}");
        assert!(changes.iter().all(|changes| *changes <= 40), "{changes:?}");
    }

    #[test]
    fn noise_does_not_hide_a_step_that_exceeds_the_limit() {
        let (shares, changes) = noisy(6, 3600, |step, luck| match (step, luck) {
            (_, luck) if luck < 0.02 => 300.0,
            (5, _) => 105.0,
            _ => 50.0,
        });
        assert!(shares[5] < 0.05 && shares[4] > 0.75, "{shares:.2?}");
        assert!(changes.iter().all(|changes| *changes <= 40), "{changes:?}");
    }

    #[test]
    fn one_period_beyond_the_limit_does_not_tell_against_a_proven_step() {
        let mut follower = Follower::new(3, 2, 100.0);
        for _ in 0..super::PROVEN_PERIODS {
            follower.decide(period(1e4, 60.0));
        }
        assert_eq!((follower.decide(period(1e4, 500.0)), follower.step()), (Reason::Disturbed, 2));
        assert_eq!((follower.decide(period(1e4, 60.0)), follower.step()), (Reason::Cheapest, 2));
        assert_eq!((follower.decide(period(1e4, 120.0)), follower.step()), (Reason::Disturbed, 2));
        assert_eq!(
            (follower.decide(period(1e4, 120.0)), follower.step()),
            (Reason::Exceeded, 1),
            "two in a row"
        );
        // At a higher load nothing is proven.
        let mut follower = Follower::new(3, 2, 100.0);
        for _ in 0..super::PROVEN_PERIODS {
            follower.decide(period(1e4, 60.0));
        }
        assert_eq!((follower.decide(period(1.2e4, 120.0)), follower.step()), (Reason::Exceeded, 1));
    }

    #[test]
    fn step_is_not_blamed_for_what_the_fastest_step_exceeds_too() {
        let mut follower = Follower::new(2, 1, 100.0);
        for _ in 0..3 {
            // It fails until its wait is long.
            while follower.step() == 0 {
                follower.decide(period(1e4, 50.0));
            }
            follower.decide(period(1e4, 120.0));
        }
        let reasons: Vec<Reason> = (0..2).map(|_| follower.decide(period(1e4, 120.0))).collect();
        assert_eq!(reasons, [Reason::Fastest; 2]);
        let reasons: Vec<Reason> = (0..3).map(|_| follower.decide(period(1e4, 50.0))).collect();
        assert_eq!((reasons[2], follower.step()), (Reason::Margin, 1));
    }
}
