//! Attributes of fields: how long each is, how variables are computed, what is required.
//! Promises: an expression uses only what stands before it; `max_bytes` is the least of the written bound, the default
//! and what the length can be. A last field without a bound of its own keeps `None` until its readers are known.

use flick_syntax::ast;

use super::flatten::Draft;
use super::{GrammarScope, Purpose, with_exprs};
use crate::diagnostic::Sink;
use crate::expr::range_of;
use crate::hir::{Expr, ExprKind, FieldKind, Ty, UnitId};
use crate::items::Items;
use crate::limits::{DEFAULT_BYTES_MAX, UNIT_FIELDS_MAX, WRITTEN_BYTES_MAX};
use crate::load::span_of;
use crate::report;
use crate::types;

const FIELD_ATTRS: &[&str] = &["length", "requires", "streamed"];
const VAR_ATTRS: &[&str] = &["parse", "serialize", "requires"];
/// Attributes that the language has and this version has not.
const LATER: &[&str] = &["if", "until", "count", "default", "convert", "chunked", "eod", "bits", "optional"];

pub(super) fn check(unit: UnitId, drafts: &[Draft], items: &mut Items, sink: &mut Sink) {
    let last = last_on_wire(items, unit);
    for (index, draft) in drafts.iter().enumerate() {
        if draft.is_broken {
            continue;
        }
        let mut field = items.unit(unit).fields[index].clone();
        let name = own_name(draft, field.name.as_deref());
        known_attrs(draft, &field.kind, sink);
        let mut site = Site { unit, index, draft, name: &name };
        match &mut field.kind {
            FieldKind::Int { .. } | FieldKind::Vint { .. } => {}
            FieldKind::Bytes { length, max_bytes, streamed, .. } => {
                *length = site.length(items, sink);
                *streamed = attr(draft, "streamed").is_some();
                if *streamed && Some(index) != last {
                    sink.push(report::grammar::streamed_not_last(draft.place.clone(), &name));
                }
                let may_stream = Some(index) == last && draft.bound.is_none();
                *max_bytes = if may_stream { None } else { Some(longest(length, draft.bound)) };
            }
            FieldKind::Var { parse, .. } => *parse = site.parse(items, sink),
            _ => {}
        }
        // `$$` needs the field's type, which is complete only now.
        items.units[unit.0 as usize].fields[index] = field;
        let requires = site.requires(items, sink);
        items.units[unit.0 as usize].fields[index].requires = requires;
    }
    let declared = items.unit(unit);
    let slots: usize = declared.fields.iter().map(slots_of).sum();
    if slots > UNIT_FIELDS_MAX {
        let place = declared.span.clone();
        sink.push(report::grammar::too_many_fields(place, &declared.name, slots, UNIT_FIELDS_MAX));
    }
}

/// Slots that a field may take in the frame of a message.
fn slots_of(field: &crate::hir::Field) -> usize {
    match &field.kind {
        // A length that is another field's value has that field's slot.
        FieldKind::Bytes { length, .. } if matches!(length.kind, ExprKind::SelfField(_)) => 1,
        FieldKind::Bytes { .. } => 2,
        // Its value, its first byte, its length.
        FieldKind::Vint { .. } => 3,
        _ => 1,
    }
}

/// The most bytes a field may have whose length is `length`.
pub(crate) fn longest(length: &Expr, bound: Option<u32>) -> u32 {
    let bound = bound.unwrap_or(match length.kind {
        // A literal length is a bound that the author wrote.
        ExprKind::Int(_) => WRITTEN_BYTES_MAX,
        _ => DEFAULT_BYTES_MAX,
    });
    let possible = range_of(&length.ty).map_or(i128::from(bound), |range| range.hi.max(0));
    possible.min(i128::from(bound)) as u32
}

/// The last field that has bytes on the wire.
fn last_on_wire(items: &Items, unit: UnitId) -> Option<usize> {
    items.unit(unit).fields.iter().rposition(|field| field.kind.is_on_wire())
}

fn own_name(draft: &Draft, full: Option<&str>) -> String {
    full.map_or("this field", |full| full.strip_prefix(draft.prefix.as_str()).unwrap_or(full)).to_owned()
}

fn attr(draft: &Draft, name: &str) -> Option<ast::Attr> {
    draft.attrs.iter().find(|attr| attr.name().is_some_and(|known| known.text() == name)).cloned()
}

fn known_attrs(draft: &Draft, kind: &FieldKind, sink: &mut Sink) {
    let known = if matches!(kind, FieldKind::Var { .. }) { VAR_ATTRS } else { FIELD_ATTRS };
    let mut seen: Vec<(String, crate::hir::Span)> = Vec::new();
    for attr in &draft.attrs {
        let Some(name) = attr.name() else { continue };
        let span = span_of(draft.file, attr.range());
        let text = name.text();
        if LATER.contains(&text) {
            sink.push(report::not_yet::grammar(
                span,
                &format!("`&{text}`"),
                "describe the rest of the message as one `bytes` field",
            ));
        } else if !known.contains(&text) {
            let other = if known == VAR_ATTRS { FIELD_ATTRS } else { VAR_ATTRS };
            if other.contains(&text) {
                let why = if known == VAR_ATTRS {
                    "does not stand on a variable, which has no bytes"
                } else {
                    "stands only on a `var`"
                };
                sink.push(report::grammar::attribute_misplaced(span, text, why));
            } else {
                sink.push(report::grammar::unknown_attribute(span, text, known));
            }
        } else if matches!(kind, FieldKind::Int { .. } | FieldKind::Vint { .. }) && text != "requires" {
            sink.push(report::grammar::attribute_misplaced(
                span,
                text,
                "does not stand on a number, whose type says how long it is",
            ));
        } else if let Some((_, first)) = seen.iter().find(|(seen, _)| seen == text && text != "requires") {
            sink.push(report::names::duplicate(span, "attribute", text, first.clone()));
        } else {
            if attr.value().is_none() && text != "streamed" {
                let example = match text {
                    "length" => "&length = self.key_len",
                    "requires" => "&requires = $$ > 0",
                    "serialize" => "&serialize = self.total_len = self.key_len + $$",
                    _ => "&parse = self.total_len - self.key_len",
                };
                sink.push(report::grammar::attribute_needs_value(span.clone(), text, example));
            }
            seen.push((text.to_owned(), span));
        }
    }
}

/// One field while its attributes are checked.
struct Site<'a> {
    unit: UnitId,
    index: usize,
    draft: &'a Draft,
    name: &'a str,
}

impl Site<'_> {
    fn scope(&self, what: String, visible: usize) -> GrammarScope {
        let purpose = Purpose::Reading { what, visible };
        GrammarScope { unit: self.unit, prefix: self.draft.prefix.clone(), purpose, dollar: None }
    }

    fn nothing(&self) -> Expr {
        crate::expr::unknown(self.draft.place.clone())
    }

    fn length(&mut self, items: &Items, sink: &mut Sink) -> Expr {
        let Some(attr) = attr(self.draft, "length") else {
            // An attribute that was refused may have been meant to say it.
            let is_known =
                |attr: &ast::Attr| attr.name().is_some_and(|name| FIELD_ATTRS.contains(&name.text()));
            if self.draft.attrs.iter().all(is_known) {
                sink.push(report::grammar::missing_length(self.draft.place.clone(), self.name));
            }
            return self.nothing();
        };
        let Some(value) = attr.value() else { return self.nothing() };
        let scope = self.scope(format!("the length of `{}`", self.name), self.index);
        let length = with_exprs(items, sink, self.draft.file, scope, |exprs| exprs.expr(&value));
        match &length.ty {
            Ty::Unknown => {}
            Ty::Int { hi, .. } if *hi < 0 => {
                let range = range_of(&length.ty).map_or(String::new(), |range| range.describe());
                sink.push(report::grammar::impossible_length(length.span.clone(), self.name, &range));
            }
            Ty::Int { .. } => self.signed(&length, items, sink),
            other => {
                let found = items.describe(other);
                sink.push(report::types::mismatch(length.span.clone(), "a number", &found, None));
            }
        }
        length
    }

    /// A signed field as a length is a mistake in the grammar: a negative one could only be refused.
    fn signed(&self, length: &Expr, items: &Items, sink: &mut Sink) {
        let ExprKind::SelfField(source) = length.kind else { return };
        let field = items.field(self.unit, source);
        if let FieldKind::Int { repr, .. } | FieldKind::Var { repr, .. } = field.kind
            && repr.signed
        {
            let name = field.name.as_deref().unwrap_or_default();
            sink.push(report::grammar::signed_length(
                length.span.clone(),
                name,
                &types::int_name(repr),
                field.span.clone(),
            ));
        }
    }

    fn parse(&mut self, items: &Items, sink: &mut Sink) -> Expr {
        let Some(attr) = attr(self.draft, "parse") else {
            sink.push(report::grammar::missing_parse(self.draft.place.clone(), self.name));
            return self.nothing();
        };
        let Some(value) = attr.value() else { return self.nothing() };
        if self.circle(&value, items, sink) {
            return self.nothing();
        }
        let scope = self.scope(format!("`{}`", self.name), self.index);
        let parse = with_exprs(items, sink, self.draft.file, scope, |exprs| exprs.expr(&value));
        if !matches!(parse.ty, Ty::Int { .. } | Ty::Unknown) {
            let found = items.describe(&parse.ty);
            sink.push(report::types::mismatch(parse.span.clone(), "a number", &found, None));
        }
        parse
    }

    /// Reports a variable that is computed from itself, or from a later variable that is computed from it.
    fn circle(&self, value: &ast::Expr, items: &Items, sink: &mut Sink) -> bool {
        let fields = &items.unit(self.unit).fields;
        let full = |text: &str| format!("{}{text}", self.draft.prefix);
        for (path, range) in self_paths(value) {
            let Some(other) =
                fields.iter().position(|field| field.name.as_deref() == Some(full(&path).as_str()))
            else {
                continue;
            };
            let is_var = matches!(fields[other].kind, FieldKind::Var { .. });
            if other < self.index || !is_var {
                continue;
            }
            let own = fields[self.index].name.clone().unwrap_or_default();
            let needs_own = other == self.index
                || self
                    .later_parse(other, items)
                    .is_some_and(|parse| self_paths(&parse).iter().any(|(path, _)| full(path) == own));
            if needs_own {
                let span = span_of(self.draft.file, range);
                sink.push(report::grammar::circular(span, self.name, &path, fields[other].span.clone()));
                return true;
            }
        }
        false
    }

    /// The `&parse` of a later variable, found through its place in the tree.
    fn later_parse(&self, other: usize, items: &Items) -> Option<ast::Expr> {
        use flick_syntax::ast::AstNode;
        let place = &items.unit(self.unit).fields[other].span;
        let root = self.draft.attrs.first()?.syntax().ancestors().last()?;
        let var = root.descendants().filter_map(ast::UnitVar::cast).find(|var| {
            var.name().is_some_and(|name| name.range().start as u32 == place.range.start)
                && place.file == self.draft.file
        })?;
        var.attrs().find(|attr| attr.name().is_some_and(|name| name.text() == "parse"))?.value()
    }

    fn requires(&mut self, items: &Items, sink: &mut Sink) -> Vec<Expr> {
        let kind = &items.unit(self.unit).fields[self.index].kind;
        let dollar = crate::expr::grammar_type(kind);
        let mut out = Vec::new();
        for attr in &self.draft.attrs {
            if attr.name().is_none_or(|name| name.text() != "requires") {
                continue;
            }
            let Some(value) = attr.value() else { continue };
            let mut scope = self.scope(format!("the check of `{}`", self.name), self.index + 1);
            scope.dollar = Some((ExprKind::Dollar, dollar.clone()));
            let check = with_exprs(items, sink, self.draft.file, scope, |exprs| {
                let check = exprs.expr(&value);
                exprs.coerce(check, &Ty::Bool, "`&requires`", None)
            });
            out.push(check);
        }
        out
    }
}

/// Every `self.a.b` below `expr`, with its place.
fn self_paths(expr: &ast::Expr) -> Vec<(String, std::ops::Range<usize>)> {
    use flick_syntax::ast::AstNode;
    let mut out = Vec::new();
    for field in expr.syntax().descendants().filter_map(ast::FieldExpr::cast) {
        if let (Some(ast::Expr::SelfValue(_)), Some(names)) = crate::expr::unfold_path(&field) {
            let path: Vec<&str> = names.iter().map(|name| name.text()).collect();
            out.push((path.join("."), field.range()));
        }
    }
    out
}
