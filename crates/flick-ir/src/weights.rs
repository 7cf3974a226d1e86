//! The cost of each operation in steps, the unit of the bounds that are shown to users.
//! Promises: the interpreter counts with these numbers and `bounds` adds them up along the costliest path, so what
//! an activation uses never exceeds what was announced.
//! Not here: nanoseconds. A step is about one machine operation; an operation on bytes counts as a fixed number,
//! because the length of every value is bounded by the head of a message or the output of an activation.

use flick_abi::HostCall;

use crate::data::{Binary, Op, Terminator};

/// Steps of an operation on bytes: the call of a helper and its loop.
pub const BYTES_STEPS: u64 = 8;
/// Steps of searching bytes in bytes.
pub const SEARCH_STEPS: u64 = 16;
/// Steps of looking for where a run of bytes ends, on top of its length.
pub const SCAN_STEPS: u64 = 4;
/// Steps of comparing the names of all lines of a head with those of a list.
pub const LINES_STEPS: u64 = 256;
/// Steps of writing a number in digits or reading one.
pub const DIGITS_STEPS: u64 = 16;
/// Bytes that an operation with a bound of its own works on in one step.
pub const BYTES_PER_STEP: u64 = 32;
/// Steps of entering and leaving a function, on top of its body.
pub const CALL_STEPS: u64 = 2;
/// Steps of putting one message on the list of sends or asks.
pub const SEND_STEPS: u64 = 8;
/// Steps of a division.
pub const DIVISION_STEPS: u64 = 4;
/// Steps of a small call of the platform.
pub const HOST_STEPS: u64 = 16;
/// Steps of a call of the platform that looks into a dictionary or picks a backend.
pub const LOOKUP_STEPS: u64 = 64;
/// Steps of giving way.
pub const SUSPEND_STEPS: u64 = 16;

/// Steps of one instruction; for a call, without the body of the callee.
pub fn op_steps(op: &Op) -> u64 {
    match op {
        Op::Const(_) | Op::ConstBytes { .. } | Op::OutMark | Op::Written { .. } | Op::AsMessage(_) => 0,
        Op::Binary(Binary::DivS | Binary::DivU | Binary::ModS | Binary::ModU, ..) => DIVISION_STEPS,
        Op::Binary(..) | Op::Not(_) | Op::Select { .. } | Op::Len(_) | Op::BytesOffset(_) => 1,
        Op::FrameGet { .. } | Op::FrameSet { .. } | Op::Load { .. } | Op::MessageBytes { .. } => 1,
        Op::ChanLen(_) | Op::ChanElem { .. } | Op::EmitInt { .. } | Op::HasCapacity { .. } => 1,
        Op::StateLoad { .. } | Op::StateStore { .. } | Op::IsMissing(_) => 1,
        Op::ResumeState | Op::SpillSet { .. } | Op::SpillGet { .. } | Op::Answer { .. } | Op::Fail { .. } => {
            1
        }
        Op::MessageGet { .. } | Op::ByteAt { .. } | Op::WordGet { .. } | Op::WordSet { .. } => 2,
        Op::Slice { .. } | Op::PackedBytes { .. } => 4,
        Op::HashBytes(_) | Op::HashInt(_) | Op::BytesEq(..) | Op::BytesLess(..) => BYTES_STEPS,
        Op::BytesStartsWith(..) | Op::BytesEndsWith(..) | Op::Trim(_) => BYTES_STEPS,
        Op::EmitBytes { .. } | Op::EmitMessage { .. } | Op::EmitMessageOf { .. } => BYTES_STEPS,
        Op::BytesContains(..) | Op::Find(..) | Op::SameText(..) => SEARCH_STEPS,
        Op::HasToken(..) | Op::Guard { .. } => SEARCH_STEPS,
        Op::ScanRun { max, .. } | Op::Seek { max, .. } => SCAN_STEPS + spread(*max),
        Op::Lines { form, .. } => SCAN_STEPS + spread(form.upto),
        Op::ItemPush(_) => 2,
        Op::Cut { .. } | Op::Insert { .. } | Op::Whole { .. } => BYTES_STEPS,
        Op::CutListed { .. } => LINES_STEPS,
        Op::Items { count_max, .. } => BYTES_STEPS + u64::from(*count_max) / (BYTES_PER_STEP / 8),
        Op::Transform { max_bytes, .. } => DIGITS_STEPS + spread(*max_bytes),
        Op::FormatInt { .. } | Op::FormatAddress(_) | Op::IsInt { .. } | Op::ParseInt { .. } => DIGITS_STEPS,
        Op::Split { max, .. } => SEARCH_STEPS + u64::from(*max),
        Op::Concat { parts, max_bytes } => BYTES_STEPS * (parts.len() as u64).max(1) + spread(*max_bytes),
        Op::Case { max_bytes, .. } => BYTES_STEPS + spread(*max_bytes),
        Op::WordsNew { words_max, .. } => BYTES_STEPS + u64::from(*words_max) / (BYTES_PER_STEP / 8),
        Op::Pack { items, max_bytes } => BYTES_STEPS + items.len() as u64 + spread(*max_bytes),
        Op::StateLoadBytes { max_bytes, .. } | Op::StateStoreBytes { max_bytes, .. } => {
            BYTES_STEPS + spread(*max_bytes)
        }
        Op::SendOriginal { .. } | Op::SendRebuilt { .. } | Op::SendMessage { .. } => SEND_STEPS,
        Op::AskOriginal { .. } | Op::AskRebuilt { .. } | Op::AskMessage { .. } => SEND_STEPS,
        Op::Call { .. } => CALL_STEPS,
        Op::Host { call, max_bytes, .. } => host_steps(*call) + spread(*max_bytes),
    }
}

/// Steps of going over bytes.
fn spread(max_bytes: u32) -> u64 {
    u64::from(max_bytes) / BYTES_PER_STEP
}

fn host_steps(call: HostCall) -> u64 {
    match call {
        HostCall::Now
        | HostCall::Random
        | HostCall::Log
        | HostCall::CounterAdd(_)
        | HostCall::GaugeSet(_)
        | HostCall::CounterGet(_)
        | HostCall::Alive
        | HostCall::Load
        | HostCall::Peer
        | HostCall::DictLen(_) => HOST_STEPS,
        HostCall::Pick(_)
        | HostCall::DictGet(_)
        | HostCall::DictHas(_)
        | HostCall::DictPut(_)
        | HostCall::DictRemove(_)
        | HostCall::DictBegin(_)
        | HostCall::DictCommit(_)
        | HostCall::DictCommitRemoved(_) => LOOKUP_STEPS,
    }
}

/// Steps of leaving a block. Going on without a choice costs nothing.
pub fn end_steps(end: &Terminator) -> u64 {
    match end {
        Terminator::Jump(..) => 0,
        Terminator::Suspend { .. } => SUSPEND_STEPS,
        _ => 1,
    }
}
