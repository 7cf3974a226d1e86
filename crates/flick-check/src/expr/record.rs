//! Messages that are built or changed.

use flick_syntax::ast;

use super::{Exprs, unknown};
use crate::grammar::{self, Writable};
use crate::hir::{Expr, ExprKind, FieldId, Span, Ty, UnitId};
use crate::items::TypeItem;
use crate::report;

impl Exprs<'_> {
    /// `unit{field = value}`.
    pub(super) fn build(&mut self, record: &ast::RecordExpr, span: Span) -> Expr {
        let Some(name) = record.name() else { return unknown(span) };
        let unit = match self.items.types.get(name.text()) {
            Some(TypeItem::Unit(unit)) => *unit,
            Some(TypeItem::Enum(_)) => {
                let help = format!("name one of its members: `{}.name`", name.text());
                let name_span = self.span(name.range());
                self.sink.push(report::names::wrong_kind(
                    name_span,
                    name.text(),
                    "an enumeration",
                    "a type of message",
                    &help,
                ));
                return unknown(span);
            }
            Some(TypeItem::Broken) => return unknown(span),
            None => {
                let known: Vec<&str> = self.items.types.keys().map(String::as_str).collect();
                let name_span = self.span(name.range());
                self.sink.push(report::names::unknown_type(name_span, name.text(), known));
                return unknown(span);
            }
        };
        let declared = self.items.unit(unit);
        let blocked = declared.fields.iter().enumerate().find_map(|(index, field)| {
            match grammar::writable(declared, FieldId(index as u32)) {
                Writable::NoLength(why) => Some((field, why)),
                _ => None,
            }
        });
        if let Some((field, why)) = blocked {
            let name = field.name.clone().unwrap_or_else(|| "a field without a name".to_owned());
            let report =
                report::grammar::cannot_build(span.clone(), &declared.name, &name, field.span.clone(), &why);
            self.sink.push(report);
        }
        let fields = self.inits(unit, record.fields());
        Expr { kind: ExprKind::Build(unit, fields), ty: Ty::Record(unit), span }
    }

    /// `message with field = value`.
    pub(super) fn with(&mut self, with: &ast::WithExpr, span: Span) -> Expr {
        let base = self.opt_expr(with.base(), &span);
        let unit = match base.ty {
            Ty::Record(unit) => unit,
            Ty::Unknown => return unknown(span),
            ref other => {
                let found = self.items.describe(other);
                self.sink.push(report::types::no_fields(base.span.clone(), &found));
                return unknown(span);
            }
        };
        let fields = self.inits(unit, with.fields());
        Expr { kind: ExprKind::With(Box::new(base), fields), ty: Ty::Record(unit), span }
    }

    fn inits(&mut self, unit: UnitId, inits: impl Iterator<Item = ast::FieldInit>) -> Vec<(FieldId, Expr)> {
        let mut out: Vec<(FieldId, Expr)> = Vec::new();
        let mut places: Vec<(FieldId, Span)> = Vec::new();
        for init in inits {
            let Some(name) = init.name() else { continue };
            let span = self.span(name.range());
            let whole = self.span(init.range());
            let value = self.opt_expr(init.value(), &whole);
            let Some((field, ty)) = self.written_field(unit, name.text(), &span) else { continue };
            if let Some((_, first)) = places.iter().find(|(known, _)| *known == field) {
                self.sink.push(report::names::given_twice(span, name.text(), first.clone()));
                continue;
            }
            let target = format!("`{}`", name.text());
            let value = self.coerce(value, &ty, &target, Some(span.clone()));
            places.push((field, span));
            out.push((field, value));
        }
        out
    }

    /// Finds a field that may be given a value; reports one that may not.
    fn written_field(&mut self, unit: UnitId, name: &str, span: &Span) -> Option<(FieldId, Ty)> {
        let (field, ty) = self.any_field(unit, name, span)?;
        let declared = self.items.field(unit, field);
        let place = declared.span.clone();
        match grammar::writable(self.items.unit(unit), field) {
            Writable::Yes => Some((field, ty)),
            Writable::Follows => {
                self.sink.push(report::grammar::written_follows(span.clone(), name, place));
                None
            }
            Writable::Computed => {
                self.sink.push(report::grammar::written_var(span.clone(), name, place));
                None
            }
            Writable::NoLength(why) => {
                self.sink.push(report::grammar::written_without_length(span.clone(), name, place, &why));
                None
            }
        }
    }

    /// A grammar sees all fields of its unit, a program those of its record.
    fn any_field(&mut self, unit: UnitId, name: &str, span: &Span) -> Option<(FieldId, Ty)> {
        if self.grammar.is_none() {
            return self.find_field(unit, name, span);
        }
        let declared = self.items.unit(unit);
        let index = declared.fields.iter().position(|field| field.name.as_deref() == Some(name));
        let Some(index) = index else {
            let known = declared.fields.iter().filter_map(|field| field.name.as_deref());
            self.sink.push(report::names::unknown_field(span.clone(), &declared.name, name, known, None));
            return None;
        };
        Some((FieldId(index as u32), super::access::grammar_type(&declared.fields[index].kind)))
    }
}
