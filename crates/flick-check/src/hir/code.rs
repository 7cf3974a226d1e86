//! Types, expressions and statements of a checked program.
//! Promises: operand types are as each kind says; lists, dictionaries and options carry the types of what they hold.

use super::{
    ChannelId, ClassId, CounterId, DictId, EnumId, FieldId, FunId, IntRepr, LocalId, Span, StateId, StructId,
    UnitId, VariantId,
};

/// Type of an expression.
#[derive(Clone, Debug, PartialEq)]
pub enum Ty {
    /// An integer within `lo..=hi`; `unsigned` when its arithmetic is that of `uint64`. An operation is unsigned when its
    /// operands are (both are, then); its result is again only if some value of it does not fit `int64`.
    Int {
        /// Least value.
        lo: i128,
        /// Largest value.
        hi: i128,
        /// 64-bit unsigned arithmetic.
        unsigned: bool,
    },
    /// Truth value.
    Bool,
    /// Bytes or text of at most `max` bytes.
    Bytes {
        /// Largest length.
        max: u32,
        /// `string` rather than `bytes`.
        text: bool,
    },
    /// A value of an enumeration.
    Enum(EnumId),
    /// A message of a unit.
    Record(UnitId),
    /// An IPv4 address: a word, the address as a number.
    Ipv4,
    /// An IPv6 address: 16 bytes.
    Ipv6,
    /// An address and a port: 18 bytes, address (IPv4 mapped into IPv6) and port, big-endian.
    Endpoint,
    /// Nanoseconds since 1970 UTC, a word.
    Time,
    /// Nanoseconds, signed, a word.
    Duration,
    /// A record of the program's own.
    Struct(StructId),
    /// A tagged union.
    Variant(VariantId),
    /// A value or none.
    Option(Box<Ty>),
    /// Two or more values.
    Tuple(Vec<Ty>),
    /// At most `max` values.
    List {
        /// Of this type; not a list of lists, no channel.
        elem: Box<Ty>,
        /// How many at most.
        max: u32,
    },
    /// A global dictionary; only built-ins and indexing take it.
    Dict(DictId),
    /// A counter or gauge; only built-ins take it.
    Counter(CounterId),
    /// One channel.
    Chan {
        /// What may be received; `None`: nothing.
        receives: Option<UnitId>,
        /// What may be sent; `None`: nothing.
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
    /// An error was reported here already; never in a program without errors.
    Unknown,
}

/// A typed expression.
#[derive(Clone, Debug)]
pub struct Expr {
    /// What it is.
    pub kind: ExprKind,
    /// Its type.
    pub ty: Ty,
    /// Where it stands.
    pub span: Span,
}

/// Two-operand operators; operand types are equal after checking (integers may differ in range).
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

/// Built-in functions of this part of the language.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Builtin {
    /// `hash(bytes | int | enum | bool) -> uint64`.
    Hash,
    /// `len(bytes | channel array) -> int`.
    Len,
    /// `starts_with(a, b) -> bool`.
    StartsWith,
    /// `ends_with(a, b) -> bool`.
    EndsWith,
    /// `contains(a, b) -> bool`.
    Contains,
    /// `min(a, b)`, of numbers, times, durations.
    Min,
    /// `max(a, b)`.
    Max,
    /// `abs(n) -> int`; the least value wraps to itself.
    Abs,
    /// `find(text, part) -> option<int>`.
    Find,
    /// `split(text, separator, N) -> [text]<N>`; the last one has the rest. The separator is not empty.
    Split,
    /// `lower(text)`, ASCII.
    Lower,
    /// `upper(text)`, ASCII.
    Upper,
    /// `trim(text)`: without spaces, tabs, CR and LF at both ends.
    Trim,
    /// `same_text(a, b) -> bool`: equal without regard to ASCII case.
    SameText,
    /// `parse_int(text) -> option<int>`: decimal, `-` allowed, all of it, within int64.
    ParseInt,
    /// `parse_hex(text) -> option<int>`.
    ParseHex,
    /// `str(n) -> string<20>`: decimal; of an address or endpoint as people write it; of a string literal or text itself.
    Str,
    /// `hex(n) -> string<16>`, of a number's 64 bits, lower case, no leading zeros.
    Hex,
    /// `text(bytes) -> string`, same bytes.
    Text,
    /// `raw(string) -> bytes`, same bytes.
    Raw,
    /// `now() -> time`.
    Now,
    /// `room() -> bool`: whether there is room for all that the branch builds whose condition it is.
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
    /// `alive(channel) -> bool`: connected, or never tried.
    Alive,
    /// `load(channel) -> int`: requests under way on it, from this worker.
    Load,
    /// `peer(channel) -> endpoint`.
    Peer,
    /// `address(endpoint) -> ipv6` (IPv4 mapped).
    Address,
    /// `port(endpoint) -> int`.
    Port,
    /// `ketama(channels, key) -> int`: index, as twemproxy places it (ketama, fnv1a_64).
    Ketama,
    /// `rendezvous(channels, key) -> int`.
    Rendezvous,
    /// `round_robin(channels) -> int`.
    RoundRobin,
    /// `least_loaded(channels) -> int`: among those alive.
    LeastLoaded,
    /// `two_choices(channels) -> int`.
    TwoChoices,
    /// `remove(dict, key) -> bool`: whether it was there.
    Remove,
    /// `nanos(d)`, `micros(d)`, `millis(d)`, `seconds(d)` `-> int`: of a duration or a time; divisor in ns.
    InUnits(u64),
    /// `wire(m) -> bytes`: all bytes of a message that is there whole.
    Wire,
    /// `has_token(list, token) -> bool`: of a comma list, blanks trimmed, in any case.
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
    /// `duration_of(n, unit)` is spelled `n * 1ms`; this is `unix(time) -> int`, seconds.
    Unix,
}

/// What an expression is.
#[derive(Clone, Debug)]
pub enum ExprKind {
    /// Integer literal or folded constant.
    Int(i128),
    /// Boolean literal.
    Bool(bool),
    /// String literal, escapes resolved.
    Str(Vec<u8>),
    /// Member of an enumeration: its value.
    Member(EnumId, i64),
    /// Parameter or `let`.
    Local(LocalId),
    /// A channel of the process (in rules); functions take channels as parameters.
    Channel(ChannelId),
    /// `message.field`.
    Field(Box<Expr>, FieldId),
    /// `is_of(text, class)`: every byte is of the class.
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
    /// `a op b`; `And` and `Or` evaluate the second operand only when needed.
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
    /// `switch` over an enumeration, integer, boolean or string.
    Switch {
        /// What decides.
        value: Box<Expr>,
        /// Arms: constant patterns (`Int`, `Bool`, `Str`, `Member`) and body.
        arms: Vec<(Vec<Expr>, Block)>,
        /// `else`; absent only when the arms are exhaustive (an enumeration's unknown values need it).
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
    /// `message with list["key"] = value`: all occurrences replaced by one at the end; `None` (`= none`): removed.
    WithKey(Box<Expr>, FieldId, u32, Option<Box<Expr>>),
    /// `unit{wire = b}`: the message with these bytes; what is not of the grammar fails the request when it is sent.
    BuildWire(UnitId, Box<Expr>),
    /// `unit{field = value, ...}`; other fields are zero or empty, derived ones follow.
    Build(UnitId, Vec<(FieldId, Expr)>),
    /// `(a, b)`.
    Tuple(Vec<Expr>),
    /// `pair.0`, or a part of a destructured tuple.
    TupleField(Box<Expr>, u32),
    /// `point{x = 1, y = 2}` or `point(1, 2)`: every field, in order of declaration.
    StructBuild(StructId, Vec<Expr>),
    /// `p.x`.
    StructField(Box<Expr>, u32),
    /// `p with x = 1`.
    StructWith(Box<Expr>, Vec<(u32, Expr)>),
    /// `shape.circle(3)`: case and what it carries.
    VariantBuild(VariantId, u32, Option<Box<Expr>>),
    /// `some(x)`, also where a plain value is given to an option.
    Some(Box<Expr>),
    /// `none`; the type says of what.
    None,
    /// `option else value`: the second only when needed.
    OrElse(Box<Expr>, Block),
    /// `switch` over a variant or option. Cases of an option: 0 none, 1 some.
    Match {
        /// What decides.
        value: Box<Expr>,
        /// Case numbers (several without a binding), the local that gets what the case carries, body.
        arms: Vec<(Vec<u32>, Option<LocalId>, Block)>,
        /// `else`; absent only when the arms are exhaustive.
        otherwise: Option<Block>,
    },
    /// `[a, b]`; the type gives element type and bound.
    List(Vec<Expr>),
    /// `list[i]`, an option.
    ListGet(Box<Expr>, Box<Expr>),
    /// `text[i]`, an option of a number.
    ByteAt(Box<Expr>, Box<Expr>),
    /// `text[a..b]` or `list[a..b]`, ends clamped; a missing end is the start or the length.
    Slice(Box<Expr>, Option<Box<Expr>>, Option<Box<Expr>>),
    /// `for x in source: body`, of type `Nothing`.
    For {
        /// The element.
        local: LocalId,
        /// What is gone through.
        source: Box<Source>,
        /// For each.
        body: Block,
    },
    /// `fold x in source, acc = init: body`; the value of the body is the next accumulator.
    Fold {
        /// The element.
        local: LocalId,
        /// What is gone through.
        source: Box<Source>,
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
        /// What is gone through.
        source: Box<Source>,
        /// For each.
        body: Block,
    },
    /// `filter x in source: body`, a list of the elements for which the body holds.
    Filter {
        /// The element.
        local: LocalId,
        /// What is gone through.
        source: Box<Source>,
        /// For each, of type bool.
        body: Block,
    },
    /// `a + b` of text or bytes, flattened; the type has the bound.
    Concat(Vec<Expr>),
    /// `uint8(n)` and the like: the low bits, as the type of this expression.
    Convert(Box<Expr>, IntRepr),
    /// Words of one kind seen as another with the same bits: time, duration and int arithmetic after checking.
    Recast(Box<Expr>),
    /// A `local`.
    State(StateId),
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
    /// `update d[k] from v: body`. `old` is an option of the value type; the body an option too: none removes. The
    /// expression's value is the new value, of the option's type or, if the author's body was plain, plain.
    DictUpdate {
        /// Which.
        dict: DictId,
        /// Key, evaluated once.
        key: Box<Expr>,
        /// What was there.
        old: LocalId,
        /// What will be; evaluated again when another worker was faster. No sends, asks, other dictionaries or `:=`.
        body: Block,
        /// The body's type is an option (none removes).
        may_remove: bool,
    },
    /// `ask channel with message timeout d else value`.
    Ask {
        /// One channel.
        channel: Box<Expr>,
        /// What is sent.
        message: Box<Expr>,
        /// Of type duration.
        timeout: Option<Box<Expr>>,
        /// What the value is when there is no reply; `None`: the client's request fails. If the expression's type
        /// is an option (`else none`), a reply is `some`.
        otherwise: Option<Block>,
    },
    /// `ask all ...`: a list of options, one for each asked channel, in order.
    AskAll {
        /// Who is asked what.
        asks: AskAll,
        /// Of type duration.
        timeout: Option<Box<Expr>>,
    },
    /// `message => channel`, of type `Nothing`.
    Send {
        /// What.
        message: Box<Expr>,
        /// Where to.
        channel: Box<Expr>,
    },
}

/// What a repetition goes through.
#[derive(Clone, Debug)]
pub enum Source {
    /// A list.
    List(Expr),
    /// `lo..hi`, without `hi`; at most `trips_max` numbers.
    Range {
        /// First.
        lo: Expr,
        /// Behind the last.
        hi: Expr,
        /// How many at most, from the ranges of both.
        trips_max: u32,
    },
    /// The elements of an array of channels.
    Channels(Expr),
}

/// Who is asked what at once.
#[derive(Clone, Debug)]
pub enum AskAll {
    /// `ask all channels with message`: every element the same.
    Array {
        /// The array.
        channels: Box<Expr>,
        /// What is sent.
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
    /// What is gone through.
    pub source: Source,
    /// How many elements at most.
    pub max: u32,
    /// Who is asked; its value is a channel.
    pub channel: Block,
    /// What is sent.
    pub message: Block,
}

impl AskOver {
    /// The channel, as an expression. Panics: never; the checker gives the block its value.
    pub fn channel(&self) -> &Expr {
        self.channel.value.as_ref().expect("the checker gives the block its value")
    }

    /// The message, as an expression. Panics: never; the checker gives the block its value.
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
    Assign(StateId, Expr),
    /// An expression for its effect (a send, a call, an `if`).
    Expr(Expr),
}
