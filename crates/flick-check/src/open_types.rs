//! Reports values whose type inference left open.
//! Promises: no type of an accepted program contains an unknown part. What is unknown here is a `none` or `[]` whose
//! context does not determine its type.

use crate::diagnostic::Sink;
use crate::hir::{Block, Fun, Proc, Span, Ty};
use crate::report;
use crate::ty::has_part;
use crate::walk;

/// Reports the first value of each body whose type is unknown.
pub(crate) fn check(funs: &[Fun], process: Option<&Proc>, sink: &mut Sink) {
    if sink.has_errors() {
        return;
    }
    let rules = process.iter().flat_map(|process| process.rules.iter().map(|rule| &rule.body));
    let merges = process
        .iter()
        .flat_map(|process| process.merges.iter().flat_map(|merge| [&merge.body, &merge.finish.body]));
    let handlers = process.iter().flat_map(|process| process.handlers.iter().map(|handler| &handler.body));
    let timers = process.iter().flat_map(|process| process.timers.iter().map(|timer| &timer.body));
    let bodies = funs.iter().map(|fun| &fun.body).chain(rules).chain(merges).chain(handlers).chain(timers);
    bodies.for_each(|body| first_unknown(body, sink));
}

fn first_unknown(body: &Block, sink: &mut Sink) {
    let mut found: Option<Span> = None;
    walk::block(body, &mut |expr| {
        // The innermost value is the cause of the others.
        if has_part(&expr.ty, &|part| *part == Ty::Unknown) {
            found = Some(expr.span.clone());
        }
    });
    if let Some(span) = found {
        sink.push(report::values::open_type(span));
    }
}
