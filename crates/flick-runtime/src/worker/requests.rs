//! The client's side: bytes from a client become messages, and messages go where the program sends them.

use flick_abi::frame::{SLOT_ASKED, SLOT_CARRIED};
use flick_abi::{FailureReason, Frame, MessageFlags, Send};
use flick_buffers::{BufClass, Slice};
use flick_net::Driver;

use super::Worker;
use super::backend_view::BackendView;
use super::relay::End;
use super::rules::{Paused, RuleContext, Start};
use super::sending::{Unsent, Waiter};
use crate::downstream::deadlines::DeadlineKind;
use crate::downstream::inbox::{Completeness, NextMessage, ParseSpec};
use crate::downstream::stream::{LastWord, NextRequest, Route, Upload, Wait};
use crate::limits::{
    BACKEND_CONN_BACKLOG_BYTES_MAX, HELD_BYTES_MAX, HELD_SLICES, INPUT_PIECES_MAX, INPUT_SHARE,
    SESSION_BACKLOG_BYTES_MAX, WHOLE_SHARE,
};
use crate::observe::edge_counters::StartId;
use crate::observe::task_counters::TaskKind;
use crate::rules::RuleParts;
use crate::rules::scratch::Scratch;
use crate::run_queue::Flow;
use crate::slab::Key;

impl<D: Driver> Worker<D> {
    pub(super) fn client_data(&mut self, key: Key, data: Slice) {
        let Some(session) = self.downstream.client_mut(key) else { return };
        if !session.takes_requests() {
            return;
        }
        let now_ns = self.io.now_ns();
        if !session.receive(self.io.pieces_mut(), data, now_ns) {
            self.client_exhausted(key);
            return;
        }
        if !session.stream().is_waiting() {
            self.enqueue_session(key);
        } else {
            self.set_receiving(key, false);
        }
    }

    pub(super) fn client_eof(&mut self, key: Key) {
        let Some(session) = self.downstream.client_mut(key) else { return };
        session.end_input();
        if session.is_lingering() {
            self.linger_on(key);
        } else {
            self.enqueue_session(key);
        }
    }

    pub(super) fn run_session(&mut self, key: Key) {
        let Some(session) = self.downstream.client_mut(key) else { return };
        let (pending, route) = (session.begin_run(), session.stream().route());
        let promised = session.stream_mut().take_promise();
        self.rules.set_preloaded(0);
        if let Some(backend) = pending {
            self.upstream.backend_mut(backend as usize).remove_pending();
        }
        self.upstream.keep_for_task(promised);
        let is_idle = self.run_steps(TaskKind::Client, |worker| worker.session_step(key));
        if let Some(backend) = promised {
            self.end_promise(backend);
        }
        if !is_idle {
            let takes_requests = matches!(route, Route::Requests);
            if takes_requests && self.io.driver().pause_is_free() || self.has_enough_input(key) {
                // It has enough for its next time slice. What comes meanwhile is received after that, and is then still
                // in the cache when it is parsed.
                self.set_receiving(key, false);
            }
            if takes_requests {
                self.hold_replies(key);
            }
            self.enqueue_session(key);
            return;
        }
        match route {
            Route::Requests => {
                self.release_replies(key);
                self.session_is_idle(key);
            }
            Route::Tunnel(_) => self.tunnel_session_is_idle(key),
            Route::Relay(_) => self.relay_session_is_idle(key),
        }
    }

    /// Whether so much input of a client waits that more would take buffers from others.
    fn has_enough_input(&self, key: Key) -> bool {
        let most = INPUT_PIECES_MAX.min(self.io.pool().free_count(BufClass::Large) / INPUT_SHARE);
        let session = self.downstream.client(key);
        session.is_some_and(|session| session.inbox().has_more_pieces_than(self.io.pieces(), most as usize))
    }

    /// Batches the replies of a few time slices, as each send to a client costs as much as a part of a slice. A client
    /// waits for its own next slice at most; replies of backends are not batched.
    fn hold_replies(&mut self, key: Key) {
        let Some(session) = self.downstream.client_mut(key) else { return };
        if !self.ctx.setup().slots.is_empty() {
            return;
        }
        let slices = session.end_slice();
        let is_short = self.io.driver().backlog_bytes(session.handle()) < HELD_BYTES_MAX;
        let holds = is_short && !slices.is_multiple_of(HELD_SLICES);
        self.io.driver_mut().set_corked(session.handle(), holds);
    }

    /// Its task has nothing more to do: what was batched is sent.
    fn release_replies(&mut self, key: Key) {
        if let Some(session) = self.downstream.client_mut(key)
            && session.end_slices()
        {
            self.io.driver_mut().set_corked(session.handle(), false);
        }
    }

    /// After a task has run out of work: what to receive, which deadline runs, whether the session is over.
    fn session_is_idle(&mut self, key: Key) {
        let Some(session) = self.downstream.client_mut(key) else { return };
        if !session.takes_requests() {
            self.io.clear_inbox(session.inbox_mut());
        }
        let waiting = session.stream().is_waiting();
        // Who only waits for a reply has nothing to say, most often: if it does, receiving stops then.
        let receives = !waiting || (session.stream().wait() == Wait::Replies && session.inbox().is_empty());
        let mid_message = session.inbox().is_amid() || session.stream().has_upload();
        let is_queued = session.stream().is_blocked();
        let takes_requests = session.takes_requests();
        let over = session.has_ended() && !waiting && takes_requests;
        if over && mid_message {
            self.observe.counters().truncated.add(1);
            // A client that truncated its request, and reads the reply, is answered that the request was malformed.
            let alone = self.ctx.setup().protocol().exclusive;
            let reason = if alone { FailureReason::Malformed } else { FailureReason::Unavailable };
            self.abandon_upload(key, reason);
            self.fail_begun(key, reason);
        }
        if over && let Some(session) = self.downstream.client_mut(key) {
            session.drain_ended(mid_message);
            self.io.clear_inbox(session.inbox_mut());
        }
        self.end_quantum(key);
        if !is_queued {
            self.leave_queue(key);
        }
        if takes_requests && !over {
            self.arm_message(key, mid_message && !waiting);
            self.set_receiving(key, receives);
        }
        self.close_if_finished(key);
    }

    pub(super) fn set_receiving(&mut self, key: Key, on: bool) {
        if let Some(session) = self.downstream.client_mut(key)
            && session.set_receiving(on)
        {
            self.io.driver_mut().receive(session.handle(), on);
        }
    }

    /// Notes what a stream waits for, other than capacity.
    pub(super) fn wait_for(&mut self, key: Key, wait: Wait) -> Flow {
        if let Some(stream) = self.downstream.stream_mut(key) {
            stream.wait_for(wait);
        }
        Flow::Stop
    }

    /// Queues a stream until there is capacity; `backend`: of which it wants a connection.
    pub(super) fn block(&mut self, key: Key, backend: Option<u32>) -> Flow {
        if self.downstream.block(key, backend)
            && let Some(backend) = backend
        {
            self.upstream.backend_mut(backend as usize).add_pending();
        }
        Flow::Stop
    }

    fn session_step(&mut self, key: Key) -> Flow {
        let share = self.client_share();
        let Some(session) = self.downstream.client_mut(key) else { return Flow::Stop };
        if !session.takes_requests() {
            return Flow::Stop;
        }
        if let Some(tunnel) = session.stream().tunnel() {
            return self.tunnel_out(key, tunnel);
        }
        match session.stream().upload() {
            Upload::To { .. } => return self.forward_body(key),
            Upload::Discard { .. } => return self.discard_body(key),
            Upload::None => {}
        }
        match session.stream_mut().next_request(share, self.ctx.setup().protocol().exclusive) {
            NextRequest::Now => {}
            NextRequest::AfterReplies => return self.wait_for(key, Wait::Replies),
            NextRequest::Never { said_by } => {
                let is_over = said_by == LastWord::Client && session.inbox().is_empty();
                return self.end_requests(key, is_over);
            }
            NextRequest::Ended => return Flow::Stop,
        }
        if self.io.driver().backlog_bytes(session.handle()) > SESSION_BACKLOG_BYTES_MAX {
            return self.wait_for(key, Wait::Client);
        }
        if self.awaits_quantum(key) {
            return Flow::Stop;
        }
        let Some(session) = self.downstream.client_mut(key) else { return Flow::Stop };
        let is_late = session.stream().is_overdue() && self.inflight.can_answer();
        let shed_before = self.observe.counters().requests_shed.get();
        let sheds = !session.inbox().is_empty() && !self.has_capacity_before(key);
        if sheds && !is_late {
            return self.wait_for_capacity(key, None);
        }
        let wants = self.wants_of_requests();
        let Some(session) = self.downstream.client_mut(key) else { return Flow::Stop };
        let parser = self.ctx.setup().view(self.ctx.setup().listened).parse_request;
        let look = ParseSpec { parser, asked: 0, wants: session.stream_mut().completeness(wants) };
        let mut scratch = self.rules.take_scratch();
        let tools = &mut self.io.request_context(self.ctx.setup(), self.tasks.huge_reserve());
        let next = session.inbox_mut().next(tools, look, &mut scratch.frame);
        let flow = match next {
            NextMessage::Whole(message) => self.client_message(key, &mut scratch, message, true, sheds),
            NextMessage::Large(seen) => self.client_message(key, &mut scratch, seen, false, sheds),
            NextMessage::Starved => {
                session.stream_mut().set_overdue(false);
                Flow::Stop
            }
            NextMessage::Fault { field, cause, answerable } => {
                tracing::debug!(client = %self.io.peer(session.handle()), field, why = cause.text(), "malformed request");
                self.request_fault(key, &mut scratch, cause.reason(), answerable);
                Flow::Stop
            }
            NextMessage::TooLong => panic!("a parser asks for a longer head than its bound"),
            NextMessage::NoBuffers => {
                self.client_exhausted(key);
                Flow::Stop
            }
            NextMessage::Waits if is_late => self.shed_unread(key, &scratch.frame),
            NextMessage::Waits => self.wait_for_buffer(key),
        };
        self.rules.return_scratch(scratch);
        self.log_looked();
        if flow == Flow::Go {
            self.message_taken(key, shed_before);
        }
        flow
    }

    /// One message of a client: `seen` is all of it, or of a large one at least its head.
    #[inline]
    fn client_message(
        &mut self,
        key: Key,
        scratch: &mut Scratch,
        seen: Slice,
        whole: bool,
        sheds: bool,
    ) -> Flow {
        match whole {
            true if self.ctx.setup().is_relay => self.relay_run(key, scratch, seen),
            false if self.ctx.setup().is_relay => self.relay_message(key, End::Client, scratch, seen, whole),
            true => self.whole_request(key, scratch, seen, sheds),
            false => self.large_request(key, scratch, seen, sheds),
        }
    }

    /// Returns how much of a short request must have arrived before it is sent. A slow body then waits in a buffer, not
    /// on a backend connection that others could use; while buffers are few it is the other way round.
    fn wants_of_requests(&self) -> Completeness {
        // A rule that waits for replies keeps its message: that must be there whole.
        if !self.ctx.setup().protocol().exclusive || self.ctx.setup().needs.asks {
            return Completeness::All;
        }
        if self.buffers_are_few(WHOLE_SHARE) { Completeness::Head } else { Completeness::AsDeclared }
    }

    fn whole_request(&mut self, key: Key, scratch: &mut Scratch, message: Slice, sheds: bool) -> Flow {
        let channel = self.ctx.setup().listened;
        self.observe.look(message.bytes(), message.len(), Some(&scratch.frame));
        let flags = scratch.frame.flags();
        if flags.has(MessageFlags::ENDS) {
            self.consume(key, message.len(), 0);
            self.observe.counters().requests.add(1);
            self.farewell(key, scratch, flags);
            return Flow::Stop;
        }
        if sheds || self.sheds_next() {
            return self.shed_request(key, scratch, message.len());
        }
        self.preload(key, scratch, &message);
        if let Some(flow) = self.request_run(key, scratch, &message) {
            return flow;
        }
        let start = Start { channel, element: 0, message: message.bytes() };
        self.rules.host_mut().take_picked();
        let paused = self.run_rules_of(key, scratch, &start);
        self.carry_out_request(key, scratch, message, (paused, 0))
    }

    /// Carries out what the rules have left of a request, from the send of that number on.
    pub(super) fn carry_out_request(
        &mut self,
        key: Key,
        scratch: &mut Scratch,
        message: Slice,
        (paused, first): (Option<Paused>, usize),
    ) -> Flow {
        let (channel, flags) = (self.ctx.setup().listened, scratch.frame.flags());
        let has_effects = self.ctx.setup().needs.has_effects;
        if !has_effects && let Err(wants) = self.has_capacity(scratch.sends.as_slice()) {
            let is_late = self.downstream.client(key).is_some_and(|session| session.stream().is_overdue());
            if is_late && self.inflight.can_answer() || self.is_crowded(wants) {
                return self.shed_request(key, scratch, message.len());
            }
            return self.wait_for_conn(key, wants);
        }
        self.consume(key, message.len(), scratch.frame.slots[SLOT_CARRIED]);
        self.note_last(key, flags);
        self.observe.counters().requests.add(1);
        if let Some(paused) = paused {
            self.suspend_request((key, channel), scratch, paused, &message);
            return Flow::Go;
        }
        self.observe.edges().ran(StartId::channel(channel), scratch.sends.as_slice());
        let mut answered = flags.has(MessageFlags::ONE_WAY) || first > 0;
        let mut is_sent = false;
        for at in first..scratch.sends.as_slice().len() {
            let send = scratch.sends.as_slice()[at];
            let is_for_client = send.channel as usize == self.ctx.setup().listened;
            // The reply to a copy is not the client's.
            let is_copy = answered || !is_for_client && !self.ctx.setup().has_rule_of(send.channel);
            if is_for_client {
                self.answer_directly(key, scratch, &send, Some(&message));
            } else {
                let is_mirrored = self.is_mirrored(&send, scratch.sends.as_slice());
                if is_mirrored && !self.has_capacity_for_copy(&send) {
                    self.observe.counters().sends_dropped.add(1);
                    continue;
                }
                let waiter = if is_copy { Waiter::NoClient } else { Waiter::Session(key) };
                let sent = self.send_request(scratch, &send, Some(&message), waiter);
                is_sent |= sent.is_ok();
                match sent {
                    Ok(()) => {}
                    Err(_) if is_copy => self.observe.counters().sends_dropped.add(1),
                    Err(unsent) => self.fail_unsent_request(key, &scratch.frame, unsent),
                }
                if has_effects && !is_mirrored {
                    self.note_clog(key, &send);
                }
            }
            if is_copy {
                self.pin_to_shared(key);
            }
            answered |= !is_copy;
        }
        if !answered && !is_sent {
            let reason = scratch.failure.unwrap_or(FailureReason::Unavailable);
            self.note_too_long(reason);
            self.fail_new_request(key, &scratch.frame, reason);
        }
        Flow::Go
    }

    /// Answers a request that could not be sent.
    fn fail_unsent_request(&mut self, key: Key, frame: &Frame, unsent: Unsent) {
        if let Some(request) = self.open_request(Some(key), self.echo_of(frame), u64::MAX) {
            self.inflight.get_mut(request).keep(frame.slots[SLOT_ASKED]);
            self.fail_unsent(request, unsent);
        }
    }

    /// Notes whether a request that is being taken is the last of its session.
    pub(super) fn note_last(&mut self, key: Key, flags: MessageFlags) {
        if let Some(stream) = self.downstream.stream_mut(key) {
            stream.take_request(flags.has(MessageFlags::LAST));
        }
    }

    /// Runs the rules on a message of a session, with its state.
    pub(super) fn run_rules_of(
        &mut self,
        key: Key,
        scratch: &mut Scratch,
        start: &Start<'_>,
    ) -> Option<Paused> {
        let session = self.downstream.client(key)?;
        let (state, client) = (session.stream().state(), Some(self.io.peer(session.handle())));
        self.first_values(scratch, state);
        let setup = &**self.ctx.setup();
        let around = BackendView { setup, upstream: &self.upstream, now_ns: self.io.now_ns(), client };
        let RuleParts { locals, host, counters, .. } = self.rules.parts();
        let (mut host, mut out) = (host.view(&around), std::mem::take(&mut scratch.out));
        let lens = self.upstream.backend_set().lens();
        let context = RuleContext::new(setup, start.channel, lens, counters);
        let state = locals.words_mut(state);
        let paused = Self::run_rules(&context, (scratch, &mut out), state, &mut host, start);
        scratch.out = out;
        paused
    }

    /// Whether there is room for what the next message may need, before its rules run: they run once if that can be
    /// seen, so that whether the connection they choose has room is known too late, and the next message waits
    /// for it.
    fn has_capacity_before(&mut self, key: Key) -> bool {
        if self.ctx.setup().is_relay {
            return self.full_conn_has_drained(key, SESSION_BACKLOG_BYTES_MAX);
        }
        let needs = &self.ctx.setup().needs;
        if !needs.has_effects {
            return self.inflight.capacity() > 0;
        }
        if self.inflight.capacity() < needs.entries_per_message
            || (needs.asks && self.rules.suspended().is_full())
        {
            return false;
        }
        if self.ctx.setup().always_dedicates && !self.all_dedicate() {
            return false;
        }
        self.full_conn_has_drained(key, BACKEND_CONN_BACKLOG_BYTES_MAX)
    }

    /// Whether at most `bytes_max` bytes wait on the backend connection that the session has filled, if there is one.
    fn full_conn_has_drained(&mut self, key: Key, bytes_max: usize) -> bool {
        let Some(session) = self.downstream.client(key) else { return true };
        let Some(full_conn) = session.stream().full_conn() else { return true };
        if self.is_clogged(full_conn, bytes_max) {
            return false;
        }
        if let Some(stream) = self.downstream.stream_mut(key) {
            stream.set_full_conn(None);
        }
        true
    }

    /// Takes bytes of a client; `carried`: what the message that they end has for the next one.
    pub(super) fn consume(&mut self, key: Key, bytes: u32, carried: u64) {
        if let Some(session) = self.downstream.client_mut(key) {
            session.inbox_mut().carry(carried);
            session.inbox_mut().consume(&mut self.io.parse_context(self.ctx.setup()), bytes);
        }
    }

    /// Whether the sends of a message find entries in the in-flight table and capacity on the connections.
    ///
    /// Errors: something is not; the backend that has no dedicated connection left, if it is that.
    fn has_capacity(&self, sends: &[Send]) -> Result<(), Option<u32>> {
        if self.inflight.capacity() <= sends.len() {
            return Err(None);
        }
        for send in sends {
            let Some(backend) = self.backend_of(send) else { continue };
            if self.is_mirrored(send, sends) {
                continue;
            }
            if self.is_clogged_backend(backend, BACKEND_CONN_BACKLOG_BYTES_MAX) {
                return Err(None);
            }
            let dedicates = !self.upstream.backend(backend as usize).is_exclusive()
                || !self.shared_conn_is_usable(backend)
                || self.dedicates_now(backend)
                || !self.dedicates(backend);
            dedicates.then_some(()).ok_or(Some(backend))?;
        }
        Ok(())
    }

    /// Handles bytes of a client that violate the grammar: answers with `reason`, if possible, and reads nothing more.
    fn request_fault(&mut self, key: Key, scratch: &mut Scratch, reason: FailureReason, answerable: bool) {
        self.observe.counters().protocol_errors_client.add(1);
        if self.ctx.setup().is_relay {
            self.relay_failed(key, reason);
            return;
        }
        // Where a reply repeats nothing of its request, there is nothing to be known before it is answered.
        let answerable = answerable || self.ctx.setup().protocol().echo.is_empty();
        let answer = answerable.then_some(reason);
        self.observe.look(&[], 0, None);
        if answer.is_some() {
            self.observe.counters().errors_malformed.add(1);
        }
        if !self.handle_malformed(key, &scratch.frame, answer)
            && let Some(reason) = answer
        {
            self.fail_new_request(key, &scratch.frame, reason);
        }
        self.stop_reading(key);
    }

    /// Answers a request that was to be buffered, and will not be complete, as one whose body is streamed.
    pub(super) fn fail_begun(&mut self, key: Key, reason: FailureReason) {
        let session = self.downstream.client(key);
        let Some((frame, bytes)) = session.and_then(|session| session.inbox().begun(self.io.frames())) else {
            return;
        };
        if !self.ctx.setup().protocol().exclusive {
            return;
        }
        let frame = frame.clone();
        self.observe.look(bytes, bytes.len() as u32, None);
        self.observe.counters().requests.add(1);
        self.fail_new_request(key, &frame, reason);
        self.log_looked();
    }

    /// Counts a request to which a rule adds more than its grammar has room for, as one that is too long by itself.
    pub(super) fn note_too_long(&mut self, reason: FailureReason) {
        if reason == FailureReason::TooLong {
            self.observe.counters().errors_malformed.add(1);
        }
    }

    fn farewell(&mut self, key: Key, scratch: &mut Scratch, flags: MessageFlags) {
        if !flags.has(MessageFlags::ONE_WAY) {
            self.fail_new_request(key, &scratch.frame, FailureReason::Farewell);
        }
        self.stop_reading(key);
    }

    /// Takes no further request of this session, as one was the last; `is_over`: the client sends nothing more.
    fn end_requests(&mut self, key: Key, is_over: bool) -> Flow {
        self.stop_reading(key);
        if is_over && let Some(session) = self.downstream.client_mut(key) {
            session.end_input();
        }
        Flow::Stop
    }

    /// Takes no further request of this session; it ends when its replies are out.
    pub(super) fn stop_reading(&mut self, key: Key) {
        if let Some(session) = self.downstream.client_mut(key)
            && session.drain()
        {
            self.io.clear_inbox(session.inbox_mut());
            self.downstream.clear_deadline(key);
            self.abandon_upload(key, FailureReason::Unavailable);
        }
    }

    pub(super) fn arm_message(&mut self, key: Key, mid_message: bool) {
        let kind = self.downstream.deadline(key);
        if mid_message {
            if kind != Some(DeadlineKind::Message) {
                self.begin_pace(key);
            }
        } else if kind == Some(DeadlineKind::Message) {
            self.downstream.clear_deadline(key);
            self.arm_idle(key);
        } else if kind == Some(DeadlineKind::Idle) {
            self.arm_idle(key);
        }
    }

    pub(super) fn arm_idle(&mut self, key: Key) {
        if let Some(idle) = self.ctx.setup().timeouts.idle(false) {
            self.set_deadline(key, DeadlineKind::Idle, self.io.now_ns() + idle.as_nanos() as u64);
        }
    }
}
