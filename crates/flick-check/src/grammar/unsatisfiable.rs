//! Conditions that no message meets: checks that are always false, a `switch` without cases, values that are always
//! out of range.
//! Promises: what is reported here rejects every message that reaches it. A plain `check false` in one case of a
//! `switch` is not reported: it is the way to reject a case with its own fault.
//! Not here: two checks that are each possible but not together, unless both are about one integer.

use std::collections::BTreeMap;

use crate::diagnostic::Sink;
use crate::hir::{Choice, Expr, ExprKind, FieldId, FieldKind, Item, ListEnd, Ty, UnitId};
use crate::items::Items;
use crate::known_values::KnownValues;
use crate::range::Range;
use crate::report;

/// Reports conditions of a unit that no message meets.
pub(super) fn check(unit: UnitId, items: &Items, sink: &mut Sink) {
    let declared = items.unit(unit);
    let facts = KnownValues {
        fields: &declared.fields,
        classes: &items.classes,
        known: BTreeMap::new(),
        dollar: None,
    };
    let mut walk = ConditionCheck { sink, bounds: bounds(unit, items) };
    match &declared.body {
        Some(body) => walk.row(body, facts, false),
        None => {
            let row: Vec<Item> =
                (0..declared.fields.len()).map(|field| Item::Field(FieldId(field as u32))).collect();
            walk.row(&row, facts, false);
        }
    }
    let own = &declared.facts;
    let facts = KnownValues {
        fields: &declared.fields,
        classes: &items.classes,
        known: BTreeMap::new(),
        dollar: None,
    };
    for (name, fact) in [("request", &own.request), ("reply", &own.reply)] {
        if let Some(fact) = fact
            && !matches!(fact.kind, ExprKind::Bool(_))
            && facts.truth(fact) == Some(false)
        {
            walk.sink.push(report::unsatisfiable::fact(fact.span.clone(), name));
        }
    }
}

/// The bound of each field that has a length, if one is declared or derived.
fn bounds(unit: UnitId, items: &Items) -> BTreeMap<FieldId, u32> {
    let fields = items.unit(unit).fields.iter().enumerate();
    let bounds = fields.filter_map(|(index, field)| match field.kind {
        FieldKind::Bytes { max_bytes, .. } => Some((FieldId(index as u32), max_bytes?)),
        _ => None,
    });
    bounds.collect()
}

struct ConditionCheck<'s> {
    sink: &'s mut Sink,
    bounds: BTreeMap<FieldId, u32>,
}

impl ConditionCheck<'_> {
    /// Checks a row; `is_case`: it is a case of a `switch`.
    fn row(&mut self, row: &[Item], mut facts: KnownValues<'_>, is_case: bool) {
        for item in row {
            match item {
                Item::Literal(_) => {}
                Item::Field(id) => self.field(*id, &mut facts),
                Item::Check(check) => {
                    let is_refusal = is_case && matches!(check.expr.kind, ExprKind::Bool(false));
                    if facts.truth(&check.expr) == Some(false) && !is_refusal {
                        self.sink
                            .push(report::unsatisfiable::check(check.span.clone(), why(&facts, &check.expr)));
                    }
                    facts.learn(&check.expr);
                }
                Item::Switch(choice) => self.choice(choice, &facts),
            }
        }
    }

    fn field(&mut self, id: FieldId, facts: &mut KnownValues<'_>) {
        let field = &facts.fields[id.0 as usize];
        let name = field.name.as_deref().unwrap_or("this field");
        match &field.kind {
            FieldKind::Var { parse, repr, sum: None } => {
                let allowed = Range::of_repr(*repr);
                if let Some(found) = facts.range(parse).filter(|found| !meets(*found, allowed)) {
                    self.sink.push(report::unsatisfiable::variable(parse.span.clone(), name, found, allowed));
                }
            }
            FieldKind::Bytes { length, .. } => {
                let bound = self.bounds.get(&id).map(|bound| Range { lo: 0, hi: i128::from(*bound) });
                if let (Some(allowed), Some(found)) = (bound, facts.range(length))
                    && found.lo > allowed.hi
                {
                    let report = report::unsatisfiable::length(length.span.clone(), name, found, allowed.hi);
                    self.sink.push(report);
                }
            }
            FieldKind::List(list) => {
                if let (ListEnd::Count(count), Some(max)) = (&list.end, list.max)
                    && let Some(found) = facts.range(count).filter(|found| found.lo > i128::from(max))
                {
                    self.sink.push(report::unsatisfiable::count(count.span.clone(), name, found.lo, max));
                }
                // The fields of an element are different in each.
                self.row(&list.body, facts.clone(), matches!(list.end, ListEnd::Until(_)));
            }
            _ => {}
        }
        facts.dollar = Some(id);
        for requires in &field.requires {
            if facts.truth(requires) == Some(false) {
                self.sink.push(report::unsatisfiable::requires(
                    requires.span.clone(),
                    name,
                    why(facts, requires),
                ));
            }
            facts.learn(requires);
        }
        facts.dollar = None;
    }

    fn choice(&mut self, choice: &Choice, facts: &KnownValues<'_>) {
        if choice.arms.is_empty() && choice.otherwise.is_none() {
            self.sink.push(report::unsatisfiable::no_case(choice.span.clone()));
        }
        for (patterns, row) in &choice.arms {
            for pattern in patterns {
                if facts.same(&choice.on, pattern) == Some(false) {
                    self.sink.push(report::unsatisfiable::case(pattern.span.clone(), why(facts, &choice.on)));
                }
            }
            let mut inside = facts.clone();
            if let [only] = patterns.as_slice() {
                inside.learn_equal(&choice.on, only);
            }
            self.row(row, inside, true);
        }
        if let Some(row) = &choice.otherwise {
            self.row(row, facts.clone(), true);
        }
    }
}

fn meets(a: Range, b: Range) -> bool {
    a.lo <= b.hi && b.lo <= a.hi
}

/// The possible values of the first integer or string in an expression, for a note: `` `m` is between 0 and 3 ``.
fn why(facts: &KnownValues<'_>, expr: &Expr) -> Option<String> {
    let mut found = None;
    crate::walk::expr(expr, &mut |expr| {
        let field = match expr.kind {
            ExprKind::SelfField(field) => Some(field),
            ExprKind::Dollar => facts.dollar,
            _ => None,
        };
        let Some(field) = field.filter(|_| found.is_none()) else { return };
        let name = facts.fields[field.0 as usize].name.as_deref().unwrap_or("it");
        found = match (&expr.ty, facts.range(expr)) {
            (Ty::Int { .. }, Some(range)) if range.is_point() => {
                Some(format!("`{name}` is {} here", range.lo))
            }
            (Ty::Int { .. }, Some(range)) => Some(format!("`{name}` is between {} here", range.describe())),
            (Ty::Bytes { max, .. }, _) => {
                Some(format!("`{name}` has at most {}", report::counted(max, "byte")))
            }
            _ => None,
        };
    });
    found
}
