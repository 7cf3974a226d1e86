//! Built-ins on text and bytes.

use super::{Call, literal};
use crate::expr::{Exprs, adapt, unknown};
use crate::hir::{Builtin, Expr, ExprKind, Ty};
use crate::items::Items;
use crate::range::{INT, Range};
use crate::{report, types};

impl Exprs<'_> {
    /// Looks for one text in another.
    pub(super) fn search(&mut self, mut call: Call<'_>) -> Expr {
        self.two_texts(&mut call);
        let longest = if let Ty::Bytes { max, .. } = call.arg(0) { *max } else { 0 };
        let ty = match call.builtin {
            Builtin::Find => Ty::Option(Box::new(Range { lo: 0, hi: i128::from(longest) }.ty())),
            _ => Ty::Bool,
        };
        call.gives(ty)
    }

    /// Checks that the first two arguments are both text or both bytes.
    fn two_texts(&mut self, call: &mut Call<'_>) -> bool {
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
                (Ty::List { .. }, _) => "for an element of a list write `x in list`".to_owned(),
                (Ty::Option(_), _) | (_, Ty::Option(_)) => {
                    "say what is meant without a value first: `(... else \"\")`".to_owned()
                }
                _ => format!(
                    "`{name}` looks for text in text or for bytes in bytes: `{name}(req.key, \"user:\")`"
                ),
            };
            self.sink.push(report::types::operator(call.span.clone(), name, &a, &b, &help));
        }
        is_fit
    }

    /// `split(text, separator, N)`.
    pub(super) fn split(&mut self, mut call: Call<'_>) -> Expr {
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
        call.gives(Ty::List { elem: Box::new(part), max: count as u32 })
    }

    /// `lower`, `upper` and `trim`: never longer than what they are given.
    pub(super) fn same_bytes(&mut self, call: Call<'_>) -> Expr {
        let ty = call.arg(0).clone();
        if !matches!(ty, Ty::Bytes { .. }) {
            let help = format!("`{}` works on text or bytes", call.name);
            self.refuse_argument(&call, 0, &help);
            return unknown(call.span);
        }
        call.gives(ty)
    }

    pub(super) fn parse_number(&mut self, call: Call<'_>) -> Expr {
        if !matches!(call.arg(0), Ty::Bytes { .. }) {
            let help = format!("`{}` reads a number from text: `{}(req.key)`", call.name, call.name);
            self.refuse_argument(&call, 0, &help);
        }
        call.gives(Ty::Option(Box::new(INT.ty())))
    }

    /// `text(bytes)` and `raw(string)`.
    pub(super) fn as_text_or_bytes(&mut self, mut call: Call<'_>) -> Expr {
        let to_text = call.builtin == Builtin::Text;
        let Ty::Bytes { max, text } = *call.arg(0) else {
            let help = match call.arg(0) {
                Ty::Int { .. } => "a number is text with `str(n)`",
                _ if to_text => "`text` makes text of bytes",
                _ => "`raw` makes bytes of text",
            };
            self.refuse_argument(&call, 0, help);
            return unknown(call.span);
        };
        if text == to_text {
            return Expr { span: call.span, ..call.args.swap_remove(0) };
        }
        call.gives(Ty::Bytes { max, text: to_text })
    }

    pub(super) fn log(&mut self, call: Call<'_>) -> Expr {
        if !matches!(call.arg(0), Ty::Bytes { .. }) {
            let help = match call.arg(0) {
                Ty::Int { .. } => "make text of the number: `log(\"size \" + str(n))`",
                _ => "`log` writes one text: `log(\"key \" + req.key)`",
            };
            self.refuse_argument(&call, 0, help);
        }
        call.gives(Ty::Nothing)
    }
}
