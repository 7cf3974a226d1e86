//! Constants that a field cannot hold, and fields that are never in one message.
//! Promises: a constant in a program without errors can be written and parsed back unchanged.

use std::collections::BTreeMap;

use flick_syntax::ast;

use super::Exprs;
use crate::hir::{Choice, Expr, ExprKind, FieldId, FieldKind, Item, Span, Ty, Unit, UnitId};
use crate::items::Items;
use crate::known_values::{KnownValue, KnownValues};
use crate::limits::WRITTEN_BYTES_MAX;
use crate::range::Range;
use crate::report;
use crate::units;

/// `headers["host"] = value`, or `= none`.
pub(super) struct KeyInit {
    list: FieldId,
    key: u32,
    value: Option<Expr>,
    span: Span,
    /// Number of fields that are assigned before it.
    pub(super) fields_before: usize,
}

impl KeyInit {
    /// Whether it matters if its value is computed before or after others.
    pub(super) fn depends_on_order(&self) -> bool {
        self.value.as_ref().is_some_and(super::value::depends_on_order)
    }
}

/// The location of an earlier assignment of the same key.
pub(super) fn same_key(known: &[KeyInit], new: &KeyInit) -> Option<Span> {
    let same = known.iter().find(|known| (known.list, known.key) == (new.list, new.key));
    same.map(|known| known.span.clone())
}

/// Sets keys of a message, one after another.
pub(super) fn with_keys(message: Expr, keys: Vec<KeyInit>) -> Expr {
    keys.into_iter().fold(message, |message, given| {
        let (ty, span) = (message.ty.clone(), message.span.clone());
        let kind = ExprKind::WithKey(Box::new(message), given.list, given.key, given.value.map(Box::new));
        Expr { kind, ty, span }
    })
}

impl Items {
    /// The type that a list is assigned from: strings, or pairs of key and value.
    pub(crate) fn written_type(&self, unit: UnitId, field: FieldId) -> Option<Ty> {
        let list = match &self.field(unit, field).kind {
            FieldKind::List(list) => list,
            // A streamed field may be built up to the size of a head.
            FieldKind::Bytes { max_bytes: None, text, .. } if self.unit(unit).body.is_some() => {
                return Some(Ty::Bytes { max: WRITTEN_BYTES_MAX, text: *text });
            }
            _ => return None,
        };
        let of = |field: FieldId| units::grammar_type(&self.field(unit, field).kind);
        let elem = match (&list.keyed, list.element) {
            (Some(keyed), _) => Ty::Tuple(vec![of(keyed.key), of(keyed.value)]),
            (None, Some(element)) => of(element),
            (None, None) => return None,
        };
        let max = list.max.unwrap_or(u32::MAX).min(crate::types::longest_list(self, &elem));
        Some(Ty::List { elem: Box::new(elem), max })
    }
}

impl Exprs<'_> {
    /// `unit{wire = bytes}`; `None` if the unit has a field of that name, or `wire` is not set.
    pub(super) fn build_wire(&mut self, unit: UnitId, record: &ast::RecordExpr, span: &Span) -> Option<Expr> {
        let has_field =
            self.items.unit(unit).fields.iter().any(|field| field.name.as_deref() == Some("wire"));
        if has_field {
            return None;
        }
        let is_wire = |init: &ast::FieldInit| init.name().is_some_and(|name| name.text() == "wire");
        let wire = record.fields().find(is_wire)?;
        if self.items.unit(unit).body.is_none() {
            let names = self.written_names(unit);
            let location = self.span(wire.range());
            let report =
                report::structured::wire_of_a_plain_unit(location, &self.items.unit(unit).name, &names);
            self.sink.push(report);
            return Some(Expr { ty: Ty::Record(unit), ..super::unknown(span.clone()) });
        }
        if let Some(other) = record.fields().find(|init| !is_wire(init)) {
            let location = self.span(other.range());
            self.sink.push(report::structured::wire_and_fields(location));
        }
        let value = self.opt_expr(wire.value(), span);
        if !matches!(value.ty, Ty::Bytes { .. } | Ty::Unknown) {
            let found = self.items.describe(&value.ty);
            self.sink.push(report::types::mismatch(value.span.clone(), "bytes", &found, None));
        }
        let kind = ExprKind::BuildWire(unit, Box::new(value));
        Some(Expr { kind, ty: Ty::Record(unit), span: span.clone() })
    }

    /// `headers["host"] = value` after `with`.
    pub(super) fn key_init(
        &mut self,
        unit: UnitId,
        name: &ast::Name,
        key: &ast::Expr,
        value: Option<ast::Expr>,
        (span, fields_before): (&Span, usize),
    ) -> Option<KeyInit> {
        let location = self.span(name.range());
        let list =
            self.items.unit(unit).fields.iter().position(|field| field.name.as_deref() == Some(name.text()));
        let Some(list) = list else {
            self.opt_expr(value, span);
            self.find_field(unit, name.text(), &location)?;
            return None;
        };
        let list = FieldId(list as u32);
        if !matches!(self.items.field(unit, list).kind, FieldKind::List(_)) {
            self.sink.push(report::structured::not_keyed(location, name.text()));
            self.opt_expr(value, span);
            return None;
        }
        let (key, ty) = self.key_number(unit, list, name.text(), key)?;
        let value = self.opt_expr(value, span);
        if matches!(value.kind, ExprKind::None) {
            return Some(KeyInit { list, key, value: None, span: span.clone(), fields_before });
        }
        let shown = format!("`{}`", name.text());
        let value = self.coerce(value, &ty, &shown, Some(location));
        if let FieldKind::List(declared) = &self.items.field(unit, list).kind
            && let Some(keyed) = &declared.keyed
        {
            self.check_constant(unit, keyed.value, name.text(), &value);
        }
        Some(KeyInit { list, key, value: Some(value), span: span.clone(), fields_before })
    }

    /// Rejects a constant that its field cannot hold.
    pub(super) fn check_constant(&mut self, unit: UnitId, field: FieldId, name: &str, value: &Expr) {
        let declared = self.items.field(unit, field);
        let location = declared.span.clone();
        if let Some(before) = self.consuming_field(unit, field, value) {
            let report =
                report::structured::value_consumed_by_field(value.span.clone(), name, &before, location);
            self.sink.push(report);
            return;
        }
        match (&declared.kind, &value.kind) {
            (FieldKind::Text { class, until, min_bytes, .. }, ExprKind::Str(bytes)) => {
                let class = class.map(|class| &self.items.classes[class.0 as usize]);
                if let Some(byte) = class.and_then(|class| bytes.iter().find(|byte| !class.has(**byte))) {
                    let why = "declared with a class";
                    self.sink.push(report::structured::cannot_hold(
                        value.span.clone(),
                        name,
                        *byte,
                        why,
                        location,
                    ));
                } else if let Some(until) = until
                    && contains_delimiter(bytes, until)
                {
                    let why = "declared with this delimiter";
                    self.sink.push(report::structured::cannot_hold(
                        value.span.clone(),
                        name,
                        until[0],
                        why,
                        location,
                    ));
                } else if bytes.len() < *min_bytes as usize {
                    let report = report::structured::too_short(
                        value.span.clone(),
                        name,
                        bytes.len(),
                        *min_bytes,
                        location,
                    );
                    self.sink.push(report);
                }
            }
            (FieldKind::List(list), ExprKind::List(items)) => {
                for item in items {
                    match (&list.keyed, list.element, &item.kind) {
                        (Some(keyed), _, ExprKind::Tuple(parts)) => {
                            if let [key, value] = parts.as_slice() {
                                self.check_constant(unit, keyed.key, name, key);
                                self.check_constant(unit, keyed.value, name, value);
                            }
                        }
                        (None, Some(element), _) => self.check_constant(unit, element, name, item),
                        _ => {}
                    }
                }
            }
            _ => {}
        }
    }

    /// The name of a class string or integer right before a string with `&until`, if it would consume the front of
    /// this value.
    fn consuming_field(&self, unit: UnitId, field: FieldId, value: &Expr) -> Option<String> {
        let declared = self.items.unit(unit);
        let FieldKind::Text { until: Some(_), class, .. } = &declared.fields[field.0 as usize].kind else {
            return None;
        };
        let before = before(declared.body.as_ref()?, declared, field)?;
        let run = &declared.fields[before.0 as usize];
        // A program cannot set or read an unnamed field.
        let name = run.name.clone()?;
        let set = |class: crate::hir::ClassId| self.items.classes[class.0 as usize].clone();
        let digit = |byte: u8, base: u8| char::from(byte).is_digit(u32::from(base));
        let takes = |byte: u8| match &run.kind {
            FieldKind::Text { until: None, class, .. } => class.is_none_or(|class| set(class).has(byte)),
            FieldKind::Number { base, .. } => digit(byte, *base),
            _ => false,
        };
        let may_begin = |byte: u8| match &value.kind {
            ExprKind::Str(bytes) => bytes.first() == Some(&byte),
            _ => class.is_none_or(|class| set(class).has(byte)),
        };
        (0..=u8::MAX).any(|byte| takes(byte) && may_begin(byte)).then_some(name)
    }

    /// Rejects fields of two cases of one `switch`.
    pub(super) fn reject_fields_of_two_arms(&mut self, unit: UnitId, given: &[(FieldId, Expr)]) {
        let Some(body) = &self.items.unit(unit).body else { return };
        let mut found = None;
        choices(body, &mut |choice| {
            let rows = choice.arms.iter().map(|(_, row)| row).chain(&choice.otherwise);
            let mut first: Option<(FieldId, Span)> = None;
            for row in rows {
                let mut inside = Vec::new();
                fields(row, &mut inside);
                let here = given.iter().find(|(field, _)| inside.contains(field));
                if let Some((field, value)) = here {
                    match &first {
                        None => first = Some((*field, value.span.clone())),
                        Some((one, location)) => {
                            found = Some((*one, location.clone(), *field, value.span.clone()))
                        }
                    }
                }
            }
        });
        if let Some((one, location, other, span)) = found {
            let name = |id: FieldId| self.items.field(unit, id).name.clone().unwrap_or_default();
            self.sink.push(report::structured::fields_of_two_arms(span, &name(one), &name(other), location));
        }
    }
}

impl Exprs<'_> {
    /// Rejects constants that a check or a `switch` of the grammar always rejects.
    pub(super) fn reject_impossible_constants(&mut self, unit: UnitId, given: &[(FieldId, Expr)]) {
        let declared = self.items.unit(unit);
        let known = given.iter().filter_map(|(field, value)| {
            let known = match &value.kind {
                ExprKind::Int(value) => KnownValue::Number(Range::point(*value)),
                ExprKind::Member(_, value) => KnownValue::Number(Range::point(i128::from(*value))),
                ExprKind::Str(bytes) => KnownValue::Text(bytes.clone()),
                _ => return None,
            };
            Some((*field, known))
        });
        let known: BTreeMap<FieldId, KnownValue> = known.collect();
        let mut facts =
            KnownValues { fields: &declared.fields, classes: &self.items.classes, known, dollar: None };
        let mut found: Vec<(FieldId, Span, &str)> = Vec::new();
        for (field, _) in given {
            facts.dollar = Some(*field);
            for requires in &declared.fields[field.0 as usize].requires {
                if facts.truth(requires) == Some(false) {
                    found.push((*field, requires.span.clone(), "this condition is false"));
                }
            }
        }
        facts.dollar = None;
        let named = |expr: &Expr| {
            let mut first = None;
            crate::walk::expr(expr, &mut |expr| match expr.kind {
                ExprKind::SelfField(field) if facts.known.contains_key(&field) => {
                    first = first.or(Some(field));
                }
                _ => {}
            });
            first
        };
        for item in declared.body.iter().flatten() {
            match item {
                Item::Check(check) if facts.truth(&check.expr) == Some(false) => {
                    let field = named(&check.expr);
                    found.extend(field.map(|field| (field, check.span.clone(), "this condition is false")));
                }
                Item::Switch(choice) if choice.otherwise.is_none() => {
                    let patterns = choice.arms.iter().flat_map(|(patterns, _)| patterns);
                    let mut met = patterns.map(|pattern| facts.same(&choice.on, pattern));
                    if met.all(|met| met == Some(false)) {
                        let field = named(&choice.on);
                        found.extend(field.map(|field| (field, choice.span.clone(), "no case matches")));
                    }
                }
                _ => {}
            }
        }
        for (field, location, why) in found {
            let name = declared.fields[field.0 as usize].name.clone().unwrap_or_default();
            if let Some((_, value)) = given.iter().find(|(known, _)| *known == field) {
                self.sink.push(report::unsatisfiable::constant(value.span.clone(), &name, location, why));
            }
        }
    }
}

/// Whether the delimiter occurs before the end of a value that it follows.
fn contains_delimiter(bytes: &[u8], until: &[u8]) -> bool {
    let whole = [bytes, until].concat();
    whole.windows(until.len()).position(|part| part == until).is_some_and(|at| at < bytes.len())
}

/// The field right before another one in its row.
fn before(row: &[Item], unit: &Unit, field: FieldId) -> Option<FieldId> {
    let mut last = None;
    for item in row {
        match item {
            Item::Field(id) if *id == field => return last,
            Item::Field(id) => {
                let kind = &unit.fields[id.0 as usize].kind;
                if let FieldKind::List(list) = kind
                    && let Some(found) = before(&list.body, unit, field)
                {
                    return Some(found);
                }
                if kind.is_on_wire() {
                    last = Some(*id);
                }
            }
            Item::Check(_) => {}
            Item::Literal(_) => last = None,
            Item::Switch(choice) => {
                let rows = choice.arms.iter().map(|(_, row)| row).chain(&choice.otherwise);
                if let Some(found) = rows.into_iter().find_map(|row| before(row, unit, field)) {
                    return Some(found);
                }
                last = None;
            }
        }
    }
    None
}

fn choices<'a>(body: &'a [Item], visit: &mut dyn FnMut(&'a Choice)) {
    for item in body {
        if let Item::Switch(choice) = item {
            visit(choice);
            let rows = choice.arms.iter().map(|(_, row)| row).chain(&choice.otherwise);
            rows.for_each(|row| choices(row, visit));
        }
    }
}

fn fields(body: &[Item], out: &mut Vec<FieldId>) {
    for item in body {
        match item {
            Item::Field(field) => out.push(*field),
            Item::Switch(choice) => {
                let rows = choice.arms.iter().map(|(_, row)| row).chain(&choice.otherwise);
                rows.for_each(|row| fields(row, out));
            }
            Item::Literal(_) | Item::Check(_) => {}
        }
    }
}
