//! E0652: what no message can be.

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
    never(span, "this check never holds, so every message that comes to it is refused", why)
        .label("never true")
        .help("write what holds for good messages; to refuse one case of a `switch`, leave the case out")
}

pub(crate) fn requires(span: Span, name: &str, why: Option<String>) -> Diagnostic {
    never(span, format!("no `{name}` meets this, so every message with it is refused"), why)
        .label("never true")
        .help("write what holds for good values: `&requires = $$ < 4`")
}

pub(crate) fn variable(span: Span, name: &str, found: Range, allowed: Range) -> Diagnostic {
    let value = if found.is_point() { found.lo.to_string() } else { format!("between {}", found.describe()) };
    never(
        span,
        format!("`{name}` would be {value}, and its type holds {} to {}", allowed.lo, allowed.hi),
        None,
    )
    .label("outside its type in every message")
    .note("A variable outside its type makes a message malformed.")
    .help("declare a wider type, or compute something else")
}

pub(crate) fn length(span: Span, name: &str, found: Range, bound: i128) -> Diagnostic {
    never(span, format!("`{name}` would have at least {} bytes, and may have {bound}", found.lo), None)
        .label("longer than its bound in every message")
        .help(format!("give it a larger bound: `bytes<{}>`", found.lo))
}

pub(crate) fn count(span: Span, name: &str, found: i128, bound: u32) -> Diagnostic {
    never(span, format!("`{name}` would have at least {found} elements, and may have {bound}"), None)
        .label("more than its bound in every message")
        .help(format!("give it a larger bound: `[item]<{found}>`"))
}

pub(crate) fn no_case(span: Span) -> Diagnostic {
    never(span, "a `switch` without a case refuses every message", None)
        .label("no case")
        .help("write what there may be: `switch self.kind { 1: { size : uint8; } else: { } };`")
}

pub(crate) fn case(span: Span, why: Option<String>) -> Diagnostic {
    let diagnostic = Diagnostic::error("E0635", span, "this case is never taken: the value cannot be this")
        .label("never there");
    let diagnostic = match why {
        Some(why) => diagnostic.note(format!("{why}.")),
        None => diagnostic,
    };
    diagnostic.help("remove it, or loosen the check before it")
}

pub(crate) fn fact(span: Span, name: &str) -> Diagnostic {
    never(span, format!("no message meets `%{name}`, so every one is refused"), None)
        .label("never true")
        .help(format!("write what a {name} looks like: `%{name} = self.magic == 0x80;`"))
}

pub(crate) fn constant(span: Span, name: &str, place: Span, why: &str) -> Diagnostic {
    Diagnostic::error(
        "E0647",
        span,
        format!("`{name}` with this value is refused by whoever reads the message"),
    )
    .label("the grammar never has this")
    .also(place, why.to_owned())
    .help("give it a value that the grammar allows, or change the check")
}
