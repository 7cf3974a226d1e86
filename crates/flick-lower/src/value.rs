//! What an expression is while it is lowered: words of the IR, or a message known only statically.
//! Promises: a record costs nothing until it is sent. It is where its fields come from (the message under way, or
//! nothing) and which fields were replaced; updates are resolved here, not at run time.
//! Refuses: records in memory. Where branches disagree, the record carries a selector of its few shapes.

use std::collections::BTreeMap;

use flick_check::hir::{FieldId, UnitId};
use flick_ir::data::Value;

use crate::interval::Interval;

/// The value of an expression.
#[derive(Clone, Debug)]
pub enum Val {
    /// An integer or a member of an enumeration.
    Num(Num),
    /// A truth value.
    Bool(Value),
    /// Bytes or text.
    Bytes(Value),
    /// A channel or array of channels.
    Chan(Value),
    /// A message.
    Record(Record),
    /// No value.
    Nothing,
}

/// An integer and what is known of it.
#[derive(Clone, Copy, Debug)]
pub struct Num {
    /// Where it is.
    pub word: Word,
    /// What it may be.
    pub range: Interval,
}

/// The words of an integer.
#[derive(Clone, Copy, Debug)]
pub enum Word {
    /// One word. Its bits are the value as a signed word when the range is within `Interval::INT`, as an
    /// unsigned one when it is within `Interval::UINT`; one of them holds.
    One(Value),
    /// 128 bits in two's complement: `hi * 2^64 + lo`, `lo` unsigned.
    Two {
        /// Upper half, signed.
        hi: Value,
        /// Lower half.
        lo: Value,
    },
}

/// A message: one of at most three shapes.
#[derive(Clone, Debug)]
pub struct Record {
    /// Its grammar.
    pub unit: UnitId,
    /// Index into `shapes` at run time; `None` when there is one.
    pub selector: Option<Value>,
    /// At most one per [`ShapeKind`].
    pub shapes: Vec<Shape>,
}

/// Where a message comes from and what was changed in it.
#[derive(Clone, Debug)]
pub struct Shape {
    /// Where unchanged fields come from.
    pub kind: ShapeKind,
    /// Its grammar.
    pub unit: UnitId,
    /// Replaced fields; empty for [`ShapeKind::Original`].
    pub overrides: BTreeMap<FieldId, Val>,
}

/// Where unchanged fields of a message come from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum ShapeKind {
    /// The message under way as it arrived.
    Original,
    /// The message under way, with changes.
    Changed,
    /// Nowhere: they are zero or empty.
    Built,
}

impl Val {
    /// The integer. Panics on anything else: the checker knows the types.
    pub fn num(&self) -> Num {
        match self {
            Val::Num(num) => *num,
            other => panic!("the checker found an integer here, lowering made {other:?}"),
        }
    }

    /// The truth value. Panics on anything else.
    pub fn bool(&self) -> Value {
        match self {
            Val::Bool(value) => *value,
            other => panic!("the checker found a truth value here, lowering made {other:?}"),
        }
    }

    /// The bytes. Panics on anything else.
    pub fn bytes(&self) -> Value {
        match self {
            Val::Bytes(value) => *value,
            other => panic!("the checker found bytes here, lowering made {other:?}"),
        }
    }

    /// The channel. Panics on anything else.
    pub fn chan(&self) -> Value {
        match self {
            Val::Chan(value) => *value,
            other => panic!("the checker found a channel here, lowering made {other:?}"),
        }
    }

    /// The message. Panics on anything else.
    pub fn record(self) -> Record {
        match self {
            Val::Record(record) => record,
            other => panic!("the checker found a message here, lowering made {other:?}"),
        }
    }
}

impl Num {
    /// An integer in one word.
    pub fn one(value: Value, range: Interval) -> Self {
        Self { word: Word::One(value), range }
    }

    /// The one word. Panics when there are two.
    pub fn value(&self) -> Value {
        match self.word {
            Word::One(value) => value,
            Word::Two { .. } => {
                panic!("an integer of {:?} was narrowed before it is used as a word", self.range)
            }
        }
    }
}

impl Record {
    /// The message under way, unchanged.
    pub fn original(unit: UnitId) -> Self {
        let shape = Shape { kind: ShapeKind::Original, unit, overrides: BTreeMap::new() };
        Self { unit, selector: None, shapes: vec![shape] }
    }

    /// Whether it is certainly the message under way, unchanged.
    pub fn is_original(&self) -> bool {
        matches!(self.shapes.as_slice(), [Shape { kind: ShapeKind::Original, .. }])
    }

    /// The shape of this kind, if it may have it.
    pub fn shape(&self, kind: ShapeKind) -> Option<&Shape> {
        self.shapes.iter().find(|shape| shape.kind == kind)
    }
}
