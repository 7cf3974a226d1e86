//! Who uses what: fields that are read, functions that are called. Decides what streams and what each channel decodes.
//! Promises: afterwards every bytes field has a bound or streams, the head of every unit fits, and the view of a channel
//! holds exactly the fields its rules read and those whose bound the program narrows.

mod structured;

use std::collections::BTreeSet;

use crate::asked::Asked;
use crate::diagnostic::Sink;
use crate::grammar;
use crate::hir::{
    Block, Builtin, ChannelId, Derived, Expr, ExprKind, FieldId, FieldKind, Fun, Proc, Span, Ty, Unit,
    UnitId, ViewField,
};
use crate::items::Items;
use crate::limits::{VINT_BYTES_MAX, head_bytes_max};
use crate::range::{INT, Range};
use crate::{report, walk};

/// Something that is kept, by number.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Kept {
    Dict(u32),
    Counter(u32),
    State(u32),
}

/// What a body does, with everything it calls.
#[derive(Clone, Debug, Default)]
struct Uses {
    reads: BTreeSet<(u32, FieldId)>,
    /// Keys of keyed lists that are read.
    keys: BTreeSet<(u32, FieldId, u32)>,
    /// Units whose messages are taken as bytes.
    wires: BTreeSet<u32>,
    writes: BTreeSet<(u32, FieldId)>,
    /// Fields that are given where a message is built: of what is received they need nothing.
    builds: BTreeSet<(u32, FieldId)>,
    /// Keyed lists that are looked into or changed by key.
    touches: BTreeSet<(u32, FieldId)>,
    calls: BTreeSet<u32>,
    /// Dictionaries, counters and locals.
    kept: BTreeSet<Kept>,
    /// Places of reads, for messages.
    places: Vec<((u32, FieldId), Span)>,
}

impl Uses {
    /// Whether a field is used in any way.
    fn has(&self, key: &(u32, FieldId)) -> bool {
        self.reads.contains(key)
            || self.writes.contains(key)
            || self.builds.contains(key)
            || self.touches.contains(key)
    }

    fn of(block: &Block, funs: &[Uses]) -> Self {
        let mut uses = Uses::default();
        walk::block(block, &mut |expr| match &expr.kind {
            ExprKind::Field(base, field) => {
                if let Ty::Record(unit) = base.ty {
                    uses.reads.insert((unit.0, *field));
                    uses.places.push(((unit.0, *field), expr.span.clone()));
                }
            }
            ExprKind::FieldKey(base, list, key) => {
                if let Ty::Record(unit) = base.ty {
                    uses.keys.insert((unit.0, *list, *key));
                    uses.touches.insert((unit.0, *list));
                }
            }
            ExprKind::WithKey(base, list, ..) => {
                if let Ty::Record(unit) = base.ty {
                    uses.touches.insert((unit.0, *list));
                }
            }
            ExprKind::Builtin(Builtin::Wire, args) => {
                if let Some(Ty::Record(unit)) = args.first().map(|arg| &arg.ty) {
                    uses.wires.insert(unit.0);
                }
            }
            ExprKind::With(_, fields) | ExprKind::Build(_, fields) => {
                let unit = match expr.ty {
                    Ty::Record(unit) => unit.0,
                    _ => return,
                };
                let given = fields.iter().map(|(field, _)| (unit, *field));
                match expr.kind {
                    ExprKind::Build(..) => uses.builds.extend(given),
                    _ => uses.writes.extend(given),
                }
                uses.places.extend(fields.iter().map(|(field, value)| ((unit, *field), value.span.clone())));
            }
            ExprKind::Call(fun, _) => {
                uses.calls.insert(fun.0);
                if let Some(callee) = funs.get(fun.0 as usize) {
                    uses.reads.extend(&callee.reads);
                    uses.keys.extend(&callee.keys);
                    uses.wires.extend(&callee.wires);
                    uses.touches.extend(&callee.touches);
                    uses.writes.extend(&callee.writes);
                    uses.builds.extend(&callee.builds);
                    uses.calls.extend(&callee.calls);
                    uses.kept.extend(&callee.kept);
                }
            }
            ExprKind::DictGet(dict, _)
            | ExprKind::DictHas(dict, _)
            | ExprKind::DictPut(dict, ..)
            | ExprKind::Dict(dict)
            | ExprKind::DictUpdate { dict, .. } => {
                uses.kept.insert(Kept::Dict(dict.0));
            }
            ExprKind::Counter(counter) => {
                uses.kept.insert(Kept::Counter(counter.0));
            }
            ExprKind::State(state) => {
                uses.kept.insert(Kept::State(state.0));
            }
            _ => {}
        });
        uses
    }
}

/// A body of the process: what starts it, what it asks, what it does.
struct Work {
    sources: Vec<ChannelId>,
    asked: BTreeSet<ChannelId>,
    uses: Uses,
}

/// Completes units and channels with what the program's code needs of them, and warns of what nobody uses.
pub(crate) fn check(
    funs: &[Fun],
    asked: &Asked,
    process: &mut Option<Proc>,
    items: &mut Items,
    sink: &mut Sink,
) {
    let mut fun_uses: Vec<Uses> = Vec::new();
    for fun in funs {
        let uses = Uses::of(&fun.body, &fun_uses);
        fun_uses.push(uses);
    }
    let works = process.as_ref().map_or_else(Vec::new, |process| works(process, asked, &fun_uses));
    let mut all: Vec<&Uses> = fun_uses.iter().chain(works.iter().map(|work| &work.uses)).collect();
    let whole = whole_units(process.as_ref(), items);
    all.push(&whole);
    for unit in 0..items.units.len() {
        if items.units[unit].body.is_some() {
            let id = Some(UnitId(unit as u32));
            let channels = process.iter().flat_map(|process| &process.channels);
            let travels = channels.into_iter().any(|channel| channel.receives == id || channel.sends == id);
            structured::close(UnitId(unit as u32), travels, &all, items, sink);
        } else {
            close_last(UnitId(unit as u32), &all, items, sink);
            head_size(UnitId(unit as u32), items, sink);
        }
    }
    for unit in 0..items.units.len() {
        let is_written =
            all.iter().any(|uses| uses.writes.iter().chain(&uses.builds).any(|(of, _)| *of == unit as u32));
        if is_written {
            derived_fit(UnitId(unit as u32), items, sink);
        }
    }
    all.pop();
    let Some(process) = process else { return };
    for (index, channel) in process.channels.iter_mut().enumerate() {
        let Some(unit) = channel.receives else { continue };
        let id = ChannelId(index as u32);
        let works = works.iter().filter(|work| work.sources.contains(&id) || work.asked.contains(&id));
        let mut fields: BTreeSet<FieldId> = BTreeSet::new();
        let mut keys: BTreeSet<(FieldId, u32)> = BTreeSet::new();
        for work in works {
            let own = work.uses.keys.iter().filter(|(of, ..)| *of == unit.0);
            keys.extend(own.map(|(_, list, key)| (*list, *key)));
            channel.whole |= work.sources.contains(&id) && work.uses.wires.contains(&unit.0);
            fields.extend(work.uses.reads.iter().filter(|(of, _)| *of == unit.0).map(|(_, field)| *field));
        }
        let view = items.views.get(&unit.0).map_or(&[][..], |view| view.fields.as_slice());
        let of = |field: FieldId| view.iter().find(|known| known.field == field);
        let bound = |field: FieldId| of(field).and_then(|known| known.bound);
        let optional = |field: FieldId| of(field).is_some_and(|known| known.optional);
        fields.extend(view.iter().filter(|known| known.bound.is_some()).map(|known| known.field));
        channel.view = fields
            .into_iter()
            .map(|field| ViewField { field, max: bound(field), optional: optional(field) })
            .collect();
        channel.keys = keys.into_iter().collect();
        structured::elements(unit, channel, items, sink);
    }
    let body_uses: Vec<&Uses> = works.iter().map(|work| &work.uses).collect();
    warn_unused(funs, &all, &body_uses, items, sink);
    warn_unused_state(&all, items, sink);
}

/// What every body of the process does.
fn works(process: &Proc, asked: &Asked, fun_uses: &[Uses]) -> Vec<Work> {
    let work = |sources: Vec<ChannelId>, body: &Block| Work {
        sources,
        asked: asked.channels(body),
        uses: Uses::of(body, fun_uses),
    };
    let mut out: Vec<Work> = process.rules.iter().map(|rule| work(vec![rule.source], &rule.body)).collect();
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

/// Elements of a merge wait for each other whole, so nothing of them streams.
fn whole_units(process: Option<&Proc>, items: &Items) -> Uses {
    let mut uses = Uses::default();
    for merge in process.iter().flat_map(|process| &process.merges) {
        let fields = &items.unit(merge.unit).fields;
        uses.reads.extend((0..fields.len() as u32).map(|field| (merge.unit.0, FieldId(field))));
        uses.places.extend(
            (0..fields.len() as u32).map(|field| ((merge.unit.0, FieldId(field)), merge.span.clone())),
        );
    }
    uses
}

/// Warns of what is kept but never looked at or changed.
fn warn_unused_state(all: &[&Uses], items: &Items, sink: &mut Sink) {
    let is_used = |kept: Kept| all.iter().any(|uses| uses.kept.contains(&kept));
    let mut warn = |what: &str, name: &str, span: &Span, kept: Kept| {
        if span.file == 0 && !name.starts_with('_') && !is_used(kept) {
            sink.push(report::state::never_used(span.clone(), what, name));
        }
    };
    for (index, dict) in items.dicts.iter().enumerate() {
        warn("dictionary", &dict.name, &dict.span, Kept::Dict(index as u32));
    }
    for (index, counter) in items.counters.iter().enumerate() {
        let what = if counter.is_gauge { "gauge" } else { "counter" };
        warn(what, &counter.name, &counter.span, Kept::Counter(index as u32));
    }
    for (index, state) in items.states.iter().enumerate() {
        warn("local", &state.name, &state.span, Kept::State(index as u32));
    }
}

/// A last field without a written bound streams unless the program looks into it.
fn close_last(unit: UnitId, all: &[&Uses], items: &mut Items, sink: &mut Sink) {
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
    let is_touched = all.iter().any(|uses| uses.has(&key));
    if is_touched && declared {
        let name = field.name.clone().unwrap_or_default();
        let places = all.iter().flat_map(|uses| &uses.places).filter(|(known, _)| *known == key);
        let span = places.map(|(_, span)| span.clone()).next().unwrap_or_else(|| field.span.clone());
        sink.push(report::grammar::streamed_read(span, &name, field.span.clone()));
    }
    let view_bound = items
        .views
        .get(&unit.0)
        .and_then(|view| view.fields.iter().find(|known| known.field == key.1)?.bound);
    let bound = (is_touched || view_bound.is_some()).then(|| grammar::longest(&length, view_bound));
    if let FieldKind::Bytes { streamed, max_bytes, .. } = &mut items.units[unit.0 as usize].fields[index].kind
    {
        *streamed = bound.is_none();
        *max_bytes = bound;
    }
}

/// The part of a message that must lie in memory at once has a bound of its own.
fn head_size(unit: UnitId, items: &Items, sink: &mut Sink) {
    let declared = items.unit(unit);
    let is_unknown = |field: &crate::hir::Field| matches!(&field.kind, FieldKind::Bytes { length, .. } if length.ty == Ty::Unknown);
    // How long a field is whose length was refused is not known.
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
                let name = field
                    .name
                    .as_ref()
                    .map_or("a field without a name".to_owned(), |name| format!("`{name}`"));
                parts.push((name, u64::from(*max)));
            }
            _ => {}
        }
    }
    let total = fixed + parts.iter().map(|(_, bytes)| bytes).sum::<u64>();
    let most = head_bytes_max(parts.iter().map(|(_, bytes)| *bytes));
    if total > most {
        parts.sort_by_key(|(_, bytes)| std::cmp::Reverse(*bytes));
        parts.push(("numbers".to_owned(), fixed));
        let span = declared.span.clone();
        sink.push(report::bounds::head_too_large(span, &declared.name, total, most, &parts));
    }
}

/// Where messages are changed, a field that follows from others must be able to hold what follows.
fn derived_fit(unit: UnitId, items: &Items, sink: &mut Sink) {
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
        let Some(range) = range_when_changed(declared, expr) else { continue };
        if !range.is_inside(allowed) {
            let name = field.name.as_deref().unwrap_or_default();
            let ty = grammar::wire_type_name(&field.kind);
            sink.push(report::grammar::derived_too_wide(expr.span.clone(), name, &ty, &range.describe()));
        }
    }
}

/// Between which values a field lies that follows from others. `None` where a streamed field counts in, whose length is
/// bounded by the width of the field that announced it alone.
fn range_when_changed(unit: &Unit, expr: &Expr) -> Option<Range> {
    let length = |field: FieldId| match &unit.fields[field.0 as usize].kind {
        FieldKind::Bytes { max_bytes, .. } => max_bytes.map(|max| Range { lo: 0, hi: i128::from(max) }),
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
            Range::of_binary(*op, range_when_changed(unit, a)?, range_when_changed(unit, b)?)
        }
        _ => crate::expr::range_of(&expr.ty),
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
            // One line may name a whole nested unit; it is used if any of its fields is.
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
