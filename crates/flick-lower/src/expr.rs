//! Expressions: one arm per kind; what needs more than a few lines has a file of its own.
//! Promises: operands are evaluated from left to right.

use flick_check::hir::{BinaryOp, Builtin, Expr, ExprKind, Ty};
use flick_ir::data::{Op, Type};

use crate::body::Body;
use crate::condition::is_comparison;
use crate::value::{Num, Val};

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
            ExprKind::Binary(op @ (BinaryOp::And | BinaryOp::Or), ..) => Val::Bool(self.and_or(*op, expr)),
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
