//! One round of `flick-load`: a load against one server, and the server's processor time over the requests
//! that it served meanwhile.

use std::io;
use std::time::Duration;

use flick_load::load::{self, LoadConfig, LoadProtocol};

use crate::process::{CpuTimes, Server};
use crate::sweep::Round;

/// The interval of processor time ends this long before the load does, so that it holds only steady work.
const MARGIN: Duration = Duration::from_millis(50);

/// Pause between two checks whether the warm-up is over.
const CHECK_PAUSE: Duration = Duration::from_millis(1);

/// Writes every key (not with HTTP), runs the load, and returns its figures. Without `server` there are none of
/// processor time.
///
/// Errors: the round is void: an error, a wrong or missing reply, a lost connection, or a miss.
pub(crate) fn round(config: LoadConfig, server: Option<&Server>) -> io::Result<Round> {
    if config.protocol != LoadProtocol::Http {
        load::populate(&config)?;
    }
    let span = config.duration.unwrap_or_default();
    let run = load::start(config)?;
    let progress = run.progress();
    while !progress.is_measuring() && !run.is_finished() {
        std::thread::sleep(CHECK_PAUSE);
    }
    let cpu = || server.map_or(Ok(CpuTimes::default()), Server::cpu);
    let (cpu_before, before) = (cpu()?, progress.snapshot());
    std::thread::sleep(span.saturating_sub(MARGIN));
    let (cpu_after, after) = (cpu()?, progress.snapshot());
    let report = run.wait();
    if report.faults() > 0 || report.counts.misses > 0 || report.replies == 0 {
        let why = report.first_wrong.as_deref().unwrap_or("no wrong reply");
        let statuses: Vec<_> = report.errors_by_status().collect();
        return Err(io::Error::other(format!("the round is void: {:?}; {statuses:?}; {why}", report.counts)));
    }
    let served = after.counts.replies_total.saturating_sub(before.counts.replies_total);
    let cpu = cpu_after.since(&cpu_before);
    let wall = after.at.saturating_duration_since(before.at);
    let per_request = |time: Duration| time.as_secs_f64() * 1e6 / served.max(1) as f64;
    Ok(Round {
        requests_per_s: report.replies_per_s,
        user_us: per_request(cpu.user),
        system_us: per_request(cpu.system),
        core_share: (cpu.user + cpu.system).as_secs_f64() / wall.as_secs_f64(),
        p50_us: report.latency.p50_us as f64,
        p99_us: report.latency.p99_us as f64,
    })
}
