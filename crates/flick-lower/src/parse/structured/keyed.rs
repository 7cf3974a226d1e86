//! Lists that are looked into by key: which keys matter is known before a byte is read, so each element's key is
//! compared apart by its length and a few words.
//! Promises: of each key the first value is kept, whatever else is there; flags are or-ed over all occurrences; what is
//! cut is cut before anything is forwarded.

use std::collections::{BTreeMap, BTreeSet};

use flick_abi::FaultCause;
use flick_abi::frame::SLOT_CUTS;
use flick_check::hir::{FieldId, FieldKind, Item, Keyed};
use flick_ir::data::{Binary, BlockId, Op, Terminator, Type, Value};

use super::Emitter;
use super::needs::FURTHER_MAX;
use super::stage::Cursor;
use crate::unit::SlotKey;

impl Emitter<'_, '_> {
    /// Before the first element.
    pub fn begin_keys(&mut self, id: FieldId, keyed: &Keyed) {
        let missing = self.body.f.define(Type::Bytes, Op::Const(-1));
        for key in 0..keyed.keys.len() as u32 {
            self.keep(SlotKey::At(id, key), missing);
        }
        // They mean something behind a first value, wherever that is found.
        for number in (0..FURTHER_MAX).filter(|_| keyed.cut_listed.is_some()) {
            self.keep(SlotKey::Further(id, number), missing);
        }
        let no = self.body.f.bool(false);
        for (flag, ..) in self.needs.flags.clone().into_iter().filter(|(_, list, _)| *list == id) {
            self.keep(SlotKey::Field(flag), no);
        }
        if keyed.keep_cut.is_some() {
            let cuts = self.get(SLOT_CUTS);
            self.keep(SlotKey::Rest(id), cuts);
        }
    }

    /// Whether an element of a list starts with its key, and where it starts matters for its key alone.
    pub fn is_element_at_key(&self, id: FieldId) -> bool {
        let FieldKind::List(list) = &self.info.field(id).kind else { return false };
        let is_first =
            |keyed: &Keyed| matches!(list.body.first(), Some(Item::Field(key)) if *key == keyed.key);
        list.keyed.as_ref().is_some_and(is_first) && !self.needs.read_lists.contains(&id)
    }

    /// Whether a field is the value of a keyed list's element, ends it, and is read for its key alone.
    pub fn is_at_hand(&self, field: FieldId) -> bool {
        let Some(id) = self.lists.last() else { return false };
        let FieldKind::List(list) = &self.info.field(*id).kind else { return false };
        let is_last = matches!(list.body.last(), Some(Item::Field(last)) if *last == field);
        let is_value = list.keyed.as_ref().is_some_and(|keyed| keyed.value == field && keyed.key != field);
        is_last && is_value && !self.needs.read.contains(&field)
    }

    /// Keys for which something happens.
    pub fn keys_that_matter(&self, id: FieldId, keyed: &Keyed) -> BTreeSet<u32> {
        let flags = self.needs.flags.iter().filter(|(_, list, _)| *list == id).map(|(.., key)| *key);
        let changed = self.info.uses.changed_keys.iter().filter(|(list, _)| *list == id);
        let kept = (0..keyed.keys.len() as u32).filter(|key| self.needs.has(SlotKey::At(id, *key)));
        let own = keyed.once.iter().chain(&keyed.cut).chain(&keyed.cut_listed).copied();
        own.chain(flags).chain(changed.map(|(_, key)| *key)).chain(kept).collect()
    }

    /// A text has been found: if it is the key of the current list, says which.
    pub fn key_found(&mut self, field: FieldId, (start, end): (Value, Value)) {
        let Some(&id) = self.lists.last() else { return };
        let FieldKind::List(list) = &self.info.field(id).kind else { return };
        let Some(keyed) = list.keyed.as_ref().filter(|keyed| keyed.key == field) else { return };
        if !self.needs.has(SlotKey::Which(id)) {
            return;
        }
        let mut by_len: BTreeMap<usize, Vec<u32>> = BTreeMap::new();
        for key in self.keys_that_matter(id, keyed) {
            by_len.entry(keyed.keys[key as usize].len()).or_default().push(key);
        }
        let known = self.body.f.new_block(&[Type::Int]);
        let other = self.body.f.new_block(&[]);
        let len = self.body.f.binary(Type::Int, Binary::Sub, end, start);
        let cases: Vec<(i64, BlockId)> =
            by_len.keys().map(|len| (*len as i64, self.body.f.new_block(&[]))).collect();
        self.body.f.end(Terminator::Switch { value: len, cases: cases.clone(), default: other });
        let behind = self.at;
        for ((len, keys), (_, block)) in by_len.iter().zip(&cases) {
            self.body.f.go_on_in(*block);
            self.compare_keys(keyed, keys, (start, *len as u32), known, other);
        }
        self.body.f.go_on_in(other);
        let none = self.body.f.int(0);
        self.body.f.jump(known, vec![none]);
        self.body.f.go_on_in(known);
        let which = self.body.f.params(known)[0];
        self.keep(SlotKey::Which(id), which);
        self.at = behind;
    }

    /// Goes on at `known` with the number of the key that stands at a place, or at `other`.
    fn compare_keys(
        &mut self,
        keyed: &Keyed,
        keys: &[u32],
        (start, len): (Value, u32),
        known: BlockId,
        other: BlockId,
    ) {
        self.at = Cursor::at(start, 0);
        // They are there, which only the length that was compared says: this never waits.
        let state = self.states;
        self.wait(len, state);
        for key in keys {
            let next = self.body.f.new_block(&[]);
            for cond in self.compare_bytes(&keyed.keys[*key as usize], keyed.nocase) {
                let same = self.body.f.new_block(&[]);
                self.body.f.branch_to(cond, same, next);
                self.body.f.go_on_in(same);
            }
            let is_there = |id: &FieldId| {
                let is_asked = keyed.cut.contains(key) || self.info.uses.changed_keys.contains(&(*id, *key));
                is_asked && self.is_element_at_key(*id)
            };
            if let Some(id) = self.lists.last().copied().filter(is_there) {
                self.keep(SlotKey::Element(id), start);
            }
            let number = self.body.f.int(i64::from(*key) + 1);
            self.body.f.jump(known, vec![number]);
            self.body.f.go_on_in(next);
        }
        self.body.f.jump(other, Vec::new());
    }

    /// Behind an element: what its key asks for.
    pub fn element_of_key(&mut self, id: FieldId, keyed: &Keyed) {
        let keys = self.keys_that_matter(id, keyed);
        if keys.is_empty() {
            return;
        }
        // What is cut or copied around must be there.
        self.need(0);
        let which = self.get_key(SlotKey::Which(id));
        let behind = self.body.f.new_block(&[]);
        let cases: Vec<(i64, BlockId)> =
            keys.iter().map(|key| (i64::from(*key) + 1, self.body.f.new_block(&[]))).collect();
        self.body.f.end(Terminator::Switch { value: which, cases: cases.clone(), default: behind });
        let position = self.at;
        for (key, (_, block)) in keys.into_iter().zip(cases) {
            self.body.f.go_on_in(block);
            self.occurrence(id, keyed, key);
            self.at = position;
            self.body.f.jump(behind, Vec::new());
        }
        self.body.f.go_on_in(behind);
    }

    /// One occurrence of a key.
    fn occurrence(&mut self, id: FieldId, keyed: &Keyed, key: u32) {
        if self.needs.has(SlotKey::Field(keyed.value)) {
            let mut value = match self.at_hand {
                Some((field, value)) if field == keyed.value => value,
                _ => self.get_key(SlotKey::Field(keyed.value)),
            };
            if let FieldKind::Text { trim: true, .. } = self.info.field(keyed.value).kind {
                value = self.body.f.define(Type::Bytes, Op::Trim(value));
            }
            self.keep_first(id, keyed, key, value);
            self.raise_flags(id, key, value);
        }
        let is_changed = self.info.uses.changed_keys.contains(&(id, key));
        if !keyed.cut.contains(&key) && !is_changed {
            return;
        }
        let (start, end) = (self.get_key(SlotKey::Element(id)), self.position(self.at));
        if is_changed {
            // The name, then all of it: a message without it is copied around the element.
            let name = self.get_key(SlotKey::Field(keyed.key));
            self.push_item(id, name);
            let element = self.body.f.define(Type::Bytes, Op::MessageBytes { start, end });
            self.push_item(id, element);
        }
        if keyed.cut.contains(&key) {
            let has_capacity = self.body.f.define(Type::Bool, Op::Cut { start, end });
            self.body.expect(has_capacity, id.0, FaultCause::TooLong);
        }
    }

    /// Keeps the first value of a key; refuses a second one where there may be but one.
    fn keep_first(&mut self, id: FieldId, keyed: &Keyed, key: u32, value: Value) {
        let own = SlotKey::At(id, key);
        if !self.needs.has(own) {
            return;
        }
        let known = self.get_key(own);
        let is_first = self.body.f.define(Type::Bool, Op::IsMissing(known));
        if keyed.once.contains(&key) {
            self.body.expect(is_first, id.0, self.info.field(id).cause);
            return self.keep(own, value);
        }
        if keyed.cut_listed == Some(key) {
            return self.keep_one_of_several(id, own, is_first, value);
        }
        let first = self.body.f.define(Type::Bytes, Op::Select { cond: is_first, a: value, b: known });
        self.keep(own, first);
    }

    /// Keeps a value in the first place of its key, or in the first free one of the further places.
    fn keep_one_of_several(&mut self, id: FieldId, own: SlotKey, is_first: Value, value: Value) {
        let [first, further, behind] = [(); 3].map(|()| self.body.f.new_block(&[]));
        self.body.f.branch_to(is_first, first, further);
        self.body.f.go_on_in(first);
        self.keep(own, value);
        self.body.f.jump(behind, Vec::new());
        self.body.f.go_on_in(further);
        self.keep_further(id, value);
        self.body.f.jump(behind, Vec::new());
        self.body.f.go_on_in(behind);
    }

    /// Keeps a value that is not the first in the first free place.
    fn keep_further(&mut self, id: FieldId, value: Value) {
        let mut to_position = self.body.f.bool(true);
        for number in 0..FURTHER_MAX {
            let own = SlotKey::Further(id, number);
            let known = self.get_key(own);
            let is_free = self.body.f.define(Type::Bool, Op::IsMissing(known));
            let cond = self.body.f.binary(Type::Bool, Binary::And, to_position, is_free);
            let kept = self.body.f.define(Type::Bytes, Op::Select { cond, a: value, b: known });
            self.keep(own, kept);
            let taken = self.body.f.define(Type::Bool, Op::Not(is_free));
            to_position = self.body.f.binary(Type::Bool, Binary::And, to_position, taken);
        }
        let is_kept = self.body.f.define(Type::Bool, Op::Not(to_position));
        self.body.expect(is_kept, id.0, FaultCause::TooLong);
    }

    /// Evaluates the flags that follow from a key for one occurrence of it.
    pub fn raise_flags(&mut self, id: FieldId, key: u32, value: Value) {
        let flags = self.needs.flags.clone();
        for (flag, ..) in flags.into_iter().filter(|(_, list, own)| (*list, *own) == (id, key)) {
            let FieldKind::Flag { parse, .. } = &self.info.field(flag).kind else {
                panic!("flags are flags")
            };
            self.body.occurrence = Some(((id, key), value));
            let holds = self.body.expr(parse).bool();
            self.body.occurrence = None;
            let known = self.get_key(SlotKey::Field(flag));
            let either = self.body.f.binary(Type::Bool, Binary::Or, known, holds);
            self.keep(SlotKey::Field(flag), either);
        }
    }

    /// Behind the last element: cuts what is named, or puts back what was cut.
    pub fn cut_rest(&mut self, id: FieldId, keyed: &Keyed) {
        if keyed.keep_cut.is_none() && keyed.cut_listed.is_none() {
            return;
        }
        let over = self.body.f.new_block(&[]);
        if let Some(keep) = &keyed.keep_cut {
            let (keeps, cuts) = (self.body.f.new_block(&[]), self.body.f.new_block(&[]));
            self.body.branch_on(keep, keeps, cuts);
            self.body.f.go_on_in(keeps);
            let before = self.get_key(SlotKey::Rest(id));
            self.body.set_slot(SLOT_CUTS as u16, before);
            self.body.f.jump(over, Vec::new());
            self.body.f.go_on_in(cuts);
        }
        if let Some(listed) = keyed.cut_listed {
            let others = (0..FURTHER_MAX).map(|number| SlotKey::Further(id, number));
            let end = self.get_key(SlotKey::End(id));
            self.there(end);
            for names in [SlotKey::At(id, listed)].into_iter().chain(others) {
                self.cut_listed(id, (keyed, names), end, over);
            }
        }
        self.body.f.jump(over, Vec::new());
        self.body.f.go_on_in(over);
    }

    /// Cuts what a value names; without a value all is done, since the places are taken in order.
    fn cut_listed(&mut self, id: FieldId, (keyed, names): (&Keyed, SlotKey), end: Value, over: BlockId) {
        let names = self.get_key(names);
        if let FieldKind::Text { max_bytes, .. } = self.info.field(keyed.value).kind {
            self.body.f.bound_length(names, max_bytes);
        }
        let is_missing = self.body.f.define(Type::Bool, Op::IsMissing(names));
        let there = self.body.f.new_block(&[]);
        self.body.f.branch_to(is_missing, over, there);
        self.body.f.go_on_in(there);
        // Most lists are one name, which is cut anyway: then no line is looked at again.
        let listed = self.body.f.new_block(&[]);
        for key in keyed.cut.iter().filter(|_| keyed.nocase) {
            let known = self.body.consts.intern(&keyed.keys[*key as usize]);
            let known = self.body.f.define(Type::Bytes, known);
            let is_cut = self.body.f.define(Type::Bool, Op::SameText(names, known));
            let next = self.body.f.new_block(&[]);
            self.body.f.branch_to(is_cut, listed, next);
            self.body.f.go_on_in(next);
        }
        let start = self.get_key(SlotKey::Start(id));
        let lines_max = self.elements_max(id);
        let has_capacity = self.body.f.define(Type::Bool, Op::CutListed { names, start, end, lines_max });
        self.body.expect(has_capacity, id.0, FaultCause::TooLong);
        self.body.f.jump(listed, Vec::new());
        self.body.f.go_on_in(listed);
    }
}
