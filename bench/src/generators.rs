//! `flick load` beside wrk, ab, redis-benchmark and memcslap: the same closed loop against the same server.
//!
//! Promises: both generators have one core and one thread (memcslap has one for each connection), and the server has
//! the other core; each round runs both; a round with any fault is void.
//! Not here: the server's processor time, which is the same for both where requests are the same.

use std::fmt::Write as _;
use std::io;
use std::process::Command;

use crate::cli::GeneratorsArgs;
use crate::machine::Machine;
use crate::memcached_proxy::memcached_command;
use crate::page;
use crate::process::{ScratchDir, Server, free_addr};
use crate::rivals::nginx;
use crate::stats::Spread;
use crate::wrk;

/// The page of nginx.
const NGINX: &str = include_str!("../rivals/nginx-backend.conf");
/// Most requests of `ab`, which ends by time.
const AB_REQUESTS: &str = "100000000";
/// Requests for each second of generators that end by number: of a connection, and at most.
const CONNECTION_REQUESTS: u64 = 5_000;
const REQUESTS_OF_ALL: u64 = 60_000;
/// Requests of redis-benchmark in flight on each connection.
const PIPELINE: &str = "16";
/// Least rate of `flick load`, in those of the other.
const GOAL: f64 = 0.95;

/// A generator and the server that it loads.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Rival {
    Wrk,
    Ab,
    Redis,
    RedisPipelined,
    Memcslap,
    MemcslapBinary,
}

impl Rival {
    const ALL: [Rival; 6] =
        [Rival::Wrk, Rival::Ab, Rival::Redis, Rival::RedisPipelined, Rival::Memcslap, Rival::MemcslapBinary];

    fn name(self) -> &'static str {
        match self {
            Rival::Wrk => "wrk, nginx",
            Rival::Ab => "ab -k, nginx",
            Rival::Redis => "redis-benchmark, GET of 100 bytes",
            Rival::RedisPipelined => "redis-benchmark -P 16, GET of 100 bytes",
            Rival::Memcslap => "memcslap, get of 400 bytes",
            Rival::MemcslapBinary => "memcslap --binary, get of 400 bytes",
        }
    }

    /// The server of Debian, with one worker.
    fn start(self, args: &GeneratorsArgs, scratch: &ScratchDir) -> io::Result<Server> {
        let addr = free_addr()?;
        let port = addr.port().to_string();
        let command = match self {
            Rival::Wrk | Rival::Ab => {
                let config = NGINX.replace("{listen}", &addr.to_string()).replace("{number}", "generators");
                nginx(&config, "generators.conf", scratch)?
            }
            Rival::Redis | Rival::RedisPipelined => {
                let mut command = Command::new("redis-server");
                command.args(["--port", &port, "--bind", "127.0.0.1", "--save", "", "--appendonly", "no"]);
                command
            }
            Rival::Memcslap | Rival::MemcslapBinary => memcached_command(addr, 1),
        };
        Server::start(command, args.run.cores.server_core, args.run.cores.load_core, addr)
    }

    /// Requests per second of the other generator.
    fn measure(self, args: &GeneratorsArgs, server: &Server, connections: u32) -> io::Result<f64> {
        let (addr, count) = (server.ip()?, connections.to_string());
        let port = addr.port().to_string();
        let requests = args.seconds * (u64::from(connections) * CONNECTION_REQUESTS).min(REQUESTS_OF_ALL);
        match self {
            Rival::Wrk => {
                wrk::round(server, connections as usize, 0, args.seconds).map(|round| round.requests_per_s)
            }
            Rival::Ab => {
                let mut ab = Command::new("ab");
                ab.args(["-k", "-q", "-t", &args.seconds.to_string(), "-n", AB_REQUESTS, "-c", &count]);
                let text = printed(ab.arg(format!("http://{addr}/")))?;
                let is_whole = figure(&text, "Failed requests:") == Some(0.0) && !text.contains("Non-2xx");
                figure(&text, "Requests per second:").filter(|_| is_whole).ok_or_else(|| void(&text))
            }
            Rival::Redis | Rival::RedisPipelined => {
                let pipeline = if self == Rival::Redis { "1" } else { PIPELINE };
                let mut benchmark = Command::new("redis-benchmark");
                benchmark
                    .args(["-p", &port, "-t", "set,get", "-d", "100", "-r", "10000", "--csv", "-c", &count]);
                let text = printed(benchmark.args(["-P", pipeline, "-n", &requests.to_string()]))?;
                let line = text.lines().find_map(|line| line.strip_prefix("\"GET\",\""));
                let rate = line.and_then(|line| line.split('"').next()?.parse().ok());
                rate.ok_or_else(|| void(&text))
            }
            Rival::Memcslap | Rival::MemcslapBinary => {
                let each = requests / u64::from(connections);
                let mut memcslap = Command::new("memcslap");
                memcslap.arg(format!("--servers={addr}")).arg(format!("--concurrency={count}"));
                memcslap.args(["--test=get", "--flush", &format!("--execute-number={each}")]);
                memcslap.args((self == Rival::MemcslapBinary).then_some("--binary"));
                let text = printed(&mut memcslap)?;
                let seconds = figure(&text, "Time total:").filter(|_| !text.to_lowercase().contains("fail"));
                let all = (each * u64::from(connections)) as f64;
                seconds.map(|seconds| all / seconds).ok_or_else(|| void(&text))
            }
        }
    }

    /// Requests per second of `flick load` with the same requests.
    fn measure_ours(self, args: &GeneratorsArgs, server: &Server, connections: u32) -> io::Result<f64> {
        let addr = server.ip()?;
        let mut load = Command::new(args.run.flick.path());
        load.arg("load");
        match self {
            Rival::Wrk => load.arg(format!("http://{addr}/")),
            Rival::Ab => load.arg(format!("http://{addr}/")).args(["--http", "1.0"]),
            Rival::Redis => load.arg(format!("redis://{addr}")),
            Rival::RedisPipelined => load.arg(format!("redis://{addr}")).args(["--pipeline", PIPELINE]),
            Rival::Memcslap => load.arg(format!("memcached://{addr}")).args(["--protocol", "text"]),
            Rival::MemcslapBinary => load.arg(format!("memcached://{addr}")).args(["--protocol", "binary"]),
        };
        if !matches!(self, Rival::Wrk | Rival::Ab) {
            let is_redis = matches!(self, Rival::Redis | Rival::RedisPipelined);
            // As the others have them by default.
            let (key, value) = if is_redis { ("16", "100") } else { ("100", "400") };
            load.args(["--get-ratio", "1", "--keys", "10000", "--key-size", key, "--value-size", value]);
        }
        load.args(["--connections", &connections.to_string(), "--threads", "1", "--warm-up", "0"]);
        let text = printed(load.args(["--duration", &format!("{}s", args.seconds), "--json"]))?;
        let found: serde_json::Value = serde_json::from_str(&text).map_err(io::Error::other)?;
        found["replies_per_second"].as_f64().ok_or_else(|| void(&text))
    }
}

/// Runs all pairs, prints the table, and writes the page.
pub(crate) fn run(args: &GeneratorsArgs) -> io::Result<()> {
    let _boost = args.run.cores.take()?;
    let scratch = ScratchDir::new("generators")?;
    let mut table = String::from(
        "| the other, its server | connections | its requests/s | `flick load` | ratio | goal |\n|--|--:|--:|--:|--:|--:|\n",
    );
    print!("{table}");
    let is_chosen = |rival: &Rival| args.only.as_ref().is_none_or(|only| rival.name().contains(only));
    for rival in Rival::ALL.into_iter().filter(is_chosen) {
        let server = rival.start(args, &scratch)?;
        for connections in &args.connections {
            let (mut theirs, mut ours, mut ratios) = (Vec::new(), Vec::new(), Vec::new());
            for _ in 0..args.run.rounds.max(1) {
                let failed = |error| io::Error::other(format!("{}: {error}", rival.name()));
                theirs.push(rival.measure(args, &server, *connections).map_err(failed)?);
                ours.push(rival.measure_ours(args, &server, *connections).map_err(failed)?);
                ratios.push(ours[ours.len() - 1] / theirs[theirs.len() - 1]);
            }
            let spread = |figures: Vec<f64>| Spread::of(figures.into_iter());
            let line = line(rival, *connections, &spread(theirs), &spread(ours), &spread(ratios));
            print!("{line}");
            table.push_str(&line);
        }
    }
    let Some(results) = &args.run.results else { return Ok(()) };
    let machine = Machine::describe(&args.run.flick.path());
    let text = format!(
        "# `flick load` beside other load generators\n\nMedians of {} rounds of {} s, extremes in brackets; the two \
         alternate. Method: [METHOD.md](../METHOD.md#load-generators).\n\n- Linux {}, {}, {} cores\n\n{table}",
        args.run.rounds, args.seconds, machine.kernel, machine.cpu, machine.cores,
    );
    page::write(results, "generators.md", &text)
}

fn line(rival: Rival, connections: u32, theirs: &Spread, ours: &Spread, ratios: &Spread) -> String {
    let mut text = format!("| {} | {connections} ", rival.name());
    for Spread { median, min, max } in [theirs, ours] {
        let _ = write!(text, "| {median:.0} ({min:.0}–{max:.0}) ");
    }
    let Spread { median, min, max } = ratios;
    let mark = if *median >= GOAL { "✓" } else { "✗" };
    let _ = writeln!(text, "| {median:.2} ({min:.2}–{max:.2}) | ≥ {GOAL} {mark} |");
    text
}

/// Runs a program, and returns its output.
///
/// Errors: it cannot be started, or fails.
fn printed(command: &mut Command) -> io::Result<String> {
    let name = command.get_program().to_string_lossy().into_owned();
    let output =
        command.output().map_err(|error| io::Error::other(format!("cannot start {name}: {error}")))?;
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    if !output.status.success() {
        return Err(void(&format!("{name}: {}{}", text(&output.stdout), text(&output.stderr))));
    }
    Ok(text(&output.stdout))
}

fn void(text: &str) -> io::Error {
    io::Error::other(format!("the round is void: {text}"))
}

/// The number behind a name.
fn figure(text: &str, name: &str) -> Option<f64> {
    text.split_once(name)?.1.split_whitespace().next()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::figure;

    #[test]
    fn a_figure_is_the_number_behind_its_name() {
        let text = "Failed requests:        0\nRequests per second:    14020.61 [#/sec] (mean)\n";
        assert_eq!(figure(text, "Requests per second:"), Some(14020.61));
        assert_eq!(figure(text, "Failed requests:"), Some(0.0));
        assert_eq!(figure("Time total:   0.469 seconds.", "Time total:"), Some(0.469));
        assert_eq!(figure(text, "Time total:"), None);
    }
}
