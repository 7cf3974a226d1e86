//! Writes one IR function, block by block, and keeps the constant bytes of the module.
//! Promises: every block it hands back is ended exactly once; a value's type is known when it is made.
//! Refuses: to check what the verifier checks (dominance, coverage of loads); it only keeps the books.

use std::collections::{BTreeMap, HashMap};

use flick_abi::FuncId;
use flick_ir::data::{
    Advance, Binary, Block, BlockId, FuncKind, Function, Inst, Op, SourceOrigin, Terminator, Type, Value,
};

use crate::limits::FUNCTION_INSTS_MAX;

/// All constant bytes of a module; equal strings are kept once.
#[derive(Debug, Default)]
pub struct ConstPool {
    bytes: Vec<u8>,
    known: HashMap<Vec<u8>, u32>,
    classes: Vec<[u64; 4]>,
}

impl ConstPool {
    /// The place of `text`.
    pub fn intern(&mut self, text: &[u8]) -> Op {
        let len = u32::try_from(text.len()).expect("the lexer bounds string literals");
        let offset = *self.known.entry(text.to_vec()).or_insert_with(|| {
            let offset = u32::try_from(self.bytes.len()).expect("source text is bounded, so its strings are");
            self.bytes.extend_from_slice(text);
            offset
        });
        Op::ConstBytes { offset, len }
    }

    /// The number of a set of bytes.
    pub fn class(&mut self, set: [u64; 4]) -> u32 {
        let known = self.classes.iter().position(|known| *known == set);
        let index = known.unwrap_or_else(|| {
            self.classes.push(set);
            self.classes.len() - 1
        });
        u32::try_from(index).expect("source text is bounded, so its classes are")
    }

    /// All sets of bytes.
    pub fn classes(&self) -> &[[u64; 4]] {
        &self.classes
    }

    /// The bytes at a place.
    pub fn at(&self, (offset, len): (u32, u32)) -> &[u8] {
        &self.bytes[offset as usize..(offset + len) as usize]
    }

    /// The const region.
    pub fn into_bytes(self) -> Vec<u8> {
        self.bytes
    }
}

/// A function under construction.
#[derive(Debug)]
pub struct FunctionBuilder {
    name: String,
    kind: FuncKind,
    results: Vec<Type>,
    values: Vec<Type>,
    lengths: BTreeMap<Value, u32>,
    constant_bytes: HashMap<Value, (u32, u32)>,
    blocks: Vec<OpenBlock>,
    current: BlockId,
    origin: SourceOrigin,
    insts: usize,
}

/// A block whose end may not be known yet.
#[derive(Debug, Default)]
struct OpenBlock {
    params: Vec<Value>,
    trips_max: Option<u32>,
    advance: Option<Advance>,
    insts: Vec<Inst>,
    end: Option<Terminator>,
}

impl FunctionBuilder {
    /// Starts a function with these parameters and an open entry block.
    pub fn new(name: impl Into<String>, kind: FuncKind, params: &[Type], results: Vec<Type>) -> Self {
        let mut builder = Self {
            name: name.into(),
            kind,
            results,
            values: Vec::new(),
            lengths: BTreeMap::new(),
            constant_bytes: HashMap::new(),
            blocks: Vec::new(),
            current: BlockId(0),
            origin: SourceOrigin::default(),
            insts: 0,
        };
        let entry = builder.new_block(params);
        builder.go_on_in(entry);
        builder
    }

    /// Sets where the next instructions come from.
    pub fn set_origin(&mut self, origin: SourceOrigin) {
        self.origin = origin;
    }

    /// Returns the location in the source that the next instructions get.
    pub fn origin(&self) -> SourceOrigin {
        self.origin
    }

    /// A new block with parameters of these types.
    pub fn new_block(&mut self, params: &[Type]) -> BlockId {
        let params = params.iter().map(|&ty| self.new_value(ty)).collect();
        self.blocks.push(OpenBlock { params, ..OpenBlock::default() });
        BlockId((self.blocks.len() - 1) as u32)
    }

    /// A new block that heads a loop of at most `trips_max` trips.
    pub fn new_loop(&mut self, params: &[Type], trips_max: u32) -> BlockId {
        let head = self.new_block(params);
        self.blocks[head.0 as usize].trips_max = Some(trips_max);
        head
    }

    /// Says that a `Bytes` value has at most that many bytes; of several such numbers the largest holds.
    pub fn bound_length(&mut self, value: Value, max: u32) {
        let known = self.lengths.entry(value).or_insert(max);
        *known = max.max(*known);
    }

    /// Says how the rounds of a loop get on in the message.
    pub fn set_advance(&mut self, head: BlockId, advance: Option<Advance>) {
        self.blocks[head.0 as usize].advance = advance;
    }

    /// The parameters of a block.
    pub fn params(&self, block: BlockId) -> &[Value] {
        &self.blocks[block.0 as usize].params
    }

    /// The block that instructions go to.
    pub fn current(&self) -> BlockId {
        self.current
    }

    /// Sends the following instructions to an open block.
    pub fn go_on_in(&mut self, block: BlockId) {
        assert!(self.blocks[block.0 as usize].end.is_none(), "a block that has ended takes no instructions");
        self.current = block;
    }

    /// Ends the current block.
    pub fn end(&mut self, end: Terminator) {
        let block = &mut self.blocks[self.current.0 as usize];
        assert!(block.end.is_none(), "a block ends once");
        block.end = Some(end);
    }

    /// Type of a value.
    pub fn type_of(&self, value: Value) -> Type {
        self.values[value.0 as usize]
    }

    /// Appends an instruction that defines a value.
    pub fn define(&mut self, ty: Type, op: Op) -> Value {
        let result = self.new_value(ty);
        if let Op::ConstBytes { offset, len } = op {
            self.constant_bytes.insert(result, (offset, len));
        }
        self.append(Some(result), op);
        result
    }

    /// Appends an instruction for its effect.
    pub fn effect(&mut self, op: Op) {
        self.append(None, op);
    }

    /// The place in the output of a value that the current block has just joined there: it need not be copied to be
    /// sent. `None` where the output has grown since, or may have, and of other values.
    pub fn mark_before(&mut self, value: Value) -> Option<Value> {
        let insts = &self.blocks[self.current.0 as usize].insts;
        let is_constant = |inst: &&Inst| matches!(inst.op, Op::Const(_) | Op::ConstBytes { .. });
        let behind = insts.iter().rev().take_while(is_constant).count();
        let at = (insts.len() - behind).checked_sub(1)?;
        let Inst { result, op, origin } = &insts[at];
        let (Some(joined), Op::Concat { .. }, origin) = (*result, op, *origin) else { return None };
        if joined != value {
            return None;
        }
        let mark = self.new_value(Type::Int);
        let block = &mut self.blocks[self.current.0 as usize];
        block.insts.insert(at, Inst { result: Some(mark), op: Op::OutMark, origin });
        Some(mark)
    }

    /// A signed constant.
    pub fn int(&mut self, value: i64) -> Value {
        self.define(Type::Int, Op::Const(value))
    }

    /// A truth constant.
    pub fn bool(&mut self, value: bool) -> Value {
        self.define(Type::Bool, Op::Const(i64::from(value)))
    }

    /// Whether a value is constant bytes that are there.
    pub fn is_constant_bytes(&self, value: Value) -> bool {
        self.constant_bytes.contains_key(&value)
    }

    /// The range of the constants that a value is.
    pub fn constant_range(&self, value: Value) -> Option<(u32, u32)> {
        self.constant_bytes.get(&value).copied()
    }

    /// A two-operand instruction.
    pub fn binary(&mut self, ty: Type, op: Binary, a: Value, b: Value) -> Value {
        self.define(ty, Op::Binary(op, a, b))
    }

    /// A message of this activation by a constant number.
    pub fn message(&mut self, number: i64) -> Value {
        let number = self.int(number);
        self.define(Type::Message, Op::AsMessage(number))
    }

    /// 1 or 0 for a boolean.
    pub fn bool_to_int(&mut self, value: Value) -> Value {
        let (a, b) = (self.int(1), self.int(0));
        self.define(Type::Int, Op::Select { cond: value, a, b })
    }

    /// Ends the current block towards `target`.
    pub fn jump(&mut self, target: BlockId, args: Vec<Value>) {
        self.end(Terminator::Jump(target, args));
    }

    /// Ends the current block two ways, to blocks without parameters.
    pub fn branch_to(&mut self, cond: Value, then: BlockId, otherwise: BlockId) {
        self.end(Terminator::Branch { cond, then: (then, Vec::new()), otherwise: (otherwise, Vec::new()) });
    }

    /// The finished function. Panics when a block has no end.
    pub fn finish(self) -> Function {
        let name = self.name;
        let blocks = self
            .blocks
            .into_iter()
            .map(|block| Block {
                params: block.params,
                trips_max: block.trips_max,
                advance: block.advance,
                insts: block.insts,
                end: block.end.unwrap_or_else(|| panic!("every block of `{name}` ends")),
            })
            .collect();
        Function {
            name,
            kind: self.kind,
            results: self.results,
            values: self.values,
            lengths: self.lengths,
            blocks,
        }
    }

    fn new_value(&mut self, ty: Type) -> Value {
        self.values.push(ty);
        Value((self.values.len() - 1) as u32)
    }

    fn append(&mut self, result: Option<Value>, op: Op) {
        self.insts += 1;
        assert!(self.insts <= FUNCTION_INSTS_MAX, "the checker bounds the work of `{}`", self.name);
        let block = &mut self.blocks[self.current.0 as usize];
        assert!(block.end.is_none(), "a block that has ended takes no instructions");
        block.insts.push(Inst { result, op, origin: self.origin });
    }
}

/// Sends every call of `functions` to the new number of its callee. Panics when the callee was dropped.
pub fn renumber_calls(functions: &mut [Function], new_ids: &HashMap<FuncId, FuncId>) {
    for inst in functions.iter_mut().flat_map(|f| &mut f.blocks).flat_map(|b| &mut b.insts) {
        if let Op::Call { func, .. } = &mut inst.op {
            *func = *new_ids.get(func).expect("a called helper is kept");
        }
    }
}
