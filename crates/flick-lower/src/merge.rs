//! `foldt`: how two elements are ordered and what two equal ones become.
//! Promises: the order reads only; the combining rule sends exactly one message, to the merge's own channel.
//! Source: FLICK §4.3 and Listing 3.

use flick_check::hir::{LocalId, Merge};
use flick_ir::data::{FuncKind, Function, Op, Terminator, Type};

use crate::body::Body;
use crate::builder::ConstPool;
use crate::context::Context;
use crate::value::{Record, Val};

/// The local that holds the key in a merge's body.
const KEY: LocalId = LocalId(2);

/// Lowers the order of two elements by their keys.
pub fn lower_order(cx: &Context<'_>, consts: &mut ConstPool, merge: &Merge, number: usize) -> Function {
    let name = format!("order.{number}");
    let mut body = Body::new(cx, consts, name, FuncKind::Order, &[Type::Frame], vec![Type::Int]);
    let [first, second] = body.elements(merge);
    let [a, b] = [first, second].map(|element| {
        body.set_local(LocalId(0), element);
        body.expr(&merge.key)
    });
    body.at(&merge.key.span);
    let sign = body.order(&a, &b, &merge.key.ty);
    body.f.end(Terminator::Return(vec![sign]));
    body.f.finish()
}

/// Lowers what two elements with equal keys become.
pub fn lower_combine(cx: &Context<'_>, consts: &mut ConstPool, merge: &Merge, number: usize) -> Function {
    let mut body = Body::of_rule(cx, consts, format!("combine.{number}"), merge.locals.len());
    let [first, second] = body.elements(merge);
    body.set_local(LocalId(0), first);
    let key = body.expr(&merge.key);
    body.set_local(LocalId(1), second);
    body.set_local(KEY, key);
    let combined = body.block(&merge.body).record();
    let chan = body.f.define(Type::Chan, Op::Const(i64::from(merge.source.0)));
    body.send(&combined, chan);
    body.f.end(Terminator::Return(Vec::new()));
    body.f.finish()
}

impl Body<'_> {
    fn elements(&mut self, merge: &Merge) -> [Val; 2] {
        let second = self.f.message(1);
        [Record::original(merge.unit), Record::other(merge.unit, second)].map(Val::Record)
    }
}
