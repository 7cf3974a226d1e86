//! The checked program: what the author meant, with names resolved, types known and every rule obeyed.
//! Promises: whoever holds a [`Program`] from a run without errors may lower it without checking anything again.
//! Refuses: spelling. Comments, parentheses and layout are gone; spans remain.

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
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
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
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct StateId(pub u32);

/// A program of one process, checked.
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
    /// Units, nested ones flattened into those that hold them.
    pub units: Vec<Unit>,
    /// Functions, in an order in which callees come first.
    pub funs: Vec<Fun>,
    /// The process. `None` when the file is only a grammar or library.
    pub process: Option<Proc>,
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
    /// `expire D`: how long after its last write an entry is forgotten.
    pub expire_ns: Option<u64>,
    /// `evict POLICY`: what happens when it is full.
    pub evict: Evict,
    /// `snapshot "file"`, and how often.
    pub snapshot: Option<Snapshot>,
    /// Place of the name.
    pub span: Span,
}

/// What a full dictionary does with a new entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Evict {
    /// Forgets what was not used for longest (approximately). The default.
    Lru,
    /// Forgets what was written first (approximately).
    Oldest,
    /// Refuses the new entry.
    Nothing,
}

/// Where a dictionary is kept across restarts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Snapshot {
    /// File name, relative to the state directory.
    pub file: String,
    /// How often it is written; at the end always.
    pub every_ns: u64,
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
    /// Fields and variables in order of the wire.
    pub fields: Vec<Field>,
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
    },
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
    /// `%on reason = unit{...}`; the expression is a `Build`, `SelfField`s in it are echo fields of the request.
    pub on: Vec<(String, Expr)>,
}

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
    /// `str(n) -> string<20>`: decimal; of a string literal or text itself.
    Str,
    /// `hex(n) -> string<16>`, of a number's 64 bits, lower case, no leading zeros.
    Hex,
    /// `text(bytes) -> string`, same bytes.
    Text,
    /// `raw(string) -> bytes`, same bytes.
    Raw,
    /// `now() -> time`.
    Now,
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
    /// `self.field` in a grammar.
    SelfField(FieldId),
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
    /// Fields the view of the received type names (all uses in the program are among them), with the narrower
    /// bound a view may write (`key : string<100>`).
    pub view: Vec<(FieldId, Option<u32>)>,
    /// Place.
    pub span: Span,
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

/// What a handler handles.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Event {
    /// The peer closed in good order.
    Closed,
    /// The connection was reset, or ended in the middle of a message.
    Broken,
    /// It could not be dialled.
    Refused,
    /// A request was not answered in time.
    TimedOut,
    /// The peer sent what is not of the grammar.
    Malformed,
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
