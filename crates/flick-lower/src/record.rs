//! Messages as values: reading fields, changing them, building new ones.
//! Promises: a field that follows from others (a length) is read as it will be sent; what the author writes into
//! such a field is not believed, because the frame of the message depends on it.
//! Refuses: nothing at run time; a changed message costs only what is different in it.

use std::collections::{BTreeMap, BTreeSet};

use flick_check::hir::{Expr, ExprKind, FieldId, UnitId};
use flick_ir::data::{Binary, Op, Type, Value};

use crate::body::{Body, Mode, SelfScope};
use crate::interval::Interval;
use crate::part::Part;
use crate::unit::{Formula, SlotKey};
use crate::value::{Num, Record, Shape, ShapeKind, Val, Word};

impl Body<'_> {
    /// Reads a field of a message.
    pub fn record_field(&mut self, record: &Record, field: FieldId) -> Val {
        let vals: Vec<Val> =
            record.shapes.iter().map(|shape| self.shape_field(&shape.clone(), field)).collect();
        match vals.as_slice() {
            [] => return self.empty_field(record.unit, field),
            [val] => return val.clone(),
            _ => {}
        }
        let words: Vec<Value> =
            vals.into_iter().map(|val| self.fit_to_field(record.unit, field, val).word()).collect();
        let word = self.select_shape(record, &words);
        self.cx.unit(record.unit).part_val(Part::Field(field), word)
    }

    /// Reads something of each shape of a message, and chooses that of the shape which the message has.
    pub fn of_each_shape(
        &mut self,
        record: &Record,
        absent: impl FnOnce(&mut Self) -> Val,
        mut read: impl FnMut(&mut Self, &Shape) -> Val,
    ) -> Val {
        let vals: Vec<Val> = record.shapes.iter().map(|shape| read(self, shape)).collect();
        match vals.as_slice() {
            [] => return absent(self),
            [val] => return val.clone(),
            _ => {}
        }
        let carrier = self.carrier_of(&vals.iter().collect::<Vec<_>>());
        let rows: Vec<Vec<Value>> = vals.iter().map(|val| self.words(&carrier, val)).collect();
        let columns = rows.first().map_or(0, Vec::len);
        let words: Vec<Value> = (0..columns)
            .map(|column| {
                let words: Vec<Value> = rows.iter().map(|row| row[column]).collect();
                self.select_shape(record, &words)
            })
            .collect();
        self.arrived(&carrier, &mut words.into_iter())
    }

    /// The word of `words` that belongs to the shape which the message has.
    pub fn select_shape(&mut self, record: &Record, words: &[Value]) -> Value {
        let (&last, others) = words.split_last().expect("a message has a shape");
        let Some(selector) = record.selector else { return last };
        others.iter().enumerate().fold(last, |rest, (index, &word)| {
            let index = self.f.int(index as i64);
            let cond = self.f.binary(Type::Bool, Binary::Eq, selector, index);
            self.f.define(self.f.type_of(word), Op::Select { cond, a: word, b: rest })
        })
    }

    /// Reads a field of one shape of a message.
    pub fn shape_field(&mut self, shape: &Shape, field: FieldId) -> Val {
        let info = self.cx.unit(shape.unit);
        if let Some(val) = self.structured_field(shape, field) {
            return val;
        }
        let follows = info.formula(field).filter(|formula| match shape.kind {
            ShapeKind::Original | ShapeKind::Other => false,
            ShapeKind::Built => true,
            ShapeKind::Changed | ShapeKind::OtherChanged => {
                info.is_touched(&formula.keys(), &info.affected_parts(shape.overrides.keys().copied()))
            }
        });
        if let Some(formula) = follows {
            let val = self.with_scope(shape.unit, SelfScope::Shape(shape.clone()), Mode::Wrapping, |body| {
                match formula {
                    Formula::LengthOf(bytes) => body.self_len_of(bytes),
                    Formula::Expr(expr) => body.expr(expr),
                }
            });
            return self.fit_to_field(shape.unit, field, val);
        }
        match (shape.overrides.get(&Part::Field(field)), shape.kind) {
            (Some(val), _) => val.clone(),
            (None, ShapeKind::Built) => self.empty_field(shape.unit, field),
            (None, _) => self.received(shape, SlotKey::Field(field)),
        }
    }

    /// A field or length of the message that a shape is of, as it arrived.
    pub fn received(&mut self, shape: &Shape, key: SlotKey) -> Val {
        let Some(message) = shape.message else { return self.get_key(shape.unit, key) };
        let info = self.cx.unit(shape.unit);
        let op = Op::MessageGet { message, slot: info.slot(key) };
        let value = self.f.define(info.key_type(key), op);
        info.key_val(key, value)
    }

    /// The length of a bytes field of one shape of a message, or the number of elements of a list.
    pub fn shape_len_of(&mut self, shape: &Shape, field: FieldId) -> Val {
        let info = self.cx.unit(shape.unit);
        if info.list(field).is_some() {
            return self.shape_list_len(shape, field);
        }
        if let Some(val) = shape.overrides.get(&Part::Field(field)) {
            let len = self.f.define(Type::Int, Op::Len(val.bytes()));
            return Val::Num(Num::one(len, info.range(field)));
        }
        match shape.kind {
            ShapeKind::Built => Val::Num(self.constant(0)),
            _ => self.received(shape, SlotKey::Length(field)),
        }
    }

    /// The value of a field that is not set: what the grammar says, 0 or empty.
    pub fn empty_field(&mut self, unit: UnitId, field: FieldId) -> Val {
        let ty = self.cx.unit(unit).part_type(Part::Field(field));
        match ty {
            Type::Bytes => Val::Bytes(self.empty_bytes()),
            Type::Bool => Val::Bool(self.f.bool(false)),
            _ => {
                let value = self.cx.unit(unit).field(field).default.unwrap_or(0);
                let word = self.f.define(ty, Op::Const(value as u64 as i64));
                Val::Num(Num::one(word, Interval::of(value)))
            }
        }
    }

    /// `message with field = value, ...`: the values are computed from the unchanged message.
    pub fn lower_with(&mut self, record: &Expr, fields: &[(FieldId, Expr)]) -> Val {
        let record = self.expr(record).record();
        let changes = self.field_values(record.unit, fields);
        self.changed(&record, &changes)
    }

    /// The message with these parts replaced.
    pub fn changed(&mut self, record: &Record, changes: &BTreeMap<Part, Val>) -> Val {
        let mut shapes: Vec<Shape> = Vec::new();
        let mut positions: Vec<usize> = Vec::new();
        for (index, mut shape) in record.shapes.iter().cloned().enumerate() {
            shape.overrides.extend(changes.iter().map(|(part, val)| (*part, val.clone())));
            shape.kind = shape.kind.changed();
            // As it arrived and changed before have become the same kind: one shape is enough, with either's values.
            match shapes.iter().position(|known| known.kind == shape.kind) {
                Some(position) => {
                    shapes[position] = self.merge_shapes(record, &shape, &shapes[position].clone(), index);
                    positions.push(position);
                }
                None => {
                    positions.push(shapes.len());
                    shapes.push(shape);
                }
            }
        }
        let selector = (shapes.len() > 1).then(|| {
            let words: Vec<Value> = positions.iter().map(|&position| self.f.int(position as i64)).collect();
            self.select_shape(record, &words)
        });
        Val::Record(Record { unit: record.unit, selector, shapes })
    }

    /// One changed shape in place of two: each part has the value of the shape that the message has.
    fn merge_shapes(&mut self, record: &Record, a: &Shape, b: &Shape, a_index: usize) -> Shape {
        let selector = record.selector.expect("a message of several shapes has a selector");
        let index = self.f.int(a_index as i64);
        let cond = self.f.binary(Type::Bool, Binary::Eq, selector, index);
        let message = match (a.message, b.message) {
            (Some(a), Some(b)) => Some(self.f.define(Type::Message, Op::Select { cond, a, b })),
            _ => None,
        };
        let parts: BTreeSet<Part> = a.overrides.keys().chain(b.overrides.keys()).copied().collect();
        let mut overrides = BTreeMap::new();
        for part in parts {
            let [a, b] = [a, b].map(|shape| self.shape_part(shape, part));
            let val = match (a, b) {
                (Val::Num(a), Val::Num(b)) => Val::Num(self.select_num(cond, a, b)),
                (a, b) => {
                    let (a, b) = (a.word(), b.word());
                    let word = self.f.define(self.f.type_of(a), Op::Select { cond, a, b });
                    self.cx.unit(record.unit).part_val(part, word)
                }
            };
            overrides.insert(part, val);
        }
        Shape { kind: a.kind, unit: a.unit, message, overrides }
    }

    /// `unit{field = value, ...}`.
    pub fn lower_build(&mut self, unit: UnitId, fields: &[(FieldId, Expr)]) -> Val {
        let mut overrides = self.field_values(unit, fields);
        for (field, pattern) in self.cx.unit(unit).implied(&fields.iter().map(|(id, _)| *id).collect()) {
            let val = self.expr(pattern);
            overrides.insert(Part::Field(field), self.fit_to_field(unit, field, val));
        }
        let shape = Shape { kind: ShapeKind::Built, unit, message: None, overrides };
        Val::Record(Record { unit, selector: None, shapes: vec![shape] })
    }

    fn field_values(&mut self, unit: UnitId, fields: &[(FieldId, Expr)]) -> BTreeMap<Part, Val> {
        let vals: Vec<(FieldId, Val)> = fields
            .iter()
            .map(|(field, expr)| {
                let val = match (&expr.kind, self.cx.unit(unit).list(*field)) {
                    // Written where it stands, a list needs no memory.
                    (ExprKind::List(all), Some(_)) => {
                        Val::Group(all.iter().map(|expr| self.expr(expr)).collect())
                    }
                    _ => self.expr(expr),
                };
                (*field, self.fit_to_field(unit, *field, val))
            })
            .collect();
        let info = self.cx.unit(unit);
        vals.into_iter()
            .filter(|(field, _)| info.is_writable(*field))
            .map(|(field, val)| (Part::Field(field), val))
            .collect()
    }

    /// `a` where `cond` holds, else `b`.
    pub fn select_num(&mut self, cond: Value, a: Num, b: Num) -> Num {
        let range = a.range.hull(b.range);
        if let (Word::One(a), Word::One(b)) = (a.word, b.word)
            && (range.within(Interval::INT) || range.within(Interval::UINT))
        {
            let ty = if range.within(Interval::INT) { Type::Int } else { Type::Uint };
            return Num::one(self.f.define(ty, Op::Select { cond, a, b }), range);
        }
        let ((a_hi, a_lo), (b_hi, b_lo)) = (self.wide(a), self.wide(b));
        let hi = self.f.define(Type::Int, Op::Select { cond, a: a_hi, b: b_hi });
        let lo = self.f.define(Type::Uint, Op::Select { cond, a: a_lo, b: b_lo });
        if let Mode::Wrapping = self.mode {
            return Num::one(lo, Interval::UINT);
        }
        Num { word: Word::Two { hi, lo }, range }
    }
}
