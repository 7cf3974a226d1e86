//! The tree of a unit between the two passes over it: types are known, expressions are not looked into yet.
//! Promises: nodes stand in the order of the wire; a node knows everything its expressions may name.

use std::cell::OnceCell;
use std::rc::Rc;

use flick_syntax::ast;

use crate::hir::{Expr, FieldId, Literal, Span, Ty};

/// Where in a unit something stands, for what its expressions may name.
#[derive(Clone, Default)]
pub(crate) struct Site {
    pub(super) file: u32,
    /// Path of the nested unit it stands in, with a final dot; empty at the top.
    pub(super) prefix: String,
    /// What the nested unit was given.
    pub(super) args: Option<Rc<Args>>,
    /// Lists it stands in an element of, outermost first.
    pub(super) inside: Vec<FieldId>,
}

/// What a unit with parameters was given.
pub(crate) struct Args {
    /// Name and type of each parameter.
    pub(super) params: Vec<(String, Ty)>,
    /// What stands in the parentheses; empty for a unit that is looked into by itself.
    pub(super) given: Vec<ast::Expr>,
    /// Where they stand.
    pub(super) site: Site,
    /// Fields before the nested unit.
    pub(super) visible: usize,
    /// The values, once they are known.
    pub(super) values: OnceCell<Vec<Expr>>,
}

/// One thing in a unit.
pub(super) enum Node {
    /// By its index in the flat unit.
    Field(usize),
    Literal(Literal),
    Check(CheckNode),
    Switch(SwitchNode),
    If(IfNode),
    /// Parameters get their values here.
    Enter(Rc<Args>),
}

/// `check e`.
pub(super) struct CheckNode {
    pub(super) condition: ast::Expr,
    pub(super) site: Site,
    pub(super) visible: usize,
    pub(super) cause: u32,
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

/// What the later steps need to know of a field beyond its type; one for each field of the flat unit.
pub(super) struct Draft {
    pub(super) site: Site,
    pub(super) attrs: Vec<ast::Attr>,
    /// Place of the name, or of the whole field.
    pub(super) place: Span,
    /// Bound written in the grammar.
    pub(super) bound: Option<u32>,
    /// The type could not be understood; nothing more is said of the field.
    pub(super) is_broken: bool,
    /// What an element of a list is made of.
    pub(super) body: Vec<Node>,
    /// Behind the last field of an element.
    pub(super) body_end: usize,
}

impl Draft {
    /// The first attribute of that name.
    pub(super) fn attr(&self, name: &str) -> Option<ast::Attr> {
        attr(&self.attrs, name)
    }
}

/// The first attribute of that name.
pub(super) fn attr(attrs: &[ast::Attr], name: &str) -> Option<ast::Attr> {
    attrs.iter().find(|attr| attr.name().is_some_and(|known| known.text() == name)).cloned()
}

/// A flat unit with all that is needed to look into its expressions.
pub(super) struct Drafts {
    pub(super) fields: Vec<Draft>,
    pub(super) nodes: Vec<Node>,
    /// Something in it needs a tree.
    pub(super) is_structured: bool,
}
