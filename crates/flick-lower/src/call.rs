//! Calls of the program's own functions.
//! Promises: a call is a call where every message passed is the one under way as it arrived; where a message was
//! changed or built, or is returned, the callee's text is lowered in place, so that updates stay static.
//! Refuses: recursion (the checker does); a function without end trips `FUNCTION_INSTS_MAX`.

use flick_abi::FuncId;
use flick_check::hir::{Expr, Fun, FunId, Ty};
use flick_ir::data::{FuncKind, Function, Op, Terminator, Type, Value};

use crate::body::{Body, word_type};
use crate::builder::ConstPool;
use crate::context::Context;
use crate::value::{Record, Val};

impl Body<'_> {
    /// Lowers a call.
    pub fn lower_call(&mut self, id: FunId, args: &[Expr]) -> Val {
        let fun = &self.cx.program.funs[id.0 as usize];
        let vals: Vec<Val> = args.iter().map(|arg| self.expr(arg)).collect();
        let in_place = is_in_place(fun)
            || vals.iter().any(|val| matches!(val, Val::Record(record) if !record.is_original()));
        if in_place {
            return self.lower_in_place(fun, vals);
        }
        let args: Vec<Value> = vals.iter().map(|val| self.word_of_val(val)).collect();
        let call = Op::Call { func: FuncId(id.0), args };
        if fun.result == Ty::Nothing {
            self.f.effect(call);
            return Val::Nothing;
        }
        let value = self.f.define(word_type(&fun.result), call);
        self.val_of_word(&fun.result, value)
    }

    fn lower_in_place(&mut self, fun: &Fun, args: Vec<Val>) -> Val {
        let mut locals: Vec<Option<Val>> = args.into_iter().map(Some).collect();
        locals.resize(fun.locals.len(), None);
        let caller = std::mem::replace(&mut self.locals, locals);
        let result = self.block(&fun.body);
        self.locals = caller;
        if fun.result == Ty::Nothing { Val::Nothing } else { result }
    }
}

/// Whether calls of a function are always lowered in place: it returns a message.
pub fn is_in_place(fun: &Fun) -> bool {
    matches!(fun.result, Ty::Record(_))
}

/// Lowers a function for calls that pass words only.
pub fn lower_helper(cx: &Context<'_>, consts: &mut ConstPool, fun: &Fun) -> Function {
    let params: Vec<Type> = fun.locals[..fun.param_count].iter().map(|local| word_type(&local.ty)).collect();
    let returns = fun.result != Ty::Nothing;
    let results = if returns { vec![word_type(&fun.result)] } else { Vec::new() };
    let mut body = Body::new(cx, consts, fun.name.clone(), FuncKind::Helper, &params, results);
    let entry = body.f.current();
    let words = body.f.params(entry).to_vec();
    let locals = fun.locals[..fun.param_count].iter().zip(words);
    body.locals = locals
        .map(|(local, word)| match &local.ty {
            Ty::Record(unit) => Some(Val::Record(Record::original(*unit))),
            ty => Some(body.val_of_word(ty, word)),
        })
        .collect();
    body.locals.resize(fun.locals.len(), None);
    let result = body.block(&fun.body);
    let values = if returns { vec![body.word_of_val(&result)] } else { Vec::new() };
    body.f.end(Terminator::Return(values));
    body.f.finish()
}
