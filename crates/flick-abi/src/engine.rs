//! How the platform runs code without knowing what made it: machine code or the interpreter.

use crate::call::{Outcome, RuleCall};
use crate::frame::Frame;
use crate::program::FuncId;

/// Outcome of one call of a parser.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    /// The head of a message is complete; the frame says where the message ends.
    Done,
    /// Call again with the same frame when at least this many bytes of the message, counted from its start,
    /// are there. Always more than were given.
    NeedMore(u64),
    /// The bytes are not of this grammar. `field` is the index of the field that failed, for the fault log.
    Fault {
        /// Index of the field in its unit.
        field: u32,
        /// Why: see `docs/language`: 1 a check (`&requires`, `%request`, `%reply`) failed, 2 arithmetic on lengths
        /// left its range, 3 a field is longer than its bound, 4 a value is none of its enumeration's or not supported.
        cause: u32,
    },
}

impl Step {
    /// One word for generated code: bits 0..2 kind (0 done, 1 more, 2 fault), the rest the payload
    /// (`NeedMore`: bytes; `Fault`: cause in bits 2..10, field from bit 10).
    pub fn to_word(self) -> u64 {
        match self {
            Step::Done => 0,
            Step::NeedMore(bytes) => 1 | (bytes << 2),
            Step::Fault { field, cause } => 2 | (u64::from(cause) << 2) | (u64::from(field) << 10),
        }
    }

    /// Reverse of [`Step::to_word`]. Panics on a word no engine may return.
    pub fn from_word(word: u64) -> Self {
        match word & 3 {
            0 => Step::Done,
            1 => Step::NeedMore(word >> 2),
            2 => Step::Fault { field: (word >> 10) as u32, cause: ((word >> 2) & 0xff) as u32 },
            _ => panic!("generated code returned no step: {word:#x}"),
        }
    }
}

/// The cause of a [`Step::Fault`] in words, for logs.
pub fn cause_text(cause: u32) -> &'static str {
    match cause {
        1 => "a check of the grammar failed",
        2 => "lengths do not add up",
        3 => "a field is longer than its bound in the program's record, or in the grammar",
        _ => "not of the grammar",
    }
}

/// Runs the functions of one program. Both engines must give the same answer to every call, to the bit.
pub trait Engine: std::marker::Send + Sync {
    /// Parses the front of `data`, the bytes of one message from its start, as far as they are there.
    ///
    /// Errors: none of its own; see [`Step`]. Cost: no allocation; each byte is looked at once over all calls.
    fn parse(&self, parser: FuncId, frame: &mut Frame, data: &[u8]) -> Step;

    /// Runs a rule on a parsed message, from its start or, when `call.resume` is not 0, from a suspension.
    fn run(&self, rule: FuncId, call: &mut RuleCall<'_>) -> Outcome;

    /// Compares message 0 of `call` with message 1: below, at or above 0.
    fn order(&self, order: FuncId, call: &mut RuleCall<'_>) -> i64;

    /// Writes the platform's own reply to a failed request, whose echo fields are in `frame`, into `out`.
    /// Returns its length in bytes, at most `FAILURE_BYTES_MAX`.
    fn build(&self, builder: FuncId, frame: &Frame, out: &mut [u8]) -> usize;
}
