//! A stream: one request-reply dialogue on a client connection.
//! Promises: states are variants of enums, so that an impossible combination cannot be written; no allocation.
//! Refuses: bytes and the life of the connection, which are the connection's (`client.rs`).

use crate::downstream::body::RemainingBody;
use crate::downstream::inbox::Completeness;
use crate::downstream::quantum::ConnQuantum;
use crate::downstream::window::Window;
use crate::inflight::RequestQueue;
use crate::limits::SESSION_HELD_BYTES_MAX;
use crate::rules::locals::StateId;

/// Reason for a stream to wait before it takes its next request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wait {
    /// Nothing.
    Nothing,
    /// Replies to requests in flight.
    Replies,
    /// The client does not read: its output must drain.
    Client,
    /// Capacity that several share: in the in-flight table, of buffers, of a backend connection.
    Capacity {
        /// The backend of which it wants a connection, if that is it. It counts as pending there.
        backend: Option<u32>,
    },
}

/// The body of a large request that is in flight.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Upload {
    /// None.
    None,
    /// It is streamed to a backend connection.
    To {
        /// Slot of the dedicated connection.
        backend_conn: u32,
        /// Its epoch, so that a later use of the slot is not mistaken for it.
        epoch: u32,
        /// Rest of the body that has not arrived yet.
        body: RemainingBody,
    },
    /// It is received and dropped.
    Discard {
        /// Rest of the body that has not arrived yet.
        body: RemainingBody,
        /// Bytes of it that are received at most; beyond, the connection is closed.
        bytes_max: u64,
    },
}

/// Raw bytes in both directions, between a client and a backend connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Tunnel {
    backend_conn: u32,
    epoch: u32,
    client_has_ended: bool,
    backend_has_ended: bool,
}

impl Tunnel {
    /// Slot of the backend connection.
    pub fn backend_conn(self) -> u32 {
        self.backend_conn
    }

    /// Epoch of the backend connection.
    pub fn epoch(self) -> u32 {
        self.epoch
    }

    /// The client's end is forwarded to the backend; `false` if it was before.
    pub fn end_client(&mut self) -> bool {
        !std::mem::replace(&mut self.client_has_ended, true)
    }

    /// The backend's end is forwarded to the client; `false` if it was before.
    pub fn end_backend(&mut self) -> bool {
        !std::mem::replace(&mut self.backend_has_ended, true)
    }

    /// Whether the client's end is forwarded, with everything that it sent before.
    pub fn client_has_ended(self) -> bool {
        self.client_has_ended
    }

    /// Whether the backend's end is forwarded, with everything that it sent before.
    pub fn backend_has_ended(self) -> bool {
        self.backend_has_ended
    }

    /// Whether one side has ended.
    pub fn is_half_closed(self) -> bool {
        self.client_has_ended || self.backend_has_ended
    }

    /// Whether both sides have ended.
    pub fn is_closed(self) -> bool {
        self.client_has_ended && self.backend_has_ended
    }
}

/// A stream with backend connections of its own.
#[derive(Clone, Copy, Debug)]
pub struct Relay {
    /// Nothing has been read, and no rule has run.
    is_fresh: bool,
    /// The first of its backend connections, which are a list.
    conns: Option<u32>,
    /// The backend connection that is inside a message for the client.
    sender: Option<u32>,
}

/// Route of a stream to its backends.
#[derive(Clone, Copy, Debug)]
pub enum Route {
    /// By request: each goes where the program sends it.
    Requests,
    /// The stream has become a tunnel.
    Tunnel(Tunnel),
    /// Over backend connections of its own.
    Relay(Relay),
}

/// The side of a connection that has said that a request is the last.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LastWord {
    /// The client: it sends nothing more.
    Client,
    /// The service: the client may still send.
    Service,
}

/// Point at which a stream takes its next request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NextRequest {
    /// Now.
    Now,
    /// After all replies: too many requests are in flight, or a large one on another connection. In a relay: after the
    /// message that a backend is sending, in the middle of which a rule might answer.
    AfterReplies,
    /// Never: the connection ends after the reply to the last one.
    Never {
        /// The side that has said so.
        said_by: LastWord,
    },
    /// Never: the client's end is forwarded to the backends of the relay.
    Ended,
}

/// Share of a stream in what all streams have in flight.
#[derive(Clone, Copy, Debug)]
pub struct Share {
    /// Requests.
    pub inflight_max: u32,
    /// Bytes of their replies.
    pub bytes_max: u64,
}

/// One stream.
#[derive(Debug)]
pub struct Stream {
    /// State of the program for this client.
    state: StateId,
    requests: RequestQueue,
    /// Bytes of replies that wait for earlier ones.
    held_bytes: u64,
    window: Window,
    quantum: ConnQuantum,
    upload: Upload,
    next_request: NextRequest,
    wait: Wait,
    /// Backend of which a connection is kept for its next run, because it has waited for one.
    promised: Option<u32>,
    route: Route,
    /// A backend connection whose output is full; no further request until it drains.
    full_conn: Option<u32>,
    /// Its next request has been queued for as long as it may: it is shed if there is still no capacity.
    is_overdue: bool,
    /// A handler of the program knows that the client's connection ends.
    is_notified: bool,
}

impl Stream {
    /// A new stream; `is_relay`: with backend connections of its own.
    pub fn new(state: StateId, is_relay: bool) -> Self {
        let relay = Route::Relay(Relay { is_fresh: true, conns: None, sender: None });
        Self {
            state,
            requests: RequestQueue::new(),
            held_bytes: 0,
            window: Window::new(),
            quantum: ConnQuantum::new(),
            upload: Upload::None,
            next_request: NextRequest::Now,
            wait: Wait::Nothing,
            promised: None,
            route: if is_relay { relay } else { Route::Requests },
            full_conn: None,
            is_overdue: false,
            is_notified: false,
        }
    }

    /// State of the program for this client.
    pub fn state(&self) -> StateId {
        self.state
    }

    /// Requests in flight, oldest first.
    pub fn requests(&self) -> &RequestQueue {
        &self.requests
    }

    /// Requests in flight, for the in-flight table.
    pub fn requests_mut(&mut self) -> &mut RequestQueue {
        &mut self.requests
    }

    /// Abandons the requests in flight, and the replies that wait with them.
    pub fn take_requests(&mut self) -> RequestQueue {
        self.held_bytes = 0;
        std::mem::replace(&mut self.requests, RequestQueue::new())
    }

    /// Bytes of replies that wait for earlier ones.
    pub fn held_bytes(&self) -> u64 {
        self.held_bytes
    }

    /// Bytes of a reply wait for earlier replies.
    pub fn hold(&mut self, bytes: u64) {
        self.held_bytes += bytes;
    }

    /// Bytes of a reply that waited are sent.
    pub fn release(&mut self, bytes: u64) {
        self.held_bytes -= bytes;
    }

    /// Window of its requests.
    pub fn window(&self) -> &Window {
        &self.window
    }

    /// Window of its requests.
    pub fn window_mut(&mut self) -> &mut Window {
        &mut self.window
    }

    /// Its turn at shared connections.
    pub fn quantum(&self) -> &ConnQuantum {
        &self.quantum
    }

    /// Its turn at shared connections.
    pub fn quantum_mut(&mut self) -> &mut ConnQuantum {
        &mut self.quantum
    }

    /// The body that is in flight.
    pub fn upload(&self) -> Upload {
        self.upload
    }

    /// Whether a body is in flight.
    pub fn has_upload(&self) -> bool {
        self.upload != Upload::None
    }

    /// Sets what happens with the body that is in flight.
    pub fn set_upload(&mut self, upload: Upload) {
        self.upload = upload;
    }

    /// Abandons the body that is in flight.
    pub fn take_upload(&mut self) -> Upload {
        std::mem::replace(&mut self.upload, Upload::None)
    }

    /// Decides when the next request is taken: at most as many are in flight as its share and its window allow, one at
    /// a time if `exclusive`. Not while many replies wait for an earlier one.
    pub fn next_request(&mut self, share: Share, exclusive: bool) -> NextRequest {
        let in_flight = self.requests.len();
        let is_alone = match self.next_request {
            // The last reply may begin a tunnel, whose first bytes may have arrived already.
            NextRequest::Never { .. } if in_flight > 0 => return NextRequest::AfterReplies,
            ends @ (NextRequest::Never { .. } | NextRequest::Ended) => return ends,
            NextRequest::AfterReplies => true,
            NextRequest::Now => exclusive,
        };
        let has_share = in_flight < share.inflight_max.min(self.window.inflight_max(share.bytes_max))
            && self.held_bytes <= share.bytes_max.min(SESSION_HELD_BYTES_MAX);
        if !has_share || (is_alone && in_flight > 0) || self.relay_sender().is_some() {
            return NextRequest::AfterReplies;
        }
        self.next_request = NextRequest::Now;
        NextRequest::Now
    }

    /// A request is taken; `is_last`: it says that it is the last one.
    pub fn take_request(&mut self, is_last: bool) {
        let last = NextRequest::Never { said_by: LastWord::Client };
        self.next_request = if is_last { last } else { NextRequest::Now };
    }

    /// A large request is taken, of which that body is to come: the next one waits for its reply, if it has one.
    pub fn take_large_request(&mut self, is_last: bool, upload: Upload) {
        let last = NextRequest::Never { said_by: LastWord::Client };
        self.next_request = if is_last { last } else { NextRequest::AfterReplies };
        self.upload = upload;
    }

    /// Takes no request after those that are in flight, whatever the client sends.
    pub fn end_after_reply(&mut self) {
        self.next_request = NextRequest::Never { said_by: LastWord::Service };
    }

    /// Whether no request is taken after those that are in flight.
    pub fn ends_after_reply(&self) -> bool {
        matches!(self.next_request, NextRequest::Never { .. })
    }

    /// Returns the reason why it does not take its next request.
    pub fn wait(&self) -> Wait {
        self.wait
    }

    /// Whether anything keeps it from taking its next request.
    pub fn is_waiting(&self) -> bool {
        self.wait != Wait::Nothing
    }

    /// Whether it waits for capacity that several share.
    pub fn is_blocked(&self) -> bool {
        matches!(self.wait, Wait::Capacity { .. })
    }

    /// Waits from now on.
    pub fn wait_for(&mut self, wait: Wait) {
        debug_assert!(self.wait == Wait::Nothing, "a stream waits for one thing at a time");
        self.wait = wait;
    }

    /// Waits no more. Returns the backend at which it was pending, and is not from now on.
    pub fn resume(&mut self) -> Option<u32> {
        match std::mem::replace(&mut self.wait, Wait::Nothing) {
            Wait::Capacity { backend } => backend,
            Wait::Nothing | Wait::Replies | Wait::Client => None,
        }
    }

    /// A connection to a backend is kept for its next run.
    pub fn promise(&mut self, backend: u32) {
        self.promised = Some(backend);
    }

    /// Returns the backend of which a connection was kept for this run.
    pub fn take_promise(&mut self) -> Option<u32> {
        self.promised.take()
    }

    /// Sets whether its next request has been queued for as long as it may.
    pub fn set_overdue(&mut self, is_overdue: bool) {
        self.is_overdue = is_overdue;
    }

    /// Whether its next request is shed if there is no capacity for it.
    pub fn is_overdue(&self) -> bool {
        self.is_overdue
    }

    /// The backend connection whose output must drain before the next request.
    pub fn full_conn(&self) -> Option<u32> {
        self.full_conn
    }

    /// Sets the backend connection whose output must drain before the next request.
    pub fn set_full_conn(&mut self, backend_conn: Option<u32>) {
        self.full_conn = backend_conn;
    }

    /// A handler of the program knows that the client's connection ends.
    pub fn set_notified(&mut self) {
        self.is_notified = true;
    }

    /// Whether a handler of the program knows that the client's connection ends.
    pub fn is_notified(&self) -> bool {
        self.is_notified
    }

    /// Returns its route to its backends.
    pub fn route(&self) -> Route {
        self.route
    }

    /// Becomes a tunnel to a backend connection.
    pub fn begin_tunnel(&mut self, backend_conn: u32, epoch: u32) {
        let tunnel = Tunnel { backend_conn, epoch, client_has_ended: false, backend_has_ended: false };
        self.route = Route::Tunnel(tunnel);
    }

    /// The tunnel that it is.
    pub fn tunnel(&self) -> Option<Tunnel> {
        match self.route {
            Route::Tunnel(tunnel) => Some(tunnel),
            Route::Requests | Route::Relay(_) => None,
        }
    }

    /// The tunnel that it is.
    pub fn tunnel_mut(&mut self) -> Option<&mut Tunnel> {
        match &mut self.route {
            Route::Tunnel(tunnel) => Some(tunnel),
            Route::Requests | Route::Relay(_) => None,
        }
    }

    /// Is no tunnel any more.
    pub fn end_tunnel(&mut self) {
        self.route = Route::Requests;
    }

    fn relay(&self) -> Option<&Relay> {
        match &self.route {
            Route::Relay(relay) => Some(relay),
            Route::Requests | Route::Tunnel(_) => None,
        }
    }

    fn relay_mut(&mut self) -> Option<&mut Relay> {
        match &mut self.route {
            Route::Relay(relay) => Some(relay),
            Route::Requests | Route::Tunnel(_) => None,
        }
    }

    /// Returns the part of the next message that must have arrived before it is taken: `of_requests`, unless the stream
    /// is a relay.
    pub fn completeness(&mut self, of_requests: Completeness) -> Completeness {
        match &mut self.route {
            Route::Relay(relay) => Completeness::of_relay(&mut relay.is_fresh),
            Route::Requests | Route::Tunnel(_) => of_requests,
        }
    }

    /// The client's end is forwarded to the backends of a relayed stream; `false` if it was before.
    pub fn end_relay_input(&mut self) -> bool {
        std::mem::replace(&mut self.next_request, NextRequest::Ended) != NextRequest::Ended
    }

    /// Whether the client's end has been forwarded to the backends of a relayed stream.
    pub fn relay_input_has_ended(&self) -> bool {
        self.next_request == NextRequest::Ended
    }

    /// The first of its own backend connections.
    pub fn relay_conns(&self) -> Option<u32> {
        self.relay()?.conns
    }

    /// Sets the first of its own backend connections.
    pub fn set_relay_conns(&mut self, first: Option<u32>) {
        if let Some(relay) = self.relay_mut() {
            relay.conns = first;
        }
    }

    /// Leaves its own backend connections; the first of them.
    pub fn take_relay_conns(&mut self) -> Option<u32> {
        let relay = self.relay_mut()?;
        relay.sender = None;
        relay.conns.take()
    }

    /// The backend connection of its own that is inside a message for the client.
    pub fn relay_sender(&self) -> Option<u32> {
        self.relay()?.sender
    }

    /// Sets the backend connection of its own that is inside a message for the client.
    pub fn set_relay_sender(&mut self, backend_conn: Option<u32>) {
        if let Some(relay) = self.relay_mut() {
            relay.sender = backend_conn;
        }
    }
}
