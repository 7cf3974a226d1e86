//! The items of structured units: literals, choices, checks, lists, classes of bytes.
//! Promises: the tree is in the order of the message, and the fields that an expression reads come before it.

use flick_abi::FaultCause;

use super::{Derived, Expr, FieldId, FieldKind, Span};

/// A class: a set of bytes.
#[derive(Clone, Debug)]
pub struct Class {
    /// Name.
    pub name: String,
    /// Byte `b` is in the set if bit `b % 64` of word `b / 64` is set.
    pub set: [u64; 4],
    /// Location of the name.
    pub span: Span,
}

impl Class {
    /// Whether `byte` is in the set.
    pub fn has(&self, byte: u8) -> bool {
        self.set[usize::from(byte) / 64] >> (byte % 64) & 1 == 1
    }
}

/// One item of a row: of a structured unit, an arm of a `switch`, or a list element.
#[derive(Clone, Debug)]
pub enum Item {
    /// A field of any kind; a `Var`, `Flag`, `TextVar` or `Kept` is computed here; `Bits` come after their integer.
    Field(FieldId),
    /// A literal.
    Literal(Literal),
    /// A condition.
    Check(Check),
    /// `switch`; `&if` too, as one over a bool with an empty `otherwise`.
    Switch(Choice),
}

/// Bytes that must be present.
#[derive(Clone, Debug)]
pub struct Literal {
    /// 1 to 64 bytes.
    pub bytes: Vec<u8>,
    /// Whether ASCII case is ignored.
    pub nocase: bool,
    /// Whether it may be missing: other bytes are then parsed as the next item.
    pub optional: bool,
    /// `&supply`: forwarded also where it is missing.
    pub supplied: bool,
    /// `&cut`: not forwarded.
    pub cut: bool,
    /// Fault cause if it is missing.
    pub cause: FaultCause,
    /// Location.
    pub span: Span,
}

/// `check e`.
#[derive(Clone, Debug)]
pub struct Check {
    /// Of type bool.
    pub expr: Expr,
    /// Fault cause if it is false.
    pub cause: FaultCause,
    /// Location.
    pub span: Span,
}

/// `switch e { ... }`.
#[derive(Clone, Debug)]
pub struct Choice {
    /// The value: an integer, enum, bool or string.
    pub on: Expr,
    /// Constants (`Int`, `Member`, `Bool`, `Str`), no two equal, and the items of the case.
    pub arms: Vec<(Vec<Expr>, Vec<Item>)>,
    /// `else`; `None`: any other value is malformed.
    pub otherwise: Option<Vec<Item>>,
    /// Fault cause of a value without a case.
    pub cause: FaultCause,
    /// Location.
    pub span: Span,
}

/// A list of elements.
#[derive(Clone, Debug)]
pub struct List {
    /// The items of an element; all elements share the same fields.
    pub body: Vec<Item>,
    /// Fields of an element come after the field of the list, up to this index.
    pub fields_end: u32,
    /// End of the list.
    pub end: ListEnd,
    /// Maximum number of elements; `None`: unlimited, for a list that no program reads.
    pub max: Option<u32>,
    /// The only string of an element, which is what programs see; `None`: they see the bytes of the element.
    pub element: Option<FieldId>,
    /// Keys, if the list has them.
    pub keyed: Option<Keyed>,
    /// Maximum length of an element that a program reads, in bytes.
    pub elem_bytes_max: u32,
    /// Whether programs see an element as `string` rather than `bytes`.
    pub elem_text: bool,
    /// Forwarded element by element as it arrives: no program reads it, and nothing follows it. Otherwise it is part
    /// of the head; one that exceeds the limit of a head is `FaultCause::TooLong`.
    pub streamed: bool,
    /// `&bare`: if this is true, only the streamed fields of the elements are forwarded.
    pub bare: Option<Expr>,
}

/// End condition of a list.
#[derive(Clone, Debug)]
pub enum ListEnd {
    /// After this number of elements.
    Count(Expr),
    /// At this delimiter instead of an element; it is consumed. 1 to 16 bytes.
    Until(Vec<u8>),
    /// After this number of bytes, which the elements fill exactly.
    Bytes(Expr),
    /// A tree in prefix order: the expression is the number of children of an element; the list ends if no children
    /// remain.
    Children(Expr),
    /// With the element for which this is true; fields of the element are read in it.
    Last(Expr),
}

/// The keys of a list.
#[derive(Clone, Debug)]
pub struct Keyed {
    /// The field of an element that is its key.
    pub key: FieldId,
    /// The field of an element that is its value.
    pub value: FieldId,
    /// Whether keys ignore ASCII case.
    pub nocase: bool,
    /// All keys that the grammar or the program looks up; in lower case with `nocase`. `SelfKey` and others are
    /// indices.
    pub keys: Vec<Vec<u8>>,
    /// Keys whose second occurrence is malformed.
    pub once: Vec<u32>,
    /// Keys that are never forwarded.
    pub cut: Vec<u32>,
    /// The key whose values, comma-separated lists, name further keys that are not forwarded.
    pub cut_listed: Option<u32>,
    /// If this is true, everything is forwarded.
    pub keep_cut: Option<Expr>,
    /// Keys that are set when a message is changed or built, each to a string computed from `SelfField` and `LenOf`.
    pub follows: Vec<(u32, Expr)>,
}

impl FieldKind {
    /// Whether it has its own bytes; `Bits` are part of their integer.
    pub fn is_on_wire(&self) -> bool {
        match self {
            FieldKind::Var { .. }
            | FieldKind::Flag { .. }
            | FieldKind::TextVar { .. }
            | FieldKind::Full { .. }
            | FieldKind::Kept
            | FieldKind::Carried
            | FieldKind::Bits { .. } => false,
            FieldKind::Int { .. }
            | FieldKind::Vint { .. }
            | FieldKind::Bytes { .. }
            | FieldKind::Text { .. }
            | FieldKind::Number { .. }
            | FieldKind::Varint { .. }
            | FieldKind::ToClose { .. }
            | FieldKind::List(_) => true,
        }
    }

    /// Returns the rule that computes an integer when a changed message is written; `None`: its value is kept, or it is
    /// not an integer of the message.
    pub fn derived(&self) -> Option<&Derived> {
        match self {
            FieldKind::Int { derived, .. }
            | FieldKind::Vint { derived }
            | FieldKind::Number { derived, .. }
            | FieldKind::Varint { derived, .. } => derived.as_ref(),
            _ => None,
        }
    }

    /// The slot for how an integer is computed; `None`: it is not an integer of the message.
    pub fn derived_mut(&mut self) -> Option<&mut Option<Derived>> {
        match self {
            FieldKind::Int { derived, .. }
            | FieldKind::Vint { derived }
            | FieldKind::Number { derived, .. }
            | FieldKind::Varint { derived, .. } => Some(derived),
            _ => None,
        }
    }

    /// Range of an integer of a structured unit; `None`: it is not one.
    pub fn number_range(&self) -> Option<(i128, i128)> {
        match self {
            FieldKind::Number { base, digits_max, signed, .. } => {
                let hi = i128::from(*base).pow(u32::from(*digits_max)) - 1;
                Some((if *signed { -hi } else { 0 }, hi))
            }
            FieldKind::Varint { bytes_max, .. } => Some((0, (1i128 << (7 * u32::from(*bytes_max))) - 1)),
            FieldKind::Bits { width, .. } => Some((0, (1i128 << u32::from(*width)) - 1)),
            FieldKind::Kept | FieldKind::Carried => Some((0, i128::from(u64::MAX))),
            _ => None,
        }
    }
}
