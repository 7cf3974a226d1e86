//! Carriers of values: block parameters where branches meet and loops repeat, words of lists, packed bytes, arguments
//! of helpers.
//! Promises: a carrier made from values carries each of them; one made from a type carries every value of the type,
//! and its words depend on the type and the program alone.
//! Refuses: channels and messages where a type is stored beyond the activation; the checker does.

use std::collections::{BTreeMap, BTreeSet};

use flick_check::hir::{Ty, UnitId};
use flick_ir::data::{BlockId, Op, Type, Value};

use crate::body::{Body, Mode, int_range};
use crate::context::Context;
use crate::interval::Interval;
use crate::part::Part;
use crate::value::{Num, Record, Shape, ShapeKind, Val, Word};

/// The shapes that a message may have, with the parts that each may replace.
pub type Layout = BTreeMap<ShapeKind, BTreeSet<Part>>;

/// The words that carry a value.
#[derive(Clone, Debug)]
pub enum Carrier {
    /// An integer in one word.
    Num(Type, Interval),
    /// An integer in two words, in exact arithmetic.
    Wide(Interval),
    /// A boolean.
    Bool,
    /// Bytes, or a list.
    Bytes,
    /// A channel.
    Chan,
    /// A message: a selector if there are several shapes; for each shape the number of its message, if it has one,
    /// and a word for each part.
    Record(UnitId, Layout),
    /// All parts.
    Group(Vec<Carrier>),
    /// Whether it is there, and what it is.
    Option(Box<Carrier>),
    /// A tag, and what each case carries.
    Variant(Vec<Option<Carrier>>),
    /// No words.
    Nothing,
}

impl Carrier {
    /// Carries any value of a type. Messages have the shapes of `layout`.
    pub fn of_ty(cx: &Context<'_>, ty: &Ty, layout: &dyn Fn(UnitId) -> Layout) -> Self {
        let of = |ty: &Ty| Self::of_ty(cx, ty, layout);
        match ty {
            Ty::Int { unsigned: true, .. } => Self::Num(Type::Uint, int_range(ty)),
            Ty::Int { .. } | Ty::Enum(_) | Ty::Ipv4 | Ty::Time | Ty::Duration => {
                Self::Num(Type::Int, int_range(ty))
            }
            Ty::Bool => Self::Bool,
            Ty::Bytes { .. } | Ty::Ipv6 | Ty::Endpoint | Ty::List { .. } => Self::Bytes,
            Ty::Chan { .. } | Ty::ChanArray { .. } => Self::Chan,
            Ty::Record(unit) => Self::Record(*unit, layout(*unit)),
            Ty::Tuple(parts) => Self::Group(parts.iter().map(of).collect()),
            Ty::Struct(id) => {
                Self::Group(cx.program.structs[id.0 as usize].fields.iter().map(|(_, ty)| of(ty)).collect())
            }
            Ty::Option(inner) => Self::Option(Box::new(of(inner))),
            Ty::Variant(id) => {
                let cases = &cx.program.variants[id.0 as usize].cases;
                Self::Variant(cases.iter().map(|(_, ty)| ty.as_ref().map(of)).collect())
            }
            Ty::Nothing => Self::Nothing,
            Ty::Dict(_) | Ty::Counter(_) | Ty::Unknown => panic!("the checker carries no {ty:?} about"),
        }
    }

    /// The types of its words.
    pub fn types(&self, cx: &Context<'_>) -> Vec<Type> {
        match self {
            Self::Num(ty, _) => vec![*ty],
            Self::Wide(_) => vec![Type::Int, Type::Uint],
            Self::Bool => vec![Type::Bool],
            Self::Bytes => vec![Type::Bytes],
            Self::Chan => vec![Type::Chan],
            Self::Record(unit, layout) => {
                let mut types = if layout.len() > 1 { vec![Type::Int] } else { Vec::new() };
                let info = cx.unit(*unit);
                for (kind, parts) in layout {
                    types.extend(kind.is_other().then_some(Type::Message));
                    types.extend(parts.iter().map(|part| info.part_type(*part)));
                }
                types
            }
            Self::Group(parts) => parts.iter().flat_map(|part| part.types(cx)).collect(),
            Self::Option(inner) => [vec![Type::Bool], inner.types(cx)].concat(),
            Self::Variant(cases) => {
                let carried = cases.iter().flatten().flat_map(|case| case.types(cx));
                [Type::Int].into_iter().chain(carried).collect()
            }
            Self::Nothing => Vec::new(),
        }
    }
}

impl Body<'_> {
    /// A carrier for just these values, which have one type.
    pub fn carrier_of(&self, vals: &[&Val]) -> Carrier {
        let first = *vals.first().expect("one path brings a value");
        match first {
            Val::Nothing => Carrier::Nothing,
            Val::Bool(_) => Carrier::Bool,
            Val::Bytes(_) => Carrier::Bytes,
            Val::Chan(_) => Carrier::Chan,
            Val::Num(_) => self.carrier_of_nums(vals),
            Val::Record(record) => {
                let mut layout = Layout::new();
                for val in vals {
                    for shape in (*val).clone().record().shapes {
                        layout.entry(shape.kind).or_default().extend(shape.overrides.keys());
                    }
                }
                Carrier::Record(record.unit, layout)
            }
            Val::Group(parts) => {
                let all: Vec<Vec<Val>> = vals.iter().map(|val| (*val).clone().group()).collect();
                let column = |index: usize| all.iter().map(|parts| &parts[index]).collect::<Vec<_>>();
                Carrier::Group((0..parts.len()).map(|index| self.carrier_of(&column(index))).collect())
            }
            Val::Option { .. } => {
                let inner: Vec<Val> = vals.iter().map(|val| (*val).clone().option().1).collect();
                Carrier::Option(Box::new(self.carrier_of(&inner.iter().collect::<Vec<_>>())))
            }
            Val::Variant { cases, .. } => {
                let column =
                    |index: usize| vals.iter().filter_map(|val| case_of(val, index)).collect::<Vec<_>>();
                let carried = (0..cases.len()).map(|index| {
                    let column = column(index);
                    (!column.is_empty()).then(|| self.carrier_of(&column))
                });
                Carrier::Variant(carried.collect())
            }
        }
    }

    fn carrier_of_nums(&self, vals: &[&Val]) -> Carrier {
        let ranges = vals.iter().map(|val| val.num().range);
        let range = ranges.reduce(Interval::hull).expect("one path brings a value");
        match self.mode {
            _ if range.within(Interval::INT) => Carrier::Num(Type::Int, range),
            _ if range.within(Interval::UINT) => Carrier::Num(Type::Uint, range),
            Mode::Exact { .. } => Carrier::Wide(range),
            Mode::Wrapping => Carrier::Num(Type::Uint, Interval::UINT),
        }
    }

    /// The words of a value.
    pub fn words(&mut self, carrier: &Carrier, val: &Val) -> Vec<Value> {
        let mut words = Vec::new();
        self.push_words(carrier, val, &mut words);
        words
    }

    fn push_words(&mut self, carrier: &Carrier, val: &Val, words: &mut Vec<Value>) {
        match (carrier, val) {
            (Carrier::Nothing, _) => {}
            (Carrier::Num(..), Val::Num(num)) => words.push(num.value()),
            (Carrier::Wide(_), Val::Num(num)) => {
                let (hi, lo) = self.wide(*num);
                words.extend([hi, lo]);
            }
            (Carrier::Bool, Val::Bool(value))
            | (Carrier::Bytes, Val::Bytes(value))
            | (Carrier::Chan, Val::Chan(value)) => words.push(*value),
            (Carrier::Record(_, layout), Val::Record(record)) => self.record_words(record, layout, words),
            (Carrier::Group(carriers), Val::Group(parts)) => {
                for (carrier, part) in carriers.iter().zip(parts) {
                    self.push_words(carrier, part, words);
                }
            }
            (Carrier::Option(carrier), Val::Option { present, value }) => {
                words.push(*present);
                self.push_words(carrier, value, words);
            }
            (Carrier::Variant(carriers), Val::Variant { tag, cases }) => {
                words.push(*tag);
                for (carrier, case) in carriers.iter().zip(cases) {
                    if let (Some(carrier), Some(val)) = (carrier, case) {
                        self.push_words(carrier, val, words);
                    }
                }
            }
            (carrier, val) => panic!("the checker gives a {carrier:?} its type, not {val:?}"),
        }
    }

    /// The words of a message as a layout wants them.
    fn record_words(&mut self, record: &Record, layout: &Layout, words: &mut Vec<Value>) {
        if layout.len() > 1 {
            let position =
                |kind: ShapeKind| layout.keys().position(|&other| other == kind).unwrap_or(0) as i64;
            let positions: Vec<i64> = record.shapes.iter().map(|shape| position(shape.kind)).collect();
            let constants: Vec<Value> = positions.iter().map(|&position| self.f.int(position)).collect();
            let selector =
                if constants.is_empty() { self.f.int(0) } else { self.select_shape(record, &constants) };
            words.push(selector);
        }
        for (&kind, parts) in layout {
            let shape = record.shape(kind).cloned();
            if kind.is_other() {
                let message = shape.as_ref().and_then(|shape| shape.message);
                words.push(message.unwrap_or_else(|| self.f.message(0)));
            }
            for &part in parts {
                let val = match &shape {
                    Some(shape) => self.shape_part(shape, part),
                    None => self.empty_part(record.unit, part),
                };
                words.push(val.word());
            }
        }
    }

    /// The value that arrives in words.
    pub fn arrived(&self, carrier: &Carrier, words: &mut dyn Iterator<Item = Value>) -> Val {
        let mut next = || words.next().expect("a carrier knows its words");
        match carrier {
            Carrier::Nothing => Val::Nothing,
            Carrier::Num(_, range) => Val::Num(Num::one(next(), *range)),
            Carrier::Wide(range) => {
                let (hi, lo) = (next(), next());
                Val::Num(Num { word: Word::Two { hi, lo }, range: *range })
            }
            Carrier::Bool => Val::Bool(next()),
            Carrier::Bytes => Val::Bytes(next()),
            Carrier::Chan => Val::Chan(next()),
            Carrier::Record(unit, layout) => {
                let info = self.cx.unit(*unit);
                let selector = (layout.len() > 1).then(&mut next);
                let shapes = layout.iter().map(|(&kind, parts)| {
                    let message = kind.is_other().then(&mut next);
                    let overrides = parts.iter().map(|&part| (part, info.part_val(part, next()))).collect();
                    Shape { kind, unit: *unit, message, overrides }
                });
                let shapes = shapes.collect();
                Val::Record(Record { unit: *unit, selector, shapes })
            }
            Carrier::Group(parts) => Val::Group(parts.iter().map(|part| self.arrived(part, words)).collect()),
            Carrier::Option(inner) => {
                let present = next();
                Val::Option { present, value: Box::new(self.arrived(inner, words)) }
            }
            Carrier::Variant(cases) => {
                let tag = next();
                let cases =
                    cases.iter().map(|case| case.as_ref().map(|case| self.arrived(case, words))).collect();
                Val::Variant { tag, cases }
            }
        }
    }

    /// Joins open blocks in a new one, where the value of the block it came from goes on.
    pub fn join(&mut self, ends: Vec<(BlockId, Val)>) -> Val {
        let carrier = self.carrier_of(&ends.iter().map(|(_, val)| val).collect::<Vec<_>>());
        let target = self.f.new_block(&carrier.types(self.cx));
        for (block, val) in ends {
            self.f.go_on_in(block);
            let args = self.words(&carrier, &val);
            self.f.jump(target, args);
        }
        self.f.go_on_in(target);
        let params = self.f.params(target).to_vec();
        self.arrived(&carrier, &mut params.into_iter())
    }

    /// Returns the placeholder of an absent value of a type: zero words, and messages without a shape.
    pub fn absent(&mut self, ty: &Ty) -> Val {
        match ty {
            Ty::Int { .. } | Ty::Enum(_) | Ty::Ipv4 | Ty::Time | Ty::Duration => Val::Num(self.constant(0)),
            Ty::Bool => Val::Bool(self.f.bool(false)),
            Ty::Bytes { .. } | Ty::Ipv6 | Ty::Endpoint | Ty::List { .. } => Val::Bytes(self.empty_bytes()),
            Ty::Chan { .. } | Ty::ChanArray { .. } => Val::Chan(self.f.define(Type::Chan, Op::Const(0))),
            Ty::Record(unit) => Val::Record(Record::absent(*unit)),
            Ty::Tuple(parts) => Val::Group(parts.iter().map(|part| self.absent(part)).collect()),
            Ty::Struct(id) => {
                let fields = &self.cx.program.structs[id.0 as usize].fields;
                Val::Group(fields.iter().map(|(_, ty)| self.absent(ty)).collect())
            }
            Ty::Option(inner) => {
                let present = self.f.bool(false);
                Val::Option { present, value: Box::new(self.absent(inner)) }
            }
            Ty::Variant(id) => {
                let cases = &self.cx.program.variants[id.0 as usize].cases;
                let tag = self.f.int(0);
                let cases = cases.iter().map(|(_, ty)| ty.as_ref().map(|ty| self.absent(ty))).collect();
                Val::Variant { tag, cases }
            }
            Ty::Nothing => Val::Nothing,
            Ty::Dict(_) | Ty::Counter(_) | Ty::Unknown => panic!("the checker carries no {ty:?} about"),
        }
    }

    /// The empty bytes value.
    pub fn empty_bytes(&mut self) -> Value {
        let op = self.consts.intern(b"");
        self.f.define(Type::Bytes, op)
    }
}

fn case_of(val: &Val, index: usize) -> Option<&Val> {
    match val {
        Val::Variant { cases, .. } => cases[index].as_ref(),
        other => panic!("the checker found a variant here, lowering made {other:?}"),
    }
}
