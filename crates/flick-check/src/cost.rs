//! How much one message may cost: sends and steps, at most.
//! Promises: the figures hold for every path through a rule; they saturate, never wrap.
//! Not here: bytes of messages (`usage.rs`); exact costs of instructions, which the bounds report counts on the compiled form.

use std::collections::BTreeSet;

use crate::diagnostic::Sink;
use crate::effects::is_room;
use crate::hir::{
    AskAll, Block, Builtin, Expr, ExprKind, FieldId, FieldKind, Fun, Proc, Source, Span, Stmt, Ty,
};
use crate::items::Items;
use crate::layout::layout;
use crate::limits::{
    ASKED_MAX, BYTES_PER_STEP, RULE_SIZE_MAX, UPDATE_BYTES_MAX, VINT_BYTES_MAX, WORD_BYTES, WORK_STEPS_MAX,
};
use crate::report;
use crate::walk::{self, Child};
use flick_abi::limits::{
    BUILT_BYTES_MAX, CHANNEL_ELEMENTS_MAX, DICT_ATTEMPTS_MAX, ROOM_BYTES_MAX, SENDS_MAX,
};

/// How often the body of an `update` may run.
const UPDATE_ATTEMPTS: u64 = DICT_ATTEMPTS_MAX as u64;

/// Most sends and most steps of a piece of code, what it builds, and how large it is with everything it calls.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Cost {
    sends: u64,
    /// Messages asked for, each element of an `ask all` on an array left out but one.
    asks: u64,
    steps: u64,
    /// Steps of copying what is made, which `built` bounds too.
    copied: u64,
    /// Bytes of text and lists that are made.
    built: u64,
    /// Something is made only where there is room for it.
    has_rooms: bool,
    size: u64,
}

impl Cost {
    fn then(self, other: Cost) -> Cost {
        Cost {
            sends: self.sends.saturating_add(other.sends),
            asks: self.asks.saturating_add(other.asks),
            steps: self.steps.saturating_add(other.steps),
            copied: self.copied.saturating_add(other.copied),
            built: self.built.saturating_add(other.built),
            has_rooms: self.has_rooms || other.has_rooms,
            size: self.size.saturating_add(other.size),
        }
    }

    fn or(self, other: Cost) -> Cost {
        Cost {
            sends: self.sends.max(other.sends),
            asks: self.asks.max(other.asks),
            steps: self.steps.max(other.steps),
            copied: self.copied.max(other.copied),
            built: self.built.max(other.built),
            has_rooms: self.has_rooms || other.has_rooms,
            size: self.size.saturating_add(other.size),
        }
    }

    /// The same code again and again.
    fn times(self, rounds: u64) -> Cost {
        Cost {
            sends: self.sends.saturating_mul(rounds),
            asks: self.asks.saturating_mul(rounds),
            steps: self.steps.saturating_mul(rounds),
            copied: self.copied.saturating_mul(rounds),
            built: self.built.saturating_mul(rounds),
            has_rooms: self.has_rooms,
            size: self.size,
        }
    }

    /// The same, where it is only done if there is room for what it makes.
    fn where_room(self) -> Cost {
        Cost { copied: 0, built: 0, has_rooms: true, ..self }
    }

    /// All steps.
    fn all_steps(&self) -> u64 {
        let rooms = if self.has_rooms { spread(ROOM_BYTES_MAX as u64) } else { 0 };
        self.steps.saturating_add(self.copied).saturating_add(rooms)
    }
}

/// What costs are computed from.
struct Costs<'a> {
    items: &'a Items,
    /// Bytes that are built to send one message, by unit: none where no program text changes or builds such messages.
    rebuilt: Vec<u64>,
    /// Those of functions, by number; callees come first.
    known: Vec<Cost>,
}

/// Refuses rules that send, work or build too much.
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
        if cost.asks > ASKED_MAX {
            sink.push(report::asks::too_many_asks(span.clone(), cost.asks, ASKED_MAX));
        }
        let worst = |weight: fn(&Cost) -> u64| {
            let (fun, _) = funs.iter().zip(&costs.known).max_by_key(|(_, cost)| weight(cost))?;
            Some((fun.span.clone(), fun.name.clone()))
        };
        if cost.all_steps() > WORK_STEPS_MAX {
            let worst = worst(Cost::all_steps);
            sink.push(report::bounds::too_much_work(span.clone(), cost.all_steps(), WORK_STEPS_MAX, worst));
        } else if cost.size > RULE_SIZE_MAX {
            let worst = worst(|cost| cost.size);
            sink.push(report::bounds::too_large(span.clone(), cost.size, RULE_SIZE_MAX, worst));
        }
        if cost.built > BUILT_BYTES_MAX as u64 {
            let worst = worst(|cost| cost.built);
            sink.push(report::values::too_much_built(
                span.clone(),
                cost.built,
                BUILT_BYTES_MAX as u64,
                worst,
            ));
        }
    }
}

/// What it takes to build a message of each unit: the parts around the fields that are given values anywhere in the
/// program, each as long as a head at most, and those values.
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
        let texts: Vec<u64> = written.iter().filter_map(|field| longest(field.0 as usize)).collect();
        let numbers = unit.fields.len() as u64 * VINT_BYTES_MAX;
        let head = (0..unit.fields.len()).filter_map(longest).sum::<u64>() + numbers;
        head.saturating_mul(texts.len() as u64 + 1).saturating_add(texts.iter().sum()).saturating_add(numbers)
    });
    bytes.collect()
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

impl Costs<'_> {
    fn block(&self, block: &Block) -> Cost {
        let stmts = block.stmts.iter().map(|stmt| match stmt {
            Stmt::Let(_, value) | Stmt::LetTuple(_, value) | Stmt::Expr(value) => self.expr(value),
            Stmt::Assign(_, value) => {
                let stored = Cost { steps: spread(packed_bytes(self.items, &value.ty)), ..Cost::default() };
                self.expr(value).then(stored)
            }
        });
        let total = stmts.fold(Cost::default(), Cost::then);
        block.value.iter().fold(total, |total, value| total.then(self.expr(value)))
    }

    /// The costliest of some branches, and the size of all.
    fn branches<'b>(&self, blocks: impl IntoIterator<Item = &'b Block>) -> Cost {
        blocks.into_iter().fold(Cost::default(), |worst, block| worst.or(self.block(block)))
    }

    fn expr(&self, root: &Expr) -> Cost {
        let (steps, copied) = match &root.kind {
            ExprKind::Concat(_) => (0, bytes_touched(root)),
            ExprKind::With(..) | ExprKind::Build(..) if matches!(root.ty, Ty::Record(_)) => {
                (0, bytes_touched(root))
            }
            _ => (bytes_touched(root), 0),
        };
        let own = Cost {
            steps: 1u64.saturating_add(steps),
            copied,
            built: self.bytes_built(root),
            size: 1,
            ..Cost::default()
        };
        match &root.kind {
            ExprKind::If { cond, then, otherwise } if is_room(cond) => {
                let inside = self.block(then).where_room();
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
                let compared = Cost { steps: patterns, size: patterns, ..Cost::default() };
                own.then(self.expr(value)).then(compared).then(branches)
            }
            ExprKind::Field(base, field) => own.then(self.expr(base)).then(self.computed(&base.ty, *field)),
            ExprKind::Match { value, arms, otherwise } => {
                let branches = self.branches(arms.iter().map(|(_, _, body)| body).chain(otherwise));
                own.then(self.expr(value)).then(branches)
            }
            ExprKind::For { source, body, .. }
            | ExprKind::MapList { source, body, .. }
            | ExprKind::Filter { source, body, .. } => own.then(self.rounds(root, source, body)),
            ExprKind::Fold { source, init, body, .. } => {
                own.then(self.expr(init)).then(self.rounds(root, source, body))
            }
            ExprKind::DictUpdate { dict, key, body, .. } => {
                let value = packed_bytes(self.items, &self.items.dicts[dict.0 as usize].value);
                own.then(self.expr(key)).then(attempts(self.block(body), value))
            }
            ExprKind::AskAll { asks: AskAll::Over(over), timeout } => {
                let message = Cost { asks: 1, built: self.message_bytes(over.message()), ..Cost::default() };
                let each = self.block(&over.channel).then(self.block(&over.message)).then(message);
                let source = match &over.source {
                    Source::List(source) | Source::Channels(source) => self.expr(source),
                    Source::Range { lo, hi, .. } => self.expr(lo).then(self.expr(hi)),
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

    /// What sends, asks and calls add to their parts.
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

    /// The source of a repetition, and its body as often as it runs.
    fn rounds(&self, root: &Expr, source: &Source, body: &Block) -> Cost {
        let (source, rounds) = match source {
            Source::List(list) => {
                let rounds = if let Ty::List { max, .. } = list.ty { u64::from(max) } else { 0 };
                (self.expr(list), rounds)
            }
            Source::Range { lo, hi, trips_max } => (self.expr(lo).then(self.expr(hi)), u64::from(*trips_max)),
            Source::Channels(array) => (self.expr(array), CHANNEL_ELEMENTS_MAX as u64),
        };
        let words = match &root.ty {
            Ty::List { elem, .. } => u64::from(self.items.words(elem)),
            ty => u64::from(self.items.words(ty)),
        };
        let own = Cost { steps: words.saturating_add(1), ..Cost::default() };
        source.then(self.block(body).then(own).times(rounds))
    }

    /// A text variable is computed where it is read.
    fn computed(&self, message: &Ty, field: FieldId) -> Cost {
        let Ty::Record(unit) = message else { return Cost::default() };
        match &self.items.field(*unit, field).kind {
            FieldKind::TextVar { parse, .. } => self.expr(parse),
            _ => Cost::default(),
        }
    }

    /// Bytes that an operation makes itself, at most.
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
            // The elements of a list of a message are found by words side by side.
            ExprKind::Field(..) => self.list_bytes(&root.ty),
            ExprKind::State(_) => packed_bytes(self.items, &root.ty),
            ExprKind::DictGet(_, key) => {
                packed_bytes(self.items, &root.ty).saturating_add(packed_bytes(self.items, &key.ty))
            }
            // Several words come back in memory.
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

/// Attempts to change an entry of so many bytes, given what one computes.
fn attempts(body: Cost, value_bytes: u64) -> Cost {
    // Each attempt looks the entry up and packs a new one.
    let twice = value_bytes.saturating_mul(2);
    let attempt = body.then(Cost { built: twice, copied: spread(twice), ..Cost::default() });
    // Attempts that would build too much together are not made.
    let all = attempt.times(UPDATE_ATTEMPTS);
    let built = attempt.built.max(all.built.min(UPDATE_BYTES_MAX));
    let copied = if all.built > UPDATE_BYTES_MAX { attempt.copied } else { all.copied };
    Cost { built, copied, ..all }
}

/// Longest text or bytes, also of an option.
fn inner_bytes(ty: &Ty) -> u64 {
    match ty {
        Ty::Bytes { max, .. } => u64::from(*max),
        Ty::Option(inner) => inner_bytes(inner),
        _ => 0,
    }
}

/// Bytes of a value side by side, at most. What is never kept has none.
fn packed_bytes(items: &Items, ty: &Ty) -> u64 {
    match ty {
        Ty::Bytes { max, .. } => u64::from(*max),
        _ => layout(items, ty).map_or(0, |layout| layout.packed_bytes()),
    }
}

/// Bytes that an operation looks at or copies itself, at most.
fn bytes_touched(root: &Expr) -> u64 {
    let longest = |expr: &Expr| match expr.ty {
        Ty::Bytes { max, .. } => u64::from(max),
        _ => 0,
    };
    match &root.kind {
        // One text is looked for at every place of the other.
        ExprKind::Builtin(Builtin::Contains | Builtin::Find | Builtin::Split, args) => {
            args.iter().take(2).map(longest).fold(1, u64::saturating_mul)
        }
        ExprKind::Builtin(Builtin::Len | Builtin::Text | Builtin::Raw, _) => 0,
        // Each element of the array is looked at, with the whole key.
        ExprKind::Builtin(Builtin::Rendezvous, args) => {
            args.iter().map(longest).sum::<u64>().saturating_add(CHANNEL_ELEMENTS_MAX as u64)
        }
        ExprKind::Builtin(Builtin::LeastLoaded, _) => CHANNEL_ELEMENTS_MAX as u64,
        ExprKind::Builtin(_, args) => spread(args.iter().map(longest).sum()),
        ExprKind::Binary(_, a, b) => spread(longest(a).min(longest(b))),
        ExprKind::Concat(parts) => spread(parts.iter().map(longest).sum()),
        ExprKind::Switch { value, arms, .. } => longest(value).saturating_mul(arms.len() as u64),
        ExprKind::With(_, fields) | ExprKind::Build(_, fields) => {
            spread(fields.iter().map(|(_, value)| longest(value)).sum())
        }
        ExprKind::IsOf(value, _) => spread(longest(value)),
        ExprKind::WithKey(_, _, _, Some(value)) => spread(longest(value)),
        ExprKind::DictGet(_, key) | ExprKind::DictHas(_, key) => spread(longest(key)),
        ExprKind::DictPut(_, key, value) => spread(longest(key).saturating_add(longest(value))),
        _ => 0,
    }
}

/// Steps of going over bytes once, from front to back.
fn spread(bytes: u64) -> u64 {
    bytes.div_ceil(BYTES_PER_STEP)
}
