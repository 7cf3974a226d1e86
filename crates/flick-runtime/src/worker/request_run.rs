//! Runs of requests that the program answers itself: whole requests of a client that lie in one received buffer,
//! handled in one step of its task.
//! Promises: bytes, their order and all counters are those of requests that are handled one by one; between two
//! requests the task's time slice, the client's output and the buffers are checked as between two steps.
//! Refuses: requests that are cut, streamed or malformed, that get no reply or are the last of their session, and what
//! a rule sends that cannot be delivered at once: they end the run and are handled by themselves.

use flick_abi::frame::{SLOT_ASKED, SLOT_CARRIED};
use flick_abi::limits::SENDS_MAX;
use flick_abi::{Frame, FuncId, MessageDone, MessageFlags, Send, SendBody};
use flick_buffers::{Buf, BufClass, Pool, Slice};
use flick_net::{Driver, Handle};

use super::Worker;
use super::backend_view::BackendView;
use super::deliver::{append, reply_patches};
use super::outgoing::{Outgoing, Patches, Rest, SendSources, has_tail};
use super::overload::buffers_are_few;
use super::reply_flags::{BuiltReader, Echo, Verdict};
use super::rules::{LEFT_FLAGS, RuleContext, reason};
use super::sending::echo_of;
use crate::downstream::window::Window;
use crate::io::WriteParts;
use crate::limits::{SCARCE_SHARE, SESSION_BACKLOG_BYTES_MAX};
use crate::observe::counters::Counters;
use crate::observe::edge_counters::StartId;
use crate::rules::RuleParts;
use crate::rules::scratch::Scratch;
use crate::run_queue::Flow;
use crate::slab::Key;

/// Reason for a run to end.
#[derive(Clone, Copy)]
enum RunEnd {
    /// No further request is handled in this step.
    Over,
    /// The rule of the last request, which has this many bytes, has run; its sends from that number on are not carried
    /// out.
    Unsent { bytes: u32, first: usize },
    /// No buffer is free.
    Exhausted,
}

/// Progress of a run.
struct RequestRun {
    /// Requests that the rule has run on.
    taken: u32,
    /// Messages that were sent in reply to those of them that do not remain unsent.
    sends: u64,
    /// Requests that have been answered.
    answered: u32,
    /// Bytes of the received buffer whose requests the rule has run on.
    taken_bytes: u32,
    /// The number that the last of them that does not remain unsent has for the next one.
    carried: u64,
    end: RunEnd,
}

impl<D: Driver> Worker<D> {
    /// Handles a whole request of a client, which was parsed last, and those behind it in the same buffer. `None`: they
    /// are handled one by one.
    pub(super) fn request_run(&mut self, key: Key, scratch: &mut Scratch, first: &Slice) -> Option<Flow> {
        let setup = self.ctx.setup();
        let rule = setup.answering_rule()?;
        let session = self.downstream.client(key)?;
        let piece = session.inbox().piece(self.io.pieces()).filter(|piece| piece.len() > first.len())?;
        let is_free = session.stream().requests().is_empty() && self.inflight.capacity() > SENDS_MAX;
        let is_left = scratch.frame.flags().has_any(LEFT_FLAGS);
        if is_left || !is_free || self.observe.has_access_log() || !self.clock.sheds_none() {
            return None;
        }
        let (piece, listened) = (piece.clone(), setup.listened);
        let run = self.run_requests(key, scratch, (rule, &piece))?;
        let further = run.taken.checked_sub(1).expect("a run begins with a whole request");
        self.rules.set_preloaded(self.rules.preloaded().saturating_sub(further));
        if self.clock.may_shed() {
            self.clock.note_unshed(u64::from(further));
        }
        let (unsent, unsent_bytes) = match run.end {
            RunEnd::Unsent { bytes, .. } => (1, bytes),
            RunEnd::Over | RunEnd::Exhausted => (0, 0),
        };
        let carried_out = u64::from(run.taken - unsent);
        let (start, now_ns) = (StartId::channel(listened), self.io.now_ns());
        self.observe.counters().requests.add(carried_out);
        self.observe.edges().started(start, carried_out);
        self.observe.edges().sent(start, listened as u32, run.sends);
        for _ in 0..run.answered {
            self.observe.note_answered(Some(now_ns), None, now_ns);
        }
        self.consume(key, run.taken_bytes - unsent_bytes, run.carried);
        self.go_on_after_reply(key);
        match run.end {
            RunEnd::Over => {}
            RunEnd::Unsent { bytes, first } => {
                let message = piece.sub(run.taken_bytes - bytes..run.taken_bytes);
                return Some(self.carry_out_request(key, scratch, message, (None, first)));
            }
            RunEnd::Exhausted => self.client_exhausted(key),
        }
        Some(Flow::Go)
    }

    /// Runs the rule on requests at the front of `piece`, and delivers its replies. `None`: the client is gone.
    fn run_requests(
        &mut self,
        key: Key,
        scratch: &mut Scratch,
        (rule, piece): (FuncId, &Slice),
    ) -> Option<RequestRun> {
        let session = self.downstream.client(key)?;
        let (conn, state) = (session.handle(), session.stream().state());
        let client = Some(self.io.peer(conn));
        self.first_values(scratch, state);
        let setup = &**self.ctx.setup();
        let notice = self.notice(Some(key), setup.protocol().keep_last);
        // Those whose dictionary entries have been loaded.
        let further_max = setup.lookup.map_or(u32::MAX, |_| self.rules.preloaded());
        let around = BackendView { setup, upstream: &self.upstream, now_ns: self.io.now_ns(), client };
        let RuleParts { locals, host, counters, .. } = self.rules.parts();
        let context = RuleContext::new(setup, setup.listened, self.upstream.backend_set().lens(), counters);
        let (state, mut host) = (locals.words_mut(state), host.view(&around));
        let WriteParts { driver, pool, .. } = self.io.write_parts();
        let backlog = driver.backlog_bytes(conn) as u64;
        let session = self.downstream.client_to_fill(key)?;
        let mut fill = session.fill_mut().take();
        let Scratch { frame, ahead, ahead_len, out, sends, asks, spills, .. } = scratch;
        let Scratch { other, joined, named_frame, failure, .. } = scratch;
        let ahead = &mut ahead[..std::mem::take(ahead_len)];
        // The first request is parsed again.
        let carried = session.inbox().carried();
        frame.slots[SLOT_CARRIED] = carried;
        let mut answers = Answers {
            reader: BuiltReader { setup, other, joined },
            output: ReplyOutput::new(driver, (pool, conn), &mut fill),
            window: session.stream_mut().window_mut(),
            counters: self.observe.counters(),
            piece,
            named_frame,
            notice,
            run: RequestRun { taken: 0, sends: 0, answered: 0, taken_bytes: 0, carried, end: RunEnd::Over },
        };
        let sheds = self.clock.may_shed();
        let clock = &mut self.clock;
        let mut done = |message: MessageDone<'_>| {
            *failure = message.failure.map(reason);
            let is_done = answers.carry_out(&message);
            let goes_on = is_done
                && answers.run.taken <= further_max
                && backlog + answers.output.sent_bytes <= SESSION_BACKLOG_BYTES_MAX as u64
                && !(sheds && buffers_are_few(pool, SCARCE_SHARE))
                && clock.take_further();
            goes_on.then_some(0)
        };
        context.run_each(
            rule,
            (&mut *frame, &mut *ahead, piece.bytes()),
            (sends, asks, spills),
            (out, 0),
            (state, &mut host),
            &mut done,
        );
        let Answers { mut output, run, .. } = answers;
        let last = (run.taken as usize).saturating_sub(1).min(ahead.len());
        if let (RunEnd::Unsent { .. }, Some(last)) = (run.end, last.checked_sub(1)) {
            frame.copy_from(&ahead[last]);
        }
        output.flush();
        let sent_bytes = output.sent_bytes;
        *session.fill_mut() = fill;
        session.note_sent(sent_bytes);
        Some(run)
    }
}

/// Outcome for a message that a rule has sent.
enum Delivery {
    /// It is delivered, or its client wants none.
    Done,
    /// It is not for a run.
    Unsent,
    /// No buffer is free.
    Exhausted,
}

/// Delivers the replies of a run.
struct Answers<'a, D: Driver> {
    reader: BuiltReader<'a>,
    output: ReplyOutput<'a, D>,
    window: &'a mut Window,
    counters: &'a Counters,
    /// The received bytes.
    piece: &'a Slice,
    /// Frame of no message: none but the request is referred to.
    named_frame: &'a Frame,
    /// Notice in replies to clients that are to leave, see [`Worker::notice`].
    notice: u64,
    run: RequestRun,
}

impl<D: Driver> Answers<'_, D> {
    /// Carries out what the rule has sent in reply to a request. Whether all of it could be.
    fn carry_out(&mut self, message: &MessageDone<'_>) -> bool {
        let (range, sends) = (message.range.start as u32..message.range.end as u32, message.sends.as_slice());
        self.run.taken += 1;
        self.run.taken_bytes = range.end;
        let unsent = |first| RunEnd::Unsent { bytes: range.end - range.start, first };
        let echo = echo_of(self.reader.setup.protocol(), message.frame);
        let kept = message.frame.slots[SLOT_ASKED] + self.notice;
        let carried = std::mem::replace(&mut self.run.carried, message.frame.slots[SLOT_CARRIED]);
        for (at, send) in sends.iter().enumerate() {
            match self.deliver(message, send, (&echo, kept)) {
                Delivery::Done => {}
                Delivery::Unsent => (self.run.end, self.run.carried) = (unsent(at), carried),
                Delivery::Exhausted => {
                    self.run.sends += sends.len() as u64;
                    self.run.end = RunEnd::Exhausted;
                }
            }
            if !matches!(self.run.end, RunEnd::Over) {
                return false;
            }
        }
        if sends.is_empty() {
            (self.run.end, self.run.carried) = (unsent(0), carried);
            return false;
        }
        self.run.sends += sends.len() as u64;
        true
    }

    fn deliver(&mut self, message: &MessageDone<'_>, send: &Send, (echo, kept): (&Echo, u64)) -> Delivery {
        let (body, setup) = (send.body, self.reader.setup);
        let range = message.range.start as u32..message.range.end as u32;
        let request = has_tail(body).then(|| self.piece.sub(range));
        let sources = SendSources {
            frame: message.frame,
            out: message.out,
            named: None,
            named_frame: self.named_frame,
        };
        let mut built = sources.outgoing(body, request.as_ref());
        let (mut verdict, mut flags, mut patches) =
            (Verdict::Delivered, MessageFlags::default(), [None, None]);
        if let SendBody::Rebuilt { .. } = body {
            verdict = self.reader.judge((message.frame, &built, body), (echo, kept));
            flags = self.reader.other.flags();
            patches = reply_patches(setup, echo);
            built.cuts = self.reader.other.is_edited().then_some(&*self.reader.other);
        }
        match verdict {
            Verdict::Wrong | Verdict::DeliveredAndLast => return Delivery::Unsent,
            Verdict::Silent => self.counters.replies_suppressed.add(1),
            Verdict::Delivered => {
                self.counters.replies.add(1);
                if let Some(status) = flags.status() {
                    self.counters.count_status(status);
                }
                let sent_before = self.output.sent_bytes;
                if !self.output.send(&built, patches) {
                    return Delivery::Exhausted;
                }
                self.window.note_reply(self.output.sent_bytes - sent_before);
            }
        }
        self.run.answered += u32::from(verdict == Verdict::Silent || !flags.has(MessageFlags::MORE));
        Delivery::Done
    }
}

/// Output of a run: replies are joined in the batch buffer of the client, as long as they fit.
struct ReplyOutput<'a, D: Driver> {
    driver: &'a mut D,
    pool: &'a Pool,
    conn: Handle,
    fill: &'a mut Option<Buf>,
    /// Start of the bytes of `fill` that are still to be sent.
    from: u32,
    /// Bytes of all replies.
    sent_bytes: u64,
}

impl<'a, D: Driver> ReplyOutput<'a, D> {
    fn new(driver: &'a mut D, (pool, conn): (&'a Pool, Handle), fill: &'a mut Option<Buf>) -> Self {
        let from = fill.as_ref().map_or(0, Buf::len);
        Self { driver, pool, conn, fill, from, sent_bytes: 0 }
    }

    /// Sends a reply; `false` when the pool is empty.
    fn send(&mut self, reply: &Outgoing<'_>, patches: Patches) -> bool {
        self.join(reply, patches) || self.send_apart(reply, patches)
    }

    /// Copies a reply to the batch buffer, if that is all that there is to do and it fits.
    fn join(&mut self, reply: &Outgoing<'_>, patches: Patches) -> bool {
        let Outgoing { front, cuts: None, rest: Rest::Nothing | Rest::Copied(_) } = reply else {
            return false;
        };
        let rest = reply.rest.bytes();
        let len = (front.len() + rest.len()) as u32;
        let Some(buf) = self.fill.as_ref().filter(|buf| buf.spare() >= len) else { return false };
        buf.append_with(len, |spare| {
            let (to_front, to_rest) = spare.split_at_mut(front.len());
            to_front.copy_from_slice(front);
            to_rest.copy_from_slice(rest);
            patches.iter().flatten().for_each(|(field, value)| field.write(to_front, *value));
            len
        });
        self.sent_bytes += u64::from(len);
        true
    }

    fn send_apart(&mut self, reply: &Outgoing<'_>, patches: Patches) -> bool {
        self.flush();
        let Self { driver, pool, conn, fill, from, sent_bytes } = self;
        let mut emit = |slice: Slice| {
            *sent_bytes += u64::from(slice.len());
            driver.send(*conn, slice);
        };
        let is_sent = append(pool, fill, BufClass::Small, reply, patches, &mut emit);
        if let Rest::Shared(rest) = &reply.rest {
            emit(rest.clone());
        }
        *from = fill.as_ref().map_or(0, Buf::len);
        is_sent
    }

    /// Sends what has been joined.
    fn flush(&mut self) {
        if let Some(buf) = self.fill.as_ref().filter(|buf| buf.len() > self.from) {
            self.driver.send(self.conn, buf.slice(self.from..buf.len()));
            self.from = buf.len();
        }
    }
}
