//! `&forward`: what a message is forwarded with instead of what was received.
//! Promises: what is replaced is a field in digits, a string, or a key of a list, of the unit itself.

use flick_syntax::ast;

use super::draft::Draft;
use super::with_exprs;
use crate::diagnostic::Sink;
use crate::expr::{Exprs, GrammarScope, Purpose};
use crate::hir::{Expr, ExprKind, FieldId, FieldKind, Forward, ForwardTarget, Item, Ty, Unit, UnitId};
use crate::items::Items;
use crate::load::span_of;
use crate::report;

const HELP: &str = "write the field, then its value: `&forward = self.minor = 1`";

/// Enters what the variables of a unit replace.
pub(super) fn check(unit: UnitId, drafts: &[Draft], items: &mut Items, sink: &mut Sink) {
    let mut found = Vec::new();
    for (index, draft) in drafts.iter().enumerate().filter(|(_, draft)| !draft.is_broken) {
        let field = items.field(unit, FieldId(index as u32));
        if !matches!(field.kind, FieldKind::Flag { .. }) {
            continue;
        }
        let kind = ExprKind::SelfField(FieldId(index as u32));
        let cond = Expr { kind, ty: Ty::Bool, span: field.span.clone() };
        let is_forward = |attr: &&ast::Attr| attr.name().is_some_and(|name| name.text() == "forward");
        for attr in draft.attrs.iter().filter(is_forward) {
            let replaced = one(unit, draft, attr, items, sink);
            found.extend(replaced.map(|(target, value)| Forward { cond: cond.clone(), target, value }));
        }
    }
    items.units[unit.0 as usize].facts.forwards = found;
}

/// Checks one `&forward = target = value`.
fn one(
    unit: UnitId,
    draft: &Draft,
    attr: &ast::Attr,
    items: &Items,
    sink: &mut Sink,
) -> Option<(ForwardTarget, Option<Expr>)> {
    let span = span_of(draft.site.file, attr.range());
    let value = attr.value()?;
    let Some(target) = attr.target() else {
        sink.push(report::grammar::forward(span, "missing field to replace", HELP));
        return None;
    };
    let scope = GrammarScope {
        site: draft.site.clone(),
        is_structured: items.unit(unit).body.is_some(),
        ..GrammarScope::new(unit, draft.site.file, Purpose::Fact("forward"))
    };
    let (target, value) = with_exprs(items, sink, scope, |exprs| {
        let target = exprs.expr(&target);
        (target, value_of(exprs, &value))
    });
    let declared = items.unit(unit);
    let target = match target.kind {
        ExprKind::SelfField(field) => is_replaceable(declared, field).then_some((field, None)),
        ExprKind::Slice(base, from, to) => match (base.kind, from) {
            (ExprKind::SelfField(field), None) if is_text(declared, field) => Some((field, to)),
            _ => None,
        },
        ExprKind::SelfKey(list, key) if is_of_unit(declared, list) => {
            return Some((ForwardTarget::Key(list, key), value?));
        }
        _ if target.ty == Ty::Unknown => return None,
        _ => None,
    };
    let Some((field, front)) = target else {
        let why = "only fields in digits, strings and their front, and keys of lists can be replaced";
        sink.push(report::grammar::forward(span, why, HELP));
        return None;
    };
    match value? {
        Some(value) => Some((ForwardTarget::Field(field, front.map(|front| *front)), Some(value))),
        None => {
            let help = "write `\"\"` for no bytes";
            sink.push(report::grammar::forward(span, "only a key of a list can be removed", help));
            None
        }
    }
}

/// The value: a string, the digits of a constant, or none; `None` if it was reported.
fn value_of(exprs: &mut Exprs<'_>, value: &ast::Expr) -> Option<Option<Expr>> {
    let checked = exprs.expr(value);
    match (&checked.kind, &checked.ty) {
        (ExprKind::None, _) => Some(None),
        (ExprKind::Int(number), _) if *number >= 0 => {
            let digits = number.to_string().into_bytes();
            let ty = Ty::Bytes { max: digits.len() as u32, text: true };
            Some(Some(Expr { kind: ExprKind::Str(digits), ty, span: checked.span }))
        }
        (_, Ty::Bytes { .. }) => Some(Some(checked)),
        (_, Ty::Unknown) => None,
        (_, other) => {
            let found = exprs.items.describe(other);
            let wanted = "a string, a literal integer or `none`";
            exprs.sink.push(report::types::mismatch(checked.span.clone(), wanted, &found, None));
            None
        }
    }
}

fn is_of_unit(unit: &Unit, field: FieldId) -> bool {
    let items = unit.body.as_deref().unwrap_or_default();
    items.iter().any(|item| matches!(item, Item::Field(id) if *id == field))
}

fn is_text(unit: &Unit, field: FieldId) -> bool {
    is_of_unit(unit, field) && matches!(unit.fields[field.0 as usize].kind, FieldKind::Text { .. })
}

fn is_replaceable(unit: &Unit, field: FieldId) -> bool {
    let is_number = matches!(unit.fields[field.0 as usize].kind, FieldKind::Number { .. });
    is_text(unit, field) || is_number && is_of_unit(unit, field)
}
