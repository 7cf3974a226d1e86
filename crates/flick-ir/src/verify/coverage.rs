//! Every access to the message lies behind a `Need` that covers it.
//! Source: forward data flow over facts "the message has at least `base + bytes` bytes"; where ways meet, only what
//! is known on all of them stays. Compiled code loads without a check of its own, so its safety rests on this.

use std::collections::BTreeMap;

use super::Report;
use crate::cfg::Cfg;
use crate::data::{Binary, Function, Inst, Op, Terminator, Value};

/// Bytes known to be there, by base.
type Facts = BTreeMap<Option<Value>, u64>;

/// Checks all accesses of one function whose loops are in order.
pub(super) fn check(function: &Function, cfg: &Cfg, report: &mut Report<'_>) {
    let numbers = Numbers::new(function);
    let mut known: Vec<Facts> = vec![Facts::new(); function.blocks.len()];
    for id in &cfg.order {
        let index = id.0 as usize;
        let mut facts: Option<Facts> = None;
        // What is known where a loop is entered stays known while it goes round.
        let ways = cfg.predecessors[index].iter().filter(|from| !cfg.is_backward(**from, *id));
        for predecessor in ways {
            let mut there = known[predecessor.0 as usize].clone();
            if let Terminator::Need { base, bytes, .. } = &function.blocks[predecessor.0 as usize].end {
                learn(&mut there, &numbers, *base, u64::from(*bytes));
            }
            facts = Some(match facts {
                None => there,
                Some(facts) => common(&facts, &there),
            });
        }
        known[index] = facts.unwrap_or_default();
        for inst in &function.blocks[index].insts {
            check_access(&inst.op, &numbers, &known[index], index, report);
            // Neither gives a place behind the end of what is there.
            if let (Op::ScanRun { .. } | Op::Seek { .. }, Some(result)) = (&inst.op, inst.result) {
                learn(&mut known[index], &numbers, Some(result), 0);
            }
        }
    }
}

/// What is known of numbers wherever they are.
struct Numbers {
    /// Constants that are not negative.
    constants: BTreeMap<Value, u64>,
    /// Sums of a value and a constant that is not negative.
    sums: BTreeMap<Value, (Value, u64)>,
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
        Self { constants, sums }
    }

    /// Whether the message is known to have `base + bytes` bytes.
    fn is_covered(&self, facts: &Facts, base: Option<Value>, bytes: u64) -> bool {
        let constant = base.map_or(Some(0), |base| self.constants.get(&base).copied());
        let sum = base.and_then(|base| self.sums.get(&base));
        facts.get(&base).is_some_and(|known| *known >= bytes)
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
