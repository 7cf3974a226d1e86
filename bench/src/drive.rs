//! A checked load against a server that is already running, for experiments by hand.

use std::io;
use std::time::Duration;

use flick_load::load::{self, LoadConfig, LoadProtocol};

use crate::cli::DriveArgs;

/// Time between two lines of the live view.
const LINE_EVERY: Duration = Duration::from_secs(1);

/// Drives the server and prints one line a second and a last one.
///
/// Errors: the server cannot be reached, or there was any fault; misses are printed only.
pub(crate) fn run(args: &DriveArgs) -> io::Result<()> {
    let protocol = if args.text { LoadProtocol::Text } else { LoadProtocol::Binary };
    let config = LoadConfig {
        split_writes: args.split,
        reconnect: args.reconnect,
        seed: args.seed,
        ..args.load.config(args.addr.clone(), protocol)
    };
    if !args.no_populate {
        load::populate(&config)?;
    }
    let run = load::start(config)?;
    let progress = run.progress();
    let mut earlier = progress.snapshot();
    while !run.is_finished() {
        std::thread::park_timeout(LINE_EVERY);
        let now = progress.snapshot();
        println!(
            "{:>9.0}/s  open {}  p50 {} us  p99 {} us  max {} us  faults {}",
            now.rate_since(&earlier),
            now.open,
            now.latency.p50_us,
            now.latency.p99_us,
            now.latency.max_us,
            now.counts.faults()
        );
        earlier = now;
    }
    let report = run.wait();
    let statuses: Vec<_> = report.errors_by_status().collect();
    println!(
        "{:?}\nerrors by status {statuses:?}, slowest {} us",
        report.counts, report.error_latency_us_max
    );
    println!(
        "replies {}, {:.0}/s, p50 {} us, p99 {} us, p99.9 {} us, max {} us",
        report.replies,
        report.replies_per_s,
        report.latency.p50_us,
        report.latency.p99_us,
        report.latency.p999_us,
        report.latency.max_us
    );
    match report.faults() {
        0 => Ok(()),
        faults => Err(io::Error::other(format!(
            "{faults} faults; {}",
            report.first_wrong.as_deref().unwrap_or("no reply was wrong")
        ))),
    }
}
