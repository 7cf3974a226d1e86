//! Message grammars: units, their fields and properties.
//! Promises: a unit in the tables is flattened, in the order of the message; every length is computed from fields
//! that come before it; no two lengths are computed from each other.
//! Start reading at [`check`], which calls the passes.

mod allowed_attributes;
mod ambiguous;
mod classes;
mod computed_fields;
mod draft;
mod enums;
mod field_types;
mod flatten;
mod forwarded;
mod properties;
mod repeated;
mod resolve;
mod unsatisfiable;

pub(crate) use ambiguous::check as check_ends;

use crate::diagnostic::Sink;
use crate::expr::{Exprs, GrammarScope};
use crate::hir::UnitId;
use crate::items::{Decls, Items};
use crate::scope::Scope;

/// Checks all enums, classes and units.
pub(crate) fn check(decls: &Decls, items: &mut Items, sink: &mut Sink) {
    enums::check(decls, items, sink);
    classes::check(decls, items, sink);
    let drafts: Vec<draft::Drafts> = (0..decls.units.len())
        .map(|unit| flatten::flatten(UnitId(unit as u32), decls, items, sink))
        .collect();
    for (unit, drafts) in drafts.iter().enumerate() {
        let unit = UnitId(unit as u32);
        resolve::check(unit, drafts, items, sink);
        resolve::check_slots(unit, items, sink);
        computed_fields::check(unit, &drafts.fields, items, sink);
    }
    // An error response may be of another unit.
    for (unit, own) in drafts.iter().enumerate() {
        properties::check(UnitId(unit as u32), &decls.units[unit], items, sink);
        forwarded::check(UnitId(unit as u32), &own.fields, items, sink);
        unsatisfiable::check(UnitId(unit as u32), items, sink);
    }
    repeated::check(decls, items, sink);
}

/// Runs `check` with a checker for expressions of a grammar.
fn with_exprs<T>(
    items: &Items,
    sink: &mut Sink,
    scope: GrammarScope,
    check: impl FnOnce(&mut Exprs<'_>) -> T,
) -> T {
    let mut exprs = Exprs::new(items, sink, scope.site.file, Scope::default());
    exprs.grammar = Some(scope);
    check(&mut exprs)
}
