//! Calls of functions and built-ins.

use flick_syntax::ast;

use super::builtin::{self, NAMES};
use super::{Exprs, range_of, unknown};
use crate::hir::{Builtin, Expr, ExprKind, FunId, Span, Ty};
use crate::items::{Items, TypeItem};
use crate::range::{INT, Range, UINT};
use crate::report;

/// What looks like a call and is the condition around a `foldt`.
const CONDITIONS: &[&str] = &["ready", "all_ready"];

impl Exprs<'_> {
    /// Checks a call. `piped` is the message that `=>` hands over as the last argument.
    pub(crate) fn call(&mut self, call: &ast::CallExpr, piped: Option<Expr>, span: Span) -> Expr {
        let is_piped = piped.is_some();
        let name = match call.callee() {
            Some(ast::Expr::Name(name)) => name.name(),
            Some(other) => {
                let span = self.span(other.range());
                let help = "there are no function values; call a function by its name";
                self.sink.push(report::names::wrong_kind(
                    span,
                    &other_text(&other),
                    "a value",
                    "a function",
                    help,
                ));
                None
            }
            None => None,
        };
        let mut args: Vec<Expr> = call.args().map(|arg| self.expr(&arg)).collect();
        args.extend(piped);
        let Some(name) = name else { return unknown(span) };
        let name_span = self.span(name.range());
        if let Some(fun) = self.items.fun_names.get(name.text()) {
            return self.call_fun(*fun, args, is_piped, span);
        }
        if let Some(builtin) = builtin::named(name.text()) {
            return self.call_builtin(builtin, name.text(), args, is_piped, span);
        }
        self.report_not_callable(name.text(), name_span);
        unknown(span)
    }

    fn report_not_callable(&mut self, name: &str, span: Span) {
        let report = if CONDITIONS.contains(&name) {
            report::merges::ready_elsewhere(span, name)
        } else if self.scope.resolve(name).is_some() {
            let help = "there are no function values; call a function by its name";
            report::names::wrong_kind(span, name, "a value", "a function", help)
        } else if let Some(item) = self.items.types.get(name) {
            let (is, help) = match item {
                TypeItem::Enum(_) => ("an enumeration", format!("name one of its members: `{name}.name`")),
                _ => ("a type of message", format!("build a message with `{name}{{field = value}}`")),
            };
            report::names::wrong_kind(span, name, is, "a function", &help)
        } else {
            let known: Vec<&str> = self
                .items
                .fun_names
                .keys()
                .map(String::as_str)
                .chain(NAMES.iter().map(|(name, _)| *name))
                .collect();
            report::names::unknown_function(span, name, known)
        };
        self.sink.push(report);
    }

    pub(crate) fn call_fun(&mut self, fun: FunId, args: Vec<Expr>, is_piped: bool, span: Span) -> Expr {
        if self.grammar.is_some() {
            let name = self.items.fun(fun).name.clone();
            let help = "a grammar stands by itself; write the expression out";
            self.sink.push(report::names::wrong_kind(
                span.clone(),
                &name,
                "a function of a program",
                "part of a grammar",
                help,
            ));
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

    fn call_builtin(
        &mut self,
        builtin: Builtin,
        name: &str,
        args: Vec<Expr>,
        is_piped: bool,
        span: Span,
    ) -> Expr {
        if !matches!(
            builtin,
            Builtin::Hash
                | Builtin::Len
                | Builtin::Min
                | Builtin::Max
                | Builtin::StartsWith
                | Builtin::EndsWith
                | Builtin::Contains
        ) {
            self.sink.push(report::not_yet::builtin(span.clone(), name));
            return unknown(span);
        }
        let wanted = match builtin {
            Builtin::Hash | Builtin::Len => 1,
            _ => 2,
        };
        if args.len() != wanted {
            self.sink.push(report::types::argument_count(
                span.clone(),
                name,
                wanted,
                args.len(),
                None,
                is_piped,
            ));
            return unknown(span);
        }
        if args.iter().any(|arg| arg.ty == Ty::Unknown) {
            let ty = match builtin {
                Builtin::Hash => UINT.ty(),
                Builtin::StartsWith | Builtin::EndsWith | Builtin::Contains => Ty::Bool,
                _ => Ty::Unknown,
            };
            return Expr { kind: ExprKind::Int(0), ty, span };
        }
        match builtin {
            Builtin::Hash => self.hash(args, span),
            Builtin::Len => self.len(args, span),
            Builtin::Min | Builtin::Max => self.extremum(builtin, name, args, span),
            Builtin::StartsWith | Builtin::EndsWith | Builtin::Contains => {
                self.search(builtin, name, args, span)
            }
            _ => unknown(span),
        }
    }

    fn hash(&mut self, args: Vec<Expr>, span: Span) -> Expr {
        if !matches!(args[0].ty, Ty::Bytes { .. } | Ty::Int { .. } | Ty::Enum(_) | Ty::Bool) {
            let found = self.items.describe(&args[0].ty);
            let help = match args[0].ty {
                Ty::Record(_) => "hash a field of the message: `hash(req.key)`",
                _ => "`hash` works on text, bytes, numbers, members of enumerations and truth values",
            };
            self.sink.push(report::types::prefix(args[0].span.clone(), "hash", &found, help));
        }
        Expr { kind: ExprKind::Builtin(Builtin::Hash, args), ty: UINT.ty(), span }
    }

    fn len(&mut self, args: Vec<Expr>, span: Span) -> Expr {
        let range = match args[0].ty {
            Ty::Bytes { max, .. } => Range { lo: 0, hi: i128::from(max) },
            Ty::ChanArray { .. } => Range { lo: 1, hi: flick_abi::limits::CHANNEL_ELEMENTS_MAX as i128 },
            ref other => {
                let found = self.items.describe(other);
                let help = match other {
                    Ty::Record(_) => "take the length of a field: `len(req.key)`",
                    _ => "`len` works on text, bytes and arrays of channels",
                };
                self.sink.push(report::types::prefix(args[0].span.clone(), "len", &found, help));
                return unknown(span);
            }
        };
        Expr { kind: ExprKind::Builtin(Builtin::Len, args), ty: range.ty(), span }
    }

    fn extremum(&mut self, builtin: Builtin, name: &str, mut args: Vec<Expr>, span: Span) -> Expr {
        let (Some(a), Some(b)) = (range_of(&args[0].ty), range_of(&args[1].ty)) else {
            let (a, b) = (self.items.describe(&args[0].ty), self.items.describe(&args[1].ty));
            let help = format!("`{name}` works on two numbers");
            self.sink.push(report::types::operator(span.clone(), name, &a, &b, &help));
            return unknown(span);
        };
        let is_wide = a.hi > INT.hi || b.hi > INT.hi;
        if is_wide && (a.lo < 0 || b.lo < 0) {
            self.sink.push(report::types::signs_differ(span.clone()));
        }
        for arg in &mut args {
            if let Ty::Int { unsigned, .. } = &mut arg.ty {
                *unsigned = is_wide;
            }
        }
        let range = if builtin == Builtin::Min {
            Range { lo: a.lo.min(b.lo), hi: a.hi.min(b.hi) }
        } else {
            Range { lo: a.lo.max(b.lo), hi: a.hi.max(b.hi) }
        };
        Expr { kind: ExprKind::Builtin(builtin, args), ty: range.ty(), span }
    }

    fn search(&mut self, builtin: Builtin, name: &str, mut args: Vec<Expr>, span: Span) -> Expr {
        let (first, second) = (args[0].ty.clone(), args[1].ty.clone());
        super::adapt(&mut args[1], &first);
        super::adapt(&mut args[0], &second);
        let are_bytes = matches!((&args[0].ty, &args[1].ty), (Ty::Bytes { .. }, Ty::Bytes { .. }));
        if !are_bytes || !Items::same_kind(&args[0].ty, &args[1].ty) {
            let (a, b) = (self.items.describe(&args[0].ty), self.items.describe(&args[1].ty));
            let help = format!(
                "`{name}` looks for text in text or for bytes in bytes: `{name}(req.key, \"user:\")`"
            );
            self.sink.push(report::types::operator(span.clone(), name, &a, &b, &help));
        }
        Expr { kind: ExprKind::Builtin(builtin, args), ty: Ty::Bool, span }
    }
}

fn other_text(expr: &ast::Expr) -> String {
    use flick_syntax::ast::AstNode;
    let text = expr.syntax().text().to_string();
    text.lines().next().unwrap_or_default().to_owned()
}
