//! Following a day of load on the model: how much of the best saving it reaches, and how often it exceeds the SLA.

use std::collections::BTreeMap;

use flick_tune::follow::{Follower, Period};
use flick_tune::{CLOCKS_GHZ, DELAYS_US, Machine, OfferedLoad, Path, SeededRandom, Setting, grid, simulate};

const SLA_US: f64 = 500.0;

/// Share of requests that may exceed the SLA.
const OVER_MAX: f64 = 0.01;

/// Requests of a simulated run.
const REQUESTS: usize = 12_000;

/// Loads are rounded to this.
const RATE_STEP: f64 = 10e3;

const SEEDS: u64 = 2;

/// A period is 10 s.
const PERIODS_PER_MINUTE: usize = 6;
const MINUTES: usize = 24 * 60;

/// From the lowest latency to the least energy: clock in GHz, delay in microseconds.
const LADDER: [(f64, f64); 9] = [
    (2.9, 25.0),
    (2.7, 50.0),
    (2.5, 100.0),
    (2.3, 150.0),
    (2.1, 200.0),
    (1.9, 200.0),
    (1.7, 200.0),
    (1.5, 250.0),
    (1.3, 300.0),
];

#[derive(Clone, Copy)]
struct Measured {
    p99_us: f64,
    watts: f64,
    /// Share of requests beyond the SLA.
    over: f64,
}

/// Runs of the model, each simulated once.
#[derive(Default)]
struct Runs(BTreeMap<(u64, u64, u64, u64), Measured>);

impl Runs {
    fn at(&mut self, setting: Setting, rate: f64, seed: u64) -> Measured {
        let rate = (rate / RATE_STEP).round() * RATE_STEP;
        let delay = setting.delay_us().expect("a setting with interrupts");
        let key = (setting.clock_ghz.to_bits(), delay.to_bits(), rate as u64, seed % SEEDS);
        *self.0.entry(key).or_insert_with(|| {
            let load = OfferedLoad { requests_per_s: rate, requests: REQUESTS, seed: seed % SEEDS };
            let run = simulate(&Machine::published(), &Path::linux(), setting, load);
            Measured { p99_us: run.p99_us, watts: run.watts, over: run.share_above(SLA_US) }
        })
    }
}

/// The load of a period: a day between 100 and 500 thousand requests/s, with bursts of three minutes by a fifth every
/// hour, or one that steps between 200 and 550 thousand at 8 and 20 hours.
fn load(is_diurnal: bool, minute: usize) -> f64 {
    if !is_diurnal {
        return if (8 * 60..20 * 60).contains(&minute) { 550e3 } else { 200e3 };
    }
    let phase = minute as f64 / MINUTES as f64 * std::f64::consts::TAU;
    let burst = if minute % 60 < 3 { 1.2 } else { 1.0 };
    (300e3 - 200e3 * phase.cos()) * burst
}

struct Day {
    /// Share of the best saving.
    saving: f64,
    violations: usize,
    /// Most changes within an hour, and in all.
    changes: [usize; 2],
}

/// Follows one day, beside the default and the best setting of each minute, which knows the load before.
fn day(runs: &mut Runs, is_diurnal: bool, seed: u64) -> Day {
    let ladder = LADDER.map(|(clock, delay)| Setting::interrupts(clock, delay));
    let all = [grid(&CLOCKS_GHZ, &DELAYS_US), ladder.to_vec()].concat();
    let mut follower = Follower::new(ladder.len(), 0, SLA_US);
    let mut random = SeededRandom::new(seed);
    let (mut used, mut fixed, mut best) = (0.0, 0.0, 0.0);
    let (mut violations, mut changes) = (0, vec![0; 24]);
    for minute in 0..MINUTES {
        let base = load(is_diurnal, minute);
        let mut over = 0.0;
        for _ in 0..PERIODS_PER_MINUTE {
            let rate = base * (0.97 + 0.06 * random.uniform());
            let step = follower.step();
            let now = runs.at(ladder[step], rate, random.next_u64());
            used += now.watts;
            fixed += runs.at(ladder[0], rate, 0).watts;
            over += now.over / PERIODS_PER_MINUTE as f64;
            follower.decide(Period { requests_per_s: rate, limited: now.p99_us });
            changes[minute / 60] += usize::from(follower.step() != step);
        }
        violations += usize::from(over > OVER_MAX);
        let tried = all.iter().map(|setting| runs.at(*setting, base, 0));
        let kept = tried.filter(|run| run.p99_us <= SLA_US).map(|run| run.watts);
        best += PERIODS_PER_MINUTE as f64 * kept.fold(f64::MAX, f64::min);
    }
    let total = changes.iter().sum();
    Day {
        saving: (fixed - used) / (fixed - best),
        violations,
        changes: [changes.into_iter().max().expect("24 hours"), total],
    }
}

#[test]
fn a_day_of_load_is_followed_within_the_sla() {
    let mut runs = Runs::default();
    for is_diurnal in [true, false] {
        let Day { saving, violations, changes } = day(&mut runs, is_diurnal, 1);
        let text = format!(
            "diurnal {is_diurnal}: {:.1} % of the best saving, {violations} of {MINUTES} minutes exceed the SLA, \
             {changes:?} changes within an hour, in all",
            100.0 * saving
        );
        println!("{text}");
        assert!(saving >= 0.9 && violations * 1000 <= MINUTES, "{text}");
        assert!(changes[0] <= 12 && changes[1] > 12, "{text}");
    }
}
