//! A load generator for memcached, Redis and HTTP servers and proxies that checks every reply.
//!
//! Closed loop: each connection keeps `depth` requests unanswered and sends the next when a reply comes. Open loop
//! ([`LoadConfig::rate_per_s`]): requests are due at times that do not depend on the server, and latency counts from
//! the time a request was due, so a stall counts for every request it delays. A due request goes to the connection
//! that has waited longest for one, and waits itself while all connections have `depth` requests unanswered.
//!
//! TCP, Unix sockets and shared memory (`shm:NAME`) are driven by the same code.
//!
//! Promises: every reply is matched to its request (by opaque in the binary protocol, by order in the others) and every
//! value is checked against its key; nothing is allocated per request once warm; the same seed asks for the
//! same keys in the same order on each connection's thread.
//! Refuses: other operations than get and set; with HTTP, other methods than GET.

mod client;
mod distribution;
mod driver;
mod progress;
mod schedule;
mod search;
mod stamp;
mod value;
mod wire;

use std::collections::BTreeMap;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use flick_shm::client::ClientAddress;

use crate::binary::Status;
use crate::http::HttpRequest;
use crate::limits::{
    CONNECTIONS_MAX, DEPTH_MAX, HTTP_NAME_BYTES_MAX, KEY_BYTES_MAX, POPULATE_WAIT_MAX, THREADS_MAX,
    VALUE_BYTES_MAX, ZIPF_EXPONENT_MAX,
};

use driver::Span;
pub use progress::{LoadCounts, LoadLatency, LoadProgress, LoadSnapshot};
pub use schedule::Gaps;
pub use search::{RateTrial, search};

/// Requests that `populate` keeps unanswered.
const POPULATE_DEPTH: usize = 64;

/// Time between two looks of `populate` at its progress.
const POPULATE_LOOK_EVERY: Duration = Duration::from_millis(5);

/// Wire protocol of a load.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LoadProtocol {
    /// The binary protocol: replies are matched by opaque and may come in any order.
    Binary,
    /// The text protocol: replies come in order.
    Text,
    /// memcached's meta protocol: replies come in order.
    Meta,
    /// The protocol of Redis: replies come in order.
    Resp,
    /// HTTP, one fixed `GET` ([`LoadConfig::http`]): a reply with a status of 200 to 399 is good, any other an error.
    Http,
}

/// The length of the values that are written, in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ValueSize {
    /// All the same.
    Fixed(usize),
    /// Evenly spread between two lengths, both included.
    Between(usize, usize),
    /// Those of Facebook's pool ETC, up to [`VALUE_BYTES_MAX`].
    Etc,
}

impl ValueSize {
    fn min(self) -> usize {
        match self {
            ValueSize::Fixed(len) => len,
            ValueSize::Between(min, _) => min,
            ValueSize::Etc => 0,
        }
    }

    fn max(self) -> usize {
        match self {
            ValueSize::Fixed(len) => len,
            ValueSize::Between(_, max) => max,
            ValueSize::Etc => VALUE_BYTES_MAX,
        }
    }
}

/// The length of the keys, in bytes. A key has always the same length.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum KeySize {
    /// All the same.
    Fixed(usize),
    /// Those of Facebook's pool ETC, but at least as long as the number of a key needs.
    Etc,
}

impl KeySize {
    fn max(self) -> usize {
        match self {
            KeySize::Fixed(len) => len,
            KeySize::Etc => KEY_BYTES_MAX,
        }
    }

    /// Returns the length of one of `keys` keys.
    fn bytes_of(self, key: u64, keys: u64) -> usize {
        match self {
            KeySize::Fixed(len) => len,
            KeySize::Etc => distribution::etc_key_bytes(key, value::key_bytes_min(keys)),
        }
    }
}

/// The order of the requested keys.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum KeyOrder {
    /// Uniformly random.
    Random,
    /// Random with Zipf's distribution of this exponent.
    Zipf(f64),
    /// In ascending order on each thread.
    Sequential,
}

/// Configuration of a load. Build one with [`LoadConfig::new`] and change what matters.
#[derive(Clone, Debug)]
pub struct LoadConfig {
    /// Address of the server.
    pub addr: ClientAddress,
    /// Wire protocol.
    pub protocol: LoadProtocol,
    /// Connections, spread over the threads.
    pub connections: usize,
    /// Requests each connection leaves unanswered at most.
    pub depth: usize,
    /// Threads, each with its own readiness loop.
    pub threads: usize,
    /// Number of different keys.
    pub keys: u64,
    /// Length of the keys.
    pub key_size: KeySize,
    /// Length of the values written; a shorter one in a reply is wrong.
    pub value: ValueSize,
    /// Share of requests that read, from 0 to 1; the others write.
    pub get_ratio: f64,
    /// Requests due per second over all connections: the open loop. `None` is the closed loop.
    pub rate_per_s: Option<f64>,
    /// Gaps between the due times of the open loop.
    pub gaps: Gaps,
    /// Whether each request has a connection of its own. Its latency counts from the start of connecting, in the open
    /// loop from the time it was due.
    pub connection_per_request: bool,
    /// The request of HTTP.
    pub http: HttpRequest,
    /// Time at the start that is not measured. Faults in it are counted.
    pub warmup: Duration,
    /// Time to measure after the warm-up; `None` goes on until `requests` are sent or the load is stopped.
    pub duration: Option<Duration>,
    /// Requests to send, warm-up included; `None` sets no limit.
    pub requests: Option<u64>,
    /// Time to wait for the last replies; requests unanswered after it are lost. A load that ends by `requests` also
    /// ends when no reply at all has come for this long.
    pub drain: Duration,
    /// Whether a lost connection is opened again, with growing pauses.
    pub reconnect: bool,
    /// Whether each write is cut into random small pieces, one per loop iteration.
    pub split_writes: bool,
    /// Whether the kernel stamps what arrives, so that the time a service took is published apart from the load's own
    /// delays ([`LoadReport::served`]).
    pub stamped: bool,
    /// Seed of every random choice.
    pub seed: u64,
    /// Order of the requested keys.
    pub order: KeyOrder,
}

impl LoadConfig {
    /// Returns a binary closed-loop load: 16 connections, one request each at a time, 10,000 keys of 16 bytes, values
    /// of 100 bytes, nine reads to one write, until stopped.
    pub fn new(addr: impl Into<ClientAddress>) -> LoadConfig {
        LoadConfig {
            addr: addr.into(),
            protocol: LoadProtocol::Binary,
            connections: 16,
            depth: 1,
            threads: 1,
            keys: 10_000,
            key_size: KeySize::Fixed(16),
            value: ValueSize::Fixed(100),
            get_ratio: 0.9,
            rate_per_s: None,
            gaps: Gaps::Fixed,
            connection_per_request: false,
            http: HttpRequest::default(),
            warmup: Duration::ZERO,
            duration: None,
            requests: None,
            drain: Duration::from_secs(10),
            reconnect: false,
            split_writes: false,
            stamped: false,
            seed: 1,
            order: KeyOrder::Random,
        }
    }

    fn check(&self) -> io::Result<()> {
        let invalid = |text| Err(io::Error::new(io::ErrorKind::InvalidInput, text));
        let (needed, longest) = (value::key_bytes_min(self.keys), self.key_size.max());
        if self.keys > 0 && !(needed..=KEY_BYTES_MAX).contains(&longest) {
            let keys = self.keys;
            return invalid(format!(
                "{keys} keys need a size of {needed} to {KEY_BYTES_MAX} bytes, not {longest}"
            ));
        }
        let rules = [
            ((1..=CONNECTIONS_MAX).contains(&self.connections), "connections"),
            ((1..=DEPTH_MAX).contains(&self.depth), "depth"),
            ((1..=THREADS_MAX.min(self.connections)).contains(&self.threads), "threads"),
            (self.keys > 0, "keys"),
            (self.value.max() <= VALUE_BYTES_MAX, "value"),
            (!matches!(self.value, ValueSize::Between(min, max) if min > max), "value"),
            ((0.0..=1.0).contains(&self.get_ratio), "get_ratio"),
            (self.protocol != LoadProtocol::Http || self.get_ratio == 1.0, "get_ratio (HTTP only reads)"),
            (!matches!(self.order, KeyOrder::Zipf(by) if !(0.01..=ZIPF_EXPONENT_MAX).contains(&by)), "order"),
            (self.depth == 1 || !self.connection_per_request, "depth (a connection has one request)"),
            (
                self.http.path.len() <= HTTP_NAME_BYTES_MAX && self.http.host.len() <= HTTP_NAME_BYTES_MAX,
                "http",
            ),
            (!self.stamped || !matches!(self.addr, ClientAddress::Shm(_)), "stamped (needs the kernel)"),
            (self.rate_per_s.is_none_or(|rate| (0.001..=1e9).contains(&rate)), "rate_per_s"),
        ];
        match rules.into_iter().find(|(holds, _)| !holds) {
            None => Ok(()),
            Some((_, name)) => invalid(format!("the load's {name} is out of range")),
        }
    }
}

/// The result of a load.
#[derive(Clone, Debug, Default)]
pub struct LoadReport {
    /// Replies after the warm-up: the same as `counts.replies`.
    pub replies: u64,
    /// Everything counted.
    pub counts: LoadCounts,
    /// From the end of the warm-up to the last reply, or until no request was asked any more if that is later.
    pub elapsed: Duration,
    /// `replies` over `elapsed`.
    pub replies_per_s: f64,
    /// Open loop: requests that were due after the warm-up, per second in which any could be. With random gaps it
    /// differs from the rate, the more the fewer there are. 0 in a closed loop.
    pub due_per_s: f64,
    /// LoadLatency of good replies after the warm-up.
    pub latency: LoadLatency,
    /// With [`LoadConfig::stamped`]: from writing a request to the socket until its reply arrived at the load's host,
    /// no matter when the load read it. It excludes the delay of a request that the load sent late, so it is no
    /// end-to-end latency.
    pub served: LoadLatency,
    /// Slowest error reply, in microseconds: how long a client of a dead backend waits.
    pub error_latency_us_max: u64,
    /// Description of the first wrong reply; `None` if no reply was wrong.
    pub first_wrong: Option<String>,
    /// The text of the first error reply; `None` if there was none.
    pub first_error: Option<String>,
    /// Statuses of HTTP with their numbers, warm-up excluded.
    pub http_statuses: BTreeMap<u16, u64>,
}

impl LoadReport {
    /// Returns the number of faults; a run with faults is void.
    pub fn faults(&self) -> u64 {
        self.counts.faults()
    }

    /// Returns the error replies by status, leaving out the statuses that did not occur.
    pub fn errors_by_status(&self) -> impl Iterator<Item = (Status, u64)> + '_ {
        Status::ALL.into_iter().zip(self.counts.by_status).filter(|(_, count)| *count > 0)
    }
}

/// A running load. Dropping it ends the load without waiting for replies, and waits for its threads.
#[derive(Debug)]
pub struct LoadRun {
    progress: Arc<LoadProgress>,
    stop: Arc<AtomicBool>,
    /// Ends the load without its last replies.
    abort: Arc<AtomicBool>,
    threads: Vec<JoinHandle<Span>>,
}

impl LoadRun {
    /// Returns the live figures, to be shared with a view.
    pub fn progress(&self) -> Arc<LoadProgress> {
        Arc::clone(&self.progress)
    }

    /// Makes the load send nothing more, wait for its last replies and end. Returns at once.
    pub fn stop(&self) {
        self.stop.store(true, Ordering::Release);
    }

    /// Returns whether every thread has ended, so that [`LoadRun::wait`] would return at once.
    pub fn is_finished(&self) -> bool {
        self.threads.iter().all(JoinHandle::is_finished)
    }

    /// Waits for the end of the load and returns its report.
    pub fn wait(mut self) -> LoadReport {
        let spans = self.threads.drain(..).map(|thread| thread.join().expect("a driver does not panic"));
        let longest =
            |a: Span, b: Span| Span { replying: a.replying.max(b.replying), asking: a.asking.max(b.asking) };
        let Span { replying: elapsed, asking } = spans.reduce(longest).unwrap_or_default();
        let counts = self.progress.counts();
        let per_s = |count: u64, time: Duration| {
            if time.is_zero() { 0.0 } else { count as f64 / time.as_secs_f64() }
        };
        LoadReport {
            replies: counts.replies,
            counts,
            elapsed,
            replies_per_s: per_s(counts.replies, elapsed),
            due_per_s: per_s(counts.due, asking),
            latency: self.progress.latency(),
            served: self.progress.served(),
            error_latency_us_max: self.progress.error_latency_us_max(),
            first_wrong: self.progress.first_wrong().map(str::to_owned),
            first_error: self.progress.first_error().map(str::to_owned),
            http_statuses: self.progress.http_statuses(),
        }
    }
}

impl Drop for LoadRun {
    fn drop(&mut self) {
        self.abort.store(true, Ordering::Release);
        for thread in self.threads.drain(..) {
            // Its own thread has reported the panic of a driver; here the load only has to end.
            let _ = thread.join();
        }
    }
}

/// Starts a load on its own threads and returns at once; connections are opened by those threads.
///
/// Errors: a setting out of range (`InvalidInput`), or the kernel has no descriptors or threads left. A server that
/// cannot be reached is not an error here: it is counted as `connect_failures`.
pub fn start(config: LoadConfig) -> io::Result<LoadRun> {
    config.check()?;
    let progress = Arc::new(LoadProgress::new());
    let (stop, abort) = (Arc::default(), Arc::default());
    let config = Arc::new(config);
    let mut run = LoadRun { progress, stop, abort, threads: Vec::with_capacity(config.threads) };
    for thread in 0..config.threads {
        let driver = driver::Driver::new(
            Arc::clone(&config),
            thread,
            Arc::clone(&run.progress),
            Arc::clone(&run.stop),
            Arc::clone(&run.abort),
        )?;
        run.threads
            .push(std::thread::Builder::new().name(format!("load-{thread}")).spawn(move || driver.run())?);
    }
    Ok(run)
}

/// Runs a load to its end.
///
/// Errors: as for [`start`], and a load that has no end (neither `duration` nor `requests`).
pub fn run(config: LoadConfig) -> io::Result<LoadReport> {
    if config.duration.is_none() && config.requests.is_none() {
        return Err(io::Error::new(io::ErrorKind::InvalidInput, "the load would have no end"));
    }
    Ok(start(config)?.wait())
}

/// Writes every key of `config` once, over one pipelined connection, before a load that reads them.
///
/// Errors: the server cannot be reached, a write was not answered as it should be, or no reply came for
/// [`POPULATE_WAIT_MAX`].
pub fn populate(config: &LoadConfig) -> io::Result<LoadReport> {
    let pause = || {
        std::thread::sleep(POPULATE_LOOK_EVERY);
        false
    };
    populate_unless(config, POPULATE_WAIT_MAX, pause)
}

/// Writes every key as [`populate`] does, unless no reply comes for `reply_wait_max`, or `must_stop`, which waits a
/// moment, returns true.
///
/// Errors: as for [`populate`], and `Interrupted` after `must_stop`. Neither waits for the last replies.
pub fn populate_unless(
    config: &LoadConfig,
    reply_wait_max: Duration,
    mut must_stop: impl FnMut() -> bool,
) -> io::Result<LoadReport> {
    let failed = |why: String| {
        io::Error::other(format!("could not write {} keys to {}: {why}", config.keys, config.addr))
    };
    let run = start(populating(config, reply_wait_max))?;
    let (mut replies, mut since) = (0, Instant::now());
    while !run.is_finished() {
        if must_stop() {
            return Err(io::ErrorKind::Interrupted.into());
        }
        let counts = run.progress.counts();
        if counts.replies_total > replies {
            (replies, since) = (counts.replies_total, Instant::now());
        } else if since.elapsed() >= reply_wait_max && !run.is_finished() {
            let missing = if counts.connects == 0 { "connection" } else { "reply" };
            return Err(failed(format!("no {missing} for {} s", reply_wait_max.as_secs_f64())));
        }
    }
    let report = run.wait();
    match why_not_written(&report, config.keys) {
        None => Ok(report),
        Some(why) => Err(failed(why)),
    }
}

/// Returns the load that writes every key once.
fn populating(config: &LoadConfig, reply_wait_max: Duration) -> LoadConfig {
    let depth = match config.value {
        ValueSize::Etc => POPULATE_DEPTH,
        value => (VALUE_BYTES_MAX / value.max().max(1)).clamp(1, POPULATE_DEPTH),
    };
    LoadConfig {
        connections: 1,
        threads: 1,
        depth,
        get_ratio: 0.0,
        rate_per_s: None,
        connection_per_request: false,
        warmup: Duration::ZERO,
        duration: None,
        requests: Some(config.keys),
        drain: reply_wait_max,
        split_writes: false,
        reconnect: false,
        order: KeyOrder::Sequential,
        ..config.clone()
    }
}

/// Says why not every key is written.
fn why_not_written(report: &LoadReport, keys: u64) -> Option<String> {
    let counts = &report.counts;
    if report.faults() == 0 && report.replies == keys {
        return None;
    }
    Some(match (&report.first_wrong, &report.first_error) {
        (Some(wrong), _) => format!("the first wrong reply: {wrong}"),
        (None, Some(error)) => format!("the first error reply: {error}"),
        (None, None) if counts.connect_failures > 0 => "it refuses connections".to_owned(),
        (None, None) if counts.disconnects > 0 => "it closes the connection".to_owned(),
        (None, None) => format!("{} of {} requests have no reply", counts.lost, counts.requests),
    })
}
