//! Upper bounds of what one message may cost: sends, asks, memory, code size.
//! Promises: the bounds hold for every path through a rule; arithmetic saturates and never wraps.
//! Not here: sizes of messages (`usage.rs`); work, which is bounded in the lowered code (`flick_ir::bounds`).

use std::collections::BTreeSet;

use crate::diagnostic::Sink;
use crate::effects::is_capacity_check;
use crate::hir::{
    AskAll, Block, Builtin, Expr, ExprKind, FieldId, FieldKind, Fun, LoopSource, Proc, Span, Stmt, Ty,
};
use crate::items::Items;
use crate::layout::layout;
use crate::limits::{ASKS_PER_MESSAGE_MAX, RULE_SIZE_MAX, UPDATE_BYTES_MAX, VINT_BYTES_MAX, WORD_BYTES};
use crate::report;
use crate::walk::{self, Child};
use flick_abi::limits::{BUILT_BYTES_MAX, CHANNEL_ELEMENTS_MAX, DICT_ATTEMPTS_MAX, SENDS_MAX};

/// Most runs of the body of an `update`.
const UPDATE_ATTEMPTS: u64 = DICT_ATTEMPTS_MAX as u64;

/// Upper bounds of a piece of code, with everything it calls.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Cost {
    sends: u64,
    /// Messages asked for; an `ask all` on an array counts as one.
    asks: u64,
    /// Bytes of strings and lists that are built.
    built: u64,
    size: u64,
}

impl Cost {
    fn then(self, other: Cost) -> Cost {
        Cost {
            sends: self.sends.saturating_add(other.sends),
            asks: self.asks.saturating_add(other.asks),
            built: self.built.saturating_add(other.built),
            size: self.size.saturating_add(other.size),
        }
    }

    fn or(self, other: Cost) -> Cost {
        Cost {
            sends: self.sends.max(other.sends),
            asks: self.asks.max(other.asks),
            built: self.built.max(other.built),
            size: self.size.saturating_add(other.size),
        }
    }

    /// The same code in every iteration of a loop.
    fn times(self, rounds: u64) -> Cost {
        Cost {
            sends: self.sends.saturating_mul(rounds),
            asks: self.asks.saturating_mul(rounds),
            built: self.built.saturating_mul(rounds),
            size: self.size,
        }
    }

    /// The same code as the first branch of `if room():`.
    fn in_capacity_check(self) -> Cost {
        Cost { built: 0, ..self }
    }
}

/// The tables that costs are computed from.
struct Costs<'a> {
    items: &'a Items,
    /// By unit: bytes that are built to send one message; none if the program does not change or build such messages.
    rebuilt: Vec<u64>,
    /// Costs of functions, by number; callees come first.
    known: Vec<Cost>,
}

/// Rejects rules that may send, ask or build too much, or are too large.
pub(crate) fn check(funs: &[Fun], process: &Option<Proc>, items: &Items, sink: &mut Sink) {
    let rebuilt = rebuilt(funs, process, items);
    let mut costs = Costs { items, rebuilt, known: Vec::new() };
    for fun in funs {
        let cost = costs.block(&fun.body);
        costs.known.push(cost);
    }
    for (span, body) in process.iter().flat_map(bodies) {
        let cost = costs.block(body);
        if cost.sends > SENDS_MAX as u64 {
            sink.push(report::bounds::too_many_sends(span.clone(), cost.sends, SENDS_MAX));
        }
        if cost.asks > ASKS_PER_MESSAGE_MAX {
            sink.push(report::ask::too_many_asks(span.clone(), cost.asks, ASKS_PER_MESSAGE_MAX));
        }
        let worst = |weight: fn(&Cost) -> u64| {
            let (fun, _) = funs.iter().zip(&costs.known).max_by_key(|(_, cost)| weight(cost))?;
            Some((fun.span.clone(), fun.name.clone()))
        };
        if cost.size > RULE_SIZE_MAX {
            let worst = worst(|cost| cost.size);
            sink.push(report::bounds::too_large(span.clone(), cost.size, RULE_SIZE_MAX, worst));
        }
        if cost.built > BUILT_BYTES_MAX as u64 {
            let worst = worst(|cost| cost.built);
            sink.push(report::values::too_much_memory(
                span.clone(),
                cost.built,
                BUILT_BYTES_MAX as u64,
                worst,
            ));
        }
    }
}

/// Bytes to build a message of each unit: the parts around the fields that the program sets anywhere, each at most as
/// long as a head, and those values.
fn rebuilt(funs: &[Fun], process: &Option<Proc>, items: &Items) -> Vec<u64> {
    let mut written: Vec<Option<BTreeSet<FieldId>>> = vec![None; items.units.len()];
    let bodies =
        funs.iter().map(|fun| &fun.body).chain(process.iter().flat_map(bodies).map(|(_, body)| body));
    bodies.for_each(|body| {
        walk::block(body, &mut |expr| {
            if let (ExprKind::With(_, fields) | ExprKind::Build(_, fields), Ty::Record(unit)) =
                (&expr.kind, &expr.ty)
            {
                let known = written[unit.0 as usize].get_or_insert_default();
                known.extend(fields.iter().map(|(field, _)| *field));
            }
        });
    });
    let units = items.units.iter().zip(written);
    let bytes = units.map(|(unit, written)| {
        let Some(written) = written else { return 0 };
        let longest = |index: usize| match &unit.fields[index].kind {
            FieldKind::Bytes { max_bytes, .. } => Some(u64::from(max_bytes.unwrap_or(0))),
            _ => None,
        };
        // A streamed field may be set in a message that is built.
        let given = |field: &FieldId| match &unit.fields[field.0 as usize].kind {
            FieldKind::Bytes { max_bytes: None, length, .. } if unit.body.is_none() => {
                Some(u64::from(crate::units::longest(length, None)))
            }
            _ => longest(field.0 as usize),
        };
        let texts: Vec<u64> = written.iter().filter_map(given).collect();
        let numbers = unit.fields.len() as u64 * VINT_BYTES_MAX;
        let head = (0..unit.fields.len()).filter_map(longest).sum::<u64>() + numbers;
        head.saturating_mul(texts.len() as u64 + 1).saturating_add(texts.iter().sum()).saturating_add(numbers)
    });
    bytes.collect()
}

/// The bodies of rules, handlers, timers and merges, with their locations.
fn bodies(process: &Proc) -> impl Iterator<Item = (&Span, &Block)> {
    let rules = process.rules.iter().map(|rule| (&rule.span, &rule.body));
    let merges = process.merges.iter();
    let merges =
        merges.flat_map(|merge| [(&merge.span, &merge.body), (&merge.finish.span, &merge.finish.body)]);
    let handlers = process.handlers.iter().map(|handler| (&handler.span, &handler.body));
    let timers = process.timers.iter().map(|timer| (&timer.span, &timer.body));
    rules.chain(merges).chain(handlers).chain(timers)
}

impl Costs<'_> {
    fn block(&self, block: &Block) -> Cost {
        let stmts = block.stmts.iter().map(|stmt| match stmt {
            Stmt::Let(_, value) | Stmt::LetTuple(_, value) | Stmt::Expr(value) | Stmt::Assign(_, value) => {
                self.expr(value)
            }
        });
        let total = stmts.fold(Cost::default(), Cost::then);
        block.value.iter().fold(total, |total, value| total.then(self.expr(value)))
    }

    /// The maximum of several branches, and the sum of their sizes.
    fn branches<'b>(&self, blocks: impl IntoIterator<Item = &'b Block>) -> Cost {
        blocks.into_iter().fold(Cost::default(), |worst, block| worst.or(self.block(block)))
    }

    fn expr(&self, root: &Expr) -> Cost {
        let own = Cost { built: self.bytes_built(root), size: 1, ..Cost::default() };
        match &root.kind {
            ExprKind::If { cond, then, otherwise } if is_capacity_check(cond) => {
                let inside = self.block(then).in_capacity_check();
                let otherwise = otherwise.iter().fold(Cost::default(), |_, block| self.block(block));
                own.then(self.expr(cond)).then(inside.or(otherwise))
            }
            ExprKind::If { cond, then, otherwise } => {
                let branches = self.branches(std::iter::once(then).chain(otherwise));
                own.then(self.expr(cond)).then(branches)
            }
            ExprKind::Switch { value, arms, otherwise } => {
                let patterns: u64 = arms.iter().map(|(alternatives, _)| alternatives.len() as u64).sum();
                let branches = self.branches(arms.iter().map(|(_, body)| body).chain(otherwise));
                let compared = Cost { size: patterns, ..Cost::default() };
                own.then(self.expr(value)).then(compared).then(branches)
            }
            ExprKind::Field(base, field) => own.then(self.expr(base)).then(self.computed(&base.ty, *field)),
            ExprKind::Match { value, arms, otherwise } => {
                let branches = self.branches(arms.iter().map(|(_, _, body)| body).chain(otherwise));
                own.then(self.expr(value)).then(branches)
            }
            ExprKind::For { source, body, .. }
            | ExprKind::MapList { source, body, .. }
            | ExprKind::Filter { source, body, .. } => own.then(self.rounds(source, body)),
            ExprKind::Fold { source, init, body, .. } => {
                own.then(self.expr(init)).then(self.rounds(source, body))
            }
            ExprKind::DictUpdate { dict, key, body, .. } => {
                let value = packed_bytes(self.items, &self.items.dicts[dict.0 as usize].value);
                own.then(self.expr(key)).then(attempts(self.block(body), value))
            }
            ExprKind::AskAll { asks: AskAll::Over(over), timeout } => {
                let message = Cost { asks: 1, built: self.message_bytes(over.message()), ..Cost::default() };
                let each = self.block(&over.channel).then(self.block(&over.message)).then(message);
                let source = match &over.source {
                    LoopSource::List(source) | LoopSource::Channels(source) => self.expr(source),
                    LoopSource::Range { lo, hi, .. } => self.expr(lo).then(self.expr(hi)),
                };
                let timeout = timeout.as_ref().map_or(Cost::default(), |timeout| self.expr(timeout));
                own.then(source).then(timeout).then(each.times(u64::from(over.max)))
            }
            kind => {
                let mut total = own;
                walk::children(root, &mut |child| match child {
                    Child::Expr(child) => total = total.then(self.expr(child)),
                    Child::Block(child) => total = total.then(self.block(child)),
                });
                total.then(self.done(kind))
            }
        }
    }

    /// The cost of a send, ask or call without its operands.
    fn done(&self, kind: &ExprKind) -> Cost {
        match kind {
            ExprKind::Send { message, .. } => {
                Cost { sends: 1, built: self.message_bytes(message), ..Cost::default() }
            }
            ExprKind::Ask { message, .. } | ExprKind::AskAll { asks: AskAll::Array { message, .. }, .. } => {
                Cost { asks: 1, built: self.message_bytes(message), ..Cost::default() }
            }
            ExprKind::AskAll { asks: AskAll::Each(each), .. } => {
                let built = each.iter().map(|(_, message)| self.message_bytes(message)).sum();
                Cost { asks: each.len() as u64, built, ..Cost::default() }
            }
            ExprKind::Call(fun, _) => self.known.get(fun.0 as usize).copied().unwrap_or_default(),
            _ => Cost::default(),
        }
    }

    /// Bytes that are built to send a message.
    fn message_bytes(&self, message: &Expr) -> u64 {
        match message.ty {
            Ty::Record(unit) => self.rebuilt.get(unit.0 as usize).copied().unwrap_or(0),
            _ => 0,
        }
    }

    /// The source of a loop, and its body for each iteration.
    fn rounds(&self, source: &LoopSource, body: &Block) -> Cost {
        let (source, rounds) = match source {
            LoopSource::List(list) => {
                let rounds = if let Ty::List { max, .. } = list.ty { u64::from(max) } else { 0 };
                (self.expr(list), rounds)
            }
            LoopSource::Range { lo, hi, trips_max } => {
                (self.expr(lo).then(self.expr(hi)), u64::from(*trips_max))
            }
            LoopSource::Channels(array) => (self.expr(array), CHANNEL_ELEMENTS_MAX as u64),
        };
        source.then(self.block(body).times(rounds))
    }

    /// The cost of a string variable, which is computed when it is read.
    fn computed(&self, message: &Ty, field: FieldId) -> Cost {
        let Ty::Record(unit) = message else { return Cost::default() };
        match &self.items.field(*unit, field).kind {
            FieldKind::TextVar { parse, .. } => self.expr(parse),
            _ => Cost::default(),
        }
    }

    /// Bytes that an operation builds itself, at most.
    fn bytes_built(&self, root: &Expr) -> u64 {
        match &root.kind {
            ExprKind::Concat(_) => packed_bytes(self.items, &root.ty),
            ExprKind::List(_)
            | ExprKind::MapList { .. }
            | ExprKind::Filter { .. }
            | ExprKind::AskAll { .. } => self.list_bytes(&root.ty),
            ExprKind::Builtin(Builtin::Split, _) => self.list_bytes(&root.ty),
            ExprKind::Builtin(
                Builtin::Lower
                | Builtin::Upper
                | Builtin::Str
                | Builtin::Hex
                | Builtin::Peer
                | Builtin::Address,
                _,
            ) => packed_bytes(self.items, &root.ty),
            ExprKind::Builtin(
                Builtin::Wire
                | Builtin::PercentDecode
                | Builtin::PercentEncode
                | Builtin::Base64Decode
                | Builtin::Base64Encode,
                _,
            ) => inner_bytes(&root.ty),
            // The elements of a list of a message are copied as adjacent words.
            ExprKind::Field(..) => self.list_bytes(&root.ty),
            ExprKind::SessionLocal(_) => packed_bytes(self.items, &root.ty),
            ExprKind::DictGet(_, key) => {
                packed_bytes(self.items, &root.ty).saturating_add(packed_bytes(self.items, &key.ty))
            }
            // A result of several words is returned in memory.
            ExprKind::Call(..) => match self.items.words(&root.ty) {
                0 | 1 => 0,
                words => u64::from(words) * WORD_BYTES,
            },
            ExprKind::DictHas(_, key) => packed_bytes(self.items, &key.ty),
            ExprKind::DictPut(_, key, value) => {
                packed_bytes(self.items, &key.ty).saturating_add(packed_bytes(self.items, &value.ty))
            }
            ExprKind::DictUpdate { key, .. } => packed_bytes(self.items, &key.ty),
            ExprKind::Builtin(Builtin::Remove, args) => {
                args.get(1).map_or(0, |key| packed_bytes(self.items, &key.ty))
            }
            _ => 0,
        }
    }

    fn list_bytes(&self, ty: &Ty) -> u64 {
        match ty {
            Ty::List { elem, max } => u64::from(self.items.words(elem)) * u64::from(*max) * WORD_BYTES,
            _ => 0,
        }
    }
}

/// The attempts of an `update` of an entry of `value_bytes`, given the cost of one body.
fn attempts(body: Cost, value_bytes: u64) -> Cost {
    // Each attempt looks up the entry and packs a new one.
    let twice = value_bytes.saturating_mul(2);
    let attempt = body.then(Cost { built: twice, ..Cost::default() });
    // Attempts that would build too much together are not made.
    let all = attempt.times(UPDATE_ATTEMPTS);
    Cost { built: attempt.built.max(all.built.min(UPDATE_BYTES_MAX)), ..all }
}

/// Maximum length of a string or bytes, or of those in an option.
fn inner_bytes(ty: &Ty) -> u64 {
    match ty {
        Ty::Bytes { max, .. } => u64::from(*max),
        Ty::Option(inner) => inner_bytes(inner),
        _ => 0,
    }
}

/// Packed size of a value, at most; none for a type that cannot be stored.
fn packed_bytes(items: &Items, ty: &Ty) -> u64 {
    match ty {
        Ty::Bytes { max, .. } => u64::from(*max),
        _ => layout(items, ty).map_or(0, |layout| layout.packed_bytes()),
    }
}
