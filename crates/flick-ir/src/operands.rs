//! The operands of operations and terminators, for whoever walks over code.

use crate::data::{Op, Terminator, Value};

/// Calls `visit` with each operand.
pub(crate) fn operands(op: &Op, visit: &mut impl FnMut(Value)) {
    let mut op = op.clone();
    map_operands(&mut op, &mut |value| visit(*value));
}

/// Calls `visit` with each operand, to be replaced where it likes.
pub(crate) fn map_operands(op: &mut Op, visit: &mut impl FnMut(&mut Value)) {
    match op {
        Op::Const(_) | Op::ConstBytes { .. } | Op::FrameGet { .. } | Op::OutMark => {}
        Op::Room { .. } => {}
        Op::StateLoad { .. } | Op::StateLoadBytes { .. } | Op::ResumeState | Op::SpillGet { .. } => {}
        Op::Not(a) | Op::Len(a) | Op::HashBytes(a) | Op::HashInt(a) | Op::ChanLen(a) => visit(a),
        Op::FrameSet { value: a, .. } | Op::SendOriginal { chan: a } => visit(a),
        Op::EmitInt { value: a, .. } | Op::EmitBytes { value: a } => visit(a),
        Op::Place(a) | Op::Trim(a) | Op::AsMessage(a) | Op::IsMissing(a) => visit(a),
        Op::MessageGet { message: a, .. } | Op::PackedBytes { packed: a, .. } => visit(a),
        Op::FormatInt { value: a, .. } | Op::FormatAddress(a) => visit(a),
        Op::IsInt { bytes: a, .. } | Op::ParseInt { bytes: a, .. } => visit(a),
        Op::Case { bytes: a, .. } | Op::WordsNew { words: a, .. } => visit(a),
        Op::StateStore { value: a, .. } | Op::StateStoreBytes { value: a, .. } => visit(a),
        Op::ScanRun { from: a, .. } | Op::Seek { from: a, .. } | Op::ItemPush(a) => visit(a),
        Op::Written { mark: a, .. } => visit(a),
        Op::Transform { bytes: a, .. } | Op::Guard { bytes: a, .. } => visit(a),
        Op::Answer { index: a } | Op::Fail { reason: a } | Op::SpillSet { value: a, .. } => visit(a),
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
        | Op::Lines { from: a, left: b, .. }
        | Op::WordGet { bytes: a, index: b }
        | Op::AskOriginal { chan: a, timeout_ns: b } => {
            visit(a);
            visit(b);
        }
        Op::Select { cond: a, a: b, b: c }
        | Op::EmitMessageOf { message: a, start: b, end: c }
        | Op::Slice { bytes: a, start: b, end: c }
        | Op::CutListed { names: a, start: b, end: c }
        | Op::WordSet { bytes: a, index: b, value: c }
        | Op::AskMessage { chan: a, message: b, timeout_ns: c } => {
            visit(a);
            visit(b);
            visit(c);
        }
        many => map_many(many, visit),
    }
}

/// As [`map_operands`], of operations with as many operands as it takes.
fn map_many(op: &mut Op, visit: &mut impl FnMut(&mut Value)) {
    match op {
        Op::Whole { message } => message.iter_mut().for_each(visit),
        Op::Items { message, from, count, .. } => {
            message.iter_mut().for_each(&mut *visit);
            visit(from);
            visit(count);
        }
        Op::Load { base, .. } => base.iter_mut().for_each(visit),
        Op::Call { args, .. } | Op::Host { args, .. } => args.iter_mut().for_each(visit),
        Op::Concat { parts: args, .. } | Op::Pack { items: args, .. } => args.iter_mut().for_each(visit),
        Op::SendRebuilt { chan, mark, tail_from, tail_of } => {
            visit(chan);
            visit(mark);
            tail_from.iter_mut().chain(tail_of).for_each(visit);
        }
        Op::AskRebuilt { chan, mark, tail_from, tail_of, timeout_ns } => {
            visit(chan);
            visit(mark);
            tail_from.iter_mut().chain(tail_of).for_each(&mut *visit);
            visit(timeout_ns);
        }
        other => panic!("{other:?} has a known number of operands"),
    }
}

/// Calls `visit` with each operand of a terminator.
pub(crate) fn end_operands(end: &Terminator, visit: &mut impl FnMut(Value)) {
    let mut end = end.clone();
    map_end_operands(&mut end, &mut |value| visit(*value));
}

/// Calls `visit` with each operand of a terminator, to be replaced where it likes.
pub(crate) fn map_end_operands(end: &mut Terminator, visit: &mut impl FnMut(&mut Value)) {
    match end {
        Terminator::Jump(_, args) | Terminator::Return(args) => args.iter_mut().for_each(visit),
        Terminator::Branch { cond, then, otherwise } => {
            visit(cond);
            then.1.iter_mut().chain(&mut otherwise.1).for_each(visit);
        }
        Terminator::Switch { value, .. } => visit(value),
        Terminator::Need { base, .. } => base.iter_mut().for_each(visit),
        Terminator::Done | Terminator::Fault { .. } | Terminator::Suspend { .. } => {}
    }
}
