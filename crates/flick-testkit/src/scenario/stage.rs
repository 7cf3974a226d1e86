//! Stages on which a scenario plays: the simulator, or the sockets of this machine.
//! Promises: peers are passive; they run their actions between two iterations of the service and keep what arrives.

mod peer_conn;
mod simulated;
mod sockets;

pub use peer_conn::Transport;
pub use simulated::{QUIET_SEED, Simulated};
pub use sockets::Sockets;

use std::time::Duration;

use flick_abi::limits::CHANNEL_ELEMENTS_MAX;
use flick_runtime::state::State;
use flick_runtime::{BackendCounters, Counters, Limits, Timeouts, Totals, WorkerAudit};

use super::{Happening, Scenario};

/// A peer's connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PeerId(pub usize);

/// An action of a peer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Command {
    /// Write.
    Write(Vec<u8>),
    /// Write no more.
    ShutdownWrite,
    /// End the connection.
    Close,
    /// End it with a reset.
    Reset,
    /// Stop reading, or read again.
    Pause(bool),
}

/// Reachability of a backend.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reachable {
    /// It answers.
    Yes,
    /// It refuses new connections.
    Refuses,
    /// Nothing comes through. Only the simulator can do this.
    Vanished,
}

/// A service with its peers.
pub trait Stage {
    /// Lets the service run for a little while.
    fn step(&mut self);
    /// Lets the service run until a time. No peer is commanded before it.
    fn rest(&mut self, until_ms: u64) {
        while self.now_ms() < until_ms {
            self.step();
        }
    }
    /// Milliseconds since the beginning.
    fn now_ms(&self) -> u64;
    /// Connects a client.
    fn open(&mut self) -> PeerId;
    /// The connections to a backend, the oldest first.
    fn connections(&mut self, backend: usize) -> Vec<PeerId>;
    /// Tells a peer to do something.
    fn command(&mut self, peer: PeerId, command: Command);
    /// Shows what a peer has received and no step has consumed.
    fn with_input(&mut self, peer: PeerId, look: &mut dyn FnMut(&mut Vec<u8>));
    /// Whether the service has ended the peer's connection.
    fn is_closed(&mut self, peer: PeerId) -> bool;
    /// Changes how a backend is reached.
    fn set_reach(&mut self, backend: usize, reach: Reachable);
    /// Begins draining.
    fn drain(&mut self, within_ms: u64);
    /// Whether the worker has said that it is finished.
    fn is_finished(&self) -> bool;
    /// The counters and gauges: the program's own, then the platform's, then `backend_errors`.
    fn counters(&self) -> Vec<(String, i64)>;
    /// Resources that are still in use although nothing is in flight.
    ///
    /// Errors: a list of what should not be there.
    fn expect_quiet(&self) -> Result<(), String>;
    /// Returns what peers have sent and received so far; empty if the stage does not keep it.
    fn log(&self) -> Vec<Happening> {
        Vec::new()
    }
}

/// The limits that a scenario asks for.
///
/// Errors: a name that is no limit.
fn limits(scenario: &Scenario, mut limits: Limits) -> Result<Limits, String> {
    if scenario.backends > CHANNEL_ELEMENTS_MAX {
        return Err(format!("{} backends are too many", scenario.backends));
    }
    for (name, value) in &scenario.limits {
        let target = match name.as_str() {
            "max_connections" => &mut limits.max_connections,
            "max_inflight_per_client" => &mut limits.max_inflight_per_client,
            "max_inflight_requests" => &mut limits.max_inflight_requests,
            "max_dedicated_connections" => &mut limits.max_dedicated_connections,
            "max_connections_per_backend" => &mut limits.max_connections_per_backend,
            "max_requests_per_backend" => &mut limits.health.max_requests_per_backend,
            "max_pending_per_backend" => &mut limits.health.max_pending_per_backend,
            "buffer_memory" => {
                limits.buffer_memory = *value;
                continue;
            }
            _ => return Err(format!("there is no limit `{name}`")),
        };
        *target = u32::try_from(*value).map_err(|_| format!("limit `{name}` is too large"))?;
    }
    Ok(limits)
}

/// The timeouts that a scenario asks for.
///
/// Errors: an unknown name of a timeout.
fn timeouts(scenario: &Scenario) -> Result<Timeouts, String> {
    let mut timeouts = Timeouts::default();
    for (name, ms) in &scenario.timeouts {
        let target = match name.as_str() {
            "connect" => &mut timeouts.connect,
            "response" => timeouts.response.get_or_insert_default(),
            "stream_idle" => &mut timeouts.stream_idle,
            "total" => &mut timeouts.total,
            "queue" => timeouts.queue.get_or_insert_default(),
            "client_request" => &mut timeouts.client_request,
            "client_write" => &mut timeouts.client_write,
            "idle" => timeouts.idle.get_or_insert_default(),
            "reconnect_backoff_min" => &mut timeouts.reconnect_backoff_min,
            "reconnect_backoff_max" => &mut timeouts.reconnect_backoff_max,
            _ => return Err(format!("there is no timeout `{name}`")),
        };
        *target = Duration::from_millis(*ms);
    }
    Ok(timeouts)
}

/// `backend_errors` is the sum of `flick_backend_errors_total` over all backends.
fn counters(state: &State, counters: &Counters, backends: &[BackendCounters]) -> Vec<(String, i64)> {
    let mut totals = Totals::default();
    totals.absorb(counters);
    let backend_errors = backends.iter().map(|backend| backend.failures.get()).sum::<u64>();
    let platforms = totals.entries().into_iter().chain([("backend_errors", backend_errors)]);
    let platforms = platforms.map(|(name, value)| (name.to_owned(), value as i64));
    state.counters().into_iter().map(|own| (own.name, own.value)).chain(platforms).collect()
}

/// Resources that are still in use; a driver may keep up to this many large receive buffers.
pub(crate) fn expect_quiet(audit: &WorkerAudit, open: u64, driver_bufs: u32) -> Result<(), String> {
    let WorkerAudit { sessions, requests, pieces, frames, small_bufs, large_bufs, blocked, stalled, .. } =
        *audit;
    let WorkerAudit { suspended_rules, states, huge_bufs, .. } = *audit;
    let left: Vec<String> = [
        ("sessions", sessions),
        ("sessions counted as open", open as usize),
        ("requests in flight", requests),
        ("pieces of input", pieces),
        ("parser states", frames),
        ("small buffers", small_bufs as usize),
        ("large buffers", large_bufs.saturating_sub(driver_bufs) as usize),
        ("huge buffers", huge_bufs as usize),
        ("sessions that wait", blocked),
        ("suspended rules", suspended_rules),
        ("states", states),
        ("links that wait", stalled),
    ]
    .iter()
    .filter(|(_, count)| *count > 0)
    .map(|(what, count)| format!("{count} {what}"))
    .collect();
    if left.is_empty() { Ok(()) } else { Err(format!("left behind: {}", left.join(", "))) }
}
