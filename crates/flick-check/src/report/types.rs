//! E04xx: values of the wrong type.

use super::list;
use crate::diagnostic::Diagnostic;
use crate::hir::{Span, Ty};

pub(crate) fn mismatch(span: Span, wanted: &str, found: &str, why: Option<(Span, String)>) -> Diagnostic {
    let help = match (wanted, found) {
        ("a truth value", "a number") => "compare it: `... != 0`".to_owned(),
        ("a number", "text" | "bytes") => "take its length, `len(...)`, or its hash, `hash(...)`".to_owned(),
        ("text", "a number") => "make text of the number, `str(n)`, or give a field that is text".to_owned(),
        ("a duration", "a number") => {
            "write its unit, `5ms`; a computed number is a duration with `n * 1ms`".to_owned()
        }
        ("a number", "a duration") => "say in which unit: `millis(d)`, `seconds(d)`".to_owned(),
        ("a number", "a time") => "say since when: `unix(t)` gives the seconds since 1970".to_owned(),
        ("a time", "a duration") => "add it to a time: `now() + d`".to_owned(),
        ("a duration", "a time") => "subtract another time: `now() - t`".to_owned(),
        ("a number", "a truth value") => "write both numbers: `if flag: 1 else: 0`".to_owned(),
        ("an IPv4 address", "text") => "a constant address is written `ipv4(\"10.0.0.1\")`".to_owned(),
        ("an IPv6 address", "text") => "a constant address is written `ipv6(\"::1\")`".to_owned(),
        ("an IPv6 address", "an endpoint") => "take its address: `address(e)`".to_owned(),
        ("an endpoint", "text") => "a constant endpoint is written `endpoint(\"10.0.0.1:80\")`".to_owned(),
        ("an endpoint", "a channel") => "ask for its peer: `peer(client)`".to_owned(),
        (message, "text" | "bytes" | "a number") if message.starts_with("a message") => {
            "pass the whole message, not one of its fields".to_owned()
        }
        (channel, array) if channel.starts_with("a channel") && array.starts_with("an array") => {
            "pick one of them: `backends[i]`".to_owned()
        }
        (array, channel) if channel.starts_with("a channel") && array.starts_with("an array") => {
            "pass the name of the array, without an index".to_owned()
        }
        _ => format!("write {wanted} here"),
    };
    let diagnostic = Diagnostic::error("E0401", span, format!("expected {wanted}, found {found}"))
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
    let values = |count: usize| if count == 1 { "1 value".to_owned() } else { format!("{count} values") };
    let mut diagnostic =
        Diagnostic::error("E0402", span, format!("`{name}` takes {}, but is given {found}", values(wanted)))
            .label(values(found));
    if let Some(decl) = decl {
        diagnostic = diagnostic.also(decl, format!("takes {}", values(wanted)));
    }
    if is_piped {
        diagnostic = diagnostic.note("The message that is piped in with `=>` is the last value.");
    }
    diagnostic.help(if found < wanted { "add what is missing" } else { "remove what is too much" })
}

pub(crate) fn operator(span: Span, operator: &str, left: &str, right: &str, help: &str) -> Diagnostic {
    Diagnostic::error("E0403", span, format!("`{operator}` does not work on {left} and {right}"))
        .label("these do not go together")
        .help(help)
}

pub(crate) fn prefix(span: Span, operator: &str, found: &str, help: &str) -> Diagnostic {
    Diagnostic::error("E0403", span, format!("`{operator}` does not work on {found}"))
        .label(format!("this is {found}"))
        .help(help)
}

pub(crate) fn condition(span: Span, found: &str, help: &str) -> Diagnostic {
    Diagnostic::error("E0404", span, format!("a condition is a truth value, not {found}"))
        .label(format!("this is {found}"))
        .help(help)
}

pub(crate) fn not_exhaustive(span: Span, missing: &str, is_enum: bool) -> Diagnostic {
    let diagnostic =
        Diagnostic::error("E0405", span, "this `switch` does not say what happens in every case")
            .label(missing.to_owned());
    let diagnostic = if is_enum {
        diagnostic.note("A peer may send numbers that the enumeration does not name; they are kept, and need an answer too.")
    } else {
        diagnostic
    };
    diagnostic.help("add a last case `else: ...`")
}

pub(crate) fn branches_differ(span: Span, first: &str, first_span: Span, other: &str) -> Diagnostic {
    Diagnostic::error("E0406", span, format!("one branch gives {first}, another {other}"))
        .label(format!("gives {other}"))
        .also(first_span, format!("gives {first}"))
        .help("let all branches give the same kind of value")
}

pub(crate) fn missing_else(span: Span) -> Diagnostic {
    Diagnostic::error("E0406", span, "this `if` gives no value when its condition is false")
        .label("a value is needed here")
        .help("add `else:` with the value for that case")
}

pub(crate) fn unreachable_case(span: Span, what: &str, first: Option<Span>) -> Diagnostic {
    let diagnostic =
        Diagnostic::error("E0407", span, format!("the case {what} is never reached")).label("never reached");
    let diagnostic = match first {
        Some(first) => diagnostic.also(first, "already decided here"),
        None => diagnostic,
    };
    diagnostic.help("remove it")
}

pub(crate) fn pattern(span: Span, scrutinee: &str, found: &str, help: String) -> Diagnostic {
    Diagnostic::error("E0408", span, format!("a case of {scrutinee} cannot be {found}"))
        .label(format!("this is {found}"))
        .help(help)
}

pub(crate) fn enum_and_number(span: Span, enumeration: &str, member: Option<&str>) -> Diagnostic {
    let help = match member {
        Some(member) => format!("write `{enumeration}.{member}`"),
        None => format!("write the name of a member, `{enumeration}.name`; no member has this number"),
    };
    Diagnostic::error("E0409", span, format!("a value of the enumeration `{enumeration}` is not a number"))
        .label("a number")
        .help(help)
}

pub(crate) fn signs_differ(span: Span) -> Diagnostic {
    Diagnostic::error("E0410", span, "a number that may be negative meets one that may be above 9223372036854775807")
        .label("neither 64-bit kind holds both")
        .note("`hash` and `uint64` fields count from 0 to 18446744073709551615; `int` from -9223372036854775808 to 9223372036854775807.")
        .help("make the first one positive with `max(..., 0)`, or the second one small with `mod`")
}

pub(crate) fn no_effect(span: Span, what: &str) -> Diagnostic {
    Diagnostic::error("E0411", span, format!("{what} is computed, but nothing is done with it"))
        .label("has no effect")
        .help("give it a name with `let`, send it with `=>`, or remove the line")
}

pub(crate) fn no_value(span: Span, what: &str) -> Diagnostic {
    Diagnostic::error("E0412", span, format!("{what} gives no value")).label("a value is needed here").help(
        "put an expression that gives the value here; a function gives one if `-> (...)` names its type and its last line is the value",
    )
}

pub(crate) fn wrong_result(span: Span, name: &str, wanted: &str, found: &str, decl: Span) -> Diagnostic {
    let help = if wanted == "nothing" {
        "remove the last line, or name its type in the heading: `-> (type)`".to_owned()
    } else {
        format!("let the last line of the function be {wanted}, or change the type in its heading")
    };
    Diagnostic::error("E0413", span, format!("`{name}` promises {wanted}, but gives {found}"))
        .label(format!("gives {found}"))
        .also(decl, format!("promises {wanted}"))
        .help(help)
}

pub(crate) fn view_type(span: Span, field: &str, found: &str, grammar: Span, allowed: &[&str]) -> Diagnostic {
    Diagnostic::error("E0414", span, format!("`{field}` is not {found} in the grammar"))
        .label("does not agree with the grammar")
        .also(grammar, "declared here")
        .help(format!("write {}", list(allowed.iter().copied()).replace(" and ", " or ")))
}

pub(crate) fn not_indexable(span: Span, found: &str) -> Diagnostic {
    Diagnostic::error("E0416", span, format!("`[...]` picks an element, but this is {found}"))
        .label(format!("this is {found}"))
        .help("an array of channels, a list, text and a dictionary have elements: `backends[i]`, `xs[0]`, `hits[key]`")
}

/// `field`: what stands behind the point, if anything does.
pub(crate) fn no_fields(span: Span, found: &str, ty: &Ty, field: &str) -> Diagnostic {
    let is_length = matches!(field, "length" | "len" | "size" | "count");
    let help = match ty {
        Ty::Bytes { .. } | Ty::List { .. } | Ty::Dict(_) if is_length => "write `len(x)`",
        Ty::Bytes { .. } => {
            "write a function of it: `len(x)`, `x[0..4]`, `starts_with(x, \"a\")`, `split(x, \",\", 8)`"
        }
        Ty::List { .. } => {
            "write `xs[0]` for an element, `len(xs)` for how many there are, or go through it: `for x in xs:`"
        }
        Ty::ChanArray { .. } => "name one of them, `backends[0]`; how many there are is `len(backends)`",
        Ty::Chan { .. } => "write a function of it: `peer(c)`, `address(peer(c))`, `alive(c)`, `load(c)`",
        Ty::Endpoint => "write `address(e)` or `port(e)`",
        Ty::Enum(_) => {
            "its number is `int(x)`; to choose by it, write `switch x:` with a case for each member"
        }
        Ty::Dict(_) => "look it up by key: `seen[key] else 0`",
        Ty::Time | Ty::Duration => "as a number it is `millis(d)` or `unix(t)`",
        Ty::Counter(_) => "its number is `value(c)`",
        _ => {
            "only messages and records have fields, like `req.key`; a member of an enumeration is written `opcode.get`"
        }
    };
    Diagnostic::error("E0417", span, format!("{found} has no fields"))
        .label(format!("this is {found}"))
        .help(help)
}

pub(crate) fn kind_differs(span: Span, wanted: &str, found: &str) -> Diagnostic {
    Diagnostic::error("E0418", span, format!("{found} is not {wanted}"))
        .label(format!("this is {found}"))
        .note("`string` is text, `bytes` is anything; a field has the one its grammar gives it.")
        .help("declare both as the same kind; a literal fits either")
}
