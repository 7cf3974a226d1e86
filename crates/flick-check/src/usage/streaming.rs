//! Decides which fields of a structured unit are streamed. The length of a head is checked when a message arrives;
//! the slots of its fields are counted when the unit is lowered.
//! Promises: afterwards a list is streamed if and only if no program needs it and nothing follows it; every other
//! bytes field has a bound or is streamed.

use std::collections::BTreeSet;

use super::Uses;
use crate::diagnostic::Sink;
use crate::hir::{Channel, Expr, ExprKind, Field, FieldId, FieldKind, Item, ListEnd, Unit, UnitId};
use crate::items::Items;
use crate::limits::{DEFAULT_BYTES_MAX, LIST_READ_MAX};
use crate::{grammar, report, units, walk};
use flick_abi::limits::{BIG_HEAD_BYTES_MAX, HEAD_BYTES_MAX};

/// Decides which fields and lists are streamed.
pub(super) fn close(unit: UnitId, is_message: bool, all: &[&Uses], items: &mut Items, sink: &mut Sink) {
    let used: BTreeSet<FieldId> = all
        .iter()
        .flat_map(|uses| uses.reads.iter().chain(&uses.writes).chain(&uses.keyed_lists))
        .filter(|(of, _)| *of == unit.0)
        .map(|(_, field)| *field)
        .collect();
    let mut fields = items.unit(unit).fields.clone();
    // An expression that counts the elements of a list needs its end.
    let counted = counted(items.unit(unit));
    for index in 0..fields.len() {
        let id = FieldId(index as u32);
        let view =
            items.views.get(&unit.0).and_then(|view| view.fields.iter().find(|known| known.field == id));
        let (view_bound, is_optional) = view.map_or((None, false), |known| (known.bound, known.optional));
        let is_read = !is_optional && (used.contains(&id) || view_bound.is_some());
        let is_kept_element = owners(&fields, index).any(|list| !list.streamed);
        match &mut fields[index].kind {
            FieldKind::List(list) => list.streamed &= !used.contains(&id) && !counted.contains(&id),
            FieldKind::Bytes { streamed, max_bytes: max_bytes @ None, length, .. } => {
                let declared = std::mem::replace(streamed, !is_read && !is_kept_element);
                if !*streamed {
                    *max_bytes = Some(units::longest(length, view_bound));
                }
                if declared && is_read {
                    read_of_streamed(unit, id, all, items, sink);
                } else if is_read
                    && view_bound.is_none()
                    && *max_bytes == Some(DEFAULT_BYTES_MAX)
                    && !bounded_by_a_change(unit, id, all, items, sink)
                {
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
            _ => units::row_size(&fields, &list.body).most.unwrap_or(HEAD_BYTES_MAX as u64),
        };
        if let FieldKind::List(list) = &mut fields[index].kind {
            list.elem_bytes_max = longest.min(BIG_HEAD_BYTES_MAX as u64) as u32;
        }
    }
    grammar::check_ends(items.unit(unit), &fields, &items.classes, is_message, sink);
    if is_message {
        warn_buffered(unit, &fields, &used, items, sink);
    }
    items.units[unit.0 as usize].fields = fields;
}

/// Warns about variables that are used and come after a field that would be streamed: the message is buffered until
/// they are known.
fn warn_buffered(unit: UnitId, fields: &[Field], used: &BTreeSet<FieldId>, items: &Items, sink: &mut Sink) {
    let declared = items.unit(unit);
    let mut looked_at = used.clone();
    for fact in units::computed(&declared.facts) {
        walk::expr(fact, &mut |expr| {
            if let ExprKind::SelfField(field) = expr.kind {
                looked_at.insert(field);
            }
        });
    }
    let Some(body) = &declared.body else { return };
    let mut late = Vec::new();
    after_streams(fields, body, None, &looked_at, &mut late);
    for (variable, streamed) in late {
        let of = |id: FieldId| &fields[id.0 as usize];
        let name = |id: FieldId| of(id).name.as_deref().unwrap_or("an unnamed field");
        let report = report::structured::warn_buffered(
            of(variable).span.clone(),
            &declared.name,
            name(variable),
            name(streamed),
            of(streamed).span.clone(),
        );
        sink.push(report);
    }
}

/// Finds variables among `looked_at` after a streamed item; returns the streamed item of the row or before it.
fn after_streams(
    fields: &[Field],
    row: &[Item],
    mut streamed: Option<FieldId>,
    looked_at: &BTreeSet<FieldId>,
    late: &mut Vec<(FieldId, FieldId)>,
) -> Option<FieldId> {
    for item in row {
        match item {
            Item::Literal(_) | Item::Check(_) => {}
            Item::Switch(choice) => {
                let rows = choice.arms.iter().map(|(_, row)| row).chain(&choice.otherwise);
                let inside: Vec<_> =
                    rows.map(|row| after_streams(fields, row, streamed, looked_at, late)).collect();
                streamed = inside.into_iter().flatten().next().or(streamed);
            }
            Item::Field(id) => match &fields[id.0 as usize].kind {
                FieldKind::Bytes { streamed: true, .. } | FieldKind::ToClose { .. } => streamed = Some(*id),
                FieldKind::List(list) if list.streamed => streamed = Some(*id),
                FieldKind::Var { .. } | FieldKind::Flag { .. } | FieldKind::Full { .. }
                    if looked_at.contains(id) =>
                {
                    late.extend(streamed.map(|streamed| (*id, streamed)));
                }
                _ => {}
            },
        }
    }
    streamed
}

/// Lists whose length an expression of the grammar uses, and those that a variable says to be full.
fn counted(unit: &Unit) -> BTreeSet<FieldId> {
    let (mut found, mut full) = (BTreeSet::new(), BTreeSet::new());
    let mut look = |expr: &Expr| {
        walk::expr(expr, &mut |expr| {
            if let ExprKind::LenOf(field) = expr.kind {
                found.insert(field);
            }
        });
    };
    for field in &unit.fields {
        field.requires.iter().for_each(&mut look);
        match &field.kind {
            FieldKind::Bytes { length, .. } => look(length),
            FieldKind::Var { parse, .. } | FieldKind::Flag { parse, .. } => look(parse),
            FieldKind::Full { list } => _ = full.insert(*list),
            FieldKind::List(list) => match &list.end {
                ListEnd::Count(end) | ListEnd::Bytes(end) | ListEnd::Children(end) => look(end),
                ListEnd::Last(_) | ListEnd::Until(_) => {}
            },
            _ => {}
        }
    }
    units::computed(&unit.facts).for_each(&mut look);
    unit.body.iter().for_each(|row| decided(&unit.fields, row, &mut look));
    found.extend(full);
    found
}

/// Calls `look` on the expressions of checks and choices of a row, including nested rows.
fn decided(fields: &[Field], row: &[Item], look: &mut dyn FnMut(&Expr)) {
    for item in row {
        match item {
            Item::Literal(_) => {}
            Item::Check(check) => look(&check.expr),
            Item::Switch(choice) => {
                look(&choice.on);
                let rows = choice.arms.iter().map(|(_, row)| row).chain(&choice.otherwise);
                rows.for_each(|row| decided(fields, row, look));
            }
            Item::Field(id) => {
                if let FieldKind::List(list) = &fields[id.0 as usize].kind {
                    decided(fields, &list.body, look);
                }
            }
        }
    }
}

/// The lists whose elements contain a field.
fn owners(fields: &[Field], index: usize) -> impl Iterator<Item = &crate::hir::List> {
    fields[..index].iter().filter_map(move |field| match &field.kind {
        FieldKind::List(list) if (index as u32) < list.fields_end => Some(&**list),
        _ => None,
    })
}

fn read_of_streamed(unit: UnitId, id: FieldId, all: &[&Uses], items: &Items, sink: &mut Sink) {
    let field = items.field(unit, id);
    let locations = all.iter().flat_map(|uses| &uses.locations).filter(|(known, _)| *known == (unit.0, id));
    let span = locations.map(|(_, span)| span.clone()).next().unwrap_or_else(|| field.span.clone());
    let name = field.name.clone().unwrap_or_default();
    sink.push(report::grammar::streamed_read(span, &name, field.span.clone()));
}

/// Warns about a program that reads a streamed field without declaring its bound, and so rejects longer messages.
fn bounded_by_default(unit: UnitId, id: FieldId, all: &[&Uses], items: &Items, sink: &mut Sink) {
    let field = items.field(unit, id);
    let locations = all.iter().flat_map(|uses| &uses.locations).filter(|(known, _)| *known == (unit.0, id));
    if let Some((_, span)) = locations.into_iter().find(|(_, span)| *span != items.unit(unit).span) {
        let name = field.name.as_deref().unwrap_or_default();
        let unit = &items.unit(unit).name;
        let report = report::structured::bounded_by_default(
            span.clone(),
            unit,
            name,
            DEFAULT_BYTES_MAX,
            field.span.clone(),
        );
        sink.push(report);
    }
}

/// Warns about a field that is bounded in all messages of its unit because the program sets it in changed copies of
/// some, and that nothing reads: a message that is built instead would leave it streamed. Says whether there is one.
pub(super) fn bounded_by_a_change(
    unit: UnitId,
    id: FieldId,
    all: &[&Uses],
    items: &Items,
    sink: &mut Sink,
) -> bool {
    let key = (unit.0, id);
    let is_read = all.iter().any(|uses| uses.reads.contains(&key));
    let mut changes = all.iter().flat_map(|uses| &uses.changes).filter(|(known, _)| *known == key);
    let Some((_, span)) = changes.next().filter(|_| !is_read) else { return false };
    let declared = items.unit(unit);
    let is_copied = |index: usize| {
        let of = FieldId(index as u32);
        let is_visible =
            items.views.get(&unit.0).is_none_or(|view| view.fields.iter().any(|known| known.field == of));
        let is_value = !matches!(declared.fields[index].kind, FieldKind::List(_));
        of != id
            && is_visible
            && is_value
            && units::element_of(declared, of).is_none()
            && units::writable(declared, of) == units::Writable::Yes
    };
    let named = declared.fields.iter().enumerate().filter(|(index, _)| is_copied(*index));
    let copied: Vec<&str> =
        named.filter_map(|(_, field)| field.name.as_deref()).filter(|name| !name.contains('#')).collect();
    let field = items.field(unit, id);
    let names = (declared.name.as_str(), field.name.as_deref().unwrap_or_default());
    let report = report::structured::bounded_by_a_change(
        span.clone(),
        names,
        &copied,
        DEFAULT_BYTES_MAX,
        field.span.clone(),
    );
    sink.push(report);
    true
}

/// Checks the limit of the list elements of a message that programs read.
pub(super) fn elements(unit: UnitId, channel: &Channel, items: &Items, sink: &mut Sink) {
    let mut total = 0u64;
    for known in &channel.view {
        let field = items.field(unit, known.field);
        let FieldKind::List(list) = &field.kind else { continue };
        total += u64::from(list.max.unwrap_or(0));
        if total > LIST_READ_MAX {
            let name = field.name.as_deref().unwrap_or_default();
            let location = field.span.clone();
            sink.push(report::structured::too_many_elements(
                channel.span.clone(),
                name,
                total,
                LIST_READ_MAX,
                location,
            ));
            return;
        }
    }
}
