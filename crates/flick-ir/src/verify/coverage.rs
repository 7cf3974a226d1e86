//! Every access to the message lies behind a `Need` that covers it.
//! Source: forward data flow over facts "the message has at least `base + bytes` bytes"; where edges meet, only what
//! is known on all of them stays. Compiled code loads without a check of its own, so its safety rests on this.

use std::collections::{BTreeMap, BTreeSet};

use super::Report;
use crate::cfg::{Cfg, successors};
use crate::data::{Binary, BlockId, FuncKind, Function, Inst, Op, Terminator, Value};

/// Bytes known to be there, by base.
type Facts = BTreeMap<Option<Value>, u64>;

/// Lengths of the message that are known to be available at the start of each block.
#[derive(Clone, Debug, Default)]
pub struct Covered {
    numbers: Numbers,
    known: Vec<Facts>,
}

impl Covered {
    /// Computes it, of a function whose loops are in order.
    pub fn new(function: &Function, cfg: &Cfg) -> Self {
        let mut covered = Self { numbers: Numbers::new(function), known: vec![] };
        covered.known.resize(function.blocks.len(), Facts::new());
        for id in &cfg.order {
            covered.known[id.0 as usize] = covered.at_start(function, cfg, *id);
        }
        covered
    }

    /// Whether the message is known to have `position` bytes wherever control is in `block`, whose own instructions
    /// are not looked at.
    pub fn reaches(&self, block: BlockId, position: Value) -> bool {
        self.known
            .get(block.0 as usize)
            .is_some_and(|facts| self.numbers.is_covered(facts, Some(position), 0))
    }

    fn at_start(&self, function: &Function, cfg: &Cfg, id: BlockId) -> Facts {
        let params = &function.blocks[id.0 as usize].params;
        let all = &cfg.predecessors[id.0 as usize];
        let is_head = all.iter().any(|from| cfg.is_backward(*from, id));
        let mut facts: Option<Facts> = None;
        // What is known where a loop is entered stays known while it goes round, but for what goes round itself.
        for from in all.iter().filter(|from| !cfg.is_backward(**from, id)) {
            let block = &function.blocks[from.0 as usize];
            let mut there = self.known[from.0 as usize].clone();
            for inst in &block.insts {
                learn_result(&mut there, &self.numbers, inst);
            }
            if let Terminator::Need { base, bytes, .. } = &block.end {
                learn(&mut there, &self.numbers, *base, u64::from(*bytes));
            }
            let edges = successors(&block.end).into_iter().filter(|(target, _)| *target == id && !is_head);
            for (index, param) in params.iter().enumerate() {
                let covers = |args: &[Value]| self.numbers.is_covered(&there, args.get(index).copied(), 0);
                let mut edges = edges.clone().peekable();
                if edges.peek().is_some() && edges.all(|(_, args)| covers(args)) {
                    there.insert(Some(*param), 0);
                }
            }
            facts = Some(match facts {
                None => there,
                Some(facts) => common(&facts, &there),
            });
        }
        facts.unwrap_or_default()
    }
}

/// Neither run nor needle gives a place behind the end of what is there.
fn learn_result(facts: &mut Facts, numbers: &Numbers, inst: &Inst) {
    if let (Op::ScanRun { .. } | Op::Seek { .. }, Some(result)) = (&inst.op, inst.result) {
        learn(facts, numbers, Some(result), 0);
    }
}

/// Checks all accesses of one function whose loops are in order.
pub(super) fn check(function: &Function, cfg: &Cfg, report: &mut Report<'_>) {
    let Covered { numbers, mut known } = Covered::new(function, cfg);
    for id in &cfg.order {
        let index = id.0 as usize;
        for inst in &function.blocks[index].insts {
            check_access(&inst.op, &numbers, &known[index], index, report);
            learn_result(&mut known[index], &numbers, inst);
        }
    }
}

/// Facts about numbers that hold in the whole function.
#[derive(Clone, Debug, Default)]
struct Numbers {
    /// Constants that are not negative.
    constants: BTreeMap<Value, u64>,
    /// Sums of a value and a constant that is not negative.
    sums: BTreeMap<Value, (Value, u64)>,
    /// Values that are at most the length of the message.
    clamped: BTreeSet<Value>,
}

impl Numbers {
    fn new(function: &Function) -> Self {
        let insts = || function.blocks.iter().flat_map(|block| &block.insts);
        let constant = |inst: &Inst| match (inst.result, &inst.op) {
            (Some(value), Op::Const(word)) => Some((value, u64::try_from(*word).ok()?)),
            _ => None,
        };
        let constants: BTreeMap<Value, u64> = insts().filter_map(constant).collect();
        let sum = |inst: &Inst| match (inst.result, &inst.op) {
            (Some(value), Op::Binary(Binary::Add, a, b)) => match (constants.get(a), constants.get(b)) {
                (_, Some(word)) => Some((value, (*a, *word))),
                (Some(word), None) => Some((value, (*b, *word))),
                (None, None) => None,
            },
            _ => None,
        };
        let sums = insts().filter_map(sum).collect();
        let len = match function.kind {
            FuncKind::Parser => function.blocks[0].params.get(1).copied(),
            _ => None,
        };
        let clamp = |inst: &Inst| match (inst.result, &inst.op) {
            (Some(value), Op::Binary(Binary::MinU, a, b)) if len == Some(*a) || len == Some(*b) => {
                Some(value)
            }
            _ => None,
        };
        let clamped = insts().filter_map(clamp).collect();
        Self { constants, sums, clamped }
    }

    /// Whether the message is known to have `base + bytes` bytes.
    fn is_covered(&self, facts: &Facts, base: Option<Value>, bytes: u64) -> bool {
        let constant = base.map_or(Some(0), |base| self.constants.get(&base).copied());
        let sum = base.and_then(|base| self.sums.get(&base));
        facts.get(&base).is_some_and(|known| *known >= bytes)
            || bytes == 0 && base.is_some_and(|base| self.clamped.contains(&base))
            || constant.is_some_and(|constant| constant == 0 && bytes == 0)
            || constant.is_some_and(|constant| {
                facts.get(&None).is_some_and(|known| *known >= constant.saturating_add(bytes))
            })
            // What is covered does not wrap, because no message is nearly that long.
            || sum.is_some_and(|(base, word)| {
                let end = word.saturating_add(bytes);
                end <= u64::from(u32::MAX) && facts.get(&Some(*base)).is_some_and(|known| *known >= end)
            })
    }
}

fn learn(facts: &mut Facts, numbers: &Numbers, base: Option<Value>, bytes: u64) {
    let mut add = |base, bytes| {
        let known = facts.entry(base).or_insert(0);
        *known = (*known).max(bytes);
    };
    add(base, bytes);
    // A constant base says the same about the start of the message.
    if let Some(constant) = base.and_then(|base| numbers.constants.get(&base)) {
        add(None, constant.saturating_add(bytes));
    }
}

fn common(a: &Facts, b: &Facts) -> Facts {
    let both = |(base, bytes): (&Option<Value>, &u64)| Some((*base, *b.get(base)?.min(bytes)));
    a.iter().filter_map(both).collect()
}

fn check_access(op: &Op, numbers: &Numbers, facts: &Facts, block: usize, report: &mut Report<'_>) {
    match op {
        Op::Load { base, offset, width_bytes, .. } => {
            let end = u64::from(*offset) + u64::from(*width_bytes);
            if !numbers.is_covered(facts, *base, end) {
                let prefix = base.map(|base| format!("v{} + ", base.0)).unwrap_or_default();
                let range = format!("bytes {prefix}{offset} to {prefix}{end}");
                report.add_in(block, format!("no `need` covers the load of {range} of the message"));
            }
        }
        Op::MessageBytes { end, .. } | Op::Cut { end, .. } | Op::CutListed { end, .. }
            if !numbers.is_covered(facts, Some(*end), 0) =>
        {
            report.add_in(block, format!("no `need` covers the bytes up to v{} of the message", end.0));
        }
        _ => {}
    }
}
