//! Operations on runs of bytes, on the output and on the list of sends: mostly calls of the runtime.

use cranelift_codegen::ir::condcodes::IntCC;
use cranelift_codegen::ir::{self, BlockArg, InstBuilder, MemFlagsData, types};
use flick_ir::data::{Op, Value};

use super::function::{Translator, fixed_memory, own_memory};
use crate::raw;
use crate::symbols::{self, SymbolId};

impl Translator<'_, '_> {
    /// Translates what is no arithmetic. Returns the word it defines.
    pub(super) fn bytes_op(&mut self, op: &Op) -> Option<ir::Value> {
        match op {
            Op::HashInt(value) => {
                let value = self.get(*value);
                self.call_symbol(SymbolId::HashInt, &[value])
            }
            Op::HashBytes(value) => self.call_runtime(SymbolId::HashBytes, &[*value]),
            Op::BytesEq(a, b) => Some(self.bytes_eq(*a, *b)),
            Op::BytesStartsWith(a, b) => self.predicate(SymbolId::StartsWith, *a, *b),
            Op::BytesEndsWith(a, b) => self.predicate(SymbolId::EndsWith, *a, *b),
            Op::BytesContains(a, b) => self.predicate(SymbolId::Contains, *a, *b),
            Op::BytesLess(a, b) => self.predicate(SymbolId::Less, *a, *b),
            Op::EmitBytes { value } => self.call_runtime(SymbolId::EmitBytes, &[*value]),
            Op::EmitMessage { start, end } => self.call_runtime(SymbolId::EmitMessage, &[*start, *end]),
            Op::SendOriginal { chan } => self.call_runtime(SymbolId::SendOriginal, &[*chan]),
            Op::SendRebuilt { chan, mark, tail_from } => {
                let tail_from = match tail_from {
                    Some(value) => self.get(*value),
                    None => self.iconst(-1),
                };
                let args = [self.raw_call(), self.get(*chan), self.get(*mark), tail_from];
                self.call_symbol(SymbolId::SendRebuilt, &args)
            }
            other => panic!("{other:?} has a translation of its own"),
        }
    }

    /// Calls a runtime function that takes the call itself first.
    fn call_runtime(&mut self, symbol: SymbolId, args: &[Value]) -> Option<ir::Value> {
        let mut words = vec![self.raw_call()];
        words.extend(args.iter().map(|arg| self.get(*arg)));
        self.call_symbol(symbol, &words)
    }

    fn predicate(&mut self, symbol: SymbolId, a: Value, b: Value) -> Option<ir::Value> {
        let word = self.call_runtime(symbol, &[a, b])?;
        Some(self.builder.ins().ireduce(types::I8, word))
    }

    /// Equality: the lengths differ most of the time, which needs no call.
    fn bytes_eq(&mut self, a: Value, b: Value) -> ir::Value {
        let (len_a, len_b) = (self.get(a), self.get(b));
        let (len_a, len_b) = (self.bytes_len(len_a), self.bytes_len(len_b));
        let same = self.builder.ins().icmp(IntCC::Equal, len_a, len_b);
        let (compare, next) = (self.builder.create_block(), self.builder.create_block());
        let result = self.builder.append_block_param(next, types::I8);
        self.builder.ins().brif(same, compare, &[], next, &[BlockArg::Value(same)]);
        self.builder.switch_to_block(compare);
        let equal = self.predicate(SymbolId::Equal, a, b).expect("a predicate gives a word");
        self.builder.ins().jump(next, &[BlockArg::Value(equal)]);
        self.builder.switch_to_block(next);
        result
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
}
