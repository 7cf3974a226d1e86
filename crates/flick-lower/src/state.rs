//! Lowers `local`s, which live as long as their session, to words of its state.
//! Promises: a read returns the value that was written; bytes are copied in and out, so later writes change nothing
//! that was read before.
//! Refuses: messages, lists and channels; the checker does.

use flick_check::hir::SessionLocalId;
use flick_ir::data::{Op, Type, Value};

use crate::body::Body;
use crate::layout::{StoredPart, items, state_words};
use crate::value::Val;

impl Body<'_> {
    /// Reads a `local`.
    pub fn load_state(&mut self, state: SessionLocalId) -> Val {
        let ty = &self.cx.program.session_locals[state.0 as usize].ty;
        let mut position = self.cx.state_word(state);
        let mut words = Vec::new();
        for item in items(self.cx.program, ty) {
            words.push(self.load_item(&item, position));
            position += state_words(&item);
        }
        let carrier = self.cx.carrier(ty);
        self.arrived(&carrier, &mut words.into_iter())
    }

    fn load_item(&mut self, item: &StoredPart, word: u32) -> Value {
        match item {
            StoredPart::Word { is_bool, unsigned } => {
                let ty = match (is_bool, unsigned) {
                    (true, _) => Type::Bool,
                    (false, true) => Type::Uint,
                    (false, false) => Type::Int,
                };
                self.f.define(ty, Op::StateLoad { word })
            }
            StoredPart::Bytes(max_bytes) => {
                self.f.define(Type::Bytes, Op::StateLoadBytes { word, max_bytes: *max_bytes })
            }
        }
    }

    /// `name := value`.
    pub fn store_state(&mut self, state: SessionLocalId, val: &Val) {
        let ty = &self.cx.program.session_locals[state.0 as usize].ty;
        let mut position = self.cx.state_word(state);
        let carrier = self.cx.carrier(ty);
        let words = self.words(&carrier, val);
        for (item, value) in items(self.cx.program, ty).iter().zip(words) {
            self.store_item(item, position, value);
            position += state_words(item);
        }
    }

    fn store_item(&mut self, item: &StoredPart, word: u32, value: Value) {
        match item {
            StoredPart::Word { .. } => self.f.effect(Op::StateStore { word, value }),
            StoredPart::Bytes(max_bytes) => {
                self.f.effect(Op::StateStoreBytes { word, max_bytes: *max_bytes, value });
            }
        }
    }
}
