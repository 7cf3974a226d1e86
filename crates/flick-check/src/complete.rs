//! The last look at a program without errors: every value has a type.
//! Promises: no type of an accepted program has an unknown part. What gets here unknown is a `none` or `[]` that nothing
//! says more about.

use crate::diagnostic::Sink;
use crate::expr::has_part;
use crate::hir::{Block, Fun, Proc, Span, Ty};
use crate::report;
use crate::walk;

/// Reports the first value of each body whose type is not known.
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
        // The innermost one is what the others got it from.
        if has_part(&expr.ty, &|part| *part == Ty::Unknown) {
            found = Some(expr.span.clone());
        }
    });
    if let Some(span) = found {
        sink.push(report::values::open_type(span));
    }
}
