//! Resolves types of the source to types of the checked program.
//! Promises: a type that is rejected is reported once and becomes `Ty::Unknown`, which causes no further errors.

use flick_syntax::LiteralValue;
use flick_syntax::ast::{self, AstNode};

use crate::diagnostic::Sink;
use crate::hir::{Span, Ty};
use crate::items::{Items, Param, TypeItem};
use crate::limits::{DEFAULT_BYTES_MAX, LIST_BYTES_MAX, WORD_BYTES, WRITTEN_BYTES_MAX};
use crate::load::span_of;
use crate::range::{INT, Range};
use crate::{primitives, report};

/// Returns the bound of `string<250>`, if one is declared; an invalid one is reported, and `None`.
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
            sink.push(report::bounds::bad_bound(span, "it must be above 0", WRITTEN_BYTES_MAX));
            None
        }
        Some(LiteralValue::Int(bytes) | LiteralValue::Size(bytes)) => {
            let why = format!("{bytes} bytes exceed the limit of a message head");
            sink.push(report::bounds::bad_bound(span, &why, WRITTEN_BYTES_MAX));
            None
        }
        _ => {
            sink.push(report::bounds::bad_bound(span, "it must be a literal number", WRITTEN_BYTES_MAX));
            None
        }
    }
}

/// Resolves the type of a value: of a parameter or a result.
pub(crate) fn value_type(items: &Items, ty: &ast::Type, file: u32, sink: &mut Sink) -> Ty {
    let span = span_of(file, ty.range());
    match ty {
        ast::Type::Named(named) => named_type(items, named, span, file, sink),
        ast::Type::List(list) => list_type(items, list, span, file, sink),
        ast::Type::Tuple(tuple) => tuple_type(items, tuple, span, file, sink),
    }
}

fn named_type(items: &Items, named: &ast::NamedType, span: Span, file: u32, sink: &mut Sink) -> Ty {
    let Some(name) = named.name() else { return Ty::Unknown };
    let library = named.library();
    let plain = match name.text() {
        _ if library.is_some() => None,
        "bool" => Some(Ty::Bool),
        "int" => Some(INT.ty()),
        "ipv4" => Some(Ty::Ipv4),
        "ipv6" => Some(Ty::Ipv6),
        "endpoint" => Some(Ty::Endpoint),
        "time" => Some(Ty::Time),
        "duration" => Some(Ty::Duration),
        text => primitives::sized_int(text).map(|repr| Range::of_repr(repr).ty()),
    };
    if let Some(ty) = plain {
        if named.args().next().is_some() || named.size().is_some() {
            sink.push(report::values::unexpected_type_arguments(span, name.text()));
        }
        return ty;
    }
    match name.text() {
        text @ ("string" | "bytes") if library.is_none() => {
            let max = bound(named, file, sink).unwrap_or(DEFAULT_BYTES_MAX);
            Ty::Bytes { max, text: text == "string" }
        }
        "option" if library.is_none() => option_type(items, named, span, file, sink),
        text @ ("dict" | "counter" | "gauge") if library.is_none() => {
            sink.push(report::values::only_global(span, text));
            Ty::Unknown
        }
        text => match items.type_named(file, library.as_ref().map(ast::Name::text), text) {
            Some(TypeItem::Enum(id)) => Ty::Enum(id),
            Some(TypeItem::Unit(id)) => Ty::Record(id),
            Some(TypeItem::Struct(id)) => Ty::Struct(id),
            Some(TypeItem::Variant(id)) => Ty::Variant(id),
            Some(TypeItem::Class(_)) => {
                sink.push(report::structured::class_as_type(span, text));
                Ty::Unknown
            }
            None => {
                unknown(items, &crate::items::qualified(library.as_ref(), text), span, sink);
                Ty::Unknown
            }
        },
    }
}

fn option_type(items: &Items, named: &ast::NamedType, span: Span, file: u32, sink: &mut Sink) -> Ty {
    let args: Vec<ast::Type> = named.args().collect();
    let [inner] = args.as_slice() else {
        sink.push(report::values::option_without_type(span));
        return Ty::Unknown;
    };
    match value_type(items, inner, file, sink) {
        Ty::Unknown => Ty::Unknown,
        inner => Ty::Option(Box::new(inner)),
    }
}

fn tuple_type(items: &Items, tuple: &ast::TupleType, span: Span, file: u32, sink: &mut Sink) -> Ty {
    let parts: Vec<Ty> = tuple.items().map(|part| value_type(items, &part, file, sink)).collect();
    if parts.len() < 2 {
        sink.push(report::values::short_tuple(span, parts.len()));
        return Ty::Unknown;
    }
    if parts.contains(&Ty::Unknown) {
        return Ty::Unknown;
    }
    Ty::Tuple(parts)
}

/// Resolves `[T]<N>`.
fn list_type(items: &Items, list: &ast::ListType, span: Span, file: u32, sink: &mut Sink) -> Ty {
    let Some(element) = list.element() else { return Ty::Unknown };
    let location = span_of(file, element.range());
    let elem = value_type(items, &element, file, sink);
    if elem == Ty::Unknown {
        return Ty::Unknown;
    }
    if let Some(what) = invalid_element(items, &elem) {
        sink.push(report::values::list_element(location, &what));
        return Ty::Unknown;
    }
    match list_bound(items, list, &elem, span, file, sink) {
        Some(max) => Ty::List { elem: Box::new(elem), max },
        None => Ty::Unknown,
    }
}

fn list_bound(
    items: &Items,
    list: &ast::ListType,
    elem: &Ty,
    span: Span,
    file: u32,
    sink: &mut Sink,
) -> Option<u32> {
    let largest = longest_list(items, elem);
    let spelled = items.spell(elem);
    let Some(written) = list.len() else {
        sink.push(report::values::list_without_bound(span, &spelled));
        return None;
    };
    let location = span_of(file, written.range());
    let value = match written.unparenthesised() {
        Some(ast::Expr::Literal(literal)) => literal.value(),
        _ => None,
    };
    match value {
        Some(LiteralValue::Int(count)) if (1..=u64::from(largest)).contains(&count) => Some(count as u32),
        Some(LiteralValue::Int(_)) => {
            sink.push(report::values::list_bound(location, &spelled, largest));
            None
        }
        _ => {
            sink.push(report::values::list_bound_literal(location, &spelled));
            None
        }
    }
}

/// Maximum length of a list of `elem`.
pub(crate) fn longest_list(items: &Items, elem: &Ty) -> u32 {
    let bytes = u64::from(items.words(elem).max(1)) * WORD_BYTES;
    (LIST_BYTES_MAX / bytes).max(1) as u32
}

/// Describes the part of an element type that a list cannot contain; lists contain no lists and no channels.
pub(crate) fn invalid_element(items: &Items, elem: &Ty) -> Option<String> {
    match elem {
        Ty::List { .. } | Ty::Chan { .. } | Ty::ChanArray { .. } | Ty::Dict(_) | Ty::Counter(_) => {
            Some(items.describe(elem))
        }
        Ty::Option(inner) => invalid_element(items, inner),
        Ty::Tuple(parts) => parts.iter().find_map(|part| invalid_element(items, part)),
        Ty::Struct(_) | Ty::Variant(_) if items.is_declaring => None,
        Ty::Struct(id) => {
            items.structs[id.0 as usize].fields.iter().find_map(|(_, ty)| invalid_element(items, ty))
        }
        Ty::Variant(id) => {
            let cases = &items.variants[id.0 as usize].cases;
            cases.iter().find_map(|(_, ty)| invalid_element(items, ty.as_ref()?))
        }
        _ => None,
    }
}

/// Reports an unknown type name.
pub(crate) fn unknown(items: &Items, name: &str, span: Span, sink: &mut Sink) {
    if let Some(help) = foreign(name) {
        sink.push(report::names::foreign_type(span, name, help));
        return;
    }
    let known: Vec<&str> =
        primitives::PRIMITIVES.iter().copied().chain(items.types.keys().map(String::as_str)).collect();
    sink.push(report::names::unknown_type(span, name, known));
}

/// Help for a type of another language.
fn foreign(name: &str) -> Option<&'static str> {
    Some(match name {
        "list" | "List" | "Vec" | "vector" | "array" | "slice" | "set" | "Set" => {
            "write `[int]<64>`: the type and the maximum number of the elements"
        }
        "tuple" | "Tuple" | "pair" | "Pair" => "write `(int, string)`",
        "Option" | "Optional" | "Maybe" | "optional" => "write `option<int>`",
        "map" | "Map" | "HashMap" | "hashmap" | "Dict" => {
            "declare it outside the process: `global name: dict<string<64>, int> max 1000 entries`"
        }
        "float" | "double" | "f32" | "f64" | "float64" => {
            "flick has no floating-point numbers; count in the smallest unit, for example in thousandths"
        }
        "Duration" | "timedelta" => "write `duration`",
        "Time" | "datetime" | "Instant" => "write `time`",
        "ip" | "IP" | "ipaddr" | "IpAddr" => "write `ipv4` or `ipv6`",
        "void" | "None" | "unit" | "Unit" => "declare a function without a result as `-> ()`",
        _ => return None,
    })
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
            Ty::Record(unit) if items.units_with_params.contains(&unit.0) => {
                let span = span_of(file, ast::range_of(ty.syntax()));
                let declared = items.unit(unit);
                if !sink.explains("E0642", &declared.span) {
                    let report = report::structured::message_with_params(span, &declared.name);
                    sink.push(report.also(declared.span.clone(), "has parameters"));
                }
                Err(())
            }
            Ty::Record(unit) => Ok(Some(unit)),
            Ty::Unknown => Err(()),
            Ty::Struct(id) => {
                let span = span_of(file, ast::range_of(ty.syntax()));
                let record = &items.structs[id.0 as usize];
                let grammars: Vec<&str> = items.units.iter().map(|unit| unit.name.as_str()).collect();
                let report = report::names::record_without_grammar(span, &record.name, &grammars);
                sink.push(report.also(record.span.clone(), "a record of plain values"));
                Err(())
            }
            other => {
                let span = span_of(file, ast::range_of(ty.syntax()));
                sink.push(report::channels::not_a_message(span, &items.describe(&other)));
                Err(())
            }
        }
    };
    let ends = (end(channel.input()), end(channel.output()));
    if let (Ok(Some(a)), Ok(Some(b))) = ends {
        let responses = |unit: crate::hir::UnitId| items.unit(unit).facts.replies;
        let requests = [(a, b), (b, a)].into_iter().find(|(unit, _)| responses(*unit).is_some());
        if let Some((request, other)) = requests
            && responses(request) != Some(other)
        {
            let span = span_of(file, ast::range_of(channel.syntax()));
            let name = |unit: crate::hir::UnitId| items.unit(unit).name.as_str();
            let replies = responses(request).map_or("?", name);
            let location = items.unit(request).span.clone();
            sink.push(report::structured::other_replies(span, name(request), replies, name(other), location));
            return Ty::Unknown;
        }
    }
    match ends {
        (Ok(receives), Ok(sends)) if channel.is_array() => Ty::ChanArray { receives, sends },
        (Ok(receives), Ok(sends)) => Ty::Chan { receives, sends },
        _ => Ty::Unknown,
    }
}
