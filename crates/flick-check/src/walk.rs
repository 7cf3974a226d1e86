//! Visits every expression below an expression or block, outermost first.

use crate::hir::{Block, Expr, ExprKind, Stmt};

/// Calls `visit` on `expr` and everything in it.
pub fn expr(expr: &Expr, visit: &mut dyn FnMut(&Expr)) {
    visit(expr);
    children(expr, &mut |child| match child {
        Child::Expr(child) => self::expr(child, visit),
        Child::Block(child) => block(child, visit),
    });
}

/// Calls `visit` on every expression of `block`.
pub fn block(block: &Block, visit: &mut dyn FnMut(&Expr)) {
    for stmt in &block.stmts {
        match stmt {
            Stmt::Let(_, value) | Stmt::Expr(value) => expr(value, visit),
        }
    }
    if let Some(value) = &block.value {
        expr(value, visit);
    }
}

/// Whether `test` holds for some expression below `root`.
pub fn any(root: &Expr, test: &mut dyn FnMut(&Expr) -> bool) -> bool {
    let mut found = false;
    expr(root, &mut |expr| found |= test(expr));
    found
}

/// What stands directly inside an expression.
pub enum Child<'a> {
    /// A part with a value.
    Expr(&'a Expr),
    /// A part with statements.
    Block(&'a Block),
}

/// Calls `visit` on what stands directly inside `expr`.
pub fn children(expr: &Expr, visit: &mut dyn FnMut(Child<'_>)) {
    match &expr.kind {
        ExprKind::Int(_)
        | ExprKind::Bool(_)
        | ExprKind::Str(_)
        | ExprKind::Member(..)
        | ExprKind::Local(_) => {}
        ExprKind::Channel(_) | ExprKind::SelfField(_) | ExprKind::LenOf(_) | ExprKind::Dollar => {}
        ExprKind::Field(inner, _) | ExprKind::Not(inner) | ExprKind::Neg(inner) => visit(Child::Expr(inner)),
        ExprKind::Binary(_, a, b) | ExprKind::Index(a, b) => {
            visit(Child::Expr(a));
            visit(Child::Expr(b));
        }
        ExprKind::Send { message, channel } => {
            visit(Child::Expr(message));
            visit(Child::Expr(channel));
        }
        ExprKind::If { cond, then, otherwise } => {
            visit(Child::Expr(cond));
            visit(Child::Block(then));
            otherwise.iter().for_each(|block| visit(Child::Block(block)));
        }
        ExprKind::Switch { value, arms, otherwise } => {
            visit(Child::Expr(value));
            for (patterns, body) in arms {
                patterns.iter().for_each(|pattern| visit(Child::Expr(pattern)));
                visit(Child::Block(body));
            }
            otherwise.iter().for_each(|block| visit(Child::Block(block)));
        }
        ExprKind::Call(_, args) | ExprKind::Builtin(_, args) => {
            args.iter().for_each(|arg| visit(Child::Expr(arg)))
        }
        ExprKind::With(base, fields) => {
            visit(Child::Expr(base));
            fields.iter().for_each(|(_, value)| visit(Child::Expr(value)));
        }
        ExprKind::Build(_, fields) => fields.iter().for_each(|(_, value)| visit(Child::Expr(value))),
    }
}
