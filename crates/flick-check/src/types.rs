//! Types as they are written, to types as they are checked.
//! Promises: a type that is refused is reported once and becomes `Ty::Unknown`, which nothing complains about again.

use flick_syntax::LiteralValue;
use flick_syntax::ast::{self, AstNode};

use crate::diagnostic::Sink;
use crate::hir::{IntRepr, Span, Ty};
use crate::items::{Items, Param, TypeItem};
use crate::limits::{DEFAULT_BYTES_MAX, WRITTEN_BYTES_MAX};
use crate::load::span_of;
use crate::range::{INT, Range};
use crate::report;

/// Names of types that this version has of its own.
pub(crate) const PRIMITIVES: &[&str] = &[
    "bool", "int", "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64", "string",
    "bytes",
];
/// Names of types that the language has and this version has not.
const LATER: &[&str] =
    &["ipv4", "ipv6", "endpoint", "time", "duration", "dict", "option", "list", "variant", "tuple"];

/// The sized integer of that name.
pub(crate) fn sized_int(name: &str) -> Option<IntRepr> {
    let (signed, bits) = match name.strip_prefix("uint") {
        Some(bits) => (false, bits),
        None => (true, name.strip_prefix("int")?),
    };
    let width_bytes = match bits {
        "8" => 1,
        "16" => 2,
        "32" => 4,
        "64" => 8,
        _ => return None,
    };
    Some(IntRepr { width_bytes, signed })
}

/// The name of a sized integer.
pub(crate) fn int_name(repr: IntRepr) -> String {
    format!("{}int{}", if repr.signed { "" } else { "u" }, u32::from(repr.width_bytes) * 8)
}

/// Reads the bound of `string<250>`, if one is written; a bad one is reported and `None`.
pub(crate) fn bound(ty: &ast::NamedType, file: u32, sink: &mut Sink) -> Option<u32> {
    let size = ty.size()?;
    let span = span_of(file, size.range());
    let value = match size.unparenthesised() {
        Some(ast::Expr::Literal(literal)) => literal.value(),
        Some(_) => None,
        None => return None,
    };
    match value {
        Some(LiteralValue::Int(bytes) | LiteralValue::Size(bytes))
            if (1..=u64::from(WRITTEN_BYTES_MAX)).contains(&bytes) =>
        {
            Some(bytes as u32)
        }
        Some(LiteralValue::Int(0) | LiteralValue::Size(0)) => {
            sink.push(report::bounds::bad_bound(span, "nothing fits into 0 bytes", WRITTEN_BYTES_MAX));
            None
        }
        Some(LiteralValue::Int(bytes) | LiteralValue::Size(bytes)) => {
            let why = format!("{bytes} bytes are more than the head of a message may have");
            sink.push(report::bounds::bad_bound(span, &why, WRITTEN_BYTES_MAX));
            None
        }
        _ => {
            sink.push(report::bounds::bad_bound(span, "it must be a literal number", WRITTEN_BYTES_MAX));
            None
        }
    }
}

/// The type of a value: of a parameter or a result.
pub(crate) fn value_type(items: &Items, ty: &ast::Type, file: u32, sink: &mut Sink) -> Ty {
    let span = span_of(file, ty.range());
    match ty {
        ast::Type::Named(named) => named_type(items, named, span, file, sink),
        ast::Type::List(list) => {
            if list.len().is_none() {
                let help = "a list will need a bound, like `[cmd]<64>`; in this version pass single values";
                sink.push(report::not_yet::type_name(span, "a list", help));
            } else {
                sink.push(report::not_yet::type_name(span, "a list", "pass single values"));
            }
            Ty::Unknown
        }
        ast::Type::Tuple(_) => {
            sink.push(report::not_yet::type_name(
                span,
                "a tuple",
                "give each value its own parameter or function",
            ));
            Ty::Unknown
        }
    }
}

fn named_type(items: &Items, named: &ast::NamedType, span: Span, file: u32, sink: &mut Sink) -> Ty {
    let Some(name) = named.name() else { return Ty::Unknown };
    match name.text() {
        "bool" => Ty::Bool,
        "int" => INT.ty(),
        text @ ("string" | "bytes") => {
            let max = bound(named, file, sink).unwrap_or(DEFAULT_BYTES_MAX);
            Ty::Bytes { max, text: text == "string" }
        }
        text => match (sized_int(text), items.types.get(text)) {
            (Some(repr), _) => Range::of_repr(repr).ty(),
            (None, Some(TypeItem::Enum(id))) => Ty::Enum(*id),
            (None, Some(TypeItem::Unit(id))) => Ty::Record(*id),
            (None, Some(TypeItem::Broken)) => Ty::Unknown,
            (None, None) => {
                unknown(items, text, span, sink);
                Ty::Unknown
            }
        },
    }
}

/// Reports a type name that this version does not know.
pub(crate) fn unknown(items: &Items, name: &str, span: Span, sink: &mut Sink) {
    if LATER.contains(&name) {
        let shown = format!("the type `{name}`");
        sink.push(report::not_yet::type_name(
            span,
            &shown,
            "the types of this version are numbers, `bool`, `string`, `bytes`, enumerations and messages",
        ));
    } else {
        let known: Vec<&str> =
            PRIMITIVES.iter().copied().chain(items.types.keys().map(String::as_str)).collect();
        sink.push(report::names::unknown_type(span, name, known));
    }
}

/// A parameter of a function or process.
pub(crate) fn param(items: &Items, param: &ast::Param, file: u32, sink: &mut Sink) -> Option<Param> {
    let name = param.name()?;
    let span = span_of(file, name.range());
    let ty = match (param.channel(), param.ty()) {
        (Some(channel), _) => channel_type(items, &channel, file, sink),
        (None, Some(ty)) => value_type(items, &ty, file, sink),
        (None, None) => Ty::Unknown,
    };
    Some(Param { name: name.text().to_owned(), ty, span })
}

fn channel_type(items: &Items, channel: &ast::Channel, file: u32, sink: &mut Sink) -> Ty {
    let mut end = |ty: Option<ast::Type>| -> Result<Option<crate::hir::UnitId>, ()> {
        let Some(ty) = ty else { return Ok(None) };
        match value_type(items, &ty, file, sink) {
            Ty::Record(unit) => Ok(Some(unit)),
            Ty::Unknown => Err(()),
            other => {
                let span = span_of(file, ast::range_of(ty.syntax()));
                sink.push(report::channels::not_a_message(span, &items.describe(&other)));
                Err(())
            }
        }
    };
    match (end(channel.input()), end(channel.output())) {
        (Ok(receives), Ok(sends)) if channel.is_array() => Ty::ChanArray { receives, sends },
        (Ok(receives), Ok(sends)) => Ty::Chan { receives, sends },
        _ => Ty::Unknown,
    }
}
