//! The engine interface: how the platform runs code, whether machine code or the interpreter.

use crate::call::{RuleCall, RuleOutcome};
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

/// Runs the functions of one program. Both engines return the same result for every call, to the bit.
pub trait Engine: std::marker::Send + Sync {
    /// Parses the front of `data`: the bytes of one message from its start that have arrived.
    /// ⏎ Errors: [`ParseStep::Fault`]. Cost: no allocation; each byte is read once over all calls.
    fn parse(&self, parser: FuncId, frame: &mut Frame, data: &[u8]) -> ParseStep;

    /// Runs a rule on a parsed message, from its start or, when `call.resume` is not 0, from a suspension.
    fn run(&self, rule: FuncId, call: &mut RuleCall<'_>) -> RuleOutcome;

    /// Compares message 0 of `call` with message 1: negative, zero or positive.
    fn order(&self, order: FuncId, call: &mut RuleCall<'_>) -> i64;

    /// Writes the platform's own reply to a failed request, whose echo fields are in `frame`, into `out`.
    /// Returns its length in bytes, at most `FAILURE_BYTES_MAX`.
    fn build(&self, builder: FuncId, frame: &Frame, out: &mut [u8]) -> usize;
}
