//! What bodies do where they must not: ask inside a repetition, send inside an `update`, name a session where there is none.
//! Promises: what a function does is known with everything it calls; a mistake is reported where the forbidden place
//! begins to do it, with the line that does it in the end.

use std::collections::BTreeMap;

use crate::asked::Asked;
use crate::diagnostic::Sink;
use crate::hir::{AskAll, Block, Builtin, Expr, ExprKind, Fun, Proc, Span, StateId, Stmt};
use crate::items::Items;
use crate::report;
use crate::walk::{self, Child};

/// Something that not every place may do.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Deed {
    Ask,
    Send,
    /// Looks into a dictionary or changes it.
    Dict,
    /// Names a `local`.
    State(StateId),
    /// Changes a `local`.
    Assign,
    /// Changes a counter or writes to the log.
    Count,
    /// Looks at a channel.
    Channel,
    /// Asks whether there is room.
    Room,
}

impl Deed {
    /// "the body of an `update` ..."
    fn verb(self) -> &'static str {
        match self {
            Deed::Ask => "asks",
            Deed::Send => "sends a message",
            Deed::Dict => "uses a dictionary",
            Deed::State(_) => "uses a `local`",
            Deed::Assign => "changes a `local`",
            Deed::Count => "counts or logs",
            Deed::Channel => "looks at a channel",
            Deed::Room => "asks for room",
        }
    }
}

/// Where a deed is done: the place in the function that does it, and that function's name.
type Places = BTreeMap<Deed, (Span, Option<String>)>;

/// A place that forbids something.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Zone {
    /// The body of a repetition.
    Loop,
    Update,
    Foldt,
    /// What happens with the result of a merge.
    Finish,
    Except,
    Every,
}

impl Zone {
    fn forbids(self, deed: Deed) -> bool {
        match self {
            Zone::Loop | Zone::Except => deed == Deed::Ask,
            // Reading a `local` changes nothing, and nothing changes it meanwhile.
            Zone::Update => !matches!(deed, Deed::State(_)),
            Zone::Foldt => true,
            Zone::Finish => matches!(deed, Deed::Ask | Deed::State(_) | Deed::Assign),
            Zone::Every => matches!(deed, Deed::State(_) | Deed::Assign),
        }
    }
}

/// Reports every body that does what its place forbids.
pub(crate) fn check(funs: &[Fun], process: Option<&Proc>, items: &Items, sink: &mut Sink) {
    let mut known: Vec<Places> = Vec::new();
    for fun in funs {
        let mut walker = Walker { funs, known: &known, items, sink, found: Places::new() };
        walker.block(&fun.body, &[]);
        let found = walker.found;
        known.push(found);
    }
    let Some(process) = process else { return };
    let mut walker = Walker { funs, known: &known, items, sink, found: Places::new() };
    process.rules.iter().for_each(|rule| walker.block(&rule.body, &[]));
    process.handlers.iter().for_each(|handler| walker.block(&handler.body, &[Zone::Except]));
    process.timers.iter().for_each(|timer| walker.block(&timer.body, &[Zone::Every]));
    for merge in &process.merges {
        walker.expr(&merge.key, &[Zone::Foldt]);
        walker.block(&merge.body, &[Zone::Foldt]);
        walker.block(&merge.finish.body, &[Zone::Finish]);
    }
    asks_of_the_asker(process, &Asked::of(funs), sink);
}

/// A rule that asks where its message came from would wait for itself.
fn asks_of_the_asker(process: &Proc, asked: &Asked, sink: &mut Sink) {
    for rule in &process.rules {
        if asked.channels(&rule.body).contains(&rule.source) {
            let name = &process.channels[rule.source.0 as usize].name;
            sink.push(report::asks::asks_itself(rule.span.clone(), name));
        }
    }
}

struct Walker<'a> {
    funs: &'a [Fun],
    /// What functions do, by number; those that are called come first.
    known: &'a [Places],
    items: &'a Items,
    sink: &'a mut Sink,
    /// What the body at hand does.
    found: Places,
}

impl Walker<'_> {
    fn block(&mut self, block: &Block, zones: &[Zone]) {
        for stmt in &block.stmts {
            let value = match stmt {
                Stmt::Let(_, value) | Stmt::LetTuple(_, value) | Stmt::Expr(value) => value,
                Stmt::Assign(state, value) => {
                    self.does(Deed::State(*state), &value.span, None, zones);
                    self.does(Deed::Assign, &value.span, None, zones);
                    value
                }
            };
            self.expr(value, zones);
        }
        block.value.iter().for_each(|value| self.expr(value, zones));
    }

    /// Reports a dictionary or counter where a value belongs.
    fn refuse_whole(&mut self, value: &Expr) {
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

    fn expr(&mut self, expr: &Expr, zones: &[Zone]) {
        if let ExprKind::If { cond, then, otherwise } = &expr.kind
            && is_room(cond)
        {
            self.does(Deed::Room, &cond.span, None, zones);
            self.block(then, zones);
            return otherwise.iter().for_each(|block| self.block(block, zones));
        }
        if is_room(expr) {
            self.sink.push(report::values::misplaced_room(expr.span.clone()));
        }
        if let Some(deed) = deed(expr) {
            self.does(deed, &expr.span, None, zones);
        }
        if let ExprKind::Call(fun, _) = &expr.kind
            && let Some(places) = self.known.get(fun.0 as usize)
        {
            let own = &self.funs[fun.0 as usize].name;
            for (deed, (span, name)) in places {
                let name = name.clone().unwrap_or_else(|| own.clone());
                self.does(*deed, &expr.span, Some((span.clone(), name)), zones);
            }
        }
        let zone = match &expr.kind {
            ExprKind::For { .. }
            | ExprKind::Fold { .. }
            | ExprKind::MapList { .. }
            | ExprKind::Filter { .. }
            | ExprKind::AskAll { asks: AskAll::Over(_), .. } => Some(Zone::Loop),
            ExprKind::DictUpdate { .. } => Some(Zone::Update),
            _ => None,
        };
        let inner: Vec<Zone> = zones.iter().copied().chain(zone).collect();
        let takes_whole = matches!(expr.kind, ExprKind::Builtin(..));
        walk::children(expr, &mut |child| match child {
            Child::Expr(child) => {
                if !takes_whole {
                    self.refuse_whole(child);
                }
                self.expr(child, zones);
            }
            Child::Block(child) => self.block(child, &inner),
        });
    }

    /// Notes a deed of the body and reports it if its place forbids it.
    fn does(&mut self, deed: Deed, span: &Span, origin: Option<(Span, String)>, zones: &[Zone]) {
        let (place, name) = match &origin {
            Some((place, name)) => (place.clone(), Some(name.clone())),
            None => (span.clone(), None),
        };
        self.found.entry(deed).or_insert((place, name));
        let Some(zone) = zones.iter().rev().find(|zone| zone.forbids(deed)) else { return };
        let through = origin.as_ref().map(|(place, name)| (name.as_str(), place.clone()));
        let span = span.clone();
        let report = match (zone, deed) {
            (Zone::Loop, _) => report::asks::misplaced(
                span,
                "inside a repetition",
                "ask all at once: `ask all backends with req`, or `ask all [x in xs: backends[place(x)] with part(x)]`",
                through,
            ),
            (Zone::Except, _) => report::asks::misplaced(
                span,
                "inside an `except`",
                "an event is handled at once: count it, note it in a dictionary, or send something; a retry belongs where the message was sent, `ask c with m timeout 50ms else ...`",
                through,
            ),
            (Zone::Finish, Deed::Ask) => report::asks::misplaced(
                span,
                "behind a `foldt`",
                "send the result on: `result => reducer`",
                through,
            ),
            (Zone::Foldt, Deed::State(id)) => {
                report::state::no_session(span, self.state(id), "a `foldt`", through)
            }
            (Zone::Finish, Deed::State(id)) => {
                report::state::no_session(span, self.state(id), "the result of a `foldt`", through)
            }
            (Zone::Every, Deed::State(id)) => {
                report::state::no_session(span, self.state(id), "what runs at intervals", through)
            }
            // The `local` itself is reported.
            (Zone::Foldt | Zone::Finish | Zone::Every, Deed::Assign) => return,
            (Zone::Foldt, _) => report::merges::does(span, deed.verb(), through),
            _ => report::state::update_does(span, deed.verb(), through),
        };
        self.sink.push(report);
    }

    fn state(&self, id: StateId) -> &str {
        &self.items.states[id.0 as usize].name
    }
}

/// Whether an expression asks for room.
pub(crate) fn is_room(expr: &Expr) -> bool {
    matches!(expr.kind, ExprKind::Builtin(Builtin::Room, _))
}

/// What an expression does itself.
fn deed(expr: &Expr) -> Option<Deed> {
    Some(match &expr.kind {
        ExprKind::Ask { .. } | ExprKind::AskAll { .. } => Deed::Ask,
        ExprKind::Send { .. } => Deed::Send,
        ExprKind::DictGet(..)
        | ExprKind::DictHas(..)
        | ExprKind::DictPut(..)
        | ExprKind::DictUpdate { .. } => Deed::Dict,
        ExprKind::Dict(_) => Deed::Dict,
        ExprKind::State(id) => Deed::State(*id),
        ExprKind::Builtin(Builtin::Count | Builtin::Set | Builtin::Log, _) => Deed::Count,
        ExprKind::Channel(_) => Deed::Channel,
        _ => return None,
    })
}
