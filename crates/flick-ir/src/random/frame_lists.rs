//! Runs, needles, and the lists of a frame in random functions: parsers fill them, rules read them.

use flick_abi::frame::SLOT_ITEMS;

use super::body::{Body, Scope};
use super::wide::{BYTES_MAX, List};
use super::{BYTES_SLOTS, CLASSES, CONSTS_BYTES, MESSAGE_BYTES_MAX};
use crate::data::{
    Binary, BlockId, FuncKind, LineDoes, LineForm, LineKey, Op, Terminator, Transform, Type, Value,
};

/// Items that a parser has pushed when it pushes no more; it may be called for each byte of a message.
const PUSHED_MAX: usize = 200;

impl Body<'_> {
    /// Some constant bytes to look for.
    fn needle(&mut self) -> (u32, u32) {
        let longest = if self.rng.chance(80) { 2 } else { 5 };
        let len = 1 + self.rng.below(longest);
        (self.rng.below(CONSTS_BYTES - len + 1) as u32, len as u32)
    }

    /// Looks for the end of something.
    pub(super) fn scan(&mut self, block: BlockId, scope: &mut Scope) {
        let mut from = self.number(block, scope);
        if self.rng.chance(70) {
            let limit = self.constant(block, scope, MESSAGE_BYTES_MAX);
            from = self.at_most(block, scope, limit);
        }
        let max = if self.rng.chance(10) { u32::MAX } else { self.rng.below(MESSAGE_BYTES_MAX) as u32 };
        let op = if self.rng.chance(20) {
            Op::Lines { from, left: self.number(block, scope), form: Box::new(self.line_form()) }
        } else if self.rng.chance(50) {
            Op::ScanRun { from, class: self.rng.below(CLASSES) as u32, max }
        } else {
            let (offset, len) = self.needle();
            Op::Seek { from, offset, len, max }
        };
        let is_position = !matches!(op, Op::Lines { .. });
        let position = self.define(block, scope, Type::Int, op);
        if is_position {
            scope.cover(position);
        }
    }

    /// Lines of short names that end with a byte or two that messages have.
    fn line_form(&mut self) -> LineForm {
        let mut class = || self.rng.below(CLASSES) as u32;
        let (name, blanks, value) = (class(), class(), class());
        let len = 1 + self.rng.below(2);
        LineForm {
            name,
            name_max: self.rng.below(MESSAGE_BYTES_MAX) as u32,
            separator: self.rng.word() as u8,
            blanks,
            value,
            end: (self.rng.below(CONSTS_BYTES - len + 1) as u32, len as u32),
            max: self.rng.below(MESSAGE_BYTES_MAX) as u32,
            upto: self.rng.below(2 * MESSAGE_BYTES_MAX) as u32,
            trim: self.rng.chance(50),
            nocase: self.rng.chance(50),
            push: self.rng.chance(20),
            keys: (0..self.rng.below(4)).map(|_| self.line_key()).collect(),
        }
    }

    fn line_key(&mut self) -> LineKey {
        let does = match self.rng.below(4) {
            0 => LineDoes::Stop,
            1 => LineDoes::Cut,
            _ => LineDoes::Keep {
                slot: self.slot(BYTES_SLOTS),
                once: self.rng.chance(30),
                cut: self.rng.chance(30),
            },
        };
        LineKey { name: self.needle(), does }
    }

    /// Fills a list of the frame. Returns the block where it goes on.
    pub(super) fn push_or_cut(&mut self, block: BlockId, scope: &mut Scope) -> BlockId {
        if self.rng.chance(50) {
            return self.push_item(block, scope);
        }
        let Some(end) = scope.some_covered(self.rng) else { return block };
        let start = self.at_most(block, scope, end);
        let op = match self.rng.below(5) {
            0 => {
                let lines_max = self.rng.below(8) as u32;
                Op::CutListed { names: self.some(block, scope, Type::Bytes), start, end, lines_max }
            }
            1 => Op::Insert { at: start, text: self.some(block, scope, Type::Bytes) },
            _ => Op::Cut { start, end },
        };
        self.define(block, scope, Type::Bool, op);
        block
    }

    fn push_item(&mut self, block: BlockId, scope: &mut Scope) -> BlockId {
        let value = self.some(block, scope, Type::Bytes);
        let count = self.define(block, scope, Type::Int, Op::FrameGet { slot: SLOT_ITEMS as u16 });
        let limit = self.constant(block, scope, PUSHED_MAX);
        let cond = self.define(block, scope, Type::Bool, Op::Binary(Binary::LtU, count, limit));
        let (push, meet) = (self.block(&[]), self.block(&[]));
        self.end(block, Terminator::Branch { cond, then: (push, Vec::new()), otherwise: (meet, Vec::new()) });
        self.push(push, None, Op::ItemPush(value));
        self.end(push, Terminator::Jump(meet, Vec::new()));
        meet
    }

    /// Asks something of bytes.
    pub(super) fn ask_bytes(&mut self, block: BlockId, scope: &mut Scope) {
        let bytes = self.some(block, scope, Type::Bytes);
        let op = match self.rng.below(3) {
            0 => Op::IsMissing(bytes),
            1 => Op::HasToken(bytes, self.some(block, scope, Type::Bytes)),
            _ => {
                let class = self.rng.below(CLASSES) as u32;
                let class = self.rng.chance(60).then_some(class);
                let without = self.needle();
                Op::Guard { bytes, class, without: self.rng.chance(60).then_some(without) }
            }
        };
        self.define(block, scope, Type::Bool, op);
    }

    /// Takes items or all of a message, or transforms bytes. Returns the block where it goes on.
    pub(super) fn take(&mut self, block: BlockId, scope: &mut Scope) -> BlockId {
        // An order may look at more messages than a rule has at its start.
        let is_other = self.function.kind == FuncKind::Order && self.rng.chance(50);
        let message = is_other.then(|| self.some(block, scope, Type::Message));
        let (found, len) = match self.rng.below(3) {
            0 => {
                let (from, count) = (self.number(block, scope), self.number(block, scope));
                let count_max = self.rng.below(5) as u32;
                let op = Op::Items { message, from, count, count_max };
                let list = self.define(block, scope, Type::Bytes, op);
                self.set_len(list, 8 * u64::from(count_max));
                scope.lists.push(List { value: list, words: 0, ty: Type::Bytes });
                return block;
            }
            1 => (self.found(block, Op::Whole { message }), MESSAGE_BYTES_MAX as u64),
            _ => match self.transform(block, scope) {
                Some(found) => found,
                None => return block,
            },
        };
        self.set_len(found, len);
        self.unless_missing(block, scope, found)
    }

    fn transform(&mut self, block: BlockId, scope: &mut Scope) -> Option<(Value, u64)> {
        let bytes = self.some(block, scope, Type::Bytes);
        let len = self.len(bytes);
        let (kind, len) = self.rng.pick(&[
            (Transform::PercentDecode, len),
            (Transform::PercentEncode, 3 * len),
            (Transform::Base64Decode, len),
            (Transform::Base64Encode, 4 * len.div_ceil(3)),
        ]);
        // What is longer would make everything behind it longer still.
        let op = Op::Transform { kind, bytes, max_bytes: len as u32 };
        (len <= BYTES_MAX).then(|| (self.found(block, op), len))
    }

    /// The result of an operation that may be missing, so no other operation uses it.
    fn found(&mut self, block: BlockId, op: Op) -> Value {
        let found = self.value(Type::Bytes);
        self.push(block, Some(found), op);
        found
    }
}
