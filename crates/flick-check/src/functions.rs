//! Functions: signatures, the order of calls, bodies.
//! Promises: callees come before callers; a recursive function is rejected with the calls that close the cycle.

use std::collections::BTreeMap;

use flick_syntax::ast::{self, AstNode};

use crate::diagnostic::Sink;
use crate::expr::{Expectation, Exprs, adapt, builtin_named};
use crate::hir::{Fun, FunId, Span, Ty};
use crate::items::{Decls, FunSig, InFile, Items};
use crate::limits::CALL_DEPTH_MAX;
use crate::load::span_of;
use crate::scope::Scope;
use crate::ty::join;
use crate::{report, types};

/// Enters the signatures of all functions, callees first; returns their declarations in that order.
pub(crate) fn headings(decls: &Decls, items: &mut Items, sink: &mut Sink) -> Vec<InFile<ast::FunDecl>> {
    let named: Vec<&InFile<ast::FunDecl>> =
        decls.funs.iter().filter(|fun| fun.node.name().is_some()).collect();
    let order = order(&named, items, sink);
    let mut out = Vec::new();
    for index in order {
        let fun = named[index];
        let Some(name) = fun.node.name() else { continue };
        let span = span_of(fun.file, name.range());
        if builtin_named(name.text()).is_some() {
            sink.push(report::names::reserved(span.clone(), name.text(), "a built-in function"));
        }
        let mut params: Vec<crate::items::Param> = Vec::new();
        for param in fun.node.params() {
            if let Some(param) = types::param(items, &param, fun.file, sink) {
                params.push(param);
            }
        }
        let (result, result_span) = result(fun, items, sink, &span);
        let id = FunId(items.funs.len() as u32);
        items.fun_names.insert(items.own_key(fun.file, name.text()), id);
        items.funs.push(FunSig { name: name.text().to_owned(), params, result, span, result_span });
        out.push(fun.clone());
    }
    out
}

fn result(fun: &InFile<ast::FunDecl>, items: &Items, sink: &mut Sink, name: &Span) -> (Ty, Span) {
    let types: Vec<ast::Type> = fun.node.results().collect();
    let span = fun.node.result_list().map_or(name.clone(), |list| span_of(fun.file, list.range()));
    let checked: Vec<Ty> = types.iter().map(|ty| types::value_type(items, ty, fun.file, sink)).collect();
    match checked.as_slice() {
        [] => (Ty::Nothing, span),
        [one] => (one.clone(), span),
        _ if checked.contains(&Ty::Unknown) => (Ty::Unknown, span),
        // Several results are one tuple.
        _ => (Ty::Tuple(checked), span),
    }
}

/// A call in the text of a function: the callee and the location.
type Call = (usize, Span);

/// Sorts functions so that callees come first; reports cycles.
fn order(funs: &[&InFile<ast::FunDecl>], items: &Items, sink: &mut Sink) -> Vec<usize> {
    let name_of = |index: usize| funs[index].node.name().map_or(String::new(), |name| name.text().to_owned());
    let by_name: BTreeMap<String, usize> =
        (0..funs.len()).map(|index| (items.own_key(funs[index].file, &name_of(index)), index)).collect();
    let calls: Vec<Vec<Call>> = funs.iter().map(|fun| calls(fun, items, &by_name)).collect();
    let mut sorter = Sorter {
        calls: &calls,
        state: vec![Visit::New; funs.len()],
        path: Vec::new(),
        order: Vec::new(),
        cycles: Vec::new(),
        too_deep: Vec::new(),
    };
    for index in 0..funs.len() {
        sorter.visit(index);
    }
    for cycle in &sorter.cycles {
        let chain: Vec<(String, String, Span)> = cycle
            .iter()
            .map(|(caller, (callee, span))| (name_of(*caller), name_of(*callee), span.clone()))
            .collect();
        sink.push(report::bounds::recursion(&chain));
    }
    for index in &sorter.too_deep {
        let span =
            funs[*index].node.name().map_or(Span::default(), |name| span_of(funs[*index].file, name.range()));
        sink.push(report::bounds::calls_too_deep(span, &name_of(*index), CALL_DEPTH_MAX));
    }
    sorter.order
}

/// All calls in the body of `fun`.
fn calls(fun: &InFile<ast::FunDecl>, items: &Items, by_name: &BTreeMap<String, usize>) -> Vec<Call> {
    let nodes = fun.node.body().into_iter().flat_map(|body| body.syntax().descendants().collect::<Vec<_>>());
    let callees = nodes.filter_map(ast::CallExpr::cast).filter_map(|call| match call.callee()? {
        ast::Expr::Name(name) => Some((None, name.name()?)),
        ast::Expr::Field(field) => match field.base()? {
            ast::Expr::Name(library) => Some((library.name(), field.field()?)),
            _ => None,
        },
        _ => None,
    });
    let numbered = callees.filter_map(|(library, name)| {
        let library = library.as_ref().map(ast::Name::text);
        let key = items.key(fun.file, library, name.text(), |key| by_name.contains_key(key))?;
        Some((*by_name.get(&key)?, span_of(fun.file, name.range())))
    });
    numbered.collect()
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Visit {
    New,
    Open,
    Done,
}

struct Sorter<'a> {
    calls: &'a [Vec<Call>],
    state: Vec<Visit>,
    /// The current path: functions, each with the call that leads to the next one.
    path: Vec<(usize, Call)>,
    order: Vec<usize>,
    cycles: Vec<Vec<(usize, Call)>>,
    too_deep: Vec<usize>,
}

impl Sorter<'_> {
    /// Visits depth-first; the path is bounded, because deeper calls are rejected.
    fn visit(&mut self, index: usize) {
        if self.state[index] != Visit::New {
            return;
        }
        if self.path.len() >= CALL_DEPTH_MAX {
            if let Some((first, _)) = self.path.first().cloned()
                && !self.too_deep.contains(&first)
            {
                self.too_deep.push(first);
            }
            return;
        }
        self.state[index] = Visit::Open;
        for (callee, span) in &self.calls[index] {
            let step = (index, (*callee, span.clone()));
            if self.state[*callee] == Visit::Open {
                let start =
                    self.path.iter().position(|(caller, _)| caller == callee).unwrap_or(self.path.len());
                let mut cycle: Vec<(usize, Call)> = self.path[start..].to_vec();
                cycle.push(step);
                let known = self.cycles.iter().any(|known| known.last().map(|last| last.0) == Some(index));
                if !known {
                    self.cycles.push(cycle);
                }
            } else {
                self.path.push(step);
                self.visit(*callee);
                self.path.pop();
            }
        }
        self.state[index] = Visit::Done;
        self.order.push(index);
    }
}

/// Checks the bodies of all functions, in the order of their ids.
pub(crate) fn bodies(decls: &[InFile<ast::FunDecl>], items: &Items, sink: &mut Sink) -> Vec<Fun> {
    decls.iter().enumerate().map(|(index, decl)| body(FunId(index as u32), decl, items, sink)).collect()
}

fn body(id: FunId, decl: &InFile<ast::FunDecl>, items: &Items, sink: &mut Sink) -> Fun {
    let sig = items.fun(id);
    let mut exprs = Exprs::new(items, sink, decl.file, Scope::default());
    for param in &sig.params {
        exprs.scope.declare(&param.name, param.ty.clone(), param.span.clone(), exprs.sink);
    }
    let wanted =
        if sig.result == Ty::Nothing { Expectation::NoValue } else { Expectation::HasType(&sig.result) };
    let mut body = crate::hir::Block::default();
    if let Some(block) = decl.node.body() {
        let is_value_line = !wanted.is_value() && reject_undeclared_result(&mut exprs, &block, sig);
        if !is_value_line {
            let (checked, ty, span) = exprs.open_block(&block, wanted);
            body = checked;
            finish_value(&mut exprs, &mut body, &ty, span, sig);
        }
    }
    let param_count = sig.params.len();
    let unused: Vec<(usize, String, Span)> =
        exprs.scope.unused().map(|(index, local)| (index, local.name.clone(), local.span.clone())).collect();
    for (index, name, span) in unused {
        let report = if index < param_count {
            report::names::unused_param(span, &name)
        } else {
            report::names::unused_let(span, &name)
        };
        exprs.sink.push(report);
    }
    let locals = std::mem::take(&mut exprs.scope.locals);
    Fun {
        name: sig.name.clone(),
        param_count,
        locals,
        result: sig.result.clone(),
        body,
        span: sig.span.clone(),
    }
}

/// Reports a function without a return type that ends with a value. Returns whether it did.
fn reject_undeclared_result(exprs: &mut Exprs<'_>, block: &ast::Block, sig: &FunSig) -> bool {
    let stmts: Vec<ast::Stmt> = block.stmts().collect();
    let [ast::Stmt::Expr(only)] = stmts.as_slice() else { return false };
    let Some(expr) = only.expr() else { return false };
    let value = exprs.any(&expr, Expectation::Value);
    if matches!(value.ty, Ty::Nothing | Ty::Unknown) {
        // The value is checked twice; duplicate reports are dropped.
        return false;
    }
    let found = exprs.items.describe(&value.ty);
    exprs.sink.push(report::types::wrong_result(
        value.span,
        &sig.name,
        "nothing",
        &found,
        sig.result_span.clone(),
    ));
    true
}

/// Checks the value of a body against the return type.
fn finish_value(exprs: &mut Exprs<'_>, body: &mut crate::hir::Block, ty: &Ty, span: Span, sig: &FunSig) {
    if sig.result == Ty::Nothing || *ty == Ty::Unknown {
        return;
    }
    let Some(value) = body.value.take() else {
        let wanted = exprs.items.describe(&sig.result);
        let report =
            report::types::wrong_result(span, &sig.name, &wanted, "nothing", sig.result_span.clone());
        exprs.sink.push(report);
        return;
    };
    let mut value = value;
    adapt(&mut value, &sig.result);
    let same_kind = join(&value.ty, &sig.result).is_some();
    let is_enum_number = matches!((&value.ty, &sig.result), (Ty::Int { .. }, Ty::Enum(_)));
    if same_kind || is_enum_number || sig.result == Ty::Unknown {
        let target = format!("the result of `{}`", sig.name);
        let value = exprs.coerce(*value, &sig.result, &target, Some(sig.result_span.clone()));
        body.value = Some(Box::new(value));
        return;
    }
    let (wanted, found) = (exprs.items.describe(&sig.result), exprs.items.describe(&value.ty));
    let report =
        report::types::wrong_result(value.span.clone(), &sig.name, &wanted, &found, sig.result_span.clone());
    exprs.sink.push(report);
}
