//! Message grammars: units, their fields, and what the platform must know about them.
//! Promises: a unit in the tables is flat, in the order of the wire; every length is computed from what stands before it;
//! no two lengths follow from each other.
//! Start reading at [`check`], which names the steps.

mod derive;
mod enums;
mod facts;
mod flatten;
mod lengths;

pub(crate) use lengths::longest;

use crate::diagnostic::Sink;
use crate::expr::{Exprs, unknown};
use crate::hir::{Derived, Expr, ExprKind, FieldId, FieldKind, Span, Ty, Unit, UnitId};
use crate::items::{Decls, Items};
use crate::range::INT;
use crate::report;
use crate::scope::Scope;

/// What an expression of a grammar is for; decides which fields it may use.
#[derive(Clone, Debug)]
pub(crate) enum Purpose {
    /// `&length`, `&parse` and `&requires`, evaluated while the message is read: fields before `visible`.
    Reading {
        /// For messages: "the length of `key`".
        what: String,
        visible: usize,
    },
    /// `&serialize`: all fields.
    Writing,
    /// A property: all numbers.
    Fact(&'static str),
    /// An answer of the platform: what it keeps of a request.
    Answer(Vec<FieldId>),
}

/// Where in a grammar an expression stands.
#[derive(Clone, Debug)]
pub(crate) struct GrammarScope {
    pub(crate) unit: UnitId,
    /// Path of the nested unit, with its final dot; empty at the top.
    pub(crate) prefix: String,
    pub(crate) purpose: Purpose,
    /// What `$$` means here.
    pub(crate) dollar: Option<(ExprKind, Ty)>,
}

/// Checks all enumerations and units.
pub(crate) fn check(decls: &Decls, items: &mut Items, sink: &mut Sink) {
    enums::check(decls, items, sink);
    let drafts: Vec<Vec<flatten::Draft>> = (0..decls.units.len())
        .map(|unit| flatten::flatten(UnitId(unit as u32), decls, items, sink))
        .collect();
    for (unit, drafts) in drafts.iter().enumerate() {
        let unit = UnitId(unit as u32);
        lengths::check(unit, drafts, items, sink);
        derive::check(unit, drafts, items, sink);
        facts::check(unit, &decls.units[unit.0 as usize], items, sink);
    }
}

/// Runs `check` on expressions of a grammar.
fn with_exprs<T>(
    items: &Items,
    sink: &mut Sink,
    file: u32,
    scope: GrammarScope,
    check: impl FnOnce(&mut Exprs<'_>) -> T,
) -> T {
    let mut exprs = Exprs::new(items, sink, file, Scope::default());
    exprs.grammar = Some(scope);
    check(&mut exprs)
}

/// `self.a.b` in a grammar.
pub(crate) fn self_field(exprs: &mut Exprs<'_>, path: &str, span: Span) -> Expr {
    let Some(scope) = exprs.grammar.clone() else { return unknown(span) };
    let unit = exprs.items.unit(scope.unit);
    let full = format!("{}{path}", scope.prefix);
    let Some(index) = unit.fields.iter().position(|field| field.name.as_deref() == Some(full.as_str()))
    else {
        let group = format!("{full}.");
        let is_group = unit
            .fields
            .iter()
            .any(|field| field.name.as_deref().is_some_and(|name| name.starts_with(&group)));
        let report = if is_group {
            let help = format!("name a field of it: `self.{path}.name`");
            report::names::wrong_kind(span.clone(), path, "a nested unit", "a value", &help)
        } else {
            let known = unit
                .fields
                .iter()
                .filter_map(|field| field.name.as_deref()?.strip_prefix(scope.prefix.as_str()));
            report::names::unknown_field(span.clone(), &unit.name, path, known, None)
        };
        exprs.sink.push(report);
        return unknown(span);
    };
    let field = &unit.fields[index];
    let is_bytes = matches!(field.kind, FieldKind::Bytes { .. });
    let id = FieldId(index as u32);
    let report = match &scope.purpose {
        Purpose::Reading { what, visible } if index >= *visible => {
            Some(report::grammar::later_field(span.clone(), what, path, field.span.clone()))
        }
        Purpose::Fact(fact) if is_bytes => {
            Some(report::grammar::fact_needs_number(span.clone(), &format!("`%{fact}`"), path))
        }
        Purpose::Answer(kept) if !kept.contains(&id) => {
            let names: Vec<&str> =
                kept.iter().filter_map(|id| unit.fields[id.0 as usize].name.as_deref()).collect();
            Some(report::grammar::not_kept(span.clone(), path, &names))
        }
        Purpose::Writing if is_bytes => {
            let what = "`&serialize`";
            Some(report::grammar::fact_needs_number(span.clone(), what, path))
        }
        _ => None,
    };
    if let Some(report) = report {
        exprs.sink.push(report);
        return unknown(span);
    }
    Expr { kind: ExprKind::SelfField(id), ty: crate::expr::grammar_type(&field.kind), span }
}

/// The type of a field as an author writes it in a record.
pub(crate) fn type_name(items: &Items, kind: &FieldKind) -> String {
    match kind {
        FieldKind::Int { enumeration: Some(id), .. } => items.enumeration(*id).name.clone(),
        FieldKind::Int { repr, .. } | FieldKind::Var { repr, .. }
            if repr.width_bytes == 8 && !repr.signed =>
        {
            "uint64".to_owned()
        }
        FieldKind::Int { .. } | FieldKind::Vint { .. } | FieldKind::Var { .. } => "int".to_owned(),
        FieldKind::Bytes { text: true, .. } => "string".to_owned(),
        FieldKind::Bytes { text: false, .. } => "bytes".to_owned(),
        FieldKind::Text { text, .. } | FieldKind::TextVar { text, .. } | FieldKind::ToClose { text } => {
            if *text {
                "string".to_owned()
            } else {
                "bytes".to_owned()
            }
        }
        FieldKind::Flag { .. } => "bool".to_owned(),
        FieldKind::Number { .. } | FieldKind::Varint { .. } | FieldKind::Bits { .. } | FieldKind::Asked => {
            let wide = kind.number_range().is_some_and(|(_, hi)| hi > INT.hi);
            if wide { "uint64".to_owned() } else { "int".to_owned() }
        }
        FieldKind::List(_) => "a list".to_owned(),
    }
}

/// Whether a program may give a field another value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Writable {
    Yes,
    /// It follows from other fields.
    Follows,
    /// It is not on the wire.
    Computed,
    /// Its length could not follow, because.
    NoLength(String),
}

/// Says whether a program may give `field` another value.
pub(crate) fn writable(unit: &Unit, field: FieldId) -> Writable {
    let length = match &unit.fields[field.0 as usize].kind {
        FieldKind::Int { derived: Some(_), .. } | FieldKind::Vint { derived: Some(_) } => {
            return Writable::Follows;
        }
        FieldKind::Int { derived: None, .. } | FieldKind::Vint { derived: None } => return Writable::Yes,
        FieldKind::Var { .. } => return Writable::Computed,
        FieldKind::Bytes { length, .. } => length,
        _ => return Writable::Yes,
    };
    let source = match length.kind {
        ExprKind::SelfField(source) => source,
        ExprKind::Int(bytes) => return Writable::NoLength(format!("it always has {bytes} bytes")),
        _ => return Writable::NoLength("its length is computed from several fields".to_owned()),
    };
    let shares = |other: &crate::hir::Field| matches!(&other.kind, FieldKind::Bytes { length, .. } if matches!(length.kind, ExprKind::SelfField(known) if known == source));
    let name = |id: FieldId| unit.fields[id.0 as usize].name.clone().unwrap_or_default();
    if unit.fields.iter().filter(|other| shares(other)).count() > 1 {
        return Writable::NoLength(format!("`{}` is the length of several fields", name(source)));
    }
    let follows = unit.fields.iter().any(|other| match &other.kind {
        FieldKind::Int { derived: Some(Derived::LengthOf(measured)), .. }
        | FieldKind::Vint { derived: Some(Derived::LengthOf(measured)) } => *measured == field,
        FieldKind::Int { derived: Some(Derived::Expr(expr)), .. }
        | FieldKind::Vint { derived: Some(Derived::Expr(expr)) } => crate::walk::any(
            expr,
            &mut |expr| matches!(expr.kind, ExprKind::LenOf(measured) if measured == field),
        ),
        _ => false,
    });
    if follows {
        Writable::Yes
    } else {
        Writable::NoLength(format!("the variable `{}` has no `&serialize`", name(source)))
    }
}
