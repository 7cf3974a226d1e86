//! Calls of the program's own functions.
//! Promises: a call is a call where every message passed is the current one, unchanged; where a message is another
//! one, was changed or built, or is returned, and where the function asks, the callee's text is lowered in place, so
//! that updates stay static and only rules suspend. A value of several words goes in side by side and comes back in
//! memory that the callee has made.
//! Refuses: recursion (the checker does); a function without end trips `FUNCTION_INSTS_MAX`.

use flick_abi::FuncId;
use flick_check::hir::{Expr, Fun, FunId, Ty};
use flick_ir::data::{FuncKind, Function, Op, Terminator, Type, Value};

use crate::body::Body;
use crate::builder::ConstPool;
use crate::carrier::Carrier;
use crate::context::Context;
use crate::value::{Record, Val};

impl Body<'_> {
    /// Lowers a call.
    pub fn lower_call(&mut self, id: FunId, args: &[Expr]) -> Val {
        let fun = &self.cx.program.funs[id.0 as usize];
        let vals: Vec<Val> = args.iter().map(|arg| self.expr(arg)).collect();
        let passes_by_frame = |val: &Val| match val {
            Val::Record(record) => record.is_original() && self.frame.is_some(),
            _ => true,
        };
        if self.cx.is_inlined(id) || !vals.iter().all(passes_by_frame) {
            return self.lower_inlined(fun, vals);
        }
        let mut words = Vec::new();
        for (local, val) in fun.locals.iter().zip(&vals) {
            match val {
                Val::Record(_) => words.push(self.frame.expect("a message that is passed has a frame")),
                val => {
                    let carrier = self.cx.carrier(&local.ty);
                    words.extend(self.words(&carrier, val));
                }
            }
        }
        let call = Op::Call { func: FuncId(id.0), args: words };
        let carrier = self.cx.carrier(&fun.result);
        let types = carrier.types(self.cx);
        let words = match types[..] {
            [] => {
                self.f.effect(call);
                Vec::new()
            }
            [ty] => vec![self.f.define(ty, call)],
            _ => {
                let memory = self.f.define(Type::Bytes, call);
                self.words_from(memory, None, &types)
            }
        };
        self.arrived(&carrier, &mut words.into_iter())
    }

    fn lower_inlined(&mut self, fun: &Fun, args: Vec<Val>) -> Val {
        let mut locals: Vec<Option<Val>> = args.into_iter().map(Some).collect();
        locals.resize(fun.locals.len(), None);
        let caller = std::mem::replace(&mut self.locals, locals);
        let result = self.block(&fun.body);
        self.locals = caller;
        if fun.result == Ty::Nothing { Val::Nothing } else { result }
    }
}

/// Lowers a function for calls that pass words only.
pub fn lower_helper(cx: &Context<'_>, consts: &mut ConstPool, fun: &Fun) -> Function {
    let params = &fun.locals[..fun.param_count];
    let types: Vec<Type> = params
        .iter()
        .flat_map(|local| match local.ty {
            Ty::Record(_) => vec![Type::Frame],
            _ => cx.word_types(&local.ty),
        })
        .collect();
    let carrier = cx.carrier(&fun.result);
    let result_types = carrier.types(cx);
    let results = if result_types.len() > 1 { vec![Type::Bytes] } else { result_types };
    let mut body = Body::new(cx, consts, fun.name.clone(), FuncKind::Helper, &types, results.clone());
    let entry = body.f.current();
    let mut words = body.f.params(entry).to_vec().into_iter();
    body.locals = params
        .iter()
        .map(|local| match &local.ty {
            Ty::Record(unit) => {
                words.next();
                Some(Val::Record(Record::original(*unit)))
            }
            ty => Some(body.arrived(&cx.carrier(ty), &mut words)),
        })
        .collect();
    body.locals.resize(fun.locals.len(), None);
    let result = body.block(&fun.body);
    let values = if results.is_empty() { Vec::new() } else { body.result_words(&carrier, &result) };
    body.f.end(Terminator::Return(values));
    body.f.finish()
}

impl Body<'_> {
    /// The word that a helper gives: the value's own, or memory with all of them.
    fn result_words(&mut self, carrier: &Carrier, result: &Val) -> Vec<Value> {
        let words = self.words(carrier, result);
        if words.len() == 1 {
            return words;
        }
        let count = self.f.int(words.len() as i64);
        let memory = self.words_new(count, words.len() as u32);
        self.words_to(memory, None, &words);
        vec![memory]
    }
}
