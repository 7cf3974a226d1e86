//! Computes what is constant, takes the branches that are decided, and turns constant bases into offsets.

use super::{Aliases, definitions};
use crate::cfg::Cfg;
use crate::data::{Binary, BlockId, Function, Op, Terminator, Type, Value};
use crate::limits::{LOAD_BYTES_MAX, LOAD_OFFSET_MAX};
use crate::semantics;

/// Runs the pass. Returns whether it changed anything.
pub(super) fn run(function: &mut Function) -> bool {
    let mut folder = Folder { constants: vec![None; function.values.len()], aliases: Aliases::new(function) };
    let mut changed = fold_insts(function, &mut folder);
    folder.aliases.apply(function);
    for block in &mut function.blocks {
        changed |= folder.decide(&mut block.end);
    }
    changed | invert_branches(function) | fold_bases(function)
}

/// Turns a branch on `not v` into the inverse branch on `v`.
fn invert_branches(function: &mut Function) -> bool {
    let definitions = definitions(function);
    let mut changed = false;
    for block in &mut function.blocks {
        if let Terminator::Branch { cond, then, otherwise } = &mut block.end
            && let Some(Op::Not(negated)) = definitions[cond.0 as usize]
        {
            *cond = negated;
            std::mem::swap(then, otherwise);
            changed = true;
        }
    }
    changed
}

/// The known facts of values, and their consequences.
pub(super) struct Folder {
    /// Known words, by value.
    constants: Vec<Option<u64>>,
    aliases: Aliases,
}

fn fold_insts(function: &mut Function, folder: &mut Folder) -> bool {
    let mut changed = false;
    let Function { blocks, values, .. } = function;
    // Definitions come before uses in this order.
    let order: Vec<BlockId> = Cfg::new_of(blocks).order;
    for id in order {
        for inst in &mut blocks[id.0 as usize].insts {
            let Some(result) = inst.result else { continue };
            match folder.fold(&inst.op) {
                Folded::Word(word) => {
                    folder.constants[result.0 as usize] = Some(word);
                    // A channel's constant has rules of its own, and there is nothing to gain.
                    if values[result.0 as usize] != Type::Chan && inst.op != Op::Const(word as i64) {
                        inst.op = Op::Const(word as i64);
                        changed = true;
                    }
                }
                Folded::Same(value) => {
                    folder.aliases.set(result, value);
                    changed = true;
                }
                Folded::No => {}
            }
        }
        // A value that has an alias is unused.
        let aliases = &folder.aliases;
        blocks[id.0 as usize]
            .insts
            .retain(|inst| inst.result.is_none_or(|value| aliases.find(value) == value));
    }
    changed
}

/// The result of folding an operation.
pub(super) enum Folded {
    /// Always this word.
    Word(u64),
    /// Always what this value is.
    Same(Value),
    /// Nothing simpler.
    No,
}

impl Folder {
    /// Knows the constants of a function.
    pub(super) fn of(function: &Function) -> Self {
        let word = |op: Option<Op>| if let Some(Op::Const(word)) = op { Some(word as u64) } else { None };
        let constants = definitions(function).into_iter().map(word).collect();
        Self { constants, aliases: Aliases::new(function) }
    }

    /// Learns of a new value at the end of the function's list.
    pub(super) fn grow(&mut self, word: Option<u64>) {
        self.constants.push(word);
        self.aliases.0.push(Value(self.aliases.0.len() as u32));
    }

    /// The word that a value always is.
    pub(super) fn word(&self, value: Value) -> Option<u64> {
        self.constants[self.aliases.find(value).0 as usize]
    }

    /// Folds an operation.
    pub(super) fn fold(&self, op: &Op) -> Folded {
        match op {
            Op::Const(word) => Folded::Word(*word as u64),
            Op::Binary(op, a, b) => match (self.word(*a), self.word(*b)) {
                (Some(a), Some(b)) => Folded::Word(semantics::binary(*op, a, b)),
                (Some(0), _) | (_, Some(0)) if *op == Binary::And => Folded::Word(0),
                (Some(1), _) | (_, Some(1)) if *op == Binary::Or => Folded::Word(1),
                (None, Some(word)) => neutral(*op, word).map_or(Folded::No, |()| Folded::Same(*a)),
                (Some(word), None) if *op != Binary::Sub => {
                    neutral(*op, word).map_or(Folded::No, |()| Folded::Same(*b))
                }
                _ => Folded::No,
            },
            Op::Not(a) => self.word(*a).map_or(Folded::No, |a| Folded::Word(semantics::not(a))),
            Op::Select { cond, a, b } => match self.word(*cond) {
                Some(cond) => Folded::Same(if cond != 0 { *a } else { *b }),
                None if self.aliases.find(*a) == self.aliases.find(*b) => Folded::Same(*a),
                None => Folded::No,
            },
            Op::HashInt(a) => self.word(*a).map_or(Folded::No, |a| Folded::Word(semantics::hash_int(a))),
            _ => Folded::No,
        }
    }

    /// Replaces a terminator whose way is known. Returns whether it was.
    pub(super) fn decide(&self, end: &mut Terminator) -> bool {
        let decided = match end {
            Terminator::Branch { cond, then, otherwise } => {
                let same = then == otherwise;
                let way = self.word(*cond).map(|cond| if cond != 0 { &*then } else { &*otherwise });
                way.or(same.then_some(&*then)).cloned()
            }
            Terminator::Switch { value, cases, default } => self.word(*value).map(|word| {
                let case = cases.iter().find(|(case, _)| *case as u64 == word);
                (case.map_or(*default, |(_, block)| *block), Vec::new())
            }),
            _ => None,
        };
        let Some((block, args)) = decided else { return false };
        *end = Terminator::Jump(block, args);
        true
    }
}

/// Whether `x op word` is `x` (and `word op x`, but for subtraction).
fn neutral(op: Binary, word: u64) -> Option<()> {
    let is_neutral = match op {
        Binary::Add | Binary::Sub | Binary::Or | Binary::BitOr | Binary::MaxU => word == 0,
        Binary::Mul => word == 1,
        Binary::And => word == 1,
        Binary::MinU | Binary::BitAnd => word == u64::MAX,
        _ => false,
    };
    is_neutral.then_some(())
}

/// `need v2 + 4` with `v2` 24 becomes `need 28`, and loads behind it likewise; only where all fit, because a load
/// must keep the base of the `need` that covers it.
fn fold_bases(function: &mut Function) -> bool {
    let definitions = definitions(function);
    let constant = |value: Value| match definitions[value.0 as usize] {
        Some(Op::Const(word)) => u32::try_from(word).ok(),
        _ => None,
    };
    // One that is too far for a load, or for the `Need` that covers it, stays what it is for both.
    let is_near = |base: Value, bytes: u32| {
        let end = constant(base).and_then(|word| word.checked_add(bytes));
        end.is_some_and(|end| end <= LOAD_OFFSET_MAX)
    };
    let mut unfit: Vec<Value> = Vec::new();
    for block in &function.blocks {
        let loads = block.insts.iter().filter_map(|inst| match &inst.op {
            Op::Load { base: Some(base), offset, .. } => Some((*base, offset.saturating_add(LOAD_BYTES_MAX))),
            _ => None,
        });
        let need = match &block.end {
            Terminator::Need { base: Some(base), bytes, .. } => Some((*base, *bytes)),
            _ => None,
        };
        unfit.extend(loads.chain(need).filter(|(base, bytes)| !is_near(*base, *bytes)).map(|(base, _)| base));
    }
    let fold = |base: &mut Option<Value>, offset: &mut u32| {
        let word = base.filter(|base| !unfit.contains(base)).and_then(constant);
        let Some(sum) = word.and_then(|word| word.checked_add(*offset)) else { return false };
        (*base, *offset) = (None, sum);
        true
    };
    let mut changed = false;
    for block in &mut function.blocks {
        for inst in &mut block.insts {
            if let Op::Load { base, offset, .. } = &mut inst.op {
                changed |= fold(base, offset);
            }
        }
        if let Terminator::Need { base, bytes, .. } = &mut block.end {
            changed |= fold(base, bytes);
        }
    }
    changed
}
