//! State in bodies: entries of dictionaries, `:=`, `update`.
//! Promises: only a `local` and an entry of a dictionary can be assigned, and only values of their type.

use flick_syntax::ast::{self, AstNode};

use super::{Expectation, Exprs, builtin_named, unknown};
use crate::hir::{DictId, Expr, ExprKind, Span, Stmt, Ty};
use crate::items::{GlobalItem, Items};
use crate::report;

impl Exprs<'_> {
    /// Resolves the name of a `global` or `local`. A library cannot use the locals of a program.
    pub(crate) fn resolve_state(&mut self, text: &str, span: &Span) -> Option<Expr> {
        let (kind, ty) = match self.items.globals.get(text) {
            Some((GlobalItem::Dict(id), _)) => (ExprKind::Dict(*id), Ty::Dict(*id)),
            Some((GlobalItem::Counter(id), _)) => (ExprKind::Counter(*id), Ty::Counter(*id)),
            Some((GlobalItem::Broken, _)) => return Some(unknown(span.clone())),
            None => {
                let id = *self.items.state_names.get(text).filter(|_| self.file == 0)?;
                (ExprKind::SessionLocal(id), self.items.session_locals[id.0 as usize].ty.clone())
            }
        };
        Some(Expr { kind, ty, span: span.clone() })
    }

    /// `d[key]` of a dictionary.
    pub(crate) fn dict_get(&mut self, dict: DictId, key: Option<ast::Expr>, span: Span) -> Expr {
        let key = self.dict_key(dict, key, &span);
        let ty = match &self.items.dicts[dict.0 as usize].value {
            Ty::Unknown => Ty::Unknown,
            value => Ty::Option(Box::new(value.clone())),
        };
        Expr { kind: ExprKind::DictGet(dict, Box::new(key)), ty, span }
    }

    /// Checks a key of that dictionary.
    pub(crate) fn dict_key(&mut self, dict: DictId, key: Option<ast::Expr>, around: &Span) -> Expr {
        let Some(key) = key else { return unknown(around.clone()) };
        let wanted = self.items.dicts[dict.0 as usize].key.clone();
        let key = self.expr_like(&key, &wanted);
        self.coerced_key(dict, key)
    }

    /// As `dict_key`, for a checked expression.
    pub(crate) fn coerced_key(&mut self, dict: DictId, key: Expr) -> Expr {
        let declared = &self.items.dicts[dict.0 as usize];
        let (wanted, target) = (declared.key.clone(), format!("a key of `{}`", declared.name));
        let why = declared.span.clone();
        self.coerce(key, &wanted, &target, Some(why))
    }

    /// `name := value`, `d[key] := value`.
    pub(crate) fn assign(&mut self, assign: &ast::AssignStmt, out: &mut Vec<Stmt>) {
        let span = self.span(assign.range());
        let Some(target) = assign.target() else { return };
        let target_span = self.span(target.range());
        match &target {
            ast::Expr::Name(name) => {
                let Some(name) = name.name() else { return };
                let location = self.assigned_name(name.text(), target_span);
                self.assign_state(location, assign.value(), out);
            }
            ast::Expr::Index(index) => {
                let base = self.opt_expr(index.base(), &target_span);
                match base.ty {
                    Ty::Dict(dict) => {
                        let key = self.dict_key(dict, index.index(), &target_span);
                        let value = self.dict_value(dict, assign.value(), &span);
                        let kind = ExprKind::DictPut(dict, Box::new(key), Box::new(value));
                        out.push(Stmt::Expr(Expr { kind, ty: Ty::Nothing, span }));
                    }
                    Ty::Unknown => {}
                    Ty::ChanArray { .. } => {
                        let name = self.text_of(&base);
                        let help = format!("send to it: `message => {name}[i]`");
                        let is = "an array of channels";
                        self.sink.push(report::state::not_assignable(target_span, &name, is, &help));
                    }
                    _ => {
                        let entry = target.syntax().text().to_string();
                        let (is, help) = match entry.split_once('.') {
                            Some((message, entry)) if matches!(base.kind, ExprKind::Field(..)) => (
                                "part of a message".to_owned(),
                                format!(
                                    "make a changed copy: `let {message}2 = {message} with {entry} = value`"
                                ),
                            ),
                            _ => (
                                format!("in {}", self.items.describe(&base.ty)),
                                "build a new value and name it with `let`".to_owned(),
                            ),
                        };
                        self.sink.push(report::state::not_assignable(target_span, &entry, &is, &help));
                    }
                }
            }
            ast::Expr::Field(field) => {
                let base = field.base().map(|base| self.expr(&base));
                let name = field.field().map_or(String::new(), |name| name.text().to_owned());
                let help = match base.map(|base| base.kind) {
                    Some(ExprKind::SessionLocal(id)) => {
                        let state = &self.items.session_locals[id.0 as usize].name;
                        format!("assign a new value to the `local`: `{state} := {state} with {name} = value`")
                    }
                    Some(ExprKind::Local(id)) => {
                        let base = &self.scope.locals[id.0 as usize].name;
                        format!("make a changed copy: `let {base}2 = {base} with {name} = value`")
                    }
                    _ => format!("make a changed copy: `let changed = (...) with {name} = value`"),
                };
                self.sink.push(report::state::not_assignable(target_span, &name, "a field", &help));
            }
            _ => self.sink.push(report::state::invalid_assignee(target_span)),
        }
    }

    /// Resolves the left-hand side of `name := ...`: a `local`; anything else is reported.
    fn assigned_name(&mut self, name: &str, span: Span) -> Expr {
        let is_known = self.scope.names().iter().any(|known| known == name)
            || self.items.fun_named(self.file, None, name).is_some()
            || self.items.type_named(self.file, None, name).is_some()
            || builtin_named(name).is_some();
        if !is_known && self.grammar.is_none() {
            let known = self.scope.names();
            let report =
                report::names::unknown_assigned(span.clone(), name, known.iter().map(String::as_str));
            self.sink.push(report);
            return unknown(span);
        }
        let found = self.resolve_value(name, span.clone());
        let report = match &found.kind {
            ExprKind::SessionLocal(_) => return found,
            ExprKind::Dict(_) => report::state::whole_dict(span.clone(), name),
            ExprKind::Counter(id) => {
                let is_gauge = self.items.counters[id.0 as usize].is_gauge;
                report::state::set_counter(span.clone(), name, is_gauge)
            }
            ExprKind::Channel(_) => {
                let help = format!("send to it: `message => {name}`");
                report::state::not_assignable(span.clone(), name, "a channel", &help)
            }
            ExprKind::Local(_) if matches!(found.ty, Ty::Chan { .. } | Ty::ChanArray { .. }) => {
                let help = format!("send to it: `message => {name}`");
                let is = self.items.describe(&found.ty);
                report::state::not_assignable(span.clone(), name, &is, &help)
            }
            _ if found.ty == Ty::Unknown => return found,
            ExprKind::Local(_) => {
                let help = format!(
                    "use another name for the new value, `let {name}2 = ...`; state that a session keeps between messages is a `local` of the process"
                );
                report::state::not_assignable(span.clone(), name, "an immutable variable", &help)
            }
            _ => report::state::invalid_assignee(span.clone()),
        };
        self.sink.push(report);
        unknown(span)
    }

    fn assign_state(&mut self, location: Expr, value: Option<ast::Expr>, out: &mut Vec<Stmt>) {
        let Some(value) = value else { return };
        let ExprKind::SessionLocal(id) = location.kind else {
            self.expr(&value);
            return;
        };
        let state = &self.items.session_locals[id.0 as usize];
        let (ty, name, why) = (state.ty.clone(), format!("`{}`", state.name), state.span.clone());
        let value = self.expr_like(&value, &ty);
        let value = self.coerce(value, &ty, &name, Some(why));
        out.push(Stmt::Assign(id, value));
    }

    fn dict_value(&mut self, dict: DictId, value: Option<ast::Expr>, around: &Span) -> Expr {
        let Some(value) = value else { return unknown(around.clone()) };
        let declared = &self.items.dicts[dict.0 as usize];
        let (ty, target) = (declared.value.clone(), format!("an entry of `{}`", declared.name));
        let why = declared.span.clone();
        let value = self.expr_like(&value, &ty);
        self.coerce(value, &ty, &target, Some(why))
    }

    /// `update d[key] from old: body`.
    pub(crate) fn update(&mut self, update: &ast::UpdateExpr, span: Span) -> Expr {
        let Some(target) = update.target() else { return unknown(span) };
        let target_span = self.span(target.range());
        let (base, index) = match &target {
            ast::Expr::Index(index) => (self.opt_expr(index.base(), &target_span), index.index()),
            other => (self.expr(other), None),
        };
        let dict = match (&base.ty, &target) {
            (Ty::Dict(dict), ast::Expr::Index(_)) => *dict,
            (Ty::Unknown, _) => return unknown(span),
            (found, _) => {
                let found = self.items.describe(found);
                self.sink.push(report::state::not_an_entry(target_span, &found));
                return unknown(span);
            }
        };
        let key = self.dict_key(dict, index, &target_span);
        let declared = &self.items.dicts[dict.0 as usize];
        let (value_ty, name, why) = (declared.value.clone(), declared.name.clone(), declared.span.clone());
        let (Some(old_name), Some(body)) = (update.value_name(), update.body()) else { return unknown(span) };
        let option = Ty::Option(Box::new(value_ty.clone()));
        let mark = self.scope.open();
        let location = self.span(old_name.range());
        let old = self.scope.declare(old_name.text(), option.clone(), location, self.sink);
        let (mut body, ty, end) = self.block(&body, Expectation::HasType(&value_ty));
        self.scope.close(mark);
        let may_remove = matches!(ty, Ty::Option(_));
        let plain = if let Ty::Option(inner) = &ty { inner } else { &ty };
        let is_alike = Items::same_kind(plain, &value_ty)
            || matches!((plain, &value_ty), (Ty::Bytes { .. }, Ty::Bytes { .. }));
        match body.value.take() {
            Some(value) => {
                let value = self.coerce(*value, &option, &format!("an entry of `{name}`"), Some(why));
                body.value = Some(Box::new(value));
            }
            None if ty == Ty::Unknown => {}
            None => self.sink.push(report::types::no_value(end, "the body of this `update`")),
        }
        let is_broken = body.value.is_none() || !is_alike;
        let ty = match (is_broken, may_remove) {
            (true, _) => Ty::Unknown,
            (false, true) => option,
            (false, false) => value_ty,
        };
        let kind = ExprKind::DictUpdate { dict, key: Box::new(key), old, body, may_remove };
        Expr { kind, ty, span }
    }

    /// The name of an expression in a diagnostic.
    fn text_of(&self, expr: &Expr) -> String {
        match &expr.kind {
            ExprKind::Local(id) => self.scope.locals[id.0 as usize].name.clone(),
            ExprKind::SessionLocal(id) => self.items.session_locals[id.0 as usize].name.clone(),
            ExprKind::Channel(id) => self.scope.channels[id.0 as usize].name.clone(),
            _ => "this".to_owned(),
        }
    }
}
