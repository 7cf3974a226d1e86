//! Structured messages that leave with changes, or whole as their bytes.
//! Promises: what no change touches leaves as it came, and is cut as it would be without; a number keeps its digits
//! where it keeps its value; a changed key stands once, at the end of its list. A field that the message does not
//! have stays away.
//! Refuses: values that cannot be written (`guard.rs`): then nothing is.
//! Source: RELIABILITY P3, P9.

use std::collections::BTreeSet;

use flick_abi::FailureReason;
use flick_abi::frame::{SLOT_HEAD, SLOT_TOTAL};
use flick_check::hir::{FieldId, FieldKind, Item};
use flick_ir::data::{Binary, Op, Type, Value};

use crate::body::Body;
use crate::carrier::Carrier;
use crate::interval::Interval;
use crate::part::Part;
use crate::serialise::{OutMessage, affected_fields};
use crate::unit::SlotKey;
use crate::value::{Num, Record, Shape, ShapeKind, Val};

/// Makes a message and hands it over.
type Makes<'m, B> = dyn FnMut(&mut B, &mut dyn FnMut(&mut B, OutMessage)) + 'm;

impl Body<'_> {
    /// Makes a structured message ready that was changed or built, and hands it over: on one of several ways, perhaps.
    pub fn make_structured(&mut self, shape: &Shape, hand_over: &mut dyn FnMut(&mut Self, OutMessage)) {
        let Some(wire) = shape.overrides.get(&Part::Wire).map(Val::bytes) else {
            return self.make_guarded(shape, hand_over);
        };
        if shape.overrides.len() == 1 {
            return self.hand_over_wire(wire, hand_over);
        }
        let is_missing = self.f.define(Type::Bool, Op::IsMissing(wire));
        self.hand_over_either(
            is_missing,
            hand_over,
            |body, hand_over| body.make_guarded(shape, hand_over),
            |body, hand_over| body.hand_over_wire(wire, hand_over),
        );
    }

    fn hand_over_wire(&mut self, value: Value, hand_over: &mut dyn FnMut(&mut Self, OutMessage)) {
        let mark = self.f.mark_before(value).unwrap_or_else(|| {
            let mark = self.f.define(Type::Int, Op::OutMark);
            self.f.effect(Op::EmitBytes { value });
            mark
        });
        hand_over(self, OutMessage::Rebuilt { mark, tail_from: None, tail_of: None });
    }

    /// Goes one way where `cond` holds, else the other, and goes on behind both.
    fn hand_over_either(
        &mut self,
        cond: Value,
        hand_over: &mut dyn FnMut(&mut Self, OutMessage),
        then: impl FnOnce(&mut Self, &mut dyn FnMut(&mut Self, OutMessage)),
        otherwise: impl FnOnce(&mut Self, &mut dyn FnMut(&mut Self, OutMessage)),
    ) {
        let (one, other, next) = (self.f.new_block(&[]), self.f.new_block(&[]), self.f.new_block(&[]));
        self.f.branch_to(cond, one, other);
        self.f.go_on_in(one);
        then(self, hand_over);
        self.f.jump(next, Vec::new());
        self.f.go_on_in(other);
        otherwise(self, hand_over);
        self.f.jump(next, Vec::new());
        self.f.go_on_in(next);
    }

    fn make_guarded(&mut self, shape: &Shape, hand_over: &mut dyn FnMut(&mut Self, OutMessage)) {
        // If it is as it arrived, the client's message is too long for the additions; otherwise the program's is.
        let is_as_it_came = shape.kind != ShapeKind::Built && shape.message.is_none();
        let crowded = if is_as_it_came { FailureReason::TooLong } else { FailureReason::Unavailable };
        let (capacity, guard) = (self.capacity_for(shape), self.guard_of(shape));
        self.make_where(capacity, crowded, hand_over, &mut |body, hand_over| {
            body.make_where(guard, FailureReason::Unavailable, hand_over, &mut |body, hand_over| {
                body.make_written(shape, hand_over);
            });
        });
    }

    /// Makes a message where a condition holds; elsewhere it is not written, for this reason.
    fn make_where(
        &mut self,
        cond: Option<Value>,
        reason: FailureReason,
        hand_over: &mut dyn FnMut(&mut Self, OutMessage),
        make: &mut Makes<'_, Self>,
    ) {
        let Some(cond) = cond else { return make(self, hand_over) };
        self.hand_over_either(cond, hand_over, make, |body, hand_over| {
            hand_over(body, OutMessage::Unwritable(reason))
        });
    }

    fn make_written(&mut self, shape: &Shape, hand_over: &mut dyn FnMut(&mut Self, OutMessage)) {
        self.ready = self.make_ready_of(shape);
        let mark = self.f.define(Type::Int, Op::OutMark);
        if shape.kind == ShapeKind::Built {
            self.write_items(shape, self.cx.unit(shape.unit).unit.body.as_deref().unwrap_or_default());
            return hand_over(self, OutMessage::Rebuilt { mark, tail_from: None, tail_of: None });
        }
        let info = self.cx.unit(shape.unit);
        let mut changed = self.changed_on_wire(shape);
        // The last field may be streamed: if it is replaced, no byte of the original follows it.
        let body_field = changed.last().copied().filter(|field| self.may_stream(shape, *field));
        if body_field.is_some() {
            changed.pop();
        }
        let mut copied = self.f.int(0);
        for field in changed {
            copied = self.copy_around(shape, copied, field);
        }
        let Some(field) = body_field else {
            return self.hand_over_rest(shape, mark, copied, hand_over);
        };
        if info.is_always_there(field) {
            return self.hand_over_body(shape, mark, copied, field, hand_over);
        }
        let is_there = self.stands_there(shape, field);
        self.hand_over_either(
            is_there,
            hand_over,
            |body, hand_over| body.hand_over_body(shape, mark, copied, field, hand_over),
            |body, hand_over| body.hand_over_rest(shape, mark, copied, hand_over),
        );
    }

    /// Copies the rest of the head; the platform adds what follows it.
    fn hand_over_rest(
        &mut self,
        shape: &Shape,
        mark: Value,
        copied: Value,
        hand_over: &mut dyn FnMut(&mut Self, OutMessage),
    ) {
        let head = self.head_slot(shape, SLOT_HEAD);
        self.emit_range(shape, copied, head);
        hand_over(self, OutMessage::Rebuilt { mark, tail_from: Some(head), tail_of: shape.message });
    }

    /// Writes the last field in place of what the original has.
    fn hand_over_body(
        &mut self,
        shape: &Shape,
        mark: Value,
        copied: Value,
        field: FieldId,
        hand_over: &mut dyn FnMut(&mut Self, OutMessage),
    ) {
        let start = self.received(shape, SlotKey::Start(field)).num().value();
        self.emit_range(shape, copied, start);
        self.write_value(shape, field);
        hand_over(self, OutMessage::Rebuilt { mark, tail_from: None, tail_of: None });
    }

    /// A slot of the platform's own of the message that a shape is of.
    fn head_slot(&mut self, shape: &Shape, slot: usize) -> Value {
        let slot = slot as u16;
        self.f.define(
            Type::Int,
            match shape.message {
                None => Op::FrameGet { slot },
                Some(message) => Op::MessageGet { message, slot },
            },
        )
    }

    /// The fields with bytes of their own that a shape changes, in order of the wire.
    fn changed_on_wire(&self, shape: &Shape) -> Vec<FieldId> {
        let info = self.cx.unit(shape.unit);
        let affected = info.affected_parts(shape.overrides.keys().copied());
        let lists = affected.iter().filter_map(|part| match part {
            Part::Key(list, _) => Some(*list),
            _ => None,
        });
        let fields = affected_fields(&affected).filter(|field| info.field(*field).kind.is_on_wire());
        fields.chain(lists).collect::<BTreeSet<FieldId>>().into_iter().collect()
    }

    /// Whether a field may be streamed: it is bytes of any length, and no field follows it.
    fn may_stream(&self, shape: &Shape, field: FieldId) -> bool {
        let info = self.cx.unit(shape.unit);
        let is_body = match &info.field(field).kind {
            FieldKind::Bytes { .. } | FieldKind::ToClose { .. } => true,
            FieldKind::List(list) => list.keyed.is_none(),
            _ => false,
        };
        let is_on_wire = |field: FieldId| info.field(field).kind.is_on_wire();
        let row = info.unit.body.as_deref().unwrap_or_default();
        // A list has a terminator behind it, which the original brings.
        is_body && info.list(field).is_none() && is_last(row, field, &is_on_wire)
    }

    /// Copies up to a field and writes it as the shape has it. Gives the place behind it in the original.
    fn copy_around(&mut self, shape: &Shape, copied: Value, field: FieldId) -> Value {
        if self.cx.unit(shape.unit).is_always_there(field) {
            return self.replace_field(shape, copied, field);
        }
        let (there, away, next) =
            (self.f.new_block(&[]), self.f.new_block(&[]), self.f.new_block(&[Type::Int]));
        let is_there = self.stands_there(shape, field);
        self.f.branch_to(is_there, there, away);
        self.f.go_on_in(there);
        let behind = self.replace_field(shape, copied, field);
        self.f.jump(next, vec![behind]);
        self.f.go_on_in(away);
        self.f.jump(next, vec![copied]);
        self.f.go_on_in(next);
        self.f.params(next)[0]
    }

    fn replace_field(&mut self, shape: &Shape, copied: Value, field: FieldId) -> Value {
        let info = self.cx.unit(shape.unit);
        let start = self.received(shape, SlotKey::Start(field)).num().value();
        let end = self.received(shape, SlotKey::End(field)).num().value();
        self.emit_range(shape, copied, start);
        let kind = &info.field(field).kind;
        match (kind, shape.overrides.get(&Part::Field(field)).cloned()) {
            (FieldKind::Number { .. } | FieldKind::Varint { .. } | FieldKind::Vint { .. }, _) => {
                let was = self.received(shape, SlotKey::Field(field)).num().value();
                let is = self.ready_field(shape, field).num().value();
                let is_same = self.f.binary(Type::Bool, Binary::Eq, was, is);
                self.either(
                    is_same,
                    |body| body.emit_range(shape, start, end),
                    |body| body.write_value(shape, field),
                );
            }
            (FieldKind::List(_), Some(Val::Bytes(given))) => {
                let is_missing = self.f.define(Type::Bool, Op::IsMissing(given));
                let changes_keys = self.ready.keys(field).arrived.is_some();
                self.either(
                    is_missing,
                    |body| match changes_keys {
                        true => body.rewrite_keyed(shape, field, start, end),
                        false => body.emit_range(shape, start, end),
                    },
                    |body| body.write_value(shape, field),
                );
            }
            (FieldKind::List(_), Some(Val::Group(_))) => self.write_value(shape, field),
            (FieldKind::List(_), _) => self.rewrite_keyed(shape, field, start, end),
            _ => self.write_value(shape, field),
        }
        end
    }

    /// Writes one thing where `cond` holds, else the other.
    pub fn either(&mut self, cond: Value, then: impl FnOnce(&mut Self), otherwise: impl FnOnce(&mut Self)) {
        let (one, other, next) = (self.f.new_block(&[]), self.f.new_block(&[]), self.f.new_block(&[]));
        self.f.branch_to(cond, one, other);
        self.f.go_on_in(one);
        then(self);
        self.f.jump(next, Vec::new());
        self.f.go_on_in(other);
        otherwise(self);
        self.f.jump(next, Vec::new());
        self.f.go_on_in(next);
    }

    /// Copies a keyed list without the elements of keys that do not stay, and writes those that are set behind it.
    /// The items of the list are key and element by turns, of all keys that the program changes.
    fn rewrite_keyed(&mut self, shape: &Shape, list: FieldId, start: Value, end: Value) {
        let keys = self.ready.keys(list);
        let (replaced, run) = (keys.replaced, keys.arrived.expect("a list is rewritten where keys change"));
        let range = Interval::new(0, i128::from(u32::MAX));
        let carrier = Carrier::Num(Type::Int, range);
        let start = Val::Num(Num::one(start, range));
        let copied = self.repeat(&run, vec![(carrier, start)], |body, pair, _, carried| {
            let pair = pair.group();
            let (key, element) = (pair[0].bytes(), pair[1].bytes());
            let copied = carried[0].num().value();
            let goes = body.is_one_of(shape.unit, list, key, &replaced);
            let Some(goes) = goes else { return carried };
            let from = body.f.define(Type::Int, Op::BytesOffset(element));
            let len = body.f.define(Type::Int, Op::Len(element));
            let to = body.f.binary(Type::Int, Binary::Add, from, len);
            body.where_holds(goes, |body| body.emit_range(shape, copied, from));
            vec![Val::Num(Num::one(body.select(goes, to, copied), range))]
        });
        self.emit_range(shape, copied[0].num().value(), end);
        self.write_set_keys(shape, list);
    }

    /// `wire(message)`: the bytes that would be sent; none of a message that arrived and is not there whole.
    pub fn wire_of(&mut self, record: &Record, max_bytes: u32) -> Val {
        self.of_each_shape(
            record,
            |body| Val::Bytes(body.empty_bytes()),
            |body, shape| Val::Bytes(body.shape_wire(shape, max_bytes)),
        )
    }

    fn shape_wire(&mut self, shape: &Shape, max_bytes: u32) -> Value {
        if shape.kind.is_unchanged() {
            let whole = self.f.define(Type::Bytes, Op::Whole { message: shape.message });
            return self.unless_missing(whole);
        }
        let mark = self.f.define(Type::Int, Op::OutMark);
        self.make_structured(shape, &mut |body, out_message| {
            // The bytes behind the head have arrived too: a rule that reads the bytes of a message gets it whole.
            if let OutMessage::Rebuilt { tail_from: Some(tail), .. } = out_message {
                let end = body.head_slot(shape, SLOT_TOTAL);
                body.emit_range(shape, tail, end);
            }
        });
        self.f.define(Type::Bytes, Op::Written { mark, max_bytes })
    }
}

/// Whether a field ends its row, or an arm that does.
fn is_last(row: &[Item], field: FieldId, is_on_wire: &dyn Fn(FieldId) -> bool) -> bool {
    for item in row.iter().rev() {
        match item {
            Item::Check(_) => {}
            Item::Field(known) if *known == field => return true,
            Item::Field(known) if !is_on_wire(*known) => {}
            Item::Field(_) | Item::Literal(_) => return false,
            Item::Switch(choice) => {
                let rows = choice.arms.iter().map(|(_, items)| items).chain(&choice.otherwise);
                return rows.into_iter().any(|row| is_last(row, field, is_on_wire));
            }
        }
    }
    false
}
