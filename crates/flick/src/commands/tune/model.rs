//! `flick tune --model`: a search on the model, and the model beside the published figures.
//! Promises: the same seed prints the same text; energies are modelled and say so.

use std::fmt::Write as _;

use flick_check::counted;
use flick_tune::plot::{Plot, Point};
use flick_tune::published::{LIBOS, LINUX, LOADS, Measured, SECONDS};
use flick_tune::{Machine, OfferedLoad, Path, RunResult, Search, Setting, Trial, grid, simulate};
use serde::Serialize;

use super::{Goal, PathName, Tune};

/// Smallest and largest rate that is simulated.
pub(super) const RATE_MIN: f64 = 1e3;
pub(super) const RATE_MAX: f64 = 10e6;

/// Plots in a row: one for each published load.
pub(super) const COLUMNS: usize = LOADS.len();

/// Requests of a simulated run.
const REQUESTS: usize = 40_000;

/// Clocks that are searched, in GHz and tenths.
const CLOCK_TENTHS: std::ops::RangeInclusive<u32> = 12..=29;

/// Delays that are searched, in steps of `DELAY_STEP_US`.
const DELAY_STEPS: std::ops::RangeInclusive<u32> = 1..=16;
const DELAY_STEP_US: f64 = 25.0;

/// A search that has ended.
pub(super) struct Answer {
    pub(super) report: Report,
    pub(super) plot: Plot,
}

/// The result of a search.
#[derive(Serialize)]
pub(super) struct Report {
    energy: &'static str,
    path: &'static str,
    requests_per_s: f64,
    sla_p99_us: f64,
    goal: &'static str,
    trials: usize,
    /// The fastest clock and the shortest delay.
    default: Chosen,
    /// The answer, if any trial keeps the SLA.
    best: Option<Chosen>,
}

/// One setting with its outcome.
#[derive(Clone, Copy, Serialize)]
struct Chosen {
    clock_ghz: f64,
    delay_us: f64,
    p50_us: f64,
    p99_us: f64,
    watts: f64,
    joules_per_million_requests: f64,
}

impl Chosen {
    fn new(setting: Setting, outcome: &RunResult, requests_per_s: f64) -> Self {
        Self {
            clock_ghz: setting.clock_ghz,
            delay_us: setting.delay_us().unwrap_or(0.0),
            p50_us: outcome.p50_us,
            p99_us: outcome.p99_us,
            watts: outcome.watts,
            joules_per_million_requests: outcome.watts / requests_per_s * 1e6,
        }
    }

    /// Whether it is the same setting.
    fn is_as(&self, other: &Self) -> bool {
        self.clock_ghz == other.clock_ghz && self.delay_us == other.delay_us
    }
}

/// All settings that are searched, from fast to slow.
fn settings() -> Vec<Setting> {
    let clocks: Vec<f64> = CLOCK_TENTHS.rev().map(|tenths| f64::from(tenths) / 10.0).collect();
    let delays: Vec<f64> = DELAY_STEPS.map(|steps| f64::from(steps) * DELAY_STEP_US).collect();
    grid(&clocks, &delays)
}

/// A setting's clock and delay, from 0 to 1.
fn coordinates(setting: &Setting) -> Vec<f64> {
    let share = |value: f64, low: f64, high: f64| (value - low) / (high - low);
    let (low, high) = (f64::from(*CLOCK_TENTHS.start()), f64::from(*CLOCK_TENTHS.end()));
    let (short, long) = (f64::from(*DELAY_STEPS.start()), f64::from(*DELAY_STEPS.end()));
    vec![
        share(setting.clock_ghz * 10.0, low, high),
        share(setting.delay_us().unwrap_or(0.0) / DELAY_STEP_US, short, long),
    ]
}

fn path(name: PathName) -> Path {
    match name {
        PathName::Linux => Path::linux(),
        PathName::Libos => Path::libos(),
    }
}

/// Searches the best setting for a load.
pub(super) fn search(tune: &Tune, requests_per_s: f64, sla_p99_us: f64) -> Answer {
    let (machine, path) = (Machine::published(), path(tune.path));
    let settings = settings();
    let run = |setting: Setting, seed: u64| {
        simulate(&machine, &path, setting, OfferedLoad { requests_per_s, requests: REQUESTS, seed })
    };
    let cost = |outcome: &RunResult| match tune.goal {
        Goal::Energy => outcome.watts,
        Goal::Latency => outcome.p99_us,
    };
    let mut tried: Vec<(Setting, RunResult)> = Vec::new();
    let best = if tune.grid {
        tried = settings.iter().map(|setting| (*setting, run(*setting, tune.seed))).collect();
        let kept = tried.iter().filter(|(_, outcome)| outcome.p99_us <= sla_p99_us);
        kept.min_by(|(_, left), (_, right)| cost(left).total_cmp(&cost(right))).map(|(setting, _)| *setting)
    } else {
        let mut search = Search::new(settings.iter().map(coordinates).collect(), sla_p99_us, tune.seed);
        for trial in 0..tune.budget {
            let candidate = search.next_candidate();
            // Each trial has arrivals of its own, as on a machine: the search has noise to cope with.
            let outcome = run(settings[candidate], tune.seed.wrapping_add(u64::from(trial) + 1));
            search.observe(Trial { candidate, cost: cost(&outcome), limited: outcome.p99_us });
            tried.push((settings[candidate], outcome));
        }
        search.best().map(|candidate| settings[candidate])
    };
    let chosen = |setting: Setting| Chosen::new(setting, &run(setting, tune.seed), requests_per_s);
    let report = Report {
        energy: "modelled",
        path: path.name,
        requests_per_s,
        sla_p99_us,
        goal: if tune.goal == Goal::Energy { "energy" } else { "latency" },
        trials: tried.len(),
        default: chosen(settings[0]),
        best: best.map(chosen),
    };
    Answer { report, plot: plot(format!("{}, {:.0}k requests/s", path.name, requests_per_s / 1e3), &tried) }
}

fn plot(title: String, tried: &[(Setting, RunResult)]) -> Plot {
    let point = |(setting, outcome): &(Setting, RunResult)| Point {
        setting: *setting,
        p99_us: outcome.p99_us,
        joules: outcome.joules(SECONDS),
    };
    Plot { title, points: tried.iter().map(point).collect() }
}

impl Report {
    /// Whether a setting that was tried keeps the SLA.
    pub(super) fn keeps_sla(&self) -> bool {
        self.best.is_some()
    }

    pub(super) fn text(&self) -> String {
        let mut out = format!(
            "{} at {:.0} requests/s on the model, p99 at most {:.0} µs, for {}: {}\n\n\
             {:9} {:>6} {:>9} {:>8} {:>8} {:>14} {:>22}\n",
            self.path,
            self.requests_per_s,
            self.sla_p99_us,
            self.goal,
            counted(self.trials, "trial"),
            "",
            "clock",
            "delay",
            "p50",
            "p99",
            "W (modelled)",
            "J/M requests (modelled)"
        );
        let rows = [("default", Some(&self.default)), ("best", self.best.as_ref())];
        for (name, chosen) in rows.into_iter().filter_map(|(name, chosen)| Some((name, chosen?))) {
            let _ = writeln!(
                out,
                "{name:9} {:>3.1}GHz {:>7.0}us {:>6.0}us {:>6.0}us {:>14.1} {:>22.1}",
                chosen.clock_ghz,
                chosen.delay_us,
                chosen.p50_us,
                chosen.p99_us,
                chosen.watts,
                chosen.joules_per_million_requests
            );
        }
        if self.default.p99_us > self.sla_p99_us {
            out.push_str("\nthe default does not keep the SLA\n");
        }
        match self.best {
            // The error says so.
            None => {}
            Some(best) if best.is_as(&self.default) => out.push_str("\nthe default is the best\n"),
            Some(best) => {
                let change = 100.0 * (best.watts / self.default.watts - 1.0);
                let setting = |chosen: &Chosen| {
                    format!("clock {:.1}GHz, rx-usecs {:.0}", chosen.clock_ghz, chosen.delay_us)
                };
                let (former, new) = (setting(&self.default), setting(&best));
                let _ = writeln!(out, "\n- {former}\n+ {new}   # energy {change:+.0} % (modelled)");
            }
        }
        out
    }
}

/// The savings of one system at one load.
#[derive(Serialize)]
pub(super) struct Compared {
    energy: &'static str,
    path: &'static str,
    requests_per_s: f64,
    /// The model was fitted to this panel.
    is_fitted: bool,
    modelled_joules: [f64; 4],
    published_joules: [f64; 4],
}

/// Simulates the published grid at every published load.
pub(super) fn compare(seed: u64) -> (Vec<Compared>, Vec<Plot>) {
    let machine = Machine::published();
    let mut panels = Vec::new();
    let mut plots = Vec::new();
    for (path, published) in [(Path::linux(), LINUX), (Path::libos(), LIBOS)] {
        for (index, requests_per_s) in LOADS.into_iter().enumerate() {
            let load = OfferedLoad { requests_per_s, requests: REQUESTS, seed };
            let measured = Measured::simulate(&machine, &path, load);
            panels.push(Compared {
                energy: "modelled",
                path: path.name,
                requests_per_s,
                is_fitted: index == 0,
                modelled_joules: measured.panel().savings(),
                published_joules: published[index].savings(),
            });
            plots.push(plot(
                format!("{}, {:.0}k requests/s", path.name, requests_per_s / 1e3),
                &measured.points,
            ));
        }
    }
    (panels, plots)
}

/// The comparison as a table.
pub(super) fn comparison(panels: &[Compared]) -> String {
    let mut out = "Savings in J (modelled) of 30 s, published figures in brackets. Fitted at 200k, predicted above.\n\n\
                   path   requests/s  clock, short delay  clock, long delay  delay, slow clock  delay, fast clock\n"
        .to_owned();
    for panel in panels {
        let _ = write!(out, "{:6} {:>9.0}k", panel.path, panel.requests_per_s / 1e3);
        for (modelled, published) in panel.modelled_joules.iter().zip(panel.published_joules) {
            let _ = write!(out, "  {:>17}", format!("{modelled:.0} ({published:.0})"));
        }
        out.push_str(if panel.is_fitted { "  fitted\n" } else { "\n" });
    }
    out
}
