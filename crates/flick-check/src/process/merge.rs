//! `foldt`: merges an array of sorted streams into one.
//! Promises: a merge has its one form; its key type is ordered; two elements with equal keys become one of the same
//! type.
//! Source: FLICK §4.2 and Listing 3, whose `if (all_ready(...))` means that every stream has an element before one is
//! merged.

use flick_syntax::ast::{self, AstNode};

use super::{Rules, ends};
use crate::expr::{Expectation, Exprs};
use crate::hir::{Block, ChannelId, Expr, ExprKind, LocalId, Merge, Rule, Span, Stmt, Ty, UnitId};
use crate::report;

/// The parts of a merge.
struct Shape {
    /// The argument of `all_ready`.
    ready: ast::Expr,
    result: ast::Name,
    foldt: ast::FoldtExpr,
    chain: ast::ChainStmt,
}

impl Rules<'_> {
    /// `if (all_ready(channels)):` and its block.
    pub(super) fn merge(&mut self, choice: &ast::IfExpr, span: Span) {
        self.is_silent = true;
        let head = self.span(super::first_line(choice.syntax()));
        let Some(shape) = self.shape(choice, &head) else { return };
        let Some((source, unit)) = self.merged(&shape) else { return };
        self.is_silent = false;
        self.channels[source.0 as usize].is_used = true;
        if let Some(first) = self.merges.first() {
            self.sink.push(report::merge::second_merge(head.clone(), first.span.clone()));
        }
        let foldt = &shape.foldt;
        let (Some(left), Some(right), Some(element), Some(key_name)) =
            (foldt.left(), foldt.right(), foldt.element(), foldt.key_name())
        else {
            return;
        };
        let ty = Ty::Record(unit);
        let ((key, body), locals) = self.body(|exprs| {
            for name in [&left, &right] {
                let location = exprs.span(name.range());
                exprs.scope.hidden(name.text(), ty.clone(), location);
            }
            let location = exprs.span(key_name.range());
            let key_local = exprs.scope.hidden(key_name.text(), Ty::Unknown, location);
            let key = order_key(exprs, foldt, element.text());
            exprs.scope.locals[key_local.0 as usize].ty = key.ty.clone();
            for (name, local) in [(&left, LocalId(0)), (&right, LocalId(1)), (&key_name, key_local)] {
                let location = exprs.span(name.range());
                exprs.scope.bind(name.text(), local, location, exprs.sink);
            }
            (key, combine(exprs, foldt, unit))
        });
        let finish = self.finish(&shape, source, unit);
        self.merges.push(Merge {
            source,
            unit,
            locals,
            key,
            body,
            finish,
            span: Span { range: head.range, ..span },
        });
    }

    /// Destructures the statement; anything but a merge is reported.
    fn shape(&mut self, choice: &ast::IfExpr, head: &Span) -> Option<Shape> {
        let mut branches = choice.branches();
        let (first, second) = (branches.next()?, branches.next());
        let condition = first.condition().and_then(ast::Expr::unparenthesised);
        let ready = match &condition {
            Some(ast::Expr::Call(call)) => match call.callee() {
                Some(ast::Expr::Name(name)) if name.name().is_some_and(|name| name.text() == "all_ready") => {
                    call.args().next()
                }
                _ => None,
            },
            _ => None,
        };
        let Some(ready) = ready else {
            let has_foldt = choice.syntax().descendants().any(|node| ast::FoldtExpr::can_cast(node.kind()));
            self.sink.push(if has_foldt {
                report::merge::shape(
                    head.clone(),
                    "expected `all_ready` of its channels as the condition of a `foldt`",
                )
            } else {
                report::merge::statement(head.clone(), "an `if`")
            });
            return None;
        };
        if let Some(other) =
            choice.else_body().map(|body| body.range()).or(second.map(|branch| branch.range()))
        {
            let span = self.span(other);
            self.sink.push(report::merge::shape(
                span,
                "unexpected `else`: a `foldt` begins when all channels are ready",
            ));
            return None;
        }
        let stmts: Vec<ast::Stmt> = first.body()?.stmts().collect();
        let (ast::Stmt::Let(binding), rest) = stmts.split_first()? else {
            let why = "expected `let result = foldt ...` as the first line";
            let span = self.span(super::first_line(stmts.first()?.syntax()));
            self.sink.push(report::merge::shape(span, why));
            return None;
        };
        let (Some(result), Some(value)) = (binding.name(), binding.value()) else { return None };
        let ast::Expr::Foldt(foldt) = value else {
            let span = self.span(value.range());
            self.sink.push(report::merge::shape(span, "expected a `foldt`"));
            return None;
        };
        match rest {
            [ast::Stmt::Chain(chain)] => Some(Shape { ready, result, foldt, chain: chain.clone() }),
            [] => {
                let span = self.span(result.range());
                self.sink.push(report::merge::shape(
                    span,
                    "missing destination of the merged stream: `result => reducer`",
                ));
                None
            }
            [first, ..] => {
                let stray = rest.iter().find(|stmt| !matches!(stmt, ast::Stmt::Chain(_))).or(rest.get(1));
                let span = self.span(super::first_line(stray.unwrap_or(first).syntax()));
                self.sink.push(report::merge::shape(
                    span,
                    "expected one line after the `foldt`, which sends its result",
                ));
                None
            }
        }
    }

    /// The array that is merged, and the unit of its elements.
    fn merged(&mut self, shape: &Shape) -> Option<(ChannelId, UnitId)> {
        let channels = shape.foldt.channels()?;
        let source = self.array(&channels)?;
        let ready = self.array(&shape.ready)?;
        if source != ready {
            let span = self.span(shape.ready.range());
            let name = self.channels[source.0 as usize].name.clone();
            self.sink.push(report::merge::mismatched_ready(span, &name, self.span(channels.range())));
        }
        let channel = &self.channels[source.0 as usize];
        match ends(&channel.ty) {
            (Some(unit), _) => Some((source, unit)),
            (None, sends) => {
                let sends = sends.map_or("kv", |unit| self.items.unit(unit).name.as_str());
                let (name, location) = (channel.name.clone(), channel.span.clone());
                let span = self.span(channels.range());
                self.sink.push(report::channels::cannot_receive(span, &name, location, sends));
                None
            }
        }
    }

    /// Returns the array of channels of that name; anything else is reported.
    fn array(&mut self, expr: &ast::Expr) -> Option<ChannelId> {
        let span = self.span(expr.range());
        let name = match expr.clone().unparenthesised() {
            Some(ast::Expr::Name(name)) => name.name(),
            _ => None,
        };
        let Some(name) = name else {
            self.sink.push(report::merge::not_an_array(span, "an expression"));
            return None;
        };
        let Some(index) = self.channels.iter().position(|channel| channel.name == name.text()) else {
            let names: Vec<String> = self.channels.iter().map(|channel| channel.name.clone()).collect();
            let known = names.iter().map(String::as_str);
            self.sink.push(report::ask::not_a_channel_of(span, name.text(), known));
            return None;
        };
        match self.channels[index].ty {
            Ty::ChanArray { .. } => Some(ChannelId(index as u32)),
            Ty::Unknown => None,
            _ => {
                self.sink.push(report::merge::not_an_array(span, &format!("channel `{}`", name.text())));
                None
            }
        }
    }

    /// `result => reducer`.
    fn finish(&mut self, shape: &Shape, source: ChannelId, unit: UnitId) -> Rule {
        let span = self.span(shape.chain.range());
        let stages: Vec<ast::Expr> = shape.chain.stages().collect();
        let (first, rest) = stages.split_first().map_or((None, &[][..]), |(first, rest)| (Some(first), rest));
        let is_result = |first: &ast::Expr| matches!(first, ast::Expr::Name(name) if name.name().is_some_and(|name| name.text() == shape.result.text()));
        if let Some(first) = first.filter(|first| !is_result(first)) {
            let why = format!("expected the merged stream `{}`", shape.result.text());
            let span = self.span(first.range());
            self.sink.push(report::merge::shape(span, &why));
        }
        let location = self.span(shape.result.range());
        let (effect, locals) = self.body(|exprs| {
            let ty = Ty::Record(unit);
            let local = exprs.scope.hidden("", ty.clone(), location.clone());
            exprs.chain(Expr { kind: ExprKind::Local(local), ty, span: location }, rest)
        });
        let body = Block { stmts: vec![Stmt::Expr(effect)], value: None };
        Rule { source, locals, body, span }
    }
}

/// The key that elements are ordered by.
fn order_key(exprs: &mut Exprs<'_>, foldt: &ast::FoldtExpr, element: &str) -> Expr {
    let span = exprs.span(foldt.range());
    let mark = exprs.scope.open();
    let location = foldt.element().map_or(span.clone(), |name| exprs.span(name.range()));
    exprs.scope.bind(element, LocalId(0), location, exprs.sink);
    let key = exprs.opt_expr(foldt.key(), &span);
    exprs.scope.close(mark);
    if !is_ordered(&key.ty) {
        let found = exprs.items.describe(&key.ty);
        exprs.sink.push(report::merge::unordered_key(key.span.clone(), &found));
    }
    key
}

fn is_ordered(ty: &Ty) -> bool {
    match ty {
        Ty::Int { .. } | Ty::Time | Ty::Bytes { .. } | Ty::Unknown => true,
        Ty::Tuple(parts) => parts.iter().all(is_ordered),
        _ => false,
    }
}

/// The body that combines two elements with equal keys.
fn combine(exprs: &mut Exprs<'_>, foldt: &ast::FoldtExpr, unit: UnitId) -> Block {
    let Some(body) = foldt.body() else { return Block::default() };
    let ty = Ty::Record(unit);
    let (mut checked, found, end) = exprs.block(&body, Expectation::HasType(&ty));
    match checked.value.take() {
        Some(value) if matches!(found, Ty::Unknown) || found == ty => checked.value = Some(value),
        Some(value) => {
            let (name, found) = (exprs.items.unit(unit).name.clone(), exprs.items.describe(&found));
            exprs.sink.push(report::merge::wrong_element(value.span.clone(), &name, &found));
        }
        None if found == Ty::Unknown => {}
        None => {
            let name = exprs.items.unit(unit).name.clone();
            exprs.sink.push(report::merge::wrong_element(end, &name, "nothing"));
        }
    }
    checked
}
