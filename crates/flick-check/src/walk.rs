//! Visits every expression below an expression or block, outermost first.

use crate::hir::{AskAll, Block, Expr, ExprKind, Source, Stmt};

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
            Stmt::Let(_, value) | Stmt::LetTuple(_, value) | Stmt::Assign(_, value) | Stmt::Expr(value) => {
                expr(value, visit)
            }
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
        ExprKind::Channel(_)
        | ExprKind::SelfField(_)
        | ExprKind::SelfKey(..)
        | ExprKind::LenOf(_)
        | ExprKind::Dollar => {}
        ExprKind::None | ExprKind::State(_) | ExprKind::Dict(_) | ExprKind::Counter(_) => {}
        ExprKind::FieldKey(inner, ..) | ExprKind::IsOf(inner, _) | ExprKind::BuildWire(_, inner) => {
            visit(Child::Expr(inner))
        }
        ExprKind::Field(inner, _) | ExprKind::Not(inner) | ExprKind::Neg(inner) => visit(Child::Expr(inner)),
        ExprKind::TupleField(inner, _) | ExprKind::StructField(inner, _) => visit(Child::Expr(inner)),
        ExprKind::Some(inner) | ExprKind::Convert(inner, _) | ExprKind::Recast(inner) => {
            visit(Child::Expr(inner));
        }
        ExprKind::DictGet(_, inner) | ExprKind::DictHas(_, inner) => visit(Child::Expr(inner)),
        ExprKind::VariantBuild(_, _, payload) => {
            payload.iter().for_each(|payload| visit(Child::Expr(payload)));
        }
        ExprKind::Binary(_, a, b)
        | ExprKind::Index(a, b)
        | ExprKind::ListGet(a, b)
        | ExprKind::ByteAt(a, b)
        | ExprKind::DictPut(_, a, b) => {
            visit(Child::Expr(a));
            visit(Child::Expr(b));
        }
        ExprKind::Send { message, channel } => {
            visit(Child::Expr(message));
            visit(Child::Expr(channel));
        }
        ExprKind::Call(_, args)
        | ExprKind::Builtin(_, args)
        | ExprKind::Tuple(args)
        | ExprKind::List(args)
        | ExprKind::Concat(args)
        | ExprKind::StructBuild(_, args) => args.iter().for_each(|arg| visit(Child::Expr(arg))),
        ExprKind::StructWith(base, fields) => given(Some(base), fields, visit),
        ExprKind::With(base, fields) => given(Some(base), fields, visit),
        ExprKind::Build(_, fields) => given(None, fields, visit),
        ExprKind::OrElse(value, other) => {
            visit(Child::Expr(value));
            visit(Child::Block(other));
        }
        ExprKind::Slice(base, from, to) => {
            visit(Child::Expr(base));
            from.iter().chain(to).for_each(|end| visit(Child::Expr(end)));
        }
        ExprKind::If { .. }
        | ExprKind::Switch { .. }
        | ExprKind::Match { .. }
        | ExprKind::For { .. }
        | ExprKind::MapList { .. }
        | ExprKind::Filter { .. }
        | ExprKind::Fold { .. }
        | ExprKind::DictUpdate { .. }
        | ExprKind::Ask { .. }
        | ExprKind::AskAll { .. } => inner_blocks(expr, visit),
        ExprKind::WithKey(base, _, _, value) => {
            visit(Child::Expr(base));
            value.iter().for_each(|value| visit(Child::Expr(value)));
        }
    }
}

/// A message or record and what its fields become.
fn given<F>(base: Option<&Expr>, fields: &[(F, Expr)], visit: &mut dyn FnMut(Child<'_>)) {
    base.into_iter().for_each(|base| visit(Child::Expr(base)));
    fields.iter().for_each(|(_, value)| visit(Child::Expr(value)));
}

/// As [`children`], of what has blocks of its own.
fn inner_blocks(expr: &Expr, visit: &mut dyn FnMut(Child<'_>)) {
    match &expr.kind {
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
        ExprKind::Match { value, arms, otherwise } => {
            visit(Child::Expr(value));
            arms.iter().for_each(|(_, _, body)| visit(Child::Block(body)));
            otherwise.iter().for_each(|block| visit(Child::Block(block)));
        }
        ExprKind::For { source, body, .. }
        | ExprKind::MapList { source, body, .. }
        | ExprKind::Filter { source, body, .. } => {
            source_children(source, visit);
            visit(Child::Block(body));
        }
        ExprKind::Fold { source, init, body, .. } => {
            source_children(source, visit);
            visit(Child::Expr(init));
            visit(Child::Block(body));
        }
        ExprKind::DictUpdate { key, body, .. } => {
            visit(Child::Expr(key));
            visit(Child::Block(body));
        }
        ExprKind::Ask { channel, message, timeout, otherwise } => {
            visit(Child::Expr(channel));
            visit(Child::Expr(message));
            timeout.iter().for_each(|timeout| visit(Child::Expr(timeout)));
            otherwise.iter().for_each(|block| visit(Child::Block(block)));
        }
        ExprKind::AskAll { asks, timeout } => {
            ask_all_children(asks, visit);
            timeout.iter().for_each(|timeout| visit(Child::Expr(timeout)));
        }
        other => unreachable!("`children` knows {other:?}"),
    }
}

fn source_children(source: &Source, visit: &mut dyn FnMut(Child<'_>)) {
    match source {
        Source::List(list) | Source::Channels(list) => visit(Child::Expr(list)),
        Source::Range { lo, hi, .. } => {
            visit(Child::Expr(lo));
            visit(Child::Expr(hi));
        }
    }
}

fn ask_all_children(asks: &AskAll, visit: &mut dyn FnMut(Child<'_>)) {
    match asks {
        AskAll::Array { channels, message } => {
            visit(Child::Expr(channels));
            visit(Child::Expr(message));
        }
        AskAll::Each(asks) => asks.iter().for_each(|(channel, message)| {
            visit(Child::Expr(channel));
            visit(Child::Expr(message));
        }),
        AskAll::Over(over) => {
            source_children(&over.source, visit);
            visit(Child::Block(&over.channel));
            visit(Child::Block(&over.message));
        }
    }
}
