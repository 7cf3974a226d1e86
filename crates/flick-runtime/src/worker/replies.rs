//! Splits a backend's bytes into messages, and delivers each to the oldest request of its connection, or to the client
//! of a relay.
//! Promises: a reply that the in-flight table does not expect closes its connection; nothing of it reaches a client.

use flick_abi::limits::ECHO_FIELDS_MAX;
use flick_abi::{Event, FailureReason, Frame, MessageFlags, ParseStep, WireField};
use flick_buffers::Slice;
use flick_net::Driver;

use super::Worker;
use super::bodies::{Piece, next_piece};
use super::deliver::{reply_patches, restore_echo};
use super::health::warn_of;
use super::outgoing::{Outgoing, Rest, flags_of_sent, has_tail, outgoing_reply};
use super::relay::End;
use super::reply_flags::Verdict;
use super::rules::Start;
use super::sending::number_mask;
use crate::downstream::body::RemainingBody;
use crate::downstream::inbox::{Completeness, NextMessage, ParseSpec};
use crate::inflight::{ReplyTarget, RequestId};
use crate::limits::{REPLACED_BYTES_MAX, UNSEEN_BYTES_MAX};
use crate::observe::access_log::AnsweredBy;
use crate::observe::edge_counters::StartId;
use crate::observe::task_counters::TaskKind;
use crate::rules::scratch::Scratch;
use crate::run_queue::Flow;
use crate::upstream::conn::{AfterExchange, BackendConnState, Download, Recipient, ReplyProgress};

/// Parts of a reply from a backend that its client has got.
#[derive(Clone, Copy, Debug, Default)]
struct Passed {
    /// The reply, or another head for it: the rest of a large one follows.
    follows: bool,
    /// Something at all.
    answers: bool,
    /// A message after which it expects no other.
    is_final: bool,
    /// A message behind which its connection is a tunnel.
    tunnels: bool,
}

impl Passed {
    /// Whether the client waits for nothing more of a reply with these flags that has come `whole`, or whose head has.
    fn replaces(self, flags: MessageFlags, whole: bool) -> bool {
        let is_refused = flags.has(MessageFlags::TUNNEL) && !self.tunnels;
        let is_interim = flags.has(MessageFlags::MORE);
        is_refused || self.is_final && (is_interim || !whole && !self.follows)
    }
}

/// Origin of a reply, and the request that it answers.
#[derive(Clone, Copy)]
pub(super) struct ReplySource {
    /// The connection.
    pub backend_conn: u32,
    /// Its channel.
    pub channel: usize,
    /// Request that it answers.
    pub request: RequestId,
}

impl<D: Driver> Worker<D> {
    pub(super) fn backend_data(&mut self, backend_conn: u32, data: Slice) {
        let at = self.upstream.conn(backend_conn).backend() as usize;
        self.observe.backend(at).bytes_received.add(u64::from(data.len()));
        let now_ns = self.io.now_ns();
        self.upstream.backend_mut(at).health_mut().note_received(now_ns);
        if let Some(request) = self.upstream.conn(backend_conn).requests().front() {
            let entry = self.inflight.get_mut(request);
            // Something of a reply has come: it is not sent again.
            self.io.pieces_mut().clear(entry.resend_mut());
            if entry.set_watched(false) {
                let took_ns = now_ns.saturating_sub(entry.sent_ns());
                self.upstream.backend_mut(at).health_mut().note_reply_time(now_ns, took_ns);
                self.watch_no_longer(backend_conn, request);
            }
        }
        if !self.ctx.setup().receives(self.upstream.backend(at).channel()) {
            return;
        }
        let state = self.upstream.conn_mut(backend_conn);
        let unseen_bytes = state.note_unseen(data.len());
        if !state.inbox_mut().push(self.io.pieces_mut(), data) {
            self.backend_exhausted(backend_conn);
            return;
        }
        self.enqueue_backend_conn(backend_conn);
        // A worker that has more to do than it has time for would receive more in each iteration, until memory is out.
        if unseen_bytes > UNSEEN_BYTES_MAX {
            self.backend_conn_receives(backend_conn, false);
        }
    }

    pub(super) fn run_backend_conn(&mut self, backend_conn: u32) {
        self.upstream.conn_mut(backend_conn).begin_run();
        self.resume_backend_conn(backend_conn);
        if !self.upstream.conn(backend_conn).is_connected() {
            self.run_refused_backend_conn(backend_conn);
            return;
        }
        if !self.run_steps(TaskKind::Backend, |worker| worker.backend_conn_step(backend_conn)) {
            self.enqueue_backend_conn(backend_conn);
            return;
        }
        let conn = self.upstream.conn(backend_conn);
        match *conn.state() {
            BackendConnState::Down { .. } | BackendConnState::Connecting { .. } => {}
            BackendConnState::Tunnel { client } => {
                self.backend_conn_receives(backend_conn, !conn.is_held());
                self.tunnel_is_idle(backend_conn, client);
            }
            _ if conn.has_ended() && !conn.is_held() => self.backend_conn_ended(backend_conn),
            _ => {
                let receives = !conn.is_held() && !self.awaits_another_leg(backend_conn);
                self.backend_conn_receives(backend_conn, receives);
            }
        }
    }

    /// All that a backend sent has been handled, and it has closed its side, or the connection is lost.
    fn backend_conn_ended(&mut self, backend_conn: u32) {
        let conn = self.upstream.conn(backend_conn);
        if let Some(client) = conn.relay_client() {
            self.leg_ended(backend_conn, client);
            return;
        }
        let (is_open, download) = (conn.handle().is_some(), conn.download());
        let until_close = download.filter(|download| is_open && download.body.is_until_close());
        if let Some(download) = until_close {
            self.reply_ends_with_conn(backend_conn, download);
            return;
        }
        let is_truncated = conn.inbox().in_message() || download.is_some();
        self.observe.counters().truncated.add(u64::from(is_truncated));
        let event = if is_open && !is_truncated { Event::Closed } else { Event::Broken };
        self.fail_backend_conn(backend_conn, FailureReason::Unavailable, Some(event));
    }

    pub(super) fn backend_conn_receives(&mut self, backend_conn: u32, receive: bool) {
        if let Some(handle) = self.upstream.conn_mut(backend_conn).set_receiving(receive) {
            self.io.driver_mut().receive(handle, receive);
        }
    }

    fn backend_conn_step(&mut self, backend_conn: u32) -> Flow {
        let conn = self.upstream.conn_mut(backend_conn);
        match *conn.state() {
            BackendConnState::Down { .. } | BackendConnState::Connecting { .. } => return Flow::Stop,
            BackendConnState::Draining { in_order } => return self.end_draining(backend_conn, in_order),
            BackendConnState::Tunnel { client } => return self.tunnel_back(backend_conn, client),
            BackendConnState::RelayLeg(ref leg) => {
                let client = leg.client();
                if !self.client_takes(backend_conn, client) {
                    return Flow::Stop;
                }
            }
            BackendConnState::Pipeline { .. }
            | BackendConnState::Idle { .. }
            | BackendConnState::Exchange(_) => {}
        }
        match self.upstream.conn(backend_conn).download() {
            Some(download) => self.forward_reply_body(backend_conn, download),
            None => self.reply_step(backend_conn),
        }
    }

    /// Parses the next message of a connection, and delivers it.
    fn reply_step(&mut self, backend_conn: u32) -> Flow {
        let conn = self.upstream.conn(backend_conn);
        let (is_unasked, is_empty) = (conn.requests().is_empty(), conn.inbox().is_empty());
        let backend = self.upstream.backend_of(backend_conn);
        let (exclusive, channel) = (backend.is_exclusive(), backend.channel());
        if exclusive && is_unasked && conn.relay_client().is_none() {
            if is_empty {
                return Flow::Stop;
            }
            self.log_backend(backend_conn, |context| {
                warn_of!(context, "backend sent what no request asked for")
            });
            //= RFC 9112 section 9.2
            //# the client MUST NOT consider that data to be a valid response
            return self.backend_fault(backend_conn);
        }
        let entry = conn.requests().front().map(|request| self.inflight.get(request));
        let is_ask = entry.is_some_and(|entry| matches!(entry.reply_target(), ReplyTarget::Ask { .. }));
        let keep_last = self.ctx.setup().protocol_of(channel).keep_last;
        let asked = entry.map_or(0, |entry| self.kept_for_reply(entry, keep_last));
        let state = self.upstream.conn_mut(backend_conn);
        let Some(view) = &self.ctx.setup().program.channels[channel].view else {
            return Flow::Stop;
        };
        if !state.inbox().in_message() {
            state.buffer_reply(is_ask);
        }
        let is_buffered = state.reply() == ReplyProgress::Buffered;
        let parser = if is_buffered { view.parse_asked } else { view.parse_reply };
        let is_streamed = exclusive && !is_buffered;
        let wants = state.completeness(if is_streamed { Completeness::Head } else { Completeness::All });
        let look = ParseSpec { parser, asked, wants };
        let mut scratch = self.rules.take_scratch();
        let next =
            state.inbox_mut().next(&mut self.io.parse_context(self.ctx.setup()), look, &mut scratch.frame);
        let flow = match next {
            NextMessage::Whole(message) => self.reply(backend_conn, channel, &mut scratch, message, true),
            NextMessage::Large(seen) => self.reply(backend_conn, channel, &mut scratch, seen, false),
            NextMessage::Starved => Flow::Stop,
            NextMessage::TooLong => self.reply_too_long(backend_conn),
            NextMessage::Fault { field, cause, .. } => {
                let why = cause.text();
                self.log_backend(backend_conn, |context| warn_of!(context, field, why, "malformed response"));
                self.backend_fault(backend_conn)
            }
            NextMessage::NoBuffers => {
                self.backend_exhausted(backend_conn);
                Flow::Stop
            }
            NextMessage::Waits => self.wait_for_huge(backend_conn),
        };
        self.rules.return_scratch(scratch);
        flow
    }

    /// Ends a connection whose client has left.
    fn end_draining(&mut self, backend_conn: u32, in_order: bool) -> Flow {
        let is_late = !self.upstream.conn(backend_conn).requests().is_empty();
        self.observe.counters().late_replies.add(u64::from(is_late));
        if in_order && !is_late {
            self.retire_backend_conn(backend_conn);
        } else {
            self.fail_backend_conn(backend_conn, FailureReason::Unavailable, None);
        }
        Flow::Stop
    }

    /// A reply on a connection needs a huge buffer, and none is free: it is received from again when one is, or, if
    /// that takes too long, ended by the deadline of the reply.
    pub(super) fn wait_for_huge(&mut self, backend_conn: u32) -> Flow {
        self.upstream.wait_for_huge(backend_conn);
        self.tasks.need_huge();
        Flow::Stop
    }

    /// The reply to an ask is longer than what is buffered whole: the ask fails, and the reply is drained as any other.
    fn reply_too_long(&mut self, backend_conn: u32) -> Flow {
        let conn = self.upstream.conn_mut(backend_conn);
        assert!(conn.reply() == ReplyProgress::Buffered, "a parser asks for a longer head than its bound");
        let front = conn.requests().front();
        if !conn.inbox_mut().unbuffer(&mut self.io.parse_context(self.ctx.setup())) {
            self.backend_exhausted(backend_conn);
            return Flow::Stop;
        }
        if let Some(request) = front
            && let ReplyTarget::Ask { suspended, ask } = self.inflight.get(request).reply_target()
        {
            self.inflight.get_mut(request).set_reply_target(ReplyTarget::Nothing);
            self.ask_failed(suspended, ask, FailureReason::Overload);
        }
        self.leave_exchange(backend_conn);
        Flow::Go
    }

    /// The client of an exchange has left: its connection, which carries nothing else, is ended by its task.
    pub(super) fn leave_exchange(&mut self, backend_conn: u32) {
        let body = self.upstream.conn_mut(backend_conn).abandon_exchange();
        self.drop_body(body);
    }

    /// Ends a connection whose messages find no buffers, or no space in the table of pieces.
    pub(super) fn backend_exhausted(&mut self, backend_conn: u32) {
        self.observe.counters().exhausted.add(1);
        self.fail_backend_conn(backend_conn, FailureReason::Overload, Some(Event::Broken));
    }

    fn backend_fault(&mut self, backend_conn: u32) -> Flow {
        self.observe.counters().protocol_errors_backend.add(1);
        self.fail_backend_conn(backend_conn, FailureReason::Unavailable, Some(Event::Malformed));
        Flow::Stop
    }

    /// One message: `seen` is all of it, or of a large one at least its head.
    fn reply(
        &mut self,
        backend_conn: u32,
        channel: usize,
        scratch: &mut Scratch,
        seen: Slice,
        whole: bool,
    ) -> Flow {
        let Some(request) = self.upstream.conn(backend_conn).requests().front() else {
            return self.message_without_request(backend_conn, scratch, seen, whole);
        };
        let to = ReplySource { backend_conn, channel, request };
        if !self.has_number(channel, &scratch.frame, self.inflight.get(request).number()) {
            self.log_backend(backend_conn, |context| {
                warn_of!(context, "backend answered another request than the next one")
            });
            return self.backend_fault(backend_conn);
        }
        let has_failed = scratch.frame.flags().has(MessageFlags::FAILED);
        self.inflight.get_mut(request).note_outcome(has_failed);
        let entry = self.inflight.get(request);
        if let ReplyTarget::Ask { suspended, ask } = entry.reply_target() {
            return self.ask_reply(to, scratch, (suspended, ask), seen, whole);
        }
        if let Some(key) = self.held_up_by(backend_conn, Recipient::Request(request)) {
            self.stall(backend_conn, key);
            return Flow::Stop;
        }
        self.upstream.conn_mut(backend_conn).stall_mut().note_delivered();
        let (echo, begun) = (*entry.echo(), entry.has_begun());
        let is_delivered = self.is_awaited(request);
        let flags = self.examined_flags(channel, &mut scratch.frame, &echo, &seen);
        self.count_status(backend_conn, flags);
        let silent = flags.has(MessageFlags::SILENT);
        if is_delivered && flags.has(MessageFlags::CLOSES) {
            self.ends_with_reply(request);
        }
        if !self.note_end_of_exchange(backend_conn, flags, is_delivered) {
            return self.backend_fault(backend_conn);
        }
        self.count_reply(request, is_delivered, begun, silent);
        self.take_reply(to, scratch, (seen, whole), flags, is_delivered && !silent)
    }

    /// Takes one message, or the head of a large one, off its connection, and passes it on if it is to be delivered.
    fn take_reply(
        &mut self,
        to: ReplySource,
        scratch: &mut Scratch,
        (seen, whole): (Slice, bool),
        flags: MessageFlags,
        delivers: bool,
    ) -> Flow {
        let ReplySource { backend_conn, request, .. } = to;
        let (epoch, last) = (self.upstream.conn(backend_conn).epoch(), !flags.has(MessageFlags::MORE));
        let (head, body) = if whole {
            self.consume_reply(backend_conn, seen.len());
            (seen.len(), None)
        } else {
            let (head, body) = self.take_reply_head(backend_conn, &scratch.frame, &seen);
            (head, Some(body))
        };
        let passed = match delivers {
            true => self.pass_reply(to, scratch, &seen.sub(0..head)),
            false => Passed::default(),
        };
        if self.upstream.conn(backend_conn).epoch() != epoch {
            // Its client has been given up, and the connection with it.
            self.drop_body(body);
            return Flow::Stop;
        }
        if delivers && passed.replaces(flags, whole) && self.is_awaited(request) {
            return self.end_replaced(to, body, last);
        }
        let Some(body) = body else {
            if last {
                self.reply_was_last(backend_conn, request);
            }
            return Flow::Go;
        };
        if passed.follows {
            self.note_reply_bytes(request, scratch.frame.total_bytes());
            self.inflight.get_mut(request).note_begun();
        }
        let to = Recipient::Request(request);
        let download = Download { to, body, last, is_delivered: passed.follows, drain_max: None };
        self.begin_download(backend_conn, download);
        Flow::Go
    }

    /// A client has got another message instead of this reply, and waits for no more of it: the request is finished. Of
    /// the connection's only exchange a part of what is left is taken, so that it can carry the next one.
    fn end_replaced(&mut self, source: ReplySource, body: Option<RemainingBody>, last: bool) -> Flow {
        let ReplySource { backend_conn, request, .. } = source;
        let conn = self.upstream.conn(backend_conn);
        let is_alone = conn.is_dedicated();
        if is_alone && (body.is_none() || !last || conn.is_uploading()) {
            self.drop_body(body);
            self.cut_exchange(backend_conn, request);
            return Flow::Stop;
        }
        self.finish_request(request);
        if let Some(body) = body {
            let (to, drain_max) = (Recipient::Request(request), is_alone.then_some(REPLACED_BYTES_MAX));
            self.begin_download(backend_conn, Download { to, body, last, is_delivered: false, drain_max });
        }
        Flow::Go
    }

    /// Ends the reply that a rule has answered in place of, if that is what arrives on a connection. Returns whether it
    /// was so.
    pub(super) fn ends_replaced(&mut self, backend_conn: u32) -> bool {
        let download = self.upstream.conn(backend_conn).download();
        let Some(Download { to: Recipient::Request(request), body, drain_max: Some(_), .. }) = download
        else {
            return false;
        };
        self.upstream.conn_mut(backend_conn).set_download(None);
        self.drop_body(body);
        self.cut_exchange(backend_conn, request);
        true
    }

    /// Ends the exchange of a dedicated connection, and the connection.
    fn cut_exchange(&mut self, backend_conn: u32, request: RequestId) {
        self.upstream.conn_mut(backend_conn).cut_after_exchange();
        self.reply_was_last(backend_conn, request);
    }

    /// A message that answers no request: of a relay's backend, or a fault.
    fn message_without_request(
        &mut self,
        backend_conn: u32,
        scratch: &mut Scratch,
        seen: Slice,
        whole: bool,
    ) -> Flow {
        if let Some(client) = self.upstream.conn(backend_conn).relay_client() {
            return self.relay_message(client, End::Backend(backend_conn), scratch, seen, whole);
        }
        self.log_backend(backend_conn, |context| {
            warn_of!(context, "backend sent a reply that no request asked for")
        });
        self.backend_fault(backend_conn)
    }

    /// Takes the head of a large reply, of which `seen` has arrived: its length, and what follows it.
    pub(super) fn take_reply_head(
        &mut self,
        backend_conn: u32,
        frame: &Frame,
        seen: &Slice,
    ) -> (u32, RemainingBody) {
        let head = self.upstream.conn(backend_conn).inbox().head_of(seen, frame);
        let body = self.body_behind(frame, head);
        self.consume_reply(backend_conn, head);
        self.observe.counters().streamed.add(1);
        (head, body)
    }

    /// Counts a reply that its client does not get. `begun`: it follows the first reply to a question of a rule.
    fn count_reply(&mut self, request: RequestId, is_delivered: bool, begun: bool, silent: bool) {
        if !is_delivered {
            self.observe.counters().late_replies.add(u64::from(!begun));
        } else if silent {
            self.note_reply_bytes(request, 0);
            self.observe.counters().replies_suppressed.add(1);
            self.log_outcome(request, AnsweredBy::Backend);
        }
    }

    /// Counts a reply of a backend by its status code, if its grammar states one.
    pub(super) fn count_status(&self, backend_conn: u32, flags: MessageFlags) {
        if let Some(status) = flags.status() {
            let at = self.upstream.conn(backend_conn).backend() as usize;
            self.observe.backend(at).count_status(status);
        }
    }

    /// Notes the length of a reply that is not delivered at once and whole.
    fn note_reply_bytes(&mut self, request: RequestId, bytes: u64) {
        let client = self.inflight.get(request).session();
        if let Some(stream) = client.and_then(|key| self.downstream.stream_mut(key)) {
            stream.window_mut().note_reply(bytes);
        }
    }

    /// Returns the flags of a reply by its own grammar, with its echo fields restored to those of its client's request.
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
        let correlated = self.ctx.setup().protocol_of(channel).correlated();
        let repeats = correlated.and_then(|field| field.reply);
        let found = |field: WireField| reply.slots[usize::from(field.slot)] & number_mask(correlated);
        repeats.is_none_or(|field| found(field) == number)
    }

    /// The head of a large message has gone on; the rest follows.
    pub(super) fn begin_download(&mut self, backend_conn: u32, download: Download) {
        if download.body.is_over() {
            self.reply_body_over(backend_conn, download);
            return;
        }
        let state = self.upstream.conn_mut(backend_conn);
        if !state.set_download(Some(download)) {
            self.drop_body(download.body);
            return;
        }
        // What goes to no client has the time of a reply, and not more with each piece.
        if state.is_dedicated() && !state.is_uploading() && download.drain_max.is_none() {
            self.expect_next(backend_conn, download.to);
        }
    }

    /// A piece of a large message has come: until when the next one is waited for.
    fn expect_next(&mut self, backend_conn: u32, to: Recipient) {
        match to {
            Recipient::Request(request) => self.expect_piece(backend_conn, request),
            Recipient::Client(key) => self.relay_has_moved(key),
        }
    }

    /// Notes what becomes of a connection after its reply. `false`: the reply says what it cannot say there.
    fn note_end_of_exchange(&mut self, backend_conn: u32, flags: MessageFlags, is_delivered: bool) -> bool {
        let state = self.upstream.conn_mut(backend_conn);
        if flags.has(MessageFlags::LAST) || flags.has(MessageFlags::UNTIL_CLOSE) {
            state.close_after_exchange();
        }
        // A shared connection is not one client's; nor does a request end in the middle of its body.
        let has_client = is_delivered && !flags.has(MessageFlags::SILENT);
        !flags.has(MessageFlags::TUNNEL) || state.tunnel_after_exchange(has_client)
    }

    pub(super) fn consume_reply(&mut self, backend_conn: u32, bytes: u32) {
        self.upstream
            .conn_mut(backend_conn)
            .inbox_mut()
            .consume(&mut self.io.parse_context(self.ctx.setup()), bytes);
    }

    /// Runs the rules on a reply and passes it on as they say; says what of it the client has got.
    fn pass_reply(&mut self, source: ReplySource, scratch: &mut Scratch, message: &Slice) -> Passed {
        let ReplySource { backend_conn, channel, request } = source;
        let element = self.upstream.backend_of(backend_conn).element();
        let entry = self.inflight.get(request);
        let (session, echo, kept) = (entry.session(), *entry.echo(), entry.kept());
        let Some(session) = session else { return Passed::default() };
        let paused =
            self.run_rules_of(session, scratch, &Start { channel, element, message: message.bytes() });
        assert!(paused.is_none(), "a rule of a reply never suspends");
        self.observe.edges().ran(StartId::channel(channel), scratch.sends.as_slice());
        let (patches, listened) = (reply_patches(self.ctx.setup(), &echo), self.ctx.setup().listened);
        let mut passed = Passed::default();
        for at in 0..scratch.sends.as_slice().len() {
            let send = scratch.sends.as_slice()[at];
            if send.channel as usize != listened {
                continue;
            }
            match self.judge(scratch, send.body, Some(message), (session, &echo, kept)) {
                Verdict::Delivered => {}
                Verdict::DeliveredAndLast => {
                    if scratch.other.flags().has(MessageFlags::UNTIL_CLOSE) {
                        self.upstream.conn_mut(backend_conn).close_after_exchange();
                    }
                    self.ends_with_reply(request);
                }
                Verdict::Silent => {
                    self.observe.counters().replies_suppressed.add(1);
                    continue;
                }
                Verdict::Wrong => {
                    scratch.failure = scratch.failure.or(Some(FailureReason::Unavailable));
                    continue;
                }
            }
            passed.answers = true;
            self.log_outcome(request, AnsweredBy::Backend);
            let to = Recipient::Request(request);
            let flags = flags_of_sent(scratch, send.body, scratch.frame.flags());
            self.deliver_message(to, &outgoing_reply(scratch, send.body, Some(message)), flags, patches);
            passed.follows |= has_tail(send.body);
            passed.is_final |= !flags.has(MessageFlags::MORE);
            passed.tunnels |= flags.has(MessageFlags::TUNNEL);
        }
        if let Some(reason) = scratch.failure.filter(|_| !passed.answers) {
            // That a reply has no room for what a rule adds to it is not its client's doing.
            let reason = if reason == FailureReason::TooLong { FailureReason::Unavailable } else { reason };
            passed.is_final = self.deliver_failure(request, reason);
        }
        passed
    }

    /// Passes on what has arrived of a large message.
    fn forward_reply_body(&mut self, backend_conn: u32, download: Download) -> Flow {
        let Download { to, mut body, last: _, is_delivered, drain_max } = download;
        if is_delivered && let Some(key) = self.held_up_by(backend_conn, to) {
            self.stall(backend_conn, key);
            return Flow::Stop;
        }
        let channel = self.upstream.backend_of(backend_conn).channel();
        let state = self.upstream.conn_mut(backend_conn);
        state.stall_mut().note_delivered();
        let epoch = state.epoch();
        let parser = self.ctx.setup().view(channel).parse_reply;
        let mut scratch = self.rules.take_scratch();
        let (mut context, bodies) = self.io.parse_body_context(self.ctx.setup());
        let frame = &mut scratch.frame;
        let piece = next_piece(state.inbox_mut(), &mut context, bodies, frame, &mut body, parser);
        let (is_nothing, uploading) = (matches!(piece, Piece::Nothing), state.is_uploading());
        let drain_max = drain_max.map(|max| max.saturating_sub(piece.len()));
        let download = Download { body, drain_max, ..download };
        state.set_download((!body.is_over()).then_some(download));
        if !is_nothing && !uploading && drain_max.is_none() {
            self.expect_next(backend_conn, to);
        }
        let flow = match piece {
            Piece::Bytes(piece) => {
                if is_delivered {
                    self.deliver_piece(to, piece);
                }
                Flow::Go
            }
            Piece::Head(head) => {
                if is_delivered {
                    let message =
                        Outgoing { front: head.bytes(), cuts: Some(&scratch.frame), rest: Rest::Nothing };
                    self.deliver_bytes(to, &message, [None, None]);
                }
                Flow::Go
            }
            Piece::Over => Flow::Go,
            Piece::Nothing => Flow::Stop,
            Piece::Fault { field, cause } => {
                let why = cause.text();
                self.log_backend(backend_conn, |context| {
                    warn_of!(context, field, why, "malformed body of a response")
                });
                self.backend_fault(backend_conn)
            }
            Piece::NoBuffers => {
                self.backend_exhausted(backend_conn);
                Flow::Stop
            }
        };
        self.rules.return_scratch(scratch);
        if self.upstream.conn(backend_conn).epoch() != epoch {
            // Its client has been given up, and the connection with it.
            return Flow::Stop;
        }
        if flow == Flow::Go && body.is_over() {
            self.reply_body_over(backend_conn, download);
        } else if drain_max == Some(0) && self.ends_replaced(backend_conn) {
            return Flow::Stop;
        }
        flow
    }

    /// All of a large message has been passed on.
    fn reply_body_over(&mut self, backend_conn: u32, download: Download) {
        match download.to {
            Recipient::Request(request) if download.last => self.reply_was_last(backend_conn, request),
            Recipient::Request(_) => {}
            Recipient::Client(key) => self.sender_is_done(key, backend_conn),
        }
    }

    /// The backend has closed in good order behind a reply that ends so: the client connection ends the same way.
    fn reply_ends_with_conn(&mut self, backend_conn: u32, download: Download) {
        let conn = self.upstream.conn_mut(backend_conn);
        conn.set_download(None);
        let epoch = conn.epoch();
        let client = self.client_of(download.to).filter(|_| download.is_delivered);
        self.reply_body_over(backend_conn, Download { last: true, ..download });
        // Only now: this ends an upload, and with it the connection and what is in flight there.
        if let Some(key) = client {
            self.stop_reading(key);
            self.go_on_after_reply(key);
        }
        let conn = self.upstream.conn(backend_conn);
        if conn.epoch() == epoch && conn.is_connected() {
            self.retire_backend_conn(backend_conn);
        }
    }

    /// Takes a request off its connection's queue, and keeps a dedicated connection for the next exchange or ends it.
    pub(super) fn reply_was_last(&mut self, backend_conn: u32, request: RequestId) {
        let now_ns = self.io.now_ns();
        let conn = self.upstream.conn_mut(backend_conn);
        let popped = self.inflight.pop_backend_conn(conn.requests_mut(), self.io.pieces_mut());
        assert!(popped == Some(request), "replies are booked in the order of their requests");
        let unsent = conn.handle().is_some_and(|handle| self.io.driver().backlog_bytes(handle) > 0);
        let (dedicated, early, epoch) = (conn.is_dedicated(), conn.is_uploading() || unsent, conn.epoch());
        let then = conn.after_exchange();
        let at = conn.backend() as usize;
        let entry = self.inflight.get(request);
        let (session, sent_ns) = (entry.session(), entry.sent_ns());
        let took_ns = now_ns.saturating_sub(sent_ns);
        self.upstream.conn_mut(backend_conn).note_reply_time(took_ns);
        self.observe.backend(at).times.note(took_ns);
        if entry.is_failed() {
            self.note_failure(at, entry.is_picked());
        } else {
            self.upstream.backend_mut(at).health_mut().note_answer(now_ns);
        }
        let exclusive = self.upstream.backend(at).is_exclusive();
        if self.is_awaited(request) {
            self.finish_request(request);
        }
        if self.downstream.has_blocked() || (dedicated && !exclusive) {
            self.tasks.free_capacity();
        }
        if self.upstream.conn(backend_conn).epoch() != epoch {
            // Its client has left, and the connection with it.
            return;
        }
        if let Some(key) = session.filter(|_| then == AfterExchange::Tunnel) {
            self.begin_tunnel(key, backend_conn);
        } else if dedicated && (early || then == AfterExchange::Cut) {
            // The backend has replied before it has the whole body, so the connection cannot be used again.
            //= RFC 9112 section 9.5
            //# A client sending a message body SHOULD monitor the network connection for an error response while it is
            //# transmitting the request.
            //= RFC 9112 section 9.5
            //# the client SHOULD immediately cease transmitting the body and close its side of the connection
            self.fail_backend_conn(backend_conn, FailureReason::Unavailable, None);
        } else if exclusive {
            self.give_back(backend_conn);
        } else if dedicated {
            self.upstream.conn_mut(backend_conn).end_exchange(now_ns);
        }
    }
}
