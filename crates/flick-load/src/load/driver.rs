//! The loop of one load thread: connects, sends requests, receives replies, counts, and ends in time.
//!
//! Promises: an iteration costs one wait, and one read and one write per ready connection; nothing is allocated per
//! request once the buffers have their size; in the open loop, due requests are sent even when the server stalls, each
//! on the connection that has waited longest for one.
//! Refuses: parsing requests and replies (`client.rs`, `wire.rs`).

use std::collections::VecDeque;
use std::io;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use flick_shm::client::{ClientConfig, ClientEvent, ClientSet};
use hdrhistogram::Histogram;
use rustix::time::{Itimerspec, TimerfdClockId, TimerfdFlags, TimerfdTimerFlags, Timespec};

use crate::limits::{CLOSE_WAIT_MAX, CONNECT_WAIT_MAX, EVENTS_MAX, SPLIT_BYTES_MAX};
use crate::random::Random;

use super::client::{Client, State, Verdict};
use super::distribution::{Zipf, etc_value_bytes};
use super::progress::{LoadCounts, LoadProgress, new_histogram};
use super::schedule::Schedule;
use super::{KeyOrder, LoadConfig, LoadProtocol, ValueSize};

const TIMER: u32 = u32::MAX;

/// Separates the due times from all other random choices of a thread.
const SCHEDULE_SALT: u64 = 0x7363_6865_6475_6c65;

/// Longest sleep of an iteration: how late a stop or the end of a phase may be noticed.
const LOOP_NS_MAX: u64 = 10_000_000;

/// Interval between two merges of the histogram into the shared one, in nanoseconds.
const MERGE_NS: u64 = 50_000_000;

/// Due times nearer than this are not worth a sleep.
const SLEEP_NS_MIN: u64 = 20_000;

/// The phases of a load, in order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    Connecting,
    Warming,
    Measuring,
    Draining { until_ns: u64 },
}

/// The state of a connection after its replies were checked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Flow {
    /// It goes on.
    Open,
    /// Its last reply has ended it.
    Closes,
    /// Its bytes cannot be parsed.
    Broken,
}

/// The length of what was measured, from the end of the warm-up on.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Span {
    /// Until the last reply, or until no request was asked any more if that is later: a server that goes silent has no
    /// replies in the rest of the load.
    pub(super) replying: Duration,
    /// Until no request was asked any more.
    pub(super) asking: Duration,
}

/// One thread's share of a load.
pub(super) struct Driver {
    config: Arc<LoadConfig>,
    progress: Arc<LoadProgress>,
    stop: Arc<AtomicBool>,
    abort: Arc<AtomicBool>,
    set: ClientSet,
    timer: OwnedFd,
    clients: Vec<Client>,
    random: Random,
    epoch: Instant,
    phase: Phase,
    began_ns: u64,
    measured_ns: u64,
    last_reply_ns: u64,
    /// Time from which no request is asked any more; 0 before.
    drained_from_ns: u64,
    merged_ns: u64,
    /// Earliest time at which a lost connection reconnects, or is closed by the load.
    retry_ns: u64,
    counts: LoadCounts,
    latency: Histogram<u64>,
    served: Histogram<u64>,
    unanswered: u64,
    /// Requests that may still be asked; `u64::MAX` for no limit.
    budget: u64,
    /// Open loop: when requests are due.
    schedule: Option<Schedule>,
    /// Open loop: requests that are due later are not asked.
    due_end_ns: u64,
    /// Open loop: connections that can take a request, the one that has waited longest first.
    takers: VecDeque<u32>,
    next_key: u64,
    zipf: Option<Zipf>,
    /// Statuses of HTTP since the last merge.
    statuses: Vec<(u16, u64)>,
}

impl Driver {
    /// Prepares the share of thread number `thread`. Errors: no descriptor is left.
    pub(super) fn new(
        config: Arc<LoadConfig>,
        thread: usize,
        progress: Arc<LoadProgress>,
        stop: Arc<AtomicBool>,
        abort: Arc<AtomicBool>,
    ) -> io::Result<Driver> {
        let flags = TimerfdFlags::CLOEXEC | TimerfdFlags::NONBLOCK;
        let timer = rustix::time::timerfd_create(TimerfdClockId::Monotonic, flags)?;
        let numbers = (thread..config.connections).step_by(config.threads);
        let numbers_len = numbers.len();
        let set = ClientSet::new(&ClientConfig::new(numbers_len as u32))?;
        set.watch(&timer, TIMER)?;
        let clients = numbers.enumerate().map(|(token, number)| {
            let number = u32::try_from(number).expect("CONNECTIONS_MAX fits u32");
            Client::new(&config, number, token as u32)
        });
        let threads = config.threads as u64;
        let budget = config
            .requests
            .map_or(u64::MAX, |all| all / threads + u64::from((thread as u64) < all % threads));
        let schedule = config.rate_per_s.map(|rate| {
            let share = numbers_len as f64 / config.connections as f64;
            let offset = thread as f64 / threads as f64;
            Schedule::new(config.gaps, rate * share, offset, config.seed ^ SCHEDULE_SALT ^ thread as u64)
        });
        let zipf = match config.order {
            KeyOrder::Zipf(exponent) => Some(Zipf::new(config.keys, exponent)),
            KeyOrder::Random | KeyOrder::Sequential => None,
        };
        Ok(Driver {
            clients: clients.collect(),
            random: Random::new(config.seed ^ ((thread as u64) << 32)),
            config,
            progress,
            stop,
            abort,
            set,
            timer,
            epoch: Instant::now(),
            phase: Phase::Connecting,
            began_ns: 0,
            measured_ns: 0,
            last_reply_ns: 0,
            drained_from_ns: 0,
            merged_ns: 0,
            retry_ns: u64::MAX,
            counts: LoadCounts::default(),
            latency: new_histogram(),
            served: new_histogram(),
            unanswered: 0,
            budget,
            schedule,
            due_end_ns: u64::MAX,
            takers: VecDeque::with_capacity(numbers_len),
            next_key: 0,
            zipf,
            statuses: Vec::new(),
        })
    }

    /// Runs to the end and returns how long what it measured took.
    pub(super) fn run(mut self) -> Span {
        self.epoch = Instant::now();
        if !self.config.connection_per_request {
            for at in 0..self.clients.len() {
                self.connect(at);
            }
        }
        let mut events: Vec<ClientEvent> = Vec::with_capacity(EVENTS_MAX);
        while !self.is_over() {
            self.wait(&mut events);
            for event in &events {
                self.serve(*event);
            }
            let now_ns = self.now_ns();
            self.change_phase(now_ns);
            self.ask_what_is_due(now_ns);
            self.retry(now_ns);
            self.publish(now_ns);
        }
        self.counts.lost += self.unanswered;
        self.count_unsent();
        self.publish(u64::MAX);
        let since_warm_up = |end_ns: u64| Duration::from_nanos(end_ns.saturating_sub(self.measured_ns));
        Span {
            replying: since_warm_up(self.last_reply_ns.max(self.drained_from_ns)),
            asking: since_warm_up(self.due_end_ns),
        }
    }

    fn now_ns(&self) -> u64 {
        self.epoch.elapsed().as_nanos() as u64
    }

    fn is_asking(&self) -> bool {
        matches!(self.phase, Phase::Warming | Phase::Measuring)
    }

    fn is_over(&self) -> bool {
        let all_dead = self.clients.iter().all(|client| matches!(client.state, State::Dead));
        match self.phase {
            _ if all_dead || self.abort.load(Ordering::Acquire) => true,
            Phase::Draining { until_ns } => {
                (self.unanswered == 0 && self.overdue_ns().is_none()) || self.now_ns() >= until_ns
            }
            _ => false,
        }
    }

    /// Open loop: when the next request is due, unless it is the last one that the load asks.
    fn next_due_ns(&self) -> Option<u64> {
        let due_ns = self.schedule.as_ref().map(Schedule::next_ns)?;
        (self.budget > 0 && self.phase != Phase::Connecting && due_ns <= self.due_end_ns).then_some(due_ns)
    }

    /// Open loop: when the next request has become due, if it has and is not asked yet.
    fn overdue_ns(&self) -> Option<u64> {
        self.next_due_ns().filter(|due_ns| *due_ns <= self.now_ns())
    }

    /// Open loop: counts the requests that have become due and are not asked.
    fn count_unsent(&mut self) {
        self.due_end_ns = self.due_end_ns.min(self.now_ns());
        while let Some(due_ns) = self.next_due_ns() {
            self.counts.unsent += 1;
            self.take_due(due_ns);
        }
    }

    /// Open loop: takes the next request, which is due at this time, from the schedule and the budget.
    fn take_due(&mut self, due_ns: u64) {
        self.counts.due += u64::from(due_ns >= self.measured_ns);
        self.spend();
        self.schedule.as_mut().expect("it has a next time").advance();
    }

    /// Takes a request from the budget.
    fn spend(&mut self) {
        self.budget -= u64::from(self.budget != u64::MAX);
    }

    fn change_phase(&mut self, now_ns: u64) {
        if self.phase == Phase::Connecting {
            let connecting =
                self.clients.iter().filter(|client| matches!(client.state, State::Connecting)).count();
            if connecting == 0 || now_ns >= CONNECT_WAIT_MAX.as_nanos() as u64 {
                self.counts.connect_failures += connecting as u64;
                self.phase = Phase::Warming;
                self.began_ns = now_ns;
                self.measured_ns = now_ns + self.config.warmup.as_nanos() as u64;
                if let Some(schedule) = &mut self.schedule {
                    schedule.begin(now_ns);
                }
                for at in 0..self.clients.len() {
                    self.ask_and_send(at, now_ns);
                }
            }
        }
        if self.phase == Phase::Warming && now_ns >= self.measured_ns {
            self.phase = Phase::Measuring;
            self.measured_ns = now_ns;
            self.progress.begin_measuring();
        }
        let is_late =
            self.config.duration.is_some_and(|span| now_ns >= self.measured_ns + span.as_nanos() as u64);
        // A load that ends by its count must also end when replies never come.
        let is_stalled = self.config.requests.is_some()
            && self.unanswered > 0
            && now_ns.saturating_sub(self.last_reply_ns.max(self.began_ns))
                >= self.config.drain.as_nanos() as u64;
        let is_done = self.budget == 0 || is_stalled || (self.phase == Phase::Measuring && is_late);
        let is_draining = matches!(self.phase, Phase::Draining { .. });
        if !is_draining && ((self.is_asking() && is_done) || self.stop.load(Ordering::Acquire)) {
            if self.phase == Phase::Connecting {
                // Nothing was due before the load began.
                self.budget = 0;
            }
            self.phase = Phase::Draining { until_ns: now_ns + self.config.drain.as_nanos() as u64 };
            self.drained_from_ns = now_ns;
            self.due_end_ns = now_ns;
        }
    }

    /// Sleeps until something is ready, due or over.
    fn wait(&mut self, events: &mut Vec<ClientEvent>) {
        let mut sleep_ns = LOOP_NS_MAX;
        if let Some(due_ns) = self.next_due_ns().filter(|_| !self.takers.is_empty()) {
            let until_due_ns = due_ns.saturating_sub(self.now_ns());
            if until_due_ns < SLEEP_NS_MIN {
                sleep_ns = 0;
            } else if until_due_ns < LOOP_NS_MAX {
                self.set_timer(until_due_ns);
            }
        }
        let timeout = Timespec { tv_sec: 0, tv_nsec: sleep_ns as i64 };
        if let Err(errno) = self.set.wait(events, Some(timeout)) {
            panic!("a wait on live descriptors: {errno}");
        }
    }

    fn set_timer(&self, delay_ns: u64) {
        let zero = Timespec { tv_sec: 0, tv_nsec: 0 };
        let delay = Timespec { tv_sec: 0, tv_nsec: delay_ns as i64 };
        let spec = Itimerspec { it_interval: zero, it_value: delay };
        rustix::time::timerfd_settime(&self.timer, TimerfdTimerFlags::empty(), &spec)
            .expect("the delay is positive and under a second");
    }

    fn clear_timer(&self) {
        // An empty read means that the timer was set again since it fired, which is as good.
        let _ = rustix::io::read(&self.timer, &mut [0u8; 8]);
    }

    /// Open loop: passes due requests to connections, as long as both are there.
    fn ask_what_is_due(&mut self, now_ns: u64) {
        while let Some(due_ns) = self.next_due_ns().filter(|due_ns| *due_ns <= now_ns) {
            let Some(at) = self.takers.pop_front() else { return };
            let at = at as usize;
            self.clients[at].is_queued = false;
            if self.can_take(at) {
                self.take_due(due_ns);
                self.ask(at, due_ns);
                self.queue(at);
                self.send(at, now_ns);
            }
        }
    }

    /// Returns whether a connection can take another request.
    fn can_take(&self, at: usize) -> bool {
        let client = &self.clients[at];
        let is_ready = match client.state {
            State::Idle => self.config.connection_per_request,
            State::Open => !self.config.connection_per_request,
            _ => false,
        };
        is_ready && client.has_free_slot()
    }

    /// Open loop: queues a connection that can take a request.
    fn queue(&mut self, at: usize) {
        if self.can_take(at) && !self.clients[at].is_queued {
            self.clients[at].is_queued = true;
            self.takers.push_back(at as u32);
        }
    }

    /// Asks as many requests as the connection and the mode allow, then sends.
    fn ask_and_send(&mut self, at: usize, now_ns: u64) {
        if self.schedule.is_some() {
            self.queue(at);
        } else {
            while self.is_asking() && self.budget > 0 && self.can_take(at) {
                self.spend();
                self.ask(at, now_ns);
            }
        }
        self.send(at, now_ns);
    }

    /// Sends what is asked, and connects first if that is needed.
    fn send(&mut self, at: usize, now_ns: u64) {
        if matches!(self.clients[at].state, State::Idle) {
            if self.clients[at].has_unanswered() {
                self.connect(at);
            }
            return;
        }
        let piece = self.config.split_writes.then(|| 1 + self.random.below(SPLIT_BYTES_MAX) as usize);
        match self.clients[at].send(&mut self.set, piece) {
            Ok(sent) => self.counts.sent_bytes += self.measured(sent),
            Err(_) => self.disconnected(at, now_ns),
        }
    }

    /// Returns a number of bytes, or 0 during the warm-up.
    fn measured(&self, bytes: usize) -> u64 {
        if matches!(self.phase, Phase::Connecting | Phase::Warming) { 0 } else { bytes as u64 }
    }

    fn ask(&mut self, at: usize, due_ns: u64) {
        let config = &*self.config;
        if config.protocol == LoadProtocol::Http {
            self.clients[at].ask(0, 0, None, due_ns);
        } else {
            let key = match (config.order, &self.zipf) {
                (KeyOrder::Sequential, _) => self.next_key,
                (_, Some(zipf)) => zipf.sample(&mut self.random),
                (_, None) => self.random.below(config.keys),
            };
            self.next_key = (self.next_key + 1) % config.keys;
            let is_get = ((self.random.next_u64() >> 11) as f64) < config.get_ratio * (1u64 << 53) as f64;
            let set_len = (!is_get).then(|| match config.value {
                ValueSize::Fixed(len) => len,
                ValueSize::Between(min, max) => min + self.random.below((max - min + 1) as u64) as usize,
                ValueSize::Etc => etc_value_bytes(&mut self.random),
            });
            self.clients[at].ask(key, config.key_size.bytes_of(key, config.keys), set_len, due_ns);
        }
        self.unanswered += 1;
        self.counts.requests += 1;
    }

    /// Handles one event.
    fn serve(&mut self, event: ClientEvent) {
        match event {
            ClientEvent::Watched(_) => self.clear_timer(),
            ClientEvent::Connected(token) => {
                self.clients[token as usize].finish_connect();
                self.counts.connects += 1;
                self.progress.connection_opened();
                self.ask_and_send(token as usize, self.now_ns());
            }
            ClientEvent::Failed(token) => {
                self.counts.connect_failures += 1;
                self.close(token as usize, self.now_ns());
            }
            ClientEvent::Readable(token) => match self.clients[token as usize].state {
                State::Open => self.serve_replies(token as usize),
                State::Closing { .. } => self.drop_rest(token as usize),
                _ => {}
            },
            ClientEvent::Writable(token) => self.ask_and_send(token as usize, self.now_ns()),
        }
    }

    /// Receives once, counts the replies and sends what they allow.
    fn serve_replies(&mut self, at: usize) {
        let received = self.clients[at].receive(&mut self.set);
        let now_ns = self.now_ns();
        let mut flow = self.judge(at, now_ns);
        if let Ok(bytes) = received {
            self.counts.received_bytes += self.measured(bytes);
        } else if received.as_ref().is_err_and(|error| error.kind() == io::ErrorKind::UnexpectedEof)
            && let Some(verdict) = self.clients[at].finish_page().filter(|_| flow == Flow::Open)
        {
            flow = self.count(at, verdict, now_ns);
        }
        let is_finished = self.config.connection_per_request && !self.clients[at].has_unanswered();
        match (flow, received.is_ok()) {
            (Flow::Open, true) if is_finished => self.reopen(at, now_ns),
            (Flow::Open, true) => self.ask_and_send(at, now_ns),
            (Flow::Open, false) if is_finished => self.reopen(at, now_ns),
            (Flow::Closes, false) => self.reopen(at, now_ns),
            (Flow::Closes, true) => {
                // The side that closes first keeps the port for a minute: that is to be the server.
                let until_ns = now_ns + CLOSE_WAIT_MAX.as_nanos() as u64;
                self.clients[at].state = State::Closing { until_ns };
                self.retry_ns = self.retry_ns.min(until_ns);
            }
            (Flow::Open, false) | (Flow::Broken, _) => self.disconnected(at, now_ns),
        }
    }

    /// Drops what comes behind the last reply, until the server closes the connection.
    fn drop_rest(&mut self, at: usize) {
        if self.clients[at].receive(&mut self.set).is_err() {
            self.reopen(at, self.now_ns());
        }
    }

    /// Closes a connection that has served its purpose, and opens the next one when there is a request for it.
    fn reopen(&mut self, at: usize, now_ns: u64) {
        self.progress.connection_closed();
        self.clients[at].hang_up(&mut self.set);
        if self.config.connection_per_request {
            self.ask_and_send(at, now_ns);
        } else {
            self.connect(at);
        }
    }

    /// Counts every whole reply in the buffer.
    fn judge(&mut self, at: usize, now_ns: u64) -> Flow {
        loop {
            match self.clients[at].judge() {
                Verdict::NeedMore => return Flow::Open,
                verdict => match self.count(at, verdict, now_ns) {
                    Flow::Open => {}
                    ended => return ended,
                },
            }
        }
    }

    /// Counts one reply.
    fn count(&mut self, at: usize, verdict: Verdict, now_ns: u64) -> Flow {
        let number = self.clients[at].number;
        match verdict {
            Verdict::NeedMore => {}
            Verdict::Good { due_ns, served_ns } => self.good_reply(due_ns, served_ns, now_ns),
            Verdict::Miss { due_ns, served_ns } => {
                self.counts.misses += self.measured(1);
                self.good_reply(due_ns, served_ns, now_ns);
            }
            Verdict::Page { status, closes, due_ns, served_ns } => {
                self.count_status(status);
                if (200..400).contains(&status) {
                    self.good_reply(due_ns, served_ns, now_ns);
                } else {
                    self.error_reply(due_ns, now_ns);
                    self.progress.note_error(|| format!("status {status}"));
                }
                return if closes { Flow::Closes } else { Flow::Open };
            }
            Verdict::Error { status, due_ns } => {
                self.error_reply(due_ns, now_ns);
                let position = crate::binary::Status::ALL.iter().position(|known| *known == status);
                self.counts.by_status[position.expect("every status is in ALL")] += 1;
                let text = self.clients[at].error_text();
                self.progress.note_error(|| match text {
                    [] => status.to_string(),
                    text => String::from_utf8_lossy(text).into_owned(),
                });
            }
            Verdict::WrongAnswer { key, why } => {
                self.reply(now_ns);
                self.counts.wrong += 1;
                self.progress.note_wrong(|| format!("connection {number}, key {key}: {why}"));
            }
            Verdict::Unasked => {
                self.counts.wrong += 1;
                let describe = || format!("connection {number}: a reply to nothing this connection asked");
                self.progress.note_wrong(describe);
            }
            Verdict::Broken(why) => {
                self.counts.wrong += 1;
                self.progress.note_wrong(|| format!("connection {number}: {why}"));
                return Flow::Broken;
            }
        }
        Flow::Open
    }

    fn count_status(&mut self, status: u16) {
        if self.phase == Phase::Warming {
            return;
        }
        match self.statuses.iter_mut().find(|(known, _)| *known == status) {
            Some((_, count)) => *count += 1,
            None => self.statuses.push((status, 1)),
        }
    }

    fn error_reply(&mut self, due_ns: u64, now_ns: u64) {
        self.reply(now_ns);
        self.counts.errors += 1;
        self.progress.note_error_latency(now_ns.saturating_sub(due_ns) / 1_000);
    }

    fn good_reply(&mut self, due_ns: u64, served_ns: Option<u64>, now_ns: u64) {
        self.reply(now_ns);
        if self.measured_ns <= now_ns && self.progress.is_measuring() {
            self.latency.saturating_record((now_ns.saturating_sub(due_ns) / 1_000).max(1));
            if let Some(served_ns) = served_ns {
                self.served.saturating_record((served_ns / 1_000).max(1));
            }
        }
    }

    fn reply(&mut self, now_ns: u64) {
        self.unanswered -= 1;
        self.counts.replies_total += 1;
        self.last_reply_ns = now_ns;
        if self.phase != Phase::Warming {
            self.counts.replies += 1;
        }
    }

    fn connect(&mut self, at: usize) {
        let now_ns = self.now_ns();
        if self.clients[at].connect(&mut self.set, &self.config.addr).is_err() {
            self.counts.connect_failures += 1;
            self.close(at, now_ns);
        }
    }

    /// Counts and closes a connection that has ended before the load has.
    fn disconnected(&mut self, at: usize, now_ns: u64) {
        self.progress.connection_closed();
        self.counts.disconnects += 1;
        self.close(at, now_ns);
    }

    fn close(&mut self, at: usize, now_ns: u64) {
        let lost = self.clients[at].close(&mut self.set, self.config.reconnect.then_some(now_ns));
        self.unanswered -= lost;
        self.counts.lost += lost;
        if let State::Waiting { retry_ns } = self.clients[at].state {
            self.retry_ns = self.retry_ns.min(retry_ns);
        }
    }

    /// Reconnects lost connections whose backoff is over, and closes those whose server does not.
    fn retry(&mut self, now_ns: u64) {
        if now_ns < self.retry_ns {
            return;
        }
        self.retry_ns = u64::MAX;
        for at in 0..self.clients.len() {
            match self.clients[at].state {
                State::Waiting { retry_ns } if retry_ns > now_ns => {
                    self.retry_ns = self.retry_ns.min(retry_ns);
                }
                State::Waiting { .. } if self.config.connection_per_request => {
                    self.clients[at].state = State::Idle;
                    self.ask_and_send(at, now_ns);
                }
                State::Waiting { .. } => self.connect(at),
                State::Closing { until_ns } if until_ns > now_ns => {
                    self.retry_ns = self.retry_ns.min(until_ns);
                }
                State::Closing { .. } => self.reopen(at, now_ns),
                _ => {}
            }
        }
    }

    /// Publishes the counts since the last call.
    fn publish(&mut self, now_ns: u64) {
        self.progress.add(&self.counts);
        self.counts = LoadCounts::default();
        if now_ns.saturating_sub(self.merged_ns) >= MERGE_NS {
            self.merged_ns = now_ns;
            self.progress.merge(&mut self.latency, &mut self.served);
            self.progress.merge_statuses(&mut self.statuses);
        }
    }
}
