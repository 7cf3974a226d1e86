//! Fits the constants of the model to the published figures at 200,000 requests/s, and to no others.
//!
//! `cargo run --release -p flick-tune --example fit` prints the constants, which `machine.rs` holds, and the figures
//! at all loads: those above 200,000 requests/s are predictions.

use flick_tune::published::{LIBOS, LIBOS_LOWEST_JOULES, LIBOS_LOWEST_P99_US, LINUX, LOADS, Measured};
use flick_tune::published::{Panel, SECONDS, SLA_P99_US};
use flick_tune::{
    CLOCKS_GHZ, DELAYS_US, Machine, OfferedLoad, Path, RunResult, SeededRandom, Setting, simulate,
};

/// A constant with the range in which it is looked for.
struct Constant {
    name: &'static str,
    range: (f64, f64),
    set: fn(&mut Machine, &mut Path, f64),
}

const fn constant(
    name: &'static str,
    low: f64,
    high: f64,
    set: fn(&mut Machine, &mut Path, f64),
) -> Constant {
    Constant { name, range: (low, high), set }
}

/// Voltage at the fastest clock, in V.
const VOLTS_MOST: f64 = 1.05;

/// Sum of a request and its share of an interrupt at the peak: 16 cores serve 800,000 requests/s, and each has at most
/// 20,000 interrupts/s at the shortest delay.
const PEAK_US: f64 = 20.0;
const INTERRUPTS_PER_REQUEST: f64 = 0.4;

const CONSTANTS: [Constant; 8] = [
    constant("core_watts", 0.3, 4.0, |machine, _, value| machine.core_watts = value),
    constant("leakage_watts", 0.02, 2.0, |machine, _, value| machine.leakage_watts = value),
    constant("package_watts", 0.3, 8.0, |machine, _, value| machine.package_watts = value),
    constant("volts_per_ghz", 0.08, 0.2, |machine, _, value| {
        machine.volts_per_ghz = value;
        machine.volts_base = VOLTS_MOST - value * CLOCKS_GHZ[0];
    }),
    constant("network_us", 5.0, 40.0, |machine, _, value| machine.network_us = value),
    constant("residency_us of C3", 20.0, 300.0, |machine, _, value| {
        machine.idle_states[1].residency_us = value;
        machine.idle_states[2].residency_us = value * 345.0 / 211.0;
    }),
    constant("memory_share", 0.1, 0.7, |_, path, value| path.memory_share = value),
    constant("interrupt_us", 1.0, 16.0, |_, path, value| {
        path.interrupt_us = value;
        path.request_us = PEAK_US - INTERRUPTS_PER_REQUEST * value;
    }),
];

type Values = [f64; CONSTANTS.len()];

/// Requests of a run.
const REQUESTS: usize = 20_000;

/// SeededRandom values at first, then changes of the best ones.
const STEPS: usize = 6000;
const STEPS_RANDOM: usize = 600;

/// Energy below which differences count less: a few watts of a run's noise.
const FLOOR_JOULES: f64 = 30.0;

/// Share of memory time that is assumed: one load does not tell it from the power of cores, so that the fit leaves it
/// only for a reason.
const MEMORY_SHARE: f64 = 0.4;

fn build(values: &Values) -> (Machine, Path) {
    let (mut machine, mut linux) = (Machine::published(), Path::linux());
    for (constant, value) in CONSTANTS.iter().zip(values) {
        (constant.set)(&mut machine, &mut linux, *value);
    }
    (machine, linux)
}

/// The four corners of a panel at the first load, as a panel, and the run with the slowest settings.
fn corners(machine: &Machine, path: &Path) -> (Panel, RunResult) {
    let load = OfferedLoad { requests_per_s: LOADS[0], requests: REQUESTS, seed: 7 };
    let run = |clock, delay| simulate(machine, path, Setting::interrupts(clock, delay), load);
    let (fast, slow) = (CLOCKS_GHZ[0], CLOCKS_GHZ[CLOCKS_GHZ.len() - 1]);
    let (short, long) = (DELAYS_US[0], DELAYS_US[DELAYS_US.len() - 1]);
    let slowest = run(slow, long);
    let [fast_short, fast_long, slow_short] =
        [(fast, short), (fast, long), (slow, short)].map(|(clock, delay)| run(clock, delay).joules(SECONDS));
    let slow_long = slowest.joules(SECONDS);
    let panel = Panel {
        clock_at_short_delay: fast_short - slow_short,
        clock_at_long_delay: fast_long - slow_long,
        delay_at_slow_clock: slow_short - slow_long,
        delay_at_fast_clock: fast_short - fast_long,
    };
    (panel, slowest)
}

/// The sum of squared errors of logarithms, the p99 of the library OS, and settings that do not keep the SLA.
fn error(values: &Values) -> f64 {
    let (machine, linux) = build(values);
    let libos = linux.shortened();
    let mut sum = ((linux.memory_share - MEMORY_SHARE) / 0.1).powi(2) * 0.02;
    for (path, published) in [(&linux, LINUX[0]), (&libos, LIBOS[0])] {
        let (panel, slowest) = corners(&machine, path);
        sum += ((slowest.p99_us - SLA_P99_US).max(0.0) / 50.0).powi(2) * 0.1;
        if path.name == libos.name {
            sum += ((slowest.p99_us - LIBOS_LOWEST_P99_US) / 20.0).powi(2) * 0.1;
        }
        for (own, published) in panel.savings().iter().zip(published.savings()) {
            sum += ((own.max(0.0) + FLOOR_JOULES) / (published + FLOOR_JOULES)).ln().powi(2);
        }
    }
    sum
}

fn main() {
    let mut random = SeededRandom::new(3);
    let mut best = CONSTANTS.map(|constant| (constant.range.0 + constant.range.1) / 2.0);
    let mut least = error(&best);
    let mut width: f64 = 1.0;
    for step in 0..STEPS {
        let mut values = best;
        for (value, Constant { range: (low, high), .. }) in values.iter_mut().zip(&CONSTANTS) {
            if step < STEPS_RANDOM {
                *value = low + (high - low) * random.uniform();
            } else if random.uniform() < 0.4 {
                *value = (*value + (high - low) * width * (random.uniform() - 0.5)).clamp(*low, *high);
            }
        }
        let own = error(&values);
        if own < least {
            (least, best) = (own, values);
        }
        if step >= STEPS_RANDOM {
            width = (width * 0.9994).max(0.01);
        }
    }
    println!("error {least:.4}");
    for (constant, value) in CONSTANTS.iter().zip(best) {
        println!("{} {value:.4}", constant.name);
    }
    let (mut machine, linux) = build(&best);
    let libos = linux.shortened();
    machine.constant_watts += (LIBOS_LOWEST_JOULES - corners(&machine, &libos).1.joules(SECONDS)) / SECONDS;
    println!("request_us {:.4}", linux.request_us);
    println!("volts_base {:.4}", machine.volts_base);
    println!("constant_watts {:.4}", machine.constant_watts);
    for (path, panels) in [(&linux, LINUX), (&libos, LIBOS)] {
        for (requests_per_s, published) in LOADS.into_iter().zip(panels) {
            let load = OfferedLoad { requests_per_s, requests: 2 * REQUESTS, seed: 9 };
            let own = Measured::simulate(&machine, path, load).panel();
            println!(
                "{} {requests_per_s}: {:.0?}, published {:.0?}",
                path.name,
                own.savings(),
                published.savings()
            );
        }
    }
}
