//! One round: a load against one server, and the server's processor time over exactly the requests it served in it.

use std::io;
use std::net::SocketAddr;
use std::time::Duration;

use flick_load::load::{self, Protocol};
use serde::Serialize;

use crate::cli::LoadArgs;
use crate::process::Server;

/// The interval of processor time ends this long before the load does, so that it holds only steady work.
const MARGIN: Duration = Duration::from_millis(50);

/// Pause between two looks at whether the warm-up is over.
const LOOK_PAUSE: Duration = Duration::from_millis(1);

/// The figures of one round.
#[derive(Debug, Clone, Copy, Serialize)]
pub(crate) struct Round {
    pub(crate) replies: u64,
    pub(crate) replies_per_s: f64,
    /// Zero when the server is not a process of its own.
    pub(crate) cpu_us_per_request: f64,
    /// Share of its core that the server used.
    pub(crate) server_load: f64,
    pub(crate) mean_us: f64,
    pub(crate) p50_us: f64,
    pub(crate) p99_us: f64,
    pub(crate) p999_us: f64,
    pub(crate) max_us: f64,
}

/// Fills the server behind `addr`, loads it as `args` says, and takes its figures.
///
/// Errors: the round is void — an error, a wrong or missing reply, a lost connection, or a miss.
pub(crate) fn round(
    args: &LoadArgs,
    addr: SocketAddr,
    protocol: Protocol,
    server: Option<&Server>,
) -> io::Result<Round> {
    let config = args.config(addr, protocol);
    load::populate(&config)?;
    let span = config.duration.unwrap_or_default();
    let run = load::start(config)?;
    let progress = run.progress();
    while !progress.is_measuring() && !run.is_finished() {
        std::thread::sleep(LOOK_PAUSE);
    }
    let cpu_time = || server.map_or(Ok(Duration::ZERO), Server::cpu_time);
    let (cpu_before, before) = (cpu_time()?, progress.snapshot());
    std::thread::sleep(span.saturating_sub(MARGIN));
    let (cpu_after, after) = (cpu_time()?, progress.snapshot());
    let report = run.wait();
    if report.faults() > 0 || report.counts.misses > 0 || report.replies == 0 {
        let why = report.first_wrong.as_deref().unwrap_or("no wrong reply");
        let statuses: Vec<_> = report.errors_by_status().collect();
        return Err(io::Error::other(format!("the round is void: {:?}; {statuses:?}; {why}", report.counts)));
    }
    let served = after.counts.replies_total.saturating_sub(before.counts.replies_total);
    let cpu = cpu_after.saturating_sub(cpu_before);
    let wall = after.at.saturating_duration_since(before.at);
    Ok(Round {
        replies: report.replies,
        replies_per_s: report.replies_per_s,
        cpu_us_per_request: cpu.as_secs_f64() * 1e6 / served.max(1) as f64,
        server_load: cpu.as_secs_f64() / wall.as_secs_f64(),
        mean_us: report.latency.mean_us,
        p50_us: report.latency.p50_us as f64,
        p99_us: report.latency.p99_us as f64,
        p999_us: report.latency.p999_us as f64,
        max_us: report.latency.max_us as f64,
    })
}
