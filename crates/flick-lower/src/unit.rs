//! What lowering knows of a grammar: which fields depend on which, what they may be, where they are kept.
//! Promises: a key's slot is the same in every parser of the unit; nothing that nobody needs has one.
//! Refuses: more needed fields than a frame has slots; the checker counts them.
//! Source: FLICK §4.2 (only the fields a program uses, and what they depend on).

use std::collections::{BTreeMap, BTreeSet};

use flick_abi::limits::{FRAME_HEAD_SLOTS, FRAME_SLOTS_MAX};
use flick_abi::{ReplyOrder, WireField};
use flick_check::hir::{Derived, Expr, ExprKind, Field, FieldId, FieldKind, IntRepr, Unit, UnitId};
use flick_ir::data::{Type, Value};

use crate::interval::Interval;
use crate::limits::MESSAGE_BYTES_MAX;
use crate::number::range_of_arithmetic;
use crate::value::{Num, Val};
use crate::vint;
use crate::walk::keys_of;

/// Something of a message that a parser finds out and later code uses.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Key {
    /// The value of a field or variable.
    Field(FieldId),
    /// The length of a bytes field or variable-length integer as it arrived, in bytes.
    Length(FieldId),
    /// The first byte of a variable-length integer, signed. Only parsers know it.
    Lead(FieldId),
}

/// A grammar, analysed.
#[derive(Debug)]
pub struct UnitInfo<'p> {
    /// Its number.
    pub id: UnitId,
    /// The grammar.
    pub unit: &'p Unit,
    /// What each integer, variable or length may be; lengths within the field's bound.
    ranges: Vec<Interval>,
    slots: BTreeMap<Key, u16>,
    /// What a changed message needs of the original, over all changes in the program.
    pub update_needs: BTreeSet<Key>,
}

impl<'p> UnitInfo<'p> {
    /// Analyses a grammar, without slots.
    pub fn new(id: UnitId, unit: &'p Unit) -> Self {
        let mut info =
            Self { id, unit, ranges: Vec::new(), slots: BTreeMap::new(), update_needs: BTreeSet::new() };
        for field in &unit.fields {
            let range = match &field.kind {
                FieldKind::Int { repr, .. } | FieldKind::Var { repr, .. } => Interval::of_repr(*repr),
                FieldKind::Vint { .. } => Interval::INT,
                FieldKind::Bytes { length, max_bytes, .. } => {
                    let most = max_bytes.map_or(MESSAGE_BYTES_MAX, i128::from);
                    info.range_of(length).clip(Interval::new(0, most))
                }
                _ => panic!("the checker makes no field of a structured unit yet"),
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

    /// What an integer or variable may be; for a bytes field its length.
    pub fn range(&self, field: FieldId) -> Interval {
        self.ranges[field.0 as usize]
    }

    /// The key under which something is really kept: a length that is just another field is that field.
    pub fn canonical(&self, key: Key) -> Key {
        if let Key::Length(field) = key
            && let FieldKind::Bytes { length: Expr { kind: ExprKind::SelfField(source), .. }, .. } =
                &self.field(field).kind
        {
            return Key::Field(*source);
        }
        key
    }

    /// Gives each of `keys` a slot, in order of the wire.
    pub fn assign_slots(&mut self, keys: &BTreeSet<Key>) {
        let canonical: BTreeSet<Key> = keys.iter().map(|&key| self.canonical(key)).collect();
        for key in canonical {
            let slot = FRAME_HEAD_SLOTS + self.slots.len();
            assert!(slot < FRAME_SLOTS_MAX, "the checker bounds the fields of `{}` in use", self.unit.name);
            self.slots.insert(key, slot as u16);
        }
    }

    /// The slot of a key that somebody needs.
    pub fn slot(&self, key: Key) -> u16 {
        let key = self.canonical(key);
        *self.slots.get(&key).unwrap_or_else(|| panic!("{key:?} of `{}` has a slot", self.unit.name))
    }

    /// The type of a key's word.
    pub fn key_type(&self, key: Key) -> Type {
        match key {
            Key::Lead(_) => Type::Int,
            Key::Length(_) if self.canonical(key) == key => Type::Int,
            Key::Length(_) => self.key_type(self.canonical(key)),
            Key::Field(field) => match &self.field(field).kind {
                FieldKind::Int { enumeration: Some(_), .. } | FieldKind::Vint { .. } => Type::Int,
                FieldKind::Int { repr, .. } | FieldKind::Var { repr, .. } => word_of_repr(*repr),
                FieldKind::Bytes { .. } => Type::Bytes,
                _ => panic!("the checker makes no field of a structured unit yet"),
            },
        }
    }

    /// A key's word as a value.
    pub fn key_val(&self, key: Key, value: Value) -> Val {
        match (key, self.key_type(key)) {
            (_, Type::Bytes) => Val::Bytes(value),
            (Key::Field(field), Type::Int) if !self.range(field).within(Interval::INT) => {
                Val::Num(Num::one(value, Interval::INT))
            }
            (Key::Length(field), _) => Val::Num(Num::one(value, self.length_range(field))),
            (Key::Field(field), _) => Val::Num(Num::one(value, self.range(field))),
            (Key::Lead(_), _) => Val::Num(Num::one(value, vint::LEAD)),
        }
    }

    /// What the length of a field may be, in bytes.
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
        let mut offset = 0;
        for (before, _) in self.fields().take_while(|(id, _)| *id != field) {
            match &self.field(before).kind {
                FieldKind::Int { repr, .. } => offset += u32::from(repr.width_bytes),
                FieldKind::Var { .. } => {}
                FieldKind::Bytes { .. } | FieldKind::Vint { .. } => {
                    panic!("facts of `{}` name fields at fixed places", self.unit.name)
                }
                _ => panic!("the checker makes no field of a structured unit yet"),
            }
        }
        let FieldKind::Int { repr, big_endian, .. } = self.field(field).kind else {
            panic!("facts of `{}` name integers", self.unit.name)
        };
        let slot = self.slot(Key::Field(field));
        WireField { offset, width_bytes: repr.width_bytes, big_endian, slot }
    }

    /// How replies find their requests.
    pub fn order(&self) -> ReplyOrder {
        let facts = &self.unit.facts;
        if facts.in_order || facts.correlate.is_some() { ReplyOrder::InOrder } else { ReplyOrder::None }
    }

    /// Largest message, in bytes; saturates.
    pub fn message_bytes_max(&self) -> u64 {
        let bytes: i128 = self
            .fields()
            .map(|(id, field)| match field.kind {
                FieldKind::Int { repr, .. } => i128::from(repr.width_bytes),
                FieldKind::Var { .. } => 0,
                FieldKind::Bytes { .. } | FieldKind::Vint { .. } => self.length_range(id).hi,
                _ => panic!("the checker makes no field of a structured unit yet"),
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

    /// What becomes of an integer when something it follows from changes.
    pub fn formula(&self, field: FieldId) -> Option<Formula<'p>> {
        match &self.field(field).kind {
            FieldKind::Int { derived, .. } | FieldKind::Vint { derived } => match derived {
                Some(Derived::LengthOf(bytes)) => Some(Formula::LengthOf(*bytes)),
                Some(Derived::Expr(expr)) => Some(Formula::Expr(expr)),
                None => None,
            },
            FieldKind::Var { parse, .. } => Some(Formula::Expr(parse)),
            FieldKind::Bytes { .. } => None,
            _ => panic!("the checker makes no field of a structured unit yet"),
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
        let mut needs: BTreeSet<Key> = BTreeSet::new();
        let mut open: Vec<FieldId> = affected.iter().copied().collect();
        while let Some(field) = open.pop() {
            for key in self.formula(field).map_or(Vec::new(), |formula| formula.keys()) {
                if needs.insert(key) && matches!(key, Key::Field(_)) {
                    open.push(key.id());
                }
            }
        }
        let on_wire = |id: &&FieldId| !matches!(self.field(**id).kind, FieldKind::Var { .. });
        if let Some(last) = affected.iter().rev().find(on_wire) {
            needs.extend(affected.iter().filter(on_wire).map(|&id| Key::Field(id)));
            let measured = self.fields().map(|(id, _)| id).filter(|id| self.has_length(*id));
            needs.extend(measured.filter(|id| id <= last).map(Key::Length));
        }
        self.update_needs = needs;
    }

    /// What an expression over fields may be.
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

/// What an integer follows from.
#[derive(Clone, Copy, Debug)]
pub enum Formula<'p> {
    /// The length of a bytes field.
    LengthOf(FieldId),
    /// An expression.
    Expr(&'p Expr),
}

impl Formula<'_> {
    /// What it reads.
    pub fn keys(&self) -> Vec<Key> {
        match self {
            Formula::LengthOf(field) => vec![Key::Length(*field)],
            Formula::Expr(expr) => keys_of(expr),
        }
    }
}

impl Key {
    /// The field that the key is of.
    pub fn id(self) -> FieldId {
        match self {
            Key::Field(field) | Key::Length(field) | Key::Lead(field) => field,
        }
    }
}

/// The kind of word that carries an integer of this shape.
pub fn word_of_repr(repr: IntRepr) -> Type {
    if repr.width_bytes == 8 && !repr.signed { Type::Uint } else { Type::Int }
}
