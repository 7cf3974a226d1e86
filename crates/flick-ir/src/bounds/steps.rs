//! The most steps of each instruction: what `weights` charges for the longest operands.
//! Promises: no run of a function is charged more; what all rounds of the loops that advance in a message search in it
//! counts once, because they pass over it once.
//! Refuses: following values out of the round in which they were taken from the message; those count in full.

use flick_abi::HostCall;
use flick_abi::limits::CHANNEL_ELEMENTS_MAX;

use super::Known;
use super::copies::Copies;
use super::paths::{Paths, Trips};
use crate::cfg::{Cfg, successors};
use crate::data::{Binary, BlockId, Inst, Op, Value};
use crate::weights::{self, Amounts, Cost};

/// Steps of one instruction.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Steps {
    /// Each time.
    pub(super) each: u64,
    /// For all times together that its loops go round, whenever the outermost one is entered.
    pub(super) once: u64,
    /// Each time, without copying what is built.
    pub(super) uncopied: u64,
}

/// Steps of all instructions, by block.
pub(super) struct AllSteps {
    /// By block and index in it.
    pub(super) insts: Vec<Vec<Steps>>,
    /// By block: the outermost of the loops that it advances with.
    pub(super) root: Vec<Option<usize>>,
    /// By loop: what `once` comes to.
    pub(super) once: Vec<u64>,
}

impl AllSteps {
    /// Computes them.
    pub(super) fn new(
        known: &Known<'_>,
        cfg: &Cfg,
        paths: &Paths<'_>,
        copies: &Copies,
        loops: usize,
    ) -> Self {
        let blocks = &known.function().blocks;
        let advancing: Vec<Option<(usize, Trips)>> = (0..blocks.len() as u32)
            .map(|block| paths.innermost(BlockId(block)).filter(|(_, trips)| trips.root.is_some()))
            .collect();
        let taken = taken(known, cfg, &advancing);
        let mut by_loop = vec![vec![0_u64; blocks.len()]; loops];
        let mut insts = Vec::new();
        for (id, (block, around)) in (0..).zip(blocks.iter().zip(&advancing)) {
            let steps = block.insts.iter().enumerate().map(|(index, inst)| {
                // What all rounds of a loop copy together counts where that is entered.
                let is_apart = copies.rounds(BlockId(id), index).is_some() || known.callee(inst).is_some();
                let built = if is_apart { 0 } else { known.out_bytes(inst) };
                known.steps(inst, built, *around, &taken)
            });
            let steps: Vec<Steps> = steps.collect();
            if let Some((index, _)) = around {
                let once = steps.iter().map(|steps| steps.once).fold(0, u64::saturating_add);
                by_loop[*index][id as usize] = once;
            }
            insts.push(steps);
        }
        // Each byte is passed in one round, and there on one path.
        let mut once = vec![0_u64; loops];
        for (index, own) in by_loop.iter().enumerate() {
            if let Some(root) = paths.root_of(index) {
                once[root] = once[root].saturating_add(paths.once_around(index, own));
            }
        }
        let root = advancing.iter().map(|around| around.and_then(|(_, trips)| trips.root)).collect();
        Self { insts, root, once }
    }

    /// Sums up the steps of each block, with those of its end.
    pub(super) fn by_block(&self, known: &Known<'_>, of: impl Fn(&Steps) -> u64) -> Vec<u64> {
        let sum = |steps: &Vec<Steps>| steps.iter().map(&of).fold(0, u64::saturating_add);
        let ends = known.function().blocks.iter().map(|block| weights::end_steps(&block.end));
        self.insts.iter().zip(ends).map(|(steps, end)| sum(steps).saturating_add(end)).collect()
    }
}

impl Known<'_> {
    /// Steps of an instruction that builds `built` bytes, a callee's body included. `around`: the innermost loop, if
    /// it advances; `taken`: see [`taken`]. Saturates.
    fn steps(
        &self,
        inst: &Inst,
        built: u64,
        around: Option<(usize, Trips)>,
        taken: &[Option<usize>],
    ) -> Steps {
        let (searched, lines) = self.searched(&inst.op);
        let cost = |bytes: &dyn Fn(Value) -> u64, passed, lines| {
            let elements = CHANNEL_ELEMENTS_MAX as u64;
            weights::op_cost(&inst.op, &Amounts { bytes, built, passed, lines, elements })
        };
        let length = |value: Value| self.lengths.of(self.index, value);
        let (each, once) = match around {
            None => (cost(&length, searched, lines), 0),
            // No byte is searched twice by one instruction, nor taken for two values.
            Some((index, trips)) => {
                let is_taken =
                    |value: Value| adds_up(&inst.op, value) && taken[value.0 as usize] == Some(index);
                let one = |value: Value| if is_taken(value) { 0 } else { length(value) };
                let all = |value: Value| if is_taken(value) { trips.bytes } else { length(value) };
                let each = cost(&one, 0, 0);
                let lines = if lines > 0 { trips.max.saturating_add(lines) } else { 0 };
                let passed = if searched > 0 { trips.bytes.saturating_add(searched) } else { 0 };
                (each, cost(&all, passed, lines).total().saturating_sub(each.total()))
            }
        };
        let (in_callee, uncopied) =
            self.callee(inst).map_or((0, 0), |callee| (callee.steps, callee.uncopied_steps));
        Steps {
            each: each.total().saturating_add(in_callee),
            once,
            uncopied: self.without_copies(inst, each).saturating_add(uncopied),
        }
    }

    /// Steps without copying what is built. What goes into a dictionary is built right before.
    fn without_copies(&self, inst: &Inst, cost: Cost) -> u64 {
        let Op::Host { call: HostCall::DictPut(_) | HostCall::DictCommit(_), args, .. } = &inst.op else {
            return cost.other;
        };
        let is_packed = |other: &&Inst| {
            matches!(other.op, Op::Pack { .. })
                && other.result.is_some()
                && other.result == args.get(1).copied()
        };
        let mut blocks = self.function().blocks.iter();
        let own = blocks.find(|block| block.insts.iter().any(|other| std::ptr::eq(other, inst)));
        let is_packed_here = own.is_some_and(|block| block.insts.iter().any(|other| is_packed(&other)));
        if is_packed_here { cost.other } else { cost.total() }
    }

    /// Bytes of the message that an instruction searches at most, and lines in them.
    fn searched(&self, op: &Op) -> (u64, u64) {
        match op {
            Op::ScanRun { max, .. } => (u64::from(*max), 0),
            Op::Seek { max, len, .. } => (u64::from(*max) + u64::from(*len), 0),
            Op::Lines { left, form, .. } => {
                let upto = u64::from(form.upto);
                (upto, self.lines_max(*left).min(upto / 2))
            }
            Op::CutListed { lines_max, .. } => (self.lengths.head(), u64::from(*lines_max)),
            _ => (0, 0),
        }
    }

    /// Most lines that are left: a constant, from which perhaps those that have been seen are taken.
    fn lines_max(&self, left: Value) -> u64 {
        let insts = self.function().blocks.iter().flat_map(|block| &block.insts);
        let from = insts.filter(|inst| inst.result == Some(left)).find_map(|inst| match &inst.op {
            Op::Binary(Binary::Sub, from, _) => Some(*from),
            _ => None,
        });
        let constant = |value: Value| self.constants.get(&value).copied();
        constant(left).or(from.and_then(constant)).unwrap_or(u64::MAX)
    }
}

/// Whether the steps of an operation over several values are those over one value as long as all of them.
fn adds_up(op: &Op, value: Value) -> bool {
    match op {
        Op::HasToken(bytes, _) | Op::BytesContains(bytes, _) | Op::Find(bytes, _) => *bytes == value,
        Op::Guard { .. } | Op::Trim(_) | Op::IsInt { .. } | Op::ParseInt { .. } | Op::HashBytes(_) => true,
        _ => false,
    }
}

/// Returns for each value the loop in whose round its bytes were taken from the message, if that is known.
fn taken(known: &Known<'_>, cfg: &Cfg, advancing: &[Option<(usize, Trips)>]) -> Vec<Option<usize>> {
    let function = known.function();
    let mut taken: Vec<Option<usize>> = vec![None; function.values.len()];
    for id in &cfg.order {
        let block = &function.blocks[id.0 as usize];
        for (index, param) in block.params.iter().enumerate() {
            taken[param.0 as usize] = joined(known, cfg, *id, index, &taken);
        }
        for inst in &block.insts {
            let Some(result) = inst.result else { continue };
            taken[result.0 as usize] = match &inst.op {
                Op::MessageBytes { .. } => advancing[id.0 as usize].map(|(index, _)| index),
                Op::Trim(bytes) | Op::Slice { bytes, .. } => taken[bytes.0 as usize],
                _ => None,
            };
        }
    }
    taken
}

/// Returns the loop in whose round all values that a parameter may have were taken; empty ones do not count.
fn joined(known: &Known<'_>, cfg: &Cfg, id: BlockId, index: usize, taken: &[Option<usize>]) -> Option<usize> {
    let mut found = None;
    for from in &cfg.predecessors[id.0 as usize] {
        if cfg.is_backward(*from, id) {
            return None;
        }
        let edges = successors(&known.function().blocks[from.0 as usize].end);
        for (_, args) in edges.iter().filter(|(target, _)| *target == id) {
            let arg = args[index];
            if known.lengths.of(known.index, arg) > 0 {
                let own = taken[arg.0 as usize]?;
                if *found.get_or_insert(own) != own {
                    return None;
                }
            }
        }
    }
    found
}
