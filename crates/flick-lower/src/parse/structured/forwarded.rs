//! Lowers `&forward` and `&bare`: a message is forwarded with other bytes than were received.
//! Promises: it is decided before anything of the message is passed on; what a program replaces stays as the program
//! says, because the edits lie inside what it replaces.

use flick_abi::FaultCause;
use flick_check::hir::{Expr, FieldId, FieldKind, Forward, ForwardTarget, Item, List};
use flick_ir::data::{Binary, BlockId, Op, Type, Value};

use super::Emitter;
use super::list::is_long;
use super::stage::Cursor;
use crate::unit::{SlotKey, UnitInfo};

impl Emitter<'_, '_> {
    /// Replaces what one `&forward` says, where its condition holds.
    pub fn forward(&mut self, forward: &Forward) {
        let (then, over) = (self.body.f.new_block(&[]), self.body.f.new_block(&[]));
        self.body.branch_on(&forward.cond, then, over);
        self.body.f.go_on_in(then);
        match &forward.target {
            ForwardTarget::Field(id, front) => {
                self.replace_field(*id, front.as_ref(), forward.value.as_ref())
            }
            ForwardTarget::Key(list, key) => self.replace_key(*list, *key, forward.value.as_ref()),
        }
        self.body.f.jump(over, Vec::new());
        self.body.f.go_on_in(over);
    }

    /// Replaces a field, or that many bytes at its front.
    fn replace_field(&mut self, id: FieldId, front: Option<&Expr>, value: Option<&Expr>) {
        let (start, end) = (self.get_key(SlotKey::Start(id)), self.get_key(SlotKey::End(id)));
        let end = match front {
            None => end,
            Some(front) => {
                let front = self.body.expr(front).num().value();
                let behind = self.body.f.binary(Type::Int, Binary::Add, start, front);
                let is_inside = self.body.f.binary(Type::Bool, Binary::LeS, behind, end);
                self.body.select(is_inside, behind, end)
            }
        };
        self.cut_range(start, end);
        if let Some(value) = value {
            let text = self.body.expr(value).bytes();
            self.insert(start, text);
        }
    }

    /// Replaces the first value of a key, or adds an element with it; without a value removes all of the key.
    fn replace_key(&mut self, list: FieldId, key: u32, value: Option<&Expr>) {
        let FieldKind::List(declared) = &self.info.field(list).kind else { panic!("lists are lists") };
        let keyed = declared.keyed.as_ref().expect("only lists with keys are looked into by key");
        let Some(value) = value else { return self.remove_key(list, &keyed.keys[key as usize]) };
        let text = self.body.expr(value).bytes();
        if keyed.cut.contains(&key) {
            return self.add_element(list, key, text);
        }
        let own = SlotKey::At(list, key);
        let known = self.get_key(own);
        let is_missing = self.body.f.define(Type::Bool, Op::IsMissing(known));
        let [missing, there, over] = [(); 3].map(|()| self.body.f.new_block(&[]));
        self.body.f.branch_to(is_missing, missing, there);
        self.body.f.go_on_in(missing);
        self.add_element(list, key, text);
        self.body.f.jump(over, Vec::new());
        self.body.f.go_on_in(there);
        let start = self.body.f.define(Type::Int, Op::BytesOffset(known));
        let len = self.body.f.define(Type::Int, Op::Len(known));
        let end = self.body.f.binary(Type::Int, Binary::Add, start, len);
        self.cut_range(start, end);
        self.insert(start, text);
        self.body.f.jump(over, Vec::new());
        self.body.f.go_on_in(over);
        // A program sees what the next server sees; a constant is no part of the message.
        if !self.body.f.is_constant_bytes(text) {
            self.keep(own, text);
        }
    }

    fn remove_key(&mut self, list: FieldId, name: &[u8]) {
        let (start, end) = (self.get_key(SlotKey::Start(list)), self.get_key(SlotKey::End(list)));
        let name = self.body.consts.intern(name);
        let names = self.body.f.define(Type::Bytes, name);
        self.there(end);
        let lines_max = self.elements_max(list);
        let has_capacity = self.body.f.define(Type::Bool, Op::CutListed { names, start, end, lines_max });
        self.body.expect(has_capacity, list.0, FaultCause::TooLong);
    }

    /// Adds an element to the end of a list: what its items are, with one blank where blanks may stand.
    fn add_element(&mut self, list: FieldId, key: u32, value: Value) {
        let FieldKind::List(declared) = &self.info.field(list).kind else { panic!("lists are lists") };
        let keyed = declared.keyed.as_ref().expect("only lists with keys are looked into by key");
        let at = self.get_key(SlotKey::End(list));
        let mut before = Vec::new();
        for item in &declared.body {
            match item {
                Item::Literal(literal) => before.extend_from_slice(&literal.bytes),
                Item::Field(id) if *id == keyed.key => before.extend_from_slice(&keyed.keys[key as usize]),
                Item::Field(id) if *id == keyed.value => {
                    self.insert_constant(at, &std::mem::take(&mut before));
                    self.insert(at, value);
                }
                Item::Field(id) if self.is_blank(*id) => before.push(b' '),
                Item::Field(_) | Item::Check(_) | Item::Switch(_) => {}
            }
            if let Item::Field(id) = item
                && let FieldKind::Text { until: Some(until), .. } = &self.info.field(*id).kind
            {
                before.extend_from_slice(until);
            }
        }
        self.insert_constant(at, &before);
    }

    /// Forwards an optional literal on the ways on which it is missing.
    pub fn supply(&mut self, bytes: &[u8], absent: &mut [(BlockId, Cursor)]) {
        let (here, back) = (self.at, self.body.f.current());
        for (block, cursor) in absent {
            self.body.f.go_on_in(*block);
            let at = self.position(*cursor);
            self.insert_constant(at, bytes);
            *block = self.body.f.current();
        }
        self.body.f.go_on_in(back);
        self.at = here;
    }

    fn is_blank(&self, id: FieldId) -> bool {
        match &self.info.field(id).kind {
            FieldKind::Text { class: Some(class), until: None, min_bytes: 0, .. } => {
                self.body.cx.program.classes[class.0 as usize].has(b' ')
            }
            _ => false,
        }
    }

    fn insert_constant(&mut self, at: Value, text: &[u8]) {
        if !text.is_empty() {
            let text = self.body.consts.intern(text);
            let text = self.body.f.define(Type::Bytes, text);
            self.insert(at, text);
        }
    }

    /// Forwards `text` in front of a byte.
    fn insert(&mut self, at: Value, text: Value) {
        let has_capacity = self.body.f.define(Type::Bool, Op::Insert { at, text });
        self.body.expect(has_capacity, self.field, FaultCause::TooLong);
    }

    /// Behind an element of a list that does not stream: cuts all of it but its long field.
    pub fn bare_element(&mut self, id: FieldId, list: &List, cond: &Expr) {
        let Some(long) = long_field(self.info, list) else { return };
        self.need(0);
        let (then, over) = (self.body.f.new_block(&[]), self.body.f.new_block(&[]));
        self.body.branch_on(cond, then, over);
        self.body.f.go_on_in(then);
        let (start, end) = (self.get_key(SlotKey::Element(id)), self.position(self.at));
        let (from, to) = (self.get_key(SlotKey::Start(long)), self.get_key(SlotKey::End(long)));
        self.cut_range(start, from);
        self.cut_range(to, end);
        self.body.f.jump(over, Vec::new());
        self.body.f.go_on_in(over);
    }

    /// Everything in front of `end` belongs to a list of which only the streamed fields may be forwarded.
    pub fn leave_bare(&mut self, end: Value) {
        let Some(id) = self.bare else { return };
        let FieldKind::List(list) = &self.info.field(id).kind else { panic!("lists are lists") };
        let Some(cond) = &list.bare else { return };
        let (then, over) = (self.body.f.new_block(&[]), self.body.f.new_block(&[]));
        self.body.branch_on(cond, then, over);
        self.body.f.go_on_in(then);
        let zero = self.body.f.int(0);
        self.cut_range(zero, end);
        self.body.f.jump(over, Vec::new());
        self.body.f.go_on_in(over);
    }
}

/// The field of an element that may be streamed.
pub fn long_field(info: &UnitInfo<'_>, list: &List) -> Option<FieldId> {
    list.body.iter().find_map(|item| match item {
        Item::Field(id) if is_long(info, *id) => Some(*id),
        _ => None,
    })
}
