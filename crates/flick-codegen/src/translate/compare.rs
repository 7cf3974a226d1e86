//! Comparisons with short constants, inline: a word of a protocol, a prefix of a path, the name of a header.
//! Promises: the answer of `flick_ir::semantics`; only bytes inside the value are read.
//! Refuses: constants longer than [`INLINE_BYTES_MAX`], which the runtime compares faster.

use cranelift_codegen::ir::condcodes::IntCC;
use cranelift_codegen::ir::{self, BlockArg, InstBuilder, types};
use flick_ir::data::Value;

use super::function::Translator;
use super::words::bytes_memory;
use crate::symbols::SymbolId;

/// Longest constant that is compared inline: four words, which is eight instructions.
const INLINE_BYTES_MAX: usize = 32;

/// Position in a value at which the constant must be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Where {
    /// It is all of the value.
    Whole,
    /// At its start.
    Start,
    /// At its end.
    End,
}

impl Translator<'_, '_> {
    /// Compares `value` with the constant `constant`, if it is one and short. `text`: letters of either case are equal.
    pub(super) fn compare_const(
        &mut self,
        value: Value,
        constant: Value,
        position: Where,
        text: bool,
        symbol: SymbolId,
    ) -> Option<ir::Value> {
        let wanted = self.constant(constant).filter(|wanted| wanted.len() <= INLINE_BYTES_MAX)?;
        if cfg!(target_endian = "big") {
            return None;
        }
        let wanted = wanted.to_vec();
        let word = self.get(value);
        let len = self.bytes_len(word);
        let size = wanted.len() as i64;
        let condition =
            if position == Where::Whole { IntCC::Equal } else { IntCC::UnsignedGreaterThanOrEqual };
        let fits = self.builder.ins().icmp_imm_u(condition, len, size);
        if wanted.is_empty() {
            return Some(fits);
        }
        let (inside, next) = (self.builder.create_block(), self.builder.create_block());
        let result = self.builder.append_block_param(next, types::I8);
        let no = self.builder.ins().iconst(types::I8, 0);
        self.builder.ins().brif(fits, inside, &[], next, &[BlockArg::Value(no)]);
        self.builder.switch_to_block(inside);
        let (mut address, rare) = self.address_of(value, word, len);
        if position == Where::End {
            address = self.builder.ins().iadd(address, len);
            address = self.builder.ins().iadd_imm_s(address, -size);
        }
        let difference = self.difference(address, &wanted, text);
        let equal = self.builder.ins().icmp_imm_u(IntCC::Equal, difference, 0);
        self.builder.ins().jump(next, &[BlockArg::Value(equal)]);
        self.builder.switch_to_block(rare);
        let equal = self.predicate(symbol, value, constant).expect("a predicate gives a word");
        self.builder.ins().jump(next, &[BlockArg::Value(equal)]);
        self.builder.switch_to_block(next);
        Some(result)
    }

    /// 0 if the bytes at `address` are the wanted ones. Pieces overlap where that spares a load.
    fn difference(&mut self, address: ir::Value, wanted: &[u8], text: bool) -> ir::Value {
        let width = [8, 4, 2, 1].into_iter().find(|width| *width <= wanted.len()).expect("there is a byte");
        let mut difference = None;
        let mut at = 0;
        while at < wanted.len() {
            let start = at.min(wanted.len() - width);
            let piece = self.piece(address, start, &wanted[start..start + width], text);
            difference = Some(match difference {
                None => piece,
                Some(before) => self.builder.ins().bor(before, piece),
            });
            at = start + width;
        }
        difference.expect("there is a byte")
    }

    fn piece(&mut self, address: ir::Value, at: usize, wanted: &[u8], text: bool) -> ir::Value {
        let ty = match wanted.len() {
            1 => types::I8,
            2 => types::I16,
            4 => types::I32,
            _ => types::I64,
        };
        let word = |byte: &dyn Fn(u8) -> u8| {
            wanted.iter().rev().fold(0_u64, |word, wanted| (word << 8) | u64::from(byte(*wanted)))
        };
        let is_letter = |byte: u8| text && byte.is_ascii_alphabetic();
        // A letter and its twin differ in this bit alone, and nothing else becomes a letter by setting it.
        let case_bits = word(&|byte| if is_letter(byte) { 0x20 } else { 0 });
        let expected = word(&|byte| if is_letter(byte) { byte.to_ascii_lowercase() } else { byte });
        let offset = i32::try_from(at).expect("the constant is short");
        let mut found = self.builder.ins().load(ty, bytes_memory(), address, offset);
        if ty != types::I64 {
            found = self.builder.ins().uextend(types::I64, found);
        }
        if case_bits != 0 {
            let case_bits = self.iconst(case_bits as i64);
            found = self.builder.ins().bor(found, case_bits);
        }
        let expected = self.iconst(expected as i64);
        self.builder.ins().bxor(found, expected)
    }
}
