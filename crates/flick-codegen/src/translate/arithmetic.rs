//! Two-operand operations and loads: what stays inline.

use cranelift_codegen::ir::condcodes::IntCC;
use cranelift_codegen::ir::{self, Endianness, InstBuilder, MemFlagsData, types};
use flick_ir::data::{Binary, Op, Value};

use super::function::Translator;

/// The machine's own byte order.
pub(super) const NATIVE: Endianness =
    if cfg!(target_endian = "big") { Endianness::Big } else { Endianness::Little };

impl Translator<'_, '_> {
    pub(super) fn binary(&mut self, op: Binary, a: Value, b: Value) -> ir::Value {
        let divisor = self.number(b);
        let (a, b) = (self.get(a), self.get(b));
        let ins = self.builder.ins();
        match op {
            Binary::Add => ins.iadd(a, b),
            Binary::Sub => ins.isub(a, b),
            Binary::Mul => ins.imul(a, b),
            Binary::DivU | Binary::ModU if divisor.is_some_and(|word| word != 0) => {
                if op == Binary::DivU {
                    ins.udiv(a, b)
                } else {
                    ins.urem(a, b)
                }
            }
            Binary::DivU => self.divide_unsigned(a, b).0,
            Binary::ModU => self.divide_unsigned(a, b).1,
            Binary::DivS => self.divide_floored(a, b, false),
            Binary::ModS => self.divide_floored(a, b, true),
            Binary::Eq => ins.icmp(IntCC::Equal, a, b),
            Binary::Ne => ins.icmp(IntCC::NotEqual, a, b),
            Binary::LtS => ins.icmp(IntCC::SignedLessThan, a, b),
            Binary::LeS => ins.icmp(IntCC::SignedLessThanOrEqual, a, b),
            Binary::LtU => ins.icmp(IntCC::UnsignedLessThan, a, b),
            Binary::LeU => ins.icmp(IntCC::UnsignedLessThanOrEqual, a, b),
            Binary::And | Binary::BitAnd => ins.band(a, b),
            Binary::Or | Binary::BitOr => ins.bor(a, b),
            Binary::MinS => ins.smin(a, b),
            Binary::MaxS => ins.smax(a, b),
            Binary::MinU => ins.umin(a, b),
            Binary::MaxU => ins.umax(a, b),
        }
    }

    /// Quotient and remainder; both 0 for a zero divisor, which the machine would trap on.
    fn divide_unsigned(&mut self, a: ir::Value, b: ir::Value) -> (ir::Value, ir::Value) {
        let (zero, one) = (self.iconst(0), self.iconst(1));
        let is_zero = self.builder.ins().icmp(IntCC::Equal, b, zero);
        let divisor = self.builder.ins().select(is_zero, one, b);
        let quotient = self.builder.ins().udiv(a, divisor);
        // `a mod 1` is 0, so only the quotient needs mending.
        let rest = self.builder.ins().urem(a, divisor);
        (self.builder.ins().select(is_zero, zero, quotient), rest)
    }

    /// Floored quotient or remainder. The machine traps on zero and on `MIN / -1`, so both divide by 1 instead:
    /// for -1 the quotient is the wrapped negation and the remainder 0.
    fn divide_floored(&mut self, a: ir::Value, b: ir::Value, want_rest: bool) -> ir::Value {
        let (zero, one) = (self.iconst(0), self.iconst(1));
        let is_zero = self.builder.ins().icmp(IntCC::Equal, b, zero);
        let is_minus_one = self.builder.ins().icmp_imm_s(IntCC::Equal, b, -1);
        let is_special = self.builder.ins().bor(is_zero, is_minus_one);
        let divisor = self.builder.ins().select(is_special, one, b);
        let rest = self.builder.ins().srem(a, divisor);
        let has_rest = self.builder.ins().icmp(IntCC::NotEqual, rest, zero);
        let signs = self.builder.ins().bxor(rest, b);
        let signs_differ = self.builder.ins().icmp(IntCC::SignedLessThan, signs, zero);
        let is_mended = self.builder.ins().band(has_rest, signs_differ);
        if want_rest {
            let mended = self.builder.ins().iadd(rest, b);
            return self.builder.ins().select(is_mended, mended, rest);
        }
        let quotient = self.builder.ins().sdiv(a, divisor);
        let correction = self.builder.ins().uextend(types::I64, is_mended);
        let quotient = self.builder.ins().isub(quotient, correction);
        let negated = self.builder.ins().ineg(a);
        let quotient = self.builder.ins().select(is_minus_one, negated, quotient);
        self.builder.ins().select(is_zero, zero, quotient)
    }

    /// An integer of the message. The verifier has found the `Need` that covers it.
    pub(super) fn load(&mut self, op: &Op) -> ir::Value {
        let Op::Load { base, offset, width_bytes, big_endian, signed } = op else {
            panic!("{op:?} is no load");
        };
        let (data, _) = self.message.expect("only parsers load");
        let mut address = data;
        if let Some(base) = base {
            let base = self.get(*base);
            address = self.builder.ins().iadd(address, base);
        }
        let offset = i32::try_from(*offset).expect("a segment is shorter than 2 GiB");
        // The message does not change while a parser runs, so the same load need not be done twice; it may not move
        // above the comparison that covers it.
        let flags = MemFlagsData::new().with_notrap().with_readonly();
        if let (1, false) = (width_bytes, signed) {
            // In one: of a byte that is widened, code would keep the narrow one too where that does for a comparison.
            return self.builder.ins().uload8(types::I64, flags, address, offset);
        }
        let ty = match width_bytes {
            1 => types::I8,
            2 => types::I16,
            4 => types::I32,
            _ => types::I64,
        };
        let mut word = self.builder.ins().load(ty, flags, address, offset);
        if *width_bytes > 1 && *big_endian != (NATIVE == Endianness::Big) {
            word = self.builder.ins().bswap(word);
        }
        match (*width_bytes, *signed) {
            (8, _) => word,
            (_, true) => self.builder.ins().sextend(types::I64, word),
            (_, false) => self.builder.ins().uextend(types::I64, word),
        }
    }
}
