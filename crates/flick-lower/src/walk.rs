//! Searches in expressions and blocks, by the visitor of `flick_check::walk`.

use flick_check::hir::{BinaryOp, Block, Expr, ExprKind, Program, Stmt};
use flick_check::walk::{self, Child};

use crate::unit::SlotKey;

/// Calls `visit` on every expression of a program's code, grammars left out.
pub fn walk_program<'e>(program: &'e Program, visit: &mut dyn FnMut(&'e Expr)) {
    program.funs.iter().for_each(|fun| walk::block(&fun.body, visit));
    program.session_locals.iter().for_each(|state| walk::expr(&state.init, visit));
    let Some(process) = &program.process else { return };
    process.rules.iter().for_each(|rule| walk::block(&rule.body, visit));
    process.handlers.iter().for_each(|handler| walk::block(&handler.body, visit));
    process.timers.iter().for_each(|timer| walk::block(&timer.body, visit));
    for merge in &process.merges {
        walk::expr(&merge.key, visit);
        walk::block(&merge.body, visit);
        walk::block(&merge.finish.body, visit);
    }
}

/// The parts of `a and b and c`: a condition that refuses a message may be checked part by part.
pub fn conjuncts(expr: &Expr) -> Vec<&Expr> {
    match &expr.kind {
        ExprKind::Binary(BinaryOp::And, a, b) => [conjuncts(a), conjuncts(b)].concat(),
        _ => vec![expr],
    }
}

/// Returns the keys of `self` that an expression of a grammar reads, without `$$`.
pub fn keys_of(expr: &Expr) -> Vec<SlotKey> {
    let mut keys = Vec::new();
    walk::expr(expr, &mut |inner| match inner.kind {
        ExprKind::SelfField(field) => keys.push(SlotKey::Field(field)),
        ExprKind::LenOf(field) => keys.push(SlotKey::Length(field)),
        ExprKind::SelfKey(list, key) => keys.push(SlotKey::At(list, key)),
        _ => {}
    });
    keys
}

/// Whether a block assigns to a `local` of the session.
pub fn assigns(block: &Block) -> bool {
    let in_stmts = |block: &Block| block.stmts.iter().any(|stmt| matches!(stmt, Stmt::Assign(..)));
    let mut found = in_stmts(block);
    walk::block(block, &mut |expr| {
        walk::children(expr, &mut |child| found |= matches!(child, Child::Block(inner) if in_stmts(inner)));
    });
    found
}
