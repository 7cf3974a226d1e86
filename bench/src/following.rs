//! The memcached proxy with tunables that follow its load (`[tune]`), over a day's load curve compressed into minutes,
//! beside the fixed settings of the same ladder.
//!
//! Promises: each side has the same loads in the same order, and is judged by its own histogram, an interval of a
//! second standing for a minute of a day; replies are checked.
//! Not here: the decisions (`flick_tune::follow`), which are tested on the model too.

use std::fmt::Write as _;
use std::fs::File;
use std::io;
use std::path::Path;
use std::time::Duration;

use flick_load::load::{self, LoadConfig};

use crate::cli::FollowingArgs;
use crate::machine::Machine;
use crate::memcached_proxy::memcached;
use crate::page;
use crate::process::{ScratchDir, Server, free_addr, workspace};

/// A day with its peak in the evening, two bursts and a step, as shares of the peak; one for each hour.
const DAY: [f64; 24] = [
    0.25, 0.18, 0.12, 0.09, 0.06, 0.06, 0.10, 0.18, 0.30, 0.45, 0.9, 0.5, // a burst at 10
    0.5, 0.5, 0.5, 0.8, 0.8, 0.8, 0.9, 1.0, 1.0, 0.7, 1.0, 0.4, // a step at 15, a burst at 22
];

/// Clients of the proxy.
const CONNECTIONS: usize = 16;

/// Least share of the possible saving.
const GOAL_SAVING: f64 = 0.9;

/// A setting of the service.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Side {
    name: &'static str,
    /// First values of the two tunables.
    busy_poll: &'static str,
    batch_delay: &'static str,
    /// Whether they change.
    follows: bool,
}

/// The fastest setting comes first; the last one follows.
const SIDES: [Side; 5] = [
    Side { name: "busy poll 100 µs", busy_poll: "100us", batch_delay: "0", follows: false },
    Side { name: "busy poll 20 µs", busy_poll: "20us", batch_delay: "0", follows: false },
    Side { name: "neither", busy_poll: "0", batch_delay: "0", follows: false },
    Side { name: "batch delay 100 µs", busy_poll: "0", batch_delay: "100us", follows: false },
    Side { name: "following", busy_poll: "100us", batch_delay: "0", follows: true },
];

/// Costs of one load of a day.
#[derive(Debug, Clone, Copy)]
struct Hour {
    cpu: Duration,
    /// Intervals, and those beyond the SLA.
    intervals: usize,
    exceeded: usize,
    changes: usize,
    p90_us: u64,
}

/// Runs all sides, prints the table, and writes the page.
pub(crate) fn run(args: &FollowingArgs) -> io::Result<()> {
    let _boost = args.run.cores.take()?;
    let limit_us = limit_us(&args.sla)?;
    let scratch = ScratchDir::new("following")?;
    let core = args.run.cores.load_core;
    let backend = memcached(free_addr()?, core, core)?;
    let mut text = String::new();
    for round in 1..=args.run.rounds.max(1) {
        let mut days = Vec::new();
        for side in SIDES {
            eprintln!("round {round}: {}", side.name);
            days.push(day(args, side, &backend, &scratch.0, limit_us)?);
        }
        let table = table(&days, round);
        print!("{table}");
        text.push_str(&table);
    }
    let Some(results) = &args.run.results else { return Ok(()) };
    let machine = Machine::describe(&args.run.flick.path());
    let head = format!(
        "# Tunables that follow the load\n\nThe memcached proxy with `--tune-sla {} --tune-interval 1s \
         --tune-max-batch-delay 100us`, 24 loads of {} s and up to {:.0} requests/s. Method: \
         [METHOD.md](../METHOD.md#tunables-that-follow-the-load).\n\n- Linux {}, {}, {} cores\n\n",
        args.sla, args.seconds, args.peak, machine.kernel, machine.cpu, machine.cores,
    );
    page::write(results, "following.md", &(head + &text))
}

/// Microseconds of an SLA such as `p90:500us`.
fn limit_us(sla: &str) -> io::Result<f64> {
    let limit = sla.split_once(':').and_then(|(_, time)| time.strip_suffix("us")?.parse().ok());
    limit.ok_or_else(|| io::Error::other(format!("{sla} is no SLA in microseconds, such as p90:500us")))
}

/// The day of one side.
fn day(
    args: &FollowingArgs,
    side: Side,
    backend: &Server,
    dir: &Path,
    limit_us: f64,
) -> io::Result<Vec<Hour>> {
    let (addr, log) = (free_addr()?, dir.join("following.log"));
    let mut command = args.run.flick.run(&workspace().join("examples/memcached_proxy/memcached_proxy.flick"));
    command.arg("-v").arg("--listen").arg(format!("client={addr}"));
    command.arg("--connect").arg(format!("backends={}", backend.addr));
    command.args(["--busy-poll", side.busy_poll, "--batch-delay-max", side.batch_delay]);
    command.args(["--tune-sla", &args.sla, "--tune-interval", "1s", "--tune-max-batch-delay", "100us"]);
    command.args(["--tune-mode", if side.follows { "on" } else { "dry-run" }]);
    let cores = &args.run.cores;
    let server =
        Server::start_with_log(command, cores.server_core, cores.load_core, addr, File::create(&log)?)?;
    let mut seen = 0;
    let mut hours = Vec::new();
    for share in DAY {
        let config = LoadConfig {
            connections: CONNECTIONS,
            rate_per_s: Some((share * args.peak).max(1.0)),
            duration: Some(Duration::from_secs(args.seconds)),
            ..LoadConfig::new(addr)
        };
        if hours.is_empty() {
            load::populate(&config)?;
        }
        let before = server.cpu_time_of_threads()?;
        let report = load::run(config)?;
        let cpu = server.cpu_time_of_threads()?.saturating_sub(before);
        if report.faults() > 0 || report.replies == 0 {
            return Err(io::Error::other(format!("the day is void: {:?}", report.counts)));
        }
        hours.push(Hour { cpu, p90_us: report.latency.p90_us, ..look_at(&log, &mut seen, limit_us)? });
    }
    Ok(hours)
}

/// Counts what the service has logged of its intervals since the last look.
fn look_at(log: &Path, seen: &mut usize, limit_us: f64) -> io::Result<Hour> {
    let text = std::fs::read_to_string(log)?;
    let new = &text[*seen..];
    let whole = new.rfind('\n').map_or(0, |end| end + 1);
    *seen += whole;
    let mut hour = Hour { cpu: Duration::ZERO, intervals: 0, exceeded: 0, changes: 0, p90_us: 0 };
    for line in new[..whole].lines() {
        let Some(limited) = limited_us(line) else { continue };
        hour.intervals += 1;
        hour.exceeded += usize::from(limited > limit_us);
        hour.changes += usize::from(line.contains("tunables change:"));
    }
    Ok(hour)
}

/// The latency in a line about an interval: `tunables stay: the SLA is kept (p90 212us, 5012 requests/s) ...`.
fn limited_us(line: &str) -> Option<f64> {
    let (_, behind) = line.split_once("(p")?;
    let (latency, rate) = behind.split_once("us, ")?;
    rate.contains(" requests/s)").then(|| latency.split_once(' ')?.1.parse().ok())?
}

/// The table of a round, and what it shows.
fn table(days: &[Vec<Hour>], round: usize) -> String {
    let cpu = |day: &[Hour]| day.iter().map(|hour| hour.cpu.as_secs_f64()).sum::<f64>();
    let mut text = format!(
        "Round {round}:\n\n| side | CPU | intervals | beyond the SLA | changes | p90 at the client, highest |\n\
         |---|--:|--:|--:|--:|--:|\n"
    );
    for (side, day) in SIDES.iter().zip(days) {
        let sum = |of: fn(&Hour) -> usize| day.iter().map(of).sum::<usize>();
        let _ = writeln!(
            text,
            "| {} | {:.2} s | {} | {} | {} | {} µs |",
            side.name,
            cpu(day),
            sum(|hour| hour.intervals),
            sum(|hour| hour.exceeded),
            sum(|hour| hour.changes),
            day.iter().map(|hour| hour.p90_us).max().unwrap_or(0),
        );
    }
    let (following, fixed) = days.split_last().expect("the sides are a constant");
    let oracle: f64 = (0..DAY.len()).map(|hour| best(fixed, hour)).sum();
    let saving = (cpu(&fixed[0]) - cpu(following)) / (cpu(&fixed[0]) - oracle);
    let mark = if saving >= GOAL_SAVING { "✓" } else { "✗" };
    let _ = writeln!(
        text,
        "\nThe cheapest fixed setting that keeps the SLA, chosen for each load with knowledge of it, takes {oracle:.2} s; \
         following saves {:.0} % of what that saves (goal {:.0} %, {mark}).\n",
        100.0 * saving,
        100.0 * GOAL_SAVING,
    );
    text
}

/// Processor seconds of the cheapest fixed setting that keeps the SLA at a load, or of the fastest one.
fn best(fixed: &[Vec<Hour>], hour: usize) -> f64 {
    let hours = fixed.iter().map(|day| day[hour]);
    let kept = hours.filter(|hour| hour.exceeded == 0).map(|hour| hour.cpu.as_secs_f64());
    kept.min_by(f64::total_cmp).unwrap_or_else(|| fixed[0][hour].cpu.as_secs_f64())
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::{Hour, best, limited_us};

    #[test]
    fn latency_of_a_log_line() {
        let line =
            "DEBUG flick: tunables stay: the SLA is kept (p90 212us, 5012 requests/s) service=\"Proxy\"";
        assert_eq!(limited_us(line), Some(212.0));
        assert_eq!(limited_us("DEBUG flick: accepted (peer 1.2.3.4, 5012 bytes)"), None);
    }

    #[test]
    fn oracle_takes_the_cheapest_that_keeps_the_sla() {
        let hour = |millis, exceeded| {
            let cpu = Duration::from_millis(millis);
            vec![Hour { cpu, intervals: 8, exceeded, changes: 0, p90_us: 0 }]
        };
        assert_eq!(best(&[hour(900, 0), hour(500, 0), hour(300, 1)], 0), 0.5);
        assert_eq!(best(&[hour(900, 2), hour(500, 1)], 0), 0.9);
    }
}
