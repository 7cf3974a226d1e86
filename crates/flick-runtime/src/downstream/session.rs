//! A session: one client connection and the instance of the task graph that serves it.

use flick_buffers::Buf;
use flick_net::Handle;

use crate::downstream::body::RemainingBody;
use crate::downstream::inbox::Inbox;
use crate::inflight::RequestQueue;
use crate::rules::locals::StateId;

/// Where a session is in its life.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Phase {
    /// Requests are read and answered.
    Open,
    /// No further request is taken; it ends when the last reply is out.
    Closing,
    /// Our side is closed; whatever the client still sends is dropped, and what we still have for it goes out.
    Lingering,
}

/// What keeps a session from taking its next request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wait {
    /// Nothing.
    Nothing,
    /// Replies to requests under way.
    Replies,
    /// Its own output to drain: the client does not read.
    Client,
    /// Something that many wait for: room in the ledger, or on a backend connection.
    Shared,
}

/// The body of a large message under way.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Upload {
    /// None.
    None,
    /// Streams to that connection.
    To {
        /// Slot of the lent connection.
        backend_conn: u32,
        /// Its generation, so that a connection used anew is not mistaken for it.
        epoch: u32,
        /// What is still to come.
        body: RemainingBody,
    },
    /// Nobody wants it any more.
    Discard {
        /// What is still to come.
        body: RemainingBody,
        /// Bytes of it that are borne; beyond, the connection is closed.
        bytes_max: u64,
    },
}

/// The other end of a session that has become a tunnel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Tunnel {
    /// Slot of the connection.
    pub backend_conn: u32,
    /// Its generation.
    pub epoch: u32,
    /// The client's end has been passed on.
    pub client_is_over: bool,
    /// The backend's end has been passed on.
    pub backend_is_over: bool,
}

/// One session.
#[derive(Debug)]
pub struct Session {
    /// The client connection.
    pub conn: Handle,
    /// Index of the channel it was accepted on.
    pub channel: usize,
    /// Its own state.
    pub state: StateId,
    /// Bytes from the client.
    pub inbox: Inbox,
    /// Requests under way, oldest first.
    pub requests: RequestQueue,
    /// Where short replies are gathered.
    pub fill: Option<Buf>,
    /// Bytes of replies that wait for earlier ones.
    pub held_bytes: u64,
    /// Body under way.
    pub upload: Upload,
    /// Raw bytes in both directions.
    pub tunnel: Option<Tunnel>,
    /// Its own backend connections, if it has any: the first of a row.
    pub relay_conns: Option<u32>,
    /// Which of them is in the middle of a message for the client.
    pub sender: Option<u32>,
    /// Nothing has come on it, and no rule has run for that.
    pub is_fresh: bool,
    /// That the client sends no more has been passed on.
    pub client_is_over: bool,
    /// While it waits for something shared: the backend of which it wants a connection, if that is it.
    pub wants: Option<u32>,
    /// It has waited in line for as long as it may: what there is still no room for is answered *busy*.
    pub is_late: bool,
    /// Next request only when all replies are out: a large message is under way on another connection.
    pub barrier: bool,
    /// The request under way is its last: it ends with the reply.
    pub is_last: bool,
    /// A backend connection that its last message found full: nothing more until it drains.
    pub full_conn: Option<u32>,
    /// It does not end in good order: its client broke off.
    pub is_broken: bool,
    /// A reply to it has broken off: it is reset when what came has gone out.
    pub resets_when_sent: bool,
    /// A handler has been told that it ends.
    pub is_notified: bool,
    /// BackendLife.
    pub phase: Phase,
    /// What it waits for.
    pub wait: Wait,
    /// Slices that its task has used up one behind the other, with more to do.
    pub slices: u32,
    /// The client has closed its side.
    pub eof: bool,
    /// The driver receives for it.
    pub receiving: bool,
    /// It goes to the worker that takes our place, as soon as its replies are out: nothing more is received for it here.
    pub is_migrating: bool,
    /// It is in the run queue.
    pub queued: bool,
    /// When it came.
    pub begun_ns: u64,
    /// What it has sent.
    pub bytes_in: u64,
    /// What was passed on to it.
    pub bytes_out: u64,
    /// When it last did something.
    pub active_ns: u64,
    /// While it lingers: bytes of output that were left when last looked at.
    pub unsent_bytes: usize,
    /// While it lingers: when to give up, unless the client takes some of them.
    pub give_up_ns: u64,
}

impl Session {
    /// A session as accepted.
    pub fn new(conn: Handle, channel: usize, state: StateId, now_ns: u64) -> Self {
        Self {
            conn,
            channel,
            state,
            inbox: Inbox::new(),
            requests: RequestQueue::new(),
            fill: None,
            held_bytes: 0,
            upload: Upload::None,
            tunnel: None,
            wants: None,
            relay_conns: None,
            sender: None,
            is_fresh: true,
            client_is_over: false,
            is_late: false,
            barrier: false,
            is_last: false,
            full_conn: None,
            is_broken: false,
            resets_when_sent: false,
            is_notified: false,
            phase: Phase::Open,
            wait: Wait::Nothing,
            slices: 0,
            eof: false,
            receiving: false,
            is_migrating: false,
            queued: false,
            begun_ns: now_ns,
            bytes_in: 0,
            bytes_out: 0,
            active_ns: now_ns,
            unsent_bytes: 0,
            give_up_ns: 0,
        }
    }
}
