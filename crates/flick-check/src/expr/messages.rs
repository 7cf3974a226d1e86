//! Built-ins on whole messages and on encoded strings.
//! Promises: a result is never longer than its type.

use flick_syntax::ast;

use super::builtin::BuiltinCall;
use super::{Exprs, unknown, value_block};
use crate::hir::{Builtin, Expr, ExprKind, FieldKind, Span, Ty};
use crate::items::TypeItem;
use crate::limits::{WRITTEN_BYTES_MAX, head_bytes_max};
use crate::report;

impl Exprs<'_> {
    /// `wire(message)`.
    pub(super) fn wire(&mut self, call: BuiltinCall<'_>) -> Expr {
        let Ty::Record(unit) = *call.arg(0) else {
            self.reject_argument(&call, 0, "`wire` returns the bytes of a whole message: `wire(req)`");
            return unknown(call.span);
        };
        let own = self.items.unit(unit).fields.iter().filter_map(|field| match field.kind {
            FieldKind::Text { max_bytes, .. } => Some(max_bytes),
            FieldKind::Bytes { max_bytes, .. } => max_bytes,
            _ => None,
        });
        let viewed = self.items.views.get(&unit.0).into_iter().flat_map(|view| &view.fields);
        let bounds = own.chain(viewed.filter_map(|field| field.bound));
        let max = head_bytes_max(bounds.map(u64::from)) as u32;
        call.returning(Ty::Bytes { max, text: false })
    }

    /// `has_token(list, token)`; false for a list that is none.
    pub(super) fn has_token(&mut self, mut call: BuiltinCall<'_>) -> Expr {
        let help = "`has_token` searches a comma-separated list for a token: `has_token(list, \"close\")`";
        if let Ty::Option(inner) = call.arg(0).clone()
            && let Ty::Bytes { text, .. } = *inner
        {
            let list = call.args.remove(0);
            let span = list.span.clone();
            let kind = ExprKind::Str(Vec::new());
            let empty = Expr { kind, ty: Ty::Bytes { max: 0, text }, span: span.clone() };
            let kind = ExprKind::OrElse(Box::new(list), value_block(empty));
            call.args.insert(0, Expr { kind, ty: *inner, span });
        }
        for index in 0..2 {
            if !matches!(call.arg(index), Ty::Bytes { .. }) {
                self.reject_argument(&call, index, help);
                return Expr { ty: Ty::Bool, ..unknown(call.span) };
            }
        }
        if let (Ty::Bytes { text, .. }, ExprKind::Str(_)) = (call.arg(0).clone(), &call.args[1].kind)
            && let Ty::Bytes { text: own, .. } = &mut call.args[1].ty
        {
            *own = text;
        }
        call.returning(Ty::Bool)
    }

    /// `is_digits(text)`.
    pub(super) fn is_digits(&mut self, call: BuiltinCall<'_>) -> Expr {
        if !matches!(call.arg(0), Ty::Bytes { .. }) {
            self.reject_argument(&call, 0, "pass a string or bytes");
            return Expr { ty: Ty::Bool, ..unknown(call.span) };
        }
        call.returning(Ty::Bool)
    }

    /// `is_of(text, class)`.
    pub(super) fn is_of(&mut self, args: &[ast::Expr], span: Span) -> Expr {
        let truth = Expr { ty: Ty::Bool, ..unknown(span.clone()) };
        let [value, class] = args else {
            self.sink.push(report::types::argument_count(span, "is_of", 2, args.len(), None, false));
            return truth;
        };
        let value = self.expr(value);
        let item = match class {
            ast::Expr::Name(name) => {
                name.name().and_then(|name| self.items.type_named(self.file, None, name.text()))
            }
            ast::Expr::Field(field) => match super::unfold_path(field) {
                (Some(ast::Expr::Name(library)), Some(path)) if path.len() == 1 => {
                    library.name().and_then(|library| {
                        self.items.type_named(self.file, Some(library.text()), path[0].text())
                    })
                }
                _ => None,
            },
            _ => None,
        };
        let Some(TypeItem::Class(class)) = item else {
            let location = self.span(class.range());
            self.sink.push(report::structured::not_a_class(location));
            return truth;
        };
        match &value.ty {
            Ty::Bytes { .. } => Expr { kind: ExprKind::IsOf(Box::new(value), class), ty: Ty::Bool, span },
            Ty::Unknown => truth,
            Ty::Option(inner) => {
                let inner = self.items.describe(inner);
                self.sink.push(report::values::may_be_none(value.span.clone(), &inner));
                truth
            }
            other => {
                let found = self.items.describe(other);
                let help = "pass a string or bytes";
                self.sink.push(report::types::argument(value.span.clone(), "is_of", &found, help));
                truth
            }
        }
    }

    /// `percent_decode(text)` and the like: the result is of the type of the argument.
    pub(super) fn transform(&mut self, call: BuiltinCall<'_>) -> Expr {
        let Ty::Bytes { max, text } = *call.arg(0) else {
            self.reject_argument(&call, 0, "pass a string or bytes");
            return unknown(call.span);
        };
        let longest = match call.builtin {
            Builtin::PercentEncode => u64::from(max) * 3,
            Builtin::Base64Encode => u64::from(max).div_ceil(3) * 4,
            Builtin::Base64Decode => u64::from(max) / 4 * 3 + 2,
            _ => u64::from(max),
        };
        if longest > u64::from(WRITTEN_BYTES_MAX) {
            let span = call.span.clone();
            self.sink.push(report::values::joined_too_long(span, longest, WRITTEN_BYTES_MAX));
        }
        let ty = Ty::Bytes { max: longest.min(u64::from(WRITTEN_BYTES_MAX)) as u32, text };
        match call.builtin {
            Builtin::PercentDecode | Builtin::Base64Decode => call.returning(Ty::Option(Box::new(ty))),
            _ => call.returning(ty),
        }
    }
}
