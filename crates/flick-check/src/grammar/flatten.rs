//! First pass over a unit: flattens nested units into one sequence of fields with dotted names, and builds the tree.
//! Promises: field types are known afterwards; lengths, variables and conditions are not (`resolve.rs`).

mod items;

use std::cell::OnceCell;
use std::rc::Rc;

use flick_abi::FaultCause;
use flick_syntax::ast;

use super::draft::{Draft, Drafts, IfNode, Node, attr};
use super::field_types::{self, Context, Found};
use crate::diagnostic::Sink;
use crate::expr::{Args, Site};
use crate::hir::{Field, FieldId, FieldKind, IntRepr, Span, Ty, UnitId};
use crate::items::{Decls, Items};
use crate::limits::{UNIT_EXPANSIONS_MAX, UNIT_FIELDS_MAX, UNIT_NESTING_MAX, WIRE_FIELDS_MAX};
use crate::load::span_of;
use crate::report;
use crate::types;

/// Properties that only the parser of a structured unit evaluates.
const TREE_FACTS: &[&str] =
    &["last", "retry", "whole", "tunnel", "closes", "failed", "keep", "carry", "status"];

/// Flattens a unit: enters its fields in `items` and returns the drafts for them.
pub(super) fn flatten(unit: UnitId, decls: &Decls, items: &mut Items, sink: &mut Sink) -> Drafts {
    let mut flat = Flat {
        decls,
        items,
        sink,
        drafts: Vec::new(),
        fields: Vec::new(),
        nodes: Vec::new(),
        nesting: vec![unit],
        expansions: 0,
        has_wire: false,
        is_structured: false,
    };
    let decl = &decls.units[unit.0 as usize];
    let has_fact =
        |property: ast::UnitProperty| property.name().is_some_and(|name| TREE_FACTS.contains(&name.text()));
    flat.is_structured = decl.node.properties().any(has_fact);
    let site = Site { file: decl.file, ..Site::default() };
    let args = flat.args(unit, Vec::new(), None, site.clone());
    let site = Site { args, ..site };
    flat.unit(unit, &site);
    let Flat { drafts, fields, nodes, expansions, has_wire, is_structured, .. } = flat;
    let name = items.unit(unit).name.clone();
    let location = items.unit(unit).span.clone();
    let fields_max = if is_structured { WIRE_FIELDS_MAX } else { UNIT_FIELDS_MAX };
    if !has_wire {
        sink.push(report::grammar::empty_unit(location, &name));
    } else if fields.len() > fields_max || expansions > UNIT_EXPANSIONS_MAX {
        sink.push(report::grammar::too_many_plain_fields(location, &name, fields.len(), fields_max));
    }
    items.units[unit.0 as usize].fields = fields;
    Drafts { fields: drafts, nodes, is_structured }
}

struct Flat<'a> {
    decls: &'a Decls,
    items: &'a Items,
    sink: &'a mut Sink,
    drafts: Vec<Draft>,
    fields: Vec<Field>,
    /// The current row.
    nodes: Vec<Node>,
    /// Units being flattened, outermost first.
    nesting: Vec<UnitId>,
    /// Number of nested units so far.
    expansions: usize,
    /// Whether any item has bytes.
    has_wire: bool,
    is_structured: bool,
}

/// A field of the source.
struct Written {
    full: Option<String>,
    location: Span,
    attrs: Vec<ast::Attr>,
}

impl Flat<'_> {
    fn unit(&mut self, unit: UnitId, site: &Site) {
        let decl = &self.decls.units[unit.0 as usize];
        let byteorder = byteorder(&decl.node, decl.file, self.sink);
        for item in decl.node.items() {
            self.item(item, site, byteorder, true);
        }
    }

    fn item(&mut self, item: ast::UnitItem, site: &Site, byteorder: Option<bool>, is_top: bool) {
        if self.fields.len() > WIRE_FIELDS_MAX {
            return; // the number of fields is refused as a whole
        }
        match item {
            ast::UnitItem::Property(property) if !is_top => {
                let span = span_of(site.file, property.range());
                self.sink.push(report::grammar::property_inside(span));
            }
            ast::UnitItem::Property(_) => {}
            ast::UnitItem::Field(field) => self.field(&field, site, byteorder),
            ast::UnitItem::Var(var) => self.var(&var, site),
            ast::UnitItem::Literal(literal) => self.literal(&literal, site),
            ast::UnitItem::Bits(bits) => self.bits(&bits, site, byteorder),
            ast::UnitItem::Check(check) => self.check(&check, site),
            ast::UnitItem::Switch(switch) => self.switch(&switch, site, byteorder),
        }
    }

    /// Collects the items that `inside` adds as a separate row.
    fn row(&mut self, inside: impl FnOnce(&mut Self)) -> Vec<Node> {
        let outer = std::mem::take(&mut self.nodes);
        inside(self);
        std::mem::replace(&mut self.nodes, outer)
    }

    fn field(&mut self, field: &ast::UnitField, site: &Site, byteorder: Option<bool>) {
        let name = field.name();
        let location = span_of(site.file, name.as_ref().map_or(field.range(), ast::Name::range));
        let full = name.as_ref().map(|name| format!("{}{}", site.prefix, name.text()));
        if !self.is_new(full.as_deref(), site, &location) {
            return;
        }
        let Some(ty) = field.ty() else { return };
        let attrs: Vec<ast::Attr> = field.attrs().collect();
        let condition = attr(&attrs, "if").and_then(|attr| attr.value());
        let written = Written { full, location: location.clone(), attrs };
        let Some(condition) = condition else { return self.typed(written, &ty, site, byteorder) };
        self.is_structured = true;
        let visible = self.fields.len();
        let then = self.row(|flat| flat.typed(written, &ty, site, byteorder));
        self.nodes.push(Node::If(IfNode { condition, site: site.clone(), visible, then, span: location }));
    }

    /// Adds a field, after its name and its `&if` were handled.
    fn typed(&mut self, written: Written, ty: &ast::Type, site: &Site, byteorder: Option<bool>) {
        let ty_span = span_of(site.file, ty.range());
        let context = Context { items: self.items, file: site.file, byteorder, attrs: &written.attrs };
        match field_types::of(&context, ty, self.sink) {
            Found::Broken => self.broken(written, site),
            Found::Unit(inner, values) => self.nested(inner, values, written, ty_span, site),
            Found::List(inner, values, max) => self.list(inner, values, max, written, ty_span, site),
            Found::Kind(kind, bound) => {
                if let FieldKind::Int { repr, .. } = &kind
                    && repr.width_bytes > 1
                    && byteorder.is_none()
                    && !self.has_byteorder()
                {
                    let shown = written
                        .full
                        .as_deref()
                        .map_or("this field", |full| full.strip_prefix(site.prefix.as_str()).unwrap_or(full));
                    self.sink.push(report::grammar::byteorder(written.location.clone(), Some(shown)));
                }
                self.is_structured |=
                    !matches!(kind, FieldKind::Int { .. } | FieldKind::Vint { .. } | FieldKind::Bytes { .. })
                        || attr(&written.attrs, "fault").is_some();
                self.has_wire = true;
                self.push(written, kind, site, bound, false);
            }
        }
    }

    /// Whether the current unit has a byte order property, valid or not, or was reported for a missing one.
    fn has_byteorder(&self) -> bool {
        let Some(unit) = self.nesting.last() else { return true };
        let node = &self.decls.units[unit.0 as usize].node;
        let is_byteorder =
            |property: ast::UnitProperty| property.name().is_some_and(|name| name.text() == "byteorder");
        node.properties().any(is_byteorder) || self.byteorder_reported()
    }

    /// Whether a missing byte order was reported for this unit.
    fn byteorder_reported(&self) -> bool {
        let Some(unit) = self.nesting.last() else { return false };
        let decl = &self.decls.units[unit.0 as usize];
        let range = decl.node.range();
        self.sink.has("E0611", &Span { file: decl.file, range: range.start as u32..range.end as u32 })
    }

    /// Whether a unit may be flattened here; reports why not.
    fn may_enter(&mut self, inner: UnitId, span: &Span) -> bool {
        self.expansions += 1;
        if self.expansions > UNIT_EXPANSIONS_MAX {
            return false; // the number of fields is refused as a whole
        }
        if let Some(start) = self.nesting.iter().position(|unit| *unit == inner) {
            // Every unit of the cycle finds it; the one declared first reports it.
            if self.nesting[start..].iter().all(|unit| inner.0 <= unit.0) {
                let name = &self.items.unit(inner).name;
                self.sink.push(report::grammar::recursive_unit(span.clone(), name));
            }
            return false;
        }
        if self.nesting.len() >= UNIT_NESTING_MAX {
            self.sink.push(report::grammar::nested_too_deep(span.clone(), UNIT_NESTING_MAX));
            return false;
        }
        true
    }

    fn nested(&mut self, inner: UnitId, values: Vec<ast::Expr>, written: Written, span: Span, site: &Site) {
        if !self.may_enter(inner, &span) {
            return;
        }
        for attr in &written.attrs {
            let name = attr.name().map_or(String::new(), |name| name.text().to_owned());
            if name == "if" {
                continue;
            }
            let span = span_of(site.file, attr.range());
            let why = "not allowed on a nested unit";
            self.sink.push(report::grammar::attribute_misplaced(span, &name, why));
        }
        let args = self.args(inner, values, Some(span), site.clone());
        let prefix = self.inner_prefix(written.full, site);
        let file = self.decls.units[inner.0 as usize].file;
        let inside = Site { file, prefix, args, inside: site.inside.clone() };
        self.nesting.push(inner);
        self.unit(inner, &inside);
        self.nesting.pop();
    }

    /// The prefix of the fields of a nested unit; one without a name gets a name that cannot be written.
    fn inner_prefix(&self, full: Option<String>, site: &Site) -> String {
        full.map_or_else(|| format!("{}#{}.", site.prefix, self.fields.len()), |full| format!("{full}."))
    }

    /// The arguments of a unit with parameters, which the second pass checks.
    fn args(
        &mut self,
        unit: UnitId,
        given: Vec<ast::Expr>,
        span: Option<Span>,
        site: Site,
    ) -> Option<Rc<Args>> {
        let decl = &self.decls.units[unit.0 as usize];
        let params: Vec<(String, Ty)> = decl
            .node
            .params()
            .filter_map(|param| {
                let name = param.name()?.text().to_owned();
                let ty = param.ty().map_or(Ty::Unknown, |ty| self.param_type(&ty, decl.file));
                Some((name, ty))
            })
            .collect();
        if let Some(span) = span.filter(|_| given.len() != params.len()) {
            let declared = self.items.unit(unit);
            let named: Vec<(String, String)> =
                params.iter().map(|(name, ty)| (name.clone(), self.items.describe(ty))).collect();
            let location = declared.span.clone();
            let report =
                report::structured::argument_count(span, &declared.name, &named, given.len(), location);
            self.sink.push(report);
        } else if params.is_empty() {
            return None;
        }
        let visible = self.fields.len();
        let args = Rc::new(Args { params, given, site, visible, values: OnceCell::new() });
        self.nodes.push(Node::Enter(args.clone()));
        Some(args)
    }

    fn param_type(&mut self, ty: &ast::Type, file: u32) -> Ty {
        match types::value_type(self.items, ty, file, self.sink) {
            ty @ (Ty::Int { .. } | Ty::Bool | Ty::Enum(_) | Ty::Unknown) => ty,
            other => {
                let found = self.items.describe(&other);
                self.sink.push(report::structured::param_type(span_of(file, ty.range()), &found));
                Ty::Unknown
            }
        }
    }

    /// Reports a duplicate field name.
    fn is_new(&mut self, full: Option<&str>, site: &Site, location: &Span) -> bool {
        let Some(full) = full else { return true };
        let shown = full.strip_prefix(site.prefix.as_str()).unwrap_or(full);
        let is_param = site.args.iter().any(|args| args.params.iter().any(|(name, _)| name == shown));
        if is_param {
            self.sink.push(report::structured::field_named_as_param(location.clone(), shown));
            self.has_wire = true;
            return false;
        }
        let group = format!("{full}.");
        let known = self
            .fields
            .iter()
            .find(|field| field.name.as_deref().is_some_and(|name| name == full || name.starts_with(&group)));
        if let Some(known) = known {
            let first = known.span.clone();
            self.sink.push(report::names::duplicate(location.clone(), "field", shown, first));
            return false;
        }
        true
    }

    fn broken(&mut self, written: Written, site: &Site) {
        let repr = IntRepr { width_bytes: 1, signed: false };
        let kind = FieldKind::Int { repr, big_endian: true, enumeration: None, derived: None };
        self.has_wire = true;
        self.push(Written { attrs: Vec::new(), ..written }, kind, site, None, true);
    }

    fn push(&mut self, written: Written, kind: FieldKind, site: &Site, bound: Option<u32>, is_broken: bool) {
        let Written { full: name, location, attrs } = written;
        self.nodes.push(Node::Field(self.fields.len()));
        let cause = FaultCause::Malformed;
        self.fields.push(Field {
            name,
            kind,
            requires: Vec::new(),
            cause,
            too_long: FaultCause::TooLong,
            default: None,
            span: location.clone(),
        });
        let site = site.clone();
        self.drafts.push(Draft {
            site,
            attrs,
            span: location,
            bound,
            is_broken,
            body: Vec::new(),
            body_end: 0,
        });
    }

    /// The field that the next `push` adds.
    fn next(&self) -> FieldId {
        FieldId(self.fields.len() as u32)
    }
}

/// Returns `%byteorder`: `Some(true)` for big; an invalid one is reported.
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
