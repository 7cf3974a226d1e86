//! E03xx: work and memory without a bound, or above a limit.

use super::counted;
use crate::diagnostic::Diagnostic;
use crate::hir::{Span, Ty};
use crate::range::{Range, UINT};

/// `chain` holds the calls of the cycle: caller, callee, place of the call.
pub(crate) fn recursion(chain: &[(String, String, Span)]) -> Diagnostic {
    let Some(((caller, callee, span), rest)) = chain.split_first() else {
        unreachable!("a cycle of calls holds a call");
    };
    let title = if rest.is_empty() {
        format!("recursive function: `{caller}` calls itself, so its work has no bound")
    } else {
        format!(
            "recursive function: `{caller}` calls itself through other functions, so its work has no bound"
        )
    };
    let callee = if caller == callee { "itself".to_owned() } else { format!("`{callee}`") };
    let mut diagnostic = Diagnostic::error("E0301", span.clone(), title)
        .label(format!("recursive call: `{caller}` calls {callee} here"));
    for (caller, callee, span) in rest {
        diagnostic = diagnostic.also(span.clone(), format!("`{caller}` calls `{callee}` here"));
    }
    diagnostic
        .note("A task must finish by itself: the scheduler never preempts it.")
        .help("remove the recursive call: use `fold` for a loop, `if` or `switch` for a choice between cases")
}

pub(crate) fn view_wider(span: Span, field: &str, written: u32, allowed: u32, grammar: Span) -> Diagnostic {
    Diagnostic::error(
        "E0302",
        span,
        format!(
            "bound too large: `{field}` is declared with {}, but the grammar allows {allowed}",
            counted(written, "byte")
        ),
    )
    .label("larger than the bound in the grammar")
    .also(grammar, format!("at most {}", counted(allowed, "byte")))
    .note("A record may lower the bound of a field; a longer message is then malformed for this program.")
    .help(format!("write `{field} : string<{allowed}>` or less, or no bound at all to use the grammar's"))
}

pub(crate) fn bytes_too_long(span: Span, field: &str, longest: u32, allowed: u32) -> Diagnostic {
    let size = counted(longest, "byte");
    Diagnostic::error(
        "E0303",
        span,
        format!("value may be too long: up to {size}, but {field} holds at most {allowed}"),
    )
    .label(format!("up to {size}"))
    .help(format!("truncate it, `(...)[..{allowed}]`, or declare a larger bound where {field} is declared"))
}

pub(crate) fn int_too_wide(
    span: Span,
    target: &str,
    found: Range,
    allowed: Range,
    modulus: Option<i128>,
) -> Diagnostic {
    let help = match modulus {
        Some(modulus) => format!(
            "keep the low bits with `(...) mod {modulus}`, or limit it with `min(..., {})`",
            modulus - 1
        ),
        None if found.hi == UINT.hi => {
            "make it smaller, for example with `mod 1024`, or declare the target as `uint64`".to_owned()
        }
        None => "compute a value in the range, for example with `min` and `max`".to_owned(),
    };
    let help =
        if found.lo < allowed.lo { format!("{help}; `max(..., 0)` replaces negative values") } else { help };
    Diagnostic::error("E0304", span, format!("value may be out of range for {target}"))
        .label(format!("between {}", found.describe()))
        .note(format!("{target} holds values between {}.", allowed.describe()))
        .help(help)
}

pub(crate) fn zero_divisor(span: Span, operator: &str, is_always: bool) -> Diagnostic {
    let (title, label) = if is_always {
        (format!("division by zero: the right operand of `{operator}` is 0"), "this is zero")
    } else {
        (format!("possible division by zero: the right operand of `{operator}` may be 0"), "may be zero")
    };
    let help = if is_always {
        "use another divisor".to_owned()
    } else {
        format!("write `{operator} max(..., 1)`; the length of an array of channels is never zero")
    };
    Diagnostic::error("E0305", span, title).label(label).help(help)
}

/// `parts` is what the head consists of, largest first.
pub(crate) fn head_too_large(
    span: Span,
    unit: &str,
    total: u64,
    allowed: u64,
    parts: &[(String, u64)],
) -> Diagnostic {
    let sum: Vec<String> = parts.iter().map(|(name, bytes)| format!("{name} {bytes}")).collect();
    let title =
        format!("message head too large: the head of `{unit}` may be {total} bytes, the limit is {allowed}");
    Diagnostic::error("E0306", span, title)
        .label(format!("up to {total} bytes must be in memory at once"))
        .note(format!("The sum: {} = {total} bytes.", sum.join(" + ")))
        .help(
            "declare smaller bounds, for example `string<250>`, or stream the last field unread: `&streamed`",
        )
}

pub(crate) fn too_many_sends(span: Span, sends: u64, allowed: usize) -> Diagnostic {
    Diagnostic::error(
        "E0307",
        span,
        format!("too many sends: one message may cause {sends} sends, the limit is {allowed}"),
    )
    .label(format!("up to {sends} sends"))
    .help("send fewer messages from one rule")
}

pub(crate) fn bad_bound(span: Span, why: &str, largest: u32) -> Diagnostic {
    Diagnostic::error("E0308", span, format!("invalid bound: {why}"))
        .label("expected a number of bytes")
        .help(format!("write a number of bytes from 1 to {largest}, like `string<250>` or `bytes<4KiB>`"))
}

pub(crate) fn too_large(span: Span, size: u64, allowed: u64, worst: Option<(Span, String)>) -> Diagnostic {
    let title = format!(
        "rule too large: {size} operations after its function calls are inlined, the limit is {allowed}"
    );
    let diagnostic = Diagnostic::error("E0309", span, title)
        .label("too much code for one rule")
        .help("call fewer functions: compute a value once and pass it as an argument");
    match worst {
        Some((span, name)) => diagnostic.also(span, format!("`{name}` is the largest")),
        None => diagnostic,
    }
}

pub(crate) fn calls_too_deep(span: Span, name: &str, depth_max: usize) -> Diagnostic {
    Diagnostic::error(
        "E0310",
        span,
        format!("call depth limit exceeded: calls in `{name}` are nested more than {depth_max} deep"),
    )
    .label("calls nested too deep")
    .help("merge some of the functions")
}

/// An index that is outside in every run.
pub(crate) fn index_outside(span: Span, why: &str, of: &Ty) -> Diagnostic {
    let help = match of {
        Ty::List { .. } => {
            "write an index from 0 to the length - 1, for example `xs[0]`, or `xs[len(xs) - 1]` for the last element; an element that is not there is `none`: `xs[i] else 0`"
        }
        Ty::Bytes { .. } => {
            "write an index from 0 to the length - 1, for example `text[0]`, or `text[len(text) - 1]` for the last byte; a byte that is not there is `none`: `text[i] else 0`"
        }
        _ => "write an index from 0 to the length - 1, for example `hash(req.key) mod len(backends)`",
    };
    Diagnostic::error("E0329", span, "index is always out of bounds").label(why.to_owned()).help(help)
}
