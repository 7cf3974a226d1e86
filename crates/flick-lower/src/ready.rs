//! Computes the values that must be known before the first byte of a structured message is written.
//! Promises: what is computed here is all that may build something in the output, where it would stand in the middle of
//! the message: texts, lists, values of choices and of what follows from other fields.
//! Refuses: fields of the elements of lists; what they follow from is in the element.

use std::collections::BTreeMap;

use flick_abi::limits::ITEMS_MAX;
use flick_check::hir::{Choice, FieldId, Item, Ty};
use flick_ir::data::{Binary, Op, Type, Value};

use crate::body::Body;
use crate::part::{KEY_KEPT, KEY_SET, Part};
use crate::repeat::Run;
use crate::value::{Shape, ShapeKind, Val};

/// The values that are known when the first byte is written.
#[derive(Clone, Debug, Default)]
pub struct Ready {
    /// Fields that follow from others.
    fields: BTreeMap<FieldId, Val>,
    /// Choices that go by their value, by their place in the checked program.
    choices: BTreeMap<*const Choice, Val>,
    /// Keyed lists of which keys are written.
    keys: BTreeMap<FieldId, Keys>,
}

/// The keys of a list that a change or a field that they follow from concerns.
#[derive(Clone, Debug, Default)]
pub struct Keys {
    /// Keys that do not stay where they stand, each with whether it is so.
    pub replaced: Vec<(u32, Value)>,
    /// Keys that are written at the list's end where a condition holds, with what they say: bytes, or a number in
    /// digits.
    pub set: Vec<(u32, Value, Val)>,
    /// Keys and elements that arrived, of all keys that the program changes.
    pub arrived: Option<Run>,
}

impl Ready {
    /// The keys of a list.
    pub fn keys(&self, list: FieldId) -> Keys {
        self.keys.get(&list).cloned().unwrap_or_default()
    }

    /// The value that a choice goes by.
    pub fn choice(&self, choice: &Choice) -> Option<Val> {
        self.choices.get(&std::ptr::from_ref(choice)).cloned()
    }
}

impl Body<'_> {
    /// A field as it will be written.
    pub fn ready_field(&mut self, shape: &Shape, field: FieldId) -> Val {
        match self.ready.fields.get(&field) {
            Some(val) => val.clone(),
            None if shape
                .overrides
                .get(&Part::Field(field))
                .is_some_and(|val| matches!(val, Val::Num(_))) =>
            {
                shape.overrides[&Part::Field(field)].clone()
            }
            None => self.shape_field(shape, field),
        }
    }

    /// Computes what writing a message that was changed or built needs.
    pub fn make_ready_of(&mut self, shape: &Shape) -> Ready {
        let mut ready = Ready::default();
        let body = self.cx.unit(shape.unit).unit.body.as_deref().unwrap_or_default();
        self.ready_items(shape, body, &mut ready);
        ready
    }

    fn ready_items(&mut self, shape: &Shape, items: &[Item], ready: &mut Ready) {
        for item in items {
            match item {
                Item::Field(field) => self.ready_one(shape, *field, ready),
                Item::Switch(choice) => {
                    if shape.kind == ShapeKind::Built && self.given_arms(shape, choice).is_empty() {
                        let value = self.self_expr(shape, &choice.on);
                        ready.choices.insert(std::ptr::from_ref(choice), value);
                    }
                    let rows = choice.arms.iter().map(|(_, items)| items).chain(&choice.otherwise);
                    rows.for_each(|items| self.ready_items(shape, items, ready));
                }
                Item::Literal(_) | Item::Check(_) => {}
            }
        }
    }

    fn ready_one(&mut self, shape: &Shape, field: FieldId, ready: &mut Ready) {
        let info = self.cx.unit(shape.unit);
        let affected = info.affected_parts(shape.overrides.keys().copied());
        let is_written = shape.kind == ShapeKind::Built || affected.contains(&Part::Field(field));
        if info.field(field).kind.is_on_wire() && info.formula(field).is_some() && is_written {
            let val = self.shape_field(shape, field);
            ready.fields.insert(field, val);
        }
        if info.list(field).is_some_and(|list| list.keyed.is_some()) {
            let mut keys = self.ready_keys(shape, field);
            let concerns = affected.iter().any(|part| matches!(part, Part::Key(list, _) if *list == field));
            if shape.kind != ShapeKind::Built && concerns {
                let items = self.items_of(shape, field, ITEMS_MAX as u32);
                let word = Ty::Bytes { max: u32::MAX, text: false };
                let pair = Ty::Tuple(vec![word.clone(), word]);
                let most = info.list(field).and_then(|list| list.max).unwrap_or(u32::MAX);
                keys.arrived = Some(self.run_of_list(items, &pair, most.min(ITEMS_MAX as u32 / 2)));
            }
            ready.keys.insert(field, keys);
        }
    }

    /// The keys of a list that are written, and those that do not stay.
    pub fn ready_keys(&mut self, shape: &Shape, list: FieldId) -> Keys {
        let (_, keyed) = self.cx.unit(shape.unit).keyed(list);
        let mut found = Keys::default();
        for key in 0..keyed.keys.len() as u32 {
            let followed = self.followed_key(shape, list, key);
            let changed = self.key_change(shape, list, key).map(|(state, value)| {
                let kept = self.is_state(state, KEY_KEPT);
                (self.f.define(Type::Bool, Op::Not(kept)), self.is_state(state, KEY_SET), value)
            });
            match (changed, followed) {
                (None, None) => {}
                (Some((goes, is_set, value)), None) => {
                    found.replaced.push((key, goes));
                    found.set.push((key, is_set, Val::Bytes(value)));
                }
                (None, Some((cond, said))) => {
                    found.replaced.push((key, cond));
                    found.set.push((key, cond, said));
                }
                // A value that follows from a field takes precedence over one that the program sets.
                (Some((goes, is_set, value)), Some((cond, said))) => {
                    found.replaced.push((key, self.f.binary(Type::Bool, Binary::Or, goes, cond)));
                    let not = self.f.define(Type::Bool, Op::Not(cond));
                    let otherwise = self.f.binary(Type::Bool, Binary::And, is_set, not);
                    found.set.push((key, cond, said));
                    found.set.push((key, otherwise, Val::Bytes(value)));
                }
            }
        }
        found
    }
}
