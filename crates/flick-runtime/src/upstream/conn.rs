//! A connection to a backend: its state, and what each state keeps.
//! Promises: a state has the data that belongs to it and no other, so that no connection is idle and a tunnel at once;
//! a state is changed only by a method that names the transition.
//! Refuses: the driver and the in-flight table: the worker calls them with what a transition returns.

mod relay;

use flick_buffers::Buf;
use flick_net::Handle;

use super::load::ConnLoad;
use super::stall::{Hold, Stall};
use crate::downstream::body::RemainingBody;
use crate::downstream::inbox::Inbox;
use crate::inflight::{RequestId, RequestQueue};
use crate::slab::Key;

/// Clients that may use a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sharing {
    /// All clients of the worker, in a pipeline.
    Shared,
    /// One exchange, or one client, at a time.
    Dedicated,
}

/// Purpose of a connection that is being connected.
#[derive(Debug)]
pub enum Purpose {
    /// It will carry the requests of all clients.
    Pipeline,
    /// No exchange needs it yet.
    Spare,
    /// It will carry one exchange.
    Exchange {
        /// The body of the request is still being sent.
        is_uploading: bool,
    },
    /// It will carry what one client and one element say to each other.
    RelayLeg(RelayLeg),
    /// Its client has left.
    Nothing,
}

/// State of a backend connection, with the data that only this state has.
#[derive(Debug)]
pub enum BackendConnState {
    /// It is not connected.
    Down {
        /// Time at which a shared connection is connected again; `None`: no attempt is scheduled.
        connect_ns: Option<u64>,
    },
    /// The driver connects it.
    Connecting {
        /// Time at which the attempt is given up.
        deadline_ns: u64,
        /// Purpose of the connection.
        purpose: Purpose,
    },
    /// It carries the requests of all clients, one behind the other.
    Pipeline {
        /// The reply that arrives.
        reply: ReplyProgress,
    },
    /// It waits for an exchange.
    Idle {
        /// Time at which it became idle.
        since_ns: u64,
    },
    /// It carries one exchange.
    Exchange(Exchange),
    /// It carries what one client and one element say to each other.
    RelayLeg(RelayLeg),
    /// It carries raw bytes of one client.
    Tunnel {
        /// The client.
        client: Key,
    },
    /// Its client has left: it is ended when its task runs next.
    Draining {
        /// The backend has finished in order: the connection is closed, not aborted.
        in_order: bool,
    },
}

/// The reply that arrives on a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReplyProgress {
    /// Its head is parsed next, and is delivered as soon as it is there.
    Head,
    /// It answers a rule that asks, and is buffered whole.
    Buffered,
    /// Its head has been delivered, its body follows.
    Body(Download),
}

/// The client that a message of a backend is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Recipient {
    /// The client of a request in flight, in the order of its requests.
    Request(RequestId),
    /// The client of a relay or a tunnel, at once.
    Client(Key),
}

/// A large message whose head has been delivered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Download {
    /// Recipient of the message; a request is the front of the connection's queue.
    pub to: Recipient,
    /// Rest of the body, which is still to arrive.
    pub body: RemainingBody,
    /// No other reply to its request follows.
    pub last: bool,
    /// Its client gets it.
    pub is_delivered: bool,
    /// If its client has been answered otherwise: bytes of it that are still dropped so that the connection can be used
    /// again. `None`: all of it is taken.
    pub drain_max: Option<u64>,
}

/// One exchange on a connection of its own.
#[derive(Debug)]
pub struct Exchange {
    /// The body of the request is still being sent.
    is_uploading: bool,
    reply: ReplyProgress,
    then: AfterExchange,
}

/// Use of a connection after its exchange.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AfterExchange {
    /// It carries another one.
    Reuse,
    /// The backend has said that it closes it.
    Close,
    /// It is ended, whatever it still carries: nothing more of the exchange is wanted.
    Cut,
    /// It becomes a tunnel of the client.
    Tunnel,
}

/// A connection that belongs to one client of a relay.
#[derive(Debug)]
pub struct RelayLeg {
    client: Key,
    /// The element of its channel that the client sends to on it, whatever backend has that number by now.
    element: u64,
    /// The next leg of the client.
    next: Option<u32>,
    /// A pick without a key chose the backend.
    is_picked: bool,
    /// No byte has arrived, and no rule has run for that.
    is_fresh: bool,
    /// The message that arrives.
    reply: ReplyProgress,
}

/// Whether the driver receives.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Receive {
    Paused,
    Active,
    /// The backend has closed its side, or the connection is lost: what has arrived is all there is.
    Ended,
}

/// One connection to a backend.
#[derive(Debug)]
pub struct BackendConn {
    backend: u32,
    sharing: Sharing,
    /// Counts the connections of this slot.
    epoch: u32,
    state: BackendConnState,
    /// The driver's connection; `None` when down, and when the driver has lost it.
    handle: Option<Handle>,
    receive: Receive,
    inbox: Inbox,
    /// Requests in flight, oldest first.
    requests: RequestQueue,
    load: ConnLoad,
    /// Number of the next request.
    next_number: u64,
    /// It has been idle since it was connected: a backend may close an idle one at any time.
    has_been_idle: bool,
    /// The buffer that short requests are written to.
    batch: Option<Buf>,
    stall: Stall,
    /// It is in the run queue.
    is_queued: bool,
    /// Bytes that have arrived since its task ran.
    unseen_bytes: u64,
    /// Bytes received and sent since it was connected.
    bytes: ConnBytes,
}

/// Phase in which a connection closed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ClosedWhile {
    /// Before it was connected.
    Connecting,
    /// After it was connected.
    Connected,
}

/// Bytes of a connection.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ConnBytes {
    /// Bytes that have arrived.
    pub received: u64,
    /// Bytes that were sent.
    pub sent: u64,
}

/// Last holder of a connection that has closed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Holder {
    /// Its requests, or nothing.
    Requests,
    /// The list of idle connections of its backend.
    IdleList,
    /// The client of a tunnel.
    Tunnel(Key),
    /// The client of a relay.
    Relay {
        /// The client.
        client: Key,
        /// The next leg of the client.
        next: Option<u32>,
        /// A pick without a key chose the backend.
        is_picked: bool,
    },
}

/// Data of a closed connection that the worker has to handle.
#[derive(Debug)]
pub struct Closed {
    /// Phase in which it closed.
    pub was: ClosedWhile,
    /// Last holder of the connection.
    pub holder: Holder,
    /// The message that was arriving.
    pub body: Option<RemainingBody>,
}

impl BackendConn {
    /// A slot without a connection.
    pub fn new(backend: u32, sharing: Sharing) -> Self {
        let connect_ns = match sharing {
            Sharing::Shared => Some(0),
            Sharing::Dedicated => None,
        };
        Self {
            backend,
            sharing,
            epoch: 0,
            state: BackendConnState::Down { connect_ns },
            handle: None,
            receive: Receive::Paused,
            inbox: Inbox::new(),
            requests: RequestQueue::new(),
            load: ConnLoad::new(),
            next_number: 0,
            has_been_idle: false,
            batch: None,
            stall: Stall::new(),
            is_queued: false,
            unseen_bytes: 0,
            bytes: ConnBytes::default(),
        }
    }

    /// Index of its backend.
    #[inline]
    pub fn backend(&self) -> u32 {
        self.backend
    }

    /// Whether one exchange or client at a time uses it.
    #[inline]
    pub fn is_dedicated(&self) -> bool {
        self.sharing == Sharing::Dedicated
    }

    /// The generation of the slot.
    #[inline]
    pub fn epoch(&self) -> u32 {
        self.epoch
    }

    /// Returns the state of the connection.
    #[inline]
    pub fn state(&self) -> &BackendConnState {
        &self.state
    }

    /// The driver's connection, unless it is down or lost.
    #[inline]
    pub fn handle(&self) -> Option<Handle> {
        self.handle
    }

    /// The driver's connection of a generation.
    #[inline]
    pub fn handle_of(&self, epoch: u32) -> Option<Handle> {
        self.handle.filter(|_| self.epoch == epoch)
    }

    /// Whether there is no connection.
    #[inline]
    pub fn is_down(&self) -> bool {
        matches!(self.state, BackendConnState::Down { .. })
    }

    /// Whether the driver connects it.
    #[inline]
    pub fn is_connecting(&self) -> bool {
        matches!(self.state, BackendConnState::Connecting { .. })
    }

    /// Whether it is connected, or was until what has arrived is handled.
    #[inline]
    pub fn is_connected(&self) -> bool {
        !self.is_down() && !self.is_connecting()
    }

    /// Whether it waits for an exchange.
    #[inline]
    pub fn is_idle(&self) -> bool {
        matches!(self.state, BackendConnState::Idle { .. })
    }

    /// One that is idle, and still sends what it was given, is idle since now.
    pub fn renew_idle(&mut self, now_ns: u64) {
        if let BackendConnState::Idle { since_ns } = &mut self.state {
            *since_ns = now_ns;
        }
    }

    /// Returns the time since which it is idle; `None`: it is not.
    pub fn idle_since_ns(&self) -> Option<u64> {
        match self.state {
            BackendConnState::Idle { since_ns } => Some(since_ns),
            _ => None,
        }
    }

    /// Whether it carries nothing that its end would cut off; the driver may still have bytes to send.
    pub fn is_unused(&self) -> bool {
        let is_client_of_one = match &self.state {
            BackendConnState::Down { .. } => return false,
            BackendConnState::RelayLeg(_) | BackendConnState::Tunnel { .. } => true,
            BackendConnState::Connecting { purpose, .. } => matches!(purpose, Purpose::RelayLeg(_)),
            _ => false,
        };
        !is_client_of_one && self.requests.is_empty()
    }

    /// Whether it was connected and no byte but a whole exchange has arrived since: it can carry the next exchange.
    pub fn is_reusable(&self) -> bool {
        self.is_idle() && self.handle.is_some() && !self.has_ended() && self.inbox.is_empty()
    }

    /// Returns the next deadline: the next attempt to connect, the end of one, of a stall, of an idle time, or of the
    /// request at the front of the queue, whose deadline is given. `None`: nothing is due.
    /// An idle connection has `idle_max_ns`, if there is one.
    #[inline]
    pub fn due_ns(&self, idle_max_ns: Option<u64>, request_ns: Option<u64>) -> Option<u64> {
        if let Hold::Client { until_ns, .. } = self.stall.hold() {
            return Some(until_ns);
        }
        match self.state {
            BackendConnState::Down { connect_ns } => connect_ns,
            BackendConnState::Connecting { deadline_ns, .. } => Some(deadline_ns),
            BackendConnState::Idle { since_ns } => idle_max_ns.map(|max_ns| since_ns + max_ns),
            _ => request_ns.map(|due_ns| due_ns + self.stall.clock_lag_ns()),
        }
    }
}

/// The life of a connection.
impl BackendConn {
    /// The driver connects it. Returns the generation of the connection.
    pub fn begin_connecting(&mut self, handle: Handle, deadline_ns: u64, purpose: Purpose) -> u32 {
        self.epoch = self.epoch.wrapping_add(1);
        self.state = BackendConnState::Connecting { deadline_ns, purpose };
        self.handle = Some(handle);
        self.receive = Receive::Paused;
        self.has_been_idle = false;
        self.load = ConnLoad::new();
        self.bytes = ConnBytes::default();
        self.epoch
    }

    /// The driver has connected it. Returns the connection to receive from.
    pub fn connected(&mut self, now_ns: u64) -> Option<Handle> {
        let handle = self.handle?;
        let down = BackendConnState::Down { connect_ns: None };
        let BackendConnState::Connecting { purpose, .. } = std::mem::replace(&mut self.state, down) else {
            panic!("the driver connects what it was asked to");
        };
        self.state = match purpose {
            Purpose::Pipeline => BackendConnState::Pipeline { reply: ReplyProgress::Head },
            Purpose::Spare => BackendConnState::Idle { since_ns: now_ns },
            Purpose::Exchange { is_uploading } => BackendConnState::Exchange(Exchange {
                is_uploading,
                reply: ReplyProgress::Head,
                then: AfterExchange::Reuse,
            }),
            Purpose::RelayLeg(leg) => BackendConnState::RelayLeg(leg),
            Purpose::Nothing => BackendConnState::Draining { in_order: false },
        };
        self.has_been_idle = self.is_idle();
        self.receive = Receive::Active;
        Some(handle)
    }

    /// A shared connection is connected again at that time; never, of a backend that was removed.
    pub fn connect_again_at(&mut self, connect_ns: Option<u64>) {
        assert!(self.is_down(), "a connection is connected again when it is down");
        self.state = BackendConnState::Down { connect_ns };
    }

    /// The backend has closed its side.
    pub fn end_input(&mut self) {
        self.receive = Receive::Ended;
    }

    /// The driver has lost the connection.
    pub fn lose(&mut self) {
        self.handle = None;
        if self.is_connected() {
            self.receive = Receive::Ended;
        }
    }

    /// The connection is being ended by the worker: the driver's part, if it has it still.
    pub fn take_handle(&mut self) -> Option<Handle> {
        self.handle.take()
    }

    /// Whether the attempt to connect has failed, and that is still to be handled.
    pub fn is_refused(&self) -> bool {
        self.is_connecting() && self.handle.is_none()
    }

    /// The connection is gone. The worker clears its inbox and settles what is returned; `None`: it was gone before.
    pub fn close(&mut self) -> Option<Closed> {
        let was = match self.state {
            BackendConnState::Down { .. } => return None,
            BackendConnState::Connecting { .. } => ClosedWhile::Connecting,
            _ => ClosedWhile::Connected,
        };
        let body = self.download().map(|download| download.body);
        let down = BackendConnState::Down { connect_ns: None };
        let (holder, body) = match std::mem::replace(&mut self.state, down) {
            BackendConnState::Idle { .. } => (Holder::IdleList, None),
            BackendConnState::Tunnel { client } => (Holder::Tunnel(client), None),
            BackendConnState::RelayLeg(leg)
            | BackendConnState::Connecting { purpose: Purpose::RelayLeg(leg), .. } => {
                (Holder::Relay { client: leg.client, next: leg.next, is_picked: leg.is_picked }, body)
            }
            _ => (Holder::Requests, body),
        };
        self.handle = None;
        self.epoch = self.epoch.wrapping_add(1);
        self.batch = None;
        self.stall.note_delivered();
        Some(Closed { was, holder, body })
    }
}

/// Exchanges.
impl BackendConn {
    /// An exchange begins on an idle connection.
    pub fn begin_exchange(&mut self) {
        assert!(self.is_idle(), "a connection carries one exchange at a time");
        let then = AfterExchange::Reuse;
        self.state =
            BackendConnState::Exchange(Exchange { is_uploading: false, reply: ReplyProgress::Head, then });
    }

    /// The body of the request follows.
    pub fn begin_upload(&mut self) {
        self.set_uploading(true);
    }

    /// The request has been sent whole.
    pub fn end_upload(&mut self) {
        self.set_uploading(false);
    }

    fn set_uploading(&mut self, on: bool) {
        match &mut self.state {
            BackendConnState::Exchange(Exchange { is_uploading, .. })
            | BackendConnState::Connecting { purpose: Purpose::Exchange { is_uploading }, .. } => {
                *is_uploading = on;
            }
            _ => {}
        }
    }

    /// Whether the body of the request is still being sent.
    pub fn is_uploading(&self) -> bool {
        match self.state {
            BackendConnState::Exchange(Exchange { is_uploading, .. })
            | BackendConnState::Connecting { purpose: Purpose::Exchange { is_uploading }, .. } => {
                is_uploading
            }
            _ => false,
        }
    }

    /// The exchange is over. Returns whether the connection is idle; one that is being connected will be.
    pub fn end_exchange(&mut self, now_ns: u64) -> bool {
        match &mut self.state {
            BackendConnState::Exchange(_) | BackendConnState::Idle { .. } => {
                self.state = BackendConnState::Idle { since_ns: now_ns };
                self.has_been_idle = true;
                true
            }
            BackendConnState::Connecting { purpose, .. } => {
                *purpose = Purpose::Spare;
                false
            }
            _ => false,
        }
    }

    /// The client of the exchange has left. Returns the body of the reply, which is not looked at any more.
    pub fn abandon_exchange(&mut self) -> Option<RemainingBody> {
        let body = self.download().map(|download| download.body);
        match &mut self.state {
            BackendConnState::Connecting { purpose, .. } => *purpose = Purpose::Nothing,
            BackendConnState::Exchange(exchange) => {
                let in_order = exchange.then == AfterExchange::Close;
                self.state = BackendConnState::Draining { in_order };
            }
            _ => return None,
        }
        body
    }

    /// Returns the use of the connection after its exchange.
    pub fn after_exchange(&self) -> AfterExchange {
        match &self.state {
            BackendConnState::Exchange(exchange) => exchange.then,
            _ => AfterExchange::Reuse,
        }
    }

    /// The backend closes the connection after this exchange. A tunnel has an end of its own.
    pub fn close_after_exchange(&mut self) {
        if let BackendConnState::Exchange(exchange) = &mut self.state
            && exchange.then == AfterExchange::Reuse
        {
            exchange.then = AfterExchange::Close;
        }
    }

    /// Nothing more of the exchange is wanted: the connection ends with it.
    pub fn cut_after_exchange(&mut self) {
        if let BackendConnState::Exchange(exchange) = &mut self.state {
            exchange.then = AfterExchange::Cut;
        }
    }

    /// The connection becomes a tunnel after this exchange; `false`: it cannot, being shared, or in the middle of a
    /// request. Without a client that hears of it, it is closed.
    pub fn tunnel_after_exchange(&mut self, has_client: bool) -> bool {
        match &mut self.state {
            BackendConnState::Exchange(exchange) if !exchange.is_uploading => {
                exchange.then = if has_client { AfterExchange::Tunnel } else { AfterExchange::Close };
                true
            }
            _ => false,
        }
    }

    /// The exchange is over, and raw bytes of its client follow.
    pub fn begin_tunnel(&mut self, client: Key) {
        self.state = BackendConnState::Tunnel { client };
    }

    /// The tunnel ends. `in_order`: its client had closed its side, and what it sent before that goes out.
    pub fn leave_tunnel(&mut self, in_order: bool) {
        if matches!(self.state, BackendConnState::Tunnel { .. }) {
            self.state = BackendConnState::Draining { in_order };
        }
    }
}

/// Requests and replies.
impl BackendConn {
    /// Requests in flight, oldest first.
    #[inline]
    pub fn requests(&self) -> &RequestQueue {
        &self.requests
    }

    /// Requests in flight, oldest first.
    #[inline]
    pub fn requests_mut(&mut self) -> &mut RequestQueue {
        &mut self.requests
    }

    /// A reply was complete after so long.
    #[inline]
    pub fn note_reply_time(&mut self, took_ns: u64) {
        self.load.note_reply_time(took_ns);
    }

    /// Turns of clients that can begin now.
    #[inline]
    pub fn quanta(&self) -> u64 {
        self.load.quanta(self.requests.cost_bytes())
    }

    /// The number that the next request carries.
    #[inline]
    pub fn next_number(&self) -> u64 {
        self.next_number
    }

    /// Marks the number of the next request as used.
    #[inline]
    pub fn use_number(&mut self) {
        self.next_number = self.next_number.wrapping_add(1);
    }

    /// Whether it has been idle since it was connected.
    pub fn has_been_idle(&self) -> bool {
        self.has_been_idle
    }

    /// Bytes from the backend.
    #[inline]
    pub fn inbox(&self) -> &Inbox {
        &self.inbox
    }

    /// Bytes from the backend.
    #[inline]
    pub fn inbox_mut(&mut self) -> &mut Inbox {
        &mut self.inbox
    }

    /// The buffer that short requests are written to.
    #[inline]
    pub fn batch(&self) -> Option<&Buf> {
        self.batch.as_ref()
    }

    /// The buffer that short requests are written to.
    #[inline]
    pub fn batch_mut(&mut self) -> &mut Option<Buf> {
        &mut self.batch
    }

    #[inline]
    fn reply_mut(&mut self) -> Option<&mut ReplyProgress> {
        match &mut self.state {
            BackendConnState::Pipeline { reply } => Some(reply),
            BackendConnState::Exchange(exchange) => Some(&mut exchange.reply),
            BackendConnState::RelayLeg(leg) => Some(&mut leg.reply),
            _ => None,
        }
    }

    /// The reply that arrives.
    #[inline]
    pub fn reply(&self) -> ReplyProgress {
        match &self.state {
            BackendConnState::Pipeline { reply } => *reply,
            BackendConnState::Exchange(exchange) => exchange.reply,
            BackendConnState::RelayLeg(leg) => leg.reply,
            _ => ReplyProgress::Head,
        }
    }

    /// Whether the reply whose head is parsed next, or is being parsed, is buffered whole.
    #[inline]
    pub fn buffer_reply(&mut self, on: bool) {
        if let Some(reply) = self.reply_mut() {
            *reply = if on { ReplyProgress::Buffered } else { ReplyProgress::Head };
        }
    }

    /// The large reply whose head has been delivered.
    #[inline]
    pub fn download(&self) -> Option<Download> {
        match self.reply() {
            ReplyProgress::Body(download) => Some(download),
            ReplyProgress::Head | ReplyProgress::Buffered => None,
        }
    }

    /// The head of a reply has been delivered, and this follows; `None`: nothing. Returns whether the connection still
    /// carries replies.
    #[inline]
    pub fn set_download(&mut self, download: Option<Download>) -> bool {
        let Some(reply) = self.reply_mut() else { return false };
        *reply = download.map_or(ReplyProgress::Head, ReplyProgress::Body);
        true
    }
}

/// Receiving, stalls and the run queue.
impl BackendConn {
    /// Whether all that the backend sends has arrived.
    #[inline]
    pub fn has_ended(&self) -> bool {
        self.receive == Receive::Ended
    }

    /// Receives, or pauses. Returns the connection to pass on to the driver, if that changes anything.
    #[inline]
    pub fn set_receiving(&mut self, on: bool) -> Option<Handle> {
        let next = if on { Receive::Active } else { Receive::Paused };
        if self.receive == next || self.receive == Receive::Ended {
            return None;
        }
        let handle = self.handle?;
        self.receive = next;
        Some(handle)
    }

    /// Whether something keeps it from being read.
    #[inline]
    pub fn is_held(&self) -> bool {
        self.stall.hold() != Hold::None
    }

    /// Its stalls.
    #[inline]
    pub fn stall(&self) -> &Stall {
        &self.stall
    }

    /// Its stalls.
    #[inline]
    pub fn stall_mut(&mut self) -> &mut Stall {
        &mut self.stall
    }

    /// Notes bytes that arrive. Returns how many have arrived since its task ran.
    #[inline]
    pub fn note_unseen(&mut self, bytes: u32) -> u64 {
        self.unseen_bytes += u64::from(bytes);
        self.bytes.received += u64::from(bytes);
        self.unseen_bytes
    }

    /// Counts bytes that are sent.
    #[inline]
    pub fn note_sent(&mut self, bytes: u64) {
        self.bytes.sent += bytes;
    }

    /// Returns the bytes since it was connected.
    pub fn bytes(&self) -> ConnBytes {
        self.bytes
    }

    /// Its task runs: it sees all bytes that have arrived.
    #[inline]
    pub fn begin_run(&mut self) {
        (self.is_queued, self.unseen_bytes) = (false, 0);
    }

    /// Its task is put in the run queue. Returns whether it was in it.
    #[inline]
    pub fn set_queued(&mut self) -> bool {
        std::mem::replace(&mut self.is_queued, true)
    }

    /// Whether its task is in the run queue.
    #[inline]
    pub fn is_queued(&self) -> bool {
        self.is_queued
    }
}
