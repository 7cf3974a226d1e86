//! Turns at a shared connection: while it has enough in flight, the clients that have more to send wait and take turns.
//! Promises: no client waits for a turn at a connection that only it uses; a request of a client with few in flight is
//! sent at once, behind about a millisecond of others'.
//! Not here: what a turn is (`downstream/quantum.rs`), and how much a connection takes (`upstream/load.rs`).

use flick_net::Driver;

use super::Worker;
use crate::limits::{FREE_BYTES, REQUEST_COST_BYTES};
use crate::slab::Key;

impl<D: Driver> Worker<D> {
    /// Cost of a request of a client on a shared connection: its own, and the reply that is expected, whose bytes are
    /// received and sent.
    #[inline]
    pub(super) fn request_cost_bytes(&self, client: Option<Key>) -> u32 {
        let stream = client.and_then(|key| self.downstream.stream(key));
        cost_bytes(stream.map_or(0, |stream| stream.window().reply_bytes()))
    }

    /// A client has sent a request on the shared connection of a backend.
    #[inline]
    pub(super) fn spend_quantum(&mut self, key: Key, backend: u32, cost_bytes: u32) {
        if let Some(stream) = self.downstream.stream_mut(key) {
            let inflight = stream.requests().len();
            stream.quantum_mut().spend(backend, cost_bytes, inflight);
        }
    }

    /// Queues a client that must wait for others before it sends more; `false` if it need not.
    #[inline]
    pub(super) fn awaits_quantum(&mut self, key: Key) -> bool {
        let Some(session) = self.downstream.client(key) else { return false };
        if session.stream().quantum().needed_at().is_none() || session.inbox().is_empty() {
            return false;
        }
        let Some(backend) = self.backend_to_await(key) else { return false };
        self.block(key, Some(backend));
        true
    }

    /// The backend at whose shared connection a client must wait for its turn before it sends more.
    fn backend_to_await(&self, key: Key) -> Option<u32> {
        let stream = self.downstream.stream(key)?;
        let at = stream.quantum().needed_at()?;
        // One that waits for each reply, and whose last one was short, loads no connection. Its estimate may still be
        // that of a new client, and which backend its next request is for is not known.
        let last_cost_bytes = cost_bytes(stream.window().last_bytes());
        if stream.requests().is_empty() && u64::from(last_cost_bytes) <= FREE_BYTES {
            return None;
        }
        let backend = self.upstream.backend(at as usize);
        let shared = self.upstream.conn(backend.shared());
        let is_alone = shared.requests().len() <= stream.requests().len();
        let must_wait = backend.pending() > 0 || shared.quanta() == 0;
        (must_wait && !is_alone && self.upstream.is_usable(at as usize)).then_some(at)
    }

    /// A client that waited at a backend goes on.
    pub(super) fn begin_quantum(&mut self, key: Key, backend: u32) {
        let is_exclusive = self.upstream.backend(backend as usize).is_exclusive();
        match self.downstream.stream_mut(key) {
            Some(stream) if is_exclusive => stream.promise(backend),
            Some(stream) => stream.quantum_mut().begin(),
            None => {}
        }
    }

    /// A client has nothing more to send for now: others may have what is left of its turn.
    pub(super) fn end_quantum(&mut self, key: Key) {
        if let Some(stream) = self.downstream.stream_mut(key)
            && stream.quantum_mut().end()
            && self.downstream.has_blocked()
        {
            self.tasks.free_capacity();
        }
    }
}

/// Cost of a request on a shared connection whose reply has this many bytes.
#[inline]
fn cost_bytes(reply_bytes: u32) -> u32 {
    REQUEST_COST_BYTES + 2 * reply_bytes
}
