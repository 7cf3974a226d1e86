//! Needles in messages that are shorter than a step, byte by byte: the shortest replies of protocols of lines, for
//! which a call takes longer than a look at each byte.
//! Promises: the places of `flick_ir::semantics`; only loads inside the message.

use cranelift_codegen::ir::condcodes::IntCC;
use cranelift_codegen::ir::{self, BlockArg, InstBuilder, types};

use super::function::Translator;
use super::words::bytes_memory;

impl Translator<'_, '_> {
    /// Returns the first position from `from` on where `needle` begins, else the first where it may still begin; at
    /// most `end`.
    pub(super) fn seek_near(&mut self, from: ir::Value, end: ir::Value, needle: &[u8]) -> ir::Value {
        let (data, len) = self.message.expect("only parsers look for the end of something");
        let [head, look, on, next] = [(); 4].map(|()| self.builder.create_block());
        let at = self.builder.append_block_param(head, types::I64);
        let result = self.builder.append_block_param(next, types::I64);
        // Below zero if the message is shorter than the needle.
        let limit = self.builder.ins().iadd_imm_s(len, 1 - needle.len() as i64);
        let limit = self.builder.ins().smin(limit, end);
        let limit = self.builder.ins().smax(limit, from);
        self.builder.ins().jump(head, &[BlockArg::Value(from)]);

        self.builder.switch_to_block(head);
        let is_over = self.builder.ins().icmp(IntCC::Equal, at, limit);
        self.builder.ins().brif(is_over, next, &[BlockArg::Value(at)], look, &[]);

        self.builder.switch_to_block(look);
        let address = self.builder.ins().iadd(data, at);
        for (offset, byte) in (0_i32..).zip(needle) {
            let there = self.builder.ins().load(types::I8, bytes_memory(), address, offset);
            let same = self.builder.ins().icmp_imm_u(IntCC::Equal, there, i64::from(*byte));
            let further = self.builder.create_block();
            self.builder.ins().brif(same, further, &[], on, &[]);
            self.builder.switch_to_block(further);
        }
        self.builder.ins().jump(next, &[BlockArg::Value(at)]);

        self.builder.switch_to_block(on);
        let after = self.builder.ins().iadd_imm_u(at, 1);
        self.builder.ins().jump(head, &[BlockArg::Value(after)]);
        self.builder.switch_to_block(next);
        result
    }
}
