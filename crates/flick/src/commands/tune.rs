//! `flick tune`: settings that serve a load within an SLA for the least energy, of a running service or on the model of
//! a server; and the knobs and meters of this machine.
//! Promises: every energy says whether it is modelled or measured; what a search has turned is put back, unless it is
//! to be applied.
//! Not here: the model and the search (`flick-tune`), a search on a service (`tune/service.rs`), what exists on this
//! machine (`tune/knobs.rs`), and how it is turned (`tune/kernel.rs`).

mod fitted;
mod kernel;
mod knobs;
mod live;
mod model;
mod netlink;
mod rapl;
mod restore;
mod service;
mod target;
mod tree;
mod trials;

use std::path::PathBuf;
use std::str::FromStr;
use std::time::Duration;

use clap::{Args, ValueEnum};
use flick_admin::Address;

use crate::commands::load::values::Bound;
use crate::failure::{Failure, Outcome};
use crate::settings::units::Bounded;

/// Shortest and longest time of a trial on a running service.
const DWELL_MIN_US: u64 = 100_000;
const DWELL_MAX_US: u64 = 60_000_000;
const DWELL_MAX: Duration = Duration::from_micros(DWELL_MAX_US);

/// The SLA of a search on the model.
const MODEL_SLA: &str = "p99:500us";

/// Largest number of trials of a search.
const BUDGET_MAX: i64 = flick_tune::limits::TRIALS_MAX as i64;

/// Searches settings, or shows the knobs of this machine.
#[derive(Debug, Args)]
#[command(
    override_usage = "flick tune [OPTIONS] <ADDRESS|--model [FILE]|--knobs>",
    after_help = "\
Examples:
  flick tune 9900 --sla p99:500us
  flick tune 9900 --sla p99:2ms --apply --settings flick.toml
  flick tune 9900 --sla p99:500us --model proxy.json
  flick tune --model proxy.json --sla p99:1ms
  flick tune --model --load 400k --sla p99:500us"
)]
pub struct Tune {
    /// Search on a running service under its present load: turns its tunables, and puts them back. The address is that
    /// of its admin endpoint, as given to `flick run --admin`: `9900`, `ADDRESS:PORT`, `unix:PATH`
    #[arg(value_name = "ADDRESS")]
    admin: Option<Address>,
    /// Choose by a model instead of trials: that of a service in FILE, which a search at ADDRESS writes if it does not
    /// exist. Without FILE, search on the model of a 16-core server, beside the published figures that it was fitted to
    #[arg(long, value_name = "FILE", num_args = 0..=1)]
    model: Option<Option<PathBuf>>,
    /// List the knobs and energy meters of this machine, and why others are missing
    #[arg(long, conflicts_with_all = ["admin", "model"])]
    knobs: bool,
    /// Requests per second, such as `400k`. Without it, the model is compared with the published figures
    #[arg(long, value_name = "RATE", requires = "model")]
    load: Option<Rate>,
    /// The latency to keep, such as `p99:500us`; of a service also p50, p90 and p99.9 [default on the model: p99:500us]
    #[arg(long, value_name = "BOUND")]
    sla: Option<Bound>,
    /// The service, if the process runs several
    #[arg(long, value_name = "NAME", requires = "admin")]
    service: Option<String>,
    /// Time of each trial on a service
    #[arg(long, value_name = "DURATION", default_value = "2s", requires = "admin")]
    dwell: Bounded<DWELL_MIN_US, DWELL_MAX_US>,
    /// Leave the best setting in force if it was better than the present one each time that both were compared
    #[arg(long, requires = "admin")]
    apply: bool,
    /// Write what is applied to `[limits]` of this settings file, too
    #[arg(long, value_name = "FILE", requires = "apply")]
    settings: Option<PathBuf>,
    /// Also turn these knobs of the kernel, and restore them. They are those of the whole machine, and need its
    /// administrator
    #[arg(long, value_name = "KNOB", value_delimiter = ',', requires = "admin")]
    kernel: Vec<kernel::KernelKnobName>,
    /// Network interface of the knobs that belong to one
    #[arg(long, value_name = "NAME", requires = "kernel")]
    interface: Option<String>,
    /// File with the token of the admin endpoint
    #[arg(long, value_name = "FILE", requires = "admin")]
    token_file: Option<PathBuf>,
    /// The quantity to minimise within the SLA
    #[arg(long = "for", value_name = "GOAL", default_value = "energy")]
    goal: Goal,
    /// The software path of the model
    #[arg(long, value_name = "PATH", default_value = "linux", requires = "model")]
    path: PathName,
    /// Trials of the search
    #[arg(long, value_name = "N", default_value_t = 25, conflicts_with = "grid",
          value_parser = clap::value_parser!(u32).range(1..=BUDGET_MAX))]
    budget: u32,
    /// Try every setting instead of searching
    #[arg(long, requires = "model")]
    grid: bool,
    /// Seed of arrivals and of the search
    #[arg(long, value_name = "N", default_value_t = 1)]
    seed: u64,
    /// Draw the tried settings as SVG: size is the delay, shade the clock, x the least energy, + the lowest tail
    #[arg(long, value_name = "FILE", requires = "model")]
    plot: Option<PathBuf>,
    /// The directory that holds `sys` and `proc`, which tests choose
    #[arg(long, hide = true, value_name = "DIR", default_value = "/")]
    root: PathBuf,
    /// Read what a search turns, and put it back when the search has ended
    #[arg(long, hide = true, conflicts_with_all = ["admin", "model", "knobs"])]
    watcher: bool,
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

impl Tune {
    /// Runs the subcommand.
    pub fn run(self) -> Outcome {
        if self.knobs {
            return knobs::run(&self.root, self.json);
        }
        if self.watcher {
            return restore::watch();
        }
        if self.admin.is_none() && self.model.is_none() {
            return Err(Failure::usage(
                "nothing is to be searched or listed: add the ADDRESS of an admin endpoint, `--model [FILE]` or `--knobs`",
            ));
        }
        if let Some(Some(_)) = &self.model {
            let of_server =
                [("--load", self.load.is_some()), ("--grid", self.grid), ("--plot", self.plot.is_some())];
            if let Some((option, _)) = of_server.iter().find(|(_, is_given)| *is_given) {
                return Err(Failure::usage(format!(
                    "{option} is for the model of a server, `--model` without FILE"
                )));
            }
        }
        match (&self.admin, &self.model) {
            (Some(_), Some(None)) => {
                return Err(Failure::usage("the model of a service is in a file: --model FILE"));
            }
            (Some(admin), _) => return service::run(&self, admin),
            (None, Some(Some(path))) => return service::predict(&self, path),
            (None, _) => {}
        }
        let sla_us = self.model_sla_us()?;
        let mut is_kept = true;
        let text = match self.load {
            Some(Rate(requests_per_s)) => {
                let answer = model::search(&self, requests_per_s, sla_us);
                is_kept = answer.report.keeps_sla();
                self.draw(std::slice::from_ref(&answer.plot), 1, sla_us)?;
                if self.json { json(&answer.report)? } else { answer.report.text() }
            }
            None => {
                let (panels, plots) = model::compare(self.seed);
                self.draw(&plots, model::COLUMNS, sla_us)?;
                if self.json { json(&panels)? } else { model::comparison(&panels) }
            }
        };
        crate::console::sayln!("{}", text.trim_end());
        match is_kept {
            true => Ok(()),
            false => Err(Failure::failed("no setting that was tried keeps the SLA")),
        }
    }

    /// The file of a service's model.
    fn model_file(&self) -> Option<&std::path::Path> {
        self.model.as_ref()?.as_deref()
    }

    /// The p99 to keep on the model, which has no other percentile of a tail.
    fn model_sla_us(&self) -> Result<f64, Failure> {
        let sla = self.sla.unwrap_or_else(|| MODEL_SLA.parse().expect("the default is a bound"));
        match sla.name() {
            "p99" => Ok(sla.latency_us() as f64),
            other => {
                Err(Failure::usage(format!("the model keeps a p99, and no {other}: `--sla {MODEL_SLA}`")))
            }
        }
    }

    fn draw(&self, plots: &[flick_tune::plot::Plot], columns: usize, sla_us: f64) -> Outcome {
        let Some(target) = &self.plot else { return Ok(()) };
        std::fs::write(target, flick_tune::plot::svg(plots, columns, sla_us))
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
    use super::Rate;

    #[test]
    fn rates_have_units() {
        assert_eq!("400k".parse(), Ok(Rate(400e3)));
        assert_eq!("1.5M".parse(), Ok(Rate(1.5e6)));
        assert_eq!("250000".parse(), Ok(Rate(250e3)));
        for wrong in ["", "k", "-1k", "nan", "1e99", "10"] {
            assert!(wrong.parse::<Rate>().is_err(), "{wrong}");
        }
    }
}
