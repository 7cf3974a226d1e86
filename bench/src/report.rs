//! Results as files: JSON for machines, Markdown for readers.
//!
//! Promises: both hold the same figures, the machine, and the configuration of every side.

use std::collections::BTreeMap;
use std::fmt::Write;
use std::path::Path;

use serde::Serialize;

use crate::machine::Machine;
use crate::measure::Round;
use crate::stats::Spread;

/// The rounds of one side, summed up.
#[derive(Debug, Clone, Serialize)]
pub(crate) struct SideResult {
    pub(crate) side: &'static str,
    pub(crate) replies_per_s: Spread,
    pub(crate) cpu_us_per_request: Spread,
    pub(crate) server_load: Spread,
    pub(crate) p50_us: Spread,
    pub(crate) p99_us: Spread,
    pub(crate) p999_us: Spread,
    pub(crate) rounds: Vec<Round>,
}

impl SideResult {
    /// Sums up `rounds`, of which there is at least one.
    pub(crate) fn of(side: &'static str, rounds: Vec<Round>) -> SideResult {
        let spread = |figure: fn(&Round) -> f64| Spread::of(rounds.iter().map(figure));
        SideResult {
            side,
            replies_per_s: spread(|round| round.replies_per_s),
            cpu_us_per_request: spread(|round| round.cpu_us_per_request),
            server_load: spread(|round| round.server_load),
            p50_us: spread(|round| round.p50_us),
            p99_us: spread(|round| round.p99_us),
            p999_us: spread(|round| round.p999_us),
            rounds,
        }
    }
}

/// Medians of one side over those of another.
#[derive(Debug, Clone, Serialize)]
pub(crate) struct Ratio {
    pub(crate) of: &'static str,
    pub(crate) to: &'static str,
    pub(crate) replies_per_s: f64,
    pub(crate) cpu_us_per_request: f64,
    pub(crate) p50_us: f64,
    pub(crate) p99_us: f64,
}

impl Ratio {
    fn between(of: &SideResult, to: &SideResult) -> Ratio {
        let ratio = |figure: fn(&SideResult) -> Spread| figure(of).median / figure(to).median;
        Ratio {
            of: of.side,
            to: to.side,
            replies_per_s: ratio(|side| side.replies_per_s),
            cpu_us_per_request: ratio(|side| side.cpu_us_per_request),
            p50_us: ratio(|side| side.p50_us),
            p99_us: ratio(|side| side.p99_us),
        }
    }
}

/// Everything one comparison has found.
#[derive(Debug, Clone, Serialize)]
pub(crate) struct Comparison {
    pub(crate) name: String,
    /// The load in words.
    pub(crate) load: String,
    pub(crate) machine: Machine,
    /// How each side was started and configured.
    pub(crate) configurations: BTreeMap<&'static str, String>,
    pub(crate) sides: Vec<SideResult>,
    pub(crate) ratios: Vec<Ratio>,
}

impl Comparison {
    /// Fills in the ratios of flick, or of the first side there is, to every other side.
    pub(crate) fn with_ratios(mut self) -> Comparison {
        let first = self.sides.iter().position(|side| side.side == "flick").unwrap_or(0);
        let others = self.sides.iter().enumerate().filter(|(at, _)| *at != first);
        self.ratios = others.map(|(_, other)| Ratio::between(&self.sides[first], other)).collect();
        self
    }

    /// Writes `NAME.json` and `NAME.md` into `dir`.
    pub(crate) fn write(&self, dir: &Path) -> std::io::Result<()> {
        std::fs::create_dir_all(dir)?;
        std::fs::write(dir.join(format!("{}.json", self.name)), serde_json::to_string_pretty(self)? + "\n")?;
        std::fs::write(dir.join(format!("{}.md", self.name)), self.markdown())
    }

    /// Returns the result for readers.
    pub(crate) fn markdown(&self) -> String {
        let mut text = format!("# {}\n\n{}\n\n", self.name, self.load);
        text.push_str(
            "Median of the rounds, with the least and the greatest in brackets. Times in microseconds.\n\n",
        );
        text.push_str("| side | requests/s | CPU per request | server's core | p50 | p99 | p99.9 |\n");
        text.push_str("|---|---|---|---|---|---|---|\n");
        for side in &self.sides {
            let cells = [
                cell(side.replies_per_s, 0),
                cell(side.cpu_us_per_request, 2),
                cell(side.server_load, 2),
                cell(side.p50_us, 0),
                cell(side.p99_us, 0),
                cell(side.p999_us, 0),
            ];
            line(&mut text, &format!("| {} | {} |", side.side, cells.join(" | ")));
        }
        if !self.ratios.is_empty() {
            text.push_str(
                "\n| ratio of medians | requests/s | CPU per request | p50 | p99 |\n|---|---|---|---|---|\n",
            );
        }
        for ratio in &self.ratios {
            let (of, to) = (ratio.of, ratio.to);
            let (rate, cpu) = (ratio.replies_per_s, ratio.cpu_us_per_request);
            let (p50, p99) = (ratio.p50_us, ratio.p99_us);
            line(&mut text, &format!("| {of} / {to} | {rate:.2} | {cpu:.2} | {p50:.2} | {p99:.2} |"));
        }
        let machine = &self.machine;
        line(&mut text, "\n## Machine\n");
        line(&mut text, &format!("- kernel {}, {} cores of {}", machine.kernel, machine.cores, machine.cpu));
        line(&mut text, &format!("- {} MiB of memory", machine.memory_mib));
        for (name, version) in &machine.versions {
            line(&mut text, &format!("- {name}: {version}"));
        }
        line(&mut text, "\n## Configurations");
        for (side, configuration) in &self.configurations {
            line(&mut text, &format!("\n{side}:\n\n```text\n{}\n```", configuration.trim_end()));
        }
        text
    }
}

fn cell(spread: Spread, digits: usize) -> String {
    format!("{:.digits$} ({:.digits$}–{:.digits$})", spread.median, spread.min, spread.max)
}

fn line(text: &mut String, line: &str) {
    writeln!(text, "{line}").expect("writing into memory does not fail");
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ratios_compare_flick_with_the_others() {
        let round = |rate: f64| Round {
            replies: 1,
            replies_per_s: rate,
            cpu_us_per_request: 1e6 / rate,
            server_load: 1.0,
            mean_us: 1.0,
            p50_us: 1.0,
            p99_us: 1.0,
            p999_us: 1.0,
            max_us: 1.0,
        };
        let comparison = Comparison {
            name: "sample".to_owned(),
            load: "one client".to_owned(),
            machine: Machine {
                kernel: "6".to_owned(),
                cpu: "x".to_owned(),
                cores: 2,
                memory_mib: 1,
                versions: BTreeMap::new(),
            },
            configurations: BTreeMap::new(),
            sides: vec![
                SideResult::of("twemproxy", vec![round(50.0), round(40.0), round(60.0)]),
                SideResult::of("flick", vec![round(100.0)]),
            ],
            ratios: Vec::new(),
        }
        .with_ratios();
        let text = comparison.markdown();
        assert!(text.contains("| flick / twemproxy | 2.00 | 0.50 | 1.00 | 1.00 |"), "{text}");
        assert!(text.contains("| twemproxy | 50 (40–60) |"), "{text}");
    }
}
