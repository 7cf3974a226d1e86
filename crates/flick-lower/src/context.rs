//! State that the functions of one program share while they are lowered.

use std::collections::{BTreeMap, BTreeSet};

use flick_abi::limits::{FRAME_HEAD_SLOTS, FRAME_SLOTS_MAX};
use flick_check::hir::{Channel, Expr, ExprKind, FieldId, Fun, Program, SessionLocalId, Ty, UnitId};
use flick_check::walk;
use flick_ir::data::Type;

use crate::carrier::{Carrier, Layout};
use crate::layout::{items, state_words};
use crate::limits::INLINED_PARTS_MAX;
use crate::parse::plan::Role;
use crate::parse::{kept_keys, seen_by};
use crate::part::Part;
use crate::unit::{SlotKey, UnitInfo};
use crate::value::ShapeKind;
use crate::walk::{keys_of, walk_program};

/// The program and what is known of its grammars, functions and state.
#[derive(Debug)]
pub struct Context<'p> {
    /// The checked program.
    pub program: &'p Program,
    units: Vec<UnitInfo<'p>>,
    funs: Vec<FunInfo>,
    uses: Vec<UnitUse>,
    /// Some activation has more messages than the one that started it.
    has_others: bool,
    /// First word of each `local` in a session's state.
    state_words_before: Vec<u32>,
    /// Words of a session's state.
    pub state_words: u32,
}

/// Facts of a function.
#[derive(Clone, Copy, Debug, Default)]
struct FunInfo {
    asks: bool,
    has_effects: bool,
    inlined: bool,
    /// Expressions in it, those lowered in place counted again.
    parts: usize,
}

/// The uses of a grammar's messages in the program.
#[derive(Clone, Debug, Default)]
struct UnitUse {
    changed: BTreeSet<Part>,
    built: BTreeSet<Part>,
    is_changed: bool,
    is_built: bool,
    /// Fields that are read.
    read: BTreeSet<FieldId>,
    /// Keys that are read.
    read_keys: BTreeSet<(FieldId, u32)>,
    /// Lists of them are made otherwise than by `ask all`.
    is_listed: bool,
}

/// The grammars of a program and what has to be kept of their messages.
struct Analysed<'p> {
    units: Vec<UnitInfo<'p>>,
    uses: Vec<UnitUse>,
    has_others: bool,
    /// The keys that have a slot, by unit.
    keys: Vec<BTreeSet<SlotKey>>,
}

impl<'p> Analysed<'p> {
    fn new(program: &'p Program) -> Self {
        let mut units: Vec<UnitInfo<'p>> = program
            .units
            .iter()
            .enumerate()
            .map(|(index, unit)| UnitInfo::new(UnitId(index as u32), unit))
            .collect();
        let (uses, has_others) = unit_uses(program, &units);
        for (info, used) in units.iter_mut().zip(&uses) {
            info.note_changes(&used.changed);
            info.note_reads(&used.read, &used.read_keys);
        }
        let keys = units.iter().map(|info| Self::keys(program, info)).collect();
        Self { units, uses, has_others, keys }
    }

    fn keys(program: &Program, info: &UnitInfo<'_>) -> BTreeSet<SlotKey> {
        let repeats = info.unit.facts.repeats.iter().copied();
        let mut keys: BTreeSet<_> = info.echo().into_iter().chain(repeats).map(SlotKey::Field).collect();
        for (_, build) in &info.unit.facts.on {
            keys.extend(keys_of(build));
        }
        let channels = program.process.iter().flat_map(|process| &process.channels);
        for channel in channels.filter(|channel| channel.receives.is_some()) {
            for role in [Role::Request, Role::Reply] {
                let (unit, seen) = seen_by(program, channel, role);
                if unit == info.id {
                    keys.extend(kept_keys(info, role, &seen));
                }
            }
        }
        keys
    }
}

/// A grammar of which a program needs more than a frame has room for.
#[derive(Clone, Debug)]
pub struct Crowded {
    /// The grammar.
    pub unit: UnitId,
    /// Places in a frame that its messages take.
    pub slots: usize,
    /// Of these, by field, those with most first.
    pub by_field: Vec<(FieldId, usize)>,
}

/// The grammars of which a checked program needs more than a frame has room for. Only a program without such is
/// lowered.
pub fn crowded(program: &Program) -> Vec<Crowded> {
    let Analysed { units, keys, .. } = Analysed::new(program);
    let crowded = units.iter().zip(&keys).filter_map(|(info, keys)| {
        let mut by_field: BTreeMap<FieldId, usize> = BTreeMap::new();
        for key in info.in_slots(keys) {
            *by_field.entry(key.id()).or_default() += 1;
        }
        let slots = by_field.values().sum();
        let mut by_field: Vec<_> = by_field.into_iter().collect();
        by_field.sort_by_key(|(_, slots)| std::cmp::Reverse(*slots));
        let is_crowded = FRAME_HEAD_SLOTS + slots > FRAME_SLOTS_MAX;
        is_crowded.then_some(Crowded { unit: info.id, slots, by_field })
    });
    crowded.collect()
}

impl<'p> Context<'p> {
    /// Analyses a checked program.
    pub fn new(program: &'p Program) -> Self {
        let Analysed { mut units, uses, has_others, keys } = Analysed::new(program);
        for (info, keys) in units.iter_mut().zip(&keys) {
            info.assign_slots(keys);
        }
        let mut state_words_before = Vec::new();
        let mut words = 0;
        for state in &program.session_locals {
            state_words_before.push(words);
            words += items(program, &state.ty).iter().map(state_words).sum::<u32>();
        }
        let mut cx = Self {
            program,
            units,
            funs: Vec::new(),
            uses,
            has_others,
            state_words_before,
            state_words: words,
        };
        for fun in &program.funs {
            let info = cx.fun_info(fun);
            cx.funs.push(info);
        }
        cx
    }

    /// Returns the facts of a grammar.
    pub fn unit(&self, unit: UnitId) -> &UnitInfo<'p> {
        &self.units[unit.0 as usize]
    }

    /// Channels of the process.
    pub fn channels(&self) -> &'p [Channel] {
        self.program.process.as_ref().map_or(&[], |process| &process.channels)
    }

    /// The first word of a `local`.
    pub fn state_word(&self, state: SessionLocalId) -> u32 {
        self.state_words_before[state.0 as usize]
    }

    /// Whether calls of a function are always lowered in place.
    pub fn is_inlined(&self, fun: flick_check::hir::FunId) -> bool {
        self.funs[fun.0 as usize].inlined
    }

    /// Whether evaluating an expression has effects besides its value.
    pub fn has_effects(&self, expr: &Expr) -> bool {
        let mut found = false;
        walk::expr(expr, &mut |inner| found |= self.is_effect(inner));
        found
    }

    fn is_effect(&self, expr: &Expr) -> bool {
        use flick_check::hir::Builtin;
        match &expr.kind {
            ExprKind::Send { .. }
            | ExprKind::Ask { .. }
            | ExprKind::AskAll { .. }
            | ExprKind::DictPut(..)
            | ExprKind::DictUpdate { .. } => true,
            ExprKind::Builtin(builtin, _) => matches!(
                builtin,
                Builtin::Random
                    | Builtin::Log
                    | Builtin::Count
                    | Builtin::Set
                    | Builtin::RoundRobin
                    | Builtin::TwoChoices
                    | Builtin::Remove
            ),
            ExprKind::Call(fun, _) => self.funs[fun.0 as usize].has_effects,
            _ => false,
        }
    }

    /// All shapes that a message of a grammar may have in this program.
    pub fn any_layout(&self, unit: UnitId) -> Layout {
        let used = &self.uses[unit.0 as usize];
        let mut layout = Layout::from([(ShapeKind::Original, BTreeSet::new())]);
        if self.has_others {
            layout.insert(ShapeKind::Other, BTreeSet::new());
        }
        if used.is_changed {
            for kind in layout.keys().map(|kind| kind.changed()).collect::<Vec<_>>() {
                layout.insert(kind, used.changed.clone());
            }
        }
        if used.is_built {
            layout.insert(ShapeKind::Built, used.built.union(&used.changed).copied().collect());
        }
        layout
    }

    /// The shapes that a message in a list may have.
    fn list_layout(&self, unit: UnitId) -> Layout {
        if self.uses[unit.0 as usize].is_listed {
            self.any_layout(unit)
        } else {
            Layout::from([(ShapeKind::Other, BTreeSet::new())])
        }
    }

    /// Returns the carrier of a value of any origin.
    pub fn carrier(&self, ty: &Ty) -> Carrier {
        Carrier::of_ty(self, ty, &|unit| self.any_layout(unit))
    }

    /// Returns the carrier of an element of a list.
    pub fn elem_carrier(&self, elem: &Ty) -> Carrier {
        Carrier::of_ty(self, elem, &|unit| self.list_layout(unit))
    }

    /// Words of an element of a list.
    pub fn stride(&self, elem: &Ty) -> u32 {
        self.elem_carrier(elem).types(self).len() as u32
    }

    /// Types of the words that carry a value without messages.
    pub fn word_types(&self, ty: &Ty) -> Vec<Type> {
        self.carrier(ty).types(self)
    }

    /// Whether a value of this type has a message in it. Messages in lists are words.
    pub fn holds_message(&self, ty: &Ty) -> bool {
        match ty {
            Ty::Record(_) => true,
            Ty::Option(inner) => self.holds_message(inner),
            Ty::Tuple(parts) => parts.iter().any(|part| self.holds_message(part)),
            Ty::Struct(id) => {
                let fields = &self.program.structs[id.0 as usize].fields;
                fields.iter().any(|(_, ty)| self.holds_message(ty))
            }
            Ty::Variant(id) => {
                let cases = &self.program.variants[id.0 as usize].cases;
                cases.iter().filter_map(|(_, ty)| ty.as_ref()).any(|ty| self.holds_message(ty))
            }
            _ => false,
        }
    }

    fn fun_info(&self, fun: &Fun) -> FunInfo {
        let mut info = FunInfo::default();
        walk::block(&fun.body, &mut |expr| {
            info.parts += 1;
            info.asks |= matches!(expr.kind, ExprKind::Ask { .. } | ExprKind::AskAll { .. });
            info.has_effects |= self.is_effect(expr);
            if let ExprKind::Call(callee, _) = &expr.kind {
                let callee = self.funs[callee.0 as usize];
                info.asks |= callee.asks;
                if callee.inlined {
                    info.parts = info.parts.saturating_add(callee.parts);
                }
            }
        });
        info.has_effects |= crate::walk::assigns(&fun.body);
        let params = &fun.locals[..fun.param_count];
        let has_message = self.holds_message(&fun.result)
            || params.iter().any(|local| !matches!(local.ty, Ty::Record(_)) && self.holds_message(&local.ty));
        let is_aggregate = !has_message && self.word_types(&fun.result).len() > 1;
        info.inlined = info.asks || has_message || is_aggregate && info.parts <= INLINED_PARTS_MAX;
        info
    }
}

/// Collects the uses of messages by grammar, and whether an activation has several messages.
fn unit_uses(program: &Program, units: &[UnitInfo<'_>]) -> (Vec<UnitUse>, bool) {
    let mut uses = vec![UnitUse::default(); program.units.len()];
    let mut has_others = program.process.as_ref().is_some_and(|process| !process.merges.is_empty());
    let mut listed: BTreeSet<u32> = BTreeSet::new();
    walk_program(program, &mut |expr| match (&expr.kind, &expr.ty) {
        (ExprKind::With(_, fields), Ty::Record(unit)) => {
            let used = &mut uses[unit.0 as usize];
            used.is_changed = true;
            used.changed.extend(fields.iter().map(|(field, _)| Part::Field(*field)));
        }
        (ExprKind::Field(message, field), _) => {
            if let Ty::Record(unit) = message.ty {
                uses[unit.0 as usize].read.insert(*field);
            }
        }
        (ExprKind::FieldKey(message, list, key), _) => {
            if let Ty::Record(unit) = message.ty {
                uses[unit.0 as usize].read_keys.insert((*list, *key));
            }
        }
        (ExprKind::WithKey(_, list, key, _), Ty::Record(unit)) => {
            let used = &mut uses[unit.0 as usize];
            used.is_changed = true;
            used.changed.extend([Part::Key(*list, *key), Part::KeyState(*list, *key)]);
        }
        (ExprKind::Build(unit, fields), _) => {
            let used = &mut uses[unit.0 as usize];
            used.is_built = true;
            let given: BTreeSet<FieldId> = fields.iter().map(|(field, _)| *field).collect();
            let implied = units[unit.0 as usize].implied(&given).into_iter().map(|(field, _)| field);
            used.built.extend(given.iter().copied().chain(implied).map(Part::Field));
        }
        (ExprKind::BuildWire(unit, _), _) => {
            let used = &mut uses[unit.0 as usize];
            used.is_built = true;
            used.built.insert(Part::Wire);
        }
        (ExprKind::Ask { .. } | ExprKind::AskAll { .. }, _) => has_others = true,
        (ExprKind::List(_) | ExprKind::MapList { .. }, Ty::List { elem, .. }) => {
            units_in(program, elem, &mut listed);
        }
        _ => {}
    });
    for (info, used) in units.iter().zip(&mut uses) {
        let is_written = |part: &Part| !matches!(part, Part::Field(field) if !info.is_writable(*field));
        used.changed.retain(is_written);
        used.built.retain(is_written);
    }
    for unit in listed {
        uses[unit as usize].is_listed = true;
    }
    (uses, has_others)
}

/// The grammars of messages in values of a type.
fn units_in(program: &Program, ty: &Ty, found: &mut BTreeSet<u32>) {
    match ty {
        Ty::Record(unit) => _ = found.insert(unit.0),
        Ty::Option(inner) => units_in(program, inner, found),
        Ty::Tuple(parts) => parts.iter().for_each(|part| units_in(program, part, found)),
        Ty::Struct(id) => {
            let fields = &program.structs[id.0 as usize].fields;
            fields.iter().for_each(|(_, ty)| units_in(program, ty, found));
        }
        Ty::Variant(id) => {
            let cases = &program.variants[id.0 as usize].cases;
            cases.iter().filter_map(|(_, ty)| ty.as_ref()).for_each(|ty| units_in(program, ty, found));
        }
        _ => {}
    }
}
