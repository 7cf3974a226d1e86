//! Rules of the process, handlers, timers, the first values of state, and the platform's own replies.

use flick_abi::{FailureReason, FuncId, RuleAction};
use flick_check::hir::{
    Block, Expr, ExprKind, Handler, LocalId, Proc, Rule, SessionLocalId, Stmt, Timer, Ty, UnitId,
};
use flick_ir::data::{FuncKind, Function, Op, Terminator, Type};

use crate::body::{Body, Mode, SelfScope};
use crate::builder::ConstPool;
use crate::context::Context;
use crate::part::Part;
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

/// Lowers a rule.
pub fn lower_rule(cx: &Context<'_>, consts: &mut ConstPool, rule: &Rule, name: String) -> Function {
    let mut body = Body::of_rule(cx, consts, name, rule.locals.len());
    let unit = cx.channels()[rule.source.0 as usize].receives.expect("a rule's source receives");
    body.set_local(LocalId(0), Val::Record(Record::original(unit)));
    body.finish_rule(&rule.body)
}

/// Lowers an `except` handler. `number` counts from 1.
pub fn lower_handler(cx: &Context<'_>, consts: &mut ConstPool, handler: &Handler, number: usize) -> Function {
    let mut body = Body::of_rule(cx, consts, format!("except.{number}"), handler.locals.len());
    if let Some(local) = handler.locals.first() {
        let entry = body.f.current();
        let element = body.f.params(entry)[1];
        let element = body.val_of_word(&local.ty, element);
        body.set_local(LocalId(0), element);
    }
    body.finish_rule(&handler.body)
}

/// Lowers an `every` timer. `number` counts from 1.
pub fn lower_timer(cx: &Context<'_>, consts: &mut ConstPool, timer: &Timer, number: usize) -> Function {
    Body::of_rule(cx, consts, format!("every.{number}"), timer.locals.len()).finish_rule(&timer.body)
}

/// Lowers what gives a session's state its first values; `None` where zeros do.
pub fn lower_init(cx: &Context<'_>, consts: &mut ConstPool) -> Option<Function> {
    let states = &cx.program.session_locals;
    if states.iter().all(|state| is_zero(&state.init)) {
        return None;
    }
    let mut body = Body::of_rule(cx, consts, "init_state".to_owned(), 0);
    for (index, state) in states.iter().enumerate().filter(|(_, state)| !is_zero(&state.init)) {
        let val = body.expr(&state.init);
        body.store_state(SessionLocalId(index as u32), &val);
    }
    Some(body.finish_rule(&Block::default()))
}

/// Whether a value is what state is before anybody has written it.
fn is_zero(expr: &Expr) -> bool {
    match &expr.kind {
        ExprKind::Int(value) => *value == 0,
        ExprKind::Bool(value) => !value,
        ExprKind::Member(_, value) => *value == 0,
        ExprKind::Str(text) => text.is_empty(),
        ExprKind::List(all) => all.is_empty(),
        ExprKind::None => true,
        ExprKind::Tuple(parts) => parts.iter().all(is_zero),
        ExprKind::StructBuild(_, fields) => fields.iter().all(|(_, value)| is_zero(value)),
        _ => false,
    }
}

impl<'p> Body<'p> {
    /// Starts a rule.
    pub fn of_rule(cx: &'p Context<'p>, consts: &'p mut ConstPool, name: String, locals: usize) -> Self {
        let mut body = Self::new(cx, consts, name, FuncKind::Rule, &[Type::Frame, Type::Uint], Vec::new());
        body.locals = vec![None; locals];
        body
    }

    /// Lowers a rule's text and ends it.
    pub fn finish_rule(mut self, block: &Block) -> Function {
        self.block(block);
        self.f.end(Terminator::Return(Vec::new()));
        self.f.finish()
    }
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
    // Given by its bytes, it is those.
    match shape.overrides.get(&Part::Wire).map(Val::bytes) {
        Some(value) => body.f.effect(Op::EmitBytes { value }),
        None => body.emit_built(shape),
    }
    body.f.end(Terminator::Return(Vec::new()));
    body.f.finish()
}
