//! Records as views: the fields of a unit that a program uses, and their types.
//! Promises: a field of a view exists in its unit, and its type holds all values of the field.

use flick_syntax::ast::{self, AstNode};

use crate::diagnostic::Sink;
use crate::hir::{Field, FieldId, FieldKind, IntRepr, Span, Ty, UnitId};
use crate::items::{Decls, InFile, Items, RecordField, RecordView, TypeItem};
use crate::load::span_of;
use crate::range::{INT, Range};
use crate::{primitives, report, types, units};

/// Enters every record as the view of the unit of its name.
pub(crate) fn check(decls: &Decls, items: &mut Items, sink: &mut Sink) {
    for record in &decls.records {
        let Some(name) = record.node.name() else { continue };
        let span = span_of(record.file, name.range());
        // A record with another name is a set of plain values.
        if let Some(TypeItem::Unit(unit)) = items.type_named(record.file, None, name.text()) {
            let view = view(record, unit, span, items, sink);
            items.views.insert(unit.0, view);
        }
    }
}

fn view(
    record: &InFile<ast::RecordDecl>,
    unit: UnitId,
    span: Span,
    items: &Items,
    sink: &mut Sink,
) -> RecordView {
    let mut fields: Vec<RecordField> = Vec::new();
    for field in record.node.fields() {
        let (Some(name), Some(ty)) = (field.name(), field.ty()) else { continue };
        let location = span_of(record.file, name.range());
        if let Some(first) = fields.iter().find(|known| known.name == name.text()) {
            sink.push(report::names::duplicate(location, "field", name.text(), first.span.clone()));
            continue;
        }
        let declared = &items.unit(unit).fields;
        let Some(index) = declared.iter().position(|known| known.name.as_deref() == Some(name.text())) else {
            group(name.text(), &ty, unit, record.file, location, items, sink, &mut fields);
            continue;
        };
        let id = FieldId(index as u32);
        // A field of a rejected type is entered, so that its uses are not reported again.
        let inner = option_of(&ty);
        let optional = inner.is_some();
        let shown = inner.as_ref().unwrap_or(&ty);
        let (ty, bound) =
            field_type(unit, id, shown, optional, record.file, items, sink).unwrap_or((Ty::Unknown, None));
        let ty = match ty {
            Ty::Unknown => Ty::Unknown,
            ty if optional => Ty::Option(Box::new(ty)),
            ty => ty,
        };
        fields.push(RecordField {
            name: name.text().to_owned(),
            field: id,
            ty,
            bound,
            optional,
            span: location,
        });
    }
    RecordView { span, fields }
}

/// `header : hdr` lists all fields of a nested unit.
#[expect(clippy::too_many_arguments, reason = "one call; the arguments are the loop's state")]
fn group(
    name: &str,
    ty: &ast::Type,
    unit: UnitId,
    file: u32,
    location: Span,
    items: &Items,
    sink: &mut Sink,
    fields: &mut Vec<RecordField>,
) {
    let prefix = format!("{name}.");
    let declared = &items.unit(unit).fields;
    let inside = declared
        .iter()
        .enumerate()
        .filter(|(_, field)| field.name.as_deref().is_some_and(|known| known.starts_with(&prefix)));
    let inside: Vec<_> = inside.collect();
    if inside.is_empty() {
        let known: Vec<&str> = declared.iter().filter_map(|field| field.name.as_deref()).collect();
        sink.push(report::names::unknown_field(location, &items.unit(unit).name, name, known, None));
        return;
    }
    let is_unit = match ty {
        ast::Type::Named(named) => named
            .name()
            .is_some_and(|name| matches!(items.type_named(file, None, name.text()), Some(TypeItem::Unit(_)))),
        _ => false,
    };
    if !is_unit {
        let span = span_of(file, ty.range());
        sink.push(report::types::view_type(
            span,
            name,
            "a single value",
            declared[inside[0].0].span.clone(),
            &["the name of the nested unit"],
        ));
        return;
    }
    for (index, field) in inside {
        let full = field.name.clone().unwrap_or_default();
        let ty = units::grammar_type(&field.kind);
        fields.push(RecordField {
            name: full,
            field: FieldId(index as u32),
            ty,
            bound: None,
            optional: false,
            span: location.clone(),
        });
    }
}

/// The type in `option<...>`.
fn option_of(ty: &ast::Type) -> Option<ast::Type> {
    match ty {
        ast::Type::Named(named) if named.library().is_none() && named.name()?.text() == "option" => {
            named.args().next()
        }
        _ => None,
    }
}

/// As `field_type`, for strings and bytes with the bound of the record.
fn bytes_view(field: &Field, bound: Option<u32>, span: Span, sink: &mut Sink) -> (Ty, Option<u32>) {
    let (text, max_bytes, open) = match &field.kind {
        FieldKind::Bytes { text, max_bytes, length, .. } => {
            (*text, *max_bytes, units::longest(length, bound))
        }
        FieldKind::Text { text, max_bytes, .. } | FieldKind::TextVar { text, max_bytes, .. } => {
            (*text, Some(*max_bytes), *max_bytes)
        }
        _ => unreachable!("called for text and bytes only"),
    };
    if let (Some(bound), Some(allowed)) = (bound, max_bytes)
        && bound > allowed
    {
        let shown = field.name.as_deref().unwrap_or_default();
        sink.push(report::bounds::view_wider(span, shown, bound, allowed, field.span.clone()));
    }
    let max = max_bytes.map_or(open, |allowed| bound.unwrap_or(allowed).min(allowed));
    let narrows = bound.filter(|bound| max_bytes.is_none_or(|allowed| *bound < allowed));
    (Ty::Bytes { max, text }, narrows)
}

/// The type of the field in the program, and the bound that the record declares.
fn field_type(
    unit: UnitId,
    id: FieldId,
    ty: &ast::Type,
    optional: bool,
    file: u32,
    items: &Items,
    sink: &mut Sink,
) -> Option<(Ty, Option<u32>)> {
    let field = items.field(unit, id);
    let span = span_of(file, ty.range());
    let shown = field.name.as_deref().unwrap_or_default();
    let named = match ty {
        ast::Type::Named(named) => named,
        ast::Type::List(list) if matches!(field.kind, FieldKind::List(_)) => {
            return list_view(field, list, span, file, items, sink);
        }
        _ => {
            types::value_type(items, ty, file, sink);
            return None;
        }
    };
    let written = named.name()?;
    let written = written.text();
    let known = primitives::PRIMITIVES.contains(&written) || items.type_named(file, None, written).is_some();
    if !known {
        types::unknown(items, written, span, sink);
        return None;
    }
    let fits = match &field.kind {
        FieldKind::ToClose { .. } => {
            let report = report::structured::to_close_read(span, shown, field.span.clone());
            sink.push(report);
            return None;
        }
        FieldKind::Text { text, .. } | FieldKind::TextVar { text, .. } | FieldKind::Bytes { text, .. } => {
            let bound = types::bound(named, file, sink);
            let fits = written == if *text { "string" } else { "bytes" };
            fits.then(|| bytes_view(field, bound, span.clone(), sink))
        }
        kind => number_view(items, kind, written).map(|ty| (ty, None)),
    };
    let is_text = matches!(fits, Some((Ty::Bytes { .. }, _)));
    let fits = fits.filter(|_| is_text || !optional);
    if fits.is_none() {
        let own = units::type_name(items, &field.kind);
        let mut allowed = vec![own.as_str()];
        if matches!(field.kind, FieldKind::Int { enumeration: Some(_), .. }) {
            allowed.push("int");
        }
        let found = format!("`{written}`");
        sink.push(report::types::view_type(span, shown, &found, field.span.clone(), &allowed));
    }
    fits
}

/// `args : [bytes<64>]<8>`, or the unit of the elements, as in the grammar.
fn list_view(
    field: &Field,
    written: &ast::ListType,
    span: Span,
    file: u32,
    items: &Items,
    sink: &mut Sink,
) -> Option<(Ty, Option<u32>)> {
    let FieldKind::List(list) = &field.kind else { return None };
    let shown = field.name.as_deref().unwrap_or_default();
    if list.max.is_none() {
        sink.push(report::structured::unbounded_list_read(span, shown, field.span.clone()));
        return None;
    }
    let own = units::grammar_type(&field.kind);
    let wanted = if list.elem_text { "string" } else { "bytes" };
    let word = match written.element()? {
        ast::Type::Named(named) => named.name()?.text().to_owned(),
        _ => String::new(),
    };
    let is_unit = matches!(items.type_named(file, None, &word), Some(TypeItem::Unit(_)));
    if word == wanted || is_unit {
        return Some((own, None));
    }
    let allowed = items.spell(&own);
    let found = format!("`{}`", written.syntax().text());
    sink.push(report::types::view_type(span, shown, &found, field.span.clone(), &[allowed.as_str()]));
    None
}

/// The type of an integer field under the name that the record writes.
fn number_view(items: &Items, kind: &FieldKind, written: &str) -> Option<Ty> {
    if let FieldKind::Int { enumeration: Some(id), .. } = kind
        && items.enumeration(*id).name == written
    {
        return Some(Ty::Enum(*id));
    }
    let sized = primitives::sized_int(written);
    let is_named = |repr: IntRepr| {
        let range = Range::of_repr(repr);
        (written == "int" && range.is_inside(INT) || sized == Some(repr)).then(|| range.ty())
    };
    match kind {
        FieldKind::Int { repr, .. } | FieldKind::Var { repr, .. } => is_named(*repr),
        FieldKind::Vint { .. } => matches!(written, "int" | "int64").then(|| INT.ty()),
        FieldKind::Flag { .. } | FieldKind::Full { .. } => (written == "bool").then_some(Ty::Bool),
        kind => {
            let (lo, hi) = kind.number_range()?;
            let range = Range { lo, hi };
            let sized = sized.map(Range::of_repr);
            let fits =
                written == "int" && range.is_inside(INT) || sized.is_some_and(|sized| range.is_inside(sized));
            fits.then(|| range.ty())
        }
    }
}
