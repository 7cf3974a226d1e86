//! Writes what structured units are made of: items in the order of the wire.
//! Promises: literals and numbers are written as the grammar says; of a choice the arm that was given, or that its
//! value leads to; what is written can be read back as what was given (`guard.rs` sees to values that cannot).
//! Refuses: elements of lists in which lists or choices would have to be given: a program gives one text for each.

use flick_check::hir::{Choice, Expr, FieldId, FieldKind, Item, List, ListEnd, Literal, UnitId};
use flick_ir::data::{Binary, BlockId, Op, Type, Value};

use crate::body::Body;
use crate::carrier::Carrier;
use crate::interval::Interval;
use crate::part::{Part, any_field};
use crate::unit::{Formula, SlotKey};
use crate::value::{Num, Shape, ShapeKind, Val};
use crate::walk::keys_of;

/// The number of values of a byte of a variable-length integer, and the mark of one that others follow.
const GROUP: i64 = 128;

impl Body<'_> {
    /// Writes all of a message that was built.
    pub fn write_items(&mut self, shape: &Shape, items: &[Item]) {
        for (index, item) in items.iter().enumerate() {
            let (before, behind) = (&items[..index], &items[index + 1..]);
            match item {
                Item::Field(field) if self.is_blank(shape, *field, before, behind) => self.write_bytes(b" "),
                Item::Field(field) => self.write_field(shape, *field),
                Item::Literal(literal) if is_left_out(literal, behind) => {}
                Item::Literal(literal) => self.write_bytes(&literal.bytes),
                Item::Check(_) => {}
                Item::Switch(choice) => self.write_choice(shape, choice),
            }
        }
    }

    /// Whether a field is optional blanks without a name that are forwarded and should be written: between words, which
    /// would become one, and before values, where a blank is customary.
    fn is_blank(&self, shape: &Shape, field: FieldId, before: &[Item], behind: &[Item]) -> bool {
        let info = self.cx.unit(shape.unit);
        let has_name = |item: Option<&Item>| match item {
            Some(Item::Field(field)) => info.field(*field).name.is_some(),
            _ => false,
        };
        match (&info.field(field).name, &info.field(field).kind) {
            (None, FieldKind::Text { class: Some(class), until: None, min_bytes: 0, cut: false, .. }) => {
                let has_space = self.cx.program.classes[class.0 as usize].has(b' ');
                has_space && !before.is_empty() && (has_name(before.last()) || has_name(behind.first()))
            }
            _ => false,
        }
    }

    /// Writes constant bytes.
    pub fn write_bytes(&mut self, bytes: &[u8]) {
        let bytes = self.consts.intern(bytes);
        let value = self.f.define(Type::Bytes, bytes);
        self.f.effect(Op::EmitBytes { value });
    }

    /// Writes a field and what ends it.
    fn write_field(&mut self, shape: &Shape, field: FieldId) {
        let info = self.cx.unit(shape.unit);
        self.write_value(shape, field);
        match &info.field(field).kind {
            FieldKind::Text { until: Some(until), .. } => self.write_bytes(until),
            FieldKind::List(list) => {
                if let ListEnd::Until(until) = &list.end {
                    self.write_bytes(until);
                }
            }
            _ => {}
        }
    }

    /// Writes a field as the shape has it, without what ends it.
    pub fn write_value(&mut self, shape: &Shape, field: FieldId) {
        let info = self.cx.unit(shape.unit);
        match &info.field(field).kind {
            FieldKind::Int { repr, big_endian, .. } => {
                let (width_bytes, big_endian) = (repr.width_bytes, *big_endian);
                let value = match self.bits_of(shape, field) {
                    Some(all) => all,
                    None => self.ready_field(shape, field).word(),
                };
                self.f.effect(Op::EmitInt { value, width_bytes, big_endian });
            }
            FieldKind::Vint { .. } => {
                let num = self.ready_field(shape, field).num();
                self.emit_vint(num);
            }
            FieldKind::Bytes { .. } | FieldKind::Text { .. } | FieldKind::ToClose { .. } => {
                match self.ready_field(shape, field) {
                    Val::Bytes(value) => self.f.effect(Op::EmitBytes { value }),
                    number => self.write_digits(number.num(), 10),
                }
            }
            FieldKind::Number { base, .. } => {
                let base = *base;
                let num = self.ready_field(shape, field).num();
                self.write_digits(num, base);
            }
            FieldKind::Varint { bytes_max, .. } => {
                let value = self.ready_field(shape, field).num().value();
                self.write_varint(value, *bytes_max);
            }
            FieldKind::List(list) => self.write_list(shape, field, list),
            FieldKind::Var { .. }
            | FieldKind::Bits { .. }
            | FieldKind::Flag { .. }
            | FieldKind::TextVar { .. }
            | FieldKind::Full { .. }
            | FieldKind::Kept
            | FieldKind::Carried => {}
        }
    }

    /// Writes a number in digits: what is made in the output stands there.
    fn write_digits(&mut self, num: Num, base: u8) {
        let signed = num.range.within(Interval::INT);
        self.f.define(Type::Bytes, Op::FormatInt { value: num.value(), signed, base });
    }

    /// The value of an integer that is made of bits. Those without a name stay; in a message that is built they are 0.
    fn bits_of(&mut self, shape: &Shape, field: FieldId) -> Option<Value> {
        let info = self.cx.unit(shape.unit);
        let bits: Vec<(FieldId, u8, u8)> = info
            .fields()
            .filter_map(|(id, bits)| match bits.kind {
                FieldKind::Bits { of, shift, width } if of == field => Some((id, shift, width)),
                _ => None,
            })
            .collect();
        let named = bits.iter().fold(0, |named, (_, shift, width)| named | mask(*width) << shift);
        let mut all: Option<Value> = match &info.field(field).kind {
            FieldKind::Int { repr, .. } if shape.kind != ShapeKind::Built && !bits.is_empty() => {
                let unnamed = mask(repr.width_bytes * 8) & !named;
                (unnamed != 0).then(|| {
                    let was = self.received(shape, SlotKey::Field(field)).num().value();
                    let unnamed = self.f.int(unnamed as i64);
                    self.f.binary(Type::Int, Binary::BitAnd, was, unnamed)
                })
            }
            _ => None,
        };
        for (id, shift, _) in bits {
            let value = self.ready_field(shape, id).num().value();
            let position = self.f.int(1_i64.wrapping_shl(u32::from(shift)));
            let moved = self.f.binary(Type::Int, Binary::Mul, value, position);
            all = Some(match all {
                None => moved,
                Some(others) => self.f.binary(Type::Int, Binary::Add, others, moved),
            });
        }
        all
    }

    /// Seven bits at a time, low ones first, until nothing is left.
    fn write_varint(&mut self, value: Value, bytes_max: u8) {
        let group = self.f.int(GROUP);
        let done = self.f.new_block(&[]);
        let mut value = value;
        for number in 1..=bytes_max {
            let rest = self.f.binary(Type::Int, Binary::DivU, value, group);
            if number == bytes_max {
                self.f.effect(Op::EmitInt { value, width_bytes: 1, big_endian: true });
                break;
            }
            let is_last = self.f.binary(Type::Bool, Binary::LtU, value, group);
            let marked = self.f.binary(Type::Int, Binary::BitOr, value, group);
            let byte = self.select(is_last, value, marked);
            self.f.effect(Op::EmitInt { value: byte, width_bytes: 1, big_endian: true });
            let more = self.f.new_block(&[]);
            self.f.branch_to(is_last, done, more);
            self.f.go_on_in(more);
            value = rest;
        }
        self.f.jump(done, Vec::new());
        self.f.go_on_in(done);
    }

    /// Writes the elements of a list that a program gives, and keys that are changed or follow.
    fn write_list(&mut self, shape: &Shape, field: FieldId, list: &List) {
        let given = shape.overrides.get(&Part::Field(field)).cloned();
        if let Some(Val::Group(elements)) = given {
            let others = self.ready.keys(field).replaced;
            for element in elements {
                self.write_given_element(shape, field, list, element, &others);
            }
        } else if let Some(given) = given {
            let run = self.run_of_given(shape.unit, field, given.bytes());
            let others = self.ready.keys(field).replaced;
            self.repeat(&run, Vec::new(), |body, element, _, _| {
                body.write_given_element(shape, field, list, element, &others);
                Vec::new()
            });
        } else if matches!(list.end, ListEnd::Last(_) | ListEnd::Children(_)) {
            let element = element_shape(shape, &[]);
            self.write_items(&element, &list.body);
        }
        self.write_set_keys(shape, field);
    }

    fn write_given_element(
        &mut self,
        shape: &Shape,
        field: FieldId,
        list: &List,
        element: Val,
        replaced: &[(u32, Value)],
    ) {
        let Some(keyed) = &list.keyed else {
            return match list.element {
                None => self.f.effect(Op::EmitBytes { value: element.bytes() }),
                Some(of) => {
                    let shape = element_shape(shape, &[(of, element)]);
                    self.write_items(&shape, &list.body);
                }
            };
        };
        let pair = element.group();
        let (key, value) = (pair[0].clone(), pair[1].clone());
        let element = element_shape(shape, &[(keyed.key, key.clone()), (keyed.value, value)]);
        let Some(is_replaced) = self.is_one_of(shape.unit, field, key.bytes(), replaced) else {
            return self.write_items(&element, &list.body);
        };
        let (stays, next) = (self.f.new_block(&[]), self.f.new_block(&[]));
        self.f.branch_to(is_replaced, next, stays);
        self.f.go_on_in(stays);
        self.write_items(&element, &list.body);
        self.f.jump(next, Vec::new());
        self.f.go_on_in(next);
    }

    /// Whether bytes are one of the keys that do not stay; `None`: certainly not.
    pub fn is_one_of(
        &mut self,
        unit: UnitId,
        list: FieldId,
        bytes: Value,
        keys: &[(u32, Value)],
    ) -> Option<Value> {
        let mut any: Option<Value> = None;
        for (key, cond) in keys {
            let hit = match self.is_key(unit, list, *key, bytes) {
                Ok(false) => continue,
                Ok(true) => *cond,
                Err(is_key) => self.f.binary(Type::Bool, Binary::And, is_key, *cond),
            };
            any = Some(match any {
                None => hit,
                Some(others) => self.f.binary(Type::Bool, Binary::Or, others, hit),
            });
        }
        any
    }

    /// Writes the keys that a program sets or that follow, at the end of their list.
    pub fn write_set_keys(&mut self, shape: &Shape, list: FieldId) {
        for (key, cond, said) in self.ready.keys(list).set {
            self.where_holds(cond, |body| body.write_pair(shape, list, key, said));
        }
    }

    fn write_pair(&mut self, shape: &Shape, list: FieldId, key: u32, said: Val) {
        let (list, keyed) = self.cx.unit(shape.unit).keyed(list);
        let name = self.consts.intern(&keyed.keys[key as usize]);
        let name = Val::Bytes(self.f.define(Type::Bytes, name));
        let element = element_shape(shape, &[(keyed.key, name), (keyed.value, said)]);
        self.write_items(&element, &list.body);
    }

    /// Runs `write` where a condition holds.
    pub fn where_holds(&mut self, cond: Value, write: impl FnOnce(&mut Self)) {
        let (then, next) = (self.f.new_block(&[]), self.f.new_block(&[]));
        self.f.branch_to(cond, then, next);
        self.f.go_on_in(then);
        write(self);
        self.f.jump(next, Vec::new());
        self.f.go_on_in(next);
    }

    /// Writes the arm of a choice that was given; where that is not known, the one that its value leads to.
    fn write_choice(&mut self, shape: &Shape, choice: &Choice) {
        let given = self.given_arms(shape, choice);
        match given.as_slice() {
            [] => self.write_arm_of_value(shape, choice),
            [items] => self.write_items(shape, items),
            several => self.write_arm_given(shape, several),
        }
    }

    /// The arms that were given; none where the choice goes by its value.
    pub fn given_arms<'c>(&self, shape: &Shape, choice: &'c Choice) -> Vec<&'c Vec<Item>> {
        if self.is_decided(shape, &choice.on) {
            return Vec::new();
        }
        let is_given = |field: FieldId| shape.overrides.contains_key(&Part::Field(field));
        let rows = choice.arms.iter().map(|(_, items)| items).chain(&choice.otherwise);
        rows.filter(|items| any_field(items, &is_given)).collect()
    }

    /// Whether all that an expression of the grammar reads was given by the program.
    fn is_decided(&self, shape: &Shape, expr: &Expr) -> bool {
        let info = self.cx.unit(shape.unit);
        let keys = keys_of(expr);
        !keys.is_empty()
            && keys.iter().all(|key| match *key {
                SlotKey::Field(field) => match info.formula(field) {
                    Some(Formula::Expr(formula)) => self.is_decided(shape, formula),
                    Some(Formula::LengthOf(of)) => shape.overrides.contains_key(&Part::Field(of)),
                    None => shape.overrides.contains_key(&Part::Field(field)),
                },
                SlotKey::Length(field) => shape.overrides.contains_key(&Part::Field(field)),
                _ => false,
            })
    }

    fn write_arm_of_value(&mut self, shape: &Shape, choice: &Choice) {
        let value = match self.ready.choice(choice) {
            Some(value) => value,
            None => self.self_expr(shape, &choice.on),
        };
        let blocks: Vec<BlockId> = choice.arms.iter().map(|_| self.f.new_block(&[])).collect();
        let default = self.f.new_block(&[]);
        let next = self.f.new_block(&[]);
        let targets = choice
            .arms
            .iter()
            .zip(&blocks)
            .flat_map(|((patterns, _), &block)| patterns.iter().map(move |pattern| (pattern, block)));
        self.switch_on(&value, targets, default);
        let rows = choice.arms.iter().map(|(_, items)| items.as_slice());
        let rows = rows.chain([choice.otherwise.as_deref().unwrap_or_default()]);
        for (items, block) in rows.zip(blocks.iter().copied().chain([default])) {
            self.f.go_on_in(block);
            self.write_items(shape, items);
            self.f.jump(next, Vec::new());
        }
        self.f.go_on_in(next);
    }

    /// Several arms were given, on different ways here: the one with bytes that are not missing, else the last.
    fn write_arm_given(&mut self, shape: &Shape, rows: &[&Vec<Item>]) {
        let next = self.f.new_block(&[]);
        let (texts, numbers): (Vec<_>, Vec<_>) = rows
            .iter()
            .map(|items| (*items, self.given_texts(shape, items)))
            .partition(|(_, texts)| !texts.is_empty());
        let (last, others) = match (numbers.first(), texts.split_last()) {
            (Some(last), _) => (last, texts.as_slice()),
            (None, Some((last, others))) => (last, others),
            (None, None) => panic!("several arms were given"),
        };
        for (items, words) in others {
            let mut any = self.f.bool(false);
            for word in words {
                let is_missing = self.f.define(Type::Bool, Op::IsMissing(*word));
                let is_there = self.f.define(Type::Bool, Op::Not(is_missing));
                any = self.f.binary(Type::Bool, Binary::Or, any, is_there);
            }
            let (this, other) = (self.f.new_block(&[]), self.f.new_block(&[]));
            self.f.branch_to(any, this, other);
            self.f.go_on_in(this);
            self.write_items(shape, items);
            self.f.jump(next, Vec::new());
            self.f.go_on_in(other);
        }
        self.write_items(shape, last.0);
        self.f.jump(next, Vec::new());
        self.f.go_on_in(next);
    }

    /// The words of bytes and lists that were given to fields among these items.
    fn given_texts(&self, shape: &Shape, items: &[Item]) -> Vec<Value> {
        let mut found = Vec::new();
        for (part, val) in &shape.overrides {
            if let (Part::Field(field), Val::Bytes(word)) = (part, val)
                && any_field(items, &|known| known == *field)
            {
                found.push(*word);
            }
        }
        found
    }

    /// Returns the encoded size of the elements that a program gives a list, in bytes.
    pub fn list_wire_bytes(&mut self, shape: &Shape, field: FieldId, memory: Value) -> Value {
        let info = self.cx.unit(shape.unit);
        let list = info.list(field).expect("the checker found a list here");
        let run = self.run_of_given(shape.unit, field, memory);
        let range = Interval::new(0, i128::from(i64::MAX));
        let carrier = Carrier::Num(Type::Int, range);
        let zero = Val::Num(Num::one(self.f.int(0), range));
        let sum = self.repeat(&run, vec![(carrier, zero)], |body, element, _, carried| {
            let bytes = match list.element {
                None => body.f.define(Type::Int, Op::Len(element.bytes())),
                Some(of) => {
                    let element = element_shape(shape, &[(of, element)]);
                    body.items_wire_bytes(&element, &list.body)
                }
            };
            let sum = body.f.binary(Type::Int, Binary::Add, carried[0].num().value(), bytes);
            vec![Val::Num(Num::one(sum, range))]
        });
        sum[0].num().value()
    }

    /// Returns the encoded size of items, in bytes. Panics on choices and lists among them.
    fn items_wire_bytes(&mut self, shape: &Shape, items: &[Item]) -> Value {
        let info = self.cx.unit(shape.unit);
        let mut sum = self.f.int(0);
        for item in items {
            let bytes = match item {
                Item::Literal(literal) => self.f.int(literal.bytes.len() as i64),
                Item::Check(_) => continue,
                Item::Switch(_) => panic!("elements that fill a length have no choices"),
                Item::Field(field) => match &info.field(*field).kind {
                    FieldKind::Int { repr, .. } => self.f.int(i64::from(repr.width_bytes)),
                    FieldKind::Bytes { .. } | FieldKind::Text { .. } => {
                        let value = self.shape_field(shape, *field).bytes();
                        let len = self.f.define(Type::Int, Op::Len(value));
                        let until = match &info.field(*field).kind {
                            FieldKind::Text { until: Some(until), .. } => until.len() as i64,
                            _ => 0,
                        };
                        let until = self.f.int(until);
                        self.f.binary(Type::Int, Binary::Add, len, until)
                    }
                    FieldKind::Number { base, signed, .. } => {
                        let (base, signed) = (*base, *signed);
                        let value = self.shape_field(shape, *field).num().value();
                        let digits = self.f.define(Type::Bytes, Op::FormatInt { value, signed, base });
                        self.f.define(Type::Int, Op::Len(digits))
                    }
                    kind if !kind.is_on_wire() => continue,
                    _ => panic!("elements that fill a length are texts and numbers"),
                },
            };
            sum = self.f.binary(Type::Int, Binary::Add, sum, bytes);
        }
        sum
    }
}

/// As many bits, the low ones.
pub fn mask(width: u8) -> u64 {
    u64::MAX >> (64 - u32::from(width))
}

/// Whether a literal is not written: one that is never passed on, or that may be absent and is not supplied; unless it
/// belongs to a literal behind it, as CR does to LF.
fn is_left_out(literal: &Literal, behind: &[Item]) -> bool {
    literal.cut || literal.optional && !literal.supplied && !matches!(behind.first(), Some(Item::Literal(_)))
}

/// An element of a list of `shape` with these fields; what else is in it follows or is empty.
fn element_shape(shape: &Shape, fields: &[(FieldId, Val)]) -> Shape {
    let mut overrides = shape.overrides.clone();
    overrides.extend(fields.iter().map(|(field, val)| (Part::Field(*field), val.clone())));
    Shape { kind: ShapeKind::Built, unit: shape.unit, message: None, overrides }
}
