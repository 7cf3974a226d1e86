//! Upper bounds of the work, output and messages of one activation.
//! Promises: no activation, over all its suspensions, uses more steps, counted with `weights`, sends or asks more, or
//! builds more bytes than said here, on any input; each sum runs along one path that the blocks allow, though perhaps
//! no input takes it.
//! Refuses: modules that the verifier has refused; it needs loops with heads and bounds, and calls without recursion.
//! Source: longest path in an acyclic graph; RELIABILITY of a cooperative scheduler rests on it.

mod capacity_checks;
mod copies;
mod excess;
mod hottest;
mod lengths;
mod paths;
mod program;
mod steps;

use std::collections::BTreeMap;

use flick_abi::limits::{ASKS_MAX, CAPACITY_CHECK_BYTES_MAX};

use crate::calls;
use crate::cfg::Cfg;
use crate::data::{BlockId, Function, Inst, Module, Op, SourceOrigin, Terminator, Value};
use crate::weights::copy_steps;
use copies::Copies;
use lengths::Lengths;
use paths::{Longest, Paths};
use steps::AllSteps;

pub use capacity_checks::fill_capacity_checks;
pub use excess::{Excess, Limit, excesses};
pub use hottest::hottest_positions;
pub use program::program_bounds;

/// The bounds of one function.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FunctionBounds {
    /// Steps, callees included, without those of copying in blocks that are entered only after a capacity check.
    pub steps: u64,
    /// Steps without those of copying what is built.
    pub uncopied_steps: u64,
    /// Messages sent, callees included.
    pub sends: u64,
    /// Bytes of output built, callees included, without blocks that are entered only after a capacity check.
    pub out_bytes: u64,
    /// Whether it has such blocks, callees included: together they build [`CAPACITY_CHECK_BYTES_MAX`] at most.
    pub has_capacity_checks: bool,
    /// Of these, bytes built before the last suspension: they are kept while it waits.
    pub kept_bytes: u64,
    /// Asks outside loops.
    pub asks: u64,
    /// Asks in a loop, each counted once: the loop runs once for each element of an array.
    pub array_asks: u64,
    /// All asks, with each loop at its maximum number of iterations.
    pub asks_total: u64,
    /// Words kept across suspensions.
    pub spill_words: u32,
    /// Source positions along the longest path with their steps, most steps first. A call counts with its callee's
    /// body, a loop with all its iterations.
    pub hottest: Vec<(SourceOrigin, u64)>,
    /// As `hottest`, with the bytes of output they build; positions that build none are left out.
    pub hottest_out: Vec<(SourceOrigin, u64)>,
    /// As `hottest_out`, with the messages they send.
    pub hottest_sends: Vec<(SourceOrigin, u64)>,
}

impl FunctionBounds {
    /// Steps, all parts included: what blocks behind capacity checks build is copied into the output once, and from
    /// there perhaps into a dictionary.
    pub fn all_steps(&self) -> u64 {
        let checked =
            if self.has_capacity_checks { 2 * copy_steps(CAPACITY_CHECK_BYTES_MAX as u64) } else { 0 };
        self.steps.saturating_add(checked)
    }

    /// Bytes of output built, all parts included.
    pub fn all_out_bytes(&self) -> u64 {
        self.out_bytes.saturating_add(if self.has_capacity_checks {
            CAPACITY_CHECK_BYTES_MAX as u64
        } else {
            0
        })
    }
}

/// Bounds of all functions, by `FuncId`. Panics on recursion.
pub fn bounds(module: &Module) -> Vec<FunctionBounds> {
    let order = calls::callees_first(module).expect("the verifier has refused recursion");
    let lengths = Lengths::new(module, &order);
    let mut bounds = vec![FunctionBounds::default(); module.functions.len()];
    for index in order {
        let constants = constants(&module.functions[index]);
        let known = Known { module, lengths: &lengths, index, bounds: &bounds, constants };
        bounds[index] = function_bounds(&known);
    }
    bounds
}

/// Input of the computation of one function's bounds: those of its callees are known.
struct Known<'a> {
    module: &'a Module,
    lengths: &'a Lengths,
    index: usize,
    bounds: &'a [FunctionBounds],
    /// Values that are constants, as numbers of bytes.
    constants: BTreeMap<Value, u64>,
}

impl Known<'_> {
    fn function(&self) -> &Function {
        &self.module.functions[self.index]
    }

    fn callee(&self, inst: &Inst) -> Option<&FunctionBounds> {
        if let Op::Call { func, .. } = &inst.op { Some(&self.bounds[func.0 as usize]) } else { None }
    }

    /// Messages that an instruction sends.
    fn sends(&self, inst: &Inst) -> u64 {
        match &inst.op {
            Op::SendOriginal { .. } | Op::SendRebuilt { .. } | Op::SendMessage { .. } => 1,
            _ => self.callee(inst).map_or(0, |callee| callee.sends),
        }
    }

    /// Bytes that an instruction builds.
    fn out_bytes(&self, inst: &Inst) -> u64 {
        let constant = |value: &Value| self.constants.get(value).copied().unwrap_or(u64::MAX);
        let part = |end: &Value| constant(end).min(self.lengths.head());
        match &inst.op {
            Op::EmitInt { width_bytes, .. } => u64::from(*width_bytes),
            Op::EmitBytes { value } => self.lengths.of(self.index, *value),
            Op::Whole { .. } => self.lengths.head(),
            Op::EmitMessage { end, .. } | Op::EmitMessageOf { end, .. } => part(end),
            op => match lengths::op_bytes(op) {
                Some(bytes) => bytes,
                None => self.callee(inst).map_or(0, |callee| callee.out_bytes),
            },
        }
    }

    /// As [`Known::out_bytes`], with what callees build after capacity checks.
    fn all_out_bytes(&self, inst: &Inst) -> u64 {
        self.callee(inst).map_or_else(|| self.out_bytes(inst), FunctionBounds::all_out_bytes)
    }

    /// Sums up what the instructions of each block cost.
    fn sum(&self, cost: impl Fn(&Inst) -> u64) -> Vec<u64> {
        self.sum_at(|_, _, inst| cost(inst))
    }

    /// As `sum`, by block and index too.
    fn sum_at(&self, cost: impl Fn(BlockId, usize, &Inst) -> u64) -> Vec<u64> {
        let blocks = (0..).zip(&self.function().blocks);
        let sum = |(block, insts): (u32, &[Inst])| {
            let costs = insts.iter().enumerate().map(|(index, inst)| cost(BlockId(block), index, inst));
            costs.fold(0_u64, u64::saturating_add)
        };
        blocks.map(|(block, of)| sum((block, &of.insts))).collect()
    }

    /// Bytes that the instructions of each block build; what all rounds of a loop copy together counts where it is
    /// entered.
    fn built(&self, copies: &Copies) -> Vec<u64> {
        let mut built = self.sum_at(|block, index, inst| match copies.rounds(block, index) {
            Some(_) => 0,
            None => self.out_bytes(inst),
        });
        for entry in &copies.entries {
            let built = &mut built[entry.0 as usize];
            *built = built.saturating_add(self.lengths.head());
        }
        built
    }
}

/// Values of a function that are constants and not negative.
fn constants(function: &Function) -> BTreeMap<Value, u64> {
    let insts = function.blocks.iter().flat_map(|block| &block.insts);
    let constant = |inst: &Inst| match (inst.result, &inst.op) {
        (Some(value), Op::Const(word)) => Some((value, u64::try_from(*word).ok()?)),
        _ => None,
    };
    insts.filter_map(constant).collect()
}

fn is_ask(inst: &Inst) -> bool {
    matches!(inst.op, Op::AskOriginal { .. } | Op::AskRebuilt { .. } | Op::AskMessage { .. })
}

fn function_bounds(known: &Known<'_>) -> FunctionBounds {
    let function = known.function();
    let cfg = Cfg::new(function);
    let loops = cfg.loops();
    let paths = Paths::new(function, &cfg, &loops);
    let copies = Copies::new(function, &cfg, &loops);
    let all = AllSteps::new(known, &cfg, &paths, &copies, loops.len());
    let (mut steps, uncopied) = step_weights(known, &all, &copies);
    let longest = |own: &[u64]| paths.longest(own);
    let mut built = known.built(&copies);
    let checks = capacity_checks::capacity_checks(known, &cfg, &paths);
    let mut is_checked = vec![false; function.blocks.len()];
    for block in checks.iter().filter(|check| check.is_enough()).flat_map(|check| &check.body) {
        built[block.0 as usize] = 0;
        steps[block.0 as usize] = uncopied[block.0 as usize];
        is_checked[block.0 as usize] = true;
    }
    let steps = paths.longest_with(&steps, &all.once);
    let uncopied_steps = paths.longest_with(&uncopied, &all.once).total;
    let in_callees = |inst: &Inst| known.callee(inst).is_some_and(|callee| callee.has_capacity_checks);
    let has_capacity_checks =
        !checks.is_empty() || function.blocks.iter().flat_map(|block| &block.insts).any(in_callees);
    let out = longest(&built);
    let kept = longest(&before_suspensions(function, &cfg, built));
    let kept_in_checks =
        if has_capacity_checks && function.suspends() { CAPACITY_CHECK_BYTES_MAX as u64 } else { 0 };
    let sends = longest(&known.sum(|inst| known.sends(inst)));
    let asks = known.sum(|inst| u64::from(is_ask(inst)));
    let asks_total = longest(&asks);
    let (mut straight, mut array) = (asks.clone(), vec![0; asks.len()]);
    // A loop of `ASKS_MAX` rounds iterates over an array, whose length the platform knows.
    let of_arrays = loops
        .iter()
        .filter(|found| function.blocks[found.head.0 as usize].trips_max == Some(ASKS_MAX as u32));
    for block in of_arrays.flat_map(|found| &found.body) {
        straight[block.0 as usize] = 0;
        array[block.0 as usize] = asks[block.0 as usize];
    }
    FunctionBounds {
        steps: steps.total,
        uncopied_steps,
        sends: sends.total,
        out_bytes: out.total,
        has_capacity_checks,
        kept_bytes: kept.total.saturating_add(kept_in_checks),
        asks: longest(&straight).total,
        array_asks: array.iter().sum(),
        asks_total: asks_total.total,
        spill_words: spill_words(function),
        hottest: hottest_origins(known, &paths, &steps, |block, index, times, entered| {
            let own = all.insts[block.0 as usize][index];
            let once = all.root[block.0 as usize].map_or(0, |root| entered[root].saturating_mul(own.once));
            let each = if is_checked[block.0 as usize] { own.uncopied } else { own.each };
            each.saturating_mul(times).saturating_add(once)
        }),
        hottest_out: hottest_origins(known, &paths, &out, |block, index, times, _| {
            let inst = &function.blocks[block.0 as usize].insts[index];
            times.saturating_mul(known.out_bytes(inst) / copies.rounds(block, index).unwrap_or(1))
        }),
        hottest_sends: hottest_origins(known, &paths, &sends, |block, index, times, _| {
            times.saturating_mul(known.sends(&function.blocks[block.0 as usize].insts[index]))
        }),
    }
}

/// Returns the steps of each block, and those without copying what is built.
fn step_weights(known: &Known<'_>, all: &AllSteps, copies: &Copies) -> (Vec<u64>, Vec<u64>) {
    let (mut steps, mut uncopied) =
        (all.by_block(known, |steps| steps.each), all.by_block(known, |steps| steps.uncopied));
    for own in [&mut steps, &mut uncopied] {
        let entry = own[0];
        for (own, block) in own.iter_mut().zip(&known.function().blocks) {
            // A resumed activation enters the function again.
            if let Terminator::Suspend { .. } = block.end {
                *own = own.saturating_add(entry);
            }
        }
    }
    for entry in &copies.entries {
        let steps = &mut steps[entry.0 as usize];
        *steps = steps.saturating_add(copy_steps(known.lengths.head()));
    }
    (steps, uncopied)
}

/// The weights of blocks from which a suspension can be reached; 0 for the others.
fn before_suspensions(function: &Function, cfg: &Cfg, mut weights: Vec<u64>) -> Vec<u64> {
    let suspends =
        |block: &BlockId| matches!(function.blocks[block.0 as usize].end, Terminator::Suspend { .. });
    let mut left: Vec<BlockId> = cfg.order.iter().copied().filter(suspends).collect();
    let mut is_before = vec![false; weights.len()];
    // Each block is taken up once.
    while let Some(block) = left.pop() {
        if !std::mem::replace(&mut is_before[block.0 as usize], true) {
            left.extend(cfg.predecessors[block.0 as usize].iter().copied());
        }
    }
    for (weight, is_before) in weights.iter_mut().zip(is_before) {
        *weight = if is_before { *weight } else { 0 };
    }
    weights
}

fn spill_words(function: &Function) -> u32 {
    let insts = function.blocks.iter().flat_map(|block| &block.insts);
    let slots = insts.filter_map(|inst| match inst.op {
        Op::SpillSet { slot, .. } | Op::SpillGet { slot } => Some(u32::from(slot) + 1),
        _ => None,
    });
    slots.max().unwrap_or(0)
}

fn hottest_origins(
    known: &Known<'_>,
    paths: &Paths<'_>,
    longest: &Longest,
    cost: impl Fn(BlockId, usize, u64, &[u64]) -> u64,
) -> Vec<(SourceOrigin, u64)> {
    let mut sums: BTreeMap<(u32, u32), u64> = BTreeMap::new();
    let (counts, entered) = paths.counts(longest);
    for (index, times) in counts.into_iter().enumerate().filter(|(_, times)| *times > 0) {
        for (index_in_block, inst) in known.function().blocks[index].insts.iter().enumerate() {
            let sum = sums.entry((inst.origin.file, inst.origin.offset)).or_insert(0);
            *sum = sum.saturating_add(cost(BlockId(index as u32), index_in_block, times, &entered));
        }
    }
    let hottest = sums.into_iter().filter(|(_, sum)| *sum > 0);
    let mut hottest: Vec<(SourceOrigin, u64)> =
        hottest.map(|((file, offset), sum)| (SourceOrigin { file, offset }, sum)).collect();
    // Stable: positions of the same cost stay in the order of the source.
    hottest.sort_by_key(|(_, sum)| std::cmp::Reverse(*sum));
    hottest
}

#[cfg(test)]
mod tests {
    use super::bounds;
    use crate::text;

    fn check(functions: &str, steps: &[u64], sends: &[u64]) {
        let text = format!("program \"p\" {{ channel \"c\" single protocol 0 }} {functions}");
        let bounds = bounds(&text::parse(&text).expect("the test's text is of the form"));
        assert_eq!(bounds.iter().map(|b| b.steps).collect::<Vec<_>>(), steps);
        assert_eq!(bounds.iter().map(|b| b.sends).collect::<Vec<_>>(), sends);
    }

    #[test]
    fn the_costlier_branch_counts_with_its_callee() {
        check(
            r#"fn f0 helper "h" {
                 b0(v0: chan): send_original v0 return
               }
               fn f1 rule "r" {
                 b0(v0: frame, v1: uint): v2: chan = const 0 v3: bool = const 1 branch v3, b1, b2
                 b1(): call f0(v2) jump b3
                 b2(): v4: uint = add v1, v1 jump b3
                 b3(): return
               }"#,
            &[257, 1 + 4 + 257 + 1],
            &[1, 1],
        );
    }

    #[test]
    fn the_hottest_line_comes_first() {
        let text = r#"program "p" { } fn f0 helper "h" {
            b0(v0: bytes, v1: int):
              v5: bytes = written v1 max 400
              v2: int = add v1, v1 @0:7
              v3: uint = hash_bytes v5 @0:9
              v4: int = add v1, v1 @0:7
              return
        }"#;
        let bounds = bounds(&text::parse(text).expect("the test's text is of the form"));
        let hottest: Vec<_> =
            bounds[0].hottest.iter().map(|(origin, steps)| (origin.offset, *steps)).collect();
        assert_eq!(hottest, [(9, 8 + 50), (7, 2)]);
    }
}
