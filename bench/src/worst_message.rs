//! An echo service beside a program at its worst case, both on one worker: the delay that one message may cause.
//!
//! Promises: each neighbour is within the default budget of work, and near it; flick starts it without other options;
//! the load on the echo is an open loop, each request charged from when it was due; a wrong or missing reply ends the
//! run, and so does a 99th percentile above [`GOAL_MS`].
//! Not here: a flood of cheap requests, which `neighbours` measures.

use std::fmt::Write as _;
use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::path::PathBuf;
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use flick_compiler::{Input, MESSAGE_WORK_MAX};
use flick_ir::weights::STEPS_PER_US;
use rustix::net::RecvFlags;

use crate::cli::WorstMessageArgs;
use crate::machine::Machine;
use crate::page;
use crate::process::{ScratchDir, Server, free_addr, workspace};
use crate::stats::Spread;

/// The 99th percentile of the echo's latency that no accepted neighbour may exceed.
const GOAL_MS: f64 = 5.0;
/// Connections of the echo's clients.
const ECHO_CONNS: usize = 8;
/// Connections of the neighbour's clients.
const CONNS: u64 = 8;
/// Messages that each of them keeps unanswered.
const DEPTH: u64 = 4;
/// Time before the echo is measured.
const WARMUP: Duration = Duration::from_secs(1);
/// Longest wait for a reply.
const REPLY_WAIT_MAX: Duration = Duration::from_secs(10);
/// A program counts as one at its worst case from this part of the budget on, in percent.
const NEAR_BUDGET_PERCENT: u64 = 80;
/// Values of the key-value server, and their length: together they fill the output of one message.
const VALUES: usize = 4;
/// See [`VALUES`].
const VALUE_BYTES: usize = 1 << 20;

/// A program at its worst case.
struct Neighbour {
    name: &'static str,
    program: &'static str,
    /// Bytes sent before, and the length of the replies.
    first: fn() -> (Vec<u8>, usize),
    /// One message, by its number.
    message: fn(u64) -> Vec<u8>,
    reply_bytes: usize,
}

const NEIGHBOURS: [Neighbour; 4] = [
    Neighbour {
        name: "searches a line of 1,000 bytes",
        program: "bench/scenarios/worst_message/search.flick",
        first: || (Vec::new(), 0),
        message: |_| [&[b'z'; 1000][..], b"\n"].concat(),
        reply_bytes: 3,
    },
    Neighbour {
        name: "looks up keys that no cache holds",
        program: "bench/scenarios/worst_message/reads.flick",
        first: || (Vec::new(), 0),
        message: |number| format!("{number}\n").into_bytes(),
        reply_bytes: 3,
    },
    Neighbour {
        name: "writes new keys into a full dictionary",
        program: "bench/scenarios/worst_message/writes.flick",
        first: || (Vec::new(), 0),
        message: |number| format!("{number}.\n").into_bytes(),
        reply_bytes: 3,
    },
    Neighbour {
        name: "key_value_server: a `get` of 4 MiB",
        program: "examples/key_value_server/key_value_server.flick",
        first: || {
            let set =
                |value| format!("set {} 0 0 {VALUE_BYTES}\r\n{}\r\n", key(value), "v".repeat(VALUE_BYTES));
            ((0..VALUES).map(set).collect::<String>().into_bytes(), VALUES * "STORED\r\n".len())
        },
        message: |_| format!("get {}\r\n", (0..VALUES).map(key).collect::<Vec<_>>().join(" ")).into_bytes(),
        reply_bytes: VALUES * (VALUE_LINE.len() + VALUE_BYTES + 2) + "END\r\n".len(),
    },
];

/// The line in front of each value.
const VALUE_LINE: &str = "VALUE k10 0 1048576\r\n";

fn key(value: usize) -> String {
    format!("k{}", 10 + value)
}

impl Neighbour {
    fn path(&self) -> PathBuf {
        workspace().join(self.program)
    }

    /// Returns the steps of its worst message. Errors: it is far from the budget, or above it.
    fn steps(&self) -> Result<u64, String> {
        let input = Input::file(&self.path()).map_err(|failure| failure.to_string())?;
        let module = flick_compiler::module(&input).map_err(|failure| failure.to_string())?;
        let steps = module.program.bounds.steps_per_message_max;
        let near = MESSAGE_WORK_MAX * NEAR_BUDGET_PERCENT / 100..=MESSAGE_WORK_MAX;
        if near.contains(&steps) { Ok(steps) } else { Err(format!("{steps} steps are not near the budget")) }
    }
}

/// Clients that keep the neighbour busy until this is dropped.
struct Flood {
    has_ended: Arc<AtomicBool>,
    replies: Arc<AtomicU64>,
    clients: Vec<JoinHandle<io::Result<()>>>,
}

impl Flood {
    fn start(neighbour: &'static Neighbour, addr: SocketAddr) -> io::Result<Flood> {
        let (request, reply_bytes) = (neighbour.first)();
        let mut first = connect(addr)?;
        first.write_all(&request)?;
        first.read_exact(&mut vec![0; reply_bytes])?;
        let (has_ended, replies) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicU64::new(0)));
        let client = |index: u64| {
            let (mut conn, has_ended, replies) = (connect(addr)?, has_ended.clone(), replies.clone());
            Ok(std::thread::spawn(move || {
                let mut buffer = vec![0; 64 * 1024];
                let (mut received, mut sent) = (0, 0);
                while !has_ended.load(Ordering::Relaxed) {
                    while sent < received / neighbour.reply_bytes as u64 + DEPTH {
                        conn.write_all(&(neighbour.message)(sent * CONNS + index))?;
                        sent += 1;
                    }
                    // The kernel drops the bytes.
                    let (_, count) = rustix::net::recv(&conn, &mut buffer[..], RecvFlags::TRUNC)?;
                    if count == 0 {
                        return Err(io::Error::other("the neighbour has closed a connection"));
                    }
                    let before = received / neighbour.reply_bytes as u64;
                    received += count as u64;
                    replies.fetch_add(received / neighbour.reply_bytes as u64 - before, Ordering::Relaxed);
                }
                Ok(())
            }))
        };
        let clients = (0..CONNS).map(client).collect::<io::Result<Vec<_>>>()?;
        Ok(Flood { has_ended, replies, clients })
    }

    fn replies(&self) -> u64 {
        self.replies.load(Ordering::Relaxed)
    }

    /// Errors: those of its clients.
    fn end(self) -> io::Result<()> {
        self.has_ended.store(true, Ordering::Relaxed);
        for client in self.clients {
            client.join().map_err(|_| io::Error::other("a client panicked"))??;
        }
        Ok(())
    }
}

fn connect(addr: SocketAddr) -> io::Result<TcpStream> {
    let conn = TcpStream::connect(addr)?;
    conn.set_nodelay(true)?;
    conn.set_read_timeout(Some(REPLY_WAIT_MAX))?;
    Ok(conn)
}

/// The figures of one round.
struct Round {
    p50_ms: f64,
    p99_ms: f64,
    worst_ms: f64,
    /// User and system time of the worker for each message of the neighbour, where there is one.
    message_us: Option<(f64, f64)>,
}

/// Runs all cases and writes the page.
pub(crate) fn run(args: &WorstMessageArgs) -> io::Result<()> {
    let _boost = args.run.cores.take()?;
    let scratch = ScratchDir::new("worst-message")?;
    let mut rows: Vec<(Option<&'static Neighbour>, Vec<Round>)> = vec![(None, Vec::new())];
    rows.extend(NEIGHBOURS.iter().map(|neighbour| (Some(neighbour), Vec::new())));
    rows.retain(|(neighbour, _)| {
        args.only.as_ref().is_none_or(|only| name(*neighbour).contains(only.as_str()))
    });
    for number in 1..=args.run.rounds.max(1) {
        for (neighbour, rounds) in &mut rows {
            let round = round(args, *neighbour, &scratch);
            let round = round.map_err(|error| {
                io::Error::other(format!("{}, round {number}: {error}", name(*neighbour)))
            })?;
            eprintln!(
                "round {number} {:<40} p50 {:.2} ms, p99 {:.2} ms, worst {:.2} ms, {:.0} + {:.0} us for each message",
                name(*neighbour),
                round.p50_ms,
                round.p99_ms,
                round.worst_ms,
                round.message_us.map_or(0.0, |(user, _)| user),
                round.message_us.map_or(0.0, |(_, system)| system)
            );
            rounds.push(round);
        }
    }
    let table = table(&rows).map_err(io::Error::other)?;
    print!("{table}");
    if let Some(results) = &args.run.results {
        let machine = Machine::describe(&args.run.flick.path());
        let page = format!(
            "# An echo service beside a program at its worst case\n\nTwo services on one worker: an echo with {} requests/s in an open \
             loop, and a program whose every message takes about what the default budget of work allows, with {CONNS} clients that \
             keep {DEPTH} messages unanswered each. Medians of {} rounds of {} s, extremes in brackets; see METHOD.md.\n\n- Linux {}, {} cores\n\n\
             {table}\n{}",
            args.rate,
            args.run.rounds,
            args.seconds,
            machine.kernel,
            machine.cores,
            include_str!("worst_message/notes.md"),
        );
        page::write(results, "worst-message.md", &page)?;
    }
    for (neighbour, rounds) in &rows {
        let p99 = Spread::of(rounds.iter().map(|round| round.p99_ms)).median;
        if p99 > GOAL_MS {
            let name = name(*neighbour);
            return Err(io::Error::other(format!(
                "{name}: the echo's p99 of {p99:.2} ms is above {GOAL_MS} ms"
            )));
        }
    }
    Ok(())
}

fn name(neighbour: Option<&Neighbour>) -> &'static str {
    neighbour.map_or("nothing", |neighbour| neighbour.name)
}

fn round(
    args: &WorstMessageArgs,
    neighbour: Option<&'static Neighbour>,
    scratch: &ScratchDir,
) -> io::Result<Round> {
    let (echo, other) = (free_addr()?, free_addr()?);
    let service = |name: &str, program: PathBuf, addr: SocketAddr| {
        format!("[[service]]\nname = \"{name}\"\nprogram = {program:?}\nlisten = {{ client = \"{addr}\" }}\n")
    };
    let settings = scratch.0.join("flick.toml");
    let mut text = service("echo", workspace().join("bench/scenarios/worst_message/echo.flick"), echo);
    text.extend(neighbour.map(|neighbour| service("neighbour", neighbour.path(), other)));
    std::fs::write(&settings, text)?;
    let mut command = Command::new(args.run.flick.path());
    command.arg("run").arg("--config").arg(&settings).args(["--workers", "1"]);
    command.args(args.run.flick.io.iter().flat_map(|io| ["--io", io.as_str()]));
    command.arg("--state-dir").arg(scratch.0.join("state"));
    let server = Server::start(command, args.run.cores.server_core, args.run.cores.load_core, echo)?;
    let flood = neighbour.map(|neighbour| Flood::start(neighbour, other)).transpose()?;
    std::thread::sleep(WARMUP);
    let replies = || flood.as_ref().map_or(0, Flood::replies);
    let (before, cpu_before) = (replies(), server.cpu()?);
    let mut latencies = echo_latencies(echo, args.rate, args.seconds)?;
    let (count, cpu) = (replies() - before, server.cpu()?.since(&cpu_before));
    if flood.is_some() && count == 0 {
        return Err(io::Error::other("the neighbour answered nothing"));
    }
    flood.map_or(Ok(()), Flood::end)?;
    latencies.sort_unstable();
    let at = |part: f64| {
        let index = ((latencies.len() as f64 * part) as usize).min(latencies.len() - 1);
        latencies[index].as_secs_f64() * 1e3
    };
    let each = |time: Duration| time.as_secs_f64() * 1e6 / count as f64;
    let message_us = neighbour.map(|_| (each(cpu.user), each(cpu.system)));
    Ok(Round { p50_ms: at(0.5), p99_ms: at(0.99), worst_ms: at(1.0), message_us })
}

/// Sends requests when they are due, one connection after another, and returns how long each took from then.
fn echo_latencies(addr: SocketAddr, rate_per_s: f64, seconds: f64) -> io::Result<Vec<Duration>> {
    let count = ((rate_per_s * seconds) as usize).max(ECHO_CONNS);
    let begun = Instant::now() + Duration::from_millis(10);
    let due = move |number: usize| begun + Duration::from_secs_f64(number as f64 / rate_per_s);
    let conns = (0..ECHO_CONNS).map(|_| connect(addr)).collect::<io::Result<Vec<_>>>()?;
    let reader = |(index, conn): (usize, &TcpStream)| {
        let mut conn = conn.try_clone()?;
        Ok(std::thread::spawn(move || {
            let numbers = (index..count).step_by(ECHO_CONNS);
            let read = |number| {
                let mut reply = line(number);
                reply.fill(0);
                conn.read_exact(&mut reply)?;
                let took = Instant::now().saturating_duration_since(due(number));
                if reply == line(number) { Ok(took) } else { Err(io::Error::other("a wrong echo")) }
            };
            numbers.map(read).collect::<io::Result<Vec<_>>>()
        }))
    };
    let readers = conns.iter().enumerate().map(reader).collect::<io::Result<Vec<_>>>()?;
    for number in 0..count {
        std::thread::sleep(due(number).saturating_duration_since(Instant::now()));
        (&conns[number % ECHO_CONNS]).write_all(&line(number))?;
    }
    let mut latencies = Vec::new();
    for reader in readers {
        latencies.extend(reader.join().map_err(|_| io::Error::other("a reader panicked"))??);
    }
    Ok(latencies)
}

/// The request of a number.
fn line(number: usize) -> Vec<u8> {
    format!("{number:015}\n").into_bytes()
}

fn table(rows: &[(Option<&'static Neighbour>, Vec<Round>)]) -> Result<String, String> {
    let mut text = String::from(
        "| the neighbour | its worst message, steps | estimated, µs | user time, µs | the kernel's, µs | echo's p50, ms | p99, ms | longest, ms |\n\
         |---|--:|--:|---|---|---|---|---|\n",
    );
    for (neighbour, rounds) in rows {
        let cell = |read: fn(&Round) -> f64, digits: usize| {
            let spread = Spread::of(rounds.iter().map(read));
            format!("{:.digits$} ({:.digits$}–{:.digits$})", spread.median, spread.min, spread.max)
        };
        let [steps, estimated, user, system] = match neighbour {
            None => [String::new(), String::new(), String::new(), String::new()],
            Some(neighbour) => {
                let steps = neighbour.steps().map_err(|error| format!("{}: {error}", neighbour.name))?;
                let user = cell(|round| round.message_us.map_or(f64::NAN, |(user, _)| user), 0);
                let system = cell(|round| round.message_us.map_or(f64::NAN, |(_, system)| system), 0);
                [steps.to_string(), steps.div_ceil(STEPS_PER_US).to_string(), user, system]
            }
        };
        let _ = writeln!(
            text,
            "| {} | {steps} | {estimated} | {user} | {system} | {} | {} | {} |",
            name(*neighbour),
            cell(|round| round.p50_ms, 2),
            cell(|round| round.p99_ms, 2),
            cell(|round| round.worst_ms, 2),
        );
    }
    Ok(text)
}
