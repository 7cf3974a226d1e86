//! The cost of each operation in steps: the one measure of work, which bounds announce, which a budget is compared
//! with, and which the interpreter counts.
//! Promises: the interpreter charges an operation with these numbers for what it has done, `bounds` for the most that
//! it may do, so what an activation uses never exceeds what was announced.
//! Not here: nanoseconds of one machine. A step is about half a nanosecond on the machine of `bench/METHOD.md`;
//! `bench kernels --steps` measures every kind of operation with the constants below.

use flick_abi::{HostCall, Policy};

use crate::data::{Binary, Op, Terminator, Transform, Value};

/// Steps of a microsecond on the machine of `bench/METHOD.md`.
pub const STEPS_PER_US: u64 = 2000;
/// Steps of calling a helper that works on bytes.
pub const BYTES_STEPS: u64 = 8;
/// Steps of comparing bytes, on top of their lengths: most differ in those.
pub const COMPARE_STEPS: u64 = 4;
/// Steps of searching a byte in bytes, on top of their length.
pub const SEARCH_STEPS: u64 = 32;
/// Steps of preparing a search for more than a byte, and of texts too short for its fast way.
pub const NEEDLE_STEPS: u64 = 64;
/// Length of what is searched from which on another algorithm takes no longer for more of it.
pub const NEEDLE_BYTES_MAX: u64 = 32;
/// Steps of looking for where a run of bytes ends, on top of its length.
pub const SCAN_STEPS: u64 = 4;
/// Steps of a line that is passed over, on top of its length.
pub const LINE_STEPS: u64 = 32;
/// Steps of a line whose name [`Op::CutListed`] compares with those of its list.
pub const LISTED_LINE_STEPS: u64 = 32;
/// Steps of a part that `split` cuts off, or of an item of a list that is made.
pub const PART_STEPS: u64 = 8;
/// Steps of writing a number in digits or reading one.
pub const DIGITS_STEPS: u64 = 24;
/// Steps of writing an address.
pub const ADDRESS_STEPS: u64 = 256;
/// Steps of cutting a range of a message, which moves the ranges behind it.
pub const CUT_STEPS: u64 = 32;
/// Bytes that are copied, compared or set in one step.
pub const COPIED_PER_STEP: u64 = 32;
/// Bytes of a message that a search for the end of a field passes in one step.
pub const SCANNED_PER_STEP: u64 = 16;
/// Bytes that are hashed, compared without case, or searched for a byte in one step.
pub const SEARCHED_PER_STEP: u64 = 8;
/// Steps of entering and leaving a function, on top of its body.
pub const CALL_STEPS: u64 = 4;
/// Steps of sending or asking: what the platform does to queue the message, on top of the rule.
pub const SEND_STEPS: u64 = 256;
/// Steps of a division.
pub const DIVISION_STEPS: u64 = 8;
/// Steps of a small call of the platform.
pub const HOST_STEPS: u64 = 16;
/// Steps of logging a line; the platform limits lines by their rate.
pub const LOG_STEPS: u64 = 256;
/// Steps of picking a backend from a table.
pub const PICK_STEPS: u64 = 64;
/// Steps of looking into a dictionary that no cache holds.
pub const LOOKUP_STEPS: u64 = 256;
/// Steps of changing such a dictionary, with the entries that it may have to evict.
pub const WRITE_STEPS: u64 = 512;
/// Steps of suspending and of resuming.
pub const SUSPEND_STEPS: u64 = 64;

/// The amounts that an operation has worked on, or works on at most.
pub struct Amounts<'a> {
    /// Bytes of a value.
    pub bytes: &'a dyn Fn(Value) -> u64,
    /// Bytes of output that it builds.
    pub built: u64,
    /// Bytes of the message that it passes over.
    pub passed: u64,
    /// Lines of the message that it passes over.
    pub lines: u64,
    /// Elements of the channel that it picks from.
    pub elements: u64,
}

/// The cost of one operation.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Cost {
    /// Steps of copying what the activation builds: into the output, and from there into a dictionary.
    pub copied: u64,
    /// All other steps.
    pub other: u64,
}

impl Cost {
    /// Returns both together.
    pub fn total(self) -> u64 {
        self.copied.saturating_add(self.other)
    }
}

/// Returns the cost of one instruction; for a call, without the body of the callee.
pub fn op_cost(op: &Op, amounts: &Amounts<'_>) -> Cost {
    let bytes = |value: &Value| (amounts.bytes)(*value);
    let copied = match op {
        Op::Host { call: HostCall::DictPut(_) | HostCall::DictCommit(_), args, .. } => {
            args.get(1).map_or(0, |value| copy_steps(bytes(value)))
        }
        _ => copy_steps(amounts.built),
    };
    Cost { copied, other: own_steps(op, amounts) }
}

/// Steps of one instruction without copying what it builds.
fn own_steps(op: &Op, amounts: &Amounts<'_>) -> u64 {
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
        Op::ItemPush(_) => 2,
        Op::Slice { .. } | Op::PackedBytes { .. } => 4,
        Op::SendOriginal { .. } | Op::SendRebuilt { .. } | Op::SendMessage { .. } => SEND_STEPS,
        Op::AskOriginal { .. } | Op::AskRebuilt { .. } | Op::AskMessage { .. } => SEND_STEPS,
        Op::Call { .. } => CALL_STEPS,
        Op::Host { call, args, .. } => {
            let bytes = |index: usize| args.get(index).map_or(0, |value| (amounts.bytes)(*value));
            host_steps(*call, bytes, amounts.elements)
        }
        on_bytes => bytes_steps(on_bytes, amounts),
    }
}

/// Steps of an operation on bytes.
fn bytes_steps(op: &Op, amounts: &Amounts<'_>) -> u64 {
    let bytes = |value: &Value| (amounts.bytes)(*value);
    // The shorter of two values decides most comparisons.
    let shorter = |a: &Value, b: &Value| bytes(a).min(bytes(b));
    match op {
        Op::HashInt(_) => BYTES_STEPS,
        Op::HashBytes(a) => BYTES_STEPS + bytes(a) / SEARCHED_PER_STEP,
        Op::BytesEq(a, b) | Op::BytesLess(a, b) => COMPARE_STEPS + copy_steps(shorter(a, b)),
        Op::BytesStartsWith(_, b) | Op::BytesEndsWith(_, b) => COMPARE_STEPS + copy_steps(bytes(b)),
        Op::SameText(a, b) => COMPARE_STEPS + shorter(a, b) / SEARCHED_PER_STEP,
        Op::Trim(a) => BYTES_STEPS + bytes(a),
        Op::BytesContains(a, b) | Op::Find(a, b) => {
            SEARCH_STEPS + search_steps(bytes(a), bytes(b)) + bytes(b) / SEARCHED_PER_STEP
        }
        Op::HasToken(a, _) => BYTES_STEPS + bytes(a) / 2,
        Op::Guard { bytes: a, without, .. } => {
            BYTES_STEPS
                + bytes(a) / 2
                + without.map_or(0, |(_, len)| candidate_steps(bytes(a), u64::from(len)))
        }
        Op::ScanRun { .. } => SCAN_STEPS + amounts.passed / SCANNED_PER_STEP,
        Op::Seek { len, .. } => {
            SCAN_STEPS
                + (amounts.passed / SCANNED_PER_STEP)
                    .saturating_add(candidate_steps(amounts.passed, u64::from(*len)))
        }
        // A line that is not passed over has been looked at too.
        Op::Lines { .. } => {
            let lines = amounts.lines.saturating_mul(LINE_STEPS);
            SCAN_STEPS + LINE_STEPS + (2 * (amounts.passed / SCANNED_PER_STEP)).saturating_add(lines)
        }
        Op::EmitBytes { .. } | Op::EmitMessage { .. } | Op::EmitMessageOf { .. } => BYTES_STEPS,
        Op::Cut { .. } => CUT_STEPS,
        Op::Insert { text, .. } => CUT_STEPS + copy_steps(bytes(text)),
        Op::Whole { .. } => BYTES_STEPS,
        Op::CutListed { names, .. } => {
            let lines = amounts.lines.saturating_mul(LISTED_LINE_STEPS);
            BYTES_STEPS
                + (bytes(names) / SEARCHED_PER_STEP)
                    .saturating_add(amounts.passed / SCANNED_PER_STEP)
                    .saturating_add(lines)
        }
        Op::Items { .. } => BYTES_STEPS + amounts.built / 4,
        Op::Transform { kind, bytes: a, .. } => DIGITS_STEPS + bytes(a).saturating_mul(byte_steps(*kind)),
        Op::FormatInt { .. } => DIGITS_STEPS,
        Op::FormatAddress(_) => ADDRESS_STEPS,
        // Zeros in front are passed over eight at a time.
        Op::IsInt { bytes: a, .. } | Op::ParseInt { bytes: a, .. } => {
            DIGITS_STEPS + bytes(a) / SEARCHED_PER_STEP
        }
        Op::Split { bytes: a, separator, .. } => {
            let passed = search_steps(bytes(a).saturating_add(bytes(separator)), bytes(separator));
            SEARCH_STEPS + passed.saturating_add(amounts.built / 8 * PART_STEPS)
        }
        Op::Concat { parts, .. } => BYTES_STEPS * (parts.len() as u64).max(1),
        Op::Case { bytes: a, .. } => BYTES_STEPS + bytes(a) / SEARCHED_PER_STEP,
        Op::WordsNew { .. } => BYTES_STEPS,
        Op::Pack { items, .. } => BYTES_STEPS + 2 * items.len() as u64,
        Op::StateLoadBytes { .. } => BYTES_STEPS + amounts.built / SEARCHED_PER_STEP,
        Op::StateStoreBytes { value, .. } => BYTES_STEPS + bytes(value) / SEARCHED_PER_STEP,
        other => panic!("{other:?} is no operation on bytes"),
    }
}

/// Steps of searching `needle` bytes in `text` bytes: a byte or two are looked for at many positions at a time.
fn search_steps(text: u64, needle: u64) -> u64 {
    let prepared = if needle > 1 { NEEDLE_STEPS } else { 0 };
    prepared + (text / SEARCHED_PER_STEP).saturating_add(candidate_steps(text, needle))
}

/// Steps of comparing at each position, where the two bytes that a search looks for first are found everywhere.
fn candidate_steps(text: u64, needle: u64) -> u64 {
    if needle <= 2 { 0 } else { text.saturating_mul(9 + needle.min(NEEDLE_BYTES_MAX)) / 6 }
}

/// Steps of a call of the platform, without what it copies.
fn host_steps(call: HostCall, bytes: impl Fn(usize) -> u64, elements: u64) -> u64 {
    let searched = |index: usize| bytes(index) / SEARCHED_PER_STEP;
    match call {
        HostCall::Now
        | HostCall::Random
        | HostCall::CounterAdd(_)
        | HostCall::GaugeSet(_)
        | HostCall::CounterGet(_)
        | HostCall::Alive
        | HostCall::Load
        | HostCall::Peer
        | HostCall::DictLen(_)
        | HostCall::DictBytes(_)
        | HostCall::DictEvictions(_)
        | HostCall::OpenClients => HOST_STEPS,
        HostCall::Log => LOG_STEPS + searched(0),
        HostCall::Pick(policy) => {
            PICK_STEPS + searched(1).saturating_add(elements.saturating_mul(element_steps(policy)))
        }
        HostCall::DictGet(_) | HostCall::DictHas(_) | HostCall::DictBegin(_) => LOOKUP_STEPS + searched(0),
        HostCall::DictPut(_)
        | HostCall::DictRemove(_)
        | HostCall::DictCommit(_)
        | HostCall::DictCommitRemoved(_) => WRITE_STEPS + searched(0),
    }
}

/// Steps of each element of the channel that a policy may have to look at.
fn element_steps(policy: Policy) -> u64 {
    match policy {
        // The elements are in a table.
        Policy::Ketama => 0,
        // Until one is alive.
        Policy::RoundRobin | Policy::TwoChoices => 4,
        Policy::LeastLoaded => 16,
        // A logarithm of each, where weights differ.
        Policy::Rendezvous => 48,
    }
}

/// Steps of each byte that is encoded or decoded.
fn byte_steps(kind: Transform) -> u64 {
    match kind {
        Transform::PercentDecode | Transform::PercentEncode => 2,
        Transform::Base64Decode | Transform::Base64Encode => 1,
    }
}

/// Steps of copying bytes.
pub fn copy_steps(bytes: u64) -> u64 {
    bytes / COPIED_PER_STEP
}

/// Steps of leaving a block. Going on without a choice costs nothing.
pub fn end_steps(end: &Terminator) -> u64 {
    match end {
        Terminator::Jump(..) => 0,
        Terminator::Suspend { .. } => SUSPEND_STEPS,
        _ => 1,
    }
}
