//! Visits every expression inside an expression or block.
//! Promises: parents before children, in the order of the text.

use flick_check::hir::{BinaryOp, Block, Expr, ExprKind, Stmt};

use crate::unit::Key;

/// Calls `visit` on `expr` and everything in it.
pub fn walk_expr<'e>(expr: &'e Expr, visit: &mut dyn FnMut(&'e Expr)) {
    visit(expr);
    match &expr.kind {
        ExprKind::Int(_)
        | ExprKind::Bool(_)
        | ExprKind::Str(_)
        | ExprKind::Member(..)
        | ExprKind::Local(_)
        | ExprKind::Channel(_)
        | ExprKind::SelfField(_)
        | ExprKind::LenOf(_)
        | ExprKind::Dollar => {}
        ExprKind::Field(inner, _) | ExprKind::Not(inner) | ExprKind::Neg(inner) => walk_expr(inner, visit),
        ExprKind::Binary(_, a, b) | ExprKind::Index(a, b) => {
            walk_expr(a, visit);
            walk_expr(b, visit);
        }
        ExprKind::Send { message, channel } => {
            walk_expr(message, visit);
            walk_expr(channel, visit);
        }
        ExprKind::If { cond, then, otherwise } => {
            walk_expr(cond, visit);
            walk_block(then, visit);
            otherwise.iter().for_each(|block| walk_block(block, visit));
        }
        ExprKind::Switch { value, arms, otherwise } => {
            walk_expr(value, visit);
            arms.iter().for_each(|(_, block)| walk_block(block, visit));
            otherwise.iter().for_each(|block| walk_block(block, visit));
        }
        ExprKind::Call(_, args) | ExprKind::Builtin(_, args) => {
            args.iter().for_each(|arg| walk_expr(arg, visit));
        }
        ExprKind::With(record, fields) => {
            walk_expr(record, visit);
            fields.iter().for_each(|(_, value)| walk_expr(value, visit));
        }
        ExprKind::Build(_, fields) => fields.iter().for_each(|(_, value)| walk_expr(value, visit)),
    }
}

/// Calls `visit` on every expression in a block.
pub fn walk_block<'e>(block: &'e Block, visit: &mut dyn FnMut(&'e Expr)) {
    for stmt in &block.stmts {
        match stmt {
            Stmt::Let(_, expr) | Stmt::Expr(expr) => walk_expr(expr, visit),
        }
    }
    if let Some(value) = &block.value {
        walk_expr(value, visit);
    }
}

/// The parts of `a and b and c`: a condition that refuses a message may be judged part by part.
pub fn conjuncts(expr: &Expr) -> Vec<&Expr> {
    match &expr.kind {
        ExprKind::Binary(BinaryOp::And, a, b) => [conjuncts(a), conjuncts(b)].concat(),
        _ => vec![expr],
    }
}

/// What an expression of a grammar reads of `self`. `$$` is not among it.
pub fn keys_of(expr: &Expr) -> Vec<Key> {
    let mut keys = Vec::new();
    walk_expr(expr, &mut |inner| match inner.kind {
        ExprKind::SelfField(field) => keys.push(Key::Field(field)),
        ExprKind::LenOf(field) => keys.push(Key::Length(field)),
        _ => {}
    });
    keys
}
