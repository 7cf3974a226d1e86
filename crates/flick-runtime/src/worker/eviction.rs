//! Eviction: clients that hold a backend connection without using it make room for clients that wait for one.
//! Promises: no client is evicted while connections are free or no client waits; the client that has been idle on its
//! connection for the longest time goes first; a request that can be served within the queue timeout is not rejected
//! because other clients do not read, or send slowly.
//! Not here: slow clients of a shared connection (`drop_slow_client`), the connection limits of clients
//! (`accepting.rs`).

use flick_net::Driver;

use super::Worker;
use crate::limits::{EVICTIONS_MAX, UPLOAD_BYTES_PER_S_MIN, UPLOAD_DELAY_MS};
use crate::slab::Key;

/// Nanoseconds of a millisecond.
const MS: u64 = 1_000_000;

impl<D: Driver> Worker<D> {
    /// Evicts holders of connections to backends that clients wait for. Returns when the next one may be evicted.
    pub(super) fn evict_holders(&mut self, now_ns: u64) -> Option<u64> {
        let mut next_ns: Option<u64> = None;
        for backend in 0..self.upstream.backends().len() {
            let pending = self.upstream.backend(backend).pending();
            if pending == 0 {
                continue;
            }
            let mut holder = self.longest_holder(backend);
            for _ in 0..pending.min(EVICTIONS_MAX) {
                let Some((_, client)) = holder.filter(|(evict_ns, _)| *evict_ns <= now_ns) else { break };
                self.observe.counters().clients_evicted.add(1);
                self.end_session(client, true);
                holder = self.longest_holder(backend);
            }
            next_ns = next_ns.into_iter().chain(holder.map(|(evict_ns, _)| evict_ns)).min();
        }
        next_ns
    }

    /// The client that has held a connection of a backend idle for the longest time, and when it may be evicted.
    pub(super) fn longest_holder(&self, backend: usize) -> Option<(u64, Key)> {
        let conns = self.upstream.backend(backend).dedicated();
        conns.filter_map(|slot| self.holder(slot)).min_by_key(|(evict_ns, _)| *evict_ns)
    }

    /// The client that holds a connection without using it, and when it may be evicted: it takes nothing of its reply,
    /// or sends the body of its request slowly.
    fn holder(&self, slot: u32) -> Option<(u64, Key)> {
        let conn = self.upstream.conn(slot);
        if let Some((client, since_ns)) = conn.stall().stalled_by() {
            return Some((since_ns + self.ctx.setup().timeouts.client_write.as_nanos() as u64, client));
        }
        let request = conn.requests().front().filter(|_| conn.is_uploading())?;
        let entry = self.inflight.get(request);
        let client = entry.session()?;
        let paid_ms = self.downstream.client(client)?.bytes_in() * 1_000 / UPLOAD_BYTES_PER_S_MIN;
        Some((entry.taken_ns() + UPLOAD_DELAY_MS.max(paid_ms) * MS, client))
    }
}
