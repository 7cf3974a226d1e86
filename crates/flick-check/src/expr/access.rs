//! Names, fields, members of enums, elements of channel arrays.

use flick_syntax::ast;

use super::{Expectation, Exprs, unknown};
use crate::hir::{EnumId, Expr, ExprKind, FieldId, FieldKind, Span, StructId, Ty, UnitId};
use crate::items::TypeItem;
use crate::report;
use crate::scope::ResolvedName;
use crate::units;

impl Exprs<'_> {
    pub(super) fn name(&mut self, name: &ast::NameExpr, wanted: Expectation<'_>, span: Span) -> Expr {
        let Some(name) = name.name() else { return unknown(span) };
        if name.text() == "none" && self.scope.resolve("none").is_none() {
            return self.none(wanted, span);
        }
        self.resolve_value(name.text(), span)
    }

    /// Resolves a name to a value.
    pub(crate) fn resolve_value(&mut self, text: &str, span: Span) -> Expr {
        if let Some((named, ty)) = self.scope.resolve(text) {
            let kind = match named {
                ResolvedName::Local(id) => ExprKind::Local(id),
                ResolvedName::Channel(id) => ExprKind::Channel(id),
            };
            return Expr { kind, ty, span };
        }
        if let Some(member) = self.enum_hint.and_then(|id| self.member_of(id, text)) {
            return Expr { ty: member.1, kind: member.0, span };
        }
        if self.grammar.is_none()
            && let Some(kept) = self.resolve_state(text, &span)
        {
            return kept;
        }
        self.report_unknown_name(text, &span);
        unknown(span)
    }

    fn report_unknown_name(&mut self, text: &str, span: &Span) {
        let field = self.grammar.as_ref().and_then(|scope| {
            self.items.unit(scope.unit).fields.iter().find(|field| field.name.as_deref() == Some(text))
        });
        let owner =
            self.items.enums.iter().find(|known| known.members.iter().any(|(member, _)| member == text));
        let channel = self.items.channel_texts.get(text).filter(|_| self.grammar.is_none());
        let report = if let Some(channel) = channel {
            report::names::channel_in_function(span.clone(), text, channel)
        } else if field.is_some() {
            let help = format!("write `self.{text}`");
            report::names::wrong_kind(span.clone(), text, "field", "a value", &help)
        } else if let Some(fun) = self.items.fun_named(self.file, None, text) {
            let help = format!(
                "call it: `{text}({})`",
                vec!["..."; self.items.fun(fun).params.len().min(2)].join(", ")
            );
            report::names::wrong_kind(span.clone(), text, "function", "a value", &help)
        } else if super::builtin::named(text).is_some() {
            report::names::wrong_kind(
                span.clone(),
                text,
                "built-in function",
                "a value",
                &format!("call it: `{text}(...)`"),
            )
        } else if let Some(item) = self.items.type_named(self.file, None, text) {
            let (is, help) = type_as_value(item, text);
            report::names::wrong_kind(span.clone(), text, is, "a value", &help)
        } else if let Some(owner) = owner {
            let help = format!("write `{}.{text}`", owner.name);
            report::names::wrong_kind(span.clone(), text, "enum member", "a value", &help)
        } else {
            let known = self.scope.names();
            report::names::unknown_value(span.clone(), text, known.iter().map(String::as_str))
        };
        self.sink.push(report);
    }

    pub(super) fn member_of(&self, id: EnumId, name: &str) -> Option<(ExprKind, Ty)> {
        let (_, value) = self.items.enumeration(id).members.iter().find(|(known, _)| known == name)?;
        Some((ExprKind::Member(id, *value), Ty::Enum(id)))
    }

    pub(super) fn report_unknown_member(&mut self, id: EnumId, name: &str, span: Span) {
        let enumeration = self.items.enumeration(id);
        let known = enumeration.members.iter().map(|(name, _)| name.as_str());
        self.sink.push(report::names::unknown_member(span, &enumeration.name, name, known));
    }

    /// Reports `self` without a field.
    pub(super) fn bare_self(&mut self, span: Span) -> Expr {
        let (is, help) = if self.grammar.is_some() {
            ("the whole message", "write a field: `self.key_len`")
        } else {
            ("keyword", "in a program, use the name of the message: `req.key`")
        };
        self.sink.push(report::names::wrong_kind(span.clone(), "self", is, "a value", help));
        unknown(span)
    }

    pub(super) fn dollar(&mut self, span: Span) -> Expr {
        match self.grammar.as_ref().and_then(|scope| scope.dollar.clone()) {
            Some((kind, ty)) => Expr { kind, ty, span },
            None => {
                let help = "use `$$` in `&requires`, where it is the field itself, or in `&serialize`, where it is the new length of the field";
                self.sink.push(report::names::wrong_kind(span.clone(), "$$", "keyword", "a value", help));
                unknown(span)
            }
        }
    }

    /// `a.b.c`: a member of an enum, or a field of a message, including nested ones.
    pub(super) fn field(&mut self, field: &ast::FieldExpr, span: Span) -> Expr {
        let (base, path) = unfold_path(field);
        let Some(path) = path else { return unknown(span) };
        let last_span = self.span(path.last().map_or(0..0, ast::Name::range));
        let joined = path.iter().map(|name| name.text()).collect::<Vec<_>>().join(".");
        match base {
            Some(ast::Expr::SelfValue(_)) if self.grammar.is_some() => {
                super::self_fields::self_field(self, &joined, span)
            }
            Some(ast::Expr::SelfValue(_)) => self.bare_self(span),
            Some(ast::Expr::Name(name)) => {
                let Some(name) = name.name() else { return unknown(span) };
                if self.scope.resolve(name.text()).is_none()
                    && let Some(member) = self.member_path(&name, &path, &span)
                {
                    return member;
                }
                let base = self.resolve_value(name.text(), self.span(name.range()));
                self.fields_of(base, &path, last_span, span)
            }
            Some(base) => {
                let base = self.expr(&base);
                self.fields_of(base, &path, last_span, span)
            }
            None => unknown(span),
        }
    }

    /// `colour.red`, `shape.nothing`, and both with the name of a library.
    fn member_path(&mut self, first: &ast::Name, path: &[ast::Name], span: &Span) -> Option<Expr> {
        let (item, owner, member) = match path {
            [member] => (self.items.type_named(self.file, None, first.text())?, first, member),
            [owner, member] => {
                (self.items.type_named(self.file, Some(first.text()), owner.text())?, owner, member)
            }
            _ => return None,
        };
        let (location, span) = (self.span(member.range()), span.clone());
        match item {
            TypeItem::Enum(id) => Some(match self.member_of(id, member.text()) {
                Some((kind, ty)) => Expr { kind, ty, span },
                None => {
                    self.report_unknown_member(id, member.text(), location);
                    Expr { kind: ExprKind::Member(id, 0), ty: Ty::Enum(id), span }
                }
            }),
            TypeItem::Variant(id) => {
                let carried = self.items.variants[id.0 as usize].cases.iter();
                let carried = carried.into_iter().find(|(known, _)| known == member.text());
                if let Some((_, Some(ty))) = carried {
                    let whole = format!("{}.{}", owner.text(), member.text());
                    let carried = self.items.spell(ty);
                    self.sink.push(report::values::wrong_case_values(span.clone(), &whole, &carried, 0));
                    return Some(Expr { ty: Ty::Variant(id), ..unknown(span) });
                }
                Some(self.variant(id, member, None, span))
            }
            TypeItem::Struct(_) | TypeItem::Unit(_) | TypeItem::Class(_) => None,
        }
    }

    /// `base.a.b`: the field `a.b` of a message, or the field `b` of the field `a` of a record.
    fn fields_of(&mut self, base: Expr, path: &[ast::Name], path_span: Span, span: Span) -> Expr {
        let mut base = base;
        for (index, name) in path.iter().enumerate() {
            let Ty::Struct(id) = base.ty else {
                let joined = path[index..].iter().map(|name| name.text()).collect::<Vec<_>>().join(".");
                return self.field_of(base, &joined, path_span, span);
            };
            let Some(field) = self.struct_field(id, name) else { return unknown(span) };
            let ty = self.items.structs[id.0 as usize].fields[field].1.clone();
            base = Expr { kind: ExprKind::StructField(Box::new(base), field as u32), ty, span: span.clone() };
        }
        base
    }

    /// Returns the index of a record's field. Reports a name that the record does not have.
    pub(super) fn struct_field(&mut self, id: StructId, name: &ast::Name) -> Option<usize> {
        let declared = &self.items.structs[id.0 as usize];
        let index = declared.fields.iter().position(|(known, _)| known == name.text());
        if index.is_none() {
            let known: Vec<&str> = declared.fields.iter().map(|(name, _)| name.as_str()).collect();
            let location = self.span(name.range());
            self.sink.push(report::names::unknown_field(location, &declared.name, name.text(), known, None));
        }
        index
    }

    fn field_of(&mut self, base: Expr, path: &str, path_span: Span, span: Span) -> Expr {
        let unit = match base.ty {
            Ty::Record(unit) => unit,
            Ty::Unknown => return unknown(span),
            ref other => {
                let found = self.items.describe(other);
                let report = match other {
                    Ty::Option(inner) => {
                        report::values::may_be_none(base.span.clone(), &self.items.describe(inner))
                    }
                    Ty::Tuple(_) => report::values::tuple_field_name(path_span, path),
                    Ty::Variant(_) => report::values::variant_field(base.span.clone(), &found),
                    _ => report::types::no_fields(base.span.clone(), &found, other, path),
                };
                self.sink.push(report);
                return unknown(span);
            }
        };
        match self.find_field(unit, path, &path_span) {
            Some((field, ty)) => Expr { kind: ExprKind::Field(Box::new(base), field), ty, span },
            None => unknown(span),
        }
    }

    /// Resolves a field that the program may use, and its type; reports one that it may not.
    pub(super) fn find_field(&mut self, unit: UnitId, path: &str, span: &Span) -> Option<(FieldId, Ty)> {
        let declared = &self.items.unit(unit).fields;
        let index = declared.iter().position(|field| field.name.as_deref() == Some(path));
        let view = self.items.views.get(&unit.0);
        if let Some(view) = view
            && let Some(field) = view.fields.iter().find(|field| field.name == path)
        {
            return Some((field.field, field.ty.clone()));
        }
        if view.is_none()
            && let Some(index) = index
        {
            if !self.is_readable(unit, FieldId(index as u32), span) {
                return None;
            }
            return Some((FieldId(index as u32), units::grammar_type(&declared[index].kind)));
        }
        let hidden_type = index.map(|index| units::type_name(self.items, &declared[index].kind));
        let hidden = view.map(|view| view.span.clone()).zip(hidden_type.as_deref());
        let in_view =
            view.map(|view| view.fields.iter().map(|field| field.name.as_str()).collect::<Vec<_>>());
        let known =
            in_view.unwrap_or_else(|| declared.iter().filter_map(|field| field.name.as_deref()).collect());
        let fronts = path.rmatch_indices('.').map(|(dot, _)| &path[..dot]);
        let leaf = fronts
            .into_iter()
            .find_map(|front| declared.iter().find(|field| field.name.as_deref() == Some(front)));
        if let Some(leaf) = leaf {
            let ty = units::grammar_type(&leaf.kind);
            let found = self.items.describe(&ty);
            let field = path.rsplit('.').next().unwrap_or_default();
            self.sink.push(report::types::no_fields(span.clone(), &found, &ty, field));
            return None;
        }
        let is_group = index.is_none()
            && declared
                .iter()
                .any(|field| field.name.as_deref().is_some_and(|name| name.starts_with(&format!("{path}."))));
        let report = if is_group {
            let help = format!("write a field of it: `{path}.name`");
            report::names::wrong_kind(span.clone(), path, "nested unit", "a value", &help)
        } else {
            report::names::unknown_field(span.clone(), &self.items.unit(unit).name, path, known, hidden)
        };
        self.sink.push(report);
        None
    }
}

impl Exprs<'_> {
    /// Rejects fields that are never in memory as a whole.
    fn is_readable(&mut self, unit: UnitId, id: FieldId, span: &Span) -> bool {
        let field = self.items.field(unit, id);
        let name = field.name.as_deref().unwrap_or_default();
        let location = field.span.clone();
        let report = match &field.kind {
            FieldKind::List(list) if list.max.is_none() => {
                report::structured::unbounded_list_read(span.clone(), name, location)
            }
            FieldKind::ToClose { .. } => report::structured::to_close_read(span.clone(), name, location),
            _ => match units::element_of(self.items.unit(unit), id) {
                Some(list) => report::structured::element_in_a_program(span.clone(), name, &list, location),
                None => return true,
            },
        };
        self.sink.push(report);
        false
    }
}

/// The kind of a type, and help on building its values.
pub(super) fn type_as_value(item: TypeItem, name: &str) -> (&'static str, String) {
    match item {
        TypeItem::Enum(_) => ("enum", format!("write one of its members: `{name}.name`")),
        TypeItem::Variant(_) => ("variant", format!("write one of its cases: `{name}.case(value)`")),
        TypeItem::Class(_) => ("class", format!("write `&of = {name}` on a string in a grammar")),
        TypeItem::Struct(_) => ("record", format!("build one with `{name}{{field = value}}`")),
        _ => ("message type", format!("build a message with `{name}{{field = value}}`")),
    }
}

/// Splits `a.b.c` into `a` and `b`, `c`; the path is `None` if a name is missing.
pub(crate) fn unfold_path(field: &ast::FieldExpr) -> (Option<ast::Expr>, Option<Vec<ast::Name>>) {
    let mut names = vec![field.field()];
    let mut base = field.base();
    while let Some(ast::Expr::Field(inner)) = base {
        names.push(inner.field());
        base = inner.base();
    }
    names.reverse();
    (base, names.into_iter().collect())
}
