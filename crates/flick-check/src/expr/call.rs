//! Calls of functions, built-ins and constructors.

use flick_syntax::ast;

use super::access::type_as_value;
use super::builtin::{self, callee_text};
use super::{Expectation, Exprs, unfold_path, unknown};
use crate::hir::{Expr, ExprKind, FunId, Span};
use crate::items::TypeItem;
use crate::{primitives, report};

/// Conditions of a `foldt`, which look like calls.
const CONDITIONS: &[&str] = &["ready", "all_ready"];
/// Types whose constants are written as calls.
const CONSTANTS: &[&str] = &["ipv4", "ipv6", "endpoint"];

impl Exprs<'_> {
    /// Checks a call. `piped` is the message that `=>` passes as the last argument.
    pub(crate) fn call(
        &mut self,
        call: &ast::CallExpr,
        piped: Option<Expr>,
        wanted: Expectation<'_>,
        span: Span,
    ) -> Expr {
        let args: Vec<ast::Expr> = call.args().collect();
        match call.callee() {
            Some(ast::Expr::Name(name)) => match name.name() {
                Some(name) => self.call_named(&name, &args, piped, wanted, span),
                None => self.check_arguments_only(&args, span),
            },
            Some(ast::Expr::Field(field)) => self.call_path(&field, &args, piped, span),
            Some(other) => {
                let location = self.span(other.range());
                let help = "call a function by its name; functions are not values";
                let text = callee_text(&other);
                self.sink.push(report::names::wrong_kind(location, &text, "value", "a function", help));
                self.check_arguments_only(&args, span)
            }
            None => self.check_arguments_only(&args, span),
        }
    }

    /// Checks the arguments of a call whose callee was reported.
    fn check_arguments_only(&mut self, args: &[ast::Expr], span: Span) -> Expr {
        args.iter().for_each(|arg| _ = self.expr(arg));
        unknown(span)
    }

    fn call_named(
        &mut self,
        name: &ast::Name,
        args: &[ast::Expr],
        piped: Option<Expr>,
        wanted: Expectation<'_>,
        span: Span,
    ) -> Expr {
        let text = name.text();
        if let Some(fun) = self.items.fun_named(self.file, None, text) {
            return self.call_checked(fun, args, piped, span);
        }
        let is_value = self.scope.resolve(text).is_some();
        match self.items.type_named(self.file, None, text) {
            Some(TypeItem::Struct(id)) if !is_value => return self.struct_positional(id, args, piped, span),
            Some(TypeItem::Unit(id)) if !is_value && self.grammar.is_none() => {
                return self.build_positional(id, args, piped, span);
            }
            _ => {}
        }
        if text == "some" && !is_value {
            if let Some(piped) = piped {
                self.sink.push(report::values::piped_into(span.clone(), "some"));
                return unknown(piped.span);
            }
            return self.some(args, wanted, span);
        }
        if let (true, [ast::Expr::Field(field)]) = (text == "len" && piped.is_none(), args)
            && let (Some(ast::Expr::SelfValue(_)), Some(path)) = super::unfold_path(field)
        {
            let path = path.iter().map(ast::Name::text).collect::<Vec<_>>().join(".");
            if let Some(len) = super::self_fields::list_len(self, &path, &span) {
                return len;
            }
        }
        if text == "is_of" && piped.is_none() {
            return self.is_of(args, span);
        }
        if CONSTANTS.contains(&text) {
            return self.constant(text, args, span);
        }
        if primitives::PRIMITIVES.contains(&text) {
            let values: Vec<Expr> = args.iter().map(|arg| self.expr(arg)).chain(piped).collect();
            if text == "int" || primitives::sized_int(text).is_some() {
                return self.convert(text, values, span);
            }
            let location = self.span(name.range());
            self.sink.push(report::values::no_conversion(location, text));
            return unknown(span);
        }
        if let Some(builtin) = builtin::named(text) {
            let is_piped = piped.is_some();
            let mut values: Vec<Expr> = args.iter().map(|arg| self.expr(arg)).collect();
            values.extend(piped);
            return self.call_builtin(builtin, text, values, is_piped, span);
        }
        let location = self.span(name.range());
        self.report_not_callable(text, location);
        self.check_arguments_only(args, span)
    }

    /// `n.f(x)`, `n.point(1, 2)`, `shape.circle(3)`, `n.shape.circle(3)`.
    fn call_path(
        &mut self,
        field: &ast::FieldExpr,
        args: &[ast::Expr],
        piped: Option<Expr>,
        span: Span,
    ) -> Expr {
        let (Some(ast::Expr::Name(first)), Some(path)) = unfold_path(field) else {
            let location = self.span(field.range());
            let text = callee_text(&ast::Expr::Field(field.clone()));
            let help = "call a function with the value as an argument, `f(x)`; values have no methods";
            self.sink.push(report::names::wrong_kind(location, &text, "value", "a function", help));
            return self.check_arguments_only(args, span);
        };
        let Some(first) = first.name() else { return self.check_arguments_only(args, span) };
        let is_value = self.scope.resolve(first.text()).is_some();
        let (owner, last) = (first.text(), path.last());
        match (path.as_slice(), last) {
            _ if is_value => {}
            ([case], _)
                if matches!(self.items.type_named(self.file, None, owner), Some(TypeItem::Variant(_))) =>
            {
                if let Some(TypeItem::Variant(id)) = self.items.type_named(self.file, None, owner) {
                    return self.variant(id, case, Some((args, piped)), span);
                }
            }
            ([name], _) => {
                if let Some(fun) = self.items.fun_named(self.file, Some(owner), name.text()) {
                    return self.call_checked(fun, args, piped, span);
                }
                match self.items.type_named(self.file, Some(owner), name.text()) {
                    Some(TypeItem::Struct(id)) => return self.struct_positional(id, args, piped, span),
                    Some(TypeItem::Unit(id)) => return self.build_positional(id, args, piped, span),
                    _ => {}
                }
            }
            ([kind, case], _) => {
                if let Some(TypeItem::Variant(id)) =
                    self.items.type_named(self.file, Some(owner), kind.text())
                {
                    return self.variant(id, case, Some((args, piped)), span);
                }
            }
            _ => {}
        }
        let location = self.span(field.range());
        let method = last.map_or("f", |name| name.text());
        let in_front = path.iter().rev().skip(1).rev().map(|name| name.text());
        let receiver: Vec<&str> = std::iter::once(owner).chain(in_front).collect();
        let receiver = if is_value { receiver.join(".") } else { "x".to_owned() };
        if is_value || self.items.type_named(self.file, None, owner).is_some() {
            self.sink.push(report::values::no_methods(location, method, &receiver));
        } else {
            let known: Vec<&str> = self.items.fun_names.keys().map(String::as_str).collect();
            let text = callee_text(&ast::Expr::Field(field.clone()));
            self.sink.push(report::names::unknown_function(location, &text, known));
        }
        self.check_arguments_only(args, span)
    }

    /// Checks the arguments of a function of the program against its parameters, and builds the call.
    fn call_checked(&mut self, fun: FunId, args: &[ast::Expr], piped: Option<Expr>, span: Span) -> Expr {
        let is_piped = piped.is_some();
        let params = &self.items.fun(fun).params;
        let mut values: Vec<Expr> = Vec::new();
        for (index, arg) in args.iter().enumerate() {
            values.push(match params.get(index) {
                Some(param) => self.expr_like(arg, &param.ty),
                None => self.expr(arg),
            });
        }
        values.extend(piped);
        self.call_fun(fun, values, is_piped, span)
    }

    fn report_not_callable(&mut self, name: &str, span: Span) {
        let report = if CONDITIONS.contains(&name) {
            report::merge::misplaced_ready(span, name)
        } else if self.scope.resolve(name).is_some() {
            let help = "call a function by its name; functions are not values";
            report::names::wrong_kind(span, name, "value", "a function", help)
        } else if let Some(item) = self.items.type_named(self.file, None, name) {
            let (is, help) = type_as_value(item, name);
            report::names::wrong_kind(span, name, is, "a function", &help)
        } else {
            let mut known: Vec<&str> = self.items.fun_names.keys().map(String::as_str).collect();
            builtin::names().for_each(|name| known.push(name));
            report::names::unknown_function(span, name, known)
        };
        self.sink.push(report);
    }

    pub(crate) fn call_fun(&mut self, fun: FunId, args: Vec<Expr>, is_piped: bool, span: Span) -> Expr {
        if self.grammar.is_some() {
            let name = self.items.fun(fun).name.clone();
            let help = "write the expression in the grammar";
            let is = "a function of a program";
            self.sink.push(report::names::not_in_grammar(span.clone(), &name, is, help));
            return unknown(span);
        }
        let sig = self.items.fun(fun);
        let (result, params) = (sig.result.clone(), sig.params.clone());
        if args.len() != params.len() {
            let report = report::types::argument_count(
                span.clone(),
                &sig.name,
                params.len(),
                args.len(),
                Some(sig.span.clone()),
                is_piped,
            );
            self.sink.push(report);
            return Expr { kind: ExprKind::Call(fun, args), ty: result, span };
        }
        let checked = args.into_iter().zip(params).map(|(arg, param)| {
            let target = format!("`{}`", param.name);
            self.coerce(arg, &param.ty, &target, Some(param.span))
        });
        let args = checked.collect();
        Expr { kind: ExprKind::Call(fun, args), ty: result, span }
    }
}
