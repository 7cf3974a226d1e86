//! Built-ins on strings and bytes.

use super::{BuiltinCall, literal};
use crate::expr::{Exprs, adapt, unknown};
use crate::hir::{Builtin, Expr, ExprKind, Ty};
use crate::items::Items;
use crate::range::{INT, Range};
use crate::{report, types};

impl Exprs<'_> {
    /// Searches one string in another.
    pub(super) fn search(&mut self, mut call: BuiltinCall<'_>) -> Expr {
        self.two_texts(&mut call);
        let longest = if let Ty::Bytes { max, .. } = call.arg(0) { *max } else { 0 };
        let ty = match call.builtin {
            Builtin::Find => Ty::Option(Box::new(Range { lo: 0, hi: i128::from(longest) }.ty())),
            _ => Ty::Bool,
        };
        call.returning(ty)
    }

    /// Checks that the first two arguments are both strings or both bytes.
    fn two_texts(&mut self, call: &mut BuiltinCall<'_>) -> bool {
        let (first, second) = (call.arg(0).clone(), call.arg(1).clone());
        let are_bytes = matches!((&first, &second), (Ty::Bytes { .. }, Ty::Bytes { .. }));
        if are_bytes {
            adapt(&mut call.args[1], &first);
            adapt(&mut call.args[0], &second);
        }
        let is_fit = are_bytes && Items::same_kind(call.arg(0), call.arg(1));
        if !is_fit {
            let (a, b) = (self.items.describe(call.arg(0)), self.items.describe(call.arg(1)));
            let name = call.name;
            let help = match (call.arg(0), call.arg(1)) {
                (Ty::List { .. }, _) => "to search a list, write `x in list`".to_owned(),
                (Ty::Option(_), _) | (_, Ty::Option(_)) => {
                    "write a default value first: `(... else \"\")`".to_owned()
                }
                _ => format!("`{name}` takes two strings or two bytes: `{name}(req.key, \"user:\")`"),
            };
            self.sink.push(report::types::operator(call.span.clone(), name, &a, &b, &help));
        }
        is_fit
    }

    /// `split(text, separator, N)`.
    pub(super) fn split(&mut self, mut call: BuiltinCall<'_>) -> Expr {
        if !self.two_texts(&mut call) {
            return unknown(call.span);
        }
        if !matches!(&call.args[1].kind, ExprKind::Str(bytes) if !bytes.is_empty()) {
            self.sink.push(report::values::separator(call.args[1].span.clone()));
        }
        let part = call.arg(0).clone();
        let largest = types::longest_list(self.items, &part);
        let count = literal(&call.args[2]).filter(|count| (1..=i128::from(largest)).contains(count));
        let Some(count) = count else {
            self.sink.push(report::values::split_count(call.args[2].span.clone(), largest));
            return unknown(call.span);
        };
        call.returning(Ty::List { elem: Box::new(part), max: count as u32 })
    }

    /// `lower`, `upper` and `trim`: the result is never longer than the argument.
    pub(super) fn same_bytes(&mut self, call: BuiltinCall<'_>) -> Expr {
        let ty = call.arg(0).clone();
        if !matches!(ty, Ty::Bytes { .. }) {
            let help = format!("`{}` takes a string or bytes", call.name);
            self.reject_argument(&call, 0, &help);
            return unknown(call.span);
        }
        call.returning(ty)
    }

    pub(super) fn parse_number(&mut self, call: BuiltinCall<'_>) -> Expr {
        if !matches!(call.arg(0), Ty::Bytes { .. }) {
            let help = format!("`{}` parses an integer from a string: `{}(req.key)`", call.name, call.name);
            self.reject_argument(&call, 0, &help);
        }
        call.returning(Ty::Option(Box::new(INT.ty())))
    }

    /// `text(bytes)` and `raw(string)`.
    pub(super) fn as_text_or_bytes(&mut self, mut call: BuiltinCall<'_>) -> Expr {
        let to_text = call.builtin == Builtin::Text;
        let Ty::Bytes { max, text } = *call.arg(0) else {
            let help = match call.arg(0) {
                Ty::Int { .. } => "convert an integer with `str(n)`",
                _ if to_text => "`text` converts bytes to a string",
                _ => "`raw` converts a string to bytes",
            };
            self.reject_argument(&call, 0, help);
            return unknown(call.span);
        };
        if text == to_text {
            return Expr { span: call.span, ..call.args.swap_remove(0) };
        }
        call.returning(Ty::Bytes { max, text: to_text })
    }

    pub(super) fn log(&mut self, call: BuiltinCall<'_>) -> Expr {
        if !matches!(call.arg(0), Ty::Bytes { .. }) {
            let help = match call.arg(0) {
                Ty::Int { .. } => "convert the integer to a string: `log(\"size \" + str(n))`",
                _ => "`log` takes one string: `log(\"key \" + req.key)`",
            };
            self.reject_argument(&call, 0, help);
        }
        call.returning(Ty::Nothing)
    }
}
