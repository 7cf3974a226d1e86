//! The HTTP balancer that takes its servers in turn, beside HAProxy and nginx: short requests on connections that stay.
//!
//! Promises: every side has a core to itself with one worker, the same two servers behind it and the same load (wrk), which
//! share the other core; the sides take turns within each round; a reply that is not 200, a time-out or a lost
//! connection ends the run.
//! Refuses: latencies under a given rate; wrk is a closed loop.

use std::fmt::Write as _;
use std::io;
use std::net::SocketAddr;
use std::process::Command;

use crate::cli::BalancerArgs;
use crate::machine::Machine;
use crate::process::{ScratchDir, Server, free_addr, in_words, workspace};
use crate::rivals::{haproxy, nginx};
use crate::stats::Spread;

/// Configurations, with gaps for addresses and directories.
const BACKEND: &str = include_str!("../rivals/nginx-backend.conf");
const NGINX: &str = include_str!("../rivals/nginx-balancer.conf");
const HAPROXY: &str = include_str!("../rivals/haproxy-balancer.cfg");
/// Servers behind the balancers.
const BACKENDS: usize = 2;

/// Who balances.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Side {
    Flick,
    Haproxy,
    Nginx,
}

const SIDES: [Side; 3] = [Side::Flick, Side::Haproxy, Side::Nginx];

impl Side {
    fn name(self) -> &'static str {
        match self {
            Side::Flick => "flick",
            Side::Haproxy => "HAProxy",
            Side::Nginx => "nginx",
        }
    }
}

/// The figures of one round.
struct Round {
    requests_per_s: f64,
    cpu_us_per_request: f64,
}

/// Runs all sides and writes the page.
pub(crate) fn run(args: &BalancerArgs) -> io::Result<()> {
    let _boost = args.run.place.take()?;
    let scratch = ScratchDir::new("balancer")?;
    let backends =
        (0..BACKENDS).map(|number| backend(args, number, &scratch)).collect::<io::Result<Vec<_>>>()?;
    let mut rows: Vec<(Side, Vec<Round>)> = SIDES.map(|side| (side, Vec::new())).into();
    for number in 1..=args.run.rounds.max(1) {
        for (side, rounds) in &mut rows {
            let failed = |error| io::Error::other(format!("{}, round {number}: {error}", side.name()));
            let server = start(args, *side, &backends, &scratch).map_err(failed)?;
            load(args, server.addr, args.warmup_seconds).map_err(failed)?;
            let before = server.cpu_time_of_threads()?;
            let (requests, seconds) = load(args, server.addr, args.seconds).map_err(failed)?;
            let cpu = server.cpu_time_of_threads()?.saturating_sub(before);
            let round = Round {
                requests_per_s: requests / seconds,
                cpu_us_per_request: cpu.as_secs_f64() * 1e6 / requests,
            };
            eprintln!(
                "round {number} {:<8} {:>8.0}/s  {:>6.2} us CPU each",
                side.name(),
                round.requests_per_s,
                round.cpu_us_per_request
            );
            rounds.push(round);
        }
    }
    let table = table(&rows);
    print!("{table}");
    if let Some(results) = &args.run.results {
        std::fs::create_dir_all(results)?;
        let text = format!(
            "# The HTTP balancer beside HAProxy and nginx\n\n{} connections that stay, one short GET each at a time, replies of \
             98 bytes; {BACKENDS} nginx servers behind the balancer; {} rounds of {} s, medians with extremes; see \
             METHOD.md.\n\n{}\n{table}",
            args.clients,
            args.run.rounds,
            args.seconds,
            Machine::describe(&args.run.flick.path()).forwarders()
        );
        std::fs::write(results.join("http-balancer.md"), text)?;
    }
    Ok(())
}

fn table(rows: &[(Side, Vec<Round>)]) -> String {
    let mut text = String::from(
        "| side | requests/s | CPU µs per request | flick's speed, of a core's time |\n|---|---|---|--:|\n",
    );
    let cpu = |rounds: &[Round]| Spread::of(rounds.iter().map(|round| round.cpu_us_per_request));
    let flick = rows.iter().find(|(side, _)| *side == Side::Flick).map(|(_, rounds)| cpu(rounds).median);
    for (side, rounds) in rows {
        let (rate, cpu) = (Spread::of(rounds.iter().map(|round| round.requests_per_s)), cpu(rounds));
        let ratio = flick.map_or(String::new(), |flick| format!("{:.2}", cpu.median / flick));
        let _ = writeln!(
            text,
            "| {} | {:.0} ({:.0}–{:.0}) | {:.2} ({:.2}–{:.2}) | {ratio} |",
            side.name(),
            rate.median,
            rate.min,
            rate.max,
            cpu.median,
            cpu.min,
            cpu.max
        );
    }
    text
}

/// Loads `addr` for `seconds`; returns requests that were answered, and the time that took.
fn load(args: &BalancerArgs, addr: SocketAddr, seconds: u64) -> io::Result<(f64, f64)> {
    let mut command = Command::new("wrk");
    command.args(["-t1", &format!("-c{}", args.clients), &format!("-d{seconds}s")]);
    command.arg("--timeout").arg("5s").arg(format!("http://{addr}/"));
    let output = command.output()?;
    let told = String::from_utf8_lossy(&output.stdout).into_owned();
    if !output.status.success() || told.contains("Socket errors") || told.contains("Non-2xx") {
        return Err(io::Error::other(format!("the round is void: {told}")));
    }
    let line = told.lines().find(|line| line.contains(" requests in "));
    let figures = line.and_then(|line| {
        let (requests, rest) = line.trim().split_once(" requests in ")?;
        let time = rest.split(',').next()?.strip_suffix('s')?;
        Some((requests.parse().ok()?, time.parse().ok()?))
    });
    figures.ok_or_else(|| io::Error::other(format!("wrk said {told:?}")))
}

fn backend(args: &BalancerArgs, number: usize, scratch: &ScratchDir) -> io::Result<Server> {
    let addr = free_addr()?;
    let config = BACKEND.replace("{listen}", &addr.to_string()).replace("{number}", &number.to_string());
    let command = nginx(&config, &format!("backend-{number}.conf"), scratch)?;
    Server::start(command, args.run.place.load_core, args.run.place.load_core, addr)
}

fn start(args: &BalancerArgs, side: Side, backends: &[Server], scratch: &ScratchDir) -> io::Result<Server> {
    let addr = free_addr()?;
    let each = |line: &dyn Fn(usize, SocketAddr) -> String| {
        let lines = backends.iter().enumerate().map(|(number, server)| line(number, server.addr));
        lines.collect::<Vec<_>>().join("\n")
    };
    let command = match side {
        Side::Flick => {
            let example = workspace().join("examples/http_balancer/round_robin.flick");
            let addrs: Vec<String> = backends.iter().map(|server| server.addr.to_string()).collect();
            let mut command = args.run.flick.run(&example);
            command.arg("--listen").arg(format!("client={addr}"));
            command.arg("--connect").arg(format!("backends={}", addrs.join(",")));
            command
        }
        Side::Haproxy => {
            let servers = each(&|number, addr| format!("  server s{number} {addr}"));
            let config =
                HAPROXY.replace("{listen}", &addr.to_string()).replace("{haproxy_servers}", &servers);
            haproxy(&config, scratch)?
        }
        Side::Nginx => {
            let servers = each(&|_, addr| format!("    server {addr};"));
            let config = NGINX.replace("{listen}", &addr.to_string()).replace("{nginx_servers}", &servers);
            nginx(&config, "balancer.conf", scratch)?
        }
    };
    let told = in_words(&command);
    Server::start(command, args.run.place.server_core, args.run.place.load_core, addr)
        .map_err(|error| io::Error::other(format!("{told}: {error}")))
}
