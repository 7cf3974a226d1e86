//! Blocks and statements: see `parser/stmt.rs` for their grammar.

use rowan::ast::{AstChildren, AstNode, support};

use super::{Expr, IfExpr, SwitchExpr, Type, child_after, child_after_word, choice, named, nodes, nth_child};
use crate::syntax_kind::SyntaxKind;

nodes! {
    /// The lines below a heading, or the one behind it.
    Block,
    /// `| client => backends`
    Rule,
    /// `let name = value`
    LetStmt,
    /// A value alone on its line.
    ExprStmt,
    /// `a => f(b) => c`
    ChainStmt,
    /// `a <=> b`
    JoinStmt,
    /// `name := value`
    AssignStmt,
    /// `for x in values:`
    ForStmt,
    /// `local name := value`
    LocalStmt,
    /// `global name: type`
    GlobalStmt,
    /// `...`, a body still to be written.
    EllipsisStmt,
}

choice! {
    /// A statement.
    Stmt {
        /// What to do with the messages of a channel.
        Rule(Rule),
        /// A new name.
        Let(LetStmt),
        /// A value.
        Expr(ExprStmt),
        /// A message passed on.
        Chain(ChainStmt),
        /// Two channels joined in both directions.
        Join(JoinStmt),
        /// A changed `local` or `global`.
        Assign(AssignStmt),
        /// A choice, also a value.
        If(IfExpr),
        /// A choice, also a value.
        Switch(SwitchExpr),
        /// A repetition.
        For(ForStmt),
        /// State of a session.
        Local(LocalStmt),
        /// State of the service.
        Global(GlobalStmt),
        /// Still to be written.
        Ellipsis(EllipsisStmt),
    }
}

named! { LetStmt, ForStmt, LocalStmt, GlobalStmt }

impl Block {
    /// Returns its statements.
    pub fn stmts(&self) -> AstChildren<Stmt> {
        support::children(self.syntax())
    }
}

impl Rule {
    /// Returns what stands behind the `|`: an `Expr`, `Chain`, `Join` or `Assign`.
    pub fn stmt(&self) -> Option<Stmt> {
        support::child(self.syntax())
    }
}

impl LetStmt {
    /// Returns the value.
    pub fn value(&self) -> Option<Expr> {
        support::child(self.syntax())
    }
}

impl ExprStmt {
    /// Returns the value.
    pub fn expr(&self) -> Option<Expr> {
        support::child(self.syntax())
    }
}

impl ChainStmt {
    /// Returns what the message passes through, from its source to its destination.
    pub fn stages(&self) -> AstChildren<Expr> {
        support::children(self.syntax())
    }
}

impl JoinStmt {
    /// Returns the left channel.
    pub fn left(&self) -> Option<Expr> {
        nth_child(self.syntax(), 0)
    }

    /// Returns the right channel.
    pub fn right(&self) -> Option<Expr> {
        nth_child(self.syntax(), 1)
    }
}

impl AssignStmt {
    /// Returns what is changed.
    pub fn target(&self) -> Option<Expr> {
        nth_child(self.syntax(), 0)
    }

    /// Returns its new value.
    pub fn value(&self) -> Option<Expr> {
        nth_child(self.syntax(), 1)
    }
}

impl ForStmt {
    /// Returns the values to visit.
    pub fn iterable(&self) -> Option<Expr> {
        support::child(self.syntax())
    }

    /// Returns what to do with each.
    pub fn body(&self) -> Option<Block> {
        support::child(self.syntax())
    }
}

impl LocalStmt {
    /// Returns the first value.
    pub fn value(&self) -> Option<Expr> {
        support::child(self.syntax())
    }
}

impl GlobalStmt {
    /// Returns its type.
    pub fn ty(&self) -> Option<Type> {
        support::child(self.syntax())
    }

    /// Returns the first value, if one is written.
    pub fn init(&self) -> Option<Expr> {
        let has_init = support::token(self.syntax(), SyntaxKind::ColonEq).is_some();
        if has_init { child_after(self.syntax(), SyntaxKind::ColonEq) } else { None }
    }

    /// Returns the bound of `max N entries`.
    pub fn max_entries(&self) -> Option<Expr> {
        child_after_word(self.syntax(), "max")
    }
}
