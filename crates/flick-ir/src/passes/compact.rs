//! Sweeps unreachable blocks and undefined values, and numbers the rest without gaps.

use crate::cfg::{Cfg, successors};
use crate::data::{BlockId, Function, Terminator, Value};
use crate::operands::{map_end_operands, map_operands};

/// Runs the pass. Blocks and values keep their order.
pub(super) fn run(function: &mut Function) {
    let cfg = Cfg::new(function);
    let mut blocks = Vec::new();
    let mut new_ids = vec![BlockId(0); function.blocks.len()];
    for (index, block) in std::mem::take(&mut function.blocks).into_iter().enumerate() {
        if cfg.is_reachable(BlockId(index as u32)) {
            new_ids[index] = BlockId(blocks.len() as u32);
            blocks.push(block);
        }
    }
    let mut types = Vec::new();
    let mut new_values = vec![None; function.values.len()];
    for block in &blocks {
        for value in block.params.iter().copied().chain(block.insts.iter().filter_map(|inst| inst.result)) {
            new_values[value.0 as usize] = Some(Value(0));
        }
    }
    for (new, ty) in new_values.iter_mut().zip(&function.values) {
        if let Some(new) = new {
            *new = Value(types.len() as u32);
            types.push(*ty);
        }
    }
    let rename = |value: &mut Value| *value = new_values[value.0 as usize].expect("a used value is defined");
    for block in &mut blocks {
        block.params.iter_mut().for_each(rename);
        for inst in &mut block.insts {
            inst.result.iter_mut().for_each(rename);
            map_operands(&mut inst.op, &mut |value| rename(value));
        }
        map_end_operands(&mut block.end, &mut |value| rename(value));
        rename_targets(&mut block.end, &new_ids);
    }
    function.blocks = blocks;
    function.values = types;
    let lengths = std::mem::take(&mut function.lengths).into_iter();
    let renamed = lengths.filter_map(|(value, max)| Some((new_values[value.0 as usize]?, max)));
    function.lengths = renamed.collect();
}

fn rename_targets(end: &mut Terminator, new_ids: &[BlockId]) {
    let rename = |target: &mut BlockId| *target = new_ids[target.0 as usize];
    match end {
        Terminator::Jump(target, _) => rename(target),
        Terminator::Branch { then, otherwise, .. } => {
            rename(&mut then.0);
            rename(&mut otherwise.0);
        }
        Terminator::Switch { cases, default, .. } => {
            cases.iter_mut().for_each(|(_, target)| rename(target));
            rename(default);
        }
        Terminator::Need { then, .. } | Terminator::Suspend { then, .. } => rename(then),
        Terminator::Done | Terminator::Fault { .. } | Terminator::Return(_) => {
            assert!(successors(end).is_empty(), "nothing follows the end of a function");
        }
    }
}
