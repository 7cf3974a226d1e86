//! Loops have heads and bounds; suspensions come back where they left, with what they kept.
//! Source: natural loops; forward data flow to a fixed point over sets that only shrink or grow.

use flick_abi::limits::{ASKS_MAX, SPILL_WORDS_MAX};

use super::Report;
use crate::cfg::{Cfg, successors};
use crate::data::{BlockId, FuncKind, Function, Op, Terminator, Type};

/// Checks that every cycle goes through a head with a bound that comes before the rest of it. Returns whether it does.
pub(super) fn check_loops(function: &Function, cfg: &Cfg, report: &mut Report<'_>) -> bool {
    let before = report.errors.len();
    for from in &cfg.order {
        for (to, _) in successors(&function.blocks[from.0 as usize].end) {
            if !cfg.is_backward(*from, to) {
                continue;
            }
            if !cfg.dominates(to, *from) {
                report.add_in(from.0 as usize, format!("b{} is a way back, but no head of a loop", to.0));
            } else if function.blocks[to.0 as usize].trips_max.is_none() {
                report.add_in(from.0 as usize, format!("b{} is the head of a loop without a bound", to.0));
            }
        }
    }
    report.errors.len() == before
}

/// Checks asks, suspensions and what is kept across them; of a function whose loops are in order.
pub(super) fn check_waits(function: &Function, cfg: &Cfg, report: &mut Report<'_>) {
    if function.kind != FuncKind::Rule {
        return;
    }
    let suspends = suspends(function, cfg);
    check_resume_blocks(function, cfg, &suspends, report);
    check_resume(function, report);
    check_asks(function, cfg, report);
    check_spills(function, cfg, &suspends, report);
}

/// Reachable suspensions: block, state, where it goes on.
fn suspends(function: &Function, cfg: &Cfg) -> Vec<(BlockId, u32, BlockId)> {
    let found = |id: &BlockId| match function.blocks[id.0 as usize].end {
        Terminator::Suspend { then, state } => Some((*id, state, then)),
        _ => None,
    };
    cfg.order.iter().filter_map(found).collect()
}

/// Checks that the entry leads to the block that each suspension resumes at, and that nothing else does.
fn check_resume_blocks(
    function: &Function,
    cfg: &Cfg,
    suspends: &[(BlockId, u32, BlockId)],
    report: &mut Report<'_>,
) {
    let cases = resume_cases(function);
    for (index, (from, state, then)) in suspends.iter().enumerate() {
        let position = from.0 as usize;
        if *state == 0 || suspends[..index].iter().any(|(_, known, _)| known == state) {
            report.add_in(position, format!("{state} is no state of its own to go on in"));
        }
        let others = cfg.predecessors[then.0 as usize].iter().filter(|block| *block != from && block.0 != 0);
        let from_entry = successors(&function.blocks[0].end).iter().filter(|(to, _)| to == then).count();
        if others.count() > 0 || from_entry > 1 || (from.0 == 0) {
            report.add_in(position, format!("b{} has another way in", then.0));
        }
        if !cases.contains(&(i64::from(*state), *then)) {
            report.add_in(position, format!("the entry does not go on at b{} in state {state}", then.0));
        }
    }
    for (state, block) in cases {
        if !suspends.iter().any(|(_, known, then)| i64::from(*known) == state && *then == block) {
            report.add(format!(
                "the entry goes on at b{} in state {state}, which nothing leaves behind",
                block.0
            ));
        }
    }
}

/// Returns the blocks in which the entry of a rule resumes, by state; none if it does not switch over the state.
fn resume_cases(function: &Function) -> Vec<(i64, BlockId)> {
    let entry = &function.blocks[0];
    let Terminator::Switch { value, cases, .. } = &entry.end else { return Vec::new() };
    let is_state = entry.insts.iter().any(|inst| inst.result == Some(*value) && inst.op == Op::ResumeState);
    if is_state { cases.clone() } else { Vec::new() }
}

/// Only the entry asks for the state.
fn check_resume(function: &Function, report: &mut Report<'_>) {
    for (index, block) in function.blocks.iter().enumerate().skip(1) {
        if block.insts.iter().any(|inst| inst.op == Op::ResumeState) {
            report.add_in(index, "only the entry asks in which state it goes on".to_owned());
        }
    }
}

/// Checks that a rule waits for its asks before it returns, and that no suspension waits for too many. The platform
/// bounds asks in loops, because it knows the arrays.
fn check_asks(function: &Function, cfg: &Cfg, report: &mut Report<'_>) {
    let mut in_loop = vec![false; function.blocks.len()];
    for block in cfg.loops().iter().flat_map(|found| &found.body) {
        in_loop[block.0 as usize] = true;
    }
    // Asks that may be in flight at the end of each block: whether any, and how many outside loops.
    let mut pending = vec![(false, 0_usize); function.blocks.len()];
    let mut is_settled = false;
    while !is_settled {
        is_settled = true;
        for id in &cfg.order {
            let index = id.0 as usize;
            let ends = cfg.predecessors[index].iter().map(|from| (from, pending[from.0 as usize]));
            let waits =
                |from: &BlockId| matches!(function.blocks[from.0 as usize].end, Terminator::Suspend { .. });
            let mut now = (false, 0);
            for (from, (any, count)) in ends.filter(|(from, _)| !waits(from)) {
                // What goes round in a loop adds nothing outside it.
                let count = if cfg.is_backward(*from, *id) { 0 } else { count };
                now = (now.0 || any, now.1.max(count));
            }
            let own = asks(function, index);
            now = (now.0 || own > 0, now.1 + if in_loop[index] { 0 } else { own });
            is_settled &= pending[index] == now;
            pending[index] = now;
        }
    }
    for id in &cfg.order {
        let index = id.0 as usize;
        match function.blocks[index].end {
            Terminator::Return(_) if pending[index].0 => {
                report.add_in(index, "what was asked is not waited for".to_owned());
            }
            Terminator::Suspend { .. } if pending[index].1 > ASKS_MAX => {
                report.add_in(index, format!("waits for {} answers, more than {ASKS_MAX}", pending[index].1));
            }
            _ => {}
        }
    }
}

fn asks(function: &Function, block: usize) -> usize {
    let is_ask =
        |op: &Op| matches!(op, Op::AskOriginal { .. } | Op::AskRebuilt { .. } | Op::AskMessage { .. });
    function.blocks[block].insts.iter().filter(|inst| is_ask(&inst.op)).count()
}

/// Each word is kept before it is asked for, on every way that activations take, and always as the same type.
fn check_spills(
    function: &Function,
    cfg: &Cfg,
    suspends: &[(BlockId, u32, BlockId)],
    report: &mut Report<'_>,
) {
    let mut types: Vec<Option<Type>> = vec![None; SPILL_WORDS_MAX];
    for (index, block) in function.blocks.iter().enumerate() {
        for inst in &block.insts {
            let (slot, value) = match (&inst.op, inst.result) {
                (Op::SpillSet { slot, value }, _) => (*slot, Some(*value)),
                (Op::SpillGet { slot }, result) => (*slot, result),
                _ => continue,
            };
            let (Some(known), Some(value)) = (types.get_mut(usize::from(slot)), value) else { continue };
            // Signs belong to operations, so that one value may stand for another of the other kind.
            let ty = match function.values[value.0 as usize] {
                Type::Uint => Type::Int,
                ty => ty,
            };
            if known.is_some_and(|known| known != ty) {
                report.add_in(index, format!("word {slot} is kept as two types"));
            }
            *known = Some(ty);
        }
    }
    if types.iter().any(Option::is_some) {
        check_kept(function, cfg, suspends, report);
    }
}

/// The data flow of [`check_spills`]: words kept for sure, at the end of each block.
fn check_kept(function: &Function, cfg: &Cfg, suspends: &[(BlockId, u32, BlockId)], report: &mut Report<'_>) {
    type Words = [u64; SPILL_WORDS_MAX / 64];
    // Words out of range are reported by their number.
    let has = |words: &Words, slot: u16| {
        words.get(usize::from(slot) / 64).is_none_or(|word| word >> (slot % 64) & 1 != 0)
    };
    let mut kept: Vec<Words> = vec![[u64::MAX; SPILL_WORDS_MAX / 64]; function.blocks.len()];
    let mut is_last = false;
    loop {
        let mut changed = false;
        for id in &cfg.order {
            let index = id.0 as usize;
            let resumes = suspends.iter().any(|(_, _, then)| then == id);
            // A resumed block has what was kept before the suspension, although it is entered from the entry.
            let sources = cfg.predecessors[index].iter().filter(|from| !(resumes && from.0 == 0));
            let mut words =
                if index == 0 { [0; SPILL_WORDS_MAX / 64] } else { [u64::MAX; SPILL_WORDS_MAX / 64] };
            for from in sources {
                words.iter_mut().zip(&kept[from.0 as usize]).for_each(|(word, other)| *word &= other);
            }
            for inst in &function.blocks[index].insts {
                match &inst.op {
                    Op::SpillSet { slot, .. } if usize::from(*slot) < SPILL_WORDS_MAX => {
                        words[usize::from(*slot) / 64] |= 1 << (slot % 64);
                    }
                    Op::SpillGet { slot } if is_last && !has(&words, *slot) => {
                        report.add_in(index, format!("word {slot} is not kept on every way here"));
                    }
                    _ => {}
                }
            }
            changed |= kept[index] != words;
            kept[index] = words;
        }
        if is_last {
            return;
        }
        is_last = !changed;
    }
}
