//! The control thread of a running service: waits for signals and sees the service out.
//! Promises: the first SIGTERM or SIGINT drains (no new clients, every request under way answered) and the tool ends
//! with 0; the second ends the process at once with 128 plus its number.

use std::sync::Arc;
use std::sync::mpsc::{self, Receiver, RecvTimeoutError};
use std::time::{Duration, Instant};

use flick_runtime::{Outcome, Platform, State};
use signal_hook::consts::{SIGINT, SIGTERM};
use signal_hook::iterator::Signals;
use tracing::{error, info, warn};

use crate::failure::Failure;

/// How long a worker that ended by itself may stay unnoticed.
const LOOK_EVERY: Duration = Duration::from_millis(20);

/// Delivers signals as messages. Errors: the kernel refuses the handlers.
pub fn signals() -> std::io::Result<Receiver<i32>> {
    let mut signals = Signals::new([SIGTERM, SIGINT])?;
    let (sender, receiver) = mpsc::channel();
    std::thread::Builder::new().name("signals".to_owned()).spawn(move || {
        for signal in signals.forever() {
            if sender.send(signal).is_err() {
                return;
            }
        }
    })?;
    Ok(receiver)
}

/// Stays until the service has ended.
///
/// Errors: a worker ended by itself; a second signal.
pub fn supervise(
    platform: Platform,
    signals: &Receiver<i32>,
    drain_deadline: Duration,
) -> Result<(), Failure> {
    let mut draining: Option<Instant> = None;
    while !platform.is_finished() {
        let signal = match signals.recv_timeout(LOOK_EVERY) {
            Ok(signal) => signal,
            Err(RecvTimeoutError::Timeout) => continue,
            Err(RecvTimeoutError::Disconnected) => {
                panic!("the thread that receives signals outlives the service")
            }
        };
        if draining.is_some() {
            warn!(signal = name(signal), "stopping at once");
            platform.stop();
            return Err(Failure::signal(signal));
        }
        let open = platform.metrics().totals.sessions_open;
        info!(signal = name(signal), sessions_open = open, deadline_ms = millis(drain_deadline), "draining");
        platform.drain(drain_deadline);
        draining = Some(Instant::now());
    }
    let states: Vec<Arc<State>> = platform
        .services()
        .iter()
        .filter(|service| service.is_first_of_program())
        .map(|service| Arc::clone(service.state()))
        .collect();
    let outcome = platform.wait();
    log_totals(&outcome);
    states.iter().for_each(|state| log_program(state));
    if let Some(first) = outcome.errors.first() {
        return Err(Failure::failed(format!("a worker ended: {first}")));
    }
    match draining {
        Some(start) if start.elapsed() >= drain_deadline => {
            warn!(deadline_ms = millis(drain_deadline), "the deadline passed before every client was served");
            Ok(())
        }
        Some(start) => {
            info!(took_ms = millis(start.elapsed()), "drained");
            Ok(())
        }
        None => Err(Failure::failed("all workers ended without being asked to")),
    }
}

fn log_totals(outcome: &Outcome) {
    let totals = &outcome.totals;
    for error in &outcome.errors {
        error!(%error, "a worker ended");
    }
    if outcome.services.len() > 1 {
        for (service, totals) in &outcome.services {
            info!(
                service,
                requests = totals.requests,
                replies = totals.replies,
                busy_ms = totals.busy_ns / 1_000_000,
                share_waits = totals.share_waits,
                "service"
            );
        }
    }
    let counted = totals.entries().into_iter().filter(|(_, value)| *value > 0);
    let counters: Vec<String> = counted.map(|(name, value)| format!("{name} {value}")).collect();
    info!(requests = totals.requests, replies = totals.replies, counters = counters.join(", "), "totals");
}

/// What the program itself has counted, and how its dictionaries were used.
fn log_program(state: &State) {
    let counters = state.counters();
    if !counters.is_empty() {
        let counted: Vec<String> =
            counters.iter().map(|counter| format!("{} {}", counter.name, counter.value)).collect();
        info!(counters = counted.join(", "), "program");
    }
    for dict in state.dict_reports() {
        info!(
            name = dict.name,
            entries = dict.entries,
            entries_max = dict.entries_max,
            hits = dict.hits,
            misses = dict.misses,
            evictions = dict.evictions,
            expirations = dict.expirations,
            refusals = dict.refusals,
            "dictionary"
        );
    }
}

fn name(signal: i32) -> &'static str {
    match signal {
        SIGTERM => "SIGTERM",
        SIGINT => "SIGINT",
        _ => "signal",
    }
}

fn millis(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}
