//! Measures the cost of an access log and of counting, with one worker, a driver that moves no bytes, and a backend
//! that answers at once. The same requests are forwarded without a log, with one request in a hundred in it, and with
//! all, alternately.
//!
//! Times: `cargo run --release -p flick-runtime --example counting_cost`, and again with `--features uncounted`.
//! Instructions of one of them:
//! `valgrind --tool=callgrind --toggle-collect='*measured*' counting_cost none|hundredth|all`.

#[path = "../tests/common/mod.rs"]
mod common;
#[path = "wire/wire.rs"]
mod wire;

use std::num::NonZeroU32;
use std::sync::Arc;
use std::time::Duration;

use flick_runtime::Worker;
use flick_runtime::access_log::{AccessLog, AccessLogFeed, AccessLogPort};
use wire::{CLIENTS, Wire, worker};

/// Requests of each client between two looks at the log: what they leave fits its ring.
const STRETCH: u32 = 20;
/// Stretches of a round.
const STRETCHES: u32 = 100;
const ROUNDS: usize = 25;
/// Part of the requests that is logged, by name.
const LOGS: [(&str, u32); 3] = [("none", 0), ("hundredth", 100), ("all", 1)];

/// A worker and who reads its log.
struct Side {
    worker: Worker<Wire>,
    feeds: Vec<AccessLogFeed>,
    lines: u64,
}

impl Side {
    fn new(sample: u32) -> Self {
        let port = Arc::<AccessLogPort>::default();
        let access = NonZeroU32::new(sample).map(|sample| AccessLog {
            sample,
            fields: Vec::new(),
            port: Arc::clone(&port),
        });
        let worker = worker(common::program(), Arc::new(common::Hand), access.as_ref());
        let mut side = Self { worker, feeds: port.take_feeds(), lines: 0 };
        side.read();
        side.lines = 0;
        side
    }

    fn read(&mut self) {
        let lines = &mut self.lines;
        self.feeds.iter_mut().for_each(|feed| feed.drain(|_| *lines += 1));
    }
}

/// One stretch; how many requests it was.
#[inline(never)]
fn measured(worker: &mut Worker<Wire>) -> u32 {
    worker.driver().replied = 0;
    while worker.driver().replied < STRETCH * CLIENTS {
        worker.run_once(Some(Duration::ZERO)).expect("iterations do not fail");
    }
    worker.driver().replied
}

/// Time that this thread has had a core, so that other work of the machine does not count.
fn cpu_ns() -> i64 {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ThreadCPUTime);
    time.tv_sec * 1_000_000_000 + time.tv_nsec
}

/// Nanoseconds of one round for each request.
fn round(side: &mut Side) -> f64 {
    let (mut took_ns, mut requests) = (0, 0);
    for _ in 0..STRETCHES {
        let begun_ns = cpu_ns();
        requests += measured(&mut side.worker);
        took_ns += cpu_ns() - begun_ns;
        side.read();
    }
    took_ns as f64 / f64::from(requests)
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}

fn main() {
    if let Some(wanted) = std::env::args().nth(1) {
        let log = LOGS.iter().find(|(name, _)| *name == wanted);
        let (name, sample) = log.expect("`none`, `hundredth` or `all`");
        let mut side = Side::new(*sample);
        let mut requests = 0;
        for _ in 0..STRETCHES {
            requests += measured(&mut side.worker);
            side.read();
        }
        return println!("{name}: {requests} requests, {} lines", side.lines);
    }
    let mut sides = LOGS.map(|(_, sample)| Side::new(sample));
    let mut times = LOGS.map(|_| Vec::new());
    for _ in 0..ROUNDS {
        for (side, times) in sides.iter_mut().zip(&mut times) {
            times.push(round(side));
        }
    }
    let base = times[0].clone();
    for ((name, _), times) in LOGS.iter().zip(times) {
        // Of rounds that follow each other, so that the machine's moods are in both.
        let more = median(times.iter().zip(&base).map(|(own, base)| own - base).collect());
        println!("{name}: {:.1} ns each, {more:+.1}", median(times));
    }
}
