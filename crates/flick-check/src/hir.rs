//! The checked program: names are resolved, types are known, and every rule of the language is obeyed.
//! Promises: a [`Program`] from a run without errors can be lowered without further checks.
//! Not here: syntax. Comments, parentheses and layout are gone; spans remain.

mod code;
mod structured;

// Defined in `flick_abi`, because the platform uses them too.
pub use flick_abi::{Event, Evict, FaultCause, Snapshot};

pub use code::{AskAll, AskOver, BinaryOp, Block, Builtin, Expr, ExprKind, LoopSource, Stmt, Ty};
pub use structured::{Check, Choice, Class, Item, Keyed, List, ListEnd, Literal};

use std::ops::Range;

/// A range of one source file.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Default)]
pub struct Span {
    /// Index in `Sources`.
    pub file: u32,
    /// Byte range.
    pub range: Range<u32>,
}

/// Index of an enum in `Program::enums`.
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

/// Index of a record of plain values in `Program::structs`.
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
pub struct SessionLocalId(pub u32);

/// Index of a class in `Program::classes`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ClassId(pub u32);

/// A checked program, specialized for one of its processes.
#[derive(Clone, Debug, Default)]
pub struct Program {
    /// Enums, including those of imported grammars.
    pub enums: Vec<Enum>,
    /// Records of plain values.
    pub structs: Vec<Struct>,
    /// Tagged unions.
    pub variants: Vec<Variant>,
    /// Global dictionaries.
    pub dicts: Vec<Dict>,
    /// Global counters and gauges.
    pub counters: Vec<Counter>,
    /// `local`s of a session.
    pub session_locals: Vec<SessionLocal>,
    /// Classes of bytes.
    pub classes: Vec<Class>,
    /// Units; nested units are flattened into the units that contain them.
    pub units: Vec<Unit>,
    /// Functions, callees first.
    pub funs: Vec<Fun>,
    /// The process. `None` if the file is only a grammar or library.
    pub process: Option<Proc>,
    /// The same file for each of its other processes: dictionaries and counters have the same numbers, the rest may
    /// not.
    pub siblings: Vec<Program>,
}

impl Program {
    /// The program of each process, in the order of the file; for a library, the library.
    pub fn each(&self) -> impl Iterator<Item = &Program> {
        std::iter::once(self).chain(&self.siblings)
    }
}

/// An enum.
#[derive(Clone, Debug)]
pub struct Enum {
    /// Name.
    pub name: String,
    /// Encoding, if declared.
    pub repr: Option<IntRepr>,
    /// Members and their values. Other values are valid in messages and are kept.
    pub members: Vec<(String, i64)>,
    /// Location of the declaration.
    pub span: Span,
}

/// The encoding of an integer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct IntRepr {
    /// 1, 2, 4 or 8.
    pub width_bytes: u8,
    /// Two's complement.
    pub signed: bool,
}

/// A record of plain values, without an encoding.
#[derive(Clone, Debug)]
pub struct Struct {
    /// Name.
    pub name: String,
    /// Fields in order of declaration.
    pub fields: Vec<(String, Ty)>,
    /// Location of the name.
    pub span: Span,
}

/// A tagged union.
#[derive(Clone, Debug)]
pub struct Variant {
    /// Name.
    pub name: String,
    /// Cases in order of declaration, with the type of their value.
    pub cases: Vec<(String, Option<Ty>)>,
    /// Location of the name.
    pub span: Span,
}

/// A dictionary shared by all sessions and workers.
#[derive(Clone, Debug)]
pub struct Dict {
    /// Name.
    pub name: String,
    /// Key type: words, bytes, or records and tuples of them.
    pub key: Ty,
    /// Value type: as for keys, and options and variants.
    pub value: Ty,
    /// `max N entries`.
    pub entries_max: u64,
    /// `max N entries, B bytes`: all its memory.
    pub bytes_max: Option<u64>,
    /// `expire D`: lifetime of an entry after its last write.
    pub expire_ns: Option<u64>,
    /// `evict POLICY`: what happens if it is full.
    pub evict: Evict,
    /// `snapshot "file"`, and how often.
    pub snapshot: Option<Snapshot>,
    /// Location of the name.
    pub span: Span,
}

/// A counter or gauge.
#[derive(Clone, Debug)]
pub struct Counter {
    /// Name.
    pub name: String,
    /// Whether it may go down and be set.
    pub is_gauge: bool,
    /// Location of the name.
    pub span: Span,
}

/// A `local`: a value that belongs to a session.
#[derive(Clone, Debug)]
pub struct SessionLocal {
    /// Name.
    pub name: String,
    /// Type; no channel, no message.
    pub ty: Ty,
    /// Initial value; constant except for calls of built-ins.
    pub init: Expr,
    /// Location of the name.
    pub span: Span,
}

/// A message grammar.
#[derive(Clone, Debug)]
pub struct Unit {
    /// Name.
    pub name: String,
    /// Fields and variables in the order of the message; those of list elements are named `list.name`.
    pub fields: Vec<Field>,
    /// The tree of a structured unit, which contains every field and variable once; `None`: a plain sequence of
    /// `fields`.
    pub body: Option<Vec<Item>>,
    /// Properties for the platform.
    pub facts: Facts,
    /// Location of the declaration.
    pub span: Span,
}

/// A field or variable of a unit.
#[derive(Clone, Debug)]
pub struct Field {
    /// Dotted path (`header.opcode` for a field of a nested unit); `None`: anonymous.
    pub name: Option<String>,
    /// Kind and encoding.
    pub kind: FieldKind,
    /// `&requires` conditions, of type bool; `Dollar` is the value of this field.
    pub requires: Vec<Expr>,
    /// Fault cause if this field is invalid (`FaultCause::Malformed` unless `&fault` is given).
    pub cause: FaultCause,
    /// Fault cause if its bound is exceeded: `FaultCause::TooLong` unless `&fault` is given.
    pub too_long: FaultCause,
    /// `&default`: the value of an integer in a message that is built without it.
    pub default: Option<i128>,
    /// Location.
    pub span: Span,
}

/// Kind of a field.
#[derive(Clone, Debug)]
pub enum FieldKind {
    /// A sized integer or enum.
    Int {
        /// Encoding.
        repr: IntRepr,
        /// Byte order.
        big_endian: bool,
        /// Its enum.
        enumeration: Option<EnumId>,
        /// The new value when a changed message is written (from the `&length = self.this` of a later field, or the
        /// `&serialize = self.this = ...` of a variable); otherwise the value is kept.
        derived: Option<Derived>,
    },
    /// Hadoop's variable-length integer (`vint`), 1 to 9 bytes: -112..=127 in one byte; otherwise the first byte
    /// holds the sign and the number of the big-endian bytes that follow. Its value is an `int64`.
    Vint {
        /// As for `Int`.
        derived: Option<Derived>,
    },
    /// A string or bytes of a computed length.
    Bytes {
        /// Text (`string`) or `bytes`.
        text: bool,
        /// Maximum length; `None`: unlimited, for a streamed field only.
        max_bytes: Option<u32>,
        /// Length in bytes; its arithmetic is checked when a message is parsed.
        length: Expr,
        /// Forwarded as it arrives; it is the last field of the unit, and no program reads it.
        streamed: bool,
    },
    /// Computed when a message is parsed; not part of the message.
    Var {
        /// Its declared integer type: a value out of range is a fault.
        repr: IntRepr,
        /// `&parse`.
        parse: Expr,
        /// `&sum`: the list whose elements are added up; `parse` is added after each element, starting at zero.
        sum: Option<FieldId>,
    },
    /// A string or bytes that end at a delimiter or with a class.
    Text {
        /// Text (`string`) or `bytes`.
        text: bool,
        /// `&of`: without `until`, the longest run of bytes of the class; with it, every byte is in the class.
        class: Option<ClassId>,
        /// `&until`: the delimiter, consumed and not part of the value; 1 to 16 bytes.
        until: Option<Vec<u8>>,
        /// `&min`; by default 1 for a run, 0 with `until`.
        min_bytes: u32,
        /// Maximum length.
        max_bytes: u32,
        /// `&trim`, with `until`: spaces and tabs at its end are not part of the value.
        trim: bool,
        /// `&cut`: not forwarded.
        cut: bool,
    },
    /// An integer in digits, at least one. Decimal: `int64`/`uint64` range of its digits.
    Number {
        /// 10 or 16.
        base: u8,
        /// Maximum number of digits: 19 decimal ones, 16 hexadecimal ones.
        digits_max: u8,
        /// A `-` may come before the digits; decimal only.
        signed: bool,
        /// `&zeros`: zeros may come before the digits, which are not forwarded.
        zeros: bool,
        /// As for `Int`.
        derived: Option<Derived>,
    },
    /// LEB128, low groups of seven bits first, unsigned.
    Varint {
        /// Maximum number of bytes, up to 9.
        bytes_max: u8,
        /// As for `Int`.
        derived: Option<Derived>,
    },
    /// Bits of the integer `of`, an unnamed `Int` just before: `(of >> shift) & ((1 << width) - 1)`.
    Bits {
        /// The integer.
        of: FieldId,
        /// Number of lower bits.
        shift: u8,
        /// Number of bits.
        width: u8,
    },
    /// `var x : bool &parse = e`; not part of the message.
    Flag {
        /// Of type bool.
        parse: Expr,
        /// `&any`: true if it is true for any occurrence of key number `.1` of the keyed list `.0`; in `parse`,
        /// `SelfKey` of it is `some` of the value of that occurrence. False without an occurrence.
        any: Option<(FieldId, u32)>,
    },
    /// `var x : string<N> &parse = e`: computed when a program reads it, not when a message is parsed.
    TextVar {
        /// Text (`string`) or `bytes`.
        text: bool,
        /// Maximum length.
        max_bytes: u32,
        /// Of type `Bytes`.
        parse: Expr,
    },
    /// `var x : uint64 &kept`, in a reply: the `%keep` of its request. Zero in a request.
    Kept,
    /// `var x : uint64 &carried`, in a request: the `%carry` of the request before it on the same connection, or 0.
    Carried,
    /// `var x : bool &full = self.list`: a list ended because it was full, without its terminator. If no program reads
    /// the variable, a list that is full makes the message too long.
    Full {
        /// The list.
        list: FieldId,
    },
    /// `bytes &to_close`: everything until the peer closes the connection; the last item, streamed.
    ToClose {
        /// Text (`string`) or `bytes`.
        text: bool,
    },
    /// A sequence of elements.
    List(Box<List>),
}

/// Rule that computes a field when a message is written.
#[derive(Clone, Debug)]
pub enum Derived {
    /// It is the length of that bytes field.
    LengthOf(FieldId),
    /// This expression. `SelfField` of a `Derived` integer is its new value, `LenOf(field)` the new length of a bytes
    /// field; `Dollar` is replaced by the length of the field that the variable measures.
    Expr(Expr),
}

/// The properties of a grammar (`%name = ...`).
#[derive(Clone, Debug, Default)]
pub struct Facts {
    /// `%request = bool`: true for messages that clients may send.
    pub request: Option<Expr>,
    /// `%reply = bool`: true for messages that backends may send.
    pub reply: Option<Expr>,
    /// `%order = in_order` was given (or implied by `%correlate`).
    pub in_order: bool,
    /// `%correlate = self.field`; the field has a fixed offset.
    pub correlate: Option<FieldId>,
    /// `%echo = self.a, ...` plus the fields of `%correlate` and `%loud`; all at fixed offsets.
    pub echo: Vec<FieldId>,
    /// `%loud self.field = expr`: the field and its value on a shared connection.
    pub loud: Option<(FieldId, Expr)>,
    /// `%ends`, on a request.
    pub ends: Option<Expr>,
    /// `%mute`, on a request.
    pub mute: Option<Expr>,
    /// `%stateful`, on a request: it changes the state of its connection.
    pub stateful: Option<Expr>,
    /// `%silent`, on a reply whose echo fields have been restored.
    pub silent: Option<Expr>,
    /// `%more`, on a reply whose echo fields have been restored.
    pub more: Option<Expr>,
    /// `%on reason = unit{...}`; the expression is a `Build` (of `replies` if given), whose `SelfField`s are echo
    /// fields of the request.
    pub on: Vec<(String, Expr)>,
    /// `%replies = unit`, on the request: the unit of its replies.
    pub replies: Option<UnitId>,
    /// Fields of `echo` that a reply of another unit repeats, each with the field of the reply that repeats it.
    pub repeated: Vec<(FieldId, FieldId)>,
    /// On the unit of another unit's replies: the fields that `repeated` of that unit names.
    pub repeats: Vec<FieldId>,
    /// `%exclusive = true`: one exchange at a time on a connection to a backend.
    pub exclusive: bool,
    /// `%keep = e`, on a request: an integer for the parser of its reply (`FieldKind::Kept`).
    pub keep: Option<Expr>,
    /// `%carry = e`, on a request: an integer for the next request of the same client (`FieldKind::Carried`).
    pub carry: Option<Expr>,
    /// `%keep_last = n`, on a request: added to `keep` where the session ends with the reply.
    pub keep_last: u32,
    /// `%keep_client = n`, on a request: the bits of `keep` that are those of the client's own request.
    pub keep_client: u32,
    /// `%last = e`: on a request, it is the last one; on a reply, its connection ends with it.
    pub last: Option<Expr>,
    /// `%retry = e`, on a request: it may be sent again if no byte of a reply has arrived.
    pub retry: Option<Expr>,
    /// `%whole = e`, on a request: a short one is buffered completely before anything is forwarded.
    pub whole: Option<Expr>,
    /// `%tunnel = e`, on a reply: after it, both directions are raw bytes until close.
    pub tunnel: Option<Expr>,
    /// `%closes = e`, on a reply: the session ends with it.
    pub closes: Option<Expr>,
    /// Keys of a request that are kept for the access log: keyed list, and number in `Keyed::keys`. This and the next
    /// two are the operator's choice, see [`crate::RequestOptions`].
    pub logged: Vec<(FieldId, u32)>,
    /// Limits of a request from a client that are lower than those of the grammar: of a string its length in bytes, of
    /// a list its number of elements.
    pub request_limits: Vec<(FieldId, u32)>,
    /// Longest head of a request from a client, up to the end of its keyed list, in bytes.
    pub request_head_max: Option<u32>,
    /// `%status = e`, on a reply: its status code, of at most three digits.
    pub status: Option<Expr>,
    /// `%failed = e`, on a reply: the backend says that it has failed.
    pub failed: Option<Expr>,
    /// `&forward`: what is forwarded instead of what was received.
    pub forwards: Vec<Forward>,
}

/// `var c : bool &forward = self.field = value`: where `c` is true, the message is forwarded with that value.
#[derive(Clone, Debug)]
pub struct Forward {
    /// The variable: `SelfField`, of type bool.
    pub cond: Expr,
    /// Target that is replaced.
    pub target: ForwardTarget,
    /// The value, of type `Bytes`; `None` removes the key.
    pub value: Option<Expr>,
}

/// Target of a `&forward`.
#[derive(Clone, Debug)]
pub enum ForwardTarget {
    /// A field of the unit itself: digits or a string without what ends it; with an expression only that many bytes
    /// at its front.
    Field(FieldId, Option<Expr>),
    /// The first value of a key of a list of the unit itself, added to the list where it is missing or cut.
    Key(FieldId, u32),
}

impl Forward {
    /// Returns the expressions that are evaluated.
    pub fn exprs(&self) -> impl Iterator<Item = &Expr> {
        let front = match &self.target {
            ForwardTarget::Field(_, front) => front.as_ref(),
            ForwardTarget::Key(..) => None,
        };
        [Some(&self.cond), front, self.value.as_ref()].into_iter().flatten()
    }
}

/// A local's name and type.
#[derive(Clone, Debug)]
pub struct Local {
    /// As written.
    pub name: String,
    /// Type.
    pub ty: Ty,
    /// Location of the declaration.
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
    /// Location of the name.
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
    /// Location of the name.
    pub span: Span,
}

/// A channel of a process.
#[derive(Clone, Debug)]
pub struct Channel {
    /// Name.
    pub name: String,
    /// `[..]`.
    pub is_array: bool,
    /// The message that is received.
    pub receives: Option<UnitId>,
    /// The message that may be sent.
    pub sends: Option<UnitId>,
    /// Fields of the received message that the program reads or whose bound its record changes.
    pub view: Vec<DecodedField>,
    /// Keys that the program reads: keyed list, and number in `Keyed::keys`.
    pub keys: Vec<(FieldId, u32)>,
    /// The program reads messages as bytes (`wire(m)`), and makes no option of a field that may be streamed: they are
    /// buffered completely, nothing is streamed.
    pub whole: bool,
    /// Location.
    pub span: Span,
}

/// A field of a received message that a program reads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DecodedField {
    /// The field.
    pub field: FieldId,
    /// The smaller bound that a record declares (`key : string<100>`), in bytes.
    pub max: Option<u32>,
    /// `option<bytes<N>>`: none if the field is absent, longer, or streamed; a `Field` of it has an option as its
    /// type, and a longer value is not a fault.
    pub optional: bool,
}

/// A rule: runs `body` for each message of `source`. `a <=> b` is two rules.
#[derive(Clone, Debug)]
pub struct Rule {
    /// The channel that messages come from.
    pub source: ChannelId,
    /// Local 0 is the message (of the source's unit); then `let`s.
    pub locals: Vec<Local>,
    /// The chain; `a => b` is one `Send` of local 0.
    pub body: Block,
    /// Location.
    pub span: Span,
}

/// `if all_ready(source): let r = foldt on source ordering elem a, b by key as k: body` and the chain for `r`.
#[derive(Clone, Debug)]
pub struct Merge {
    /// The array of channels whose streams are merged.
    pub source: ChannelId,
    /// Unit of the elements.
    pub unit: UnitId,
    /// Locals 0 and 1: the two elements of `body` (messages of `unit`); 2: the key; then `let`s of `key` and `body`.
    pub locals: Vec<Local>,
    /// The key of the order; `Local(0)` is the element. An integer, time, bytes, string, or a tuple of them.
    pub key: Expr,
    /// Combines two elements with equal keys into a message of `unit`.
    pub body: Block,
    /// The chain for each element of the result: local 0 is the element.
    pub finish: Rule,
    /// Location.
    pub span: Span,
}

/// `except EVENT channel[i]: body`.
#[derive(Clone, Debug)]
pub struct Handler {
    /// The event.
    pub event: Event,
    /// The channel.
    pub channel: ChannelId,
    /// Local 0: the index of the channel (an int; 0 for a single channel); then `let`s.
    pub locals: Vec<Local>,
    /// The handler. A message to the client answers the request that failed, if one did; others are copies.
    pub body: Block,
    /// Location.
    pub span: Span,
}

/// `every 1s: body`.
#[derive(Clone, Debug)]
pub struct Timer {
    /// The interval.
    pub interval_ns: u64,
    /// `let`s.
    pub locals: Vec<Local>,
    /// The handler; messages it sends are copies, whose replies are dropped.
    pub body: Block,
    /// Location.
    pub span: Span,
}
