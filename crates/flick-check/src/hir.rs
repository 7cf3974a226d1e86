//! The checked program: what the author meant, with names resolved, types known and every rule obeyed.
//! Promises: whoever holds a [`Program`] from a run without errors may lower it without checking anything again.
//! Refuses: spelling. Comments, parentheses and layout are gone; spans remain.

mod code;
mod wire;

// What these mean is the platform's business too, so they are said once, where both can see them.
pub use flick_abi::{Event, Evict, Snapshot};

pub use code::{AskAll, AskOver, BinaryOp, Block, Builtin, Expr, ExprKind, Source, Stmt, Ty};
pub use wire::{
    CAUSE_MALFORMED, CAUSE_NAME_TOO_LONG, CAUSE_TOO_LONG, CAUSE_UNSUPPORTED, Check, Choice, Class, ClassId,
    Item, Keyed, List, ListEnd, Literal,
};

use std::ops::Range;

/// A place in one source file.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Default)]
pub struct Span {
    /// Index in `Sources`.
    pub file: u32,
    /// Byte range.
    pub range: Range<u32>,
}

/// Index of an enumeration in `Program::enums`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct EnumId(pub u32);
/// Index of a unit in `Program::units`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct UnitId(pub u32);
/// Index of a field in `Unit::fields`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct FieldId(pub u32);
/// Index of a function in `Program::funs`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct FunId(pub u32);
/// Index of a local in `Fun::locals` / `Rule::locals`: parameters first, then `let`s.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct LocalId(pub u32);
/// Index of a channel in `Proc::channels`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ChannelId(pub u32);

/// Index of a record of the program's own (no unit) in `Program::structs`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct StructId(pub u32);
/// Index of a variant in `Program::variants`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct VariantId(pub u32);
/// Index of a global in `Program::dicts`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct DictId(pub u32);
/// Index of a counter or gauge in `Program::counters`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct CounterId(pub u32);
/// Index of a `local` in `Program::states`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct StateId(pub u32);

/// A program as one of its processes needs it, checked.
#[derive(Clone, Debug, Default)]
pub struct Program {
    /// Enumerations, those of used grammars too.
    pub enums: Vec<Enum>,
    /// Records that are no views.
    pub structs: Vec<Struct>,
    /// Tagged unions.
    pub variants: Vec<Variant>,
    /// Global dictionaries.
    pub dicts: Vec<Dict>,
    /// Global counters and gauges.
    pub counters: Vec<Counter>,
    /// What lives with a session.
    pub states: Vec<State>,
    /// Sets of bytes.
    pub classes: Vec<Class>,
    /// Units, nested ones flattened into those that hold them.
    pub units: Vec<Unit>,
    /// Functions, in an order in which callees come first.
    pub funs: Vec<Fun>,
    /// The process. `None` when the file is only a grammar or library.
    pub process: Option<Proc>,
    /// The same file for each of its further processes: dictionaries and counters have the same numbers, the rest may not.
    pub siblings: Vec<Program>,
}

impl Program {
    /// The program of each process, in the order of the file; of a library, the library.
    pub fn each(&self) -> impl Iterator<Item = &Program> {
        std::iter::once(self).chain(&self.siblings)
    }
}

/// An enumeration.
#[derive(Clone, Debug)]
pub struct Enum {
    /// Name.
    pub name: String,
    /// Width and sign on the wire, if declared.
    pub repr: Option<IntRepr>,
    /// Members and their values. Values outside stay legal on the wire (unknown values are kept).
    pub members: Vec<(String, i64)>,
    /// Place of the declaration.
    pub span: Span,
}

/// An integer's shape on the wire.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct IntRepr {
    /// 1, 2, 4 or 8.
    pub width_bytes: u8,
    /// Two's complement.
    pub signed: bool,
}

/// A record of the program's own: plain values, no wire format.
#[derive(Clone, Debug)]
pub struct Struct {
    /// Name.
    pub name: String,
    /// Fields in order of declaration.
    pub fields: Vec<(String, Ty)>,
    /// Place of the name.
    pub span: Span,
}

/// A tagged union.
#[derive(Clone, Debug)]
pub struct Variant {
    /// Name.
    pub name: String,
    /// Cases in order of declaration, with what they carry.
    pub cases: Vec<(String, Option<Ty>)>,
    /// Place of the name.
    pub span: Span,
}

/// A dictionary shared by all sessions and workers.
#[derive(Clone, Debug)]
pub struct Dict {
    /// Name.
    pub name: String,
    /// Type of its keys: words, bytes, or records and tuples of them.
    pub key: Ty,
    /// Type of its values; as for keys, options and variants too.
    pub value: Ty,
    /// `max N entries`.
    pub entries_max: u64,
    /// `max N entries, B bytes`: all its memory.
    pub bytes_max: Option<u64>,
    /// `expire D`: how long after its last write an entry is forgotten.
    pub expire_ns: Option<u64>,
    /// `evict POLICY`: what happens when it is full.
    pub evict: Evict,
    /// `snapshot "file"`, and how often.
    pub snapshot: Option<Snapshot>,
    /// Place of the name.
    pub span: Span,
}

/// A counter or gauge.
#[derive(Clone, Debug)]
pub struct Counter {
    /// Name.
    pub name: String,
    /// It may go down and be set.
    pub is_gauge: bool,
    /// Place of the name.
    pub span: Span,
}

/// A value that lives with a session.
#[derive(Clone, Debug)]
pub struct State {
    /// Name.
    pub name: String,
    /// Type; no channel, no message.
    pub ty: Ty,
    /// Value at the start of a session; constant but for calls of built-ins.
    pub init: Expr,
    /// Place of the name.
    pub span: Span,
}

/// A message grammar.
#[derive(Clone, Debug)]
pub struct Unit {
    /// Name.
    pub name: String,
    /// Fields and variables in order of the wire; those of elements of a list stand as `list.name`.
    pub fields: Vec<Field>,
    /// The tree of a structured unit, in which every field and variable stands once; `None`: a plain row of `fields`.
    pub body: Option<Vec<Item>>,
    /// What the platform must know.
    pub facts: Facts,
    /// Place of the declaration.
    pub span: Span,
}

/// A field or variable of a unit.
#[derive(Clone, Debug)]
pub struct Field {
    /// Dotted path (`header.opcode` for a field of a nested unit); `None`: anonymous.
    pub name: Option<String>,
    /// What it is.
    pub kind: FieldKind,
    /// `&requires` checks, of type bool; `Dollar` is this field's value.
    pub requires: Vec<Expr>,
    /// Why a message is refused in which this field is not as it should be (`CAUSE_MALFORMED` unless `&fault` says
    /// otherwise).
    pub cause: u32,
    /// Why one is refused in which its bound is exceeded: `CAUSE_TOO_LONG` unless `&fault` says otherwise.
    pub too_long: u32,
    /// `&default`: the value of a number in a message that is built without it.
    pub default: Option<i128>,
    /// Place.
    pub span: Span,
}

/// What a field is.
#[derive(Clone, Debug)]
pub enum FieldKind {
    /// A sized integer or enumeration.
    Int {
        /// On the wire.
        repr: IntRepr,
        /// Byte order.
        big_endian: bool,
        /// Its enumeration.
        enumeration: Option<EnumId>,
        /// When a message is serialised with changes: what this field becomes (from a later field's
        /// `&length = self.this` or a variable's `&serialize = self.this = ...`); else it is kept.
        derived: Option<Derived>,
    },
    /// Hadoop's variable-length integer (`vint`), 1 to 9 bytes: -112..=127 in one byte; else the first byte gives sign
    /// and number of the big-endian bytes that follow. Its value is an `int64`.
    Vint {
        /// As for `Int`.
        derived: Option<Derived>,
    },
    /// Bytes or text of a computed length.
    Bytes {
        /// Text (`string`) or `bytes`.
        text: bool,
        /// Largest length accepted; `None`: unlimited, for a streamed field only.
        max_bytes: Option<u32>,
        /// Length in bytes; arithmetic in it is checked when a message is parsed.
        length: Expr,
        /// Passed on as it arrives; it is the unit's last field and no program reads it.
        streamed: bool,
    },
    /// Computed when parsed; not on the wire.
    Var {
        /// Its declared integer shape: a value outside is a fault.
        repr: IntRepr,
        /// `&parse`.
        parse: Expr,
        /// `&sum`: zero where that list begins; after each element `parse` is added.
        sum: Option<FieldId>,
    },
    /// Text or bytes that end by what they are made of, or by what stands behind them.
    Text {
        /// Text (`string`) or `bytes`.
        text: bool,
        /// `&of`: without `until`, the longest run of bytes of the class; with it, every byte is of the class.
        class: Option<ClassId>,
        /// `&until`: what ends it, consumed and no part of the value; 1 to 16 bytes.
        until: Option<Vec<u8>>,
        /// `&min`; 1 unless written for a run, 0 unless written with `until`.
        min_bytes: u32,
        /// Largest length accepted.
        max_bytes: u32,
        /// `&trim`, with `until`: blanks and tabs at its end are no part of the value.
        trim: bool,
    },
    /// A number in digits, as many as there are, at least one. Decimal: `int64`/`uint64` range of its digits.
    Number {
        /// 10 or 16.
        base: u8,
        /// Most digits: 19 decimal ones, 16 hexadecimal ones.
        digits_max: u8,
        /// A `-` may stand before the digits; decimal only.
        signed: bool,
        /// As for `Int`.
        derived: Option<Derived>,
    },
    /// LEB128, low groups of seven bits first, unsigned.
    Varint {
        /// Most bytes, up to 9.
        bytes_max: u8,
        /// As for `Int`.
        derived: Option<Derived>,
    },
    /// Bits of the integer `of`, an anonymous `Int` that stands just before: `(of >> shift) & ((1 << width) - 1)`.
    Bits {
        /// The integer.
        of: FieldId,
        /// Bits below.
        shift: u8,
        /// How many.
        width: u8,
    },
    /// `var x : bool &parse = e`; not on the wire.
    Flag {
        /// Of type bool.
        parse: Expr,
        /// `&any`: or-ed over all occurrences of key number `.1` of the keyed list `.0`; in `parse`,
        /// `SelfKey` of it is `some` of the value of that occurrence. Without one it is false.
        any: Option<(FieldId, u32)>,
    },
    /// `var x : string<N> &parse = e`: computed where a program reads it, never while a message is parsed.
    TextVar {
        /// Text (`string`) or `bytes`.
        text: bool,
        /// Largest length.
        max_bytes: u32,
        /// Of type `Bytes`.
        parse: Expr,
    },
    /// `var x : uint64 &kept`, in a reply: what the request that it answers said in `%keep`. Zero in what is asked.
    Asked,
    /// `bytes &to_close`: all that comes until the peer closes; the last item, streamed.
    ToClose {
        /// Text (`string`) or `bytes`.
        text: bool,
    },
    /// Elements one behind the other.
    List(Box<List>),
}

/// How a length field follows from others when a message is serialised.
#[derive(Clone, Debug)]
pub enum Derived {
    /// It is the length of that bytes field.
    LengthOf(FieldId),
    /// It is this expression. `SelfField` of a `Derived` integer means its new value; `LenOf(field)` the new length
    /// of a bytes field; `Dollar` was replaced by the length of the field that the variable measures.
    Expr(Expr),
}

/// The platform facts of a grammar (`%name = ...`).
#[derive(Clone, Debug, Default)]
pub struct Facts {
    /// `%request = bool`: holds for messages that clients may send.
    pub request: Option<Expr>,
    /// `%reply = bool`: holds for messages that backends may send.
    pub reply: Option<Expr>,
    /// `%order = in_order` was given (or implied by `%correlate`).
    pub in_order: bool,
    /// `%correlate = self.field`; the field is at a fixed place.
    pub correlate: Option<FieldId>,
    /// `%echo = self.a, ...` plus `correlate` and `loud`; all at fixed places.
    pub echo: Vec<FieldId>,
    /// `%loud self.field = expr`: field and what to write on a shared connection.
    pub loud: Option<(FieldId, Expr)>,
    /// `%ends`, on a request.
    pub ends: Option<Expr>,
    /// `%mute`, on a request.
    pub mute: Option<Expr>,
    /// `%silent`, on a reply whose echo fields have been restored.
    pub silent: Option<Expr>,
    /// `%more`, on a reply whose echo fields have been restored.
    pub more: Option<Expr>,
    /// `%on reason = unit{...}`; the expression is a `Build` (of `replies` where that is given), `SelfField`s in it are
    /// echo fields of the request.
    pub on: Vec<(String, Expr)>,
    /// `%replies = unit`, on the request unit: the unit that answers it.
    pub replies: Option<UnitId>,
    /// `%exclusive = true`: one exchange at a time on a connection to a backend.
    pub exclusive: bool,
    /// `%keep = e`, on a request: a number that the reader of its reply is told (`FieldKind::Asked`).
    pub keep: Option<Expr>,
    /// `%last = e`: on a request, none follows it; on a reply, the connection it came on ends with it.
    pub last: Option<Expr>,
    /// `%retry = e`, on a request: it may be sent again when no byte of a reply came.
    pub retry: Option<Expr>,
    /// `%whole = e`, on a request: if it is short, nothing of it goes on before all of it is there.
    pub whole: Option<Expr>,
    /// `%tunnel = e`, on a reply: behind it both directions are raw bytes until close.
    pub tunnel: Option<Expr>,
}

/// A local's name and type.
#[derive(Clone, Debug)]
pub struct Local {
    /// As written.
    pub name: String,
    /// Type.
    pub ty: Ty,
    /// Place of the declaration.
    pub span: Span,
}

/// A function.
#[derive(Clone, Debug)]
pub struct Fun {
    /// Name.
    pub name: String,
    /// The first `param_count` locals are the parameters.
    pub param_count: usize,
    /// Parameters and `let`s.
    pub locals: Vec<Local>,
    /// `Nothing` or one value.
    pub result: Ty,
    /// Body.
    pub body: Block,
    /// Place of the name.
    pub span: Span,
}

/// A process.
#[derive(Clone, Debug)]
pub struct Proc {
    /// Name.
    pub name: String,
    /// Channels of the signature.
    pub channels: Vec<Channel>,
    /// Rules.
    pub rules: Vec<Rule>,
    /// `foldt`s, each in place of a rule.
    pub merges: Vec<Merge>,
    /// `except` handlers.
    pub handlers: Vec<Handler>,
    /// `every` timers.
    pub timers: Vec<Timer>,
    /// Place of the name.
    pub span: Span,
}

/// A channel of a process.
#[derive(Clone, Debug)]
pub struct Channel {
    /// Name.
    pub name: String,
    /// `[..]`.
    pub is_array: bool,
    /// What may be received.
    pub receives: Option<UnitId>,
    /// What may be sent.
    pub sends: Option<UnitId>,
    /// Fields the view of the received type names (all uses in the program are among them).
    pub view: Vec<ViewField>,
    /// Keys that the program reads of what it receives: keyed list and number in `Keyed::keys`.
    pub keys: Vec<(FieldId, u32)>,
    /// The program takes messages of it as bytes (`wire(m)`): they are read whole, nothing of them streams.
    pub whole: bool,
    /// Place.
    pub span: Span,
}

/// A field that a program reads of what a channel receives.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ViewField {
    /// Which.
    pub field: FieldId,
    /// The narrower bound that a view may write (`key : string<100>`), in bytes.
    pub max: Option<u32>,
    /// `option<bytes<N>>`: none where the field is absent, longer, or not all there because it streams; a `Field` of
    /// it has an option as its type, and a longer value is no fault.
    pub optional: bool,
}

/// A rule: for each message of `source`, run `body`. `a <=> b` gives two rules.
#[derive(Clone, Debug)]
pub struct Rule {
    /// Where messages come from.
    pub source: ChannelId,
    /// Local 0 is the message (of the source's unit); then `let`s.
    pub locals: Vec<Local>,
    /// What happens; `a => b` is one `Send` of local 0.
    pub body: Block,
    /// Place.
    pub span: Span,
}

/// `if all_ready(source): let r = foldt on source ordering elem a, b by key as k: body` and what happens with `r`.
#[derive(Clone, Debug)]
pub struct Merge {
    /// The array of channels whose streams are merged.
    pub source: ChannelId,
    /// Unit of the elements.
    pub unit: UnitId,
    /// Locals 0 and 1: the two elements of `body` (messages of `unit`); 2: the key; then `let`s of `key` and `body`.
    pub locals: Vec<Local>,
    /// What is ordered by; `Local(0)` is the element there. An integer, time, bytes, text, or a tuple of them.
    pub key: Expr,
    /// What two elements with equal keys become: a message of `unit`.
    pub body: Block,
    /// What happens with each element of the result: local 0 is the element.
    pub finish: Rule,
    /// Place.
    pub span: Span,
}

/// `except EVENT channel[i]: body`.
#[derive(Clone, Debug)]
pub struct Handler {
    /// What.
    pub event: Event,
    /// Where.
    pub channel: ChannelId,
    /// Local 0: the element (an int; 0 for a single channel); then `let`s.
    pub locals: Vec<Local>,
    /// What happens. Sends to the listened channel answer the request that failed, if one did; others are copies.
    pub body: Block,
    /// Place.
    pub span: Span,
}

/// `every 1s: body`.
#[derive(Clone, Debug)]
pub struct Timer {
    /// How often.
    pub interval_ns: u64,
    /// `let`s.
    pub locals: Vec<Local>,
    /// What happens; sends are copies whose replies nobody gets.
    pub body: Block,
    /// Place.
    pub span: Span,
}
