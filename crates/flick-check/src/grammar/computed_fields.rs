//! Derived fields: those that are computed from others when a changed message is written.
//! Promises: a field is derived in at most one way, and no two fields are derived from each other.

use flick_syntax::ast;

use super::draft::Draft;
use super::with_exprs;
use crate::diagnostic::Sink;
use crate::expr::{GrammarScope, Purpose};
use crate::hir::{Derived, Expr, ExprKind, FieldId, FieldKind, ListEnd, Span, Ty, UnitId};
use crate::items::Items;
use crate::load::span_of;
use crate::range::Range;
use crate::report;
use crate::walk;

pub(super) fn check(unit: UnitId, drafts: &[Draft], items: &mut Items, sink: &mut Sink) {
    let lengths = measured(items, unit);
    for &(source, measured) in &lengths {
        if let Some(derived @ None) =
            items.units[unit.0 as usize].fields[source.0 as usize].kind.derived_mut()
        {
            *derived = Some(Derived::LengthOf(measured));
        }
    }
    for (index, draft) in drafts.iter().enumerate() {
        let is_serialize = |attr: &&ast::Attr| attr.name().is_some_and(|name| name.text() == "serialize");
        let is_var = matches!(items.unit(unit).fields[index].kind, FieldKind::Var { .. });
        let Some(attr) = draft.attrs.iter().find(is_serialize).filter(|_| is_var && !draft.is_broken) else {
            continue;
        };
        let var = FieldId(index as u32);
        let measured = lengths.iter().find(|(source, _)| *source == var).map(|(_, measured)| *measured);
        serialize(unit, var, measured, draft, attr, items, sink);
    }
    cycles(unit, items, sink);
}

/// Pairs of a field or variable and what it measures: the bytes field whose length it is, or the list whose elements
/// it counts, if a program may assign the list.
fn measured(items: &Items, unit: UnitId) -> Vec<(FieldId, FieldId)> {
    let fields = items.unit(unit).fields.iter().enumerate();
    let pairs = fields.filter_map(|(index, field)| match &field.kind {
        FieldKind::Bytes { length, .. } => match length.kind {
            ExprKind::SelfField(source) => Some((source, FieldId(index as u32))),
            _ => None,
        },
        FieldKind::List(list) => match &list.end {
            ListEnd::Count(Expr { kind: ExprKind::SelfField(source), .. }) if list.max.is_some() => {
                Some((*source, FieldId(index as u32)))
            }
            _ => None,
        },
        _ => None,
    });
    pairs.collect()
}

fn serialize(
    unit: UnitId,
    var: FieldId,
    measured: Option<FieldId>,
    draft: &Draft,
    attr: &ast::Attr,
    items: &mut Items,
    sink: &mut Sink,
) {
    let span = span_of(draft.site.file, attr.range());
    let own = items.field(unit, var).name.clone().unwrap_or_default();
    let (Some(target), Some(value)) = (attr.target(), attr.value()) else {
        if attr.value().is_some() {
            let help = "write the field, then its value: `&serialize = self.total_len = self.key_len + $$`";
            sink.push(report::grammar::serialize(span, "missing field to set", help));
        }
        return;
    };
    if measured.is_none() {
        let why = format!("it has no effect, because `{own}` is not the length of a field");
        let help = format!("use it as the length of a field: `&length = self.{own}`");
        sink.push(report::grammar::serialize(span, &why, &help));
        return;
    }
    let dollar = measured.map(|field| {
        let longest = match items.field(unit, field).kind {
            FieldKind::Bytes { max_bytes: Some(max), .. } => i128::from(max),
            _ => i128::from(u32::MAX),
        };
        (ExprKind::LenOf(field), Range { lo: 0, hi: longest }.ty())
    });
    let scope = GrammarScope {
        site: draft.site.clone(),
        dollar,
        is_structured: items.unit(unit).body.is_some(),
        ..GrammarScope::new(unit, draft.site.file, Purpose::Writing)
    };
    let (target, value) = with_exprs(items, sink, scope, |exprs| (exprs.expr(&target), exprs.expr(&value)));
    let field = match target.kind {
        ExprKind::SelfField(field) => field,
        ExprKind::SelfKey(list, key) => return follows_key(unit, list, key, value, items, sink),
        _ if target.ty == Ty::Unknown => return,
        _ => {
            sink.push(report::grammar::serialize(
                target.span,
                "expected a field to set",
                "write `&serialize = self.total_len = ...`",
            ));
            return;
        }
    };
    if !matches!(value.ty, Ty::Int { .. } | Ty::Unknown) {
        let found = items.describe(&value.ty);
        sink.push(report::types::mismatch(value.span.clone(), "an integer", &found, None));
    }
    set_derived(unit, field, value, target.span, items, sink);
}

/// Enters the expression that a key is derived from.
fn follows_key(unit: UnitId, list: FieldId, key: u32, value: Expr, items: &mut Items, sink: &mut Sink) {
    if !matches!(value.ty, Ty::Bytes { .. } | Ty::Unknown) {
        let found = items.describe(&value.ty);
        sink.push(report::types::mismatch(value.span.clone(), "a string", &found, None));
        return;
    }
    if let FieldKind::List(list) = &mut items.units[unit.0 as usize].fields[list.0 as usize].kind
        && let Some(keyed) = &mut list.keyed
    {
        keyed.follows.push((key, value));
    }
}

/// Enters the expression that a field is derived from, unless it cannot be derived or already is.
fn set_derived(
    unit: UnitId,
    field: FieldId,
    value: Expr,
    location: Span,
    items: &mut Items,
    sink: &mut Sink,
) {
    let name = items.field(unit, field).name.clone().unwrap_or_default();
    let (why, help) = match items.units[unit.0 as usize].fields[field.0 as usize].kind.derived_mut() {
        Some(derived @ None) => {
            *derived = Some(Derived::Expr(value));
            return;
        }
        Some(_) => ("is computed from another length already", "compute each field from one length only"),
        None => ("is not an integer field", "set an integer field of the message"),
    };
    sink.push(report::grammar::serialize(location, &format!("`{name}` {why}"), help));
}

/// Reports a field that is derived from itself, directly or through others.
fn cycles(unit: UnitId, items: &Items, sink: &mut Sink) {
    let fields = &items.unit(unit).fields;
    for (index, field) in fields.iter().enumerate() {
        let Some(derived) = derived_expr(&field.kind) else { continue };
        let own = FieldId(index as u32);
        let mut seen = vec![false; fields.len()];
        let mut due = used(derived);
        while let Some(next) = due.pop() {
            let next_index = next.0 as usize;
            if next == own {
                let name = field.name.clone().unwrap_or_default();
                sink.push(report::grammar::circular(derived.span.clone(), &name, &name, field.span.clone()));
                return;
            }
            if !std::mem::replace(&mut seen[next_index], true)
                && let Some(derived) = derived_expr(&fields[next_index].kind)
            {
                due.extend(used(derived));
            }
        }
    }
}

fn derived_expr(kind: &FieldKind) -> Option<&Expr> {
    match kind.derived() {
        Some(Derived::Expr(expr)) => Some(expr),
        _ => None,
    }
}

fn used(expr: &Expr) -> Vec<FieldId> {
    let mut out = Vec::new();
    walk::expr(expr, &mut |expr| {
        if let ExprKind::SelfField(field) = expr.kind {
            out.push(field);
        }
    });
    out
}
