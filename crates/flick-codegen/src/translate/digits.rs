//! Numbers in the text of a message, digit by digit, inline: most numbers are shorter than a call.
//! Promises: the answers of `flick_ir::semantics`; what has a sign, a byte that is no digit, or more digits than
//! surely fit `int64` is left to the runtime, and so is everything outside parsers.

use cranelift_codegen::ir::condcodes::IntCC;
use cranelift_codegen::ir::{self, BlockArg, InstBuilder, types};
use flick_ir::data::Value;

use super::function::Translator;
use super::words::bytes_memory;
use crate::symbols::SymbolId;

/// Any number of at most this many digits is an `int64`.
const DIGITS_MAX: i64 = 18;
const _: () = assert!(10_i64.checked_pow(DIGITS_MAX as u32).is_some());

impl Translator<'_, '_> {
    /// The number that bytes are, 0 if they are none.
    pub(super) fn parse_int(&mut self, bytes: Value, base: u8) -> Option<ir::Value> {
        self.number_or(bytes, base, types::I64, |_, sum| sum, Self::parse_int_by_call)
    }

    /// Whether bytes are a number.
    pub(super) fn is_int(&mut self, bytes: Value, base: u8) -> Option<ir::Value> {
        let yes = |translator: &mut Self, _| translator.builder.ins().iconst(types::I8, 1);
        self.number_or(bytes, base, types::I8, yes, Self::is_int_by_call)
    }

    fn parse_int_by_call(&mut self, bytes: Value, base: u8) -> Option<ir::Value> {
        let base = self.iconst(i64::from(base));
        let args = [self.raw_call(), self.get(bytes), base];
        self.call_symbol(SymbolId::ParseInt, &args)
    }

    fn is_int_by_call(&mut self, bytes: Value, base: u8) -> Option<ir::Value> {
        let base = self.iconst(i64::from(base));
        let args = [self.raw_call(), self.get(bytes), base];
        let word = self.call_symbol(SymbolId::IsInt, &args)?;
        Some(self.builder.ins().ireduce(types::I8, word))
    }

    /// Returns the result of `plain` for the number if the bytes are a few decimal digits, and else that of `by_call`.
    fn number_or(
        &mut self,
        bytes: Value,
        base: u8,
        ty: ir::Type,
        plain: impl FnOnce(&mut Self, ir::Value) -> ir::Value,
        by_call: impl FnOnce(&mut Self, Value, u8) -> Option<ir::Value>,
    ) -> Option<ir::Value> {
        let Some((data, _)) = self.message.filter(|_| base == 10) else { return by_call(self, bytes, base) };
        let word = self.get(bytes);
        let len = self.bytes_len(word);
        let [some, digit, add, done, rare, next] = [(); 6].map(|()| self.builder.create_block());
        self.builder.set_cold_block(rare);
        let position = self.builder.append_block_param(digit, types::I64);
        let sum = self.builder.append_block_param(digit, types::I64);
        let number = self.builder.append_block_param(done, types::I64);
        let result = self.builder.append_block_param(next, ty);
        let before = self.builder.ins().iadd_imm_s(len, -1);
        let is_few = self.builder.ins().icmp_imm_u(IntCC::UnsignedLessThan, before, DIGITS_MAX);
        self.builder.ins().brif(is_few, some, &[], rare, &[]);

        self.builder.switch_to_block(some);
        let start = self.message_start(bytes, word, len, rare);
        let address = self.builder.ins().iadd(data, start);
        let end = self.builder.ins().iadd(address, len);
        let zero = self.iconst(0);
        self.builder.ins().jump(digit, &[BlockArg::Value(address), BlockArg::Value(zero)]);

        self.builder.switch_to_block(digit);
        let byte = self.builder.ins().uload8(types::I64, bytes_memory(), position, 0);
        let value = self.builder.ins().iadd_imm_s(byte, -i64::from(b'0'));
        let is_digit = self.builder.ins().icmp_imm_u(IntCC::UnsignedLessThan, value, 10);
        self.builder.ins().brif(is_digit, add, &[], rare, &[]);

        self.builder.switch_to_block(add);
        let tens = self.builder.ins().imul_imm_u(sum, 10);
        let more = self.builder.ins().iadd(tens, value);
        let after = self.builder.ins().iadd_imm_u(position, 1);
        let is_last = self.builder.ins().icmp(IntCC::Equal, after, end);
        let (on, out) = ([BlockArg::Value(after), BlockArg::Value(more)], [BlockArg::Value(more)]);
        self.builder.ins().brif(is_last, done, &out, digit, &on);

        self.builder.switch_to_block(done);
        let answer = plain(self, number);
        self.builder.ins().jump(next, &[BlockArg::Value(answer)]);
        self.builder.switch_to_block(rare);
        let answer = by_call(self, bytes, base)?;
        self.builder.ins().jump(next, &[BlockArg::Value(answer)]);
        self.builder.switch_to_block(next);
        Some(result)
    }
}
