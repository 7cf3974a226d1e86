//! Drops instructions without effects whose value is unused.

use crate::cfg::Cfg;
use crate::data::{Function, Op, Value};
use crate::operands::{end_operands, operands};

/// Runs the pass. Returns whether it changed anything.
pub(super) fn run(function: &mut Function) -> bool {
    let order = Cfg::new(function).order;
    let mut is_used = vec![false; function.values.len()];
    let mut changed = false;
    // From the end to the start every use comes before its definition, so one walk finds all.
    for id in order.iter().rev() {
        let block = &mut function.blocks[id.0 as usize];
        let mut mark = |value: Value| is_used[value.0 as usize] = true;
        end_operands(&block.end, &mut mark);
        let before = block.insts.len();
        let mut kept = Vec::with_capacity(before);
        for inst in std::mem::take(&mut block.insts).into_iter().rev() {
            let is_needed = inst.result.is_none_or(|value| is_used[value.0 as usize]) || has_effect(&inst.op);
            if is_needed {
                operands(&inst.op, &mut |value| is_used[value.0 as usize] = true);
                kept.push(inst);
            }
        }
        kept.reverse();
        changed |= kept.len() != before;
        block.insts = kept;
    }
    changed
}

/// Whether an operation does more than define a value.
fn has_effect(op: &Op) -> bool {
    matches!(
        op,
        Op::FrameSet { .. }
            | Op::Call { .. }
            | Op::SendOriginal { .. }
            | Op::EmitInt { .. }
            | Op::EmitBytes { .. }
            | Op::EmitMessage { .. }
            | Op::SendRebuilt { .. }
            | Op::SendMessage { .. }
            | Op::EmitMessageOf { .. }
            | Op::WordSet { .. }
            | Op::StateStore { .. }
            | Op::StateStoreBytes { .. }
            | Op::AskOriginal { .. }
            | Op::AskRebuilt { .. }
            | Op::AskMessage { .. }
            | Op::Fail { .. }
            | Op::SpillSet { .. }
            | Op::Host { .. }
            // What is built moves the end of the output, which other parts of it are counted from.
            | Op::Concat { .. }
            | Op::FormatInt { .. }
            | Op::FormatAddress(_)
            | Op::Split { .. }
            | Op::Case { .. }
            | Op::WordsNew { .. }
            | Op::Pack { .. }
            | Op::StateLoadBytes { .. }
            | Op::Items { .. }
            | Op::Whole { .. }
            | Op::Transform { .. }
            | Op::ItemPush(_)
            | Op::Cut { .. }
            | Op::CutListed { .. }
            | Op::Insert { .. }
            | Op::Lines { .. }
    )
}
