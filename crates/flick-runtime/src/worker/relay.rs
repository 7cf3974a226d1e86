//! Relays: sessions of grammars that say nothing of requests and replies. Each has backend connections of its own, its
//! legs, which are connected when its first message for one is there; messages go both ways in the order they arrive.
//! Promises: constant memory, back-pressure both ways; messages of two backends never mix on their way to a client; the
//! client's end is passed on to its backends, a backend's end ends the session once everything is out; a parser that
//! is done with no bytes (a raw relay) has its rule run as soon as the connection is there.
//! Refuses: asks, and streaming one message to several connections.

use flick_abi::frame::SLOT_STATE;
use flick_abi::limits::FAILURE_BYTES_MAX;
use flick_abi::{FailureReason, Frame, FuncId, MessageFlags, ParseStep, Send, SendBody};
use flick_buffers::{BufClass, Slice};
use flick_net::Driver;

use super::Worker;
use super::deliver::append;
use super::health::warn_of;
use super::outgoing::{Outgoing, outgoing};
use super::rules::Start;
use crate::downstream::deadlines::DeadlineKind;
use crate::downstream::inbox::{Completeness, NextMessage, ParseSpec};
use crate::downstream::stream::{Upload, Wait};
use crate::io::WriteParts;
use crate::limits::SESSION_BACKLOG_BYTES_MAX;
use crate::observe::edge_counters::StartId;
use crate::observe::task_counters::TaskKind;
use crate::rules::scratch::Scratch;
use crate::run_queue::Flow;
use crate::slab::Key;
use crate::upstream::conn::RelayBody;

impl<D: Driver> Worker<D> {
    /// The client's side has its turn.
    pub(super) fn run_relay_session(&mut self, key: Key) {
        if !self.run_steps(TaskKind::Client, |worker| worker.relay_step(key)) {
            self.enqueue_session(key);
            return;
        }
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
        let now_ns = self.io.now_ns();
        if !mid_message || waits {
            self.relay_moves(key, false);
        } else if self.downstream.deadline(key) != Some(DeadlineKind::Message) {
            let deadline_ns = now_ns + self.ctx.setup().timeouts.client_request.as_nanos() as u64;
            self.set_deadline(key, DeadlineKind::Message, deadline_ns);
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

    fn relay_step(&mut self, key: Key) -> Flow {
        let Some(session) = self.downstream.client_mut(key) else { return Flow::Stop };
        if !session.takes_requests() {
            return Flow::Stop;
        }
        match session.stream().upload() {
            Upload::To { .. } => return self.forward_body(key),
            Upload::Discard { .. } => return self.discard_body(key),
            Upload::None if session.stream().relay_input_has_ended() => return Flow::Stop,
            Upload::None => {}
        }
        if session.stream().relay_sender().is_some() {
            // A rule might answer in the middle of what a backend is saying.
            return self.wait_for(key, Wait::Replies);
        }
        if self.io.driver().backlog_bytes(session.handle()) > SESSION_BACKLOG_BYTES_MAX {
            return self.wait_for(key, Wait::Client);
        }
        let full_conn =
            session.stream().full_conn().and_then(|backend_conn| self.upstream.conn(backend_conn).handle());
        if full_conn.is_some_and(|conn| self.io.driver().backlog_bytes(conn) > SESSION_BACKLOG_BYTES_MAX) {
            return self.block(key, None);
        }
        session.stream_mut().set_full_conn(None);
        let (channel, begins) = (self.ctx.setup().listened, session.stream_mut().begin_relay());
        let look = ParseSpec {
            parser: self.ctx.setup().view(channel).parse_request,
            asked: 0,
            wants: Completeness::All,
        };
        let mut scratch = self.rules.take_scratch();
        let Some(session) = self.downstream.client_mut(key) else { return Flow::Stop };
        let next = match begins && session.inbox().is_empty() {
            true => self.next_of_nothing(look.parser, &mut scratch.frame),
            false => {
                let tools = &mut self.io.request_context(self.ctx.setup(), self.tasks.huge_reserve());
                session.inbox_mut().next(tools, look, &mut scratch.frame)
            }
        };
        let flow = match next {
            NextMessage::Whole(message) => self.relay_message(key, &mut scratch, message, true),
            NextMessage::Large(seen) => self.relay_message(key, &mut scratch, seen, false),
            NextMessage::Starved => Flow::Stop,
            NextMessage::TooLong => panic!("a parser asks for a longer head than its bound"),
            NextMessage::Fault { field, cause, .. } => {
                tracing::debug!(field, why = cause.text(), "client sent what is not of the grammar");
                self.observe.counters().protocol_errors_client.add(1);
                self.relay_failed(key, cause.reason());
                Flow::Stop
            }
            NextMessage::NoBuffers => {
                self.observe.counters().exhausted.add(1);
                self.end_session(key, true);
                Flow::Stop
            }
            NextMessage::Waits => {
                self.tasks.need_huge();
                self.block(key, None)
            }
        };
        self.rules.return_scratch(scratch);
        flow
    }

    /// Whether a message that is all that comes on a connection has begun before its first byte.
    fn next_of_nothing(&self, parser: FuncId, frame: &mut Frame) -> NextMessage {
        frame.restart();
        let begins = self.ctx.setup().engine.parse(parser, frame, &[]) == ParseStep::Done
            && frame.flags().has(MessageFlags::UNTIL_CLOSE)
            && frame.head_bytes() == 0;
        if !begins {
            frame.slots[SLOT_STATE] = 0;
            return NextMessage::Starved;
        }
        self.io
            .pool()
            .alloc(BufClass::Small)
            .map_or(NextMessage::NoBuffers, |buf| NextMessage::Large(buf.slice(0..0)))
    }

    /// One message of a client: `seen` is all of it, or of a large one at least its head.
    fn relay_message(&mut self, key: Key, scratch: &mut Scratch, seen: Slice, whole: bool) -> Flow {
        let Some(session) = self.downstream.client(key) else { return Flow::Stop };
        let (channel, is_buffered) = (self.ctx.setup().listened, session.inbox().in_message());
        let paused = self.run_rules_of(key, scratch, &Start { channel, element: 0, message: seen.bytes() });
        assert!(paused.is_none(), "a rule of a relay never suspends");
        self.observe.edges().ran(StartId::channel(channel), scratch.sends.as_slice());
        let head = if whole || is_buffered { seen.len() } else { scratch.frame.head_bytes() as u32 };
        let message = seen.sub(0..head);
        if head > 0 {
            self.consume(key, head);
        }
        self.observe.counters().requests.add(1);
        let mut body = (!whole).then(|| self.body_behind(&scratch.frame, head));
        for at in 0..scratch.sends.as_slice().len() {
            let send = scratch.sends.as_slice()[at];
            let backend_conn = match self.relay_send(key, scratch, &send, &message) {
                Ok(backend_conn) => backend_conn,
                Err(reason) => {
                    self.drop_rest(body);
                    self.relay_failed(key, reason);
                    return Flow::Stop;
                }
            };
            let follows = !matches!(send.body, SendBody::Rebuilt { tail_from: u32::MAX, .. });
            if let Some(backend_conn) = backend_conn.filter(|_| follows)
                && let Some(rest) = body.take()
                && let Some(session) = self.downstream.client_mut(key)
            {
                let epoch = self.upstream.conn(backend_conn).epoch();
                session.stream_mut().set_upload(Upload::To { backend_conn, epoch, body: rest });
            }
        }
        if let Some(rest) = body
            && let Some(session) = self.downstream.client_mut(key)
        {
            session.stream_mut().set_upload(Upload::Discard { body: rest, bytes_max: u64::MAX });
        }
        if let Some(reason) = scratch.failure.filter(|_| scratch.sends.as_slice().is_empty()) {
            self.relay_failed(key, reason);
            return Flow::Stop;
        }
        Flow::Go
    }

    /// Forgets a body, if there is one.
    pub(super) fn drop_rest(&mut self, body: Option<crate::downstream::body::RemainingBody>) {
        if let Some(body) = body {
            self.drop_body(body);
        }
    }

    /// Sends a message where a rule says; to a backend: gives its connection.
    ///
    /// Errors: it cannot be reached, or the message is none.
    fn relay_send(
        &mut self,
        key: Key,
        scratch: &mut Scratch,
        send: &Send,
        message: &Slice,
    ) -> Result<Option<u32>, FailureReason> {
        if send.channel as usize == self.ctx.setup().listened {
            self.relay_answer(key, &outgoing(scratch, send.body, Some(message)));
            return Ok(None);
        }
        let backend_conn = self.relay_conn(key, send).ok_or(FailureReason::Unavailable)?;
        self.observe.backend(self.upstream.conn(backend_conn).backend() as usize).requests.add(1);
        let written = self.write_to_backend_conn(
            backend_conn,
            &outgoing(scratch, send.body, Some(message)),
            [None, None],
            None,
        );
        if !written {
            self.observe.counters().exhausted.add(1);
            return Err(FailureReason::Overload);
        }
        if self.is_clogged(backend_conn, SESSION_BACKLOG_BYTES_MAX)
            && let Some(session) = self.downstream.client_mut(key)
        {
            session.stream_mut().set_full_conn(Some(backend_conn));
        }
        Ok(Some(backend_conn))
    }

    /// Writes to a client, in no other order than this.
    fn relay_answer(&mut self, key: Key, message: &Outgoing<'_>) {
        let Some(session) = self.downstream.client_to_fill(key) else { return };
        self.observe.counters().replies.add(1);
        let conn = session.handle();
        let WriteParts { driver, pool, .. } = self.io.write_parts();
        let mut sent = 0;
        let mut emit = |slice: Slice| {
            sent += u64::from(slice.len());
            driver.send(conn, slice);
        };
        let written = append(pool, session.fill_mut(), BufClass::Small, message, [None, None], &mut emit);
        if let Some(rest) = &message.rest {
            emit(rest.clone());
        }
        session.note_sent(sent);
        if !written {
            self.observe.counters().exhausted.add(1);
            self.end_session(key, true);
        }
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
            self.observe.backend(backend as usize).failures.add(1);
            return None;
        };
        self.upstream.conn_mut(backend_conn).begin_relay_leg(key, send.element, first);
        if let Some(session) = self.downstream.client_mut(key) {
            session.stream_mut().set_relay_conns(Some(backend_conn));
        }
        Some(backend_conn)
    }

    /// A session cannot go on: its client gets the grammar's error response, if there is one, and the connection ends.
    fn relay_failed(&mut self, key: Key, reason: FailureReason) {
        match reason {
            FailureReason::Unavailable => self.observe.counters().errors_unavailable.add(1),
            FailureReason::Timeout => self.observe.counters().errors_timeout.add(1),
            FailureReason::Overload => self.observe.counters().errors_overload.add(1),
            FailureReason::Malformed
            | FailureReason::TooLong
            | FailureReason::Unsupported
            | FailureReason::NameTooLong => {
                self.observe.counters().errors_malformed.add(1);
            }
            FailureReason::Farewell => {}
        }
        let Some(session) = self.downstream.client(key) else { return };
        if session.stream().relay_sender().is_some() {
            self.end_session(key, true);
            return;
        }
        if let Some(builder) = self.ctx.setup().failure(reason) {
            let (frame, mut text) = (Frame::new(), [0; FAILURE_BYTES_MAX]);
            let len = self.ctx.setup().engine.build(builder, &frame, &mut text);
            self.relay_answer(key, &Outgoing { front: &text[..len], cuts: None, rest: None });
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
            self.drop_rest(body);
            self.enqueue_backend_conn(backend_conn);
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

    /// One step of a backend connection of a session.
    pub(super) fn relay_conn_step(&mut self, backend_conn: u32, key: Key) -> Flow {
        let Some(session) = self.downstream.client(key) else { return Flow::Stop };
        if !session.takes_requests()
            || session.stream().relay_sender().is_some_and(|sender| sender != backend_conn)
        {
            return Flow::Stop;
        }
        if self.io.driver().backlog_bytes(session.handle()) > SESSION_BACKLOG_BYTES_MAX {
            self.stall(backend_conn, key);
            return Flow::Stop;
        }
        let state = self.upstream.conn_mut(backend_conn);
        state.stall_mut().note_delivered();
        if state.relay_body().is_some() {
            return self.relay_reply_body(backend_conn, key);
        }
        let begins = state.take_fresh();
        let backend = self.upstream.backend_of(backend_conn);
        let (channel, element) = (backend.channel(), backend.element());
        let state = self.upstream.conn_mut(backend_conn);
        let Some(view) = &self.ctx.setup().program.channels[channel].view else {
            // The program never receives here; whatever comes is dropped with its framing unknown.
            self.io.clear_inbox(state.inbox_mut());
            return Flow::Stop;
        };
        let look = ParseSpec { parser: view.parse_reply, asked: 0, wants: Completeness::All };
        let mut scratch = self.rules.take_scratch();
        let next = match begins && state.inbox().is_empty() {
            true => self.next_of_nothing(look.parser, &mut scratch.frame),
            false => {
                state.inbox_mut().next(&mut self.io.parse_context(self.ctx.setup()), look, &mut scratch.frame)
            }
        };
        let start = (channel, element);
        let flow = match next {
            NextMessage::Whole(message) => {
                self.relay_reply(backend_conn, key, start, &mut scratch, message, true)
            }
            NextMessage::Large(seen) => self.relay_reply(backend_conn, key, start, &mut scratch, seen, false),
            NextMessage::Starved => Flow::Stop,
            NextMessage::TooLong => panic!("a parser asks for a longer head than its bound"),
            NextMessage::Fault { field, cause, .. } => {
                let why = cause.text();
                self.log_backend(backend_conn, |context| {
                    warn_of!(context, field, why, "backend sent what is not of the grammar")
                });
                self.observe.counters().protocol_errors_backend.add(1);
                self.fail_backend_conn(
                    backend_conn,
                    FailureReason::Unavailable,
                    Some(flick_abi::Event::Malformed),
                );
                Flow::Stop
            }
            NextMessage::NoBuffers => {
                self.observe.counters().exhausted.add(1);
                self.end_session(key, true);
                Flow::Stop
            }
            NextMessage::Waits => self.wait_for_huge(backend_conn),
        };
        self.rules.return_scratch(scratch);
        flow
    }

    /// One message of a backend for its session.
    fn relay_reply(
        &mut self,
        backend_conn: u32,
        key: Key,
        (channel, element): (usize, u64),
        scratch: &mut Scratch,
        seen: Slice,
        whole: bool,
    ) -> Flow {
        let paused = self.run_rules_of(key, scratch, &Start { channel, element, message: seen.bytes() });
        assert!(paused.is_none(), "a rule of a reply never suspends");
        self.observe.edges().ran(StartId::channel(channel), scratch.sends.as_slice());
        let is_buffered = self.upstream.conn(backend_conn).inbox().in_message();
        let head = if whole || is_buffered { seen.len() } else { scratch.frame.head_bytes() as u32 };
        let message = seen.sub(0..head);
        if head > 0 {
            self.consume_reply(backend_conn, head);
        }
        let mut is_delivered = false;
        for at in 0..scratch.sends.as_slice().len() {
            let send = scratch.sends.as_slice()[at];
            let to_client = send.channel as usize == self.ctx.setup().listened;
            is_delivered |= to_client && !matches!(send.body, SendBody::Rebuilt { tail_from: u32::MAX, .. });
            if let Err(reason) = self.relay_send(key, scratch, &send, &message) {
                self.relay_failed(key, reason);
                return Flow::Stop;
            }
        }
        if !whole {
            let body = self.body_behind(&scratch.frame, head);
            let conn = self.upstream.conn_mut(backend_conn);
            if conn.set_relay_body(Some(RelayBody { body, is_delivered })) {
                if let Some(stream) = self.downstream.stream_mut(key).filter(|_| is_delivered) {
                    stream.set_relay_sender(Some(backend_conn));
                }
            } else {
                self.drop_body(body);
            }
        }
        Flow::Go
    }

    /// Passes on what has arrived of a large message of a backend.
    fn relay_reply_body(&mut self, backend_conn: u32, key: Key) -> Flow {
        use super::bodies::{Piece, next_piece};
        let channel = self.upstream.backend_of(backend_conn).channel();
        let state = self.upstream.conn_mut(backend_conn);
        let Some(RelayBody { mut body, is_delivered }) = state.relay_body() else { return Flow::Go };
        let parser = self.ctx.setup().view(channel).parse_reply;
        let mut scratch = self.rules.take_scratch();
        let (mut context, bodies) = self.io.parse_body_context(self.ctx.setup());
        let frame = &mut scratch.frame;
        let piece = next_piece(state.inbox_mut(), &mut context, bodies, frame, &mut body, parser);
        state.set_relay_body((!body.is_over()).then_some(RelayBody { body, is_delivered }));
        let flow = match piece {
            Piece::Bytes(piece) => {
                if let Some(session) = self.downstream.client_mut(key).filter(|_| is_delivered) {
                    session.note_sent(u64::from(piece.len()));
                    self.io.driver_mut().send(session.handle(), piece);
                }
                Flow::Go
            }
            Piece::Head(head) => {
                if is_delivered {
                    let cuts = Some(&scratch.frame);
                    self.relay_answer(key, &Outgoing { front: head.bytes(), cuts, rest: None });
                }
                Flow::Go
            }
            Piece::Over => Flow::Go,
            Piece::Nothing => Flow::Stop,
            Piece::Fault { .. } => {
                self.observe.counters().protocol_errors_backend.add(1);
                self.fail_backend_conn(
                    backend_conn,
                    FailureReason::Unavailable,
                    Some(flick_abi::Event::Malformed),
                );
                Flow::Stop
            }
            Piece::NoBuffers => {
                self.observe.counters().exhausted.add(1);
                self.end_session(key, true);
                Flow::Stop
            }
        };
        self.rules.return_scratch(scratch);
        if flow == Flow::Go && body.is_over() {
            self.sender_is_done(key, backend_conn);
        }
        self.relay_session_moves(key);
        flow
    }

    /// A large message has gone to the client whole: others may speak.
    fn sender_is_done(&mut self, key: Key, backend_conn: u32) {
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

    fn relay_session_moves(&mut self, key: Key) {
        let Some(session) = self.downstream.client_mut(key) else { return };
        let is_half = session.stream().relay_input_has_ended();
        if self.downstream.deadline(key) != Some(DeadlineKind::Message) {
            self.relay_moves(key, is_half);
        }
    }

    /// A backend connection of a session has run out of work: whether it is over.
    pub(super) fn relay_conn_is_idle(&mut self, backend_conn: u32, key: Key) {
        let state = self.upstream.conn(backend_conn);
        let receive = !state.is_held();
        if !(receive && state.has_ended()) {
            self.backend_conn_receives(backend_conn, receive);
            return;
        }
        let Some(session) = self.downstream.client_mut(key) else { return };
        if session.stream().relay_sender().is_some_and(|sender| sender != backend_conn) {
            return;
        }
        let in_body = state.relay_body().is_some_and(|relay_body| !relay_body.body.is_until_close());
        if state.inbox().in_message() || in_body || state.handle().is_none() {
            if state.inbox().in_message() || in_body {
                self.observe.counters().truncated.add(1);
            }
            self.fail_backend_conn(backend_conn, FailureReason::Unavailable, Some(flick_abi::Event::Broken));
            return;
        }
        // Everything it said has gone out: so ends the session.
        let others = session.stream_mut().take_relay_conns();
        if let Upload::To { body, .. } = session.stream_mut().take_upload() {
            self.drop_body(body);
        }
        self.drop_relay_conns(others, Some(backend_conn));
        self.stop_reading(key);
        self.close_if_finished(key);
    }
}
