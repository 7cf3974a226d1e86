//! Trials on a running service: turns its knobs, waits, and reads what the service has counted meanwhile.
//! Promises: a trial takes the dwell and a tenth of it; a quarter of the dwell if its latency is far beyond the bound,
//! and at most three times the dwell if it has few requests; the watcher knows of a setting before the service does.
//! Not here: a knob that is put back (`restore.rs`), the choice of settings (`trials.rs`).

use std::time::Duration;

use super::kernel::{KernelKnob, before};
use super::rapl::Rapl;
use super::restore::KnobWatcher;
use super::target::{KnobSetting, ObservedMoment, TunedService};
use super::trials::{MeasureKnobs, TrialResult};
use crate::commands::load::values::Bound;

/// Parts of a dwell, behind each of which a trial that disturbs clients ends.
const PARTS: u32 = 4;

/// Parts of a trial with few requests.
const PARTS_MAX: u32 = 3 * PARTS;

/// Latency, over its bound, from which a trial ends early. The search does not tell it from a longer one.
const EXCESS_MAX: f64 = 2.0;

/// Share of the dwell that passes before a measurement begins: requests in flight are still of the former setting.
const SETTLE: f64 = 0.1;

/// A service under trial.
pub(super) struct LiveService<'a> {
    service: &'a TunedService,
    watcher: &'a mut KnobWatcher,
    /// At the begin of the search.
    first: ObservedMoment,
    /// Knobs of the kernel that are turned, too.
    kernel: &'a [KernelKnob],
    /// The setting it has.
    knobs: KnobSetting,
    meters: Meters<'a>,
}

/// Bound, time and energy meter of the trials.
pub(super) struct Meters<'a> {
    pub(super) sla: Bound,
    pub(super) dwell: Duration,
    /// The meter of this machine, if it has one.
    pub(super) rapl: Option<Rapl<'a>>,
    /// Power of a core that works, for energy that is modelled.
    pub(super) core_watts: f64,
}

impl<'a> LiveService<'a> {
    pub(super) fn new(
        service: &'a TunedService,
        watcher: &'a mut KnobWatcher,
        kernel: &'a [KernelKnob],
        first: ObservedMoment,
        meters: Meters<'a>,
    ) -> Self {
        let knobs = KnobSetting { kernel: before(kernel), ..first.knobs() };
        Self { service, watcher, first, kernel, knobs, meters }
    }

    /// Turns what is different, and waits until it has its effect.
    fn change(&mut self, knobs: KnobSetting) -> Result<(), String> {
        // Also where nothing changes: the watcher takes one that is silent for dead.
        self.watcher.announce(knobs)?;
        if knobs == self.knobs {
            return Ok(());
        }
        if !knobs.has_tunables_of(&self.knobs) {
            self.service.set(&knobs)?;
        }
        let value = |knob: &KernelKnob| {
            let next = knobs.kernel.value(knob.name)?;
            (Some(next) != self.knobs.kernel.value(knob.name)).then_some(next)
        };
        let mut settle = Duration::ZERO;
        for (knob, next) in self.kernel.iter().filter_map(|knob| Some((knob, value(knob)?))) {
            knob.set(next)?;
            settle = settle.max(knob.settle());
        }
        std::thread::sleep(settle);
        self.knobs = knobs;
        Ok(())
    }

    /// Observes the service. Errors: it is not the one that the search began with, or has other values.
    fn observe(&self) -> Result<ObservedMoment, String> {
        let now = self.service.observe()?;
        let name = &self.service.name;
        if now.process.id != self.first.process.id || now.generation != self.first.generation {
            return Err(format!("{name} was restarted, upgraded or reloaded"));
        }
        match now.knobs() {
            knobs if knobs.has_tunables_of(&self.knobs) => Ok(now),
            knobs => Err(format!("something else has set the knobs of {name} to {knobs}")),
        }
    }

    fn joules(&mut self) -> Result<Option<f64>, String> {
        self.meters.rapl.as_mut().map(Rapl::joules).transpose()
    }

    /// The counts between two moments.
    fn result(&self, before: &ObservedMoment, now: &ObservedMoment, joules: Option<f64>) -> TrialResult {
        let times = now.service.times.since(&before.service.times);
        let quantile_us = |share| times.quantile_ns(share).map_or(0.0, |ns| ns as f64 / 1e3);
        let elapsed_s = (now.process.uptime_ms - before.process.uptime_ms).max(1) as f64 / 1e3;
        let cpu_s = now.process.cpu_ms.saturating_sub(before.process.cpu_ms) as f64 / 1e3;
        let requests = times.count();
        let errors = now.service.errors().saturating_sub(before.service.errors());
        let joules = joules.unwrap_or(cpu_s * self.meters.core_watts);
        let each = 1.0 / requests.max(1) as f64;
        // Before the service reads a request, delays may pass that no clock of it sees.
        let unseen_us = self.knobs.unseen_us() as f64;
        TrialResult {
            requests_per_s: requests as f64 / elapsed_s,
            p50_us: quantile_us(0.5) + unseen_us,
            bounded_us: quantile_us(self.meters.sla.share()) + unseen_us,
            requests,
            errors: errors as f64 * each,
            cpu_us_per_request: (cpu_s * 1e6 * each).max(f64::MIN_POSITIVE),
            cores: cpu_s / elapsed_s,
            joules_per_million_requests: (joules * 1e6 * each).max(f64::MIN_POSITIVE),
        }
    }
}

impl MeasureKnobs for LiveService<'_> {
    fn measure(&mut self, knobs: KnobSetting) -> Result<TrialResult, String> {
        // Whether the knobs are still those that this search has set.
        self.observe()?;
        self.change(knobs)?;
        std::thread::sleep(self.meters.dwell.mul_f64(SETTLE));
        let before = self.observe()?;
        self.joules()?;
        let requests_min = self.meters.sla.requests_min();
        let mut part = 0;
        loop {
            part += 1;
            std::thread::sleep(self.meters.dwell / PARTS);
            let now = self.observe()?;
            let so_far = self.result(&before, &now, None);
            let excess = EXCESS_MAX * self.meters.sla.latency_us() as f64;
            let is_excessive = so_far.requests >= requests_min && so_far.bounded_us > excess;
            let is_enough = part >= PARTS && so_far.requests >= requests_min;
            if is_enough || is_excessive || part == PARTS_MAX {
                let joules = self.joules()?;
                let result = self.result(&before, &now, joules);
                return match result.requests {
                    0 => Err(format!("{} has no requests: a search needs its load", self.service.name)),
                    _ => Ok(result),
                };
            }
        }
    }
}
