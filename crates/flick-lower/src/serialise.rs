//! Sending messages: as they arrived, with changes, or built from nothing.
//! Promises: bytes that no change touches leave as they came; lengths that follow from a change are right.
//! Refuses: values that do not fit their field: the checker's ranges exclude them.
//! Source: FLICK §4.2 (`&serialize`).

use std::collections::BTreeSet;

use flick_abi::FailureReason;
use flick_abi::frame::SLOT_HEAD;
use flick_check::hir::{FieldId, FieldKind};
use flick_ir::data::{Binary, BlockId, Op, Terminator, Type, Value};

use crate::body::Body;
use crate::part::Part;
use crate::unit::SlotKey;
use crate::value::{Record, Shape, ShapeKind, Val};

/// A message ready to leave, any number of times until something else is written.
#[derive(Clone, Copy, Debug)]
pub enum OutMessage {
    /// As it arrived: the message that started the activation, or another.
    Whole(Option<Value>),
    /// Nothing: the message cannot be written, and why its request fails then.
    Unwritable(FailureReason),
    /// The output since the mark, and the rest of a message.
    Rebuilt {
        /// Result of an `OutMark`.
        mark: Value,
        /// Start of the rest in its message; `None`: there is no rest.
        tail_from: Option<Value>,
        /// Message that the rest is of; `None`: the one that started the activation.
        tail_of: Option<Value>,
    },
}

impl Body<'_> {
    /// Sends a message to a channel.
    pub fn send(&mut self, record: &Record, chan: Value) {
        self.for_each_shape(record, |body, out_message| {
            let op = match out_message {
                OutMessage::Unwritable(reason) => Op::Fail { reason: body.f.int(reason as i64) },
                OutMessage::Whole(None) => Op::SendOriginal { chan },
                OutMessage::Whole(Some(message)) => Op::SendMessage { chan, message },
                OutMessage::Rebuilt { mark, tail_from, tail_of } => {
                    Op::SendRebuilt { chan, mark, tail_from, tail_of }
                }
            };
            body.f.effect(op);
        });
    }

    /// Asks a channel with what was made ready.
    pub fn ask_with(&mut self, out_message: OutMessage, chan: Value, timeout_ns: Value) {
        let op = match out_message {
            OutMessage::Unwritable(_) => {
                // An element that no array has: the answer is that it is unavailable.
                let index = self.f.int(-1);
                let chan = self.f.define(Type::Chan, Op::ChanElem { chan, index });
                let mark = self.f.define(Type::Int, Op::OutMark);
                Op::AskRebuilt { chan, mark, tail_from: None, tail_of: None, timeout_ns }
            }
            OutMessage::Whole(None) => Op::AskOriginal { chan, timeout_ns },
            OutMessage::Whole(Some(message)) => Op::AskMessage { chan, message, timeout_ns },
            OutMessage::Rebuilt { mark, tail_from, tail_of } => {
                Op::AskRebuilt { chan, mark, tail_from, tail_of, timeout_ns }
            }
        };
        self.f.effect(op);
    }

    /// Makes each shape that a message may have ready, and runs `hand_over` where the message has that shape.
    pub fn for_each_shape(&mut self, record: &Record, mut hand_over: impl FnMut(&mut Self, OutMessage)) {
        let Some(selector) = record.selector else {
            for shape in &record.shapes {
                self.make_ready(shape, &mut hand_over);
            }
            return;
        };
        let blocks: Vec<BlockId> = record.shapes.iter().map(|_| self.f.new_block(&[])).collect();
        let (&default, others) = blocks.split_last().expect("a message with a selector has shapes");
        let cases = (0..).zip(others.iter().copied()).collect();
        self.f.end(Terminator::Switch { value: selector, cases, default });
        let ends = record.shapes.iter().zip(&blocks).map(|(shape, &block)| {
            self.f.go_on_in(block);
            self.make_ready(shape, &mut hand_over);
            (self.f.current(), Val::Nothing)
        });
        let ends = ends.collect();
        self.join(ends);
    }

    fn make_ready(&mut self, shape: &Shape, hand_over: &mut dyn FnMut(&mut Self, OutMessage)) {
        if shape.kind.is_unchanged() {
            return hand_over(self, OutMessage::Whole(shape.message));
        }
        if self.cx.unit(shape.unit).unit.body.is_some() {
            return self.make_structured(shape, hand_over);
        }
        let mark = self.f.define(Type::Int, Op::OutMark);
        let tail_from = if shape.kind == ShapeKind::Built {
            self.emit_built(shape);
            None
        } else {
            self.emit_changed(shape)
        };
        let tail_of = tail_from.and(shape.message);
        hand_over(self, OutMessage::Rebuilt { mark, tail_from, tail_of });
    }

    /// Writes all fields of a message that was built.
    pub fn emit_built(&mut self, shape: &Shape) {
        if let Some(body) = &self.cx.unit(shape.unit).unit.body {
            self.ready = self.make_ready_of(shape);
            return self.write_items(shape, body);
        }
        for (field, _) in self.cx.unit(shape.unit).fields() {
            self.emit_field(shape, field);
        }
    }

    /// Writes the head of a changed message. Returns where the rest of the original follows, if it does.
    fn emit_changed(&mut self, shape: &Shape) -> Option<Value> {
        let info = self.cx.unit(shape.unit);
        let affected = info.affected_parts(shape.overrides.keys().copied());
        let on_wire = |id: &FieldId| !matches!(info.field(*id).kind, FieldKind::Var { .. });
        let last_of_unit = info.fields().map(|(id, _)| id).rfind(on_wire);
        let last_affected = affected_fields(&affected).filter(on_wire).last();
        let mut offset = MessageOffset { at: None, fixed: 0 };
        let mut copied = offset;
        for (field, _) in info.fields().take_while(|(id, _)| last_affected.is_some_and(|last| *id <= last)) {
            let behind = self.behind_original(shape, field, offset);
            if affected.contains(&Part::Field(field)) && on_wire(&field) {
                self.emit_message(shape, copied, offset);
                match info.field(field).kind {
                    FieldKind::Vint { .. } => self.replace_vint(shape, field, offset, behind),
                    _ => self.emit_field(shape, field),
                }
                copied = behind;
            }
            offset = behind;
        }
        if last_affected == last_of_unit {
            return None;
        }
        let start = self.offset_value(copied);
        let slot = SLOT_HEAD as u16;
        let head = match shape.message {
            None => Op::FrameGet { slot },
            Some(message) => Op::MessageGet { message, slot },
        };
        let head = self.f.define(Type::Int, head);
        self.emit_range(shape, start, head);
        Some(head)
    }

    /// Writes a vint between two places of the original: one that keeps its value keeps its form, which need not be
    /// the shortest.
    fn replace_vint(&mut self, shape: &Shape, field: FieldId, start: MessageOffset, end: MessageOffset) {
        let was = self.received(shape, SlotKey::Field(field)).num().value();
        let is = self.shape_field(shape, field).num().value();
        let is_same = self.f.binary(Type::Bool, Binary::Eq, was, is);
        self.either(
            is_same,
            |body| body.emit_message(shape, start, end),
            |body| body.emit_field(shape, field),
        );
    }

    fn emit_message(&mut self, shape: &Shape, from: MessageOffset, to: MessageOffset) {
        if from == to {
            return;
        }
        let (start, end) = (self.offset_value(from), self.offset_value(to));
        self.emit_range(shape, start, end);
    }

    /// Copies a range of the original message.
    pub fn emit_range(&mut self, shape: &Shape, start: Value, end: Value) {
        self.f.effect(match shape.message {
            None => Op::EmitMessage { start, end },
            Some(message) => Op::EmitMessageOf { message, start, end },
        });
    }

    /// Writes one field of fixed or announced length as the shape has it.
    pub fn emit_field(&mut self, shape: &Shape, field: FieldId) {
        let kind = &self.cx.unit(shape.unit).field(field).kind;
        match kind {
            FieldKind::Int { repr, big_endian, .. } => {
                let val = self.shape_field(shape, field);
                let Val::Num(num) = self.fit_to_field(shape.unit, field, val) else {
                    panic!("an integer field has an integer value")
                };
                let (width_bytes, big_endian) = (repr.width_bytes, *big_endian);
                self.f.effect(Op::EmitInt { value: num.value(), width_bytes, big_endian });
            }
            FieldKind::Vint { .. } => {
                let value = self.shape_field(shape, field).num();
                self.emit_vint(value);
            }
            FieldKind::Bytes { .. } => {
                if shape.kind == ShapeKind::Built && !shape.overrides.contains_key(&Part::Field(field)) {
                    return;
                }
                let value = self.shape_field(shape, field).bytes();
                self.f.effect(Op::EmitBytes { value });
            }
            FieldKind::Var { .. } => {}
            _ => panic!("fields of structured units are written by `write_value`"),
        }
    }

    /// The place behind a field of the original message.
    fn behind_original(&mut self, shape: &Shape, field: FieldId, offset: MessageOffset) -> MessageOffset {
        let info = self.cx.unit(shape.unit);
        match &info.field(field).kind {
            FieldKind::Int { repr, .. } => {
                MessageOffset { at: offset.at, fixed: offset.fixed + i64::from(repr.width_bytes) }
            }
            FieldKind::Var { .. } => offset,
            FieldKind::Bytes { .. } | FieldKind::Vint { .. } => {
                let length = self.received(shape, SlotKey::Length(field)).num().value();
                let at = match offset.at {
                    None => length,
                    Some(at) => self.f.binary(Type::Int, Binary::Add, at, length),
                };
                MessageOffset { at: Some(at), fixed: offset.fixed }
            }
            _ => panic!("fields of structured units know their places"),
        }
    }

    fn offset_value(&mut self, offset: MessageOffset) -> Value {
        match (offset.at, offset.fixed) {
            (None, fixed) => self.f.int(fixed),
            (Some(at), 0) => at,
            (Some(at), fixed) => {
                let fixed = self.f.int(fixed);
                self.f.binary(Type::Int, Binary::Add, at, fixed)
            }
        }
    }
}

/// An offset in the original message: lengths of fields without a fixed width so far, and a constant.
#[derive(Clone, Copy, Debug, PartialEq)]
struct MessageOffset {
    at: Option<Value>,
    fixed: i64,
}

/// The fields among parts, in order of the wire.
pub fn affected_fields(parts: &BTreeSet<Part>) -> impl Iterator<Item = FieldId> {
    parts.iter().filter_map(|part| match part {
        Part::Field(field) => Some(*field),
        _ => None,
    })
}
