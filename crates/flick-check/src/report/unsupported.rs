//! E07xx: parts of the language that this version does not support yet.

use crate::diagnostic::Diagnostic;
use crate::hir::Span;

/// Part of a grammar that is planned but not compiled yet.
pub(crate) fn grammar(span: Span, what: &str, instead: &str) -> Diagnostic {
    Diagnostic::error("E0704", span, format!("{what} in a grammar is not supported yet"))
        .label("not supported yet")
        .help(instead.to_owned())
}
