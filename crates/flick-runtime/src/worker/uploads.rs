//! Large requests: too long to buffer, so each is streamed over a dedicated connection. A client that sends slowly
//! delays no other client.
//! Promises: constant memory per large request; requests of one client before and after it keep their order, but for
//! those without a reply.

use flick_abi::frame::SLOT_CARRIED;
use flick_abi::{FailureReason, FaultCause, MessageFlags, Send, SendBody};
use flick_buffers::Slice;
use flick_net::Driver;

use super::Worker;
use super::bodies::{Piece, next_piece};
use super::outgoing::{Outgoing, Rest, has_tail, outgoing};
use super::reply_flags::Examined;
use super::rules::Start;
use super::sending::{Waiter, number_mask};
use crate::downstream::body::RemainingBody;
use crate::downstream::stream::{Upload, Wait};
use crate::inflight::{QueueOf, SentRequest};
use crate::limits::{BACKEND_CONN_BACKLOG_BYTES_MAX, DISCARD_BYTES_MAX, SESSION_BACKLOG_BYTES_MAX};
use crate::observe::edge_counters::StartId;
use crate::rules::scratch::Scratch;
use crate::run_queue::Flow;
use crate::slab::Key;

/// Decision on a request with a body whose rules have run.
#[derive(Clone, Copy)]
enum Course {
    /// Its body goes to a backend, on that connection.
    Sends(Send, u32),
    /// The program has answered it, or it fails for a reason.
    Answers(Option<FailureReason>),
    /// It waits until that backend has a dedicated connection for it: its rules run again then.
    Waits(u32),
    /// It is shed: answered with the overload response.
    Sheds,
}

impl<D: Driver> Worker<D> {
    /// Begins a request whose body is passed on as it arrives, of which `seen` has arrived: at least its head.
    pub(super) fn large_request(
        &mut self,
        key: Key,
        scratch: &mut Scratch,
        seen: Slice,
        sheds: bool,
    ) -> Flow {
        let Some(session) = self.downstream.client_mut(key) else { return Flow::Stop };
        if !session.stream().requests().is_empty() {
            // Requests before it are on other connections: they must be answered first to keep their order.
            return self.wait_for(key, Wait::Replies);
        }
        let channel = self.ctx.setup().listened;
        let head = session.inbox().head_of(&seen, &scratch.frame);
        let is_late = session.stream().is_overdue() && self.inflight.can_answer();
        self.observe.look(seen.bytes(), head, Some(&scratch.frame));
        if sheds || self.sheds_next() {
            return self.shed_large(key, scratch, &seen.sub(0..head));
        }
        if self.ctx.setup().needs.has_effects && !self.all_dedicate() {
            if is_late {
                return self.shed_large(key, scratch, &seen.sub(0..head));
            }
            return self.wait_for_capacity(key, None);
        }
        self.rules.host_mut().take_picked();
        let paused = self.run_rules_of(key, scratch, &Start { channel, element: 0, message: seen.bytes() });
        let start = StartId::channel(channel);
        if paused.is_some() {
            self.observe.edges().started(start, 1);
            // It would be kept as long as its rule waits, and is too long to be kept.
            return self.answer_large(key, scratch, &seen.sub(0..head), Some(FailureReason::Overload));
        }
        match self.course(scratch, is_late) {
            Course::Waits(backend) => self.wait_for_conn(key, Some(backend)),
            Course::Sheds => self.shed_large(key, scratch, &seen.sub(0..head)),
            Course::Answers(reason) => {
                self.observe.edges().ran(start, scratch.sends.as_slice());
                self.answer_large(key, scratch, &seen.sub(0..head), reason)
            }
            Course::Sends(send, backend_conn) => {
                self.observe.edges().ran(start, scratch.sends.as_slice());
                // A body is streamed to one backend only.
                let others = scratch.sends.as_slice().len() - 1;
                self.observe.counters().sends_dropped.add(others as u64);
                self.begin_upload(key, scratch, &send, backend_conn, seen.sub(0..head));
                Flow::Go
            }
        }
    }

    /// Decides on a request with a body, now that its rules have run.
    fn course(&mut self, scratch: &Scratch, is_late: bool) -> Course {
        let (listened, sends) = (self.ctx.setup().listened, scratch.sends.as_slice());
        if sends.first().is_some_and(|send| send.channel as usize == listened) {
            return Course::Answers(None);
        }
        // Of several, the one whose reply is the client's: the others are copies, or get what they are sent unanswered.
        let setup = self.ctx.setup();
        let is_answered = sends.iter().find(|send| setup.handles(send.channel as usize));
        let is_for_client = |send: &Send| send.channel as usize == listened;
        if is_answered.is_none() && sends.iter().any(is_for_client) {
            return Course::Answers(None);
        }
        let chosen = is_answered.or(sends.first());
        let unsent = scratch.failure.unwrap_or(FailureReason::Unavailable);
        let Some((send, backend)) = chosen.and_then(|send| Some((*send, self.backend_of(send)?))) else {
            self.note_too_long(unsent);
            return Course::Answers(Some(unsent));
        };
        if self.sheds(backend) {
            return Course::Answers(Some(FailureReason::Overload));
        }
        // Where all connections exist, those that are free may be promised to others.
        let is_promised = self.dedicates(backend) && !self.dedicates_now(backend);
        let free = if is_promised { None } else { self.borrow_conn(backend) };
        if let Some(backend_conn) = free {
            return Course::Sends(send, backend_conn);
        }
        if self.shared_conn_is_usable(backend) && self.dedicates(backend) {
            let sheds = is_late || self.is_crowded(Some(backend));
            return if sheds { Course::Sheds } else { Course::Waits(backend) };
        }
        self.observe.backend(backend as usize).failures.add(1);
        Course::Answers(Some(FailureReason::Unavailable))
    }

    fn begin_upload(&mut self, key: Key, scratch: &mut Scratch, send: &Send, backend_conn: u32, head: Slice) {
        let number = self.upstream.conn(backend_conn).next_number();
        let channel = send.channel as usize;
        let examined = self.examine(scratch, send, Some(&head));
        let unsent = match examined {
            Examined::Wrong => Some(FailureReason::Unavailable),
            Examined::TooLong => Some(FailureReason::TooLong),
            Examined::Same | Examined::Known => None,
        };
        if unsent.is_some() {
            self.give_back(backend_conn);
            self.answer_large(key, scratch, &head, unsent);
            return;
        }
        let examined = examined == Examined::Known;
        let patches = self.request_patches(scratch, channel, examined, number);
        let (echo, flags) = (self.echo_of(&scratch.frame), scratch.frame.flags());
        let kept = self.kept_of_sent(scratch, channel, examined);
        // One without a reply has an entry until it is sent: its backend has to take it in time.
        let is_answered = !flags.has(MessageFlags::ONE_WAY) && self.ctx.setup().receives(channel);
        let Some(request) = self.open_request(is_answered.then_some(key), echo, u64::MAX) else {
            self.give_back(backend_conn);
            return;
        };
        let body = self.body_behind(&scratch.frame, head.len());
        let backend = self.upstream.conn(backend_conn).backend();
        self.observe.counters().requests.add(1);
        self.observe.counters().streamed.add(1);
        self.count_request(backend, false);
        let exclusive = self.upstream.backend_of(backend_conn).is_exclusive();
        let is_picked = self.takes_pick(send).is_some();
        let state = self.upstream.conn_mut(backend_conn);
        self.inflight.get_mut(request).note_sent(SentRequest {
            number: number & number_mask(self.ctx.setup().protocol_of(channel).correlated()),
            kept,
            cost_bytes: 0,
            dedicated_conn: exclusive.then_some(backend_conn),
            is_picked,
            picked: None,
            now_ns: self.io.now_ns(),
        });
        state.use_number();
        state.begin_upload();
        let epoch = state.epoch();
        self.inflight.push(state.requests_mut(), request, QueueOf::BackendConn);
        self.expect_nothing_yet(backend_conn, request);
        if is_answered {
            let changed = examined.then_some((&*scratch, send, Some(&head)));
            self.log_request(Waiter::Session(key), request, backend, changed);
        }
        let front = outgoing_head(scratch, send.body, &head);
        let written = self.write_to_backend_conn(backend_conn, &front, patches, None);
        let streams = has_tail(send.body);
        self.consume(key, head.len(), scratch.frame.slots[SLOT_CARRIED]);
        let upload = match streams {
            _ if body.is_over() => Upload::None,
            true => Upload::To { backend_conn, epoch, body },
            false => self.discard(body),
        };
        if let Some(stream) = self.downstream.stream_mut(key) {
            stream.take_large_request(flags.has(MessageFlags::LAST), upload);
        }
        if !streams || body.is_over() {
            self.upload_sent(backend_conn);
        }
        if !written {
            self.backend_exhausted(backend_conn);
        }
    }

    /// A request with a body that is not sent to a backend is taken: its body is swallowed.
    pub(super) fn take_unsent_large(&mut self, key: Key, scratch: &Scratch, head: &Slice) {
        self.observe.counters().requests.add(1);
        let body = self.body_behind(&scratch.frame, head.len());
        self.consume(key, head.len(), scratch.frame.slots[SLOT_CARRIED]);
        self.note_last(key, scratch.frame.flags());
        let upload = if body.is_over() { Upload::None } else { self.discard(body) };
        if let Some(session) = self.downstream.client_mut(key) {
            session.stream_mut().set_upload(upload);
        }
    }

    /// A request with a body that is not sent to a backend: its rule has answered it, or it fails for that reason.
    fn answer_large(
        &mut self,
        key: Key,
        scratch: &mut Scratch,
        head: &Slice,
        reason: Option<FailureReason>,
    ) -> Flow {
        self.take_unsent_large(key, scratch, head);
        match reason {
            Some(_) if scratch.frame.flags().has(MessageFlags::ONE_WAY) => {
                self.observe.counters().sends_dropped.add(1);
            }
            Some(reason) => self.fail_new_request(key, &scratch.frame, reason),
            None => {
                for at in 0..scratch.sends.as_slice().len() {
                    let send = scratch.sends.as_slice()[at];
                    if send.channel as usize == self.ctx.setup().listened {
                        self.answer_directly(key, scratch, &send, Some(head));
                    } else {
                        self.observe.counters().sends_dropped.add(1);
                    }
                }
            }
        }
        Flow::Go
    }

    /// Returns the upload that discards a body that is sent to no backend.
    fn discard(&self, body: RemainingBody) -> Upload {
        let bytes_max = if self.ctx.setup().protocol().exclusive { DISCARD_BYTES_MAX } else { u64::MAX };
        Upload::Discard { body, bytes_max }
    }

    /// The next piece of the body that a session is sending.
    fn next_body_piece(&mut self, key: Key, body: &mut RemainingBody) -> (Piece, Box<Scratch>) {
        let mut scratch = self.rules.take_scratch();
        let Some(session) = self.downstream.client_mut(key) else { return (Piece::Nothing, scratch) };
        let parser = self.ctx.setup().view(self.ctx.setup().listened).parse_request;
        let (mut context, bodies) = self.io.parse_body_context(self.ctx.setup());
        let frame = &mut scratch.frame;
        let piece = next_piece(session.inbox_mut(), &mut context, bodies, frame, body, parser);
        if let Piece::Bytes(bytes) | Piece::Head(bytes) = &piece {
            self.log_body(key, bytes.len());
        }
        (piece, scratch)
    }

    /// Passes on what has arrived of a body.
    pub(super) fn forward_body(&mut self, key: Key) -> Flow {
        let Some(session) = self.downstream.client_mut(key) else { return Flow::Stop };
        let Upload::To { backend_conn, epoch, mut body } = session.stream().upload() else { return Flow::Go };
        let state = self.upstream.conn(backend_conn);
        let Some(conn) = state.handle_of(epoch) else {
            let upload = self.discard(body);
            if let Some(session) = self.downstream.client_mut(key) {
                session.stream_mut().set_upload(upload);
            }
            return Flow::Go;
        };
        // What is shared is worth more memory than what is one client's own.
        let most = if self.ctx.setup().is_relay {
            SESSION_BACKLOG_BYTES_MAX
        } else {
            BACKEND_CONN_BACKLOG_BYTES_MAX
        };
        if self.io.driver().backlog_bytes(conn) > most {
            self.upload_waits(backend_conn);
            return self.block(key, None);
        }
        let (piece, scratch) = self.next_body_piece(key, &mut body);
        let upload = if body.is_over() { Upload::None } else { Upload::To { backend_conn, epoch, body } };
        if let Some(session) = self.downstream.client_mut(key) {
            session.stream_mut().set_upload(upload);
        }
        let flow = match piece {
            Piece::Bytes(piece) => {
                self.pass_to_backend_conn(backend_conn, conn, piece);
                Flow::Go
            }
            Piece::Head(head) => {
                let message =
                    Outgoing { front: head.bytes(), cuts: Some(&scratch.frame), rest: Rest::Nothing };
                if !self.write_to_backend_conn(backend_conn, &message, [None, None], None) {
                    self.backend_exhausted(backend_conn);
                }
                Flow::Go
            }
            Piece::Over => Flow::Go,
            Piece::Nothing => Flow::Stop,
            Piece::Fault { field, cause } => {
                tracing::debug!(field, why = cause.text(), "malformed body of a request");
                self.body_fault(key, cause);
                Flow::Stop
            }
            Piece::NoBuffers => {
                self.client_exhausted(key);
                Flow::Stop
            }
        };
        self.rules.return_scratch(scratch);
        if flow == Flow::Go {
            self.upload_progressed(backend_conn, epoch, body);
        }
        flow
    }

    /// A piece of a body has gone to the backend.
    fn upload_progressed(&mut self, backend_conn: u32, epoch: u32, body: RemainingBody) {
        if self.upstream.conn(backend_conn).epoch() != epoch {
            return;
        }
        if let Some(request) = self.upstream.conn(backend_conn).requests().front() {
            self.expect_nothing_yet(backend_conn, request);
        }
        if body.is_over() {
            self.upload_sent(backend_conn);
        }
    }

    /// Abandons a request whose body violates the grammar. Its client gets an error response if nothing of a reply was
    /// delivered to it.
    fn body_fault(&mut self, key: Key, cause: FaultCause) {
        self.observe.counters().protocol_errors_client.add(1);
        self.observe.counters().errors_malformed.add(1);
        self.close_relay_conns(key);
        let Some(session) = self.downstream.client_mut(key) else { return };
        let upload = session.stream_mut().take_upload();
        session.stream_mut().end_after_reply();
        if let Upload::To { backend_conn, epoch, body } = upload {
            self.drop_body(body);
            if self.upstream.conn(backend_conn).epoch() == epoch {
                self.fail_backend_conn(backend_conn, cause.reason(), None);
            }
        } else if let Upload::Discard { body, .. } = upload {
            self.drop_body(body);
        }
        self.stop_reading(key);
    }

    //= RFC 9112 section 9.3
    //# A server MUST read the entire request message body or close the connection after sending its response
    pub(super) fn discard_body(&mut self, key: Key) -> Flow {
        let Some(session) = self.downstream.client_mut(key) else { return Flow::Stop };
        let Upload::Discard { mut body, bytes_max } = session.stream().upload() else { return Flow::Go };
        if body.bytes_left > bytes_max {
            // The answer goes out, what the client still sends is dropped, and the connection ends.
            self.stop_reading(key);
            return Flow::Stop;
        }
        let (piece, scratch) = self.next_body_piece(key, &mut body);
        self.rules.return_scratch(scratch);
        let left_max = bytes_max.saturating_sub(piece.len());
        let upload =
            if body.is_over() { Upload::None } else { Upload::Discard { body, bytes_max: left_max } };
        if let Some(session) = self.downstream.client_mut(key) {
            session.stream_mut().set_upload(upload);
        }
        match piece {
            Piece::Bytes(_) | Piece::Head(_) | Piece::Over => Flow::Go,
            Piece::Nothing => Flow::Stop,
            Piece::Fault { cause, .. } => {
                self.body_fault(key, cause);
                Flow::Stop
            }
            Piece::NoBuffers => {
                self.client_exhausted(key);
                Flow::Stop
            }
        }
    }

    /// The backend does not take the body any more: it has the time of a reply to go on.
    fn upload_waits(&mut self, backend_conn: u32) {
        let Some(request) = self.upstream.conn(backend_conn).requests().front() else { return };
        let since_ns = self.inflight.get(request).deadline_ns();
        self.expect_reply(backend_conn, request);
        // Looking again does not start the timeout again.
        let deadline_ns = self.inflight.get(request).deadline_ns().min(since_ns);
        self.inflight.get_mut(request).set_deadline(deadline_ns);
    }

    /// Whether an upload that waited for its backend can go on, if that was not noticed before; then it does.
    pub(super) fn upload_goes_on(&mut self, backend_conn: u32) -> bool {
        let state = self.upstream.conn(backend_conn);
        let (true, Some(conn), Some(request)) =
            (state.is_uploading(), state.handle(), state.requests().front())
        else {
            return false;
        };
        if self.io.driver().backlog_bytes(conn) > BACKEND_CONN_BACKLOG_BYTES_MAX {
            return false;
        }
        self.expect_nothing_yet(backend_conn, request);
        self.tasks.free_capacity();
        true
    }

    /// The last byte of a large request has been handed over: now its reply is due, or what is left of it, or none is.
    fn upload_sent(&mut self, backend_conn: u32) {
        let state = self.upstream.conn_mut(backend_conn);
        state.end_upload();
        let has_begun = state.download().is_some();
        match state.requests().front() {
            // Its reply has begun: the next piece of it is due.
            Some(request) if has_begun => self.expect_piece(backend_conn, request),
            Some(request) if self.inflight.get(request).session().is_some() => {
                self.expect_reply(backend_conn, request);
            }
            Some(_) => {
                self.inflight.pop_backend_conn(state.requests_mut(), self.io.pieces_mut());
                self.give_back(backend_conn);
            }
            None => {}
        }
    }

    /// The client has ended inside a body, or the body is not waited for: its dedicated connection cannot be used any
    /// more. The reply is the error response for that reason.
    pub(super) fn abandon_upload(&mut self, key: Key, reason: FailureReason) {
        let Some(session) = self.downstream.client_mut(key) else { return };
        let upload = session.stream_mut().take_upload();
        self.break_dedicated(upload, reason);
    }

    /// Ends the connection that an unfinished body was going to.
    pub(super) fn break_dedicated(&mut self, upload: Upload, reason: FailureReason) {
        if let Upload::To { body, .. } | Upload::Discard { body, .. } = upload {
            self.drop_body(body);
        }
        if let Upload::To { backend_conn, epoch, .. } = upload
            && self.upstream.conn(backend_conn).epoch() == epoch
        {
            self.fail_backend_conn(backend_conn, reason, None);
        }
    }
}

/// Returns the head of a large message as it is sent: whole, as the rest of it follows by reference.
fn outgoing_head<'a>(scratch: &'a Scratch, body: SendBody, head: &'a Slice) -> Outgoing<'a> {
    match body {
        SendBody::Original => {
            let cuts = scratch.frame.is_edited().then_some(&scratch.frame);
            Outgoing { front: head.bytes(), cuts, rest: Rest::Nothing }
        }
        other => outgoing(scratch, other, Some(head)),
    }
}
