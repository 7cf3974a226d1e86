//! Follows load and an SLA: moves along a ladder of settings, of which each next one takes less energy and adds
//! latency.
//! Promises: one step at a time towards less energy, and only after `CALM_PERIODS` with a margin; back at once when the
//! limit is near or exceeded, and to the lowest latency when it is far exceeded or the load jumps; at a steady load a
//! step that has failed is tried again after waits that double, so that changes become rare.
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

/// Periods after a failure until a step is tried again at the same load: the first time, and at most.
const WAIT_PERIODS: u32 = 32;
const WAIT_PERIODS_MAX: u32 = 512;

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
    requests_per_s: f64,
    /// Periods until it is tried again.
    wait: u32,
    /// The first value of `wait`.
    waits: u32,
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
    failed: Option<FailedStep>,
    requests_per_s: Option<f64>,
}

impl Follower {
    /// Starts at a step of a ladder with `steps`, from the fastest to the cheapest one.
    ///
    /// Panics if there is no such step.
    pub fn new(steps: usize, step: usize, limit: f64) -> Self {
        assert!(step < steps, "the step is one of the ladder");
        Self { last: steps - 1, step, limit, calm: 0, failed: None, requests_per_s: None }
    }

    /// The present step.
    pub fn step(&self) -> usize {
        self.step
    }

    /// Notes that the step has remained this one, whatever was decided.
    pub fn remain(&mut self, step: usize) {
        (self.step, self.calm) = (step, 0);
    }

    /// Decides about the step of the next period.
    pub fn decide(&mut self, period: Period) -> Reason {
        let rate = period.requests_per_s;
        let before = self.requests_per_s.replace(rate);
        if let Some(failed) = &mut self.failed {
            failed.wait = failed.wait.saturating_sub(1);
        }
        let share = period.limited / self.limit;
        if share > 1.0 && self.step == 0 {
            self.calm = 0;
            return Reason::Fastest;
        }
        if before.is_some_and(|before| rate > JUMP * before) && self.step > 0 && share > MARGIN {
            return self.back(rate, 0, Reason::Jumped);
        }
        if share > NEAR && self.step > 0 {
            let to = if share > FAR { 0 } else { self.step - 1 };
            return self.back(rate, to, if share > 1.0 { Reason::Exceeded } else { Reason::Near });
        }
        if share > MARGIN {
            self.calm = 0;
            return Reason::Kept;
        }
        self.calm = (self.calm + 1).min(CALM_PERIODS);
        if self.step == self.last {
            return Reason::Cheapest;
        }
        if self.calm < CALM_PERIODS {
            return Reason::Kept;
        }
        let is_failed = |failed: &FailedStep| {
            self.step + 1 >= failed.step && failed.wait > 0 && rate > LIGHTER * failed.requests_per_s
        };
        if self.failed.as_ref().is_some_and(is_failed) {
            return Reason::Failed;
        }
        (self.step, self.calm) = (self.step + 1, 0);
        Reason::Margin
    }

    fn back(&mut self, requests_per_s: f64, to: usize, reason: Reason) -> Reason {
        let is_again = |failed: &FailedStep| {
            let ratio = requests_per_s / failed.requests_per_s;
            failed.step <= self.step && (LIGHTER..=1.0 / LIGHTER).contains(&ratio)
        };
        let again = self.failed.filter(is_again);
        let waits = again.map_or(WAIT_PERIODS, |failed| (2 * failed.waits).min(WAIT_PERIODS_MAX));
        self.failed = Some(FailedStep { step: self.step, requests_per_s, wait: waits, waits });
        (self.step, self.calm) = (to, 0);
        reason
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
}
