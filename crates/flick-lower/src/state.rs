//! What lives with a session: `local`s as words of its state.
//! Promises: a value is read as it was written; bytes are copied both ways, so later writes change nothing that was
//! read before.
//! Refuses: messages and channels; the checker does.

use flick_check::hir::StateId;
use flick_ir::data::{Op, Type, Value};

use crate::body::Body;
use crate::layout::{Item, WORD_BYTES, items, state_words};
use crate::value::Val;

impl Body<'_> {
    /// Reads a `local`.
    pub fn load_state(&mut self, state: StateId) -> Val {
        let ty = &self.cx.program.states[state.0 as usize].ty;
        let mut place = self.cx.state_place(state);
        let mut words = Vec::new();
        for item in items(self.cx.program, ty) {
            words.push(self.load_item(&item, place));
            place += state_words(&item);
        }
        let carrier = self.cx.carrier(ty);
        self.arrived(&carrier, &mut words.into_iter())
    }

    fn load_item(&mut self, item: &Item, word: u32) -> Value {
        match item {
            Item::Word { is_bool, unsigned } => {
                let ty = match (is_bool, unsigned) {
                    (true, _) => Type::Bool,
                    (false, true) => Type::Uint,
                    (false, false) => Type::Int,
                };
                self.f.define(ty, Op::StateLoad { word })
            }
            Item::Bytes(max_bytes) => {
                self.f.define(Type::Bytes, Op::StateLoadBytes { word, max_bytes: *max_bytes })
            }
            Item::List { elem, max } => match words_only(elem, *max) {
                Some(max_bytes) => self.f.define(Type::Bytes, Op::StateLoadBytes { word, max_bytes }),
                None => self.load_list(elem, *max, word),
            },
        }
    }

    /// A list with bytes in it: as many elements as there may be, cut to those that there are.
    fn load_list(&mut self, elem: &[Item], max: u32, word: u32) -> Value {
        let len = self.f.define(Type::Int, Op::StateLoad { word });
        let words_max = max.saturating_mul(elem.len() as u32);
        let count = self.f.int(i64::from(words_max));
        let memory = self.words_new(count, words_max);
        let mut place = word + 1;
        for (index, item) in (0..max).flat_map(|_| elem).enumerate() {
            let value = self.load_item(item, place);
            place += state_words(item);
            let index = self.f.int(index as i64);
            self.f.effect(Op::WordSet { bytes: memory, index, value });
        }
        let start = self.f.int(0);
        let end = self.times(len, i64::from(WORD_BYTES) * elem.len() as i64);
        self.f.define(Type::Bytes, Op::Slice { bytes: memory, start, end })
    }

    /// `name := value`.
    pub fn store_state(&mut self, state: StateId, val: &Val) {
        let ty = &self.cx.program.states[state.0 as usize].ty;
        let mut place = self.cx.state_place(state);
        let carrier = self.cx.carrier(ty);
        let words = self.words(&carrier, val);
        for (item, value) in items(self.cx.program, ty).iter().zip(words) {
            self.store_item(item, place, value);
            place += state_words(item);
        }
    }

    fn store_item(&mut self, item: &Item, word: u32, value: Value) {
        match item {
            Item::Word { .. } => self.f.effect(Op::StateStore { word, value }),
            Item::Bytes(max_bytes) => {
                self.f.effect(Op::StateStoreBytes { word, max_bytes: *max_bytes, value });
            }
            Item::List { elem, max } => match words_only(elem, *max) {
                Some(max_bytes) => self.f.effect(Op::StateStoreBytes { word, max_bytes, value }),
                None => self.store_list(elem, *max, word, value),
            },
        }
    }

    /// What is behind the end of the list is stored as nothing.
    fn store_list(&mut self, elem: &[Item], max: u32, word: u32, memory: Value) {
        let bytes = self.f.define(Type::Int, Op::Len(memory));
        let size = self.f.int(i64::from(WORD_BYTES) * elem.len() as i64);
        let len = self.f.binary(Type::Int, flick_ir::data::Binary::DivU, bytes, size);
        self.f.effect(Op::StateStore { word, value: len });
        let mut place = word + 1;
        for (index, item) in (0..max).flat_map(|_| elem).enumerate() {
            let ty = match item {
                Item::Word { is_bool: true, .. } => Type::Bool,
                Item::Word { unsigned: true, .. } => Type::Uint,
                Item::Word { .. } => Type::Int,
                Item::Bytes(_) => Type::Bytes,
                Item::List { .. } => panic!("the checker refuses lists of lists"),
            };
            let index = self.f.int(index as i64);
            let value = self.f.define(ty, Op::WordGet { bytes: memory, index });
            self.store_item(item, place, value);
            place += state_words(item);
        }
    }
}

/// Bytes of a list of words at most; it is stored as it lies in memory.
fn words_only(elem: &[Item], max: u32) -> Option<u32> {
    let is_words = elem.iter().all(|item| matches!(item, Item::Word { .. }));
    is_words.then(|| max.saturating_mul(elem.len() as u32).saturating_mul(WORD_BYTES))
}
