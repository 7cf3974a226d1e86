//! How much one message may cost: sends and steps, at most.
//! Promises: the figures hold for every path through a rule; they saturate, never wrap.
//! Not here: bytes of memory (`usage.rs`); exact costs of instructions, which the bounds report counts on the compiled form.

use crate::diagnostic::Sink;
use crate::hir::{Block, Builtin, Expr, ExprKind, Fun, Proc, Stmt, Ty};
use crate::limits::{RULE_SIZE_MAX, WORK_STEPS_MAX};
use crate::report;
use crate::walk::{self, Child};
use flick_abi::limits::SENDS_MAX;

/// Most sends and most steps of a piece of code, and how large it is with everything it calls.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Cost {
    sends: u64,
    steps: u64,
    size: u64,
}

impl Cost {
    fn then(self, other: Cost) -> Cost {
        Cost {
            sends: self.sends.saturating_add(other.sends),
            steps: self.steps.saturating_add(other.steps),
            size: self.size.saturating_add(other.size),
        }
    }

    fn or(self, other: Cost) -> Cost {
        Cost {
            sends: self.sends.max(other.sends),
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
    for rule in process.iter().flat_map(|process| &process.rules) {
        let cost = block(&rule.body, &known);
        if cost.sends > SENDS_MAX as u64 {
            sink.push(report::bounds::too_many_sends(rule.span.clone(), cost.sends, SENDS_MAX));
        }
        let worst = || {
            let (fun, _) = funs.iter().zip(&known).max_by_key(|(_, cost)| cost.size)?;
            Some((fun.span.clone(), fun.name.clone()))
        };
        if cost.steps > WORK_STEPS_MAX {
            sink.push(report::bounds::too_much_work(rule.span.clone(), cost.steps, WORK_STEPS_MAX, worst()));
        } else if cost.size > RULE_SIZE_MAX {
            sink.push(report::bounds::too_large(rule.span.clone(), cost.size, RULE_SIZE_MAX, worst()));
        }
    }
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
    let own = Cost { sends: 0, steps: 1u64.saturating_add(bytes_touched(root)), size: 1 };
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
                .then(Cost { sends: 0, steps: patterns, size: patterns })
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
