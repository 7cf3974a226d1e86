//! Task graphs and code as data: functions of blocks of instructions over 64-bit values, in SSA form.
//! Promises: everything an engine needs is here; nothing points into the source but spans.
//! Refuses: types wider than a word. A bytes value is a packed reference, a message is its frame.
//! Source: block parameters instead of phi nodes, as Cranelift and MLIR do; FLICK §4.3, §5 for the graph.

use flick_abi::{FuncId, Program};

/// A whole program: what the platform sees, and the code behind its function numbers.
#[derive(Clone, Debug)]
pub struct Module {
    /// What the platform sees.
    pub program: Program,
    /// Code, by `FuncId`.
    pub functions: Vec<Function>,
    /// All constant bytes, back to back (the const region).
    pub consts: Vec<u8>,
}

/// What a function is for; decides its parameters and which instructions it may use.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FuncKind {
    /// Params `(frame, int len)`; ends in `Done`, `Fault` or `Need`; reads the message with `Load`.
    Parser,
    /// Params `(frame, uint source_element)`; ends in `Return` of nothing; may `Send` and `Emit`.
    Rule,
    /// A function of the program, called by rules and other functions; may `Send` and `Emit`.
    Helper,
    /// Params `(frame)`; emits one whole reply of the platform and returns nothing.
    Builder,
}

/// Type of a value. Every value is one 64-bit word.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Type {
    /// Signed 64-bit integer (all narrower ones too, extended).
    Int,
    /// Unsigned 64-bit integer.
    Uint,
    /// 0 or 1.
    Bool,
    /// A packed `BytesRef`.
    Bytes,
    /// A message: the frame under way. There is one per activation; updates are resolved by lowering.
    Frame,
    /// A channel: bits 0..16 its index in `Program::channels`, bits 16..64 the element (0 where none was picked;
    /// `ChanElem` saturates an index that does not fit, which is outside every array).
    Chan,
}

/// A value, by index in `Function::values`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Value(pub u32);

/// A block, by index in `Function::blocks`. Block 0 is the entry; its parameters are the function's.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct BlockId(pub u32);

/// Where an instruction comes from: file number and byte offset in it; used by the bounds report.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct Origin {
    /// Index of the source file, as the checker numbers them.
    pub file: u32,
    /// Byte offset.
    pub offset: u32,
}

/// One function.
#[derive(Clone, Debug)]
pub struct Function {
    /// Name for people: `parse_request.client`, `rule.1`, `target_backend`.
    pub name: String,
    /// What it is for.
    pub kind: FuncKind,
    /// Types of its results (helpers only; at most one).
    pub results: Vec<Type>,
    /// Type of each value.
    pub values: Vec<Type>,
    /// Blocks; the first is the entry.
    pub blocks: Vec<Block>,
}

/// A straight run of instructions.
#[derive(Clone, Debug)]
pub struct Block {
    /// Parameters.
    pub params: Vec<Value>,
    /// Instructions.
    pub insts: Vec<Inst>,
    /// How it ends.
    pub end: Terminator,
}

/// One instruction.
#[derive(Clone, Debug, PartialEq)]
pub struct Inst {
    /// What it defines, if anything.
    pub result: Option<Value>,
    /// What it does.
    pub op: Op,
    /// Where it comes from.
    pub origin: Origin,
}

/// Two-operand operations. Arithmetic wraps at 64 bits; `Div` and `Mod` of the language are floored and a zero
/// divisor gives 0 (the checker asks the author to exclude it, so this is only what the engines agree on).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Binary {
    /// Wrapping sum.
    Add,
    /// Wrapping difference.
    Sub,
    /// Wrapping product.
    Mul,
    /// Signed floored quotient; by zero 0; `MIN / -1` wraps to `MIN`.
    DivS,
    /// Unsigned quotient; by zero 0.
    DivU,
    /// Signed floored remainder (sign of the divisor); by zero 0.
    ModS,
    /// Unsigned remainder; by zero 0.
    ModU,
    /// Equal (integers, booleans).
    Eq,
    /// Different.
    Ne,
    /// Signed less.
    LtS,
    /// Signed less or equal.
    LeS,
    /// Unsigned less.
    LtU,
    /// Unsigned less or equal.
    LeU,
    /// Both (booleans).
    And,
    /// Either (booleans).
    Or,
    /// Smaller, signed.
    MinS,
    /// Larger, signed.
    MaxS,
    /// Smaller, unsigned.
    MinU,
    /// Larger, unsigned.
    MaxU,
}

/// What an instruction does.
#[derive(Clone, Debug, PartialEq)]
pub enum Op {
    /// An integer, boolean or channel constant (type of the result says which).
    Const(i64),
    /// Constant bytes: a range of `Module::consts`.
    ConstBytes {
        /// Start.
        offset: u32,
        /// Length.
        len: u32,
    },
    /// Two operands.
    Binary(Binary, Value, Value),
    /// Boolean not.
    Not(Value),
    /// `a` if `cond`, else `b`.
    Select {
        /// Condition.
        cond: Value,
        /// Then.
        a: Value,
        /// Else.
        b: Value,
    },
    /// Length of a bytes value.
    Len(Value),
    /// The frozen hash of a bytes value (`Uint`).
    HashBytes(Value),
    /// The frozen hash of an integer: of its 8 little-endian bytes (`Uint`).
    HashInt(Value),
    /// Whether two bytes values are equal.
    BytesEq(Value, Value),
    /// Whether the first starts with the second.
    BytesStartsWith(Value, Value),
    /// Whether the first ends with the second.
    BytesEndsWith(Value, Value),
    /// Whether the first contains the second.
    BytesContains(Value, Value),
    /// Whether the first sorts before the second, byte by byte.
    BytesLess(Value, Value),
    /// Reads a slot of the frame (result type as declared).
    FrameGet {
        /// Slot number.
        slot: u16,
    },
    /// Writes a slot of the frame (parsers only).
    FrameSet {
        /// Slot number.
        slot: u16,
        /// What.
        value: Value,
    },
    /// Reads an integer of the message at `base + offset` (parsers only). A dominating `Need` with the same
    /// base must cover it; the verifier checks that.
    Load {
        /// Where the segment starts; `None`: 0.
        base: Option<Value>,
        /// Offset in the segment.
        offset: u32,
        /// 1, 2, 4 or 8.
        width_bytes: u8,
        /// Byte order.
        big_endian: bool,
        /// Extend the sign.
        signed: bool,
    },
    /// A bytes value `[start, end)` of the message (parsers only). A dominating `Need` with base `end` must
    /// cover it.
    MessageBytes {
        /// Start.
        start: Value,
        /// End.
        end: Value,
    },
    /// Elements of a channel (`Int`).
    ChanLen(Value),
    /// Element of an array of channels, for a send.
    ChanElem {
        /// The array.
        chan: Value,
        /// Which; any value, the platform answers for a missing element.
        index: Value,
    },
    /// Calls a helper.
    Call {
        /// Which.
        func: FuncId,
        /// Arguments.
        args: Vec<Value>,
    },
    /// Sends the original message to a channel.
    SendOriginal {
        /// Where to.
        chan: Value,
    },
    /// Remembers the end of the activation's output (`Int`): where a rebuilt head starts.
    OutMark,
    /// Appends an integer to the activation's output.
    EmitInt {
        /// What; the bits beyond the width are dropped.
        value: Value,
        /// 1, 2, 4 or 8.
        width_bytes: u8,
        /// Byte order.
        big_endian: bool,
    },
    /// Appends bytes to the activation's output.
    EmitBytes {
        /// What.
        value: Value,
    },
    /// Appends `[start, end)` of the original message's head to the activation's output.
    EmitMessage {
        /// Start in the message.
        start: Value,
        /// End in the message.
        end: Value,
    },
    /// Sends what was emitted since `mark`, then, if `tail_from` is given, the message from there to its end.
    SendRebuilt {
        /// Where to.
        chan: Value,
        /// Result of an `OutMark`.
        mark: Value,
        /// Offset in the message.
        tail_from: Option<Value>,
    },
}

/// How a block ends.
#[derive(Clone, Debug, PartialEq)]
pub enum Terminator {
    /// Goes to a block.
    Jump(BlockId, Vec<Value>),
    /// Two ways.
    Branch {
        /// Condition.
        cond: Value,
        /// If true.
        then: (BlockId, Vec<Value>),
        /// If false.
        otherwise: (BlockId, Vec<Value>),
    },
    /// Many ways.
    Switch {
        /// What decides.
        value: Value,
        /// Cases; each target takes no parameters.
        cases: Vec<(i64, BlockId)>,
        /// Otherwise; takes no parameters.
        default: BlockId,
    },
    /// Parsers: goes on at `then` if the message has at least `base + bytes` bytes; else stores `state` in the
    /// frame's state slot and returns `NeedMore(base + bytes)`. Called again, the parser's entry switches on the
    /// state slot.
    Need {
        /// First summand; `None`: 0. Never negative.
        base: Option<Value>,
        /// Second summand.
        bytes: u32,
        /// Where to go on; takes no parameters.
        then: BlockId,
        /// State to resume in.
        state: u32,
    },
    /// Parsers: the head is complete.
    Done,
    /// Parsers: not of this grammar.
    Fault {
        /// Index of the field.
        field: u32,
        /// See `flick_abi::Step::Fault`.
        cause: u32,
    },
    /// End of a rule, helper or builder.
    Return(Vec<Value>),
}
