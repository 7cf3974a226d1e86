//! Notifies systemd: the service is ready, reloads, stops, is alive, or another process is the service now.
//! Promises: does nothing without systemd; a message that cannot be sent is only logged.
//! Source: sd_notify(3), section "Notes"; sd_watchdog_enabled(3).

use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixDatagram};
use std::time::{Duration, Instant};

/// Notifies that the service accepts clients, and that this is its process.
pub fn ready() {
    send(&format!("READY=1\nMAINPID={}\n", std::process::id()));
}

/// Notifies that a reload begins; `ready` notifies of its end.
pub fn reloading() {
    let now = rustix::time::clock_gettime(rustix::time::ClockId::Monotonic);
    let now_us = now.tv_sec as u64 * 1_000_000 + now.tv_nsec as u64 / 1_000;
    send(&format!("RELOADING=1\nMONOTONIC_USEC={now_us}\n"));
}

/// Notifies that the service shuts down.
pub fn stopping() {
    send("STOPPING=1\n");
}

/// Keep-alive messages to systemd (`WatchdogSec=`).
#[derive(Debug)]
pub struct KeepAlive {
    /// Longest time between two; `None`: systemd wants none.
    interval: Option<Duration>,
    sent: Option<Instant>,
}

impl KeepAlive {
    /// As the environment says. `is_upgrade`: this process replaces the one that systemd started.
    pub fn from_environment(is_upgrade: bool) -> Self {
        let variable = |name: &str| std::env::var(name).ok();
        let is_own = |pid: String| is_upgrade || pid.parse() == Ok(std::process::id());
        let interval =
            variable("WATCHDOG_USEC").and_then(|usec| usec.parse().ok()).map(Duration::from_micros);
        let interval = interval.filter(|time| !time.is_zero() && variable("WATCHDOG_PID").is_none_or(is_own));
        Self { interval, sent: None }
    }

    /// Sends a message if half of the interval is over and all workers are alive.
    pub fn send_if_due(&mut self, is_alive: impl FnOnce() -> bool) {
        let Some(interval) = self.interval else { return };
        if self.sent.is_none_or(|sent| sent.elapsed() >= interval / 2) && is_alive() {
            self.sent = Some(Instant::now());
            send("WATCHDOG=1\n");
        }
    }
}

fn send(text: &str) {
    let Some(at) = std::env::var("NOTIFY_SOCKET").ok().filter(|at| !at.is_empty()) else { return };
    let sent = UnixDatagram::unbound().and_then(|socket| match at.strip_prefix('@') {
        Some(name) => socket.send_to_addr(text.as_bytes(), &SocketAddr::from_abstract_name(name)?),
        None => socket.send_to(text.as_bytes(), &at),
    });
    if let Err(error) = sent {
        tracing::debug!(%error, "cannot notify systemd");
    }
}
