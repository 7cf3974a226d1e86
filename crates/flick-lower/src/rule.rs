//! Rules of the process, and the platform's own replies.

use flick_abi::{FailureReason, FuncId, RuleAction};
use flick_check::hir::{Expr, ExprKind, LocalId, Proc, Rule, Stmt, Ty, UnitId};
use flick_ir::data::{FuncKind, Function, Terminator, Type};

use crate::body::{Body, Mode, SelfScope};
use crate::builder::ConstPool;
use crate::context::Context;
use crate::value::{Record, Val};

/// A rule that sends its message on as it is to one channel: no code runs for it.
pub fn pass_action(process: &Proc, rule: &Rule) -> Option<RuleAction> {
    let send = match (rule.body.stmts.as_slice(), &rule.body.value) {
        ([], Some(value)) => value.as_ref(),
        ([Stmt::Expr(expr)], None) => expr,
        _ => return None,
    };
    let ExprKind::Send { message, channel } = &send.kind else { return None };
    match (&message.kind, &channel.kind) {
        (ExprKind::Local(LocalId(0)), ExprKind::Channel(channel)) => {
            let to = channel.0 as usize;
            (!process.channels[to].is_array).then_some(RuleAction::Pass { to })
        }
        _ => None,
    }
}

/// Lowers a rule. `number` counts from 1.
pub fn lower_rule(cx: &Context<'_>, consts: &mut ConstPool, rule: &Rule, number: usize) -> Function {
    let name = format!("rule.{number}");
    let mut body = Body::new(cx, consts, name, FuncKind::Rule, &[Type::Frame, Type::Uint], Vec::new());
    body.locals = vec![None; rule.locals.len().max(1)];
    let unit = cx.channels()[rule.source.0 as usize].receives.expect("a rule's source receives");
    body.locals[0] = Some(Val::Record(Record::original(unit)));
    body.block(&rule.body);
    body.f.end(Terminator::Return(Vec::new()));
    body.f.finish()
}

/// Lowers the replies that the platform gives itself, by reason.
pub fn lower_failures(
    cx: &Context<'_>,
    consts: &mut ConstPool,
    unit: UnitId,
    mut add: impl FnMut(Function) -> FuncId,
) -> [Option<FuncId>; FailureReason::COUNT] {
    let mut failures = [None; FailureReason::COUNT];
    let info = cx.unit(unit);
    for (reason, build) in &info.unit.facts.on {
        let known = FailureReason::NAMES.iter().find(|(name, _)| name == reason);
        let (_, index) = known.expect("the checker knows the reasons");
        let name = format!("on_{reason}.{}", info.unit.name);
        failures[*index as usize] = Some(add(lower_failure(cx, consts, unit, name, build)));
    }
    failures
}

fn lower_failure(
    cx: &Context<'_>,
    consts: &mut ConstPool,
    unit: UnitId,
    name: String,
    build: &Expr,
) -> Function {
    assert!(matches!(build.ty, Ty::Record(_)), "`%on` builds a message");
    let mut body = Body::new(cx, consts, name, FuncKind::Builder, &[Type::Frame], Vec::new());
    let record = body.with_scope(unit, SelfScope::Frame, Mode::Wrapping, |body| body.expr(build)).record();
    let [shape] = record.shapes.as_slice() else { panic!("`%on` builds one message") };
    body.emit_built(shape);
    body.f.end(Terminator::Return(Vec::new()));
    body.f.finish()
}
