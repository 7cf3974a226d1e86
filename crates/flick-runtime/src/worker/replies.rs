//! The backend's side: bytes from a backend become replies, and each goes to the request the ledger names.
//! Promises: a reply that the ledger does not expect closes its connection; nothing of it reaches a client.

use std::time::Duration;

use flick_abi::limits::ECHO_FIELDS_MAX;
use flick_abi::{Event, FailureReason, Frame, MessageFlags, ParseStep, SendBody, WireField};
use flick_buffers::Slice;
use flick_net::Driver;

use super::Worker;
use super::bodies::{Piece, next_piece};
use super::deliver::{reply_patches, restore_echo};
use super::health::warn_of;
use super::outgoing::{Outgoing, outgoing};
use super::reply_flags::Verdict;
use super::rules::Start;
use super::sending::number_mask;
use crate::downstream::inbox::{Completeness, NextMessage, ParseSpec};
use crate::inflight::{ReplyTarget, RequestId};
use crate::limits::{CALM_SHARE, IMPATIENCE_SHIFT_MAX, TUNNEL_IDLE_MS};
use crate::observe::access_log::AnsweredBy;
use crate::observe::edge_counters::StartId;
use crate::observe::task_counters::TaskKind;
use crate::rules::scratch::Scratch;
use crate::run_queue::Flow;
use crate::upstream::backend::{BackendConnState, Download};

/// A reply as it is heard.
#[derive(Clone, Copy)]
pub(super) struct DeliveredTo {
    /// The connection.
    pub backend_conn: u32,
    /// Its channel.
    pub channel: usize,
    /// What it answers.
    pub request: RequestId,
}

impl<D: Driver> Worker<D> {
    pub(super) fn backend_data(&mut self, backend_conn: u32, data: Slice) {
        let state = &mut self.upstream.conns[backend_conn];
        if let Some(request) = state.requests.front() {
            // Something of a reply has come: it is not sent again.
            self.io.pieces_mut().clear(&mut self.inflight.table.get_mut(request).resend);
        }
        if !state.inbox.push(self.io.pieces_mut(), data) {
            self.observe.counters().exhausted.add(1);
            self.fail_backend_conn(backend_conn, flick_abi::FailureReason::Overload, Some(Event::Broken));
            return;
        }
        self.enqueue_backend_conn(backend_conn);
    }

    pub(super) fn run_backend_conn(&mut self, backend_conn: u32) {
        let state = &mut self.upstream.conns[backend_conn];
        state.queued = false;
        state.wants_huge = false;
        if state.state != BackendConnState::Up {
            self.run_refused_backend_conn(backend_conn);
            return;
        }
        self.unstall(backend_conn);
        if !self.run_steps(TaskKind::Backend, |worker| worker.backend_conn_step(backend_conn)) {
            self.enqueue_backend_conn(backend_conn);
            return;
        }
        let state = &mut self.upstream.conns[backend_conn];
        if state.state != BackendConnState::Up {
            return;
        }
        let receive = state.stalled.is_none() && !state.wants_huge;
        if let Some(key) = state.tunnel {
            self.backend_conn_receives(backend_conn, receive);
            self.tunnel_is_idle(backend_conn, key);
            return;
        }
        if let Some(key) = state.client_of {
            self.relay_conn_is_idle(backend_conn, key);
            return;
        }
        if receive && state.eof {
            let mut event = if state.conn.is_some() { Event::Closed } else { Event::Broken };
            let until_close = state.download.filter(|download| download.body.is_until_close());
            if let Some(download) = until_close.filter(|_| state.conn.is_some()) {
                self.reply_ends_with_conn(backend_conn, download);
                return;
            }
            if state.inbox.in_message() || state.download.is_some() {
                self.observe.counters().truncated.add(1);
                event = Event::Broken;
            }
            self.fail_backend_conn(backend_conn, flick_abi::FailureReason::Unavailable, Some(event));
        } else {
            self.backend_conn_receives(backend_conn, receive);
        }
    }

    pub(super) fn backend_conn_receives(&mut self, backend_conn: u32, receive: bool) {
        let state = &mut self.upstream.conns[backend_conn];
        if state.receiving != receive
            && let Some(conn) = state.conn
        {
            state.receiving = receive;
            self.io.driver_mut().receive(conn, receive);
        }
    }

    fn backend_conn_step(&mut self, backend_conn: u32) -> Flow {
        let state = &mut self.upstream.conns[backend_conn];
        if state.state != BackendConnState::Up {
            return Flow::Stop;
        }
        if state.is_abandoned {
            return self.end_abandoned(backend_conn);
        }
        if let Some(key) = state.tunnel {
            return self.tunnel_back(backend_conn, key);
        }
        if let Some(key) = state.client_of {
            return self.relay_conn_step(backend_conn, key);
        }
        if let Some(download) = state.download {
            return self.forward_reply_body(backend_conn, download);
        }
        let exclusive = self.upstream.backends[state.backend as usize].exclusive;
        if exclusive && state.requests.is_empty() {
            if state.inbox.is_empty() {
                return Flow::Stop;
            }
            self.log_backend(backend_conn, |context| warn_of!(context, "backend sent what nobody asked for"));
            //= RFC 9112 section 9.2
            //# the client MUST NOT consider that data to be a valid response
            return self.backend_fault(backend_conn);
        }
        let channel = self.upstream.backends[state.backend as usize].channel;
        let Some(view) = &self.ctx.setup().program.channels[channel].view else {
            // The program never receives here; whatever comes is dropped with its framing unknown.
            self.io.clear_inbox(&mut state.inbox);
            return Flow::Stop;
        };
        let entry = state.requests.front().map(|request| self.inflight.table.get(request));
        if !state.inbox.in_message() {
            state.buffers_reply =
                entry.is_some_and(|entry| matches!(entry.reply_target, ReplyTarget::Ask { .. }));
        }
        let parser = if state.buffers_reply { view.parse_asked } else { view.parse_reply };
        let asked = entry.map_or(0, |entry| entry.kept);
        let wants = if exclusive && !state.buffers_reply { Completeness::Head } else { Completeness::All };
        let look = ParseSpec { parser, asked, wants };
        let mut scratch = self.rules.take_scratch();
        let next = state.inbox.next(&mut self.io.parse_context(self.ctx.setup()), look, &mut scratch.frame);
        let flow = match next {
            NextMessage::Whole(message) => self.reply(backend_conn, channel, &mut scratch, message, true),
            NextMessage::Large(seen) => self.reply(backend_conn, channel, &mut scratch, seen, false),
            NextMessage::Starved => Flow::Stop,
            NextMessage::TooLong => self.reply_too_long(backend_conn),
            NextMessage::Fault { field, cause, .. } => {
                let why = cause.text();
                self.log_backend(backend_conn, |context| {
                    warn_of!(context, field, why, "backend sent what is not of the grammar")
                });
                self.backend_fault(backend_conn)
            }
            NextMessage::NoBuffers => {
                self.observe.counters().exhausted.add(1);
                self.fail_backend_conn(backend_conn, flick_abi::FailureReason::Overload, Some(Event::Broken));
                Flow::Stop
            }
            NextMessage::Waits => self.wait_for_huge(backend_conn),
        };
        self.rules.return_scratch(scratch);
        flow
    }

    /// Ends a connection whose client has gone.
    fn end_abandoned(&mut self, backend_conn: u32) -> Flow {
        let state = &self.upstream.conns[backend_conn];
        self.observe.counters().late_replies.add(u64::from(!state.requests.is_empty()));
        if state.is_last && state.requests.is_empty() {
            self.retire_backend_conn(backend_conn);
        } else {
            self.fail_backend_conn(backend_conn, flick_abi::FailureReason::Unavailable, None);
        }
        Flow::Stop
    }

    /// A reply on a connection needs a huge buffer, and none is free: it is received from again when one is, or, if
    /// that takes too long, ended by the deadline of the reply.
    pub(super) fn wait_for_huge(&mut self, backend_conn: u32) -> Flow {
        let state = &mut self.upstream.conns[backend_conn];
        state.wants_huge = true;
        self.tasks.need_huge();
        if !std::mem::replace(&mut state.is_listed, true) {
            self.upstream.stalled.push(backend_conn);
        }
        Flow::Stop
    }

    /// The reply to an ask is longer than what is kept whole: the ask fails, and the reply is drained as any other.
    fn reply_too_long(&mut self, backend_conn: u32) -> Flow {
        let state = &mut self.upstream.conns[backend_conn];
        assert!(state.buffers_reply, "a parser asks for a longer head than its bound");
        let front =
            state.requests.front().map(|request| (request, self.inflight.table.get(request).reply_target));
        if !state.inbox.unbuffer(&mut self.io.parse_context(self.ctx.setup())) {
            self.observe.counters().exhausted.add(1);
            self.fail_backend_conn(backend_conn, flick_abi::FailureReason::Overload, Some(Event::Broken));
            return Flow::Stop;
        }
        if let Some((request, ReplyTarget::Ask { suspended, ask })) = front {
            self.inflight.table.get_mut(request).reply_target = ReplyTarget::Nothing;
            self.ask_failed(suspended, ask, flick_abi::FailureReason::Overload);
        }
        self.leave_exchange(backend_conn);
        Flow::Go
    }

    /// Nobody hears the rest of what comes on a connection: if it carries nothing else, it is ended.
    pub(super) fn leave_exchange(&mut self, backend_conn: u32) {
        let state = &mut self.upstream.conns[backend_conn];
        state.is_abandoned = self.upstream.backends[state.backend as usize].exclusive;
    }

    fn backend_fault(&mut self, backend_conn: u32) -> Flow {
        self.observe.counters().protocol_errors_backend.add(1);
        self.fail_backend_conn(backend_conn, flick_abi::FailureReason::Unavailable, Some(Event::Malformed));
        Flow::Stop
    }

    /// One reply: `seen` is all of it, or of a large one at least its head.
    fn reply(
        &mut self,
        backend_conn: u32,
        channel: usize,
        scratch: &mut Scratch,
        seen: Slice,
        whole: bool,
    ) -> Flow {
        let Some(request) = self.upstream.conns[backend_conn].requests.front() else {
            self.log_backend(backend_conn, |context| {
                warn_of!(context, "backend sent a reply that nobody asked for")
            });
            return self.backend_fault(backend_conn);
        };
        let to = DeliveredTo { backend_conn, channel, request };
        let entry = self.inflight.table.get(request);
        if !self.has_number(channel, &scratch.frame, entry.number) {
            self.log_backend(backend_conn, |context| {
                warn_of!(context, "backend answered another request than the next one")
            });
            return self.backend_fault(backend_conn);
        }
        if let ReplyTarget::Ask { suspended, ask } = entry.reply_target {
            return self.ask_reply(to, scratch, (suspended, ask), seen, whole);
        }
        if let Some(key) = self.held_up_by(backend_conn, request) {
            self.stall(backend_conn, key);
            return Flow::Stop;
        }
        self.upstream.conns[backend_conn].stall_grace = None;
        let (echo, is_delivered, begun) = (entry.echo, entry.session.is_some(), entry.begun);
        let flags = self.examined_flags(channel, &mut scratch.frame, &echo, &seen);
        let (last, silent) = (!flags.has(MessageFlags::MORE), flags.has(MessageFlags::SILENT));
        if !self.note_end_of_exchange(backend_conn, flags, is_delivered) {
            return self.backend_fault(backend_conn);
        }
        let epoch = self.upstream.conns[backend_conn].epoch;
        self.count_reply(request, is_delivered, begun, silent);
        if whole {
            self.consume_reply(backend_conn, seen.len());
            if is_delivered && !silent {
                self.pass_reply(to, scratch, &seen);
            }
            if self.upstream.conns[backend_conn].epoch != epoch {
                // Its client has been given up, and the connection with it.
                return Flow::Stop;
            }
            if last {
                self.reply_was_last(backend_conn, request);
            }
            return Flow::Go;
        }
        let is_buffered = self.upstream.conns[backend_conn].inbox.in_message();
        let head = if is_buffered { seen.len() } else { scratch.frame.head_bytes() as u32 };
        let body = self.body_behind(&scratch.frame, head);
        self.consume_reply(backend_conn, head);
        self.observe.counters().streamed.add(1);
        let passed = is_delivered && !silent && self.pass_reply(to, scratch, &seen.sub(0..head));
        if self.upstream.conns[backend_conn].epoch != epoch {
            self.drop_body(body);
            return Flow::Stop;
        }
        self.inflight.table.get_mut(request).begun |= passed;
        self.begin_download(backend_conn, Download { request, body, last, is_delivered: passed });
        Flow::Go
    }

    /// Counts a reply that its client does not get. `begun`: it follows the first reply to a question of a rule.
    fn count_reply(&mut self, request: RequestId, is_delivered: bool, begun: bool, silent: bool) {
        if !is_delivered {
            self.observe.counters().late_replies.add(u64::from(!begun));
        } else if silent {
            self.observe.counters().replies_suppressed.add(1);
            self.log_outcome(request, AnsweredBy::Backend);
        }
    }

    /// What a reply's own grammar says of it, its echo fields put back to what its client asked with.
    fn examined_flags(
        &self,
        channel: usize,
        reply: &mut Frame,
        echo: &[u64; ECHO_FIELDS_MAX],
        seen: &Slice,
    ) -> MessageFlags {
        let protocol = self.ctx.setup().protocol_of(channel);
        if std::ptr::eq(protocol, self.ctx.setup().protocol()) {
            restore_echo(reply, &protocol.echo, echo);
        }
        if let Some(judge) = self.ctx.setup().view(channel).reply_flags {
            let step = self.ctx.setup().engine.parse(judge, reply, seen.bytes());
            assert!(step == ParseStep::Done, "a reply's flags are judged on what has been parsed");
        }
        reply.flags()
    }

    /// Whether a reply has the number of the request that is to be answered next, if the protocol has numbers.
    fn has_number(&self, channel: usize, reply: &Frame, number: u64) -> bool {
        let correlate = &self.ctx.setup().protocol_of(channel).correlate;
        let found = |field: &WireField| reply.slots[usize::from(field.slot)] & number_mask(correlate);
        correlate.as_ref().is_none_or(|field| found(field) == number)
    }

    /// The head of a reply has gone on; the rest follows.
    fn begin_download(&mut self, backend_conn: u32, download: Download) {
        if download.body.is_over() {
            self.reply_body_over(backend_conn, download);
            return;
        }
        let state = &mut self.upstream.conns[backend_conn];
        state.download = Some(download);
        if state.dedicated && !state.uploading {
            self.expect_piece(backend_conn, download.request);
        }
    }

    /// What becomes of a connection behind the reply under way. `false`: it says what it cannot say there.
    fn note_end_of_exchange(&mut self, backend_conn: u32, flags: MessageFlags, is_delivered: bool) -> bool {
        let state = &mut self.upstream.conns[backend_conn];
        state.is_last |= flags.has(MessageFlags::LAST) || flags.has(MessageFlags::UNTIL_CLOSE);
        if flags.has(MessageFlags::TUNNEL) {
            // A shared connection is not one client's; nor does a request end in the middle of its body.
            if !state.dedicated || state.uploading {
                return false;
            }
            state.becomes_tunnel = is_delivered && !flags.has(MessageFlags::SILENT);
        }
        true
    }

    pub(super) fn consume_reply(&mut self, backend_conn: u32, bytes: u32) {
        self.upstream.conns[backend_conn].inbox.consume(&mut self.io.parse_context(self.ctx.setup()), bytes);
    }

    /// Runs the rules on a reply and passes it on as they say; says whether the original goes to the client, so that
    /// the rest of a large one follows.
    fn pass_reply(&mut self, is_delivered: DeliveredTo, scratch: &mut Scratch, message: &Slice) -> bool {
        let DeliveredTo { backend_conn, channel, request } = is_delivered;
        let element = self.upstream.backends[self.upstream.conns[backend_conn].backend as usize].element;
        let entry = self.inflight.table.get(request);
        let (session, echo, kept) = (entry.session, entry.echo, entry.kept);
        let Some(session) = session else { return false };
        let paused =
            self.run_rules_of(session, scratch, &Start { channel, element, message: message.bytes() });
        assert!(paused.is_none(), "a rule of a reply waits for nobody");
        self.observe.edges().ran(StartId::channel(channel), scratch.sends.as_slice());
        let (patches, listened) = (reply_patches(self.ctx.setup(), &echo), self.ctx.setup().listened);
        let (mut follows, mut answered) = (false, false);
        for at in 0..scratch.sends.as_slice().len() {
            let send = scratch.sends.as_slice()[at];
            if send.channel as usize != listened {
                continue;
            }
            match self.judge(scratch, send.body, Some(message), (&echo, kept)) {
                Verdict::DeliveredTo => {}
                Verdict::DeliveredAndLast => self.upstream.conns[backend_conn].is_last = true,
                Verdict::Silent => {
                    self.observe.counters().replies_suppressed.add(1);
                    continue;
                }
                Verdict::Wrong => {
                    scratch.failure = scratch.failure.or(Some(FailureReason::Unavailable));
                    continue;
                }
            }
            answered = true;
            self.log_outcome(request, AnsweredBy::Backend);
            self.deliver_message(request, &outgoing(scratch, send.body, Some(message)), patches);
            follows |= !matches!(send.body, SendBody::Rebuilt { tail_from: u32::MAX, .. });
        }
        if let Some(reason) = scratch.failure.filter(|_| !answered) {
            // That a reply has no room for what a rule adds to it is not its client's doing.
            let reason = if reason == FailureReason::TooLong { FailureReason::Unavailable } else { reason };
            self.deliver_failure(request, reason);
        }
        follows
    }

    fn forward_reply_body(&mut self, backend_conn: u32, download: Download) -> Flow {
        let Download { request, mut body, last: _, is_delivered } = download;
        if is_delivered && let Some(key) = self.held_up_by(backend_conn, request) {
            self.stall(backend_conn, key);
            return Flow::Stop;
        }
        let state = &mut self.upstream.conns[backend_conn];
        state.stall_grace = None;
        let epoch = state.epoch;
        let channel = self.upstream.backends[state.backend as usize].channel;
        let parser = self.ctx.setup().view(channel).parse_reply;
        let mut scratch = self.rules.take_scratch();
        let (mut context, bodies) = self.io.parse_body_context(self.ctx.setup());
        let frame = &mut scratch.frame;
        let piece = next_piece(&mut state.inbox, &mut context, bodies, frame, &mut body, parser);
        let (is_nothing, uploading) = (matches!(piece, Piece::Nothing), state.uploading);
        let download = Download { body, ..download };
        state.download = (!body.is_over()).then_some(download);
        if !is_nothing && !uploading {
            self.expect_piece(backend_conn, request);
        }
        let flow = match piece {
            Piece::Bytes(piece) => {
                if is_delivered {
                    self.deliver_piece(request, piece);
                }
                Flow::Go
            }
            Piece::Head(head) => {
                if is_delivered {
                    let message = Outgoing { front: head.bytes(), cuts: Some(&scratch.frame), rest: None };
                    self.deliver_bytes(request, &message, [None, None]);
                }
                Flow::Go
            }
            Piece::Over => Flow::Go,
            Piece::Nothing => Flow::Stop,
            Piece::Fault { field, cause } => {
                let why = cause.text();
                self.log_backend(backend_conn, |context| {
                    warn_of!(context, field, why, "backend sent a body that is not of the grammar")
                });
                self.backend_fault(backend_conn)
            }
            Piece::NoBuffers => {
                self.observe.counters().exhausted.add(1);
                self.fail_backend_conn(backend_conn, flick_abi::FailureReason::Overload, Some(Event::Broken));
                Flow::Stop
            }
        };
        self.rules.return_scratch(scratch);
        if self.upstream.conns[backend_conn].epoch != epoch {
            // Its client has been given up, and the connection with it.
            return Flow::Stop;
        }
        if flow == Flow::Go && body.is_over() {
            self.reply_body_over(backend_conn, download);
        }
        flow
    }

    /// All of a reply with a body has been passed on.
    fn reply_body_over(&mut self, backend_conn: u32, download: Download) {
        if download.last {
            self.reply_was_last(backend_conn, download.request);
        }
    }

    /// The backend has closed in good order behind a reply that ends so: the same must be told to the client, whose
    /// connection ends with it.
    fn reply_ends_with_conn(&mut self, backend_conn: u32, download: Download) {
        self.upstream.conns[backend_conn].download = None;
        if download.is_delivered
            && let Some(key) = self.inflight.table.get(download.request).session
        {
            self.stop_reading(key);
        }
        self.reply_was_last(backend_conn, download.request);
        if self.upstream.conns[backend_conn].state == BackendConnState::Up {
            self.retire_backend_conn(backend_conn);
        }
    }

    /// Takes a request off its connection's recorder, and gives a lent connection back or ends it.
    pub(super) fn reply_was_last(&mut self, backend_conn: u32, request: RequestId) {
        let state = &mut self.upstream.conns[backend_conn];
        let popped = self.inflight.table.pop_backend_conn(&mut state.requests, self.io.pieces_mut());
        assert!(popped == Some(request), "replies are booked in the order of their requests");
        let unsent = state.conn.is_some_and(|conn| self.io.driver().backlog_bytes(conn) > 0);
        let (dedicated, early) = (state.dedicated, state.uploading || unsent);
        let tunnels = std::mem::take(&mut state.becomes_tunnel);
        let entry = self.inflight.table.get(request);
        let (session, sent_ns) = (entry.session, entry.sent_ns);
        let now_ns = self.io.now_ns();
        self.observe.backend(state.backend as usize).times.note(now_ns.saturating_sub(sent_ns));
        self.upstream.backends[state.backend as usize].health.note_answer(now_ns);
        state.idle_since_ns = now_ns;
        state.exchanges = state.exchanges.saturating_add(1);
        let exclusive = self.upstream.backends[state.backend as usize].exclusive;
        if self.has_session(request) {
            self.finish_request(request);
        }
        if let Some(key) = session.filter(|_| tunnels) {
            self.begin_tunnel(key, backend_conn);
        } else if dedicated && early {
            // The backend has replied before it has the whole body, so the connection cannot be used again.
            //= RFC 9112 section 9.5
            //# A client sending a message body SHOULD monitor the network connection for an error response while it is
            //# transmitting the request.
            //= RFC 9112 section 9.5
            //# the client SHOULD immediately cease transmitting the body and close its side of the connection
            self.fail_backend_conn(backend_conn, flick_abi::FailureReason::Unavailable, None);
        } else if exclusive {
            self.give_back(backend_conn);
        } else if dedicated {
            self.tasks.free_capacity();
        }
        if self.downstream.has_blocked() {
            self.tasks.free_capacity();
        }
    }

    /// Pauses a connection because a client does not read what it gets from it.
    pub(super) fn stall(&mut self, backend_conn: u32, key: crate::slab::Key) {
        let now_ns = self.io.now_ns();
        let timeouts = &self.ctx.setup().timeouts;
        // A connection that is lent holds up nobody but the client itself.
        let state = &self.upstream.conns[backend_conn];
        let timeout = if state.tunnel.is_some() || state.client_of.is_some() {
            Duration::from_millis(TUNNEL_IDLE_MS)
        } else if state.dedicated {
            timeouts.client_request
        } else {
            timeouts.client_write
        };
        let timeout_ns = timeout.as_nanos() as u64;
        let state = &mut self.upstream.conns[backend_conn];
        if now_ns.saturating_sub(state.dropped_ns) > timeout_ns * CALM_SHARE {
            state.impatience = 0;
        }
        let timeout_ns = timeout_ns >> state.impatience;
        // Looking again does not start the time anew; only a byte passed on does.
        let until = match state.stall_grace {
            Some((same, until)) if same == key => until,
            _ => now_ns + timeout_ns,
        };
        state.stall_grace = Some((key, until));
        state.stalled = Some((key, until));
        state.stalled_since_ns = now_ns;
        self.upstream.stalled_count += 1;
        if !std::mem::replace(&mut state.is_listed, true) {
            self.upstream.stalled.push(backend_conn);
        }
        self.note_due(until);
    }

    /// The client that holds up a connection has had its time. Many of them in a row must not cost the others the
    /// sum of their times, so the next one has less.
    pub(super) fn drop_slow_client(&mut self, backend_conn: u32, key: crate::slab::Key) {
        self.observe.counters().slow_clients_dropped.add(1);
        let state = &mut self.upstream.conns[backend_conn];
        state.dropped_ns = self.io.now_ns();
        state.impatience = (state.impatience + 1).min(IMPATIENCE_SHIFT_MAX);
        self.end_session(key, true);
        self.enqueue_backend_conn(backend_conn);
    }

    /// Ends a stall, and takes its time out of the connection's clock: its backend was not slow, a client was.
    pub(super) fn unstall(&mut self, backend_conn: u32) {
        let now_ns = self.io.now_ns();
        let state = &mut self.upstream.conns[backend_conn];
        if state.stalled.take().is_some() {
            state.clock_lag_ns += now_ns - state.stalled_since_ns;
            self.upstream.stalled_count -= 1;
        }
    }
}
