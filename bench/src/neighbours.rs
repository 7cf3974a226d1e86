//! Two services on one thread: one whose latency matters, and one that is flooded.
//!
//! Promises: the load on the first is the same open loop in every case; the cases alternate within each round; a wrong
//! or missing reply ends the run. Two clocks: the time of the service, from handing a request to the socket to the
//! kernel's timestamp on its reply, and the latency at the load, each request charged from when it was due. The flood
//! runs on the load's core, and while it is in the kernel the load waits: the second clock has that wait, the first has
//! not.
//! Not here: the latency of the flooded service.

use std::fmt::Write as _;
use std::io;
use std::net::SocketAddr;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use flick_load::load::{self, LoadConfig, ValueSize};

use crate::cli::NeighboursArgs;
use crate::machine::Machine;
use crate::page;
use crate::process::{ScratchDir, Server, free_addr, workspace};
use crate::stats::Spread;

/// The load on the neighbour.
const FLOODS: [(&str, &[Flood]); 3] = [
    ("pipelined cheap requests", &[Flood::Cheap]),
    ("long bodies", &[Flood::Long]),
    ("both", &[Flood::Cheap, Flood::Long]),
];

/// The case without a neighbour's load.
const ALONE: (&str, &str) = ("nothing", "our process");

/// Placements of the neighbour, each with its name in the results.
const PLACEMENTS: [(&str, Placement); 3] = [
    ("a process of class `idle`", Placement::Yields),
    ("a process of our class", Placement::Apart),
    ("our process", Placement::Within),
];

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Placement {
    /// On the same thread of the same process: flick schedules.
    Within,
    /// In a process on the same core: the kernel schedules.
    Apart,
    /// The same, in the scheduling class `idle`: the machine is as busy, and no other process waits for the neighbour.
    /// An idle machine would sleep between two requests, and waking it up takes longer than a reply.
    Yields,
}

#[derive(Debug, Clone, Copy)]
enum Flood {
    /// 16 connections with 64 unanswered reads each.
    Cheap,
    /// 16 connections that write values of 100 KB, four at a time each.
    Long,
}

impl Flood {
    fn options(self) -> &'static [&'static str] {
        match self {
            Flood::Cheap => &["--clients", "16", "--depth", "64", "--keys", "1000"],
            Flood::Long => &[
                "--clients",
                "16",
                "--depth",
                "4",
                "--keys",
                "50",
                "--value-bytes",
                "100000",
                "--get-ratio",
                "0.1",
            ],
        }
    }
}

/// A running flood; it ends when this is dropped.
struct Flooder(Child);

impl Flooder {
    fn start(flood: Flood, addr: SocketAddr) -> io::Result<Self> {
        let mut command = Command::new("chrt");
        command.args(["--idle", "0"]).arg(std::env::current_exe()?).arg("load").arg(addr.to_string());
        command.args(flood.options()).args(["--seconds", "600", "--warmup-seconds", "0"]);
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        Ok(Self(command.spawn()?))
    }
}

impl Drop for Flooder {
    fn drop(&mut self) {
        // Both fail only if it has ended by itself, and then it only has to be reaped.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// The figures of one round of one case.
struct Round {
    p50_us: f64,
    p99_us: f64,
    p999_us: f64,
    /// The 99th percentile at the load.
    seen_p99_us: f64,
    /// Share of its core that the process used.
    load: f64,
}

/// Rows of the table: the flood, where the neighbour runs, the rounds.
type Row = (&'static str, &'static str, Vec<Round>);

/// Runs all cases and writes the page.
pub(crate) fn run(args: &NeighboursArgs) -> io::Result<()> {
    let _boost = args.run.cores.take()?;
    let scratch = ScratchDir::new("neighbours")?;
    let mut rows: Vec<Row> = vec![(ALONE.0, ALONE.1, Vec::new())];
    for (flood, _) in FLOODS {
        rows.extend(PLACEMENTS.map(|(name, _)| (flood, name, Vec::new())));
    }
    for number in 1..=args.run.rounds.max(1) {
        for (name, placement_name, rounds) in &mut rows {
            let floods = FLOODS.iter().find(|(flood, _)| flood == name).map_or(&[][..], |(_, floods)| floods);
            let found = PLACEMENTS.iter().find(|(name, _)| name == placement_name);
            let placement = found.map_or(Placement::Within, |(_, placement)| *placement);
            let round = round(args, floods, placement, &scratch.0).map_err(|error| {
                io::Error::other(format!("{name}, {placement_name}, round {number}: {error}"))
            })?;
            eprintln!(
                "round {number} {name:<26} {placement_name:<32} p50 {:.0} us, p99 {:.0} us, p99.9 {:.0} us, p99 seen {:.0} us, core {:.2}",
                round.p50_us, round.p99_us, round.p999_us, round.seen_p99_us, round.load
            );
            rounds.push(round);
        }
    }
    let cost = cost(args, &scratch.0)?;
    let text = format!("{}\n{cost}", table(&rows));
    print!("{text}");
    if let Some(results) = &args.run.results {
        let machine = Machine::describe(&args.run.flick.path());
        let page = format!(
            "# A service beside a flooded one\n\nTwo key-value servers on one core. One has {} requests/s in an open loop on 16 \
             connections; the other is flooded as the table says. Medians of {} rounds of {} s, extremes in brackets; see \
             METHOD.md.\n\n- Linux {}, {} cores\n\n{text}\n{}",
            args.rate,
            args.run.rounds,
            args.seconds,
            machine.kernel,
            machine.cores,
            include_str!("neighbours/notes.md"),
        );
        page::write(results, "neighbours.md", &page)?;
    }
    Ok(())
}

/// Starts both services in one process; the address is that of the one to be flooded.
fn start(args: &NeighboursArgs, scratch: &Path) -> io::Result<(Server, SocketAddr)> {
    let (critical, hostile) = (free_addr()?, free_addr()?);
    let program = workspace().join("examples/key_value_server/binary_server.flick");
    let service = |name: &str, addr: SocketAddr| {
        format!("[[service]]\nname = \"{name}\"\nprogram = {program:?}\nlisten = {{ client = \"{addr}\" }}\n")
    };
    let settings = scratch.join("flick.toml");
    std::fs::write(&settings, service("critical", critical) + &service("hostile", hostile))?;
    let mut command = Command::new(args.run.flick.path());
    command.arg("run").arg("--config").arg(&settings).args(["--workers", "1"]).args(&args.more);
    command.args(args.run.flick.io.iter().flat_map(|io| ["--io", io.as_str()]));
    command.arg("--state-dir").arg(scratch.join("state"));
    Ok((Server::start(command, args.run.cores.server_core, args.run.cores.load_core, critical)?, hostile))
}

/// Starts the measured service and its neighbour in two processes.
fn start_apart(args: &NeighboursArgs, scratch: &Path, yields: bool) -> io::Result<(Server, Server)> {
    let start = |name: &str, yields: bool| {
        let addr = free_addr()?;
        let mut command = if yields { Command::new("chrt") } else { Command::new(args.run.flick.path()) };
        if yields {
            command.args(["--idle", "0"]).arg(args.run.flick.path());
        }
        command.arg("run").arg(workspace().join("examples/key_value_server/binary_server.flick"));
        command.arg("--listen").arg(format!("client={addr}")).args(["--workers", "1"]).args(&args.more);
        command.args(args.run.flick.io.iter().flat_map(|io| ["--io", io.as_str()]));
        command.arg("--state-dir").arg(scratch.join(name));
        Server::start(command, args.run.cores.server_core, args.run.cores.load_core, addr)
    };
    Ok((start("critical", false)?, start("hostile", yields)?))
}

fn round(args: &NeighboursArgs, floods: &[Flood], placement: Placement, scratch: &Path) -> io::Result<Round> {
    let (server, other, hostile) = if placement == Placement::Within {
        let (server, hostile) = start(args, scratch)?;
        (server, None, hostile)
    } else {
        let (server, other) = start_apart(args, scratch, placement == Placement::Yields)?;
        let hostile = other.ip()?;
        (server, Some(other), hostile)
    };
    let config = LoadConfig {
        connections: 16,
        depth: 64,
        keys: 1_000,
        value: ValueSize::Fixed(100),
        rate_per_s: Some(args.rate),
        stamped: true,
        warmup: Duration::from_secs(1),
        duration: Some(Duration::from_secs_f64(args.seconds)),
        ..LoadConfig::new(server.addr.clone())
    };
    load::populate(&config)?;
    let flooders =
        floods.iter().map(|flood| Flooder::start(*flood, hostile)).collect::<io::Result<Vec<_>>>()?;
    let cpu_time = || {
        let other = other.as_ref().map_or(Ok(Duration::ZERO), Server::cpu_time_of_threads)?;
        Ok::<_, io::Error>(server.cpu_time_of_threads()? + other)
    };
    let before = cpu_time()?;
    let report = load::start(config)?.wait();
    let used = cpu_time()?.saturating_sub(before);
    drop(flooders);
    if report.faults() > 0 || report.counts.misses > 0 || report.replies == 0 {
        return Err(io::Error::other(format!("the round is void: {:?}", report.counts)));
    }
    Ok(Round {
        p50_us: report.served.p50_us as f64,
        p99_us: report.served.p99_us as f64,
        p999_us: report.served.p999_us as f64,
        seen_p99_us: report.latency.p99_us as f64,
        load: used.as_secs_f64() / (report.elapsed.as_secs_f64() + 1.0),
    })
}

fn table(rows: &[Row]) -> String {
    let mut text = String::from(
        "| load on the neighbour | neighbour runs in | p50, µs | p99, µs | p99.9, µs | p99 to class `idle` | p99 to no neighbour | p99 at the load, µs | core |\n|---|---|---|---|---|--:|--:|---|--:|\n",
    );
    let spread = |rounds: &[Round], read: fn(&Round) -> f64| Spread::of(rounds.iter().map(read));
    for (name, placement, rounds) in rows {
        let cell = |read| {
            let spread = spread(rounds, read);
            format!("{:.0} ({:.0}–{:.0})", spread.median, spread.min, spread.max)
        };
        let against = |flood: &str, at: &str| {
            let (_, _, base) = rows.iter().find(|row| (row.0, row.1) == (flood, at))?;
            let pairs = rounds.iter().zip(base).map(|(round, base)| round.p99_us / base.p99_us);
            let ratio = Spread::of(pairs);
            Some(format!("{:.2} ({:.2}–{:.2})", ratio.median, ratio.min, ratio.max))
        };
        let _ = writeln!(
            text,
            "| {name} | {placement} | {} | {} | {} | {} | {} | {} | {:.2} |",
            cell(|round| round.p50_us),
            cell(|round| round.p99_us),
            cell(|round| round.p999_us),
            against(name, PLACEMENTS[0].0).unwrap_or_default(),
            against(ALONE.0, ALONE.1).unwrap_or_default(),
            cell(|round| round.seen_p99_us),
            spread(rounds, |round| round.load).median,
        );
    }
    text
}

/// Cost of sharing a thread with an idle service: processor time of a request in a closed loop.
fn cost(args: &NeighboursArgs, scratch: &Path) -> io::Result<String> {
    let mut rows: [(&str, Vec<f64>); 2] = [("alone", Vec::new()), ("beside an idle service", Vec::new())];
    for _ in 0..args.run.rounds.max(1) {
        for (name, rounds) in &mut rows {
            let server = match *name {
                "beside an idle service" => start(args, scratch)?.0,
                _ => {
                    let addr = free_addr()?;
                    let program = workspace().join("examples/key_value_server/binary_server.flick");
                    let mut command = args.run.flick.run(&program);
                    command.arg("--listen").arg(format!("client={addr}"));
                    command.arg("--state-dir").arg(scratch.join("state"));
                    Server::start(command, args.run.cores.server_core, args.run.cores.load_core, addr)?
                }
            };
            let config = LoadConfig {
                connections: 64,
                depth: 4,
                keys: 1_000,
                duration: Some(Duration::from_secs_f64(args.seconds)),
                ..LoadConfig::new(server.addr.clone())
            };
            load::populate(&config)?;
            let before = server.cpu_time_of_threads()?;
            let report = load::start(config)?.wait();
            let used = server.cpu_time_of_threads()?.saturating_sub(before);
            rounds.push(used.as_secs_f64() * 1e6 / report.replies.max(1) as f64);
        }
    }
    let mut text = String::from("| 64 connections, four requests each | CPU µs per request |\n|---|---|\n");
    for (name, rounds) in rows {
        let spread = Spread::of(rounds.into_iter());
        let _ = writeln!(text, "| {name} | {:.2} ({:.2}–{:.2}) |", spread.median, spread.min, spread.max);
    }
    Ok(text)
}
