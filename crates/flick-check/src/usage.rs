//! Usage analysis: fields that are read, functions that are called. Decides which fields are streamed and which ones
//! each channel decodes.
//! Promises: afterwards every bytes field has a bound or is streamed, the head of every unit fits its limit, and the
//! view of a channel contains exactly the fields that its rules read and those whose bound the program changes.

mod streaming;

use std::collections::BTreeSet;

use crate::ask_targets::AskTargets;
use crate::diagnostic::Sink;
use crate::hir::{
    Block, Builtin, ChannelId, DecodedField, Derived, Expr, ExprKind, FieldId, FieldKind, Fun, Proc, Span,
    Ty, Unit, UnitId,
};
use crate::items::Items;
use crate::limits::{DEFAULT_BYTES_MAX, VINT_BYTES_MAX, head_bytes_max};
use crate::range::{INT, Range};
use crate::units;
use crate::{report, walk};

/// A global or `local`, by number.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum StateRef {
    Dict(u32),
    Counter(u32),
    State(u32),
}

/// Fields, keys, state and functions that a body uses, itself and through its calls.
#[derive(Clone, Debug, Default)]
struct Uses {
    reads: BTreeSet<(u32, FieldId)>,
    /// Keys of keyed lists that are read.
    keys: BTreeSet<(u32, FieldId, u32)>,
    /// Units whose messages are read as bytes.
    wires: BTreeSet<u32>,
    writes: BTreeSet<(u32, FieldId)>,
    /// Fields that are set when a message is built: received messages need not decode them.
    builds: BTreeSet<(u32, FieldId)>,
    /// Keyed lists whose keys are read or changed.
    keyed_lists: BTreeSet<(u32, FieldId)>,
    calls: BTreeSet<u32>,
    /// Dictionaries, counters and locals.
    state: BTreeSet<StateRef>,
    /// Fields that are set in a changed copy of a message, with the locations of their values.
    changes: Vec<((u32, FieldId), Span)>,
    /// Locations of reads, for diagnostics.
    locations: Vec<((u32, FieldId), Span)>,
}

impl Uses {
    /// Whether a field is used in any way.
    fn has(&self, key: &(u32, FieldId)) -> bool {
        self.reads.contains(key)
            || self.writes.contains(key)
            || self.builds.contains(key)
            || self.keyed_lists.contains(key)
    }

    fn of(block: &Block, funs: &[Uses]) -> Self {
        let mut uses = Uses::default();
        walk::block(block, &mut |expr| match &expr.kind {
            ExprKind::Field(base, field) => {
                if let Ty::Record(unit) = base.ty {
                    uses.reads.insert((unit.0, *field));
                    uses.locations.push(((unit.0, *field), expr.span.clone()));
                }
            }
            ExprKind::FieldKey(base, list, key) => {
                if let Ty::Record(unit) = base.ty {
                    uses.keys.insert((unit.0, *list, *key));
                    uses.keyed_lists.insert((unit.0, *list));
                }
            }
            ExprKind::WithKey(base, list, ..) => {
                if let Ty::Record(unit) = base.ty {
                    uses.keyed_lists.insert((unit.0, *list));
                }
            }
            ExprKind::Builtin(Builtin::Wire, args) => {
                if let Some(Ty::Record(unit)) = args.first().map(|arg| &arg.ty) {
                    uses.wires.insert(unit.0);
                }
            }
            ExprKind::With(_, fields) | ExprKind::Build(_, fields) => {
                let Ty::Record(UnitId(unit)) = expr.ty else { return };
                let given = fields.iter().map(|(field, _)| (unit, *field));
                let locations = fields.iter().map(|(field, value)| ((unit, *field), value.span.clone()));
                match expr.kind {
                    ExprKind::Build(..) => uses.builds.extend(given),
                    _ => {
                        uses.writes.extend(given);
                        uses.changes.extend(locations.clone());
                    }
                }
                uses.locations.extend(locations);
            }
            ExprKind::Call(fun, _) => {
                uses.calls.insert(fun.0);
                if let Some(callee) = funs.get(fun.0 as usize) {
                    uses.reads.extend(&callee.reads);
                    uses.keys.extend(&callee.keys);
                    uses.wires.extend(&callee.wires);
                    uses.keyed_lists.extend(&callee.keyed_lists);
                    uses.writes.extend(&callee.writes);
                    uses.builds.extend(&callee.builds);
                    uses.calls.extend(&callee.calls);
                    uses.state.extend(&callee.state);
                }
            }
            ExprKind::DictGet(dict, _)
            | ExprKind::DictHas(dict, _)
            | ExprKind::DictPut(dict, ..)
            | ExprKind::Dict(dict)
            | ExprKind::DictUpdate { dict, .. } => {
                uses.state.insert(StateRef::Dict(dict.0));
            }
            ExprKind::Counter(counter) => {
                uses.state.insert(StateRef::Counter(counter.0));
            }
            ExprKind::SessionLocal(state) => {
                uses.state.insert(StateRef::State(state.0));
            }
            _ => {}
        });
        uses
    }
}

/// A body of the process: its channel, the channels it asks, and what it uses.
struct ProcessBody {
    sources: Vec<ChannelId>,
    ask_targets: BTreeSet<ChannelId>,
    uses: Uses,
}

/// Completes units and channels with the usage of the program, and warns about unused declarations.
pub(crate) fn check(
    funs: &[Fun],
    ask_targets: &AskTargets,
    process: &mut Option<Proc>,
    items: &mut Items,
    sink: &mut Sink,
) {
    let mut fun_uses: Vec<Uses> = Vec::new();
    for fun in funs {
        let uses = Uses::of(&fun.body, &fun_uses);
        fun_uses.push(uses);
    }
    let process_bodies =
        process.as_ref().map_or_else(Vec::new, |process| process_bodies(process, ask_targets, &fun_uses));
    let mut all: Vec<&Uses> = fun_uses.iter().chain(process_bodies.iter().map(|work| &work.uses)).collect();
    let whole = whole_units(process.as_ref(), items);
    all.push(&whole);
    for unit in 0..items.units.len() {
        if items.units[unit].body.is_some() {
            let id = Some(UnitId(unit as u32));
            let channels = process.iter().flat_map(|process| &process.channels);
            let is_message =
                channels.into_iter().any(|channel| channel.receives == id || channel.sends == id);
            streaming::close(UnitId(unit as u32), is_message, &all, items, sink);
        } else {
            resolve_last_field(UnitId(unit as u32), &all, items, sink);
            head_size(UnitId(unit as u32), items, sink);
        }
    }
    for unit in 0..items.units.len() {
        let is_written =
            all.iter().any(|uses| uses.writes.iter().chain(&uses.builds).any(|(of, _)| *of == unit as u32));
        if is_written {
            let builds = |field: FieldId| all.iter().any(|uses| uses.builds.contains(&(unit as u32, field)));
            derived_fit(UnitId(unit as u32), &builds, items, sink);
        }
    }
    all.pop();
    let Some(process) = process else { return };
    for (index, channel) in process.channels.iter_mut().enumerate() {
        let Some(unit) = channel.receives else { continue };
        let id = ChannelId(index as u32);
        let process_bodies =
            process_bodies.iter().filter(|work| work.sources.contains(&id) || work.ask_targets.contains(&id));
        let mut fields: BTreeSet<FieldId> = BTreeSet::new();
        let mut keys: BTreeSet<(FieldId, u32)> = BTreeSet::new();
        for work in process_bodies {
            let own = work.uses.keys.iter().filter(|(of, ..)| *of == unit.0);
            keys.extend(own.map(|(_, list, key)| (*list, *key)));
            channel.whole |= work.sources.contains(&id) && work.uses.wires.contains(&unit.0);
            fields.extend(work.uses.reads.iter().filter(|(of, _)| *of == unit.0).map(|(_, field)| *field));
        }
        let view = items.views.get(&unit.0).map_or(&[][..], |view| view.fields.as_slice());
        let decoded = |field: FieldId| {
            let known = view.iter().find(|known| known.field == field);
            let (max, optional) = known.map_or((None, false), |known| (known.bound, known.optional));
            DecodedField { field, max, optional }
        };
        // A program that handles a field which may be streamed handles messages without `wire` too.
        channel.whole &= !view.iter().any(|known| known.optional);
        fields.extend(view.iter().filter(|known| known.bound.is_some()).map(|known| known.field));
        channel.view = fields.into_iter().map(decoded).collect();
        channel.keys = keys.into_iter().collect();
        streaming::elements(unit, channel, items, sink);
    }
    check_full_lists(process, &all, items, sink);
    let body_uses: Vec<&Uses> = process_bodies.iter().map(|work| &work.uses).collect();
    warn_unused(funs, &all, &body_uses, items, sink);
    warn_unused_state(&all, items, sink);
}

/// Reports variables that say that a list was full, where messages of their unit are sent: half of one could be.
fn check_full_lists(process: &Proc, all: &[&Uses], items: &Items, sink: &mut Sink) {
    let received = process.channels.iter().filter_map(|channel| Some((channel.receives?, channel)));
    let fields =
        received.flat_map(|(unit, channel)| channel.view.iter().map(move |known| (unit, known.field)));
    for (unit, field) in fields {
        let declared = items.field(unit, field);
        let sends = process.channels.iter().find(|channel| channel.sends == Some(unit));
        let (FieldKind::Full { .. }, Some(channel)) = (&declared.kind, sends) else { continue };
        let mut locations = all.iter().flat_map(|uses| &uses.locations);
        let known = locations.find(|(known, _)| *known == (unit.0, field));
        let span = known.map_or(declared.span.clone(), |(_, span)| span.clone());
        let name = declared.name.as_deref().unwrap_or_default();
        let (unit, location) = (&items.unit(unit).name, declared.span.clone());
        sink.push(report::structured::full_is_sent(span, name, unit, &channel.name, location));
    }
}

/// The usage of every body of the process.
fn process_bodies(process: &Proc, ask_targets: &AskTargets, fun_uses: &[Uses]) -> Vec<ProcessBody> {
    let work = |sources: Vec<ChannelId>, body: &Block| ProcessBody {
        sources,
        ask_targets: ask_targets.channels(body),
        uses: Uses::of(body, fun_uses),
    };
    let mut out: Vec<ProcessBody> =
        process.rules.iter().map(|rule| work(vec![rule.source], &rule.body)).collect();
    for merge in &process.merges {
        let key = Block { stmts: Vec::new(), value: Some(Box::new(merge.key.clone())) };
        for body in [&key, &merge.body, &merge.finish.body] {
            out.push(work(vec![merge.source], body));
        }
    }
    out.extend(process.handlers.iter().map(|handler| work(Vec::new(), &handler.body)));
    out.extend(process.timers.iter().map(|timer| work(Vec::new(), &timer.body)));
    out
}

/// Elements of a merge are buffered completely, so nothing of them is streamed.
fn whole_units(process: Option<&Proc>, items: &Items) -> Uses {
    let mut uses = Uses::default();
    for merge in process.iter().flat_map(|process| &process.merges) {
        let fields = &items.unit(merge.unit).fields;
        uses.reads.extend((0..fields.len() as u32).map(|field| (merge.unit.0, FieldId(field))));
        uses.locations.extend(
            (0..fields.len() as u32).map(|field| ((merge.unit.0, FieldId(field)), merge.span.clone())),
        );
    }
    uses
}

/// Warns about globals and `local`s that are never used.
fn warn_unused_state(all: &[&Uses], items: &Items, sink: &mut Sink) {
    let is_used = |state: StateRef| all.iter().any(|uses| uses.state.contains(&state));
    let mut warn = |what: &str, name: &str, span: &Span, state: StateRef| {
        if span.file == 0 && !name.starts_with('_') && !is_used(state) {
            sink.push(report::state::never_used(span.clone(), what, name));
        }
    };
    for (index, dict) in items.dicts.iter().enumerate() {
        warn("dictionary", &dict.name, &dict.span, StateRef::Dict(index as u32));
    }
    for (index, counter) in items.counters.iter().enumerate() {
        let what = if counter.is_gauge { "gauge" } else { "counter" };
        warn(what, &counter.name, &counter.span, StateRef::Counter(index as u32));
    }
    for (index, state) in items.session_locals.iter().enumerate() {
        warn("local", &state.name, &state.span, StateRef::State(index as u32));
    }
}

/// A last field without a declared bound is streamed unless the program reads or changes it.
fn resolve_last_field(unit: UnitId, all: &[&Uses], items: &mut Items, sink: &mut Sink) {
    let fields = &items.unit(unit).fields;
    let Some(index) = fields.iter().rposition(|field| field.kind.is_on_wire()) else {
        return;
    };
    let key = (unit.0, FieldId(index as u32));
    let field = &fields[index];
    let (declared, length) = match &field.kind {
        FieldKind::Bytes { streamed, length, max_bytes: None, .. } => (*streamed, length.clone()),
        _ => return,
    };
    // A value of a message that the program builds says nothing about those that are forwarded.
    let is_used = all.iter().any(|uses| uses.reads.contains(&key) || uses.writes.contains(&key));
    if is_used && declared {
        let name = field.name.clone().unwrap_or_default();
        let locations = all.iter().flat_map(|uses| &uses.locations).filter(|(known, _)| *known == key);
        let span = locations.map(|(_, span)| span.clone()).next().unwrap_or_else(|| field.span.clone());
        sink.push(report::grammar::streamed_read(span, &name, field.span.clone()));
    }
    let view_bound = items
        .views
        .get(&unit.0)
        .and_then(|view| view.fields.iter().find(|known| known.field == key.1)?.bound);
    let bound = (is_used || view_bound.is_some()).then(|| units::longest(&length, view_bound));
    if !declared && view_bound.is_none() && bound == Some(DEFAULT_BYTES_MAX) {
        streaming::bounded_by_a_change(unit, key.1, all, items, sink);
    }
    if let FieldKind::Bytes { streamed, max_bytes, .. } = &mut items.units[unit.0 as usize].fields[index].kind
    {
        *streamed = bound.is_none();
        *max_bytes = bound;
    }
}

/// Checks the limit of the part of a message that must be in memory at once.
fn head_size(unit: UnitId, items: &Items, sink: &mut Sink) {
    let declared = items.unit(unit);
    let is_unknown = |field: &crate::hir::Field| matches!(&field.kind, FieldKind::Bytes { length, .. } if length.ty == Ty::Unknown);
    // The length of a field is not known if its expression was rejected.
    if declared.fields.iter().any(is_unknown) {
        return;
    }
    let mut fixed = 0u64;
    let mut parts: Vec<(String, u64)> = Vec::new();
    for field in &declared.fields {
        match &field.kind {
            FieldKind::Int { repr, .. } => fixed += u64::from(repr.width_bytes),
            FieldKind::Vint { .. } => fixed += VINT_BYTES_MAX,
            FieldKind::Bytes { max_bytes: Some(max), .. } => {
                let name =
                    field.name.as_ref().map_or("an unnamed field".to_owned(), |name| format!("`{name}`"));
                parts.push((name, u64::from(*max)));
            }
            _ => {}
        }
    }
    let total = fixed + parts.iter().map(|(_, bytes)| bytes).sum::<u64>();
    let most = head_bytes_max(parts.iter().map(|(_, bytes)| *bytes));
    if total > most {
        parts.sort_by_key(|(_, bytes)| std::cmp::Reverse(*bytes));
        parts.push(("integers".to_owned(), fixed));
        let span = declared.span.clone();
        sink.push(report::bounds::head_too_large(span, &declared.name, total, most, &parts));
    }
}

/// If messages are changed, a derived field must be able to hold the new value.
fn derived_fit(unit: UnitId, builds: &dyn Fn(FieldId) -> bool, items: &Items, sink: &mut Sink) {
    let declared = items.unit(unit);
    for field in &declared.fields {
        let Some(Derived::Expr(expr)) = field.kind.derived() else { continue };
        let allowed = match &field.kind {
            FieldKind::Int { repr, .. } => Range::of_repr(*repr),
            other => match other.number_range() {
                Some((lo, hi)) => Range { lo, hi },
                None => continue,
            },
        };
        let Some(range) = range_when_changed(declared, builds, expr) else { continue };
        if !range.is_inside(allowed) {
            let name = field.name.as_deref().unwrap_or_default();
            let ty = units::wire_type_name(&field.kind);
            sink.push(report::grammar::derived_too_wide(expr.span.clone(), name, &ty, &range.describe()));
        }
    }
}

/// The range of a derived field. `None` if it depends on the length of a streamed field that no program builds, which
/// only the width of its length field bounds.
fn range_when_changed(unit: &Unit, builds: &dyn Fn(FieldId) -> bool, expr: &Expr) -> Option<Range> {
    let length = |field: FieldId| match &unit.fields[field.0 as usize].kind {
        FieldKind::Bytes { max_bytes, length, .. } => {
            let is_built = unit.body.is_none() && builds(field);
            let max = max_bytes.or_else(|| is_built.then(|| units::longest(length, None)));
            max.map(|max| Range { lo: 0, hi: i128::from(max) })
        }
        FieldKind::Text { max_bytes, .. } => Some(Range { lo: 0, hi: i128::from(*max_bytes) }),
        FieldKind::List(list) => list.max.map(|max| Range { lo: 0, hi: i128::from(max) }),
        _ => None,
    };
    match &expr.kind {
        ExprKind::LenOf(field) => length(*field),
        ExprKind::SelfField(field) => match &unit.fields[field.0 as usize].kind {
            FieldKind::Int { derived: Some(Derived::LengthOf(measured)), .. }
            | FieldKind::Vint { derived: Some(Derived::LengthOf(measured)) } => length(*measured),
            FieldKind::Vint { .. } => Some(INT),
            FieldKind::Int { repr, .. } | FieldKind::Var { repr, .. } => Some(Range::of_repr(*repr)),
            FieldKind::Bytes { .. } => None,
            FieldKind::Number { derived: Some(Derived::LengthOf(measured)), .. }
            | FieldKind::Varint { derived: Some(Derived::LengthOf(measured)), .. } => length(*measured),
            other => other.number_range().map(|(lo, hi)| Range { lo, hi }),
        },
        ExprKind::Binary(op, a, b) => {
            Range::of_binary(*op, range_when_changed(unit, builds, a)?, range_when_changed(unit, builds, b)?)
        }
        _ => crate::range::range_of(&expr.ty),
    }
}

fn warn_unused(funs: &[Fun], all: &[&Uses], body_uses: &[&Uses], items: &Items, sink: &mut Sink) {
    for (index, fun) in funs.iter().enumerate() {
        let is_called = body_uses.iter().any(|uses| uses.calls.contains(&(index as u32)));
        if !is_called && fun.span.file == 0 && !fun.name.starts_with('_') {
            sink.push(report::names::unused_function(fun.span.clone(), &fun.name));
        }
    }
    for (unit, view) in &items.views {
        for field in view.fields.iter().filter(|field| field.span.file == 0) {
            let key = (*unit, field.field);
            let is_used = all.iter().any(|uses| uses.has(&key));
            // One line may list a whole nested unit; it is used if any of its fields is.
            let shares_line = view.fields.iter().any(|other| {
                let other_key = (*unit, other.field);
                other.span == field.span && all.iter().any(|uses| uses.has(&other_key))
            });
            if !is_used && !shares_line && field.bound.is_none() {
                let name = field.name.split('.').next().unwrap_or(&field.name);
                sink.push(report::names::unused_view_field(
                    field.span.clone(),
                    &items.unit(UnitId(*unit)).name,
                    name,
                ));
            }
        }
    }
}
