//! Relays: sessions of grammars that say nothing of requests and replies. Each has backend connections of its own, its
//! legs, which are connected when its first message for one is there; messages go both ways in the order they arrive.
//! Promises: constant memory, back-pressure both ways; messages of two backends never mix on their way to a client; the
//! client's end is passed on to its backends, a backend's end ends the session once everything is out; a parser that
//! is done with no bytes (a raw relay) has its rule run as soon as the connection is there.
//! Refuses: asks, and streaming one message to several connections.

use flick_abi::limits::FAILURE_BYTES_MAX;
use flick_abi::{Event, FailureReason, Frame, MessageFlags, Send};
use flick_buffers::Slice;
use flick_net::Driver;

use super::Worker;
use super::outgoing::{Outgoing, Rest, has_tail, outgoing};
use super::rules::Start;
use crate::downstream::body::RemainingBody;
use crate::downstream::deadlines::DeadlineKind;
use crate::downstream::stream::Upload;
use crate::limits::SESSION_BACKLOG_BYTES_MAX;
use crate::observe::backend_log::WhyDown;
use crate::observe::edge_counters::StartId;
use crate::rules::scratch::Scratch;
use crate::run_queue::Flow;
use crate::slab::Key;
use crate::upstream::conn::{Download, Recipient};

/// One end of a relay.
#[derive(Clone, Copy)]
pub(super) enum End {
    /// The client.
    Client,
    /// The backend of this leg.
    Backend(u32),
}

impl<D: Driver> Worker<D> {
    /// The client's side of a relay has nothing more to pass on.
    pub(super) fn relay_session_is_idle(&mut self, key: Key) {
        let Some(session) = self.downstream.client_mut(key) else { return };
        if !session.takes_requests() {
            self.io.clear_inbox(session.inbox_mut());
            self.close_if_finished(key);
            return;
        }
        let waits = session.stream().is_waiting();
        if session.has_ended() && !waits {
            self.client_is_over(key);
            return;
        }
        let (eof, mid_message) = (session.has_ended(), session.inbox().in_message());
        self.set_receiving(key, !waits && !eof);
        if mid_message && !waits {
            self.arm_message(key, true);
        } else if !(waits && self.downstream.deadline(key).is_some_and(DeadlineKind::is_of_tunnel)) {
            // One that waits has moved nothing by being woken.
            self.relay_moves(key, false);
        }
    }

    /// The client sends no more, and everything it sent has been handled: its end is passed on to its backends.
    fn client_is_over(&mut self, key: Key) {
        let Some(session) = self.downstream.client_mut(key) else { return };
        let in_body = match session.stream().upload() {
            Upload::To { body, .. } | Upload::Discard { body, .. } => !body.is_until_close(),
            Upload::None => false,
        };
        if session.inbox().in_message() || in_body {
            // The session is counted as truncated where it ends, if part of a message is kept.
            if in_body {
                self.observe.counters().truncated.add(1);
            }
            self.close_relay_conns(key);
            self.end_session(key, true);
            return;
        }
        session.stream_mut().set_upload(Upload::None);
        let is_first = session.stream_mut().end_relay_input();
        let mut backend_conn = session.stream().relay_conns();
        if backend_conn.is_none() {
            session.drain();
            self.close_if_finished(key);
            return;
        }
        self.set_receiving(key, false);
        self.downstream.clear_deadline(key);
        self.relay_moves(key, true);
        while let Some(at) = backend_conn.filter(|_| is_first) {
            if let Some(conn) = self.upstream.conn(at).handle() {
                self.io.driver_mut().shutdown(conn);
            }
            backend_conn = self.upstream.conn(at).next_leg();
        }
    }

    /// One message for the other ends: `seen` is all of it, or of a large one at least its head.
    pub(super) fn relay_message(
        &mut self,
        key: Key,
        from: End,
        scratch: &mut Scratch,
        seen: Slice,
        whole: bool,
    ) -> Flow {
        let Some(session) = self.downstream.client(key) else { return Flow::Stop };
        let (channel, element, inbox) = match from {
            End::Client => (self.ctx.setup().listened, 0, session.inbox()),
            End::Backend(backend_conn) => {
                let backend = self.upstream.backend_of(backend_conn);
                (backend.channel(), backend.element(), self.upstream.conn(backend_conn).inbox())
            }
        };
        let head = if whole { seen.len() } else { inbox.head_of(&seen, &scratch.frame) };
        let paused = self.run_rules_of(key, scratch, &Start { channel, element, message: seen.bytes() });
        assert!(paused.is_none(), "a rule of a relay never suspends");
        self.observe.edges().ran(StartId::channel(channel), scratch.sends.as_slice());
        let message = seen.sub(0..head);
        match from {
            End::Client => self.observe.counters().requests.add(1),
            End::Backend(_) => self.relay_has_moved(key),
        }
        match from {
            _ if head == 0 => {}
            End::Client => self.consume(key, head, 0),
            End::Backend(backend_conn) => self.consume_reply(backend_conn, head),
        }
        let Some((to_client, to_backend)) = self.relay_sends(key, from, scratch, &message) else {
            return Flow::Stop;
        };
        if whole || self.downstream.client(key).is_none() {
            return Flow::Go;
        }
        let body = self.body_behind(&scratch.frame, head);
        match from {
            End::Client => self.begin_relay_upload(key, to_backend, body),
            End::Backend(backend_conn) => {
                let to = Recipient::Client(key);
                let download = Download { to, body, last: true, is_delivered: to_client, drain_max: None };
                self.begin_download(backend_conn, download);
                let follows = self.upstream.conn(backend_conn).download().is_some();
                if let Some(stream) = self.downstream.stream_mut(key).filter(|_| to_client && follows) {
                    stream.set_relay_sender(Some(backend_conn));
                }
            }
        }
        Flow::Go
    }

    /// Carries out what the rules of a message have sent, or fails the session. Returns where the rest of a large
    /// message goes: whether to the client, and to which backend connection. `None`: the session has failed.
    pub(super) fn relay_sends(
        &mut self,
        key: Key,
        from: End,
        scratch: &Scratch,
        message: &Slice,
    ) -> Option<(bool, Option<u32>)> {
        let (mut to_client, mut to_backend) = (false, None);
        for send in scratch.sends.as_slice() {
            match self.relay_send(key, scratch, send, message) {
                Ok(End::Client) => to_client |= has_tail(send.body),
                Ok(End::Backend(conn)) => to_backend = to_backend.or(has_tail(send.body).then_some(conn)),
                Err(reason) => {
                    self.relay_failed(key, reason);
                    return None;
                }
            }
        }
        if let (End::Client, true, Some(reason)) =
            (from, scratch.sends.as_slice().is_empty(), scratch.failure)
        {
            self.relay_failed(key, reason);
            return None;
        }
        Some((to_client, to_backend))
    }

    /// The head of a large message of a client has gone to its backend, if it goes to one; the rest follows.
    fn begin_relay_upload(&mut self, key: Key, to: Option<u32>, body: RemainingBody) {
        let upload = match to {
            Some(backend_conn) => {
                let epoch = self.upstream.conn(backend_conn).epoch();
                Upload::To { backend_conn, epoch, body }
            }
            None => Upload::Discard { body, bytes_max: u64::MAX },
        };
        if let Some(stream) = self.downstream.stream_mut(key) {
            stream.set_upload(upload);
        }
    }

    /// Sends a message where a rule says. Returns where that was.
    ///
    /// Errors: its backend cannot be reached, or buffers are out.
    fn relay_send(
        &mut self,
        key: Key,
        scratch: &Scratch,
        send: &Send,
        message: &Slice,
    ) -> Result<End, FailureReason> {
        let message = &outgoing(scratch, send.body, Some(message));
        if send.channel as usize == self.ctx.setup().listened {
            self.deliver_message(Recipient::Client(key), message, MessageFlags::default(), [None, None]);
            return Ok(End::Client);
        }
        let backend_conn = self.relay_conn(key, send).ok_or(FailureReason::Unavailable)?;
        self.observe.backend(self.upstream.conn(backend_conn).backend() as usize).requests.add(1);
        if !self.write_to_backend_conn(backend_conn, message, [None, None], None) {
            self.observe.counters().exhausted.add(1);
            return Err(FailureReason::Overload);
        }
        self.note_full(key, backend_conn, SESSION_BACKLOG_BYTES_MAX);
        Ok(End::Backend(backend_conn))
    }

    /// The session's leg to the element that a send names, connected now if it has none. A leg stays the element's when
    /// its channel gets another list.
    fn relay_conn(&mut self, key: Key, send: &Send) -> Option<u32> {
        let first = self.downstream.stream(key)?.relay_conns();
        let mut at = first;
        while let Some(backend_conn) = at {
            let conn = self.upstream.conn(backend_conn);
            let channel = self.upstream.backend_of(backend_conn).channel();
            if channel == send.channel as usize && conn.relay_element() == Some(send.element) {
                return Some(backend_conn);
            }
            at = conn.next_leg();
        }
        let backend = self.backend_of(send)?;
        let Some(backend_conn) = self.borrow_exclusive(backend) else {
            let at = backend as usize;
            self.observe.backend(at).failures.add(1);
            let why = self.upstream.backend_mut(at).take_why_down();
            self.ctx.setup().backend_log.note_lost(at, why);
            return None;
        };
        let is_picked = self.takes_pick(send).is_some();
        self.upstream.conn_mut(backend_conn).begin_relay_leg(key, send.element, first, is_picked);
        if let Some(session) = self.downstream.client_mut(key) {
            session.stream_mut().set_relay_conns(Some(backend_conn));
        }
        Some(backend_conn)
    }

    /// A session cannot go on: its client gets the grammar's error response, if there is one, and the connection ends.
    pub(super) fn relay_failed(&mut self, key: Key, reason: FailureReason) {
        self.count_error(reason);
        let Some(session) = self.downstream.client(key) else { return };
        let is_inside_reply = session.stream().relay_sender().is_some();
        if let FailureReason::Malformed
        | FailureReason::TooLong
        | FailureReason::Unsupported
        | FailureReason::NameTooLong = reason
        {
            self.observe.counters().errors_malformed.add(1);
            self.close_relay_conns(key);
        }
        if is_inside_reply {
            self.end_session(key, true);
            return;
        }
        if let Some(builder) = self.ctx.setup().failure(reason) {
            let (frame, mut text) = (Frame::new(), [0; FAILURE_BYTES_MAX]);
            let len = self.ctx.setup().engine.build(builder, &frame, &mut text);
            let answer = Outgoing { front: &text[..len], cuts: None, rest: Rest::Nothing };
            self.deliver_message(Recipient::Client(key), &answer, MessageFlags::default(), [None, None]);
        }
        self.release_relay_conns(key);
        self.stop_reading(key);
        self.close_if_finished(key);
    }

    /// The session has no use for its backend connections any more.
    pub(super) fn release_relay_conns(&mut self, key: Key) {
        let Some(session) = self.downstream.client_mut(key) else { return };
        let first = session.stream_mut().take_relay_conns();
        self.drop_relay_conns(first, None);
    }

    /// Ends the legs of a session that is over; the backend of leg `ended` has closed in order.
    pub(super) fn drop_relay_conns(&mut self, first: Option<u32>, ended: Option<u32>) {
        let mut at = first;
        while let Some(backend_conn) = at {
            let in_order = ended == Some(backend_conn);
            let (next, body) = self.upstream.conn_mut(backend_conn).leave_relay(in_order);
            at = next;
            self.drop_body(body);
            self.enqueue_backend_conn(backend_conn);
        }
    }

    /// The client has ended inside a message, or has sent none: the messages before go to its backends, which then see
    /// the end.
    pub(super) fn close_relay_conns(&mut self, key: Key) {
        let Some(session) = self.downstream.client_mut(key) else { return };
        let mut at = session.stream_mut().take_relay_conns();
        while let Some(backend_conn) = at {
            let conn = self.upstream.conn_mut(backend_conn);
            let (next, body) = conn.leave_relay(true);
            let handle = conn.take_handle();
            at = next;
            self.drop_body(body);
            if let Some(handle) = handle {
                self.io.driver_mut().close(handle);
            }
            self.close_backend_conn(backend_conn, FailureReason::Unavailable, None);
        }
    }

    /// A leg of a session has closed; `next` was behind it.
    pub(super) fn relay_conn_lost(&mut self, key: Key, backend_conn: u32, next: Option<u32>, was_up: bool) {
        let Some(session) = self.downstream.client_mut(key) else { return };
        let is_sender = session.stream().relay_sender() == Some(backend_conn);
        let mut at = session.stream().relay_conns();
        if at == Some(backend_conn) {
            session.stream_mut().set_relay_conns(next);
            at = None;
        }
        while let Some(before) = at {
            at = self.upstream.conn(before).next_leg();
            if at == Some(backend_conn) {
                self.upstream.conn_mut(before).set_next_leg(next);
                break;
            }
        }
        if was_up || is_sender {
            self.end_session(key, true);
        } else {
            self.relay_failed(key, FailureReason::Unavailable);
        }
    }

    /// A large message has gone to the client whole: others may speak.
    pub(super) fn sender_is_done(&mut self, key: Key, backend_conn: u32) {
        let Some(session) = self
            .downstream
            .client_mut(key)
            .filter(|session| session.stream().relay_sender() == Some(backend_conn))
        else {
            return;
        };
        session.stream_mut().set_relay_sender(None);
        let mut at = session.stream().relay_conns();
        self.enqueue_session(key);
        while let Some(backend_conn) = at {
            self.enqueue_backend_conn(backend_conn);
            at = self.upstream.conn(backend_conn).next_leg();
        }
    }

    /// Bytes of a backend have moved: the session is not idle.
    pub(super) fn relay_has_moved(&mut self, key: Key) {
        let Some(stream) = self.downstream.stream(key) else { return };
        let is_half = stream.relay_input_has_ended();
        if self.downstream.deadline(key) != Some(DeadlineKind::Message) {
            self.relay_moves(key, is_half);
        }
    }

    /// All that the backend of a leg sent has been handled, and it has closed its side, or the connection is lost.
    pub(super) fn leg_ended(&mut self, backend_conn: u32, key: Key) {
        let Some(session) = self.downstream.client_mut(key) else { return };
        if session.stream().relay_sender().is_some_and(|sender| sender != backend_conn) {
            return;
        }
        let conn = self.upstream.conn(backend_conn);
        let is_truncated = conn.inbox().in_message()
            || conn.download().is_some_and(|download| !download.body.is_until_close());
        if is_truncated || conn.handle().is_none() {
            self.observe.counters().truncated.add(u64::from(is_truncated));
            self.fail_backend_conn(backend_conn, FailureReason::Unavailable, Some(Event::Broken));
            return;
        }
        if !session.stream().relay_input_has_ended() {
            self.ctx.setup().backend_log.note_lost(conn.backend() as usize, WhyDown::Closed);
        }
        // Everything it said has gone out: so ends the session.
        let others = session.stream_mut().take_relay_conns();
        if let Upload::To { body, .. } | Upload::Discard { body, .. } = session.stream_mut().take_upload() {
            self.drop_body(body);
        }
        self.drop_relay_conns(others, Some(backend_conn));
        self.stop_reading(key);
        self.close_if_finished(key);
    }
}
