//! E06xx: errors in message grammars.

use super::{list, similar};
use crate::diagnostic::Diagnostic;
use crate::hir::{Span, Unit};

const PROPERTIES: &[&str] = &[
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
    "stateful",
    "on",
    "replies",
    "exclusive",
    "keep",
    "keep_last",
    "keep_client",
    "carry",
    "last",
    "retry",
    "whole",
    "tunnel",
    "closes",
    "status",
    "failed",
];

/// Lists names with a sign in front of each.
fn listed(sign: char, names: &[&str]) -> String {
    let names: Vec<String> = names.iter().map(|name| format!("{sign}{name}")).collect();
    list(names.iter().map(String::as_str))
}

pub(crate) fn unknown_property(span: Span, name: &str) -> Diagnostic {
    let help = match similar(name, PROPERTIES.iter().copied()) {
        Some(close) => format!("did you mean `%{close}`?"),
        None => format!("the properties of a grammar are {}", listed('%', PROPERTIES)),
    };
    Diagnostic::error("E0601", span, format!("unknown property `%{name}`"))
        .label("unknown property")
        .help(help)
}

pub(crate) fn carry_without_replies(span: Span) -> Diagnostic {
    let title = "invalid `%carry`: the messages of this grammar have no replies";
    Diagnostic::error("E0608", span, title)
        .label("carried from a request to the next one")
        .help("declare `%replies`, or `%order = in_order;`")
}

pub(crate) fn property_inside(span: Span) -> Diagnostic {
    Diagnostic::error("E0601", span, "a property is not allowed in a `switch`")
        .label("inside a `switch`")
        .help("move it to the top of the unit")
}

pub(crate) fn unknown_attribute(span: Span, name: &str, known: &[&str]) -> Diagnostic {
    Diagnostic::error("E0602", span, format!("unknown attribute `&{name}`"))
        .label("unknown attribute")
        .help(attribute_help(name, known))
}

/// An attribute on something (`what`) that does not have it.
pub(crate) fn attribute_of(span: Span, name: &str, what: &str, known: &[&str]) -> Diagnostic {
    Diagnostic::error("E0602", span, format!("attribute `&{name}` is not allowed on {what}"))
        .label("not allowed here")
        .help(attribute_help(name, known))
}

fn attribute_help(name: &str, known: &[&str]) -> String {
    match similar(name, known.iter().copied()) {
        Some(close) => format!("did you mean `&{close}`?"),
        None => format!("the attributes allowed here are {}", listed('&', known)),
    }
}

/// `place` is where the attribute is not allowed, or the only place where it is: "on a variable, which has no bytes".
pub(crate) fn attribute_misplaced(span: Span, name: &str, location: &str) -> Diagnostic {
    Diagnostic::error("E0602", span, format!("attribute `&{name}` is {location}"))
        .label("not allowed here")
        .help("remove it")
}

pub(crate) fn attribute_needs_value(span: Span, name: &str, example: &str) -> Diagnostic {
    Diagnostic::error("E0602", span, format!("missing value of attribute `&{name}`"))
        .label("missing value")
        .help(format!("write `{example}`"))
}

pub(crate) fn later_field(span: Span, what: &str, field: &str, location: Span) -> Diagnostic {
    Diagnostic::error("E0603", span, format!("{what} uses `{field}`, which comes later in the message"))
        .label("used before it is parsed")
        .also(location, "comes here")
        .note("A message is parsed once, from front to end.")
        .help(format!("use fields that come before it, or move `{field}` up if the protocol has it there"))
}

pub(crate) fn circular(span: Span, name: &str, other: &str, location: Span) -> Diagnostic {
    let title = if name == other {
        format!("circular definition: `{name}` depends on itself")
    } else {
        format!("circular definition: `{name}` and `{other}` depend on each other")
    };
    let diagnostic = Diagnostic::error("E0604", span, title).label("closes the cycle");
    let diagnostic = if name == other {
        diagnostic
    } else {
        diagnostic.also(location, format!("`{other}` depends on `{name}`"))
    };
    diagnostic.help("compute one of them from fields of the message only")
}

pub(crate) fn field_type(span: Span, found: &str, help: &str) -> Diagnostic {
    Diagnostic::error("E0605", span, format!("invalid field type: {found} has no encoding"))
        .label("no encoding")
        .help(help.to_owned())
}

pub(crate) fn missing_length(span: Span, name: &str) -> Diagnostic {
    Diagnostic::error("E0606", span, format!("missing length of `{name}`"))
        .label("missing length")
        .help("add `&length = self.length_field`, or a number: `&length = 4`")
}

pub(crate) fn signed_length(span: Span, name: &str, ty: &str, location: Span) -> Diagnostic {
    Diagnostic::error("E0607", span, format!("invalid length: `{name}` is signed and may be negative"))
        .label("signed")
        .also(location, format!("declared `{ty}`"))
        .help(format!("declare `{name}` as `u{ty}`, or reject negative values: `&requires = $$ >= 0`"))
}

pub(crate) fn impossible_length(span: Span, name: &str, found: &str) -> Diagnostic {
    Diagnostic::error("E0607", span, format!("invalid length: the length of `{name}` is always negative"))
        .label(format!("between {found}"))
        .help("swap the operands of the subtraction")
}

pub(crate) fn bad_fact(span: Span, fact: &str, wanted: &str, example: &str) -> Diagnostic {
    Diagnostic::error("E0608", span, format!("invalid value of `%{fact}`: expected {wanted}"))
        .label(format!("expected {wanted}"))
        .help(format!("write `{example}`"))
}

pub(crate) fn not_fixed(span: Span, fact: &str, field: &str, before: &str, location: Span) -> Diagnostic {
    Diagnostic::error(
        "E0608",
        span,
        format!("`%{fact}` needs a field at a fixed offset, but `{field}` comes after `{before}`"),
    )
    .label("its offset is not fixed")
    .also(location, "has no fixed length")
    .help("use a field of the fixed part at the front of the message")
}

pub(crate) fn not_fixed_in_a_tree(span: Span, fact: &str, field: &str) -> Diagnostic {
    Diagnostic::error(
        "E0608",
        span,
        format!("`%{fact}` needs a field at a fixed offset, but `{field}` does not come after integers and literals only"),
    )
    .label("its offset is not fixed")
    .help("use a field that only sized integers, bits and literals without `&optional` or `&cut` come before")
}

pub(crate) fn varying_number(span: Span, fact: &str, field: &str, location: Span) -> Diagnostic {
    Diagnostic::error(
        "E0608",
        span,
        format!("`%{fact}` needs a field of fixed length, but `{field}` is a `vint`"),
    )
    .label("its length is not fixed")
    .also(location, "1 to 9 bytes")
    .help("use a field of a sized integer type, such as `uint32`")
}

pub(crate) fn too_many_echoes(span: Span, count: usize, echoes_max: usize) -> Diagnostic {
    Diagnostic::error(
        "E0608",
        span,
        format!("too many `%echo` fields: this grammar keeps {count} fields of a request, the limit is {echoes_max}"),
    )
    .label("exceeds the limit")
    .note("The fields of `%correlate` and `%loud` count too.")
    .help("remove an `%echo`")
}

pub(crate) fn fact_needs_number(span: Span, what: &str, field: &str) -> Diagnostic {
    Diagnostic::error("E0609", span, format!("{what} expects integers, but `{field}` is a string or bytes"))
        .label("not an integer")
        .help("use a field of the fixed part, for example the length: `self.key_len > 0`")
}

pub(crate) fn not_kept(span: Span, field: &str, kept: &[&str]) -> Diagnostic {
    Diagnostic::error(
        "E0609",
        span,
        format!("cannot use `{field}`: the platform does not keep this field of a request"),
    )
    .label("not kept")
    .note(format!("Kept from a request: {}.", list(kept.iter().copied())))
    .help(format!("add `%echo = self.{field};` to keep it, or use a constant"))
}

pub(crate) fn written_without_length(span: Span, name: &str, location: Span, why: &str) -> Diagnostic {
    Diagnostic::error("E0610", span, format!("cannot assign to field `{name}`: {why}"))
        .label("assigned here")
        .also(location, "declared here")
        .note("When the length of a field changes, the platform must be able to update the fields that hold the length.")
        .help("declare the length as one field (`&length = self.len`), or as a `var` with `&serialize = self.len = ... $$ ...`")
}

pub(crate) fn cannot_build(span: Span, unit: &str, field: &str, location: Span, why: &str) -> Diagnostic {
    Diagnostic::error("E0610", span, format!("cannot build a message `{unit}`: for field `{field}`, {why}"))
        .label("built here")
        .also(location, "its length cannot be updated")
        .note("A new message has empty fields, and the platform must be able to set the fields that hold the lengths.")
        .help("declare the length as one field (`&length = self.len`), or as a `var` with `&serialize = self.len = ... $$ ...`")
}

pub(crate) fn derived_too_wide(span: Span, name: &str, ty: &str, found: &str) -> Diagnostic {
    Diagnostic::error(
        "E0304",
        span,
        format!(
            "value may be out of range for `{name}`: `{ty}` cannot hold it when the program changes a message"
        ),
    )
    .label(format!("between {found}"))
    .help("declare smaller bounds for the fields whose length it holds, or do not change them")
}

pub(crate) fn byteorder(span: Span, field: Option<&str>) -> Diagnostic {
    match field {
        Some(field) => Diagnostic::error("E0611", span, format!("missing byte order for `{field}`"))
            .label("more than one byte")
            .help("add `%byteorder = big;` as the first line of the unit; most network protocols are big-endian"),
        None => Diagnostic::error("E0611", span, "invalid byte order: expected `big` or `little`")
            .label("expected `big` or `little`")
            .note("Messages cross machines, so there is no `native`.")
            .help("write `%byteorder = big;`"),
    }
}

pub(crate) fn streamed_not_last(span: Span, name: &str) -> Diagnostic {
    Diagnostic::error("E0612", span, format!("streamed field `{name}` must be the last field"))
        .label("not the last field")
        .help(format!("declare a bound instead: `{name} : bytes<4KiB>`"))
}

pub(crate) fn streamed_read(span: Span, name: &str, declared: Span) -> Diagnostic {
    Diagnostic::error(
        "E0612",
        span,
        format!("cannot read streamed field `{name}`: it is never in memory as a whole"),
    )
    .label("read here")
    .also(declared, "streamed: forwarded as it arrives")
    .help("use the fields before it, or remove `&streamed` and declare a bound")
}

pub(crate) fn recursive_unit(span: Span, name: &str) -> Diagnostic {
    Diagnostic::error("E0613", span, format!("recursive unit `{name}` has infinite size"))
        .label("recursive use")
        .note("A unit is expanded in every place where it is used, so it cannot contain itself, directly or in a list.")
        .help(format!("declare a tree as a list in prefix order, in which each element holds the number of its children: `all : [{name}]<100> &children = self.all.count;`, in a unit of its own"))
}

pub(crate) fn nested_too_deep(span: Span, depth_max: usize) -> Diagnostic {
    Diagnostic::error("E0613", span, format!("units nested too deeply: the limit is {depth_max} levels"))
        .label("nested too deeply")
        .help("inline the fields of some of them")
}

pub(crate) fn member_value(span: Span, name: &str, why: &str, help: &str) -> Diagnostic {
    Diagnostic::error("E0614", span, format!("invalid value of member `{name}`: it {why}"))
        .label("invalid value")
        .help(help.to_owned())
}

pub(crate) fn same_member_value(span: Span, name: &str, other: &str, value: i64, first: Span) -> Diagnostic {
    Diagnostic::error(
        "E0614",
        span,
        format!("value `{value}` assigned more than once: to `{other}` and `{name}`"),
    )
    .label(format!("`{value}` assigned here"))
    .also(first, "first assigned here")
    .help("assign each member a value of its own")
}

pub(crate) fn enum_type(span: Span) -> Diagnostic {
    Diagnostic::error("E0614", span, "invalid type of an enum: expected a sized integer")
        .label("expected a sized integer")
        .help("write `enum uint8 { ... }`")
}

pub(crate) fn written_follows(span: Span, name: &str, location: Span) -> Diagnostic {
    Diagnostic::error("E0616", span, format!("cannot assign to field `{name}`: the grammar computes it"))
        .label("assigned here")
        .also(location, "computed from other fields")
        .help("remove it: the platform updates it when the field that it measures changes")
}

pub(crate) fn written_var(span: Span, name: &str, location: Span) -> Diagnostic {
    Diagnostic::error(
        "E0616",
        span,
        format!("cannot assign to variable `{name}`: it is not part of the message"),
    )
    .label("assigned here")
    .also(location, "computed when a message is parsed")
    .help("change the fields that it is computed from")
}

pub(crate) fn serialize(span: Span, why: &str, help: &str) -> Diagnostic {
    Diagnostic::error("E0617", span, format!("invalid `&serialize`: {why}"))
        .label("invalid `&serialize`")
        .help(help.to_owned())
}

pub(crate) fn forward(span: Span, why: &str, help: &str) -> Diagnostic {
    Diagnostic::error("E0617", span, format!("invalid `&forward`: {why}"))
        .label("invalid `&forward`")
        .help(help.to_owned())
}

pub(crate) fn missing_parse(span: Span, name: &str) -> Diagnostic {
    Diagnostic::error("E0618", span, format!("missing `&parse` of variable `{name}`"))
        .label("missing `&parse`")
        .help("add `&parse = self.total_len - self.key_len`, or remove `var` if it is a field of the message")
}

pub(crate) fn error_response(span: Span, why: &str, help: &str) -> Diagnostic {
    Diagnostic::error("E0619", span, format!("invalid error response in `%on`: {why}"))
        .label("invalid error response")
        .help(help.to_owned())
}

pub(crate) fn empty_unit(span: Span, name: &str) -> Diagnostic {
    Diagnostic::error("E0620", span, format!("empty unit: `{name}` has no fields"))
        .label("no fields")
        .help("add a field: `opcode : uint8;`")
}

/// Fields of a plain unit, each of which takes its slots whether or not it is read.
pub(crate) fn too_many_plain_fields(span: Span, name: &str, count: usize, fields_max: usize) -> Diagnostic {
    too_many_fields(span, name, count, fields_max)
        .note("An integer uses one slot, a string or bytes two (one if its length is a field of its own), a `vint` three; all fields of nested units count.")
        .help("merge adjacent fields that no program reads into one `bytes` field with `&length = ...`")
}

pub(crate) fn too_many_fields(span: Span, name: &str, count: usize, fields_max: usize) -> Diagnostic {
    Diagnostic::error(
        "E0621",
        span,
        format!("too many fields: the fields of `{name}` use {count} slots, the limit of a message is {fields_max}"),
    )
    .label("too many fields")
}

/// The reply has no field that could repeat `field` of its request.
pub(crate) fn not_repeated(span: Span, field: &str, reply: &Unit) -> Diagnostic {
    let (name, location) = (&reply.name, reply.span.clone());
    Diagnostic::error("E0622", span, format!("no field of `{name}` repeats `{field}` of its request"))
        .label("the platform changes this field in requests and restores it in replies")
        .also(location, format!("has neither `%correlate` nor a field `{field}`"))
        .help(format!("write `%correlate = self.FIELD;` in `{name}`, with the field that repeats `{field}`"))
}

/// A field of the reply cannot repeat `field` of the request; `why` completes "it".
pub(crate) fn cannot_repeat(
    span: Span,
    (field, reply): (&str, &Unit),
    location: Span,
    why: &str,
) -> Diagnostic {
    Diagnostic::error(
        "E0622",
        span,
        format!("this field of `{}` cannot repeat `{field}`: it {why}", reply.name),
    )
    .label("the platform changes this field in requests and restores it in replies")
    .also(location, why.to_owned())
    .help(format!("declare it as an integer of the width of `{field}`, after fields of fixed length only"))
}

/// The reply has `%correlate`, its request has not.
pub(crate) fn correlated_reply_only(span: Span, request: &Unit, reply: &Unit) -> Diagnostic {
    let (own, theirs) = (&request.name, &reply.name);
    let title = format!("`%correlate` of `{theirs}` without `%correlate` of its request `{own}`");
    Diagnostic::error("E0622", span, title)
        .label("nothing numbers the requests")
        .also(request.span.clone(), format!("its replies are of `{theirs}`"))
        .help(format!("write `%correlate = self.FIELD;` in `{own}`, or remove it here"))
}
