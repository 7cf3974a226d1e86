//! Second pass over a unit: checks every expression, in the order of the message, and builds the tree.
//! Promises: an expression uses only fields that come before it, of the same element of a list.

mod attributes;
mod list;

pub(super) use attributes::check_slots;

use flick_abi::FaultCause;

use super::draft::{CheckNode, Draft, Drafts, IfNode, Node, SwitchNode};
use super::with_exprs;
use crate::diagnostic::Sink;
use crate::expr::{Args, Exprs, GrammarScope, Purpose, Site};
use crate::hir::{Check, Choice, Expr, ExprKind, FieldKind, Item, Span, Ty, UnitId};
use crate::items::Items;
use crate::range::range_of;
use crate::report;

/// Checks the expressions of a unit.
pub(super) fn check(unit: UnitId, drafts: &Drafts, items: &mut Items, sink: &mut Sink) {
    let mut rows = Rows { unit, drafts, items, sink };
    let body = rows.row(&drafts.nodes, RowPosition { is_last: true, is_open: false });
    if drafts.is_structured {
        items.units[unit.0 as usize].body = Some(body);
    }
}

/// The position of a row in the message.
#[derive(Clone, Copy)]
pub(super) struct RowPosition {
    /// Whether nothing follows it.
    pub(super) is_last: bool,
    /// Whether it is an element of a list that may be streamed.
    pub(super) is_open: bool,
}

/// The state of the pass.
pub(super) struct Rows<'a> {
    pub(super) unit: UnitId,
    pub(super) drafts: &'a Drafts,
    pub(super) items: &'a mut Items,
    pub(super) sink: &'a mut Sink,
}

impl<'a> Rows<'a> {
    pub(super) fn row(&mut self, nodes: &'a [Node], position: RowPosition) -> Vec<Item> {
        let last = nodes.iter().rposition(|node| self.has_bytes(node));
        let mut out = Vec::new();
        for (index, node) in nodes.iter().enumerate() {
            let position = RowPosition { is_last: position.is_last && Some(index) == last, ..position };
            match node {
                Node::Field(field) => {
                    self.field(*field, position);
                    out.push(Item::Field(crate::hir::FieldId(*field as u32)));
                }
                Node::Literal(literal) => out.push(Item::Literal(literal.clone())),
                Node::Check(check) => out.extend(self.check(check).map(Item::Check)),
                Node::Switch(switch) => out.extend(self.switch(switch, position).map(Item::Switch)),
                Node::If(condition) => out.push(Item::Switch(self.condition(condition, position))),
                Node::Enter(args) => self.enter(args),
            }
        }
        out
    }

    /// Whether a node has bytes.
    fn has_bytes(&self, node: &Node) -> bool {
        match node {
            Node::Field(field) => self.items.unit(self.unit).fields[*field].kind.is_on_wire(),
            Node::Enter(_) => false,
            Node::Literal(_) | Node::Check(_) | Node::Switch(_) | Node::If(_) => true,
        }
    }

    pub(super) fn draft(&self, field: usize) -> &'a Draft {
        &self.drafts.fields[field]
    }

    /// The scope of an expression at `site`.
    pub(super) fn scope(&self, site: &Site, what: String, visible: usize) -> GrammarScope {
        let purpose = Purpose::Reading { what, visible };
        GrammarScope {
            site: site.clone(),
            is_structured: self.drafts.is_structured,
            ..GrammarScope::new(self.unit, site.file, purpose)
        }
    }

    pub(super) fn exprs<T>(&mut self, scope: GrammarScope, check: impl FnOnce(&mut Exprs<'_>) -> T) -> T {
        with_exprs(self.items, self.sink, scope, check)
    }

    fn check(&mut self, check: &CheckNode) -> Option<Check> {
        let scope = self.scope(&check.site, "the check".to_owned(), check.visible);
        let expr = self.exprs(scope, |exprs| {
            let expr = exprs.expr(&check.condition);
            exprs.coerce(expr, &Ty::Bool, "`check`", None)
        });
        let is_known = expr.ty == Ty::Bool;
        is_known.then(|| Check { expr, cause: check.cause, span: check.span.clone() })
    }

    fn condition(&mut self, node: &'a IfNode, position: RowPosition) -> Choice {
        let scope = self.scope(&node.site, "`&if`".to_owned(), node.visible);
        let on = self.exprs(scope, |exprs| {
            let on = exprs.expr(&node.condition);
            exprs.coerce(on, &Ty::Bool, "`&if`", None)
        });
        let span = node.span.clone();
        let yes = Expr { kind: ExprKind::Bool(true), ty: Ty::Bool, span: span.clone() };
        let then = self.row(&node.then, position);
        Choice {
            on,
            arms: vec![(vec![yes], then)],
            otherwise: Some(Vec::new()),
            cause: FaultCause::Malformed,
            span,
        }
    }

    fn switch(&mut self, node: &'a SwitchNode, position: RowPosition) -> Option<Choice> {
        let what = "the `switch`".to_owned();
        let subject = node.subject.as_ref()?;
        let scope = self.scope(&node.site, what, node.visible);
        let on = self.exprs(scope, |exprs| exprs.switch_subject(subject));
        let mut seen: Vec<Expr> = Vec::new();
        let mut arms = Vec::new();
        for (patterns, row) in &node.arms {
            let scope = self.scope(&node.site, String::new(), node.visible);
            let constants: Vec<Expr> = self.exprs(scope, |exprs| {
                patterns
                    .iter()
                    .filter_map(|pattern| exprs.constant_pattern(pattern, &on.ty, &mut seen))
                    .collect()
            });
            let row = self.row(row, position);
            arms.push((constants, row));
        }
        let otherwise = node.otherwise.as_ref().map(|(row, span)| {
            if is_exhausted(&on.ty, &seen) {
                self.sink.push(report::structured::unreachable_else(span.clone()));
            }
            self.row(row, position)
        });
        Some(Choice { on, arms, otherwise, cause: FaultCause::Malformed, span: node.span.clone() })
    }

    /// Evaluates the arguments of a nested unit.
    fn enter(&mut self, args: &Args) {
        let values = args.params.iter().enumerate().map(|(index, (name, ty))| match args.given.get(index) {
            None => placeholder(ty, &Span::default()),
            Some(value) => {
                let scope = self.scope(&args.site, format!("`{name}`"), args.visible);
                let value = self.exprs(scope, |exprs| {
                    let value = exprs.expr_like(value, ty);
                    exprs.coerce(value, ty, &format!("`{name}`"), None)
                });
                // An argument of another type was reported; its uses cause no further errors.
                if Items::same_kind(&value.ty, ty) { value } else { crate::expr::unknown(value.span) }
            }
        });
        let values: Vec<Expr> = values.collect();
        // Two uses of a unit have two `Args`; setting one twice has the same result.
        let _ = args.values.set(values);
    }

    fn field(&mut self, index: usize, position: RowPosition) {
        let draft = self.draft(index);
        if draft.is_broken {
            return;
        }
        attributes::field(self, index, position);
    }

    pub(super) fn kind_mut(&mut self, index: usize) -> &mut FieldKind {
        &mut self.items.units[self.unit.0 as usize].fields[index].kind
    }
}

/// The value of a parameter of a unit that is checked by itself.
fn placeholder(ty: &Ty, span: &Span) -> Expr {
    let kind = match ty {
        Ty::Bool => ExprKind::Bool(false),
        Ty::Enum(id) => ExprKind::Member(*id, 0),
        _ => ExprKind::Int(range_of(ty).map_or(0, |range| range.lo.max(0))),
    };
    // Opaque, so that the checks do not treat it as a constant.
    let inner = Expr { kind, ty: ty.clone(), span: span.clone() };
    Expr { kind: ExprKind::Recast(Box::new(inner)), ty: ty.clone(), span: span.clone() }
}

/// Whether every value of the type has a case.
fn is_exhausted(ty: &Ty, seen: &[Expr]) -> bool {
    match ty {
        Ty::Bool => seen.len() == 2,
        Ty::Int { lo, hi, .. } => hi.checked_sub(*lo).is_some_and(|span| span < seen.len() as i128),
        _ => false,
    }
}
