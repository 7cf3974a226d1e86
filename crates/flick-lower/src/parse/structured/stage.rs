//! Stages: where a parser stops when bytes run out, and how it goes on there.
//! Promises: whatever is needed behind a stage lies in slots, so a stage may be entered from outside with nothing but
//! the cursor; a stage inside a list is entered through the list's head, so every loop stays a natural one; no head
//! grows beyond what its fields' bounds say together (`longest_head`).

use flick_abi::FaultCause;
use flick_abi::frame::{SLOT_CURSOR, SLOT_SCAN, SLOT_STATE};
use flick_abi::limits::{BIG_HEAD_BYTES_MAX, HEAD_BYTES_MAX};
use flick_check::hir::{Channel, Field, FieldId, FieldKind};
use flick_ir::data::{Binary, BlockId, Op, Terminator, Type, Value};

use super::text::ByteRun;
use super::{Emitter, Needs};
use crate::parse::plan::Role;
use crate::unit::{SlotKey, UnitInfo};

/// A place in the message and what is known of it.
#[derive(Clone, Copy, Debug)]
pub struct Cursor {
    /// The position that `fixed` counts from; `None`: the start of the message (or part).
    pub base: Option<Value>,
    /// Bytes behind it.
    pub fixed: u32,
    /// Largest value of the place.
    pub most: u64,
    /// Bytes behind `base` that are there; `None`: not even `base` may be.
    pub covered: Option<u32>,
    /// The place itself is not behind the bytes that are there, whether or not a wait has just said so.
    pub is_there: bool,
}

impl Cursor {
    /// The start of a message or part.
    pub const START: Self = Self { base: None, fixed: 0, most: 0, covered: Some(0), is_there: true };

    /// A computed place, which may lie behind the bytes that are there.
    pub fn at(base: Value, most: u64) -> Self {
        Self { base: Some(base), fixed: 0, most, covered: None, is_there: false }
    }

    /// A computed place that does not.
    pub fn there(base: Value, most: u64) -> Self {
        Self { is_there: true, ..Self::at(base, most) }
    }

    /// Some bytes further.
    pub fn advanced(self, bytes: u32) -> Self {
        Self { fixed: self.fixed + bytes, most: self.most + u64::from(bytes), ..self }
    }
}

/// The targets of one switch over the state: the function's, or that in the head of a list.
#[derive(Debug, Default)]
pub struct Scope {
    /// State and where it goes on.
    pub cases: Vec<(i64, BlockId)>,
}

/// Longest head of a unit: a short one, and what fields add whose own bound is longer than that.
pub fn longest_head(info: &UnitInfo<'_>, needs: &Needs) -> u64 {
    let bound = |(index, field): (usize, &Field)| match field.kind {
        FieldKind::Text { max_bytes, .. } => Some(max_bytes),
        FieldKind::Bytes { max_bytes, .. } => max_bytes.max(needs.view_max(FieldId(index as u32))),
        _ => None,
    };
    let bounds = info.unit.fields.iter().enumerate().filter_map(bound).map(u64::from);
    let big: u64 = bounds.filter(|bound| *bound > HEAD_BYTES_MAX as u64).sum();
    (HEAD_BYTES_MAX as u64).saturating_add(big).min(BIG_HEAD_BYTES_MAX as u64)
}

/// Longest front of a message, up to the end of its keyed list: that of its head, or what an operator allows clients.
pub fn longest_front(info: &UnitInfo<'_>, needs: &Needs, role: Role, channel: &Channel) -> u64 {
    let is_from_client = role == Role::Request && channel.receives == Some(info.id);
    let limit = info.unit.facts.request_head_max.filter(|_| is_from_client);
    limit.map_or(u64::MAX, u64::from).min(longest_head(info, needs))
}

/// Whether a field is a keyed list.
pub fn is_keyed(info: &UnitInfo<'_>, id: FieldId) -> bool {
    matches!(&info.field(id).kind, FieldKind::List(list) if list.keyed.is_some())
}

impl Emitter<'_, '_> {
    /// The place as a value.
    pub fn position(&mut self, cursor: Cursor) -> Value {
        match (cursor.base, cursor.fixed) {
            (None, fixed) => self.body.f.int(i64::from(fixed)),
            (Some(base), 0) => base,
            (Some(base), fixed) => {
                let fixed = self.body.f.int(i64::from(fixed));
                self.body.f.binary(Type::Int, Binary::Add, base, fixed)
            }
        }
    }

    /// A state to go on in at `block`.
    pub fn new_state(&mut self, block: BlockId) -> u32 {
        self.states += 1;
        let scope = self.scopes.last_mut().expect("the function is a scope");
        scope.cases.push((i64::from(self.states), block));
        self.states
    }

    /// Ends the current stage and starts one at the same place that can also be entered from outside.
    pub fn stage(&mut self) -> u32 {
        self.byte_run = None;
        if self.is_at_start {
            self.is_at_start = false;
            return 0;
        }
        let here = self.at;
        let params: &[Type] = if here.base.is_some() { &[Type::Int] } else { &[] };
        let stage = self.body.f.new_block(params);
        let position = here.base.map(|_| self.position(here));
        if let Some(position) = position {
            self.keep_cursor(position);
        }
        self.body.f.jump(stage, position.into_iter().collect());

        let resume = self.body.f.new_block(&[]);
        self.body.f.go_on_in(resume);
        let position = here.base.map(|_| self.get(SLOT_CURSOR));
        self.body.f.jump(stage, position.into_iter().collect());
        let state = self.new_state(resume);

        self.body.f.go_on_in(stage);
        if here.base.is_some() {
            let is_there = here.is_there;
            self.kept_cursor = Some((self.body.f.params(stage)[0], 0));
            self.at = Cursor { is_there, ..Cursor::at(self.body.f.params(stage)[0], here.most) };
        } else {
            self.at.covered = Some(0);
        }
        state
    }

    /// A stage that goes on searching where it was left: gives where the searched part starts, where to search from,
    /// and the state.
    pub fn search_stage(&mut self) -> (Value, Value, u32) {
        self.reach();
        self.byte_run = None;
        let (start, from, _, state) = self.run_stage(None, false);
        (start, from, state)
    }

    /// As [`Self::search_stage`], of a place that has been reached; also gives where the trail starts. `is_early`:
    /// what is searched starts there.
    pub fn run_stage(&mut self, byte_run: Option<&ByteRun>, is_early: bool) -> (Value, Value, Value, u32) {
        self.is_at_start = false;
        let here = self.at;
        let stage = self.body.f.new_block(&[Type::Int; 3]);
        let position = self.position(here);
        self.keep_cursor(position);
        let run_start = byte_run.map_or(position, |byte_run| byte_run.start);
        let from = if is_early { run_start } else { position };
        self.body.f.jump(stage, vec![position, from, run_start]);

        let resume = self.body.f.new_block(&[]);
        self.body.f.go_on_in(resume);
        let (start, from) = (self.get(SLOT_CURSOR), self.get(SLOT_SCAN));
        // It is inside the message anyway; a fact here saves the check where it is searched from.
        let len = self.body.f.params(BlockId(0))[1];
        let from = self.body.f.binary(Type::Int, Binary::MinU, from, len);
        self.body.f.jump(stage, vec![start, from, start]);
        let state = self.new_state(resume);

        self.body.f.go_on_in(stage);
        let &[start, from, run_start] = self.body.f.params(stage) else {
            panic!("a search has a start and where it goes on")
        };
        self.kept_cursor = Some((start, 0));
        self.at = Cursor::there(start, here.most);
        (start, from, run_start, state)
    }

    /// Writes the cursor's slot, unless it holds the current position already.
    fn keep_cursor(&mut self, position: Value) {
        if self.at.base.is_none() || self.kept_cursor != self.at.base.map(|base| (base, self.at.fixed)) {
            self.body.set_slot(SLOT_CURSOR as u16, position);
        }
    }

    /// Waits for what has been passed over.
    pub fn reach(&mut self) {
        if !self.at.is_there {
            self.need(0);
        }
    }

    /// Goes on when `bytes` from here on are there.
    pub fn need(&mut self, bytes: u32) {
        if self.at.covered.is_some_and(|covered| covered >= self.at.fixed + bytes) {
            return;
        }
        let state = self.stage();
        self.wait(bytes, state);
    }

    /// Waits in `state` for `bytes` from here on.
    pub fn wait(&mut self, bytes: u32, state: u32) {
        self.limit(u64::from(bytes));
        let bytes = self.at.fixed + bytes;
        let then = self.body.f.new_block(&[]);
        self.body.f.end(Terminator::Need { base: self.at.base, bytes, then, state });
        self.body.f.go_on_in(then);
        (self.at.covered, self.at.is_there) = (Some(bytes), true);
    }

    /// Makes known that all before `end`, which has been read, is there: this never waits.
    pub fn there(&mut self, end: Value) {
        let (here, state) = (self.at, self.states);
        self.at = Cursor::at(end, 0);
        self.wait(0, state);
        self.at = here;
    }

    /// Refuses the message where `bytes` from here on lead beyond the longest head.
    pub fn limit(&mut self, bytes: u64) {
        let longest = self.longest;
        if self.at.most.saturating_add(bytes) > longest {
            assert!(bytes <= self.longest_head, "one wait of `{}` fits a head", self.info.unit.name);
            let position = self.position(self.at);
            // Below zero under a limit that is shorter than this wait: no message obeys it.
            let allowed = self.body.f.int(longest as i64 - bytes as i64);
            let fits = self.body.f.binary(Type::Bool, Binary::LeS, position, allowed);
            self.body.expect(fits, self.field, FaultCause::TooLong);
            self.at.most = longest.saturating_sub(bytes);
        }
        self.head_bytes_max = self.head_bytes_max.max(self.at.most + bytes);
    }

    /// A new block at which the parser goes on in a state that it leaves behind itself.
    pub fn leave_in_new_state(&mut self) -> BlockId {
        let block = self.body.f.new_block(&[]);
        let state = self.new_state(block);
        let state = self.body.f.int(i64::from(state));
        self.body.set_slot(SLOT_STATE as u16, state);
        block
    }

    /// Reads a slot of the platform as a number.
    pub fn get(&mut self, slot: usize) -> Value {
        self.body.f.define(Type::Int, Op::FrameGet { slot: slot as u16 })
    }

    /// Reads the slot of a key.
    pub fn get_key(&mut self, key: SlotKey) -> Value {
        let (slot, ty) = (self.info.slot(key), self.info.key_type(key));
        self.body.f.define(ty, Op::FrameGet { slot })
    }

    /// Writes a key's slot, if it has one.
    pub fn keep(&mut self, key: SlotKey, value: Value) {
        if self.needs.has(key) {
            self.body.set_slot(self.info.slot(key), value);
        }
    }

    /// Joins ways at a new block; each is a block that has not ended, and its place.
    pub fn join(&mut self, ends: Vec<(BlockId, Cursor)>) {
        self.is_over = ends.is_empty();
        if let [(block, cursor)] = ends[..] {
            self.body.f.go_on_in(block);
            self.at = cursor;
            return;
        }
        self.kept_cursor = None;
        let Some(most) = ends.iter().map(|(_, cursor)| cursor.most).max() else { return };
        let all_at = |cursor: Cursor| (cursor.base, cursor.fixed);
        let same = ends.windows(2).all(|pair| all_at(pair[0].1) == all_at(pair[1].1));
        let params: &[Type] = if same { &[] } else { &[Type::Int] };
        let join = self.body.f.new_block(params);
        let covered = ends.iter().map(|(_, cursor)| cursor.covered).min().flatten();
        let is_there = ends.iter().all(|(_, cursor)| cursor.is_there);
        let first = ends[0].1;
        for (block, cursor) in ends {
            self.body.f.go_on_in(block);
            let args = if same { Vec::new() } else { vec![self.position(cursor)] };
            self.body.f.jump(join, args);
        }
        self.body.f.go_on_in(join);
        self.at = match self.body.f.params(join) {
            [] => Cursor { most, covered, is_there, ..first },
            [position, ..] => Cursor { is_there, ..Cursor::at(*position, most) },
        };
    }
}
