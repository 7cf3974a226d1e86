//! A load benchmark over a range of connection counts: every count, every round, every side in turn.
//!
//! Promises: every side gets a fresh server on the same core and the same load; the sides alternate within a round, so
//! that what disturbs the machine disturbs all of them; a round with an error ends the run.
//! Not here: how a side is started and loaded; each figure says so in a file of its own.

mod plot;
mod report;

use std::io;

use rustix::process::{Resource, getrlimit, setrlimit};
use serde::Serialize;

use crate::cli::SweepArgs;
use crate::machine::Machine;
use crate::page;

/// Name, heading, load and compared sides of a figure.
pub(crate) struct Figure {
    /// Name of the files with the results, without their ending.
    pub(crate) name: String,
    /// Heading of the page.
    pub(crate) title: &'static str,
    /// The load in words.
    pub(crate) load: String,
    /// All sides; `flick` is one of them.
    pub(crate) sides: &'static [&'static str],
}

/// The figures of one round.
#[derive(Debug, Clone, Copy, Serialize)]
pub(crate) struct Round {
    /// Replies per second, from the end of the warm-up to the last reply.
    pub(crate) requests_per_s: f64,
    /// User time of the server per request.
    pub(crate) user_us: f64,
    /// System time of the server per request.
    pub(crate) system_us: f64,
    /// Share of its core that the server used.
    pub(crate) core_share: f64,
    /// Median latency.
    pub(crate) p50_us: f64,
    /// 99th percentile of the latency.
    pub(crate) p99_us: f64,
}

impl Round {
    /// Processor time of the server per request.
    pub(crate) fn cpu_us(&self) -> f64 {
        self.user_us + self.system_us
    }
}

/// All rounds of one side with one number of connections.
#[derive(Debug, Clone, Serialize)]
pub(crate) struct Point {
    side: &'static str,
    connections: usize,
    rounds: Vec<Round>,
}

/// Runs the figure: calls `measure` with a side and a number of connections, once for each round. Prints the page; with
/// `--results` writes the page, the plot and all rounds.
///
/// Errors: a side that does not exist, or whatever `measure` returns.
pub(crate) fn run(
    figure: &Figure,
    args: &SweepArgs,
    mut measure: impl FnMut(&'static str, usize) -> io::Result<Round>,
) -> io::Result<()> {
    let _boost = args.run.cores.take()?;
    raise_file_limit()?;
    let sides = chosen(figure.sides, &args.only)?;
    let mut points = Vec::new();
    for connections in args.connections.iter().map(|count| *count as usize) {
        let mut rows: Vec<Point> =
            sides.iter().map(|side| Point { side, connections, rounds: Vec::new() }).collect();
        for number in 1..=args.run.rounds.max(1) {
            for row in &mut rows {
                let round = measure(row.side, connections).map_err(|error| {
                    let side = row.side;
                    io::Error::other(format!("{side}, {connections} connections, round {number}: {error}"))
                })?;
                show(row.side, connections, number, &round);
                row.rounds.push(round);
            }
        }
        points.extend(rows);
    }
    let text = report::page(figure, args, &points, &Machine::describe(&args.run.flick.path()));
    print!("{text}");
    if let Some(results) = &args.run.results {
        page::write(results, &format!("{}.md", figure.name), &text)?;
        let file = |ending: &str| results.join(format!("{}.{ending}", figure.name));
        std::fs::write(file("svg"), plot::svg(figure.title, &sides, &points))?;
        std::fs::write(file("json"), serde_json::to_string_pretty(&points)? + "\n")?;
    }
    Ok(())
}

/// The sides to measure, in the figure's order.
fn chosen(all: &'static [&'static str], only: &[String]) -> io::Result<Vec<&'static str>> {
    if let Some(unknown) = only.iter().find(|name| !all.contains(&name.as_str())) {
        return Err(io::Error::other(format!("no side `{unknown}`; there are {}", all.join(", "))));
    }
    Ok(all.iter().copied().filter(|side| only.is_empty() || only.iter().any(|name| name == side)).collect())
}

fn show(side: &str, connections: usize, number: usize, round: &Round) {
    eprintln!(
        "{connections:>5} connections, round {number}, {side:<10} {:>8.0}/s  {:>6.2} us CPU ({:.2} user)  core {:.2}  \
         p50 {:.0} us  p99 {:.0} us",
        round.requests_per_s,
        round.cpu_us(),
        round.user_us,
        round.core_share,
        round.p50_us,
        round.p99_us
    );
}

/// Raises the limit of open files as far as allowed; load and servers inherit it.
pub(crate) fn raise_file_limit() -> io::Result<()> {
    let mut limit = getrlimit(Resource::Nofile);
    limit.current = limit.maximum;
    setrlimit(Resource::Nofile, limit)?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::chosen;

    #[test]
    fn sides_are_chosen_by_name() {
        let only = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect::<Vec<_>>();
        assert_eq!(chosen(&["a", "b"], &[]).ok(), Some(vec!["a", "b"]));
        assert_eq!(chosen(&["a", "b"], &only(&["b"])).ok(), Some(vec!["b"]));
        assert!(chosen(&["a", "b"], &only(&["c"])).is_err());
    }
}
