//! Operations on the text of a message that are mostly decided by its ends or its length; in parsers only, where the
//! text is at hand.
//! Promises: the answers of `flick_ir::semantics`; what is not decided here is asked of the runtime.

use cranelift_codegen::ir::condcodes::IntCC;
use cranelift_codegen::ir::{self, BlockArg, InstBuilder, types};
use flick_ir::data::Value;

use super::compare::Where;
use super::function::Translator;
use super::words::bytes_memory;
use crate::symbols::SymbolId;
use crate::symbols::scan::STEP_BYTES;

/// Bytes between or around the items of a list.
const SEPARATORS: [u8; 3] = *b", \t";

impl Translator<'_, '_> {
    /// Text without blanks at its ends: itself where its first and last bytes are above all blanks.
    pub(super) fn trim(&mut self, value: Value) -> Option<ir::Value> {
        let Some((data, _)) = self.message else { return self.call_runtime(SymbolId::Trim, &[value]) };
        let word = self.get(value);
        let len = self.bytes_len(word);
        let [some, rare, next] = [(); 3].map(|()| self.builder.create_block());
        self.builder.set_cold_block(rare);
        let result = self.builder.append_block_param(next, types::I64);
        self.builder.ins().brif(len, some, &[], rare, &[]);
        self.builder.switch_to_block(some);
        let start = self.message_start(value, word, len, rare);
        let address = self.builder.ins().iadd(data, start);
        let end = self.builder.ins().iadd(address, len);
        let first = self.builder.ins().load(types::I8, bytes_memory(), address, 0);
        let last = self.builder.ins().load(types::I8, bytes_memory(), end, -1);
        let least = self.builder.ins().umin(first, last);
        let is_plain = self.builder.ins().icmp_imm_u(IntCC::UnsignedGreaterThan, least, i64::from(b' '));
        self.builder.ins().brif(is_plain, next, &[BlockArg::Value(word)], rare, &[]);
        self.builder.switch_to_block(rare);
        let trimmed = self.call_runtime(SymbolId::Trim, &[value])?;
        self.builder.ins().jump(next, &[BlockArg::Value(trimmed)]);
        self.builder.switch_to_block(next);
        Some(result)
    }

    /// Whether a list has a token. A list shorter than the token has it not, one as long only if it is the token, and a
    /// short one without commas and blanks is a single item.
    pub(super) fn has_token(&mut self, list: Value, token: Value) -> Option<ir::Value> {
        let wanted = self.constant(token).map(<[u8]>::to_vec);
        let plain =
            wanted.filter(|wanted| !wanted.is_empty() && !wanted.iter().any(|b| SEPARATORS.contains(b)));
        let (Some(wanted), Some(message), true) = (plain, self.message, self.shared.steps_by_sixteen) else {
            return self.predicate(SymbolId::HasToken, list, token);
        };
        let size = wanted.len() as i64;
        let word = self.get(list);
        let len = self.bytes_len(word);
        let [enough, as_long, longer, near, quick, single, rare, next] =
            [(); 8].map(|()| self.builder.create_block());
        self.builder.set_cold_block(rare);
        let result = self.builder.append_block_param(next, types::I8);
        let no = self.builder.ins().iconst(types::I8, 0);
        let is_short = self.builder.ins().icmp_imm_u(IntCC::UnsignedLessThan, len, size);
        self.builder.ins().brif(is_short, next, &[BlockArg::Value(no)], enough, &[]);

        self.builder.switch_to_block(enough);
        let is_as_long = self.builder.ins().icmp_imm_u(IntCC::Equal, len, size);
        self.builder.ins().brif(is_as_long, as_long, &[], longer, &[]);
        self.builder.switch_to_block(as_long);
        let same = match self.compare_const(list, token, Where::Whole, true, SymbolId::SameText) {
            Some(same) => same,
            None => self.predicate(SymbolId::SameText, list, token)?,
        };
        self.builder.ins().jump(next, &[BlockArg::Value(same)]);

        self.builder.switch_to_block(longer);
        let is_small = self.builder.ins().icmp_imm_u(IntCC::UnsignedLessThanOrEqual, len, STEP_BYTES as i64);
        self.builder.ins().brif(is_small, near, &[], rare, &[]);
        self.builder.switch_to_block(near);
        let start = self.message_start(list, word, len, rare);
        let step_end = self.builder.ins().iadd_imm_u(start, STEP_BYTES as i64);
        let is_there = self.builder.ins().icmp(IntCC::UnsignedLessThanOrEqual, step_end, message.1);
        self.builder.ins().brif(is_there, quick, &[], rare, &[]);
        self.builder.switch_to_block(quick);
        let address = self.builder.ins().iadd(message.0, start);
        let separators = self.separators(address);
        let one = self.builder.ins().iconst(types::I32, 1);
        let beyond = self.builder.ins().ishl(one, len);
        let inside = self.builder.ins().iadd_imm_s(beyond, -1);
        let found = self.builder.ins().band(separators, inside);
        self.builder.ins().brif(found, rare, &[], single, &[]);
        self.builder.switch_to_block(single);
        self.builder.ins().jump(next, &[BlockArg::Value(no)]);

        self.builder.switch_to_block(rare);
        let has = self.predicate(SymbolId::HasToken, list, token)?;
        self.builder.ins().jump(next, &[BlockArg::Value(has)]);
        self.builder.switch_to_block(next);
        Some(result)
    }

    /// A bit for each of sixteen bytes that is a separator.
    fn separators(&mut self, address: ir::Value) -> ir::Value {
        let bytes = self.builder.ins().load(types::I8X16, bytes_memory(), address, 0);
        let mut found = None;
        for separator in SEPARATORS {
            let wanted = self.sixteen([separator; STEP_BYTES]);
            let same = self.builder.ins().icmp(IntCC::Equal, bytes, wanted);
            found = Some(match found {
                None => same,
                Some(before) => self.builder.ins().bor(before, same),
            });
        }
        let found = found.expect("there are separators");
        self.builder.ins().vhigh_bits(types::I32, found)
    }
}
