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
        Op::Not(a) | Op::Len(a) | Op::HashBytes(a) | Op::HashInt(a) | Op::ChanLen(a) => visit(a),
        Op::FrameSet { value: a, .. } | Op::SendOriginal { chan: a } => visit(a),
        Op::EmitInt { value: a, .. } | Op::EmitBytes { value: a } => visit(a),
        Op::Binary(_, a, b)
        | Op::BytesEq(a, b)
        | Op::BytesStartsWith(a, b)
        | Op::BytesEndsWith(a, b)
        | Op::BytesContains(a, b)
        | Op::BytesLess(a, b)
        | Op::MessageBytes { start: a, end: b }
        | Op::EmitMessage { start: a, end: b }
        | Op::ChanElem { chan: a, index: b } => {
            visit(a);
            visit(b);
        }
        Op::Select { cond, a, b } => {
            visit(cond);
            visit(a);
            visit(b);
        }
        Op::Load { base, .. } => base.iter_mut().for_each(visit),
        Op::Call { args, .. } => args.iter_mut().for_each(visit),
        Op::SendRebuilt { chan, mark, tail_from } => {
            visit(chan);
            visit(mark);
            tail_from.iter_mut().for_each(visit);
        }
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
        Terminator::Done | Terminator::Fault { .. } => {}
    }
}
