//! Forwards what a parser has put into a slot to where it reads the slot again.
//!
//! Parsers put what the next segment needs into slots and read it back there, because they may be called again in
//! between. Where control comes straight from the segment before, the value is still at hand: a block that reads
//! slots and is reached both ways takes them as parameters, and only the way from the entry's switch reads.

use flick_abi::frame::{SLOT_CUTS, SLOT_ITEMS};

use super::Aliases;
use crate::cfg::{Cfg, successors};
use crate::data::{Block, BlockId, FuncKind, Function, Inst, LineDoes, Op, Terminator, Type, Value};

/// The known values of slots.
type Known = Vec<(u16, Value)>;

/// Runs the pass. Returns whether it changed anything.
pub(super) fn run(function: &mut Function) -> bool {
    if function.kind != FuncKind::Parser {
        return false;
    }
    let cfg = Cfg::new(function);
    let mut aliases = Aliases::new(function);
    let mut at_end: Vec<Known> = vec![Known::new(); function.blocks.len()];
    let mut changed = false;
    for id in &cfg.order {
        let index = id.0 as usize;
        let mut known = meet(&cfg.predecessors[index], &at_end);
        let reads = mixed_reads(function, &cfg, *id, &known, &at_end);
        if !reads.is_empty() {
            // New blocks make the graph another; the next run goes on with the rest.
            aliases.apply(function);
            make_parameters(function, &cfg, *id, &reads, &at_end);
            return true;
        }
        for inst in &function.blocks[index].insts {
            match (&inst.op, inst.result) {
                (Op::FrameSet { slot, value }, _) => put(&mut known, *slot, aliases.find(*value)),
                (Op::FrameGet { slot }, Some(result)) => {
                    let same =
                        known.iter().find(|(known, value)| known == slot && fits(function, *value, result));
                    match same {
                        Some((_, value)) => {
                            aliases.set(result, *value);
                            changed = true;
                        }
                        None => put(&mut known, *slot, result),
                    }
                }
                (op, _) => {
                    let written = written_by(op);
                    known.retain(|(slot, _)| !written.contains(slot));
                }
            }
        }
        // What has a stand-in is read no more.
        let block = &mut function.blocks[index];
        block.insts.retain(|inst| inst.result.is_none_or(|value| aliases.find(value) == value));
        at_end[index] = known;
    }
    aliases.apply(function);
    changed
}

/// The slots that an operation writes besides what it is for.
fn written_by(op: &Op) -> Vec<u16> {
    match op {
        Op::ItemPush(_) => vec![SLOT_ITEMS as u16],
        Op::Cut { .. } | Op::CutListed { .. } => vec![SLOT_CUTS as u16],
        Op::Lines { form, .. } => {
            let slots = form.keys.iter().filter_map(|key| match key.does {
                LineDoes::Keep { slot, .. } => Some(slot),
                LineDoes::Cut | LineDoes::Stop => None,
            });
            slots.chain([SLOT_CUTS as u16, SLOT_ITEMS as u16]).collect()
        }
        _ => Vec::new(),
    }
}

fn put(known: &mut Known, slot: u16, value: Value) {
    known.retain(|(known, _)| *known != slot);
    known.push((slot, value));
}

/// Returns the values of slots that are known at the end of all predecessors.
fn meet(predecessors: &[BlockId], at_end: &[Known]) -> Known {
    let Some((first, rest)) = predecessors.split_first() else { return Known::new() };
    let mut known = at_end[first.0 as usize].clone();
    known.retain(|fact| rest.iter().all(|block| at_end[block.0 as usize].contains(fact)));
    known
}

/// Whether a stored value can stand for a read one: numbers for numbers, everything else for its like.
fn fits(function: &Function, stored: Value, read: Value) -> bool {
    let class = |value: Value| match function.values[value.0 as usize] {
        Type::Uint => Type::Int,
        ty => ty,
    };
    class(stored) == class(read)
}

/// Slots that `block` reads first and that are known on some `jump` to it, but not on all ways.
fn mixed_reads(function: &Function, cfg: &Cfg, id: BlockId, known: &Known, at_end: &[Known]) -> Known {
    let mut reads = Known::new();
    // What a loop puts into the slot before it comes round is not looked at.
    if function.blocks[id.0 as usize].trips_max.is_some() {
        return reads;
    }
    let mut written: Vec<u16> = Vec::new();
    for inst in &function.blocks[id.0 as usize].insts {
        match (&inst.op, inst.result) {
            (Op::FrameSet { slot, .. }, _) => written.push(*slot),
            (Op::FrameGet { slot }, Some(result)) if !written.contains(slot) => {
                let is_known = |from: &BlockId| {
                    let facts = &at_end[from.0 as usize];
                    let is_jump = matches!(function.blocks[from.0 as usize].end, Terminator::Jump(..));
                    is_jump
                        && facts.iter().any(|(known, value)| known == slot && fits(function, *value, result))
                };
                let is_settled = known.iter().any(|(known, _)| known == slot);
                if !is_settled && cfg.predecessors[id.0 as usize].iter().any(is_known) {
                    reads.push((*slot, result));
                    written.push(*slot);
                }
            }
            (op, _) => written.extend(written_by(op)),
        }
    }
    reads
}

/// Turns `reads` into parameters of the block. A `jump` that knows hands over what it knows; every other way goes
/// through a block of its own that reads the slots.
fn make_parameters(function: &mut Function, cfg: &Cfg, id: BlockId, reads: &Known, at_end: &[Known]) {
    let block = &mut function.blocks[id.0 as usize];
    let mut origins = Vec::new();
    block.insts.retain(|inst| {
        let is_read = inst.result.is_some_and(|result| reads.iter().any(|(_, value)| *value == result));
        if is_read {
            origins.push(inst.origin);
        }
        !is_read
    });
    block.params.extend(reads.iter().map(|(_, value)| *value));
    let mut predecessors = cfg.predecessors[id.0 as usize].clone();
    predecessors.dedup();
    for from in predecessors {
        let known: Vec<Option<Value>> = reads
            .iter()
            .map(|(slot, result)| {
                let facts = at_end[from.0 as usize].iter();
                facts
                    .filter(|(known, value)| known == slot && fits(function, *value, *result))
                    .map(|(_, v)| *v)
                    .next()
            })
            .collect();
        let is_jump = matches!(function.blocks[from.0 as usize].end, Terminator::Jump(..));
        if is_jump && known.iter().all(Option::is_some) {
            if let Terminator::Jump(_, args) = &mut function.blocks[from.0 as usize].end {
                args.extend(known.into_iter().flatten());
            }
            continue;
        }
        detour(function, from, id, reads, &origins);
    }
}

/// Leads every edge from `from` to `to` through a new block that reads the slots.
fn detour(
    function: &mut Function,
    from: BlockId,
    to: BlockId,
    reads: &Known,
    origins: &[crate::data::SourceOrigin],
) {
    let targets = successors(&function.blocks[from.0 as usize].end);
    let handed: Vec<Vec<Value>> =
        targets.iter().filter(|(target, _)| *target == to).map(|(_, args)| args.to_vec()).collect();
    let mut stubs = Vec::new();
    for mut args in handed {
        let mut insts = Vec::new();
        for ((slot, read), origin) in reads.iter().zip(origins) {
            let value = Value(function.values.len() as u32);
            function.values.push(function.values[read.0 as usize]);
            insts.push(Inst { result: Some(value), op: Op::FrameGet { slot: *slot }, origin: *origin });
            args.push(value);
        }
        let end = Terminator::Jump(to, args);
        function.blocks.push(Block { params: Vec::new(), trips_max: None, advance: None, insts, end });
        stubs.push(BlockId(function.blocks.len() as u32 - 1));
    }
    let mut stubs = stubs.into_iter();
    let mut redirect = |target: &mut BlockId, args: Option<&mut Vec<Value>>| {
        if *target == to {
            *target = stubs.next().expect("each edge has its stub");
            if let Some(args) = args {
                args.clear();
            }
        }
    };
    match &mut function.blocks[from.0 as usize].end {
        Terminator::Jump(target, args) => redirect(target, Some(args)),
        Terminator::Branch { then, otherwise, .. } => {
            redirect(&mut then.0, Some(&mut then.1));
            redirect(&mut otherwise.0, Some(&mut otherwise.1));
        }
        Terminator::Switch { cases, default, .. } => {
            for (_, target) in cases {
                redirect(target, None);
            }
            redirect(default, None);
        }
        Terminator::Need { then, .. } => redirect(then, None),
        Terminator::Suspend { .. } => {}
        Terminator::Done | Terminator::Fault { .. } | Terminator::Return(_) => {}
    }
}
