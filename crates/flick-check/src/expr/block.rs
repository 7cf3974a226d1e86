//! Blocks, statements and chains: the bodies of functions and rules.
//! Promises: a block whose value is used has one or is reported; no value is computed without a use.

use flick_syntax::ast;

use super::{Expectation, Exprs, unknown};
use crate::hir::{Block, Builtin, Expr, ExprKind, Span, Stmt, Ty, UnitId};
use crate::report;
use crate::ty::is_open;

impl Exprs<'_> {
    /// Checks a block in its own scope. Returns it with its type and the location of its value.
    pub(crate) fn block(&mut self, block: &ast::Block, wanted: Expectation<'_>) -> (Block, Ty, Span) {
        let mark = self.scope.open();
        let checked = self.open_block(block, wanted);
        self.scope.close(mark);
        checked
    }

    /// As `block`, in the current scope.
    pub(crate) fn open_block(&mut self, block: &ast::Block, wanted: Expectation<'_>) -> (Block, Ty, Span) {
        let stmts: Vec<ast::Stmt> = block.stmts().collect();
        let end = self.span(block.range().end..block.range().end);
        let Some((last, before)) = stmts.split_last() else { return (Block::default(), Ty::Unknown, end) };
        let mut out = Block::default();
        for stmt in before {
            self.stmt(stmt, &mut out.stmts);
        }
        let value = if wanted.is_value() { self.value_stmt(last, wanted) } else { None };
        let Some(value) = value else {
            self.stmt(last, &mut out.stmts);
            // A statement that was rejected may be meant as the value.
            let ty = if wanted.is_value() && !matches!(last, ast::Stmt::Let(_) | ast::Stmt::Chain(_)) {
                Ty::Unknown
            } else {
                Ty::Nothing
            };
            return (out, ty, self.span(last.range()));
        };
        let (ty, span) = (value.ty.clone(), value.span.clone());
        if ty == Ty::Nothing {
            out.stmts.push(Stmt::Expr(value));
        } else {
            out.value = Some(Box::new(value));
        }
        (out, ty, span)
    }

    /// Checks a statement that can be the value of a block.
    fn value_stmt(&mut self, stmt: &ast::Stmt, wanted: Expectation<'_>) -> Option<Expr> {
        match stmt {
            ast::Stmt::Expr(stmt) => {
                let expr = stmt.expr()?;
                Some(self.any(&expr, wanted))
            }
            ast::Stmt::If(choice) => {
                let span = self.span(choice.range());
                Some(self.if_expr(choice, wanted, span))
            }
            ast::Stmt::Switch(switch) => {
                let span = self.span(switch.range());
                Some(self.switch(switch, wanted, span))
            }
            _ => None,
        }
    }

    fn stmt(&mut self, stmt: &ast::Stmt, out: &mut Vec<Stmt>) {
        let span = self.span(stmt.range());
        match stmt {
            ast::Stmt::Let(stmt) => {
                let value = self.opt_expr(stmt.value(), &span);
                self.let_stmt(stmt, value, out);
            }
            ast::Stmt::Expr(stmt) => {
                let Some(expr) = stmt.expr() else { return };
                let value = self.any(&expr, Expectation::NoValue);
                self.reject_unused_value(&value);
                out.push(Stmt::Expr(value));
            }
            ast::Stmt::Chain(chain) => {
                let stages: Vec<ast::Expr> = chain.stages().collect();
                let Some((first, rest)) = stages.split_first() else { return };
                let first = self.expr(first);
                out.push(Stmt::Expr(self.chain(first, rest)));
            }
            ast::Stmt::If(choice) => out.push(Stmt::Expr(self.if_expr(choice, Expectation::NoValue, span))),
            ast::Stmt::Switch(switch) => {
                out.push(Stmt::Expr(self.switch(switch, Expectation::NoValue, span)))
            }
            ast::Stmt::Rule(_) | ast::Stmt::Join(_) => {
                self.sink.push(report::channels::rule_in_function(span));
            }
            ast::Stmt::Assign(assign) => self.assign(assign, out),
            ast::Stmt::For(repeat) => {
                let repeat = self.for_stmt(repeat, span);
                out.push(Stmt::Expr(repeat));
            }
            ast::Stmt::Local(_) => self.sink.push(report::ask::only_in_process(span, "a `local`")),
            // The parser has reported it.
            ast::Stmt::Global(_) => {}
            ast::Stmt::Except(_) | ast::Stmt::Every(_) => {
                self.sink.push(report::ask::only_in_process(span, "a handler of an event"));
            }
            ast::Stmt::Ellipsis(_) => {
                self.sink.push(report::types::no_value(span, "`...`"));
            }
        }
    }

    fn let_stmt(&mut self, stmt: &ast::LetStmt, value: Expr, out: &mut Vec<Stmt>) {
        let mut value = value;
        if is_open(&value.ty) {
            // A type that is open for another reason was reported.
            if crate::walk::any(&value, &mut |part| is_open_literal(part)) {
                self.sink.push(report::values::open_type(value.span.clone()));
            }
            value.ty = Ty::Unknown;
        } else if matches!(value.ty, Ty::Dict(_) | Ty::Counter(_)) {
            let found = self.items.describe(&value.ty);
            self.sink.push(report::values::not_storable(value.span.clone(), &found, "a variable"));
            value.ty = Ty::Unknown;
        }
        let Some(binding) = stmt.binding() else { return };
        let location = self.span(binding.range());
        match binding.kind() {
            Some(ast::BindingKind::Name(name)) => {
                let local = self.scope.declare(name.text(), value.ty.clone(), location, self.sink);
                if let ExprKind::Builtin(Builtin::Len, args) = &value.kind {
                    self.lens.extend(args.iter().cloned().map(|of| (local, of)));
                }
                out.push(Stmt::Let(local, value));
            }
            Some(ast::BindingKind::Parts(parts)) => self.let_parts(&parts, value, &location, out),
            Some(ast::BindingKind::Nothing) => {
                let local = self.scope.declare("_", value.ty.clone(), location, self.sink);
                out.push(Stmt::Let(local, value));
            }
            None => {}
        }
    }

    /// Reports an unused value.
    fn reject_unused_value(&mut self, value: &Expr) {
        // The result of `remove` or `update` may be ignored.
        let is_change =
            matches!(value.kind, ExprKind::Builtin(Builtin::Remove, _) | ExprKind::DictUpdate { .. });
        if matches!(value.ty, Ty::Nothing | Ty::Unknown) || is_change {
            return;
        }
        let what = match &value.kind {
            ExprKind::Call(fun, _) => format!("the result of `{}`", self.items.fun(*fun).name),
            _ => self.items.describe(&value.ty),
        };
        self.sink.push(report::types::unused_value(value.span.clone(), &what));
    }

    /// `first => stage => ...`: passes a value through functions to a channel.
    pub(crate) fn chain(&mut self, first: Expr, stages: &[ast::Expr]) -> Expr {
        let mut current = first;
        for stage in stages {
            if matches!(current.kind, ExprKind::Send { .. }) {
                let span = self.span(stage.range());
                self.sink.push(report::channels::after_a_send(span));
                return current;
            }
            if current.ty == Ty::Nothing {
                self.sink.push(report::types::no_value(current.span.clone(), "this stage"));
                return current;
            }
            current = self.stage(current, stage);
        }
        if !matches!(current.ty, Ty::Nothing | Ty::Unknown) {
            let name = match &current.kind {
                ExprKind::Call(fun, _) => self.items.fun(*fun).name.clone(),
                _ => "this".to_owned(),
            };
            let found = self.items.describe(&current.ty);
            self.sink.push(report::channels::result_dropped(current.span.clone(), &name, &found));
        }
        current
    }

    fn stage(&mut self, piped: Expr, stage: &ast::Expr) -> Expr {
        let span = self.span(stage.range());
        if let ast::Expr::Call(call) = stage {
            let called = self.call(call, Some(piped), Expectation::Value, span);
            return super::value::piped_first(self, called);
        }
        if let ast::Expr::Name(name) = stage
            && let Some(name) = name.name()
            && let Some(fun) = self.items.fun_named(self.file, None, name.text())
            && self.scope.resolve(name.text()).is_none()
        {
            let help = format!("call it: `=> {}(...)`; the message becomes its last argument", name.text());
            self.sink.push(report::names::wrong_kind(
                span.clone(),
                name.text(),
                "function",
                "a channel",
                &help,
            ));
            let mut result = unknown(span);
            if self.items.fun(fun).result == Ty::Nothing {
                result.ty = Ty::Nothing;
            }
            return result;
        }
        let channel = self.expr(stage);
        self.send(piped, channel, span)
    }

    /// Checks a send.
    pub(crate) fn send(&mut self, message: Expr, channel: Expr, target: Span) -> Expr {
        let span = Span {
            file: message.span.file,
            range: message.span.range.start.min(target.range.start)..target.range.end,
        };
        match &channel.ty {
            Ty::Chan { sends, receives } => match (sends, &message.ty) {
                (None, _) => {
                    let (name, decl) = self.channel_location(&channel);
                    let receives = receives.map_or("cmd", |unit| self.items.unit(unit).name.as_str());
                    let is_element = matches!(channel.kind, ExprKind::Index(..));
                    self.sink.push(report::channels::cannot_send(target, &name, decl, receives, is_element));
                }
                (Some(_), Ty::Unknown) => {}
                (Some(unit), Ty::Record(sent)) if unit == sent => {}
                (Some(unit), Ty::Option(inner)) if **inner == Ty::Record(*unit) => {
                    let unit = &self.items.unit(*unit).name;
                    self.sink.push(report::ask::reply_may_be_missing(message.span.clone(), unit));
                }
                (Some(unit), Ty::Record(sent)) if self.explained_by_reversal(*unit, *sent) => {}
                (Some(unit), found) => {
                    let (name, decl) = self.channel_location(&channel);
                    let (wanted, found) = (self.items.unit(*unit).name.clone(), self.items.describe(found));
                    self.sink.push(report::channels::wrong_message(
                        message.span.clone(),
                        &name,
                        &wanted,
                        &found,
                        decl,
                    ));
                }
            },
            Ty::ChanArray { .. } => {
                let (name, _) = self.channel_location(&channel);
                self.sink.push(report::channels::missing_index(target, &name));
            }
            Ty::Unknown => {}
            other => {
                let found = self.items.describe(other);
                self.sink.push(report::channels::not_a_target(target, &found));
            }
        }
        let kind = ExprKind::Send { message: Box::new(message), channel: Box::new(channel) };
        Expr { kind, ty: Ty::Nothing, span }
    }

    /// Whether a message stands for its request or reply because a channel of the process is reversed. Reports that.
    pub(super) fn explained_by_reversal(&mut self, a: UnitId, b: UnitId) -> bool {
        let replies = |unit: UnitId| self.items.unit(unit).facts.replies;
        let is_pair = replies(a) == Some(b) || replies(b) == Some(a);
        let Some(reversed) = self.items.reversed.as_ref().filter(|_| is_pair) else { return false };
        self.sink.push(reversed.clone());
        true
    }

    /// Name and location of a channel, for diagnostics.
    pub(crate) fn channel_location(&self, channel: &Expr) -> (String, Span) {
        match &channel.kind {
            ExprKind::Local(id) => {
                let local = &self.scope.locals[id.0 as usize];
                (local.name.clone(), local.span.clone())
            }
            ExprKind::Channel(id) => {
                let channel = &self.scope.channels[id.0 as usize];
                (channel.name.clone(), channel.span.clone())
            }
            ExprKind::Index(base, _) => self.channel_location(base),
            _ => ("this channel".to_owned(), channel.span.clone()),
        }
    }
}

/// Whether an expression is a `none` or `[]` of open type.
fn is_open_literal(expr: &Expr) -> bool {
    let is_literal = match &expr.kind {
        ExprKind::None => true,
        ExprKind::List(items) => items.is_empty(),
        _ => false,
    };
    is_literal && is_open(&expr.ty)
}
