//! A load generator for memcached and HTTP servers and proxies that checks every reply.
//!
//! Closed loop: each connection keeps `depth` requests unanswered and sends the next when a reply comes. Open loop
//! ([`LoadConfig::rate_per_s`]): requests are due at fixed times, independent of the server, and latency counts from
//! the time a request was due, so a stall counts for every request it delays.
//!
//! TCP, Unix sockets and shared memory (`shm:NAME`) are driven by the same code.
//!
//! Promises: every reply is matched to its request (by opaque in the binary protocol, by order in the others) and every
//! value is checked against its key; nothing is allocated per request once warm; the same seed asks for the
//! same keys in the same order on each connection's thread.
//! Refuses: other operations than get and set; with HTTP, other requests than `GET /` and replies without a length.

mod client;
mod driver;
mod progress;
mod stamp;
mod value;
mod wire;

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use flick_shm::client::ClientAddress;

use crate::binary::Status;
use crate::limits::{CONNECTIONS_MAX, DEPTH_MAX, KEY_BYTES_MAX, THREADS_MAX, VALUE_BYTES_MAX};

pub use progress::{LoadCounts, LoadLatency, LoadProgress, LoadSnapshot};

/// Requests that `populate` keeps unanswered.
const POPULATE_DEPTH: usize = 64;

/// Wire protocol of a load.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LoadProtocol {
    /// The binary protocol: replies are matched by opaque and may come in any order.
    Binary,
    /// The text protocol: replies come in order.
    Text,
    /// HTTP/1.1, one fixed `GET`: a reply has the status 200 and at most as many bytes as [`LoadConfig::value`] says.
    Http,
}

/// The length of the values that are written, in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ValueSize {
    /// All the same.
    Fixed(usize),
    /// Evenly spread between two lengths, both included.
    Between(usize, usize),
}

impl ValueSize {
    fn max(self) -> usize {
        match self {
            ValueSize::Fixed(len) => len,
            ValueSize::Between(_, max) => max,
        }
    }
}

/// The order of the requested keys.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum KeyOrder {
    /// Uniformly random.
    Random,
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
    /// Number of different keys, which are requested evenly.
    pub keys: u64,
    /// Length of each key in bytes.
    pub key_bytes: usize,
    /// Length of the values written.
    pub value: ValueSize,
    /// Share of requests that read, from 0 to 1; the others write.
    pub get_ratio: f64,
    /// Requests due per second over all connections: the open loop. `None` is the closed loop.
    pub rate_per_s: Option<f64>,
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
            key_bytes: 16,
            value: ValueSize::Fixed(100),
            get_ratio: 0.9,
            rate_per_s: None,
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
        let needed = value::key_bytes_min(self.keys);
        let rules = [
            ((1..=CONNECTIONS_MAX).contains(&self.connections), "connections"),
            ((1..=DEPTH_MAX).contains(&self.depth), "depth"),
            ((1..=THREADS_MAX.min(self.connections)).contains(&self.threads), "threads"),
            (self.keys > 0, "keys"),
            (
                (needed..=KEY_BYTES_MAX).contains(&self.key_bytes),
                "key_bytes (too short for the number of keys?)",
            ),
            (self.value.max() <= VALUE_BYTES_MAX, "value"),
            (!matches!(self.value, ValueSize::Between(min, max) if min > max), "value"),
            ((0.0..=1.0).contains(&self.get_ratio), "get_ratio"),
            (self.protocol != LoadProtocol::Http || self.get_ratio == 1.0, "get_ratio (HTTP only reads)"),
            (!self.stamped || !matches!(self.addr, ClientAddress::Shm(_)), "stamped (needs the kernel)"),
            (self.rate_per_s.is_none_or(|rate| (0.001..=1e9).contains(&rate)), "rate_per_s"),
        ];
        match rules.into_iter().find(|(holds, _)| !holds) {
            None => Ok(()),
            Some((_, name)) => {
                Err(io::Error::new(io::ErrorKind::InvalidInput, format!("the load's {name} is out of range")))
            }
        }
    }
}

/// The result of a load.
#[derive(Clone, Debug)]
pub struct LoadReport {
    /// Replies after the warm-up: the same as `counts.replies`.
    pub replies: u64,
    /// Everything counted.
    pub counts: LoadCounts,
    /// From the end of the warm-up to the last reply.
    pub elapsed: Duration,
    /// `replies` over `elapsed`.
    pub replies_per_s: f64,
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

/// A running load. Dropping it stops the load and waits for its threads.
#[derive(Debug)]
pub struct LoadRun {
    progress: Arc<LoadProgress>,
    stop: Arc<AtomicBool>,
    threads: Vec<JoinHandle<Duration>>,
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

    /// Returns the flag behind [`LoadRun::stop`], for a signal handler or a view.
    pub fn stop_flag(&self) -> Arc<AtomicBool> {
        Arc::clone(&self.stop)
    }

    /// Returns whether every thread has ended, so that [`LoadRun::wait`] would return at once.
    pub fn is_finished(&self) -> bool {
        self.threads.iter().all(JoinHandle::is_finished)
    }

    /// Waits for the end of the load and returns its report.
    pub fn wait(mut self) -> LoadReport {
        let spans = self.threads.drain(..).map(|thread| thread.join().expect("a driver does not panic"));
        let elapsed = spans.max().unwrap_or_default();
        let counts = self.progress.counts();
        let seconds = elapsed.as_secs_f64();
        LoadReport {
            replies: counts.replies,
            counts,
            elapsed,
            replies_per_s: if seconds > 0.0 { counts.replies as f64 / seconds } else { 0.0 },
            latency: self.progress.latency(),
            served: self.progress.served(),
            error_latency_us_max: self.progress.error_latency_us_max(),
            first_wrong: self.progress.first_wrong().map(str::to_owned),
        }
    }
}

impl Drop for LoadRun {
    fn drop(&mut self) {
        self.stop();
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
    let stop = Arc::new(AtomicBool::new(false));
    let config = Arc::new(config);
    let mut run = LoadRun { progress, stop, threads: Vec::with_capacity(config.threads) };
    for thread in 0..config.threads {
        let driver = driver::Driver::new(
            Arc::clone(&config),
            thread,
            Arc::clone(&run.progress),
            Arc::clone(&run.stop),
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
/// Errors: the server cannot be reached, or a write was not answered as it should be.
pub fn populate(config: &LoadConfig) -> io::Result<LoadReport> {
    let depth = (VALUE_BYTES_MAX / config.value.max().max(1)).clamp(1, POPULATE_DEPTH);
    let report = run(LoadConfig {
        connections: 1,
        threads: 1,
        depth,
        get_ratio: 0.0,
        rate_per_s: None,
        warmup: Duration::ZERO,
        duration: None,
        requests: Some(config.keys),
        split_writes: false,
        reconnect: false,
        order: KeyOrder::Sequential,
        ..config.clone()
    })?;
    if report.faults() > 0 || report.replies != config.keys {
        let status = report.errors_by_status().next().map(|(status, _)| format!("; first status: {status}"));
        return Err(io::Error::other(format!(
            "could not write all {} keys to {}: {:?}{}",
            config.keys,
            config.addr,
            report.counts,
            status.unwrap_or_default()
        )));
    }
    Ok(report)
}
