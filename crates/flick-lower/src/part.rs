//! The parts of a message that a program can change, and the parts that are computed from them.
//! Promises: a part takes one word; what follows from a change is found part by part, so that a change of one key of
//! a list touches nothing that reads another.
//! Refuses: fields of the elements of a list: a program gives whole lists.

use std::collections::BTreeSet;

use flick_check::hir::{Choice, Expr, ExprKind, FieldId, FieldKind, Item, Keyed, List};
use flick_ir::data::{Type, Value};

use crate::interval::Interval;
use crate::unit::{SlotKey, UnitInfo};
use crate::value::{Num, Val};
use crate::walk::keys_of;

/// A part of a message that may be replaced.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Part {
    /// A field. Of a list: memory with its elements; missing bytes mean that nothing was given.
    Field(FieldId),
    /// The value of a key of a keyed list.
    Key(FieldId, u32),
    /// The change of that key: one of [`KEY_KEPT`], [`KEY_SET`], [`KEY_REMOVED`].
    KeyState(FieldId, u32),
    /// All bytes of a message that is given by them; missing where it is not.
    Wire,
}

/// A key is unchanged.
pub const KEY_KEPT: i64 = 0;
/// A key has the value of [`Part::Key`], once.
pub const KEY_SET: i64 = 1;
/// A key is gone.
pub const KEY_REMOVED: i64 = 2;

impl Part {
    /// The part that says which: what becomes of a key is said with the key.
    fn said_with(self) -> Self {
        match self {
            Part::KeyState(list, key) => Part::Key(list, key),
            other => other,
        }
    }
}

impl<'p> UnitInfo<'p> {
    /// The type of a part's word.
    pub fn part_type(&self, part: Part) -> Type {
        match part {
            Part::Field(field) if self.list(field).is_some() => Type::Bytes,
            Part::Field(field) => self.key_type(SlotKey::Field(field)),
            Part::Key(..) | Part::Wire => Type::Bytes,
            Part::KeyState(..) => Type::Int,
        }
    }

    /// A part's word as a value.
    pub fn part_val(&self, part: Part, value: Value) -> Val {
        match part {
            Part::Field(field) if self.list(field).is_none() => self.key_val(SlotKey::Field(field), value),
            Part::Field(_) | Part::Key(..) | Part::Wire => Val::Bytes(value),
            Part::KeyState(..) => {
                Val::Num(Num::one(value, Interval::new(i128::from(KEY_KEPT), i128::from(KEY_REMOVED))))
            }
        }
    }

    /// The list that a field is.
    pub fn list(&self, field: FieldId) -> Option<&'p List> {
        match &self.field(field).kind {
            FieldKind::List(list) => Some(list),
            _ => None,
        }
    }

    /// The keyed list that a field is. Panics on any other.
    pub fn keyed(&self, field: FieldId) -> (&'p List, &'p Keyed) {
        let list = self.list(field).expect("the checker looks for keys in lists");
        (list, list.keyed.as_ref().expect("the checker looks for keys in keyed lists"))
    }

    /// The parts that change when `changed` do: they themselves and what follows from them.
    pub fn affected_parts(&self, changed: impl Iterator<Item = Part>) -> BTreeSet<Part> {
        let mut affected: BTreeSet<Part> = changed.map(Part::said_with).collect();
        loop {
            let more: Vec<Part> =
                self.followers(&affected).into_iter().filter(|part| !affected.contains(part)).collect();
            if more.is_empty() {
                return affected;
            }
            affected.extend(more);
        }
    }

    /// Returns the parts that are computed from changed parts directly.
    fn followers(&self, affected: &BTreeSet<Part>) -> Vec<Part> {
        let mut found = Vec::new();
        for (id, field) in self.fields() {
            if self.formula(id).is_some_and(|formula| reads_any(&formula.keys(), affected)) {
                found.push(Part::Field(id));
            }
            match &field.kind {
                FieldKind::Bits { of, .. } if affected.contains(&Part::Field(id)) => {
                    found.push(Part::Field(*of));
                }
                FieldKind::List(list) => {
                    let follows = list.keyed.iter().flat_map(|keyed| &keyed.follows);
                    let hit = follows.filter(|(_, text)| reads_any(&keys_of(text), affected));
                    found.extend(hit.map(|(key, _)| Part::Key(id, *key)));
                }
                _ => {}
            }
        }
        found
    }

    /// Records what the program reads of the messages.
    pub fn note_reads(&mut self, fields: &BTreeSet<FieldId>, keys: &BTreeSet<(FieldId, u32)>) {
        self.uses.read.extend(fields);
        self.uses.read_keys.extend(keys);
    }

    /// Records what changes of these parts need of the original message.
    pub fn note_changes(&mut self, changed: &BTreeSet<Part>) {
        if self.unit.body.is_none() {
            let fields = changed.iter().filter_map(|part| match part {
                Part::Field(field) => Some(*field),
                _ => None,
            });
            return self.note_updates(&fields.collect());
        }
        let affected = self.affected_parts(changed.iter().copied());
        let mut needs: BTreeSet<SlotKey> = BTreeSet::new();
        for part in &affected {
            match *part {
                Part::Field(field) => self.note_field(field, changed.contains(part), &mut needs),
                Part::Key(list, key) => {
                    let (own, keyed) = self.keyed(list);
                    needs.extend([SlotKey::Start(list), SlotKey::End(list), SlotKey::Field(list)]);
                    if own.max.is_some() {
                        needs.extend([SlotKey::Length(list), SlotKey::At(list, key)]);
                    }
                    for (_, text) in keyed.follows.iter().filter(|(number, _)| *number == key) {
                        for source in keys_of(text) {
                            needs.extend([SlotKey::Start(source.id()), SlotKey::End(source.id())]);
                            self.note_read(source, &mut needs);
                        }
                    }
                }
                Part::KeyState(..) | Part::Wire => {}
            }
            if let Part::Field(field) = part {
                for key in self.formula(*field).map_or(Vec::new(), |formula| formula.keys()) {
                    self.note_read(key, &mut needs);
                }
            }
        }
        let keys = affected.iter().filter_map(|part| match part {
            Part::Key(list, key) => Some((*list, *key)),
            _ => None,
        });
        self.uses.changed_keys = keys.collect();
        self.update_needs = needs;
    }

    /// Notes the slots that replacing a field needs: its position and, of a number, its old value.
    fn note_field(&self, field: FieldId, is_direct: bool, needs: &mut BTreeSet<SlotKey>) {
        let kind = &self.field(field).kind;
        if kind.is_on_wire() {
            needs.extend([SlotKey::Start(field), SlotKey::End(field)]);
        }
        // Where a path that changes it meets one that does not, its word is carried.
        let is_carried = is_direct && !matches!(kind, FieldKind::ToClose { .. } | FieldKind::List(_));
        let is_number =
            kind.number_range().is_some() || matches!(kind, FieldKind::Int { .. } | FieldKind::Vint { .. });
        if is_number || is_carried {
            needs.insert(SlotKey::Field(field));
        }
        // All bits of an integer are written again.
        let of = |kind: &FieldKind| match kind {
            FieldKind::Bits { of, .. } => Some(*of),
            _ => None,
        };
        if let Some(whole) = of(kind) {
            needs.extend(
                self.fields()
                    .filter(|(_, bits)| of(&bits.kind) == Some(whole))
                    .map(|(id, _)| SlotKey::Field(id)),
            );
        }
    }

    /// Notes the slots that reading a key in a formula needs: the key, and those that it is computed from.
    fn note_read(&self, key: SlotKey, needs: &mut BTreeSet<SlotKey>) {
        if !needs.insert(key) {
            return;
        }
        if let SlotKey::Field(field) = key {
            for inner in self.formula(field).map_or(Vec::new(), |formula| formula.keys()) {
                self.note_read(inner, needs);
            }
        }
    }

    /// The fields whose lengths a field is computed from, also by way of others.
    pub fn measured(&self, field: FieldId) -> BTreeSet<FieldId> {
        let mut keys = BTreeSet::new();
        for key in self.formula(field).map_or(Vec::new(), |formula| formula.keys()) {
            self.note_read(key, &mut keys);
        }
        let lengths = keys.into_iter().filter_map(|key| match key {
            SlotKey::Length(of) => Some(of),
            _ => None,
        });
        lengths.collect()
    }

    /// Whether something that reads these keys is touched by a change of `affected`.
    pub fn is_touched(&self, keys: &[SlotKey], affected: &BTreeSet<Part>) -> bool {
        reads_any(keys, affected)
    }

    /// Whether what a program gives a field is written: not what is computed from others.
    pub fn is_writable(&self, field: FieldId) -> bool {
        let kind = &self.field(field).kind;
        kind.is_on_wire() || matches!(kind, FieldKind::Bits { .. })
    }

    /// Whether a field stands in every message.
    pub fn is_always_there(&self, field: FieldId) -> bool {
        self.unit.body.as_ref().is_none_or(|body| body.iter().any(|item| is_field(item, field)))
    }

    /// Fields that are not given but follow from those that are: where a choice goes by a field and just one of its
    /// arms is given, the field is what leads there.
    pub fn implied(&self, given: &BTreeSet<FieldId>) -> Vec<(FieldId, &'p Expr)> {
        let mut found = Vec::new();
        let mut open: Vec<&'p Item> = self.unit.body.iter().flatten().collect();
        while let Some(item) = open.pop() {
            let Item::Switch(choice) = item else { continue };
            if let ExprKind::SelfField(field) = choice.on.kind
                && !given.contains(&field)
                && self.field(field).kind.is_on_wire()
                && let Some(pattern) = only_arm(choice, &|field| given.contains(&field))
            {
                found.push((field, pattern));
            }
            open.extend(choice.arms.iter().flat_map(|(_, items)| items));
            open.extend(choice.otherwise.iter().flatten());
        }
        found
    }
}

/// The first pattern of the one arm of a choice in which something is given.
fn only_arm<'p>(choice: &'p Choice, given: &dyn Fn(FieldId) -> bool) -> Option<&'p Expr> {
    let mut arms = choice.arms.iter().filter(|(_, items)| any_field(items, given));
    let (patterns, _) = arms.next()?;
    let is_only =
        arms.next().is_none() && !choice.otherwise.as_ref().is_some_and(|items| any_field(items, given));
    is_only.then_some(patterns.first()).flatten()
}

/// Whether a field of these items, or of choices among them, is as asked for. Elements of lists are left out.
pub fn any_field(items: &[Item], test: &dyn Fn(FieldId) -> bool) -> bool {
    items.iter().any(|item| match item {
        Item::Field(field) => test(*field),
        Item::Switch(choice) => {
            choice.arms.iter().any(|(_, items)| any_field(items, test))
                || choice.otherwise.as_ref().is_some_and(|items| any_field(items, test))
        }
        Item::Literal(_) | Item::Check(_) => false,
    })
}

fn is_field(item: &Item, field: FieldId) -> bool {
    matches!(item, Item::Field(known) if *known == field)
}

fn reads_any(keys: &[SlotKey], affected: &BTreeSet<Part>) -> bool {
    keys.iter().any(|key| match *key {
        SlotKey::At(list, number) => {
            affected.contains(&Part::Key(list, number)) || affected.contains(&Part::Field(list))
        }
        other => affected.contains(&Part::Field(other.id())),
    })
}
