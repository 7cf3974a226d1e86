//! Task graphs and code as data: functions of blocks of instructions over 64-bit values, in SSA form.
//! Promises: everything an engine needs is here; nothing points into the source but spans.
//! Refuses: types wider than a word. A bytes value is a packed reference, a message is its frame.
//! Source: block parameters instead of phi nodes, as Cranelift and MLIR do; FLICK §4.3, §5 for the graph.

mod advance;

use std::collections::BTreeMap;

use flick_abi::FaultCause;
use flick_abi::{FuncId, HostCall, Program};

pub use advance::Advance;

/// A whole program: what the platform sees, and the code behind its function numbers.
#[derive(Clone, Debug)]
pub struct Module {
    /// The program as the platform sees it.
    pub program: Program,
    /// Code, by `FuncId`.
    pub functions: Vec<Function>,
    /// All constant bytes, back to back (the const region).
    pub consts: Vec<u8>,
    /// Sets of bytes, by number: bit `b % 64` of word `b / 64` is byte `b`.
    pub classes: Vec<[u64; 4]>,
}

/// The purpose of a function; decides its parameters and which instructions it may use.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FuncKind {
    /// Params `(frame, int len)`; ends in `Done`, `Fault` or `Need`; reads the message with `Load`.
    Parser,
    /// Params `(frame, uint source_element)`; ends in `Return` of nothing; may `Send` and `Emit`.
    Rule,
    /// A function of the program, called by rules and other functions; may `Send` and `Emit`.
    Helper,
    /// Params `(frame)`; emits one whole reply of the platform and returns nothing. What it formats or joins is
    /// emitted by that: all of its output is the reply.
    Builder,
    /// Params `(frame)`, the frame of message 0; compares messages 0 and 1 and returns one `Int`: below, at or above 0.
    /// May read only.
    Order,
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
    /// A message of this activation by number: 0 the one that started it, then replies to asks (or the second element
    /// of a merge). The engines check it.
    Message,
    /// A message: the frame of this activation. There is one per activation; updates are resolved by lowering.
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

/// The source location of an instruction: file number and byte offset; used by the bounds report.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct SourceOrigin {
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
    /// Its purpose.
    pub kind: FuncKind,
    /// Types of its results (helpers only; at most one).
    pub results: Vec<Type>,
    /// Type of each value.
    pub values: Vec<Type>,
    /// Most bytes of `Bytes` values, where that is known from more than the operations.
    pub lengths: BTreeMap<Value, u32>,
    /// Blocks; the first is the entry.
    pub blocks: Vec<Block>,
}

impl Function {
    /// Whether it may wait for replies.
    pub fn suspends(&self) -> bool {
        self.blocks.iter().any(|block| matches!(block.end, Terminator::Suspend { .. }))
    }

    /// Returns the number of its instructions and terminators.
    pub fn size(&self) -> usize {
        self.blocks.iter().map(|block| block.insts.len() + 1).sum()
    }
}

/// A straight run of instructions.
#[derive(Clone, Debug)]
pub struct Block {
    /// Parameters.
    pub params: Vec<Value>,
    /// `Some(n)`: the block is the head of a loop, entered from outside and at most `n` times again from inside for
    /// each time from outside. Every cycle passes through such a block, which dominates the rest of the cycle.
    pub trips_max: Option<u32>,
    /// Of the head of such a loop in a parser: how its rounds get on in the message.
    pub advance: Option<Advance>,
    /// Instructions.
    pub insts: Vec<Inst>,
    /// Its terminator.
    pub end: Terminator,
}

/// One instruction.
#[derive(Clone, Debug, PartialEq)]
pub struct Inst {
    /// The value that it defines, if any.
    pub result: Option<Value>,
    /// Its operation.
    pub op: Op,
    /// Its source location.
    pub origin: SourceOrigin,
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
    /// Bits set in both (integers).
    BitAnd,
    /// Bits set in either (integers).
    BitOr,
    /// Smaller, signed.
    MinS,
    /// Larger, signed.
    MaxS,
    /// Smaller, unsigned.
    MinU,
    /// Larger, unsigned.
    MaxU,
}

/// The transforms of [`Op::Transform`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Transform {
    /// `%41` becomes `A` (RFC 3986 §2.1); missing where two hexadecimal digits do not follow a `%`.
    PercentDecode,
    /// Every byte but letters, digits and `-._~` becomes `%` and two digits in upper case (RFC 3986 §2.1).
    PercentEncode,
    /// RFC 4648 §4; missing where the text is not what `Base64Encode` gives.
    Base64Decode,
    /// RFC 4648 §4, with padding.
    Base64Encode,
}

/// The form of the lines that [`Op::Lines`] skips: a name, a separator, a value and an end.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LineForm {
    /// Class of a name's bytes, of which there is at least one.
    pub name: u32,
    /// Most bytes of a name.
    pub name_max: u32,
    /// The byte behind a name.
    pub separator: u8,
    /// Class of bytes of which there are not two behind the separator.
    pub blanks: u32,
    /// Class of a value's bytes.
    pub value: u32,
    /// The bytes that end a line, 1 or 2: a range of `Module::consts` (start, length).
    pub end: (u32, u32),
    /// Most bytes of a line.
    pub max: u32,
    /// The place that no line goes beyond.
    pub upto: u32,
    /// A value is kept without blanks at its ends, as `Op::Trim` leaves it.
    pub trim: bool,
    /// Letters of either case are one in names.
    pub nocase: bool,
    /// Each line, its end included, is appended to the items of the frame; without room it is left.
    pub push: bool,
    /// Names for which something happens.
    pub keys: Vec<LineKey>,
}

/// A name for which something happens when [`Op::Lines`] meets its line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LineKey {
    /// The name: a range of `Module::consts` (start, length).
    pub name: (u32, u32),
    /// The action.
    pub does: LineDoes,
}

/// The action of [`Op::Lines`] on a line of a known name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LineDoes {
    /// Nothing: it goes no further.
    Stop,
    /// Keeps the value of the first such line in a slot, which is missing until then.
    Keep {
        /// The slot (`Bytes`).
        slot: u16,
        /// It goes no further than to a second one.
        once: bool,
        /// Each such line is cut out of what is forwarded; without room it goes no further.
        cut: bool,
    },
    /// Cuts each such line; without room it goes no further.
    Cut,
}

/// The operation of an instruction.
#[derive(Clone, Debug, PartialEq)]
pub enum Op {
    /// An integer, boolean or channel constant (type of the result says which); for `Bytes` -1, which is missing.
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
    /// The offset of a bytes value in its region (`Int`), for instance in a message.
    BytesOffset(Value),
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
        /// Value to write.
        value: Value,
    },
    /// Reads an integer of the message at `base + offset` (parsers only). A dominating `Need` with the same
    /// base must cover it; the verifier checks that.
    Load {
        /// The start of the segment; `None`: 0.
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
    /// The end of the longest run of bytes of a class (`Int`): the first place from `from` on, at most `max` bytes
    /// behind it and never behind the end of what is there, whose byte is not of the class (parsers only).
    ScanRun {
        /// The start; a position behind the end of the message counts as its end.
        from: Value,
        /// Index in `Module::classes`.
        class: u32,
        /// The largest number of bytes to look at.
        max: u32,
    },
    /// The first position (`Int`) from `from` on where constant bytes begin; without one, the first where they may
    /// still begin (parsers only). At most `max + 1` bytes behind `from` and never behind the end of what is there;
    /// so `position - from > max` says that they do not begin in time, and `position + len` beyond the message that
    /// it goes on.
    Seek {
        /// The start; a position behind the end of the message counts as its end.
        from: Value,
        /// The needle: a range of `Module::consts`.
        offset: u32,
        /// Its length, 1 to 16 bytes.
        len: u32,
        /// The largest distance from `from` to its first byte.
        max: u32,
    },
    /// Skips whole lines from `from` on, at most `left`, and does for each what its name asks for (parsers only).
    /// `Int`: the position behind the last one, plus `2^32` for each. Stops at a line of another form, at an
    /// incomplete one, and at one that the parser itself has to handle.
    Lines {
        /// The start of the first one; a position behind the end of the message counts as its end.
        from: Value,
        /// The largest number (`Int`).
        left: Value,
        /// Their form.
        form: Box<LineForm>,
    },
    /// Appends a `Bytes` value to the items of the frame (parsers only). More than `ITEMS_MAX` are a broken invariant.
    ItemPush(Value),
    /// Cuts `[start, end)` out of what is forwarded of the message (parsers only). `Bool`: whether there was room for
    /// another cut. A dominating `Need` with base `end` must cover it.
    Cut {
        /// Start.
        start: Value,
        /// End.
        end: Value,
    },
    /// Cuts out each line (with its CRLF) of `[start, end)` whose name, up to its first `:`, is a token of a list
    /// with commas, in any case (parsers only). `Bool`: whether there was room, and neither more lines than `lines_max`
    /// nor more tokens than `LISTED_NAMES_MAX`. A dominating `Need` with base `end` must cover it.
    CutListed {
        /// The list (`Bytes`).
        names: Value,
        /// Start.
        start: Value,
        /// End.
        end: Value,
        /// The largest number of lines.
        lines_max: u32,
    },
    /// Adds a text to what is forwarded of the message (parsers only). `Bool`: whether there was room for it.
    Insert {
        /// Position: the byte of the message in front of which the text stands.
        at: Value,
        /// The text (`Bytes`).
        text: Value,
    },
    /// Items `[from, from + count)` of a message's frame, as far as it has them, as a list of words in the output; each
    /// a reference into that message.
    Items {
        /// The message; `None`: number 0.
        message: Option<Value>,
        /// First item (`Int`).
        from: Value,
        /// The number (`Int`); counted as `count_max` if more, as 0 if negative.
        count: Value,
        /// Bound.
        count_max: u32,
    },
    /// All bytes of a message that are forwarded (`Bytes`); missing where it is not there as a whole. Of a message with
    /// cuts or inserted texts a copy in the output.
    Whole {
        /// The message; `None`: number 0.
        message: Option<Value>,
    },
    /// Whether the second is an item of the list with commas that the first is, in any case (`Bool`). Spaces and tabs
    /// around items do not count; an empty one is never found. A missing list has none.
    HasToken(Value, Value),
    /// Makes new bytes in the output; missing where the old ones are not of the form.
    Transform {
        /// Transform to apply.
        kind: Transform,
        /// The bytes.
        bytes: Value,
        /// Longest result; a longer one is a broken invariant.
        max_bytes: u32,
    },
    /// Whether a field may hold the bytes (`Bool`): each is of the class, and what ends the field, written behind
    /// them, is not found before their end.
    Guard {
        /// The bytes.
        bytes: Value,
        /// Index in `Module::classes`.
        class: Option<u32>,
        /// The needle, 1 to 16 bytes: a range of `Module::consts` (start, length).
        without: Option<(u32, u32)>,
    },
    /// Elements of a channel (`Int`).
    ChanLen(Value),
    /// Element of an array of channels, for a send.
    ChanElem {
        /// The array.
        chan: Value,
        /// Index of the element; any value, the platform answers for a missing element.
        index: Value,
    },
    /// Calls a helper.
    Call {
        /// The helper.
        func: FuncId,
        /// Arguments.
        args: Vec<Value>,
    },
    /// Sends the original message to a channel.
    SendOriginal {
        /// The channel.
        chan: Value,
    },
    /// Remembers the end of the activation's output (`Int`): where a rebuilt head starts.
    OutMark,
    /// Whether the output has capacity for `bytes`, besides all that the rule may build elsewhere (`Bool`). The
    /// blocks that a branch on it dominates build no more than that.
    HasCapacity {
        /// The number of bytes; `bounds::fill_capacity_checks` computes it.
        bytes: u32,
    },
    /// The bytes that were appended to the output since a mark (`Bytes`).
    Written {
        /// Result of an `OutMark`.
        mark: Value,
        /// Longest result.
        max_bytes: u32,
    },
    /// Appends an integer to the activation's output.
    EmitInt {
        /// The integer; the bits beyond the width are dropped.
        value: Value,
        /// 1, 2, 4 or 8.
        width_bytes: u8,
        /// Byte order.
        big_endian: bool,
    },
    /// Appends bytes to the activation's output.
    EmitBytes {
        /// The bytes.
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
        /// The channel.
        chan: Value,
        /// Result of an `OutMark`.
        mark: Value,
        /// Offset in the message.
        tail_from: Option<Value>,
        /// The message that `tail_from` means (`Message`); `None`: number 0.
        tail_of: Option<Value>,
    },
    /// Sends another message of this activation, unchanged.
    SendMessage {
        /// The channel.
        chan: Value,
        /// The message (`Message`).
        message: Value,
    },
    /// Appends `[start, end)` of another message of this activation to the activation's output.
    EmitMessageOf {
        /// The message (`Message`).
        message: Value,
        /// Start in it.
        start: Value,
        /// End in it.
        end: Value,
    },
    /// Reads a slot of the frame of any message of this activation. A `Bytes` slot becomes a reference into that
    /// message.
    MessageGet {
        /// The message (`Message`).
        message: Value,
        /// Slot number.
        slot: u16,
    },
    /// Joins bytes in the activation's output. `Bytes`.
    Concat {
        /// In order.
        parts: Vec<Value>,
        /// Longest result; a longer one is a broken invariant.
        max_bytes: u32,
    },
    /// Writes a number in digits, lower case, without leading zeros; in base 10 with its sign if it has one, in base 16
    /// its 64 bits. `Bytes` in the output, at most 20.
    FormatInt {
        /// `Int` or `Uint`: operations, not values, know about signs.
        value: Value,
        /// Whether the number may be negative.
        signed: bool,
        /// 10 or 16.
        base: u8,
    },
    /// Writes an address as people do: 16 bytes, or 18 with a port behind it; IPv4 mapped into IPv6 with dots, IPv6
    /// with a port in brackets. `Bytes` in the output, at most 47; of any other length empty.
    FormatAddress(Value),
    /// Whether all of the bytes are a number within `int64`: base 10 with an optional `-`, or base 16 of 1 to 16
    /// digits.
    IsInt {
        /// `Bytes`.
        bytes: Value,
        /// 10 or 16.
        base: u8,
    },
    /// The number (`Int`), 0 where `IsInt` does not hold; 16 hexadecimal digits give their 64 bits.
    ParseInt {
        /// `Bytes`.
        bytes: Value,
        /// 10 or 16.
        base: u8,
    },
    /// Bytes `[start, end)`, both first clamped to `0..=len`, then `end` to at least `start`.
    Slice {
        /// `Bytes`.
        bytes: Value,
        /// `Int`.
        start: Value,
        /// `Int`.
        end: Value,
    },
    /// The byte at an index (`Int`); -1 outside.
    ByteAt {
        /// `Bytes`.
        bytes: Value,
        /// `Int`.
        index: Value,
    },
    /// The first position of the second in the first (`Int`), or -1.
    Find(Value, Value),
    /// Cuts bytes at a separator into at most `max` parts, the last with the rest: a list of `Bytes` words in the
    /// output. An empty separator gives one part.
    Split {
        /// `Bytes`.
        bytes: Value,
        /// `Bytes`.
        separator: Value,
        /// Parts at most, 1 to 1024.
        max: u32,
    },
    /// ASCII letters in lower or upper case, in the output.
    Case {
        /// `Bytes`.
        bytes: Value,
        /// Upper instead of lower.
        upper: bool,
        /// Longest operand.
        max_bytes: u32,
    },
    /// Without spaces, tabs, CR and LF at both ends.
    Trim(Value),
    /// Whether both are equal but for the case of ASCII letters.
    SameText(Value, Value),
    /// New words in the output, all zero: `Bytes` of 8 times `words` bytes. The start of a list.
    WordsNew {
        /// `Int`, 0 to `words_max`.
        words: Value,
        /// Bound.
        words_max: u32,
    },
    /// The little-endian word at `8 * index` (type of the result: any one-word type but `Frame`); outside it is 0.
    WordGet {
        /// `Bytes`.
        bytes: Value,
        /// `Int`.
        index: Value,
    },
    /// Writes a word of bytes made by `WordsNew`; outside is a broken invariant.
    WordSet {
        /// `Bytes` in the output.
        bytes: Value,
        /// `Int`.
        index: Value,
        /// Any one-word type but `Frame`.
        value: Value,
    },
    /// Values as bytes that stand alone, in the output: a word for each item, then the bytes of `Bytes` items; the
    /// word of such an item is its length in bits 0..32 and its offset from the start in bits 32..64.
    Pack {
        /// One-word types but `Frame`, `Chan` and `Message`.
        items: Vec<Value>,
        /// Longest result.
        max_bytes: u32,
    },
    /// The bytes item at an index of packed bytes; empty when out of range in any way. (Words: `WordGet`.)
    PackedBytes {
        /// `Bytes`.
        packed: Value,
        /// Index of the item.
        index: u32,
    },
    /// Reads a word of the session's state (`Int`, `Uint` or `Bool`).
    StateLoad {
        /// Index of the word.
        word: u32,
    },
    /// Writes a word of the session's state.
    StateStore {
        /// Index of the word.
        word: u32,
        /// Value to write.
        value: Value,
    },
    /// Reads bytes of the session's state into the output: the word at `word` is the length, the bytes follow.
    StateLoadBytes {
        /// Index of the word with the length.
        word: u32,
        /// The largest number.
        max_bytes: u32,
    },
    /// Writes bytes of the session's state; more than `max_bytes` is a broken invariant.
    StateStoreBytes {
        /// Index of the word with the length.
        word: u32,
        /// The largest number.
        max_bytes: u32,
        /// `Bytes`.
        value: Value,
    },
    /// Asks: sends the original message to a channel; the reply is for this activation. The next `Suspend` waits for
    /// it.
    AskOriginal {
        /// The channel.
        chan: Value,
        /// `Int`, nanoseconds; not above 0: as long as the platform waits for any reply.
        timeout_ns: Value,
    },
    /// Asks with what was emitted since `mark`, as `SendRebuilt`.
    AskRebuilt {
        /// The channel.
        chan: Value,
        /// Result of an `OutMark`.
        mark: Value,
        /// Offset in the message.
        tail_from: Option<Value>,
        /// As for `SendRebuilt`.
        tail_of: Option<Value>,
        /// As for `AskOriginal`.
        timeout_ns: Value,
    },
    /// Asks with another message of this activation, unchanged.
    AskMessage {
        /// The channel.
        chan: Value,
        /// The message (`Message`).
        message: Value,
        /// As for `AskOriginal`.
        timeout_ns: Value,
    },
    /// Answer to the `index`th ask (`Int`) of the last suspension: the number of a message, or `-1 - FailureReason`.
    Answer {
        /// `Int`; outside: `-1`.
        index: Value,
    },
    /// An `Int` that is not below 0 as a message's number.
    AsMessage(Value),
    /// The client's request fails for this reason (`Int`, a `FailureReason`) when the activation ends; unless it was
    /// answered.
    Fail {
        /// `Int`.
        reason: Value,
    },
    /// State of the suspension that is being resumed (`Int`), 0 at the start. Made by the spill pass only.
    ResumeState,
    /// Keeps a word across a suspension. Made by the spill pass only.
    SpillSet {
        /// Index of the slot, below `SPILL_WORDS_MAX`.
        slot: u16,
        /// Any one-word type but `Frame`.
        value: Value,
    },
    /// The word kept.
    SpillGet {
        /// Index of the slot.
        slot: u16,
    },
    /// Whether a `Bytes` value is missing.
    IsMissing(Value),
    /// Asks the platform. Types of arguments and result: see `flick_abi::HostCall`.
    Host {
        /// The call.
        call: HostCall,
        /// Arguments.
        args: Vec<Value>,
        /// Longest `Bytes` result.
        max_bytes: u32,
    },
}

/// The end of a block.
#[derive(Clone, Debug, PartialEq)]
pub enum Terminator {
    /// Goes to a block.
    Jump(BlockId, Vec<Value>),
    /// Goes to one of two blocks.
    Branch {
        /// Condition.
        cond: Value,
        /// If true.
        then: (BlockId, Vec<Value>),
        /// If false.
        otherwise: (BlockId, Vec<Value>),
    },
    /// Goes to one of many blocks.
    Switch {
        /// The value that decides.
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
        /// The next block; it takes no parameters.
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
        /// See `flick_abi::ParseStep::Fault`.
        cause: FaultCause,
    },
    /// Rules: gives way until all asks since the start or the last suspension are answered, then goes on at `then`,
    /// which has no other way in. Only in rules themselves, never in helpers.
    Suspend {
        /// Takes no parameters.
        then: BlockId,
        /// Numbered from 1 in each rule.
        state: u32,
    },
    /// End of a rule, helper, builder or order.
    Return(Vec<Value>),
}
