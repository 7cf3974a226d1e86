//! `flick load`: sends requests to a server of HTTP, memcached or Redis, checks every reply, and measures.
//! Promises: results on standard output, progress on standard error; a wrong, missing or error reply ends it with 1; a
//! latency in an open loop counts from the time a request was due; a signal ends the load, and the writing of keys
//! before it; a second one ends the process at once.
//! With agents, they put the load on the server, and this process measures at a low rate on connections of its own.
//! Not here: the load itself (`flick-load`), the URL (`load/target.rs`), the output (`load/report.rs`).

mod agent;
mod report;
mod target;
pub mod values;

use std::io::IsTerminal;
use std::sync::mpsc::Receiver;
use std::time::{Duration, Instant};

use clap::{Args, Subcommand, ValueEnum};
use flick_load::http::{HttpRequest, HttpVersion};
use flick_load::limits::{CONNECTIONS_MAX, DEPTH_MAX, POPULATE_WAIT_MAX, THREADS_MAX};
use flick_load::load::{
    self, Gaps, KeyOrder, KeySize, LoadConfig, LoadProtocol, LoadSnapshot, RateTrial, ValueSize,
};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use rustix::time::{ClockId, clock_gettime};

use crate::failure::{Failure, Outcome};
use crate::settings::units::{Count, NonZeroPeriod, Period};
use crate::supervise;
use report::Measured;
use target::{Scheme, Target};
use values::{Bound, KeyOrderValue, KeySizeValue, Rate, Ratio, ValueSizeValue};

/// Time between two lines of progress.
const LINE_EVERY: Duration = Duration::from_secs(1);
/// Longest time after a signal, or the end of the load, between two looks at it.
const LOOK_EVERY: Duration = Duration::from_millis(20);
/// Longest time to wait for the last replies.
const DRAIN: Duration = Duration::from_secs(2);
/// Connections on which the master of agents measures, at most.
const MEASURE_CONNECTIONS: usize = 8;

/// Protocol of a memcached server.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Memcached {
    /// The text protocol
    Text,
    /// The binary protocol
    Binary,
    /// The meta protocol
    Meta,
}

/// Version of HTTP.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Http {
    /// HTTP/1.0
    #[value(name = "1.0")]
    V10,
    /// HTTP/1.1
    #[value(name = "1.1")]
    V11,
}

/// Gaps of an open loop.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum GapsValue {
    /// Those of independent clients: a Poisson process
    Poisson,
    /// All the same
    Fixed,
    /// Those of Facebook's pool ETC
    Etc,
}

/// Puts load on a server.
#[derive(Debug, Args)]
#[command(args_conflicts_with_subcommands = true, subcommand_negates_reqs = true)]
pub struct Load {
    #[command(flatten)]
    options: LoadOptions,
    /// The subcommand, if it is not a load.
    #[command(subcommand)]
    agent: Option<LoadCommand>,
}

/// The subcommands of `flick load`.
#[derive(Debug, Subcommand)]
enum LoadCommand {
    /// Wait for loads of `flick load --agents`, and put them on their servers; there is no authentication
    Agent(agent::Agent),
}

/// The options of a load, which a master passes on to its agents.
#[derive(Debug, Args)]
struct LoadOptions {
    /// `http://HOST[:PORT]/PATH`, `memcached://HOST[:PORT]`, `redis://HOST[:PORT]`; in place of HOST, `unix:PATH` or
    /// `shm:NAME`
    #[arg(value_name = "URL", required = true)]
    target: Option<Target>,
    /// Connections
    #[arg(long, value_name = "N", default_value = "10")]
    connections: Count<1, { CONNECTIONS_MAX as u32 }>,
    /// Threads, among which the connections are divided
    #[arg(long, value_name = "N", default_value = "1")]
    threads: Count<1, { THREADS_MAX as u32 }>,
    /// Time to measure, after the warm-up
    #[arg(long, value_name = "TIME", default_value = "10s")]
    duration: NonZeroPeriod,
    /// Time before, of which nothing is measured
    #[arg(long, value_name = "TIME", default_value = "1s")]
    warm_up: Period,
    /// Requests per second of an open loop, such as 50k. Without it, each connection sends its next request when a
    /// reply comes (closed loop)
    #[arg(long, value_name = "RATE")]
    rate: Option<Rate>,
    /// Gaps between the requests of an open loop [default: poisson]
    #[arg(long, value_name = "KIND")]
    gaps: Option<GapsValue>,
    /// Requests that each connection leaves unanswered at most
    #[arg(long, value_name = "N", default_value = "1")]
    pipeline: Count<1, { DEPTH_MAX as u32 }>,
    /// Open a connection for each request
    #[arg(long)]
    connection_per_request: bool,
    /// Protocol of memcached [default: text]
    #[arg(long, value_name = "NAME")]
    protocol: Option<Memcached>,
    /// Version of HTTP [default: 1.1]
    #[arg(long, value_name = "VERSION")]
    http: Option<Http>,
    /// Share of requests that read, from 0 to 1; the others write [default: 0.9]
    #[arg(long, value_name = "RATIO")]
    get_ratio: Option<Ratio>,
    /// Number of keys, each of which is written before the load [default: 10000]
    #[arg(long, value_name = "N")]
    keys: Option<Count<1, { u32::MAX }>>,
    /// Popularity of keys: `uniform`, `zipf:EXPONENT` (`zipf`: 0.99), or `sequential` [default: uniform]
    #[arg(long, value_name = "ORDER")]
    key_order: Option<KeyOrderValue>,
    /// Length of keys in bytes, or `etc`: those of Facebook's pool ETC [default: 16]
    #[arg(long, value_name = "BYTES")]
    key_size: Option<KeySizeValue>,
    /// Length of values in bytes: N, MIN-MAX, or `etc` [default: 100]
    #[arg(long, value_name = "BYTES")]
    value_size: Option<ValueSizeValue>,
    /// Do not write the keys before the load
    #[arg(long)]
    no_populate: bool,
    /// Seed of all random choices
    #[arg(long, value_name = "N", default_value_t = 1)]
    seed: u64,
    /// Find the highest rate at which a latency stays within a bound, such as p99:500us (p50, p90, p99, p99.9). Each
    /// trial takes as long as a load
    #[arg(long, value_name = "BOUND", conflicts_with = "rate")]
    search: Option<Bound>,
    /// Agents that put the load on the server, each with these options and its share of the rate; this process then
    /// measures on connections of its own
    #[arg(long, value_name = "ADDRESS,...", value_delimiter = ',')]
    agents: Vec<String>,
    /// With agents: requests per second of this process
    #[arg(long, value_name = "RATE", default_value = "1k")]
    measure_rate: Rate,
    /// Print the results as JSON
    #[arg(long)]
    json: bool,
}

impl Load {
    /// Runs the load, or the loads of a search, and prints the results; or waits for loads as an agent.
    pub fn run(self) -> Outcome {
        match self.agent {
            Some(LoadCommand::Agent(agent)) => agent.run(),
            None => self.options.run(),
        }
    }
}

impl LoadOptions {
    fn run(self) -> Outcome {
        // Without a handler, a signal ends the process while it connects to the server.
        let config = self.config()?;
        let signals = supervise::first_signal()?;
        if config.threads < self.threads.0 as usize {
            anstream::eprintln!(
                "note: {} threads: each needs a connection (`--connections {}`)",
                config.threads,
                config.connections
            );
        }
        raise_file_limit(config.connections);
        if config.protocol != LoadProtocol::Http && !self.no_populate {
            populate(&config, &signals)?;
        }
        let Some(bound) = self.search else {
            let measured = self.measure(config, &signals)?;
            measured.warn();
            crate::console::say!(
                "{}",
                if self.json { format!("{:#}\n", measured.json()) } else { measured.text() }
            );
            return measured.verdict();
        };
        let run = |rate: Option<f64>| -> Result<RateTrial, Failure> {
            let measured = self.measure(LoadConfig { rate_per_s: rate, ..config.clone() }, &signals)?;
            if measured.is_stopped {
                return Err(Failure::signal(signal_hook::consts::SIGINT));
            }
            let replies_per_s = measured.replies_per_s();
            let latency_us = bound.of(&measured.report.latency);
            let trial = RateTrial {
                rate_per_s: rate.unwrap_or(replies_per_s),
                replies_per_s,
                latency_us,
                is_good: measured.keeps_up() && measured.faults() == 0 && latency_us <= bound.latency_us(),
            };
            anstream::eprintln!("{}", report::trial_line(&trial, rate.is_none(), &bound));
            match rate {
                // All trials would be in vain.
                None => measured.verdict().map(|()| trial),
                Some(_) => Ok(trial),
            }
        };
        let (best, trials) = load::search(run)?;
        let text = if self.json {
            report::search_json(&bound, best.as_ref(), &trials)
        } else {
            report::search_text(&bound, best.as_ref())
        };
        crate::console::say!("{text}");
        best.map(|_| ()).ok_or_else(|| Failure::failed(format!("no rate that was tried keeps {bound}")))
    }

    /// Runs one load to its end, or to a signal; with agents theirs, and one that measures.
    fn measure(&self, config: LoadConfig, signals: &Receiver<i32>) -> Result<Measured, Failure> {
        let is_live = std::io::stderr().is_terminal();
        let must_stop = || signals.recv_timeout(LOOK_EVERY).is_ok();
        if self.agents.is_empty() {
            return drive(&self.url(), config, must_stop, is_live);
        }
        let own_rate = own_rate(config.rate_per_s, self.measure_rate.0);
        let begun = agent::begin(&self.agents, config.rate_per_s, own_rate, config.seed)?;
        let own = LoadConfig {
            connections: MEASURE_CONNECTIONS.min(config.connections),
            threads: 1,
            depth: 1,
            rate_per_s: Some(own_rate),
            gaps: Gaps::Poisson,
            ..config
        };
        let measured = drive(&self.url(), own, must_stop, is_live)?;
        Ok(Measured { agents: agent::results(begun, measured.is_stopped)?, ..measured })
    }

    fn url(&self) -> String {
        self.target().url.clone()
    }

    fn target(&self) -> &Target {
        self.target.as_ref().expect("clap requires a URL without a subcommand")
    }

    /// Checks the options against each other, and connects once, so that an address without a server is an error.
    fn config(&self) -> Result<LoadConfig, Failure> {
        self.check()?;
        let protocol = match (self.target().scheme, self.protocol.unwrap_or(Memcached::Text)) {
            (Scheme::Http, _) => LoadProtocol::Http,
            (Scheme::Redis, _) => LoadProtocol::Resp,
            (Scheme::Memcached, Memcached::Text) => LoadProtocol::Text,
            (Scheme::Memcached, Memcached::Binary) => LoadProtocol::Binary,
            (Scheme::Memcached, Memcached::Meta) => LoadProtocol::Meta,
        };
        let version = match self.http {
            Some(Http::V10) => HttpVersion::Http10,
            Some(Http::V11) | None => HttpVersion::Http11,
        };
        let connections = self.connections.0 as usize;
        let addr = self.target().connect().map_err(Failure::failed)?;
        Ok(LoadConfig {
            protocol,
            connections,
            depth: self.pipeline.0 as usize,
            threads: (self.threads.0 as usize).min(connections),
            keys: self.keys.map_or(10_000, |keys| u64::from(keys.0)),
            key_size: self.key_size.map_or(KeySize::Fixed(16), |size| size.0),
            value: self.value_size.map_or(ValueSize::Fixed(100), |size| size.0),
            get_ratio: if protocol == LoadProtocol::Http {
                1.0
            } else {
                self.get_ratio.map_or(0.9, |it| it.0)
            },
            rate_per_s: self.rate.map(|rate| rate.0),
            gaps: match self.gaps {
                Some(GapsValue::Poisson) | None => Gaps::Poisson,
                Some(GapsValue::Fixed) => Gaps::Fixed,
                Some(GapsValue::Etc) => Gaps::Etc,
            },
            connection_per_request: self.connection_per_request,
            http: HttpRequest { version, host: self.target().host.clone(), path: self.target().path.clone() },
            warmup: self.warm_up.0,
            duration: Some(self.duration.0),
            drain: DRAIN,
            reconnect: true,
            seed: self.seed,
            order: self.key_order.map_or(KeyOrder::Random, |order| order.0),
            ..LoadConfig::new(addr)
        })
    }

    /// Refuses options that contradict each other or the URL.
    fn check(&self) -> Outcome {
        let is_http = self.target().scheme == Scheme::Http;
        let has_key_option = self.get_ratio.is_some()
            || self.keys.is_some()
            || self.key_order.is_some()
            || self.key_size.is_some()
            || self.value_size.is_some()
            || self.no_populate;
        let rules = [
            (
                is_http && has_key_option,
                "a page has no key: --get-ratio, --keys, --key-order, --key-size, --value-size and --no-populate \
                 are for `memcached://` and `redis://`",
            ),
            (!is_http && self.http.is_some(), "--http is for `http://`"),
            (
                self.target().scheme != Scheme::Memcached && self.protocol.is_some(),
                "--protocol is for `memcached://`",
            ),
            (
                self.connection_per_request && self.pipeline.0 > 1,
                "a connection per request has no pipeline: leave out --pipeline or --connection-per-request",
            ),
            (self.agents.len() > agent::AGENTS_MAX, "a load has 64 agents at most"),
            (
                !self.agents.is_empty() && self.rate.is_some_and(|rate| rate.0 <= self.measure_rate.0),
                "--rate must be above --measure-rate, the part of this process",
            ),
            (
                self.gaps.is_some() && self.rate.is_none() && self.search.is_none(),
                "a closed loop has no gaps: add --rate, or leave out --gaps",
            ),
        ];
        match rules.into_iter().find(|(is_wrong, _)| *is_wrong) {
            Some((_, why)) => Err(Failure::usage(why)),
            None => Ok(()),
        }
    }
}

/// The rate of the process that measures beside agents: `measure_rate`, or half of a rate that is not above it, such as
/// one that a search tries.
fn own_rate(rate_per_s: Option<f64>, measure_rate: f64) -> f64 {
    rate_per_s.filter(|rate| *rate <= measure_rate).map_or(measure_rate, |rate| rate / 2.0)
}

/// Writes every key. Errors: that fails, or a signal has come.
fn populate(config: &LoadConfig, signals: &Receiver<i32>) -> Outcome {
    let mut signal = None;
    let must_stop = || {
        signal = signals.recv_timeout(LOOK_EVERY).ok();
        signal.is_some()
    };
    match (load::populate_unless(config, POPULATE_WAIT_MAX, must_stop), signal) {
        (Ok(_), _) => Ok(()),
        (Err(_), Some(signal)) => Err(Failure::signal(signal)),
        (Err(error), None) => Err(Failure::failed(error.to_string())),
    }
}

/// Runs a load until it ends, or `must_stop`, which waits a moment, returns true.
///
/// Errors: the load cannot start.
fn drive(
    url: &str,
    config: LoadConfig,
    mut must_stop: impl FnMut() -> bool,
    is_live: bool,
) -> Result<Measured, Failure> {
    let begun = (Instant::now(), process_cpu());
    let failed = |error: std::io::Error| Failure::failed(format!("the load cannot start: {error}"));
    let run = load::start(config.clone()).map_err(failed)?;
    let progress = run.progress();
    let (mut shown, mut is_stopped) = (progress.snapshot(), false);
    while !run.is_finished() {
        if must_stop() {
            is_stopped = true;
            run.stop();
        }
        if is_live && shown.at.elapsed() >= LINE_EVERY {
            let now = progress.snapshot();
            anstream::eprintln!("{}", progress_line(&now, &shown));
            shown = now;
        }
    }
    let report = run.wait();
    let cpu = process_cpu().saturating_sub(begun.1).as_secs_f64() / begun.0.elapsed().as_secs_f64();
    Ok(Measured { url: url.to_owned(), config, report, cpu, is_stopped, agents: Vec::new() })
}

fn progress_line(now: &LoadSnapshot, before: &LoadSnapshot) -> String {
    format!(
        "{:>4} s  {:>9.0} requests/s  p50 {} us  p99 {} us  max {} us  {} open  {} faults",
        now.elapsed.as_secs(),
        now.rate_since(before),
        now.latency.p50_us,
        now.latency.p99_us,
        now.latency.max_us,
        now.open,
        now.counts.faults()
    )
}

/// Returns the processor time of this process.
fn process_cpu() -> Duration {
    Duration::try_from(clock_gettime(ClockId::ProcessCPUTime)).unwrap_or_default()
}

/// Raises the soft limit on open files, if connections need that.
fn raise_file_limit(connections: usize) {
    /// Descriptors beside the connections: standard ones, and those of each thread.
    const OTHERS: u64 = 16 + 4 * THREADS_MAX as u64;
    let limit = getrlimit(Resource::Nofile);
    let needed = connections as u64 + OTHERS;
    if limit.current.is_some_and(|current| current < needed) {
        let raised = Rlimit { current: limit.maximum.or(Some(needed)), maximum: limit.maximum };
        // If that fails, connections that have no descriptor are counted as not opened.
        let _ = setrlimit(Resource::Nofile, raised);
    }
}

#[cfg(test)]
mod tests {
    use super::own_rate;

    #[test]
    fn a_search_with_agents_tried_no_rate_below_that_of_the_measuring_process() {
        for (rate, own) in
            [(None, 1_000.0), (Some(1_500.0), 1_000.0), (Some(1_000.0), 500.0), (Some(80.0), 40.0)]
        {
            assert_eq!(own_rate(rate, 1_000.0), own, "{rate:?}");
        }
    }
}
