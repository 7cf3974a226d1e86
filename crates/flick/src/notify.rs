//! What systemd is told: that a service is ready, that it reloads, that another process is the service now.
//! Promises: without systemd nothing happens; a message that cannot be sent is nobody's trouble.
//! Source: sd_notify(3), the protocol in its last section.

use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixDatagram};

/// The service takes clients; this process is it.
pub fn ready() {
    tell(&format!("READY=1\nMAINPID={}\n", std::process::id()));
}

/// Programs and settings are read again; `ready` says that it is over.
pub fn reloading() {
    let now = rustix::time::clock_gettime(rustix::time::ClockId::Monotonic);
    let now_us = now.tv_sec as u64 * 1_000_000 + now.tv_nsec as u64 / 1_000;
    tell(&format!("RELOADING=1\nMONOTONIC_USEC={now_us}\n"));
}

/// It takes no clients any more.
pub fn stopping() {
    tell("STOPPING=1\n");
}

fn tell(text: &str) {
    let Some(at) = std::env::var("NOTIFY_SOCKET").ok().filter(|at| !at.is_empty()) else { return };
    let sent = UnixDatagram::unbound().and_then(|socket| match at.strip_prefix('@') {
        Some(name) => socket.send_to_addr(text.as_bytes(), &SocketAddr::from_abstract_name(name)?),
        None => socket.send_to(text.as_bytes(), &at),
    });
    if let Err(error) = sent {
        tracing::debug!(%error, "systemd cannot be told");
    }
}
