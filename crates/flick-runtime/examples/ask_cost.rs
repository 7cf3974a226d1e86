//! Measures the cost of `ask` beyond a send and a receive, with one worker, a driver that moves no bytes, and a backend
//! that answers at once. The same requests are alternately forwarded (the backend's reply is forwarded) and asked (the
//! rule waits, and forwards the reply); it prints the time of each and the difference, in nanoseconds per request.
//!
//! `cargo run --release -p flick-runtime --example ask_cost`

#[path = "../tests/suspended_rules/asking.rs"]
#[expect(dead_code, reason = "one of its styles is measured here")]
mod asking;
#[path = "../tests/common/mod.rs"]
mod common;

#[path = "wire/wire.rs"]
mod wire;

use std::sync::Arc;
use std::time::Duration;

use flick_runtime::Worker;
use wire::{CLIENTS, Wire, worker};

/// Requests of each client in one round.
const ITERATIONS: u64 = 4_000;
const ROUNDS: usize = 15;

/// Time that this thread has had a core, so that other work of the machine does not count.
fn cpu_ns() -> i64 {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ThreadCPUTime);
    time.tv_sec * 1_000_000_000 + time.tv_nsec
}

/// Nanoseconds of one round for each request.
fn round(worker: &mut Worker<Wire>) -> f64 {
    worker.driver().replied = 0;
    let begun_ns = cpu_ns();
    while u64::from(worker.driver().replied) < ITERATIONS * u64::from(CLIENTS) {
        worker.run_once(Some(Duration::ZERO)).expect("iterations do not fail");
    }
    (cpu_ns() - begun_ns) as f64 / f64::from(worker.driver().replied)
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}

fn main() {
    let mut forwards = worker(common::program(), Arc::new(common::Hand), None);
    let mut sides = Vec::new();
    for timeout_ns in [0, 50_000_000] {
        let style = asking::Style::Retry;
        sides.push((
            timeout_ns,
            worker(asking::program(style), Arc::new(asking::Asking { style, timeout_ns }), None),
        ));
    }
    let (mut forwarded, mut asked) = (Vec::new(), vec![Vec::new(); sides.len()]);
    for _ in 0..ROUNDS {
        forwarded.push(round(&mut forwards));
        for ((_, side), asked) in sides.iter_mut().zip(&mut asked) {
            asked.push(round(side));
        }
    }
    let forwarded = median(forwarded);
    println!("forwarded: {forwarded:.1} ns each");
    for ((timeout_ns, _), asked) in sides.iter().zip(asked) {
        let asked = median(asked);
        println!("asked, timeout of {timeout_ns} ns: {asked:.1} ns each, {:.1} more", asked - forwarded);
    }
}
