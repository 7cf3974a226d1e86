//! The platform's overhead per message: handing it from one task to another, and switching between tasks.
//!
//! Promises: rings hand over records that are compared; switches are counted in the platform itself, as the difference
//! of processor time between 200 tasks that switch after each message and 200 that do not.
//! Not here: a rival; the figures are compared with goals, in nanoseconds of this machine.

use std::fmt::Write as _;
use std::hint::{black_box, spin_loop};
use std::io;
use std::time::Instant;

use flick_compiler::{EngineKind, Input, compile};
use flick_ring::{Consumer, Producer, ring};
use flick_testkit::service::client::Habit;
use flick_testkit::service::memcached::{Cmd, opcode};
use flick_testkit::service::server::MemcachedServer;
use flick_testkit::service::{MS, SimService, SimServiceConfig, Subject};

use crate::cli::HandoverArgs;
use crate::machine::Machine;
use crate::page;
use crate::process::{pin_this_thread, workspace};
use crate::sharing;
use crate::stats::Spread;

/// Bytes of a message: a short request.
const MESSAGE_BYTES: usize = 64;
/// Messages of one round of a ring.
const MESSAGES: u64 = 2_000_000;
/// Bytes of a ring, as between two tasks of a merge.
const RING_BYTES: usize = 128 * 1024;
/// Sessions of a worker among which it switches.
const SESSIONS: usize = 200;
/// Quanta of each of them in a round.
const SWITCH_ROUNDS: u32 = 20_000;
/// Returns of each to the pool in a round.
const POOL_ROUNDS: u32 = 5_000;
/// Messages of a batch, as a task passes them on.
const BATCH: u64 = 32;

/// Runs all and writes the page.
pub(crate) fn run(args: &HandoverArgs) -> io::Result<()> {
    let _boost = args.run.cores.take()?;
    let mut rows: Vec<(&str, f64, Vec<f64>)> = vec![
        ("a message to a task on the same worker, each by itself", 30.0, Vec::new()),
        ("the same, 32 at once", 30.0, Vec::new()),
        ("a message to a task on another worker, both busy, each by itself", 150.0, Vec::new()),
        ("the same, 32 at once", 150.0, Vec::new()),
        (
            "a switch among 200 runnable tasks: the next one is taken, finds nothing to do, and is put back",
            40.0,
            Vec::new(),
        ),
        (
            "one more quantum of a session with a message of 8 bytes in it, everything included",
            f64::NAN,
            Vec::new(),
        ),
        (
            "a session from the pool, and back: all that accepting costs beside the kernel's part",
            1_000.0,
            Vec::new(),
        ),
    ];
    let mut idle = idle_sessions().map_err(io::Error::other)?;
    for _ in 0..args.run.rounds.max(1) {
        rows[0].2.push(on_one_worker(1));
        rows[1].2.push(on_one_worker(BATCH));
        rows[2].2.push(across(args, 1)?);
        rows[3].2.push(across(args, BATCH)?);
        rows[4].2.push(each_ns(|| idle.worker.run_idle_tasks(SWITCH_ROUNDS)));
        rows[5].2.push(sharing::switch_ns(&args.run.flick, &args.run.cores)?);
        rows[6].2.push(each_ns(|| idle.worker.reopen_sessions(POOL_ROUNDS)));
    }
    let mut table = String::from("| what | ns | goal |\n|---|---|--:|\n");
    for (name, goal, rounds) in rows {
        let spread = Spread::of(rounds.into_iter());
        let (median, min, max) = (spread.median, spread.min, spread.max);
        let goal = if goal.is_nan() { String::new() } else { format!("{goal:.0}") };
        let _ = writeln!(table, "| {name} | {median:.1} ({min:.1}–{max:.1}) | {goal} |");
    }
    print!("{table}");
    if let Some(results) = &args.run.results {
        let machine = Machine::describe(&args.run.flick.path());
        let page = format!(
            "# Cost of a message between tasks and of a task switch\n\nMessages of {MESSAGE_BYTES} bytes through a ring (copied in, published, copied out, space \
             released), and the cost of one more quantum of a task in the platform. Medians of {} rounds, extremes in brackets; see \
             METHOD.md.\n\n- Linux {}, {} cores\n\n{table}",
            args.run.rounds, machine.kernel, machine.cores,
        );
        page::write(results, "handover.md", &page)?;
    }
    Ok(())
}

/// Nanoseconds per repetition of `work`.
fn each_ns(work: impl FnOnce() -> u64) -> f64 {
    let begun = Instant::now();
    let count = work();
    begun.elapsed().as_nanos() as f64 / count.max(1) as f64
}

/// A worker of Listing 1 in the simulator, with 200 clients that have sent one byte each and are idle.
fn idle_sessions() -> Result<SimService, String> {
    let path = workspace().join("examples/memcached_proxy/memcached_proxy.flick");
    let compiled = Input::file(&path).and_then(|input| compile(&input, EngineKind::Native));
    let executable = compiled.map_err(|failure| failure.to_string())?.into_first();
    let subject = Subject { program: executable.program(), engine: executable.engine };
    let mut config = SimServiceConfig::new(7, 1);
    config.limits.max_connections = SESSIONS as u32;
    config.limits.max_inflight_requests = 4096;
    let mut service = SimService::new(&config, &subject, |_, _| Some(Box::new(MemcachedServer::honest())));
    let silent = Habit::Trickle { bytes: 1, every_ns: 3_600_000 * MS };
    for number in 0..SESSIONS as u32 {
        service.client(5 * MS, &[Cmd::request(opcode::GET, number, b"k", b"")], silent.clone());
    }
    service.run(1_000 * MS, |_| false)?;
    match service.worker.audit().sessions {
        SESSIONS => Ok(service),
        open => Err(format!("{open} sessions instead of {SESSIONS}")),
    }
}

/// Pushes `count` messages, numbered from `first`, and publishes them.
fn hand_out(push: &mut Producer, first: u64, count: u64) -> bool {
    let mut message = [7; MESSAGE_BYTES];
    for number in first..first + count {
        message[..8].copy_from_slice(&number.to_le_bytes());
        while !push.push(&message) {
            // Publish, so that the consumer can make room.
            let _ = push.publish();
            spin_loop();
        }
    }
    push.publish()
}

/// Pops what is there; says how much that was.
fn take(pop: &mut Consumer, first: u64, most: u64) -> u64 {
    let mut message = [0; MESSAGE_BYTES];
    let mut count = 0;
    while count < most && pop.pop(&mut message).is_some() {
        let number = u64::from_le_bytes([
            message[0], message[1], message[2], message[3], message[4], message[5], message[6], message[7],
        ]);
        assert!(number == first + count, "a ring keeps the order");
        count += 1;
    }
    black_box(pop.release());
    count
}

fn on_one_worker(batch: u64) -> f64 {
    let (mut push, mut pop) = ring(RING_BYTES);
    let begun = Instant::now();
    let mut number = 0;
    while number < MESSAGES {
        black_box(hand_out(&mut push, number, batch));
        assert!(take(&mut pop, number, batch) == batch, "what was pushed is there");
        number += batch;
    }
    begun.elapsed().as_nanos() as f64 / number as f64
}

fn across(args: &HandoverArgs, batch: u64) -> io::Result<f64> {
    let (mut push, mut pop) = ring(RING_BYTES);
    let core = args.run.cores.server_core;
    let begun = Instant::now();
    std::thread::scope(|scope| {
        let producer = scope.spawn(move || -> io::Result<()> {
            pin_this_thread(core)?;
            for first in (0..MESSAGES).step_by(batch as usize) {
                black_box(hand_out(&mut push, first, batch));
            }
            Ok(())
        });
        let mut number = 0;
        while number < MESSAGES && !(producer.is_finished() && number == 0) {
            match take(&mut pop, number, batch) {
                0 => spin_loop(),
                count => number += count,
            }
        }
        producer.join().map_err(|_| io::Error::other("the producer panicked"))?
    })?;
    Ok(begun.elapsed().as_nanos() as f64 / MESSAGES as f64)
}
