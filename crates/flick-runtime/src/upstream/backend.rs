//! Backends and the connections to them (links): one shared by all clients of the worker, and a few that are lent
//! to one exchange at a time.

use flick_buffers::Buf;
use flick_net::{Endpoint, Handle};

use crate::downstream::body::RemainingBody;
use crate::downstream::inbox::Inbox;
use crate::inflight::{RequestId, RequestQueue};
use crate::observe::outlier::HealthState;
use crate::slab::Key;
use crate::upstream::health::BackendHealth;

/// Life of a link.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BackendConnState {
    /// Not connected; for the shared link: until the time to dial again.
    Down,
    /// Dialling.
    Connecting,
    /// Connected.
    Up,
}

/// A large reply under way.
#[derive(Clone, Copy, Debug)]
pub struct Download {
    /// For whom; the front of the link's queue.
    pub request: RequestId,
    /// What is still to come.
    pub body: RemainingBody,
    /// It is the last reply to the request.
    pub last: bool,
    /// It is passed on (or nobody hears it).
    pub is_delivered: bool,
}

/// One connection to a backend.
#[derive(Debug)]
pub struct BackendConn {
    /// Index of the backend.
    pub backend: u32,
    /// Lent to one exchange at a time, or shared.
    pub dedicated: bool,
    /// Counts the connections of this slot.
    pub epoch: u32,
    /// BackendLife.
    pub state: BackendConnState,
    /// The connection, unless down.
    pub conn: Option<Handle>,
    /// Bytes from the backend.
    pub inbox: Inbox,
    /// Requests under way, oldest first.
    pub requests: RequestQueue,
    /// Number of the next request.
    pub next_number: u64,
    /// Where requests are gathered.
    pub fill: Option<Buf>,
    /// Large reply under way.
    pub download: Option<Download>,
    /// A large request is still being sent on it.
    pub uploading: bool,
    /// When it was last given back, if it is lent.
    pub idle_since_ns: u64,
    /// Exchanges that this connection has carried: a backend may close one that has carried some at any time.
    pub exchanges: u32,
    /// It stands in its backend's list of connections that rest.
    pub is_idle: bool,
    /// The backend has said that the reply under way is the last on it.
    pub is_last: bool,
    /// The reply under way makes it a tunnel.
    pub becomes_tunnel: bool,
    /// The session that it is a tunnel for.
    pub tunnel: Option<Key>,
    /// The session whose own it is.
    pub client_of: Option<Key>,
    /// Which element of its channel that session sends to on it, whoever has that number by now.
    pub owned_as: u64,
    /// The next one of that session.
    pub next_of_client: Option<u32>,
    /// Large message under way to that session, and whether it hears it.
    pub relay_body: Option<(RemainingBody, bool)>,
    /// Nothing has come on it, and no rule has run for that.
    pub is_fresh: bool,
    /// Who waited for what comes on it has gone: it is ended at the next chance.
    pub is_abandoned: bool,
    /// The reply under way answers an ask, and is gathered whole.
    pub buffers_reply: bool,
    /// Who holds it up by not reading, and until when that is borne.
    pub stalled: Option<(Key, u64)>,
    /// What it has sent needs a huge buffer, and none was free.
    pub wants_huge: bool,
    /// It stands in the worker's list of connections that were stalled.
    pub is_listed: bool,
    /// The last stall, until a byte has been passed on: who, and until when it is borne.
    pub stall_grace: Option<(Key, u64)>,
    /// When the present stall began.
    pub stalled_since_ns: u64,
    /// When a client was last dropped for holding it up.
    pub dropped_ns: u64,
    /// How many were in short order, up to a bound.
    pub impatience: u32,
    /// Time this connection has spent stalled: deadlines of its requests do not count it.
    pub clock_lag_ns: u64,
    /// Connecting: when to give up. Down: when to dial again.
    pub deadline_ns: u64,
    /// The driver receives for it.
    pub receiving: bool,
    /// It is in the run queue.
    pub queued: bool,
    /// The backend has closed its side.
    pub eof: bool,
}

impl BackendConn {
    /// A link that has not been dialled.
    pub fn new(backend: u32, dedicated: bool) -> Self {
        Self {
            backend,
            dedicated,
            epoch: 0,
            state: BackendConnState::Down,
            conn: None,
            inbox: Inbox::new(),
            requests: RequestQueue::new(),
            next_number: 0,
            fill: None,
            download: None,
            uploading: false,
            idle_since_ns: 0,
            exchanges: 0,
            is_idle: false,
            is_last: false,
            becomes_tunnel: false,
            tunnel: None,
            client_of: None,
            owned_as: 0,
            next_of_client: None,
            relay_body: None,
            is_fresh: false,
            is_abandoned: false,
            buffers_reply: false,
            stalled: None,
            wants_huge: false,
            is_listed: false,
            stall_grace: None,
            stalled_since_ns: 0,
            dropped_ns: 0,
            impatience: 0,
            clock_lag_ns: 0,
            deadline_ns: if dedicated { u64::MAX } else { 0 },
            receiving: false,
            queued: false,
            eof: false,
        }
    }
}

/// What a closed connection leaves to the worker.
#[derive(Debug)]
pub struct Closed {
    /// Its state before.
    pub was: BackendConnState,
    /// The session that it was a tunnel for.
    pub tunnel: Option<Key>,
    /// The session that it belonged to.
    pub client_of: Option<Key>,
    /// The reply that was being streamed.
    pub download: Option<Download>,
    /// The message that was being relayed, and whether it was delivered.
    pub relay_body: Option<(RemainingBody, bool)>,
}

impl BackendConn {
    /// Takes note that the connection is gone. The caller clears its inbox and settles what is returned; a shared
    /// connection gets its next connect time from the worker.
    pub fn close(&mut self) -> Closed {
        let was = std::mem::replace(&mut self.state, BackendConnState::Down);
        self.conn = None;
        self.epoch = self.epoch.wrapping_add(1);
        self.uploading = false;
        self.becomes_tunnel = false;
        self.deadline_ns = u64::MAX;
        self.fill = None;
        self.stall_grace = None;
        Closed {
            was,
            tunnel: self.tunnel.take(),
            client_of: self.client_of.take(),
            download: self.download.take(),
            relay_body: self.relay_body.take(),
        }
    }
}

/// Slots of all backend connections of a worker.
#[derive(Debug)]
pub struct BackendConns(pub Vec<BackendConn>);

impl std::ops::Index<u32> for BackendConns {
    type Output = BackendConn;

    fn index(&self, slot: u32) -> &BackendConn {
        &self.0[slot as usize]
    }
}

impl std::ops::IndexMut<u32> for BackendConns {
    fn index_mut(&mut self, slot: u32) -> &mut BackendConn {
        &mut self.0[slot as usize]
    }
}

/// What a slot for a backend holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BackendLife {
    /// Nobody.
    Free,
    /// An element of its channel's list.
    SessionInfo,
    /// One that has left the list: it gets no new request, and what is under way on it finishes, until that time.
    Leaving {
        /// When what is left is ended.
        until_ns: u64,
    },
}

impl Backend {
    /// What the workers of the next generation and the admin endpoint see of its health.
    pub fn health_state(&self) -> HealthState {
        HealthState {
            until_ns: self.health.until_ns,
            back_ns: self.health.back_ns.unwrap_or_default(),
            ejections: self.health.ejections,
            is_ejected: self.health.is_ejected,
            fails_checks: self.health.fails_checks,
            is_down: self.failures > 0,
        }
    }

    /// All its connections; none of a free slot.
    pub fn backend_conns(&self) -> std::ops::Range<u32> {
        match self.life {
            BackendLife::Free => 0..0,
            BackendLife::SessionInfo | BackendLife::Leaving { .. } => self.shared..self.dedicated.end,
        }
    }
}

/// Room for an element of a dialled channel, and who has it.
#[derive(Debug)]
pub struct Backend {
    /// What it is.
    pub life: BackendLife,
    /// Where it is; of a free slot: where its last one was.
    pub endpoint: Endpoint,
    /// Index of the channel.
    pub channel: usize,
    /// Index in the channel's list, the last one that it had.
    pub element: u64,
    /// Slot of the shared link.
    pub shared: u32,
    /// Slots of its lent links.
    pub dedicated: std::ops::Range<u32>,
    /// Every exchange has a connection for itself; the shared link is one of them, dialled to find out how the backend
    /// is.
    pub exclusive: bool,
    /// Each session has connections of its own to it; they come and go as those of an exclusive protocol, but never rest.
    pub is_relay: bool,
    /// Exclusive: connections that rest, the one that was used last behind the others.
    pub idle: Vec<u32>,
    /// Exclusive: slots of lent links without a connection.
    pub spare: Vec<u32>,
    /// Waiting sessions that are being woken because it has a connection for each of them.
    pub promised: usize,
    /// Sessions in line for a connection to it.
    pub pending: u32,
    /// It counts as up.
    pub is_up: bool,
    /// Whether it gets requests.
    pub health: BackendHealth,
    /// Dials that failed since it was last up.
    pub failures: u32,
}
