//! Goes straight to where control ends up, and joins a block with the only one that follows it.

use super::Aliases;
use crate::cfg::Cfg;
use crate::data::{BlockId, Function, Terminator, Value};

/// Runs the pass. Returns whether it changed anything.
pub(super) fn run(function: &mut Function) -> bool {
    skip_empty(function) | join(function)
}

/// The block that `target` leads to through empty blocks that hand nothing over.
fn final_target(function: &Function, resumed: &[BlockId], mut target: BlockId) -> BlockId {
    // Every cycle goes through the head of a loop, so there are fewer steps than blocks.
    for _ in 0..function.blocks.len() {
        let block = &function.blocks[target.0 as usize];
        // A head bounds its loop, and a way on from a suspension has its own state.
        let is_fixed = block.trips_max.is_some() || resumed.contains(&target);
        match &block.end {
            Terminator::Jump(next, args)
                if block.insts.is_empty() && block.params.is_empty() && args.is_empty() && !is_fixed =>
            {
                target = *next;
            }
            _ => break,
        }
    }
    target
}

fn skip_empty(function: &mut Function) -> bool {
    let mut changed = false;
    let ends = function.blocks.iter().map(|block| &block.end);
    let resumed: Vec<BlockId> = ends
        .filter_map(|end| if let Terminator::Suspend { then, .. } = end { Some(*then) } else { None })
        .collect();
    let targets: Vec<BlockId> = (0..function.blocks.len() as u32)
        .map(|index| final_target(function, &resumed, BlockId(index)))
        .collect();
    let mut redirect = |target: &mut BlockId| {
        changed |= targets[target.0 as usize] != *target;
        *target = targets[target.0 as usize];
    };
    for block in &mut function.blocks {
        match &mut block.end {
            Terminator::Jump(target, _) => redirect(target),
            Terminator::Branch { then, otherwise, .. } => {
                redirect(&mut then.0);
                redirect(&mut otherwise.0);
            }
            Terminator::Switch { cases, default, .. } => {
                cases.iter_mut().for_each(|(_, target)| redirect(target));
                redirect(default);
            }
            Terminator::Need { then, .. } => redirect(then),
            // The way on from a suspension stays as it is: it has no other.
            Terminator::Suspend { .. } => {}
            Terminator::Done | Terminator::Fault { .. } | Terminator::Return(_) => {}
        }
    }
    changed
}

/// Appends a block to its only predecessor, if that jumps to it.
fn join(function: &mut Function) -> bool {
    let cfg = Cfg::new(function);
    let mut aliases = Aliases::new(function);
    let mut changed = false;
    // From the last to the first, so that what is appended is complete.
    for id in cfg.order.iter().rev() {
        let Terminator::Jump(next, args) = &function.blocks[id.0 as usize].end else { continue };
        if cfg.predecessors[next.0 as usize].len() != 1 {
            continue;
        }
        let (next, args) = (*next, args.clone());
        let appended = &mut function.blocks[next.0 as usize];
        let params: Vec<Value> = std::mem::take(&mut appended.params);
        let insts = std::mem::take(&mut appended.insts);
        // The block left behind is unreachable; `compact` sweeps it.
        let end = std::mem::replace(&mut appended.end, Terminator::Return(Vec::new()));
        for (param, arg) in params.iter().zip(&args) {
            aliases.set(*param, *arg);
        }
        let block = &mut function.blocks[id.0 as usize];
        block.insts.extend(insts);
        block.end = end;
        changed = true;
    }
    aliases.apply(function);
    changed
}
