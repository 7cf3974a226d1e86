//! Eviction: disconnects clients that hold what others wait for without using it: backend connections, buffers, and
//! descriptors where those are few.
//! Promises: no client is evicted while connections are free or no client waits, nor while buffers are free; clients of
//! the address that holds most go first, of them the one that has been idle on its connection for the longest time, or
//! that holds about most of the buffers, never the one that asks next; a request that can be served within the queue
//! timeout is not rejected because other clients do not read, or send slowly.
//! Not here: slow clients of a shared connection (`drop_slow_client`), the connection limits of clients
//! (`accepting.rs`).

use flick_buffers::BufClass;
use flick_net::{Driver, Handle};

use super::Worker;
use crate::downstream::holders::Holding;
use crate::limits::{
    EVICTIONS_MAX, IDLE_EVICTION_MS, IDLE_EVICTIONS_SHARE, RELIEF_HELD_SHARE, RELIEF_SHARE, RELIEF_TICK_NS,
    SILENT_EVICTION_MS, UPLOAD_BYTES_PER_S_MIN, UPLOAD_DELAY_MS,
};
use crate::shared::connection_limits::{Network, network_of};
use crate::slab::Key;

/// Nanoseconds of a millisecond.
const MS: u64 = 1_000_000;

impl<D: Driver> Worker<D> {
    /// Evicts holders of connections to backends that clients wait for. Returns when the next one may be evicted.
    pub(super) fn evict_holders(&mut self, now_ns: u64) -> Option<u64> {
        let backends = 0..self.upstream.backends().len();
        backends.filter_map(|backend| self.evict_holders_of(backend, now_ns)).min()
    }

    /// The same for one backend.
    fn evict_holders_of(&mut self, backend: usize, now_ns: u64) -> Option<u64> {
        let mut left = self.upstream.backend(backend).pending().min(EVICTIONS_MAX);
        // At a pipelined one they wait for turns, which no client holds.
        if left == 0 || !self.upstream.backend(backend).is_exclusive() {
            return None;
        }
        let mut holders = self.downstream.take_holders();
        for slot in self.upstream.backend(backend).dedicated() {
            let Some((evict_ns, client)) = self.holder(slot) else { continue };
            let network = self.network_of_client(client);
            holders.add(Holding { client, network, amount: 1, rank: evict_ns });
        }
        // Clients of other addresses than the one that holds most get the time once more.
        let others_delay_ns = self.ctx.setup().timeouts.client_write.as_nanos() as u64;
        let (mut next_ns, mut most) = (None, None);
        for (total, holding) in holders.ordered() {
            let is_first = total == *most.get_or_insert(total);
            let evict_ns = holding.rank + if is_first { 0 } else { others_delay_ns };
            if evict_ns <= now_ns && left > 0 {
                left -= 1;
                self.evict(holding.client);
            } else {
                let again_ns = evict_ns.max(now_ns + RELIEF_TICK_NS);
                next_ns = Some(next_ns.map_or(again_ns, |next_ns: u64| next_ns.min(again_ns)));
            }
        }
        self.downstream.return_holders(holders);
        next_ns
    }

    /// Evicts the clients that hold most of the buffers while few are free: with replies that they do not read, or that
    /// wait for an earlier one.
    pub(super) fn relieve_buffers(&mut self) {
        let now_ns = self.io.now_ns();
        if !self.needs_relief() || !self.downstream.may_relieve(now_ns) {
            return;
        }
        let (mut holders, mut held) = (self.downstream.take_holders(), 0);
        for slot in 0..self.downstream.slots_used() {
            let Some(client) = self.downstream.key_at(slot) else { continue };
            let Some((amount, since_ns)) = self.buffers_held_for(client, now_ns) else { continue };
            held += amount;
            let network = self.network_of_client(client);
            holders.add(Holding { client, network, amount, rank: buffer_rank(amount, since_ns) });
        }
        // Otherwise the buffers are in use for something else, and are soon free again.
        let is_worth_it = held >= self.io.pool().capacity_bytes() / RELIEF_HELD_SHARE;
        let mut left = EVICTIONS_MAX;
        for (_, holding) in holders.ordered().filter(|_| is_worth_it) {
            if left == 0 || !self.needs_relief() {
                break;
            }
            left -= 1;
            self.evict(holding.client);
        }
        self.downstream.return_holders(holders);
        if left == EVICTIONS_MAX {
            // The buffers are not with clients.
            self.downstream.relieve_again_at(now_ns + RELIEF_TICK_NS);
            self.note_due(now_ns + RELIEF_TICK_NS);
        }
    }

    /// Evicts clients that are idle while all slots are in use, where descriptors are few: a share of them, so that
    /// others come in without another pass. Requests need no descriptor that a client has.
    /// Source: nginx's `ngx_drain_connections`.
    pub(super) fn evict_idle(&mut self) {
        let limits = &self.ctx.setup().limits;
        if !limits.few_descriptors || !self.ctx.shared().sessions_full(limits.max_connections) {
            return;
        }
        let now_ns = self.io.now_ns();
        let (mut holders, mut count) = (self.downstream.take_holders(), 0);
        for slot in 0..self.downstream.slots_used() {
            let Some(client) = self.downstream.key_at(slot) else { continue };
            if let Some(rank) = self.idle_since(client, now_ns) {
                count += 1;
                let network = self.network_of_client(client);
                holders.add(Holding { client, network, amount: 1, rank });
            }
        }
        let most = (count / IDLE_EVICTIONS_SHARE).clamp(1, EVICTIONS_MAX as usize);
        for (_, holding) in holders.ordered().take(most) {
            self.evict(holding.client);
        }
        self.downstream.return_holders(holders);
    }

    /// The time since which a client has been idle, if that is long enough for its eviction.
    fn idle_since(&self, client: Key, now_ns: u64) -> Option<u64> {
        let session = self.downstream.client(client)?;
        let stream = session.stream();
        let is_idle = session.takes_requests()
            && stream.requests().is_empty()
            && session.inbox().is_at_boundary()
            && !stream.has_upload()
            && !stream.is_waiting()
            && !session.is_queued()
            && stream.tunnel().is_none()
            && !self.ctx.setup().is_relay
            && !self.rules.suspended().has_any_of(client)
            && self.io.driver().backlog_bytes(session.handle()) == 0;
        let idle_ns = session.idle_ns(now_ns);
        let least_ms = if session.bytes_in() == 0 { SILENT_EVICTION_MS } else { IDLE_EVICTION_MS };
        (is_idle && idle_ns >= least_ms * MS).then(|| now_ns - idle_ns)
    }

    /// Whether so few buffers are free that others may soon find none. A message for a huge buffer takes many of the
    /// others for a moment.
    fn needs_relief(&self) -> bool {
        (self.buffers_are_few(RELIEF_SHARE) || self.io.pieces().are_few(RELIEF_SHARE))
            && self.io.pool().capacity_count(BufClass::Huge) == 0
    }

    /// Bytes of the buffers in which replies for a client are, also those that its dedicated connection does not pass
    /// on while the client does not read: the rest of a reply keeps a whole buffer from others, however short it is.
    /// And since when the client has taken nothing, or asked for nothing where that is not known.
    fn buffers_held_for(&self, client: Key, now_ns: u64) -> Option<(u64, u64)> {
        let session = self.downstream.client(client)?;
        let pinned_of = |handle: Handle| self.io.driver().pinned_bytes(handle);
        let mut amount = pinned_of(session.handle()) + session.stream().held_bytes();
        let mut since_ns = now_ns - session.idle_ns(now_ns);
        let request = session.stream().requests().front();
        let conn = request.and_then(|request| self.inflight.get(request).dedicated_conn());
        let conn =
            conn.map(|conn| self.upstream.conn(conn)).filter(|conn| conn.requests().front() == request);
        if let Some(conn) = conn {
            since_ns = now_ns;
            if let Some((_, stalled_ns)) = conn.stall().stalled_by() {
                since_ns = stalled_ns;
                amount += conn.inbox().pinned_bytes(self.io.pieces()) + conn.handle().map_or(0, pinned_of);
            }
        }
        (amount > 0).then_some((amount, since_ns))
    }

    fn network_of_client(&self, client: Key) -> Option<Network> {
        network_of(self.io.peer(self.downstream.client(client)?.handle()))
    }

    fn evict(&mut self, client: Key) {
        self.observe.counters().clients_evicted.add(1);
        if let Some(session) = self.downstream.client(client) {
            // One that lingers would keep its buffers.
            self.io.driver_mut().abort(session.handle());
        }
        self.end_session(client, false);
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

/// The order in which clients of one address are evicted for their buffers: those that hold about most, within a power
/// of two, first; of them the one that has taken nothing for the longest time.
fn buffer_rank(amount: u64, since_ns: u64) -> u64 {
    const TIME_BITS: u32 = 56;
    u64::from(amount.leading_zeros()) << TIME_BITS | since_ns & ((1 << TIME_BITS) - 1)
}
