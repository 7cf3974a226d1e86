//! Parts of a rule that are entered only where the output has room for what they build.
//! Promises: what stands in such a part needs no place in the sum of all that a rule may build: the part asks for all it
//! builds at most, beside what everything else may build, each time it is entered. So all parts together build no more than
//! `CAPACITY_CHECK_BYTES_MAX`, however often they are entered.
//! Refuses: a part whose `Room` asks for less than it builds, or whose `Room` is not right in front of the branch; it counts
//! as any other code.

use flick_abi::limits::CAPACITY_CHECK_BYTES_MAX;

use super::lengths::Lengths;
use super::paths::Paths;
use super::{FunctionBounds, Known, constants, function_bounds};
use crate::calls;
use crate::cfg::Cfg;
use crate::data::{BlockId, Function, Module, Op, Terminator};

/// One part.
pub(super) struct Room {
    /// The block that ends with the question.
    block: usize,
    /// Bytes that it asks for.
    asked: u64,
    /// Bytes that the part builds at most.
    built: u64,
    /// Its blocks, in order.
    pub(super) body: Vec<BlockId>,
}

impl Room {
    /// Whether what it asks for is enough.
    pub(super) fn is_enough(&self) -> bool {
        self.built <= self.asked && self.asked <= CAPACITY_CHECK_BYTES_MAX as u64
    }
}

/// The parts of a function.
pub(super) fn rooms(known: &Known<'_>, cfg: &Cfg, paths: &Paths<'_>) -> Vec<Room> {
    let function = known.function();
    let asking = cfg.order.iter().filter_map(|id| Some((id.0 as usize, asks(function, *id)?)));
    let mut all = None;
    let found = asking.filter(|(_, (_, head))| cfg.predecessors[head.0 as usize].len() == 1);
    found
        .map(|(block, (asked, head))| {
            let own = all.get_or_insert_with(|| known.sum(|inst| known.all_out_bytes(inst)));
            let body: Vec<BlockId> =
                cfg.order.iter().copied().filter(|id| cfg.dominates(head, *id)).collect();
            Room { block, asked: u64::from(asked), built: paths.part(head, &body, own), body }
        })
        .collect()
}

/// What a block asks for right before it branches, and where it goes on if there is room.
fn asks(function: &Function, id: BlockId) -> Option<(u32, BlockId)> {
    let block = &function.blocks[id.0 as usize];
    let last = block.insts.last()?;
    match (&last.op, &block.end) {
        (Op::Room { bytes }, Terminator::Branch { cond, then, otherwise })
            if last.result == Some(*cond) && then.0 != otherwise.0 =>
        {
            Some((*bytes, then.0))
        }
        _ => None,
    }
}

/// Lets every `Room` ask for what its part builds at most. Panics on recursion.
pub fn fill_rooms(module: &mut Module) {
    let insts = |function: &Function| function.blocks.iter().any(|block| block.insts.iter().any(is_room));
    if !module.functions.iter().any(insts) {
        return;
    }
    let order = calls::callees_first(module).expect("lowering makes no recursion");
    let lengths = Lengths::new(module, &order);
    let mut bounds = vec![FunctionBounds::default(); module.functions.len()];
    for index in order {
        for room in rooms_of(&known(module, &lengths, &bounds, index)) {
            let last = module.functions[index].blocks[room.block].insts.last_mut();
            let bytes = u32::try_from(room.built.min(CAPACITY_CHECK_BYTES_MAX as u64)).unwrap_or(u32::MAX);
            last.expect("a block that asks has an instruction").op = Op::Room { bytes };
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

fn rooms_of(known: &Known<'_>) -> Vec<Room> {
    let cfg = Cfg::new(known.function());
    let loops = cfg.loops();
    rooms(known, &cfg, &Paths::new(known.function(), &cfg, &loops))
}

fn is_room(inst: &crate::data::Inst) -> bool {
    matches!(inst.op, Op::Room { .. })
}
