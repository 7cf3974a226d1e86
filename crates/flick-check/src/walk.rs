//! Visits every expression below an expression or block, outermost first.

use crate::hir::{AskAll, Block, Expr, ExprKind, LoopSource, Stmt};

/// Calls `visit` on `expr` and everything in it.
pub fn expr<'e>(expr: &'e Expr, visit: &mut dyn FnMut(&'e Expr)) {
    visit(expr);
    children(expr, &mut |child| match child {
        Child::Expr(child) => self::expr(child, visit),
        Child::Block(child) => block(child, visit),
    });
}

/// Calls `visit` on every expression of `block`.
pub fn block<'e>(block: &'e Block, visit: &mut dyn FnMut(&'e Expr)) {
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

/// Whether `test` is true for some expression below `root`.
pub fn any(root: &Expr, test: &mut dyn FnMut(&Expr) -> bool) -> bool {
    let mut found = false;
    expr(root, &mut |expr| found |= test(expr));
    found
}

/// A direct child of an expression.
pub enum Child<'e> {
    /// A part with a value.
    Expr(&'e Expr),
    /// A part with statements.
    Block(&'e Block),
}

/// Calls `visit` on the direct children of `expr`.
pub fn children<'e>(expr: &'e Expr, visit: &mut dyn FnMut(Child<'e>)) {
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
        ExprKind::None | ExprKind::SessionLocal(_) | ExprKind::Dict(_) | ExprKind::Counter(_) => {}
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
        | ExprKind::Concat(args) => args.iter().for_each(|arg| visit(Child::Expr(arg))),
        ExprKind::StructBuild(_, fields) => given(None, fields, visit),
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

/// The base of a changed message or record, and its new values.
fn given<'e, F>(base: Option<&'e Expr>, fields: &'e [(F, Expr)], visit: &mut dyn FnMut(Child<'e>)) {
    base.into_iter().for_each(|base| visit(Child::Expr(base)));
    fields.iter().for_each(|(_, value)| visit(Child::Expr(value)));
}

/// As [`children`], for expressions with blocks.
fn inner_blocks<'e>(expr: &'e Expr, visit: &mut dyn FnMut(Child<'e>)) {
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

fn source_children<'e>(source: &'e LoopSource, visit: &mut dyn FnMut(Child<'e>)) {
    match source {
        LoopSource::List(list) | LoopSource::Channels(list) => visit(Child::Expr(list)),
        LoopSource::Range { lo, hi, .. } => {
            visit(Child::Expr(lo));
            visit(Child::Expr(hi));
        }
    }
}

fn ask_all_children<'e>(asks: &'e AskAll, visit: &mut dyn FnMut(Child<'e>)) {
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
