//! A backend: one element of a channel, the connections to it, and the clients that wait for one.
//! Promises: an idle connection is given out again last in, first out; the lists have capacity for all connections of
//! the backend.
//! Refuses: the connections themselves (`conn.rs`).

use std::ops::Range;

use flick_net::Endpoint;

use super::health::BackendHealth;
use crate::config::BackendMode;
use crate::observe::backend_log::{Trouble, WhyDown};
use crate::observe::outlier::HealthState;

/// State of a slot for a backend.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BackendLife {
    /// No backend.
    Free,
    /// An element of its channel's list.
    Listed,
    /// A backend that was removed from the list: it gets no new request, and those in flight finish until that time.
    Draining {
        /// Time at which the requests that are still in flight are ended.
        until_ns: u64,
    },
}

/// Sharing of the connections to a backend among requests.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PoolMode {
    /// All requests share one connection; a request too long for it has a dedicated one.
    Pipelined,
    /// Every exchange has a connection of its own. The shared one is among them, and is connected ahead to find out
    /// whether the backend is up.
    Exclusive,
    /// Every client has connections of its own, which are never idle.
    Relay,
}

/// One backend.
#[derive(Debug)]
pub struct Backend {
    life: BackendLife,
    /// Its address; of a free slot: the last one.
    endpoint: Endpoint,
    /// Index of the channel.
    channel: usize,
    /// Index in the channel's list, the last one that it had.
    element: u64,
    /// Slot of the shared connection.
    shared: u32,
    /// Slots of the dedicated connections.
    dedicated: Range<u32>,
    pool_mode: PoolMode,
    /// The requests that the operator lets it have.
    mode: BackendMode,
    /// Not pipelined: idle connections, the one that was used last behind the others.
    idle: Vec<u32>,
    /// Not pipelined: slots of dedicated connections that are down.
    spare: Vec<u32>,
    /// Waiting clients that are being woken because there is a connection, or a turn, for each of them.
    promised: usize,
    /// Clients that wait for a connection, or for a turn at the shared one.
    pending: u32,
    /// A request has changed the state of its shared connection, which no other one has.
    is_stateful: bool,
    /// Copies that it was sent, as a mirror.
    copies: u64,
    /// It counts as up.
    is_up: bool,
    health: BackendHealth,
    /// Attempts to connect that failed since it was last up.
    failures: u32,
    /// Connections that it has refused in a row.
    refusals: u32,
    why_down: WhyDown,
    /// By trouble: whether this worker has noted it in the log of the service.
    troubles: [bool; Trouble::ALL.len()],
}

impl Backend {
    /// A free slot of a channel whose connections have these slots.
    pub fn new(
        channel: usize,
        shared: u32,
        dedicated: Range<u32>,
        pool_mode: PoolMode,
        nowhere: Endpoint,
    ) -> Self {
        let dedicated_max = dedicated.len();
        let mut spare = Vec::with_capacity(dedicated_max);
        if pool_mode != PoolMode::Pipelined {
            spare.extend(dedicated.clone().rev());
        }
        Self {
            life: BackendLife::Free,
            endpoint: nowhere,
            channel,
            element: 0,
            shared,
            dedicated,
            pool_mode,
            mode: BackendMode::Ready,
            idle: Vec::with_capacity(1 + dedicated_max),
            spare,
            promised: 0,
            pending: 0,
            is_stateful: false,
            copies: 0,
            is_up: false,
            health: BackendHealth::default(),
            failures: 0,
            refusals: 0,
            why_down: WhyDown::default(),
            troubles: Default::default(),
        }
    }

    /// Returns the state of its slot.
    #[inline]
    pub fn life(&self) -> BackendLife {
        self.life
    }

    /// Whether it is an element of its channel's list.
    #[inline]
    pub fn is_listed(&self) -> bool {
        self.life == BackendLife::Listed
    }

    /// Its address.
    #[inline]
    pub fn endpoint(&self) -> &Endpoint {
        &self.endpoint
    }

    /// Index of its channel.
    #[inline]
    pub fn channel(&self) -> usize {
        self.channel
    }

    /// Its index in the channel's list.
    #[inline]
    pub fn element(&self) -> u64 {
        self.element
    }

    /// Slot of the shared connection.
    #[inline]
    pub fn shared(&self) -> u32 {
        self.shared
    }

    /// Slots of the dedicated connections.
    pub fn dedicated(&self) -> Range<u32> {
        self.dedicated.clone()
    }

    /// Slots of all its connections; none of a free slot.
    pub fn conns(&self) -> Range<u32> {
        match self.life {
            BackendLife::Free => 0..0,
            BackendLife::Listed | BackendLife::Draining { .. } => self.shared..self.dedicated.end,
        }
    }

    /// Whether every exchange, or every client, has a connection of its own.
    #[inline]
    pub fn is_exclusive(&self) -> bool {
        self.pool_mode != PoolMode::Pipelined
    }

    /// Whether every client has connections of its own.
    #[inline]
    pub fn is_relay(&self) -> bool {
        self.pool_mode == PoolMode::Relay
    }

    /// Returns its health as this worker knows it.
    #[inline]
    pub fn health(&self) -> &BackendHealth {
        &self.health
    }

    /// Returns its health as this worker knows it, to be changed.
    #[inline]
    pub fn health_mut(&mut self) -> &mut BackendHealth {
        &mut self.health
    }
}

/// Its position in the channel's list.
impl Backend {
    /// The requests that the operator lets it have.
    #[inline]
    pub fn mode(&self) -> BackendMode {
        self.mode
    }

    /// The operator lets it have these requests.
    pub fn set_mode(&mut self, mode: BackendMode) {
        self.mode = mode;
    }

    /// A new backend takes the slot.
    pub fn add(&mut self, endpoint: &Endpoint, element: u64, health: BackendHealth) {
        self.endpoint.clone_from(endpoint);
        (self.life, self.element) = (BackendLife::Listed, element);
        self.set_failures(0);
        (self.is_up, self.is_stateful, self.copies) = (false, false, 0);
        self.why_down = WhyDown::default();
        self.health = health;
    }

    /// It is in the list, with that index. Returns whether it had been removed.
    pub fn relist(&mut self, element: u64) -> bool {
        self.element = element;
        std::mem::replace(&mut self.life, BackendLife::Listed) != BackendLife::Listed
    }

    /// It was removed from the list. Returns whether it was in it.
    pub fn drain(&mut self, until_ns: u64) -> bool {
        std::mem::replace(&mut self.life, BackendLife::Draining { until_ns }) == BackendLife::Listed
    }

    /// It has drained: its slot is free.
    pub fn free(&mut self) {
        self.life = BackendLife::Free;
    }
}

/// Whether it can be reached.
impl Backend {
    /// Whether it counts as up.
    #[inline]
    pub fn is_up(&self) -> bool {
        self.is_up
    }

    /// It counts as up or not from now on. Returns whether it did.
    pub fn set_up(&mut self, on: bool) -> bool {
        std::mem::replace(&mut self.is_up, on)
    }

    /// Attempts to connect that failed since it was last up.
    #[inline]
    pub fn failures(&self) -> u32 {
        self.failures
    }

    /// An attempt to connect has failed.
    pub fn note_connect_failure(&mut self) {
        self.failures = self.failures.saturating_add(1);
    }

    /// It has refused a connection. Returns how many in a row.
    pub fn note_refusal(&mut self) -> u32 {
        self.refusals = self.refusals.saturating_add(1);
        self.refusals
    }

    /// Returns its health for the next generation of the service.
    pub fn health_state(&self) -> HealthState {
        self.health.state(self.failures > 0)
    }

    /// Sets the reason for which it is down, or will be.
    pub fn set_why_down(&mut self, why: WhyDown) {
        self.why_down = why;
    }

    /// Returns the reason for which it is down.
    pub fn take_why_down(&mut self) -> WhyDown {
        std::mem::take(&mut self.why_down)
    }

    /// It has this trouble or not. Returns whether it had.
    pub fn set_trouble(&mut self, trouble: Trouble, on: bool) -> bool {
        std::mem::replace(&mut self.troubles[trouble as usize], on)
    }

    /// It has connected; or, as another generation of the service knows it, has not.
    pub fn set_failures(&mut self, failures: u32) {
        (self.failures, self.refusals) = (failures, 0);
    }
}

/// Its pool of connections.
impl Backend {
    /// The connection that became idle last.
    pub fn pop_idle(&mut self) -> Option<u32> {
        self.idle.pop()
    }

    /// The connection that the next message takes, if there is one: the shared one, or what `pop_idle` would return.
    pub fn next_conn(&self) -> Option<u32> {
        if self.is_exclusive() { self.idle.last().copied() } else { Some(self.shared()) }
    }

    /// A connection is idle.
    pub fn push_idle(&mut self, conn: u32) {
        self.idle.push(conn);
    }

    /// An idle connection has closed.
    pub fn remove_idle(&mut self, conn: u32) {
        self.idle.retain(|idle| *idle != conn);
    }

    /// A slot for a further connection.
    pub fn pop_spare(&mut self) -> Option<u32> {
        self.spare.pop()
    }

    /// A dedicated connection has closed.
    pub fn push_spare(&mut self, conn: u32) {
        if conn != self.shared {
            self.spare.push(conn);
        }
    }

    /// Connections that it could carry exchanges on now.
    pub fn free_count(&self) -> usize {
        self.idle.len() + self.spare.len()
    }

    /// Whether all its connections are in use or idle.
    pub fn has_no_spare(&self) -> bool {
        self.spare.is_empty()
    }

    /// Connections in use; `counts_shared`: the shared one is more than an attempt to find out whether it is up.
    pub fn in_use(&self, counts_shared: bool) -> i64 {
        let open = self.dedicated.len() - self.spare.len() + usize::from(counts_shared);
        open as i64 - self.idle.len() as i64
    }

    /// Promises a waiting client a connection or a turn, if one of `free_count` was not promised yet.
    pub fn promise(&mut self, free_count: usize) -> bool {
        self.promised += 1;
        self.promised <= free_count
    }

    /// A client to which a connection was promised has run.
    pub fn end_promise(&mut self) {
        self.promised = self.promised.saturating_sub(1);
    }

    /// Whether a connection is free that is promised to no client.
    pub fn has_unpromised(&self) -> bool {
        self.free_count() > self.promised
    }

    /// No promise holds any longer.
    pub fn forget_promises(&mut self) {
        self.promised = 0;
    }

    /// A request changes the state of its shared connection.
    pub fn set_stateful(&mut self) {
        self.is_stateful = true;
    }

    /// Whether its shared connection has a state that clients rely on. It stays so after that connection was lost:
    /// clients then repeat what they did.
    pub fn is_stateful(&self) -> bool {
        self.is_stateful
    }

    /// It was sent a copy of a request.
    pub fn note_copy(&mut self) {
        self.copies += 1;
    }

    /// Copies that it was sent.
    pub fn copies(&self) -> u64 {
        self.copies
    }

    /// Clients that wait for a connection, or for a turn at the shared one.
    pub fn pending(&self) -> u32 {
        self.pending
    }

    /// A client waits for a connection or a turn.
    pub fn add_pending(&mut self) {
        self.pending += 1;
    }

    /// A client does not wait any more.
    pub fn remove_pending(&mut self) {
        self.pending -= 1;
    }
}

#[cfg(test)]
mod tests {
    use std::net::{Ipv4Addr, SocketAddr};

    use flick_net::Endpoint;

    use super::{Backend, PoolMode};
    use crate::observe::backend_log::WhyDown;
    use crate::upstream::health::BackendHealth;

    #[test]
    fn new_backend_had_the_refusals_of_the_one_before_it() {
        let endpoint = |port| Endpoint::Tcp(SocketAddr::from((Ipv4Addr::LOCALHOST, port)));
        let mut backend = Backend::new(0, 0, 1..3, PoolMode::Exclusive, endpoint(1));
        backend.add(&endpoint(2), 0, BackendHealth::default());
        (0..3).for_each(|_| backend.note_connect_failure());
        assert_eq!([(); 3].map(|()| backend.note_refusal()), [1, 2, 3]);
        backend.set_why_down(WhyDown::ConnectTimeout);
        backend.free();
        backend.add(&endpoint(3), 0, BackendHealth::default());
        assert_eq!((backend.failures(), backend.note_refusal()), (0, 1));
        assert_eq!(backend.take_why_down(), WhyDown::default());
    }
}
