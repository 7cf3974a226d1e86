//! Checks whether the values that a program computed can be written.
//! Promises: bytes that their field cannot hold are never written: those outside its class, those in which what ends
//! it stands, too few, and numbers of too many digits. A message of such a value is not sent, unless the field stays
//! away; nor is one whose list has no room for a key that is set, or that does not have the field which would say how
//! long changed bytes are.
//! Refuses: constants; the checker does.
//! Source: RELIABILITY P9.

use std::collections::BTreeSet;

use flick_check::hir::{FieldId, FieldKind, List, ListEnd};
use flick_ir::data::{Binary, Op, Type, Value};

use crate::body::{Body, Mode, SelfScope};
use crate::carrier::Carrier;
use crate::interval::Interval;
use crate::part::{KEY_SET, Part};
use crate::unit::{Formula, SlotKey};
use crate::value::{Num, Shape, ShapeKind, Val};

impl Body<'_> {
    /// Whether a structured message that was changed or built can be written; `None`: it can.
    pub fn guard_of(&mut self, shape: &Shape) -> Option<Value> {
        let info = self.cx.unit(shape.unit);
        let mut all = None;
        for part in info.affected_parts(shape.overrides.keys().copied()) {
            let (field, guard) = match part {
                Part::Field(field) => (field, self.field_guard(shape, field)),
                Part::Key(list, key) => (list, self.key_guard(shape, list, key)),
                Part::KeyState(..) | Part::Wire => continue,
            };
            let guard = guard.map(|guard| self.unless_absent(shape, field, guard));
            all = self.both(all, guard);
            if let Part::Field(_) = part {
                let measured = self.measured_guard(shape, field);
                all = self.both(all, measured);
            }
        }
        all
    }

    /// Whether a length is written where the bytes that it measures are written with another one; `None`: it is. Where
    /// it stays away, no other field says how many they are.
    fn measured_guard(&mut self, shape: &Shape, field: FieldId) -> Option<Value> {
        let info = self.cx.unit(shape.unit);
        let can_be_absent = info.field(field).kind.is_on_wire() && !info.is_always_there(field);
        if shape.kind == ShapeKind::Built || !can_be_absent {
            return None;
        }
        let affected = info.affected_parts(shape.overrides.keys().copied());
        let mut all = None;
        for of in info.measured(field) {
            if !affected.contains(&Part::Field(of)) {
                continue;
            }
            let was = self.received_len(shape, of);
            let is = self.shape_len_of(shape, of).num().value();
            let is_same = self.f.binary(Type::Bool, Binary::Eq, was, is);
            let guard = self.unless_absent(shape, of, is_same);
            all = self.both(all, Some(guard));
        }
        let guard = all?;
        let is_there = self.stands_there(shape, field);
        Some(self.f.binary(Type::Bool, Binary::Or, is_there, guard))
    }

    /// Returns the length of a field as it arrived, as a field that measures it says it: in bytes, or in elements.
    fn received_len(&mut self, shape: &Shape, field: FieldId) -> Value {
        match self.cx.unit(shape.unit).list(field).map(|list| &list.end) {
            Some(ListEnd::Bytes(_)) => {
                let start = self.received(shape, SlotKey::Start(field)).num().value();
                let end = self.received(shape, SlotKey::End(field)).num().value();
                self.f.binary(Type::Int, Binary::Sub, end, start)
            }
            _ => self.received(shape, SlotKey::Length(field)).num().value(),
        }
    }

    /// Whether all keys that are set have room in their lists, where a grammar says how many elements those have;
    /// `None`: they have. A key that is there is replaced, and takes no more room than before.
    pub fn capacity_for(&mut self, shape: &Shape) -> Option<Value> {
        let info = self.cx.unit(shape.unit);
        let parts = info.affected_parts(shape.overrides.keys().copied());
        let lists: BTreeSet<FieldId> = parts
            .into_iter()
            .filter_map(|part| match part {
                Part::Key(list, _) => Some(list),
                Part::Field(_) | Part::KeyState(..) | Part::Wire => None,
            })
            .collect();
        let mut all = None;
        for list in lists {
            let capacity =
                info.list(list).and_then(|own| own.max).map(|max| self.capacity_in(shape, list, max));
            let capacity = capacity.map(|capacity| self.unless_absent(shape, list, capacity));
            all = self.both(all, capacity);
        }
        all
    }

    fn capacity_in(&mut self, shape: &Shape, list: FieldId, max: u32) -> Value {
        let mut count = self.elements_of(shape, list);
        for (key, is_set, _) in self.ready_keys(shape, list).set {
            let known = self.key_in_list(shape, list, key);
            let is_missing = self.f.define(Type::Bool, Op::IsMissing(known));
            let is_added = self.f.binary(Type::Bool, Binary::And, is_set, is_missing);
            let added = self.f.bool_to_int(is_added);
            count = self.f.binary(Type::Int, Binary::Add, count, added);
        }
        let max = self.f.int(i64::from(max));
        self.f.binary(Type::Bool, Binary::LeS, count, max)
    }

    /// A field that the original does not have stays away, so its value need not be one that could be written.
    fn unless_absent(&mut self, shape: &Shape, field: FieldId, guard: Value) -> Value {
        let info = self.cx.unit(shape.unit);
        let position = match info.field(field).kind {
            FieldKind::Bits { of, .. } => of,
            _ => field,
        };
        if shape.kind == ShapeKind::Built || info.is_always_there(position) {
            return guard;
        }
        let is_there = self.stands_there(shape, position);
        let is_absent = self.f.define(Type::Bool, Op::Not(is_there));
        self.f.binary(Type::Bool, Binary::Or, is_absent, guard)
    }

    fn both(&mut self, a: Option<Value>, b: Option<Value>) -> Option<Value> {
        match (a, b) {
            (Some(a), Some(b)) => Some(self.f.binary(Type::Bool, Binary::And, a, b)),
            (one, other) => one.or(other),
        }
    }

    fn field_guard(&mut self, shape: &Shape, field: FieldId) -> Option<Value> {
        let info = self.cx.unit(shape.unit);
        match &info.field(field).kind {
            FieldKind::Text { .. } => {
                let given = shape.overrides.get(&Part::Field(field))?.bytes();
                self.text_guard(shape, field, given)
            }
            FieldKind::Number { .. } | FieldKind::Varint { .. } | FieldKind::Bits { .. } => {
                self.number_guard(shape, field)
            }
            FieldKind::List(list) => {
                let given = shape.overrides.get(&Part::Field(field))?.clone();
                self.list_guard(shape, field, list, &given)
            }
            _ => None,
        }
    }

    /// Whether a text field can hold bytes; `None`: it can hold these. Missing ones are not written.
    fn text_guard(&mut self, shape: &Shape, field: FieldId, bytes: Value) -> Option<Value> {
        if self.f.is_constant_bytes(bytes) {
            return None;
        }
        let FieldKind::Text { class, until, min_bytes, .. } = &self.cx.unit(shape.unit).field(field).kind
        else {
            return None;
        };
        let is_missing = self.f.define(Type::Bool, Op::IsMissing(bytes));
        let bytes = self.unless_missing(bytes);
        let class = class.map(|class| {
            let set = self.cx.program.classes[class.0 as usize].set;
            self.consts.class(set)
        });
        let without = until.as_ref().map(|until| match self.consts.intern(until) {
            Op::ConstBytes { offset, len } => (offset, len),
            other => panic!("constant bytes are constants, not {other:?}"),
        });
        let guard = (class.is_some() || without.is_some())
            .then(|| self.f.define(Type::Bool, Op::Guard { bytes, class, without }));
        let long_enough = (*min_bytes > 0).then(|| {
            let (len, least) = (self.f.define(Type::Int, Op::Len(bytes)), self.f.int(i64::from(*min_bytes)));
            self.f.binary(Type::Bool, Binary::LeS, least, len)
        });
        let holds = self.both(guard, long_enough)?;
        Some(self.f.binary(Type::Bool, Binary::Or, is_missing, holds))
    }

    /// Returns the new value of a number and its range, before it is fitted to its field; `None`: it is unchanged.
    fn unfitted_number(&mut self, shape: &Shape, field: FieldId) -> Option<Num> {
        let info = self.cx.unit(shape.unit);
        if let Some(formula) = info.formula(field) {
            let scope = SelfScope::Shape(shape.clone());
            let val = self.with_scope(shape.unit, scope, Mode::Wrapping, |body| match formula {
                Formula::LengthOf(bytes) => body.self_len_of(bytes),
                Formula::Expr(expr) => body.expr(expr),
            });
            return Some(val.num());
        }
        None
    }

    fn number_guard(&mut self, shape: &Shape, field: FieldId) -> Option<Value> {
        let (lo, hi) = self.cx.unit(shape.unit).field(field).kind.number_range()?;
        let num = self.unfitted_number(shape, field)?;
        let allowed = Interval::new(lo, hi);
        if num.range.within(allowed) {
            return None;
        }
        let mut all = None;
        for (bound, op, is_needed) in [
            (lo, flick_check::hir::BinaryOp::Ge, num.range.lo < lo),
            (hi, flick_check::hir::BinaryOp::Le, num.range.hi > hi),
        ] {
            if is_needed {
                let bound = self.constant(bound);
                let holds = self.compare(op, num, bound);
                all = self.both(all, Some(holds));
            }
        }
        all
    }

    fn key_guard(&mut self, shape: &Shape, list: FieldId, key: u32) -> Option<Value> {
        let (_, keyed) = self.cx.unit(shape.unit).keyed(list);
        let (state, value) = self.key_change(shape, list, key)?;
        let guard = self.text_guard(shape, keyed.value, value)?;
        let is_set = self.is_state(state, KEY_SET);
        let is_not = self.f.define(Type::Bool, Op::Not(is_set));
        Some(self.f.binary(Type::Bool, Binary::Or, is_not, guard))
    }

    /// Whether all elements that a program gives a list can be written.
    fn list_guard(&mut self, shape: &Shape, field: FieldId, list: &List, given: &Val) -> Option<Value> {
        let texts: Vec<FieldId> = match (&list.keyed, list.element) {
            (Some(keyed), _) => vec![keyed.key, keyed.value],
            (None, Some(element)) => vec![element],
            (None, None) => return None,
        };
        let info = self.cx.unit(shape.unit);
        if !texts.iter().any(|text| matches!(info.field(*text).kind, FieldKind::Text { .. })) {
            return None;
        }
        if let Val::Group(elements) = given {
            let mut all = None;
            for element in elements {
                let guard = self.element_guard(shape, &texts, element);
                all = self.both(all, guard);
            }
            return all;
        }
        let run = self.run_of_given(shape.unit, field, given.bytes());
        let start = Val::Bool(self.f.bool(true));
        let all = self.repeat(&run, vec![(Carrier::Bool, start)], |body, element, _, carried| {
            let guard = body.element_guard(shape, &texts, &element);
            let all = body.both(Some(carried[0].bool()), guard);
            vec![all.map_or(carried[0].clone(), Val::Bool)]
        });
        Some(all[0].bool())
    }

    /// Whether an element that a program gives can be written: its texts, in order.
    fn element_guard(&mut self, shape: &Shape, texts: &[FieldId], element: &Val) -> Option<Value> {
        let parts = match element {
            Val::Group(parts) => parts.as_slice(),
            other => std::slice::from_ref(other),
        };
        let mut all = None;
        for (text, part) in texts.iter().zip(parts) {
            let guard = self.text_guard(shape, *text, part.bytes());
            all = self.both(all, guard);
        }
        all
    }
}
