//! The operands of operations and terminators, in the order of the text form: the one list of them.

use crate::data::{Op, Terminator, Value};

/// Matches an operation behind `&` or `&mut`, whose references `$each` turns into iterators, and visits its operands.
macro_rules! visit_op {
    ($op:expr, $visit:ident, $each:ident) => {
        match $op {
            Op::Const(_)
            | Op::ConstBytes { .. }
            | Op::FrameGet { .. }
            | Op::OutMark
            | Op::HasCapacity { .. } => {}
            Op::StateLoad { .. } | Op::StateLoadBytes { .. } | Op::ResumeState | Op::SpillGet { .. } => {}
            Op::Not(a)
            | Op::Len(a)
            | Op::HashBytes(a)
            | Op::HashInt(a)
            | Op::ChanLen(a)
            | Op::BytesOffset(a)
            | Op::Trim(a)
            | Op::AsMessage(a)
            | Op::IsMissing(a)
            | Op::FormatAddress(a)
            | Op::ItemPush(a)
            | Op::FrameSet { value: a, .. }
            | Op::SendOriginal { chan: a }
            | Op::EmitInt { value: a, .. }
            | Op::EmitBytes { value: a }
            | Op::MessageGet { message: a, .. }
            | Op::PackedBytes { packed: a, .. }
            | Op::FormatInt { value: a, .. }
            | Op::IsInt { bytes: a, .. }
            | Op::ParseInt { bytes: a, .. }
            | Op::Case { bytes: a, .. }
            | Op::WordsNew { words: a, .. }
            | Op::StateStore { value: a, .. }
            | Op::StateStoreBytes { value: a, .. }
            | Op::ScanRun { from: a, .. }
            | Op::Seek { from: a, .. }
            | Op::Written { mark: a, .. }
            | Op::Transform { bytes: a, .. }
            | Op::Guard { bytes: a, .. }
            | Op::Answer { index: a }
            | Op::Fail { reason: a }
            | Op::SpillSet { value: a, .. } => $visit(a),
            Op::Binary(_, a, b)
            | Op::BytesEq(a, b)
            | Op::BytesStartsWith(a, b)
            | Op::BytesEndsWith(a, b)
            | Op::BytesContains(a, b)
            | Op::BytesLess(a, b)
            | Op::MessageBytes { start: a, end: b }
            | Op::EmitMessage { start: a, end: b }
            | Op::ChanElem { chan: a, index: b }
            | Op::SendMessage { chan: a, message: b }
            | Op::ByteAt { bytes: a, index: b }
            | Op::Find(a, b)
            | Op::Split { bytes: a, separator: b, .. }
            | Op::SameText(a, b)
            | Op::HasToken(a, b)
            | Op::Cut { start: a, end: b }
            | Op::Insert { at: a, text: b }
            | Op::Lines { from: a, left: b, .. }
            | Op::WordGet { bytes: a, index: b }
            | Op::AskOriginal { chan: a, timeout_ns: b } => [a, b].into_iter().for_each($visit),
            Op::Select { cond: a, a: b, b: c }
            | Op::EmitMessageOf { message: a, start: b, end: c }
            | Op::Slice { bytes: a, start: b, end: c }
            | Op::CutListed { names: a, start: b, end: c, .. }
            | Op::WordSet { bytes: a, index: b, value: c }
            | Op::AskMessage { chan: a, message: b, timeout_ns: c } => [a, b, c].into_iter().for_each($visit),
            Op::Load { base: a, .. } | Op::Whole { message: a } => a.$each().for_each($visit),
            Op::Items { message, from, count, .. } => {
                [from, count].into_iter().chain(message).for_each($visit);
            }
            Op::Call { args: all, .. }
            | Op::Host { args: all, .. }
            | Op::Concat { parts: all, .. }
            | Op::Pack { items: all, .. } => all.$each().for_each($visit),
            Op::SendRebuilt { chan, mark, tail_from, tail_of } => {
                [chan, mark].into_iter().chain(tail_from).chain(tail_of).for_each($visit);
            }
            Op::AskRebuilt { chan, mark, tail_from, tail_of, timeout_ns } => {
                let tail = tail_from.$each().chain(tail_of);
                [chan, mark].into_iter().chain(tail).chain([timeout_ns]).for_each($visit);
            }
        }
    };
}

/// As `visit_op`, of a terminator.
macro_rules! visit_end {
    ($end:expr, $visit:ident, $each:ident) => {
        match $end {
            Terminator::Jump(_, args) | Terminator::Return(args) => args.$each().for_each($visit),
            Terminator::Branch { cond, then, otherwise } => {
                [cond].into_iter().chain(then.1.$each()).chain(otherwise.1.$each()).for_each($visit);
            }
            Terminator::Switch { value, .. } => $visit(value),
            Terminator::Need { base, .. } => base.$each().for_each($visit),
            Terminator::Done | Terminator::Fault { .. } | Terminator::Suspend { .. } => {}
        }
    };
}

/// Calls `visit` with each operand.
pub(crate) fn operands(op: &Op, visit: &mut impl FnMut(Value)) {
    let mut visit = |value: &Value| visit(*value);
    visit_op!(op, visit, iter);
}

/// Calls `visit` with each operand, which it may replace.
pub(crate) fn map_operands(op: &mut Op, visit: &mut impl FnMut(&mut Value)) {
    visit_op!(op, visit, iter_mut);
}

/// Calls `visit` with each operand of a terminator.
pub(crate) fn end_operands(end: &Terminator, visit: &mut impl FnMut(Value)) {
    let mut visit = |value: &Value| visit(*value);
    visit_end!(end, visit, iter);
}

/// Calls `visit` with each operand of a terminator, which it may replace.
pub(crate) fn map_end_operands(end: &mut Terminator, visit: &mut impl FnMut(&mut Value)) {
    visit_end!(end, visit, iter_mut);
}
