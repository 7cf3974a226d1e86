//! Sending messages: as they arrived, with changes, or built from nothing.
//! Promises: bytes that no change touches leave as they came; lengths that follow from a change are right.
//! Refuses: values that do not fit their field: the checker's ranges exclude them.
//! Source: FLICK §4.2 (`&serialize`).

use flick_abi::frame::SLOT_HEAD;
use flick_check::hir::{FieldId, FieldKind};
use flick_ir::data::{Binary, BlockId, Op, Terminator, Type, Value};

use crate::body::Body;
use crate::unit::Key;
use crate::value::{Record, Shape, ShapeKind, Val};

impl Body<'_> {
    /// Sends a message to a channel.
    pub fn send(&mut self, record: &Record, chan: Value) {
        let Some(selector) = record.selector else {
            return self.send_shape(&record.shapes[0], chan);
        };
        let blocks: Vec<BlockId> = record.shapes.iter().map(|_| self.f.new_block(&[])).collect();
        let (&default, others) = blocks.split_last().expect("a message has a shape");
        let cases = (0..).zip(others.iter().copied()).collect();
        self.f.end(Terminator::Switch { value: selector, cases, default });
        let ends = record.shapes.iter().zip(&blocks).map(|(shape, &block)| {
            self.f.go_on_in(block);
            self.send_shape(shape, chan);
            (self.f.current(), Val::Nothing)
        });
        let ends = ends.collect();
        self.join(ends);
    }

    fn send_shape(&mut self, shape: &Shape, chan: Value) {
        if shape.kind == ShapeKind::Original {
            return self.f.effect(Op::SendOriginal { chan });
        }
        let mark = self.f.define(Type::Int, Op::OutMark);
        let tail_from = if shape.kind == ShapeKind::Built {
            self.emit_built(shape);
            None
        } else {
            self.emit_changed(shape)
        };
        self.f.effect(Op::SendRebuilt { chan, mark, tail_from });
    }

    /// Writes all fields of a message that was built.
    pub fn emit_built(&mut self, shape: &Shape) {
        for (field, _) in self.cx.unit(shape.unit).fields() {
            self.emit_field(shape, field);
        }
    }

    /// Writes the head of a changed message. Returns where the rest of the original follows, if it does.
    fn emit_changed(&mut self, shape: &Shape) -> Option<Value> {
        let info = self.cx.unit(shape.unit);
        let affected = info.affected(shape.overrides.keys().copied());
        let on_wire = |id: &FieldId| !matches!(info.field(*id).kind, FieldKind::Var { .. });
        let last_of_unit = info.fields().map(|(id, _)| id).rfind(on_wire);
        let last_affected = affected.iter().copied().rfind(|id| on_wire(id));
        let mut place = Place { at: None, fixed: 0 };
        let mut copied = place;
        for (field, _) in info.fields().take_while(|(id, _)| last_affected.is_some_and(|last| *id <= last)) {
            let behind = self.behind_original(shape, field, place);
            if affected.contains(&field) && on_wire(&field) {
                self.emit_message(copied, place);
                self.emit_field(shape, field);
                copied = behind;
            }
            place = behind;
        }
        if last_affected == last_of_unit {
            return None;
        }
        let start = self.place_value(copied);
        let head = self.f.define(Type::Int, Op::FrameGet { slot: SLOT_HEAD as u16 });
        self.f.effect(Op::EmitMessage { start, end: head });
        Some(head)
    }

    fn emit_message(&mut self, from: Place, to: Place) {
        if from == to {
            return;
        }
        let (start, end) = (self.place_value(from), self.place_value(to));
        self.f.effect(Op::EmitMessage { start, end });
    }

    /// Writes one field as the shape has it.
    fn emit_field(&mut self, shape: &Shape, field: FieldId) {
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
            FieldKind::Bytes { .. } => {
                if shape.kind == ShapeKind::Built && !shape.overrides.contains_key(&field) {
                    return;
                }
                let value = self.shape_field(shape, field).bytes();
                self.f.effect(Op::EmitBytes { value });
            }
            FieldKind::Var { .. } => {}
        }
    }

    /// The place behind a field of the original message.
    fn behind_original(&mut self, shape: &Shape, field: FieldId, place: Place) -> Place {
        let info = self.cx.unit(shape.unit);
        match &info.field(field).kind {
            FieldKind::Int { repr, .. } => {
                Place { at: place.at, fixed: place.fixed + i64::from(repr.width_bytes) }
            }
            FieldKind::Var { .. } => place,
            FieldKind::Bytes { .. } => {
                let length = self.get_key(shape.unit, Key::Length(field)).num().value();
                let at = match place.at {
                    None => length,
                    Some(at) => self.f.binary(Type::Int, Binary::Add, at, length),
                };
                Place { at: Some(at), fixed: place.fixed }
            }
        }
    }

    fn place_value(&mut self, place: Place) -> Value {
        match (place.at, place.fixed) {
            (None, fixed) => self.f.int(fixed),
            (Some(at), 0) => at,
            (Some(at), fixed) => {
                let fixed = self.f.int(fixed);
                self.f.binary(Type::Int, Binary::Add, at, fixed)
            }
        }
    }
}

/// An offset in the original message: lengths of bytes fields so far, and a constant.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Place {
    at: Option<Value>,
    fixed: i64,
}
