//! How much one message may cost: sends and steps, at most.
//! Promises: the figures hold for every path through a rule; they saturate, never wrap.
//! Not here: bytes of memory (`usage.rs`); exact costs of instructions, which the bounds report counts on the compiled form.

use crate::diagnostic::Sink;
use crate::hir::{AskAll, Block, Builtin, Expr, ExprKind, Fun, Proc, Span, Stmt, Ty};
use crate::limits::{ASKED_MAX, RULE_SIZE_MAX, WORK_STEPS_MAX};
use crate::report;
use crate::walk::{self, Child};
use flick_abi::limits::SENDS_MAX;

/// Most sends and most steps of a piece of code, and how large it is with everything it calls.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Cost {
    sends: u64,
    /// Messages asked for, each element of an `ask all` on an array left out but one.
    asks: u64,
    steps: u64,
    size: u64,
}

impl Cost {
    fn then(self, other: Cost) -> Cost {
        Cost {
            sends: self.sends.saturating_add(other.sends),
            asks: self.asks.saturating_add(other.asks),
            steps: self.steps.saturating_add(other.steps),
            size: self.size.saturating_add(other.size),
        }
    }

    fn or(self, other: Cost) -> Cost {
        Cost {
            sends: self.sends.max(other.sends),
            asks: self.asks.max(other.asks),
            steps: self.steps.max(other.steps),
            size: self.size.saturating_add(other.size),
        }
    }
}

/// Refuses rules that send or work too much.
pub(crate) fn check(funs: &[Fun], process: &Option<Proc>, sink: &mut Sink) {
    let mut known: Vec<Cost> = Vec::new();
    for fun in funs {
        let cost = block(&fun.body, &known);
        known.push(cost);
    }
    for (span, body) in process.iter().flat_map(bodies) {
        let cost = block(body, &known);
        if cost.sends > SENDS_MAX as u64 {
            sink.push(report::bounds::too_many_sends(span.clone(), cost.sends, SENDS_MAX));
        }
        if cost.asks > ASKED_MAX {
            sink.push(report::asks::too_many_asks(span.clone(), cost.asks, ASKED_MAX));
        }
        let worst = || {
            let (fun, _) = funs.iter().zip(&known).max_by_key(|(_, cost)| cost.size)?;
            Some((fun.span.clone(), fun.name.clone()))
        };
        if cost.steps > WORK_STEPS_MAX {
            sink.push(report::bounds::too_much_work(span.clone(), cost.steps, WORK_STEPS_MAX, worst()));
        } else if cost.size > RULE_SIZE_MAX {
            sink.push(report::bounds::too_large(span.clone(), cost.size, RULE_SIZE_MAX, worst()));
        }
    }
}

/// Everything that runs by itself, with its place.
fn bodies(process: &Proc) -> impl Iterator<Item = (&Span, &Block)> {
    let rules = process.rules.iter().map(|rule| (&rule.span, &rule.body));
    let merges = process.merges.iter();
    let merges =
        merges.flat_map(|merge| [(&merge.span, &merge.body), (&merge.finish.span, &merge.finish.body)]);
    let handlers = process.handlers.iter().map(|handler| (&handler.span, &handler.body));
    let timers = process.timers.iter().map(|timer| (&timer.span, &timer.body));
    rules.chain(merges).chain(handlers).chain(timers)
}

fn block(block: &Block, known: &[Cost]) -> Cost {
    let mut total = Cost::default();
    for stmt in &block.stmts {
        match stmt {
            Stmt::Let(_, value) | Stmt::LetTuple(_, value) | Stmt::Assign(_, value) | Stmt::Expr(value) => {
                total = total.then(expr(value, known))
            }
        }
    }
    block.value.iter().fold(total, |total, value| total.then(expr(value, known)))
}

fn expr(root: &Expr, known: &[Cost]) -> Cost {
    let own = Cost { sends: 0, asks: 0, steps: 1u64.saturating_add(bytes_touched(root)), size: 1 };
    match &root.kind {
        ExprKind::If { cond, then, otherwise } => {
            let other = otherwise.as_ref().map_or(Cost::default(), |other| block(other, known));
            own.then(expr(cond, known)).then(block(then, known).or(other))
        }
        ExprKind::Switch { value, arms, otherwise } => {
            let mut branches = otherwise.as_ref().map_or(Cost::default(), |other| block(other, known));
            let mut patterns = 0u64;
            for (alternatives, body) in arms {
                patterns = patterns.saturating_add(alternatives.len() as u64);
                branches = branches.or(block(body, known));
            }
            own.then(expr(value, known))
                .then(Cost { sends: 0, asks: 0, steps: patterns, size: patterns })
                .then(branches)
        }
        kind => {
            let mut total = own;
            walk::children(root, &mut |child| match child {
                Child::Expr(child) => total = total.then(expr(child, known)),
                Child::Block(child) => total = total.then(block(child, known)),
            });
            match kind {
                ExprKind::Send { .. } => total.then(Cost { sends: 1, ..Cost::default() }),
                ExprKind::Ask { .. } | ExprKind::AskAll { asks: AskAll::Array { .. }, .. } => {
                    total.then(Cost { asks: 1, ..Cost::default() })
                }
                ExprKind::AskAll { asks: AskAll::Each(each), .. } => {
                    total.then(Cost { asks: each.len() as u64, ..Cost::default() })
                }
                ExprKind::Call(fun, _) => total.then(known.get(fun.0 as usize).copied().unwrap_or_default()),
                _ => total,
            }
        }
    }
}

/// Bytes that an operation looks at or copies itself, at most.
fn bytes_touched(root: &Expr) -> u64 {
    let longest = |expr: &Expr| match expr.ty {
        Ty::Bytes { max, .. } => u64::from(max),
        _ => 0,
    };
    match &root.kind {
        ExprKind::Builtin(Builtin::Contains, args) => args.iter().map(longest).fold(1, u64::saturating_mul),
        ExprKind::Builtin(Builtin::Len, _) => 0,
        ExprKind::Builtin(_, args) => args.iter().map(longest).sum(),
        ExprKind::Binary(_, a, b) => longest(a).min(longest(b)),
        ExprKind::Switch { value, arms, .. } => longest(value).saturating_mul(arms.len() as u64),
        ExprKind::With(_, fields) | ExprKind::Build(_, fields) => {
            fields.iter().map(|(_, value)| longest(value)).sum()
        }
        _ => 0,
    }
}
