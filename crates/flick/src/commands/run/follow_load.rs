//! Tunables that follow load and SLA (`--tune-sla`): every interval, the control thread reads the histogram of the
//! service and takes the next step of a ladder, if there is a reason, which it logs.
//! Promises: values stay within the limits of the settings; values that something else has set stay, and end this until
//! the next reload; a dry run sets nothing.
//! Not here: the decision (`flick_tune::follow`), a search (`flick tune`).

use std::time::{Duration, Instant};

use flick_admin::state::Times;
use flick_runtime::ServiceStats;
use flick_runtime::tunables::{TunableChanges, TunableValues};

use flick_tune::follow::{Follower, Period, Reason};
use tracing::{debug, info, warn};

use crate::settings::Settings;
use crate::settings::following::{FollowMode, FollowPlan};

/// Values of the ladder between its ends, in microseconds.
const BUSY_POLLS_US: [u64; 8] = [1000, 500, 200, 100, 50, 20, 10, 5];
const BATCH_DELAYS_US: [u64; 9] = [20, 50, 100, 200, 500, 1000, 2000, 5000, 10_000];

/// Share of the SLA that a batch delay may be.
const DELAY_SHARE: u32 = 4;

/// A setting of the ladder.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct LadderStep {
    busy_poll: Duration,
    batch_delay_max: Duration,
}

impl From<TunableValues> for LadderStep {
    fn from(values: TunableValues) -> Self {
        Self { busy_poll: values.busy_poll, batch_delay_max: values.batch_delay_max }
    }
}

/// The settings from the lowest latency to the least CPU time: shorter busy polls, then longer batch delays.
fn ladder(plan: &FollowPlan) -> Vec<LadderStep> {
    let micros = |values: &[u64]| values.iter().copied().map(Duration::from_micros).collect::<Vec<_>>();
    let mut polls = vec![plan.max_busy_poll];
    polls.extend(micros(&BUSY_POLLS_US).into_iter().filter(|poll| *poll < plan.max_busy_poll));
    polls.push(Duration::ZERO);
    polls.dedup();
    let delay_max = plan.max_batch_delay.min(Duration::from_micros(plan.sla.latency_us()) / DELAY_SHARE);
    let mut delays: Vec<Duration> =
        micros(&BATCH_DELAYS_US).into_iter().filter(|delay| *delay < delay_max).collect();
    delays.extend((!delay_max.is_zero()).then_some(delay_max));
    let polls = polls.into_iter().map(|busy_poll| LadderStep { busy_poll, batch_delay_max: Duration::ZERO });
    let delays =
        delays.into_iter().map(|batch_delay_max| LadderStep { busy_poll: Duration::ZERO, batch_delay_max });
    polls.chain(delays).collect()
}

/// The first step that polls as short and delays as long as these values, or the last one.
fn step_of(ladder: &[LadderStep], values: LadderStep) -> usize {
    let is_it = |step: &LadderStep| {
        step.busy_poll <= values.busy_poll && step.batch_delay_max >= values.batch_delay_max
    };
    ladder.iter().position(is_it).unwrap_or(ladder.len() - 1)
}

/// A service whose tunables follow its load.
pub struct LoadFollower {
    plan: FollowPlan,
    service: ServiceStats,
    ladder: Vec<LadderStep>,
    follower: Follower,
    /// The values that the service has, if nothing else sets them.
    values: LadderStep,
    /// The begin of the period, and the durations of requests until then.
    begin: (Instant, Times),
    last_reason: Option<Reason>,
}

impl LoadFollower {
    /// Follows the load of the only service, if that is set.
    pub fn new(settings: &Settings, services: Vec<ServiceStats>) -> Option<Self> {
        let plan = settings.follow?;
        let only = <[ServiceStats; 1]>::try_from(services).ok();
        let Some([service]) = only.filter(|[service]| service.cpu_max_percent() >= 100) else {
            warn!(
                "`[tune]` has no effect: services share threads, and so have no busy polls or batch delays"
            );
            return None;
        };
        let ladder = ladder(&plan);
        let values = LadderStep::from(service.tunables().get());
        let follower = Follower::new(ladder.len(), step_of(&ladder, values), plan.sla.latency_us() as f64);
        let begin = (Instant::now(), service.snapshot().times);
        Some(Self { plan, service, ladder, follower, values, begin, last_reason: None })
    }

    /// Decides, if the period has ended. Returns whether to go on.
    pub fn run_if_due(&mut self) -> bool {
        let elapsed = self.begin.0.elapsed();
        if elapsed < self.plan.interval {
            return true;
        }
        let now = LadderStep::from(self.service.tunables().get());
        if now != self.values {
            warn!(
                service = self.service.name(), busy_poll = ?now.busy_poll, batch_delay_max = ?now.batch_delay_max,
                "something else has set tunables: they follow the load no longer, until the next reload"
            );
            return false;
        }
        let times = self.service.snapshot().times;
        let period = times.since(&self.begin.1);
        if period.count() >= self.plan.sla.requests_min() {
            self.begin = (Instant::now(), times);
            self.decide(&period, elapsed);
        }
        true
    }

    fn decide(&mut self, times: &Times, elapsed: Duration) {
        let sla = self.plan.sla;
        // A request may wait for the batch delay before the service sees it.
        let unseen_us = self.values.batch_delay_max.as_secs_f64() * 1e6;
        let limited = times.quantile_ns(sla.share()).unwrap_or_default() as f64 / 1e3 + unseen_us;
        let requests_per_s = times.count() as f64 / elapsed.as_secs_f64();
        let before = self.follower.step();
        let reason = self.follower.decide(Period { requests_per_s, limited });
        let step = self.follower.step();
        let chosen = self.ladder[step];
        let measured =
            format!("{} ({} {limited:.0}us, {requests_per_s:.0} requests/s)", reason.text(), sla.name());
        let (service, LadderStep { busy_poll, batch_delay_max }) = (self.service.name(), chosen);
        let is_new = self.last_reason.replace(reason) != Some(reason);
        match self.plan.mode {
            _ if step == before && reason == Reason::Fastest && is_new => warn!(service, "{measured}"),
            _ if step == before => debug!(service, ?busy_poll, ?batch_delay_max, "tunables stay: {measured}"),
            FollowMode::DryRun => {
                info!(service, ?busy_poll, ?batch_delay_max, "tunables would change: {measured}");
                self.follower.remain(before);
            }
            FollowMode::On => {
                let changes = TunableChanges {
                    busy_poll: Some(busy_poll),
                    batch_delay_max: Some(batch_delay_max),
                    ..TunableChanges::default()
                };
                self.service.tunables().set(&changes).expect("the settings are within the ranges");
                self.values = chosen;
                info!(service, ?busy_poll, ?batch_delay_max, "tunables change: {measured}");
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::{LadderStep, ladder, step_of};
    use crate::settings::following::{FollowMode, FollowPlan};

    fn steps(max_busy_poll_us: u64, max_batch_delay_us: u64) -> Vec<(u128, u128)> {
        let plan = FollowPlan {
            sla: "p99:500us".parse().expect("a bound"),
            mode: FollowMode::On,
            interval: Duration::from_secs(10),
            max_busy_poll: Duration::from_micros(max_busy_poll_us),
            max_batch_delay: Duration::from_micros(max_batch_delay_us),
        };
        let micros = |step: LadderStep| (step.busy_poll.as_micros(), step.batch_delay_max.as_micros());
        ladder(&plan).into_iter().map(micros).collect()
    }

    #[test]
    fn ladder_ends_at_the_limits_of_the_settings() {
        assert_eq!(steps(0, 0), [(0, 0)]);
        assert_eq!(steps(60, 0), [(60, 0), (50, 0), (20, 0), (10, 0), (5, 0), (0, 0)]);
        assert_eq!(steps(5, 60), [(5, 0), (0, 0), (0, 20), (0, 50), (0, 60)]);
        // A quarter of the SLA is 125 us.
        assert_eq!(steps(0, 9000), [(0, 0), (0, 20), (0, 50), (0, 100), (0, 125)]);
    }

    #[test]
    fn following_begins_near_the_values_of_the_settings() {
        let step = |busy_poll, batch_delay_max| LadderStep {
            busy_poll: Duration::from_micros(busy_poll),
            batch_delay_max: Duration::from_micros(batch_delay_max),
        };
        let ladder = [step(100, 0), step(50, 0), step(0, 0), step(0, 20)];
        for (values, expected) in [
            (step(100, 0), 0),
            (step(70, 0), 1),
            (step(0, 0), 2),
            (step(0, 10), 3),
            (step(0, 900), 3),
            (step(900, 0), 0),
        ] {
            assert_eq!(step_of(&ladder, values), expected, "{values:?}");
        }
    }
}
