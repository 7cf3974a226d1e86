//! The cost of counters and of the access log: the memcached proxy with counters, without them, and with three settings
//! of its log.
//!
//! Promises: all sides of a round run one after the other, and each is compared with the one of the same round that
//! counts nothing, so that what else the machine does meanwhile moves them alike; a wrong or missing reply ends the
//! run.
//! Not here: the cost without the kernel's part, which is in `bench/results/counting.md`.

use std::fmt::Write as _;
use std::io;
use std::path::Path;
use std::process::Command;

use flick_load::load::LoadProtocol;

use crate::cli::CountingArgs;
use crate::machine::Machine;
use crate::measure;
use crate::memcached_proxy::memcached;
use crate::page;
use crate::process::{ScratchDir, Server, free_addr, workspace};
use crate::stats::Spread;
use crate::sweep::Round;

/// The sides: a name, whether it counts, and the options of the log.
const SIDES: [(&str, bool, &[&str]); 4] = [
    ("nothing counted, no log", false, &[]),
    ("counted, no log", true, &[]),
    ("counted, a line for one request in a hundred", true, &["--access-log-sample", "1/100"]),
    ("counted, a line for each request", true, &["--access-log-sample", "1"]),
];
/// The drivers that are measured by default.
const DRIVERS: [&str; 2] = ["epoll", "uring"];

/// Runs all sides and writes the page.
pub(crate) fn run(args: &CountingArgs) -> io::Result<()> {
    let _boost = args.load.cores.take()?;
    let core = args.load.cores.load_core;
    let backend = memcached(free_addr()?, core, core)?;
    let scratch = ScratchDir::new("counting")?;
    let chosen: Vec<&str> = match &args.flick.io {
        Some(io) => vec![io],
        None => DRIVERS.into(),
    };
    let mut text = String::new();
    for io in chosen {
        let mut rows: [Vec<Round>; SIDES.len()] = Default::default();
        for number in 1..=args.load.rounds.max(1) {
            for ((name, counts, log), rounds) in SIDES.into_iter().zip(&mut rows) {
                let program = if counts { args.flick.path() } else { args.uncounted.clone() };
                let server = start(args, &program, io, log, &backend, &scratch.0)?;
                let round = measure::round(
                    args.load.config(server.addr.clone(), LoadProtocol::Binary),
                    Some(&server),
                )
                .map_err(|error| io::Error::other(format!("{name}, round {number}: {error}")))?;
                eprintln!(
                    "round {number} {io} {name:<46} {:.2} us, {:.0}/s",
                    round.cpu_us(),
                    round.requests_per_s
                );
                rounds.push(round);
            }
        }
        let _ = writeln!(text, "**{io}**\n\n{}", table(&rows));
    }
    print!("{text}");
    if let Some(results) = &args.results {
        page::write(results, "counting-served.md", &described(args, &text))?;
    }
    Ok(())
}

/// The proxy of Listing 1 before one memcached.
fn start(
    args: &CountingArgs,
    program: &Path,
    io: &str,
    log: &[&str],
    backend: &Server,
    scratch: &Path,
) -> io::Result<Server> {
    let (addr, cores) = (free_addr()?, &args.load.cores);
    let mut command = Command::new(program);
    command.arg("run").arg(workspace().join("examples/memcached_proxy/memcached_proxy.flick"));
    command.args(["--workers", "1", "--io", io]);
    command.arg("--listen").arg(format!("client={addr}"));
    command.arg("--connect").arg(format!("backends={}", backend.addr));
    if !log.is_empty() {
        command.arg("--access-log").arg(scratch.join("access.log")).args(log);
    }
    Server::start(command, cores.server_core, cores.load_core, addr)
}

fn table(rows: &[Vec<Round>; SIDES.len()]) -> String {
    type Read = fn(&Round) -> f64;
    let mut text = String::from(
        "| | CPU µs per request | ratio to nothing counted | requests/s | ratio to nothing counted |\n|---|---|---|---|---|\n",
    );
    let first = &rows[0];
    for ((name, ..), rounds) in SIDES.iter().zip(rows) {
        let spread = |read: Read, digits: usize| {
            let all = Spread::of(rounds.iter().map(read));
            format!("{:.digits$} ({:.digits$}–{:.digits$})", all.median, all.min, all.max)
        };
        let ratio = |read: Read| {
            let all = Spread::of(rounds.iter().zip(first).map(|(own, other)| read(own) / read(other)));
            format!("{:.3} ({:.3}–{:.3})", all.median, all.min, all.max)
        };
        let cpu: Read = Round::cpu_us;
        let rate: Read = |round| round.requests_per_s;
        let _ = writeln!(
            text,
            "| {name} | {} | {} | {} | {} |",
            spread(cpu, 2),
            ratio(cpu),
            spread(rate, 0),
            ratio(rate)
        );
    }
    text
}

fn described(args: &CountingArgs, text: &str) -> String {
    let machine = Machine::describe(&args.flick.path());
    let load = &args.load;
    format!(
        "# The cost of counters and of the access log\n\nThe memcached proxy of Listing 1 with one worker before one memcached: {} \
         connections with {} unanswered requests each, {} rounds of {} s, each side compared with the one of its own round that counts nothing \
         (`cargo build --release -p flick --features flick-runtime/uncounted`). Medians, extremes in brackets. Processor time is that of \
         the whole process, the writer of the log included. The goal: counters and log cost at most 3 % of throughput. The cost \
         without the kernel's part: [counting.md](counting.md).\n\n- Linux {}, {}, {} cores\n\n{text}",
        load.clients,
        load.requests.depth,
        load.rounds,
        load.seconds,
        machine.kernel,
        machine.cpu,
        machine.cores,
    )
}
