//! E06xx: message grammars that cannot be parsed, written or trusted.

use super::{list, similar};
use crate::diagnostic::Diagnostic;
use crate::hir::Span;

const FACTS: &[&str] = &[
    "byteorder",
    "request",
    "reply",
    "correlate",
    "order",
    "echo",
    "loud",
    "silent",
    "more",
    "ends",
    "mute",
    "on",
    "replies",
    "exclusive",
    "keep",
    "last",
    "retry",
    "whole",
    "tunnel",
];

pub(crate) fn unknown_property(span: Span, name: &str) -> Diagnostic {
    let help = match similar(name, FACTS.iter().copied()) {
        Some(close) => format!("did you mean `%{close}`?"),
        None => format!("the properties of a grammar are {}", FACTS.map_percent()),
    };
    Diagnostic::error("E0601", span, format!("a grammar has no property `%{name}`"))
        .label("no such property")
        .help(help)
}

trait Percent {
    fn map_percent(&self) -> String;
}

impl Percent for [&str] {
    fn map_percent(&self) -> String {
        let names: Vec<String> = self.iter().map(|name| format!("%{name}")).collect();
        list(names.iter().map(String::as_str))
    }
}

pub(crate) fn unknown_attribute(span: Span, name: &str, known: &[&str]) -> Diagnostic {
    let names: Vec<String> = known.iter().map(|name| format!("&{name}")).collect();
    let help = match similar(name, known.iter().copied()) {
        Some(close) => format!("did you mean `&{close}`?"),
        None => format!("here stand {}", list(names.iter().map(String::as_str))),
    };
    Diagnostic::error("E0602", span, format!("there is no `&{name}` here"))
        .label("no such attribute")
        .help(help)
}

pub(crate) fn attribute_misplaced(span: Span, name: &str, why: &str) -> Diagnostic {
    Diagnostic::error("E0602", span, format!("`&{name}` {why}")).label("out of place").help("remove it")
}

pub(crate) fn attribute_needs_value(span: Span, name: &str, example: &str) -> Diagnostic {
    Diagnostic::error("E0602", span, format!("`&{name}` needs a value"))
        .label("no value")
        .help(format!("write `{example}`"))
}

pub(crate) fn later_field(span: Span, what: &str, field: &str, place: Span) -> Diagnostic {
    Diagnostic::error("E0603", span, format!("{what} needs `{field}`, which comes later in the message"))
        .label("not known yet at this point")
        .also(place, "comes here")
        .note("A message is read from its front to its end, once.")
        .help(format!("use fields that stand before it, or move `{field}` up if the protocol has it there"))
}

pub(crate) fn circular(span: Span, name: &str, other: &str, place: Span) -> Diagnostic {
    let title = if name == other {
        format!("`{name}` is computed from itself")
    } else {
        format!("`{name}` and `{other}` are computed from each other")
    };
    let diagnostic = Diagnostic::error("E0604", span, title).label("closes the circle");
    let diagnostic =
        if name == other { diagnostic } else { diagnostic.also(place, format!("`{other}` needs `{name}`")) };
    diagnostic.help("compute one of them from fields of the message only")
}

pub(crate) fn field_type(span: Span, found: &str, help: &str) -> Diagnostic {
    Diagnostic::error("E0605", span, format!("{found} has no size on the wire"))
        .label("not a wire type")
        .help(help.to_owned())
}

pub(crate) fn missing_length(span: Span, name: &str) -> Diagnostic {
    Diagnostic::error("E0606", span, format!("nothing says how long `{name}` is"))
        .label("where does it end?")
        .help("add `&length = self.length_field`, or a number: `&length = 4`")
}

pub(crate) fn signed_length(span: Span, name: &str, ty: &str, place: Span) -> Diagnostic {
    Diagnostic::error("E0607", span, format!("`{name}` may be negative, and a length may not"))
        .label("signed")
        .also(place, format!("declared `{ty}`"))
        .help(format!("declare `{name}` as `u{ty}`"))
}

pub(crate) fn impossible_length(span: Span, name: &str, found: &str) -> Diagnostic {
    Diagnostic::error("E0607", span, format!("the length of `{name}` can never be zero or more"))
        .label(format!("between {found}"))
        .help("turn the difference round")
}

pub(crate) fn bad_fact(span: Span, fact: &str, wanted: &str, example: &str) -> Diagnostic {
    Diagnostic::error("E0608", span, format!("`%{fact}` wants {wanted}"))
        .label(format!("not {wanted}"))
        .help(format!("write `{example}`"))
}

pub(crate) fn not_fixed(span: Span, fact: &str, field: &str, before: &str, place: Span) -> Diagnostic {
    Diagnostic::error(
        "E0608",
        span,
        format!("`%{fact}` needs a field at a fixed place, but `{field}` stands behind `{before}`"),
    )
    .label("its place differs from message to message")
    .also(place, "its length differs")
    .help("name a field of the fixed part at the front of the message")
}

pub(crate) fn varying_number(span: Span, fact: &str, field: &str, place: Span) -> Diagnostic {
    Diagnostic::error(
        "E0608",
        span,
        format!("`%{fact}` needs a field that always has the same bytes, but `{field}` is a `vint`"),
    )
    .label("its length differs from message to message")
    .also(place, "1 to 9 bytes")
    .help("name a field of a sized integer type, such as `uint32`")
}

pub(crate) fn too_many_echoes(span: Span, count: usize, echoes_max: usize) -> Diagnostic {
    Diagnostic::error(
        "E0608",
        span,
        format!("the platform keeps {echoes_max} fields of a request, but this grammar asks for {count}"),
    )
    .label("one too many")
    .note("`%correlate` and `%loud` keep theirs too.")
    .help("remove an `%echo`")
}

pub(crate) fn fact_needs_number(span: Span, what: &str, field: &str) -> Diagnostic {
    Diagnostic::error("E0609", span, format!("{what} decides by numbers, but `{field}` is text or bytes"))
        .label("not a number")
        .help("decide by a field of the fixed part, for example its length: `self.key_len > 0`")
}

pub(crate) fn not_kept(span: Span, field: &str, kept: &[&str]) -> Diagnostic {
    Diagnostic::error(
        "E0609",
        span,
        format!("`{field}` of the request is no longer there when its answer is written"),
    )
    .label("not kept")
    .note(format!("Kept from a request: {}.", list(kept.iter().copied())))
    .help(format!("add `%echo = self.{field};` to keep it, or use a constant"))
}

pub(crate) fn written_without_length(span: Span, name: &str, place: Span, why: &str) -> Diagnostic {
    Diagnostic::error("E0610", span, format!("`{name}` cannot be given another value: {why}"))
        .label("written here")
        .also(place, "declared here")
        .note("When a field changes its length, the fields that hold the length must follow.")
        .help("let the length be one field (`&length = self.len`), or a `var` with `&serialize = self.len = ... $$ ...`")
}

pub(crate) fn cannot_build(span: Span, unit: &str, field: &str, place: Span, why: &str) -> Diagnostic {
    Diagnostic::error("E0610", span, format!("a message `{unit}` cannot be built, because of `{field}`: {why}"))
        .label("built here")
        .also(place, "its length does not follow")
        .note("A new message has empty fields, and the fields that hold the lengths must follow.")
        .help("let the length be one field (`&length = self.len`), or a `var` with `&serialize = self.len = ... $$ ...`")
}

pub(crate) fn derived_too_wide(span: Span, name: &str, ty: &str, found: &str) -> Diagnostic {
    Diagnostic::error(
        "E0304",
        span,
        format!("`{name}` may have to hold more than its `{ty}` when a message is changed"),
    )
    .label(format!("between {found}"))
    .help("give the fields that it measures smaller bounds, or let the program leave them as they are")
}

pub(crate) fn byteorder(span: Span, field: Option<&str>) -> Diagnostic {
    match field {
        Some(field) => Diagnostic::error(
            "E0611",
            span,
            format!("nothing says in which order the bytes of `{field}` come"),
        )
        .label("more than one byte")
        .help(
            "add `%byteorder = big;` as the first line of the unit; network protocols mostly are big-endian",
        ),
        None => Diagnostic::error("E0611", span, "a byte order is `big` or `little`")
            .label("neither")
            .note("Messages cross machines, so there is no `native`.")
            .help("write `%byteorder = big;`"),
    }
}

pub(crate) fn streamed_not_last(span: Span, name: &str) -> Diagnostic {
    Diagnostic::error(
        "E0612",
        span,
        format!("only the last field can be streamed, but fields follow `{name}`"),
    )
    .label("not the last field")
    .help(format!("give `{name}` a bound instead: `bytes<4KiB>`"))
}

pub(crate) fn streamed_read(span: Span, name: &str, declared: Span) -> Diagnostic {
    Diagnostic::error("E0612", span, format!("`{name}` is streamed, so the program never sees it as a whole"))
        .label("read here")
        .also(declared, "streamed: passed on as it arrives")
        .help("decide by the fields before it, or remove `&streamed` and give it a bound")
}

pub(crate) fn nests_itself(span: Span, name: &str) -> Diagnostic {
    Diagnostic::error(
        "E0613",
        span,
        format!("the unit `{name}` holds itself, so no message of it has an end"),
    )
    .label("holds itself")
    .note("A unit is laid out in every place that it is used in, so it cannot stand in itself, nor in its own elements.")
    .help(format!("write a tree as a list in prefix order, in which each element says how many it holds: `all : [{name}]<100> &children = self.all.count;`, in a unit of its own"))
}

pub(crate) fn nested_too_deep(span: Span, depth_max: usize) -> Diagnostic {
    Diagnostic::error("E0613", span, format!("units are nested more than {depth_max} deep"))
        .label("too deep")
        .help("write the fields of some of them out")
}

pub(crate) fn member_value(span: Span, name: &str, why: &str, help: &str) -> Diagnostic {
    Diagnostic::error("E0614", span, format!("the number of `{name}` {why}"))
        .label("not possible")
        .help(help.to_owned())
}

pub(crate) fn same_member_value(span: Span, name: &str, other: &str, value: i64, first: Span) -> Diagnostic {
    Diagnostic::error("E0614", span, format!("`{name}` and `{other}` are both {value}"))
        .label(format!("{value} again"))
        .also(first, "first here")
        .help("give each member a number of its own")
}

pub(crate) fn enum_base(span: Span) -> Diagnostic {
    Diagnostic::error("E0614", span, "an enumeration is carried in a sized integer")
        .label("not a sized integer")
        .help("write `enum uint8 { ... }`")
}

pub(crate) fn written_follows(span: Span, name: &str, place: Span) -> Diagnostic {
    Diagnostic::error("E0616", span, format!("`{name}` follows from other fields; it is not written by hand"))
        .label("written here")
        .also(place, "the grammar computes it")
        .help("remove it: change the field that it measures, and it follows")
}

pub(crate) fn written_var(span: Span, name: &str, place: Span) -> Diagnostic {
    Diagnostic::error(
        "E0616",
        span,
        format!("`{name}` is a variable of the grammar; it is not in the message"),
    )
    .label("written here")
    .also(place, "computed when a message is read")
    .help("change the fields that it is computed from")
}

pub(crate) fn serialize(span: Span, why: &str, help: &str) -> Diagnostic {
    Diagnostic::error("E0617", span, format!("`&serialize` {why}"))
        .label("not possible")
        .help(help.to_owned())
}

pub(crate) fn missing_parse(span: Span, name: &str) -> Diagnostic {
    Diagnostic::error("E0618", span, format!("nothing says how the variable `{name}` is computed"))
        .label("no `&parse`")
        .help("add `&parse = self.total_len - self.key_len`, or declare it without `var` if it is in the message")
}

pub(crate) fn answer(span: Span, why: &str, help: &str) -> Diagnostic {
    Diagnostic::error("E0619", span, format!("this answer {why}")).label("not possible").help(help.to_owned())
}

pub(crate) fn empty_unit(span: Span, name: &str) -> Diagnostic {
    Diagnostic::error(
        "E0620",
        span,
        format!("the unit `{name}` has no fields, so a message would have no bytes"),
    )
    .label("nothing on the wire")
    .help("add a field: `opcode : uint8;`")
}

/// Fields of a plain unit, each of which takes its place whether or not it is read.
pub(crate) fn too_many_plain_fields(span: Span, name: &str, count: usize, fields_max: usize) -> Diagnostic {
    too_many_fields(span, name, count, fields_max)
        .note("A number takes one place, a text or bytes two (one where its length is a field of its own), a `vint` three; all fields of nested units count.")
        .help("join neighbours that no program reads into one `bytes` field with `&length = ...`")
}

pub(crate) fn too_many_fields(span: Span, name: &str, count: usize, fields_max: usize) -> Diagnostic {
    Diagnostic::error(
        "E0621",
        span,
        format!("the fields of `{name}` take {count} places, and a message has {fields_max}"),
    )
    .label("too many fields")
}
