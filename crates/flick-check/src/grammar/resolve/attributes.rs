//! Attributes of fields: lengths, variables, conditions.
//! Promises: an expression uses only fields that come before it; `max_bytes` is the minimum of the declared bound,
//! the default, and the maximum of the length. A field that may be streamed keeps `None` until usage analysis.

use flick_abi::FaultCause;
use flick_syntax::ast;

use super::{RowPosition, Rows, list};
use crate::expr::GrammarScope;
use crate::grammar::allowed_attributes as attrs;
use crate::grammar::draft::{Draft, attr};
use crate::grammar::field_types::{self, cause};
use crate::hir::{BinaryOp, Expr, ExprKind, FieldId, FieldKind, Ty};
use crate::limits::UNIT_FIELDS_MAX;
use crate::load::span_of;
use crate::range::range_of;
use crate::{primitives, report, units};

/// Checks the attributes of one field.
pub(super) fn field<'a>(rows: &mut Rows<'a>, index: usize, position: RowPosition) {
    let draft = rows.draft(index);
    let mut field = rows.items.unit(rows.unit).fields[index].clone();
    let name = draft.own_name(field.name.as_deref());
    attrs::known(draft, &field.kind, rows.sink);
    field.default = default(draft, &field, rows.sink);
    let declared = cause(&draft.attrs, draft.site.file, rows.sink);
    field.too_long = if declared == FaultCause::Malformed { FaultCause::TooLong } else { declared };
    // The fault cause of a string is for its length, not for its bytes.
    let is_text = matches!(field.kind, FieldKind::Text { .. });
    field.cause = if is_text { FaultCause::Malformed } else { declared };
    let mut site = FieldSite { rows, index, draft, name: &name };
    match &mut field.kind {
        FieldKind::Int { .. }
        | FieldKind::Vint { .. }
        | FieldKind::Text { .. }
        | FieldKind::Number { .. }
        | FieldKind::Varint { .. }
        | FieldKind::Bits { .. }
        | FieldKind::Kept
        | FieldKind::Carried => {}
        FieldKind::ToClose { .. } => {
            if !position.is_last {
                site.rows.sink.push(report::structured::after_to_close(draft.span.clone(), &name));
            }
        }
        FieldKind::Bytes { length, max_bytes, streamed, .. } => {
            *length = site.length();
            *streamed = attr(&draft.attrs, "streamed").is_some();
            let may_stream = (position.is_last || position.is_open) && draft.bound.is_none();
            if *streamed && !position.is_last && !position.is_open {
                site.rows.sink.push(report::grammar::streamed_not_last(draft.span.clone(), &name));
            }
            *max_bytes = if may_stream { None } else { Some(units::longest(length, draft.bound)) };
        }
        FieldKind::Var { parse, sum, .. } if attr(&draft.attrs, "sum").is_some() => {
            (*parse, *sum) = site.sum();
        }
        FieldKind::Var { parse, .. } => *parse = site.parse("parse", &VarType::Number),
        FieldKind::TextVar { text, max_bytes, parse } => {
            let wanted = VarType::Bytes { text: *text, max: *max_bytes };
            *parse = site.parse("parse", &wanted);
        }
        FieldKind::Flag { parse, any } => {
            let is_any = attr(&draft.attrs, "any").is_some();
            *parse = site.parse(if is_any { "any" } else { "parse" }, &VarType::Bool);
            *any = if is_any { site.only_key(parse) } else { None };
        }
        FieldKind::Full { list } => *list = site.full(),
        FieldKind::List(_) => {}
    }
    // `$$` has the type of the field, which is complete only now.
    let is_list = matches!(field.kind, FieldKind::List(_));
    rows.items.units[rows.unit.0 as usize].fields[index] = field;
    if is_list {
        list::check(rows, index, position);
        return;
    }
    let mut site = FieldSite { rows, index, draft, name: &name };
    let requires = site.requires();
    rows.items.units[rows.unit.0 as usize].fields[index].requires = requires;
}

/// `&default = 1`.
fn default(draft: &Draft, field: &crate::hir::Field, sink: &mut crate::diagnostic::Sink) -> Option<i128> {
    let attr = draft.attr("default")?;
    let value = attr.value()?;
    let range = range_of(&crate::units::grammar_type(&field.kind));
    let literal = field_types::literal_number(&value).map(i128::from);
    match literal.filter(|value| range.is_none_or(|range| range.contains(*value))) {
        Some(value) => Some(value),
        None => {
            sink.push(report::structured::default_value(span_of(draft.site.file, value.range())));
            None
        }
    }
}

/// Checks the slots of a plain unit, which has one for every field; those of structured units are counted when they
/// are lowered.
pub(in crate::grammar) fn check_slots(
    rows_unit: crate::hir::UnitId,
    items: &crate::items::Items,
    sink: &mut crate::diagnostic::Sink,
) {
    let declared = items.unit(rows_unit);
    if declared.body.is_some() {
        return;
    }
    let slots: usize = declared.fields.iter().map(slots_of).sum();
    if slots > UNIT_FIELDS_MAX {
        let location = declared.span.clone();
        sink.push(report::grammar::too_many_plain_fields(location, &declared.name, slots, UNIT_FIELDS_MAX));
    }
}

/// Slots of a field in the frame of a message.
fn slots_of(field: &crate::hir::Field) -> usize {
    match &field.kind {
        // A length that is the value of another field uses the slot of that field.
        FieldKind::Bytes { length, .. } if matches!(length.kind, ExprKind::SelfField(_)) => 1,
        FieldKind::Bytes { .. } | FieldKind::Text { .. } => 2,
        // Its value, its first byte, its length.
        FieldKind::Vint { .. } => 3,
        FieldKind::List(_) => 4,
        _ => 1,
    }
}

/// The type of a variable.
enum VarType {
    Number,
    Bool,
    Bytes { text: bool, max: u32 },
}

/// One field while its attributes are checked.
struct FieldSite<'r, 'a> {
    rows: &'r mut Rows<'a>,
    index: usize,
    draft: &'a Draft,
    name: &'r str,
}

impl FieldSite<'_, '_> {
    fn scope(&self, what: String, visible: usize) -> GrammarScope {
        self.rows.scope(&self.draft.site, what, visible)
    }

    fn nothing(&self) -> Expr {
        crate::expr::unknown(self.draft.span.clone())
    }

    fn length(&mut self) -> Expr {
        let Some(attr) = self.draft.attr("length") else {
            // A rejected attribute may have been meant as the length.
            if self.draft.attrs.iter().all(attrs::is_of_field) {
                self.rows.sink.push(report::grammar::missing_length(self.draft.span.clone(), self.name));
            }
            return self.nothing();
        };
        let Some(value) = attr.value() else { return self.nothing() };
        let scope = self.scope(format!("the length of `{}`", self.name), self.index);
        let length = self.rows.exprs(scope, |exprs| exprs.expr(&value));
        match &length.ty {
            Ty::Unknown => {}
            Ty::Int { hi, .. } if *hi < 0 => {
                let range = range_of(&length.ty).map_or(String::new(), |range| range.describe());
                let report = report::grammar::impossible_length(length.span.clone(), self.name, &range);
                self.rows.sink.push(report);
            }
            Ty::Int { .. } => self.signed(&length),
            other => {
                let found = self.rows.items.describe(other);
                self.rows.sink.push(report::types::mismatch(length.span.clone(), "an integer", &found, None));
            }
        }
        length
    }

    /// Reports a signed field as a length.
    fn signed(&mut self, length: &Expr) {
        let ExprKind::SelfField(source) = length.kind else { return };
        let field = self.rows.items.field(self.rows.unit, source);
        if let FieldKind::Int { repr, .. } | FieldKind::Var { repr, .. } = field.kind
            && repr.signed
            && !field.requires.iter().any(excludes_negative)
        {
            let name = field.name.as_deref().unwrap_or_default();
            let (ty, location) = (primitives::int_name(repr), field.span.clone());
            self.rows.sink.push(report::grammar::signed_length(length.span.clone(), name, &ty, location));
        }
    }

    fn parse(&mut self, attribute: &str, wanted: &VarType) -> Expr {
        let Some(attr) = self.draft.attr(attribute) else {
            self.rows.sink.push(report::grammar::missing_parse(self.draft.span.clone(), self.name));
            return self.nothing();
        };
        let Some(value) = attr.value() else { return self.nothing() };
        if self.cycle(&value) {
            return self.nothing();
        }
        let mut scope = self.scope(format!("`{}`", self.name), self.index);
        scope.is_lazy = matches!(wanted, VarType::Bytes { .. });
        let target = format!("`{}`", self.name);
        self.rows.exprs(scope, |exprs| {
            let parse = exprs.expr(&value);
            match wanted {
                VarType::Bool => exprs.coerce(parse, &Ty::Bool, &target, None),
                VarType::Bytes { text, max } => {
                    exprs.coerce(parse, &Ty::Bytes { max: *max, text: *text }, &target, None)
                }
                VarType::Number => {
                    if !matches!(parse.ty, Ty::Int { .. } | Ty::Unknown) {
                        let found = exprs.items.describe(&parse.ty);
                        let report = match &parse.ty {
                            Ty::Option(inner) => {
                                let inner = exprs.items.describe(inner);
                                report::values::may_be_none(parse.span.clone(), &inner)
                            }
                            _ => report::types::mismatch(parse.span.clone(), "an integer", &found, None),
                        };
                        exprs.sink.push(report);
                    }
                    parse
                }
            }
        })
    }

    /// `&sum = e`, with fields of the elements of one list that comes before.
    fn sum(&mut self) -> (Expr, Option<FieldId>) {
        let Some(value) = self.draft.attr("sum").and_then(|attr| attr.value()) else {
            return (self.nothing(), None);
        };
        let fields = &self.rows.items.unit(self.rows.unit).fields;
        let prefix = self.draft.site.prefix.as_str();
        let named = self_paths(&value).into_iter().find_map(|(path, _)| {
            let full = format!("{prefix}{path}");
            let id = fields.iter().position(|field| field.name.as_deref() == Some(full.as_str()))?;
            let unit = self.rows.items.unit(self.rows.unit);
            units::owners(unit, FieldId(id as u32)).last().map(|(list, field)| (list, field.kind.clone()))
        });
        let Some((list, FieldKind::List(declared))) = named else {
            let span = span_of(self.draft.site.file, value.range());
            self.rows.sink.push(report::structured::sum_argument(span));
            return (self.nothing(), None);
        };
        let mut scope = self.scope(format!("`{}`", self.name), declared.fields_end as usize);
        scope.enter(list);
        let target = self.rows.exprs(scope, |exprs| {
            let sum = exprs.expr(&value);
            if !matches!(sum.ty, Ty::Int { .. } | Ty::Unknown) {
                let found = exprs.items.describe(&sum.ty);
                exprs.sink.push(report::types::mismatch(sum.span.clone(), "an integer", &found, None));
            }
            sum
        });
        (target, Some(list))
    }

    /// `&full = self.list`, a list of the unit itself that comes before it.
    fn full(&mut self) -> FieldId {
        // After an error no message is parsed; the field itself stands for the list.
        let none = FieldId(self.index as u32);
        let Some(value) = self.draft.attr("full").and_then(|attr| attr.value()) else { return none };
        let unit = self.rows.items.unit(self.rows.unit);
        let prefix = self.draft.site.prefix.as_str();
        let paths = self_paths(&value);
        let named = paths.iter().find(|(_, range)| *range == value.range()).and_then(|(path, _)| {
            let full = format!("{prefix}{path}");
            unit.fields[..self.index].iter().position(|field| field.name.as_deref() == Some(full.as_str()))
        });
        let is_list = |index: &usize| {
            let FieldKind::List(list) = &unit.fields[*index].kind else { return false };
            let ends = matches!(list.end, crate::hir::ListEnd::Until(_));
            ends && list.max.is_some() && units::owners(unit, FieldId(*index as u32)).next().is_none()
        };
        if let Some(index) = named.filter(is_list) {
            return FieldId(index as u32);
        }
        self.rows.sink.push(report::structured::full_argument(span_of(self.draft.site.file, value.range())));
        none
    }

    /// The key of an `&any`.
    fn only_key(&mut self, parse: &Expr) -> Option<(FieldId, u32)> {
        let mut keys: Vec<(FieldId, u32)> = Vec::new();
        crate::walk::expr(parse, &mut |expr| {
            if let ExprKind::SelfKey(list, key) = expr.kind
                && !keys.contains(&(list, key))
            {
                keys.push((list, key));
            }
        });
        match keys.as_slice() {
            [one] => Some(*one),
            _ => {
                if parse.ty != Ty::Unknown {
                    self.rows.sink.push(report::structured::any_argument(parse.span.clone(), keys.len()));
                }
                None
            }
        }
    }

    /// Reports a variable that depends on itself, or on a later variable that depends on it.
    fn cycle(&mut self, value: &ast::Expr) -> bool {
        let fields = &self.rows.items.unit(self.rows.unit).fields;
        let full = |text: &str| format!("{}{text}", self.draft.site.prefix);
        for (path, range) in self_paths(value) {
            let Some(other) =
                fields.iter().position(|field| field.name.as_deref() == Some(full(&path).as_str()))
            else {
                continue;
            };
            let is_var = matches!(
                fields[other].kind,
                FieldKind::Var { .. } | FieldKind::Flag { .. } | FieldKind::TextVar { .. }
            );
            if other < self.index || !is_var {
                continue;
            }
            let own = fields[self.index].name.clone().unwrap_or_default();
            let needs_own = other == self.index
                || later_parse(&self.rows.drafts.fields[other])
                    .is_some_and(|parse| self_paths(&parse).iter().any(|(path, _)| full(path) == own));
            if needs_own {
                let span = span_of(self.draft.site.file, range);
                let location = fields[other].span.clone();
                self.rows.sink.push(report::grammar::circular(span, self.name, &path, location));
                return true;
            }
        }
        false
    }

    fn requires(&mut self) -> Vec<Expr> {
        let kind = &self.rows.items.unit(self.rows.unit).fields[self.index].kind;
        let dollar = crate::units::grammar_type(kind);
        let mut out = Vec::new();
        for attr in &self.draft.attrs {
            if attr.name().is_none_or(|name| name.text() != "requires") {
                continue;
            }
            let Some(value) = attr.value() else { continue };
            let mut scope = self.scope(format!("the check of `{}`", self.name), self.index + 1);
            scope.dollar = Some((ExprKind::Dollar, dollar.clone()));
            let check = self.rows.exprs(scope, |exprs| {
                let check = exprs.expr(&value);
                exprs.coerce(check, &Ty::Bool, "`&requires`", None)
            });
            out.push(check);
        }
        out
    }
}

/// The `&parse` of a later variable.
fn later_parse(draft: &Draft) -> Option<ast::Expr> {
    draft.attr("parse").or_else(|| draft.attr("any"))?.value()
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

/// Whether a condition on `$$` is false for all negative values.
fn excludes_negative(condition: &Expr) -> bool {
    let ExprKind::Binary(op, a, b) = &condition.kind else { return false };
    match (op, &a.kind, &b.kind) {
        (BinaryOp::And, ..) => excludes_negative(a) || excludes_negative(b),
        (BinaryOp::Or, ..) => excludes_negative(a) && excludes_negative(b),
        (BinaryOp::Ge | BinaryOp::Eq, ExprKind::Dollar, ExprKind::Int(least))
        | (BinaryOp::Le | BinaryOp::Eq, ExprKind::Int(least), ExprKind::Dollar) => *least >= 0,
        (BinaryOp::Gt, ExprKind::Dollar, ExprKind::Int(below))
        | (BinaryOp::Lt, ExprKind::Int(below), ExprKind::Dollar) => *below >= -1,
        _ => false,
    }
}
