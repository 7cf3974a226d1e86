//! Loops: `for`, `fold`, `map`, `filter`, and what they iterate over.
//! Promises: the maximum number of iterations is known; an accumulator has one type before and after every iteration.

use flick_syntax::ast;

use super::{Expectation, Exprs, adapt, unknown};
use crate::hir::{AskOver, Block, Expr, ExprKind, LocalId, LoopSource, Span, Stmt, Ty};
use crate::limits::{LOOP_NESTING_MAX, TRIALS_MAX, TRIPS_MAX, WRITTEN_BYTES_MAX};
use crate::range::{INT, Range, range_of};
use crate::ty::{has_part, is_open, join, widen};
use crate::{report, types};
use flick_abi::limits::{ASKS_MAX, CHANNEL_ELEMENTS_MAX};

/// Iterations of a `fold` that are checked one by one.
const FIRST_ITERATIONS: usize = 3;

/// Source of a loop, its element type and its bound.
struct Visited {
    source: LoopSource,
    elem: Ty,
    /// Maximum number of iterations.
    max: u32,
}

impl Exprs<'_> {
    /// `for x in source: block`.
    pub(crate) fn for_stmt(&mut self, stmt: &ast::ForStmt, span: Span) -> Expr {
        let visited = self.source(stmt.iterable(), &span);
        let (local, (body, ..)) = self.each(stmt.name(), &visited, &span, |exprs| match stmt.body() {
            Some(body) => exprs.block(&body, Expectation::NoValue),
            None => (Block::default(), Ty::Unknown, span.clone()),
        });
        let Some(visited) = visited else { return Expr { ty: Ty::Nothing, ..unknown(span) } };
        Expr { kind: ExprKind::For { local, source: Box::new(visited.source), body }, ty: Ty::Nothing, span }
    }

    /// `map x in source: block`.
    pub(super) fn map_each(&mut self, map: &ast::MapEachExpr, wanted: Expectation<'_>, span: Span) -> Expr {
        let expected = match wanted.ty() {
            Some(Ty::List { elem, .. }) => Some((**elem).clone()),
            _ => None,
        };
        let visited = self.source(map.iterable(), &span);
        let (local, (mut body, ty, location)) = self.each(map.name(), &visited, &span, |exprs| {
            exprs.value_body(map.body(), expected.as_ref(), &span)
        });
        let Some(visited) = visited else { return unknown(span) };
        if ty == Ty::Unknown || !self.is_element(&ty, &location) {
            return unknown(span);
        }
        if let (Some(expected), Some(value)) = (&expected, &mut body.value)
            && join(&ty, expected).is_some()
        {
            adapt(value, expected);
        }
        let elem = body.value.as_ref().map_or(ty, |value| value.ty.clone());
        let ty = self.list_of(elem, visited.max, &span);
        Expr { kind: ExprKind::MapList { local, source: Box::new(visited.source), body }, ty, span }
    }

    /// The requests of `ask all [x in source: channel with message]`; `None` if the source was reported.
    pub(crate) fn ask_over(
        &mut self,
        ask: &ast::AskAllExpr,
        span: &Span,
        request: impl FnOnce(&mut Self) -> (Expr, Expr),
    ) -> Option<AskOver> {
        let visited = self.source(ask.each_of(), span);
        let only = |value| Block { stmts: Vec::new(), value: Some(Box::new(value)) };
        let mut channel = Block::default();
        let (local, (message, ..)) = self.each(ask.each_name(), &visited, span, |exprs| {
            let (asked, message) = request(exprs);
            channel = only(asked);
            (only(message), Ty::Unknown, span.clone())
        });
        let Visited { source, max, .. } = visited?;
        let max = if matches!(source, LoopSource::Channels(_)) { ASKS_MAX as u32 } else { max };
        channel.value.is_some().then_some(AskOver { local, source, max, channel, message })
    }

    /// `filter x in source: block`.
    pub(super) fn filter(&mut self, filter: &ast::FilterExpr, span: Span) -> Expr {
        let visited = self.source(filter.iterable(), &span);
        let (local, (body, ty, location)) = self.each(filter.name(), &visited, &span, |exprs| {
            exprs.value_body(filter.body(), Some(&Ty::Bool), &span)
        });
        if !matches!(ty, Ty::Bool | Ty::Unknown) {
            let found = self.items.describe(&ty);
            let help =
                "the body of a `filter` is a condition for keeping the element: `filter x in xs: x > 0`";
            self.sink.push(report::types::condition(location, &found, help));
        }
        let Some(visited) = visited else { return unknown(span) };
        if matches!(visited.source, LoopSource::Channels(_)) {
            self.sink.push(report::values::filter_of_channels(span.clone()));
            return unknown(span);
        }
        let ty = self.list_of(visited.elem, visited.max, &span);
        Expr { kind: ExprKind::Filter { local, source: Box::new(visited.source), body }, ty, span }
    }

    /// The type of a list of `max` elements; one that is too large is reported.
    fn list_of(&mut self, elem: Ty, max: u32, span: &Span) -> Ty {
        let largest = types::longest_list(self.items, &elem);
        if max > largest {
            let spelled = self.items.spell(&elem);
            self.sink.push(report::values::list_too_large(span.clone(), &spelled, max, largest));
        }
        Ty::List { elem: Box::new(elem), max: max.clamp(1, largest) }
    }

    /// `fold x in source, acc = init: block`.
    pub(super) fn fold(&mut self, fold: &ast::FoldExpr, wanted: Expectation<'_>, span: Span) -> Expr {
        let visited = self.source(fold.iterable(), &span);
        let mut init = match (fold.start(), wanted.ty()) {
            (Some(start), Some(expected)) => self.expr_like(&start, expected),
            (start, _) => self.opt_expr(start, &span),
        };
        if let Some(expected) = wanted.ty()
            && join(&init.ty, expected).is_some()
        {
            adapt(&mut init, expected);
        }
        let mut init = self.accumulator(init);
        let expected = wanted.ty().and_then(|expected| join(&widen(&init.ty), expected));
        let mut acc_ty = expected.unwrap_or_else(|| widen(&init.ty));
        if is_open(&acc_ty) {
            // The type after one iteration may be less open.
            let round = self.trial_of(fold, &visited, &acc_ty, &span);
            acc_ty = round.and_then(|round| join(&acc_ty, &widen(&round))).unwrap_or(acc_ty);
            super::adapt(&mut init, &acc_ty);
        }
        if is_open(&acc_ty) {
            self.sink.push(report::values::open_accumulator(init.span.clone()));
            acc_ty = Ty::Unknown;
        }
        if has_part(&acc_ty, &|part| matches!(part, Ty::Bytes { .. })) {
            acc_ty = self.fixed_point_type(fold, &visited, acc_ty, wanted.ty(), &span);
        }
        let (local, acc, (mut body, ty, location)) = self.fold_body(fold, &visited, &acc_ty, &span);
        let Some(visited) = visited else { return unknown(span) };
        if ty == Ty::Nothing {
            self.sink.push(report::types::no_value(location, "the body of this `fold`"));
        } else if join(&ty, &acc_ty).is_none() {
            let (wanted, found) = (self.items.describe(&acc_ty), self.items.describe(&ty));
            let report = report::values::accumulator_differs(location, &wanted, init.span.clone(), &found);
            self.sink.push(report);
        } else if let Some(value) = body.value.take() {
            let name =
                fold.accumulator().map_or("the accumulator".to_owned(), |name| format!("`{}`", name.text()));
            let fits_but_for_length = longer_text(&value.ty, &acc_ty);
            let value = match fits_but_for_length {
                Some((found, allowed)) => {
                    self.sink.push(report::values::accumulator_grows(
                        value.span.clone(),
                        &name,
                        found,
                        allowed,
                    ));
                    *value
                }
                None => self.coerce(*value, &acc_ty, &name, Some(init.span.clone())),
            };
            body.value = Some(Box::new(value));
        }
        let init = Box::new(self.coerce(init, &acc_ty, "the accumulator", None));
        let kind = ExprKind::Fold { local, source: Box::new(visited.source), acc, init, body };
        Expr { kind, ty: acc_ty, span }
    }

    /// Rejects an initial value that cannot be an accumulator.
    fn accumulator(&mut self, init: Expr) -> Expr {
        let init = self.part(init, "an accumulator");
        if has_part(&init.ty, &|part| matches!(part, Ty::Record(_))) {
            let found = self.items.describe(&init.ty);
            self.sink.push(report::values::message_accumulator(init.span.clone(), &found));
            return unknown(init.span);
        }
        init
    }

    /// A bound of the strings of the accumulator that no iteration exceeds: the fixed point of the iterations, or the
    /// bound that the body truncates to. `first` if there is none, or if it took too many trials to find.
    fn fixed_point_type(
        &mut self,
        fold: &ast::FoldExpr,
        visited: &Option<Visited>,
        first: Ty,
        expected: Option<&Ty>,
        span: &Span,
    ) -> Ty {
        if expected.is_some_and(|expected| join(&first, expected).as_ref() == Some(expected)) {
            return first;
        }
        let mut current = first.clone();
        for _ in 0..FIRST_ITERATIONS {
            match self.after_iteration(fold, visited, &current, span) {
                Some(next) if next == current => return current,
                Some(next) => current = next,
                None => return first,
            }
        }
        // It still grows, slowly. The fixed point is found from above.
        let longest = with_text_bounds(&first, WRITTEN_BYTES_MAX - 1);
        match self.after_iteration(fold, visited, &longest, span) {
            Some(next) if next == longest => {}
            _ => return first,
        }
        let mut bound = text_bound(&current).next_power_of_two();
        while bound < WRITTEN_BYTES_MAX {
            let tried = with_text_bounds(&first, bound);
            match self.after_iteration(fold, visited, &tried, span) {
                Some(next) if next == tried => {
                    let ended = self.trial_of(fold, visited, &tried, span);
                    return ended.and_then(|ended| join(&first, &widen(&ended))).unwrap_or(tried);
                }
                Some(_) => bound *= 2,
                None => return first,
            }
        }
        first
    }

    /// The type of the accumulator after an iteration that began with `before`, including `before`.
    fn after_iteration(
        &mut self,
        fold: &ast::FoldExpr,
        visited: &Option<Visited>,
        before: &Ty,
        span: &Span,
    ) -> Option<Ty> {
        let ty = self.trial_of(fold, visited, before, span)?;
        join(before, &ty).map(|both| widen(&both)).filter(|both| matches_kind(both, before))
    }

    /// The type of the body for an iteration that began with `before`; `None` if it is not known or too many were
    /// tried.
    fn trial_of(
        &mut self,
        fold: &ast::FoldExpr,
        visited: &Option<Visited>,
        before: &Ty,
        span: &Span,
    ) -> Option<Ty> {
        self.trials += 1;
        if self.trials > TRIALS_MAX {
            return None;
        }
        let ty = self.trial(|exprs| exprs.fold_body(fold, visited, before, span).2.1);
        (!matches!(ty, Ty::Nothing | Ty::Unknown)).then_some(ty)
    }

    /// Checks without side effects on the scope and the diagnostics.
    fn trial<T>(&mut self, check: impl FnOnce(&mut Self) -> T) -> T {
        let (sink, scope) = (std::mem::take(self.sink), self.scope.clone());
        let found = check(self);
        (*self.sink, self.scope) = (sink, scope);
        found
    }

    fn fold_body(
        &mut self,
        fold: &ast::FoldExpr,
        visited: &Option<Visited>,
        acc_ty: &Ty,
        span: &Span,
    ) -> (LocalId, LocalId, (Block, Ty, Span)) {
        let mut acc = LocalId(0);
        let (local, body) = self.each(fold.name(), visited, span, |exprs| {
            acc = match fold.accumulator() {
                Some(name) => {
                    let location = exprs.span(name.range());
                    exprs.scope.declare(name.text(), acc_ty.clone(), location, exprs.sink)
                }
                None => exprs.scope.hidden("", acc_ty.clone(), span.clone()),
            };
            exprs.value_body(fold.body(), Some(acc_ty), span)
        });
        (local, acc, body)
    }

    fn value_body(
        &mut self,
        body: Option<ast::Block>,
        expected: Option<&Ty>,
        span: &Span,
    ) -> (Block, Ty, Span) {
        let Some(body) = body else { return (Block::default(), Ty::Unknown, span.clone()) };
        let (block, ty, location) =
            self.block(&body, expected.map_or(Expectation::Value, Expectation::HasType));
        if ty == Ty::Nothing {
            self.sink.push(report::types::no_value(location.clone(), "this body"));
            return (block, Ty::Unknown, location);
        }
        (block, ty, location)
    }

    /// Opens a scope with the element of a loop and checks its body.
    fn each(
        &mut self,
        name: Option<ast::Name>,
        visited: &Option<Visited>,
        span: &Span,
        body: impl FnOnce(&mut Self) -> (Block, Ty, Span),
    ) -> (LocalId, (Block, Ty, Span)) {
        let mark = self.scope.open();
        let elem = visited.as_ref().map_or(Ty::Unknown, |visited| visited.elem.clone());
        let local = match name {
            Some(name) => {
                let location = self.span(name.range());
                self.scope.declare(name.text(), elem, location, self.sink)
            }
            None => self.scope.hidden("", elem, span.clone()),
        };
        self.loop_depth += 1;
        let checked = if self.loop_depth > LOOP_NESTING_MAX {
            self.sink.push(report::values::loops_too_deep(span.clone(), LOOP_NESTING_MAX));
            (Block::default(), Ty::Unknown, span.clone())
        } else {
            body(self)
        };
        self.loop_depth -= 1;
        self.scope.close(mark);
        (local, checked)
    }

    /// Checks what a loop iterates over; `None` if it was reported.
    fn source(&mut self, source: Option<ast::Expr>, around: &Span) -> Option<Visited> {
        if let Some(ast::Expr::Range(range)) = &source {
            let span = self.span(range.range());
            return self.range_source(range, span);
        }
        let value = self.opt_expr(source, around);
        let location = value.span.clone();
        match value.ty.clone() {
            Ty::List { elem, max } => Some(Visited { source: LoopSource::List(value), elem: *elem, max }),
            Ty::ChanArray { receives, sends } => Some(Visited {
                source: LoopSource::Channels(value),
                elem: Ty::Chan { receives, sends },
                max: CHANNEL_ELEMENTS_MAX as u32,
            }),
            Ty::Unknown => None,
            other => {
                let found = self.items.describe(&other);
                let help = match other {
                    Ty::Int { .. } => "to iterate n times, write `for i in 0..n:`",
                    Ty::Bytes { .. } => {
                        "iterate over its parts, `split(text, \",\", 16)`, or its indices, `0..len(text)`"
                    }
                    Ty::Dict(_) => "look up an entry by key; store what you need to iterate over in a list",
                    Ty::Option(_) => {
                        "unwrap the option first: `switch ...:` with the cases `some x:` and `none:`"
                    }
                    Ty::Tuple(_) => "name its elements: `let (a, b) = pair`",
                    Ty::Record(_) => "iterate over a list in it, `for x in m.items:`",
                    Ty::Duration | Ty::Time => "iterate over a range of integers: `for i in 0..10:`",
                    Ty::Chan { .. } => "iterate over an array of channels, `[cmd/cmd] backends`",
                    _ => "iterate over a list, a range `a..b` or an array of channels",
                };
                self.sink.push(report::values::not_iterable(location, &found, help));
                None
            }
        }
    }

    fn range_source(&mut self, range: &ast::RangeExpr, span: Span) -> Option<Visited> {
        let mut end = |end: Option<ast::Expr>| {
            let value = self.opt_expr(end, &span);
            self.coerce(value, &INT.ty(), "an end of the range", None)
        };
        let (lo, hi) = (end(range.start()), end(range.end()));
        let (from, to) = (range_of(&lo.ty)?, range_of(&hi.ty)?);
        let trips = (to.hi - from.lo).max(0);
        if trips > i128::from(TRIPS_MAX) {
            self.sink.push(report::values::range_without_bound(span, trips, TRIPS_MAX));
            return None;
        }
        let elem = Range { lo: from.lo, hi: (to.hi - 1).max(from.lo) };
        let trips_max = trips as u32;
        Some(Visited { source: LoopSource::Range { lo, hi, trips_max }, elem: elem.ty(), max: trips_max })
    }

    /// Reports a range outside a loop or slice.
    pub(super) fn bare_range(&mut self, range: &ast::RangeExpr, span: Span) -> Expr {
        for end in [range.start(), range.end()].into_iter().flatten() {
            self.expr(&end);
        }
        self.sink.push(report::values::bare_range(span.clone()));
        unknown(span)
    }

    /// Adds a `let` with several names.
    pub(crate) fn let_parts(
        &mut self,
        parts: &[ast::Binding],
        value: Expr,
        span: &Span,
        out: &mut Vec<Stmt>,
    ) {
        let ty = value.ty.clone();
        if let Some(locals) = self.declare_parts(parts, &ty, span) {
            out.push(Stmt::LetTuple(locals, value));
        }
    }
}

/// Whether two types differ in bounds only; an option differs from its value type.
fn matches_kind(a: &Ty, b: &Ty) -> bool {
    matches!(a, Ty::Option(_)) == matches!(b, Ty::Option(_))
}

/// The type with another bound for all its strings and bytes.
fn with_text_bounds(ty: &Ty, max: u32) -> Ty {
    match ty {
        Ty::Bytes { text, .. } => Ty::Bytes { max, text: *text },
        Ty::Option(inner) => Ty::Option(Box::new(with_text_bounds(inner, max))),
        Ty::Tuple(parts) => Ty::Tuple(parts.iter().map(|part| with_text_bounds(part, max)).collect()),
        other => other.clone(),
    }
}

/// The largest bound of a string in `ty`.
fn text_bound(ty: &Ty) -> u32 {
    match ty {
        Ty::Bytes { max, .. } => *max,
        Ty::Option(inner) => text_bound(inner),
        Ty::Tuple(parts) => parts.iter().map(text_bound).max().unwrap_or(0),
        _ => 0,
    }
}

/// The first string of `found` that may be longer than that of `allowed`, with both bounds.
fn longer_text(found: &Ty, allowed: &Ty) -> Option<(u32, u32)> {
    match (found, allowed) {
        (Ty::Bytes { max, text }, Ty::Bytes { max: allowed, text: same }) if text == same => {
            (max > allowed).then_some((*max, *allowed))
        }
        (Ty::Option(found), Ty::Option(allowed)) => longer_text(found, allowed),
        (plain, Ty::Option(allowed)) => longer_text(plain, allowed),
        (Ty::Tuple(found), Ty::Tuple(allowed)) => {
            found.iter().zip(allowed).find_map(|(found, allowed)| longer_text(found, allowed))
        }
        _ => None,
    }
}
