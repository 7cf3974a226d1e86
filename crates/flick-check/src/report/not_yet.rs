//! E07xx: parts of the language that this version does not have yet.

use crate::diagnostic::Diagnostic;
use crate::hir::Span;

/// A construct of the language that is parsed but not compiled yet.
pub(crate) fn construct(span: Span, what: &str, instead: &str) -> Diagnostic {
    Diagnostic::error("E0701", span, format!("{what} is not in this version of flick yet"))
        .label("not yet")
        .help(instead.to_owned())
}

/// A type that is known but not compiled yet.
pub(crate) fn type_name(span: Span, what: &str, instead: &str) -> Diagnostic {
    Diagnostic::error("E0702", span, format!("{what} is not in this version of flick yet"))
        .label("not yet")
        .help(instead.to_owned())
}

/// A built-in that is known but not compiled yet.
pub(crate) fn builtin(span: Span, name: &str) -> Diagnostic {
    Diagnostic::error("E0703", span, format!("the built-in `{name}` is not in this version of flick yet"))
        .label("not yet")
        .help("the built-ins of this version are `hash`, `len`, `starts_with`, `ends_with`, `contains`, `min` and `max`")
}

/// Part of a grammar that is planned but not compiled yet.
pub(crate) fn grammar(span: Span, what: &str, instead: &str) -> Diagnostic {
    Diagnostic::error("E0704", span, format!("{what} in a grammar is not in this version of flick yet"))
        .label("not yet")
        .help(instead.to_owned())
}
