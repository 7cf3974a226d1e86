//! Upper bounds of the lengths of bytes values, from operations and constants.
//! Promises: no value of a run is longer than its bound, if messages keep to the heads of their views.
//! Refuses: following values through lists, and more than [`ROUNDS`] times through results of calls and around loops;
//! those count as the longest value of the program.

use flick_abi::limits::{HEAD_BYTES_MAX, INSERTED_BYTES_MAX};

use crate::cfg::{Cfg, successors};
use crate::data::{BlockId, Function, Module, Op, Terminator, Type, Value};
use crate::semantics::{ADDRESS_TEXT_MAX, DIGITS_MAX};

/// Number of times that all lengths are computed. Each round uses the lengths of results of calls and of values that
/// loops carry from the round before, which were long enough.
const ROUNDS: usize = 2;

/// The longest values of a module.
pub(super) struct Lengths {
    /// By function and value; 0 for what is not bytes.
    values: Vec<Vec<u64>>,
    /// Longest head of a message, with what is inserted when it is forwarded.
    head: u64,
}

impl Lengths {
    /// Computes them. `callees_first`: see `calls`.
    pub(super) fn new(module: &Module, callees_first: &[usize]) -> Self {
        let views = module.program.channels.iter().filter_map(|channel| channel.view.as_ref());
        let head = views.map(|view| u64::from(view.head_bytes_max)).max().unwrap_or(HEAD_BYTES_MAX as u64);
        let mut insts =
            module.functions.iter().flat_map(|function| &function.blocks).flat_map(|block| &block.insts);
        let inserts = insts.any(|inst| matches!(inst.op, Op::Insert { .. }));
        let head = if inserts { head + INSERTED_BYTES_MAX as u64 } else { head };
        let longest = longest(module, head);
        let values = module.functions.iter().map(|function| vec![longest; function.values.len()]).collect();
        let mut lengths = Self { values, head };
        for _ in 0..ROUNDS {
            lengths.values = lengths.round(module, callees_first, longest);
        }
        lengths
    }

    /// Computes all lengths again, from what is known so far.
    fn round(&self, module: &Module, callees_first: &[usize], longest: u64) -> Vec<Vec<u64>> {
        let results: Vec<u64> = module
            .functions
            .iter()
            .zip(&self.values)
            .map(|(function, found)| result(function, found))
            .collect();
        let mut values = vec![Vec::new(); module.functions.len()];
        let mut params: Vec<Option<Vec<u64>>> = vec![None; module.functions.len()];
        for index in callees_first.iter().rev() {
            let function = &module.functions[*index];
            let entry = &function.blocks[0].params;
            // What nothing calls never runs with any value.
            let given = params[*index].take().unwrap_or_else(|| vec![0; entry.len()]);
            let known =
                Round { function, before: &self.values[*index], results: &results, head: self.head, longest };
            let found = known.lengths(&given);
            for inst in function.blocks.iter().flat_map(|block| &block.insts) {
                if let Op::Call { func, args } = &inst.op {
                    let known = params[func.0 as usize].get_or_insert_with(|| vec![0; args.len()]);
                    for (known, arg) in known.iter_mut().zip(args) {
                        *known = (*known).max(found[arg.0 as usize]);
                    }
                }
            }
            values[*index] = found;
        }
        values
    }

    /// Longest value that `value` of a function can be.
    pub(super) fn of(&self, function: usize, value: Value) -> u64 {
        self.values[function][value.0 as usize]
    }

    /// Longest part of a message.
    pub(super) fn head(&self) -> u64 {
        self.head
    }
}

/// Most bytes that an operation gives, if it says so itself.
pub(super) fn op_bytes(op: &Op) -> Option<u64> {
    Some(match op {
        Op::Concat { max_bytes, .. }
        | Op::Case { max_bytes, .. }
        | Op::Pack { max_bytes, .. }
        | Op::StateLoadBytes { max_bytes, .. }
        | Op::Host { max_bytes, .. } => u64::from(*max_bytes),
        Op::Transform { max_bytes, .. } => u64::from(*max_bytes),
        Op::Items { count_max, .. } => 8 * u64::from(*count_max),
        Op::FormatInt { .. } => DIGITS_MAX as u64,
        Op::FormatAddress(_) => ADDRESS_TEXT_MAX as u64,
        Op::Split { max, .. } | Op::WordsNew { words_max: max, .. } => 8 * u64::from(*max),
        _ => return None,
    })
}

/// Longest bytes value of any function.
fn longest(module: &Module, head: u64) -> u64 {
    let insts = module.functions.iter().flat_map(|function| &function.blocks).flat_map(|block| &block.insts);
    let bytes = insts.filter_map(|inst| match &inst.op {
        Op::ConstBytes { len, .. } => Some(u64::from(*len)),
        op => op_bytes(op),
    });
    bytes.max().unwrap_or(0).max(head)
}

/// Longest value that a function returns.
fn result(function: &Function, found: &[u64]) -> u64 {
    let returned = function.blocks.iter().map(|block| match &block.end {
        Terminator::Return(values) => values.iter().map(|value| found[value.0 as usize]).max().unwrap_or(0),
        _ => 0,
    });
    returned.max().unwrap_or(0)
}

/// One computation of the lengths of a function.
struct Round<'a> {
    function: &'a Function,
    /// The bounds found before; none is too low.
    before: &'a [u64],
    /// Results of functions.
    results: &'a [u64],
    head: u64,
    longest: u64,
}

impl Round<'_> {
    fn lengths(&self, params: &[u64]) -> Vec<u64> {
        let function = self.function;
        let cfg = Cfg::new(function);
        let mut found = vec![0; function.values.len()];
        let known = |value: Value| function.lengths.get(&value).map_or(u64::MAX, |max| u64::from(*max));
        for (param, length) in function.blocks[0].params.iter().zip(params) {
            found[param.0 as usize] = known(*param).min(*length);
        }
        let mut spills: Vec<u64> = Vec::new();
        let mut constants: Vec<Option<u64>> = vec![None; function.values.len()];
        for id in &cfg.order {
            let block = &function.blocks[id.0 as usize];
            for inst in &block.insts {
                if let Op::SpillSet { slot, value } = &inst.op {
                    let slot = usize::from(*slot);
                    spills.resize(spills.len().max(slot + 1), 0);
                    spills[slot] = spills[slot].max(found[value.0 as usize]);
                }
                let Some(result) = inst.result else { continue };
                if let Op::Const(word) = inst.op {
                    constants[result.0 as usize] = Some(u64::try_from(word).unwrap_or(0));
                }
                if function.values[result.0 as usize] == Type::Bytes {
                    let length = self.length(&inst.op, &found, &spills, &constants);
                    found[result.0 as usize] = known(result).min(length);
                }
            }
            self.hand_over(&cfg, *id, &mut found);
        }
        found
    }

    /// Takes the arguments of a block's end into the parameters of what follows.
    fn hand_over(&self, cfg: &Cfg, id: BlockId, found: &mut [u64]) {
        for (target, args) in successors(&self.function.blocks[id.0 as usize].end) {
            // A value that comes from a later block has the length of the former round.
            let goes_round: Vec<BlockId> = cfg.predecessors[target.0 as usize]
                .iter()
                .copied()
                .filter(|from| cfg.is_backward(*from, target))
                .collect();
            for (index, (param, arg)) in
                self.function.blocks[target.0 as usize].params.iter().zip(args).enumerate()
            {
                let is_bytes = self.function.values[param.0 as usize] == Type::Bytes;
                let around = goes_round.iter().map(|from| self.brought(*from, target, index));
                let given = around.max().unwrap_or(0).max(found[arg.0 as usize]);
                let most = self.function.lengths.get(param).map_or(u64::MAX, |max| u64::from(*max));
                let known = &mut found[param.0 as usize];
                *known = if is_bytes { (*known).max(given).min(most) } else { 0 };
            }
        }
    }

    /// The longest argument at that place that was found to lead from one block to another.
    fn brought(&self, from: BlockId, target: BlockId, index: usize) -> u64 {
        let edges = successors(&self.function.blocks[from.0 as usize].end).into_iter();
        let edges = edges.filter(|(to, _)| *to == target);
        edges.map(|(_, args)| self.before[args[index].0 as usize]).max().unwrap_or(self.longest)
    }

    fn length(&self, op: &Op, found: &[u64], spills: &[u64], constants: &[Option<u64>]) -> u64 {
        let of = |value: &Value| found[value.0 as usize];
        match op {
            Op::ConstBytes { len, .. } => u64::from(*len),
            Op::FrameGet { .. } | Op::MessageGet { .. } | Op::MessageBytes { .. } => self.head,
            Op::Whole { .. } => self.head,
            Op::Written { max_bytes, .. } => u64::from(*max_bytes),
            // A missing one; there are no other constants of bytes.
            Op::Const(_) => 0,
            Op::Select { a, b, .. } => of(a).max(of(b)),
            Op::Slice { bytes, end, .. } => of(bytes).min(constants[end.0 as usize].unwrap_or(u64::MAX)),
            Op::Trim(bytes) | Op::PackedBytes { packed: bytes, .. } => of(bytes),
            Op::Case { bytes, max_bytes, .. } => of(bytes).min(u64::from(*max_bytes)),
            Op::Concat { parts, max_bytes } => parts.iter().map(of).sum::<u64>().min(u64::from(*max_bytes)),
            Op::SpillGet { slot } => spills.get(usize::from(*slot)).copied().unwrap_or(self.longest),
            Op::Call { func, .. } => self.results[func.0 as usize],
            other => op_bytes(other).unwrap_or(self.longest),
        }
    }
}
