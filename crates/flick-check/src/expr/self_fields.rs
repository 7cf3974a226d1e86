//! Resolves `self.a.b` and `self.list["key"]` in grammars.
//! Promises: a field that is used is known at that point: it comes before, in the same element of a list.

use super::{Exprs, GrammarScope, Purpose, unknown};
use crate::diagnostic::Diagnostic;
use crate::hir::{Expr, ExprKind, FieldId, FieldKind, ListEnd, Span, Ty, Unit};
use crate::range::Range;
use crate::report;
use crate::units::{grammar_type, owners};

/// Properties that are computed when only the integers of a reply are available.
const LATE_FACTS: &[&str] = &["silent", "more", "loud"];

/// `self.a.b` in a grammar.
pub(crate) fn self_field(exprs: &mut Exprs<'_>, path: &str, span: Span) -> Expr {
    let Some(scope) = exprs.grammar.clone() else { return unknown(span) };
    if let Some(value) = parameter(&scope, path, &span) {
        return value;
    }
    let unit = exprs.items.unit(scope.unit);
    let Some(index) = find(exprs, &scope, path, &span) else { return unknown(span) };
    let field = &unit.fields[index];
    let id = FieldId(index as u32);
    let is_reported = exprs.sink.explains("E0644", &field.span);
    if matches!(field.kind, FieldKind::TextVar { .. }) && !scope.is_lazy && is_reported {
        return unknown(span);
    }
    let report = unavailable_here(&scope, unit, path, id, &span).or_else(|| match &field.kind {
        FieldKind::List(list) => {
            let first =
                list.keyed.as_ref().and_then(|_| exprs.items.keys.of(scope.unit, id).into_iter().next());
            let is_keyed = exprs.items.keys.is_keyed(scope.unit, id);
            Some(report::structured::list_as_value(span.clone(), path, is_keyed, first.as_deref()))
        }
        FieldKind::ToClose { .. } => Some(report::structured::to_close_as_value(span.clone(), path)),
        FieldKind::TextVar { .. } if !scope.is_lazy => {
            Some(report::structured::text_variable(span.clone(), path, field.span.clone()))
        }
        _ => unavailable_for_purpose(&scope, unit, path, id, &span),
    });
    if let Some(report) = report {
        exprs.sink.push(report);
        return unknown(span);
    }
    Expr { kind: ExprKind::SelfField(id), ty: grammar_type(&field.kind), span }
}

/// `self.list["key"]` in a grammar; `None` if `path` is not a list.
pub(crate) fn self_key(
    exprs: &mut Exprs<'_>,
    path: &str,
    key: &flick_syntax::ast::Expr,
    span: &Span,
) -> Option<Expr> {
    let scope = exprs.grammar.clone()?;
    let unit = exprs.items.unit(scope.unit);
    let full = format!("{}{path}", scope.site.prefix);
    let index = unit.fields.iter().position(|field| field.name.as_deref() == Some(full.as_str()))?;
    if !matches!(unit.fields[index].kind, FieldKind::List(_)) {
        return None;
    }
    let id = FieldId(index as u32);
    let report = unavailable_here(&scope, unit, path, id, span).or_else(|| match &scope.purpose {
        Purpose::Answer(_) => Some(report::grammar::not_kept(span.clone(), path, &[])),
        Purpose::Fact(fact) if LATE_FACTS.contains(fact) => {
            Some(report::grammar::fact_needs_number(span.clone(), &format!("`%{fact}`"), path))
        }
        _ => None,
    });
    if let Some(report) = report {
        exprs.sink.push(report);
        return Some(unknown(span.clone()));
    }
    let known = exprs.key_number(scope.unit, id, path, key);
    let Some((key, ty)) = known else { return Some(unknown(span.clone())) };
    let ty = Ty::Option(Box::new(ty));
    Some(Expr { kind: ExprKind::SelfKey(id, key), ty, span: span.clone() })
}

/// `len(self.list)` in a grammar: the number of elements. `None` if `path` is not a list with a bound, or is a list
/// with `&length`, whose length is in bytes.
pub(crate) fn list_len(exprs: &mut Exprs<'_>, path: &str, span: &Span) -> Option<Expr> {
    let scope = exprs.grammar.clone()?;
    let is_read = match &scope.purpose {
        Purpose::Reading { .. } => true,
        Purpose::Fact(fact) => !LATE_FACTS.contains(fact),
        Purpose::Writing | Purpose::Answer(_) => false,
    };
    let unit = exprs.items.unit(scope.unit);
    let full = format!("{}{path}", scope.site.prefix);
    let index = unit.fields.iter().position(|field| field.name.as_deref() == Some(full.as_str()))?;
    let id = FieldId(index as u32);
    let FieldKind::List(list) = &unit.fields[index].kind else { return None };
    if !is_read || matches!(list.end, ListEnd::Bytes(_)) {
        return None;
    }
    let ty = Range { lo: 0, hi: i128::from(list.max?) }.ty();
    match unavailable_here(&scope, unit, path, id, span) {
        Some(report) => {
            exprs.sink.push(report);
            Some(unknown(span.clone()))
        }
        None => Some(Expr { kind: ExprKind::LenOf(id), ty, span: span.clone() }),
    }
}

/// The value of the parameter of that name.
fn parameter(scope: &GrammarScope, path: &str, span: &Span) -> Option<Expr> {
    let args = scope.site.args.as_ref()?;
    let index = args.params.iter().position(|(name, _)| name == path)?;
    let value = args.values.get().and_then(|values| values.get(index)).cloned();
    let ty = args.params[index].1.clone();
    Some(match value {
        Some(value) if value.ty != Ty::Unknown => Expr { span: span.clone(), ..value },
        // An opaque value of its type.
        _ => {
            let inner = Box::new(Expr { ty: ty.clone(), ..unknown(span.clone()) });
            Expr { kind: ExprKind::Recast(inner), ty, span: span.clone() }
        }
    })
}

fn find(exprs: &mut Exprs<'_>, scope: &GrammarScope, path: &str, span: &Span) -> Option<usize> {
    let unit = exprs.items.unit(scope.unit);
    let prefix = scope.site.prefix.as_str();
    let full = format!("{prefix}{path}");
    let index = unit.fields.iter().position(|field| field.name.as_deref() == Some(full.as_str()));
    if index.is_some() {
        return index;
    }
    let group = format!("{full}.");
    let named = || unit.fields.iter().filter_map(|field| field.name.as_deref());
    let report = if named().any(|name| name.starts_with(&group)) {
        let help = format!("write a field of it: `self.{path}.name`");
        report::names::wrong_kind(span.clone(), path, "nested unit", "a value", &help)
    } else {
        let params =
            scope.site.args.iter().flat_map(|args| args.params.iter().map(|(name, _)| name.as_str()));
        let known = named().filter_map(|name| name.strip_prefix(prefix)).chain(params);
        let known: Vec<&str> = known.filter(|name| !name.contains('#')).collect();
        report::names::unknown_field(span.clone(), &unit.name, path, known, None)
    };
    exprs.sink.push(report);
    None
}

/// Returns an error if a field cannot be used at this location.
fn unavailable_here(
    scope: &GrammarScope,
    unit: &Unit,
    path: &str,
    id: FieldId,
    span: &Span,
) -> Option<Diagnostic> {
    let own = &unit.fields[id.0 as usize];
    let is_of_later = |what: &str| report::grammar::later_field(span.clone(), what, path, own.span.clone());
    if let Purpose::Reading { what, visible } = &scope.purpose
        && id.0 as usize >= *visible
    {
        return Some(is_of_later(what));
    }
    if scope.site.inside.contains(&id) {
        return Some(report::structured::list_used_in_its_element(span.clone(), path));
    }
    let owner = owners(unit, id).find(|(list, _)| !scope.site.inside.contains(list));
    owner.map(|(_, list)| {
        let list = list.name.as_deref().unwrap_or("an unnamed list");
        report::structured::field_of_an_element(span.clone(), path, list, own.span.clone())
    })
}

/// Returns an error if a field cannot be used for this purpose.
fn unavailable_for_purpose(
    scope: &GrammarScope,
    unit: &Unit,
    path: &str,
    id: FieldId,
    span: &Span,
) -> Option<Diagnostic> {
    let kind = &unit.fields[id.0 as usize].kind;
    let is_bytes =
        matches!(kind, FieldKind::Bytes { .. } | FieldKind::Text { .. } | FieldKind::TextVar { .. });
    match &scope.purpose {
        Purpose::Fact(fact) if is_bytes && (!scope.is_structured || LATE_FACTS.contains(fact)) => {
            Some(report::grammar::fact_needs_number(span.clone(), &format!("`%{fact}`"), path))
        }
        Purpose::Fact(fact) if matches!(kind, FieldKind::Bytes { max_bytes: None, .. }) => {
            let location = unit.fields[id.0 as usize].span.clone();
            Some(report::structured::streamed_in_grammar(span.clone(), &format!("`%{fact}`"), path, location))
        }
        Purpose::Answer(kept) if !kept.contains(&id) => {
            let names: Vec<&str> =
                kept.iter().filter_map(|id| unit.fields[id.0 as usize].name.as_deref()).collect();
            Some(report::grammar::not_kept(span.clone(), path, &names))
        }
        Purpose::Writing if is_bytes => {
            Some(report::grammar::fact_needs_number(span.clone(), "`&serialize`", path))
        }
        _ => None,
    }
}
