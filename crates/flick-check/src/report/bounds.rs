//! E03xx: work and memory without a bound, or with one that does not fit.

use crate::diagnostic::Diagnostic;
use crate::hir::Span;
use crate::range::{Range, UINT};

/// `chain` holds the calls of the circle: caller, callee, place of the call.
pub(crate) fn recursion(chain: &[(String, String, Span)]) -> Diagnostic {
    let Some(((caller, callee, span), rest)) = chain.split_first() else {
        unreachable!("a circle of calls holds a call");
    };
    let title = if rest.is_empty() {
        format!("`{caller}` calls itself, so its work has no bound")
    } else {
        format!("`{caller}` calls itself through others, so its work has no bound")
    };
    let callee = if caller == callee { "itself".to_owned() } else { format!("`{callee}`") };
    let mut diagnostic =
        Diagnostic::error("E0301", span.clone(), title).label(format!("`{caller}` calls {callee} here"));
    for (caller, callee, span) in rest {
        diagnostic = diagnostic.also(span.clone(), format!("`{caller}` calls `{callee}` here"));
    }
    diagnostic
        .note("A task must finish by itself: the scheduler never stops one half-way.")
        .help("compute the value without the call: what goes step by step is a `fold`, a choice between cases an `if` or `switch`")
}

pub(crate) fn view_wider(span: Span, field: &str, written: u32, allowed: u32, grammar: Span) -> Diagnostic {
    Diagnostic::error(
        "E0302",
        span,
        format!("`{field}` may be {written} bytes here, but the grammar ends it at {allowed}"),
    )
    .label("wider than the grammar")
    .also(grammar, format!("at most {allowed} bytes"))
    .note("A record may narrow the bound of a field; a longer message is then malformed for this program.")
    .help(format!("write `{field} : string<{allowed}>` or less, or no bound at all to take the grammar's"))
}

pub(crate) fn bytes_too_long(span: Span, field: &str, longest: u32, allowed: u32) -> Diagnostic {
    Diagnostic::error(
        "E0303",
        span,
        format!("this value may be {longest} bytes long, but {field} holds at most {allowed}"),
    )
    .label(format!("at most {longest} bytes"))
    .help(format!("cut it, `(...)[..{allowed}]`, or declare more room where {field} is declared"))
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
            "keep the low part with `(...) mod {modulus}`, or limit it with `min(..., {})`",
            modulus - 1
        ),
        None if found.hi == UINT.hi => {
            "make it smaller, for example with `mod 1024`, or let the target be a `uint64`".to_owned()
        }
        None => "compute a value that is inside the range, for example with `min` and `max`".to_owned(),
    };
    // What lies below everything allowed is lifted, what lies above is cut or wrapped.
    let help = if found.lo < allowed.lo {
        format!("{help}; what may be below is lifted with `max(..., 0)`")
    } else {
        help
    };
    Diagnostic::error("E0304", span, format!("this value may not fit {target}"))
        .label(format!("between {}", found.describe()))
        .note(format!("{target} holds values between {}.", allowed.describe()))
        .help(help)
}

pub(crate) fn zero_divisor(span: Span, operator: &str, is_always: bool) -> Diagnostic {
    let (title, label) = if is_always {
        (format!("`{operator}` by zero"), "this is zero")
    } else {
        (format!("the divisor of `{operator}` may be zero"), "may be zero")
    };
    let help = if is_always {
        "divide by something else".to_owned()
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
    Diagnostic::error("E0306", span, format!("the head of `{unit}` may be {total} bytes, more than the {allowed} there is room for"))
        .label(format!("up to {total} bytes must lie in memory at once"))
        .note(format!("The sum: {} = {total} bytes.", sum.join(" + ")))
        .help("write smaller bounds, for example `string<250>`, or let the last field pass through unread: `&streamed`")
}

pub(crate) fn too_many_sends(span: Span, sends: u64, allowed: usize) -> Diagnostic {
    Diagnostic::error(
        "E0307",
        span,
        format!("one message may cause {sends} sends here, more than the {allowed} allowed"),
    )
    .label(format!("up to {sends} sends"))
    .help("send fewer messages from one rule")
}

pub(crate) fn bad_bound(span: Span, why: &str, largest: u32) -> Diagnostic {
    Diagnostic::error("E0308", span, format!("this is no bound: {why}"))
        .label("not a number of bytes")
        .help(format!("write a number of bytes from 1 to {largest}, like `string<250>` or `bytes<4KiB>`"))
}

pub(crate) fn too_much_work(
    span: Span,
    steps: u64,
    allowed: u64,
    worst: Option<(Span, String)>,
) -> Diagnostic {
    let mut diagnostic = Diagnostic::error(
        "E0309",
        span,
        format!("one message may cost {steps} steps, more than the {allowed} allowed"),
    )
    .label("too much work for one message")
    .help("compute a value once and give it a name with `let`, call fewer functions, bound repetitions more tightly");
    if let Some((span, name)) = worst {
        diagnostic = diagnostic.also(span, format!("`{name}` costs most"));
    }
    diagnostic
}

pub(crate) fn too_large(span: Span, size: u64, allowed: u64, worst: Option<(Span, String)>) -> Diagnostic {
    let title = format!(
        "this rule is {size} operations once the functions it calls are written out, more than the {allowed} allowed"
    );
    let diagnostic = Diagnostic::error("E0309", span, title)
        .label("too much code for one rule")
        .help("call fewer functions: compute a value once and pass it on");
    match worst {
        Some((span, name)) => diagnostic.also(span, format!("`{name}` is the largest")),
        None => diagnostic,
    }
}

pub(crate) fn calls_too_deep(span: Span, name: &str, depth_max: usize) -> Diagnostic {
    Diagnostic::error(
        "E0310",
        span,
        format!("the calls below `{name}` are nested more than {depth_max} deep"),
    )
    .label("too deep")
    .help("join some of the functions")
}
