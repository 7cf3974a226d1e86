//! The results of a parser besides fields: facts, flags, the ends of the head and of the message, and parts.
//! Promises: facts are evaluated as soon as what they read is known, and before anything of the message is passed on; a
//! head lies in one piece; what is streamed is never waited for.

use flick_abi::frame::{
    SLOT_ASKED, SLOT_CARRIED, SLOT_ECHO_READY, SLOT_FLAGS, SLOT_HEAD, SLOT_NON_QUIET, SLOT_TOTAL,
};
use flick_abi::limits::STATUS_MAX;
use flick_abi::{FaultCause, MessageFlags};
use flick_check::hir::{Expr, FieldId, FieldKind, ForwardTarget, ListEnd};
use flick_ir::data::{Binary, Op, Terminator, Type, Value};

use super::Emitter;
use super::list::{is_long, is_of_unit};
use super::sizes::Sizes;
use super::stage::Cursor;
use crate::body::Mode;
use crate::interval::Interval;
use crate::limits::{MESSAGE_BYTES_MAX, PART_BYTES_MAX};
use crate::parse::plan::{Role, role_checks};
use crate::unit::{SlotKey, UnitInfo};
use crate::value::Num;
use crate::walk::keys_of;

/// Something to be found out about a message.
#[derive(Clone, Debug)]
pub struct Fact {
    what: What,
    /// Fields that it reads.
    reads: Vec<FieldId>,
}

#[derive(Clone, Copy, Debug)]
enum What {
    /// All echo fields are decoded, if there are any: a request that is refused can be answered.
    EchoReady,
    /// A part of `%request` or `%reply` must hold.
    RoleCheck(usize),
    /// The value for the non-quiet field.
    Loud,
    /// The value that the parser of the reply gets.
    Keep,
    Carry,
    /// The message's flags.
    Flags,
    /// The keys that a keyed list cuts besides those that are always cut.
    Cuts(FieldId),
    /// A `&forward`, by number: a value that is forwarded instead of the received one.
    Forward(usize),
}

/// The flags of a message and the facts that set them.
fn flags<'p>(info: &UnitInfo<'p>, role: Role) -> Vec<(Option<&'p Expr>, u64)> {
    let facts = &info.unit.facts;
    let own: &[(&Option<Expr>, u64)] = match role {
        Role::Request => &[
            (&facts.ends, MessageFlags::ENDS),
            (&facts.mute, MessageFlags::ONE_WAY),
            (&facts.stateful, MessageFlags::STATEFUL),
            (&facts.retry, MessageFlags::RETRY),
            (&facts.whole, MessageFlags::WHOLE),
        ],
        Role::Reply => &[
            (&facts.tunnel, MessageFlags::TUNNEL),
            (&facts.closes, MessageFlags::CLOSES),
            (&facts.failed, MessageFlags::FAILED),
        ],
    };
    own.iter()
        .chain(&[(&facts.last, MessageFlags::LAST)])
        .map(|(fact, bit)| (fact.as_ref(), *bit))
        .filter(|(fact, _)| fact.is_some())
        .collect()
}

/// The status code of messages of a role, which is a part of their flags.
fn status<'p>(info: &UnitInfo<'p>, role: Role) -> Option<&'p Expr> {
    info.unit.facts.status.as_ref().filter(|_| role == Role::Reply)
}

/// Lists the facts to compute about messages of a role.
pub fn facts(info: &UnitInfo<'_>, role: Role) -> Vec<Fact> {
    let facts = &info.unit.facts;
    let ids = |exprs: &mut dyn Iterator<Item = &Expr>| -> Vec<FieldId> {
        exprs.flat_map(keys_of).map(SlotKey::id).collect()
    };
    let mut found = Vec::new();
    if role == Role::Request {
        found.push(Fact { what: What::EchoReady, reads: info.echo().into_iter().collect() });
    }
    for (index, check) in role_checks(info, role).into_iter().enumerate() {
        found.push(Fact { what: What::RoleCheck(index), reads: ids(&mut std::iter::once(check)) });
    }
    let (flags, status) = (flags(info, role), status(info, role));
    if !flags.is_empty() || status.is_some() {
        let reads = ids(&mut flags.iter().filter_map(|(fact, _)| *fact).chain(status));
        found.push(Fact { what: What::Flags, reads });
    }
    let mut put_back: Vec<FieldId> = Vec::new();
    for (id, list) in info.fields().filter(|(id, _)| is_of_unit(info, *id)) {
        if let FieldKind::List(list) = &list.kind
            && let Some(keyed) = &list.keyed
        {
            let reads: Vec<FieldId> = [id].into_iter().chain(ids(&mut keyed.keep_cut.iter())).collect();
            if keyed.keep_cut.is_some() {
                put_back.extend(&reads);
            }
            found.push(Fact { what: What::Cuts(id), reads });
        }
    }
    for (index, forward) in facts.forwards.iter().enumerate() {
        let mut reads = ids(&mut forward.exprs());
        let (ForwardTarget::Field(target, _) | ForwardTarget::Key(target, _)) = &forward.target;
        reads.push(*target);
        // All that was cut since a list began is put back if the list keeps its cuts, so this comes later.
        reads.extend(&put_back);
        found.push(Fact { what: What::Forward(index), reads });
    }
    if role == Role::Request {
        let loud = facts.loud.iter().map(|(_, expr)| (What::Loud, expr));
        let keep = facts.keep.iter().map(|expr| (What::Keep, expr));
        found.extend(
            loud.chain(keep).map(|(what, expr)| Fact { what, reads: ids(&mut std::iter::once(expr)) }),
        );
        if let Some(carry) = &facts.carry {
            let mut reads = ids(&mut std::iter::once(carry));
            // It replaces what the request before carries.
            reads.extend(
                info.fields().filter(|(_, field)| matches!(field.kind, FieldKind::Carried)).map(|(id, _)| id),
            );
            found.push(Fact { what: What::Carry, reads });
        }
    }
    found
}

impl Emitter<'_, '_> {
    /// Evaluates the facts that read none but these fields.
    pub fn tell_known(&mut self, known: &[FieldId]) {
        let is_ready = |fact: &Fact| fact.reads.iter().all(|id| known.contains(id));
        let (ready, rest) = std::mem::take(&mut self.pending).into_iter().partition(is_ready);
        self.pending = rest;
        self.tell_all(ready);
    }

    /// Evaluates all facts that have not been yet.
    pub fn tell(&mut self) {
        if self.facts_done {
            return;
        }
        self.facts_done = true;
        let pending = std::mem::take(&mut self.pending);
        self.tell_all(pending);
    }

    fn tell_all(&mut self, facts: Vec<Fact>) {
        for fact in facts {
            let last = fact.reads.iter().max().map_or(self.field, |id| id.0);
            self.body.mode = Mode::Exact { field: last };
            self.tell_one(fact.what, last);
        }
    }

    fn tell_one(&mut self, what: What, last: u32) {
        let info = self.info;
        match what {
            What::EchoReady => {
                let yes = self.body.f.int(1);
                self.body.set_slot(SLOT_ECHO_READY as u16, yes);
            }
            What::RoleCheck(index) => {
                self.body.expect_expr(role_checks(info, self.role)[index], last, FaultCause::Malformed);
            }
            What::Flags => {
                let flags = flags(info, self.role);
                self.body.set_flags(&flags);
                if let Some(status) = status(info, self.role) {
                    self.add_status(status, last);
                }
            }
            What::Cuts(id) => {
                let FieldKind::List(list) = &info.field(id).kind else { panic!("lists are lists") };
                list.keyed.iter().for_each(|keyed| self.cut_rest(id, keyed));
            }
            What::Forward(index) => self.forward(&info.unit.facts.forwards[index]),
            What::Loud | What::Keep | What::Carry => {
                let facts = &info.unit.facts;
                let (expr, slot) = match (what, &facts.loud, &facts.keep, &facts.carry) {
                    (What::Loud, Some((_, expr)), ..) => (expr, SLOT_NON_QUIET),
                    (What::Keep, _, Some(expr), _) => (expr, SLOT_ASKED),
                    (What::Carry, .., Some(expr)) => (expr, SLOT_CARRIED),
                    _ => panic!("the facts of a unit stay what they are"),
                };
                let num = self.number_of(expr);
                let num = self.body.check_range(num, word_of(num), last, FaultCause::Arithmetic);
                let value = self.body.narrow(num).value();
                self.body.set_slot(slot as u16, value);
            }
        }
    }

    /// Adds a status code to the message's flags.
    fn add_status(&mut self, status: &Expr, last: u32) {
        let num = self.number_of(status);
        let allowed = Interval::new(0, i128::from(STATUS_MAX));
        let num = self.body.check_range(num, allowed, last, FaultCause::Arithmetic);
        let status = self.body.narrow(num).value();
        let unit = self.body.f.int(1 << MessageFlags::STATUS_SHIFT);
        let status = self.body.f.binary(Type::Int, Binary::Mul, status, unit);
        let flags = self.get(SLOT_FLAGS);
        let flags = self.body.f.binary(Type::Int, Binary::Add, flags, status);
        self.body.set_slot(SLOT_FLAGS as u16, flags);
    }

    /// Bytes of a computed length.
    pub fn bytes(&mut self, id: FieldId, length: &Expr, max_bytes: Option<u32>, behind: bool) {
        self.reach();
        let is_tail = self.is_in_tail();
        let is_optional = self.needs.is_optional(id);
        let is_wanted = self.needs.has(SlotKey::Field(id)) || !self.info.field(id).requires.is_empty();
        let is_taken = is_wanted && !is_optional;
        let state = if is_taken || is_optional { Some(self.stage()) } else { None };
        let len = self.length(id, length, max_bytes);
        let start = self.position(self.at);
        let end = self.body.f.binary(Type::Int, Binary::Add, start, len.value());
        self.keep(SlotKey::Length(id), len.value());
        self.keep(SlotKey::Start(id), start);
        self.keep(SlotKey::End(id), end);
        let from = self.at;
        let to = Cursor::at(end, from.most.saturating_add(len.range.hi as u64));
        if let Some(state) = state.filter(|_| is_taken) {
            self.at = to;
            self.wait(0, state);
            return self.bytes_found(id, (start, end), max_bytes);
        }
        if let (Some(state), Some(max)) = (state, self.needs.view_max(id)) {
            return self.optional_bytes(id, (from, to, len), (state, max), is_tail, behind);
        }
        self.pass(id, (from, to, len), is_tail, behind);
    }

    /// The length of a field, checked.
    fn length(&mut self, id: FieldId, length: &Expr, max_bytes: Option<u32>) -> Num {
        let cause = self.info.field(id).cause;
        let value = self.body.expr(length).num();
        let most = i128::from(i64::MAX).max(value.range.hi);
        let arithmetic = if cause == FaultCause::Malformed { FaultCause::Arithmetic } else { cause };
        let value = self.body.check_range(value, Interval::new(0, most), id.0, arithmetic);
        let narrower = self.needs.view_max(id).filter(|_| !self.needs.is_optional(id));
        let value = match max_bytes.into_iter().chain(narrower).min() {
            Some(max) => {
                let allowed = Interval::new(0, i128::from(max));
                self.body.check_range(value, allowed, id.0, self.info.too_long(id))
            }
            None => {
                let most = Interval::new(0, MESSAGE_BYTES_MAX);
                self.body.check_range(value, most, id.0, arithmetic)
            }
        };
        self.body.narrow(value)
    }

    /// A field that is there for the program where it is short, and passed on unseen where it is not.
    fn optional_bytes(
        &mut self,
        id: FieldId,
        (from, to, len): (Cursor, Cursor, Num),
        (state, max): (u32, u32),
        is_tail: bool,
        behind: bool,
    ) {
        let longest = self.body.f.int(i64::from(max));
        let is_short = self.body.f.binary(Type::Bool, Binary::LeS, len.value(), longest);
        let end = self.position(to);
        let head = self.body.f.int(self.longest as i64);
        let fits = self.body.f.binary(Type::Bool, Binary::LeS, end, head);
        let is_there = self.body.f.binary(Type::Bool, Binary::And, is_short, fits);
        let (there, absent) = (self.body.f.new_block(&[]), self.body.f.new_block(&[]));
        self.body.f.branch_to(is_there, there, absent);

        self.body.f.go_on_in(absent);
        self.kept_cursor = None;
        let missing = self.body.f.define(Type::Bytes, Op::Const(-1));
        self.keep(SlotKey::Field(id), missing);
        let (pending, facts_done) = (self.pending.clone(), self.facts_done);
        self.at = from;
        self.pass(id, (from, to, len), is_tail, behind);
        let mut ends = Vec::new();
        if !self.is_over {
            ends.push((self.body.f.current(), self.at));
        }
        let has_facts_done = self.facts_done && !self.is_over;
        (self.pending, self.facts_done, self.is_over) = (pending, facts_done, false);

        self.body.f.go_on_in(there);
        self.kept_cursor = None;
        self.at = Cursor { most: self.longest, ..to };
        self.wait(0, state);
        let (start, end) = (self.position(from), self.position(to));
        let value = self.body.f.define(Type::Bytes, Op::MessageBytes { start, end });
        self.keep(SlotKey::Field(id), value);
        if has_facts_done {
            self.tell();
        }
        ends.push((self.body.f.current(), self.at));
        self.join(ends);
    }

    /// Bytes that are not read.
    fn pass(&mut self, id: FieldId, (from, to, len): (Cursor, Cursor, Num), is_tail: bool, behind: bool) {
        self.is_at_start = false;
        if is_tail && !behind {
            self.tell();
            let (head, total) = (self.position(from), self.position(to));
            self.end(head, total, len.range.lo > 0);
            return;
        }
        let may_part = self.parts && is_tail && is_long(self.info, id);
        if may_part && !self.lists.is_empty() {
            return self.part(Some(to));
        }
        if !may_part {
            self.at = to;
            return self.limit(0);
        }
        // Short ones are waited for, so that the message stays one.
        let longest = self.body.f.int(PART_BYTES_MAX as i64);
        let is_short = self.body.f.binary(Type::Bool, Binary::LeS, len.value(), longest);
        let (short, long) = (self.body.f.new_block(&[]), self.body.f.new_block(&[]));
        self.tell();
        self.body.f.branch_to(is_short, short, long);
        self.body.f.go_on_in(short);
        self.at = Cursor { most: from.most + PART_BYTES_MAX as u64, ..to };
        self.limit(0);
        let mut ends = vec![(self.body.f.current(), self.at)];
        self.body.f.go_on_in(long);
        (self.at, self.kept_cursor) = (from, None);
        self.part(Some(to));
        ends.push((self.body.f.current(), self.at));
        self.join(ends);
    }

    /// Ends a part here; `to`: bytes up to there belong to it, though they are not looked at. Goes on at the start of
    /// the next one.
    pub fn part(&mut self, to: Option<Cursor>) {
        self.reach();
        self.tell();
        let head = self.position(self.at);
        self.limit(0);
        self.leave_bare(head);
        let total = to.map_or(head, |to| self.position(to));
        self.body.set_slot(SLOT_HEAD as u16, head);
        self.body.set_slot(SLOT_TOTAL as u16, total);
        self.add_flag(MessageFlags::PARTS as i64);
        for id in self.lists.clone() {
            let FieldKind::List(list) = &self.info.field(id).kind else { continue };
            if let ListEnd::Bytes(_) = list.end {
                let end = self.get_key(SlotKey::Rest(id));
                let end = self.body.f.binary(Type::Int, Binary::Sub, end, total);
                self.keep(SlotKey::Rest(id), end);
            }
        }
        (self.has_parts, self.is_at_start) = (true, false);
        let next = self.leave_in_new_state();
        self.body.f.end(Terminator::Done);
        self.body.f.go_on_in(next);
        self.add_flag(-(MessageFlags::PARTS as i64));
        (self.at, self.kept_cursor) = (Cursor::START, None);
    }

    fn add_flag(&mut self, flag: i64) {
        let (flags, flag) = (self.get(SLOT_FLAGS), self.body.f.int(flag));
        let flags = self.body.f.binary(Type::Int, Binary::Add, flags, flag);
        self.body.set_slot(SLOT_FLAGS as u16, flags);
    }

    /// All that follows belongs to the message.
    pub fn until_close(&mut self) {
        self.reach();
        self.tell();
        self.add_flag(MessageFlags::UNTIL_CLOSE as i64);
        self.limit(0);
        let head = self.position(self.at);
        let total = self.body.f.int(-1);
        self.body.set_slot(SLOT_HEAD as u16, head);
        self.body.set_slot(SLOT_TOTAL as u16, total);
        self.body.f.end(Terminator::Done);
        self.is_over = true;
    }

    /// The message ends here.
    pub fn end_of_message(&mut self) {
        self.reach();
        self.tell();
        self.limit(0);
        let here = self.position(self.at);
        let items = self.info.unit.body.as_deref().unwrap_or_default();
        self.end(here, here, Sizes::of(self.info, items).least > 0);
    }

    /// Ends the message; `some`: it certainly has a byte.
    fn end(&mut self, head: Value, total: Value, some: bool) {
        self.limit(0);
        // The last part may be empty.
        if !some && !self.has_parts {
            let zero = self.body.f.int(0);
            let is_some = self.body.f.binary(Type::Bool, Binary::LtS, zero, total);
            self.body.expect(is_some, self.field, FaultCause::Arithmetic);
        }
        self.body.set_slot(SLOT_HEAD as u16, head);
        self.body.set_slot(SLOT_TOTAL as u16, total);
        self.body.f.end(Terminator::Done);
        self.is_over = true;
    }
}

/// Returns the range of the word that holds a number, which is signed if the number may be negative.
fn word_of(num: Num) -> Interval {
    if num.range.lo < 0 { Interval::INT } else { Interval::UINT }
}
