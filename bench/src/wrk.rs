//! HTTP load: `wrk`, a closed loop on persistent connections, and the server's processor time meanwhile.
//!
//! Promises: a reply that is not 2xx or 3xx, a timeout or a lost connection makes the round void.
//! Not here: an open loop; wrk charges no request for the time it waited to be sent.

use std::io;
use std::net::SocketAddr;
use std::process::{Command, Output};

use crate::process::Server;
use crate::sweep::Round;

/// Figures parsed from the output of wrk.
#[derive(Debug, PartialEq)]
struct Summary {
    requests: f64,
    seconds: f64,
    p50_us: f64,
    p99_us: f64,
}

/// Warms the server up, loads it for `seconds` on `connections`, and returns the figures of that time.
pub(crate) fn round(
    server: &Server,
    connections: usize,
    warmup_seconds: u64,
    seconds: u64,
) -> io::Result<Round> {
    let load = |seconds| summary(&command(server.ip()?, connections, seconds).output()?);
    if warmup_seconds > 0 {
        load(warmup_seconds)?;
    }
    let before = server.cpu()?;
    let summary = load(seconds)?;
    let cpu = server.cpu()?.since(&before);
    let per_request = |time: std::time::Duration| time.as_secs_f64() * 1e6 / summary.requests;
    Ok(Round {
        requests_per_s: summary.requests / summary.seconds,
        user_us: per_request(cpu.user),
        system_us: per_request(cpu.system),
        core_share: (cpu.user + cpu.system).as_secs_f64() / summary.seconds,
        p50_us: summary.p50_us,
        p99_us: summary.p99_us,
    })
}

fn command(addr: SocketAddr, connections: usize, seconds: u64) -> Command {
    let mut command = Command::new("wrk");
    command.args(arguments(addr, connections, seconds));
    command
}

/// Arguments of wrk for a round.
pub(crate) fn arguments(addr: SocketAddr, connections: usize, seconds: u64) -> Vec<String> {
    // One thread: wrk refuses fewer connections than threads, and the load has one core.
    let fixed = ["-t1", "--latency", "--timeout", "5s"].map(str::to_owned);
    let own = [format!("-c{connections}"), format!("-d{seconds}s"), format!("http://{addr}/")];
    fixed.into_iter().chain(own).collect()
}

/// Requests per second of a round.
pub(crate) fn requests_per_s(output: &Output) -> io::Result<f64> {
    Ok(requests_and_rate(output)?.1)
}

/// Requests of a round, and requests per second.
pub(crate) fn requests_and_rate(output: &Output) -> io::Result<(f64, f64)> {
    let summary = summary(output)?;
    Ok((summary.requests, summary.requests / summary.seconds))
}

fn summary(output: &Output) -> io::Result<Summary> {
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    if !output.status.success() || text.contains("Socket errors") || text.contains("Non-2xx") {
        return Err(io::Error::other(format!("the round is void: {text}")));
    }
    parse(&text).ok_or_else(|| io::Error::other(format!("wrk printed {text:?}")))
}

/// Reads what wrk prints with `--latency`.
fn parse(text: &str) -> Option<Summary> {
    let line = text.lines().find(|line| line.contains(" requests in "))?;
    let (requests, rest) = line.trim().split_once(" requests in ")?;
    let percentile = |name: &str| {
        let mut words = text.lines().map(str::split_whitespace).find_map(|mut words| {
            let is_it = words.next() == Some(name);
            is_it.then_some(words)
        })?;
        time_us(words.next()?)
    };
    Some(Summary {
        requests: requests.parse().ok()?,
        seconds: time_us(rest.split(',').next()?)? / 1e6,
        p50_us: percentile("50%")?,
        p99_us: percentile("99%")?,
    })
}

/// A time as wrk prints it: `112.00us`, `1.23ms`, `1.02s`, `1.02m`.
fn time_us(text: &str) -> Option<f64> {
    let units = [("us", 1.0), ("ms", 1e3), ("s", 1e6), ("m", 60e6)];
    let (number, scale) = units.iter().find_map(|(unit, scale)| Some((text.strip_suffix(unit)?, scale)))?;
    Some(number.parse::<f64>().ok()? * scale)
}

#[cfg(test)]
mod tests {
    use super::{Summary, parse, time_us};

    #[test]
    fn times_have_units() {
        let times = ["112.00us", "1.50ms", "2.00s", "1.00m"].map(time_us);
        assert_eq!(times, [Some(112.0), Some(1500.0), Some(2e6), Some(60e6)]);
        assert_eq!(time_us("7"), None);
    }

    #[test]
    fn a_summary_is_read() {
        let text = "Running 3s test @ http://127.0.0.1:1/\n  1 threads and 1 connections\n  Latency Distribution\n     50%   61.00us\n     75%   70.00us\n     90%   80.00us\n     99%    1.10ms\n  45000 requests in 3.10s, 7.00MB read\nRequests/sec:  15000.00\n";
        let expected = Summary { requests: 45_000.0, seconds: 3.1, p50_us: 61.0, p99_us: 1100.0 };
        let found = parse(text).expect("it is whole");
        assert_eq!((found.requests, found.p50_us), (expected.requests, expected.p50_us));
        assert!(
            (found.seconds - expected.seconds).abs() < 1e-9 && (found.p99_us - expected.p99_us).abs() < 1e-9
        );
        assert_eq!(parse("Running"), None);
    }
}
