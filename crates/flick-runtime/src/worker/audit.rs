//! Counts what a worker holds at one moment, for tests that nothing leaks.

use flick_buffers::BufClass;
use flick_net::Driver;

use super::Worker;

/// Counts of what a worker holds. When nothing is in flight, all are zero except `backend_conns` and one large buffer
/// that the driver receives into.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct WorkerAudit {
    /// Sessions; of a merge: connections of the present job.
    pub sessions: usize,
    /// Entries of the in-flight table.
    pub requests: usize,
    /// Pieces of input or of replies that wait.
    pub pieces: usize,
    /// Parser states of unfinished messages.
    pub frames: usize,
    /// Small buffers in use.
    pub small_bufs: u32,
    /// Large buffers in use.
    pub large_bufs: u32,
    /// Huge buffers in use.
    pub huge_bufs: u32,
    /// Sessions that wait for shared capacity, and clients that wait for a session slot.
    pub blocked: usize,
    /// Suspended rules.
    pub suspended_rules: usize,
    /// States of sessions and of activations that have one of their own.
    pub states: usize,
    /// Backend connections that a client stalls.
    pub stalled: usize,
    /// Backend connections that are open or connecting: these stay.
    pub backend_conns: usize,
}

impl<D: Driver> Worker<D> {
    /// Counts what is held.
    ///
    /// Cost: walks the table of pieces; not for the path of a message.
    pub fn audit(&self) -> WorkerAudit {
        WorkerAudit {
            sessions: self.downstream.len()
                + self.merging.as_ref().map_or(0, |merging| merging.conns_count()),
            requests: self.inflight.len(),
            pieces: self.io.pieces().len(),
            frames: self.io.frames().len(),
            small_bufs: self.io.pool().live_count(BufClass::Small),
            large_bufs: self.io.pool().live_count(BufClass::Large),
            huge_bufs: self.io.pool().live_count(BufClass::Huge),
            blocked: self.downstream.blocked_len() + self.listeners.waiting_len(),
            suspended_rules: self.rules.suspended().len(),
            states: self.rules.locals().len(),
            stalled: self.upstream.stalled_count() as usize,
            backend_conns: self.upstream.open_count(),
        }
    }
}
