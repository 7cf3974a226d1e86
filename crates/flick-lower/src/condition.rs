//! Conditions: booleans that decide a branch, and so need no value.
//! Promises: `and` and `or` skip what cannot change the outcome where that costs more than to evaluate it; parts that
//! cost next to nothing are evaluated together, first, and tested once. Where a part has effects, all keep their order.

use flick_check::hir::{BinaryOp, Block, Expr, ExprKind, Ty};
use flick_check::walk;
use flick_ir::data::{Binary, BlockId, Op, Terminator, Type, Value};

use crate::body::Body;
use crate::branch::pattern_bits;
use crate::value::{Num, Val, Word};

/// Expressions of at most this many parts are cheaper to evaluate than to skip.
const EAGER_PARTS_MAX: usize = 4;

impl Body<'_> {
    /// Ends the current block: goes on at `then` where `cond` holds, else at `otherwise`.
    pub fn branch_on(&mut self, cond: &Expr, then: BlockId, otherwise: BlockId) {
        match &cond.kind {
            ExprKind::Not(inner) => self.branch_on(inner, otherwise, then),
            ExprKind::Binary(op @ (BinaryOp::And | BinaryOp::Or), ..) => {
                self.branch_on_parts(*op, cond, then, otherwise);
            }
            ExprKind::Switch { value, arms, otherwise: Some(default) } if is_membership(arms, default) => {
                let value = self.expr(value);
                let Val::Num(Num { word: Word::One(value), .. }) = value else {
                    panic!("a membership was tested to be one of words")
                };
                let target = |block: &Block| if literal(block) == Some(true) { then } else { otherwise };
                let mut cases: Vec<(i64, BlockId)> = Vec::new();
                for (patterns, block) in arms {
                    for bits in patterns.iter().map(pattern_bits) {
                        if cases.iter().all(|(known, _)| *known != bits) {
                            cases.push((bits, target(block)));
                        }
                    }
                }
                self.f.end(Terminator::Switch { value, cases, default: target(default) });
            }
            _ => {
                let value = self.expr(cond).bool();
                self.f.branch_to(value, then, otherwise);
            }
        }
    }

    /// The cheap parts in one test, then the dear ones one after the other: what is said with flags is mostly whether
    /// the dear ones matter at all.
    fn branch_on_parts(&mut self, op: BinaryOp, cond: &Expr, then: BlockId, otherwise: BlockId) {
        let mut all = Vec::new();
        parts(op, cond, &mut all);
        // What has effects keeps its place in the text.
        let may_move = !all.iter().any(|part| self.cx.has_effects(part));
        let (cheap, dear): (Vec<&Expr>, Vec<&Expr>) =
            all.into_iter().partition(|part| may_move && is_cheap(part));
        let skip = |next: BlockId| if op == BinaryOp::And { (next, otherwise) } else { (then, next) };
        let Some((last, others)) = dear.split_last() else {
            let value = self.all_of(op, &cheap);
            return self.f.branch_to(value, then, otherwise);
        };
        if !cheap.is_empty() {
            let value = self.all_of(op, &cheap);
            let next = self.f.new_block(&[]);
            let (yes, no) = skip(next);
            self.f.branch_to(value, yes, no);
            self.f.go_on_in(next);
        }
        for part in others {
            let next = self.f.new_block(&[]);
            let (yes, no) = skip(next);
            self.branch_on(part, yes, no);
            self.f.go_on_in(next);
        }
        self.branch_on(last, then, otherwise);
    }

    /// `a op b` for `and` and `or`, as a value.
    pub fn and_or(&mut self, op: BinaryOp, expr: &Expr) -> Value {
        let mut all = Vec::new();
        parts(op, expr, &mut all);
        if all.iter().skip(1).all(|part| is_cheap(part)) {
            return self.all_of(op, &all);
        }
        let (then, otherwise) = (self.f.new_block(&[]), self.f.new_block(&[]));
        self.branch_on(expr, then, otherwise);
        let ends = [(then, true), (otherwise, false)].map(|(block, known)| {
            self.f.go_on_in(block);
            (block, Val::Bool(self.f.bool(known)))
        });
        self.join(ends.into()).bool()
    }

    fn all_of(&mut self, op: BinaryOp, parts: &[&Expr]) -> Value {
        let op = if op == BinaryOp::And { Binary::And } else { Binary::Or };
        let mut all: Option<Value> = None;
        for part in parts {
            let value = self.expr(part).bool();
            all = Some(match all {
                None => value,
                Some(others) => self.f.binary(Type::Bool, op, others, value),
            });
        }
        all.unwrap_or_else(|| panic!("a condition has parts"))
    }

    /// Compares two booleans.
    pub fn compare_bools(&mut self, op: BinaryOp, a: Value, b: Value) -> Value {
        let op = match op {
            BinaryOp::Eq => Binary::Eq,
            BinaryOp::Ne => Binary::Ne,
            _ => panic!("the checker orders no booleans"),
        };
        self.f.binary(Type::Bool, op, a, b)
    }

    /// Compares two values of bytes, by their bytes from the first.
    pub fn compare_bytes(&mut self, op: BinaryOp, a: Value, b: Value) -> Value {
        let (op, negate) = match op {
            BinaryOp::Eq => (Op::BytesEq(a, b), false),
            BinaryOp::Ne => (Op::BytesEq(a, b), true),
            BinaryOp::Lt => (Op::BytesLess(a, b), false),
            BinaryOp::Gt => (Op::BytesLess(b, a), false),
            BinaryOp::Le => (Op::BytesLess(b, a), true),
            BinaryOp::Ge => (Op::BytesLess(a, b), true),
            _ => panic!("the checker computes nothing with bytes"),
        };
        let value = self.f.define(Type::Bool, op);
        if negate { self.f.define(Type::Bool, Op::Not(value)) } else { value }
    }
}

/// The operands of a chain of one operator, in order.
fn parts<'e>(op: BinaryOp, expr: &'e Expr, found: &mut Vec<&'e Expr>) {
    match &expr.kind {
        ExprKind::Binary(other, a, b) if *other == op => {
            parts(op, a, found);
            parts(op, b, found);
        }
        _ => found.push(expr),
    }
}

/// Whether a `switch` over words only says yes or no: `x in { ... }` is one.
fn is_membership(arms: &[(Vec<Expr>, Block)], default: &Block) -> bool {
    let blocks = arms.iter().map(|(_, block)| block);
    let of_words = |pattern: &Expr| matches!(pattern.kind, ExprKind::Int(_) | ExprKind::Member(..));
    blocks.chain([default]).all(|block| literal(block).is_some())
        && arms.iter().flat_map(|(patterns, _)| patterns).all(of_words)
        && !arms.is_empty()
}

/// The boolean that a block is, if it is just that.
fn literal(block: &Block) -> Option<bool> {
    match block.value.as_ref().map(|value| &value.kind) {
        Some(ExprKind::Bool(value)) if block.stmts.is_empty() => Some(*value),
        _ => None,
    }
}

/// Whether an operator compares.
pub fn is_comparison(op: BinaryOp) -> bool {
    matches!(op, BinaryOp::Eq | BinaryOp::Ne | BinaryOp::Lt | BinaryOp::Le | BinaryOp::Gt | BinaryOp::Ge)
}

/// Whether evaluating `expr` costs no more than a branch around it.
fn is_cheap(expr: &Expr) -> bool {
    let (mut parts, mut plain) = (0, true);
    walk::expr(expr, &mut |inner| {
        parts += 1;
        plain &= match &inner.kind {
            ExprKind::Int(_)
            | ExprKind::Bool(_)
            | ExprKind::Member(..)
            | ExprKind::Local(_)
            | ExprKind::Field(..)
            | ExprKind::SelfField(_)
            | ExprKind::Dollar
            | ExprKind::Not(_) => true,
            // In grammars arithmetic may fail, and a branch around it may be what keeps it from failing.
            ExprKind::Binary(op, ..) => is_comparison(*op) || matches!(op, BinaryOp::And | BinaryOp::Or),
            _ => false,
        };
        plain &= matches!(
            inner.ty,
            Ty::Int { .. } | Ty::Bool | Ty::Enum(_) | Ty::Record(_) | Ty::Ipv4 | Ty::Time | Ty::Duration
        );
    });
    plain && parts <= EAGER_PARTS_MAX
}
