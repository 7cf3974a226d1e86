//! Lists of messages as values: whole, and by key.
//! Promises: a list is read where it is asked for, as memory of its elements; a key is the first of its name, or what a
//! change made of it. A key that follows from a field is what will be sent.
//! Refuses: nothing at run time.

use flick_abi::limits::ITEMS_MAX;
use flick_check::hir::{Builtin, Expr, ExprKind, FieldId, FieldKind, ListEnd, Ty, UnitId};
use flick_ir::data::{Binary, Op, Type, Value};

use crate::body::{Body, Mode, SelfScope};
use crate::carrier::Carrier;
use crate::interval::Interval;
use crate::part::{KEY_KEPT, KEY_REMOVED, KEY_SET, Part};
use crate::repeat::Run;
use crate::unit::SlotKey;
use crate::value::{Num, Record, Shape, ShapeKind, Val};
use crate::walk::keys_of;

/// Bits of a list's word below the number of its items.
const FIRST_ITEM_BITS: i64 = 32;

impl Body<'_> {
    /// Reads a field that only structured units have; `None`: it is read as any other.
    pub fn structured_field(&mut self, shape: &Shape, field: FieldId) -> Option<Val> {
        let info = self.cx.unit(shape.unit);
        info.unit.body.as_ref()?;
        let given = shape.overrides.get(&Part::Field(field)).cloned();
        let is_received = shape.kind != ShapeKind::Built;
        match &info.field(field).kind {
            FieldKind::TextVar { parse, .. } => Some(self.self_expr(shape, parse)),
            FieldKind::Flag { parse, any: Some((list, key)) } => {
                let affected = info.affected_parts(shape.overrides.keys().copied());
                let is_touched = info.is_touched(&[SlotKey::At(*list, *key)], &affected);
                (is_touched || !is_received).then(|| self.self_expr(shape, parse))
            }
            FieldKind::List(list) => {
                let max = list.max.unwrap_or(0);
                let given = given.map(|_| self.shape_part(shape, Part::Field(field)));
                Some(Val::Bytes(match (given, is_received) {
                    (None, true) => self.items_of(shape, field, max),
                    (None, false) => self.empty_bytes(),
                    (Some(given), false) => self.unless_missing(given.bytes()),
                    (Some(given), true) => {
                        let received = self.items_of(shape, field, max);
                        self.if_given(given.bytes(), received)
                    }
                }))
            }
            FieldKind::Text { .. } | FieldKind::Bytes { .. } | FieldKind::ToClose { .. } => match given {
                Some(given) => Some(Val::Bytes(self.unless_missing(given.bytes()))),
                None if is_received && !info.is_always_there(field) => {
                    let received = self.received(shape, SlotKey::Field(field)).bytes();
                    Some(Val::Bytes(self.unless_missing(received)))
                }
                None => None,
            },
            _ => None,
        }
    }

    /// `message.field` where it may be absent.
    pub fn record_option(&mut self, record: &Record, field: FieldId, ty: &Ty) -> Val {
        self.of_each_shape(
            record,
            |body| body.absent(ty),
            |body, shape| {
                let val = match (shape.overrides.get(&Part::Field(field)), shape.kind) {
                    (Some(val), _) => val.clone(),
                    (None, ShapeKind::Built) => Val::Bytes(body.missing()),
                    (None, _) => body.received(shape, SlotKey::Field(field)),
                };
                match val {
                    Val::Bytes(word) => body.option_of(word),
                    other => body.some(other),
                }
            },
        )
    }

    /// An expression of the grammar with the message as `self`.
    pub fn self_expr(&mut self, shape: &Shape, expr: &Expr) -> Val {
        let scope = SelfScope::Shape(shape.clone());
        self.with_scope(shape.unit, scope, Mode::Wrapping, |body| body.expr(expr))
    }

    /// The items of a list of a message that arrived.
    pub fn items_of(&mut self, shape: &Shape, list: FieldId, count_max: u32) -> Value {
        let word = self.received(shape, SlotKey::Field(list)).num().value();
        let (from, count) = self.item_range(word);
        let count_max = count_max.min(ITEMS_MAX as u32);
        self.f.define(Type::Bytes, Op::Items { message: shape.message, from, count, count_max })
    }

    /// First item and number of items from a list's word.
    fn item_range(&mut self, word: Value) -> (Value, Value) {
        let unit = self.f.int(1 << FIRST_ITEM_BITS);
        let from = self.f.binary(Type::Int, Binary::ModU, word, unit);
        (from, self.f.binary(Type::Int, Binary::DivU, word, unit))
    }

    /// The number of elements of a list, or where its length says where it ends, their bytes.
    pub fn shape_list_len(&mut self, shape: &Shape, list: FieldId) -> Val {
        let range = Interval::new(0, i128::from(u32::MAX));
        let given = shape.overrides.get(&Part::Field(list)).cloned();
        if let Some(Val::Group(all)) = &given
            && !matches!(self.cx.unit(shape.unit).list(list).map(|list| &list.end), Some(ListEnd::Bytes(_)))
        {
            return Val::Num(self.constant(all.len() as i128));
        }
        if matches!(self.cx.unit(shape.unit).list(list).map(|list| &list.end), Some(ListEnd::Bytes(_))) {
            let bytes = match given {
                Some(_) => {
                    let given = self.shape_part(shape, Part::Field(list)).bytes();
                    self.list_wire_bytes(shape, list, given)
                }
                None => self.f.int(0),
            };
            return Val::Num(Num::one(bytes, range));
        }
        let count = self.elements_of(shape, list);
        Val::Num(Num::one(count, range))
    }

    /// The number of elements of a list as it arrived or was given.
    pub fn elements_of(&mut self, shape: &Shape, list: FieldId) -> Value {
        let given = shape.overrides.get(&Part::Field(list)).cloned();
        if let Some(Val::Group(all)) = &given {
            return self.f.int(all.len() as i64);
        }
        let received = match shape.kind {
            ShapeKind::Built => self.f.int(0),
            _ => self.received(shape, SlotKey::Length(list)).num().value(),
        };
        let Some(given) = given else { return received };
        let given = given.bytes();
        let elem = self.elem_ty(shape.unit, list);
        let is_missing = self.f.define(Type::Bool, Op::IsMissing(given));
        let len = self.list_len(given, &elem);
        self.select(is_missing, received, len)
    }

    /// Returns the type of the elements that a program gives a list.
    pub fn elem_ty(&self, unit: UnitId, list: FieldId) -> Ty {
        let list = self.cx.unit(unit).list(list).expect("the checker found a list here");
        let bytes = Ty::Bytes { max: list.elem_bytes_max, text: false };
        match &list.keyed {
            Some(_) => Ty::Tuple(vec![bytes.clone(), bytes]),
            None => bytes,
        }
    }

    /// `message.list["key"]`.
    pub fn record_key(&mut self, record: &Record, list: FieldId, key: u32, ty: &Ty) -> Val {
        self.of_each_shape(record, |body| body.absent(ty), |body, shape| body.shape_key(shape, list, key))
    }

    /// `self.list["key"]`: the value of the current occurrence, or the first one.
    pub fn self_key(&mut self, list: FieldId, key: u32) -> Val {
        if let Some((own, value)) = self.occurrence
            && own == (list, key)
        {
            return self.some(Val::Bytes(value));
        }
        let (unit, scope) = &self.scope;
        let unit = *unit;
        match scope {
            SelfScope::None => panic!("the checker allows `self` only in grammars"),
            SelfScope::Parsing(_) | SelfScope::Frame => {
                let first = self.get_key(unit, SlotKey::At(list, key)).bytes();
                self.option_of(first)
            }
            SelfScope::Shape(shape) => {
                let shape = shape.clone();
                self.shape_key(&shape, list, key)
            }
        }
    }

    /// The value of a key of one shape of a message.
    fn shape_key(&mut self, shape: &Shape, list: FieldId, key: u32) -> Val {
        let first = self.key_base(shape, list, key);
        let word = match self.key_change(shape, list, key) {
            None => first,
            Some((state, value)) => {
                let is_set = self.is_state(state, KEY_SET);
                let is_kept = self.is_state(state, KEY_KEPT);
                let missing = self.missing();
                let otherwise = self.select(is_kept, first, missing);
                self.select(is_set, value, otherwise)
            }
        };
        self.option_of(word)
    }

    /// The first value of a key before it is changed by itself; missing where there is none.
    fn key_base(&mut self, shape: &Shape, list: FieldId, key: u32) -> Value {
        let base = self.key_in_list(shape, list, key);
        match self.followed_key(shape, list, key) {
            None => base,
            Some((cond, said)) => {
                let text = self.format(&said, 10).bytes();
                self.select(cond, text, base)
            }
        }
    }

    /// The first value of a key of a list as it arrived or was given; missing where there is none.
    pub fn key_in_list(&mut self, shape: &Shape, list: FieldId, key: u32) -> Value {
        let given = shape.overrides.get(&Part::Field(list)).cloned();
        match (given, shape.kind) {
            (Some(Val::Group(pairs)), _) => self.key_among(shape, list, key, pairs),
            (Some(given), ShapeKind::Built) => self.find_key(shape, list, key, given.bytes()),
            (Some(given), _) => {
                let given = given.bytes();
                let received = self.received(shape, SlotKey::At(list, key)).bytes();
                let found = self.find_key(shape, list, key, given);
                let is_missing = self.f.define(Type::Bool, Op::IsMissing(given));
                self.select(is_missing, received, found)
            }
            (None, ShapeKind::Built) => self.missing(),
            (None, _) => self.received(shape, SlotKey::At(list, key)).bytes(),
        }
    }

    /// Returns the state and the value of a key that the program changes.
    pub fn key_change(&mut self, shape: &Shape, list: FieldId, key: u32) -> Option<(Value, Value)> {
        let state = shape.overrides.get(&Part::KeyState(list, key))?.num().value();
        let value = shape.overrides.get(&Part::Key(list, key)).map(Val::bytes)?;
        Some((state, value))
    }

    /// Returns whether a key follows from fields that this shape changes or gives, and its value then: a number that is
    /// written in digits, or bytes.
    pub fn followed_key(&mut self, shape: &Shape, list: FieldId, key: u32) -> Option<(Value, Val)> {
        let info = self.cx.unit(shape.unit);
        let (_, keyed) = info.keyed(list);
        let (_, text) = keyed.follows.iter().find(|(number, _)| *number == key)?;
        let reads = keys_of(text);
        let affected = info.affected_parts(shape.overrides.keys().copied());
        if !info.is_touched(&reads, &affected) {
            return None;
        }
        let sources: Vec<FieldId> = reads.iter().map(|key| key.id()).collect();
        let mut cond = self.f.bool(true);
        for source in sources {
            let is_there = self.is_there(shape, source);
            cond = self.f.binary(Type::Bool, Binary::And, cond, is_there);
        }
        let said = match &text.kind {
            ExprKind::Builtin(Builtin::Str, args) => self.self_expr(shape, &args[0]),
            _ => self.self_expr(shape, text),
        };
        Some((cond, said))
    }

    /// Whether what a program gave a field will be written: it was given, or stands in the message.
    fn is_there(&mut self, shape: &Shape, field: FieldId) -> Value {
        let info = self.cx.unit(shape.unit);
        match (shape.kind, shape.overrides.get(&Part::Field(field))) {
            (ShapeKind::Built, Some(Val::Bytes(given))) => {
                let is_missing = self.f.define(Type::Bool, Op::IsMissing(*given));
                self.f.define(Type::Bool, Op::Not(is_missing))
            }
            (ShapeKind::Built, _) => self.f.bool(true),
            (_, Some(_)) if !info.is_always_there(field) => self.stands_there(shape, field),
            (..) => self.f.bool(true),
        }
    }

    /// Whether a field stands in a message that arrived.
    pub fn stands_there(&mut self, shape: &Shape, field: FieldId) -> Value {
        let start = self.received(shape, SlotKey::Start(field)).num().value();
        let zero = self.f.int(0);
        self.f.binary(Type::Bool, Binary::LeS, zero, start)
    }

    /// The first value of a key among pairs that stand in the program; missing where there is none.
    fn key_among(&mut self, shape: &Shape, list: FieldId, key: u32, pairs: Vec<Val>) -> Value {
        let missing = self.missing();
        pairs.into_iter().rev().fold(missing, |rest, pair| {
            let pair = pair.group();
            match self.is_key(shape.unit, list, key, pair[0].bytes()) {
                Ok(true) => pair[1].bytes(),
                Ok(false) => rest,
                Err(is_key) => self.select(is_key, pair[1].bytes(), rest),
            }
        })
    }

    /// The first value of a key in a list of pairs that a program gives; missing where there is none.
    fn find_key(&mut self, shape: &Shape, list: FieldId, key: u32, pairs: Value) -> Value {
        let run = self.run_of_given(shape.unit, list, pairs);
        let missing = Val::Bytes(self.missing());
        let found = self.repeat(&run, vec![(Carrier::Bytes, missing)], |body, pair, _, carried| {
            let pair = pair.group();
            let is_first = body.f.define(Type::Bool, Op::IsMissing(carried[0].bytes()));
            let is_key = match body.is_key(shape.unit, list, key, pair[0].bytes()) {
                Ok(known) => body.f.bool(known),
                Err(is_key) => is_key,
            };
            let takes = body.f.binary(Type::Bool, Binary::And, is_first, is_key);
            vec![Val::Bytes(body.select(takes, pair[1].bytes(), carried[0].bytes()))]
        });
        found[0].bytes()
    }

    /// A loop over the elements that a program gives a list.
    pub fn run_of_given(&mut self, unit: UnitId, list: FieldId, memory: Value) -> Run {
        let elem = self.elem_ty(unit, list);
        let trips_max = self.cx.unit(unit).list(list).and_then(|list| list.max).unwrap_or(ITEMS_MAX as u32);
        let memory = self.unless_missing(memory);
        self.run_of_list(memory, &elem, trips_max)
    }

    /// Whether bytes are a key of a list: known here (`Ok`), or at run time.
    pub fn is_key(&mut self, unit: UnitId, list: FieldId, key: u32, bytes: Value) -> Result<bool, Value> {
        let (_, keyed) = self.cx.unit(unit).keyed(list);
        let name = &keyed.keys[key as usize];
        if let Some(range) = self.f.constant_range(bytes) {
            let known = self.consts.at(range);
            return Ok(if keyed.nocase {
                known.eq_ignore_ascii_case(name)
            } else {
                known == name.as_slice()
            });
        }
        let name = self.consts.intern(name);
        let name = self.f.define(Type::Bytes, name);
        let op = if keyed.nocase { Op::SameText(bytes, name) } else { Op::BytesEq(bytes, name) };
        Err(self.f.define(Type::Bool, op))
    }

    /// `message with list["key"] = value`; `None`: without it.
    pub fn lower_with_key(&mut self, record: &Expr, list: FieldId, key: u32, value: Option<&Expr>) -> Val {
        let record = self.expr(record).record();
        let (state, value) = match value.map(|value| self.expr(value)) {
            None => (self.f.int(KEY_REMOVED), self.missing()),
            Some(Val::Option { present, value }) => {
                let (set, removed) = (self.f.int(KEY_SET), self.f.int(KEY_REMOVED));
                (self.select(present, set, removed), value.bytes())
            }
            Some(value) => (self.f.int(KEY_SET), value.bytes()),
        };
        let state = self.cx.unit(record.unit).part_val(Part::KeyState(list, key), state);
        let changes = [(Part::Key(list, key), Val::Bytes(value)), (Part::KeyState(list, key), state)];
        self.changed(&record, &changes.into())
    }

    /// `unit{wire = b}`.
    pub fn lower_build_wire(&mut self, unit: UnitId, bytes: &Expr) -> Val {
        let overrides = [(Part::Wire, Val::Bytes(self.expr(bytes).bytes()))].into();
        let shape = Shape { kind: ShapeKind::Built, unit, message: None, overrides };
        Val::Record(Record { unit, selector: None, shapes: vec![shape] })
    }

    /// The word of a part, for a carrier that has it.
    pub fn shape_part(&mut self, shape: &Shape, part: Part) -> Val {
        match (shape.overrides.get(&part).cloned(), part) {
            (Some(Val::Group(all)), Part::Field(list)) => {
                let elem = self.elem_ty(shape.unit, list);
                self.list_of_vals(&all, &elem)
            }
            (Some(val), _) => val,
            (None, _) => self.part_as_arrived(shape, part),
        }
    }

    /// The word of a part that a shape does not replace.
    pub fn part_as_arrived(&mut self, shape: &Shape, part: Part) -> Val {
        let info = self.cx.unit(shape.unit);
        match part {
            Part::Field(field) if shape.kind == ShapeKind::Built || info.list(field).is_some() => {
                self.empty_part(shape.unit, part)
            }
            Part::Field(field) => {
                let val = self.received(shape, SlotKey::Field(field));
                self.fit_to_field(shape.unit, field, val)
            }
            _ => self.empty_part(shape.unit, part),
        }
    }

    /// The word of a part without a value.
    pub fn empty_part(&mut self, unit: UnitId, part: Part) -> Val {
        let info = self.cx.unit(unit);
        match part {
            Part::Field(field) if info.unit.body.is_none() || info.part_type(part) != Type::Bytes => {
                self.empty_field(unit, field)
            }
            Part::KeyState(..) => {
                let kept = self.f.int(KEY_KEPT);
                info.part_val(part, kept)
            }
            Part::Field(_) | Part::Key(..) | Part::Wire => Val::Bytes(self.missing()),
        }
    }

    /// Whether the state of a key is this one.
    pub fn is_state(&mut self, state: Value, which: i64) -> Value {
        let which = self.f.int(which);
        self.f.binary(Type::Bool, Binary::Eq, state, which)
    }

    /// Bytes that are missing.
    pub fn missing(&mut self) -> Value {
        self.f.define(Type::Bytes, Op::Const(-1))
    }

    /// Bytes that may be missing as an option.
    pub fn option_of(&mut self, word: Value) -> Val {
        let is_missing = self.f.define(Type::Bool, Op::IsMissing(word));
        let present = self.f.define(Type::Bool, Op::Not(is_missing));
        Val::Option { present, value: Box::new(Val::Bytes(word)) }
    }

    /// Bytes, empty where they are missing.
    pub fn unless_missing(&mut self, word: Value) -> Value {
        if self.f.is_constant_bytes(word) {
            return word;
        }
        let empty = self.empty_bytes();
        self.if_given(word, empty)
    }

    /// Bytes, others where they are missing.
    pub fn if_given(&mut self, word: Value, otherwise: Value) -> Value {
        let is_missing = self.f.define(Type::Bool, Op::IsMissing(word));
        self.select(is_missing, otherwise, word)
    }
}
