//! Types of fields: the type between `:` and `;`, with the attributes that decide the kind of the field.
//! Promises: a type that is rejected is reported once.

use flick_abi::FaultCause;
use flick_syntax::LiteralValue;
use flick_syntax::ast;

use super::classes::class_names;
use super::draft::{attr, later};
use crate::diagnostic::Sink;
use crate::hir::{ClassId, FieldKind, Span, UnitId};
use crate::items::{Items, TypeItem};
use crate::limits::{
    DECIMAL_DIGITS_MAX, DEFAULT_BYTES_MAX, DELIMITER_BYTES_MAX, HEX_DIGITS_MAX, LIST_ELEMENTS_MAX,
    VARINT_BYTES_MAX,
};
use crate::load::span_of;
use crate::types;
use crate::{primitives, report};

/// The context of a field type.
pub(super) struct Context<'a> {
    pub(super) items: &'a Items,
    pub(super) file: u32,
    /// `Some(true)` for big.
    pub(super) byteorder: Option<bool>,
    pub(super) attrs: &'a [ast::Attr],
}

/// A resolved field type.
pub(super) enum Found {
    /// It was rejected and reported.
    Broken,
    /// A nested unit and its arguments.
    Unit(UnitId, Vec<ast::Expr>),
    /// A list of a unit, the arguments of each element, and the maximum length.
    List(UnitId, Vec<ast::Expr>, Option<u32>),
    /// A field, and the declared bound.
    Kind(FieldKind, Option<u32>),
}

/// Resolves a field type.
pub(super) fn of(context: &Context<'_>, ty: &ast::Type, sink: &mut Sink) -> Found {
    let span = span_of(context.file, ty.range());
    match ty {
        ast::Type::Named(named) => named_type(context, named, span, sink),
        ast::Type::List(list) => list_type(context, list, span, sink),
        ast::Type::Tuple(_) => {
            sink.push(report::grammar::field_type(span, "a tuple", "declare one field for each element"));
            Found::Broken
        }
    }
}

fn list_type(context: &Context<'_>, list: &ast::ListType, span: Span, sink: &mut Sink) -> Found {
    let Some(element) = list.element() else { return Found::Broken };
    let location = span_of(context.file, element.range());
    let ast::Type::Named(named) = &element else {
        sink.push(report::structured::list_of(location, "this"));
        return Found::Broken;
    };
    let Some(name) = named.name() else { return Found::Broken };
    let library = named.library();
    let found = context.items.type_named(context.file, library.as_ref().map(ast::Name::text), name.text());
    let Some(TypeItem::Unit(unit)) = found else {
        if found.is_none()
            && primitives::sized_int(name.text()).is_none()
            && !WIRE_TYPES.contains(&name.text())
        {
            types::unknown(context.items, name.text(), location, sink);
        } else {
            sink.push(report::structured::list_of(location, name.text()));
        }
        return Found::Broken;
    };
    let max = match list.len() {
        None => None,
        Some(len) => match literal_number(&len) {
            Some(count) if (1..=u64::from(LIST_ELEMENTS_MAX)).contains(&count) => Some(count as u32),
            _ => {
                sink.push(report::structured::list_bound(
                    span_of(context.file, len.range()),
                    LIST_ELEMENTS_MAX,
                ));
                return Found::Broken;
            }
        },
    };
    let _ = span;
    Found::List(unit, named.values().collect(), max)
}

/// Types that only grammars have, and strings.
const WIRE_TYPES: &[&str] = &["string", "bytes", "vint", "varint", "decimal", "hex"];

fn named_type(context: &Context<'_>, named: &ast::NamedType, span: Span, sink: &mut Sink) -> Found {
    let Some(type_name) = named.name() else { return Found::Broken };
    let name = type_name.text();
    let library = named.library();
    let item = context.items.type_named(context.file, library.as_ref().map(ast::Name::text), name);
    let big_endian = context.byteorder.unwrap_or(true);
    if let Some(TypeItem::Unit(unit)) = item {
        return Found::Unit(unit, named.values().collect());
    }
    if named.values().next().is_some() {
        sink.push(report::structured::no_params(span, name));
        return Found::Broken;
    }
    if let (Some(repr), None) = (primitives::sized_int(name), &library) {
        let kind = FieldKind::Int { repr, big_endian, enumeration: None, derived: None };
        return Found::Kind(kind, types::bound(named, context.file, sink));
    }
    match (name, item) {
        ("vint", None) => {
            Found::Kind(FieldKind::Vint { derived: None }, types::bound(named, context.file, sink))
        }
        ("decimal", None) => number(context, named, 10, DECIMAL_DIGITS_MAX, span, sink),
        ("hex", None) => number(context, named, 16, HEX_DIGITS_MAX, span, sink),
        ("varint", None) => match named.size().as_ref().and_then(literal_number) {
            Some(bytes) if (1..=u64::from(VARINT_BYTES_MAX)).contains(&bytes) => {
                Found::Kind(FieldKind::Varint { bytes_max: bytes as u8, derived: None }, None)
            }
            _ => {
                sink.push(report::structured::varint_bytes(span, VARINT_BYTES_MAX));
                Found::Broken
            }
        },
        ("string" | "bytes", _) => {
            let bound = types::bound(named, context.file, sink);
            match bytes_kind(context, name == "string", bound, span, sink) {
                Some(kind) => Found::Kind(kind, bound),
                None => Found::Broken,
            }
        }
        (_, Some(TypeItem::Enum(id))) => {
            let Some(repr) = context.items.enumeration(id).repr else {
                let help = format!("declare it with its width: `type {name} = enum uint8 {{ ... }};`");
                let what = format!("enum `{name}` without a width");
                sink.push(report::grammar::field_type(span, &what, &help));
                return Found::Broken;
            };
            Found::Kind(FieldKind::Int { repr, big_endian, enumeration: Some(id), derived: None }, None)
        }
        (_, Some(TypeItem::Class(_))) => {
            sink.push(report::structured::class_as_type(span, name));
            Found::Broken
        }
        ("int", _) => {
            sink.push(report::grammar::field_type(span, "`int`", "write a sized integer: `uint32`"));
            Found::Broken
        }
        ("bool", _) => {
            let help = "write `uint8`, and compare it with 0 where it is read";
            sink.push(report::grammar::field_type(span, "`bool`", help));
            Found::Broken
        }
        (_, Some(_)) => Found::Broken,
        (_, None) => {
            types::unknown(context.items, name, span, sink);
            Found::Broken
        }
    }
}

/// `decimal<10>`, `hex<8>`.
fn number(
    context: &Context<'_>,
    named: &ast::NamedType,
    base: u8,
    digits_max: u8,
    span: Span,
    sink: &mut Sink,
) -> Found {
    let signed = attr(context.attrs, "signed");
    let digits = named.size().as_ref().and_then(literal_number);
    let Some(digits) = digits.filter(|digits| (1..=u64::from(digits_max)).contains(digits)) else {
        sink.push(report::structured::digits(span, base, digits_max));
        return Found::Broken;
    };
    if let Some(signed) = signed.as_ref().filter(|_| base != 10 || digits > 18) {
        sink.push(report::structured::signed_digits(span_of(context.file, signed.range()), base));
    }
    let zeros = attr(context.attrs, "zeros").is_some() && signed.is_none();
    let signed = signed.is_some();
    let kind = FieldKind::Number { base, digits_max: digits as u8, signed, zeros, derived: None };
    Found::Kind(kind, None)
}

/// `string` and `bytes`: the kind depends on how they end.
fn bytes_kind(
    context: &Context<'_>,
    text: bool,
    bound: Option<u32>,
    span: Span,
    sink: &mut Sink,
) -> Option<FieldKind> {
    let find = |name: &str| attr(context.attrs, name);
    if find("to_close").is_some() {
        return Some(FieldKind::ToClose { text });
    }
    let (until, of) = (find("until"), find("of"));
    if until.is_none() && of.is_none() {
        return Some(FieldKind::Bytes { text, max_bytes: None, length: later(span), streamed: false });
    }
    let delimiter = until.as_ref().map(|attr| delimiter(context.file, attr, sink).unwrap_or(vec![b'\n']));
    let class = match of {
        Some(attr) => Some(class(context, &attr, sink)?),
        None => None,
    };
    let max_bytes = bound.unwrap_or(DEFAULT_BYTES_MAX);
    let min = find("min").map(|attr| {
        let value = attr.value();
        let number = value.as_ref().and_then(literal_number);
        match number.filter(|min| *min <= u64::from(max_bytes)) {
            Some(min) => min as u32,
            None => {
                sink.push(report::structured::min(span_of(context.file, attr.range()), max_bytes));
                0
            }
        }
    });
    let min_bytes = min.unwrap_or(if delimiter.is_some() { 0 } else { 1 });
    Some(FieldKind::Text {
        text,
        class,
        until: delimiter,
        min_bytes,
        max_bytes,
        trim: find("trim").is_some(),
        cut: find("cut").is_some(),
    })
}

/// The bytes of `&until = "\r\n"`; an invalid value is reported.
pub(super) fn delimiter(file: u32, attr: &ast::Attr, sink: &mut Sink) -> Option<Vec<u8>> {
    let span = span_of(file, attr.range());
    let value = match attr.value().and_then(|value| value.unparenthesised()) {
        Some(ast::Expr::Literal(literal)) => literal.value(),
        _ => None,
    };
    match value {
        Some(LiteralValue::Bytes(bytes)) if (1..=DELIMITER_BYTES_MAX).contains(&bytes.len()) => Some(bytes),
        _ => {
            sink.push(report::structured::delimiter(span, DELIMITER_BYTES_MAX));
            None
        }
    }
}

/// The class of `&of = tchar`.
fn class(context: &Context<'_>, attr: &ast::Attr, sink: &mut Sink) -> Option<ClassId> {
    let span = span_of(context.file, attr.range());
    let (library, name) = match attr.value()? {
        ast::Expr::Name(name) => (None, name.name()?),
        ast::Expr::Field(field) => match crate::expr::unfold_path(&field) {
            (Some(ast::Expr::Name(library)), Some(path)) if path.len() == 1 => {
                (library.name(), path.into_iter().next()?)
            }
            _ => {
                sink.push(report::structured::not_a_class(span));
                return None;
            }
        },
        _ => {
            sink.push(report::structured::not_a_class(span));
            return None;
        }
    };
    match context.items.type_named(context.file, library.as_ref().map(ast::Name::text), name.text()) {
        Some(TypeItem::Class(id)) => Some(id),
        Some(_) => {
            sink.push(report::structured::not_a_class(span));
            None
        }
        None => {
            let known = class_names(context.items);
            sink.push(report::structured::unknown_class(
                span_of(context.file, name.range()),
                name.text(),
                &known,
            ));
            None
        }
    }
}

/// The fault cause of `&fault`, or the default.
pub(super) fn cause(attrs: &[ast::Attr], file: u32, sink: &mut Sink) -> FaultCause {
    let Some(attr) = attr(attrs, "fault") else { return FaultCause::Malformed };
    let word = match attr.value() {
        Some(ast::Expr::Name(name)) => name.name(),
        _ => None,
    };
    word.and_then(|word| FaultCause::from_name(word.text())).unwrap_or_else(|| {
        sink.push(report::structured::unknown_fault(span_of(file, attr.range())));
        FaultCause::Malformed
    })
}

/// The value of a literal integer or size.
pub(super) fn literal_number(expr: &ast::Expr) -> Option<u64> {
    match expr.clone().unparenthesised()? {
        ast::Expr::Literal(literal) => match literal.value()? {
            LiteralValue::Int(value) | LiteralValue::Size(value) => Some(value),
            _ => None,
        },
        _ => None,
    }
}
