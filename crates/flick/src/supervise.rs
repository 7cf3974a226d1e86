//! The control thread of a running service: waits for signals and other calls, reloads, and sees the service out.
//! Promises: the first SIGTERM or SIGINT drains (no new clients, every request under way answered) and the tool ends
//! with 0; the second ends the process at once with 128 plus its number; SIGHUP reloads; SIGUSR2 starts a new process that
//! takes this one's place; SIGUSR1 opens the access log anew. Once that process is there, it has all of these. Whoever asks for a reload while one is under way has the next one,
//! together with all others who did; what ends the process goes before all that waits, and before an upgrade whose new process is not ready.

use std::collections::VecDeque;
use std::os::fd::OwnedFd;
use std::sync::mpsc::{self, Receiver, RecvTimeoutError, Sender};
use std::time::{Duration, Instant};

use flick_runtime::{Outcome, State};
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM, SIGUSR1, SIGUSR2};
use signal_hook::iterator::Signals;
use tracing::{error, info, warn};

use crate::commands::run::generations::Generations;
use crate::failure::Failure;
use crate::notify;
use crate::watching::Watching;

/// How long a worker that ended by itself may stay unnoticed.
const LOOK_EVERY: Duration = Duration::from_millis(200);
/// The same while somebody is to end: an older generation, or all.
const LOOK_AT_ENDS_EVERY: Duration = Duration::from_millis(20);

/// Somebody wants something of the control thread.
#[derive(Debug)]
pub enum Call {
    /// A signal arrived.
    Signal(i32),
    /// Reload, and say what came of it.
    Reload(Sender<Answer>),
    /// Have a new process take this one's place, and say what came of it.
    Upgrade(Sender<Answer>),
    /// A client comes from the process whose place this one took.
    Client {
        /// Of this service.
        service: String,
        /// From the worker of this number.
        worker: usize,
        /// Its connection.
        socket: OwnedFd,
    },
}

impl Call {
    fn is_reload(&self) -> bool {
        matches!(self, Call::Signal(SIGHUP) | Call::Reload(_))
    }

    fn is_end(&self) -> bool {
        matches!(self, Call::Signal(SIGTERM | SIGINT))
    }
}

/// What came of something that was asked for: what has changed, or why nothing has.
pub type Answer = Result<String, String>;

/// Where the control thread is called.
pub struct Calls {
    sender: Sender<Call>,
    receiver: Receiver<Call>,
    /// Who has called and was not heard yet.
    waiting: VecDeque<Call>,
}

/// Reloads and the like that are asked for before there is anything to reload: they wait, where the system would end the
/// process. What is meant to end it does.
pub struct Early(Signals);

impl Early {
    /// Keeps them from here on; starts no thread. Errors: the kernel refuses the handlers.
    pub fn new() -> Result<Self, Failure> {
        Signals::new([SIGHUP, SIGUSR1, SIGUSR2]).map(Self).map_err(not_watched)
    }
}

impl Calls {
    /// Delivers signals as calls from here on, and those that came early. Errors: the kernel refuses the handlers.
    pub fn new(mut early: Early) -> Result<Self, Failure> {
        let calls = Self::quiet();
        let sender = calls.sender();
        deliver(&[SIGTERM, SIGINT, SIGHUP, SIGUSR1, SIGUSR2], move |signal| {
            sender.send(Call::Signal(signal)).is_ok()
        })?;
        for signal in early.0.pending() {
            // The receiver is a few lines above.
            let _ = calls.sender.send(Call::Signal(signal));
        }
        Ok(calls)
    }

    /// Without signals.
    fn quiet() -> Self {
        let (sender, receiver) = mpsc::channel();
        Self { sender, receiver, waiting: VecDeque::new() }
    }

    /// The next call, if one comes within `patience`: first what ends the process, but for clients that came before that. Nobody would
    /// take them in behind it.
    fn next(&mut self, patience: Duration) -> Option<Call> {
        if self.waiting.is_empty() {
            match self.receiver.recv_timeout(patience) {
                Ok(call) => self.waiting.push_back(call),
                Err(RecvTimeoutError::Timeout) => return None,
                Err(RecvTimeoutError::Disconnected) => panic!("the control thread holds a sender itself"),
            }
        }
        self.waiting.extend(self.receiver.try_iter());
        let end = self.waiting.iter().position(Call::is_end);
        let is_client = |call: &Call| matches!(call, Call::Client { .. });
        let before = |end: usize| self.waiting.iter().take(end).position(is_client).unwrap_or(end);
        self.waiting.remove(end.map_or(0, before))
    }

    /// Whether what ends the process waits to be heard.
    fn is_to_end(&mut self) -> bool {
        self.waiting.extend(self.receiver.try_iter());
        self.waiting.iter().any(Call::is_end)
    }

    /// All others who wait for a reload: one that begins now is as good for them.
    fn take_reloads(&mut self) -> Vec<Call> {
        let (reloads, others) =
            std::mem::take(&mut self.waiting).into_iter().partition(|call| call.is_reload());
        self.waiting = others;
        Vec::from(reloads)
    }

    /// For whoever calls.
    pub fn sender(&self) -> Sender<Call> {
        self.sender.clone()
    }
}

/// Delivers the signals that end a show as messages. Errors: the kernel refuses the handlers.
pub fn signals() -> Result<Receiver<i32>, Failure> {
    let (sender, receiver) = mpsc::channel();
    deliver(&[SIGTERM, SIGINT], move |signal| sender.send(signal).is_ok())?;
    Ok(receiver)
}

fn deliver(signals: &[i32], to: impl Fn(i32) -> bool + Send + 'static) -> Result<(), Failure> {
    let mut signals = Signals::new(signals).map_err(not_watched)?;
    let deliver = move || while signals.forever().next().is_some_and(&to) {};
    std::thread::Builder::new().name("signals".to_owned()).spawn(deliver).map_err(not_watched)?;
    Ok(())
}

fn not_watched(error: std::io::Error) -> Failure {
    Failure::failed(format!("cannot watch signals: {error}"))
}

/// How the service ends.
struct End {
    start: Instant,
    deadline: Duration,
    /// Another process has its place.
    is_upgrade: bool,
}

impl End {
    fn new(deadline: Duration, is_upgrade: bool) -> Self {
        Self { start: Instant::now(), deadline, is_upgrade }
    }
}

/// Stays until the services have ended.
///
/// Errors: a worker ended by itself; a second signal; a kept dictionary could not be written at the end.
pub fn supervise(mut generations: Generations, calls: &mut Calls) -> Result<(), Failure> {
    let mut ending: Option<End> = None;
    let watch = |generations: &Generations| {
        generations.settings().watch.then(|| Watching::new(generations.files(), generations.read_at()))
    };
    let mut watching = watch(&generations);
    loop {
        generations.reap();
        generations.look_after_workers();
        if ending.is_none() && watching.as_mut().is_some_and(Watching::has_changed) {
            info!("a file has changed");
            let is_ok = generations.reload().is_ok();
            // One that failed is tried again when a file changes, of those that it named too.
            if is_ok || watching.as_ref().is_none_or(|watching| watching.files() != generations.files()) {
                watching = watch(&generations);
            }
        }
        if generations.is_finished() {
            if !generations.has_older() {
                break;
            }
            // Who goes on cannot be handed over to any more.
            generations.drain(generations.settings().drain_deadline);
        }
        let is_ending = ending.is_some() || generations.has_older();
        let others = generations.look_due_in().into_iter().chain(watching.as_ref().map(Watching::due_in));
        let patience = if is_ending { LOOK_AT_ENDS_EVERY } else { LOOK_EVERY };
        let Some(call) = calls.next(others.fold(patience, Duration::min)) else { continue };
        match call {
            Call::Client { service, worker, socket } => generations.take_in(&service, worker, socket),
            Call::Signal(SIGUSR1) => generations.reopen_logs(),
            Call::Signal(SIGHUP | SIGUSR2) | Call::Reload(_) | Call::Upgrade(_) if ending.is_some() => {
                call_others(call, &generations);
            }
            Call::Signal(SIGHUP) | Call::Reload(_) => {
                let others = calls.take_reloads();
                notify::reloading();
                let outcome = generations.reload();
                notify::ready();
                watching = watch(&generations);
                std::iter::once(call).chain(others).for_each(|call| answer(call, &outcome));
            }
            Call::Signal(SIGUSR2) | Call::Upgrade(_) => {
                let outcome = generations.upgrade(&mut || calls.is_to_end());
                if outcome.is_ok() {
                    ending = Some(End::new(generations.settings().reload_deadline, true));
                }
                answer(call, &outcome);
            }
            Call::Signal(signal) if ending.as_ref().is_some_and(|end| !end.is_upgrade) => {
                warn!(signal = name(signal), "stopping at once");
                generations.stop();
                return Err(Failure::signal(signal));
            }
            Call::Signal(signal) => {
                let (open, deadline) = (generations.sessions_open(), generations.settings().drain_deadline);
                let deadline_ms = millis(deadline);
                info!(signal = name(signal), sessions_open = open, deadline_ms, "draining");
                if ending.is_none() {
                    notify::stopping();
                }
                generations.drain(deadline);
                ending = Some(End::new(deadline, false));
            }
        }
    }
    ended(generations, ending)
}

/// Whoever calls a process that is ending means the service: if another has its place, that one is called.
fn call_others(call: Call, generations: &Generations) {
    if let Call::Signal(signal) = call {
        return generations.pass_on(signal);
    }
    let why = match generations.successor() {
        Some(pid) => format!("process {pid} has taken this one's place meanwhile: ask again"),
        None => "the service is ending".to_owned(),
    };
    answer(call, &Err(why));
}

/// Tells who asked what came of it, if somebody did.
fn answer(call: Call, outcome: &Answer) {
    if let Call::Reload(asked) | Call::Upgrade(asked) = call {
        // Who has gone does not want to know.
        let _ = asked.send(outcome.clone());
    }
}

fn ended(generations: Generations, ending: Option<End>) -> Result<(), Failure> {
    let (outcome, states) = generations.wait();
    log_totals(&outcome);
    states.iter().for_each(|state| log_program(state));
    if let Some(first) = outcome.errors.first() {
        return Err(Failure::failed(format!("a worker ended: {first}")));
    }
    if outcome.unsaved > 0 {
        return Err(Failure::failed(unsaved(outcome.unsaved)));
    }
    match ending {
        Some(end) if end.start.elapsed() >= end.deadline => {
            warn!(deadline_ms = millis(end.deadline), "the deadline passed before every client was served");
            Ok(())
        }
        Some(end) => {
            info!(took_ms = millis(end.start.elapsed()), "drained");
            Ok(())
        }
        None => Err(Failure::failed("all workers ended without being asked to")),
    }
}

/// Whoever restarts a service must learn that it begins with what was there before; which files, the log has said.
fn unsaved(count: usize) -> String {
    let them = if count == 1 { "a dictionary".to_owned() } else { format!("{count} dictionaries") };
    format!("{them} could not be written at the end: what has changed since the last snapshot is lost")
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

#[cfg(test)]
mod tests {
    use super::{Call, Calls};
    use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM, SIGUSR1, SIGUSR2};
    use std::sync::mpsc;
    use std::time::Duration;

    fn called(signals: &[i32]) -> Calls {
        let calls = Calls::quiet();
        signals.iter().for_each(|signal| calls.sender().send(Call::Signal(*signal)).expect("it is held"));
        calls
    }

    fn next(calls: &mut Calls) -> Option<i32> {
        match calls.next(Duration::ZERO)? {
            Call::Signal(signal) => Some(signal),
            other => panic!("only signals were sent: {other:?}"),
        }
    }

    #[test]
    fn a_service_that_was_told_to_end_reloaded_as_often_as_it_had_been_told_before() {
        let mut calls = called(&[SIGHUP, SIGUSR1, SIGHUP, SIGTERM, SIGHUP, SIGINT]);
        let heard: Vec<_> = std::iter::from_fn(|| next(&mut calls)).collect();
        assert_eq!(heard, [SIGTERM, SIGINT, SIGHUP, SIGUSR1, SIGHUP, SIGHUP]);
    }

    #[test]
    fn clients_that_came_before_the_end_are_taken_in_before_it() {
        let mut calls = called(&[SIGHUP]);
        for worker in 0..2 {
            let (socket, _) = std::os::unix::net::UnixStream::pair().expect("a pair of sockets");
            let client = Call::Client { service: "one".to_owned(), worker, socket: socket.into() };
            calls.sender().send(client).expect("it is held");
        }
        calls.sender().send(Call::Signal(SIGTERM)).expect("it is held");
        for number in 0..2 {
            let call = calls.next(Duration::ZERO);
            assert!(matches!(&call, Some(Call::Client { worker, .. }) if *worker == number), "{call:?}");
        }
        assert_eq!((next(&mut calls), next(&mut calls)), (Some(SIGTERM), Some(SIGHUP)));
    }

    #[test]
    fn who_asks_while_a_reload_is_under_way_has_the_next_one_with_all_others() {
        let mut calls = called(&[SIGHUP, SIGUSR2, SIGHUP]);
        let (asked, told) = mpsc::channel();
        calls.sender().send(Call::Reload(asked)).expect("it is held");
        assert_eq!(next(&mut calls), Some(SIGHUP));
        let others = calls.take_reloads();
        assert_eq!(others.len(), 2);
        others.into_iter().for_each(|call| super::answer(call, &Ok("1 service".to_owned())));
        assert_eq!(told.try_recv(), Ok(Ok("1 service".to_owned())));
        assert_eq!((next(&mut calls), next(&mut calls)), (Some(SIGUSR2), None));
        // Who asks later has one of their own.
        calls.sender().send(Call::Signal(SIGHUP)).expect("it is held");
        assert_eq!(next(&mut calls), Some(SIGHUP));
        assert!(calls.take_reloads().is_empty());
    }
}
