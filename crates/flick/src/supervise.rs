//! The control thread: handles signals and requests of the admin endpoint, reloads, upgrades and shuts down.
//!
//! | signal | action |
//! |---|---|
//! | SIGTERM, SIGINT | drain: no new clients, requests in flight are answered, exit with 0; a filter reads no more |
//! | a second one | exit at once with 128 plus its number |
//! | SIGHUP | reload |
//! | SIGUSR1 | reopen the access log |
//! | SIGUSR2 | hot restart; later signals are forwarded to the new process, whose end drains this one |
//!
//! Promises: reload requests that arrive during a reload are answered together by one more; a signal to exit goes
//! before all queued messages, and interrupts an upgrade whose new process is not ready.

use std::collections::VecDeque;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::sync::mpsc::{self, Receiver, RecvTimeoutError, Sender};
use std::time::{Duration, Instant};

use flick_runtime::{ExitReport, State};
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM, SIGUSR1, SIGUSR2, SIGXFSZ};
use signal_hook::flag;
use signal_hook::iterator::Signals;
use tracing::{error, info, warn};

use crate::commands::run::generations::Generations;
use crate::descriptors::{DescriptorEvent, NEVER, RunningDescriptors};
use crate::failure::{Failure, start_help};
use crate::file_watcher::FileWatcher;
use crate::notify;

/// Interval at which the control thread checks whether a worker ended by itself.
const POLL_INTERVAL: Duration = Duration::from_millis(200);
/// The same while a generation drains.
const DRAIN_POLL_INTERVAL: Duration = Duration::from_millis(20);

/// Time in which an old process answers that it hands over no more clients. One of an earlier version does not.
const HANDOVER_END_TIME_MAX: Duration = Duration::from_secs(1);

/// Time in which workers end after the shutdown timeout. One that does not is in a call that does not return, and the
/// process ends without it.
const WORKER_END_TIME_MAX: Duration = Duration::from_secs(5);

/// A message to the control thread.
#[derive(Debug)]
pub enum ControlMessage {
    /// A signal.
    Signal(i32),
    /// Reload, and report the result.
    Reload(Sender<RequestResult>),
    /// Perform a hot restart, and report the result.
    Upgrade(Sender<RequestResult>),
    /// A client of the old process.
    Client {
        /// Its service.
        service: String,
        /// Index of the worker that served it.
        worker: usize,
        /// Its connection.
        socket: OwnedFd,
    },
    /// The old process hands over no more clients.
    NoMoreClients,
    /// The old process has exited.
    OldProcessExited,
    /// The new process ends, and takes no more clients.
    NewProcessEnds,
    /// A descriptor among the endpoints has ended.
    Descriptor(DescriptorEvent),
}

impl ControlMessage {
    fn is_reload(&self) -> bool {
        matches!(self, Self::Signal(SIGHUP) | Self::Reload(_))
    }

    fn is_exit(&self) -> bool {
        matches!(self, Self::Signal(SIGTERM | SIGINT))
    }
}

/// The result of a reload or upgrade: what has changed, or why nothing has.
pub type RequestResult = Result<String, String>;

/// The queue of the control thread.
pub struct ControlQueue {
    sender: Sender<ControlMessage>,
    receiver: Receiver<ControlMessage>,
    /// Messages that were received and not handled yet.
    pending: VecDeque<ControlMessage>,
}

/// Signals that arrive while flick starts, and whose default action would end the process. They are handled after the
/// start, and SIGXFSZ is ignored. SIGTERM and SIGINT end the process as usual.
pub struct EarlySignals(Signals);

impl EarlySignals {
    /// Collects them from now on; starts no thread. Errors: the kernel rejects the handlers.
    pub fn new() -> Result<Self, Failure> {
        // A write beyond the limit of a file's size fails then. A handler does not outlive `execve`.
        flag::register(SIGXFSZ, Arc::new(AtomicBool::new(false))).map_err(no_handler)?;
        Signals::new([SIGHUP, SIGUSR1, SIGUSR2]).map(Self).map_err(no_handler)
    }
}

impl ControlQueue {
    /// An empty queue, which no signal reaches yet.
    pub fn without_signals() -> Self {
        let (sender, receiver) = mpsc::channel();
        Self { sender, receiver, pending: VecDeque::new() }
    }

    /// Queues signals from now on, and the early ones. Errors: the kernel rejects the handlers.
    pub fn queue_signals(&self, mut early: EarlySignals) -> Result<(), Failure> {
        let sender = self.sender();
        deliver(&[SIGTERM, SIGINT, SIGHUP, SIGUSR1, SIGUSR2], move |signal| {
            sender.send(ControlMessage::Signal(signal)).is_ok()
        })?;
        for signal in early.0.pending() {
            // This queue holds the receiver, so sending works.
            let _ = self.sender.send(ControlMessage::Signal(signal));
        }
        Ok(())
    }

    /// The next message within `timeout`. A signal to exit goes first, behind the clients that were queued before it:
    /// they could not be accepted later.
    fn next(&mut self, timeout: Duration) -> Option<ControlMessage> {
        if self.pending.is_empty() {
            match self.receiver.recv_timeout(timeout) {
                Ok(message) => self.pending.push_back(message),
                Err(RecvTimeoutError::Timeout) => return None,
                Err(RecvTimeoutError::Disconnected) => panic!("the control thread holds a sender itself"),
            }
        }
        self.pending.extend(self.receiver.try_iter());
        let exit = self.pending.iter().position(ControlMessage::is_exit);
        let is_client = |message: &ControlMessage| matches!(message, ControlMessage::Client { .. });
        let before = |exit: usize| self.pending.iter().take(exit).position(is_client).unwrap_or(exit);
        self.pending.remove(exit.map_or(0, before))
    }

    /// Whether a signal to exit is queued.
    fn must_exit(&mut self) -> bool {
        self.pending.extend(self.receiver.try_iter());
        self.pending.iter().any(ControlMessage::is_exit)
    }

    /// Takes all queued reload requests: a reload that starts now answers them, too.
    fn take_reloads(&mut self) -> Vec<ControlMessage> {
        let (reloads, others) =
            std::mem::take(&mut self.pending).into_iter().partition(ControlMessage::is_reload);
        self.pending = others;
        Vec::from(reloads)
    }

    /// A sender to this queue.
    pub fn sender(&self) -> Sender<ControlMessage> {
        self.sender.clone()
    }
}

/// Delivers SIGTERM and SIGINT through a channel. Errors: the kernel rejects the handlers.
pub fn signals() -> Result<Receiver<i32>, Failure> {
    let (sender, receiver) = mpsc::channel();
    deliver(&[SIGTERM, SIGINT], move |signal| sender.send(signal).is_ok())?;
    Ok(receiver)
}

/// Delivers the first SIGTERM or SIGINT as [`signals`] does; a second one ends the process at once with 128 plus its
/// number, whatever it waits for. Errors: the kernel rejects the handlers.
pub fn first_signal() -> Result<Receiver<i32>, Failure> {
    let has_come = Arc::new(AtomicBool::new(false));
    for signal in [SIGTERM, SIGINT] {
        flag::register_conditional_shutdown(signal, 128 + signal, Arc::clone(&has_come))
            .map_err(no_handler)?;
    }
    for signal in [SIGTERM, SIGINT] {
        flag::register(signal, Arc::clone(&has_come)).map_err(no_handler)?;
    }
    signals()
}

fn deliver(signals: &[i32], to: impl Fn(i32) -> bool + Send + 'static) -> Result<(), Failure> {
    let mut signals = Signals::new(signals).map_err(no_handler)?;
    let deliver = move || while signals.forever().next().is_some_and(&to) {};
    std::thread::Builder::new().name("signals".to_owned()).spawn(deliver).map_err(no_handler)?;
    Ok(())
}

fn no_handler(error: std::io::Error) -> Failure {
    let help = start_help(&error);
    Failure::failed(format!("cannot handle signals: {error}{help}"))
}

/// A shutdown in progress.
struct Shutdown {
    start: Instant,
    timeout: Duration,
    cause: ShutdownCause,
    /// The services drain.
    is_draining: bool,
    /// Client connections that were open when the timeout was last seen not to have passed.
    client_connections: u64,
}

/// Reason of a shutdown.
#[derive(Clone, Copy, PartialEq, Eq)]
enum ShutdownCause {
    /// A signal of this number.
    Signal(i32),
    /// A new process serves instead of this one.
    Upgrade,
    /// That new process ends, so that this one drains its remaining clients.
    NewProcessEnds,
    /// All inputs that are descriptors have ended.
    EndOfInput,
}

impl Shutdown {
    fn new(timeout: Duration, cause: ShutdownCause) -> Self {
        Self { start: Instant::now(), timeout, cause, is_draining: false, client_connections: 0 }
    }

    /// Drains the services when the inputs that are descriptors have ended, whose bytes would be lost otherwise, or the
    /// timeout has passed; and when no client comes from an old process any more.
    fn drain_behind_inputs(&mut self, generations: &Generations, descriptors: &RunningDescriptors) {
        let takes_over = generations.takes_clients_over()
            && self.start.elapsed() < HANDOVER_END_TIME_MAX.min(self.timeout);
        let is_due = !takes_over && (!descriptors.has_inputs() || self.is_over());
        if is_due && !self.is_draining && self.cause != ShutdownCause::Upgrade {
            self.is_draining = true;
            generations.drain(self.timeout.saturating_sub(self.start.elapsed()));
            generations.end_handover();
        }
        if !self.is_over() {
            self.client_connections = generations.client_connections();
        }
    }

    fn signal(&self) -> Option<i32> {
        match self.cause {
            ShutdownCause::Signal(signal) => Some(signal),
            ShutdownCause::Upgrade | ShutdownCause::NewProcessEnds | ShutdownCause::EndOfInput => None,
        }
    }

    fn is_over(&self) -> bool {
        self.start.elapsed() >= self.timeout
    }

    /// Whether the workers should have ended by now.
    fn is_overdue_after(&self, elapsed: Duration) -> bool {
        elapsed >= self.timeout.saturating_add(WORKER_END_TIME_MAX)
    }
}

/// Runs until the services have ended.
///
/// Errors: a worker ended by itself; a second signal; a snapshot could not be written at the end; a descriptor failed,
/// or its input is malformed.
pub fn supervise(
    mut generations: Generations,
    mut descriptors: RunningDescriptors,
    queue: &mut ControlQueue,
) -> Result<(), Failure> {
    let mut shutdown: Option<Shutdown> = None;
    let mut watcher = new_watcher(&generations);
    loop {
        generations.reap();
        generations.check_workers();
        generations.follow_load();
        if shutdown.is_none() && watcher.as_mut().is_some_and(FileWatcher::has_changed) {
            info!("a file has changed");
            let is_ok = generations.reload(&mut || queue.must_exit()).is_ok();
            // A failed reload is retried when a file changes, including the files that only it named.
            if is_ok || watcher.as_ref().is_none_or(|watcher| watcher.files() != generations.files()) {
                watcher = new_watcher(&generations);
            }
        }
        shutdown.iter_mut().for_each(|shutdown| shutdown.drain_behind_inputs(&generations, &descriptors));
        if generations.is_finished() {
            if !generations.has_older() && !awaits_old_process(&generations, shutdown.as_ref()) {
                break;
            }
            // There is no generation left to hand the remaining clients to.
            generations.drain(generations.settings().shutdown_timeout);
        }
        if let Some(overdue) = shutdown.as_ref().filter(|it| it.is_overdue_after(it.start.elapsed())) {
            return Err(exit_without_worker(&generations, overdue));
        }
        let is_draining = shutdown.is_some() || generations.has_older();
        let others =
            generations.watchdog_due_in().into_iter().chain(watcher.as_ref().map(FileWatcher::due_in));
        let interval = if is_draining { DRAIN_POLL_INTERVAL } else { POLL_INTERVAL };
        let Some(message) = queue.next(others.fold(interval, Duration::min)) else { continue };
        use ControlMessage::{Client, Descriptor, Reload, Signal, Upgrade};
        match message {
            Descriptor(event) => {
                let has_input = descriptors.note(event).inspect_err(|_| generations.stop())?;
                if !has_input && shutdown.is_none() {
                    shutdown = Some(Shutdown::new(NEVER, ShutdownCause::EndOfInput));
                }
            }
            Client { service, worker, socket } => generations.adopt_client(&service, worker, socket),
            ControlMessage::NoMoreClients => generations.note_no_more_clients(),
            ControlMessage::OldProcessExited => generations.note_old_process_exited(),
            ControlMessage::NewProcessEnds => drain_for_new_process(&generations, &mut shutdown),
            Signal(SIGUSR1) => generations.reopen_logs(),
            Signal(SIGHUP | SIGUSR2) | Reload(_) | Upgrade(_) if shutdown.is_some() => {
                forward(message, &generations);
            }
            Signal(SIGHUP) | Reload(_) => {
                reload(&mut generations, queue, message);
                watcher = new_watcher(&generations);
            }
            Signal(SIGUSR2) | Upgrade(_) => shutdown = upgrade(&mut generations, queue, message),
            Signal(signal) if shutdown.as_ref().is_some_and(|shutdown| shutdown.signal().is_some()) => {
                warn!(signal = name(signal), "exiting at once");
                generations.stop();
                return Err(Failure::signal(signal));
            }
            Signal(signal) => {
                descriptors.stop_inputs();
                let cause = ShutdownCause::Signal(signal);
                shutdown = Some(begin_shutdown(&generations, cause, shutdown.as_ref()));
            }
        }
    }
    finish(generations, shutdown, descriptors, queue)
}

/// Whether this process waits for the end of the old one: its clients may still come for the new process, or it drains
/// with this one, and a supervisor of this process would kill it.
fn awaits_old_process(generations: &Generations, shutdown: Option<&Shutdown>) -> bool {
    generations.has_old_process() && shutdown.is_some_and(|shutdown| !shutdown.is_over())
}

/// Drains the remaining clients of a process that was replaced, as the new process ends.
fn drain_for_new_process(generations: &Generations, shutdown: &mut Option<Shutdown>) {
    if shutdown.as_ref().is_some_and(|shutdown| shutdown.cause == ShutdownCause::Upgrade) {
        *shutdown = Some(begin_shutdown(generations, ShutdownCause::NewProcessEnds, shutdown.as_ref()));
    }
}

/// Stops at once, as a worker does not end.
fn exit_without_worker(generations: &Generations, overdue: &Shutdown) -> Failure {
    let timeout_ms = millis(overdue.timeout);
    error!(timeout_ms, "a worker does not end after the shutdown timeout: exiting without it");
    generations.stop();
    Failure::failed("a worker did not end after the shutdown timeout")
}

/// Starts a successor, and answers this request; returns the shutdown that follows.
fn upgrade(
    generations: &mut Generations,
    queue: &mut ControlQueue,
    request: ControlMessage,
) -> Option<Shutdown> {
    let result = generations.upgrade(queue.sender(), &mut || queue.must_exit());
    let timeout = generations.settings().old_generation_timeout;
    let shutdown = result.is_ok().then(|| Shutdown::new(timeout, ShutdownCause::Upgrade));
    respond(request, &result);
    shutdown
}

/// Reloads, and answers this request and all that are queued.
fn reload(generations: &mut Generations, queue: &mut ControlQueue, request: ControlMessage) {
    let others = queue.take_reloads();
    notify::reloading();
    let result = generations.reload(&mut || queue.must_exit());
    notify::ready();
    std::iter::once(request).chain(others).for_each(|message| respond(message, &result));
}

/// Watches the files of the services, if that is set.
fn new_watcher(generations: &Generations) -> Option<FileWatcher> {
    generations.settings().watch.then(|| FileWatcher::new(generations.files(), generations.read_at()))
}

/// Begins a shutdown in which the services drain, and those of an old process; `before`: the one that it goes on from.
fn begin_shutdown(generations: &Generations, cause: ShutdownCause, before: Option<&Shutdown>) -> Shutdown {
    if before.is_none() {
        notify::stopping();
    }
    let (timeout, client_connections) =
        (generations.settings().shutdown_timeout, generations.client_connections());
    let timeout_ms = millis(timeout);
    match cause {
        ShutdownCause::Signal(signal) => {
            info!(signal = name(signal), client_connections, timeout_ms, "draining");
        }
        _ => info!(client_connections, timeout_ms, "draining, as the new process ends"),
    }
    generations.drain_old_process();
    Shutdown::new(timeout, cause)
}

/// Forwards a message to the new process if there is one, or answers that the service shuts down.
fn forward(message: ControlMessage, generations: &Generations) {
    if let ControlMessage::Signal(signal) = message {
        return generations.forward_signal(signal);
    }
    let error = match generations.new_process() {
        Some(pid) => format!("process {pid} has replaced this one; repeat the request"),
        None => "the service is shutting down".to_owned(),
    };
    respond(message, &Err(error));
}

/// Sends the result of a request to the admin endpoint.
fn respond(message: ControlMessage, result: &RequestResult) {
    if let ControlMessage::Reload(requester) | ControlMessage::Upgrade(requester) = message {
        // The requester may have disconnected.
        let _ = requester.send(result.clone());
    }
}

fn finish(
    generations: Generations,
    shutdown: Option<Shutdown>,
    mut descriptors: RunningDescriptors,
    queue: &mut ControlQueue,
) -> Result<(), Failure> {
    let must_end = || shutdown.as_ref().is_none_or(Shutdown::is_over) || queue.must_exit();
    let (outcome, states) = generations.wait(must_end);
    log_totals(&outcome);
    states.iter().for_each(|state| log_program(state));
    if let Some(first) = outcome.errors.first() {
        return Err(Failure::failed(format!("a worker ended: {first}")));
    }
    if outcome.unsaved > 0 {
        return Err(Failure::failed(unsaved(outcome.unsaved)));
    }
    await_outputs(&mut descriptors, shutdown.as_ref(), queue)?;
    match &shutdown {
        Some(shutdown) if shutdown.cause == ShutdownCause::EndOfInput => descriptors.check(&outcome, None)?,
        Some(shutdown) if !shutdown.is_over() => descriptors.check(&outcome, shutdown.signal())?,
        _ => {}
    }
    match shutdown {
        Some(shutdown) if shutdown.is_over() => {
            let (timeout_ms, client_connections) = (millis(shutdown.timeout), shutdown.client_connections);
            if client_connections > 0 {
                warn!(
                    timeout_ms,
                    client_connections, "closed the remaining clients: the shutdown timeout passed"
                );
            } else {
                warn!(timeout_ms, "dropped what peers had not read: the shutdown timeout passed");
            }
            descriptors.check_cut()
        }
        Some(shutdown) => {
            info!(took_ms = millis(shutdown.start.elapsed()), "drained");
            Ok(())
        }
        None => Err(Failure::failed("all workers ended unexpectedly")),
    }
}

/// Waits until the outputs that are descriptors have written what the services sent; after a signal until the deadline,
/// or the next signal.
fn await_outputs(
    descriptors: &mut RunningDescriptors,
    shutdown: Option<&Shutdown>,
    queue: &mut ControlQueue,
) -> Result<(), Failure> {
    descriptors.stop_outputs();
    while descriptors.has_outputs() && !shutdown.is_some_and(Shutdown::is_over) {
        match queue.next(DRAIN_POLL_INTERVAL) {
            Some(ControlMessage::Descriptor(event)) => {
                descriptors.note(event)?;
            }
            Some(ControlMessage::Signal(signal @ (SIGTERM | SIGINT))) => return Err(Failure::signal(signal)),
            _ => {}
        }
    }
    Ok(())
}

/// The message for snapshots that were not written; the log names the files.
fn unsaved(count: usize) -> String {
    let them = if count == 1 { "a dictionary".to_owned() } else { format!("{count} dictionaries") };
    format!("{them} could not be saved: changes since the last snapshot are lost")
}

fn log_totals(outcome: &ExitReport) {
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
                cpu_throttled = totals.cpu_throttled,
                "service"
            );
        }
    }
    let counted = totals.entries().into_iter().filter(|(_, value)| *value > 0);
    let counters: Vec<String> = counted.map(|(name, value)| format!("{name} {value}")).collect();
    info!(requests = totals.requests, replies = totals.replies, counters = counters.join(", "), "totals");
}

/// Logs the counters of a program and the use of its dictionaries.
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
    use super::{ControlMessage, ControlQueue, Shutdown, ShutdownCause, WORKER_END_TIME_MAX};
    use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM, SIGUSR1, SIGUSR2};
    use std::sync::mpsc;
    use std::time::Duration;

    fn queue_of(signals: &[i32]) -> ControlQueue {
        let queue = ControlQueue::without_signals();
        signals.iter().for_each(|signal| send(&queue, ControlMessage::Signal(*signal)));
        queue
    }

    fn send(queue: &ControlQueue, message: ControlMessage) {
        queue.sender().send(message).expect("the queue holds the receiver");
    }

    fn next(queue: &mut ControlQueue) -> Option<i32> {
        match queue.next(Duration::ZERO)? {
            ControlMessage::Signal(signal) => Some(signal),
            other => panic!("only signals were sent: {other:?}"),
        }
    }

    #[test]
    fn worker_that_did_not_end_kept_the_process_after_the_shutdown_timeout() {
        let timeout = Duration::from_secs(30);
        let shutdown = Shutdown::new(timeout, ShutdownCause::Signal(SIGTERM));
        assert!(!shutdown.is_overdue_after(timeout), "workers close the remaining clients then");
        assert!(shutdown.is_overdue_after(timeout + WORKER_END_TIME_MAX));
        assert!(!Shutdown::new(Duration::MAX, ShutdownCause::EndOfInput).is_overdue_after(timeout));
    }

    #[test]
    fn exit_signal_goes_before_queued_reloads() {
        let mut queue = queue_of(&[SIGHUP, SIGUSR1, SIGHUP, SIGTERM, SIGHUP, SIGINT]);
        let received: Vec<_> = std::iter::from_fn(|| next(&mut queue)).collect();
        assert_eq!(received, [SIGTERM, SIGINT, SIGHUP, SIGUSR1, SIGHUP, SIGHUP]);
    }

    #[test]
    fn clients_queued_before_an_exit_signal_go_before_it() {
        let mut queue = queue_of(&[SIGHUP]);
        for worker in 0..2 {
            let (socket, _) = std::os::unix::net::UnixStream::pair().expect("a pair of sockets");
            let service = "one".to_owned();
            send(&queue, ControlMessage::Client { service, worker, socket: socket.into() });
        }
        send(&queue, ControlMessage::Signal(SIGTERM));
        for index in 0..2 {
            let message = queue.next(Duration::ZERO);
            let is_next = matches!(&message, Some(ControlMessage::Client { worker, .. }) if *worker == index);
            assert!(is_next, "{message:?}");
        }
        assert_eq!((next(&mut queue), next(&mut queue)), (Some(SIGTERM), Some(SIGHUP)));
    }

    #[test]
    fn reload_requests_during_a_reload_share_the_next_one() {
        let mut queue = queue_of(&[SIGHUP, SIGUSR2, SIGHUP]);
        let (requester, result) = mpsc::channel();
        send(&queue, ControlMessage::Reload(requester));
        assert_eq!(next(&mut queue), Some(SIGHUP));
        let others = queue.take_reloads();
        assert_eq!(others.len(), 2);
        others.into_iter().for_each(|message| super::respond(message, &Ok("1 service".to_owned())));
        assert_eq!(result.try_recv(), Ok(Ok("1 service".to_owned())));
        assert_eq!((next(&mut queue), next(&mut queue)), (Some(SIGUSR2), None));
        // A later request gets a reload of its own.
        send(&queue, ControlMessage::Signal(SIGHUP));
        assert_eq!(next(&mut queue), Some(SIGHUP));
        assert!(queue.take_reloads().is_empty());
    }
}
