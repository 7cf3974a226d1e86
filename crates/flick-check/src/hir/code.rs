//! Types, expressions and statements of a checked program.
//! Promises: operand types are as each kind says; lists, dictionaries and options have the types of their contents.

use super::{
    ChannelId, ClassId, CounterId, DictId, EnumId, FieldId, FunId, IntRepr, LocalId, SessionLocalId, Span,
    StructId, UnitId, VariantId,
};

/// Type of an expression.
#[derive(Clone, Debug, PartialEq)]
pub enum Ty {
    /// An integer in `lo..=hi`; `unsigned` if its arithmetic is that of `uint64`. An operation is unsigned if its
    /// operands are (then both are); its result is only if some value of it does not fit `int64`.
    Int {
        /// Minimum value.
        lo: i128,
        /// Maximum value.
        hi: i128,
        /// 64-bit unsigned arithmetic.
        unsigned: bool,
    },
    /// A boolean.
    Bool,
    /// A string or bytes of at most `max` bytes.
    Bytes {
        /// Maximum length.
        max: u32,
        /// `string` rather than `bytes`.
        text: bool,
    },
    /// A member of an enum.
    Enum(EnumId),
    /// A message of a unit.
    Record(UnitId),
    /// An IPv4 address: a word, the address as an integer.
    Ipv4,
    /// An IPv6 address: 16 bytes.
    Ipv6,
    /// An address and a port: 18 bytes, address (IPv4 mapped into IPv6) and port, big-endian.
    Endpoint,
    /// Nanoseconds since 1970 UTC, a word.
    Time,
    /// Nanoseconds, signed, a word.
    Duration,
    /// A record of plain values.
    Struct(StructId),
    /// A tagged union.
    Variant(VariantId),
    /// A value or none.
    Option(Box<Ty>),
    /// Two or more values.
    Tuple(Vec<Ty>),
    /// At most `max` values.
    List {
        /// The element type; not a list, not a channel.
        elem: Box<Ty>,
        /// Maximum length or number of iterations.
        max: u32,
    },
    /// A global dictionary; only built-ins and indexing accept it.
    Dict(DictId),
    /// A counter or gauge; only built-ins accept it.
    Counter(CounterId),
    /// One channel.
    Chan {
        /// The message that is received; `None`: none.
        receives: Option<UnitId>,
        /// The message that may be sent; `None`: none.
        sends: Option<UnitId>,
    },
    /// An array of channels.
    ChanArray {
        /// As for `Chan`.
        receives: Option<UnitId>,
        /// As for `Chan`.
        sends: Option<UnitId>,
    },
    /// No value.
    Nothing,
    /// An error was reported already; never in a program without errors.
    Unknown,
}

/// A typed expression.
#[derive(Clone, Debug)]
pub struct Expr {
    /// Kind.
    pub kind: ExprKind,
    /// Its type.
    pub ty: Ty,
    /// Location.
    pub span: Span,
}

/// Binary operators; operand types are equal after checking (integers may differ in range).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[expect(missing_docs, reason = "each is the operator of its name")]
pub enum BinaryOp {
    Add,
    Sub,
    Mul,
    Div,
    Mod,
    Eq,
    Ne,
    Lt,
    Le,
    Gt,
    Ge,
    And,
    Or,
}

/// Built-in functions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Builtin {
    /// `hash(bytes | int | enum | bool) -> uint64`.
    Hash,
    /// `len(bytes | list | dictionary | channel array) -> int`.
    Len,
    /// `bytes_used(dictionary) -> int`.
    BytesUsed,
    /// `evictions(dictionary) -> int`.
    Evictions,
    /// `open_clients() -> int`.
    OpenClients,
    /// `starts_with(a, b) -> bool`.
    StartsWith,
    /// `ends_with(a, b) -> bool`.
    EndsWith,
    /// `contains(a, b) -> bool`.
    Contains,
    /// `min(a, b)`, of integers, times, durations.
    Min,
    /// `max(a, b)`.
    Max,
    /// `abs(n) -> int`; the minimum value wraps to itself.
    Abs,
    /// `find(text, part) -> option<int>`.
    Find,
    /// `split(text, separator, N) -> [text]<N>`; the last part is the rest. The separator is not empty.
    Split,
    /// `lower(text)`, ASCII.
    Lower,
    /// `upper(text)`, ASCII.
    Upper,
    /// `trim(text)`: removes spaces, tabs, CR and LF at both ends.
    Trim,
    /// `same_text(a, b) -> bool`: equal, ignoring ASCII case.
    SameText,
    /// `parse_int(text) -> option<int>`: decimal, `-` allowed, the whole string, within int64.
    ParseInt,
    /// `parse_hex(text) -> option<int>`.
    ParseHex,
    /// `str(n) -> string<20>`: decimal; the text form of an address or endpoint; a string itself.
    Str,
    /// `hex(n) -> string<16>`, of the 64 bits of an integer, lower case, no leading zeros.
    Hex,
    /// `text(bytes) -> string`, same bytes.
    Text,
    /// `raw(string) -> bytes`, same bytes.
    Raw,
    /// `now() -> time`.
    Now,
    /// `room() -> bool`: whether the output buffer has capacity for everything that the first branch builds.
    Room,
    /// `random(n) -> int`, 0 to n - 1; n is at least 1.
    Random,
    /// `log(text)`.
    Log,
    /// `count(counter or gauge [, n])`.
    Count,
    /// `set(gauge, n)`.
    Set,
    /// `value(counter or gauge) -> int`.
    Value,
    /// `alive(channel) -> bool`: connected, or never connected before.
    Alive,
    /// `load(channel) -> int`: its requests in flight from this worker.
    Load,
    /// `peer(channel) -> endpoint`.
    Peer,
    /// `address(endpoint) -> ipv6` (IPv4 mapped).
    Address,
    /// `port(endpoint) -> int`.
    Port,
    /// `ketama(channels, key) -> int`: index by the consistent hash of twemproxy (ketama, fnv1a_64).
    Ketama,
    /// `rendezvous(channels, key) -> int`.
    Rendezvous,
    /// `round_robin(channels) -> int`.
    RoundRobin,
    /// `least_loaded(channels) -> int`: among those alive.
    LeastLoaded,
    /// `two_choices(channels) -> int`.
    TwoChoices,
    /// `remove(dict, key) -> bool`: whether the entry existed.
    Remove,
    /// `nanos(d)`, `micros(d)`, `millis(d)`, `seconds(d)` `-> int`: of a duration or a time; divisor in ns.
    InUnits(u64),
    /// `wire(m) -> bytes`: all bytes of a message.
    Wire,
    /// `has_token(list, token) -> bool`: in a comma-separated list, spaces trimmed, ignoring case.
    HasToken,
    /// `is_digits(text) -> bool`: ASCII digits, at least one.
    IsDigits,
    /// `percent_decode(text) -> option<text>`.
    PercentDecode,
    /// `percent_encode(text) -> text`.
    PercentEncode,
    /// `base64_decode(text) -> option<text>`.
    Base64Decode,
    /// `base64_encode(text) -> text`.
    Base64Encode,
    /// `unix(time) -> int`, seconds.
    Unix,
}

/// Kind of an expression.
#[derive(Clone, Debug)]
pub enum ExprKind {
    /// Integer literal or folded constant.
    Int(i128),
    /// Boolean literal.
    Bool(bool),
    /// String literal, escapes resolved.
    Str(Vec<u8>),
    /// Member of an enum: its value.
    Member(EnumId, i64),
    /// Parameter or `let`.
    Local(LocalId),
    /// A channel of the process (in rules); functions take channels as parameters.
    Channel(ChannelId),
    /// `message.field`.
    Field(Box<Expr>, FieldId),
    /// `is_of(text, class)`: every byte is in the class.
    IsOf(Box<Expr>, ClassId),
    /// `self.field` in a grammar.
    SelfField(FieldId),
    /// `self.list["key"]` in a grammar: the first value of that key (index in `Keyed::keys`), an option of bytes.
    SelfKey(FieldId, u32),
    /// `message.list["key"]`, an option of bytes.
    FieldKey(Box<Expr>, FieldId, u32),
    /// Length of a bytes field, in `Derived::Expr`.
    LenOf(FieldId),
    /// `$$` in `&requires`.
    Dollar,
    /// `not e`.
    Not(Box<Expr>),
    /// `-e`.
    Neg(Box<Expr>),
    /// `a op b`; `And` and `Or` evaluate the second operand only if needed.
    Binary(BinaryOp, Box<Expr>, Box<Expr>),
    /// `if`; without `otherwise` its type is `Nothing`.
    If {
        /// Condition.
        cond: Box<Expr>,
        /// Then.
        then: Block,
        /// Else.
        otherwise: Option<Block>,
    },
    /// `switch` over an enum, integer, boolean or string.
    Switch {
        /// The value that selects the arm.
        value: Box<Expr>,
        /// Arms: constant patterns (`Int`, `Bool`, `Str`, `Member`) and body.
        arms: Vec<(Vec<Expr>, Block)>,
        /// `else`; absent only if the arms are exhaustive (an enum of a message needs it).
        otherwise: Option<Block>,
    },
    /// Call of a function of the program.
    Call(FunId, Vec<Expr>),
    /// Call of a built-in.
    Builtin(Builtin, Vec<Expr>),
    /// `channels[index]`.
    Index(Box<Expr>, Box<Expr>),
    /// `message with field = value, ...`.
    With(Box<Expr>, Vec<(FieldId, Expr)>),
    /// `message with list["key"] = value`: replaces all occurrences by one at the end; `None` (`= none`) removes
    /// them.
    WithKey(Box<Expr>, FieldId, u32, Option<Box<Expr>>),
    /// `unit{wire = b}`: the message with these bytes; bytes that do not match the grammar fail the request when it
    /// is sent.
    BuildWire(UnitId, Box<Expr>),
    /// `unit{field = value, ...}`; other fields are zero or empty, derived ones are computed.
    Build(UnitId, Vec<(FieldId, Expr)>),
    /// `(a, b)`.
    Tuple(Vec<Expr>),
    /// `pair.0`, or an element of a destructured tuple.
    TupleField(Box<Expr>, u32),
    /// `point{x = 1, y = 2}` or `point(1, 2)`: every field once, in the order as written.
    StructBuild(StructId, Vec<(u32, Expr)>),
    /// `p.x`.
    StructField(Box<Expr>, u32),
    /// `p with x = 1`.
    StructWith(Box<Expr>, Vec<(u32, Expr)>),
    /// `shape.circle(3)`: case and value.
    VariantBuild(VariantId, u32, Option<Box<Expr>>),
    /// `some(x)`, also the conversion of a plain value to an option.
    Some(Box<Expr>),
    /// `none`; the type of the expression is the option.
    None,
    /// `option else value`: the second is evaluated only if needed.
    OrElse(Box<Expr>, Block),
    /// `switch` over a variant or option. Cases of an option: 0 none, 1 some.
    Match {
        /// The value that selects the arm.
        value: Box<Expr>,
        /// Case numbers (several without a binding), the local that is bound to the value, body.
        arms: Vec<(Vec<u32>, Option<LocalId>, Block)>,
        /// `else`; absent only if the arms are exhaustive.
        otherwise: Option<Block>,
    },
    /// `[a, b]`; the type has the element type and bound.
    List(Vec<Expr>),
    /// `list[i]`, an option.
    ListGet(Box<Expr>, Box<Expr>),
    /// `text[i]`, an option of an integer.
    ByteAt(Box<Expr>, Box<Expr>),
    /// `text[a..b]` or `list[a..b]`, ends clamped; a missing end is the start or the length.
    Slice(Box<Expr>, Option<Box<Expr>>, Option<Box<Expr>>),
    /// `for x in source: body`, of type `Nothing`.
    For {
        /// The element.
        local: LocalId,
        /// The source of the elements.
        source: Box<LoopSource>,
        /// For each.
        body: Block,
    },
    /// `fold x in source, acc = init: body`; the value of the body is the next accumulator.
    Fold {
        /// The element.
        local: LocalId,
        /// The source of the elements.
        source: Box<LoopSource>,
        /// The accumulator; its type is the expression's.
        acc: LocalId,
        /// Its first value.
        init: Box<Expr>,
        /// For each.
        body: Block,
    },
    /// `map x in source: body`, a list.
    MapList {
        /// The element.
        local: LocalId,
        /// The source of the elements.
        source: Box<LoopSource>,
        /// For each.
        body: Block,
    },
    /// `filter x in source: body`, a list of the elements for which the body is true.
    Filter {
        /// The element.
        local: LocalId,
        /// The source of the elements.
        source: Box<LoopSource>,
        /// For each, of type bool.
        body: Block,
    },
    /// `a + b` of strings or bytes, flattened; the type has the bound.
    Concat(Vec<Expr>),
    /// `uint8(n)` and the like: the low bits, as the type of this expression.
    Convert(Box<Expr>, IntRepr),
    /// The bits of a word as another type: arithmetic of times, durations and integers after checking.
    Recast(Box<Expr>),
    /// A `local`.
    SessionLocal(SessionLocalId),
    /// The dictionary, as an argument.
    Dict(DictId),
    /// The counter, as an argument.
    Counter(CounterId),
    /// `d[k]`, an option.
    DictGet(DictId, Box<Expr>),
    /// `k in d`.
    DictHas(DictId, Box<Expr>),
    /// `d[k] := v`, of type `Nothing`.
    DictPut(DictId, Box<Expr>, Box<Expr>),
    /// `update d[k] from v: body`. `old` is an option of the value type; the body is an option too, and none removes
    /// the entry. The value of the expression is the new value, an option or, if the body of the program is plain,
    /// plain.
    DictUpdate {
        /// The dictionary.
        dict: DictId,
        /// Key, evaluated once.
        key: Box<Expr>,
        /// The old value.
        old: LocalId,
        /// The new value; evaluated again if another worker changed the entry. No sends, asks, other dictionaries or
        /// `:=`.
        body: Block,
        /// Whether the type of the body is an option (none removes the entry).
        may_remove: bool,
    },
    /// `ask channel with message timeout d else value`.
    Ask {
        /// One channel.
        channel: Box<Expr>,
        /// The request.
        message: Box<Expr>,
        /// Of type duration.
        timeout: Option<Box<Expr>>,
        /// The value if there is no reply; `None`: the request of the client fails. If the type of the expression is
        /// an option (`else none`), a reply is `some`.
        otherwise: Option<Block>,
    },
    /// `ask all ...`: a list of options, one for each asked channel, in order.
    AskAll {
        /// The channels and messages.
        asks: AskAll,
        /// Of type duration.
        timeout: Option<Box<Expr>>,
    },
    /// `message => channel`, of type `Nothing`.
    Send {
        /// The message.
        message: Box<Expr>,
        /// The channel that it is sent to.
        channel: Box<Expr>,
    },
}

/// Source of the elements of a loop.
#[derive(Clone, Debug)]
pub enum LoopSource {
    /// A list.
    List(Expr),
    /// `lo..hi`, without `hi`; at most `trips_max` integers.
    Range {
        /// First.
        lo: Expr,
        /// The end, excluded.
        hi: Expr,
        /// Maximum number of iterations, from the ranges of both ends.
        trips_max: u32,
    },
    /// The channels of an array.
    Channels(Expr),
}

/// The requests of an `ask all`.
#[derive(Clone, Debug)]
pub enum AskAll {
    /// `ask all channels with message`: the same message for every channel.
    Array {
        /// The array.
        channels: Box<Expr>,
        /// The request.
        message: Box<Expr>,
    },
    /// `ask all [c1 with m1, c2 with m2]`.
    Each(Vec<(Expr, Expr)>),
    /// `ask all [x in xs: c with m]`: one for each element.
    Over(Box<AskOver>),
}

/// One request for each element of a list, a range or an array.
#[derive(Clone, Debug)]
pub struct AskOver {
    /// The element.
    pub local: LocalId,
    /// The source of the elements.
    pub source: LoopSource,
    /// Maximum number of elements.
    pub max: u32,
    /// The channel; the value of the block.
    pub channel: Block,
    /// The request; the value of the block.
    pub message: Block,
}

impl AskOver {
    /// The channel as an expression. Panics: never, because the checker ensures that the block has a value.
    pub fn channel(&self) -> &Expr {
        self.channel.value.as_ref().expect("the checker gives the block its value")
    }

    /// The message as an expression. Panics: never, because the checker ensures that the block has a value.
    pub fn message(&self) -> &Expr {
        self.message.value.as_ref().expect("the checker gives the block its value")
    }
}

/// Statements, then a value.
#[derive(Clone, Debug, Default)]
pub struct Block {
    /// In order.
    pub stmts: Vec<Stmt>,
    /// The block's value, unless it has none.
    pub value: Option<Box<Expr>>,
}

/// A statement.
#[derive(Clone, Debug)]
pub enum Stmt {
    /// `let`.
    Let(LocalId, Expr),
    /// `let (a, b) = pair`; `_` is `None`.
    LetTuple(Vec<Option<LocalId>>, Expr),
    /// `name := value` of a `local`.
    Assign(SessionLocalId, Expr),
    /// An expression for its effect (a send, a call, an `if`).
    Expr(Expr),
}
