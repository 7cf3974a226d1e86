//! Writes a parser from its plan: a chain of stages, each entered either straight from the one before or, after
//! the message was cut short, through the state slot.
//! Promises: what a stage needs from before is passed as block parameters on the straight way and read back from
//! the frame on the other, so nothing is decoded twice; the longest head follows from the same ranges that decide
//! which checks are emitted.
//! Refuses: loops. A message of this part of the language has no repeated parts.

use std::collections::{BTreeMap, BTreeSet};

use flick_abi::frame::{SLOT_CURSOR, SLOT_ECHO_READY, SLOT_HEAD, SLOT_NON_QUIET, SLOT_STATE, SLOT_TOTAL};
use flick_abi::{FaultCause, MessageFlags};
use flick_check::hir::{Channel, FieldId, FieldKind, UnitId};
use flick_ir::data::{BlockId, FuncKind, Op, SourceOrigin, Terminator, Type, Value};

use crate::body::{Body, Mode, SelfScope};
use crate::builder::ConstPool;
use crate::context::Context;
use crate::interval::Interval;
use crate::limits::MESSAGE_BYTES_MAX;
use crate::parse::Parser;
use crate::parse::plan::{Plan, PlanStep, Role, field_checks, plan, role_checks};
use crate::unit::{SlotKey, UnitInfo};
use crate::value::{Num, Val};
use crate::vint;
use crate::walk::keys_of;

/// Writes the parser of `channel` for messages of `role`.
pub fn lower_parser(
    cx: &Context<'_>,
    consts: &mut ConstPool,
    channel: &Channel,
    unit: UnitId,
    role: Role,
) -> Parser {
    let info = cx.unit(unit);
    let plan = plan(info, role, channel);
    let name = match role {
        Role::Request => format!("parse_request.{}", channel.name),
        Role::Reply => format!("parse_reply.{}", channel.name),
    };
    let mut body = Body::new(cx, consts, name, FuncKind::Parser, &[Type::Frame, Type::Int], Vec::new());
    body.scope = (unit, SelfScope::Parsing(BTreeMap::new()));
    let stored = plan.stored(info, role);
    let entry = body.f.current();
    let start = body.f.new_block(&[]);
    body.f.go_on_in(start);
    let mut emitter = Emitter {
        body,
        info,
        plan: &plan,
        role,
        channel,
        stored,
        cursor: ByteOffset::Fixed(0),
        segment: FieldId(0),
        resumes: Vec::new(),
        head_bytes_max: 0,
    };
    for (index, step) in plan.steps.iter().enumerate() {
        emitter.step(index, step);
    }
    emitter.body.f.end(Terminator::Done);
    emitter.finish(entry, start)
}

/// A place in the message, in bytes from its start.
#[derive(Clone, Copy, Debug)]
enum ByteOffset {
    /// The same in every message.
    Fixed(u32),
    /// Computed.
    At(Num),
}

impl ByteOffset {
    /// The computed part, for instructions that take a base and an offset.
    fn base(self) -> Option<Value> {
        match self {
            ByteOffset::Fixed(_) => None,
            ByteOffset::At(num) => Some(num.value()),
        }
    }

    /// The constant part.
    fn offset(self) -> u32 {
        match self {
            ByteOffset::Fixed(offset) => offset,
            ByteOffset::At(_) => 0,
        }
    }
}

struct Emitter<'a, 'p> {
    body: Body<'p>,
    info: &'a UnitInfo<'p>,
    plan: &'a Plan,
    role: Role,
    channel: &'a Channel,
    stored: BTreeSet<SlotKey>,
    /// Start of the current segment in the message.
    cursor: ByteOffset,
    /// The first field of the current segment.
    segment: FieldId,
    /// Blocks that go on after a cut, by state from 1.
    resumes: Vec<BlockId>,
    head_bytes_max: u64,
}

impl Emitter<'_, '_> {
    fn step(&mut self, index: usize, step: &PlanStep) {
        match step {
            PlanStep::Need { bytes } => {
                let state = self.stage(index);
                self.need(self.cursor.base(), *bytes + self.cursor.offset(), state);
            }
            PlanStep::Load { field, offset } => self.load(*field, *offset),
            PlanStep::EchoReady => {
                let yes = self.body.f.int(1);
                self.body.set_slot(SLOT_ECHO_READY as u16, yes);
            }
            PlanStep::RoleCheck(index) => self.role_check(*index),
            PlanStep::Var(field) => self.var(*field),
            PlanStep::Length(field) => self.length(*field),
            PlanStep::Requires(field, check) => self.requires(*field, *check),
            PlanStep::Flags => {
                let facts = &self.info.unit.facts;
                let flags = [
                    (&facts.ends, MessageFlags::ENDS),
                    (&facts.mute, MessageFlags::ONE_WAY),
                    (&facts.stateful, MessageFlags::STATEFUL),
                ];
                self.exact(self.plan.head_end.unwrap_or(FieldId(0)));
                self.body.set_flags(&flags.map(|(fact, bit)| (fact.as_ref(), bit)));
            }
            PlanStep::Loud => {
                let (field, expr) =
                    self.info.unit.facts.loud.as_ref().expect("the plan has it from the facts");
                self.exact(*field);
                let value = self.body.expr(expr).num();
                let value = self.body.narrow(value).value();
                self.body.set_slot(SLOT_NON_QUIET as u16, value);
            }
            PlanStep::Totals => self.totals(),
            PlanStep::Take { field, offset } => self.take(index, *field, *offset),
            PlanStep::VintLead { field, offset } => self.vint_lead(*field, *offset),
            PlanStep::Vint { field, offset } => self.vint(index, *field, *offset),
            PlanStep::Skip { field, offset } => {
                let start = self.advance(self.cursor, *offset, *field);
                self.cursor = self.behind(start, *field);
                self.segment = FieldId(field.0 + 1);
            }
        }
    }

    /// Arithmetic from here on is about `field`.
    fn exact(&mut self, field: FieldId) {
        self.body.mode = Mode::Exact { field: field.0 };
        let span = &self.info.field(field).span;
        self.body.f.set_origin(SourceOrigin { file: span.file, offset: span.range.start });
    }

    /// Ends the current stage and starts one that can also be entered after a cut. Returns its state.
    fn stage(&mut self, index: usize) -> u32 {
        if index == 0 {
            return 0;
        }
        let live: Vec<SlotKey> = self.plan.live_after(self.info, self.role, index).into_iter().collect();
        let live: Vec<(SlotKey, Val)> =
            live.into_iter().filter_map(|key| Some((key, self.known().get(&key)?.clone()))).collect();
        let cursor = self.cursor.base();
        let types: Vec<Type> = cursor
            .map(|_| Type::Int)
            .into_iter()
            .chain(live.iter().map(|(key, _)| self.info.key_type(*key)))
            .collect();
        if let Some(cursor) = cursor {
            self.body.set_slot(SLOT_CURSOR as u16, cursor);
        }
        let mut args: Vec<Value> = cursor.into_iter().collect();
        args.extend(live.iter().map(|(_, val)| word(val)));
        let stage = self.body.f.new_block(&types);
        self.body.f.jump(stage, args);
        self.resume_block(stage, cursor.is_some(), &live);

        self.body.f.go_on_in(stage);
        let mut params = self.body.f.params(stage).to_vec().into_iter();
        if let ByteOffset::At(cursor) = self.cursor {
            let param = params.next().expect("the cursor is the first parameter");
            self.cursor = ByteOffset::At(Num::one(param, cursor.range));
        }
        // A parser that enters through the state slot has passed the same checks, so the ranges still hold.
        let known =
            live.into_iter().zip(params).map(|((key, val), param)| (key, same_range(&val, param))).collect();
        *self.known_mut() = known;
        self.resumes.len() as u32
    }

    /// The way into `stage` through the state slot.
    fn resume_block(&mut self, stage: BlockId, has_cursor: bool, live: &[(SlotKey, Val)]) {
        let resume = self.body.f.new_block(&[]);
        self.body.f.go_on_in(resume);
        let mut args = Vec::new();
        if has_cursor {
            args.push(self.body.f.define(Type::Int, Op::FrameGet { slot: SLOT_CURSOR as u16 }));
        }
        for (key, _) in live {
            let slot = self.info.slot(*key);
            let ty = self.info.key_type(*key);
            args.push(self.body.f.define(ty, Op::FrameGet { slot }));
        }
        self.body.f.jump(stage, args);
        self.resumes.push(resume);
    }

    fn need(&mut self, base: Option<Value>, bytes: u32, state: u32) {
        let then = self.body.f.new_block(&[]);
        self.body.f.end(Terminator::Need { base, bytes, then, state });
        self.body.f.go_on_in(then);
    }

    fn load(&mut self, field: FieldId, offset: u32) {
        let FieldKind::Int { repr, big_endian, .. } = self.info.field(field).kind else {
            panic!("the plan loads integers only")
        };
        self.exact(field);
        let key = SlotKey::Field(field);
        let op = Op::Load {
            base: self.cursor.base(),
            offset: offset + self.cursor.offset(),
            width_bytes: repr.width_bytes,
            big_endian,
            signed: repr.signed,
        };
        let value = self.body.f.define(self.info.key_type(key), op);
        let val = self.info.key_val(key, value);
        self.found(key, val);
    }

    fn vint_lead(&mut self, field: FieldId, offset: u32) {
        self.exact(field);
        let op = Op::Load {
            base: self.cursor.base(),
            offset: offset + self.cursor.offset(),
            width_bytes: 1,
            big_endian: true,
            signed: true,
        };
        let lead = self.body.f.define(Type::Int, op);
        self.found(SlotKey::Lead(field), Val::Num(Num::one(lead, vint::LEAD)));
        let length = self.body.vint_length(lead);
        self.found(SlotKey::Length(field), Val::Num(length));
    }

    fn vint(&mut self, index: usize, field: FieldId, offset: u32) {
        let bytes = self.take_bytes(index, field, offset);
        let [lead, length] = [SlotKey::Lead(field), SlotKey::Length(field)].map(|key| {
            self.known().get(&key).expect("the first byte of a number is read first").num().value()
        });
        let value = self.body.vint_value(lead, length, bytes);
        self.found(SlotKey::Field(field), Val::Num(value));
    }

    fn role_check(&mut self, index: usize) {
        let check = role_checks(self.info, self.role)[index];
        let last = keys_of(check).into_iter().map(SlotKey::id).max().unwrap_or(FieldId(0));
        self.exact(last);
        self.body.expect_expr(check, last.0, FaultCause::Malformed);
    }

    fn requires(&mut self, field: FieldId, check: usize) {
        self.exact(field);
        self.body.dollar = self.known().get(&SlotKey::Field(field)).cloned();
        self.body.expect_expr(field_checks(self.info, field)[check], field.0, FaultCause::Malformed);
        self.body.dollar = None;
    }

    fn var(&mut self, field: FieldId) {
        let FieldKind::Var { parse, .. } = &self.info.field(field).kind else {
            panic!("the plan computes variables only")
        };
        self.exact(field);
        let value = self.body.expr(parse).num();
        let value = self.body.check_range(value, self.info.range(field), field.0, FaultCause::Arithmetic);
        let value = self.body.narrow(value);
        self.found(SlotKey::Field(field), Val::Num(value));
    }

    fn length(&mut self, field: FieldId) {
        let FieldKind::Bytes { length, max_bytes, .. } = &self.info.field(field).kind else {
            panic!("the plan measures bytes only")
        };
        self.exact(field);
        let value = self.body.expr(length).num();
        let most = i128::from(i64::MAX).max(value.range.hi);
        let value = self.body.check_range(value, Interval::new(0, most), field.0, FaultCause::Arithmetic);
        let narrower =
            self.channel.view.iter().find(|known| known.field == field).and_then(|known| known.max);
        let value = match (*max_bytes).into_iter().chain(narrower).min() {
            Some(max) => {
                self.body.check_range(value, Interval::new(0, i128::from(max)), field.0, FaultCause::TooLong)
            }
            None => {
                let most = Interval::new(0, MESSAGE_BYTES_MAX);
                self.body.check_range(value, most, field.0, FaultCause::Arithmetic)
            }
        };
        let value = self.body.narrow(value);
        match self.info.canonical(SlotKey::Length(field)) {
            key @ SlotKey::Length(_) => self.found(key, Val::Num(value)),
            alias => _ = self.known_mut().insert(alias, Val::Num(value)),
        }
    }

    fn take(&mut self, index: usize, field: FieldId, offset: u32) {
        let value = self.take_bytes(index, field, offset);
        self.found(SlotKey::Field(field), Val::Bytes(value));
    }

    /// Waits for all bytes of a field and moves behind it.
    fn take_bytes(&mut self, index: usize, field: FieldId, offset: u32) -> Value {
        self.cursor = self.advance(self.cursor, offset, field);
        let state = self.stage(index);
        let start = self.cursor;
        self.cursor = self.behind(start, field);
        let (start, end) = (self.offset_num(start).value(), self.offset_num(self.cursor).value());
        self.need(Some(end), 0, state);
        let value = self.body.f.define(Type::Bytes, Op::MessageBytes { start, end });
        self.segment = FieldId(field.0 + 1);
        value
    }

    /// Sets the lengths of head and message, and refuses messages without end or without bytes.
    fn totals(&mut self) {
        let (mut at, mut fixed) = (self.cursor, 0);
        let mut head = None;
        let mut last = self.segment;
        for (id, field) in self.info.fields().skip(self.segment.0 as usize) {
            match field.kind {
                FieldKind::Int { repr, .. } => fixed += u32::from(repr.width_bytes),
                FieldKind::Var { .. } => {}
                FieldKind::Bytes { .. } | FieldKind::Vint { .. } => {
                    at = self.advance(at, fixed, id);
                    at = self.behind(at, id);
                    fixed = 0;
                }
                _ => panic!("the checker makes no field of a structured unit yet"),
            }
            last = id;
            if self.plan.head_end == Some(id) {
                at = self.advance(at, fixed, id);
                fixed = 0;
                head = Some(at);
            }
        }
        let total = self.advance(at, fixed, last);
        let total = self.offset_num(total);
        let allowed = Interval::new(1, MESSAGE_BYTES_MAX);
        let total = self.body.check_range(total, allowed, last.0, FaultCause::Arithmetic);
        self.body.set_slot(SLOT_TOTAL as u16, total.value());
        // A head that ended before the current segment starts ends at its start.
        let head =
            if self.plan.head_end.is_none() { ByteOffset::Fixed(0) } else { head.unwrap_or(self.cursor) };
        let head = self.offset_num(head);
        self.head_bytes_max = head.range.hi as u64;
        self.body.set_slot(SLOT_HEAD as u16, head.value());
    }

    /// `at + bytes`.
    fn advance(&mut self, at: ByteOffset, bytes: u32, field: FieldId) -> ByteOffset {
        match at {
            ByteOffset::Fixed(offset) => ByteOffset::Fixed(offset + bytes),
            ByteOffset::At(num) if bytes == 0 => ByteOffset::At(num),
            ByteOffset::At(num) => {
                let bytes = self.body.constant(i128::from(bytes));
                ByteOffset::At(self.sum(num, bytes, field))
            }
        }
    }

    /// The end of a field without a fixed width that starts at `start`.
    fn behind(&mut self, start: ByteOffset, field: FieldId) -> ByteOffset {
        let key = self.info.canonical(SlotKey::Length(field));
        let length = self.known().get(&key).expect("the plan measures bytes first").num();
        let is_constant = length.range.lo == length.range.hi;
        let fixed_end = i128::from(start.offset()) + length.range.lo;
        match (start, u32::try_from(fixed_end)) {
            (ByteOffset::Fixed(_), Ok(end)) if is_constant => ByteOffset::Fixed(end),
            (ByteOffset::Fixed(0), _) => ByteOffset::At(length),
            (start, _) => {
                let start = self.offset_num(start);
                ByteOffset::At(self.sum(start, length, field))
            }
        }
    }

    fn offset_num(&mut self, offset: ByteOffset) -> Num {
        match offset {
            ByteOffset::Fixed(offset) => self.body.constant(i128::from(offset)),
            ByteOffset::At(num) => num,
        }
    }

    fn sum(&mut self, a: Num, b: Num, field: FieldId) -> Num {
        self.exact(field);
        let sum = self.body.exact_sum(a, b);
        let allowed = Interval::new(0, MESSAGE_BYTES_MAX);
        self.body.check_range(sum, allowed, field.0, FaultCause::Arithmetic)
    }

    fn found(&mut self, key: SlotKey, val: Val) {
        if self.stored.contains(&key) {
            self.body.set_slot(self.info.slot(key), word(&val));
        }
        self.known_mut().insert(key, val);
    }

    fn known(&self) -> &BTreeMap<SlotKey, Val> {
        match &self.body.scope.1 {
            SelfScope::Parsing(known) => known,
            other => panic!("a parser's self is what it has parsed, not {other:?}"),
        }
    }

    fn known_mut(&mut self) -> &mut BTreeMap<SlotKey, Val> {
        match &mut self.body.scope.1 {
            SelfScope::Parsing(known) => known,
            other => panic!("a parser's self is what it has parsed, not {other:?}"),
        }
    }

    fn finish(mut self, entry: BlockId, start: BlockId) -> Parser {
        self.body.f.go_on_in(entry);
        if self.resumes.is_empty() {
            self.body.f.jump(start, Vec::new());
        } else {
            let value = self.body.f.define(Type::Int, Op::FrameGet { slot: SLOT_STATE as u16 });
            let cases = (1..).zip(self.resumes).collect();
            self.body.f.end(Terminator::Switch { value, cases, default: start });
        }
        Parser { function: self.body.f.finish(), head_bytes_max: self.head_bytes_max }
    }
}

fn word(val: &Val) -> Value {
    match val {
        Val::Num(num) => num.value(),
        Val::Bytes(value) | Val::Bool(value) => *value,
        other => panic!("a message has no field like {other:?}"),
    }
}

fn same_range(val: &Val, param: Value) -> Val {
    match val {
        Val::Num(num) => Val::Num(Num::one(param, num.range)),
        Val::Bytes(_) => Val::Bytes(param),
        other => panic!("a message has no field like {other:?}"),
    }
}
