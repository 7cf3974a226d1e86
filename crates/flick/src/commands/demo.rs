//! `flick demo`: the main job in one process, on a bare machine: stores, the proxy of Listing 1, and a load that
//! checks every reply.
//! Promises: all ports are free ones of the loopback; the last line of `--plain` is
//! `replies N, errors N, p50 N us, p99 N us`; a wrong reply, or none at all, ends it with 1.

mod plain;
mod stores;
#[cfg(feature = "tui")]
mod view;

use std::path::Path;
use std::time::Duration;

use clap::{Args, ValueEnum};
use flick_compiler::{EngineKind, Input, compile};
use flick_load::load::{self, LoadConfig, LoadReport, LoadRun};
use flick_net::Endpoint;
use flick_runtime::{Binding, Platform, PlatformConfig};

use crate::commands::run::start_failure;
use crate::failure::{Failure, Outcome};
use crate::{report, supervise};
use stores::{Kind, Stores};

/// The program of the demonstration: the paper's first listing.
const PROGRAM: &str = include_str!("../../../../examples/memcached_proxy/memcached_proxy.flick");
/// Its path in the repository.
const PROGRAM_PATH: &str = "examples/memcached_proxy/memcached_proxy.flick";
/// Backends behind the proxy.
const STORES: usize = 4;
/// Longest graceful shutdown at the end.
const SHUTDOWN_TIMEOUT: Duration = Duration::from_secs(2);

/// The backends of the proxy.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Backends {
    /// Stores in this process
    Embedded,
    /// The installed memcached
    Memcached,
}

/// Shows a memcached proxy at work.
#[derive(Debug, Args)]
pub struct Demo {
    /// Duration in seconds
    #[arg(long, value_name = "N", default_value_t = 10, value_parser = clap::value_parser!(u64).range(1..=86_400))]
    seconds: u64,
    /// Print one line per second instead of the terminal interface
    #[arg(long)]
    plain: bool,
    /// Backends of the proxy
    #[arg(long, value_name = "KIND", default_value = "embedded")]
    backends: Backends,
    /// Worker threads of the proxy
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u16).range(1..=1024))]
    workers: u16,
    /// Clients, each with one request in flight
    #[arg(long, value_name = "N", default_value_t = 128, value_parser = clap::value_parser!(u16).range(1..=10_000))]
    connections: u16,
}

/// The running demonstration, as a view shows it.
pub struct Scene<'a> {
    /// The proxy.
    pub platform: &'a Platform,
    /// The load.
    pub run: &'a LoadRun,
    /// Signals that end it.
    pub signals: &'a std::sync::mpsc::Receiver<i32>,
    /// Its duration.
    #[cfg_attr(not(feature = "tui"), expect(dead_code, reason = "only the terminal interface shows it"))]
    pub length: Duration,
    /// The kind of backends.
    pub backends: &'static str,
    /// Clients.
    pub connections: usize,
}

impl Demo {
    /// Starts the backends, the proxy and the load, shows them, and prints the totals.
    pub fn run(self) -> Outcome {
        let signals = supervise::signals()?;
        let kind = match self.backends {
            Backends::Embedded => Kind::Embedded,
            Backends::Memcached => Kind::Memcached,
        };
        let stores = Stores::start(kind, STORES)?;
        let platform = self.start_proxy(stores.addresses())?;
        let address = match platform.addresses().first() {
            Some((_, Endpoint::Tcp(address))) => *address,
            other => panic!("the demonstration listens on one TCP address, not {other:?}"),
        };
        let config = LoadConfig {
            connections: usize::from(self.connections),
            duration: Some(Duration::from_secs(self.seconds)),
            ..LoadConfig::new(address)
        };
        let io_failed = |error: std::io::Error| Failure::failed(format!("the load does not work: {error}"));
        load::populate(&config).map_err(io_failed)?;
        let run = load::start(config).map_err(io_failed)?;
        let scene = Scene {
            platform: &platform,
            run: &run,
            signals: &signals,
            length: Duration::from_secs(self.seconds),
            backends: kind.name(),
            connections: usize::from(self.connections),
        };
        if self.plain || cfg!(not(feature = "tui")) || !crate::console::has_screen() {
            plain::show(&scene);
        } else {
            #[cfg(feature = "tui")]
            view::show(&scene)
                .map_err(|error| Failure::failed(format!("the terminal does not work: {error}")))?;
        }
        run.stop();
        let report = run.wait();
        platform.drain(SHUTDOWN_TIMEOUT);
        platform.wait();
        drop(stores);
        verdict(&report)
    }

    fn start_proxy(&self, backends: Vec<Endpoint>) -> Result<Platform, Failure> {
        let compiled = compile(&Input::at(Path::new(PROGRAM_PATH), PROGRAM), EngineKind::Native)?;
        report::warnings(&compiled.warnings, &compiled.sources);
        let executable = compiled.into_first();
        let any_port = Endpoint::Tcp(std::net::SocketAddr::from(([127, 0, 0, 1], 0)));
        let config = PlatformConfig {
            workers: usize::from(self.workers),
            // Proxy, stores and load share the machine here; the kernel spreads them better than a fixed place would.
            pin: false,
            ..PlatformConfig::new(
                vec![Binding::new("client", vec![any_port])],
                vec![Binding::new("backends", backends)],
            )
        };
        anstream::eprintln!("{}", executable.times.line());
        Platform::start(executable.program(), executable.engine, config).map_err(start_failure)
    }
}

/// Prints the last line. Fails if a reply was wrong or missing.
fn verdict(report: &LoadReport) -> Outcome {
    if let Some(wrong) = &report.first_wrong {
        anstream::eprintln!("the first wrong reply: {wrong}");
    }
    let (replies, errors) = (report.replies, report.faults());
    let (p50, p99) = (report.latency.p50_us, report.latency.p99_us);
    crate::console::sayln!("replies {replies}, errors {errors}, p50 {p50} us, p99 {p99} us");
    if errors > 0 {
        return Err(Failure::failed(format!("{errors} requests went wrong: {:?}", report.counts)));
    }
    if replies == 0 {
        return Err(Failure::failed("no request was answered"));
    }
    Ok(())
}
