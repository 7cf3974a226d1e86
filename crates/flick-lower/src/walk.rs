//! Visits every expression inside an expression or block.
//! Promises: parents before children, in the order of the text.

use flick_check::hir::{AskAll, BinaryOp, Block, Expr, ExprKind, Program, Source, Stmt};

use crate::unit::Key;

/// Calls `visit` on `expr` and everything in it.
pub fn walk_expr<'e>(expr: &'e Expr, visit: &mut dyn FnMut(&'e Expr)) {
    visit(expr);
    match &expr.kind {
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
        ExprKind::Match { value, arms, otherwise } => {
            walk_expr(value, visit);
            arms.iter().for_each(|(_, _, block)| walk_block(block, visit));
            otherwise.iter().for_each(|block| walk_block(block, visit));
        }
        ExprKind::OrElse(value, block) => {
            walk_expr(value, visit);
            walk_block(block, visit);
        }
        ExprKind::DictUpdate { key, body, .. } => {
            walk_expr(key, visit);
            walk_block(body, visit);
        }
        ExprKind::For { source, body, .. }
        | ExprKind::MapList { source, body, .. }
        | ExprKind::Filter { source, body, .. } => {
            walk_source(source, visit);
            walk_block(body, visit);
        }
        ExprKind::Fold { source, init, body, .. } => {
            walk_source(source, visit);
            walk_expr(init, visit);
            walk_block(body, visit);
        }
        ExprKind::Ask { channel, message, timeout, otherwise } => {
            walk_expr(channel, visit);
            walk_expr(message, visit);
            timeout.iter().for_each(|timeout| walk_expr(timeout, visit));
            otherwise.iter().for_each(|block| walk_block(block, visit));
        }
        ExprKind::AskAll { asks, timeout } => {
            walk_asks(asks, visit);
            timeout.iter().for_each(|timeout| walk_expr(timeout, visit));
        }
        _ => operands(expr).into_iter().for_each(|operand| walk_expr(operand, visit)),
    }
}

/// The operands of an expression without blocks, in order.
fn operands(expr: &Expr) -> Vec<&Expr> {
    match &expr.kind {
        ExprKind::Field(inner, _)
        | ExprKind::Not(inner)
        | ExprKind::Neg(inner)
        | ExprKind::TupleField(inner, _)
        | ExprKind::StructField(inner, _)
        | ExprKind::Some(inner)
        | ExprKind::Convert(inner, _)
        | ExprKind::Recast(inner)
        | ExprKind::FieldKey(inner, ..)
        | ExprKind::BuildWire(_, inner)
        | ExprKind::IsOf(inner, _)
        | ExprKind::DictGet(_, inner)
        | ExprKind::DictHas(_, inner)
        | ExprKind::VariantBuild(_, _, Some(inner)) => vec![inner],
        ExprKind::Binary(_, a, b)
        | ExprKind::Index(a, b)
        | ExprKind::ListGet(a, b)
        | ExprKind::ByteAt(a, b)
        | ExprKind::DictPut(_, a, b)
        | ExprKind::Send { message: a, channel: b } => vec![a, b],
        ExprKind::WithKey(record, _, _, value) => {
            [record.as_ref()].into_iter().chain(value.iter().map(Box::as_ref)).collect()
        }
        ExprKind::Slice(value, start, end) => {
            let ends = start.iter().chain(end).map(Box::as_ref);
            [value.as_ref()].into_iter().chain(ends).collect()
        }
        ExprKind::Call(_, all)
        | ExprKind::Builtin(_, all)
        | ExprKind::Tuple(all)
        | ExprKind::StructBuild(_, all)
        | ExprKind::List(all)
        | ExprKind::Concat(all) => all.iter().collect(),
        ExprKind::With(record, fields) => {
            [record.as_ref()].into_iter().chain(fields.iter().map(|(_, value)| value)).collect()
        }
        ExprKind::StructWith(record, fields) => {
            [record.as_ref()].into_iter().chain(fields.iter().map(|(_, value)| value)).collect()
        }
        ExprKind::Build(_, fields) => fields.iter().map(|(_, value)| value).collect(),
        _ => Vec::new(),
    }
}

fn walk_source<'e>(source: &'e Source, visit: &mut dyn FnMut(&'e Expr)) {
    match source {
        Source::List(expr) | Source::Channels(expr) => walk_expr(expr, visit),
        Source::Range { lo, hi, .. } => {
            walk_expr(lo, visit);
            walk_expr(hi, visit);
        }
    }
}

fn walk_asks<'e>(asks: &'e AskAll, visit: &mut dyn FnMut(&'e Expr)) {
    match asks {
        AskAll::Array { channels, message } => {
            walk_expr(channels, visit);
            walk_expr(message, visit);
        }
        AskAll::Each(pairs) => {
            for (channel, message) in pairs {
                walk_expr(channel, visit);
                walk_expr(message, visit);
            }
        }
        AskAll::Over(over) => {
            walk_source(&over.source, visit);
            walk_block(&over.channel, visit);
            walk_block(&over.message, visit);
        }
    }
}

/// Calls `visit` on every expression in a block.
pub fn walk_block<'e>(block: &'e Block, visit: &mut dyn FnMut(&'e Expr)) {
    for stmt in &block.stmts {
        match stmt {
            Stmt::Let(_, expr) | Stmt::LetTuple(_, expr) | Stmt::Assign(_, expr) | Stmt::Expr(expr) => {
                walk_expr(expr, visit);
            }
        }
    }
    if let Some(value) = &block.value {
        walk_expr(value, visit);
    }
}

/// Calls `visit` on every expression of a program's code, grammars left out.
pub fn walk_program<'e>(program: &'e Program, visit: &mut dyn FnMut(&'e Expr)) {
    program.funs.iter().for_each(|fun| walk_block(&fun.body, visit));
    program.states.iter().for_each(|state| walk_expr(&state.init, visit));
    let Some(process) = &program.process else { return };
    process.rules.iter().for_each(|rule| walk_block(&rule.body, visit));
    process.handlers.iter().for_each(|handler| walk_block(&handler.body, visit));
    process.timers.iter().for_each(|timer| walk_block(&timer.body, visit));
    for merge in &process.merges {
        walk_expr(&merge.key, visit);
        walk_block(&merge.body, visit);
        walk_block(&merge.finish.body, visit);
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
        ExprKind::SelfKey(list, key) => keys.push(Key::At(list, key)),
        _ => {}
    });
    keys
}

/// Whether a block assigns to a `local` of the session.
pub fn assigns(block: &Block) -> bool {
    let in_stmts = |block: &Block| block.stmts.iter().any(|stmt| matches!(stmt, Stmt::Assign(..)));
    let mut found = in_stmts(block);
    walk_block(block, &mut |expr| found |= blocks_of(expr).into_iter().any(in_stmts));
    found
}

/// The blocks of an expression.
fn blocks_of(expr: &Expr) -> Vec<&Block> {
    match &expr.kind {
        ExprKind::If { then, otherwise, .. } => [then].into_iter().chain(otherwise).collect(),
        ExprKind::Switch { arms, otherwise, .. } => arms.iter().map(|arm| &arm.1).chain(otherwise).collect(),
        ExprKind::Match { arms, otherwise, .. } => arms.iter().map(|arm| &arm.2).chain(otherwise).collect(),
        ExprKind::OrElse(_, body)
        | ExprKind::DictUpdate { body, .. }
        | ExprKind::For { body, .. }
        | ExprKind::MapList { body, .. }
        | ExprKind::Filter { body, .. }
        | ExprKind::Fold { body, .. } => vec![body],
        ExprKind::Ask { otherwise, .. } => otherwise.iter().collect(),
        _ => Vec::new(),
    }
}
