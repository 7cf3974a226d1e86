//! The session's state, other messages, and what is kept across suspensions.
//! Promises: positions in the state and among the kept words are constants that the verifier has compared with their
//! number, and `load` compares that number with what a call brings.

use cranelift_codegen::ir::condcodes::IntCC;
use cranelift_codegen::ir::{self, InstBuilder, types};
use flick_ir::data::{Inst, Op, Type, Value};

use super::function::{Translator, fixed_memory, own_memory};
use crate::raw;
use crate::symbols::SymbolId;

impl Translator<'_, '_> {
    /// Translates an operation on state. Returns the word it defines.
    pub(super) fn state_op(&mut self, inst: &Inst) -> Option<ir::Value> {
        let is_bool = inst.result.is_some_and(|result| self.ty(result) == Type::Bool);
        match &inst.op {
            Op::StateLoad { word } => {
                let state = self.pointer(raw::STATE);
                Some(self.load_word(state, *word, is_bool))
            }
            Op::StateStore { word, value } => {
                let state = self.pointer(raw::STATE);
                self.store_word(state, *word, *value);
                None
            }
            Op::StateLoadBytes { word, max_bytes } => {
                let area = self.state_area(*word);
                let max = self.iconst(i64::from(*max_bytes));
                let args = [self.raw_call(), area, max];
                self.call_symbol(SymbolId::StateLoadBytes, &args)
            }
            Op::StateStoreBytes { word, max_bytes, value } => {
                let area = self.state_area(*word);
                let max = self.iconst(i64::from(*max_bytes));
                let args = [self.raw_call(), area, max, self.get(*value)];
                self.call_symbol(SymbolId::StateStoreBytes, &args)
            }
            Op::SpillGet { slot } => {
                let spills = self.pointer(raw::SPILLS);
                Some(self.load_word(spills, u32::from(*slot), is_bool))
            }
            Op::SpillSet { slot, value } => {
                let spills = self.pointer(raw::SPILLS);
                self.store_word(spills, u32::from(*slot), *value);
                None
            }
            Op::ResumeState => Some(self.pointer(raw::RESUME)),
            Op::MessageGet { message, slot } => {
                let kind = match inst.result.map(|result| self.ty(result)) {
                    Some(Type::Bool) => 1,
                    Some(Type::Bytes) => 2,
                    _ => 0,
                };
                let (slot, kind) = (self.iconst(i64::from(*slot)), self.iconst(kind));
                let args = [self.raw_call(), self.get(*message), slot, kind];
                let word = self.call_symbol(SymbolId::MessageGet, &args)?;
                Some(if is_bool { self.builder.ins().ireduce(types::I8, word) } else { word })
            }
            Op::Answer { index } => self.call_runtime(SymbolId::Answer, &[*index]),
            Op::AsMessage(value) => Some(self.get(*value)),
            Op::Fail { reason } => self.call_runtime(SymbolId::Fail, &[*reason]),
            other => panic!("{other:?} is no operation on state"),
        }
    }

    /// A word of the `RawCall` that does not change while the function runs.
    fn pointer(&mut self, offset: i32) -> ir::Value {
        let call = self.raw_call();
        self.builder.ins().load(types::I64, fixed_memory(), call, offset)
    }

    fn state_area(&mut self, word: u32) -> ir::Value {
        let state = self.pointer(raw::STATE);
        self.builder.ins().iadd_imm_u(state, i64::from(word) * 8)
    }

    fn load_word(&mut self, base: ir::Value, word: u32, is_bool: bool) -> ir::Value {
        let word = self.builder.ins().load(types::I64, own_memory(), base, word_offset(word));
        if is_bool { self.truth(word) } else { word }
    }

    fn store_word(&mut self, base: ir::Value, word: u32, value: Value) {
        let value = self.word(value);
        self.builder.ins().store(own_memory(), value, base, word_offset(word));
    }

    /// A boolean from a word.
    pub(super) fn truth(&mut self, word: ir::Value) -> ir::Value {
        self.builder.ins().icmp_imm_u(IntCC::NotEqual, word, 0)
    }
}

/// Offset of a word, in bytes.
fn word_offset(word: u32) -> i32 {
    i32::try_from(word * 8).expect("state and kept words are far below 2 GiB")
}
