//! Bytes and words inside bytes values: the hot ones inline, behind comparisons with their region.
//! Promises: no access outside a region, whatever word a program took for a bytes value.

use cranelift_codegen::ir::condcodes::IntCC;
use cranelift_codegen::ir::{self, BlockArg, InstBuilder, MemFlagsData, StackSlotData, StackSlotKind, types};
use flick_abi::Region;
use flick_abi::limits::BYTES_OFFSET_MAX;
use flick_ir::data::{Type, Value};

use super::function::{OFFSET_SHIFT, REGION_SHIFT, Translator, fixed_memory, own_memory};
use crate::raw;
use crate::symbols::{self, SymbolId};

/// Longest list that is made inline; a store for each word.
const INLINE_WORDS_MAX: i64 = 16;

impl Translator<'_, '_> {
    /// A part of a bytes value, clamped.
    pub(super) fn slice(&mut self, bytes: Value, start: Value, end: Value) -> ir::Value {
        let from_start = self.number(start) == Some(0);
        let (word, start, end) = (self.get(bytes), self.get(start), self.get(end));
        let len = self.bytes_len(word);
        let zero = self.iconst(0);
        if from_start {
            let end = self.builder.ins().smax(end, zero);
            let length = self.builder.ins().umin(end, len);
            let position = self.builder.ins().band_imm_s(word, !(BYTES_OFFSET_MAX as i64));
            return self.builder.ins().bor(position, length);
        }
        let start = self.builder.ins().smax(start, zero);
        let start = self.builder.ins().smin(start, len);
        let end = self.builder.ins().smin(end, len);
        let end = self.builder.ins().smax(end, start);
        let length = self.builder.ins().isub(end, start);
        let position = self.builder.ins().band_imm_s(word, !(BYTES_OFFSET_MAX as i64));
        let moved = self.builder.ins().ishl_imm_u(start, OFFSET_SHIFT);
        let position = self.builder.ins().iadd(position, moved);
        self.builder.ins().bor(position, length)
    }

    /// The byte at an index, -1 outside.
    pub(super) fn byte_at(&mut self, bytes: Value, index: Value) -> ir::Value {
        let (word, at) = (self.get(bytes), self.get(index));
        let len = self.bytes_len(word);
        let (inside, next) = (self.builder.create_block(), self.builder.create_block());
        let result = self.builder.append_block_param(next, types::I64);
        let is_inside = self.builder.ins().icmp(IntCC::UnsignedLessThan, at, len);
        let none = self.iconst(-1);
        self.builder.ins().brif(is_inside, inside, &[], next, &[BlockArg::Value(none)]);
        self.builder.switch_to_block(inside);
        let (address, rare) = self.address_of(bytes, word, len);
        let address = self.builder.ins().iadd(address, at);
        let byte = self.builder.ins().load(types::I8, bytes_memory(), address, 0);
        let byte = self.builder.ins().uextend(types::I64, byte);
        self.builder.ins().jump(next, &[BlockArg::Value(byte)]);
        self.builder.switch_to_block(rare);
        let found = self.call_runtime(SymbolId::ByteAt, &[bytes, index]).expect("it gives a word");
        self.builder.ins().jump(next, &[BlockArg::Value(found)]);
        self.builder.switch_to_block(next);
        result
    }

    /// The word at an index, 0 outside.
    pub(super) fn word_get(&mut self, bytes: Value, index: Value, is_bool: bool) -> ir::Value {
        let (word, at) = (self.get(bytes), self.get(index));
        let len = self.bytes_len(word);
        let words = self.builder.ins().ushr_imm_u(len, 3);
        let (inside, next) = (self.builder.create_block(), self.builder.create_block());
        let result = self.builder.append_block_param(next, types::I64);
        let is_inside = self.builder.ins().icmp(IntCC::UnsignedLessThan, at, words);
        let zero = self.iconst(0);
        self.builder.ins().brif(is_inside, inside, &[], next, &[BlockArg::Value(zero)]);
        self.builder.switch_to_block(inside);
        let (address, rare) = self.address_of(bytes, word, len);
        let offset = self.builder.ins().ishl_imm_u(at, 3);
        let address = self.builder.ins().iadd(address, offset);
        let found = self.builder.ins().load(types::I64, bytes_memory(), address, 0);
        self.builder.ins().jump(next, &[BlockArg::Value(found)]);
        self.builder.switch_to_block(rare);
        let found = self.call_runtime(SymbolId::WordGet, &[bytes, index]).expect("it gives a word");
        self.builder.ins().jump(next, &[BlockArg::Value(found)]);
        self.builder.switch_to_block(next);
        if is_bool { self.truth(result) } else { result }
    }

    /// Writes a word of a list under construction.
    pub(super) fn word_set(&mut self, bytes: Value, index: Value, value: Value) {
        let (word, at, value) = (self.get(bytes), self.get(index), self.word(value));
        let len = self.bytes_len(word);
        let words = self.builder.ins().ushr_imm_u(len, 3);
        let (quick, rare, next) =
            (self.builder.create_block(), self.builder.create_block(), self.builder.create_block());
        self.builder.set_cold_block(rare);
        let is_inside = self.builder.ins().icmp(IntCC::UnsignedLessThan, at, words);
        let region = self.builder.ins().ushr_imm_u(word, REGION_SHIFT);
        let is_out = self.builder.ins().icmp_imm_u(IntCC::Equal, region, Region::Out as i64);
        let call = self.raw_call();
        let used = self.builder.ins().load(types::I64, own_memory(), call, raw::OUT_LEN);
        let start = self.offset_of(word);
        let end = self.builder.ins().iadd(start, len);
        let fits = self.builder.ins().icmp(IntCC::UnsignedLessThanOrEqual, end, used);
        let both = self.builder.ins().band(is_inside, is_out);
        let all = self.builder.ins().band(both, fits);
        self.builder.ins().brif(all, quick, &[], rare, &[]);
        self.builder.switch_to_block(quick);
        let out = self.builder.ins().load(types::I64, own_memory(), call, raw::OUT);
        let offset = self.builder.ins().ishl_imm_u(at, 3);
        let address = self.builder.ins().iadd(out, start);
        let address = self.builder.ins().iadd(address, offset);
        self.builder.ins().store(bytes_memory(), value, address, 0);
        self.builder.ins().jump(next, &[]);
        self.builder.switch_to_block(rare);
        let args = [call, word, at, value];
        self.call_symbol(SymbolId::WordSet, &args);
        self.builder.ins().jump(next, &[]);
        self.builder.switch_to_block(next);
    }

    /// A new list of a small constant number of words, inline.
    pub(super) fn few_words(&mut self, words: Value, words_max: u32) -> Option<ir::Value> {
        let count = self
            .number(words)
            .filter(|count| (0..=INLINE_WORDS_MAX.min(words_max.into())).contains(count))?;
        let call = self.raw_call();
        let used = self.builder.ins().load(types::I64, own_memory(), call, raw::OUT_LEN);
        let limit = self.builder.ins().load(types::I64, fixed_memory(), call, raw::OUT_MAX);
        let after = self.builder.ins().iadd_imm_u(used, count * 8);
        let is_too_much = self.builder.ins().icmp(IntCC::UnsignedGreaterThan, after, limit);
        self.bug_if(is_too_much, symbols::BUG_OUT_BOUND);
        let out = self.builder.ins().load(types::I64, fixed_memory(), call, raw::OUT);
        let first = self.builder.ins().iadd(out, used);
        let zero = self.iconst(0);
        for word in 0..count {
            let offset = i32::try_from(word * 8).expect("few words are few bytes");
            self.builder.ins().store(bytes_memory(), zero, first, offset);
        }
        self.builder.ins().store(own_memory(), after, call, raw::OUT_LEN);
        let position = self.builder.ins().ishl_imm_u(used, OFFSET_SHIFT);
        let empty = self.iconst(((Region::Out as i64) << REGION_SHIFT) | (count * 8));
        Some(self.builder.ins().bor(position, empty))
    }

    /// Joins values.
    pub(super) fn concat(&mut self, parts: &[Value], max_bytes: u32) -> Option<ir::Value> {
        let words: Vec<_> = parts.iter().map(|part| self.get(*part)).collect();
        let first = self.on_stack(&words);
        let (count, max) = (self.iconst(parts.len() as i64), self.iconst(i64::from(max_bytes)));
        let args = [self.raw_call(), first, count, max];
        self.call_symbol(SymbolId::Concat, &args)
    }

    /// Packs values.
    pub(super) fn pack(&mut self, items: &[Value], max_bytes: u32) -> Option<ir::Value> {
        let mut words = Vec::with_capacity(items.len() * 2);
        for item in items {
            words.push(self.word(*item));
            words.push(self.iconst(i64::from(self.ty(*item) == Type::Bytes)));
        }
        let first = self.on_stack(&words);
        let (count, max) = (self.iconst(items.len() as i64), self.iconst(i64::from(max_bytes)));
        let args = [self.raw_call(), first, count, max];
        self.call_symbol(SymbolId::Pack, &args)
    }

    /// Stores words on the stack. Returns where.
    fn on_stack(&mut self, words: &[ir::Value]) -> ir::Value {
        let size = words.len().max(1) * 8;
        let slot = StackSlotData::new(StackSlotKind::ExplicitSlot, size as u32, 3);
        let slot = self.builder.create_sized_stack_slot(slot);
        let first = self.builder.ins().stack_addr(types::I64, slot, 0);
        for (word, offset) in words.iter().zip((0_i32..).step_by(8)) {
            self.builder.ins().store(own_memory(), *word, first, offset);
        }
        first
    }

    fn offset_of(&mut self, word: ir::Value) -> ir::Value {
        let offset = self.builder.ins().ushr_imm_u(word, OFFSET_SHIFT);
        self.builder.ins().band_imm_u(offset, BYTES_OFFSET_MAX as i64)
    }

    /// Address of the first byte of a value in one of the three common regions, after comparing it with the region;
    /// goes on in the second block where it is in another, or leaves its region, which the runtime decides.
    pub(super) fn address_of(
        &mut self,
        value: Value,
        word: ir::Value,
        len: ir::Value,
    ) -> (ir::Value, ir::Block) {
        let rare = self.builder.create_block();
        self.builder.set_cold_block(rare);
        if let Some((data, _)) = self.message {
            let start = self.message_start(value, word, len, rare);
            return (self.builder.ins().iadd(data, start), rare);
        }
        let (known, quick) = (self.builder.create_block(), self.builder.create_block());
        let region = self.builder.ins().ushr_imm_u(word, REGION_SHIFT);
        let is_known =
            self.builder.ins().icmp_imm_u(IntCC::UnsignedLessThanOrEqual, region, Region::Out as i64);
        self.builder.ins().brif(is_known, known, &[], rare, &[]);
        self.builder.switch_to_block(known);
        let call = self.raw_call();
        let entry = self.builder.ins().ishl_imm_u(region, 4);
        let entry = self.builder.ins().iadd(call, entry);
        let base = self.builder.ins().load(types::I64, own_memory(), entry, 0);
        let used = self.builder.ins().load(types::I64, own_memory(), entry, 8);
        let start = self.offset_of(word);
        let end = self.builder.ins().iadd(start, len);
        let fits = self.builder.ins().icmp(IntCC::UnsignedLessThanOrEqual, end, used);
        self.builder.ins().brif(fits, quick, &[], rare, &[]);
        self.builder.switch_to_block(quick);
        (self.builder.ins().iadd(base, start), rare)
    }
}

impl Translator<'_, '_> {
    /// Returns the start of a value in the message; jumps to `rare` if the value lies elsewhere. Only for parsers,
    /// whose values almost always lie in the message.
    pub(super) fn message_start(
        &mut self,
        value: Value,
        word: ir::Value,
        len: ir::Value,
        rare: ir::Block,
    ) -> ir::Value {
        if let Some(start) = self.own_start(value) {
            return start;
        }
        let (_, message_len) = self.message.expect("only parsers work on a message alone");
        let (near, quick) = (self.builder.create_block(), self.builder.create_block());
        let is_near = self.builder.ins().icmp_imm_u(IntCC::UnsignedLessThan, word, 1 << REGION_SHIFT);
        self.builder.ins().brif(is_near, near, &[], rare, &[]);
        self.builder.switch_to_block(near);
        let start = self.builder.ins().ushr_imm_u(word, OFFSET_SHIFT);
        let end = self.builder.ins().iadd(start, len);
        let fits = self.builder.ins().icmp(IntCC::UnsignedLessThanOrEqual, end, message_len);
        self.builder.ins().brif(fits, quick, &[], rare, &[]);
        self.builder.switch_to_block(quick);
        start
    }
}

/// Flags of bytes anywhere: always there after the comparison, of any alignment.
pub(super) fn bytes_memory() -> MemFlagsData {
    MemFlagsData::new().with_notrap()
}
