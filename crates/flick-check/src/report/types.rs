//! E04xx: values of the wrong type.

use super::{counted, list};
use crate::diagnostic::Diagnostic;
use crate::hir::{Span, Ty};

pub(crate) fn mismatch(span: Span, wanted: &str, found: &str, why: Option<(Span, String)>) -> Diagnostic {
    let help = match (wanted, found) {
        ("a boolean", "an integer") => "compare it: `... != 0`".to_owned(),
        ("an integer", "a string" | "bytes") => {
            "take its length, `len(...)`, or its hash, `hash(...)`".to_owned()
        }
        ("a string", "an integer") => {
            "convert the integer, `str(n)`, or use a field that is a string".to_owned()
        }
        ("a duration", "an integer") => {
            "write its unit, `5ms`; a computed integer is converted with `n * 1ms`".to_owned()
        }
        ("an integer", "a duration") => "convert it to a unit: `millis(d)`, `seconds(d)`".to_owned(),
        ("an integer", "a time") => "convert it: `unix(t)` returns the seconds since 1970".to_owned(),
        ("a time", "a duration") => "add it to a time: `now() + d`".to_owned(),
        ("a duration", "a time") => "subtract another time: `now() - t`".to_owned(),
        ("an integer", "a boolean") => "write both integers: `if flag: 1 else: 0`".to_owned(),
        ("an IPv4 address", "a string") => "write a constant address as `ipv4(\"10.0.0.1\")`".to_owned(),
        ("an IPv6 address", "a string") => "write a constant address as `ipv6(\"::1\")`".to_owned(),
        ("an IPv6 address", "an endpoint") => "take its address: `address(e)`".to_owned(),
        ("an endpoint", "a string") => "write a constant endpoint as `endpoint(\"10.0.0.1:80\")`".to_owned(),
        ("an endpoint", "a channel") => "take the endpoint of its peer: `peer(client)`".to_owned(),
        (message, "a string" | "bytes" | "an integer") if message.starts_with("a message") => {
            "pass the whole message, not one of its fields".to_owned()
        }
        (channel, array) if channel.starts_with("a channel") && array.starts_with("an array") => {
            "index the array: `backends[i]`".to_owned()
        }
        (array, channel) if channel.starts_with("a channel") && array.starts_with("an array") => {
            "pass the name of the array, without an index".to_owned()
        }
        _ => format!("write {wanted} here"),
    };
    let diagnostic =
        Diagnostic::error("E0401", span, format!("mismatched types: expected {wanted}, found {found}"))
            .label(format!("this is {found}"));
    let diagnostic = match why {
        Some((span, text)) => diagnostic.also(span, text),
        None => diagnostic,
    };
    diagnostic.help(help)
}

pub(crate) fn argument_count(
    span: Span,
    name: &str,
    wanted: usize,
    found: usize,
    decl: Option<Span>,
    is_piped: bool,
) -> Diagnostic {
    let arguments = |count: usize| counted(count, "argument");
    let title =
        format!("wrong number of arguments for `{name}`: expected {}, found {found}", arguments(wanted));
    let mut diagnostic = Diagnostic::error("E0402", span, title).label(arguments(found));
    if let Some(decl) = decl {
        diagnostic = diagnostic.also(decl, format!("takes {}", arguments(wanted)));
    }
    if is_piped {
        diagnostic = diagnostic.note("The message that is passed with `=>` is the last argument.");
    }
    diagnostic.help(if found < wanted { "add the missing arguments" } else { "remove the extra arguments" })
}

pub(crate) fn operator(span: Span, operator: &str, left: &str, right: &str, help: &str) -> Diagnostic {
    Diagnostic::error("E0403", span, format!("cannot apply operator `{operator}` to {left} and {right}"))
        .label("incompatible operands")
        .help(help)
}

pub(crate) fn prefix(span: Span, operator: &str, found: &str, help: &str) -> Diagnostic {
    Diagnostic::error("E0403", span, format!("cannot apply operator `{operator}` to {found}"))
        .label(format!("this is {found}"))
        .help(help)
}

pub(crate) fn condition(span: Span, found: &str, help: &str) -> Diagnostic {
    Diagnostic::error("E0404", span, format!("expected a boolean condition, found {found}"))
        .label(format!("this is {found}"))
        .help(help)
}

/// An argument of a built-in function, or the value of a `switch`, of a type that it does not take.
pub(crate) fn argument(span: Span, name: &str, found: &str, help: &str) -> Diagnostic {
    Diagnostic::error("E0403", span, format!("mismatched types: `{name}` cannot be applied to {found}"))
        .label(format!("this is {found}"))
        .help(help)
}

/// `missing`: the values without a case.
pub(crate) fn not_exhaustive(span: Span, missing: &str, is_enum: bool) -> Diagnostic {
    let diagnostic =
        Diagnostic::error("E0405", span, format!("non-exhaustive `switch`: {missing} not covered"))
            .label(format!("{missing} not covered"));
    let diagnostic = if is_enum {
        diagnostic.note("A peer may send integers that are not members of the enum; the platform keeps them, so they need a case too.")
    } else {
        diagnostic
    };
    diagnostic.help("add a last case `else: ...`")
}

pub(crate) fn branches_differ(span: Span, first: &str, first_span: Span, other: &str) -> Diagnostic {
    Diagnostic::error(
        "E0406",
        span,
        format!("branches have incompatible types: expected {first}, found {other}"),
    )
    .label(format!("this is {other}"))
    .also(first_span, format!("this is {first}"))
    .help("let all branches evaluate to the same type")
}

pub(crate) fn missing_else(span: Span) -> Diagnostic {
    Diagnostic::error("E0406", span, "missing `else`: this `if` has no value when its condition is false")
        .label("expected a value in both branches")
        .help("add `else:` with the value for that case")
}

pub(crate) fn unreachable_case(span: Span, what: &str, first: Option<Span>) -> Diagnostic {
    let diagnostic =
        Diagnostic::error("E0407", span, format!("unreachable case: {what}")).label("unreachable case");
    let diagnostic = match first {
        Some(first) => diagnostic.also(first, "already covered here"),
        None => diagnostic,
    };
    diagnostic.help("remove it")
}

pub(crate) fn pattern(span: Span, scrutinee: &str, found: &str, help: String) -> Diagnostic {
    Diagnostic::error(
        "E0408",
        span,
        format!("mismatched types in a case: expected {scrutinee}, found {found}"),
    )
    .label(format!("this is {found}"))
    .help(help)
}

pub(crate) fn enum_and_number(span: Span, enumeration: &str, member: Option<&str>) -> Diagnostic {
    let help = match member {
        Some(member) => format!("write `{enumeration}.{member}`"),
        None => format!("write the name of a member, `{enumeration}.name`; no member has this value"),
    };
    Diagnostic::error(
        "E0409",
        span,
        format!("mismatched types: expected a member of enum `{enumeration}`, found an integer"),
    )
    .label("an integer")
    .help(help)
}

pub(crate) fn signs_differ(span: Span) -> Diagnostic {
    Diagnostic::error("E0410", span, "mismatched signedness: a possibly negative integer is combined with one that may be above 9223372036854775807")
        .label("no 64-bit type holds both ranges")
        .note("`hash` and `uint64` fields range from 0 to 18446744073709551615; `int` from -9223372036854775808 to 9223372036854775807.")
        .help("make the first one non-negative with `max(..., 0)`, or the second one small with `mod`")
}

pub(crate) fn unused_value(span: Span, what: &str) -> Diagnostic {
    Diagnostic::error("E0411", span, format!("this value is never used: {what}"))
        .label("unused value")
        .help("name it with `let`, send it with `=>`, or remove the line")
}

pub(crate) fn no_value(span: Span, what: &str) -> Diagnostic {
    Diagnostic::error("E0412", span, format!("expected a value, but {what} does not return one"))
        .label("expected a value here")
        .help("write an expression with a value here; a function returns one if `-> (...)` names its type and its last line is the value")
}

pub(crate) fn wrong_result(span: Span, name: &str, wanted: &str, found: &str, decl: Span) -> Diagnostic {
    let help = if wanted == "nothing" {
        "remove the last line, or declare the return type: `-> (type)`".to_owned()
    } else {
        format!("let the last line of the function be {wanted}, or change the return type")
    };
    Diagnostic::error(
        "E0413",
        span,
        format!("mismatched return type: `{name}` is declared to return {wanted}, found {found}"),
    )
    .label(format!("this is {found}"))
    .also(decl, format!("expected {wanted} because of this return type"))
    .help(help)
}

pub(crate) fn view_type(span: Span, field: &str, found: &str, grammar: Span, allowed: &[&str]) -> Diagnostic {
    Diagnostic::error(
        "E0414",
        span,
        format!("mismatched field type: `{field}` is not {found} in the grammar"),
    )
    .label("does not match the grammar")
    .also(grammar, "declared here")
    .help(format!("write {}", list(allowed.iter().copied()).replace(" and ", " or ")))
}

pub(crate) fn not_indexable(span: Span, found: &str) -> Diagnostic {
    Diagnostic::error("E0416", span, format!("cannot index into {found}"))
        .label(format!("this is {found}"))
        .help("index an array of channels, `backends[i]`, a list or string, `xs[0]`, or a dictionary, `hits[key]`")
}

/// `field`: the name after the dot, if there is one.
pub(crate) fn no_fields(span: Span, found: &str, ty: &Ty, field: &str) -> Diagnostic {
    let is_length = matches!(field, "length" | "len" | "size" | "count");
    let help = match ty {
        Ty::Bytes { .. } | Ty::List { .. } | Ty::Dict(_) if is_length => "write `len(x)`",
        Ty::Bytes { .. } => {
            "call a function: `len(x)`, `x[0..4]`, `starts_with(x, \"a\")`, `split(x, \",\", 8)`"
        }
        Ty::List { .. } => {
            "write `xs[0]` for an element, `len(xs)` for the length, or iterate: `for x in xs:`"
        }
        Ty::ChanArray { .. } => "index a channel, `backends[0]`; the number of channels is `len(backends)`",
        Ty::Chan { .. } => "call a function: `peer(c)`, `address(peer(c))`, `alive(c)`, `load(c)`",
        Ty::Endpoint => "write `address(e)` or `port(e)`",
        Ty::Enum(_) => "its integer is `int(x)`; to choose by member, write `switch x:` with a case for each",
        Ty::Dict(_) => "look it up by key: `seen[key] else 0`",
        Ty::Time | Ty::Duration => "convert it to an integer: `millis(d)` or `unix(t)`",
        Ty::Counter(_) => "its integer is `value(c)`",
        _ => {
            "only messages and records have fields, like `req.key`; a member of an enum is written `opcode.get`"
        }
    };
    let title = if field.is_empty() {
        format!("{found} has no fields")
    } else {
        format!("no field `{field}`: {found} has no fields")
    };
    Diagnostic::error("E0417", span, title).label(format!("this is {found}")).help(help)
}

pub(crate) fn string_or_bytes(span: Span, wanted: &str, found: &str) -> Diagnostic {
    Diagnostic::error("E0418", span, format!("mismatched types: expected {wanted}, found {found}"))
        .label(format!("this is {found}"))
        .note("`string` holds text, `bytes` holds any bytes; the grammar says which one a field is.")
        .help("convert with `raw(string)` or `text(bytes)`, or declare both with the same type; a literal fits either")
}
