//! Every access to the message lies behind a `Need` that covers it.
//! Source: forward data flow over facts "the message has at least `base + bytes` bytes"; where ways meet, only what
//! is known on all of them stays. Compiled code loads without a check of its own, so its safety rests on this.

use std::collections::BTreeMap;

use super::Report;
use crate::cfg::Cfg;
use crate::data::{Function, Op, Terminator, Value};

/// Bytes known to be there, by base.
type Facts = BTreeMap<Option<Value>, u64>;

/// Checks all accesses of one function whose loops are in order.
pub(super) fn check(function: &Function, cfg: &Cfg, report: &mut Report<'_>) {
    let constants = constants(function);
    let mut known: Vec<Facts> = vec![Facts::new(); function.blocks.len()];
    for id in &cfg.order {
        let index = id.0 as usize;
        let mut facts: Option<Facts> = None;
        // What is known where a loop is entered stays known while it goes round.
        let ways = cfg.predecessors[index].iter().filter(|from| !cfg.is_backward(**from, *id));
        for predecessor in ways {
            let mut there = known[predecessor.0 as usize].clone();
            if let Terminator::Need { base, bytes, .. } = &function.blocks[predecessor.0 as usize].end {
                learn(&mut there, &constants, *base, u64::from(*bytes));
            }
            facts = Some(match facts {
                None => there,
                Some(facts) => common(&facts, &there),
            });
        }
        known[index] = facts.unwrap_or_default();
        for inst in &function.blocks[index].insts {
            check_access(&inst.op, &constants, &known[index], index, report);
        }
    }
}

/// Values that are not negative constants, by value.
fn constants(function: &Function) -> BTreeMap<Value, u64> {
    let insts = function.blocks.iter().flat_map(|block| &block.insts);
    let constant = |inst: &crate::data::Inst| match (inst.result, &inst.op) {
        (Some(value), Op::Const(word)) => Some((value, u64::try_from(*word).ok()?)),
        _ => None,
    };
    insts.filter_map(constant).collect()
}

fn learn(facts: &mut Facts, constants: &BTreeMap<Value, u64>, base: Option<Value>, bytes: u64) {
    let mut add = |base, bytes| {
        let known = facts.entry(base).or_insert(0);
        *known = (*known).max(bytes);
    };
    add(base, bytes);
    // A constant base says the same about the start of the message.
    if let Some(constant) = base.and_then(|base| constants.get(&base)) {
        add(None, constant.saturating_add(bytes));
    }
}

fn common(a: &Facts, b: &Facts) -> Facts {
    let both = |(base, bytes): (&Option<Value>, &u64)| Some((*base, *b.get(base)?.min(bytes)));
    a.iter().filter_map(both).collect()
}

fn check_access(
    op: &Op,
    constants: &BTreeMap<Value, u64>,
    facts: &Facts,
    block: usize,
    report: &mut Report<'_>,
) {
    let is_covered = |base: Option<Value>, bytes: u64| {
        let constant = base.map_or(Some(0), |base| constants.get(&base).copied());
        facts.get(&base).is_some_and(|known| *known >= bytes)
            || constant.is_some_and(|constant| {
                facts.get(&None).is_some_and(|known| *known >= constant.saturating_add(bytes))
            })
    };
    match op {
        Op::Load { base, offset, width_bytes, .. } => {
            let end = u64::from(*offset) + u64::from(*width_bytes);
            if !is_covered(*base, end) {
                let prefix = base.map(|base| format!("v{} + ", base.0)).unwrap_or_default();
                let range = format!("bytes {prefix}{offset} to {prefix}{end}");
                report.add_in(block, format!("no `need` covers the load of {range} of the message"));
            }
        }
        Op::MessageBytes { end, .. } if !is_covered(Some(*end), 0) => {
            report.add_in(block, format!("no `need` covers the bytes up to v{} of the message", end.0));
        }
        _ => {}
    }
}
