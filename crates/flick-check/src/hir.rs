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

/// A program of one process, checked.
#[derive(Clone, Debug)]
pub struct Program {
    /// Enumerations, those of used grammars too.
    pub enums: Vec<Enum>,
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
    /// `min(a, b)`.
    Min,
    /// `max(a, b)`.
    Max,
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
    /// `message => channel`, of type `Nothing`.
    Send {
        /// What.
        message: Box<Expr>,
        /// Where to.
        channel: Box<Expr>,
    },
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
