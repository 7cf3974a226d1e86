//! What counting and the access log cost a service: the memcached proxy as it is, one that counts nothing, and its log in parts.
//!
//! Promises: all sides of a round run one after the other, and each is compared with the one of the same round that counts
//! nothing, so that what else the machine does meanwhile moves them alike; a wrong or missing reply ends the run.
//! Refuses: what counting costs without the kernel, which is `bench/results/counting.md`.

use std::fmt::Write as _;
use std::io;
use std::path::Path;
use std::process::Command;

use flick_load::load::Protocol;

use crate::cli::CountingArgs;
use crate::machine::Machine;
use crate::measure::{self, Round};
use crate::memcached_proxy::memcached;
use crate::process::{ScratchDir, Server, free_addr, workspace};
use crate::stats::Spread;

/// What is measured: a name, whether it counts, and how the log is asked for.
const SIDES: [(&str, bool, &[&str]); 4] = [
    ("nothing counted, no log", false, &[]),
    ("counted, no log", true, &[]),
    ("counted, a line for one request in a hundred", true, &["--access-log-sample", "1/100"]),
    ("counted, a line for each request", true, &["--access-log-sample", "1"]),
];
/// Drivers, if none is chosen.
const DRIVERS: [&str; 2] = ["epoll", "uring"];

/// Runs all sides and writes the page.
pub(crate) fn run(args: &CountingArgs) -> io::Result<()> {
    let _boost = args.load.place.take()?;
    let core = args.load.place.load_core;
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
                let round = measure::round(&args.load, server.addr, Protocol::Binary, Some(&server))
                    .map_err(|error| io::Error::other(format!("{name}, round {number}: {error}")))?;
                eprintln!(
                    "round {number} {io} {name:<46} {:.2} us, {:.0}/s",
                    round.cpu_us_per_request, round.replies_per_s
                );
                rounds.push(round);
            }
        }
        let _ = writeln!(text, "**{io}**\n\n{}", table(&rows));
    }
    print!("{text}");
    if let Some(results) = &args.results {
        std::fs::create_dir_all(results)?;
        std::fs::write(results.join("counting-served.md"), page(args, &text))?;
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
    let (addr, place) = (free_addr()?, &args.load.place);
    let mut command = Command::new(program);
    command.arg("run").arg(workspace().join("examples/memcached_proxy/memcached_proxy.flick"));
    command.args(["--workers", "1", "--io", io]);
    command.arg("--listen").arg(format!("client={addr}"));
    command.arg("--connect").arg(format!("backends={}", backend.addr));
    if !log.is_empty() {
        command.arg("--access-log").arg(scratch.join("access.log")).args(log);
    }
    Server::start(command, place.server_core, place.load_core, addr)
}

fn table(rows: &[Vec<Round>; SIDES.len()]) -> String {
    type Read = fn(&Round) -> f64;
    let mut text = String::from(
        "| | CPU µs per request | of that which counts nothing | requests/s | of that which counts nothing |\n|---|---|---|---|---|\n",
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
        let cpu: Read = |round| round.cpu_us_per_request;
        let rate: Read = |round| round.replies_per_s;
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

fn page(args: &CountingArgs, text: &str) -> String {
    let machine = Machine::describe(&args.flick.path());
    let load = &args.load;
    format!(
        "# What counting and the access log cost a service\n\nThe memcached proxy of Listing 1 with one worker before one memcached: {} \
         connections with {} unanswered requests each, {} rounds of {} s, each side compared with the one of its own round that counts nothing \
         (`cargo build --release -p flick --features flick-runtime/uncounted`). Medians, extremes in brackets. Processor time is that of \
         the whole process, the writer of the log included. The goal: counters and log cost at most 3 % of throughput. What they cost \
         without the kernel: [counting.md](counting.md).\n\n- Linux {}, {}, {} cores\n\n{text}",
        load.clients, load.depth, load.rounds, load.seconds, machine.kernel, machine.cpu, machine.cores,
    )
}
