//! The `local`s of a process: state of a session.
//! Promises: each has a type with a bound and an initial value that is known when a session begins, and all of them
//! fit the limit together.

use flick_abi::limits::STATE_WORDS_MAX;
use flick_syntax::ast::{self, AstNode};

use crate::diagnostic::Sink;
use crate::expr::{Exprs, unknown};
use crate::hir::{Expr, ExprKind, SessionLocal, SessionLocalId, Span, Ty};
use crate::items::{InFile, Items};
use crate::layout::layout;
use crate::load::span_of;
use crate::scope::Scope;
use crate::ty::{has_part, is_open, widen};
use crate::{report, types, walk};

/// Bytes of a word.
const WORD_BYTES: u64 = 8;

/// Enters every `local` of the process.
pub(crate) fn check(process: &InFile<ast::ProcDecl>, items: &mut Items, sink: &mut Sink) {
    let mut words = 0u64;
    for stmt in process.node.body().into_iter().flat_map(|body| body.stmts()) {
        let ast::Stmt::Local(local) = stmt else { continue };
        let Some(name) = local.name() else { continue };
        let span = span_of(process.file, name.range());
        if let Some(first) = location_of(items, name.text()) {
            sink.push(report::names::duplicate(span, "local", name.text(), first));
            continue;
        }
        let (ty, init) = typed(&local, process.file, name.text(), &span, items, sink);
        match layout(items, &ty) {
            Ok(layout) => {
                let before = words;
                words = words.saturating_add(layout.state_words());
                let max = STATE_WORDS_MAX as u64;
                if words > max && before <= max {
                    let (bytes, allowed) = (words.saturating_mul(WORD_BYTES), max * WORD_BYTES);
                    sink.push(report::state::state_too_large(span.clone(), bytes, allowed));
                }
            }
            Err(part) => {
                let is_message = matches!(part.0, Ty::Record(_));
                let found = items.describe(&part.0);
                sink.push(report::state::local_type(span.clone(), name.text(), &found, is_message));
            }
        }
        let id = SessionLocalId(items.session_locals.len() as u32);
        items.state_names.insert(name.text().to_owned(), id);
        items.session_locals.push(SessionLocal { name: name.text().to_owned(), ty, init, span });
    }
}

fn location_of(items: &Items, name: &str) -> Option<Span> {
    let state = items.state_names.get(name).map(|id| items.session_locals[id.0 as usize].span.clone());
    state.or_else(|| items.globals.get(name).map(|(_, span)| span.clone()))
}

/// Returns the type and the initial value.
fn typed(
    local: &ast::LocalStmt,
    file: u32,
    name: &str,
    span: &Span,
    items: &Items,
    sink: &mut Sink,
) -> (Ty, Expr) {
    let declared = local.ty().map(|ty| types::value_type(items, &ty, file, sink));
    let Some(value) = local.value() else { return (declared.unwrap_or(Ty::Unknown), unknown(span.clone())) };
    if let Some((span, channel)) = channel_in(&value, file, items) {
        sink.push(report::state::not_constant(span.clone(), name, &format!("channel `{channel}`")));
        return (declared.unwrap_or(Ty::Unknown), unknown(span));
    }
    let mut exprs = Exprs::new(items, sink, file, Scope::default());
    let Some(ty) = declared else {
        let init = exprs.expr(&value);
        constant(&init, name, items, sink);
        let ty = widen(&init.ty);
        let example = match &ty {
            _ if is_open(&ty) => Some("option<int> := none"),
            _ if has_part(&ty, &|part| matches!(part, Ty::Bytes { text: true, .. })) => {
                Some("string<64> := \"\"")
            }
            _ if has_part(&ty, &|part| matches!(part, Ty::Bytes { .. })) => Some("bytes<64> := raw(\"\")"),
            _ => None,
        };
        if let Some(example) = example {
            sink.push(report::state::local_needs_type(span.clone(), name, example));
            return (Ty::Unknown, init);
        }
        return (ty, init);
    };
    if layout(items, &ty).is_err() {
        return (ty, unknown(span.clone()));
    }
    let init = exprs.expr_like(&value, &ty);
    let init = exprs.coerce(init, &ty, &format!("`{name}`"), local.ty().map(|ty| span_of(file, ty.range())));
    constant(&init, name, items, sink);
    (ty, init)
}

/// The first channel of the process in an initial value.
fn channel_in(value: &ast::Expr, file: u32, items: &Items) -> Option<(Span, String)> {
    let names = value.syntax().descendants().filter_map(ast::NameExpr::cast).filter_map(|name| name.name());
    let mut channels = names.filter(|name| items.channel_texts.contains_key(name.text()));
    channels.next().map(|name| (span_of(file, name.range()), name.text().to_owned()))
}

/// Reports an initial value that is not known when a session begins.
fn constant(init: &Expr, name: &str, items: &Items, sink: &mut Sink) {
    let mut found: Option<(Span, String)> = None;
    walk::expr(init, &mut |expr| {
        let what = match &expr.kind {
            ExprKind::Call(fun, _) => format!("function `{}`", items.fun(*fun).name),
            ExprKind::SessionLocal(id) => format!("`local {}`", items.session_locals[id.0 as usize].name),
            ExprKind::DictGet(dict, _)
            | ExprKind::DictHas(dict, _)
            | ExprKind::DictPut(dict, ..)
            | ExprKind::Dict(dict)
            | ExprKind::DictUpdate { dict, .. } => {
                format!("dictionary `{}`", items.dicts[dict.0 as usize].name)
            }
            ExprKind::Ask { .. } | ExprKind::AskAll { .. } => "an `ask`".to_owned(),
            ExprKind::Send { .. } => "a send".to_owned(),
            _ => return,
        };
        found.get_or_insert((expr.span.clone(), what));
    });
    if let Some((span, what)) = found {
        sink.push(report::state::not_constant(span, name, &what));
    }
}
