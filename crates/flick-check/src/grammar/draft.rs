//! The tree of a unit between the two passes over it: types are known, expressions are not checked yet.
//! Promises: nodes are in the order of the message; a node has everything that its expressions need.

use std::rc::Rc;

use flick_abi::FaultCause;
use flick_syntax::ast;

use crate::expr::{Args, Site};
use crate::hir::{Expr, ExprKind, Literal, Span, Ty};

/// One item of a unit.
pub(super) enum Node {
    /// A field, by its index in the flattened unit.
    Field(usize),
    Literal(Literal),
    Check(CheckNode),
    Switch(SwitchNode),
    If(IfNode),
    /// The arguments of a nested unit are evaluated here.
    Enter(Rc<Args>),
}

/// `check e`.
pub(super) struct CheckNode {
    pub(super) condition: ast::Expr,
    pub(super) site: Site,
    pub(super) visible: usize,
    pub(super) cause: FaultCause,
    pub(super) span: Span,
}

/// `switch e { ... }`.
pub(super) struct SwitchNode {
    pub(super) subject: Option<ast::Expr>,
    pub(super) site: Site,
    pub(super) visible: usize,
    pub(super) arms: Vec<(Vec<ast::Pattern>, Vec<Node>)>,
    pub(super) otherwise: Option<(Vec<Node>, Span)>,
    pub(super) span: Span,
}

/// `name : type &if = e`.
pub(super) struct IfNode {
    pub(super) condition: ast::Expr,
    pub(super) site: Site,
    pub(super) visible: usize,
    pub(super) then: Vec<Node>,
    pub(super) span: Span,
}

/// Input of the second pass for a field, beyond its type; one for each field of the flattened unit.
pub(super) struct Draft {
    pub(super) site: Site,
    pub(super) attrs: Vec<ast::Attr>,
    /// Location of the name, or of the whole field.
    pub(super) span: Span,
    /// Bound that the grammar declares.
    pub(super) bound: Option<u32>,
    /// Whether the type was rejected, so that the field causes no further errors.
    pub(super) is_broken: bool,
    /// The items of a list element.
    pub(super) body: Vec<Node>,
    /// The index after the last field of a list element.
    pub(super) body_end: usize,
}

impl Draft {
    /// The first attribute of that name.
    pub(super) fn attr(&self, name: &str) -> Option<ast::Attr> {
        attr(&self.attrs, name)
    }

    /// The name of the field in its own unit, given its full dotted name.
    pub(super) fn own_name(&self, full: Option<&str>) -> String {
        let own = |full| str::strip_prefix(full, self.site.prefix.as_str()).unwrap_or(full);
        full.map_or("this field", own).to_owned()
    }
}

/// The first attribute of that name.
pub(super) fn attr(attrs: &[ast::Attr], name: &str) -> Option<ast::Attr> {
    attrs.iter().find(|attr| attr.name().is_some_and(|known| known.text() == name)).cloned()
}

/// A flattened unit with everything that the second pass needs.
pub(super) struct Drafts {
    pub(super) fields: Vec<Draft>,
    pub(super) nodes: Vec<Node>,
    /// Whether it is structured.
    pub(super) is_structured: bool,
}

/// A placeholder that the second pass replaces.
pub(super) fn later(span: Span) -> Expr {
    Expr { kind: ExprKind::Int(0), ty: Ty::Unknown, span }
}
