//! The process: its channels and rules.
//! Promises: a rule starts at a channel that receives; every channel has at most one rule.

mod events;
mod merge;

use std::collections::BTreeSet;

use flick_syntax::SyntaxNode;
use flick_syntax::ast::{self, AstNode};

use crate::ask_targets::AskTargets;
use crate::diagnostic::Sink;
use crate::expr::Exprs;
use crate::hir::{
    Block, Channel, ChannelId, Expr, ExprKind, Handler, Local, Merge, Proc, Rule, Span, Stmt, Timer, Ty,
    UnitId,
};
use crate::items::{InFile, Items};
use crate::load::span_of;
use crate::scope::{Scope, ScopeChannel};
use crate::{report, types};

/// Checks the process of the program. `None` if it has no name.
pub(crate) fn check(
    decl: &InFile<ast::ProcDecl>,
    items: &Items,
    ask_targets: &AskTargets,
    sink: &mut Sink,
) -> Option<Proc> {
    let name = decl.node.name()?;
    let span = span_of(decl.file, name.range());
    let channels = channels(decl, items, sink);
    if !channels.iter().any(|channel| ends(&channel.ty).0.is_some() || channel.ty == Ty::Unknown) {
        sink.push(report::channels::no_channels(span, name.text()));
        return None;
    }
    let mut rules = Rules {
        decl,
        items,
        sink,
        channels,
        out: Vec::new(),
        merges: Vec::new(),
        handlers: Vec::new(),
        timers: Vec::new(),
        locations: Vec::new(),
        is_silent: false,
    };
    let stmts: Vec<ast::Stmt> = decl.node.body().into_iter().flat_map(|body| body.stmts()).collect();
    for stmt in &stmts {
        rules.stmt(stmt);
    }
    let Rules { channels, out, merges, handlers, timers, is_silent, .. } = rules;
    if let (Some(merge), Some(rule)) = (merges.first(), out.first()) {
        sink.push(report::merge::rule_with_a_merge(rule.span.clone(), merge.span.clone()));
    }
    let is_other = |stmt: &ast::Stmt| {
        matches!(
            stmt,
            ast::Stmt::Local(_) | ast::Stmt::Global(_) | ast::Stmt::Except(_) | ast::Stmt::Every(_)
        )
    };
    if stmts.iter().all(is_other) && decl.node.body().is_some() {
        sink.push(report::channels::no_rules(span.clone(), name.text()));
    }
    let mut process = Proc {
        name: name.text().to_owned(),
        channels: Vec::new(),
        rules: out,
        merges,
        handlers,
        timers,
        span,
    };
    if let Some(reversed) = items.reversed.as_ref().filter(|_| is_mirrored(&channels, items)) {
        sink.push(reversed.clone());
    }
    if !is_silent {
        warn_unused(&channels, &process, ask_targets, items, sink);
    }
    process.channels = channels.into_iter().map(as_channel).collect();
    Some(process)
}

/// Remembers a channel that has the directions of the other side, so that what follows from it is reported once.
pub(crate) fn note_reversed(decl: &InFile<ast::ProcDecl>, items: &mut Items) {
    let reversed = decl.node.params().find_map(|param| {
        // What it is wrong with is reported later.
        let ty = types::param(items, &param, decl.file, &mut Sink::default())?;
        let (Some(receives), Some(sends)) = ends(&ty.ty) else { return None };
        let is_array = matches!(ty.ty, Ty::ChanArray { .. });
        let is_reversed =
            peer(&ty.name, &ty.ty).is_some_and(|role| end_of(&ty.ty, items) == Some(role.other()));
        is_reversed.then(|| {
            let name = |unit: UnitId| items.unit(unit).name.as_str();
            report::structured::reversed(ty.span, &ty.name, (name(receives), name(sends)), is_array)
        })
    });
    items.reversed = reversed;
}

/// The peer at the other end of a channel.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Peer {
    Client,
    Backend,
}

impl Peer {
    fn other(self) -> Peer {
        match self {
            Peer::Client => Peer::Backend,
            Peer::Backend => Peer::Client,
        }
    }
}

/// The peer that a channel is declared for. `None` if neither its name nor its type says so.
fn peer(name: &str, ty: &Ty) -> Option<Peer> {
    match ty {
        Ty::ChanArray { .. } => Some(Peer::Backend),
        _ => name.starts_with("client").then_some(Peer::Client),
    }
}

/// The peer that the directions of a channel fit. `None` unless they are a request and its reply of another unit.
fn end_of(ty: &Ty, items: &Items) -> Option<Peer> {
    let (Some(receives), Some(sends)) = ends(ty) else { return None };
    let is_pair =
        |request: UnitId, reply: UnitId| request != reply && items.unit(request).facts.replies == Some(reply);
    match (is_pair(receives, sends), is_pair(sends, receives)) {
        (true, false) => Some(Peer::Client),
        (false, true) => Some(Peer::Backend),
        _ => None,
    }
}

/// Whether the channels of a process are those of both peers, each with the directions of the other one. Nothing else
/// fails in such a process: its messages flow, in the wrong direction.
fn is_mirrored(channels: &[ScopeChannel], items: &Items) -> bool {
    let found = |wanted: Peer| channels.iter().any(|channel| end_of(&channel.ty, items) == Some(wanted));
    let is_right = |channel: &ScopeChannel| {
        peer(&channel.name, &channel.ty).is_some_and(|role| end_of(&channel.ty, items) == Some(role))
    };
    found(Peer::Client) && found(Peer::Backend) && !channels.iter().any(is_right)
}

/// A channel of the signature; the fields that are read of it are found later.
fn as_channel(channel: crate::scope::ScopeChannel) -> Channel {
    let (receives, sends) = ends(&channel.ty);
    Channel {
        name: channel.name,
        is_array: matches!(channel.ty, Ty::ChanArray { .. }),
        receives,
        sends,
        view: Vec::new(),
        keys: Vec::new(),
        whole: false,
        span: channel.span,
    }
}

fn ends(ty: &Ty) -> (Option<UnitId>, Option<UnitId>) {
    match ty {
        Ty::Chan { receives, sends } | Ty::ChanArray { receives, sends } => (*receives, *sends),
        _ => (None, None),
    }
}

fn channels(decl: &InFile<ast::ProcDecl>, items: &Items, sink: &mut Sink) -> Vec<ScopeChannel> {
    let mut out: Vec<ScopeChannel> = Vec::new();
    for param in decl.node.params() {
        let is_channel = param.channel().is_some();
        let Some(mut param) = types::param(items, &param, decl.file, sink) else { continue };
        if !is_channel {
            sink.push(report::channels::value_parameter(param.span.clone(), &param.name));
            param.ty = Ty::Unknown;
        }
        if matches!(
            param.ty,
            Ty::Chan { receives: None, sends: None } | Ty::ChanArray { receives: None, sends: None }
        ) {
            sink.push(report::channels::no_direction(param.span.clone(), &param.name));
            param.ty = Ty::Unknown;
        }
        if let Some((_, first)) =
            items.state_names_in(decl.file).into_iter().find(|(known, _)| *known == param.name)
        {
            sink.push(report::names::shadowed(param.span.clone(), &param.name, first));
        }
        if let Some(first) = out.iter().find(|known| known.name == param.name) {
            sink.push(report::names::duplicate(param.span, "channel", &param.name, first.span.clone()));
            continue;
        }
        out.push(ScopeChannel { name: param.name, ty: param.ty, span: param.span, is_used: false });
    }
    out
}

fn warn_unused(
    channels: &[ScopeChannel],
    process: &Proc,
    ask_targets: &AskTargets,
    items: &Items,
    sink: &mut Sink,
) {
    let asking: BTreeSet<ChannelId> = bodies(process).flat_map(|body| ask_targets.channels(body)).collect();
    for (index, channel) in channels.iter().enumerate() {
        if channel.ty == Ty::Unknown {
            continue;
        }
        let id = ChannelId(index as u32);
        let is_merged = process.merges.iter().any(|merge| merge.source == id);
        let is_read = process.rules.iter().any(|rule| rule.source == id) || is_merged || asking.contains(&id);
        if !channel.is_used && !is_read {
            sink.push(report::channels::unused_channel(channel.span.clone(), &channel.name));
        } else if let ((Some(_), sends), false) = (ends(&channel.ty), is_read) {
            let declared = sends.map(|sends| {
                let ty = format!("-/{}", items.unit(sends).name);
                if matches!(channel.ty, Ty::ChanArray { .. }) { format!("[{ty}]") } else { ty }
            });
            let (span, name) = (channel.span.clone(), &channel.name);
            sink.push(report::channels::never_read(span, name, declared.as_deref()));
        }
    }
}

/// All bodies of a process.
pub(crate) fn bodies(process: &Proc) -> impl Iterator<Item = &Block> {
    let rules = process.rules.iter().map(|rule| &rule.body);
    let merges = process.merges.iter().flat_map(|merge| [&merge.body, &merge.finish.body]);
    let handlers = process.handlers.iter().map(|handler| &handler.body);
    let timers = process.timers.iter().map(|timer| &timer.body);
    rules.chain(merges).chain(handlers).chain(timers)
}

/// The first line of a statement, for labels.
fn first_line(stmt: &SyntaxNode) -> std::ops::Range<usize> {
    let text = stmt.text().to_string();
    let start = ast::range_of(stmt).start;
    start..start + text.lines().next().map_or(0, str::len)
}

struct Rules<'a> {
    decl: &'a InFile<ast::ProcDecl>,
    items: &'a Items,
    sink: &'a mut Sink,
    channels: Vec<ScopeChannel>,
    out: Vec<Rule>,
    merges: Vec<Merge>,
    handlers: Vec<Handler>,
    timers: Vec<Timer>,
    /// Source and location of each rule so far.
    locations: Vec<(ChannelId, Span)>,
    /// Whether some statement was rejected, so that a channel that seems unused may be used.
    is_silent: bool,
}

impl Rules<'_> {
    fn span(&self, range: std::ops::Range<usize>) -> Span {
        span_of(self.decl.file, range)
    }

    fn stmt(&mut self, stmt: &ast::Stmt) {
        let span = self.span(stmt.range());
        match stmt {
            ast::Stmt::Rule(rule) => match rule.stmt() {
                Some(inner) => self.rule(&inner, span),
                None => self.is_silent = true,
            },
            ast::Stmt::Chain(_) | ast::Stmt::Join(_) => self.rule(stmt, span),
            ast::Stmt::Ellipsis(_) => {
                self.is_silent = true;
                let name = self.decl.node.name();
                let text = name.as_ref().map_or("", |name| name.text());
                self.sink.push(report::channels::no_rules(span, text));
            }
            // Entered before all bodies, because functions use them.
            ast::Stmt::Local(_) => {}
            // The parser has reported it.
            ast::Stmt::Global(_) => self.is_silent = true,
            ast::Stmt::Except(except) => self.except(except, span),
            ast::Stmt::Every(every) => self.every(every, span),
            ast::Stmt::If(choice) => self.merge(choice, span),
            other => {
                self.is_silent = true;
                let span = self.span(first_line(other.syntax()));
                let what = match other {
                    ast::Stmt::Let(_) => "a `let`",
                    ast::Stmt::Switch(_) => "a `switch`",
                    ast::Stmt::For(_) => "a `for`",
                    ast::Stmt::Assign(_) => "a `:=`",
                    _ => "another statement",
                };
                self.sink.push(report::merge::statement(span, what));
            }
        }
    }

    fn rule(&mut self, stmt: &ast::Stmt, span: Span) {
        match stmt {
            ast::Stmt::Chain(chain) => {
                let stages: Vec<ast::Expr> = chain.stages().collect();
                let Some((first, rest)) = stages.split_first() else { return };
                if let Some((source, unit, location)) = self.source(first) {
                    self.enter(source, unit, location, span, |exprs, message| exprs.chain(message, rest));
                }
            }
            ast::Stmt::Join(join) => self.join(join, span),
            ast::Stmt::Expr(_) => {
                self.is_silent = true;
                self.sink.push(report::channels::no_destination(span));
            }
            _ => {
                self.is_silent = true;
                let help = "write a chain, `| client => f(backends)`, and put the rest into the function";
                self.sink.push(report::channels::no_destination(span).help(help));
            }
        }
    }

    /// Returns the channel that a rule starts with; anything else is reported.
    fn source(&mut self, stage: &ast::Expr) -> Option<(ChannelId, UnitId, Span)> {
        let span = self.span(stage.range());
        let names: Vec<String> = self.channels.iter().map(|channel| channel.name.clone()).collect();
        let known = names.iter().map(String::as_str);
        let name = match stage {
            ast::Expr::Name(name) => name.name(),
            ast::Expr::Index(_) => {
                let report = report::channels::not_a_source(span.clone(), "an element of an array", known);
                self.sink.push(
                    report.help(
                        "write the name of the array: one rule receives the messages of all its channels",
                    ),
                );
                self.is_silent = true;
                None
            }
            other => {
                let found = if matches!(other, ast::Expr::Call(_)) { "a call" } else { "a value" };
                self.sink.push(report::channels::not_a_source(span, found, known));
                self.is_silent = true;
                return None;
            }
        }?;
        let Some(index) = names.iter().position(|known| known == name.text()) else {
            self.is_silent = true;
            self.sink.push(report::names::unknown_value(span, name.text(), names.iter().map(String::as_str)));
            return None;
        };
        let channel = &mut self.channels[index];
        channel.is_used = true;
        let (receives, sends) = ends(&channel.ty);
        let Some(unit) = receives else {
            if channel.ty != Ty::Unknown {
                let sends = sends.map_or("cmd", |unit| self.items.unit(unit).name.as_str());
                self.sink.push(report::channels::cannot_receive(
                    span,
                    &channel.name,
                    channel.span.clone(),
                    sends,
                ));
            }
            return None;
        };
        Some((ChannelId(index as u32), unit, span))
    }

    fn enter(
        &mut self,
        source: ChannelId,
        unit: UnitId,
        location: Span,
        span: Span,
        check: impl FnOnce(&mut Exprs<'_>, Expr) -> Expr,
    ) {
        if let Some((_, first)) = self.locations.iter().find(|(known, _)| *known == source) {
            let name = &self.channels[source.0 as usize].name;
            self.sink.push(report::channels::second_rule(location.clone(), name, first.clone()));
        }
        self.locations.push((source, location.clone()));
        let (effect, locals) = self.body(|exprs| {
            let ty = Ty::Record(unit);
            let local = exprs.scope.hidden("", ty.clone(), location.clone());
            check(exprs, Expr { kind: ExprKind::Local(local), ty, span: location })
        });
        let body = Block { stmts: vec![Stmt::Expr(effect)], value: None };
        self.out.push(Rule { source, locals, body, span });
    }

    /// Checks a body in which the channels are in scope; returns it with its locals.
    fn body<T>(&mut self, check: impl FnOnce(&mut Exprs<'_>) -> T) -> (T, Vec<Local>) {
        let scope = Scope::of_process(std::mem::take(&mut self.channels));
        let mut exprs = Exprs::new(self.items, self.sink, self.decl.file, scope);
        let checked = check(&mut exprs);
        let unused: Vec<(String, Span)> =
            exprs.scope.unused().map(|(_, local)| (local.name.clone(), local.span.clone())).collect();
        for (name, span) in unused {
            exprs.sink.push(report::names::unused_let(span, &name));
        }
        let Scope { locals, channels, .. } = exprs.scope;
        self.channels = channels;
        (checked, locals)
    }

    /// `a <=> b`: two rules.
    fn join(&mut self, join: &ast::JoinStmt, span: Span) {
        let (Some(left), Some(right)) = (join.left(), join.right()) else { return };
        for side in [&left, &right] {
            let is_single = match side {
                ast::Expr::Name(name) => name.name().is_some_and(|name| {
                    self.channels.iter().any(|channel| {
                        channel.name == name.text() && !matches!(channel.ty, Ty::ChanArray { .. })
                    }) || !self.channels.iter().any(|channel| channel.name == name.text())
                }),
                _ => false,
            };
            if !is_single {
                self.is_silent = true;
                let span = self.span(side.range());
                self.sink.push(report::channels::join_directions(span));
                return;
            }
        }
        for (from, to) in [(&left, &right), (&right, &left)] {
            if let Some((source, unit, location)) = self.source(from) {
                self.enter(source, unit, location, span.clone(), |exprs, message| {
                    exprs.chain(message, std::slice::from_ref(to))
                });
            }
            // Both directions of a join usually fail for the same reason.
            if self.sink.has("E0503", &span) {
                return;
            }
        }
    }
}
