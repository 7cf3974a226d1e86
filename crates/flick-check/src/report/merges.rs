//! E092x: `foldt`, the merge of sorted streams.

use crate::diagnostic::Diagnostic;
use crate::hir::Span;

/// The one shape.
const SHAPE: &str = "the shape of a merge is\n`if (all_ready(mappers)):`\n`  let result = foldt on mappers ordering elem e1, e2 by elem.key as k:`\n`    kv(k, combine(e1.value, e2.value))`\n`  result => reducer`";

pub(crate) fn shape(span: Span, why: &str) -> Diagnostic {
    Diagnostic::error("E0921", span, why).label("differs from the shape of a merge").help(SHAPE)
}

/// A statement of a process that is neither a rule nor a merge.
pub(crate) fn statement(span: Span, what: &str) -> Diagnostic {
    Diagnostic::error("E0921", span, format!("{what} does not stand directly in a process"))
        .label("no rule")
        .help("begin a rule with the channel that messages come from, `| client => f(backends)`, and decide in the function")
        .help("only the merge of sorted streams stands without a `|`: `if (all_ready(mappers)):` and below it a `foldt`")
}

pub(crate) fn elsewhere(span: Span) -> Diagnostic {
    Diagnostic::error("E0922", span, "`foldt` merges whole streams, so it does not stand inside a function")
        .label("not in a process")
        .help("write it directly below the heading of the process, in place of a rule")
        .help(SHAPE)
}

pub(crate) fn ready_elsewhere(span: Span, name: &str) -> Diagnostic {
    Diagnostic::error("E0922", span, format!("`{name}` stands only as the condition around a `foldt`"))
        .label("not around a `foldt`")
        .note("Elsewhere a rule runs when its message is there, so there is nothing to wait for.")
        .help("whether a channel is connected says `alive(channel)`; a reply is waited for with `ask channel with message`")
}

pub(crate) fn not_an_array(span: Span, name: &str) -> Diagnostic {
    Diagnostic::error("E0923", span, format!("`foldt` merges an array of channels, but {name} is none"))
        .label("not an array of channels")
        .help("declare it as an array, `[kv/-] mappers`, and name it here")
}

pub(crate) fn other_ready(span: Span, name: &str, merged: Span) -> Diagnostic {
    Diagnostic::error("E0923", span, "this `foldt` merges other channels than those that are to be ready")
        .label("another array")
        .also(merged, "merged here")
        .help(format!("write `all_ready({name})`"))
}

pub(crate) fn no_order(span: Span, found: &str) -> Diagnostic {
    Diagnostic::error("E0924", span, format!("elements cannot be ordered by {found}"))
        .label("has no order")
        .note("Streams are merged by a number, a time, text, bytes, or a tuple of them.")
        .help("name the field that the streams are sorted by: `by elem.key as k`")
}

pub(crate) fn wrong_element(span: Span, unit: &str, found: &str) -> Diagnostic {
    Diagnostic::error("E0925", span, format!("two elements become one `{unit}`, but this gives {found}"))
        .label(format!("this is {found}"))
        .help(format!("build the element as the last line: `{unit}(key, value)`, or change one of the two: `e1 with value = v`"))
}

pub(crate) fn second_merge(span: Span, first: Span) -> Diagnostic {
    Diagnostic::error("E0926", span, "a process has one `foldt`")
        .label("second merge")
        .also(first, "first merge")
        .help("put the second one into a program of its own")
}

pub(crate) fn rule_beside(span: Span, merge: Span) -> Diagnostic {
    Diagnostic::error("E0926", span, "a process with a `foldt` has no rules")
        .label("a rule")
        .also(merge, "the merge")
        .note("A merge runs for streams, from their beginnings to their ends; rules run for single messages.")
        .help("put the rule into a program of its own")
}

/// `what` is what the key or body does: "sends a message".
pub(crate) fn does(span: Span, what: &str, through: Option<(&str, Span)>) -> Diagnostic {
    let diagnostic = Diagnostic::error("E0927", span, format!("the body of a `foldt` {what}"))
        .label("not inside a `foldt`")
        .note("Elements are combined in whatever order they arrive, in parallel, so combining two only computes.")
        .help("do it with the elements of the result: `result => f() => reducer`");
    match through {
        Some((name, place)) => diagnostic.also(place, format!("`{name}` does it here")),
        None => diagnostic,
    }
}
