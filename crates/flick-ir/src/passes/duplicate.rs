//! Gives a way that already knows a condition a copy of the block that asks for it.
//!
//! Conditions of a grammar come as chains of small blocks: each takes what the one before has found out as a boolean
//! parameter, adds to it and branches on it. A way that hands over a constant has the answer, so it gets its own
//! copy of the block, folded, and goes on from there.
//! Source: jump threading; tail duplication with a budget, because copies make code larger.

use std::collections::BTreeMap;

use super::fold::{Folded, Folder};
use crate::cfg::Cfg;
use crate::data::{BlockId, Function, Inst, Op, Terminator, Type, Value};
use crate::limits::DUPLICATE_INSTS_MAX;
use crate::operands::{end_operands, map_end_operands, map_operands, operands};

/// Runs the pass. Takes from `budget` each instruction it copies. Returns whether it changed anything.
pub(super) fn run(function: &mut Function, budget: &mut usize) -> bool {
    let cfg = Cfg::new(function);
    let is_local = local_blocks(function);
    let mut folder = Folder::of(function);
    let mut changed = false;
    for id in &cfg.order {
        // No head of a loop is copied, so each round is nearer to the end or to a head.
        for _ in 0..function.blocks.len() {
            let Some(next) = worth_copying(function, &cfg, &folder, &is_local, *id) else { break };
            let insts = function.blocks[next.0 as usize].insts.len();
            if insts >= *budget {
                return changed;
            }
            *budget -= insts + 1;
            copy_into(function, &mut folder, *id, next);
            changed = true;
        }
    }
    changed
}

/// The block that `id` jumps to, if it is small, has other predecessors, defines only what it uses itself, and gets
/// a boolean that is known.
fn worth_copying(
    function: &Function,
    cfg: &Cfg,
    folder: &Folder,
    is_local: &[bool],
    id: BlockId,
) -> Option<BlockId> {
    let Terminator::Jump(next, args) = &function.blocks[id.0 as usize].end else { return None };
    let block = &function.blocks[next.0 as usize];
    // A copy of a head would be a second way into its loop.
    let is_small = block.insts.len() <= DUPLICATE_INSTS_MAX && block.trips_max.is_none();
    let goes_on =
        matches!(block.end, Terminator::Jump(..) | Terminator::Branch { .. } | Terminator::Switch { .. });
    let is_shared = cfg.predecessors[next.0 as usize].len() > 1;
    let is_known =
        args.iter().any(|arg| function.values[arg.0 as usize] == Type::Bool && folder.word(*arg).is_some());
    (is_small && goes_on && is_shared && is_known && is_local[next.0 as usize]).then_some(*next)
}

/// Returns for each block whether its values are used only in the block itself.
fn local_blocks(function: &Function) -> Vec<bool> {
    let mut home = vec![None; function.values.len()];
    for (index, block) in function.blocks.iter().enumerate() {
        for value in block.params.iter().copied().chain(block.insts.iter().filter_map(|inst| inst.result)) {
            home[value.0 as usize] = Some(index);
        }
    }
    let mut is_local = vec![true; function.blocks.len()];
    for (index, block) in function.blocks.iter().enumerate() {
        let mut visit = |value: Value| match home[value.0 as usize] {
            Some(home) if home != index => is_local[home] = false,
            _ => {}
        };
        block.insts.iter().for_each(|inst| operands(&inst.op, &mut visit));
        end_operands(&block.end, &mut visit);
    }
    is_local
}

/// Puts a folded copy of `next` where `id` jumps to it.
fn copy_into(function: &mut Function, folder: &mut Folder, id: BlockId, next: BlockId) {
    let Terminator::Jump(_, args) = &function.blocks[id.0 as usize].end else {
        panic!("only a jump is replaced by what it jumps to");
    };
    let source = function.blocks[next.0 as usize].clone();
    let mut copies: BTreeMap<Value, Value> =
        source.params.iter().copied().zip(args.iter().copied()).collect();
    let mut insts = Vec::new();
    for inst in source.insts {
        let Inst { result, mut op, origin } = inst;
        map_operands(&mut op, &mut |value| *value = copies.get(value).copied().unwrap_or(*value));
        let Some(result) = result else {
            insts.push(Inst { result: None, op, origin });
            continue;
        };
        let ty = function.values[result.0 as usize];
        let word = match folder.fold(&op) {
            Folded::Same(value) => {
                copies.insert(result, value);
                continue;
            }
            Folded::Word(word) => Some(word),
            Folded::No => None,
        };
        let value = Value(function.values.len() as u32);
        function.values.push(ty);
        folder.grow(word);
        copies.insert(result, value);
        let op = word.filter(|_| ty != Type::Chan).map_or(op, |word| Op::Const(word as i64));
        insts.push(Inst { result: Some(value), op, origin });
    }
    let mut end = source.end;
    map_end_operands(&mut end, &mut |value| *value = copies.get(value).copied().unwrap_or(*value));
    folder.decide(&mut end);
    let block = &mut function.blocks[id.0 as usize];
    block.insts.extend(insts);
    block.end = end;
}
