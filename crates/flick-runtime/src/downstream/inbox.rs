//! The input channel of a task: bytes as they arrived, turned into messages by the grammar's parser.
//! Promises: a message is looked at in the buffer it arrived in unless it was cut; a cut one is copied to one
//! buffer, so an idle connection holds at most the bytes of one unfinished message, and none between messages.
//! Refuses: deciding what a message is; that is generated code.

use flick_abi::frame::{SLOT_ASKED, SLOT_CARRIED};
use flick_abi::{Engine, FaultCause, Frame, FuncId, MessageFlags, ParseStep};
use flick_buffers::{Buf, BufClass, HUGE_BYTES, LARGE_BYTES, Pool, SMALL_BYTES, Slice};

use crate::limits::WHOLE_BYTES_MAX;
use crate::pieces::{PieceQueue, Pieces};
use crate::slab::{Key, Slab};

/// Front of an inbox, as the parser finds it.
#[derive(Debug)]
pub enum NextMessage {
    /// A whole message; its frame is in the frame that was passed.
    Whole(Slice),
    /// The head of a message too large to buffer, or of one in parts, and what has arrived behind it in the same
    /// piece.
    Large(Slice),
    /// A message that must be buffered is longer than allowed.
    TooLong,
    /// Nothing whole yet.
    Starved,
    /// Not of the grammar. `answerable`: the echo fields were decoded before the fault.
    Fault {
        /// Index of the field in its unit, for the log.
        field: u32,
        /// Cause of the fault, see [`ParseStep::Fault`].
        cause: FaultCause,
        /// Whether the frame holds the echo fields.
        answerable: bool,
    },
    /// The pool is empty.
    NoBuffers,
    /// All huge buffers are in use: it goes on when one is free.
    Waits,
}

/// Parameters for parsing the front message.
#[derive(Clone, Copy, Debug)]
pub struct ParseSpec {
    /// The parser of the grammar.
    pub parser: FuncId,
    /// Value that the grammar kept of the request (`%keep`), if the message is its reply; else 0.
    pub asked: u64,
    /// Part of the message that must have arrived, if it is short.
    pub wants: Completeness,
}

/// Part of a short message that must have arrived before it is taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Completeness {
    /// All of it.
    All,
    /// All of it where its grammar says so (`%whole`), else its head.
    AsDeclared,
    /// Its head: the rest is streamed.
    Head,
    /// All of it; but one that ends with its connection, and has no head, begins before its first byte.
    Nothing,
}

impl Completeness {
    /// Of the next message of a relay: at the first look, `is_fresh`, nothing need have arrived.
    pub fn of_relay(is_fresh: &mut bool) -> Self {
        if std::mem::take(is_fresh) { Self::Nothing } else { Self::All }
    }

    /// Whether the head of this message is enough.
    fn is_head(self, frame: &Frame) -> bool {
        match self {
            Completeness::All | Completeness::Nothing => false,
            Completeness::AsDeclared => !frame.flags().has(MessageFlags::WHOLE),
            Completeness::Head => true,
        }
    }
}

/// Parts of a worker that parsing needs.
pub struct ParseContext<'a> {
    /// Runs the parser.
    pub engine: &'a dyn Engine,
    /// Table of pieces.
    pub pieces: &'a mut Pieces,
    /// Parser states of unfinished messages.
    pub frames: &'a mut Slab<Frame>,
    /// Buffers for messages that arrive in pieces.
    pub pool: &'a Pool,
    /// Bytes that may be buffered: more than a message has that is buffered only because it is short.
    pub whole_bytes_max: u64,
    /// Huge buffers that are left to others.
    pub huge_reserve: u32,
}

/// One input channel.
#[derive(Debug)]
pub struct Inbox {
    queue: PieceQueue,
    partial: Option<Buf>,
    saved: Option<Key>,
    /// The parser has read the message whose frame is saved, and only the rest of its bytes is waited for.
    is_read: bool,
    /// Number that the last message has for the next one (`%carry`).
    carried: u64,
    /// Bytes behind a message that its parser had to see found no place in the table of pieces.
    is_lost: bool,
}

impl Inbox {
    /// An empty inbox.
    pub const fn new() -> Self {
        Self {
            queue: PieceQueue::new(),
            partial: None,
            saved: None,
            is_read: false,
            carried: 0,
            is_lost: false,
        }
    }

    /// Appends arrived bytes; `false` when the table of pieces is full.
    pub fn push(&mut self, pieces: &mut Pieces, data: Slice) -> bool {
        pieces.push(&mut self.queue, data)
    }

    /// Whether no byte waits.
    pub fn is_empty(&self) -> bool {
        self.queue.is_empty() && self.partial.is_none()
    }

    /// Bytes of the buffers that it holds.
    pub fn pinned_bytes(&self, pieces: &Pieces) -> u64 {
        let partial = self.partial.as_ref().map_or(0, |partial| u64::from(partial.capacity()));
        partial + pieces.pinned_bytes(&self.queue)
    }

    /// Whether more than `most` received pieces wait, each of which may keep a buffer from others.
    pub fn has_more_pieces_than(&self, pieces: &Pieces, most: usize) -> bool {
        pieces.has_more_than(&self.queue, most)
    }

    /// Whether a message has begun and is not complete.
    pub fn in_message(&self) -> bool {
        self.partial.is_some()
    }

    /// Whether no byte waits, and the last message has left nothing to the next one.
    pub fn is_at_boundary(&self) -> bool {
        self.is_empty() && self.carried == 0
    }

    /// Whether a message has begun and is not complete, or the last one has left something to the next.
    pub fn is_amid(&self) -> bool {
        self.in_message() || self.carried != 0
    }

    /// Number that the last message has for the next one.
    pub fn carried(&self) -> u64 {
        self.carried
    }

    /// Notes the number that the message which is being taken has for the next one.
    pub fn carry(&mut self, number: u64) {
        self.carried = number;
    }

    /// The received bytes in front, unless the front message lies in the message buffer.
    pub fn piece<'a>(&self, pieces: &'a Pieces) -> Option<&'a Slice> {
        if self.in_message() { None } else { pieces.front(&self.queue) }
    }

    /// Returns the frame of the front message and its bytes so far, if it has been parsed and only the rest of its
    /// bytes is missing.
    pub fn begun<'a>(&'a self, frames: &'a Slab<Frame>) -> Option<(&'a Frame, &'a [u8])> {
        let partial = self.partial.as_ref().filter(|_| self.is_read)?;
        Some((frames.get(self.saved?)?, partial.bytes()))
    }

    /// Looks at the front message and leaves it there; `consume` takes it.
    ///
    /// Cost: a parse of what is new; one copy of a message that was cut.
    pub fn next(&mut self, tools: &mut ParseContext<'_>, look: ParseSpec, frame: &mut Frame) -> NextMessage {
        let ParseSpec { parser, asked, wants } = look;
        frame.restart();
        frame.slots[SLOT_ASKED] = asked;
        frame.slots[SLOT_CARRIED] = self.carried;
        let Some(partial) = &self.partial else {
            let Some(front) = tools.pieces.front(&self.queue) else {
                return match wants {
                    _ if self.is_lost => NextMessage::NoBuffers,
                    Completeness::Nothing => next_of_nothing(tools, parser, frame),
                    _ => NextMessage::Starved,
                };
            };
            return match judge(tools.engine.parse(parser, frame, front.bytes()), frame, front.len(), wants) {
                Verdict::Whole => NextMessage::Whole(front.sub(0..frame.total_bytes() as u32)),
                Verdict::Large => NextMessage::Large(front.clone()),
                Verdict::Need(bytes) => self.buffer_message(tools, look, frame, bytes),
                Verdict::Rest(bytes) => self.buffer_rest(tools, frame, bytes),
                Verdict::Fault(fault) => fault,
            };
        };
        let have = partial.len();
        if let Some(saved) = self.saved.and_then(|key| tools.frames.get(key)) {
            frame.copy_from(saved);
            if self.is_read {
                return match judge_read(frame, have, wants) {
                    Verdict::Rest(bytes) => self.buffer_rest(tools, frame, bytes),
                    verdict => self.buffered(verdict, frame),
                };
            }
        }
        match judge(tools.engine.parse(parser, frame, partial.bytes()), frame, have, wants) {
            Verdict::Need(bytes) => self.buffer_message(tools, look, frame, bytes),
            Verdict::Rest(bytes) => self.buffer_rest(tools, frame, bytes),
            verdict => self.buffered(verdict, frame),
        }
    }

    /// Looks at the front of the next part of a message in parts: `frame` is where its parser is. Only its head is
    /// buffered: never `Whole`.
    pub fn next_part(
        &mut self,
        tools: &mut ParseContext<'_>,
        parser: FuncId,
        frame: &mut Frame,
    ) -> NextMessage {
        if self.partial.is_none() {
            frame.next_part();
        }
        let (bytes, have) = match (&self.partial, tools.pieces.front(&self.queue)) {
            (Some(partial), _) => (partial.bytes(), partial.len()),
            (None, Some(front)) => (front.bytes(), front.len()),
            (None, None) => return NextMessage::Starved,
        };
        match judge_part(tools.engine.parse(parser, frame, bytes), frame, have) {
            Verdict::Need(bytes) => self.buffer_part(tools, parser, frame, bytes),
            verdict => self.part(tools, verdict),
        }
    }

    /// Returns how many bytes of `seen` are the head of a large message with that frame: all that was buffered;
    /// otherwise exactly the head, and the rest is taken by reference later.
    pub fn head_of(&self, seen: &Slice, frame: &Frame) -> u32 {
        if self.in_message() { seen.len() } else { frame.head_bytes() as u32 }
    }

    /// Gives up to buffer a message whose parser wants more than may be buffered: it lies in front again, to be
    /// looked at from its start. `false` when the table of pieces is full.
    pub fn unbuffer(&mut self, tools: &mut ParseContext<'_>) -> bool {
        self.forget_frame(tools.frames);
        let Some(partial) = self.partial.take() else { return true };
        let all = partial.slice(0..partial.len());
        tools.pieces.push_front(&mut self.queue, all)
    }

    /// Takes the message that `next` showed, or the first `bytes` of a large one.
    pub fn consume(&mut self, tools: &mut ParseContext<'_>, bytes: u32) {
        if let Some(partial) = self.partial.take() {
            assert!(bytes <= partial.len(), "a buffered message is consumed in one piece");
            self.forget_frame(tools.frames);
            if bytes < partial.len() {
                let rest = partial.slice(bytes..partial.len());
                self.is_lost |= !tools.pieces.push_front(&mut self.queue, rest);
            }
            return;
        }
        tools.pieces.advance(&mut self.queue, bytes);
    }

    /// Takes at most `bytes_max` bytes, as they lie, without looking at them: the body of a large message.
    pub fn take_raw(&mut self, pieces: &mut Pieces, bytes_max: u64) -> Option<Slice> {
        assert!(self.partial.is_none(), "a body never waits in the message buffer");
        let front = pieces.front(&self.queue)?;
        let len = u64::from(front.len()).min(bytes_max) as u32;
        let piece = front.sub(0..len);
        pieces.advance(&mut self.queue, len);
        Some(piece)
    }

    /// Drops everything.
    pub fn clear(&mut self, pieces: &mut Pieces, frames: &mut Slab<Frame>) {
        pieces.clear(&mut self.queue);
        self.partial = None;
        self.carried = 0;
        self.is_lost = false;
        self.forget_frame(frames);
    }

    fn forget_frame(&mut self, frames: &mut Slab<Frame>) {
        self.is_read = false;
        if let Some(key) = self.saved.take() {
            frames.remove(key);
        }
    }

    /// Copies up to `need` bytes of the front message into one buffer, as far as they are there, and parses on.
    fn buffer_message(
        &mut self,
        tools: &mut ParseContext<'_>,
        look: ParseSpec,
        frame: &mut Frame,
        need: u64,
    ) -> NextMessage {
        let ParseSpec { parser, wants, .. } = look;
        let mut need = need;
        loop {
            match self.collect(tools, need) {
                Collected::Enough => {}
                Collected::Less => {
                    self.save_frame(tools.frames, frame);
                    return NextMessage::Starved;
                }
                Collected::Not(next) => {
                    if matches!(next, NextMessage::Waits) {
                        self.save_frame(tools.frames, frame);
                    }
                    return next;
                }
            }
            let partial = self.partial.as_ref().expect("what was collected lies there");
            match judge(tools.engine.parse(parser, frame, partial.bytes()), frame, partial.len(), wants) {
                Verdict::Need(more) => {
                    assert!(more > need, "a parser that wants more wants more than it has");
                    need = more;
                }
                Verdict::Rest(bytes) => return self.buffer_rest(tools, frame, bytes),
                verdict => return self.buffered(verdict, frame),
            }
        }
    }

    /// Copies what is left of a message that has been read: a parser that has come to its end is not called again.
    fn buffer_rest(&mut self, tools: &mut ParseContext<'_>, frame: &Frame, total: u64) -> NextMessage {
        match self.collect(tools, total) {
            Collected::Enough => self.buffered(Verdict::Whole, frame),
            Collected::Less => {
                self.save_frame(tools.frames, frame);
                self.is_read = true;
                NextMessage::Starved
            }
            Collected::Not(next) => {
                if matches!(next, NextMessage::Waits) {
                    self.save_frame(tools.frames, frame);
                    self.is_read = true;
                }
                next
            }
        }
    }

    /// As `buffer_message`, for the head of a part; its parser's state stays in `frame`.
    fn buffer_part(
        &mut self,
        tools: &mut ParseContext<'_>,
        parser: FuncId,
        frame: &mut Frame,
        need: u64,
    ) -> NextMessage {
        let mut need = need;
        loop {
            match self.collect(tools, need) {
                Collected::Enough => {}
                Collected::Less => return NextMessage::Starved,
                Collected::Not(next) => return next,
            }
            let partial = self.partial.as_ref().expect("what was collected lies there");
            match judge_part(tools.engine.parse(parser, frame, partial.bytes()), frame, partial.len()) {
                Verdict::Need(more) => {
                    assert!(more > need, "a parser that wants more wants more than it has");
                    need = more;
                }
                verdict => return self.part(tools, verdict),
            }
        }
    }

    fn part(&self, tools: &ParseContext<'_>, verdict: Verdict) -> NextMessage {
        match (verdict, &self.partial) {
            (Verdict::Fault(fault), _) => fault,
            (_, Some(partial)) => NextMessage::Large(partial.slice(0..partial.len())),
            (_, None) => {
                tools.pieces.front(&self.queue).cloned().map_or(NextMessage::Starved, NextMessage::Large)
            }
        }
    }

    /// Copies bytes of the queue into the message buffer until it has `need`.
    fn collect(&mut self, tools: &mut ParseContext<'_>, need: u64) -> Collected {
        if need > tools.whole_bytes_max {
            return Collected::Not(NextMessage::TooLong);
        }
        // Who only announces a long message does not get a long buffer for it.
        let at_hand = tools.pieces.front(&self.queue).map_or(0, Slice::len);
        for shorter in [SMALL_BYTES, LARGE_BYTES] {
            if need > u64::from(shorter) && self.len() + at_hand < shorter {
                match self.fill(tools, shorter) {
                    Collected::Enough => {}
                    other => return other,
                }
            }
        }
        self.fill(tools, need as u32)
    }

    /// Bytes in the message buffer.
    fn len(&self) -> u32 {
        self.partial.as_ref().map_or(0, Buf::len)
    }

    fn fill(&mut self, tools: &mut ParseContext<'_>, need: u32) -> Collected {
        if let Err(next) = self.reserve(tools, need) {
            return Collected::Not(next);
        }
        let need = u64::from(need);
        let partial = self.partial.as_ref().expect("room was just made");
        while u64::from(partial.len()) < need {
            let Some(front) = tools.pieces.front(&self.queue) else { return Collected::Less };
            let take = (need as u32 - partial.len()).min(front.len());
            let taken = partial.append(&front.bytes()[..take as usize]);
            assert!(taken == take, "the message buffer has room for what was asked");
            tools.pieces.advance(&mut self.queue, take);
        }
        Collected::Enough
    }

    fn buffered(&self, verdict: Verdict, frame: &Frame) -> NextMessage {
        let partial = self.partial.as_ref().expect("a buffered message lies in its buffer");
        match verdict {
            Verdict::Whole => {
                // A list that ends because it is full ends before a byte that its parser had to see.
                assert!(frame.total_bytes() <= u64::from(partial.len()), "buffered a whole message");
                NextMessage::Whole(partial.slice(0..frame.total_bytes() as u32))
            }
            Verdict::Large => NextMessage::Large(partial.slice(0..partial.len())),
            Verdict::Fault(fault) => fault,
            Verdict::Need(_) | Verdict::Rest(_) => unreachable!("the caller buffers on"),
        }
    }

    fn reserve(&mut self, tools: &ParseContext<'_>, need: u32) -> Result<(), NextMessage> {
        let class = match need {
            need if need <= SMALL_BYTES => BufClass::Small,
            need if need <= LARGE_BYTES => BufClass::Large,
            _ => BufClass::Huge,
        };
        assert!(need <= HUGE_BYTES, "no message is buffered beyond a huge buffer");
        if self.partial.as_ref().is_some_and(|partial| partial.capacity() >= need) {
            return Ok(());
        }
        if class == BufClass::Huge && tools.pool.free_count(class) <= tools.huge_reserve {
            return Err(NextMessage::Waits);
        }
        let Some(buf) = tools.pool.alloc(class) else { return Err(NextMessage::NoBuffers) };
        if let Some(old) = self.partial.take() {
            let taken = buf.append(old.bytes());
            assert!(taken == old.len(), "the larger buffer holds what the smaller held");
        }
        self.partial = Some(buf);
        Ok(())
    }

    fn save_frame(&mut self, frames: &mut Slab<Frame>, frame: &Frame) {
        match self.saved.and_then(|key| frames.get_mut(key)) {
            Some(saved) => saved.copy_from(frame),
            None => self.saved = frames.insert(frame.clone()),
        }
    }
}

/// Parses the front of `bytes`; returns the length of the message, if all of it is there and it is handled whole.
#[inline]
pub fn parse_whole(engine: &dyn Engine, parser: FuncId, frame: &mut Frame, bytes: &[u8]) -> Option<u32> {
    frame.restart();
    match judge(engine.parse(parser, frame, bytes), frame, bytes.len() as u32, Completeness::All) {
        Verdict::Whole => Some(frame.total_bytes() as u32),
        _ => None,
    }
}

/// Looks at a message before its first byte: one that ends with its connection, and has no head, has begun.
fn next_of_nothing(tools: &ParseContext<'_>, parser: FuncId, frame: &mut Frame) -> NextMessage {
    let begins = tools.engine.parse(parser, frame, &[]) == ParseStep::Done
        && frame.flags().has(MessageFlags::UNTIL_CLOSE)
        && frame.head_bytes() == 0;
    if !begins {
        return NextMessage::Starved;
    }
    let buf = tools.pool.alloc(BufClass::Small);
    buf.map_or(NextMessage::NoBuffers, |buf| NextMessage::Large(buf.slice(0..0)))
}

/// Result of collecting bytes.
enum Collected {
    Enough,
    Less,
    Not(NextMessage),
}

enum Verdict {
    Whole,
    Large,
    /// The parser wants that many bytes.
    Need(u64),
    /// The parser has read it; that many bytes are to be buffered.
    Rest(u64),
    Fault(NextMessage),
}

/// Judges a step on `have` bytes of a part: its head is enough.
fn judge_part(step: ParseStep, frame: &Frame, have: u32) -> Verdict {
    if step == ParseStep::Done {
        judge_head(frame, have)
    } else {
        judge(step, frame, have, Completeness::Head)
    }
}

fn judge_head(frame: &Frame, have: u32) -> Verdict {
    if u64::from(have) >= frame.head_bytes() { Verdict::Large } else { Verdict::Need(frame.head_bytes()) }
}

/// Judges a message that has been read, of which `have` bytes are there: one that was to be buffered is streamed once
/// its head is enough.
fn judge_read(frame: &Frame, have: u32, wants: Completeness) -> Verdict {
    if wants.is_head(frame) && u64::from(have) >= frame.head_bytes() {
        Verdict::Large
    } else {
        Verdict::Rest(frame.total_bytes())
    }
}

/// Judges a step on `have` bytes of a message.
fn judge(step: ParseStep, frame: &Frame, have: u32, wants: Completeness) -> Verdict {
    match step {
        ParseStep::Done if frame.is_whole(u64::from(have), WHOLE_BYTES_MAX) => Verdict::Whole,
        ParseStep::Done if frame.is_by_head(WHOLE_BYTES_MAX) || wants.is_head(frame) => {
            judge_head(frame, have)
        }
        ParseStep::Done => Verdict::Rest(frame.total_bytes()),
        ParseStep::NeedMore(bytes) => Verdict::Need(bytes),
        ParseStep::Fault { field, cause } => {
            let answerable = frame.slots[flick_abi::frame::SLOT_ECHO_READY] == 1;
            Verdict::Fault(NextMessage::Fault { field, cause, answerable })
        }
    }
}
