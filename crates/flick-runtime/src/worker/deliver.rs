//! Output: replies to clients in the order of their requests, requests to backends, and the end of sessions.

use flick_abi::frame::SLOT_ASKED;
use flick_abi::limits::{ECHO_FIELDS_MAX, FAILURE_BYTES_MAX};
use flick_abi::{EchoField, FailureReason, Frame, MessageFlags, ParseStep};
use flick_buffers::{Buf, BufClass, LARGE_BYTES, Pool, Slice};
use flick_net::{Driver, Handle};

use super::Worker;
use super::outgoing::{Outgoing, Patches, Rest};
use crate::downstream::client::Linger;
use crate::downstream::deadlines::DeadlineKind;
use crate::downstream::stream::Wait;
use crate::inflight::{QueueOf, ReplyTarget, RequestId, RequestQueue};
use crate::io::WriteParts;
use crate::limits::{CLOSE_UNSENT_BYTES_MAX, FLUSH_TICK_MS, LINGER_MS, PLENTY_SHARE};
use crate::observe::access_log::AnsweredBy;
use crate::slab::Key;
use crate::upstream::conn::Recipient;

/// Nanoseconds of a millisecond.
const MS: u64 = 1_000_000;

impl<D: Driver> Worker<D> {
    /// Opens a request and appends it to its client's queue. `None`: the in-flight table is full, which the callers
    /// have excluded, or the client is gone.
    pub(super) fn open_request(
        &mut self,
        session: Option<Key>,
        echo: [u64; ECHO_FIELDS_MAX],
        deadline_ns: u64,
    ) -> Option<RequestId> {
        let client = match session {
            // An entry of a client that is gone would be in no queue, so nothing would free it.
            Some(key) => Some(self.downstream.client_mut(key)?),
            None => None,
        };
        let request = self.inflight.open(session, echo, deadline_ns)?;
        self.inflight.get_mut(request).note_taken(self.io.now_ns());
        if let Some(client) = client {
            self.inflight.push(client.stream_mut().requests_mut(), request, QueueOf::Session);
        }
        if let Some(key) = session.filter(|_| self.observe.has_access_log()) {
            self.log_opened(key, request);
        }
        Some(request)
    }

    /// Answers the request in `frame` with an error response, in the order of its client's requests.
    pub(super) fn fail_new_request(&mut self, key: Key, frame: &Frame, reason: FailureReason) {
        let echo = self.echo_of(frame);
        let Some(request) = self.open_request(Some(key), echo, u64::MAX) else {
            self.end_session(key, true);
            return;
        };
        self.inflight.get_mut(request).keep(frame.slots[SLOT_ASKED]);
        self.fail_request(request, reason);
    }

    /// Answers a request in flight with an error response; closes its client if its reply has already begun or the
    /// grammar has no such response.
    pub(super) fn fail_request(&mut self, request: RequestId, reason: FailureReason) {
        let entry = self.inflight.get(request);
        let begun = entry.has_begun();
        let Some(key) = entry.session() else { return };
        self.log_outcome(request, AnsweredBy::Platform(reason));
        self.count_error(reason);
        // The answer says that it is the last, also where a rule has found it, which had all of the request.
        if let FailureReason::TooLong | FailureReason::TooSlow = reason
            && let Some(session) = self.downstream.client_mut(key)
        {
            session.stream_mut().end_after_reply();
        }
        let is_unspoken =
            reason == FailureReason::Farewell && !begun && self.ctx.setup().failure(reason).is_none();
        if is_unspoken || self.deliver_failure(request, reason) {
            self.finish_request(request);
        }
    }

    /// Counts an error that is not the client's.
    pub(super) fn count_error(&self, reason: FailureReason) {
        match reason {
            FailureReason::Unavailable => self.observe.counters().errors_unavailable.add(1),
            FailureReason::Timeout => self.observe.counters().errors_timeout.add(1),
            FailureReason::Overload => self.observe.counters().errors_overload.add(1),
            FailureReason::Malformed
            | FailureReason::TooLong
            | FailureReason::Unsupported
            | FailureReason::NameTooLong
            | FailureReason::TooSlow
            | FailureReason::Farewell => {}
        }
    }

    /// Writes an error response to a request, unless its client wants none. Returns `false`, and closes the client, if
    /// its reply has already begun or the grammar has no such response.
    pub(super) fn deliver_failure(&mut self, request: RequestId, reason: FailureReason) -> bool {
        let entry = self.inflight.get(request);
        let (session, begun, echo) = (entry.session(), entry.has_begun(), *entry.echo());
        let Some(builder) = self.ctx.setup().failure(reason).filter(|_| !begun) else {
            if let Some(key) = session {
                self.break_session(key);
            }
            return false;
        };
        // On the stack: failures may arise inside any other work of the worker.
        let (mut frame, mut text) = (Frame::new(), [0; FAILURE_BYTES_MAX]);
        restore_request(&mut frame, &self.ctx.setup().protocol().echo, &echo);
        let len = self.ctx.setup().engine.build(builder, &frame, &mut text);
        let front = &text[..len];
        // It has been built; the frame says now how it is forwarded.
        frame.restart();
        let flags = self.flags_of_failure(request, &mut frame, front);
        if flags.has(MessageFlags::SILENT) {
            self.observe.counters().replies_suppressed.add(1);
            return true;
        }
        // Those of malformed requests are the last of their session, and say so themselves.
        let is_last =
            !matches!(reason, FailureReason::Unavailable | FailureReason::Timeout | FailureReason::Overload);
        if flags.has(MessageFlags::CLOSES) {
            self.ends_with_reply(request);
        }
        let cuts = (frame.is_edited() && !is_last).then_some(&frame);
        let message = Outgoing { front, cuts, rest: Rest::Nothing };
        self.deliver_message(Recipient::Request(request), &message, flags, [None, None]);
        true
    }

    /// Returns the flags of this error response, by which its client may have asked not to receive it.
    fn flags_of_failure(&self, request: RequestId, frame: &mut Frame, words: &[u8]) -> MessageFlags {
        let setup = self.ctx.setup();
        let (entry, protocol) = (self.inflight.get(request), setup.protocol());
        let view = setup.program.channels[setup.listened].view.as_ref();
        let is_judged = |view: &&flick_abi::View| view.reply_flags.is_some() || protocol.has_status;
        let Some(view) = view.filter(is_judged) else { return MessageFlags::default() };
        frame.slots[SLOT_ASKED] = self.kept_for_reply(entry, protocol.keep_last);
        if setup.engine.parse(view.parse_asked, frame, words) != ParseStep::Done {
            frame.restart();
            return MessageFlags::default();
        }
        if let Some(judge) = view.reply_flags {
            restore_echo(frame, &protocol.echo, entry.echo());
            let step = setup.engine.parse(judge, frame, words);
            assert!(step == ParseStep::Done, "a reply's flags are judged on what has been parsed");
        }
        frame.flags()
    }

    /// Writes one message with these flags to its client, or holds it until the client's earlier requests are answered.
    pub(super) fn deliver_message(
        &mut self,
        to: Recipient,
        message: &Outgoing<'_>,
        flags: MessageFlags,
        patches: Patches,
    ) {
        self.observe.counters().replies.add(1);
        if let Some(status) = flags.status() {
            self.observe.counters().count_status(status);
        }
        self.deliver_bytes(to, message, patches);
    }

    /// As `deliver_message`, for a part of a message.
    pub(super) fn deliver_bytes(&mut self, to: Recipient, message: &Outgoing<'_>, patches: Patches) {
        let Some(key) = self.client_of(to) else { return };
        let Some(session) = self.downstream.client_to_fill(key) else { return };
        let conn = session.handle();
        let (mut queue, logged) = match to {
            Recipient::Client(_) => (None, None),
            Recipient::Request(request) => {
                let is_first = session.stream().requests().front() == Some(request);
                let entry = self.inflight.get_mut(request);
                let logged = entry.logged();
                ((!is_first).then(|| entry.held_mut()), logged)
            }
        };
        let WriteParts { driver, pool, pieces } = self.io.write_parts();
        let (mut held, mut sent) = (0, 0);
        let mut capacity = true;
        let mut emit = |slice: Slice| {
            sent += u64::from(slice.len());
            if let Some(queue) = &mut queue {
                held += u64::from(slice.len());
                capacity &= pieces.push(queue, slice);
            } else {
                driver.send(conn, slice);
            }
        };
        let buffered = append(pool, session.fill_mut(), BufClass::Small, message, patches, &mut emit);
        if let Rest::Shared(rest) = &message.rest {
            emit(rest.clone());
        }
        session.stream_mut().hold(held);
        session.stream_mut().window_mut().note_reply(sent);
        session.note_sent(sent);
        if logged.is_some() {
            self.log_reply(logged, message.front, sent);
        }
        if !(capacity && buffered) {
            self.client_exhausted(key);
        }
    }

    /// Passes on a piece of a large message.
    pub(super) fn deliver_piece(&mut self, to: Recipient, piece: Slice) {
        let Some(key) = self.client_of(to) else { return };
        if let Recipient::Request(request) = to
            && let logged @ Some(_) = self.inflight.get(request).logged()
        {
            self.log_reply(logged, &[], u64::from(piece.len()));
        }
        let Some(session) = self.downstream.client_mut(key) else { return };
        session.note_sent(u64::from(piece.len()));
        match to {
            Recipient::Request(request) if session.stream().requests().front() != Some(request) => {
                session.stream_mut().hold(u64::from(piece.len()));
                if !self.io.pieces_mut().push(self.inflight.get_mut(request).held_mut(), piece) {
                    self.client_exhausted(key);
                }
            }
            _ => self.io.driver_mut().send(session.handle(), piece),
        }
    }

    /// The session that a message goes to; `None`: the client of the request has gone, or there was none.
    pub(super) fn client_of(&self, to: Recipient) -> Option<Key> {
        match to {
            Recipient::Request(request) => self.inflight.get(request).session(),
            Recipient::Client(key) => Some(key),
        }
    }

    /// Ends a session whose messages find no buffers, or no space in the table of pieces.
    pub(super) fn client_exhausted(&mut self, key: Key) {
        self.observe.counters().exhausted.add(1);
        self.end_session(key, true);
    }

    /// A request has its last reply: what waited behind it goes out, and its session may take the next one.
    pub(super) fn finish_request(&mut self, request: RequestId) {
        let entry = self.inflight.get_mut(request);
        entry.finish();
        if let Some(key) = entry.session() {
            self.advance(key);
        }
    }

    /// Sends everything that is due at the front of a session's queue.
    fn advance(&mut self, key: Key) {
        let Some(session) = self.downstream.client_to_fill(key) else { return };
        while let Some(front) = session.stream().requests().front() {
            let entry = self.inflight.get_mut(front);
            while let Some(piece) = self.io.pieces_mut().pop(entry.held_mut()) {
                session.stream_mut().release(u64::from(piece.len()));
                self.io.driver_mut().send(session.handle(), piece);
            }
            if !entry.is_done() {
                break;
            }
            // Of several replies to one request, the last one answers it.
            let answered_ns = (!entry.is_continued()).then_some(entry.taken_ns());
            let is_last = entry.is_last();
            self.observe.note_answered(answered_ns, entry.set_logged(None), self.io.now_ns());
            self.inflight.pop_session(session.stream_mut().requests_mut(), self.io.pieces_mut());
            if is_last {
                let behind = session.stream_mut().take_requests();
                self.drop_requests(behind);
                break;
            }
        }
        self.go_on_after_reply(key);
    }

    /// A client has got a reply: its session, or others, may have something to do now.
    pub(super) fn go_on_after_reply(&mut self, key: Key) {
        let Some(session) = self.downstream.client(key) else { return };
        let resume = session.stream().wait() == Wait::Replies;
        if self.ends_unannounced(key) {
            self.stop_reading(key);
        }
        let Some(session) = self.downstream.client(key) else { return };
        let ends = session.is_draining() || session.stream().ends_after_reply();
        let closing = ends && session.stream().requests().is_empty();
        // What becomes of a body that is still being sent is decided again.
        let uploads = session.stream().has_upload();
        if self.downstream.has_blocked() || self.upstream.stalled_count() > 0 {
            self.tasks.free_capacity();
        }
        if resume || closing || uploads {
            self.enqueue_session(key);
        }
    }

    /// Closes our side of a session that takes no further requests once its last reply is out.
    pub(super) fn close_if_finished(&mut self, key: Key) {
        let Some(session) = self.downstream.client_mut(key) else { return };
        if !session.is_finished() {
            return;
        }
        session.linger();
        let (conn, eof) = (session.handle(), session.has_ended());
        let is_short = session.bytes_out() <= CLOSE_UNSENT_BYTES_MAX;
        if eof && is_short && self.io.driver_mut().expect_no_input(conn) {
            return self.end_session(key, true);
        }
        self.io.driver_mut().shutdown(conn);
        self.set_receiving(key, !eof);
        self.linger_on(key);
    }

    /// Looks after a session of which our side is closed: it ends when its output is out and the client has closed its
    /// side too, or when the client does neither for long. It stays in the table till then, so that clients who
    /// do not read count against the limit of sessions, and a worker that drains does not leave before its last bytes.
    pub(super) fn linger_on(&mut self, key: Key) {
        let now_ns = self.io.now_ns();
        let Some(session) = self.downstream.client_mut(key) else { return };
        let unsent_bytes = self.io.driver().backlog_bytes(session.handle());
        let conn = session.handle();
        match session.linger_on(unsent_bytes, now_ns, LINGER_MS * MS) {
            Linger::Finished => {
                if session.has_ended() {
                    self.io.driver_mut().expect_no_input(conn);
                }
                self.end_session(key, true);
            }
            Linger::Stuck => {
                self.observe.counters().slow_clients_dropped.add(1);
                self.io.driver_mut().abort(conn);
                self.end_session(key, false);
            }
            Linger::Flushes => self.set_deadline(key, DeadlineKind::Flush, now_ns + FLUSH_TICK_MS * MS),
            Linger::AwaitsClient => self.set_deadline(key, DeadlineKind::Linger, now_ns + LINGER_MS * MS),
        }
    }

    /// Resets a client whose reply is truncated, or has no error response, once what it was sent in this iteration is
    /// written: that much is delivered.
    fn break_session(&mut self, key: Key) {
        let Some(session) = self.downstream.client(key) else { return };
        let is_idle = self.io.driver().backlog_bytes(session.handle()) == 0;
        if is_idle || !self.downstream.can_reset() {
            self.end_session(key, true);
            return;
        }
        self.stop_reading(key);
        if let Some(session) = self.downstream.client_mut(key) {
            let requests = session.stream_mut().take_requests();
            self.downstream.reset_when_sent(key);
            self.drop_requests(requests);
        }
    }

    /// No client waits for the replies to these: they stay in the in-flight table until they have been drained.
    fn drop_requests(&mut self, mut requests: RequestQueue) {
        while let Some(request) = requests.front() {
            self.abandon_exchange(request);
            self.log_gone(request);
            let reply_target = self.inflight.get_mut(request).set_reply_target(ReplyTarget::Nothing);
            self.inflight.pop_session(&mut requests, self.io.pieces_mut());
            if let ReplyTarget::Answerer(suspended) = reply_target {
                self.cancel(suspended);
            }
        }
    }

    /// Resets the sessions that were noted for that, after their output has been handed to the kernel.
    pub(super) fn reset_broken_sessions(&mut self) {
        while let Some(key) = self.downstream.pop_reset() {
            self.end_session(key, true);
        }
    }

    /// Ends a session now. Requests in flight stay in the in-flight table until their replies have been drained.
    /// `abort`: the connection still exists.
    pub(super) fn end_session(&mut self, key: Key, abort: bool) {
        if abort && let Some(session) = self.downstream.client(key) {
            let conn = session.handle();
            if session.is_lingering() {
                self.io.driver_mut().close(conn);
            } else {
                self.io.driver_mut().abort(conn);
            }
        }
        let Some(mut session) = self.downstream.remove(key) else { return };
        if session.inbox().is_amid() {
            self.observe.counters().truncated.add(1);
        }
        if let Some(backend) = session.stream_mut().resume() {
            self.upstream.backend_mut(backend as usize).remove_pending();
        }
        self.io.clear_inbox(session.inbox_mut());
        self.drop_requests(session.stream_mut().take_requests());
        self.observe.counters().connections_open.sub(1);
        self.release_session_slot(session.handle());
        self.tasks.free_capacity();
        self.notify_of_client(&session, abort && session.ends_in_good_order());
        self.break_dedicated(session.stream().upload(), FailureReason::Unavailable);
        if let Some(tunnel) = session.stream().tunnel() {
            self.leave_tunnel(tunnel);
        }
        self.drop_relay_conns(session.stream().relay_conns(), None);
        if self.listeners.is_paused() {
            self.resume_accept();
        }
    }

    /// No client waits for the reply to `request`: a connection that carries nothing else is closed soon, rather than
    /// drained.
    pub(super) fn abandon_exchange(&mut self, request: RequestId) {
        let Some(backend_conn) = self.inflight.get(request).dedicated_conn() else { return };
        if self.upstream.conn(backend_conn).requests().front() == Some(request) {
            self.leave_exchange(backend_conn);
            self.enqueue_backend_conn(backend_conn);
        }
    }

    /// Writes a message to a backend connection, and keeps it with the entry `resend`; `false` when buffers are out.
    pub(super) fn write_to_backend_conn(
        &mut self,
        backend_conn: u32,
        message: &Outgoing<'_>,
        patches: Patches,
        resend: Option<RequestId>,
    ) -> bool {
        let Some(conn) = self.upstream.conn(backend_conn).handle() else { return false };
        let batch = self.upstream.batch_mut(backend_conn);
        let WriteParts { driver, pool, pieces } = self.io.write_parts();
        let mut kept = resend.map(|request| self.inflight.get_mut(request).resend_mut());
        let (mut is_kept, mut sent) = (true, 0);
        let mut emit = |slice: Slice| {
            sent += u64::from(slice.len());
            if let Some(kept) = &mut kept {
                is_kept &= pieces.push(kept, slice.clone());
            }
            driver.send(conn, slice);
        };
        let fits = append(pool, batch, BufClass::Large, message, patches, &mut emit);
        if let Rest::Shared(rest) = &message.rest {
            emit(rest.clone());
        }
        // What is not kept whole is not sent again.
        if let Some(kept) = kept.filter(|_| !is_kept) {
            pieces.clear(kept);
        }
        self.note_backend_sent(backend_conn, sent);
        fits
    }

    /// Sends bytes on a backend connection by reference.
    pub(super) fn pass_to_backend_conn(&mut self, backend_conn: u32, conn: Handle, piece: Slice) {
        self.note_backend_sent(backend_conn, u64::from(piece.len()));
        self.io.driver_mut().send(conn, piece);
    }

    pub(super) fn note_backend_sent(&mut self, backend_conn: u32, bytes: u64) {
        let conn = self.upstream.conn_mut(backend_conn);
        conn.note_sent(bytes);
        self.observe.backend(conn.backend() as usize).bytes_sent.add(bytes);
    }
}

/// Returns the fields to overwrite in a reply: those that the worker has changed in its request.
pub(super) fn reply_patches(
    setup: &crate::setup::Setup,
    echo: &[u64; flick_abi::limits::ECHO_FIELDS_MAX],
) -> Patches {
    let protocol = setup.protocol();
    [protocol.correlate, protocol.non_quiet].map(|at| Some((protocol.echo[at?].reply?, echo[at?])))
}

/// Puts the kept fields of a request into an empty frame, as its parser does.
pub(super) fn restore_request(frame: &mut Frame, fields: &[EchoField], echo: &[u64; ECHO_FIELDS_MAX]) {
    for (field, value) in fields.iter().zip(echo) {
        frame.slots[usize::from(field.request.slot)] = *value;
    }
}

/// Puts the kept fields of a request into the frame of its reply, where the reply repeats them.
pub(super) fn restore_echo(frame: &mut Frame, fields: &[EchoField], echo: &[u64; ECHO_FIELDS_MAX]) {
    for (field, value) in fields.iter().zip(echo) {
        if let Some(reply) = &field.reply {
            frame.slots[usize::from(reply.slot)] = *value;
        }
    }
}

/// Appends what is copied of a message, without what is cut from it, to the buffer being filled, with `patches`
/// applied, and emits the written ranges. Further buffers have this class; while large ones are plentiful, what fills
/// one is put into one. `false` when the pool is empty.
pub(super) fn append(
    pool: &Pool,
    fill: &mut Option<Buf>,
    class: BufClass,
    message: &Outgoing<'_>,
    patches: Patches,
    emit: &mut impl FnMut(Slice),
) -> bool {
    let mut append = |bytes, patches| append_bytes(pool, fill, class, bytes, patches, emit);
    let front_fits = match message.cuts {
        None => append(message.front, patches),
        Some(frame) => {
            // Patched fields are at fixed places, before anything that may be cut.
            let mut patches = patches;
            let mut pieces = frame.forwarded(0, message.front.len() as u64);
            pieces.all(|piece| append(piece.bytes(message.front), std::mem::take(&mut patches)))
        }
    };
    match message.rest {
        Rest::Copied(rest) => front_fits && append(rest, [None, None]),
        Rest::Nothing | Rest::Shared(_) => front_fits,
    }
}

fn append_bytes(
    pool: &Pool,
    fill: &mut Option<Buf>,
    class: BufClass,
    bytes: &[u8],
    patches: Patches,
    emit: &mut impl FnMut(Slice),
) -> bool {
    let patched_end =
        patches.iter().flatten().map(|(field, _)| field.offset + u32::from(field.width_bytes)).max();
    let front_len = patched_end.unwrap_or(0);
    assert!(front_len as usize <= bytes.len(), "patched fields lie inside the message");
    let mut at = 0;
    while at < bytes.len() {
        let needed = if at == 0 { front_len.max(1) } else { 1 };
        if fill.as_ref().is_none_or(|buf| buf.spare() < needed) {
            let is_long = bytes.len() - at >= LARGE_BYTES as usize;
            let class = if is_long && large_are_plentiful(pool) { BufClass::Large } else { class };
            let Some(buf) = pool.alloc(class) else { return false };
            *fill = Some(buf);
        }
        let buf = fill.as_ref().expect("a buffer was just put there");
        let start = buf.len();
        let rest = &bytes[at..];
        let taken = buf.append_with(rest.len() as u32, |spare| {
            spare.copy_from_slice(&rest[..spare.len()]);
            if at == 0 {
                for (field, value) in patches.iter().flatten() {
                    field.write(spare, *value);
                }
            }
            spare.len() as u32
        });
        at += taken as usize;
        emit(buf.slice(start..start + taken));
    }
    true
}

/// Whether large buffers are plentiful: those in use leave enough for what arrives.
pub(super) fn large_are_plentiful(pool: &Pool) -> bool {
    pool.live_count(BufClass::Large) < pool.capacity_count(BufClass::Large) / PLENTY_SHARE
}

#[cfg(test)]
mod tests {
    use super::append;
    use crate::worker::outgoing::{Outgoing, Rest};
    use flick_buffers::{BufClass, LARGE_BYTES, Pool, PoolConfig};

    #[test]
    fn long_reply_was_cut_into_small_buffers() {
        let pool = Pool::new(PoolConfig { small_count: 64, large_count: 12, huge_count: 0 });
        let large = LARGE_BYTES as usize;
        let message: Vec<u8> = (0..4 * large + 100).map(|at| (at % 251) as u8).collect();
        let outgoing = Outgoing { front: &message, cuts: None, rest: Rest::Nothing };
        let (mut fill, mut pieces) = (pool.alloc(BufClass::Small), Vec::new());
        let small = BufClass::Small;
        assert!(append(&pool, &mut fill, small, &outgoing, [None, None], &mut |piece| pieces.push(piece)));
        let sent: Vec<u8> = pieces.iter().flat_map(|piece| piece.bytes().to_vec()).collect();
        assert_eq!(sent, message);
        // A small buffer that was begun is filled, then large ones, of which most are kept for what arrives.
        let lens: Vec<usize> = pieces.iter().map(|piece| piece.len() as usize).collect();
        assert_eq!(lens[1..4], [large; 3]);
        assert!(lens[4..].iter().all(|len| *len <= small.bytes() as usize));
        assert_eq!(pool.live_count(BufClass::Large), 3);
    }
}
