//! The engine interface: how the platform runs code, whether machine code or the interpreter.

use std::ops::Range;

use crate::call::{RuleCall, RuleOutcome, SendList};
use crate::fault::FaultCause;
use crate::frame::Frame;
use crate::program::FuncId;

/// Result of one call of a parser.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ParseStep {
    /// The head of a message is complete; the frame says where the message ends.
    Done,
    /// Call again with the same frame when at least this many bytes of the message, counted from its start, have
    /// arrived. Always more than the last call had.
    NeedMore(u64),
    /// The bytes are malformed.
    Fault {
        /// Index of the field in its unit.
        field: u32,
        /// Cause of the fault.
        cause: FaultCause,
    },
}

impl ParseStep {
    /// Encodes the step as one word for generated code: bits 0..2 kind (0 done, 1 more, 2 fault), the rest the payload
    /// (`NeedMore`: bytes; `Fault`: cause in bits 2..10, field from bit 10).
    pub fn to_word(self) -> u64 {
        match self {
            ParseStep::Done => 0,
            ParseStep::NeedMore(bytes) => 1 | (bytes << 2),
            ParseStep::Fault { field, cause } => {
                2 | (u64::from(cause.number()) << 2) | (u64::from(field) << 10)
            }
        }
    }

    /// Decodes a word of [`ParseStep::to_word`]. Panics on any other word.
    pub fn from_word(word: u64) -> Self {
        match word & 3 {
            0 => ParseStep::Done,
            1 => ParseStep::NeedMore(word >> 2),
            2 => {
                let cause = FaultCause::from_number(((word >> 2) & 0xff) as u32);
                let cause = cause.unwrap_or_else(|| panic!("generated code returned no cause: {word:#x}"));
                ParseStep::Fault { field: (word >> 10) as u32, cause }
            }
            _ => panic!("generated code returned no step: {word:#x}"),
        }
    }
}

/// Whole messages that lie one behind the other, and the rule that runs on each.
pub struct MessageRun<'a> {
    /// Parses them.
    pub parser: FuncId,
    /// Runs on each; it never suspends itself.
    pub rule: FuncId,
    /// Frame that the first one is parsed into, and those behind it of which `ahead` has none.
    pub frame: &'a mut Frame,
    /// Frames of the messages behind the first one, as far as they have been parsed already.
    pub ahead: &'a mut [Frame],
    /// The messages; the last one may be cut.
    pub bytes: &'a [u8],
    /// Longest message that is whole although its head is shorter, in bytes.
    pub whole_bytes_max: u64,
    /// Flags of messages on which the rule does not run: one with any of them ends the run.
    pub leaves: u64,
}

/// A message on which a rule has just run.
pub struct MessageDone<'a> {
    /// Its frame.
    pub frame: &'a Frame,
    /// Its place in the bytes of the run.
    pub range: Range<usize>,
    /// The messages that the rule has sent. Offsets in it count from the start of `built`.
    pub sends: &'a SendList,
    /// Reason for which the client's request fails, if the rule sets one.
    pub failure: Option<u32>,
    /// The output of the run.
    pub out: &'a mut [u8],
    /// Bytes of it that the rule has built.
    pub built: Range<usize>,
}

/// Runs the functions of one program. Both engines return the same result for every call, to the bit.
pub trait Engine: std::marker::Send + Sync {
    /// Parses the front of `data`: the bytes of one message from its start that have arrived.
    /// ⏎ Errors: [`ParseStep::Fault`]. Cost: no allocation; each byte is read once over all calls.
    fn parse(&self, parser: FuncId, frame: &mut Frame, data: &[u8]) -> ParseStep;

    /// Runs a rule on a parsed message, from its start or, when `call.resume` is not 0, from a suspension.
    fn run(&self, rule: FuncId, call: &mut RuleCall<'_>) -> RuleOutcome;

    /// Runs a rule on one message after the other, until one is not whole or is left, or `done`, which is called after
    /// each, returns `None`; else it returns the place in the output at which the rule builds next. `call` says all
    /// but the messages and their frame. Returns the bytes of the messages on which the rule has run.
    fn run_each(
        &self,
        run: MessageRun<'_>,
        call: &mut RuleCall<'_>,
        done: &mut dyn FnMut(MessageDone<'_>) -> Option<usize>,
    ) -> usize {
        let MessageRun { parser, rule, mut frame, ahead, bytes, whole_bytes_max, leaves } = run;
        let (mut at, mut out_from, mut ahead) = (0, call.out_len, ahead.iter_mut());
        loop {
            let rest = &bytes[at..];
            let is_done = if at > 0
                && let Some(next) = ahead.next()
            {
                frame = next;
                true
            } else {
                frame.restart();
                self.parse(parser, frame, rest) == ParseStep::Done
            };
            let is_whole = is_done && frame.is_whole(rest.len() as u64, whole_bytes_max);
            if !is_whole || frame.flags().has_any(leaves) {
                return at;
            }
            let range = at..at + frame.total_bytes() as usize;
            call.sends.clear();
            let mut each = RuleCall {
                frame,
                message: &bytes[range.clone()],
                others: call.others,
                source_element: call.source_element,
                channel_lens: call.channel_lens,
                counters: call.counters,
                out: &mut call.out[out_from..],
                out_len: 0,
                sends: call.sends,
                asks: call.asks,
                answers: call.answers,
                spills: call.spills,
                resume: 0,
                state: call.state,
                failure: None,
                host: call.host,
            };
            let outcome = self.run(rule, &mut each);
            assert!(outcome == RuleOutcome::Finished, "the rule of a run never suspends itself");
            let (built, failure) = (out_from..out_from + each.out_len, each.failure);
            at = range.end;
            let message = MessageDone { frame, range, sends: call.sends, failure, out: call.out, built };
            match done(message) {
                Some(from) => out_from = from,
                None => return at,
            }
        }
    }

    /// Compares message 0 of `call` with message 1: negative, zero or positive.
    fn order(&self, order: FuncId, call: &mut RuleCall<'_>) -> i64;

    /// Writes the platform's own reply to a failed request, whose echo fields are in `frame`, into `out`.
    /// Returns its length in bytes, at most `FAILURE_BYTES_MAX`.
    fn build(&self, builder: FuncId, frame: &Frame, out: &mut [u8]) -> usize;
}
