//! Operations on runs of bytes, on the output and on the list of sends: mostly calls of the runtime.

use cranelift_codegen::ir::condcodes::IntCC;
use cranelift_codegen::ir::{self, BlockArg, InstBuilder, types};
use flick_abi::BytesRef;
use flick_ir::data::{Op, Type, Value};

use super::compare::Where;
use super::function::Translator;
use crate::symbols::SymbolId;
use crate::symbols::frame_lists::transform_word;

impl Translator<'_, '_> {
    /// Translates what is no arithmetic. Returns the word it defines, which is `result`.
    pub(super) fn bytes_op(&mut self, op: &Op, result: Option<Value>) -> Option<ir::Value> {
        match op {
            Op::HashInt(value) => {
                let value = self.get(*value);
                self.call_symbol(SymbolId::HashInt, &[value])
            }
            Op::HashBytes(value) => self.call_runtime(SymbolId::HashBytes, &[*value]),
            Op::BytesEq(a, b) => Some(self.bytes_eq(*a, *b)),
            Op::BytesStartsWith(a, b) => {
                let inline = self.compare_const(*a, *b, Where::Start, false, SymbolId::StartsWith);
                inline.or_else(|| self.predicate(SymbolId::StartsWith, *a, *b))
            }
            Op::BytesEndsWith(a, b) => {
                let inline = self.compare_const(*a, *b, Where::End, false, SymbolId::EndsWith);
                inline.or_else(|| self.predicate(SymbolId::EndsWith, *a, *b))
            }
            Op::BytesContains(a, b) => self.predicate(SymbolId::Contains, *a, *b),
            Op::BytesLess(a, b) => self.predicate(SymbolId::Less, *a, *b),
            Op::SameText(a, b) => {
                let inline = self.compare_either(*a, *b, true, SymbolId::SameText);
                inline.or_else(|| self.predicate(SymbolId::SameText, *a, *b))
            }
            Op::FormatAddress(bytes) => self.call_runtime(SymbolId::FormatAddress, &[*bytes]),
            Op::Find(a, b) => self.call_runtime(SymbolId::Find, &[*a, *b]),
            Op::Trim(value) => self.trim(*value),
            Op::IsMissing(value) => {
                let value = self.get(*value);
                Some(self.builder.ins().icmp_imm_s(IntCC::Equal, value, BytesRef::MISSING.0 as i64))
            }
            Op::EmitBytes { value } => self.call_runtime(SymbolId::EmitBytes, &[*value]),
            Op::EmitMessage { start, end } => {
                self.emit_message(*start, *end);
                None
            }
            Op::EmitMessageOf { message, start, end } => {
                self.call_runtime(SymbolId::EmitMessage, &[*message, *start, *end])
            }
            other => self.text_op(other, result),
        }
    }

    /// Translates what makes or looks into text, lists and packed values.
    fn text_op(&mut self, op: &Op, result: Option<Value>) -> Option<ir::Value> {
        match op {
            Op::Slice { bytes, start, end } => Some(self.slice(*bytes, *start, *end)),
            Op::ByteAt { bytes, index } => Some(self.byte_at(*bytes, *index)),
            Op::HasToken(list, token) => self.has_token(*list, *token),
            Op::Guard { bytes, class, without } => self.guard(*bytes, *class, *without),
            Op::IsInt { bytes, base } => self.is_int(*bytes, *base),
            Op::ParseInt { bytes, base } => self.parse_int(*bytes, *base),
            Op::FormatInt { value, signed, base } => {
                let signed = self.iconst(i64::from(*signed));
                let base = self.iconst(i64::from(*base));
                let args = [self.raw_call(), self.get(*value), base, signed];
                self.call_symbol(SymbolId::FormatInt, &args)
            }
            Op::Concat { parts, max_bytes } => self.concat(parts, *max_bytes),
            Op::Split { bytes, separator, max } => {
                let max = self.iconst(i64::from(*max));
                let args = [self.raw_call(), self.get(*bytes), self.get(*separator), max];
                self.call_symbol(SymbolId::Split, &args)
            }
            Op::Case { bytes, upper, max_bytes } => {
                let (upper, max) = (self.iconst(i64::from(*upper)), self.iconst(i64::from(*max_bytes)));
                let args = [self.raw_call(), self.get(*bytes), upper, max];
                self.call_symbol(SymbolId::Case, &args)
            }
            Op::WordsNew { words, words_max } => {
                if let Some(list) = self.few_words(*words, *words_max) {
                    return Some(list);
                }
                let max = self.iconst(i64::from(*words_max));
                let args = [self.raw_call(), self.get(*words), max];
                self.call_symbol(SymbolId::WordsNew, &args)
            }
            Op::WordGet { bytes, index } => {
                let is_bool = result.is_some_and(|result| self.ty(result) == Type::Bool);
                Some(self.word_get(*bytes, *index, is_bool))
            }
            Op::WordSet { bytes, index, value } => {
                self.word_set(*bytes, *index, *value);
                None
            }
            Op::Pack { items, max_bytes } => self.pack(items, *max_bytes),
            Op::PackedBytes { packed, index } => {
                let index = self.iconst(i64::from(*index));
                let args = [self.raw_call(), self.get(*packed), index];
                self.call_symbol(SymbolId::PackedBytes, &args)
            }
            other => self.list_op(other),
        }
    }

    /// Translates what takes a message's lists or all of it, or transforms bytes.
    fn list_op(&mut self, op: &Op) -> Option<ir::Value> {
        match op {
            Op::Transform { kind, bytes, max_bytes } => {
                let (kind, max) = (self.iconst(transform_word(*kind)), self.iconst(i64::from(*max_bytes)));
                let args = [self.raw_call(), kind, self.get(*bytes), max];
                self.call_symbol(SymbolId::Transform, &args)
            }
            Op::Items { message, from, count, count_max } => {
                let message = message.map(|message| self.get(message));
                let message = message.unwrap_or_else(|| self.iconst(0));
                let max = self.iconst(i64::from(*count_max));
                let args = [self.raw_call(), message, self.get(*from), self.get(*count), max];
                self.call_symbol(SymbolId::Items, &args)
            }
            Op::Whole { message } => {
                let message = message.map(|message| self.get(message));
                let message = message.unwrap_or_else(|| self.iconst(0));
                let args = [self.raw_call(), message];
                self.call_symbol(SymbolId::Whole, &args)
            }
            other => self.send_op(other),
        }
    }

    fn send_op(&mut self, op: &Op) -> Option<ir::Value> {
        match op {
            Op::SendOriginal { chan } => self.call_runtime(SymbolId::SendOriginal, &[*chan]),
            Op::SendMessage { chan, message } => self.call_runtime(SymbolId::SendMessage, &[*chan, *message]),
            Op::SendRebuilt { chan, mark, tail_from, tail_of } => {
                let [tail_from, tail_of] = self.tail(*tail_from, *tail_of);
                let args = [self.raw_call(), self.get(*chan), self.get(*mark), tail_from, tail_of];
                self.call_symbol(SymbolId::SendRebuilt, &args)
            }
            Op::AskOriginal { chan, timeout_ns } => {
                self.call_runtime(SymbolId::AskOriginal, &[*chan, *timeout_ns])
            }
            Op::AskMessage { chan, message, timeout_ns } => {
                self.call_runtime(SymbolId::AskMessage, &[*chan, *message, *timeout_ns])
            }
            Op::AskRebuilt { chan, mark, tail_from, tail_of, timeout_ns } => {
                let [tail_from, tail_of] = self.tail(*tail_from, *tail_of);
                let (chan, mark, timeout_ns) = (self.get(*chan), self.get(*mark), self.get(*timeout_ns));
                let args = [self.raw_call(), chan, mark, tail_from, tail_of, timeout_ns];
                self.call_symbol(SymbolId::AskRebuilt, &args)
            }
            other => panic!("{other:?} has a translation of its own"),
        }
    }

    /// Returns the start of the rest of a rebuilt message (-1: nothing follows), and the number of that message.
    fn tail(&mut self, tail_from: Option<Value>, tail_of: Option<Value>) -> [ir::Value; 2] {
        let from = tail_from.map(|value| self.get(value));
        let of = tail_of.map(|value| self.get(value));
        [from.unwrap_or_else(|| self.iconst(-1)), of.unwrap_or_else(|| self.iconst(0))]
    }

    /// Calls a runtime function that takes the call itself first.
    pub(super) fn call_runtime(&mut self, symbol: SymbolId, args: &[Value]) -> Option<ir::Value> {
        let mut words = vec![self.raw_call()];
        words.extend(args.iter().map(|arg| self.get(*arg)));
        self.call_symbol(symbol, &words)
    }

    /// Compares with whichever side is a short constant.
    fn compare_either(&mut self, a: Value, b: Value, text: bool, symbol: SymbolId) -> Option<ir::Value> {
        let inline = self.compare_const(a, b, Where::Whole, text, symbol);
        inline.or_else(|| self.compare_const(b, a, Where::Whole, text, symbol))
    }

    pub(super) fn predicate(&mut self, symbol: SymbolId, a: Value, b: Value) -> Option<ir::Value> {
        let word = self.call_runtime(symbol, &[a, b])?;
        Some(self.builder.ins().ireduce(types::I8, word))
    }

    /// Equality: the lengths differ most of the time, which needs no call.
    fn bytes_eq(&mut self, a: Value, b: Value) -> ir::Value {
        if let Some(equal) = self.compare_either(a, b, false, SymbolId::Equal) {
            return equal;
        }
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
}
