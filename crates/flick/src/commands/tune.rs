//! `flick tune`: settings that serve a load within an SLA for the least energy, on the model of a server; and the
//! knobs and meters of this machine.
//! Promises: every energy says whether it is modelled or measured; nothing of this machine is changed.
//! Not here: the model and the search (`flick-tune`), what exists on this machine (`tune/knobs.rs`).

mod knobs;
mod model;

use std::path::PathBuf;
use std::str::FromStr;

use clap::{Args, ValueEnum};

use crate::failure::{Failure, Outcome};
use crate::settings::Period;

/// Largest number of trials of a search.
const BUDGET_MAX: i64 = flick_tune::limits::TRIALS_MAX as i64;

/// Searches settings, or shows the knobs of this machine.
#[derive(Debug, Args)]
#[command(group = clap::ArgGroup::new("what").required(true))]
pub struct Tune {
    /// Search on the model of a 16-core server, beside the published figures that it was fitted to
    #[arg(long, group = "what")]
    model: bool,
    /// List the knobs and energy meters of this machine, and why others are missing
    #[arg(long, group = "what")]
    knobs: bool,
    /// Requests per second, such as `400k`. Without it, the model is compared with the published figures
    #[arg(long, value_name = "RATE", requires = "model")]
    load: Option<Rate>,
    /// The tail latency to keep
    #[arg(long, value_name = "p99=DURATION", default_value = "p99=500us")]
    sla: Sla,
    /// The quantity to minimise within the SLA
    #[arg(long = "for", value_name = "GOAL", default_value = "energy")]
    goal: Goal,
    /// The software path of the model
    #[arg(long, value_name = "PATH", default_value = "linux")]
    path: PathName,
    /// Trials of the search
    #[arg(long, value_name = "N", default_value_t = 25, conflicts_with = "grid",
          value_parser = clap::value_parser!(u32).range(1..=BUDGET_MAX))]
    budget: u32,
    /// Try every setting instead of searching
    #[arg(long)]
    grid: bool,
    /// Seed of arrivals and of the search
    #[arg(long, value_name = "N", default_value_t = 1)]
    seed: u64,
    /// Draw the tried settings as SVG: size is the delay, shade the clock, x the least energy, + the lowest tail
    #[arg(long, value_name = "FILE", requires = "model")]
    plot: Option<PathBuf>,
    /// The directory that holds `sys` and `proc`
    #[arg(long, value_name = "DIR", default_value = "/", requires = "knobs")]
    root: PathBuf,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

/// The quantity that is minimised.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Goal {
    /// Energy
    Energy,
    /// Tail latency
    Latency,
}

/// A software path of the model.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum PathName {
    /// Linux
    Linux,
    /// A library operating system, 2.5 times shorter
    Libos,
}

/// Requests per second: `400k`, `1.5M`, `250000`.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Rate(f64);

impl FromStr for Rate {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let (number, unit) = match text.strip_suffix(['k', 'K']) {
            Some(number) => (number, 1e3),
            None => text.strip_suffix('M').map_or((text, 1.0), |number| (number, 1e6)),
        };
        let rate = number.parse::<f64>().ok().map(|number| number * unit);
        let rate = rate.filter(|rate| (model::RATE_MIN..=model::RATE_MAX).contains(rate));
        rate.map(Self).ok_or_else(|| format!("`{text}` is not a rate from 1k to 10M: write `400k` or `1.5M`"))
    }
}

/// A limit of the tail latency, in microseconds.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Sla(f64);

impl FromStr for Sla {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let duration = text.strip_prefix("p99=").ok_or_else(|| format!("`{text}` is not `p99=DURATION`"))?;
        let Period(duration) = duration.parse()?;
        if duration.is_zero() {
            Err("no latency is below 0".to_owned())
        } else {
            Ok(Self(duration.as_secs_f64() * 1e6))
        }
    }
}

impl Tune {
    /// Runs the subcommand.
    pub fn run(self) -> Outcome {
        if self.knobs {
            return knobs::run(&self.root, self.json);
        }
        let text = match self.load {
            Some(Rate(requests_per_s)) => {
                let answer = model::search(&self, requests_per_s);
                self.draw(std::slice::from_ref(&answer.plot), 1)?;
                if self.json { json(&answer.report)? } else { answer.report.text() }
            }
            None => {
                let (panels, plots) = model::compare(self.seed);
                self.draw(&plots, model::COLUMNS)?;
                if self.json { json(&panels)? } else { model::comparison(&panels) }
            }
        };
        crate::console::sayln!("{}", text.trim_end());
        Ok(())
    }

    fn draw(&self, plots: &[flick_tune::plot::Plot], columns: usize) -> Outcome {
        let Some(target) = &self.plot else { return Ok(()) };
        std::fs::write(target, flick_tune::plot::svg(plots, columns, self.sla.0))
            .map_err(|error| Failure::failed(format!("cannot write {}: {error}", target.display())))
    }
}

/// A result as JSON.
fn json(value: &impl serde::Serialize) -> Result<String, Failure> {
    serde_json::to_string_pretty(value)
        .map_err(|error| Failure::failed(format!("cannot print JSON: {error}")))
}

#[cfg(test)]
mod tests {
    use super::{Rate, Sla};

    #[test]
    fn rates_and_slas_have_units() {
        assert_eq!("400k".parse(), Ok(Rate(400e3)));
        assert_eq!("1.5M".parse(), Ok(Rate(1.5e6)));
        assert_eq!("250000".parse(), Ok(Rate(250e3)));
        assert_eq!("p99=500us".parse(), Ok(Sla(500.0)));
        assert_eq!("p99=2ms".parse(), Ok(Sla(2000.0)));
        for wrong in ["", "k", "-1k", "nan", "1e99", "10"] {
            assert!(wrong.parse::<Rate>().is_err(), "{wrong}");
        }
        for wrong in ["500us", "p99=", "p99=5", "p99=0", "p50=1ms"] {
            assert!(wrong.parse::<Sla>().is_err(), "{wrong}");
        }
    }
}
