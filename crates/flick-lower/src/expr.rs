//! Expressions: one arm per kind; what needs more than a few lines has a file of its own.
//! Promises: operands are evaluated from left to right.

use flick_check::hir::{BinaryOp, Builtin, ClassId, Expr, ExprKind, Ty};
use flick_ir::data::{Op, Type, Value};
use flick_ir::semantics;

use crate::body::Body;
use crate::condition::is_comparison;
use crate::interval::Interval;
use crate::list::elem_of;
use crate::value::{Num, Val};

impl Body<'_> {
    /// Lowers an expression, whose value is no longer than its type says.
    pub fn expr(&mut self, expr: &Expr) -> Val {
        let val = self.expr_of_any_length(expr);
        self.bound_length(&expr.ty, &val);
        val
    }

    /// Says that a value of this type is no longer than that says.
    pub fn bound_length(&mut self, ty: &Ty, val: &Val) {
        match (ty, val) {
            (Ty::Bytes { max, .. }, Val::Bytes(value)) => self.f.bound_length(*value, *max),
            (Ty::Option(inner), Val::Option { value, .. }) => self.bound_length(inner, value),
            (Ty::Tuple(parts), Val::Group(values)) => {
                parts.iter().zip(values).for_each(|(ty, val)| self.bound_length(ty, val));
            }
            _ => {}
        }
    }

    fn expr_of_any_length(&mut self, expr: &Expr) -> Val {
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
                match &expr.ty {
                    Ty::Option(_) => self.record_option(&record, *field, &expr.ty),
                    _ => self.record_field(&record, *field),
                }
            }
            ExprKind::FieldKey(message, list, key) => {
                let record = self.expr(message).record();
                self.record_key(&record, *list, *key, &expr.ty)
            }
            ExprKind::SelfField(field) => self.self_field(*field),
            ExprKind::LenOf(field) => self.self_len_of(*field),
            ExprKind::IsOf(bytes, class) => self.is_of_class(bytes, *class),
            ExprKind::SelfKey(list, key) => self.self_key(*list, *key),
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
            ExprKind::Builtin(Builtin::ParseInt, args) => self.decimal(&args[0]),
            ExprKind::Builtin(builtin, args) => self.builtin(*builtin, args, &expr.ty),
            ExprKind::Index(channels, index) => {
                let chan = self.expr(channels).chan();
                let index = self.expr(index).num().value();
                Val::Chan(self.f.define(Type::Chan, Op::ChanElem { chan, index }))
            }
            ExprKind::With(record, fields) => self.lower_with(record, fields),
            ExprKind::WithKey(record, list, key, value) => {
                self.lower_with_key(record, *list, *key, value.as_deref())
            }
            ExprKind::BuildWire(unit, bytes) => self.lower_build_wire(*unit, bytes),
            ExprKind::Build(unit, fields) => self.lower_build(*unit, fields),
            _ => self.expr_of_parts(expr),
        }
    }

    /// Whether every byte is of a class; of a constant, it is known.
    fn is_of_class(&mut self, bytes: &Expr, class: ClassId) -> Val {
        let set = self.cx.program.classes[class.0 as usize].set;
        self.of_each_way(
            bytes,
            &|body, known| Val::Bool(body.f.bool(semantics::guard(known, Some(&set), None))),
            &|body, bytes| Val::Bool(body.is_of(bytes, set)),
        )
    }

    /// The number that decimal digits spell; of a constant, it is known.
    fn decimal(&mut self, digits: &Expr) -> Val {
        self.of_each_way(
            digits,
            &|body, known| {
                let number = semantics::parse_int(known, 10);
                let (present, value) = (body.f.bool(number.is_some()), body.f.int(number.unwrap_or(0)));
                Val::Option { present, value: Box::new(Val::Num(Num::one(value, Interval::INT))) }
            },
            &|body, bytes| body.parse_int(bytes, 10),
        )
    }

    /// Lowers composite expressions: tuples, options, lists, text, and loops over them.
    fn expr_of_parts(&mut self, expr: &Expr) -> Val {
        match &expr.kind {
            ExprKind::Tuple(parts) => Val::Group(parts.iter().map(|part| self.expr(part)).collect()),
            ExprKind::StructBuild(_, fields) => self.struct_build(fields),
            ExprKind::TupleField(of, index) | ExprKind::StructField(of, index) => self.part(of, *index),
            ExprKind::StructWith(record, fields) => self.struct_with(record, fields),
            ExprKind::VariantBuild(id, case, carried) => self.variant_build(*id, *case, carried.as_deref()),
            ExprKind::Some(value) => {
                let value = self.expr(value);
                self.some(value)
            }
            ExprKind::None => self.absent(&expr.ty),
            ExprKind::OrElse(option, otherwise) => self.or_else(option, otherwise),
            ExprKind::Match { value, arms, otherwise } => self.lower_match(value, arms, otherwise.as_ref()),
            ExprKind::List(exprs) => self.list_of(exprs, elem_of(&expr.ty)),
            ExprKind::ListGet(list, index) => self.list_get(list, index),
            ExprKind::ByteAt(text, index) => self.byte_at(text, index),
            ExprKind::Slice(of, start, end) => self.slice(of, start.as_deref(), end.as_deref()),
            ExprKind::For { local, source, body } => self.lower_for(*local, source, body),
            ExprKind::Fold { local, source, acc, init, body } => {
                self.lower_fold(*local, source, (*acc, init, &expr.ty), body)
            }
            ExprKind::MapList { local, source, body } => self.lower_map(*local, source, body, &expr.ty),
            ExprKind::Filter { local, source, body } => self.lower_filter(*local, source, body, &expr.ty),
            ExprKind::Concat(parts) => self.concat(parts, &expr.ty),
            ExprKind::Convert(inner, repr) => {
                let num = self.expr(inner).num();
                self.convert(num, repr.width_bytes, repr.signed, &expr.ty)
            }
            ExprKind::Recast(inner) => {
                let word = match self.expr(inner) {
                    Val::Num(num) => num.value(),
                    other => other.bytes(),
                };
                self.val_of_word(&expr.ty, word)
            }
            _ => self.expr_of_platform(expr),
        }
    }

    /// Lowers what is kept, and what leaves.
    fn expr_of_platform(&mut self, expr: &Expr) -> Val {
        match &expr.kind {
            ExprKind::SessionLocal(state) => self.load_state(*state),
            ExprKind::DictGet(dict, key) => self.dict_get(*dict, key),
            ExprKind::DictHas(dict, key) => self.dict_has(*dict, key),
            ExprKind::DictPut(dict, key, value) => {
                self.dict_put(*dict, key, value);
                Val::Nothing
            }
            ExprKind::DictUpdate { dict, key, old, body, may_remove } => {
                self.dict_update(*dict, key, *old, body, *may_remove)
            }
            ExprKind::Ask { channel, message, timeout, otherwise } => {
                self.lower_ask(channel, message, timeout.as_deref(), otherwise.as_ref(), &expr.ty)
            }
            ExprKind::AskAll { asks, timeout } => self.lower_ask_all(asks, timeout.as_deref(), &expr.ty),
            ExprKind::Send { message, channel } => {
                let record = self.expr(message).record();
                let chan = self.expr(channel).chan();
                self.at(&expr.span);
                self.send(&record, chan);
                Val::Nothing
            }
            other => panic!("the checker gives dictionaries and counters to built-ins only: {other:?}"),
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
            (a, b) => panic!("the checker compares words and bytes, part by part: {op:?} of {a:?} and {b:?}"),
        }
    }

    /// `a + b` of text. Parts that are joined themselves are joined here, once.
    fn concat(&mut self, parts: &[Expr], ty: &Ty) -> Val {
        let Ty::Bytes { max, .. } = ty else { panic!("the checker joins text and bytes only") };
        let mut values = Vec::new();
        parts.iter().for_each(|part| self.parts_of(part, &mut values));
        Val::Bytes(self.f.define(Type::Bytes, Op::Concat { parts: values, max_bytes: *max }))
    }

    fn parts_of(&mut self, part: &Expr, values: &mut Vec<Value>) {
        match &part.kind {
            ExprKind::Concat(parts) => parts.iter().for_each(|part| self.parts_of(part, values)),
            ExprKind::Builtin(Builtin::Text | Builtin::Raw, args) => self.parts_of(&args[0], values),
            _ => values.push(self.expr(part).bytes()),
        }
    }
}
