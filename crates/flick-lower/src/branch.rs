//! Blocks, `if`, `switch` over words and text, `switch` over variants and options, and `else` of an option.
//! Promises: each is an expression; its value is a block parameter where the branches meet (`carrier.rs`).

use std::collections::{BTreeMap, BTreeSet};

use flick_check::hir::{BinaryOp, Block, Builtin, Expr, ExprKind, LocalId, Stmt};
use flick_ir::data::{BlockId, Op, Terminator, Type, Value};

use crate::body::Body;
use crate::limits::CHAIN_PATTERNS_MAX;
use crate::value::{Num, Val, Word};

/// Case numbers, the local that gets what the case carries, and the arm's text.
type MatchArm = (Vec<u32>, Option<LocalId>, Block);

impl Body<'_> {
    /// Lowers statements and the value behind them.
    pub fn block(&mut self, block: &Block) -> Val {
        for stmt in &block.stmts {
            match stmt {
                Stmt::Let(local, expr) => {
                    let val = self.expr(expr);
                    self.set_local(*local, val);
                }
                Stmt::LetTuple(locals, expr) => {
                    let parts = self.expr(expr).group();
                    for (local, part) in locals.iter().zip(parts) {
                        if let Some(local) = local {
                            self.set_local(*local, part);
                        }
                    }
                }
                Stmt::Assign(state, expr) => {
                    let val = self.expr(expr);
                    self.at(&expr.span);
                    self.store_state(*state, &val);
                }
                Stmt::Expr(expr) => _ = self.expr(expr),
            }
        }
        block.value.as_ref().map_or(Val::Nothing, |value| self.expr(value))
    }

    /// From here on the local is this value.
    pub fn set_local(&mut self, local: LocalId, val: Val) {
        let index = local.0 as usize;
        if self.locals.len() <= index {
            self.locals.resize(index + 1, None);
        }
        self.locals[index] = Some(val);
    }

    /// Lowers `if`.
    pub fn lower_if(&mut self, cond: &Expr, then: &Block, otherwise: Option<&Block>) -> Val {
        let (then_block, else_block) = (self.f.new_block(&[]), self.f.new_block(&[]));
        self.branch_on(cond, then_block, else_block);
        let then = self.arm(then_block, then);
        let otherwise = match otherwise {
            Some(block) => self.arm(else_block, block),
            None => (else_block, Val::Nothing),
        };
        self.join(vec![then, otherwise])
    }

    /// Lowers `switch`. Where no `else` is written the arms are exhaustive, so the last one is it.
    pub fn lower_switch(
        &mut self,
        value: &Expr,
        arms: &[(Vec<Expr>, Block)],
        otherwise: Option<&Block>,
    ) -> Val {
        let value = self.expr(value);
        let (default, arms) = match (otherwise, arms.split_last()) {
            (Some(block), _) => (block, arms),
            (None, Some(((_, last), others))) => (last, others),
            (None, None) => panic!("the checker refuses a `switch` without arms"),
        };
        let blocks: Vec<BlockId> = arms.iter().map(|_| self.f.new_block(&[])).collect();
        let default_block = self.f.new_block(&[]);
        let targets = arms
            .iter()
            .zip(&blocks)
            .flat_map(|((patterns, _), &block)| patterns.iter().map(move |pattern| (pattern, block)));
        self.switch_on(&value, targets, default_block);
        let mut ends: Vec<(BlockId, Val)> =
            arms.iter().zip(&blocks).map(|((_, body), &block)| self.arm(block, body)).collect();
        ends.push(self.arm(default_block, default));
        self.join(ends)
    }

    /// Ends the block: goes on where the first pattern leads that the value is.
    pub fn switch_on<'e>(
        &mut self,
        value: &Val,
        targets: impl Iterator<Item = (&'e Expr, BlockId)>,
        default: BlockId,
    ) {
        match value {
            Val::Num(Num { word: Word::One(value), .. }) => self.switch_words(*value, targets, default),
            Val::Bool(value) => {
                let value = self.f.bool_to_int(*value);
                self.switch_words(value, targets, default);
            }
            Val::Bytes(value) => self.switch_bytes(*value, targets.collect(), default),
            other => self.switch_chain(other, targets, default),
        }
    }

    /// Compares with the patterns that are as long as the value, where there are many.
    fn switch_bytes(&mut self, value: Value, targets: Vec<(&Expr, BlockId)>, default: BlockId) {
        let mut by_len: BTreeMap<usize, Vec<(&Expr, BlockId)>> = BTreeMap::new();
        for (pattern, block) in &targets {
            let ExprKind::Str(text) = &pattern.kind else { panic!("a case of text is a constant") };
            by_len.entry(text.len()).or_default().push((*pattern, *block));
        }
        let letters = by_len.get(&1).map_or(0, Vec::len);
        if targets.len() <= CHAIN_PATTERNS_MAX || by_len.len() == 1 && letters == 0 {
            return self.switch_chain(&Val::Bytes(value), targets.into_iter(), default);
        }
        let len = self.f.define(Type::Int, Op::Len(value));
        let cases: Vec<(i64, BlockId)> =
            by_len.keys().map(|len| (*len as i64, self.f.new_block(&[]))).collect();
        self.f.end(Terminator::Switch { value: len, cases: cases.clone(), default });
        for (targets, (len, block)) in by_len.into_values().zip(cases) {
            self.f.go_on_in(block);
            if len == 1 && letters > CHAIN_PATTERNS_MAX {
                self.switch_letters(value, &targets, default);
            } else {
                self.switch_chain(&Val::Bytes(value), targets.into_iter(), default);
            }
        }
    }

    /// Decides on the one byte of a value.
    fn switch_letters(&mut self, value: Value, targets: &[(&Expr, BlockId)], default: BlockId) {
        let index = self.f.int(0);
        let letter = self.f.define(Type::Int, Op::ByteAt { bytes: value, index });
        let mut seen = BTreeSet::new();
        let cases = targets.iter().filter_map(|(pattern, block)| match &pattern.kind {
            ExprKind::Str(text) => Some((i64::from(*text.first()?), *block)),
            _ => None,
        });
        let cases = cases.filter(|(letter, _)| seen.insert(*letter)).collect();
        self.f.end(Terminator::Switch { value: letter, cases, default });
    }

    fn switch_words<'e>(
        &mut self,
        value: Value,
        targets: impl Iterator<Item = (&'e Expr, BlockId)>,
        default: BlockId,
    ) {
        let mut seen = BTreeSet::new();
        let cases: Vec<(i64, BlockId)> = targets
            .map(|(pattern, block)| (pattern_bits(pattern), block))
            .filter(|(bits, _)| seen.insert(*bits))
            .collect();
        self.f.end(Terminator::Switch { value, cases, default });
    }

    /// Compares with one pattern after the other.
    fn switch_chain<'e>(
        &mut self,
        value: &Val,
        targets: impl Iterator<Item = (&'e Expr, BlockId)>,
        default: BlockId,
    ) {
        for (pattern, block) in targets {
            let pattern = self.expr(pattern);
            let same = match value {
                Val::Bytes(value) => self.f.define(Type::Bool, Op::BytesEq(*value, pattern.bytes())),
                other => self.compare(BinaryOp::Eq, other.num(), pattern.num()),
            };
            let next = self.f.new_block(&[]);
            self.f.branch_to(same, block, next);
            self.f.go_on_in(next);
        }
        self.f.jump(default, Vec::new());
    }

    /// Lowers `switch` over a variant or option. Where no `else` is written the arms are exhaustive, so the last one
    /// is it.
    pub fn lower_match(&mut self, value: &Expr, arms: &[MatchArm], otherwise: Option<&Block>) -> Val {
        let value = self.expr(value);
        let blocks: Vec<BlockId> = arms.iter().map(|_| self.f.new_block(&[])).collect();
        let default = match (otherwise, blocks.last()) {
            (Some(_), _) => self.f.new_block(&[]),
            (None, Some(last)) => *last,
            (None, None) => panic!("the checker refuses a `switch` without arms"),
        };
        let target = |number: usize| {
            let position = arms.iter().position(|(numbers, ..)| numbers.contains(&(number as u32)));
            position.map_or(default, |position| blocks[position])
        };
        let cases = match value {
            Val::Option { present, value } => {
                self.f.branch_to(present, target(1), target(0));
                vec![None, Some(*value)]
            }
            Val::Variant { tag, cases } => {
                let targets = (0..cases.len()).map(|number| (number as i64, target(number)));
                let cases_elsewhere = targets.filter(|(_, block)| *block != default).collect();
                self.f.end(Terminator::Switch { value: tag, cases: cases_elsewhere, default });
                cases
            }
            other => panic!("the checker found a variant or option here, lowering made {other:?}"),
        };
        let mut ends = Vec::new();
        for ((numbers, local, body), &block) in arms.iter().zip(&blocks) {
            if let (Some(local), Some(number)) = (local, numbers.first()) {
                let carried =
                    cases[*number as usize].clone().expect("a binding is of a case that carries something");
                self.set_local(*local, carried);
            }
            ends.push(self.arm(block, body));
        }
        if let Some(body) = otherwise {
            ends.push(self.arm(default, body));
        }
        self.join(ends)
    }

    /// Lowers `option else value`.
    pub fn or_else(&mut self, option: &Expr, otherwise: &Block) -> Val {
        let (present, value) = self.expr(option).option();
        if is_zero(otherwise) && is_zero_where_missing(option) {
            return value;
        }
        let (there, missing) = (self.f.new_block(&[]), self.f.new_block(&[]));
        self.f.branch_to(present, there, missing);
        let otherwise = self.arm(missing, otherwise);
        self.join(vec![(there, value), otherwise])
    }

    /// Something computed from bytes. Of `option else "constant"` it is computed on either way, so that what comes of
    /// the constant is known here.
    pub fn of_each_way(
        &mut self,
        bytes: &Expr,
        of_known: &dyn Fn(&mut Self, &[u8]) -> Val,
        of: &dyn Fn(&mut Self, Value) -> Val,
    ) -> Val {
        let ExprKind::OrElse(option, otherwise) = &bytes.kind else {
            let bytes = self.expr(bytes).bytes();
            return of(self, bytes);
        };
        let Some(known) = text_of(otherwise) else {
            let bytes = self.expr(bytes).bytes();
            return of(self, bytes);
        };
        let (present, value) = self.expr(option).option();
        let (there, missing) = (self.f.new_block(&[]), self.f.new_block(&[]));
        self.f.branch_to(present, there, missing);
        self.f.go_on_in(there);
        let of_value = of(self, value.bytes());
        let there = self.f.current();
        self.f.go_on_in(missing);
        let of_known = of_known(self, known);
        let missing = self.f.current();
        self.join(vec![(there, of_value), (missing, of_known)])
    }

    /// Lowers a block's text at the start of `block`. Returns where it ends.
    pub fn arm(&mut self, block: BlockId, body: &Block) -> (BlockId, Val) {
        self.f.go_on_in(block);
        let val = self.block(body);
        (self.f.current(), val)
    }
}

/// The text that a block is, if it is nothing else.
fn text_of(block: &Block) -> Option<&[u8]> {
    match block.value.as_ref().map(|value| &value.kind) {
        Some(ExprKind::Str(text)) if block.stmts.is_empty() => Some(text),
        _ => None,
    }
}

/// Whether a block is nothing but the number 0.
fn is_zero(block: &Block) -> bool {
    let is_zero = |value: &Expr| matches!(value.kind, ExprKind::Int(0));
    block.stmts.is_empty() && block.value.as_deref().is_some_and(is_zero)
}

/// Whether an option's word is 0 by itself where there is no value: then there is nothing to choose.
fn is_zero_where_missing(option: &Expr) -> bool {
    matches!(option.kind, ExprKind::Builtin(Builtin::ParseInt | Builtin::ParseHex, _))
}

/// A constant pattern as the word that it is.
pub fn pattern_bits(pattern: &Expr) -> i64 {
    match pattern.kind {
        ExprKind::Int(value) => value as i64,
        ExprKind::Bool(value) => i64::from(value),
        ExprKind::Member(_, value) => value,
        _ => panic!("the checker allows constants as patterns only"),
    }
}
