//! Notifies systemd: the service is ready, reloads, stops, or another process is the service now.
//! Promises: does nothing without systemd; a message that cannot be sent is only logged.
//! Source: sd_notify(3), section "Notes".

use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixDatagram};

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
