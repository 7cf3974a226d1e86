//! E0652: conditions that no message meets.

use super::counted;
use crate::diagnostic::Diagnostic;
use crate::hir::Span;
use crate::range::Range;

fn never(span: Span, title: impl Into<String>, why: Option<String>) -> Diagnostic {
    let diagnostic = Diagnostic::error("E0652", span, title);
    match why {
        Some(why) => diagnostic.note(format!("{why}.")),
        None => diagnostic,
    }
}

pub(crate) fn check(span: Span, why: Option<String>) -> Diagnostic {
    never(span, "this check is always false: every message that reaches it is rejected", why)
        .label("always false")
        .help("write the condition of valid messages; to reject one case of a `switch`, remove the case")
}

pub(crate) fn requires(span: Span, name: &str, why: Option<String>) -> Diagnostic {
    never(
        span,
        format!("this `&requires` of `{name}` is always false: every message with the field is rejected"),
        why,
    )
    .label("always false")
    .help("write the condition of valid values: `&requires = $$ < 4`")
}

pub(crate) fn variable(span: Span, name: &str, found: Range, allowed: Range) -> Diagnostic {
    let value = if found.is_point() { found.lo.to_string() } else { format!("between {}", found.describe()) };
    never(
        span,
        format!(
            "value always out of range: `{name}` is {value}, its type holds {} to {}",
            allowed.lo, allowed.hi
        ),
        None,
    )
    .label("out of range in every message")
    .note("A message is malformed if a variable is outside its type.")
    .help("declare a wider type, or compute another value")
}

pub(crate) fn length(span: Span, name: &str, found: Range, bound: i128) -> Diagnostic {
    never(
        span,
        format!(
            "length always above the bound: `{name}` has at least {}, its bound is {bound}",
            counted(found.lo, "byte")
        ),
        None,
    )
    .label("above the bound in every message")
    .help(format!("declare a larger bound: `bytes<{}>`", found.lo))
}

pub(crate) fn count(span: Span, name: &str, found: i128, bound: u32) -> Diagnostic {
    never(
        span,
        format!(
            "count always above the bound: `{name}` has at least {}, its bound is {bound}",
            counted(found, "element")
        ),
        None,
    )
    .label("above the bound in every message")
    .help(format!("declare a larger bound: `[item]<{found}>`"))
}

pub(crate) fn no_case(span: Span) -> Diagnostic {
    never(span, "empty `switch`: every message is rejected", None)
        .label("no case")
        .help("write at least one case: `switch self.kind { 1: { size : uint8; } else: { } };`")
}

pub(crate) fn case(span: Span, why: Option<String>) -> Diagnostic {
    let diagnostic = Diagnostic::error("E0635", span, "unreachable case: the value is never this")
        .label("unreachable case");
    let diagnostic = match why {
        Some(why) => diagnostic.note(format!("{why}.")),
        None => diagnostic,
    };
    diagnostic.help("remove it, or relax the check before it")
}

pub(crate) fn fact(span: Span, name: &str) -> Diagnostic {
    never(span, format!("`%{name}` is always false: every message is rejected"), None)
        .label("always false")
        .help(format!("write the condition of a {name}: `%{name} = self.magic == 0x80;`"))
}

pub(crate) fn constant(span: Span, name: &str, location: Span, why: &str) -> Diagnostic {
    Diagnostic::error(
        "E0647",
        span,
        format!("invalid value for `{name}`: the receiver would reject the message"),
    )
    .label("not allowed by the grammar")
    .also(location, why.to_owned())
    .help("use a value that the grammar allows, or change the check")
}
