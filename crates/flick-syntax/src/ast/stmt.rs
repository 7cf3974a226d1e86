//! Blocks and statements: see `parser/stmt.rs` for their grammar.

use rowan::ast::{AstChildren, AstNode, support};

use super::{
    Binding, EveryStmt, ExceptStmt, Expr, ForStmt, GlobalDecl, IfExpr, LocalStmt, Name, SwitchExpr, choice,
    nodes, nth_child,
};

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
    /// `...`, a body still to be written.
    EllipsisStmt,
}

choice! {
    /// A statement.
    Stmt {
        /// A rule for the messages of a channel.
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
        /// State of the service, where it does not belong; the parser has reported it.
        Global(GlobalDecl),
        /// A handler for an event of a channel.
        Except(ExceptStmt),
        /// A block that runs at a fixed interval.
        Every(EveryStmt),
        /// Still to be written.
        Ellipsis(EllipsisStmt),
    }
}

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
    /// Returns its name; `None` where it names the parts of a tuple.
    pub fn name(&self) -> Option<Name> {
        self.binding()?.name()
    }

    /// Returns the name or names it gives.
    pub fn binding(&self) -> Option<Binding> {
        support::child(self.syntax())
    }

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
