//! Long bodies: the cost per byte of a relay and of an HTTP proxy, beside relays written by hand that parse nothing,
//! HAProxy and nginx, on the same bytes.
//!
//! Promises: every side has a core to itself and one thread; source and sink share the other core and copy nothing
//! (`sendfile`, and receiving with `MSG_TRUNC`), so that they are not what is measured; the sides alternate within
//! each round; before a side is timed, it carries a body that is compared byte by byte; a truncated body is an error.
//! Not here: small messages; the proxies' benchmarks have those.

mod bare;
mod peers;

use std::fmt::Write as _;
use std::io;
use std::process::Command;
use std::time::Instant;

use crate::cli::RelayArgs;
use crate::machine::Machine;
use crate::page;
use crate::process::{ScratchDir, Server, free_addr, in_words, workspace};
use crate::rivals::{haproxy, nginx};
use crate::stats::Spread;

pub(crate) use bare::run as bare;
use peers::{Peers, Shape};

/// nginx's and HAProxy's configurations, with placeholders for the addresses.
const NGINX_CONFIG: &str = include_str!("../rivals/nginx-stream.conf");
const HAPROXY_CONFIG: &str = include_str!("../rivals/haproxy-stream.cfg");
/// Bytes that are compared before a side is timed.
const CHECKED_BYTES: u64 = 8 << 20;

/// The relay that is measured.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Side {
    Flick,
    /// `read` and `write` of this many bytes at once.
    Copying(usize),
    Splicing,
    Haproxy,
    Nginx,
}

impl Side {
    fn name(self) -> String {
        match self {
            Side::Flick => "flick".to_owned(),
            Side::Copying(bytes) => format!("bare relay, {} KiB", bytes >> 10),
            Side::Splicing => "bare relay, splice".to_owned(),
            Side::Haproxy => "HAProxy".to_owned(),
            Side::Nginx => "nginx".to_owned(),
        }
    }
}

/// The figures of one round.
struct Round {
    mib_per_s: f64,
    ns_per_kib: f64,
}

/// Runs all sides on all shapes and writes the page.
pub(crate) fn run(args: &RelayArgs) -> io::Result<()> {
    let _boost = args.run.cores.take()?;
    let scratch = ScratchDir::new("relay")?;
    let mut page = String::new();
    for shape in Shape::ALL {
        if args.only.as_ref().is_some_and(|only| !shape.name().contains(only.as_str())) {
            continue;
        }
        let rows = compare(args, shape, &scratch)?;
        page.push_str(&table(shape, &rows));
    }
    print!("{page}");
    if let Some(results) = &args.run.results {
        let heading = format!(
            "# Forwarding long bodies\n\nBodies of {} MiB, one connection at a time; {} rounds, medians with extremes; \
             see METHOD.md.\n\n{}\n",
            args.mib,
            args.run.rounds,
            Machine::describe(&args.run.flick.path()).forwarders()
        );
        page::write(results, "relay.md", &format!("{heading}{page}"))?;
    }
    Ok(())
}

fn compare(args: &RelayArgs, shape: Shape, scratch: &ScratchDir) -> io::Result<Vec<(Side, Vec<Round>)>> {
    let mut sides = vec![
        Side::Flick,
        Side::Copying(16 << 10),
        Side::Copying(64 << 10),
        Side::Copying(256 << 10),
        Side::Splicing,
        Side::Haproxy,
        Side::Nginx,
    ];
    // nginx relays bytes only with a module that distributions package separately.
    sides.retain(|side| *side != Side::Nginx || shape.is_http());
    if args.no_rivals {
        sides.retain(|side| !matches!(side, Side::Haproxy | Side::Nginx));
    }
    let mut rows: Vec<(Side, Vec<Round>)> = sides.into_iter().map(|side| (side, Vec::new())).collect();
    let peers = Peers::new(shape)?;
    for number in 1..=args.run.rounds.max(1) {
        for (side, rounds) in &mut rows {
            let server = start(args, *side, shape, &peers, scratch)?;
            let failed = |error| io::Error::other(format!("{}, {}: {error}", shape.name(), side.name()));
            peers.checked(server.ip()?, CHECKED_BYTES).map_err(failed)?;
            peers.moved(server.ip()?, CHECKED_BYTES).map_err(failed)?;
            let round = round(&server, &peers, args.mib << 20).map_err(failed)?;
            eprintln!(
                "round {number} {:<24} {:<20} {:>7.0} MiB/s  {:>6.1} ns CPU for each KiB",
                shape.name(),
                side.name(),
                round.mib_per_s,
                round.ns_per_kib
            );
            rounds.push(round);
        }
    }
    Ok(rows)
}

fn round(server: &Server, peers: &Peers, bytes: u64) -> io::Result<Round> {
    let (begun, cpu_before) = (Instant::now(), server.cpu_time_of_threads()?);
    peers.moved(server.ip()?, bytes)?;
    let (wall, cpu) = (begun.elapsed(), server.cpu_time_of_threads()?.saturating_sub(cpu_before));
    Ok(Round {
        mib_per_s: bytes as f64 / wall.as_secs_f64() / f64::from(1 << 20),
        ns_per_kib: cpu.as_nanos() as f64 / (bytes as f64 / 1024.0),
    })
}

fn table(shape: Shape, rows: &[(Side, Vec<Round>)]) -> String {
    let mut text = format!(
        "\n## {}\n\n| side | MiB/s | ns of a core for each KiB | CPU / flick's CPU |\n|---|---|---|--:|\n",
        shape.name()
    );
    let cpu = |rounds: &[Round]| Spread::of(rounds.iter().map(|round| round.ns_per_kib));
    let flick = rows.iter().find(|(side, _)| *side == Side::Flick).map(|(_, rounds)| cpu(rounds).median);
    for (side, rounds) in rows {
        let (rate, cpu) = (Spread::of(rounds.iter().map(|round| round.mib_per_s)), cpu(rounds));
        let cell = |spread: Spread| format!("{:.0} ({:.0}–{:.0})", spread.median, spread.min, spread.max);
        let ratio = flick.map_or(String::new(), |flick| format!("{:.2}", cpu.median / flick));
        let _ = writeln!(text, "| {} | {} | {} | {ratio} |", side.name(), cell(rate), cell(cpu));
    }
    text
}

fn start(
    args: &RelayArgs,
    side: Side,
    shape: Shape,
    peers: &Peers,
    scratch: &ScratchDir,
) -> io::Result<Server> {
    let (addr, backend) = (free_addr()?, peers.addr());
    let filled = |config: &str| {
        let text = config.replace("{listen}", &addr.to_string()).replace("{backend}", &backend.to_string());
        text.replace("{mode}", if shape.is_http() { "http" } else { "tcp" })
    };
    let command = match side {
        Side::Flick => {
            let example =
                if shape.is_http() { "http_balancer/round_robin.flick" } else { "tcp_relay/tcp_relay.flick" };
            let channel = if shape.is_http() { "backends" } else { "server" };
            let mut command = args.run.flick.run(&workspace().join("examples").join(example));
            command.arg("--listen").arg(format!("client={addr}"));
            command.arg("--connect").arg(format!("{channel}={backend}"));
            command
        }
        Side::Copying(bytes) => bare_command(addr, backend, &["--buffer-bytes", &bytes.to_string()])?,
        Side::Splicing => bare_command(addr, backend, &["--splice"])?,
        Side::Haproxy => haproxy(&filled(HAPROXY_CONFIG), scratch)?,
        Side::Nginx => nginx(&filled(NGINX_CONFIG), "nginx.conf", scratch)?,
    };
    let shown = in_words(&command);
    Server::start(command, args.run.cores.server_core, args.run.cores.load_core, addr)
        .map_err(|error| io::Error::other(format!("{shown}: {error}")))
}

fn bare_command(
    listen: std::net::SocketAddr,
    backend: std::net::SocketAddr,
    options: &[&str],
) -> io::Result<Command> {
    let mut command = Command::new(std::env::current_exe()?);
    command.arg("bare-relay").arg(listen.to_string()).arg(backend.to_string()).args(options);
    Ok(command)
}
