//! Effects that are not allowed where they occur: an `ask` in a loop, a send in an `update`, a `local` outside a
//! session.
//! Promises: the effects of a function include those of its callees; an error is reported at the call in the region
//! that forbids it, with the line that has the effect.

use std::collections::BTreeMap;

use crate::ask_targets::AskTargets;
use crate::diagnostic::Sink;
use crate::hir::{AskAll, Block, Builtin, Expr, ExprKind, Fun, Proc, Rule, SessionLocalId, Span, Stmt};
use crate::items::Items;
use crate::report;
use crate::walk::{self, Child};

/// An effect of an expression.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Effect {
    Ask,
    Send,
    /// Reads or writes a dictionary.
    Dict,
    /// Reads a `local`.
    SessionLocal(SessionLocalId),
    /// Assigns a `local`.
    Assign,
    /// Changes a counter or writes to the log.
    Count,
    /// Reads the state of a channel.
    Channel,
    /// Calls `room()`.
    Room,
}

impl Effect {
    /// The effect as the predicate of a title: "its body sends a message".
    fn verb(self) -> &'static str {
        match self {
            Effect::Ask => "uses `ask`",
            Effect::Send => "sends a message",
            Effect::Dict => "uses a dictionary",
            Effect::SessionLocal(_) => "uses a `local`",
            Effect::Assign => "changes a `local`",
            Effect::Count => "counts or logs",
            Effect::Channel => "reads the state of a channel",
            Effect::Room => "calls `room()`",
        }
    }
}

/// The origin of each effect: its location in the function, and the name of the function that has it.
type Origins = BTreeMap<Effect, (Span, Option<String>)>;

/// A region of code that forbids some effects.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Region {
    /// The body of a loop.
    Loop,
    Update,
    Foldt,
    /// The chain after a merge.
    AfterFoldt,
    Except,
    Every,
}

impl Region {
    fn forbids(self, effect: Effect) -> bool {
        match self {
            Region::Loop | Region::Except => effect == Effect::Ask,
            // Reading a `local` is safe: no other code changes it meanwhile.
            Region::Update => !matches!(effect, Effect::SessionLocal(_)),
            Region::Foldt => true,
            Region::AfterFoldt => matches!(effect, Effect::Ask | Effect::SessionLocal(_) | Effect::Assign),
            Region::Every => matches!(effect, Effect::SessionLocal(_) | Effect::Assign),
        }
    }
}

/// Reports every effect in a region that forbids it.
pub(crate) fn check(funs: &[Fun], process: Option<&Proc>, items: &Items, sink: &mut Sink) {
    let mut known: Vec<Origins> = Vec::new();
    for fun in funs {
        let mut walker = Walker { funs, known: &known, items, sink, found: Origins::new() };
        walker.block(&fun.body, &[]);
        let found = walker.found;
        known.push(found);
    }
    let Some(process) = process else { return };
    let mut walker = Walker { funs, known: &known, items, sink, found: Origins::new() };
    for rule in &process.rules {
        walker.found.clear();
        walker.block(&rule.body, &[]);
        if !walker.found.contains_key(&Effect::Send) && waits_for_a_message(process, rule, items) {
            let name = &process.channels[rule.source.0 as usize].name;
            walker.sink.push(report::channels::sends_nothing(rule.span.clone(), name));
        }
    }
    process.handlers.iter().for_each(|handler| walker.block(&handler.body, &[Region::Except]));
    process.timers.iter().for_each(|timer| walker.block(&timer.body, &[Region::Every]));
    for merge in &process.merges {
        walker.expr(&merge.key, &[Region::Foldt]);
        walker.block(&merge.body, &[Region::Foldt]);
        walker.block(&merge.finish.body, &[Region::AfterFoldt]);
    }
    reject_asks_of_the_sender(process, &AskTargets::of(funs), sink);
}

/// Whether a peer waits for what a rule sends: its source sends requests that have replies, or replies to them.
fn waits_for_a_message(process: &Proc, rule: &Rule, items: &Items) -> bool {
    let channel = &process.channels[rule.source.0 as usize];
    let (Some(receives), Some(sends)) = (channel.receives, channel.sends) else { return false };
    [receives, sends].into_iter().any(|unit| items.unit(unit).facts.in_order)
}

/// Reports rules that ask the channel of their own message, which would wait for itself.
fn reject_asks_of_the_sender(process: &Proc, ask_targets: &AskTargets, sink: &mut Sink) {
    for rule in &process.rules {
        if ask_targets.channels(&rule.body).contains(&rule.source) {
            let name = &process.channels[rule.source.0 as usize].name;
            sink.push(report::ask::asks_sender(rule.span.clone(), name));
        }
    }
}

struct Walker<'a> {
    funs: &'a [Fun],
    /// Effects of functions, by number; callees come first.
    known: &'a [Origins],
    items: &'a Items,
    sink: &'a mut Sink,
    /// Effects of the current body.
    found: Origins,
}

impl Walker<'_> {
    fn block(&mut self, block: &Block, regions: &[Region]) {
        for stmt in &block.stmts {
            let value = match stmt {
                Stmt::Let(_, value) | Stmt::LetTuple(_, value) | Stmt::Expr(value) => value,
                Stmt::Assign(state, value) => {
                    self.record(Effect::SessionLocal(*state), &value.span, None, regions);
                    self.record(Effect::Assign, &value.span, None, regions);
                    value
                }
            };
            self.expr(value, regions);
        }
        block.value.iter().for_each(|value| self.expr(value, regions));
    }

    /// Reports a dictionary or counter that is used as a value.
    fn reject_whole(&mut self, value: &Expr) {
        let report = match value.kind {
            ExprKind::Dict(id) => {
                let name = &self.items.dicts[id.0 as usize].name;
                report::state::dict_as_value(value.span.clone(), name)
            }
            ExprKind::Counter(id) => {
                let name = &self.items.counters[id.0 as usize].name;
                report::state::counter_as_value(value.span.clone(), name)
            }
            _ => return,
        };
        self.sink.push(report);
    }

    fn expr(&mut self, expr: &Expr, regions: &[Region]) {
        if let ExprKind::If { cond, then, otherwise } = &expr.kind
            && is_capacity_check(cond)
        {
            self.record(Effect::Room, &cond.span, None, regions);
            self.block(then, regions);
            return otherwise.iter().for_each(|block| self.block(block, regions));
        }
        if is_capacity_check(expr) {
            self.sink.push(report::values::misplaced_capacity_check(expr.span.clone()));
        }
        if let Some(effect) = effect(expr) {
            self.record(effect, &expr.span, None, regions);
        }
        if let ExprKind::Call(fun, _) = &expr.kind
            && let Some(locations) = self.known.get(fun.0 as usize)
        {
            let own = &self.funs[fun.0 as usize].name;
            for (effect, (span, name)) in locations {
                let name = name.clone().unwrap_or_else(|| own.clone());
                self.record(*effect, &expr.span, Some((span.clone(), name)), regions);
            }
        }
        let region = match &expr.kind {
            ExprKind::For { .. }
            | ExprKind::Fold { .. }
            | ExprKind::MapList { .. }
            | ExprKind::Filter { .. }
            | ExprKind::AskAll { asks: AskAll::Over(_), .. } => Some(Region::Loop),
            ExprKind::DictUpdate { .. } => Some(Region::Update),
            _ => None,
        };
        let inner: Vec<Region> = regions.iter().copied().chain(region).collect();
        let takes_whole = matches!(expr.kind, ExprKind::Builtin(..));
        walk::children(expr, &mut |child| match child {
            Child::Expr(child) => {
                if !takes_whole {
                    self.reject_whole(child);
                }
                self.expr(child, regions);
            }
            Child::Block(child) => self.block(child, &inner),
        });
    }

    /// Records an effect of the body and reports it if the region forbids it.
    fn record(&mut self, effect: Effect, span: &Span, origin: Option<(Span, String)>, regions: &[Region]) {
        let (location, name) = match &origin {
            Some((location, name)) => (location.clone(), Some(name.clone())),
            None => (span.clone(), None),
        };
        self.found.entry(effect).or_insert((location, name));
        let Some(region) = regions.iter().rev().find(|region| region.forbids(effect)) else { return };
        let through = origin.as_ref().map(|(location, name)| (name.as_str(), location.clone()));
        let span = span.clone();
        let report = match (region, effect) {
            (Region::Loop, _) => report::ask::not_allowed(
                span,
                "in a loop",
                "ask all channels at once: `ask all backends with req`, or `ask all [x in xs: backends[index(x)] with request(x)]`",
                through,
            ),
            (Region::Except, _) => report::ask::not_allowed(
                span,
                "in an `except` handler",
                "count the event, write to a dictionary or send a message; retry where the message was sent, `ask c with m timeout 50ms else ...`",
                through,
            ),
            (Region::AfterFoldt, Effect::Ask) => report::ask::not_allowed(
                span,
                "after a `foldt`",
                "send the result: `result => reducer`",
                through,
            ),
            (Region::Foldt, Effect::SessionLocal(id)) => {
                report::state::no_session(span, self.state(id), "a `foldt`", through)
            }
            (Region::AfterFoldt, Effect::SessionLocal(id)) => {
                report::state::no_session(span, self.state(id), "code after a `foldt`", through)
            }
            (Region::Every, Effect::SessionLocal(id)) => {
                report::state::no_session(span, self.state(id), "an `every` block", through)
            }
            // The read of the `local` is reported already.
            (Region::Foldt | Region::AfterFoldt | Region::Every, Effect::Assign) => return,
            (Region::Foldt, _) => report::merge::side_effect(span, effect.verb(), through),
            _ => report::state::side_effect_in_update(span, effect.verb(), through),
        };
        self.sink.push(report);
    }

    fn state(&self, id: SessionLocalId) -> &str {
        &self.items.session_locals[id.0 as usize].name
    }
}

/// Whether an expression is a call of `room()`.
pub(crate) fn is_capacity_check(expr: &Expr) -> bool {
    matches!(expr.kind, ExprKind::Builtin(Builtin::Room, _))
}

/// The effect of an expression without its operands.
fn effect(expr: &Expr) -> Option<Effect> {
    Some(match &expr.kind {
        ExprKind::Ask { .. } | ExprKind::AskAll { .. } => Effect::Ask,
        ExprKind::Send { .. } => Effect::Send,
        ExprKind::DictGet(..)
        | ExprKind::DictHas(..)
        | ExprKind::DictPut(..)
        | ExprKind::DictUpdate { .. } => Effect::Dict,
        ExprKind::Dict(_) => Effect::Dict,
        ExprKind::SessionLocal(id) => Effect::SessionLocal(*id),
        ExprKind::Builtin(Builtin::Count | Builtin::Set | Builtin::Log, _) => Effect::Count,
        ExprKind::Channel(_) => Effect::Channel,
        _ => return None,
    })
}
