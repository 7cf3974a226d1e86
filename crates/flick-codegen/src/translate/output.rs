//! The output of a rule: what is appended to it without a call of the runtime.
//! Promises: nothing is written behind the output; a part that is not inside its message, or does not fit, is left to
//! the runtime, which names the broken invariant.

use cranelift_codegen::ir::condcodes::IntCC;
use cranelift_codegen::ir::{self, InstBuilder, MemFlagsData, types};
use flick_abi::Frame;
use flick_abi::frame::SLOT_CUTS;
use flick_ir::data::Value;
use flick_ir::semantics::with_reserve;

use super::function::{Translator, fixed_memory, own_memory, slot_offset};
use super::words::bytes_memory;
use crate::raw;
use crate::symbols::{self, SymbolId};

/// Bytes of a vector.
const VECTOR_BYTES: i64 = 16;

impl Translator<'_, '_> {
    /// Returns whether the output has capacity for `bytes`, besides what the rule may build elsewhere.
    pub(super) fn has_capacity(&mut self, bytes: u32) -> ir::Value {
        let call = self.raw_call();
        let used = self.builder.ins().load(types::I64, own_memory(), call, raw::OUT_LEN);
        let limit = self.builder.ins().load(types::I64, fixed_memory(), call, raw::OUT_MAX);
        let after = self.builder.ins().iadd_imm_u(used, with_reserve(bytes) as i64);
        self.builder.ins().icmp(IntCC::UnsignedLessThanOrEqual, after, limit)
    }

    /// Appends an integer to the output, after checking that it fits.
    pub(super) fn emit_int(&mut self, value: Value, width_bytes: u8, big_endian: bool) {
        let value = self.get(value);
        let call = self.raw_call();
        let used = self.builder.ins().load(types::I64, own_memory(), call, raw::OUT_LEN);
        let limit = self.builder.ins().load(types::I64, fixed_memory(), call, raw::OUT_MAX);
        let after = self.builder.ins().iadd_imm_u(used, i64::from(width_bytes));
        let is_too_much = self.builder.ins().icmp(IntCC::UnsignedGreaterThan, after, limit);
        self.bug_if(is_too_much, symbols::BUG_OUT_BOUND);
        let out = self.builder.ins().load(types::I64, fixed_memory(), call, raw::OUT);
        let address = self.builder.ins().iadd(out, used);
        let ty = match width_bytes {
            1 => types::I8,
            2 => types::I16,
            4 => types::I32,
            _ => types::I64,
        };
        let mut word = if ty == types::I64 { value } else { self.builder.ins().ireduce(ty, value) };
        if width_bytes > 1 && big_endian != cfg!(target_endian = "big") {
            word = self.builder.ins().bswap(word);
        }
        self.builder.ins().store(MemFlagsData::new().with_notrap(), word, address, 0);
        self.builder.ins().store(own_memory(), after, call, raw::OUT_LEN);
    }

    /// Appends a part of message 0, as far as it is forwarded. Parts of a message that is forwarded as it came are
    /// copied here if they are empty or have 16 to 64 bytes.
    pub(super) fn emit_message(&mut self, start: Value, end: Value) {
        let (start, end, call) = (self.get(start), self.get(end), self.raw_call());
        let [copy, by_call, next] = [(); 3].map(|()| self.builder.create_block());
        let used = self.builder.ins().load(types::I64, own_memory(), call, raw::OUT_LEN);
        let len = self.builder.ins().isub(end, start);
        let after = self.builder.ins().iadd(used, len);
        let is_short = self.part_is_short(call, [start, end, len, after]);
        self.builder.ins().brif(is_short, copy, &[], by_call, &[]);

        self.builder.switch_to_block(copy);
        let [some, most, many, few] = [(); 4].map(|()| self.builder.create_block());
        self.builder.ins().brif(len, some, &[], next, &[]);
        self.builder.switch_to_block(some);
        let message = self.builder.ins().load(types::I64, fixed_memory(), call, raw::MESSAGE);
        let out = self.builder.ins().load(types::I64, fixed_memory(), call, raw::OUT);
        let (from, to) = (self.builder.ins().iadd(message, start), self.builder.ins().iadd(out, used));
        let is_few = self.builder.ins().icmp_imm_u(IntCC::UnsignedLessThan, len, VECTOR_BYTES);
        self.builder.ins().brif(is_few, by_call, &[], most, &[]);
        self.builder.switch_to_block(most);
        let is_many = self.builder.ins().icmp_imm_u(IntCC::UnsignedGreaterThanOrEqual, len, 2 * VECTOR_BYTES);
        self.builder.ins().brif(is_many, many, &[], few, &[]);
        for (block, vectors) in [(many, 2), (few, 1)] {
            self.builder.switch_to_block(block);
            self.copy_ends([from, to, len], vectors);
            self.builder.ins().store(own_memory(), after, call, raw::OUT_LEN);
            self.builder.ins().jump(next, &[]);
        }

        self.builder.switch_to_block(by_call);
        let zero = self.iconst(0);
        self.call_symbol(SymbolId::EmitMessage, &[call, zero, start, end]);
        self.builder.ins().jump(next, &[]);
        self.builder.switch_to_block(next);
    }

    /// Whether a part of message 0 lies inside it, is forwarded as it came, has at most 64 bytes, and fits into the
    /// output.
    fn part_is_short(&mut self, call: ir::Value, [start, end, len, after]: [ir::Value; 4]) -> ir::Value {
        let inserts_len = i32::try_from(Frame::INSERTS_LEN_OFFSET).expect("a frame is small");
        let cuts =
            self.builder.ins().load(types::I64, own_memory(), self.frame, slot_offset(SLOT_CUTS as u16));
        let inserts = self.builder.ins().load(types::I64, own_memory(), self.frame, inserts_len);
        let edits = self.builder.ins().bor(cuts, inserts);
        let limit = self.builder.ins().load(types::I64, fixed_memory(), call, raw::OUT_MAX);
        let message_len = self.builder.ins().load(types::I64, fixed_memory(), call, raw::MESSAGE_LEN);
        let conditions = [
            self.builder.ins().icmp_imm_u(IntCC::Equal, edits, 0),
            self.builder.ins().icmp_imm_u(IntCC::UnsignedLessThanOrEqual, len, 4 * VECTOR_BYTES),
            self.builder.ins().icmp(IntCC::UnsignedLessThanOrEqual, start, end),
            self.builder.ins().icmp(IntCC::UnsignedLessThanOrEqual, end, message_len),
            self.builder.ins().icmp(IntCC::UnsignedLessThanOrEqual, after, limit),
        ];
        let all = conditions.into_iter().reduce(|all, condition| self.builder.ins().band(all, condition));
        all.expect("there are conditions")
    }

    /// Copies `vectors` vectors at the start and as many at the end of `len` bytes, which have as many at least.
    fn copy_ends(&mut self, [from, to, len]: [ir::Value; 3], vectors: i64) {
        let back = self.builder.ins().iadd_imm_s(len, -vectors * VECTOR_BYTES);
        let (from_back, to_back) = (self.builder.ins().iadd(from, back), self.builder.ins().iadd(to, back));
        let offsets = (0..vectors).map(|vector| (vector * VECTOR_BYTES) as i32);
        let positions = offsets.flat_map(|offset| [(from, to, offset), (from_back, to_back, offset)]);
        for (from, to, offset) in positions {
            let bytes = self.builder.ins().load(types::I8X16, bytes_memory(), from, offset);
            self.builder.ins().store(MemFlagsData::new().with_notrap(), bytes, to, offset);
        }
    }
}
