//! Tables and sets: see `parser/table.rs` for their grammar.

use rowan::ast::{AstChildren, AstNode, support};

use super::{Expr, Pattern, nodes, nth_child};

nodes! {
    /// `map self.opcode { getq: get, else: self.opcode }`
    MapExpr,
    /// `getq: get`
    MapArm,
    /// `else: self.opcode`
    MapElse,
    /// `self.opcode in { getq, getkq }`, `key in keys`
    InExpr,
}

impl MapExpr {
    /// Returns the value that is looked up.
    pub fn subject(&self) -> Option<Expr> {
        support::child(self.syntax())
    }

    /// Returns the entries but for the `else`, in the order of the source.
    pub fn arms(&self) -> AstChildren<MapArm> {
        support::children(self.syntax())
    }

    /// Returns the result for every other value.
    pub fn else_value(&self) -> Option<Expr> {
        support::child::<MapElse>(self.syntax()).and_then(|entry| entry.value())
    }
}

impl MapArm {
    /// Returns what the subject is compared with.
    pub fn pattern(&self) -> Option<Pattern> {
        support::child(self.syntax())
    }

    /// Returns the result.
    pub fn value(&self) -> Option<Expr> {
        support::child(self.syntax())
    }
}

impl MapElse {
    /// Returns the result.
    pub fn value(&self) -> Option<Expr> {
        support::child(self.syntax())
    }
}

impl InExpr {
    /// Returns the value that is looked for.
    pub fn subject(&self) -> Option<Expr> {
        support::child(self.syntax())
    }

    /// Returns the list or dictionary it is looked for in; `None` where the values are written out in braces.
    pub fn collection(&self) -> Option<Expr> {
        nth_child(self.syntax(), 1)
    }

    /// Returns the values it may be, where they are written out in braces.
    pub fn patterns(&self) -> AstChildren<Pattern> {
        support::children(self.syntax())
    }
}
