//! The published figures that the model is compared with, and the same figures of the model.
//! Promises: the figures are copied unchanged, with the one reading that they need.
//! Source: the notes of H. Dong et al. on memcached (the study behind arXiv:2112.07010 and arXiv:2502.14987): 30 s of
//! ETC on 16 cores, p99 at most 500 µs, delays of 50 to 400 µs, clocks of 1.3 to 2.9 GHz.

use crate::machine::{Machine, Path};
use crate::setting::{CLOCKS_GHZ, DELAYS_US, Setting, grid};
use crate::simulate::{OfferedLoad, RunResult, simulate};

/// Duration of a published run.
pub const SECONDS: f64 = 30.0;

/// Longest p99 of a published run; slower ones were discarded.
pub const SLA_P99_US: f64 = 500.0;

/// Energy of the library OS at 200,000 requests/s with the longest delay and the slowest clock, in J. It is printed in
/// the public scripts of the study, as is the p99 below.
pub const LIBOS_LOWEST_JOULES: f64 = 1400.93;

/// p99 of the same run.
pub const LIBOS_LOWEST_P99_US: f64 = 451.5;

/// Savings of one system at one load, in J. A saving is the difference between the most and the least energy of the
/// settings that keep the SLA.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Panel {
    /// By the clock, with the shortest delay.
    pub clock_at_short_delay: f64,
    /// By the clock, with the longest delay.
    pub clock_at_long_delay: f64,
    /// By the delay, at the slowest clock at which two delays keep the SLA.
    pub delay_at_slow_clock: f64,
    /// By the delay, at the fastest clock.
    pub delay_at_fast_clock: f64,
}

impl Panel {
    /// All four, in the order of the fields.
    pub fn savings(&self) -> [f64; 4] {
        [
            self.clock_at_short_delay,
            self.clock_at_long_delay,
            self.delay_at_slow_clock,
            self.delay_at_fast_clock,
        ]
    }

    /// Mean saving of the clock over that of the delay.
    pub fn clock_over_delay(&self) -> f64 {
        let [short, long, slow, fast] = self.savings();
        (short + long) / (slow + fast)
    }
}

/// Loads of the panels, in requests per second.
pub const LOADS: [f64; 3] = [200e3, 400e3, 600e3];

/// Panels of the library OS, one for each of `LOADS`.
///
/// The notes name the first two figures of each panel the other way round ("slow ITR" for the larger one). Of four
/// corners, the difference between those two equals the difference between the other two; with the names of the notes
/// it has the wrong sign in all six panels.
pub const LIBOS: [Panel; 3] = [
    panel(702.25, 544.91, 21.11, 260.41),
    panel(809.36, 632.57, 25.48, 302.86),
    panel(891.97, 723.47, 30.19, 325.17),
];

/// Panels of Linux, one for each of `LOADS`.
pub const LINUX: [Panel; 3] = [
    panel(1041.8, 760.76, 70.94, 277.91),
    panel(1135.93, 644.14, 90.47, 420.31),
    panel(706.79, 547.11, 92.84, 471.21),
];

const fn panel(short: f64, long: f64, slow: f64, fast: f64) -> Panel {
    Panel {
        clock_at_short_delay: short,
        clock_at_long_delay: long,
        delay_at_slow_clock: slow,
        delay_at_fast_clock: fast,
    }
}

/// The published grid, simulated.
#[derive(Clone, Debug)]
pub struct Measured {
    /// Settings with their runs.
    pub points: Vec<(Setting, RunResult)>,
}

impl Measured {
    /// Simulates the published grid at a load.
    pub fn simulate(machine: &Machine, path: &Path, load: OfferedLoad) -> Self {
        let settings = grid(&CLOCKS_GHZ, &DELAYS_US);
        let points = settings.into_iter().map(|setting| (setting, simulate(machine, path, setting, load)));
        Self { points: points.collect() }
    }

    /// The panel of this grid. A saving of fewer than two settings within the SLA is 0.
    pub fn panel(&self) -> Panel {
        let kept = || self.points.iter().filter(|(_, run)| run.p99_us <= SLA_P99_US);
        let saving = |holds: &dyn Fn(&Setting) -> bool| {
            let joules = || kept().filter(|(setting, _)| holds(setting)).map(|(_, run)| run.joules(SECONDS));
            (joules().fold(0.0, f64::max) - joules().fold(f64::INFINITY, f64::min)).max(0.0)
        };
        let short = DELAYS_US[0];
        let delays = |clock: f64| kept().filter(|(setting, _)| setting.clock_ghz == clock).count();
        let slowest_clock = CLOCKS_GHZ.into_iter().rev().find(|clock| delays(*clock) > 1);
        Panel {
            clock_at_short_delay: saving(&|setting| setting.delay_us() == Some(short)),
            clock_at_long_delay: saving(&|setting| setting.delay_us() == DELAYS_US.last().copied()),
            delay_at_slow_clock: saving(&|setting| Some(setting.clock_ghz) == slowest_clock),
            delay_at_fast_clock: saving(&|setting| setting.clock_ghz == CLOCKS_GHZ[0]),
        }
    }
}
