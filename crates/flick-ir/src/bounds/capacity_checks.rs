//! Blocks of a rule that run only if the output has capacity for what they build.
//! Promises: such blocks are not counted in the sum of what a rule may build. Each time the rule enters them it first
//! checks the capacity for all that they build at most, besides what the rest of the rule may build. So all of them
//! together build no more than `CAPACITY_CHECK_BYTES_MAX`, however often they run.
//! Refuses: blocks whose `HasCapacity` asks for less than they build, or is not right before the branch; they count
//! as any other code.

use flick_abi::limits::CAPACITY_CHECK_BYTES_MAX;

use super::lengths::Lengths;
use super::paths::Paths;
use super::{FunctionBounds, Known, constants, function_bounds};
use crate::calls;
use crate::cfg::Cfg;
use crate::data::{BlockId, Function, Module, Op, Terminator};

/// One check and the blocks behind it.
pub(super) struct CapacityCheck {
    /// The block that ends with the check.
    block: usize,
    /// Bytes that it checks for.
    asked: u64,
    /// Bytes that the blocks behind it build at most.
    built: u64,
    /// The blocks behind it, in order.
    pub(super) body: Vec<BlockId>,
}

impl CapacityCheck {
    /// Returns whether it checks for enough.
    pub(super) fn is_enough(&self) -> bool {
        self.built <= self.asked && self.asked <= CAPACITY_CHECK_BYTES_MAX as u64
    }
}

/// Returns the checks of a function.
pub(super) fn capacity_checks(known: &Known<'_>, cfg: &Cfg, paths: &Paths<'_>) -> Vec<CapacityCheck> {
    let function = known.function();
    let asking = cfg.order.iter().filter_map(|id| Some((id.0 as usize, asks(function, *id)?)));
    let mut all = None;
    let found = asking.filter(|(_, (_, head))| cfg.predecessors[head.0 as usize].len() == 1);
    found
        .map(|(block, (asked, head))| {
            let own = all.get_or_insert_with(|| known.sum(|inst| known.all_out_bytes(inst)));
            let body: Vec<BlockId> =
                cfg.order.iter().copied().filter(|id| cfg.dominates(head, *id)).collect();
            CapacityCheck { block, asked: u64::from(asked), built: paths.part(head, &body, own), body }
        })
        .collect()
}

/// Returns what a block checks for right before it branches, and its successor if the output has the capacity.
fn asks(function: &Function, id: BlockId) -> Option<(u32, BlockId)> {
    let block = &function.blocks[id.0 as usize];
    let last = block.insts.last()?;
    match (&last.op, &block.end) {
        (Op::HasCapacity { bytes }, Terminator::Branch { cond, then, otherwise })
            if last.result == Some(*cond) && then.0 != otherwise.0 =>
        {
            Some((*bytes, then.0))
        }
        _ => None,
    }
}

/// Sets the bytes of every `HasCapacity` to what the blocks behind it build at most. Panics on recursion.
pub fn fill_capacity_checks(module: &mut Module) {
    let insts =
        |function: &Function| function.blocks.iter().any(|block| block.insts.iter().any(is_capacity_check));
    if !module.functions.iter().any(insts) {
        return;
    }
    let order = calls::callees_first(module).expect("lowering makes no recursion");
    let lengths = Lengths::new(module, &order);
    let mut bounds = vec![FunctionBounds::default(); module.functions.len()];
    for index in order {
        for check in checks_of(&known(module, &lengths, &bounds, index)) {
            let last = module.functions[index].blocks[check.block].insts.last_mut();
            let bytes = u32::try_from(check.built.min(CAPACITY_CHECK_BYTES_MAX as u64)).unwrap_or(u32::MAX);
            last.expect("a block that asks has an instruction").op = Op::HasCapacity { bytes };
        }
        bounds[index] = function_bounds(&known(module, &lengths, &bounds, index));
    }
}

fn known<'a>(
    module: &'a Module,
    lengths: &'a Lengths,
    bounds: &'a [FunctionBounds],
    index: usize,
) -> Known<'a> {
    Known { module, lengths, index, bounds, constants: constants(&module.functions[index]) }
}

fn checks_of(known: &Known<'_>) -> Vec<CapacityCheck> {
    let cfg = Cfg::new(known.function());
    let loops = cfg.loops();
    capacity_checks(known, &cfg, &Paths::new(known.function(), &cfg, &loops))
}

fn is_capacity_check(inst: &crate::data::Inst) -> bool {
    matches!(inst.op, Op::HasCapacity { .. })
}
