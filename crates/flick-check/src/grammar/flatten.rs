//! A unit as one row of fields: nested units are laid out in place, under dotted names.
//! Promises: field types are known afterwards; lengths and variables are not (`lengths.rs`).

use flick_syntax::ast;

use crate::diagnostic::Sink;
use crate::hir::{CAUSE_MALFORMED, Expr, ExprKind, Field, FieldKind, IntRepr, Span, Ty, UnitId};
use crate::items::{Decls, Items, TypeItem};
use crate::limits::{UNIT_EXPANSIONS_MAX, UNIT_FIELDS_MAX, UNIT_NESTING_MAX};
use crate::load::span_of;
use crate::report;
use crate::types;

/// What the later steps need to know of a field beyond its type; one for each field of the flat unit.
pub(super) struct Draft {
    pub(super) file: u32,
    /// Path of the nested unit it stands in, with a final dot.
    pub(super) prefix: String,
    pub(super) attrs: Vec<ast::Attr>,
    /// Place of the name, or of the whole field.
    pub(super) place: Span,
    /// Bound written in the grammar.
    pub(super) bound: Option<u32>,
    /// The type could not be understood; nothing more is said of the field.
    pub(super) is_broken: bool,
}

/// Lays a unit out: fills its fields in `items` and returns the drafts beside them.
pub(super) fn flatten(unit: UnitId, decls: &Decls, items: &mut Items, sink: &mut Sink) -> Vec<Draft> {
    let mut flat = Flat {
        decls,
        items,
        sink,
        drafts: Vec::new(),
        fields: Vec::new(),
        nesting: vec![unit],
        expansions: 0,
    };
    flat.unit(unit, "");
    let Flat { drafts, fields, expansions, .. } = flat;
    let name = items.unit(unit).name.clone();
    let place = items.unit(unit).span.clone();
    if !fields.iter().any(|field| !matches!(field.kind, FieldKind::Var { .. })) {
        sink.push(report::grammar::empty_unit(place, &name));
    } else if fields.len() > UNIT_FIELDS_MAX || expansions > UNIT_EXPANSIONS_MAX {
        sink.push(report::grammar::too_many_fields(place, &name, fields.len(), UNIT_FIELDS_MAX));
    }
    items.units[unit.0 as usize].fields = fields;
    drafts
}

struct Flat<'a> {
    decls: &'a Decls,
    items: &'a Items,
    sink: &'a mut Sink,
    drafts: Vec<Draft>,
    fields: Vec<Field>,
    /// Units being laid out, outermost first.
    nesting: Vec<UnitId>,
    /// Nested units met so far.
    expansions: usize,
}

impl Flat<'_> {
    fn unit(&mut self, unit: UnitId, prefix: &str) {
        let decl = &self.decls.units[unit.0 as usize];
        let byteorder = byteorder(&decl.node, decl.file, self.sink);
        for item in decl.node.items() {
            match item {
                ast::UnitItem::Property(_)
                | ast::UnitItem::Literal(_)
                | ast::UnitItem::Bits(_)
                | ast::UnitItem::Check(_)
                | ast::UnitItem::Switch(_) => {}
                ast::UnitItem::Field(field) => self.field(&field, decl.file, prefix, byteorder),
                ast::UnitItem::Var(var) => self.var(&var, decl.file, prefix),
            }
        }
    }

    fn field(&mut self, field: &ast::UnitField, file: u32, prefix: &str, byteorder: Option<bool>) {
        let name = field.name();
        let place = span_of(file, name.as_ref().map_or(field.range(), ast::Name::range));
        let full = name.as_ref().map(|name| format!("{prefix}{}", name.text()));
        if !self.is_new(full.as_deref(), &place) {
            return;
        }
        let Some(ty) = field.ty() else { return };
        let ty_span = span_of(file, ty.range());
        let named = match &ty {
            ast::Type::Named(named) => named,
            ast::Type::List(_) => {
                let help = "the repetition can be one `bytes` field with a length";
                self.sink.push(report::not_yet::grammar(ty_span, "a repetition", help));
                return self.broken(full, place, file, prefix);
            }
            ast::Type::Tuple(_) => {
                let help = "write one field for each value";
                self.sink.push(report::grammar::field_type(ty_span, "a tuple", help));
                return self.broken(full, place, file, prefix);
            }
        };
        let Some(type_name) = named.name() else { return self.broken(full, place, file, prefix) };
        if let Some(TypeItem::Unit(inner)) = self.items.type_named(file, None, type_name.text()) {
            return self.nested(inner, full, field, ty_span, file);
        }
        let bound = types::bound(named, file, self.sink);
        let Some(kind) = self.wire_type(type_name.text(), ty_span, byteorder, file) else {
            return self.broken(full, place, file, prefix);
        };
        if let FieldKind::Int { repr, .. } = &kind
            && repr.width_bytes > 1
            && byteorder.is_none()
            && !self.has_byteorder()
        {
            let shown = name.as_ref().map_or("this field", |name| name.text());
            self.sink.push(report::grammar::byteorder(place.clone(), Some(shown)));
        }
        self.push(full, kind, place, file, prefix, field.attrs().collect(), bound, false);
    }

    /// Whether the unit at hand has a byte order property, were it a bad one, or was told to have one.
    fn has_byteorder(&self) -> bool {
        let Some(unit) = self.nesting.last() else { return true };
        let node = &self.decls.units[unit.0 as usize].node;
        let is_byteorder =
            |property: ast::UnitProperty| property.name().is_some_and(|name| name.text() == "byteorder");
        node.properties().any(is_byteorder) || self.byteorder_reported()
    }

    /// One missing byte order per unit is enough.
    fn byteorder_reported(&self) -> bool {
        let Some(unit) = self.nesting.last() else { return false };
        let decl = &self.decls.units[unit.0 as usize];
        let range = decl.node.range();
        self.sink.has("E0611", &Span { file: decl.file, range: range.start as u32..range.end as u32 })
    }

    fn wire_type(&mut self, name: &str, span: Span, byteorder: Option<bool>, file: u32) -> Option<FieldKind> {
        let big_endian = byteorder.unwrap_or(true);
        if let Some(repr) = types::sized_int(name) {
            return Some(FieldKind::Int { repr, big_endian, enumeration: None, derived: None });
        }
        match (name, self.items.type_named(file, None, name)) {
            ("vint", None) => Some(FieldKind::Vint { derived: None }),
            ("string" | "bytes", _) => {
                let length = Expr { kind: ExprKind::Int(0), ty: Ty::Unknown, span };
                Some(FieldKind::Bytes { text: name == "string", max_bytes: None, length, streamed: false })
            }
            (_, Some(TypeItem::Enum(id))) => {
                let enumeration = self.items.enumeration(id);
                let Some(repr) = enumeration.repr else {
                    let help = format!("declare it with its width: `type {name} = enum uint8 {{ ... }};`");
                    self.sink.push(report::grammar::field_type(
                        span,
                        &format!("the enumeration `{name}`"),
                        &help,
                    ));
                    return None;
                };
                Some(FieldKind::Int { repr, big_endian, enumeration: Some(id), derived: None })
            }
            ("int", _) => {
                self.sink.push(report::grammar::field_type(
                    span,
                    "`int`",
                    "write how many bits it has: `uint32`",
                ));
                None
            }
            ("bool", _) => {
                self.sink.push(report::grammar::field_type(
                    span,
                    "`bool`",
                    "write `uint8`, and compare it with 0 where it is read",
                ));
                None
            }
            (_, Some(_)) => None,
            (_, None) => {
                types::unknown(self.items, name, span, self.sink);
                None
            }
        }
    }

    fn nested(&mut self, inner: UnitId, full: Option<String>, field: &ast::UnitField, span: Span, file: u32) {
        self.expansions += 1;
        if self.expansions > UNIT_EXPANSIONS_MAX || self.fields.len() > UNIT_FIELDS_MAX {
            return; // the number of fields is refused as a whole
        }
        if let Some(start) = self.nesting.iter().position(|unit| *unit == inner) {
            // Every unit of the circle meets it; the one declared first says so.
            if self.nesting[start..].iter().all(|unit| inner.0 <= unit.0) {
                let name = &self.items.unit(inner).name;
                self.sink.push(report::grammar::nests_itself(span, name));
            }
            return;
        }
        if self.nesting.len() >= UNIT_NESTING_MAX {
            self.sink.push(report::grammar::nested_too_deep(span, UNIT_NESTING_MAX));
            return;
        }
        for attr in field.attrs() {
            let name = attr.name().map_or(String::new(), |name| name.text().to_owned());
            let span = span_of(file, attr.range());
            self.sink.push(report::grammar::attribute_misplaced(
                span,
                &name,
                "does not stand on a nested unit",
            ));
        }
        // Fields of a nested unit without a name cannot be named by anyone; a dot alone keeps them apart.
        let prefix = format!("{}.", full.unwrap_or_default());
        self.nesting.push(inner);
        self.unit(inner, &prefix);
        self.nesting.pop();
    }

    fn var(&mut self, var: &ast::UnitVar, file: u32, prefix: &str) {
        let Some(name) = var.name() else { return };
        let place = span_of(file, name.range());
        let full = Some(format!("{prefix}{}", name.text()));
        if !self.is_new(full.as_deref(), &place) {
            return;
        }
        let repr = match var.ty() {
            Some(ast::Type::Named(named)) => named.name().and_then(|name| types::sized_int(name.text())),
            _ => None,
        };
        let is_broken = repr.is_none();
        if let (true, Some(ty)) = (is_broken, var.ty()) {
            let help = "a variable is a sized integer: `var value_len : uint32`";
            self.sink.push(report::grammar::field_type(span_of(file, ty.range()), "this type", help));
        }
        let repr = repr.unwrap_or(IntRepr { width_bytes: 8, signed: true });
        let parse = Expr { kind: ExprKind::Int(0), ty: Ty::Unknown, span: place.clone() };
        let kind = FieldKind::Var { repr, parse };
        self.push(full, kind, place, file, prefix, var.attrs().collect(), None, is_broken);
    }

    /// Reports a field name given twice.
    fn is_new(&mut self, full: Option<&str>, place: &Span) -> bool {
        let Some(full) = full else { return true };
        let group = format!("{full}.");
        let known = self
            .fields
            .iter()
            .find(|field| field.name.as_deref().is_some_and(|name| name == full || name.starts_with(&group)));
        if let Some(known) = known {
            let first = known.span.clone();
            let shown = full.rsplit('.').next().unwrap_or(full);
            self.sink.push(report::names::duplicate(place.clone(), "field", shown, first));
            return false;
        }
        true
    }

    fn broken(&mut self, full: Option<String>, place: Span, file: u32, prefix: &str) {
        let repr = IntRepr { width_bytes: 1, signed: false };
        let kind = FieldKind::Int { repr, big_endian: true, enumeration: None, derived: None };
        self.push(full, kind, place, file, prefix, Vec::new(), None, true);
    }

    #[expect(
        clippy::too_many_arguments,
        reason = "the one place where a field and its draft are made together"
    )]
    fn push(
        &mut self,
        name: Option<String>,
        kind: FieldKind,
        place: Span,
        file: u32,
        prefix: &str,
        attrs: Vec<ast::Attr>,
        bound: Option<u32>,
        is_broken: bool,
    ) {
        self.fields.push(Field {
            name,
            kind,
            requires: Vec::new(),
            cause: CAUSE_MALFORMED,
            span: place.clone(),
        });
        self.drafts.push(Draft { file, prefix: prefix.to_owned(), attrs, place, bound, is_broken });
    }
}

/// Reads `%byteorder`: `Some(true)` for big; a bad one is reported.
fn byteorder(node: &ast::UnitDecl, file: u32, sink: &mut Sink) -> Option<bool> {
    let property =
        node.properties().find(|property| property.name().is_some_and(|name| name.text() == "byteorder"))?;
    let value = property.value()?;
    let word = match &value {
        ast::Expr::Name(name) => name.name(),
        _ => None,
    };
    match word.as_ref().map(|word| word.text()) {
        Some("big") => Some(true),
        Some("little") => Some(false),
        _ => {
            sink.push(report::grammar::byteorder(span_of(file, value.range()), None));
            None
        }
    }
}
