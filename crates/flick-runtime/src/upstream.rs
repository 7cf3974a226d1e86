//! Backends: the connections to them and their health.

pub(crate) mod backend;
pub(crate) mod conn;
pub(crate) mod health;
pub(crate) mod load;
pub(crate) mod stall;

use std::net::{Ipv4Addr, SocketAddr, SocketAddrV4};
use std::sync::Arc;

use flick_buffers::Buf;
use flick_net::Endpoint;

use self::backend::{Backend, PoolMode};
use self::conn::{BackendConn, BackendConnState, Sharing};
use self::health::BackendHealth;
use crate::backend_set::BackendSet;
use crate::backend_set::load_balancer::Standing;
use crate::config::BackendMode;
use crate::limits::DEDICATED_CONN_IDLE_MS;
use crate::setup::Setup;
use crate::slab::Key;

/// Longest time for which a connection is idle before it is closed, in nanoseconds.
const IDLE_MAX_NS: u64 = DEDICATED_CONN_IDLE_MS * 1_000_000;

/// Component of the worker. Backends and the connections to them.
pub(crate) struct Upstream {
    conns: Vec<BackendConn>,
    backends: Vec<Backend>,
    /// The lists of backends of the present iteration.
    backend_set: Arc<BackendSet>,
    /// Removed backends with requests in flight.
    draining: u32,
    /// Connections that a client stalls.
    stalled_count: u32,
    /// Connections that were stalled since the last look; some may have resumed.
    stalled: Vec<u32>,
    /// Connections with requests in their batch buffer, which are sent at the end of the iteration.
    filled: Vec<u32>,
    /// Backend of which a connection was kept for the client whose task runs.
    kept_for_task: Option<u32>,
    /// State of the generator of reconnect jitter.
    random: u64,
}

impl Upstream {
    /// Slots for the backends and connections that `setup` allows. None is connected yet.
    pub(crate) fn new(setup: &Setup, seed: u64) -> Self {
        let (conns, backends) = backend_conns_of(setup);
        Self {
            stalled_count: 0,
            kept_for_task: None,
            stalled: Vec::with_capacity(conns.len()),
            filled: Vec::with_capacity(conns.len()),
            random: seed | 1,
            conns,
            backends,
            backend_set: setup.backend_sets.latest(),
            draining: 0,
        }
    }

    /// The connection of a slot.
    #[inline]
    pub(crate) fn conn(&self, slot: u32) -> &BackendConn {
        &self.conns[slot as usize]
    }

    /// The connection of a slot.
    #[inline]
    pub(crate) fn conn_mut(&mut self, slot: u32) -> &mut BackendConn {
        &mut self.conns[slot as usize]
    }

    /// Slots for connections.
    pub(crate) fn conns_count(&self) -> usize {
        self.conns.len()
    }

    /// Slots with a connection that the driver has.
    pub(crate) fn open_count(&self) -> usize {
        self.conns.iter().filter(|conn| conn.handle().is_some()).count()
    }

    /// The backend of a slot.
    #[inline]
    pub(crate) fn backend(&self, at: usize) -> &Backend {
        &self.backends[at]
    }

    /// The backend of a slot.
    #[inline]
    pub(crate) fn backend_mut(&mut self, at: usize) -> &mut Backend {
        &mut self.backends[at]
    }

    /// The backend of a connection.
    #[inline]
    pub(crate) fn backend_of(&self, conn: u32) -> &Backend {
        &self.backends[self.conn(conn).backend() as usize]
    }

    /// All slots for backends.
    #[inline]
    pub(crate) fn backends(&self) -> &[Backend] {
        &self.backends
    }

    /// The listed backends of a channel: how many have this said of their health, and how many there are.
    pub(crate) fn count_listed(
        &self,
        channel: usize,
        is_it: impl Fn(&BackendHealth) -> bool,
    ) -> (usize, usize) {
        let listed = |backend: &&Backend| backend.channel() == channel && backend.is_listed();
        let listed = self.backends.iter().filter(listed);
        listed.fold((0, 0), |(some, all), backend| (some + usize::from(is_it(backend.health())), all + 1))
    }

    /// The lists of backends of the present iteration.
    #[inline]
    pub(crate) fn backend_set(&self) -> &Arc<BackendSet> {
        &self.backend_set
    }

    /// Replaces the lists of backends.
    pub(crate) fn set_backend_set(&mut self, backend_set: Arc<BackendSet>) {
        self.backend_set = backend_set;
    }
}

/// Removed backends.
impl Upstream {
    /// Whether a removed backend has requests in flight.
    #[inline]
    pub(crate) fn has_draining(&self) -> bool {
        self.draining > 0
    }

    /// A backend was removed from its list: what is in flight finishes until that time. Returns whether it was listed.
    pub(crate) fn drain(&mut self, at: usize, until_ns: u64) -> bool {
        let was_listed = self.backends[at].drain(until_ns);
        self.draining += u32::from(was_listed);
        was_listed
    }

    /// A backend is in its list with that index. Returns whether it had been removed.
    pub(crate) fn relist(&mut self, at: usize, element: u64) -> bool {
        let was_draining = self.backends[at].relist(element);
        self.draining -= u32::from(was_draining);
        was_draining
    }

    /// A removed backend has drained.
    pub(crate) fn free(&mut self, at: usize) {
        self.backends[at].free();
        self.draining -= 1;
    }
}

/// Stalls.
impl Upstream {
    /// Connections that a client stalls.
    pub(crate) fn stalled_count(&self) -> u32 {
        self.stalled_count
    }

    /// A client that does not read stalls a connection. Returns when that client is dropped.
    pub(crate) fn stall(&mut self, conn: u32, client: Key, now_ns: u64, timeout_ns: u64) -> u64 {
        self.stalled_count += 1;
        let until_ns = self.conns[conn as usize].stall_mut().begin(client, now_ns, timeout_ns);
        self.list_stalled(conn);
        until_ns
    }

    /// A connection waits for a huge buffer.
    pub(crate) fn wait_for_huge(&mut self, conn: u32) {
        self.conns[conn as usize].stall_mut().wait_for_huge();
        self.list_stalled(conn);
    }

    fn list_stalled(&mut self, conn: u32) {
        if !self.conns[conn as usize].stall_mut().set_listed(true) {
            self.stalled.push(conn);
        }
    }

    /// A connection is read again.
    #[inline]
    pub(crate) fn resume(&mut self, conn: u32, now_ns: u64) {
        self.stalled_count -= u32::from(self.conns[conn as usize].stall_mut().end(now_ns));
    }

    /// Takes a stalled connection out of the list.
    pub(crate) fn next_stalled(&mut self) -> Option<u32> {
        while let Some(conn) = self.stalled.pop() {
            self.conns[conn as usize].stall_mut().set_listed(false);
            if self.conns[conn as usize].is_held() {
                return Some(conn);
            }
        }
        None
    }
}

/// Batch buffers.
impl Upstream {
    /// The batch buffer of a connection, which is given back at the end of the iteration.
    #[inline]
    pub(crate) fn batch_mut(&mut self, conn: u32) -> &mut Option<Buf> {
        let batch = self.conns[conn as usize].batch_mut();
        if batch.is_none() {
            self.filled.push(conn);
        }
        batch
    }

    /// The batch buffer of a connection.
    #[inline]
    pub(crate) fn batch(&self, conn: u32) -> Option<&Buf> {
        self.conns[conn as usize].batch()
    }

    /// Sets the batch buffer of a connection.
    #[inline]
    pub(crate) fn set_batch(&mut self, conn: u32, batch: Option<Buf>) {
        if batch.is_some() {
            *self.batch_mut(conn) = batch;
        }
    }

    /// Gives all batch buffers back.
    #[inline]
    pub(crate) fn release_batches(&mut self) {
        for conn in self.filled.drain(..) {
            *self.conns[conn as usize].batch_mut() = None;
        }
    }
}

/// Choice of the backend and of the connection that a request may use.
impl Upstream {
    /// Whether requests for a backend are sent: it is up, or being connected for the first time.
    #[inline]
    pub(crate) fn is_usable(&self, at: usize) -> bool {
        let backend = &self.backends[at];
        if !backend.is_listed() || backend.health().refuses() {
            return false;
        }
        if backend.is_exclusive() {
            return backend.is_relay() || backend.failures() == 0;
        }
        let conn = self.conn(backend.shared());
        match conn.state() {
            BackendConnState::Down { .. } => false,
            BackendConnState::Connecting { .. } => backend.failures() == 0,
            _ => conn.handle().is_some(),
        }
    }

    /// Whether a rule that asks finds it alive.
    #[inline]
    pub(crate) fn is_alive(&self, at: usize) -> bool {
        self.standing(at) != Standing::Down && !self.backends[at].health().is_out()
    }

    /// Whether picks without a key may choose it.
    #[inline]
    pub(crate) fn standing(&self, at: usize) -> Standing {
        let (backend, health) = (&self.backends[at], self.backends[at].health());
        if backend.mode() != BackendMode::Ready || !self.is_usable(at) {
            Standing::Down
        } else if health.is_out() || health.is_on_trial() && self.load(at) > 0 {
            Standing::LastResort
        } else {
            Standing::Healthy
        }
    }

    /// Requests in flight on a backend, about: where exchanges have connections of their own, connections in use.
    #[inline]
    pub(crate) fn load(&self, at: usize) -> i64 {
        let backend = &self.backends[at];
        let shared = self.conn(backend.shared());
        if !backend.is_exclusive() {
            return i64::from(shared.requests().len());
        }
        // One that is connected to find out whether the backend is up carries nothing yet.
        backend.in_use(shared.is_connected() || !shared.requests().is_empty())
    }

    /// The idle connection that was used last: it carries an exchange from now on. One that its backend has ended, or
    /// sends on, is left to its task.
    pub(crate) fn take_idle(&mut self, at: usize) -> Option<u32> {
        while let Some(slot) = self.backends[at].pop_idle() {
            if self.conn(slot).is_reusable() {
                self.conn_mut(slot).begin_exchange();
                return Some(slot);
            }
        }
        None
    }

    /// An idle connection is given to the next exchange.
    pub(crate) fn keep_idle(&mut self, conn: u32) {
        let at = self.conn(conn).backend() as usize;
        self.backends[at].push_idle(conn);
    }

    /// Returns the next deadline of a connection; `request_ns`: that of the request at the front of its queue.
    #[inline]
    pub(crate) fn conn_due_ns(&self, conn: u32, request_ns: Option<u64>) -> Option<u64> {
        let idle_max_ns = self.backend_of(conn).is_exclusive().then_some(IDLE_MAX_NS);
        self.conn(conn).due_ns(idle_max_ns, request_ns)
    }

    /// Returns the time at which a connection that becomes idle now is closed.
    pub(crate) fn idle_until_ns(now_ns: u64) -> u64 {
        now_ns + IDLE_MAX_NS
    }

    /// The task of a client begins for which a connection to this backend was kept, or ends.
    pub(crate) fn keep_for_task(&mut self, backend: Option<u32>) {
        self.kept_for_task = backend;
    }

    /// Whether the task that runs may take a free connection of a backend: others may have been promised all.
    pub(crate) fn task_may_take(&self, backend: u32) -> bool {
        let kept = self.kept_for_task == Some(backend);
        let backend = self.backend(backend as usize);
        if kept { backend.free_count() > 0 } else { backend.has_unpromised() }
    }

    /// Every waiting client may be promised a connection again.
    pub(crate) fn forget_promises(&mut self) {
        self.backends.iter_mut().for_each(Backend::forget_promises);
    }

    /// A random number up to `most`, which keeps workers from connecting at the same time.
    pub(crate) fn jitter(&mut self, most: u64) -> u64 {
        self.random ^= self.random << 13;
        self.random ^= self.random >> 7;
        self.random ^= self.random << 17;
        self.random % (most + 1)
    }
}

/// The connections to all backends, none of them connected yet.
fn backend_conns_of(setup: &Setup) -> (Vec<BackendConn>, Vec<Backend>) {
    let mut backend_conns = Vec::new();
    let mut backends = Vec::new();
    for (index, channel) in setup.slots.iter().copied().enumerate() {
        let index = index as u32;
        let shared = backend_conns.len() as u32;
        let mode = if setup.is_relay {
            PoolMode::Relay
        } else if setup.protocol_of(channel).exclusive {
            PoolMode::Exclusive
        } else {
            PoolMode::Pipelined
        };
        let sharing = if mode == PoolMode::Pipelined { Sharing::Shared } else { Sharing::Dedicated };
        let dedicated_max = setup.max_dedicated_connections(channel);
        backend_conns.push(BackendConn::new(index, sharing));
        backend_conns.extend((0..dedicated_max).map(|_| BackendConn::new(index, Sharing::Dedicated)));
        let dedicated = shared + 1..shared + 1 + dedicated_max;
        backends.push(Backend::new(channel, shared, dedicated, mode, NOWHERE));
    }
    (backend_conns, backends)
}

/// The address of a slot that never had a backend.
const NOWHERE: Endpoint = Endpoint::Tcp(SocketAddr::V4(SocketAddrV4::new(Ipv4Addr::UNSPECIFIED, 0)));
