//! E092x: `foldt`, the merge of sorted streams.

use crate::diagnostic::Diagnostic;
use crate::hir::Span;

/// The only form of a merge.
const FORM: &str = "write a merge as\n`if (all_ready(mappers)):`\n`  let result = foldt on mappers ordering elem e1, e2 by elem.key as k:`\n`    kv(k, combine(e1.value, e2.value))`\n`  result => reducer`";

/// `why`: what was expected, and perhaps what was found.
pub(crate) fn shape(span: Span, why: &str) -> Diagnostic {
    Diagnostic::error("E0921", span, format!("invalid merge: {why}"))
        .label("unexpected in a merge")
        .help(FORM)
}

/// A statement of a process that is neither a rule nor a merge.
pub(crate) fn statement(span: Span, what: &str) -> Diagnostic {
    Diagnostic::error("E0921", span, format!("expected a rule, found {what}"))
        .label("not allowed directly in a process")
        .help("write a rule, which starts with the channel it receives from, `| client => f(backends)`, and put the statement into the function")
        .help("a merge of sorted streams is the only statement without a `|`: `if (all_ready(mappers)):` with a `foldt` in it")
}

pub(crate) fn misplaced_foldt(span: Span) -> Diagnostic {
    Diagnostic::error("E0922", span, "`foldt` is not allowed in a function")
        .label("only allowed directly in a process")
        .note("`foldt` merges whole streams; a function handles one message.")
        .help("move it into the process, in place of a rule")
        .help(FORM)
}

pub(crate) fn misplaced_ready(span: Span, name: &str) -> Diagnostic {
    Diagnostic::error("E0922", span, format!("`{name}` is only allowed as the condition of a `foldt`"))
        .label("not the condition of a `foldt`")
        .note("A rule runs when its message has arrived, so it has nothing to wait for.")
        .help("`alive(channel)` says whether a channel is connected; `ask channel with message` waits for a reply")
}

pub(crate) fn not_an_array(span: Span, name: &str) -> Diagnostic {
    Diagnostic::error("E0923", span, format!("expected an array of channels after `foldt on`, found {name}"))
        .label("not an array of channels")
        .help("declare an array, `[kv/-] mappers`, and name it here")
}

pub(crate) fn mismatched_ready(span: Span, name: &str, merged: Span) -> Diagnostic {
    Diagnostic::error("E0923", span, "mismatched channels: `all_ready` and `foldt` name different arrays")
        .label("another array")
        .also(merged, "merged here")
        .help(format!("write `all_ready({name})`"))
}

pub(crate) fn unordered_key(span: Span, found: &str) -> Diagnostic {
    Diagnostic::error("E0924", span, format!("invalid merge key: {found} has no order"))
        .label("not an ordered type")
        .note("Streams are merged by an integer, a time, a string, bytes, or a tuple of them.")
        .help("write the field that the streams are sorted by: `by elem.key as k`")
}

pub(crate) fn wrong_element(span: Span, unit: &str, found: &str) -> Diagnostic {
    Diagnostic::error("E0925", span, format!("mismatched types: the body of this `foldt` must return a `{unit}`, found {found}"))
        .label(format!("this is {found}"))
        .help(format!("build the element in the last line, `{unit}(key, value)`, or change one of the two: `e1 with value = v`"))
}

pub(crate) fn second_merge(span: Span, first: Span) -> Diagnostic {
    Diagnostic::error("E0926", span, "duplicate `foldt`: a process has at most one")
        .label("second merge")
        .also(first, "first merge")
        .help("move the second one into another program")
}

pub(crate) fn rule_with_a_merge(span: Span, merge: Span) -> Diagnostic {
    Diagnostic::error("E0926", span, "a rule is not allowed in a process with a `foldt`")
        .label("a rule")
        .also(merge, "the merge")
        .note("A merge handles whole streams; a rule handles single messages.")
        .help("move the rule into another program")
}

/// `what` is what the key or body does: "sends a message".
pub(crate) fn side_effect(span: Span, what: &str, through: Option<(&str, Span)>) -> Diagnostic {
    let diagnostic = Diagnostic::error("E0927", span, format!("side effect in a `foldt`: its body {what}"))
        .label("not allowed in a `foldt`")
        .note("Elements are combined in parallel and in any order, so the body may only compute.")
        .help("do it with the elements of the result: `result => f() => reducer`");
    match through {
        Some((name, location)) => diagnostic.also(location, format!("`{name}` does it here")),
        None => diagnostic,
    }
}
