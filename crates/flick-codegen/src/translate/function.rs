//! One function: prologue, blocks, and the operations that are one or two instructions.

use cranelift_codegen::ir::condcodes::IntCC;
use cranelift_codegen::ir::{
    self, InstBuilder, MemFlagsData, StackSlotData, StackSlotKind, Type as ClifType, types,
};
use cranelift_frontend::{FunctionBuilder, FunctionBuilderContext};
use flick_abi::limits::BYTES_OFFSET_MAX;
use flick_abi::{BytesRef, Region};
use flick_ir::Covered;
use flick_ir::cfg::Cfg;
use flick_ir::data::{BlockId, FuncKind, Function, Inst, Op, Terminator, Type, Value};
use flick_ir::semantics::CHAN_ELEMENT_MAX;

use super::{Shared, clif_type};
use crate::raw;
use crate::symbols::{self, SYMBOLS, SymbolId};

/// Translates one function to Cranelift IR.
pub(super) struct Translator<'a, 'f> {
    pub(super) shared: &'a Shared<'a>,
    pub(super) function: &'a Function,
    pub(super) builder: FunctionBuilder<'f>,
    /// Cranelift's values, by ours.
    pub(super) values: Vec<Option<ir::Value>>,
    /// Cranelift's blocks, by ours.
    pub(super) blocks: Vec<ir::Block>,
    /// The slots of the frame.
    pub(super) frame: ir::Value,
    /// The `RawCall`; a parser makes one on its stack, at its start or where it needs it.
    call: Option<ir::Value>,
    /// Stack slot in which a parser makes it.
    call_slot: Option<ir::StackSlot>,
    /// The message, in parsers: pointer and length.
    pub(super) message: Option<(ir::Value, ir::Value)>,
    /// Lengths of the message that are known to be available at the start of each of our blocks.
    covered: Covered,
    /// The block that is being translated.
    here: BlockId,
    /// Operation that defines each of our values; `None` for a parameter.
    definitions: Vec<Option<&'a Op>>,
    /// Runtime functions imported so far, by `SymbolId`.
    imported: [Option<ir::FuncRef>; SYMBOLS],
}

/// Flags of memory that is always there and aligned: the frame and the `RawCall`.
pub(super) fn own_memory() -> MemFlagsData {
    MemFlagsData::trusted()
}

/// Flags of own memory that does not change while the function runs.
pub(super) fn fixed_memory() -> MemFlagsData {
    MemFlagsData::trusted().with_readonly()
}

/// Translates `function` into `target`, whose signature is set.
pub(crate) fn function(shared: &Shared<'_>, target: &mut ir::Function, function: &Function) {
    let mut context = FunctionBuilderContext::new();
    let mut builder = FunctionBuilder::new(target, &mut context);
    let blocks: Vec<_> = function.blocks.iter().map(|_| builder.create_block()).collect();
    builder.append_block_params_for_function_params(blocks[0]);
    builder.switch_to_block(blocks[0]);
    let params = builder.block_params(blocks[0]).to_vec();
    let is_parser = function.kind == FuncKind::Parser;
    let frame = if is_parser {
        params[0]
    } else {
        builder.ins().load(types::I64, fixed_memory(), params[0], raw::FRAME)
    };
    let cfg = Cfg::new(function);
    let mut translator = Translator {
        shared,
        function,
        builder,
        values: vec![None; function.values.len()],
        blocks,
        frame,
        call: (!is_parser).then(|| params[0]),
        call_slot: None,
        message: is_parser.then(|| (params[1], params[2])),
        covered: if is_parser { Covered::new(function, &cfg) } else { Covered::default() },
        here: BlockId(0),
        definitions: definitions(function),
        imported: [None; SYMBOLS],
    };
    translator.bind_parameters(&params, &cfg.order);
    if is_parser && function.blocks.iter().flat_map(|block| &block.insts).any(|inst| asks_runtime(&inst.op)) {
        let call = translator.call_on_stack();
        translator.call = Some(call);
    }
    for block in cold_blocks(function, &cfg) {
        let block = translator.blocks[block.0 as usize];
        translator.builder.set_cold_block(block);
    }
    // Definitions come before uses in this order; unreachable blocks are left out.
    for block in &cfg.order {
        translator.block(*block);
    }
    translator.builder.seal_all_blocks();
    translator.builder.finalize(shared.isa.frontend_config());
}

/// Blocks that are kept out of the way of the common case, a whole and good message: those that find a fault, and
/// those that only a parser called again reaches.
fn cold_blocks(function: &Function, cfg: &Cfg) -> Vec<BlockId> {
    let mut is_cold = vec![false; function.blocks.len()];
    let is_default = |id: BlockId| match &function.blocks[0].end {
        Terminator::Switch { default, .. } => *default == id,
        _ => true,
    };
    for id in cfg.order.iter().skip(1) {
        let from_entry =
            |from: &BlockId| from.0 == 0 && function.kind == FuncKind::Parser && !is_default(*id);
        let mut predecessors = cfg.predecessors[id.0 as usize].iter();
        let is_rare = predecessors.all(|from| is_cold[from.0 as usize] || from_entry(from));
        let is_fault = matches!(function.blocks[id.0 as usize].end, Terminator::Fault { .. });
        is_cold[id.0 as usize] = is_rare || is_fault;
    }
    cfg.order.iter().copied().filter(|id| is_cold[id.0 as usize]).collect()
}

/// Returns the operation that defines each value; `None` for a parameter.
fn definitions(function: &Function) -> Vec<Option<&Op>> {
    let mut definitions = vec![None; function.values.len()];
    for inst in function.blocks.iter().flat_map(|block| &block.insts) {
        if let Some(result) = inst.result {
            definitions[result.0 as usize] = Some(&inst.op);
        }
    }
    definitions
}

/// Whether an operation of a parser always asks the runtime, which wants a `RawCall`. Most messages come by one of
/// those if there are any; who asks in rare cases only makes a call of its own.
fn asks_runtime(op: &Op) -> bool {
    matches!(op, Op::HashBytes(_) | Op::BytesContains(..) | Op::BytesLess(..) | Op::Find(..))
}

impl Translator<'_, '_> {
    fn bind_parameters(&mut self, params: &[ir::Value], order: &[BlockId]) {
        let mut next = if self.message.is_some() { 2 } else { 1 };
        for value in &self.function.blocks[0].params {
            // A frame has no word; its slots are reached through `frame`.
            let word = if self.ty(*value) == Type::Frame { self.frame } else { params[next] };
            next += usize::from(self.ty(*value) != Type::Frame);
            self.values[value.0 as usize] = Some(word);
        }
        let function = self.function;
        for block in order.iter().skip(1) {
            for value in &function.blocks[block.0 as usize].params {
                let (target, ty) = (self.blocks[block.0 as usize], clif_type(self.ty(*value)));
                self.values[value.0 as usize] = Some(self.builder.append_block_param(target, ty));
            }
        }
    }

    /// Makes a `RawCall` on the stack of a parser: message and constants, everything else empty.
    fn call_on_stack(&mut self) -> ir::Value {
        let data = StackSlotData::new(StackSlotKind::ExplicitSlot, raw::SIZE, 3);
        let slot = match self.call_slot {
            Some(slot) => slot,
            None => self.builder.create_sized_stack_slot(data),
        };
        self.call_slot = Some(slot);
        let call = self.builder.ins().stack_addr(types::I64, slot, 0);
        let (data, len) = self.message.expect("parsers have a message");
        let consts = self.iconst(self.shared.consts.as_ptr() as i64);
        let consts_len = self.iconst(self.shared.consts.len() as i64);
        let zero = self.iconst(0);
        let words = [
            (raw::FRAME, self.frame),
            (raw::MESSAGE, data),
            (raw::MESSAGE_LEN, len),
            (raw::CONSTS, consts),
            (raw::CONSTS_LEN, consts_len),
            // An empty slice needs a pointer that is not null.
            (raw::OUT, consts),
            (raw::OUT_LEN, zero),
            (raw::OUT_MAX, zero),
            (raw::CHANNEL_LENS, consts),
            (raw::SENDS, zero),
            (raw::RULE, zero),
        ];
        for (offset, word) in words {
            self.builder.ins().store(own_memory(), word, call, offset);
        }
        call
    }

    fn block(&mut self, id: BlockId) {
        let function = self.function;
        let block = &function.blocks[id.0 as usize];
        self.here = id;
        if id.0 != 0 {
            self.builder.switch_to_block(self.blocks[id.0 as usize]);
        }
        for inst in &block.insts {
            let word = self.inst(inst);
            if let Some(result) = inst.result {
                self.values[result.0 as usize] = word;
            }
        }
        self.end(id, &block.end);
    }

    fn inst(&mut self, inst: &Inst) -> Option<ir::Value> {
        Some(match &inst.op {
            Op::Const(word) => {
                let ty = self.result_type(inst);
                self.builder.ins().iconst(ty, *word)
            }
            Op::ConstBytes { offset, len } => {
                self.iconst(BytesRef::new(Region::Const, u64::from(*offset), *len).0 as i64)
            }
            Op::Binary(op, a, b) => self.binary(*op, *a, *b),
            Op::Not(a) => {
                let a = self.get(*a);
                self.builder.ins().bxor_imm_u(a, 1)
            }
            Op::Select { cond, a, b } => {
                let (cond, a, b) = (self.get(*cond), self.get(*a), self.get(*b));
                self.builder.ins().select(cond, a, b)
            }
            Op::Len(a) => {
                let a = self.get(*a);
                self.bytes_len(a)
            }
            Op::BytesOffset(a) => self.bytes_offset(*a),
            Op::FrameGet { slot } => self.frame_get(*slot, self.result_type(inst)),
            Op::FrameSet { slot, value } => {
                let word = self.word(*value);
                self.builder.ins().store(own_memory(), word, self.frame, slot_offset(*slot));
                return None;
            }
            Op::Load { .. } => self.load(&inst.op),
            Op::MessageBytes { start, end } => self.message_bytes(*start, *end),
            Op::ChanLen(chan) => self.chan_len(*chan),
            Op::ChanElem { chan, index } => self.chan_elem(*chan, *index),
            Op::Call { func, args } => return self.call(func.0 as usize, args),
            Op::OutMark => {
                let call = self.raw_call();
                self.builder.ins().load(types::I64, own_memory(), call, raw::OUT_LEN)
            }
            Op::HasCapacity { bytes } => self.has_capacity(*bytes),
            Op::Written { mark, .. } => self.written(*mark),
            Op::EmitInt { value, width_bytes, big_endian } => {
                self.emit_int(*value, *width_bytes, *big_endian);
                return None;
            }
            Op::StateLoad { .. }
            | Op::StateStore { .. }
            | Op::StateLoadBytes { .. }
            | Op::StateStoreBytes { .. }
            | Op::MessageGet { .. }
            | Op::ResumeState
            | Op::SpillSet { .. }
            | Op::SpillGet { .. }
            | Op::Answer { .. }
            | Op::AsMessage(_)
            | Op::Fail { .. } => return self.state_op(inst),
            Op::ScanRun { .. } | Op::Seek { .. } | Op::Lines { .. } | Op::ItemPush(_) => {
                return self.scan_op(&inst.op);
            }
            Op::Cut { .. } | Op::CutListed { .. } | Op::Insert { .. } => return self.scan_op(&inst.op),
            Op::Host { call, args, max_bytes } => return self.host(*call, args, *max_bytes),
            other => return self.bytes_op(other, inst.result),
        })
    }

    /// Returns a reference to the output written since `mark`.
    fn written(&mut self, mark: Value) -> ir::Value {
        let call = self.raw_call();
        let len = self.builder.ins().load(types::I64, own_memory(), call, raw::OUT_LEN);
        let mark = self.get(mark);
        let len = self.builder.ins().isub(len, mark);
        let position = self.builder.ins().ishl_imm_u(mark, i64::from(BYTES_OFFSET_MAX.count_ones()));
        let position = self.builder.ins().bor_imm_u(position, (Region::Out as i64) << 56);
        self.builder.ins().bor(position, len)
    }

    /// Our type of a value.
    pub(super) fn ty(&self, value: Value) -> Type {
        self.function.values[value.0 as usize]
    }

    fn result_type(&self, inst: &Inst) -> ClifType {
        clif_type(self.ty(inst.result.expect("an operation that defines a value has a result")))
    }

    /// Cranelift's value of ours.
    pub(super) fn get(&self, value: Value) -> ir::Value {
        self.values[value.0 as usize].expect("a value is defined before it is used")
    }

    /// As [`Self::get`], a boolean widened to a word.
    pub(super) fn word(&mut self, value: Value) -> ir::Value {
        let word = self.get(value);
        if self.ty(value) == Type::Bool { self.builder.ins().uextend(types::I64, word) } else { word }
    }

    /// Returns whether a position is known not to lie behind the end of the message.
    pub(super) fn is_inside(&self, position: Value) -> bool {
        let is_found =
            matches!(self.definitions[position.0 as usize], Some(Op::ScanRun { .. } | Op::Seek { .. }));
        is_found || self.covered.reaches(self.here, position)
    }

    /// Returns the operation that defines a value; `None` for a parameter.
    pub(super) fn definition(&self, value: Value) -> Option<&Op> {
        self.definitions[value.0 as usize]
    }

    /// The number that a value always is.
    pub(super) fn number(&self, value: Value) -> Option<i64> {
        match self.definitions[value.0 as usize]? {
            Op::Const(word) => Some(*word),
            _ => None,
        }
    }

    /// The bytes of a value that is constant.
    pub(super) fn constant(&self, value: Value) -> Option<&[u8]> {
        match self.definitions[value.0 as usize]? {
            Op::ConstBytes { offset, len } => {
                self.shared.consts.get(*offset as usize..(*offset + *len) as usize)
            }
            _ => None,
        }
    }

    /// A constant word.
    pub(super) fn iconst(&mut self, word: i64) -> ir::Value {
        self.builder.ins().iconst(types::I64, word)
    }

    /// The pointer to the `RawCall`.
    pub(super) fn raw_call(&mut self) -> ir::Value {
        self.call.unwrap_or_else(|| self.call_on_stack())
    }

    /// Returns the start in the message of a value that this function itself has taken from it; `None` for other
    /// values.
    pub(super) fn own_start(&mut self, value: Value) -> Option<ir::Value> {
        let Some(Op::MessageBytes { start, .. }) = self.definitions[value.0 as usize] else { return None };
        Some(self.get(*start))
    }

    /// Length of a bytes value.
    pub(super) fn bytes_len(&mut self, value: ir::Value) -> ir::Value {
        self.builder.ins().band_imm_u(value, BYTES_OFFSET_MAX as i64)
    }

    /// Returns the start of a bytes value in its region.
    fn bytes_offset(&mut self, value: Value) -> ir::Value {
        let value = self.get(value);
        let low = self.builder.ins().ushr_imm_u(value, i64::from(BYTES_OFFSET_MAX.count_ones()));
        self.bytes_len(low)
    }

    fn frame_get(&mut self, slot: u16, ty: ClifType) -> ir::Value {
        // Only parsers change the frame.
        let flags = if self.message.is_some() { own_memory() } else { fixed_memory() };
        let word = self.builder.ins().load(types::I64, flags, self.frame, slot_offset(slot));
        if ty == types::I8 { self.builder.ins().icmp_imm_u(IntCC::NotEqual, word, 0) } else { word }
    }

    fn message_bytes(&mut self, start: Value, end: Value) -> ir::Value {
        let (start, end) = (self.get(start), self.get(end));
        let is_backwards = self.builder.ins().icmp(IntCC::UnsignedGreaterThan, start, end);
        self.bug_if(is_backwards, symbols::BUG_BYTES_ORDER);
        let len = self.builder.ins().isub(end, start);
        let offset = self.builder.ins().ishl_imm_u(start, OFFSET_SHIFT);
        // The message region is 0.
        self.builder.ins().bor(offset, len)
    }

    fn chan_len(&mut self, chan: Value) -> ir::Value {
        let chan = self.get(chan);
        let call = self.raw_call();
        let lens = self.builder.ins().load(types::I64, fixed_memory(), call, raw::CHANNEL_LENS);
        let index = self.builder.ins().band_imm_u(chan, 0xffff);
        // Most channels are constants, for which this is decided when the code is made.
        let channels = self.shared.channels as i64;
        let is_none = self.builder.ins().icmp_imm_u(IntCC::UnsignedGreaterThanOrEqual, index, channels);
        self.bug_if(is_none, symbols::BUG_NO_CHANNEL);
        let offset = self.builder.ins().ishl_imm_u(index, 3);
        let address = self.builder.ins().iadd(lens, offset);
        self.builder.ins().load(types::I64, fixed_memory(), address, 0)
    }

    fn chan_elem(&mut self, chan: Value, index: Value) -> ir::Value {
        let (chan, index) = (self.get(chan), self.get(index));
        let limit = self.iconst(CHAN_ELEMENT_MAX as i64);
        let element = self.builder.ins().umin(index, limit);
        let element = self.builder.ins().ishl_imm_u(element, 16);
        let channel = self.builder.ins().band_imm_u(chan, 0xffff);
        self.builder.ins().bor(channel, element)
    }

    fn call(&mut self, func: usize, args: &[Value]) -> Option<ir::Value> {
        let callee = self.shared.import(self.shared.ids[func], self.builder.func);
        let mut words = vec![self.raw_call()];
        words.extend(args.iter().filter(|arg| self.ty(**arg) != Type::Frame).map(|arg| self.get(*arg)));
        let call = self.builder.ins().call(callee, &words);
        self.builder.inst_results(call).first().copied()
    }

    /// Calls the runtime.
    pub(super) fn call_symbol(&mut self, symbol: SymbolId, args: &[ir::Value]) -> Option<ir::Value> {
        let index = symbol as usize;
        let callee = *self.imported[index]
            .get_or_insert_with(|| self.shared.import(self.shared.symbols[index], self.builder.func));
        let call = self.builder.ins().call(callee, args);
        self.builder.inst_results(call).first().copied()
    }

    /// Stops, naming an invariant, if `condition` holds. A parser hands the invariant's number to `Compiled::parse`,
    /// which panics; that spares it a call and with it a stack frame. Everything else ends the process.
    pub(super) fn bug_if(&mut self, condition: ir::Value, which: i64) {
        let (bug, next) = (self.builder.create_block(), self.builder.create_block());
        self.builder.set_cold_block(bug);
        self.builder.ins().brif(condition, bug, &[], next, &[]);
        self.builder.switch_to_block(bug);
        if self.message.is_some() {
            let word = self.iconst(symbols::BUG_WORD | (which << 2));
            self.builder.ins().return_(&[word]);
        } else {
            let which = self.iconst(which);
            self.call_symbol(SymbolId::Bug, &[which]);
            self.builder.ins().trap(ir::TrapCode::unwrap_user(1));
        }
        self.builder.switch_to_block(next);
    }
}

/// Bit position of the offset in a bytes value.
pub(super) const OFFSET_SHIFT: i64 = BYTES_OFFSET_MAX.count_ones() as i64;
/// Bit position of the region in a bytes value.
pub(super) const REGION_SHIFT: i64 = 2 * OFFSET_SHIFT;

/// Offset of a slot in the frame, in bytes.
pub(super) fn slot_offset(slot: u16) -> i32 {
    i32::from(slot) * 8
}
