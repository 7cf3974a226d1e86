//! What structured units are made of: literals, choices, checks, lists, classes of bytes.
//! Promises: the tree is in the order of the wire, and what an expression reads stands before it.

use super::{Derived, Expr, FieldId, FieldKind, Span};

/// Index of a class in `Program::classes`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ClassId(pub u32);

/// Fault cause of a message that is not of the grammar.
pub const CAUSE_MALFORMED: u32 = 1;
/// Fault cause of a message of which something exceeds its bound.
pub const CAUSE_TOO_LONG: u32 = 3;
/// Fault cause of a message that asks for what is not supported.
pub const CAUSE_UNSUPPORTED: u32 = 4;
/// Fault cause of a message in which the name of what it is about exceeds its bound.
pub const CAUSE_NAME_TOO_LONG: u32 = 5;

/// A set of bytes.
#[derive(Clone, Debug)]
pub struct Class {
    /// Name.
    pub name: String,
    /// Byte `b` is in it if bit `b % 64` of word `b / 64` is set.
    pub set: [u64; 4],
    /// Place of the name.
    pub span: Span,
}

impl Class {
    /// Whether `byte` is in it.
    pub fn has(&self, byte: u8) -> bool {
        self.set[usize::from(byte) / 64] >> (byte % 64) & 1 == 1
    }
}

/// One thing in the row that a structured unit, an arm of a choice or an element of a list is.
#[derive(Clone, Debug)]
pub enum Item {
    /// A field of any kind; a `Var`, `Flag`, `TextVar` or `Asked` is computed here; `Bits` stand behind their integer.
    Field(FieldId),
    /// Bytes that must be there.
    Literal(Literal),
    /// What must hold.
    Check(Check),
    /// `switch`; `&if` too, as one over a bool with an empty `otherwise`.
    Switch(Choice),
}

/// Bytes that must be there.
#[derive(Clone, Debug)]
pub struct Literal {
    /// 1 to 64 of them.
    pub bytes: Vec<u8>,
    /// ASCII letters in any case.
    pub nocase: bool,
    /// It need not be there: what stands in its place is taken as what follows.
    pub optional: bool,
    /// `&cut`: not passed on.
    pub cut: bool,
    /// Fault cause where it is not there.
    pub cause: u32,
    /// Place.
    pub span: Span,
}

/// `check e`.
#[derive(Clone, Debug)]
pub struct Check {
    /// Of type bool.
    pub expr: Expr,
    /// Fault cause where it does not hold.
    pub cause: u32,
    /// Place.
    pub span: Span,
}

/// `switch e { ... }`.
#[derive(Clone, Debug)]
pub struct Choice {
    /// Of an integer, enumeration, bool or text.
    pub on: Expr,
    /// Constants (`Int`, `Member`, `Bool`, `Str`), no two equal, and what is there.
    pub arms: Vec<(Vec<Expr>, Vec<Item>)>,
    /// `else`; `None`: no other value is of the grammar.
    pub otherwise: Option<Vec<Item>>,
    /// Fault cause where nothing fits.
    pub cause: u32,
    /// Place.
    pub span: Span,
}

/// Elements one behind the other.
#[derive(Clone, Debug)]
pub struct List {
    /// What an element is made of; the fields of all elements are the same ones.
    pub body: Vec<Item>,
    /// Fields of an element are those behind the list's own, up to this one.
    pub fields_end: u32,
    /// Where it ends.
    pub end: ListEnd,
    /// Most elements; `None`: any number, for a list that no program reads.
    pub max: Option<u32>,
    /// The one field that an element is to a program; `None`: its bytes on the wire.
    pub element: Option<FieldId>,
    /// It is looked into by key.
    pub keyed: Option<Keyed>,
    /// Longest element that a program may read, in bytes: of `element`, or on the wire.
    pub elem_bytes_max: u32,
    /// An element is text (`string`) to a program, rather than `bytes`.
    pub elem_text: bool,
    /// Passed on element by element as it arrives: no program reads it, and nothing stands behind it. Else it is part
    /// of the head, of which a longer one than the platform holds is `CAUSE_TOO_LONG`.
    pub streamed: bool,
}

/// Where a list ends.
#[derive(Clone, Debug)]
pub enum ListEnd {
    /// After so many elements.
    Count(Expr),
    /// At these bytes in place of an element; they are consumed. 1 to 16 bytes.
    Until(Vec<u8>),
    /// After so many bytes, which the elements fill exactly.
    Bytes(Expr),
    /// A prefix tree: one element is open at first, each closes one and opens so many; over when none is.
    Children(Expr),
    /// With the element for which this holds; fields of the element are read in it.
    Last(Expr),
}

/// A list that is looked into by key.
#[derive(Clone, Debug)]
pub struct Keyed {
    /// The field of an element that is its key.
    pub key: FieldId,
    /// The field of an element that is its value.
    pub value: FieldId,
    /// Keys are equal in any case of ASCII letters.
    pub nocase: bool,
    /// All keys that the grammar or the program names; in lower case with `nocase`. `SelfKey` and others are indices.
    pub keys: Vec<Vec<u8>>,
    /// Of these a second occurrence is malformed.
    pub once: Vec<u32>,
    /// These are never forwarded.
    pub cut: Vec<u32>,
    /// Nor is what the values of this one name, a comma list.
    pub cut_listed: Option<u32>,
    /// Unless this holds: then nothing is left out.
    pub keep_cut: Option<Expr>,
    /// When a message is written with changes or built: this key gets this text, of `SelfField` and `LenOf`.
    pub follows: Vec<(u32, Expr)>,
}

impl FieldKind {
    /// Whether it has bytes of its own; `Bits` are part of their integer.
    pub fn is_on_wire(&self) -> bool {
        match self {
            FieldKind::Var { .. }
            | FieldKind::Flag { .. }
            | FieldKind::TextVar { .. }
            | FieldKind::Asked
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

    /// What a number follows from when a changed message is written.
    pub fn derived(&self) -> Option<&Derived> {
        match self {
            FieldKind::Int { derived, .. }
            | FieldKind::Vint { derived }
            | FieldKind::Number { derived, .. }
            | FieldKind::Varint { derived, .. } => derived.as_ref(),
            _ => None,
        }
    }

    /// The place of what a number follows from; `None`: it is no number on the wire.
    pub fn derived_mut(&mut self) -> Option<&mut Option<Derived>> {
        match self {
            FieldKind::Int { derived, .. }
            | FieldKind::Vint { derived }
            | FieldKind::Number { derived, .. }
            | FieldKind::Varint { derived, .. } => Some(derived),
            _ => None,
        }
    }

    /// Least and largest value of a number of a structured unit; `None`: it is no such number.
    pub fn number_range(&self) -> Option<(i128, i128)> {
        match self {
            FieldKind::Number { base, digits_max, signed, .. } => {
                let hi = i128::from(*base).pow(u32::from(*digits_max)) - 1;
                Some((if *signed { -hi } else { 0 }, hi))
            }
            FieldKind::Varint { bytes_max, .. } => Some((0, (1i128 << (7 * u32::from(*bytes_max))) - 1)),
            FieldKind::Bits { width, .. } => Some((0, (1i128 << u32::from(*width)) - 1)),
            FieldKind::Asked => Some((0, i128::from(u64::MAX))),
            _ => None,
        }
    }
}
