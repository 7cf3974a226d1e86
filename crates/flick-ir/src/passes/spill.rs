//! Makes rules that wait resumable: values needed after a suspension are kept in words of the activation, and the
//! entry jumps to the block after the suspension.
//!
//! Lowering writes plain code in which a suspension is a step like any other. But a resumed rule starts at the entry
//! with empty registers. So each value that is needed after a suspension is kept right after its definition, and asked
//! for again in each block that may run after a resumption; constants and slots of the frame are made again instead.
//! Promises: values that are never needed at the same time may share a word, if they are of one type.
//! Source: spilling as register allocators do it, with suspensions as the only calls.

use std::collections::BTreeMap;

use crate::bounds;
use crate::cfg::Cfg;
use crate::data::{
    Block, BlockId, FuncKind, Function, Inst, Module, Op, SourceOrigin, Terminator, Type, Value,
};
use crate::operands::{end_operands, map_end_operands, map_operands, operands};

/// Runs the pass on every rule that waits, and fills in the bounds of the program. To be run once, right after
/// lowering and before the verifier. Panics on recursion.
pub fn run(module: &mut Module) {
    for function in module.functions.iter_mut().filter(|function| function.kind == FuncKind::Rule) {
        run_function(function);
    }
    module.program.bounds = bounds::program_bounds(module);
}

fn run_function(function: &mut Function) {
    let resume_blocks = separate_resume_blocks(function);
    if resume_blocks.is_empty() {
        return;
    }
    let kept = kept_values(function, &resume_blocks);
    let slots = assign_slots(function, &kept);
    rewrite(function, &kept, &slots);
    add_entry(function, &resume_blocks);
}

/// Numbers the reachable suspensions from 1 and gives each a block of its own to resume at. Returns those blocks.
fn separate_resume_blocks(function: &mut Function) -> Vec<BlockId> {
    let cfg = Cfg::new(function);
    let mut resume_blocks = Vec::new();
    for id in &cfg.order {
        let Terminator::Suspend { then, .. } = function.blocks[id.0 as usize].end else { continue };
        let mut resume_block = then;
        if cfg.predecessors[then.0 as usize].len() > 1 {
            resume_block = push_block(function, Vec::new(), Terminator::Jump(then, Vec::new()));
        }
        resume_blocks.push(resume_block);
        let state = resume_blocks.len() as u32;
        function.blocks[id.0 as usize].end = Terminator::Suspend { then: resume_block, state };
    }
    resume_blocks
}

fn push_block(function: &mut Function, insts: Vec<Inst>, end: Terminator) -> BlockId {
    function.blocks.push(Block { params: Vec::new(), trips_max: None, advance: None, insts, end });
    BlockId(function.blocks.len() as u32 - 1)
}

/// A value that is needed after a suspension.
struct Kept {
    value: Value,
    /// Operation that computes the value again, if that is as good as keeping it.
    again: Option<Op>,
    origin: SourceOrigin,
    /// Blocks in which its word must not be used for another, as a set of bits.
    busy: Vec<u64>,
    /// Blocks that may run after a resumption and use it.
    users: Vec<usize>,
}

/// Definition of a value: its block, its operation if it can be repeated, and its location in the source.
#[derive(Clone)]
struct Definition {
    block: usize,
    op: Option<Op>,
    origin: SourceOrigin,
}

fn kept_values(function: &Function, resume_blocks: &[BlockId]) -> Vec<Kept> {
    let cfg = Cfg::new(function);
    let mut definitions: Vec<Option<Definition>> = vec![None; function.values.len()];
    let mut users: Vec<Vec<usize>> = vec![Vec::new(); function.values.len()];
    for id in &cfg.order {
        let (index, block) = (id.0 as usize, &function.blocks[id.0 as usize]);
        // The parameters of the entry are there again when it is entered again.
        for param in block.params.iter().filter(|_| index != 0) {
            definitions[param.0 as usize] =
                Some(Definition { block: index, op: None, origin: SourceOrigin::default() });
        }
        let mut visit = |value: Value| {
            let users = &mut users[value.0 as usize];
            if users.last() != Some(&index) {
                users.push(index);
            }
        };
        for inst in &block.insts {
            operands(&inst.op, &mut visit);
            if let Some(result) = inst.result {
                let op = is_repeatable(&inst.op).then(|| inst.op.clone());
                definitions[result.0 as usize] = Some(Definition { block: index, op, origin: inst.origin });
            }
        }
        end_operands(&block.end, &mut visit);
    }
    let values = (0..function.values.len() as u32).map(Value);
    let kept = values.filter_map(|value| {
        let definition = definitions[value.0 as usize].as_ref()?;
        let is_frame = function.values[value.0 as usize] == Type::Frame;
        if is_frame { None } else { kept_value(function, &cfg, resume_blocks, value, definition, &users) }
    });
    kept.collect()
}

/// Whether an operation gives the same after a resumption, and costs no more than a word kept.
fn is_repeatable(op: &Op) -> bool {
    matches!(op, Op::Const(_) | Op::ConstBytes { .. } | Op::FrameGet { .. })
}

fn kept_value(
    function: &Function,
    cfg: &Cfg,
    resume_blocks: &[BlockId],
    value: Value,
    definition: &Definition,
    users: &[Vec<usize>],
) -> Option<Kept> {
    let users = &users[value.0 as usize];
    let mut open: Vec<usize> = users.iter().copied().filter(|user| *user != definition.block).collect();
    if open.is_empty() {
        return None;
    }
    let mut is_needed = Blocks::new(function);
    while let Some(block) = open.pop() {
        if is_needed.insert(block) {
            let before = cfg.predecessors[block].iter().map(|from| from.0 as usize);
            open.extend(before.filter(|from| *from != definition.block));
        }
    }
    // Blocks that a resumption may come to while the value is needed.
    let mut open: Vec<usize> =
        resume_blocks.iter().map(|way| way.0 as usize).filter(|way| is_needed.contains(*way)).collect();
    if open.is_empty() {
        return None;
    }
    let mut is_resumed = Blocks::new(function);
    while let Some(block) = open.pop() {
        if is_resumed.insert(block) {
            let after = crate::cfg::successors(&function.blocks[block].end);
            let after = after.into_iter().map(|(target, _)| target.0 as usize);
            open.extend(after.filter(|target| is_needed.contains(*target)));
        }
    }
    let users = users.iter().copied().filter(|user| is_resumed.contains(*user)).collect();
    is_needed.insert(definition.block);
    let (again, origin) = (definition.op.clone(), definition.origin);
    Some(Kept { value, again, origin, busy: is_needed.0, users })
}

/// A set of blocks.
struct Blocks(Vec<u64>);

impl Blocks {
    fn new(function: &Function) -> Self {
        Self(vec![0; function.blocks.len().div_ceil(64)])
    }

    fn contains(&self, block: usize) -> bool {
        self.0[block / 64] >> (block % 64) & 1 != 0
    }

    /// Adds a block; whether it is new.
    fn insert(&mut self, block: usize) -> bool {
        let is_new = !self.contains(block);
        self.0[block / 64] |= 1 << (block % 64);
        is_new
    }
}

/// The word for each kept value that is not made again: the first of its type that is free wherever it is needed.
fn assign_slots(function: &Function, kept: &[Kept]) -> BTreeMap<Value, u16> {
    let mut words: Vec<(Type, Vec<u64>)> = Vec::new();
    let mut slots = BTreeMap::new();
    for kept in kept.iter().filter(|kept| kept.again.is_none()) {
        let ty = function.values[kept.value.0 as usize];
        let is_free = |(known, busy): &(Type, Vec<u64>)| {
            *known == ty && busy.iter().zip(&kept.busy).all(|(a, b)| a & b == 0)
        };
        let slot = words.iter().position(is_free).unwrap_or(words.len());
        match words.get_mut(slot) {
            Some((_, busy)) => busy.iter_mut().zip(&kept.busy).for_each(|(a, b)| *a |= b),
            None => words.push((ty, kept.busy.clone())),
        }
        // What does not fit into a number of 16 bits is far beyond what the verifier lets pass.
        slots.insert(kept.value, u16::try_from(slot).unwrap_or(u16::MAX));
    }
    slots
}

/// Keeps values after their definitions and asks for them in their users.
fn rewrite(function: &mut Function, kept: &[Kept], slots: &BTreeMap<Value, u16>) {
    let mut names: Vec<BTreeMap<Value, Value>> = vec![BTreeMap::new(); function.blocks.len()];
    let mut fetched: Vec<Vec<Inst>> = vec![Vec::new(); function.blocks.len()];
    for kept in kept {
        for user in &kept.users {
            let name = Value(function.values.len() as u32);
            function.values.push(function.values[kept.value.0 as usize]);
            names[*user].insert(kept.value, name);
            let get = || Op::SpillGet { slot: slots[&kept.value] };
            let op = kept.again.clone().unwrap_or_else(get);
            fetched[*user].push(Inst { result: Some(name), op, origin: kept.origin });
        }
    }
    for (index, block) in function.blocks.iter_mut().enumerate() {
        let rename = |value: &mut Value| *value = names[index].get(value).copied().unwrap_or(*value);
        let keep = |value: Value, origin: SourceOrigin| {
            let slot = *slots.get(&value)?;
            Some(Inst { result: None, op: Op::SpillSet { slot, value }, origin })
        };
        let mut insts = std::mem::take(&mut fetched[index]);
        // The parameters of the entry are not kept, and so not among the slots.
        insts.extend(block.params.iter().filter_map(|param| keep(*param, SourceOrigin::default())));
        for mut inst in std::mem::take(&mut block.insts) {
            map_operands(&mut inst.op, &mut |value| rename(value));
            let kept = inst.result.and_then(|result| keep(result, inst.origin));
            insts.push(inst);
            insts.extend(kept);
        }
        block.insts = insts;
        map_end_operands(&mut block.end, &mut |value| rename(value));
    }
}

/// A new entry in front of the old one, which jumps to the block that a suspension resumes at.
fn add_entry(function: &mut Function, resume_blocks: &[BlockId]) {
    let old = &mut function.blocks[0];
    let (insts, end) =
        (std::mem::take(&mut old.insts), std::mem::replace(&mut old.end, Terminator::Return(Vec::new())));
    let start = push_block(function, insts, end);
    let state = Value(function.values.len() as u32);
    function.values.push(Type::Int);
    let cases = resume_blocks.iter().enumerate().map(|(index, way)| (index as i64 + 1, *way)).collect();
    let entry = &mut function.blocks[0];
    entry.insts = vec![Inst { result: Some(state), op: Op::ResumeState, origin: SourceOrigin::default() }];
    entry.end = Terminator::Switch { value: state, cases, default: start };
}

/// Forgets the states of suspensions that are never reached, after other passes have decided branches. Returns whether
/// it changed anything.
pub(super) fn drop_states(function: &mut Function) -> bool {
    let entry = &function.blocks[0];
    let is_resumed = entry.insts.iter().any(|inst| inst.op == Op::ResumeState);
    let (true, Terminator::Switch { default, .. }) = (is_resumed, &entry.end) else { return false };
    let mut is_reached = Blocks::new(function);
    let mut open = vec![default.0 as usize];
    while let Some(block) = open.pop() {
        if is_reached.insert(block) {
            let after = crate::cfg::successors(&function.blocks[block].end);
            open.extend(after.into_iter().map(|(target, _)| target.0 as usize));
        }
    }
    let Terminator::Switch { cases, .. } = &mut function.blocks[0].end else { return false };
    let before = cases.len();
    cases.retain(|(_, way)| is_reached.contains(way.0 as usize));
    cases.len() != before
}

#[cfg(test)]
mod tests {
    use super::run;
    use crate::random;
    use crate::{Interpreter, text, verify};

    fn check(body: &str, expected: &str) {
        let text = |body: &str| {
            format!(
                "program \"p\" {{ channel \"c\" single protocol 0 rule 0 run f0 asks }} const \"abc\" fn f0 rule \"r\" {{ {body} }}"
            )
        };
        let mut module = text::parse(&text(body)).expect("the test's text is of the form");
        run(&mut module);
        let expected = text::parse(&text(expected)).expect("the test's text is of the form");
        assert_eq!(
            text::print_function(0, &module.functions[0]),
            text::print_function(0, &expected.functions[0])
        );
        assert_eq!(verify(&module), []);
    }

    #[test]
    fn what_is_needed_later_is_kept_and_constants_are_made_again() {
        check(
            "b0(v0: frame, v1: uint):
               v2: chan = const 0 v3: int = const 5 v4: int = chan_len v2 v5: int = add v4, v3
               ask_original v2 timeout v3 suspend -> b1 state 7
             b1(): v6: int = add v5, v3 send_original v2 jump b2(v6)
             b2(v7: int): v8: int = add v7, v5 return",
            "b0(v0: frame, v1: uint): v13: int = resume_state switch v13 { 1: b1, else: b3 }
             b1(): v9: chan = const 0 v10: int = const 5 v11: int = spill_get 0
               v6: int = add v11, v10 send_original v9 jump b2(v6)
             b2(v7: int): v12: int = spill_get 0 v8: int = add v7, v12 return
             b3():
               v2: chan = const 0 v3: int = const 5 v4: int = chan_len v2 v5: int = add v4, v3 spill_set 0, v5
               ask_original v2 timeout v3 suspend -> b1 state 1",
        );
    }

    #[test]
    fn blocks_that_only_the_start_reaches_keep_their_values() {
        check(
            "b0(v0: frame, v1: uint):
               v2: chan = const 0 v3: int = chan_len v2 v4: bool = frame_get 9 branch v4, b1, b2
             b1(): v5: int = add v3, v3 jump b3
             b2(): ask_original v2 timeout v3 suspend -> b3 state 1
             b3(): v6: int = add v3, v3 return",
            "b0(v0: frame, v1: uint): v8: int = resume_state switch v8 { 1: b4, else: b5 }
             b1(): v5: int = add v3, v3 jump b3
             b2(): ask_original v2 timeout v3 suspend -> b4 state 1
             b3(): v7: int = spill_get 0 v6: int = add v7, v7 return
             b4(): jump b3
             b5(): v2: chan = const 0 v3: int = chan_len v2 spill_set 0, v3 v4: bool = frame_get 9 branch v4, b1, b2",
        );
    }

    #[test]
    fn suspensions_change_nothing() {
        let mut suspensions = 0;
        for seed in random::seeds() {
            let plain = Interpreter::new(random::plain_module(seed));
            let kept = Interpreter::new(random::module(seed));
            if !verify(kept.module()).is_empty() {
                continue;
            }
            let mut expected = random::record_rule_through(&plain, seed);
            let found = random::record_rule(&kept, kept.module(), seed);
            suspensions += found.outcomes.len() - 1;
            expected.outcomes.clone_from(&found.outcomes);
            assert_eq!(expected, found, "seed {seed}\n{}", text::print(kept.module()));
        }
        assert!(suspensions > 100, "only {suspensions} suspensions were tried");
    }

    #[test]
    fn words_are_reused_after_the_last_use_of_their_value() {
        check(
            "b0(v0: frame, v1: uint):
               v2: chan = const 0 v3: int = chan_len v2 ask_original v2 timeout v3 suspend -> b1 state 1
             b1(): v4: int = add v3, v3 jump b2
             b2(): v5: int = chan_len v2 ask_original v2 timeout v5 suspend -> b3 state 2
             b3(): v6: int = add v5, v5 return",
            "b0(v0: frame, v1: uint): v10: int = resume_state switch v10 { 1: b1, 2: b3, else: b4 }
             b1(): v8: int = spill_get 0 v4: int = add v8, v8 jump b2
             b2(): v7: chan = const 0 v5: int = chan_len v7 spill_set 0, v5 ask_original v7 timeout v5
               suspend -> b3 state 2
             b3(): v9: int = spill_get 0 v6: int = add v9, v9 return
             b4(): v2: chan = const 0 v3: int = chan_len v2 spill_set 0, v3 ask_original v2 timeout v3
               suspend -> b1 state 1",
        );
    }
}
