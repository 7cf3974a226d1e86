//! Expressions: one arm per kind; what needs more than a few lines has a file of its own.
//! Promises: operands are evaluated from left to right; `and` and `or` skip their second operand where it costs
//! more than a few instructions (it has no effects, so nobody can tell).

use flick_check::hir::{BinaryOp, Builtin, Expr, ExprKind, Ty};
use flick_ir::data::{Binary, Op, Type, Value};

use crate::body::Body;
use crate::value::{Num, Val};
use crate::walk::walk_expr;

/// Expressions of at most this many parts are cheaper to evaluate than to skip.
const EAGER_PARTS_MAX: usize = 4;

impl Body<'_> {
    /// Lowers an expression.
    pub fn expr(&mut self, expr: &Expr) -> Val {
        self.at(&expr.span);
        match &expr.kind {
            ExprKind::Int(value) => Val::Num(self.constant(*value)),
            ExprKind::Bool(value) => Val::Bool(self.f.bool(*value)),
            ExprKind::Str(text) => {
                let op = self.consts.intern(text);
                Val::Bytes(self.f.define(Type::Bytes, op))
            }
            ExprKind::Member(_, value) => Val::Num(self.constant(i128::from(*value))),
            ExprKind::Local(local) => self
                .locals
                .get(local.0 as usize)
                .and_then(Option::clone)
                .expect("the checker allows a local only behind its `let`"),
            ExprKind::Channel(channel) => {
                Val::Chan(self.f.define(Type::Chan, Op::Const(i64::from(channel.0))))
            }
            ExprKind::Field(message, field) => {
                let record = self.expr(message).record();
                self.at(&expr.span);
                self.record_field(&record, *field)
            }
            ExprKind::SelfField(field) => self.self_field(*field),
            ExprKind::LenOf(field) => self.self_len_of(*field),
            ExprKind::Dollar => {
                self.dollar.clone().expect("the checker allows `$$` only in checks of fields")
            }
            ExprKind::Not(inner) => {
                let value = self.expr(inner).bool();
                Val::Bool(self.f.define(Type::Bool, Op::Not(value)))
            }
            ExprKind::Neg(inner) => {
                let value = self.expr(inner).num();
                Val::Num(self.negate(value, &expr.ty))
            }
            ExprKind::Binary(op, a, b) => self.binary(*op, a, b, &expr.ty),
            ExprKind::If { cond, then, otherwise } => self.lower_if(cond, then, otherwise.as_ref()),
            ExprKind::Switch { value, arms, otherwise } => self.lower_switch(value, arms, otherwise.as_ref()),
            ExprKind::Call(fun, args) => self.lower_call(*fun, args),
            ExprKind::Builtin(builtin, args) => self.builtin(*builtin, args, &expr.ty),
            ExprKind::Index(channels, index) => {
                let chan = self.expr(channels).chan();
                let index = self.expr(index).num().value();
                Val::Chan(self.f.define(Type::Chan, Op::ChanElem { chan, index }))
            }
            ExprKind::With(record, fields) => self.lower_with(record, fields),
            ExprKind::Build(unit, fields) => self.lower_build(*unit, fields),
            ExprKind::Send { message, channel } => {
                let record = self.expr(message).record();
                let chan = self.expr(channel).chan();
                self.at(&expr.span);
                self.send(&record, chan);
                Val::Nothing
            }
        }
    }

    fn binary(&mut self, op: BinaryOp, a: &Expr, b: &Expr, ty: &Ty) -> Val {
        if is_logic(op) {
            return Val::Bool(self.and_or(op, a, b));
        }
        let a = self.expr(a);
        let b = self.expr(b);
        match (a, b) {
            (Val::Num(a), Val::Num(b)) if is_comparison(op) => Val::Bool(self.compare(op, a, b)),
            (Val::Num(a), Val::Num(b)) => Val::Num(self.arithmetic(op, a, b, ty)),
            (Val::Bool(a), Val::Bool(b)) => Val::Bool(self.compare_bools(op, a, b)),
            (Val::Bytes(a), Val::Bytes(b)) => Val::Bool(self.compare_bytes(op, a, b)),
            (a, b) => panic!("the checker gives {op:?} operands of one type, not {a:?} and {b:?}"),
        }
    }

    fn and_or(&mut self, op: BinaryOp, a: &Expr, b: &Expr) -> Value {
        let first = self.expr(a).bool();
        if is_cheap(b) {
            let second = self.expr(b).bool();
            let op = if op == BinaryOp::And { Binary::And } else { Binary::Or };
            return self.f.binary(Type::Bool, op, first, second);
        }
        let (then, otherwise) = self.f.branch(first);
        let (go_on, skip) = if op == BinaryOp::And { (then, otherwise) } else { (otherwise, then) };
        self.f.go_on_in(skip);
        let known = self.f.bool(op == BinaryOp::Or);
        let skip = self.f.current();
        self.f.go_on_in(go_on);
        let second = self.expr(b).bool();
        let go_on = self.f.current();
        self.join(vec![(skip, Val::Bool(known)), (go_on, Val::Bool(second))]).bool()
    }

    fn compare_bools(&mut self, op: BinaryOp, a: Value, b: Value) -> Value {
        let op = match op {
            BinaryOp::Eq => Binary::Eq,
            BinaryOp::Ne => Binary::Ne,
            _ => panic!("the checker orders no truth values"),
        };
        self.f.binary(Type::Bool, op, a, b)
    }

    fn compare_bytes(&mut self, op: BinaryOp, a: Value, b: Value) -> Value {
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

    fn builtin(&mut self, builtin: Builtin, args: &[Expr], ty: &Ty) -> Val {
        let vals: Vec<Val> = args.iter().map(|arg| self.expr(arg)).collect();
        match (builtin, vals.as_slice()) {
            (Builtin::Hash, [val]) => self.hash(val),
            (Builtin::Len, [val]) => {
                let op = match val {
                    Val::Bytes(value) => Op::Len(*value),
                    Val::Chan(value) => Op::ChanLen(*value),
                    other => panic!("the checker measures bytes and channels only, not {other:?}"),
                };
                let value = self.f.define(Type::Int, op);
                self.val_of_word(ty, value)
            }
            (Builtin::StartsWith, [a, b]) => self.bytes_test(Op::BytesStartsWith(a.bytes(), b.bytes())),
            (Builtin::EndsWith, [a, b]) => self.bytes_test(Op::BytesEndsWith(a.bytes(), b.bytes())),
            (Builtin::Contains, [a, b]) => self.bytes_test(Op::BytesContains(a.bytes(), b.bytes())),
            (Builtin::Min, [a, b]) => Val::Num(self.smaller(BinaryOp::Le, a.num(), b.num())),
            (Builtin::Max, [a, b]) => Val::Num(self.smaller(BinaryOp::Ge, a.num(), b.num())),
            (builtin, vals) => panic!("the checker counts the arguments of {builtin:?}: {}", vals.len()),
        }
    }

    fn hash(&mut self, val: &Val) -> Val {
        let op = match val {
            Val::Bytes(value) => Op::HashBytes(*value),
            Val::Num(num) => Op::HashInt(num.value()),
            Val::Bool(value) => Op::HashInt(self.f.bool_to_int(*value)),
            other => panic!("the checker hashes plain values only, not {other:?}"),
        };
        Val::Num(Num::one(self.f.define(Type::Uint, op), crate::interval::Interval::UINT))
    }

    fn bytes_test(&mut self, op: Op) -> Val {
        Val::Bool(self.f.define(Type::Bool, op))
    }

    /// `a` where `a op b`, else `b`.
    fn smaller(&mut self, op: BinaryOp, a: Num, b: Num) -> Num {
        let cond = self.compare(op, a, b);
        self.select_num(cond, a, b)
    }
}

fn is_comparison(op: BinaryOp) -> bool {
    matches!(op, BinaryOp::Eq | BinaryOp::Ne | BinaryOp::Lt | BinaryOp::Le | BinaryOp::Gt | BinaryOp::Ge)
}

/// In grammars arithmetic may fail, and a branch around it may be what keeps it from failing.
fn is_arithmetic(expr: &Expr) -> bool {
    matches!(expr.kind, ExprKind::Binary(op, ..) if !is_comparison(op) && !is_logic(op))
}

fn is_logic(op: BinaryOp) -> bool {
    matches!(op, BinaryOp::And | BinaryOp::Or)
}

/// Whether evaluating `expr` costs no more than a branch around it.
fn is_cheap(expr: &Expr) -> bool {
    let (mut parts, mut plain) = (0, true);
    walk_expr(expr, &mut |inner| {
        parts += 1;
        plain &= matches!(
            inner.kind,
            ExprKind::Int(_)
                | ExprKind::Bool(_)
                | ExprKind::Member(..)
                | ExprKind::Local(_)
                | ExprKind::Field(..)
                | ExprKind::SelfField(_)
                | ExprKind::Dollar
                | ExprKind::Not(_)
                | ExprKind::Binary(..)
        ) && !matches!(inner.ty, Ty::Bytes { .. })
            && !is_arithmetic(inner);
    });
    plain && parts <= EAGER_PARTS_MAX
}
