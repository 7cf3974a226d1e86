//! Parses messages that programs build before they are sent: they must obey the grammar, and the facts of the grammar
//! decide what follows (the number, the non-quiet twin, what the reply repeats, whether the client wants the reply).
//! Promises: bytes that are not exactly one message are never sent as one, whether all of them were built or some
//! follow unchanged; a request that was to carry them fails.
//! Refuses: messages that are forwarded unchanged; they have been parsed.

use flick_abi::frame::{SLOT_ASKED, SLOT_CARRIED};
use flick_abi::limits::ECHO_FIELDS_MAX;
use flick_abi::{Engine, FaultCause, Frame, FuncId, MessageFlags, ParseStep, Send, SendBody};
use flick_buffers::Slice;
use flick_net::Driver;

use super::Worker;
use super::deliver::restore_echo;
use super::outgoing::{Outgoing, SendSources, has_tail};
use crate::limits::JOINED_BYTES_MAX;
use crate::rules::scratch::Scratch;
use crate::setup::Setup;
use crate::slab::Key;

/// Result of parsing a message that a rule sends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Examined {
    /// It was not read again: what is known of the one that started the rule holds.
    Same,
    /// It was read into `scratch.other`.
    Known,
    /// The message is too long for the fields that the program adds to it.
    TooLong,
    /// It is not a message of the grammar.
    Wrong,
}

/// Fate of a message that a program sends to its client.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Verdict {
    /// It goes out.
    Delivered,
    /// It goes out, and the session ends with it.
    DeliveredAndLast,
    /// Its client has asked not to receive it.
    Silent,
    /// It is not a message of the grammar.
    Wrong,
}

/// The fields that a reply repeats.
pub(super) type Echo = [u64; ECHO_FIELDS_MAX];

/// Parameters for parsing a message again.
struct Look<'a> {
    /// Parser of the message.
    parser: FuncId,
    /// Value that was kept of the request that it answers; 0 for a request.
    kept: u64,
    /// Says whether the client wants a reply, once these fields are restored.
    judge: Option<(FuncId, &'a Echo)>,
}

/// The bytes that follow unchanged behind a head that was built.
#[derive(Clone, Copy, Debug)]
struct Tail {
    /// Length of the rest of the first part in bytes, which need not have arrived.
    bytes: u64,
    /// Flags of the message that it is of.
    flags: MessageFlags,
}

impl Tail {
    /// The tail of a message that a rule has built; `frame` is the one of the message that started the rule.
    fn new(frame: &Frame, built: &Outgoing<'_>, body: SendBody) -> Option<Self> {
        match body {
            SendBody::Original | SendBody::Message(_) => None,
            SendBody::Rebuilt { tail_from: u32::MAX, .. } => None,
            SendBody::Rebuilt { tail_from, tail_of: 0, .. } => {
                let bytes = frame.total_bytes().saturating_sub(u64::from(tail_from));
                Some(Self { bytes, flags: frame.flags() })
            }
            // Replies to asks are there whole.
            SendBody::Rebuilt { .. } => {
                Some(Self { bytes: built.rest.bytes().len() as u64, flags: MessageFlags::default() })
            }
        }
    }

    /// Whether a message that begins with `front_bytes` that were built, and was read into `frame`, ends where this
    /// does. What follows its first part is then what followed the original's.
    fn ends(self, frame: &Frame, front_bytes: usize) -> bool {
        let (is, was) = (frame.flags(), self.flags);
        if is.has(MessageFlags::UNTIL_CLOSE) {
            return true;
        }
        !was.has(MessageFlags::UNTIL_CLOSE)
            && is.has(MessageFlags::PARTS) == was.has(MessageFlags::PARTS)
            && frame.total_bytes() == self.bytes.saturating_add(front_bytes as u64)
    }
}

/// Parses what rules have built.
pub(super) struct BuiltReader<'a> {
    pub setup: &'a Setup,
    /// Frame that it is parsed into.
    pub other: &'a mut Frame,
    /// Memory in which its parts are joined.
    pub joined: &'a mut Vec<u8>,
}

impl<D: Driver> Worker<D> {
    /// Reads a request that a rule sends to a backend.
    pub(super) fn examine(&self, scratch: &mut Scratch, send: &Send, message: Option<&Slice>) -> Examined {
        let channels = &self.ctx.setup().program.channels;
        let (to, listened) = (&channels[send.channel as usize], &channels[self.ctx.setup().listened]);
        let same = listened.view.as_ref().filter(|_| listened.protocol == to.protocol);
        let Some(view) = to.view.as_ref().or(same) else { return Examined::Same };
        let look = Look { parser: view.parse_request, kept: 0, judge: None };
        match send.body {
            SendBody::Original | SendBody::Message(0) => Examined::Same,
            SendBody::Message(_) => match self.read_again(scratch, look, send.body, message) {
                Examined::Known => Examined::Known,
                Examined::Same | Examined::TooLong | Examined::Wrong => Examined::Same,
            },
            SendBody::Rebuilt { .. } => self.read_again(scratch, look, send.body, message),
        }
    }

    /// Reads a message that a rule sends to its client in reply to a request of which this was kept.
    pub(super) fn judge(
        &self,
        scratch: &mut Scratch,
        body: SendBody,
        message: Option<&Slice>,
        (session, echo, kept): (Key, &Echo, u64),
    ) -> Verdict {
        scratch.other.restart();
        if !matches!(body, SendBody::Rebuilt { .. }) {
            return Verdict::Delivered;
        }
        let setup = &**self.ctx.setup();
        let kept = kept + self.notice(Some(session), setup.protocol().keep_last);
        let Scratch { frame, out, named, named_frame, other, joined, .. } = scratch;
        let built = SendSources { frame, out, named: named.as_ref(), named_frame }.outgoing(body, message);
        BuiltReader { setup, other, joined }.judge((frame, &built, body), (echo, kept))
    }

    /// Reads what a rule has built into `scratch.other`.
    fn read_again(
        &self,
        scratch: &mut Scratch,
        look: Look<'_>,
        body: SendBody,
        message: Option<&Slice>,
    ) -> Examined {
        let setup = &**self.ctx.setup();
        let Scratch { frame, out, named, named_frame, other, joined, .. } = scratch;
        let built = SendSources { frame, out, named: named.as_ref(), named_frame }.outgoing(body, message);
        BuiltReader { setup, other, joined }.read(look, (frame, &built, body))
    }
}

impl BuiltReader<'_> {
    /// Reads a reply that a rule has built, to a request of which `kept` was kept; `frame` is the one of the message
    /// that started the rule.
    pub(super) fn judge(
        &mut self,
        (frame, built, body): (&Frame, &Outgoing<'_>, SendBody),
        (echo, kept): (&Echo, u64),
    ) -> Verdict {
        let Some(view) = &self.setup.program.channels[self.setup.listened].view else {
            self.other.restart();
            return Verdict::Delivered;
        };
        // Of a message whose parts follow unchanged, the head is all that has been built.
        let parser = if has_tail(body) { view.parse_reply } else { view.parse_asked };
        let look = Look { parser, kept, judge: view.reply_flags.map(|judge| (judge, echo)) };
        if self.read(look, (frame, built, body)) != Examined::Known {
            return Verdict::Wrong;
        }
        let flags = self.other.flags();
        if flags.has(MessageFlags::SILENT) {
            Verdict::Silent
        } else if flags.has(MessageFlags::UNTIL_CLOSE) || flags.has(MessageFlags::CLOSES) {
            Verdict::DeliveredAndLast
        } else {
            Verdict::Delivered
        }
    }

    fn read(&mut self, look: Look<'_>, (frame, built, body): (&Frame, &Outgoing<'_>, SendBody)) -> Examined {
        let Self { setup, other, joined } = self;
        let engine = &*setup.engine;
        let begin = |other: &mut Frame| {
            other.restart();
            other.slots[SLOT_ASKED] = look.kept;
            other.slots[SLOT_CARRIED] = 0;
        };
        begin(other);
        let mut bytes = built.front;
        let mut step = engine.parse(look.parser, other, bytes);
        let rest = built.rest.bytes();
        if matches!(step, ParseStep::NeedMore(_)) && !rest.is_empty() {
            // What follows unchanged begins inside the head.
            joined.clear();
            let capacity = JOINED_BYTES_MAX.saturating_sub(bytes.len()).min(rest.len());
            joined.extend_from_slice(&bytes[..bytes.len().min(JOINED_BYTES_MAX)]);
            joined.extend_from_slice(&rest[..capacity]);
            bytes = joined;
            begin(other);
            step = engine.parse(look.parser, other, bytes);
        }
        let stands_alone = !has_tail(body);
        if let ParseStep::Fault { cause: FaultCause::TooLong, .. } = step
            && !stands_alone
        {
            return Examined::TooLong;
        }
        if step != ParseStep::Done || stands_alone && !is_one_message(engine, look.parser, other, bytes) {
            return Examined::Wrong;
        }
        if Tail::new(frame, built, body).is_some_and(|tail| !tail.ends(other, built.front.len())) {
            return Examined::Wrong;
        }
        if let Some((judge, echo)) = look.judge {
            restore_echo(other, &setup.protocol().echo, echo);
            let step = engine.parse(judge, other, bytes);
            assert!(step == ParseStep::Done, "a reply's flags are judged on what has been parsed");
        }
        Examined::Known
    }
}

/// Whether the bytes are exactly one message, of which the first part has been parsed. Bytes after it would be
/// parsed as the next message, and its reply delivered to another client.
fn is_one_message(engine: &dyn Engine, parser: FuncId, first: &Frame, bytes: &[u8]) -> bool {
    let mut end = first.total_bytes();
    // Most messages have one part: the copy of a frame costs more than the rest of this.
    if !first.flags().has(MessageFlags::UNTIL_CLOSE) && !first.flags().has(MessageFlags::PARTS) {
        return end == bytes.len() as u64;
    }
    let mut frame = Frame::new();
    frame.copy_from(first);
    // Each part but the last has bytes.
    for _ in 0..=bytes.len() {
        if frame.flags().has(MessageFlags::UNTIL_CLOSE) {
            return true;
        }
        if !frame.flags().has(MessageFlags::PARTS) {
            return end == bytes.len() as u64;
        }
        let Some(rest) = usize::try_from(end).ok().and_then(|end| bytes.get(end..)) else { return false };
        frame.next_part();
        if engine.parse(parser, &mut frame, rest) != ParseStep::Done {
            return false;
        }
        end = end.saturating_add(frame.total_bytes());
    }
    false
}
