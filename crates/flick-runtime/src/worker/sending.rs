//! Requests on their way to backends: entered in the in-flight table, numbered, written to a connection.
//! Promises: a request is in the in-flight table before its first byte is written; one that is not sent is answered.

use flick_abi::frame::{SLOT_ASKED, SLOT_NON_QUIET};
use flick_abi::limits::ECHO_FIELDS_MAX;
use flick_abi::{EchoField, Event, FailureReason, Frame, MessageFlags, Protocol, Send};
use flick_buffers::Slice;
use flick_net::Driver;

use super::Worker;
use super::outgoing::{Patches, outgoing};
use super::reply_flags::Examined;
use crate::downstream::stream::Stream;
use crate::inflight::{QueueOf, ReplyTarget, RequestId, SentRequest};
use crate::limits::{BACKEND_CONN_UNSENT_BYTES_MAX, BULK_CONNS_SHARE};
use crate::rules::scratch::Scratch;
use crate::slab::Key;

/// Recipient of the reply to a request.
#[derive(Clone, Copy, Debug)]
pub(super) enum Waiter {
    /// No client: it is a copy, and its reply is drained.
    NoClient,
    /// A session, in whose queue it is put.
    Session(Key),
    /// A request that is in its session's queue already.
    InFlight(RequestId),
    /// An ask of an activation.
    Ask {
        /// Key of the activation.
        suspended: Key,
        /// Index of the ask within the last suspension.
        ask: u8,
        /// Time at which the reply is late.
        deadline_ns: u64,
    },
}

/// Reason why a request was not sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Unsent {
    /// It names an element outside its array.
    Nowhere,
    /// There is no connection to that backend.
    Down(u32),
    /// The in-flight table is full.
    Full,
    /// All connections to that backend are in use.
    Busy,
    /// It would not be answered, or would end the connection for all clients.
    Unanswerable,
    /// The message is too long for the fields that the program adds to it.
    TooLong,
    /// The bytes that the program built violate the grammar.
    Wrong,
}

impl Unsent {
    /// Returns the reason with which its client is answered.
    pub fn reason(self) -> FailureReason {
        match self {
            Unsent::Nowhere | Unsent::Down(_) | Unsent::Wrong => FailureReason::Unavailable,
            Unsent::Full | Unsent::Busy => FailureReason::Overload,
            Unsent::Unanswerable => FailureReason::Malformed,
            Unsent::TooLong => FailureReason::TooLong,
        }
    }
}

/// Event of a backend, for the handler of its channel.
#[derive(Clone, Copy, Debug)]
pub(super) struct BackendIncident {
    /// Kind of event.
    pub event: Event,
    /// Slot of the backend.
    pub backend: u32,
}

impl<D: Driver> Worker<D> {
    /// Sends one whole request on a shared connection.
    ///
    /// Errors: it was not sent, and has no entry. When buffers are out it has one, and fails with its connection.
    pub(super) fn send_request(
        &mut self,
        scratch: &mut Scratch,
        send: &Send,
        message: Option<&Slice>,
        waiter: Waiter,
    ) -> Result<(), Unsent> {
        // In a relay only sessions reach backends.
        let backend = self.backend_of(send).filter(|_| !self.ctx.setup().is_relay).ok_or(Unsent::Nowhere)?;
        if !self.shared_conn_is_usable(backend) {
            self.observe.backend(backend as usize).failures.add(1);
            return Err(Unsent::Down(backend));
        }
        if self.sheds(backend) || self.is_clogged_backend(backend, BACKEND_CONN_UNSENT_BYTES_MAX) {
            return Err(Unsent::Busy);
        }
        let channel = send.channel as usize;
        let exclusive = self.upstream.backend(backend as usize).is_exclusive();
        // What is never received from is never answered either.
        let one_way =
            scratch.frame.flags().has(MessageFlags::ONE_WAY) && !matches!(waiter, Waiter::Ask { .. });
        let is_answered = !one_way && self.ctx.setup().program.channels[channel].view.is_some();
        if let Waiter::Session(key) = waiter
            && !is_answered
        {
            self.pin_to_shared(key);
        }
        let examined = self.examine(scratch, send, message);
        match examined {
            Examined::Wrong => return Err(Unsent::Wrong),
            Examined::TooLong => return Err(Unsent::TooLong),
            Examined::Same | Examined::Known => {}
        }
        let examined = examined == Examined::Known;
        let sent_frame = if examined { &scratch.other } else { &scratch.frame };
        if sent_frame.flags().has(MessageFlags::STATEFUL) {
            self.upstream.backend_mut(backend as usize).set_stateful();
        }
        let backend_conn = if exclusive {
            self.borrow_exclusive(backend).ok_or(Unsent::Busy)?
        } else {
            self.lane(backend, waiter)
        };
        let dedicated = self.upstream.conn(backend_conn).is_dedicated();
        let number = self.upstream.conn(backend_conn).next_number();
        let patches = self.request_patches(scratch, channel, examined, number);
        let mut resend = None;
        if is_answered {
            match self.enter_sent(scratch, send, waiter, examined, backend_conn) {
                Ok((request, may_resend)) => {
                    resend = may_resend.then_some(request);
                    let sent = examined.then_some((&*scratch, send, message));
                    self.log_request(waiter, request, backend, sent);
                }
                Err(unsent) => {
                    self.give_back_unused(backend_conn, dedicated);
                    return Err(unsent);
                }
            }
        }
        let is_copy = matches!(waiter, Waiter::NoClient) && self.is_mirrored(send, scratch.sends.as_slice());
        self.count_request(backend, is_copy);
        if !self.write_to_backend_conn(backend_conn, &outgoing(scratch, send.body, message), patches, resend)
        {
            self.backend_exhausted(backend_conn);
        } else if self.upstream.conn(backend_conn).requests().is_empty() {
            self.give_back_unused(backend_conn, dedicated);
        }
        Ok(())
    }

    /// Enters a request that is about to be sent into the in-flight table and the queue of its connection. Returns the
    /// entry, and whether the request may be sent again on another connection.
    ///
    /// Errors: the table is full.
    fn enter_sent(
        &mut self,
        scratch: &mut Scratch,
        send: &Send,
        waiter: Waiter,
        examined: bool,
        backend_conn: u32,
    ) -> Result<(RequestId, bool), Unsent> {
        let channel = send.channel as usize;
        let conn = self.upstream.conn(backend_conn);
        let (backend, number) = (conn.backend(), conn.next_number());
        let exclusive = self.upstream.backend(backend as usize).is_exclusive();
        let request = self.open_entry(scratch, channel, examined, waiter)?;
        let frame = if examined { &scratch.other } else { &scratch.frame };
        let (is_picked, kept) = (self.takes_pick(send), self.kept_of_sent(scratch, channel, examined));
        let picked = is_picked.and_then(|policy| self.picked_freely(send, policy, waiter));
        let may_retry = self.upstream.conn(backend_conn).has_been_idle() || picked.is_some();
        let may_resend = may_retry && exclusive && frame.flags().has(MessageFlags::RETRY);
        let client = self.inflight.get(request).session();
        let cost_bytes = self.request_cost_bytes(client);
        if let Waiter::Session(key) = waiter
            && !self.upstream.conn(backend_conn).is_dedicated()
        {
            self.spend_quantum(key, backend, cost_bytes);
        }
        self.inflight.get_mut(request).note_sent(SentRequest {
            number: number & number_mask(self.ctx.setup().protocol_of(channel).correlated()),
            kept,
            dedicated_conn: exclusive.then_some(backend_conn),
            cost_bytes,
            is_picked: is_picked.is_some(),
            picked,
            now_ns: self.io.now_ns(),
        });
        self.expect_first_reply(backend_conn, request, picked.is_some() && may_resend);
        let conn = self.upstream.conn_mut(backend_conn);
        conn.use_number();
        self.inflight.push(conn.requests_mut(), request, QueueOf::BackendConn);
        Ok((request, may_resend))
    }

    /// The connection for a pipelined request: the shared one; for a client with long replies a dedicated one, if one
    /// is free and the client has no other request in flight, which this one might overtake. A dedicated connection
    /// has nothing of the state that requests gave the shared one.
    fn lane(&mut self, backend: u32, waiter: Waiter) -> u32 {
        let shared = self.upstream.backend(backend as usize).shared();
        let Waiter::Session(key) = waiter else { return shared };
        let is_bulk = |stream: &Stream| stream.window().is_bulk() && stream.requests().is_empty();
        if !self.downstream.stream(key).is_some_and(is_bulk)
            || self.upstream.backend(backend as usize).is_stateful()
        {
            return shared;
        }
        let slots = self.upstream.backend(backend as usize).dedicated();
        let (all, conns) = (slots.len(), slots.map(|slot| self.upstream.conn(slot)));
        let in_use = conns.filter(|conn| !conn.is_idle() && !conn.is_down()).count();
        if in_use * BULK_CONNS_SHARE >= all {
            return shared;
        }
        self.borrow_conn(backend).unwrap_or(shared)
    }

    /// Something of a client is sent that leaves no entry in its queue: what follows must not overtake it.
    pub(super) fn pin_to_shared(&mut self, key: Key) {
        if let Some(stream) = self.downstream.stream_mut(key) {
            stream.window_mut().pin();
        }
    }

    /// A borrowed connection was not needed.
    fn give_back_unused(&mut self, backend_conn: u32, dedicated: bool) {
        if dedicated {
            self.give_back(backend_conn);
        }
    }

    /// Opens the entry of a request, or finds the one that it has.
    fn open_entry(
        &mut self,
        scratch: &Scratch,
        channel: usize,
        examined: bool,
        waiter: Waiter,
    ) -> Result<RequestId, Unsent> {
        match waiter {
            Waiter::InFlight(request) => Ok(request),
            Waiter::Session(key) => {
                let echo = self.echo_of(&scratch.frame);
                self.open_request(Some(key), echo, u64::MAX).ok_or(Unsent::Full)
            }
            Waiter::NoClient => {
                let echo = self.echo_of(&scratch.frame);
                self.open_request(None, echo, u64::MAX).ok_or(Unsent::Full)
            }
            Waiter::Ask { suspended, ask, deadline_ns } => {
                let frame = if examined { &scratch.other } else { &scratch.frame };
                let flags = frame.flags();
                if flags.has(MessageFlags::ONE_WAY) || flags.has(MessageFlags::ENDS) {
                    return Err(Unsent::Unanswerable);
                }
                let echo = echo_of(self.ctx.setup().protocol_of(channel), frame);
                let request = self.open_request(None, echo, u64::MAX).ok_or(Unsent::Full)?;
                self.inflight.get_mut(request).set_reply_target(ReplyTarget::Ask { suspended, ask });
                self.rules.suspended_mut().wait_for(suspended, ask, request, deadline_ns);
                Ok(request)
            }
        }
    }

    /// Number that a request keeps for its reply: that of the request which is sent, with the bits that the grammar
    /// takes from the client's own request (`%keep_client`).
    pub(super) fn kept_of_sent(&self, scratch: &Scratch, channel: usize, examined: bool) -> u64 {
        let own = scratch.frame.slots[SLOT_ASKED];
        if !examined {
            return own;
        }
        let (protocol, of_clients) = (self.ctx.setup().protocol_of(channel), self.ctx.setup().protocol());
        let of_client = if std::ptr::eq(protocol, of_clients) { protocol.keep_client } else { 0 };
        scratch.other.slots[SLOT_ASKED] & !of_client | own & of_client
    }

    /// Returns the fields to overwrite in a request on a backend connection: its number, and its non-quiet opcode.
    pub(super) fn request_patches(
        &self,
        scratch: &Scratch,
        channel: usize,
        examined: bool,
        number: u64,
    ) -> Patches {
        let protocol = self.ctx.setup().protocol_of(channel);
        let frame = if examined { &scratch.other } else { &scratch.frame };
        let non_quiet = frame.slots[SLOT_NON_QUIET];
        let patch = |field: Option<&EchoField>, value| field.map(|field| (field.request, value));
        [patch(protocol.correlated(), number), patch(protocol.made_non_quiet(), non_quiet)]
    }

    /// The echo fields of a parsed request of a session.
    pub(super) fn echo_of(&self, frame: &Frame) -> [u64; ECHO_FIELDS_MAX] {
        echo_of(self.ctx.setup().protocol(), frame)
    }

    /// The backend a send names; `None` for the session's own channel and for an element outside its array.
    pub(super) fn backend_of(&self, send: &Send) -> Option<u32> {
        self.upstream.backend_set().slot_of(send.channel, send.element)
    }

    /// Whether more than `bytes_max` bytes wait to be sent on a connection.
    #[inline]
    pub(super) fn is_clogged(&self, backend_conn: u32, bytes_max: usize) -> bool {
        let handle = self.upstream.conn(backend_conn).handle();
        handle.is_some_and(|handle| self.io.driver().backlog_bytes(handle) > bytes_max)
    }

    /// Whether more than `bytes_max` bytes wait on the connection that the next message for a backend takes. It may be
    /// an idle one: a message without a reply leaves it at once.
    pub(super) fn is_clogged_backend(&self, backend: u32, bytes_max: usize) -> bool {
        let conn = self.upstream.backend(backend as usize).next_conn();
        conn.is_some_and(|conn| self.is_clogged(conn, bytes_max))
    }

    /// Whether requests for a backend are sent.
    #[inline]
    pub(super) fn shared_conn_is_usable(&self, backend: u32) -> bool {
        self.upstream.is_usable(backend as usize)
    }
}

/// The echo fields of a parsed request of that protocol.
pub(super) fn echo_of(protocol: &Protocol, frame: &Frame) -> [u64; ECHO_FIELDS_MAX] {
    let mut echo = [0; ECHO_FIELDS_MAX];
    for (kept, field) in echo.iter_mut().zip(&protocol.echo) {
        *kept = frame.slots[usize::from(field.request.slot)];
    }
    echo
}

/// The part of a number that the correlate field can carry.
pub(super) fn number_mask(correlated: Option<&EchoField>) -> u64 {
    match correlated {
        Some(EchoField { request, .. }) if request.width_bytes < 8 => {
            (1 << (u64::from(request.width_bytes) * 8)) - 1
        }
        _ => u64::MAX,
    }
}
