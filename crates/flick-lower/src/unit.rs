//! Facts of a grammar for lowering: dependencies, ranges and slots of its fields.
//! Promises: a key's slot is the same in every parser of the unit; unused values have none.
//! Refuses: more needed fields than a frame has slots; `crowded` counts them before.
//! Source: FLICK §4.2 (only the fields a program uses, and what they depend on).

use std::collections::{BTreeMap, BTreeSet};

use flick_abi::FaultCause;
use flick_abi::frame::SLOT_ASKED;
use flick_abi::limits::{FRAME_HEAD_SLOTS, FRAME_SLOTS_MAX};
use flick_abi::{ReplyOrder, WireField};
use flick_check::hir::{Derived, Expr, ExprKind, Field, FieldId, FieldKind, IntRepr, Unit, UnitId};
use flick_ir::data::{Type, Value};

use crate::interval::Interval;
use crate::limits::MESSAGE_BYTES_MAX;
use crate::number::range_of_arithmetic;
use crate::parse::structured::sizes;
use crate::value::{Num, Val};
use crate::vint;
use crate::walk::keys_of;

/// Something of a message that a parser finds out and later code uses.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum SlotKey {
    /// The value of a field or variable.
    Field(FieldId),
    /// The length of a bytes field or variable-length integer as it arrived, in bytes.
    Length(FieldId),
    /// The first byte of a variable-length integer, signed. Only parsers know it.
    Lead(FieldId),
    /// Structured units: where the bytes of a field start in the message, kept for fields that the program changes.
    /// Of a text: its value; of a number: its digits; of a list: its first element. -1 where the field is not there.
    Start(FieldId),
    /// Structured units: the end of the bytes of a field in the message; the delimiter behind a text or list is not
    /// among them. -1 where the field is not there.
    End(FieldId),
    /// The first value of a key of a keyed list, missing where there is none.
    At(FieldId, u32),
    /// A further value of the key whose values name what is cut; missing where there is none.
    Further(FieldId, u32),
    /// A list that is being parsed: elements or bytes left, or elements that are open. Only parsers know it.
    Rest(FieldId),
    /// A list that is being parsed: elements so far. Only parsers know it.
    Seen(FieldId),
    /// A list that is being parsed: where the element starts. Only parsers know it.
    Element(FieldId),
    /// A keyed list that is being parsed: number of the element's key, from 1; 0: none that matters. Only parsers
    /// know it.
    Which(FieldId),
}

/// A grammar, analysed.
#[derive(Debug)]
pub struct UnitInfo<'p> {
    /// Its number.
    pub id: UnitId,
    /// The grammar.
    pub unit: &'p Unit,
    /// The range of each integer, variable or length; lengths are within the field's bound.
    ranges: Vec<Interval>,
    slots: BTreeMap<SlotKey, u16>,
    /// Slots behind those of the platform in use.
    own_slots: usize,
    /// Slots of the original that changed messages need, over all changes in the program.
    pub update_needs: BTreeSet<SlotKey>,
    /// The keys and lists of a structured unit that the program uses.
    pub uses: Uses,
}

/// The keys and lists of a structured unit that a program uses.
#[derive(Clone, Debug, Default)]
pub struct Uses {
    /// Fields that are read.
    pub read: BTreeSet<FieldId>,
    /// Keys that are read, by list.
    pub read_keys: BTreeSet<(FieldId, u32)>,
    /// Keys that are changed, by list, those that follow from changed fields among them.
    pub changed_keys: BTreeSet<(FieldId, u32)>,
}

impl<'p> UnitInfo<'p> {
    /// Analyses a grammar, without slots.
    pub fn new(id: UnitId, unit: &'p Unit) -> Self {
        let mut info = Self {
            id,
            unit,
            ranges: Vec::new(),
            slots: BTreeMap::new(),
            own_slots: 0,
            update_needs: BTreeSet::new(),
            uses: Uses::default(),
        };
        for field in &unit.fields {
            let range = match &field.kind {
                FieldKind::Int { repr, .. } | FieldKind::Var { repr, .. } => Interval::of_repr(*repr),
                FieldKind::Vint { .. } => Interval::INT,
                FieldKind::Bytes { length, max_bytes, .. } => {
                    let most = max_bytes.map_or(MESSAGE_BYTES_MAX, i128::from);
                    info.range_of(length).clip(Interval::new(0, most))
                }
                FieldKind::Text { max_bytes, .. } | FieldKind::TextVar { max_bytes, .. } => {
                    Interval::new(0, i128::from(*max_bytes))
                }
                FieldKind::Flag { .. } | FieldKind::Full { .. } => Interval::new(0, 1),
                FieldKind::ToClose { .. } => Interval::new(0, MESSAGE_BYTES_MAX),
                // The word of a list: see `SlotKey::Field`.
                FieldKind::List(_) => Interval::new(0, i128::from(i64::MAX)),
                FieldKind::Number { .. }
                | FieldKind::Varint { .. }
                | FieldKind::Bits { .. }
                | FieldKind::Kept
                | FieldKind::Carried => number_range(&field.kind),
            };
            info.ranges.push(range);
        }
        info
    }

    /// A field.
    pub fn field(&self, field: FieldId) -> &'p Field {
        &self.unit.fields[field.0 as usize]
    }

    /// All fields with their numbers, in order of the wire.
    pub fn fields(&self) -> impl DoubleEndedIterator<Item = (FieldId, &'p Field)> {
        self.unit.fields.iter().enumerate().map(|(index, field)| (FieldId(index as u32), field))
    }

    /// Returns the cause to report when the bound of a field is exceeded.
    pub fn too_long(&self, field: FieldId) -> FaultCause {
        self.field(field).too_long
    }

    /// Returns the range of an integer or variable; of a bytes field, the range of its length.
    pub fn range(&self, field: FieldId) -> Interval {
        self.ranges[field.0 as usize]
    }

    /// The key under which something is really kept: a length that is just another field is that field.
    pub fn canonical(&self, key: SlotKey) -> SlotKey {
        // In a structured unit a field may be absent while what its length follows from is there.
        if let SlotKey::Length(field) = key
            && self.unit.body.is_none()
            && let FieldKind::Bytes { length: Expr { kind: ExprKind::SelfField(source), .. }, .. } =
                &self.field(field).kind
        {
            return SlotKey::Field(*source);
        }
        key
    }

    /// Gives each of `keys` a slot, in order of the wire.
    pub fn assign_slots(&mut self, keys: &BTreeSet<SlotKey>) {
        let asked: Vec<SlotKey> = keys.iter().copied().filter(|key| self.is_asked(*key)).collect();
        self.slots.extend(asked.into_iter().map(|key| (key, SLOT_ASKED as u16)));
        for key in self.in_slots(keys) {
            let slot = FRAME_HEAD_SLOTS + self.own_slots;
            assert!(slot < FRAME_SLOTS_MAX, "`crowded` has found nothing in `{}`", self.unit.name);
            self.slots.insert(key, slot as u16);
            self.own_slots += 1;
        }
    }

    /// Of `keys`, those that take a slot of their own.
    pub fn in_slots(&self, keys: &BTreeSet<SlotKey>) -> BTreeSet<SlotKey> {
        keys.iter().map(|&key| self.canonical(key)).filter(|key| !self.is_asked(*key)).collect()
    }

    /// Whether the platform keeps it: what a request said for its reply.
    fn is_asked(&self, key: SlotKey) -> bool {
        matches!(key, SlotKey::Field(field) if matches!(self.field(field).kind, FieldKind::Kept))
    }

    /// The slot of a key that is used.
    pub fn slot(&self, key: SlotKey) -> u16 {
        let key = self.canonical(key);
        *self.slots.get(&key).unwrap_or_else(|| panic!("{key:?} of `{}` has a slot", self.unit.name))
    }

    /// The type of a key's word.
    pub fn key_type(&self, key: SlotKey) -> Type {
        match key {
            SlotKey::At(..) | SlotKey::Further(..) => Type::Bytes,
            SlotKey::Lead(_) | SlotKey::Start(_) | SlotKey::End(_) | SlotKey::Rest(_) => Type::Int,
            SlotKey::Seen(_) | SlotKey::Element(_) | SlotKey::Which(_) => Type::Int,
            SlotKey::Length(_) if self.canonical(key) == key => Type::Int,
            SlotKey::Length(_) => self.key_type(self.canonical(key)),
            SlotKey::Field(field) => match &self.field(field).kind {
                FieldKind::Int { enumeration: Some(_), .. } | FieldKind::Vint { .. } => Type::Int,
                FieldKind::Int { repr, .. } | FieldKind::Var { repr, .. } => word_of_repr(*repr),
                FieldKind::Bytes { .. }
                | FieldKind::Text { .. }
                | FieldKind::TextVar { .. }
                | FieldKind::ToClose { .. } => Type::Bytes,
                FieldKind::Flag { .. } | FieldKind::Full { .. } => Type::Bool,
                FieldKind::List(_) => Type::Int,
                FieldKind::Number { .. }
                | FieldKind::Varint { .. }
                | FieldKind::Bits { .. }
                | FieldKind::Kept
                | FieldKind::Carried => {
                    if self.range(field).within(Interval::INT) {
                        Type::Int
                    } else {
                        Type::Uint
                    }
                }
            },
        }
    }

    /// A key's word as a value.
    pub fn key_val(&self, key: SlotKey, value: Value) -> Val {
        match (key, self.key_type(key)) {
            (_, Type::Bytes) => Val::Bytes(value),
            (_, Type::Bool) => Val::Bool(value),
            (SlotKey::Field(field), Type::Int) if !self.range(field).within(Interval::INT) => {
                Val::Num(Num::one(value, Interval::INT))
            }
            (SlotKey::Length(field), _) => Val::Num(Num::one(value, self.length_range(field))),
            (SlotKey::Field(field), _) => Val::Num(Num::one(value, self.range(field))),
            (SlotKey::Lead(_), _) => Val::Num(Num::one(value, vint::LEAD)),
            _ => Val::Num(Num::one(value, Interval::INT)),
        }
    }

    /// Returns the range of a field's length, in bytes.
    pub fn length_range(&self, field: FieldId) -> Interval {
        match self.field(field).kind {
            FieldKind::Vint { .. } => vint::LENGTH,
            _ => self.range(field),
        }
    }

    /// Whether a field has no fixed width.
    pub fn has_length(&self, field: FieldId) -> bool {
        matches!(self.field(field).kind, FieldKind::Bytes { .. } | FieldKind::Vint { .. })
    }

    /// An integer at a fixed place, as the platform sees it.
    pub fn wire_field(&self, field: FieldId) -> WireField {
        let mut offset = self.unit.body.as_deref().map_or(0, |body| sizes::literals_before(body, field));
        for (before, _) in self.fields().take_while(|(id, _)| *id != field) {
            match &self.field(before).kind {
                FieldKind::Int { repr, .. } => offset += u32::from(repr.width_bytes),
                FieldKind::Bytes { length: Expr { kind: ExprKind::Int(bytes), .. }, .. } => {
                    offset += u32::try_from(*bytes).expect("a field of fixed length lies in the head");
                }
                other if !other.is_on_wire() => {}
                _ => panic!("facts of `{}` name fields at fixed places", self.unit.name),
            }
        }
        let FieldKind::Int { repr, big_endian, .. } = self.field(field).kind else {
            panic!("facts of `{}` name integers", self.unit.name)
        };
        let slot = self.slot(SlotKey::Field(field));
        WireField { offset, width_bytes: repr.width_bytes, big_endian, slot }
    }

    /// Returns how replies are matched with requests.
    pub fn order(&self) -> ReplyOrder {
        let facts = &self.unit.facts;
        if facts.in_order || facts.correlate.is_some() || facts.replies.is_some() || facts.exclusive {
            ReplyOrder::InOrder
        } else {
            ReplyOrder::None
        }
    }

    /// Largest message, in bytes; saturates.
    pub fn message_bytes_max(&self) -> u64 {
        if let Some(body) = &self.unit.body {
            return sizes::Sizes::of(self, body).most;
        }
        let bytes: i128 = self
            .fields()
            .map(|(id, field)| match field.kind {
                FieldKind::Int { repr, .. } => i128::from(repr.width_bytes),
                FieldKind::Bytes { .. } | FieldKind::Vint { .. } => self.length_range(id).hi,
                _ => 0,
            })
            .sum();
        bytes.min(MESSAGE_BYTES_MAX) as u64
    }

    /// The echo fields, each once, `correlate` and `loud` among them.
    pub fn echo(&self) -> BTreeSet<FieldId> {
        let facts = &self.unit.facts;
        let loud = facts.loud.iter().map(|(field, _)| *field);
        facts.echo.iter().copied().chain(facts.correlate).chain(loud).collect()
    }

    /// Returns the formula that computes an integer from other fields.
    pub fn formula(&self, field: FieldId) -> Option<Formula<'p>> {
        match &self.field(field).kind {
            FieldKind::Var { parse, .. } | FieldKind::Flag { parse, any: None } => Some(Formula::Expr(parse)),
            kind => match kind.derived()? {
                Derived::LengthOf(bytes) => Some(Formula::LengthOf(*bytes)),
                Derived::Expr(expr) => Some(Formula::Expr(expr)),
            },
        }
    }

    /// The fields that change when `changed` do: they themselves and what follows from them.
    pub fn affected(&self, changed: impl Iterator<Item = FieldId>) -> BTreeSet<FieldId> {
        let mut affected: BTreeSet<FieldId> = changed.collect();
        loop {
            let more: Vec<FieldId> = self
                .fields()
                .map(|(id, _)| id)
                .filter(|id| !affected.contains(id))
                .filter(|&id| {
                    self.formula(id).is_some_and(|f| f.keys().iter().any(|k| affected.contains(&k.id())))
                })
                .collect();
            if more.is_empty() {
                return affected;
            }
            affected.extend(more);
        }
    }

    /// Records what updates of `changed` need of the original message.
    pub fn note_updates(&mut self, changed: &BTreeSet<FieldId>) {
        if changed.is_empty() {
            return;
        }
        let affected = self.affected(changed.iter().copied());
        let mut needs: BTreeSet<SlotKey> = BTreeSet::new();
        let mut open: Vec<FieldId> = affected.iter().copied().collect();
        while let Some(field) = open.pop() {
            for key in self.formula(field).map_or(Vec::new(), |formula| formula.keys()) {
                if needs.insert(key) && matches!(key, SlotKey::Field(_)) {
                    open.push(key.id());
                }
            }
        }
        if self.unit.body.is_some() {
            let on_wire = affected.iter().filter(|id| self.field(**id).kind.is_on_wire());
            needs.extend(on_wire.flat_map(|&id| [SlotKey::Start(id), SlotKey::End(id)]));
            self.update_needs.append(&mut needs);
            return;
        }
        let on_wire = |id: &&FieldId| !matches!(self.field(**id).kind, FieldKind::Var { .. });
        if let Some(last) = affected.iter().rev().find(on_wire) {
            needs.extend(affected.iter().filter(on_wire).map(|&id| SlotKey::Field(id)));
            let measured = self.fields().map(|(id, _)| id).filter(|id| self.has_length(*id));
            needs.extend(measured.filter(|id| id <= last).map(SlotKey::Length));
        }
        self.update_needs = needs;
    }

    /// Returns the range of an expression over fields.
    pub fn range_of(&self, expr: &Expr) -> Interval {
        let everything = Interval::new(i128::from(i64::MIN), i128::from(u64::MAX));
        match &expr.kind {
            ExprKind::Int(value) => Interval::of(*value),
            ExprKind::Member(_, value) => Interval::of(i128::from(*value)),
            ExprKind::SelfField(field) | ExprKind::LenOf(field) if (field.0 as usize) < self.ranges.len() => {
                self.range(*field)
            }
            ExprKind::Neg(inner) => Interval::of(0).sub(self.range_of(inner)).unwrap_or(everything),
            ExprKind::Binary(op, a, b) if !matches!(expr.ty, flick_check::hir::Ty::Bool) => {
                range_of_arithmetic(*op, self.range_of(a), self.range_of(b)).unwrap_or(everything)
            }
            ExprKind::If { then, otherwise: Some(otherwise), .. } => [then, otherwise]
                .into_iter()
                .map(|block| block.value.as_ref().map_or(everything, |value| self.range_of(value)))
                .reduce(Interval::hull)
                .unwrap_or(everything),
            ExprKind::Switch { arms, otherwise, .. } => arms
                .iter()
                .map(|(_, block)| block)
                .chain(otherwise)
                .map(|block| block.value.as_ref().map_or(everything, |value| self.range_of(value)))
                .reduce(Interval::hull)
                .unwrap_or(everything),
            _ => everything,
        }
    }
}

/// The fields that an integer is computed from.
#[derive(Clone, Copy, Debug)]
pub enum Formula<'p> {
    /// The length of a bytes field.
    LengthOf(FieldId),
    /// An expression.
    Expr(&'p Expr),
}

impl Formula<'_> {
    /// Returns the slots that it reads.
    pub fn keys(&self) -> Vec<SlotKey> {
        match self {
            Formula::LengthOf(field) => vec![SlotKey::Length(*field)],
            Formula::Expr(expr) => keys_of(expr),
        }
    }
}

impl SlotKey {
    /// The field that the key is of.
    pub fn id(self) -> FieldId {
        match self {
            SlotKey::Field(field) | SlotKey::Length(field) | SlotKey::Lead(field) => field,
            SlotKey::Start(field)
            | SlotKey::End(field)
            | SlotKey::At(field, _)
            | SlotKey::Further(field, _) => field,
            SlotKey::Rest(field) | SlotKey::Seen(field) | SlotKey::Element(field) | SlotKey::Which(field) => {
                field
            }
        }
    }
}

/// Returns the range of a number of a structured unit, within that of a word.
fn number_range(kind: &FieldKind) -> Interval {
    let (lo, hi) = kind.number_range().expect("the kind is that of a number");
    let word = if lo < 0 { Interval::INT } else { Interval::UINT };
    Interval::new(lo.max(word.lo), hi.min(word.hi))
}

/// The kind of word that carries an integer of this shape.
pub fn word_of_repr(repr: IntRepr) -> Type {
    if repr.width_bytes == 8 && !repr.signed { Type::Uint } else { Type::Int }
}
