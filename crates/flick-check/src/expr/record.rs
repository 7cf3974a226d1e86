//! Messages that are built or changed.

use flick_syntax::ast;

use super::constants::{KeyInit, same_key, with_keys};
use super::value::depends_on_order;
use super::{Exprs, unknown};
use crate::hir::{Expr, ExprKind, FieldId, Span, Ty, UnitId};
use crate::items::TypeItem;
use crate::units::Writable;
use crate::{report, units};

impl Exprs<'_> {
    /// `unit{field = value}`.
    pub(super) fn build(&mut self, record: &ast::RecordExpr, span: Span) -> Expr {
        let Some(name) = record.name() else { return unknown(span) };
        let library = record.library();
        let unit = match self.items.type_named(self.file, library.as_ref().map(ast::Name::text), name.text())
        {
            Some(TypeItem::Unit(unit)) => unit,
            Some(TypeItem::Struct(id)) if self.grammar.is_none() => {
                return self.struct_build(id, record, span);
            }
            Some(
                item @ (TypeItem::Enum(_) | TypeItem::Variant(_) | TypeItem::Struct(_) | TypeItem::Class(_)),
            ) => {
                let (is, help) = super::access::type_as_value(item, name.text());
                let location = self.span(name.range());
                let what = "a message type";
                self.sink.push(report::names::wrong_kind(location, name.text(), is, what, &help));
                return unknown(span);
            }
            None => {
                let known: Vec<&str> = self.items.types.keys().map(String::as_str).collect();
                let name_span = self.span(name.range());
                self.sink.push(report::names::unknown_type(name_span, name.text(), known));
                return unknown(span);
            }
        };
        if let Some(whole) = self.build_wire(unit, record, &span) {
            return whole;
        }
        self.check_buildable(unit, &span);
        let (fields, keys) = self.inits(unit, record.fields());
        self.reject_fields_of_two_arms(unit, &fields);
        self.reject_impossible_constants(unit, &fields);
        let built = Expr { kind: ExprKind::Build(unit, fields), ty: Ty::Record(unit), span };
        with_keys(built, keys)
    }

    /// `kv(a, b)`: sets the fields of the record of the program, in its order.
    pub(super) fn build_positional(
        &mut self,
        unit: UnitId,
        args: &[ast::Expr],
        piped: Option<Expr>,
        span: Span,
    ) -> Expr {
        let ty = Ty::Record(unit);
        let name = self.items.unit(unit).name.clone();
        let Some(view) = self.items.views.get(&unit.0) else {
            let names = self.written_names(unit);
            let report = report::values::positional_without_record(span.clone(), &name, &names, args.len());
            self.sink.push(report);
            return Expr { ty, ..unknown(span) };
        };
        let (is_piped, location) = (piped.is_some(), view.span.clone());
        let fields: Vec<(FieldId, Ty, String)> = view
            .fields
            .iter()
            .filter(|field| units::writable(self.items.unit(unit), field.field) != Writable::Follows)
            .map(|field| (field.field, field.ty.clone(), field.name.clone()))
            .collect();
        let found = args.len() + usize::from(is_piped);
        if found != fields.len() {
            let wanted = fields.len();
            let report =
                report::types::argument_count(span.clone(), &name, wanted, found, Some(location), is_piped);
            self.sink.push(report);
            return Expr { ty, ..unknown(span) };
        }
        self.check_buildable(unit, &span);
        let mut values: Vec<Expr> =
            args.iter().zip(&fields).map(|(arg, (_, ty, _))| self.expr_like(arg, ty)).collect();
        values.extend(piped);
        let mut given = Vec::new();
        for (value, (_, _, name)) in values.into_iter().zip(&fields) {
            let location = value.span.clone();
            let Some((field, ty)) = self.written_field(unit, name, &location) else { continue };
            let value = self.coerce(value, &ty, &format!("`{name}`"), Some(location));
            self.check_constant(unit, field, name, &value);
            given.push((field, value));
        }
        self.reject_impossible_constants(unit, &given);
        Expr { kind: ExprKind::Build(unit, given), ty, span }
    }

    /// The fields that a program may set when it builds a message.
    pub(super) fn written_names(&self, unit: UnitId) -> Vec<&str> {
        let declared = self.items.unit(unit);
        let fields = declared.fields.iter().enumerate();
        let given = fields.filter(|(index, _)| {
            let id = FieldId(*index as u32);
            units::element_of(declared, id).is_none() && units::writable(declared, id) == Writable::Yes
        });
        given.filter_map(|(_, field)| field.name.as_deref()).filter(|name| !name.contains('#')).collect()
    }

    /// Rejects building a message if the length of some field cannot be set.
    fn check_buildable(&mut self, unit: UnitId, span: &Span) {
        let declared = self.items.unit(unit);
        let blocked = declared.fields.iter().enumerate().find_map(|(index, field)| {
            let id = FieldId(index as u32);
            // A list is written from its assigned elements.
            if units::element_of(declared, id).is_some() {
                return None;
            }
            match units::writable(declared, id) {
                Writable::NoLength(why) => Some((field, why)),
                _ => None,
            }
        });
        if let Some((field, why)) = blocked {
            let name = field.name.clone().unwrap_or_else(|| "an unnamed field".to_owned());
            let report =
                report::grammar::cannot_build(span.clone(), &declared.name, &name, field.span.clone(), &why);
            self.sink.push(report);
        }
    }

    /// `message with field = value`.
    pub(super) fn with(&mut self, with: &ast::WithExpr, span: Span) -> Expr {
        let base = self.opt_expr(with.base(), &span);
        let unit = match base.ty {
            Ty::Record(unit) => unit,
            Ty::Struct(id) => return self.struct_with(base, id, with, span),
            Ty::Unknown => return unknown(span),
            ref other => {
                let found = self.items.describe(other);
                self.sink.push(report::types::no_fields(base.span.clone(), &found, other, ""));
                return unknown(span);
            }
        };
        let (fields, keys) = self.inits(unit, with.fields());
        self.reject_fields_of_two_arms(unit, &fields);
        self.reject_impossible_constants(unit, &fields);
        let mut changed = base;
        let (mut fields, mut keys) = (fields, keys);
        // A key is set after the fields, unless its value must be computed before that of a field.
        while let Some(at) = keys.iter().position(|key| {
            key.depends_on_order()
                && fields[key.fields_before..].iter().any(|(_, value)| depends_on_order(value))
        }) {
            let before = keys[at].fields_before;
            let (later_fields, mut later_keys) = (fields.split_off(before), keys.split_off(at + 1));
            later_keys.iter_mut().for_each(|key| key.fields_before -= before);
            changed = with_keys(with_fields(changed, unit, fields, &span), keys);
            (fields, keys) = (later_fields, later_keys);
        }
        with_keys(with_fields(changed, unit, fields, &span), keys)
    }

    fn inits(
        &mut self,
        unit: UnitId,
        inits: impl Iterator<Item = ast::FieldInit>,
    ) -> (Vec<(FieldId, Expr)>, Vec<KeyInit>) {
        let mut keys: Vec<KeyInit> = Vec::new();
        let mut out: Vec<(FieldId, Expr)> = Vec::new();
        let mut locations: Vec<(FieldId, Span)> = Vec::new();
        for init in inits {
            let Some(name) = init.name() else { continue };
            let span = self.span(name.range());
            let whole = self.span(init.range());
            if let Some(key) = init.key() {
                let given = self.key_init(unit, &name, &key, init.value(), (&whole, out.len()));
                if let Some(first) = given.as_ref().and_then(|given| same_key(&keys, given)) {
                    self.sink.push(report::names::field_specified_twice(whole, name.text(), first));
                    continue;
                }
                keys.extend(given);
                continue;
            }
            let value = self.opt_expr(init.value(), &whole);
            let Some((field, ty)) = self.written_field(unit, name.text(), &span) else { continue };
            if let Some((_, first)) = locations.iter().find(|(known, _)| *known == field) {
                self.sink.push(report::names::field_specified_twice(span, name.text(), first.clone()));
                continue;
            }
            let target = format!("`{}`", name.text());
            let value = self.coerce(value, &ty, &target, Some(span.clone()));
            self.check_constant(unit, field, name.text(), &value);
            locations.push((field, span));
            out.push((field, value));
        }
        (out, keys)
    }

    /// Resolves a field that may be assigned; reports one that may not.
    fn written_field(&mut self, unit: UnitId, name: &str, span: &Span) -> Option<(FieldId, Ty)> {
        let (field, ty) = self.any_field(unit, name, span)?;
        let declared = self.items.field(unit, field);
        let location = declared.span.clone();
        if let Some(list) = units::element_of(self.items.unit(unit), field) {
            self.sink.push(report::structured::field_of_an_element(span.clone(), name, &list, location));
            return None;
        }
        let ty = match ty {
            Ty::Option(inner) => *inner,
            ty => ty,
        };
        let ty = self.items.written_type(unit, field).unwrap_or(ty);
        match units::writable(self.items.unit(unit), field) {
            Writable::Yes => Some((field, ty)),
            Writable::Follows => {
                self.sink.push(report::grammar::written_follows(span.clone(), name, location));
                None
            }
            Writable::Computed => {
                self.sink.push(report::grammar::written_var(span.clone(), name, location));
                None
            }
            Writable::ToClose => {
                self.sink.push(report::structured::to_close_read(span.clone(), name, location));
                None
            }
            Writable::Parts => {
                self.sink.push(report::structured::list_is_read_only(span.clone(), name, location));
                None
            }
            Writable::NoLength(why) => {
                self.sink.push(report::grammar::written_without_length(span.clone(), name, location, &why));
                None
            }
        }
    }

    /// A grammar may use all fields of its unit, a program those of its record.
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
        Some((FieldId(index as u32), units::grammar_type(&declared.fields[index].kind)))
    }
}

/// `message with field = value`, or the message itself where nothing is assigned.
fn with_fields(message: Expr, unit: UnitId, fields: Vec<(FieldId, Expr)>, span: &Span) -> Expr {
    if fields.is_empty() {
        return message;
    }
    let kind = ExprKind::With(Box::new(message), fields);
    Expr { kind, ty: Ty::Record(unit), span: span.clone() }
}
