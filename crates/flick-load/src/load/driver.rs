//! The loop of one load thread: connects, sends requests, receives replies, counts, and ends in time.
//!
//! Promises: an iteration costs one wait, and one read and one write per ready connection; nothing is allocated per
//! request once the buffers have their size; in the open loop, due requests are sent even when the server stalls.
//! Refuses: parsing requests and replies (`client.rs`, `wire.rs`).
//! Source: open-loop timing as in Gil Tene's wrk2: latency counts from the time a request was due.

use std::io;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use flick_shm::client::{ClientConfig, ClientEvent, ClientSet};
use hdrhistogram::Histogram;
use rustix::time::{Itimerspec, TimerfdClockId, TimerfdFlags, TimerfdTimerFlags, Timespec};

use crate::limits::{CONNECT_WAIT_MAX, EVENTS_MAX, SPLIT_BYTES_MAX};
use crate::random::Random;

use super::client::{Client, State, Verdict};
use super::progress::{LoadCounts, LoadProgress, new_histogram};
use super::{KeyOrder, LoadConfig, LoadProtocol, ValueSize};

const TIMER: u32 = u32::MAX;

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

/// One thread's share of a load.
pub(super) struct Driver {
    config: Arc<LoadConfig>,
    progress: Arc<LoadProgress>,
    stop: Arc<AtomicBool>,
    set: ClientSet,
    timer: OwnedFd,
    clients: Vec<Client>,
    random: Random,
    epoch: Instant,
    phase: Phase,
    began_ns: u64,
    measured_ns: u64,
    last_reply_ns: u64,
    merged_ns: u64,
    /// Earliest time at which a lost connection reconnects.
    retry_ns: u64,
    counts: LoadCounts,
    latency: Histogram<u64>,
    served: Histogram<u64>,
    unanswered: u64,
    /// Requests that may still be asked; `u64::MAX` for no limit.
    budget: u64,
    /// Open loop: requests that have become due, over all connections of the thread.
    due: u64,
    /// Open loop: of those, the ones not yet asked.
    overdue: u64,
    next_key: u64,
}

impl Driver {
    /// Prepares the share of thread number `thread`. Errors: no descriptor is left.
    pub(super) fn new(
        config: Arc<LoadConfig>,
        thread: usize,
        progress: Arc<LoadProgress>,
        stop: Arc<AtomicBool>,
    ) -> io::Result<Driver> {
        let flags = TimerfdFlags::CLOEXEC | TimerfdFlags::NONBLOCK;
        let timer = rustix::time::timerfd_create(TimerfdClockId::Monotonic, flags)?;
        let numbers = (thread..config.connections).step_by(config.threads);
        let set = ClientSet::new(&ClientConfig::new(numbers.len() as u32))?;
        set.watch(&timer, TIMER)?;
        let clients = numbers.enumerate().map(|(token, number)| {
            let number = u32::try_from(number).expect("CONNECTIONS_MAX fits u32");
            Client::new(&config, number, token as u32)
        });
        let threads = config.threads as u64;
        let budget = config
            .requests
            .map_or(u64::MAX, |all| all / threads + u64::from((thread as u64) < all % threads));
        Ok(Driver {
            clients: clients.collect(),
            random: Random::new(config.seed ^ ((thread as u64) << 32)),
            config,
            progress,
            stop,
            set,
            timer,
            epoch: Instant::now(),
            phase: Phase::Connecting,
            began_ns: 0,
            measured_ns: 0,
            last_reply_ns: 0,
            merged_ns: 0,
            retry_ns: u64::MAX,
            counts: LoadCounts::default(),
            latency: new_histogram(),
            served: new_histogram(),
            unanswered: 0,
            budget,
            due: 0,
            overdue: 0,
            next_key: 0,
        })
    }

    /// Runs to the end and returns the time from the end of the warm-up to the last reply.
    pub(super) fn run(mut self) -> Duration {
        self.epoch = Instant::now();
        for at in 0..self.clients.len() {
            self.connect(at);
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
        self.counts.unsent += self.overdue;
        self.publish(u64::MAX);
        Duration::from_nanos(self.last_reply_ns.saturating_sub(self.measured_ns))
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
            _ if all_dead => true,
            Phase::Draining { until_ns } => self.unanswered + self.overdue == 0 || self.now_ns() >= until_ns,
            _ => false,
        }
    }

    fn change_phase(&mut self, now_ns: u64) {
        if self.phase == Phase::Connecting {
            let connecting = self.clients.iter().any(|client| matches!(client.state, State::Connecting));
            if !connecting || now_ns >= CONNECT_WAIT_MAX.as_nanos() as u64 {
                self.phase = Phase::Warming;
                self.began_ns = now_ns;
                self.measured_ns = now_ns + self.config.warmup.as_nanos() as u64;
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
            self.phase = Phase::Draining { until_ns: now_ns + self.config.drain.as_nanos() as u64 };
        }
    }

    /// Sleeps until something is ready, due or over.
    fn wait(&mut self, events: &mut Vec<ClientEvent>) {
        let mut sleep_ns = LOOP_NS_MAX;
        if self.is_asking() && self.config.rate_per_s.is_some() {
            let until_due_ns = self.due_ns(self.due).saturating_sub(self.now_ns());
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

    /// Returns when the `nth` request of this thread is due. Requests go round-robin over the connections of all
    /// threads.
    fn due_ns(&self, nth: u64) -> u64 {
        let rate = self.config.rate_per_s.expect("only the open loop has due times");
        let (round, at) = (nth / self.clients.len() as u64, nth % self.clients.len() as u64);
        self.due_ns_of(round, self.clients[at as usize].number, rate)
    }

    fn due_ns_of(&self, round: u64, number: u32, rate: f64) -> u64 {
        let nth_of_all = round * self.config.connections as u64 + u64::from(number);
        self.began_ns + (nth_of_all as f64 * 1e9 / rate) as u64
    }

    /// Open loop: passes every due request to its connection.
    fn ask_what_is_due(&mut self, now_ns: u64) {
        if self.config.rate_per_s.is_none() || !self.is_asking() {
            return;
        }
        while self.budget > 0 && self.due_ns(self.due) <= now_ns {
            let at = (self.due % self.clients.len() as u64) as usize;
            self.clients[at].due += 1;
            self.due += 1;
            self.overdue += 1;
            self.budget = self.budget.saturating_sub(u64::from(self.budget != u64::MAX));
            self.ask_and_send(at, now_ns);
        }
    }

    /// Queues as many requests as the connection and the mode allow, then sends.
    fn ask_and_send(&mut self, at: usize, now_ns: u64) {
        if !self.clients[at].is_open() {
            return;
        }
        while self.clients[at].has_free_slot() {
            let client = &self.clients[at];
            let due_ns = match self.config.rate_per_s {
                None if self.is_asking() && self.budget > 0 => {
                    self.budget = self.budget.saturating_sub(u64::from(self.budget != u64::MAX));
                    now_ns
                }
                Some(rate) if client.asked < client.due => {
                    self.overdue -= 1;
                    self.due_ns_of(client.asked, client.number, rate)
                }
                _ => break,
            };
            self.ask(at, due_ns);
        }
        let piece = self.config.split_writes.then(|| 1 + self.random.below(SPLIT_BYTES_MAX) as usize);
        if self.clients[at].send(&mut self.set, piece).is_err() {
            self.disconnected(at, now_ns);
        }
    }

    fn ask(&mut self, at: usize, due_ns: u64) {
        let config = &*self.config;
        let key = match config.order {
            KeyOrder::Random => self.random.below(config.keys),
            KeyOrder::Sequential => self.next_key,
        };
        self.next_key = (self.next_key + 1) % config.keys;
        let is_get = config.protocol == LoadProtocol::Http
            || ((self.random.next_u64() >> 11) as f64) < config.get_ratio * (1u64 << 53) as f64;
        let set_len = (!is_get).then(|| match config.value {
            ValueSize::Fixed(len) => len,
            ValueSize::Between(min, max) => min + self.random.below((max - min + 1) as u64) as usize,
        });
        self.clients[at].ask(key, config.key_bytes, set_len, due_ns);
        self.unanswered += 1;
        self.counts.requests += 1;
    }

    /// Handles one event.
    fn serve(&mut self, event: ClientEvent) {
        match event {
            ClientEvent::Watched(_) => self.clear_timer(),
            ClientEvent::Connected(token) => {
                self.clients[token as usize].finish_connect();
                self.progress.connection_opened();
                self.ask_and_send(token as usize, self.now_ns());
            }
            ClientEvent::Failed(token) => {
                self.counts.connect_failures += 1;
                self.close(token as usize, self.now_ns());
            }
            ClientEvent::Readable(token) if self.clients[token as usize].is_open() => {
                self.serve_replies(token as usize);
            }
            ClientEvent::Readable(_) => {}
            ClientEvent::Writable(token) => self.ask_and_send(token as usize, self.now_ns()),
        }
    }

    /// Receives once, counts the replies and sends what they allow.
    fn serve_replies(&mut self, at: usize) {
        let mut is_alive = self.clients[at].receive(&mut self.set).is_ok();
        let now_ns = self.now_ns();
        is_alive &= self.judge(at, now_ns);
        if is_alive {
            self.ask_and_send(at, now_ns);
        } else {
            self.disconnected(at, now_ns);
        }
    }

    /// Counts every whole reply in the buffer; returns false once the stream cannot be parsed.
    fn judge(&mut self, at: usize, now_ns: u64) -> bool {
        loop {
            let verdict = self.clients[at].judge();
            let number = self.clients[at].number;
            match verdict {
                Verdict::NeedMore => return true,
                Verdict::Good { due_ns, served_ns } => self.good_reply(due_ns, served_ns, now_ns),
                Verdict::Miss { due_ns, served_ns } => {
                    self.counts.misses += 1;
                    self.good_reply(due_ns, served_ns, now_ns);
                }
                Verdict::Error { status, due_ns } => {
                    self.reply(now_ns);
                    self.counts.errors += 1;
                    let position = crate::binary::Status::ALL.iter().position(|known| *known == status);
                    self.counts.by_status[position.expect("every status is in ALL")] += 1;
                    self.progress.note_error_latency(now_ns.saturating_sub(due_ns) / 1_000);
                }
                Verdict::WrongAnswer { key, why } => {
                    self.reply(now_ns);
                    self.counts.wrong += 1;
                    self.progress.note_wrong(|| format!("connection {number}, key {key}: {why}"));
                }
                Verdict::Unasked => {
                    self.counts.wrong += 1;
                    let describe =
                        || format!("connection {number}: a reply to nothing this connection asked");
                    self.progress.note_wrong(describe);
                }
                Verdict::Broken => {
                    self.counts.wrong += 1;
                    self.progress.note_wrong(|| format!("connection {number}: bytes that are no reply"));
                    return false;
                }
            }
        }
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

    /// Reconnects lost connections whose backoff is over.
    fn retry(&mut self, now_ns: u64) {
        if now_ns < self.retry_ns {
            return;
        }
        self.retry_ns = u64::MAX;
        for at in 0..self.clients.len() {
            match self.clients[at].state {
                State::Waiting { retry_ns } if retry_ns <= now_ns => self.connect(at),
                State::Waiting { retry_ns } => self.retry_ns = self.retry_ns.min(retry_ns),
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
        }
    }
}
