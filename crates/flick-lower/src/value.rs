//! The value of an expression during lowering: words of the IR, or a message known only statically.
//! Promises: a message costs nothing until it is sent. It is where its fields come from (a message of this
//! activation, or nothing) and which fields were replaced; updates are resolved here, not at run time. Tuples,
//! records, options and variants are their parts side by side.
//! Refuses: messages in memory. Where branches disagree, the message carries a selector of its few shapes.

use std::collections::BTreeMap;

use flick_check::hir::UnitId;
use flick_ir::data::Value;

use crate::interval::Interval;
use crate::part::Part;

/// The value of an expression.
#[derive(Clone, Debug)]
pub enum Val {
    /// An integer, a member of an enumeration, a time, a duration or an IPv4 address.
    Num(Num),
    /// A boolean.
    Bool(Value),
    /// Bytes, text, an IPv6 address, an endpoint, or the memory of a list (its type says of what).
    Bytes(Value),
    /// A channel or array of channels.
    Chan(Value),
    /// A message.
    Record(Record),
    /// A tuple, or a record of the program's own: its parts in order.
    Group(Vec<Val>),
    /// A value or none. The value has words in any case; they mean nothing when it is not there.
    Option {
        /// Whether it is there (`Bool`).
        present: Value,
        /// Its value if it is there.
        value: Box<Val>,
    },
    /// A tagged union: what each case carries, of which that of the tag means something.
    Variant {
        /// Number of the case (`Int`).
        tag: Value,
        /// By case.
        cases: Vec<Option<Val>>,
    },
    /// No value.
    Nothing,
}

/// An integer and what is known of it.
#[derive(Clone, Copy, Debug)]
pub struct Num {
    /// Words that hold it.
    pub word: Word,
    /// The values that it may have.
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

/// A message: one of a few shapes, or of none where it is certainly not there (what `none` would carry).
#[derive(Clone, Debug)]
pub struct Record {
    /// Its grammar.
    pub unit: UnitId,
    /// Index into `shapes` at run time; `None` when there is at most one.
    pub selector: Option<Value>,
    /// At most one per [`ShapeKind`].
    pub shapes: Vec<Shape>,
}

/// The origin of a message, and its changes.
#[derive(Clone, Debug)]
pub struct Shape {
    /// The origin of unchanged fields.
    pub kind: ShapeKind,
    /// Its grammar.
    pub unit: UnitId,
    /// Number of the message (`Message`) for [`ShapeKind::Other`] and [`ShapeKind::OtherChanged`].
    pub message: Option<Value>,
    /// Replaced parts; empty for [`ShapeKind::Original`] and [`ShapeKind::Other`].
    pub overrides: BTreeMap<Part, Val>,
}

/// The origin of the unchanged fields of a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum ShapeKind {
    /// The current message as it arrived.
    Original,
    /// The current message, with changes.
    Changed,
    /// Nowhere: they are zero or empty.
    Built,
    /// Another message of this activation as it arrived: a reply to an ask, or the second element of a merge.
    Other,
    /// Another message of this activation, with changes.
    OtherChanged,
}

impl ShapeKind {
    /// Returns the origin after fields are replaced.
    pub fn changed(self) -> Self {
        match self {
            Self::Original | Self::Changed => Self::Changed,
            Self::Other | Self::OtherChanged => Self::OtherChanged,
            Self::Built => Self::Built,
        }
    }

    /// Whether it is of a message that did not start the activation.
    pub fn is_other(self) -> bool {
        matches!(self, Self::Other | Self::OtherChanged)
    }

    /// Whether its message leaves as it arrived.
    pub fn is_unchanged(self) -> bool {
        matches!(self, Self::Original | Self::Other)
    }
}

impl Val {
    /// The integer. Panics on anything else: the checker knows the types.
    pub fn num(&self) -> Num {
        match self {
            Val::Num(num) => *num,
            other => panic!("the checker found an integer here, lowering made {other:?}"),
        }
    }

    /// The boolean. Panics on anything else.
    pub fn bool(&self) -> Value {
        match self {
            Val::Bool(value) => *value,
            other => panic!("the checker found a boolean here, lowering made {other:?}"),
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

    /// The one word of a number, boolean or bytes. Panics on anything else.
    pub fn word(&self) -> Value {
        match self {
            Val::Num(num) => num.value(),
            Val::Bool(value) => *value,
            other => other.bytes(),
        }
    }

    /// Whether it is there, and what it is. Panics on anything else.
    pub fn option(self) -> (Value, Val) {
        match self {
            Val::Option { present, value } => (present, *value),
            other => panic!("the checker found an option here, lowering made {other:?}"),
        }
    }

    /// The parts. Panics on anything else.
    pub fn group(self) -> Vec<Val> {
        match self {
            Val::Group(parts) => parts,
            other => panic!("the checker found a tuple or record here, lowering made {other:?}"),
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
    /// The current message, unchanged.
    pub fn original(unit: UnitId) -> Self {
        let shape = Shape { kind: ShapeKind::Original, unit, message: None, overrides: BTreeMap::new() };
        Self { unit, selector: None, shapes: vec![shape] }
    }

    /// Another message of this activation, unchanged.
    pub fn other(unit: UnitId, message: Value) -> Self {
        let overrides = BTreeMap::new();
        let shape = Shape { kind: ShapeKind::Other, unit, message: Some(message), overrides };
        Self { unit, selector: None, shapes: vec![shape] }
    }

    /// A message that is not there.
    pub fn absent(unit: UnitId) -> Self {
        Self { unit, selector: None, shapes: Vec::new() }
    }

    /// Whether it is certainly the current message, unchanged.
    pub fn is_original(&self) -> bool {
        matches!(self.shapes.as_slice(), [Shape { kind: ShapeKind::Original, .. }])
    }

    /// The shape of this kind, if it may have it.
    pub fn shape(&self, kind: ShapeKind) -> Option<&Shape> {
        self.shapes.iter().find(|shape| shape.kind == kind)
    }
}
