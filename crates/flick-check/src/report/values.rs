//! E032x and E042x: compound values: options, lists, tuples, records, variants, repetitions.

use crate::diagnostic::Diagnostic;
use crate::hir::Span;

pub(crate) fn list_too_long(span: Span, target: &str, found: u32, allowed: u32) -> Diagnostic {
    Diagnostic::error(
        "E0321",
        span,
        format!("this list may have {found} elements, but {target} holds at most {allowed}"),
    )
    .label(format!("at most {found} elements"))
    .help(format!("cut it, `[..{allowed}]`, or widen the bound of {target}"))
}

pub(crate) fn may_be_none(span: Span, inner: &str) -> Diagnostic {
    Diagnostic::error("E0420", span, format!("this may be `none`, but {inner} is needed"))
        .label("an option")
        .help("say what is meant without a value: `(...) else 0`; or look first: `switch ...:` with the cases `some x:` and `none:`")
}
