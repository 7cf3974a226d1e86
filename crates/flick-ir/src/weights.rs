//! What each operation costs in steps, the unit of the bounds an author reads.
//! Promises: the interpreter counts with these numbers and `bounds` adds them up along the costliest path, so what
//! an activation uses never exceeds what was announced.
//! Not here: nanoseconds. A step is about one machine operation; an operation on bytes counts as a fixed number,
//! because the length of every value is bounded by the head of a message or the output of an activation.

use crate::data::{Binary, Op, Terminator};

/// Steps of an operation on bytes: the call of a helper and its loop.
pub const BYTES_STEPS: u64 = 8;
/// Steps of searching bytes in bytes.
pub const SEARCH_STEPS: u64 = 16;
/// Steps of entering and leaving a function, on top of its body.
pub const CALL_STEPS: u64 = 2;
/// Steps of putting one message on the list of sends.
pub const SEND_STEPS: u64 = 8;
/// Steps of a division.
pub const DIVISION_STEPS: u64 = 4;

/// Steps of one instruction; for a call, without the body of the callee.
pub fn op_steps(op: &Op) -> u64 {
    match op {
        Op::Const(_) | Op::ConstBytes { .. } | Op::OutMark => 0,
        Op::Binary(Binary::DivS | Binary::DivU | Binary::ModS | Binary::ModU, ..) => DIVISION_STEPS,
        Op::Binary(..) | Op::Not(_) | Op::Select { .. } | Op::Len(_) => 1,
        Op::FrameGet { .. } | Op::FrameSet { .. } | Op::Load { .. } | Op::MessageBytes { .. } => 1,
        Op::ChanLen(_) | Op::ChanElem { .. } | Op::EmitInt { .. } => 1,
        Op::HashBytes(_) | Op::HashInt(_) | Op::BytesEq(..) | Op::BytesLess(..) => BYTES_STEPS,
        Op::BytesStartsWith(..) | Op::BytesEndsWith(..) => BYTES_STEPS,
        Op::EmitBytes { .. } | Op::EmitMessage { .. } => BYTES_STEPS,
        Op::BytesContains(..) => SEARCH_STEPS,
        Op::SendOriginal { .. } | Op::SendRebuilt { .. } => SEND_STEPS,
        Op::Call { .. } => CALL_STEPS,
    }
}

/// Steps of leaving a block. Going on without a choice costs nothing.
pub fn end_steps(end: &Terminator) -> u64 {
    u64::from(!matches!(end, Terminator::Jump(..)))
}
