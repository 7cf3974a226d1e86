//! Items of a unit other than plain fields: literals, bit fields, checks, choices, lists, variables.

use flick_syntax::LiteralValue;
use flick_syntax::ast;

use super::{Flat, Written};
use crate::expr::Site;
use crate::grammar::draft::{CheckNode, Node, SwitchNode, attr, later};
use crate::grammar::field_types::cause;
use crate::hir::{FieldId, FieldKind, IntRepr, List, ListEnd, Literal, Span, UnitId};
use crate::limits::LITERAL_BYTES_MAX;
use crate::load::span_of;
use crate::types;
use crate::{primitives, report};

impl Flat<'_> {
    pub(super) fn literal(&mut self, literal: &ast::UnitLiteral, site: &Site) {
        self.is_structured = true;
        self.has_wire = true;
        let span = span_of(site.file, literal.range());
        let attrs: Vec<ast::Attr> = literal.attrs().collect();
        self.only(&attrs, &["nocase", "optional", "supply", "cut", "fault"], "a literal", site.file);
        let Some(bytes) = literal.bytes() else { return };
        if bytes.is_empty() || bytes.len() > LITERAL_BYTES_MAX {
            self.sink.push(report::structured::literal_length(span, bytes.len(), LITERAL_BYTES_MAX));
            return;
        }
        let nocase = attr(&attrs, "nocase").is_some();
        let optional = attr(&attrs, "optional").is_some();
        let supplied = optional && attr(&attrs, "supply").is_some();
        let cut = attr(&attrs, "cut").is_some();
        let cause = cause(&attrs, site.file, self.sink);
        self.nodes.push(Node::Literal(Literal { bytes, nocase, optional, supplied, cut, cause, span }));
    }

    /// Reports attributes that are not allowed here.
    fn only(&mut self, attrs: &[ast::Attr], known: &[&str], what: &str, file: u32) {
        for attr in attrs {
            let Some(name) = attr.name() else { continue };
            if !known.contains(&name.text()) {
                let span = span_of(file, attr.range());
                self.sink.push(report::grammar::attribute_of(span, name.text(), what, known));
            }
        }
    }

    pub(super) fn check(&mut self, check: &ast::UnitCheck, site: &Site) {
        self.is_structured = true;
        let attrs: Vec<ast::Attr> = check.attrs().collect();
        self.only(&attrs, &["fault"], "a check", site.file);
        let cause = cause(&attrs, site.file, self.sink);
        let Some(condition) = check.condition() else { return };
        let span = span_of(site.file, check.range());
        let visible = self.fields.len();
        self.nodes.push(Node::Check(CheckNode { condition, site: site.clone(), visible, cause, span }));
    }

    pub(super) fn switch(&mut self, switch: &ast::UnitSwitch, site: &Site, byteorder: Option<bool>) {
        self.is_structured = true;
        let visible = self.fields.len();
        let range = switch.range();
        let end = switch.subject().map_or(range.end, |subject| subject.range().end);
        let span = span_of(site.file, range.start..end);
        let mut arms = Vec::new();
        for arm in switch.arms() {
            let row = self.row(|flat| arm.items().for_each(|item| flat.item(item, site, byteorder, false)));
            arms.push((arm.patterns().collect(), row));
        }
        let otherwise = switch.otherwise().map(|arm| {
            let row = self.row(|flat| arm.items().for_each(|item| flat.item(item, site, byteorder, false)));
            (row, span_of(site.file, arm.range()))
        });
        let (subject, site) = (switch.subject(), site.clone());
        self.nodes.push(Node::Switch(SwitchNode { subject, site, visible, arms, otherwise, span }));
    }

    /// `bits<16> { version : 4; rest : 12; };`: one unnamed integer, and its bit fields.
    pub(super) fn bits(&mut self, bits: &ast::UnitBits, site: &Site, byteorder: Option<bool>) {
        self.is_structured = true;
        self.has_wire = true;
        let span = span_of(site.file, bits.range());
        let number = |expr: Option<ast::Expr>| match expr?.unparenthesised()? {
            ast::Expr::Literal(literal) => match literal.value()? {
                LiteralValue::Int(value) => Some(value),
                _ => None,
            },
            _ => None,
        };
        let width = number(bits.width());
        let width_bytes = match width {
            Some(bits @ (8 | 16 | 32 | 64)) => (bits / 8) as u8,
            _ => {
                let location = bits.width().map_or(span.clone(), |width| span_of(site.file, width.range()));
                self.sink.push(report::structured::bits_width(location));
                return;
            }
        };
        if width_bytes > 1 && byteorder.is_none() && !self.has_byteorder() {
            let first = bits.fields().find_map(|field| field.name());
            let first = first.as_ref().map_or("these bits", |name| name.text());
            self.sink.push(report::grammar::byteorder(span.clone(), Some(first)));
        }
        let of = self.next();
        let repr = IntRepr { width_bytes, signed: false };
        let kind =
            FieldKind::Int { repr, big_endian: byteorder.unwrap_or(true), enumeration: None, derived: None };
        let written = Written { full: None, location: span.clone(), attrs: Vec::new() };
        self.push(written, kind, site, None, false);
        let total = u64::from(width_bytes) * 8;
        let mut used = 0u64;
        for field in bits.fields() {
            let location = span_of(site.file, field.name().map_or(field.range(), |name| name.range()));
            let bits = match number(field.width()) {
                Some(bits) if (1..=64).contains(&bits) => bits,
                _ => {
                    let location = field.width().map_or(location, |width| span_of(site.file, width.range()));
                    self.sink.push(report::structured::bit_field_width(location));
                    return;
                }
            };
            used += bits;
            let full = field.name().map(|name| format!("{}{}", site.prefix, name.text()));
            if used > total || !self.is_new(full.as_deref(), site, &location) || full.is_none() {
                continue;
            }
            let kind = FieldKind::Bits { of, shift: (total - used) as u8, width: bits as u8 };
            let attrs: Vec<ast::Attr> = field.attrs().collect();
            self.push(Written { full, location, attrs }, kind, site, None, false);
        }
        if used != total && width.is_some() {
            self.sink.push(report::structured::bits_sum(span, used, total));
        }
    }

    /// `name : [unit]<N>`: the field of the list, then the fields of an element.
    pub(super) fn list(
        &mut self,
        inner: UnitId,
        values: Vec<ast::Expr>,
        max: Option<u32>,
        written: Written,
        span: Span,
        site: &Site,
    ) {
        self.is_structured = true;
        self.has_wire = true;
        if !self.may_enter(inner, &span) {
            return;
        }
        let id = self.next();
        let prefix = self.inner_prefix(written.full.clone(), site);
        let end = ListEnd::Count(later(span.clone()));
        let list = List {
            body: Vec::new(),
            fields_end: 0,
            end,
            max,
            element: None,
            keyed: None,
            elem_bytes_max: 0,
            elem_text: false,
            streamed: false,
            bare: None,
        };
        self.push(written, FieldKind::List(Box::new(list)), site, max, false);
        let mut inside = site.inside.clone();
        inside.push(id);
        let file = self.decls.units[inner.0 as usize].file;
        let body = self.row(|flat| {
            let args = flat.args(inner, values, Some(span), site.clone());
            let site = Site { file, prefix, args, inside };
            flat.nesting.push(inner);
            flat.unit(inner, &site);
            flat.nesting.pop();
        });
        let body_end = self.fields.len();
        if let FieldKind::List(list) = &mut self.fields[id.0 as usize].kind {
            list.fields_end = body_end as u32;
        }
        let draft = &mut self.drafts[id.0 as usize];
        (draft.body, draft.body_end) = (body, body_end);
    }

    pub(super) fn var(&mut self, var: &ast::UnitVar, site: &Site) {
        let Some(name) = var.name() else { return };
        let location = span_of(site.file, name.range());
        let full = Some(format!("{}{}", site.prefix, name.text()));
        if !self.is_new(full.as_deref(), site, &location) {
            return;
        }
        let attrs: Vec<ast::Attr> = var.attrs().collect();
        let (kind, bound, is_broken) = self.var_kind(var, &attrs, &location, site.file);
        let is_plain = matches!(kind, FieldKind::Var { .. })
            && attr(&attrs, "fault").is_none()
            && attr(&attrs, "sum").is_none();
        self.is_structured |= !is_plain;
        self.push(Written { full, location, attrs }, kind, site, bound, is_broken);
    }

    fn var_kind(
        &mut self,
        var: &ast::UnitVar,
        attrs: &[ast::Attr],
        location: &Span,
        file: u32,
    ) -> (FieldKind, Option<u32>, bool) {
        let parse = later(location.clone());
        let named = match var.ty() {
            Some(ast::Type::Named(named)) => Some(named),
            _ => None,
        };
        let text = named.as_ref().and_then(|named| named.name());
        let text = text.as_ref().map_or("", |name| name.text());
        let repr = primitives::sized_int(text);
        for (name, given) in [("kept", FieldKind::Kept), ("carried", FieldKind::Carried)] {
            if attr(attrs, name).is_some() {
                if text != "uint64" {
                    let span = var.ty().map_or(location.clone(), |ty| span_of(file, ty.range()));
                    self.sink.push(report::structured::given_type(span, name));
                }
                return (given, None, false);
            }
        }
        match (text, repr) {
            (_, Some(repr)) => (FieldKind::Var { repr, parse, sum: None }, None, false),
            // The list is found when the attribute is looked at.
            ("bool", None) if attr(attrs, "full").is_some() => {
                (FieldKind::Full { list: FieldId(u32::MAX) }, None, false)
            }
            ("bool", None) => (FieldKind::Flag { parse, any: None }, None, false),
            ("string" | "bytes", None) => {
                let bound = named.as_ref().and_then(|named| types::bound(named, file, self.sink));
                let max_bytes = bound.unwrap_or(crate::limits::DEFAULT_BYTES_MAX);
                (FieldKind::TextVar { text: text == "string", max_bytes, parse }, bound, false)
            }
            _ => {
                if let Some(ty) = var.ty() {
                    let help = "declare a variable as a sized integer, a `bool`, or a string that programs read: `var value_len : uint32`";
                    self.sink.push(report::grammar::field_type(span_of(file, ty.range()), "this type", help));
                }
                let repr = IntRepr { width_bytes: 8, signed: true };
                (FieldKind::Var { repr, parse, sum: None }, None, true)
            }
        }
    }
}
