//! Runs of a relay: whole messages of a client that lie in one received buffer, handled in one step of its task.
//! Promises: bytes, their order and all counters are those of messages that are handled one by one; a run handles a
//! bounded number of messages and ends when the backend connection is full.
//! Refuses: messages that are cut, streamed or malformed, and any that a rule sends elsewhere than to the backend
//! connection of the run: they end it and are handled by themselves.

use std::ops::Range;

use flick_abi::{FailureReason, Frame, FuncId, Host, MessageDone, SendBody, SendList};
use flick_buffers::{Buf, BufClass, Pool, Slice};
use flick_net::{Driver, Handle};

use super::Worker;
use super::backend_view::BackendView;
use super::relay::End;
use super::rules::{RuleContext, Start, reason};
use crate::downstream::inbox::parse_whole;
use crate::io::WriteParts;
use crate::limits::{COPY_BYTES_MAX, SESSION_BACKLOG_BYTES_MAX};
use crate::observe::edge_counters::StartId;
use crate::rules::RuleParts;
use crate::rules::scratch::Scratch;
use crate::run_queue::Flow;
use crate::slab::Key;

/// The backend connection of a run.
#[derive(Clone, Copy)]
struct Leg {
    slot: u32,
    conn: Handle,
    channel: u32,
    element: u64,
}

/// Reason for a run to end.
enum RunEnd {
    /// No further message is handled in this step.
    Over,
    /// The rules of the last message, which has this many bytes, have run; its sends are not carried out.
    Unsent(u32),
    /// No buffer is free.
    Exhausted,
}

/// Progress of a run.
struct RelayRun {
    /// Messages whose rules have run.
    messages: u32,
    /// Those of them that have been sent.
    sent: u32,
    /// Bytes of the received buffer that they are.
    taken_bytes: u32,
    /// Bytes that were sent.
    sent_bytes: u64,
    end: RunEnd,
}

impl<D: Driver> Worker<D> {
    /// Handles a whole message of a client, which was parsed last, and those behind it in the same buffer.
    pub(super) fn relay_run(&mut self, key: Key, scratch: &mut Scratch, first: Slice) -> Flow {
        let parts = self.downstream.client(key).and_then(|session| {
            let piece = session.inbox().piece(self.io.pieces())?;
            Some((self.leg_of(session.stream().relay_conns()?)?, piece.clone()))
        });
        let Some((leg, piece)) = parts else {
            return self.relay_message(key, End::Client, scratch, first, true);
        };
        let Some(run) = self.run_messages(key, scratch, &piece, first.len(), leg) else { return Flow::Stop };
        let (start, messages) = (StartId::channel(self.ctx.setup().listened), u64::from(run.messages));
        self.observe.counters().requests.add(messages);
        self.observe.edges().started(start, messages);
        self.observe.edges().sent(start, leg.channel, u64::from(run.sent));
        let backend = self.upstream.conn(leg.slot).backend() as usize;
        self.observe.backend(backend).requests.add(u64::from(run.sent));
        self.note_backend_sent(leg.slot, run.sent_bytes);
        self.clock.note_batch(run.messages - 1);
        self.consume(key, run.taken_bytes, 0);
        self.note_full(key, leg.slot, SESSION_BACKLOG_BYTES_MAX);
        match run.end {
            RunEnd::Over => Flow::Go,
            RunEnd::Unsent(len) => {
                self.observe.edges().carried(start, scratch.sends.as_slice());
                let message = piece.sub(run.taken_bytes - len..run.taken_bytes);
                self.relay_sends(key, End::Client, scratch, &message).map_or(Flow::Stop, |_| Flow::Go)
            }
            RunEnd::Exhausted => {
                self.observe.counters().exhausted.add(1);
                self.relay_failed(key, FailureReason::Overload);
                Flow::Stop
            }
        }
    }

    /// The backend connection in that slot, if messages may be sent on it.
    fn leg_of(&self, slot: u32) -> Option<Leg> {
        let conn = self.upstream.conn(slot);
        let channel = self.upstream.backend_of(slot).channel() as u32;
        Some(Leg { slot, conn: conn.handle()?, channel, element: conn.relay_element()? })
    }

    /// Runs the rules on messages at the front of `piece`, of which the first, of `len` bytes, is parsed, and sends
    /// what they send. `None`: the client is gone.
    fn run_messages(
        &mut self,
        key: Key,
        scratch: &mut Scratch,
        piece: &Slice,
        len: u32,
        leg: Leg,
    ) -> Option<RelayRun> {
        let session = self.downstream.client(key)?;
        let (state, client) = (session.stream().state(), Some(self.io.peer(session.handle())));
        self.first_values(scratch, state);
        let messages_max = self.clock.batch_max();
        let backlog = self.io.driver().backlog_bytes(leg.conn);
        let bytes_max = SESSION_BACKLOG_BYTES_MAX.saturating_sub(backlog) as u64;
        let mut batch = self.upstream.batch(leg.slot).cloned();
        let setup = &**self.ctx.setup();
        let around = BackendView { setup, upstream: &self.upstream, now_ns: self.io.now_ns(), client };
        let RuleParts { locals, host, counters, .. } = self.rules.parts();
        let lens = self.upstream.backend_set().lens();
        let context = RuleContext::new(setup, setup.listened, lens, counters);
        let (state, mut host) = (locals.words_mut(state), host.view(&around));
        let WriteParts { driver, pool, .. } = self.io.write_parts();
        let built_max = setup.program.bounds.out_bytes_max * setup.actions[setup.listened].len() as u64;
        let mut output = RunOutput::new(driver, pool, (leg, built_max), piece, &mut batch);
        let mut run = RelayRun { messages: 0, sent: 0, taken_bytes: 0, sent_bytes: 0, end: RunEnd::Over };
        let goes_on = |run: &RelayRun, sent_bytes: u64| {
            matches!(run.end, RunEnd::Over) && run.messages < messages_max && sent_bytes <= bytes_max
        };
        let mut parsed = Some(len);
        while goes_on(&run, output.sent_bytes) {
            if let Some(rule) = setup.only_rule(setup.listened)
                && output.run_directly((&context, rule), scratch, (&mut *state, &mut host), &mut run, goes_on)
            {
                parsed = None;
                assert!(run.messages > 0, "a run begins with a whole message");
                if !goes_on(&run, output.sent_bytes) {
                    break;
                }
            }
            let rest = &output.bytes[run.taken_bytes as usize..];
            let Some(len) = parsed.take().or_else(|| {
                let parser = setup.view(setup.listened).parse_request;
                parse_whole(&*setup.engine, parser, &mut scratch.frame, rest)
            }) else {
                break;
            };
            let range = run.taken_bytes..run.taken_bytes + len;
            let start = Start { channel: setup.listened, element: 0, message: &rest[..len as usize] };
            let mut out = std::mem::take(&mut scratch.out);
            let paused = Self::run_rules(&context, (scratch, &mut out), state, &mut host, &start);
            scratch.out = out;
            assert!(paused.is_none(), "a rule of a relay never suspends");
            let sending = sending_of(leg, (&scratch.frame, &scratch.sends, scratch.failure), range.start);
            run.note(&range, output.send(sending, range.clone(), &scratch.out));
        }
        if output.finish().is_err() {
            run.end = RunEnd::Exhausted;
        }
        run.sent_bytes = output.sent_bytes;
        self.upstream.set_batch(leg.slot, batch);
        Some(run)
    }
}

impl RelayRun {
    /// Notes what has become of the message at `range`.
    #[inline]
    fn note(&mut self, range: &Range<u32>, sent: Result<Sent, OutOfBuffers>) {
        self.messages += 1;
        self.taken_bytes = range.end;
        match sent {
            Ok(Sent::Here) => self.sent += 1,
            Ok(Sent::Nowhere) => {}
            Ok(Sent::Elsewhere) => self.end = RunEnd::Unsent(range.end - range.start),
            Err(OutOfBuffers) => self.end = RunEnd::Exhausted,
        }
    }
}

/// Target of what the rules of a message send.
enum Sent {
    /// The backend connection of the run, and the message is appended to its output.
    Here,
    /// None: the message is dropped.
    Nowhere,
    /// Another one, or several.
    Elsewhere,
}

/// No buffer is free.
struct OutOfBuffers;

/// Target and form of what the rules of a message have sent.
enum Sending {
    /// The message as it came.
    Unchanged,
    /// `len` bytes at `offset` of what they have built, and the bytes of the piece from `tail_from` to the message's
    /// end.
    Changed {
        offset: u32,
        len: u32,
        tail_from: u32,
    },
    Nothing,
    /// To another connection, or in a way that a run does not handle.
    Other,
}

/// Output of a run: changed bytes are in the batch buffer of the backend connection, where the rules build them if they
/// fit. Unchanged bytes are copied there too while they are few, otherwise sent by reference; those of adjacent
/// messages are one range.
struct RunOutput<'a, D: Driver> {
    driver: &'a mut D,
    pool: &'a Pool,
    leg: Leg,
    /// Bytes that the rules of a message build at most.
    built_max: u64,
    piece: &'a Slice,
    /// Bytes of `piece`, which it would look up for each message.
    bytes: &'a [u8],
    /// Unchanged bytes of `piece` that are still to be sent.
    unchanged: Range<u32>,
    batch: &'a mut Option<Buf>,
    /// Start of the bytes of `batch` that are still to be sent.
    batch_from: u32,
    /// Bytes of the messages so far.
    sent_bytes: u64,
}

impl<'a, D: Driver> RunOutput<'a, D> {
    fn new(
        driver: &'a mut D,
        pool: &'a Pool,
        (leg, built_max): (Leg, u64),
        piece: &'a Slice,
        batch: &'a mut Option<Buf>,
    ) -> Self {
        let batch_from = batch.as_ref().map_or(0, Buf::len);
        let bytes = piece.bytes();
        Self { driver, pool, leg, built_max, piece, bytes, unchanged: 0..0, batch, batch_from, sent_bytes: 0 }
    }

    /// Runs the one rule of the channel on the messages from `run.taken_bytes` on, which builds in the place that they
    /// are sent from, while `goes_on` and there is capacity. One that does not fit in there is sent as others are, and
    /// ends it. Returns whether there was capacity for the first one.
    fn run_directly(
        &mut self,
        (context, rule): (&RuleContext<'_>, FuncId),
        scratch: &mut Scratch,
        (state, host): (&mut [u64], &mut dyn Host),
        run: &mut RelayRun,
        goes_on: impl Fn(&RelayRun, u64) -> bool,
    ) -> bool {
        let (bytes, built_max, first) = (self.bytes, self.built_max, run.taken_bytes);
        let batch = self.batch.as_ref().filter(|_| built_max > 0);
        let mut direct = DirectOutput {
            leg: self.leg,
            bytes,
            built_max,
            capacity: batch.map_or(0, Buf::spare),
            unchanged: self.unchanged.clone(),
            used: 0,
            sent_bytes: 0,
        };
        let Some(from) = direct.next_from() else { return false };
        let sent_before = self.sent_bytes;
        let mut left = None;
        let mut fill = |out: &mut [u8]| {
            let built = &mut scratch.out;
            let mut done = |message: MessageDone<'_>| {
                let range = first + message.range.start as u32..first + message.range.end as u32;
                let failure = message.failure.map(reason);
                let sending = sending_of(direct.leg, (message.frame, message.sends, failure), range.start);
                let Some(sent) = direct.send(&sending, &range, message.out) else {
                    built[..message.built.len()].copy_from_slice(&message.out[message.built.clone()]);
                    left = Some((sending, range, message.built.len(), failure));
                    return None;
                };
                run.note(&range, Ok(sent));
                direct.next_from().filter(|_| goes_on(run, sent_before + direct.sent_bytes))
            };
            let each = (&mut scratch.frame, &mut [] as &mut [Frame], &bytes[first as usize..]);
            let tools = (&mut scratch.sends, &mut scratch.asks, &mut scratch.spills[..]);
            context.run_each(rule, each, tools, (out, from), (state, host), &mut done);
            direct.used as u32
        };
        match batch {
            Some(buf) => _ = buf.append_with(buf.spare(), fill),
            None => _ = fill(&mut []),
        }
        (self.unchanged, self.sent_bytes) = (direct.unchanged, sent_before + direct.sent_bytes);
        if let Some((sending, range, built, failure)) = left {
            (scratch.out_len, scratch.failure) = (built, failure);
            run.note(&range, self.send(sending, range.clone(), &scratch.out));
        }
        true
    }

    /// Sends the message at `range` of the piece as its rule says, which has built `built`, if that is to this
    /// connection alone.
    fn send(&mut self, sending: Sending, range: Range<u32>, built: &[u8]) -> Result<Sent, OutOfBuffers> {
        match sending {
            Sending::Unchanged => self.unchanged(range)?,
            Sending::Changed { offset, len, tail_from } => {
                self.changed(&built[offset as usize..(offset + len) as usize])?;
                self.tail(tail_from..range.end)?;
            }
            Sending::Nothing => return Ok(Sent::Nowhere),
            Sending::Other => return Ok(Sent::Elsewhere),
        }
        Ok(Sent::Here)
    }

    /// Sends what is left of a message, which may be nothing.
    #[inline]
    fn tail(&mut self, range: Range<u32>) -> Result<(), OutOfBuffers> {
        if range.start < range.end { self.unchanged(range) } else { Ok(()) }
    }

    #[inline]
    fn unchanged(&mut self, range: Range<u32>) -> Result<(), OutOfBuffers> {
        self.sent_bytes += u64::from(range.end - range.start);
        if self.unchanged.end == range.start {
            self.unchanged.end = range.end;
            return Ok(());
        }
        if !self.unchanged.is_empty() {
            self.send_unchanged()?;
        }
        self.unchanged = range;
        Ok(())
    }

    fn changed(&mut self, bytes: &[u8]) -> Result<(), OutOfBuffers> {
        self.sent_bytes += bytes.len() as u64;
        if self.unchanged.end - self.unchanged.start > COPY_BYTES_MAX {
            self.send_unchanged()?;
        }
        let before = self.take_unchanged();
        self.copy([before, bytes])
    }

    fn take_unchanged(&mut self) -> &'a [u8] {
        let range = std::mem::replace(&mut self.unchanged, 0..0);
        &self.bytes[range.start as usize..range.end as usize]
    }

    fn send_unchanged(&mut self) -> Result<(), OutOfBuffers> {
        if self.unchanged.end - self.unchanged.start <= COPY_BYTES_MAX {
            let bytes = self.take_unchanged();
            return self.copy([bytes, &[]]);
        }
        self.send_batch();
        let range = std::mem::replace(&mut self.unchanged, 0..0);
        self.driver.send(self.leg.conn, self.piece.sub(range));
        Ok(())
    }

    /// Copies both to the batch buffer, in one step if they fit.
    #[inline]
    fn copy(&mut self, parts: [&[u8]; 2]) -> Result<(), OutOfBuffers> {
        let [first, second] = parts;
        let len = (first.len() + second.len()) as u32;
        if let Some(buf) = self.batch.as_ref().filter(|buf| buf.spare() >= len) {
            buf.append_with(len, |spare| {
                let (front, back) = spare.split_at_mut(first.len());
                front.copy_from_slice(first);
                back.copy_from_slice(second);
                len
            });
            return Ok(());
        }
        parts.into_iter().try_for_each(|part| self.copy_across(part))
    }

    /// Copies to the batch buffer, and to further ones where it is full.
    fn copy_across(&mut self, mut bytes: &[u8]) -> Result<(), OutOfBuffers> {
        while !bytes.is_empty() {
            let taken = self.batch.as_ref().map_or(0, |buf| buf.append(bytes));
            bytes = &bytes[taken as usize..];
            if !bytes.is_empty() {
                self.send_batch();
                *self.batch = Some(self.pool.alloc(BufClass::Large).ok_or(OutOfBuffers)?);
                self.batch_from = 0;
            }
        }
        Ok(())
    }

    fn send_batch(&mut self) {
        if let Some(buf) = self.batch.as_ref().filter(|buf| buf.len() > self.batch_from) {
            self.driver.send(self.leg.conn, buf.slice(self.batch_from..buf.len()));
            self.batch_from = buf.len();
        }
    }

    /// Sends what is left.
    fn finish(&mut self) -> Result<(), OutOfBuffers> {
        let sent = self.send_unchanged();
        self.send_batch();
        sent
    }
}

/// The messages of a run whose rule builds in the place that they are sent from.
struct DirectOutput<'a> {
    leg: Leg,
    /// Bytes of the piece.
    bytes: &'a [u8],
    /// Bytes that the rule builds for a message at most.
    built_max: u64,
    /// Bytes of the output in all.
    capacity: u32,
    /// Unchanged bytes of the piece that are still to be sent. The next message is built as far behind `used` as they
    /// are long.
    unchanged: Range<u32>,
    /// Bytes of the output so far.
    used: usize,
    /// Bytes of the messages so far.
    sent_bytes: u64,
}

impl DirectOutput<'_> {
    fn waiting(&self) -> usize {
        (self.unchanged.end - self.unchanged.start) as usize
    }

    /// Returns where the next message is built; `None` if what it may build does not fit.
    fn next_from(&self) -> Option<usize> {
        if self.built_max == 0 {
            return Some(0);
        }
        let from = self.used + self.waiting();
        let fits = from as u64 + self.built_max <= u64::from(self.capacity);
        (fits && self.waiting() <= COPY_BYTES_MAX as usize).then_some(from)
    }

    /// Sends the message at `range`. `None`: it cannot be sent from here.
    #[inline]
    fn send(&mut self, sending: &Sending, range: &Range<u32>, out: &mut [u8]) -> Option<Sent> {
        match *sending {
            Sending::Changed { offset: 0, len, tail_from } if !out.is_empty() => {
                let waiting = &self.bytes[self.unchanged.start as usize..self.unchanged.end as usize];
                out[self.used..self.used + waiting.len()].copy_from_slice(waiting);
                self.used += waiting.len() + len as usize;
                self.unchanged = tail_from.min(range.end)..range.end;
                self.sent_bytes += u64::from(len) + self.waiting() as u64;
            }
            Sending::Unchanged if self.unchanged.end == range.start || self.unchanged.is_empty() => {
                let start = if self.unchanged.is_empty() { range.start } else { self.unchanged.start };
                self.unchanged = start..range.end;
                self.sent_bytes += u64::from(range.end - range.start);
            }
            Sending::Nothing => return Some(Sent::Nowhere),
            Sending::Unchanged | Sending::Changed { .. } | Sending::Other => return None,
        }
        Some(Sent::Here)
    }
}

/// Returns what the rules of a message, which begins at `start` of the piece, have sent to the connection of the run.
#[inline]
fn sending_of(
    leg: Leg,
    (frame, sends, failure): (&Frame, &SendList, Option<FailureReason>),
    start: u32,
) -> Sending {
    let send = match sends.as_slice() {
        [send] if send.channel == leg.channel && send.element == leg.element => send,
        [] if failure.is_none() => return Sending::Nothing,
        _ => return Sending::Other,
    };
    match send.body {
        SendBody::Original if !frame.is_edited() => Sending::Unchanged,
        SendBody::Rebuilt { offset, len, tail_from, tail_of: 0 } => {
            Sending::Changed { offset, len, tail_from: start.saturating_add(tail_from) }
        }
        SendBody::Original | SendBody::Message(_) | SendBody::Rebuilt { .. } => Sending::Other,
    }
}
