//! Choices: the first bytes decide which row of items follows.
//! Promises: fields of arms that are not taken are zero, empty or missing, so code that reads them need not know which
//! arm was.

use std::collections::BTreeSet;

use flick_check::hir::{Choice, FieldId, Item};
use flick_ir::data::{BlockId, Op, Type};

use super::Emitter;
use super::needs::each_field;
use super::stage::Cursor;
use crate::body::Mode;
use crate::unit::SlotKey;

/// The end of a path through an arm.
struct End {
    block: BlockId,
    cursor: Cursor,
    facts_done: bool,
}

impl Emitter<'_, '_> {
    /// `switch`, or `&if`.
    pub fn choice(&mut self, choice: &Choice, behind: bool) {
        self.body.mode = Mode::Exact { field: self.field };
        self.is_at_start = false;
        let value = self.body.expr(&choice.on);
        let blocks: Vec<BlockId> = choice.arms.iter().map(|_| self.body.f.new_block(&[])).collect();
        let default = match &choice.otherwise {
            Some(_) => self.body.f.new_block(&[]),
            None => self.body.fault_block(self.field, choice.cause),
        };
        let targets = choice
            .arms
            .iter()
            .zip(&blocks)
            .flat_map(|((patterns, _), &block)| patterns.iter().map(move |pattern| (pattern, block)));
        self.body.switch_on(&value, targets, default);

        let rows = choice.arms.iter().map(|(_, items)| items).chain(&choice.otherwise);
        let rows: Vec<&[Item]> = rows.map(Vec::as_slice).collect();
        let all = self.fields_of(&rows.concat());
        let (start, pending, facts_done) = (self.at, self.pending.clone(), self.facts_done);
        let kept_cursor = self.kept_cursor;
        let mut ends = Vec::new();
        for (items, block) in rows.into_iter().zip(blocks.into_iter().chain([default])) {
            self.body.f.go_on_in(block);
            (self.at, self.facts_done, self.is_over) = (start, facts_done, false);
            self.kept_cursor = kept_cursor;
            self.pending.clone_from(&pending);
            let own = self.fields_of(items);
            all.difference(&own).for_each(|id| self.keep_absent(*id));
            // Bytes that another arm has skipped are not in front of this one.
            self.byte_run = None;
            self.items(items, behind);
            if !self.is_over {
                ends.push(End { block: self.body.f.current(), cursor: self.at, facts_done: self.facts_done });
            }
        }
        self.pending = pending;
        self.join_arms(ends);
    }

    /// Evaluates facts on all paths if they have been evaluated on one.
    fn join_arms(&mut self, mut ends: Vec<End>) {
        let any_facts_done = ends.iter().any(|end| end.facts_done);
        for end in ends.iter_mut().filter(|end| any_facts_done && !end.facts_done) {
            self.body.f.go_on_in(end.block);
            (self.at, self.facts_done) = (end.cursor, false);
            let pending = self.pending.clone();
            self.tell();
            self.pending = pending;
            end.block = self.body.f.current();
        }
        (self.facts_done, self.kept_cursor) = (any_facts_done, None);
        if any_facts_done {
            self.pending.clear();
        }
        self.join(ends.into_iter().map(|end| (end.block, end.cursor)).collect());
    }

    /// The fields of a row, elements of lists left out: they mean something only inside.
    fn fields_of(&self, items: &[Item]) -> BTreeSet<FieldId> {
        let mut found = BTreeSet::new();
        each_field(self.info, items, &mut |id| _ = found.insert(id));
        found
    }

    /// Keeps that a field is not there.
    fn keep_absent(&mut self, id: FieldId) {
        let keys: Vec<SlotKey> = self.needs.kept.iter().copied().filter(|key| key.id() == id).collect();
        for key in keys {
            let word = match key {
                SlotKey::At(..) | SlotKey::Further(..) => -1,
                SlotKey::Start(_) | SlotKey::End(_) => -1,
                SlotKey::Field(_) if self.needs.is_optional(id) => -1,
                SlotKey::Field(_) | SlotKey::Length(_) => 0,
                _ => continue,
            };
            let ty = self.info.key_type(key);
            let value = match (ty, word) {
                // Bytes at the start of the message, none of them.
                (Type::Bytes, 0) => self.body.f.int(0),
                _ => self.body.f.define(ty, Op::Const(word)),
            };
            self.keep(key, value);
        }
        self.keep_follows_of_none(id);
    }

    /// Sets the variables that follow from an absent list to zero.
    fn keep_follows_of_none(&mut self, list: FieldId) {
        let sums = self.needs.sums.iter().filter(|(_, own)| *own == list).map(|(var, _)| *var);
        let flags = self.needs.flags.iter().filter(|(_, own, _)| *own == list).map(|(flag, ..)| *flag);
        let full = self.needs.full.iter().filter(|(_, own)| *own == list).map(|(var, _)| *var);
        for id in sums.chain(flags).chain(full).collect::<Vec<_>>() {
            let ty = self.info.key_type(SlotKey::Field(id));
            let nothing = self.body.f.define(ty, Op::Const(0));
            self.keep(SlotKey::Field(id), nothing);
        }
    }
}
