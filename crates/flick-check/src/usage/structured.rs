//! What streams of a structured unit, and how much room its fields need. How long a head gets is seen when it comes.
//! Promises: afterwards a list streams exactly when no program needs it and nothing stands behind it; every bytes field
//! outside of such has a bound or streams.

use std::collections::BTreeSet;

use super::Uses;
use crate::diagnostic::Sink;
use crate::grammar::{self, row_size, slots_of};
use crate::hir::{Channel, Expr, ExprKind, Facts, Field, FieldId, FieldKind, Item, ListEnd, UnitId};
use crate::items::Items;
use crate::limits::{DEFAULT_BYTES_MAX, LIST_READ_MAX, UNIT_FIELDS_MAX};
use crate::{report, walk};
use flick_abi::limits::{BIG_HEAD_BYTES_MAX, HEAD_BYTES_MAX};

/// Decides what streams.
pub(super) fn close(unit: UnitId, travels: bool, all: &[&Uses], items: &mut Items, sink: &mut Sink) {
    let touched: BTreeSet<FieldId> = all
        .iter()
        .flat_map(|uses| uses.reads.iter().chain(&uses.writes).chain(&uses.touches))
        .filter(|(of, _)| *of == unit.0)
        .map(|(_, field)| *field)
        .collect();
    let mut fields = items.unit(unit).fields.clone();
    for index in 0..fields.len() {
        let id = FieldId(index as u32);
        let view =
            items.views.get(&unit.0).and_then(|view| view.fields.iter().find(|known| known.field == id));
        let (view_bound, is_optional) = view.map_or((None, false), |known| (known.bound, known.optional));
        let is_read = !is_optional && (touched.contains(&id) || view_bound.is_some());
        let is_kept_element = owners(&fields, index).any(|list| !list.streamed);
        match &mut fields[index].kind {
            FieldKind::List(list) => list.streamed &= !touched.contains(&id),
            FieldKind::Bytes { streamed, max_bytes: max_bytes @ None, length, .. } => {
                let declared = std::mem::replace(streamed, !is_read && !is_kept_element);
                if !*streamed {
                    *max_bytes = Some(grammar::longest(length, view_bound));
                }
                if declared && is_read {
                    read_of_streamed(unit, id, all, items, sink);
                } else if is_read && view_bound.is_none() && *max_bytes == Some(DEFAULT_BYTES_MAX) {
                    bounded_by_default(unit, id, all, items, sink);
                }
            }
            _ => {}
        }
    }
    for index in (0..fields.len()).rev() {
        let FieldKind::List(list) = &fields[index].kind else { continue };
        if list.streamed {
            continue;
        }
        let longest = match list.element.map(|element| &fields[element.0 as usize].kind) {
            Some(FieldKind::Text { max_bytes, .. }) => u64::from(*max_bytes),
            Some(FieldKind::Bytes { max_bytes: Some(max), .. }) => u64::from(*max),
            _ => row_size(&fields, &list.body).most.unwrap_or(HEAD_BYTES_MAX as u64),
        };
        if let FieldKind::List(list) = &mut fields[index].kind {
            list.elem_bytes_max = longest.min(BIG_HEAD_BYTES_MAX as u64) as u32;
        }
    }
    grammar::check_ends(items.unit(unit), &fields, &items.classes, travels, sink);
    if travels {
        slots(unit, &fields, &touched, items, sink);
    }
    items.units[unit.0 as usize].fields = fields;
}

/// The lists in an element of which a field stands.
fn owners(fields: &[Field], index: usize) -> impl Iterator<Item = &crate::hir::List> {
    fields[..index].iter().filter_map(move |field| match &field.kind {
        FieldKind::List(list) if (index as u32) < list.fields_end => Some(&**list),
        _ => None,
    })
}

fn read_of_streamed(unit: UnitId, id: FieldId, all: &[&Uses], items: &Items, sink: &mut Sink) {
    let field = items.field(unit, id);
    let places = all.iter().flat_map(|uses| &uses.places).filter(|(known, _)| *known == (unit.0, id));
    let span = places.map(|(_, span)| span.clone()).next().unwrap_or_else(|| field.span.clone());
    let name = field.name.clone().unwrap_or_default();
    sink.push(report::grammar::streamed_read(span, &name, field.span.clone()));
}

/// A program that reads what would stream without saying how long it may be refuses longer messages.
fn bounded_by_default(unit: UnitId, id: FieldId, all: &[&Uses], items: &Items, sink: &mut Sink) {
    let field = items.field(unit, id);
    let places = all.iter().flat_map(|uses| &uses.places).filter(|(known, _)| *known == (unit.0, id));
    if let Some((_, span)) = places.into_iter().find(|(_, span)| *span != items.unit(unit).span) {
        let name = field.name.as_deref().unwrap_or_default();
        let unit = &items.unit(unit).name;
        let report =
            report::wire::bounded_by_default(span.clone(), unit, name, DEFAULT_BYTES_MAX, field.span.clone());
        sink.push(report);
    }
}

/// Counts the places in a frame of all that is looked at after it has been passed.
fn slots(unit: UnitId, fields: &[Field], touched: &BTreeSet<FieldId>, items: &Items, sink: &mut Sink) {
    let declared = items.unit(unit);
    let mut used = touched.clone();
    let mut keys: BTreeSet<(FieldId, u32)> = BTreeSet::new();
    let mut look = |expr: &Expr| {
        walk::expr(expr, &mut |expr| match expr.kind {
            ExprKind::SelfField(field) | ExprKind::LenOf(field) => _ = used.insert(field),
            ExprKind::SelfKey(list, key) => _ = keys.insert((list, key)),
            _ => {}
        });
    };
    declared.body.iter().for_each(|body| each_expr(fields, body, &mut look));
    facts(&declared.facts, &mut look);
    for field in fields {
        if let FieldKind::List(list) = &field.kind
            && let Some(keyed) = &list.keyed
        {
            keyed.keep_cut.iter().for_each(&mut look);
        }
    }
    for (index, field) in fields.iter().enumerate() {
        if let FieldKind::List(list) = &field.kind {
            used.insert(FieldId(index as u32));
            if list.keyed.is_some() {
                let known = 0..items.keys.of(unit, FieldId(index as u32)).len() as u32;
                keys.extend(known.map(|key| (FieldId(index as u32), key)));
            }
        }
    }
    let bits = fields.iter().enumerate().filter_map(|(index, field)| match field.kind {
        FieldKind::Bits { of, .. } => Some((FieldId(index as u32), of)),
        _ => None,
    });
    for (bit, of) in bits.collect::<Vec<_>>() {
        if used.contains(&bit) {
            used.insert(of);
        }
    }
    let found: usize =
        used.iter().map(|field| slots_of(&fields[field.0 as usize])).sum::<usize>() + keys.len();
    if found > UNIT_FIELDS_MAX {
        let place = declared.span.clone();
        sink.push(report::grammar::too_many_fields(place, &declared.name, found, UNIT_FIELDS_MAX));
    }
}

fn facts(facts: &Facts, look: &mut dyn FnMut(&Expr)) {
    let all = [
        &facts.request,
        &facts.reply,
        &facts.ends,
        &facts.mute,
        &facts.silent,
        &facts.more,
        &facts.keep,
        &facts.last,
        &facts.retry,
        &facts.tunnel,
    ];
    all.into_iter().flatten().for_each(look);
}

/// Calls `look` on every expression of a tree.
fn each_expr(fields: &[Field], body: &[Item], look: &mut dyn FnMut(&Expr)) {
    for item in body {
        match item {
            Item::Literal(_) => {}
            Item::Check(check) => look(&check.expr),
            Item::Switch(choice) => {
                look(&choice.on);
                let rows = choice.arms.iter().map(|(_, row)| row).chain(&choice.otherwise);
                rows.for_each(|row| each_expr(fields, row, look));
            }
            Item::Field(id) => {
                let field = &fields[id.0 as usize];
                field.requires.iter().for_each(&mut *look);
                match &field.kind {
                    FieldKind::Bytes { length, .. } => look(length),
                    FieldKind::Var { parse, .. } | FieldKind::Flag { parse, .. } => look(parse),
                    FieldKind::List(list) => {
                        each_expr(fields, &list.body, look);
                        match &list.end {
                            ListEnd::Count(end)
                            | ListEnd::Bytes(end)
                            | ListEnd::Children(end)
                            | ListEnd::Last(end) => look(end),
                            ListEnd::Until(_) => {}
                        }
                    }
                    _ => {}
                }
            }
        }
    }
}

/// The elements that programs read of the lists of a message have a bound together.
pub(super) fn elements(unit: UnitId, channel: &Channel, items: &Items, sink: &mut Sink) {
    let mut total = 0u64;
    for known in &channel.view {
        let field = items.field(unit, known.field);
        let FieldKind::List(list) = &field.kind else { continue };
        total += u64::from(list.max.unwrap_or(0));
        if total > LIST_READ_MAX {
            let name = field.name.as_deref().unwrap_or_default();
            let place = field.span.clone();
            sink.push(report::wire::too_many_elements(
                channel.span.clone(),
                name,
                total,
                LIST_READ_MAX,
                place,
            ));
            return;
        }
    }
}
