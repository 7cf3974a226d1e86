//! Checks the attributes of fields against those that each kind of field allows.
//! Promises: afterwards every attribute of a field is one that its kind allows, at most once, with a value if it
//! needs one.

use flick_syntax::ast;

use super::draft::Draft;
use crate::diagnostic::Sink;
use crate::hir::{FieldKind, Span};
use crate::load::span_of;
use crate::report;

/// Attributes of fields.
const FIELD_ATTRS: &[&str] = &[
    "length",
    "requires",
    "streamed",
    "if",
    "until",
    "of",
    "min",
    "to_close",
    "signed",
    "fault",
    "count",
    "children",
    "last",
    "key",
    "value",
    "nocase",
    "once",
    "cut",
    "cut_listed",
    "keep_cut",
    "trim",
    "default",
    "zeros",
    "bare",
];
const VAR_ATTRS: &[&str] =
    &["parse", "serialize", "forward", "requires", "any", "sum", "full", "kept", "carried", "fault"];
/// Attributes that may be repeated.
const REPEATED: &[&str] = &["requires", "forward"];
/// Attributes without a value.
const BARE: &[&str] =
    &["trim", "streamed", "nocase", "to_close", "signed", "kept", "carried", "optional", "zeros"];
/// Attributes that are not supported yet.
const LATER: &[&str] = &["convert", "chunked", "eod"];

/// Whether it is an attribute of fields.
pub(super) fn is_of_field(attr: &ast::Attr) -> bool {
    attr.name().is_some_and(|name| FIELD_ATTRS.contains(&name.text()))
}

/// The attributes that are allowed on a field of this kind.
fn allowed(kind: &FieldKind) -> &'static [&'static str] {
    match kind {
        FieldKind::Int { .. } | FieldKind::Vint { .. } | FieldKind::Varint { .. } => {
            &["requires", "if", "fault", "default"]
        }
        FieldKind::Number { .. } => &["requires", "if", "fault", "signed", "zeros", "default"],
        FieldKind::Bits { .. } => &["requires", "fault"],
        FieldKind::Bytes { .. } => &["length", "requires", "streamed", "if", "fault"],
        FieldKind::Text { .. } => &["until", "of", "min", "trim", "cut", "requires", "if", "fault"],
        FieldKind::ToClose { .. } => &["to_close", "if"],
        FieldKind::List(_) => &[
            "until",
            "count",
            "length",
            "children",
            "last",
            "key",
            "value",
            "nocase",
            "once",
            "cut",
            "cut_listed",
            "keep_cut",
            "bare",
            "if",
            "fault",
        ],
        FieldKind::Var { .. } => &["parse", "sum", "serialize", "requires", "fault"],
        FieldKind::Flag { .. } => &["parse", "any", "forward", "requires", "fault"],
        FieldKind::TextVar { .. } => &["parse"],
        FieldKind::Full { .. } => &["full"],
        FieldKind::Kept => &["kept", "requires", "fault"],
        FieldKind::Carried => &["carried", "requires", "fault"],
    }
}

/// Reports attributes that are not allowed on the field.
pub(super) fn known(draft: &Draft, kind: &FieldKind, sink: &mut Sink) {
    let is_var = !kind.is_on_wire() && !matches!(kind, FieldKind::Bits { .. });
    let (known, other) = if is_var { (VAR_ATTRS, FIELD_ATTRS) } else { (FIELD_ATTRS, VAR_ATTRS) };
    let allowed = allowed(kind);
    let mut seen: Vec<(String, Span)> = Vec::new();
    for attr in &draft.attrs {
        let Some(name) = attr.name() else { continue };
        let span = span_of(draft.site.file, attr.range());
        let text = name.text();
        if LATER.contains(&text) {
            let help = "declare the rest of the message as one `bytes` field";
            sink.push(report::unsupported::grammar(span, &format!("`&{text}`"), help));
        } else if !known.contains(&text) {
            sink.push(if text == "optional" {
                let why = "only allowed on a literal; declare an optional field with `&if`";
                report::grammar::attribute_misplaced(span, text, why)
            } else if other.contains(&text) {
                let why = if is_var {
                    "not allowed on a variable, which has no bytes"
                } else {
                    "only allowed on a `var`"
                };
                report::grammar::attribute_misplaced(span, text, why)
            } else {
                report::grammar::unknown_attribute(span, text, allowed)
            });
        } else if !allowed.contains(&text) {
            let what = kind_name(kind);
            sink.push(match kind {
                FieldKind::Int { .. } | FieldKind::Vint { .. } => report::grammar::attribute_misplaced(
                    span,
                    text,
                    "not allowed on an integer, whose type is its length",
                ),
                _ => report::grammar::attribute_of(span, text, what, allowed),
            });
        } else if let Some((_, first)) =
            seen.iter().find(|(seen, _)| seen == text && !REPEATED.contains(&text))
        {
            sink.push(report::names::duplicate(span, "attribute", text, first.clone()));
        } else {
            let is_bare = BARE.contains(&text) || text == "cut" && matches!(kind, FieldKind::Text { .. });
            if attr.value().is_none() && !is_bare {
                sink.push(report::grammar::attribute_needs_value(span.clone(), text, example(text)));
            }
            seen.push((text.to_owned(), span));
        }
    }
}

fn kind_name(kind: &FieldKind) -> &'static str {
    match kind {
        FieldKind::Int { .. } | FieldKind::Vint { .. } | FieldKind::Varint { .. } => "an integer",
        FieldKind::Number { .. } => "a textual integer",
        FieldKind::Bits { .. } => "a bit field",
        FieldKind::Bytes { .. } => "a field with a length",
        FieldKind::Text { .. } => "a delimited string",
        FieldKind::ToClose { .. } => "a field with `&to_close`",
        FieldKind::List(_) => "a list",
        FieldKind::Var { .. } | FieldKind::Kept | FieldKind::Carried => "an integer variable",
        FieldKind::Flag { .. } | FieldKind::Full { .. } => "a boolean variable",
        FieldKind::TextVar { .. } => "a string variable",
    }
}

fn example(attribute: &str) -> &'static str {
    match attribute {
        "length" => "&length = self.key_len",
        "requires" => "&requires = $$ > 0",
        "serialize" => "&serialize = self.total_len = self.key_len + $$",
        "if" => "&if = self.flags > 0",
        "until" => "&until = \"\\r\\n\"",
        "of" => "&of = digit",
        "min" => "&min = 1",
        "fault" => "&fault = unsupported",
        "count" => "&count = self.n",
        "children" => "&children = self.nodes.n",
        "last" => "&last = self.chunks.size == 0",
        "key" => "&key = name",
        "value" => "&value = value",
        "once" | "cut" => "&once = [\"host\"]",
        "cut_listed" => "&cut_listed = \"connection\"",
        "keep_cut" => "&keep_cut = self.upgrades",
        "bare" => "&bare = self.is_old",
        "forward" => "&forward = self.minor = 1",
        "default" => "&default = 1",
        "sum" => "&sum = len(self.chunks.ext)",
        "full" => "&full = self.words",
        "any" => "&any = has_token(self.headers[\"connection\"], \"upgrade\")",
        _ => "&parse = self.total_len - self.key_len",
    }
}
