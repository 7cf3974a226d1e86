//! Shapes of the items of a unit on the wire, from which its picture is drawn.
//! Promises: one shape for each item that has bytes, in the order of the wire.

use flick_syntax::LiteralValue;
use flick_syntax::ast::{
    Attr, Expr, NamedType, Type, UnitBits, UnitField, UnitItem, UnitLiteral, UnitSwitch,
};

use crate::html::{code, code_of, escape, one_line};
use crate::scope::{Scope, constant, field_id};

/// Shape of an item in the picture. Texts are HTML.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Shape {
    /// A fixed number of bits.
    Bits {
        /// Text in the box.
        label: String,
        /// Number of bits.
        bits: u32,
    },
    /// Bytes whose number the message says.
    Bytes {
        /// Text in the box.
        label: String,
        /// Length in words.
        length: String,
    },
    /// Bytes that are written in the grammar itself.
    Literal {
        /// Text in the box.
        label: String,
        /// Number of bytes.
        bytes: u32,
        /// They may be missing.
        is_optional: bool,
    },
    /// A piece of text between its neighbours.
    Piece {
        /// Text in the box.
        label: String,
        /// Description of its contents; may be empty.
        made_of: String,
        /// It may be there several times.
        repeats: bool,
    },
    /// One row of shapes or another.
    Choice(Vec<(String, Vec<Shape>)>),
}

/// Draws from the items of the unit called `unit`.
pub(crate) fn shapes(scope: &Scope, unit: &str, items: impl Iterator<Item = UnitItem>) -> Vec<Shape> {
    let mut out = Vec::new();
    for item in items {
        match item {
            UnitItem::Field(field) => out.push(field_shape(scope, unit, &field)),
            UnitItem::Literal(literal) => out.push(literal_shape(&literal)),
            UnitItem::Bits(group) => bits_shapes(unit, &group, &mut out),
            UnitItem::Switch(switch) => out.push(switch_shape(scope, unit, &switch)),
            UnitItem::Property(_) | UnitItem::Var(_) | UnitItem::Check(_) => {}
        }
    }
    widen_literals(&mut out);
    out
}

/// A literal before or between fields of fixed width is one of them.
fn widen_literals(shapes: &mut [Shape]) {
    for index in 0..shapes.len() {
        let Shape::Literal { label, bytes, is_optional: false } = &shapes[index] else { continue };
        let is_fixed = |at: Option<usize>| at.is_none_or(|at| matches!(shapes[at], Shape::Bits { .. }));
        let follows = shapes
            .get(index + 1)
            .is_some_and(|next| matches!(next, Shape::Bits { .. } | Shape::Bytes { .. }));
        if follows && is_fixed(index.checked_sub(1)) {
            shapes[index] = Shape::Bits { label: label.clone(), bits: bytes.saturating_mul(8) };
        }
    }
}

fn literal_shape(literal: &UnitLiteral) -> Shape {
    let has = |name: &str| literal.attrs().any(|attr| is_named(&attr, name));
    let bytes = literal.bytes().unwrap_or_default();
    let case = if has("nocase") { " <small>any case</small>" } else { "" };
    Shape::Literal {
        label: format!("{}{case}", code(&shown(&bytes))),
        bytes: u32::try_from(bytes.len()).unwrap_or(u32::MAX),
        is_optional: has("optional"),
    }
}

fn bits_shapes(unit: &str, group: &UnitBits, out: &mut Vec<Shape>) {
    for field in group.fields() {
        let bits = field.width().and_then(|width| constant(&width)).unwrap_or(1);
        let name = field.name();
        out.push(Shape::Bits { label: label_of(unit, name.as_ref().map(|name| name.text())), bits });
    }
}

fn switch_shape(scope: &Scope, unit: &str, switch: &UnitSwitch) -> Shape {
    let subject = switch.subject().map_or(String::new(), |subject| one_line(&subject));
    let mut arms: Vec<(String, Vec<Shape>)> = Vec::new();
    for arm in switch.arms() {
        let values: Vec<String> = arm.patterns().map(|pattern| one_line(&pattern)).collect();
        let label = format!("{} is {}", code(&subject), code(&values.join(", ")));
        arms.push((label, shapes(scope, unit, arm.items())));
    }
    if let Some(arm) = switch.otherwise() {
        arms.push(("else".to_owned(), shapes(scope, unit, arm.items())));
    }
    Shape::Choice(arms)
}

fn field_shape(scope: &Scope, unit: &str, field: &UnitField) -> Shape {
    let name = field.name();
    let label = label_of(unit, name.as_ref().map(|name| name.text()));
    let shape = match field.ty() {
        Some(Type::Named(ty)) => named_shape(scope, label, &ty, field),
        Some(Type::List(list)) => Shape::Piece {
            label,
            made_of: format!("{}{}", scope.type_link(&Type::List(list)), list_end(field)),
            repeats: true,
        },
        _ => Shape::Bytes { label, length: String::new() },
    };
    match value_of(field, "if") {
        Some(condition) => Shape::Choice(vec![(format!("if {}", code_of(&condition)), vec![shape])]),
        None => shape,
    }
}

fn named_shape(scope: &Scope, label: String, ty: &NamedType, field: &UnitField) -> Shape {
    if let Some(bits) = scope.bits_of(ty) {
        return Shape::Bits { label, bits };
    }
    let name = ty.name();
    let piece = |made_of: String| Shape::Piece { label: label.clone(), made_of, repeats: false };
    let type_name = name.as_ref().map_or("", |name| name.text());
    let count = argument(ty);
    match type_name {
        "decimal" => piece(digits(&count, "")),
        "hex" => piece(digits(&count, "hexadecimal ")),
        "vint" => Shape::Bytes { label, length: "1 to 9 bytes".to_owned() },
        "varint" => Shape::Bytes { label, length: format!("1 to {count} bytes") },
        "string" | "bytes" => {
            bytes_shape(label.clone(), field).unwrap_or_else(|| piece(text_of(scope, ty, field)))
        }
        _ => Shape::Bytes { label, length: scope.type_link(&Type::Named(ty.clone())) },
    }
}

/// Says how many digits there are.
pub(crate) fn digits(most: &str, kind: &str) -> String {
    if most == "1" { format!("1 {kind}digit") } else { format!("1 to {most} {kind}digits") }
}

/// The shape of text or bytes whose length is said, and not found by reading them.
fn bytes_shape(label: String, field: &UnitField) -> Option<Shape> {
    if has(field, "to_close") {
        return Some(Shape::Bytes { label, length: "all until the peer closes".to_owned() });
    }
    let length = value_of(field, "length")?;
    Some(match constant(&length).and_then(|bytes| bytes.checked_mul(8)) {
        Some(bits) => Shape::Bits { label, bits },
        None => Shape::Bytes { label, length: format!("{} bytes", code_of(&length)) },
    })
}

/// Says what a text without a length is made of.
fn text_of(scope: &Scope, ty: &NamedType, field: &UnitField) -> String {
    let class = value_of(field, "of").map(|class| class_link(scope, &class));
    let until = value_of(field, "until").map(|until| literal_code(&until));
    let most = argument(ty);
    let most = if most.is_empty() { String::new() } else { format!("at most {most} ") };
    match (class, until) {
        (Some(class), Some(until)) => format!("{most}of {class}, then {until}"),
        (Some(class), None) => format!("{most}of {class}"),
        (None, Some(until)) => format!("{most}then {until}"),
        (None, None) => most,
    }
}

/// Says where a list ends.
fn list_end(field: &UnitField) -> String {
    let end = |name: &str| value_of(field, name);
    if let Some(count) = end("count") {
        format!(", {} of them", code_of(&count))
    } else if let Some(until) = end("until") {
        format!(", then {}", literal_code(&until))
    } else if let Some(length) = end("length") {
        format!(", {} bytes", code_of(&length))
    } else if let Some(last) = end("last") {
        format!(", the last with {}", code_of(&last))
    } else if let Some(children) = end("children") {
        format!(", each opens {}", code_of(&children))
    } else {
        String::new()
    }
}

/// Returns the name of a class as a link.
pub(crate) fn class_link(scope: &Scope, class: &Expr) -> String {
    let text = one_line(class);
    let (library, name) = match text.split_once('.') {
        Some((library, name)) => (Some(library), name),
        None => (None, text.as_str()),
    };
    match scope.find(library, name) {
        Some(found) => found.link(&text),
        None => code(&text),
    }
}

/// Returns a string as the wire has it.
pub(crate) fn literal_code(expr: &Expr) -> String {
    match expr {
        Expr::Literal(literal) => match literal.value() {
            Some(LiteralValue::Bytes(bytes)) => code(&shown(&bytes)),
            _ => code_of(expr),
        },
        _ => code_of(expr),
    }
}

/// Returns a literal as the wire has it.
pub(crate) fn bytes_code(bytes: &[u8]) -> String {
    code(&shown(bytes))
}

/// Returns bytes as they are read best: `CRLF`, or in quotes.
fn shown(bytes: &[u8]) -> String {
    match bytes {
        b"\r\n" => "CRLF".to_owned(),
        b"\n" => "LF".to_owned(),
        b"\r" => "CR".to_owned(),
        b" " => "SP".to_owned(),
        b"\t" => "TAB".to_owned(),
        bytes => format!("\"{}\"", bytes.escape_ascii().to_string().replace("\\'", "'")),
    }
}

/// Returns the name of a field as a link to what is said about it.
fn label_of(unit: &str, name: Option<&str>) -> String {
    match name {
        Some(name) => format!("<a href=\"#{}\">{}</a>", escape(&field_id(unit, name)), escape(name)),
        None => "<i>unnamed</i>".to_owned(),
    }
}

fn argument(ty: &NamedType) -> String {
    ty.size().map_or(String::new(), |size| escape(&one_line(&size)))
}

fn is_named(attr: &Attr, name: &str) -> bool {
    attr.name().is_some_and(|found| found.text() == name)
}

fn has(field: &UnitField, name: &str) -> bool {
    field.attrs().any(|attr| is_named(&attr, name))
}

fn value_of(field: &UnitField, name: &str) -> Option<Expr> {
    field.attrs().find(|attr| is_named(attr, name))?.value()
}
