//! Fields and literals: text by class or delimiter, numbers in digits, integers, bits, integers of variable length.
//! Promises: no byte is searched twice, wherever the input is cut; whether something is too long never depends on how
//! much is there.

use flick_abi::FaultCause;
use flick_abi::frame::SLOT_SCAN;
use flick_abi::limits::LEADING_ZEROS_MAX;
use flick_check::hir::{ClassId, Expr, FieldId, FieldKind, IntRepr, Item, Literal};
use flick_ir::data::{Binary, BlockId, Op, Type, Value};

use super::stage::Cursor;
use super::{Emitter, sizes};
use crate::interval::Interval;
use crate::unit::SlotKey;
use crate::value::{Num, Val};
use crate::write::mask;

/// The bytes that have been skipped since a position, in one piece.
#[derive(Clone, Copy, Debug)]
pub struct ByteRun {
    /// The place.
    pub start: Value,
    /// Every byte since is of it.
    pub set: [u64; 4],
    /// Their largest number.
    pub most: u32,
}

/// A text field.
#[derive(Clone, Copy, Debug)]
pub struct Text<'a> {
    /// Every byte is of it.
    pub class: Option<ClassId>,
    /// The delimiter that ends it.
    pub until: Option<&'a [u8]>,
    /// Least length, in bytes.
    pub min_bytes: u32,
    /// Largest length, in bytes.
    pub max_bytes: u32,
    /// Blanks at its end are no part of the value.
    pub trim: bool,
    /// It is not forwarded.
    pub cut: bool,
}

/// Bytes that may stand before the digits of a number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NumberFront {
    /// Nothing.
    Nothing,
    /// A `-`.
    Sign,
    /// Zeros, which are not forwarded.
    Zeros,
}

/// Decimal digits.
const DIGITS: [u64; 4] = [0x03ff_0000_0000_0000, 0, 0, 0];
/// Hexadecimal digits in both cases.
const HEX_DIGITS: [u64; 4] = [0x03ff_0000_0000_0000, 0x0000_007e_0000_007e, 0, 0];
/// Bytes of an integer of variable length that another follows.
const CONTINUED: [u64; 4] = [0, 0, u64::MAX, u64::MAX];
/// Decimal digits that do not fit a signed word in any case.
const DECIMAL_DIGITS_MAX: u8 = 19;
/// The bit that distinguishes a lower-case letter from the upper-case one.
const LOWER_BIT: u8 = 0x20;
/// The digit of nothing.
const ZERO: [u64; 4] = [0x0001_0000_0000_0000, 0, 0, 0];
/// The sign of a number.
const MINUS: u8 = b'-';

impl Emitter<'_, '_> {
    /// A text field; `ahead`: what stands behind it.
    pub fn text(&mut self, id: FieldId, text: Text<'_>, ahead: &[Item]) {
        let classes = &self.body.cx.program.classes;
        let class = text.class.map(|class| &classes[class.0 as usize]);
        let max_bytes = match self.needs.view_max(id) {
            Some(max) if !self.needs.is_optional(id) => max.min(text.max_bytes),
            _ => text.max_bytes,
        };
        let text = Text { max_bytes, ..text };
        let ahead = sizes::first_ahead(self.info, ahead);
        let set = class.map(|class| class.set);
        match (set, text.until) {
            (Some(set), None) => {
                let span = self.run(id, set, text.max_bytes, ahead.max(1));
                self.text_found(id, text, span);
            }
            (Some(set), Some(until)) if set[usize::from(until[0]) / 64] >> (until[0] % 64) & 1 == 0 => {
                let span = self.run(id, set, text.max_bytes, until.len() as u32);
                self.text_found(id, text, span);
                let cause = self.info.field(id).cause;
                self.expect_bytes(until, false, cause);
                self.byte_run = None;
            }
            (set, Some(until)) => {
                let (start, end) = self.seek(id, until, text.max_bytes);
                if let Some(set) = set {
                    let class = self.body.consts.class(set);
                    let op = Op::ScanRun { from: start, class, max: text.max_bytes };
                    let run_end = self.body.f.define(Type::Int, op);
                    let all = self.body.f.binary(Type::Bool, Binary::LeS, end, run_end);
                    self.body.expect(all, id.0, self.info.field(id).cause);
                }
                self.text_found(id, text, (start, end));
                self.at = self.at.advanced(until.len() as u32);
            }
            (None, None) => panic!("the checker asks what a text is made of, or what ends it"),
        }
    }

    /// The longest run of bytes of a set from here on, of at most `max` bytes; `ahead` bytes behind it are there.
    fn run(&mut self, id: FieldId, set: [u64; 4], max: u32, ahead: u32) -> (Value, Value) {
        let class = self.body.consts.class(set);
        self.reach();
        let byte_run = self.byte_run.take();
        // Where what stands in front is of the class too, it is searched from there: then the end does not wait for the
        // start to be found.
        let is_early =
            byte_run.is_some_and(|byte_run| (0..4).all(|word| byte_run.set[word] & !set[word] == 0));
        let (start, from, run_start, state) = self.run_stage(byte_run.as_ref(), is_early);
        let mut reach = max.saturating_add(1);
        let mut behind = ByteRun { start: run_start, set, most: max };
        if let Some(byte_run) = byte_run {
            reach = if is_early { reach.saturating_add(byte_run.most) } else { reach };
            behind.set = std::array::from_fn(|word| byte_run.set[word] | set[word]);
            behind.most = behind.most.saturating_add(byte_run.most);
        }
        let end = self.body.f.define(Type::Int, Op::ScanRun { from, class, max: reach });
        self.searched(id, (start, end), max, ahead, state);
        self.byte_run = Some(behind);
        (start, end)
    }

    /// Returns the first position of `needle` from here on, at most `max` bytes ahead; it has been found.
    fn seek(&mut self, id: FieldId, needle: &[u8], max: u32) -> (Value, Value) {
        let Op::ConstBytes { offset, len } = self.body.consts.intern(needle) else {
            panic!("constant bytes are constant bytes")
        };
        let (start, from, state) = self.search_stage();
        let end = self.body.f.define(Type::Int, Op::Seek { from, offset, len, max });
        // Where it may still begin it is not complete, so after the wait it has been found.
        self.searched(id, (start, end), max, needle.len() as u32, state);
        (start, end)
    }

    /// A search has come as far as the bytes go: refuses what is too long, and waits for `ahead` bytes there.
    fn searched(&mut self, id: FieldId, (start, end): (Value, Value), max: u32, ahead: u32, state: u32) {
        let len = self.body.f.binary(Type::Int, Binary::Sub, end, start);
        let longest = self.body.f.int(i64::from(max));
        let fits = self.body.f.binary(Type::Bool, Binary::LeS, len, longest);
        self.body.expect(fits, id.0, self.info.too_long(id));
        self.at = Cursor::at(end, self.at.most + u64::from(max));
        self.body.set_slot(SLOT_SCAN as u16, end);
        self.wait(ahead, state);
    }

    /// A text has been found whole.
    fn text_found(&mut self, id: FieldId, text: Text<'_>, (start, end): (Value, Value)) {
        if text.min_bytes > 0 {
            let least = self.body.f.int(i64::from(text.min_bytes));
            let len = self.body.f.binary(Type::Int, Binary::Sub, end, start);
            let enough = self.body.f.binary(Type::Bool, Binary::LeS, least, len);
            self.body.expect(enough, id.0, self.info.field(id).cause);
        }
        if text.cut {
            self.cut_range(start, end);
        }
        let span = if text.trim { self.trimmed(id, (start, end)) } else { (start, end) };
        self.bytes_found(id, span, Some(text.max_bytes));
        self.key_found(id, span);
    }

    /// The value without the blanks at its end, if anybody asks for it; a value that is only looked up by key is
    /// trimmed when its key is known to matter (`keyed.rs`).
    fn trimmed(&mut self, id: FieldId, (start, end): (Value, Value)) -> (Value, Value) {
        let is_asked = self.needs.kept.iter().any(|key| key.id() == id);
        let only_by_key = !self.needs.read.contains(&id);
        if !is_asked && self.info.field(id).requires.is_empty() || only_by_key {
            return (start, end);
        }
        let bytes = self.body.f.define(Type::Bytes, Op::MessageBytes { start, end });
        let trimmed = self.body.f.define(Type::Bytes, Op::Trim(bytes));
        let len = self.body.f.define(Type::Int, Op::Len(trimmed));
        let first = self.body.f.define(Type::Int, Op::BytesOffset(trimmed));
        let last = self.body.f.binary(Type::Int, Binary::Add, first, len);
        // Of blanks alone nothing is left, wherever that lies.
        let zero = self.body.f.int(0);
        let some = self.body.f.binary(Type::Bool, Binary::LtS, zero, len);
        let last = self.body.select(some, last, start);
        let behind = self.at;
        self.at = Cursor::at(last, 0);
        let state = self.states;
        self.wait(0, state);
        self.at = behind;
        (start, last)
    }

    /// The bytes of a field are there: keeps what is needed of them, and checks them.
    pub fn bytes_found(&mut self, id: FieldId, (start, end): (Value, Value), max_bytes: Option<u32>) {
        let field = self.info.field(id);
        if self.needs.has(SlotKey::Length(id)) {
            let len = self.body.f.binary(Type::Int, Binary::Sub, end, start);
            self.keep(SlotKey::Length(id), len);
        }
        self.keep(SlotKey::Start(id), start);
        self.keep(SlotKey::End(id), end);
        if !self.needs.has(SlotKey::Field(id)) && field.requires.is_empty() {
            return;
        }
        let value = self.body.f.define(Type::Bytes, Op::MessageBytes { start, end });
        if let Some(max) = max_bytes {
            self.body.f.bound_length(value, max);
        }
        let narrower = self.needs.view_max(id).filter(|max| max_bytes.is_none_or(|most| *max < most));
        match narrower {
            Some(max) if self.needs.is_optional(id) => {
                let missing = self.body.f.define(Type::Bytes, Op::Const(-1));
                let len = self.body.f.define(Type::Int, Op::Len(value));
                let longest = self.body.f.int(i64::from(max));
                let cond = self.body.f.binary(Type::Bool, Binary::LeS, len, longest);
                let kept = self.body.f.define(Type::Bytes, Op::Select { cond, a: value, b: missing });
                self.keep(SlotKey::Field(id), kept);
            }
            _ if self.is_at_hand(id) => self.at_hand = Some((id, value)),
            _ => self.keep(SlotKey::Field(id), value),
        }
        self.requires(id, Val::Bytes(value));
    }

    /// Checks the `&requires` of a field.
    pub fn requires(&mut self, id: FieldId, val: Val) {
        let field = self.info.field(id);
        if field.requires.is_empty() {
            return;
        }
        self.body.dollar = Some(val);
        for check in &field.requires {
            self.body.expect_expr(check, id.0, field.cause);
        }
        self.body.dollar = None;
    }

    /// A number has been read: keeps it and checks it.
    pub fn number_found(&mut self, id: FieldId, num: Num) {
        self.keep(SlotKey::Field(id), num.value());
        self.requires(id, Val::Num(num));
    }

    /// Whether the value of a field is looked at.
    fn is_wanted(&self, id: FieldId) -> bool {
        self.needs.has(SlotKey::Field(id)) || !self.info.field(id).requires.is_empty()
    }

    /// A number in digits.
    pub fn number(&mut self, id: FieldId, base: u8, digits_max: u8, front: NumberFront, ahead: &[Item]) {
        let signed = front == NumberFront::Sign;
        let mut set = if base == 10 { DIGITS } else { HEX_DIGITS };
        if signed {
            set[usize::from(MINUS) / 64] |= 1 << (MINUS % 64);
        }
        let ahead = sizes::first_ahead(self.info, ahead).max(1);
        let cause = self.info.field(id).cause;
        let class = self.body.consts.class(set);
        let max = u32::from(digits_max)
            + match front {
                NumberFront::Nothing => 0,
                NumberFront::Sign => 1,
                NumberFront::Zeros => LEADING_ZEROS_MAX,
            };
        let (start, from, state) = self.search_stage();
        let end = self.body.f.define(Type::Int, Op::ScanRun { from, class, max: max + 1 });
        let len = self.body.f.binary(Type::Int, Binary::Sub, end, start);
        let longest = self.body.f.int(i64::from(max));
        // A number of too many digits is none, rather than a text that is too long.
        let fits = self.body.f.binary(Type::Bool, Binary::LeS, len, longest);
        self.body.expect(fits, id.0, cause);
        self.at = Cursor::at(end, self.at.most + u64::from(max));
        self.body.set_slot(SLOT_SCAN as u16, end);
        self.wait(ahead, state);
        let zero = self.body.f.int(0);
        let some = self.body.f.binary(Type::Bool, Binary::LtS, zero, len);
        self.body.expect(some, id.0, cause);
        let (start, len) = match front {
            NumberFront::Zeros => self.behind_zeros(id, (start, end), digits_max),
            NumberFront::Nothing | NumberFront::Sign => (start, len),
        };
        self.keep(SlotKey::Start(id), start);
        self.keep(SlotKey::End(id), end);
        if self.needs.has(SlotKey::Length(id)) {
            self.keep(SlotKey::Length(id), len);
        }
        if signed || self.is_wanted(id) {
            let bytes = self.body.f.define(Type::Bytes, Op::MessageBytes { start, end });
            self.body.f.bound_length(bytes, max);
            let num = self.parsed(id, bytes, len, base, digits_max, signed);
            self.number_found(id, num);
        }
    }

    /// Cuts the zeros before a number's first digit that counts, or its last one. Returns where that is, and the number
    /// of digits from there on.
    fn behind_zeros(&mut self, id: FieldId, (start, end): (Value, Value), digits_max: u8) -> (Value, Value) {
        let class = self.body.consts.class(ZERO);
        let max = u32::from(digits_max) + LEADING_ZEROS_MAX;
        let zeros_end = self.body.f.define(Type::Int, Op::ScanRun { from: start, class, max });
        let one = self.body.f.int(1);
        let last = self.body.f.binary(Type::Int, Binary::Sub, end, one);
        let is_zero = self.body.f.binary(Type::Bool, Binary::LeS, end, zeros_end);
        let first = self.body.select(is_zero, last, zeros_end);
        let len = self.body.f.binary(Type::Int, Binary::Sub, end, first);
        let longest = self.body.f.int(i64::from(digits_max));
        let fits = self.body.f.binary(Type::Bool, Binary::LeS, len, longest);
        self.body.expect(fits, id.0, self.info.field(id).cause);
        let (zeros, next) = (self.body.f.new_block(&[]), self.body.f.new_block(&[]));
        let has_zeros = self.body.f.binary(Type::Bool, Binary::LtS, start, first);
        self.body.f.branch_to(has_zeros, zeros, next);
        self.body.f.go_on_in(zeros);
        self.cut_range(start, first);
        self.body.f.jump(next, Vec::new());
        self.body.f.go_on_in(next);
        (first, len)
    }

    /// The number that digits are.
    fn parsed(
        &mut self,
        id: FieldId,
        bytes: Value,
        len: Value,
        base: u8,
        digits_max: u8,
        signed: bool,
    ) -> Num {
        let range = self.info.range(id);
        if signed {
            // A `-` in the middle, or alone, or a number beyond a word.
            let is_int = self.body.f.define(Type::Bool, Op::IsInt { bytes, base });
            self.body.expect(is_int, id.0, self.info.field(id).cause);
            let value = self.body.f.define(Type::Int, Op::ParseInt { bytes, base });
            let cause = self.info.field(id).cause;
            // Without a `-` there is one digit less.
            let (zero, minus) = (self.body.f.int(0), self.body.f.int(i64::from(MINUS)));
            let first = self.body.f.define(Type::Int, Op::ByteAt { bytes, index: zero });
            let has_minus = self.body.f.binary(Type::Bool, Binary::Eq, first, minus);
            let most = self.body.f.int(i64::from(digits_max));
            let is_short = self.body.f.binary(Type::Bool, Binary::LeS, len, most);
            let fits = self.body.f.binary(Type::Bool, Binary::Or, has_minus, is_short);
            self.body.expect(fits, id.0, cause);
            return self.body.check_range(Num::one(value, Interval::INT), range, id.0, cause);
        }
        let ty = self.info.key_type(SlotKey::Field(id));
        if base == 16 || digits_max < DECIMAL_DIGITS_MAX {
            let value = self.body.f.define(Type::Int, Op::ParseInt { bytes, base });
            return Num::one(self.body.as_kind(value, ty), range);
        }
        // 19 decimal digits: 18 fit a signed word, with the last one an unsigned one.
        let (zero, one, ten, below) =
            (self.body.f.int(0), self.body.f.int(1), self.body.f.int(10), self.body.f.int(i64::from(b'0')));
        let last = self.body.f.binary(Type::Int, Binary::Sub, len, one);
        let front = self.body.f.define(Type::Bytes, Op::Slice { bytes, start: zero, end: last });
        let front = self.body.f.define(Type::Int, Op::ParseInt { bytes: front, base });
        let digit = self.body.f.define(Type::Int, Op::ByteAt { bytes, index: last });
        let digit = self.body.f.binary(Type::Int, Binary::Sub, digit, below);
        let front = self.body.f.binary(ty, Binary::Mul, front, ten);
        Num::one(self.body.f.binary(ty, Binary::Add, front, digit), range)
    }

    /// A single decimal digit, which has a fixed width; `items` starts with it.
    pub fn digit(&mut self, id: FieldId, items: &[Item]) {
        self.need(sizes::fixed_ahead(self.info, items));
        let byte = self.load(0, IntRepr { width_bytes: 1, signed: false }, true);
        let below = self.body.f.int(i64::from(b'0'));
        let value = self.body.f.binary(Type::Int, Binary::Sub, byte, below);
        let ten = self.body.f.int(10);
        let is_digit = self.body.f.binary(Type::Bool, Binary::LtU, value, ten);
        self.body.expect(is_digit, id.0, self.info.field(id).cause);
        self.keep_span(id, 1);
        self.at = self.at.advanced(1);
        self.number_found(id, Num::one(value, Interval::new(0, 9)));
    }

    /// Keeps where a field of fixed width lies, from here on.
    fn keep_span(&mut self, id: FieldId, width: u32) {
        if self.needs.has(SlotKey::Start(id)) {
            let start = self.position(self.at);
            self.keep(SlotKey::Start(id), start);
        }
        if self.needs.has(SlotKey::End(id)) {
            let end = self.position(self.at.advanced(width));
            self.keep(SlotKey::End(id), end);
        }
    }

    /// Reads an integer at `offset` from here on, which is there.
    pub fn load(&mut self, offset: u32, repr: IntRepr, big_endian: bool) -> Value {
        let ty = if repr.width_bytes == 8 && !repr.signed { Type::Uint } else { Type::Int };
        let op = Op::Load {
            base: self.at.base,
            offset: self.at.fixed + offset,
            width_bytes: repr.width_bytes,
            big_endian,
            signed: repr.signed,
        };
        self.body.f.define(ty, op)
    }

    /// An integer of fixed width; `items` starts with it.
    pub fn int(&mut self, id: FieldId, repr: IntRepr, big_endian: bool, items: &[Item]) {
        self.need(sizes::fixed_ahead(self.info, items));
        let width = u32::from(repr.width_bytes);
        self.keep_span(id, width);
        let has_bits = matches!(items.get(1), Some(Item::Field(next))
            if matches!(self.info.field(*next).kind, FieldKind::Bits { of, .. } if of == id));
        if !self.is_wanted(id) && !has_bits {
            self.at = self.at.advanced(width);
            return;
        }
        let key = SlotKey::Field(id);
        let value = self.load(0, repr, big_endian);
        let value = self.body.as_kind(value, self.info.key_type(key));
        self.bits_of = Some((id, value));
        self.at = self.at.advanced(width);
        let num = self.info.key_val(key, value).num();
        self.number_found(id, num);
    }

    /// Bits of the integer that has just been read.
    pub fn bits(&mut self, id: FieldId, of: FieldId, shift: u8, width: u8) {
        if !self.is_wanted(id) {
            return;
        }
        let mut value = match self.bits_of {
            Some((known, value)) if known == of => value,
            _ => panic!("bits stand behind their integer"),
        };
        if shift > 0 {
            let divisor = self.body.f.define(Type::Uint, Op::Const(1_i64 << shift));
            value = self.body.f.binary(Type::Uint, Binary::DivU, value, divisor);
        }
        if width < 64 {
            let mask = self.body.f.define(Type::Uint, Op::Const(mask(width) as i64));
            value = self.body.f.binary(Type::Uint, Binary::BitAnd, value, mask);
        }
        let value = self.body.as_kind(value, self.info.key_type(SlotKey::Field(id)));
        self.number_found(id, Num::one(value, self.info.range(id)));
    }

    /// An integer of variable length whose bytes say whether another follows.
    pub fn varint(&mut self, id: FieldId, bytes_max: u8) {
        let class = self.body.consts.class(CONTINUED);
        let cause = self.info.field(id).cause;
        let (start, from, state) = self.search_stage();
        let max = u32::from(bytes_max);
        let last = self.body.f.define(Type::Int, Op::ScanRun { from, class, max });
        let len = self.body.f.binary(Type::Int, Binary::Sub, last, start);
        let longest = self.body.f.int(i64::from(max) - 1);
        let fits = self.body.f.binary(Type::Bool, Binary::LeS, len, longest);
        self.body.expect(fits, id.0, cause);
        self.at = Cursor::at(last, self.at.most + u64::from(max) - 1);
        self.body.set_slot(SLOT_SCAN as u16, last);
        self.wait(1, state);
        self.at = self.at.advanced(1);
        self.keep(SlotKey::Start(id), start);
        if self.needs.has(SlotKey::End(id)) {
            let end = self.position(self.at);
            self.keep(SlotKey::End(id), end);
        }
        if self.is_wanted(id) {
            let end = self.position(self.at);
            let bytes = self.body.f.define(Type::Bytes, Op::MessageBytes { start, end });
            let value = self.varint_value(bytes, len, bytes_max);
            self.number_found(id, Num::one(value, self.info.range(id)));
        }
    }

    /// Groups of seven bits, the lowest first; `last`: index of the last one.
    fn varint_value(&mut self, bytes: Value, last: Value, bytes_max: u8) -> Value {
        let (zero, half) = (self.body.f.int(0), self.body.f.int(128));
        let mut value = zero;
        for index in 0..i64::from(bytes_max) {
            let at = self.body.f.int(index);
            let is_there = self.body.f.binary(Type::Bool, Binary::LeS, at, last);
            let byte = self.body.f.define(Type::Int, Op::ByteAt { bytes, index: at });
            let group = self.body.f.binary(Type::Int, Binary::ModU, byte, half);
            let weight = self.body.f.int(1 << (7 * index));
            let group = self.body.f.binary(Type::Int, Binary::Mul, group, weight);
            let group = self.body.select(is_there, group, zero);
            value = self.body.f.binary(Type::Int, Binary::Add, value, group);
        }
        value
    }

    /// Hadoop's variable-length integer: the first byte says how long it is.
    pub fn vint(&mut self, id: FieldId) {
        let state = self.stage();
        self.wait(1, state);
        let start = self.at;
        let lead = self.load(0, IntRepr { width_bytes: 1, signed: true }, true);
        let length = self.body.vint_length(lead);
        let first = self.position(start);
        let end = self.body.f.binary(Type::Int, Binary::Add, first, length.value());
        self.at = Cursor::at(end, start.most + 9);
        self.wait(0, state);
        let bytes = self.body.f.define(Type::Bytes, Op::MessageBytes { start: first, end });
        let num = self.body.vint_value(lead, length.value(), bytes);
        self.keep(SlotKey::Start(id), first);
        self.keep(SlotKey::End(id), end);
        self.keep(SlotKey::Length(id), length.value());
        self.number_found(id, num);
    }

    /// Bytes that must be there; `items` starts with them.
    pub fn literal(&mut self, literal: &Literal, items: &[Item]) {
        if literal.optional {
            self.byte_run = None;
            self.optional_literal(literal, items);
            self.byte_run = None;
            return;
        }
        self.need(sizes::fixed_ahead(self.info, items));
        let start = self.at;
        self.expect_bytes(&literal.bytes, literal.nocase, literal.cause);
        if let Some(byte_run) = &mut self.byte_run {
            for byte in
                literal.bytes.iter().flat_map(|b| [b.to_ascii_lowercase(), b.to_ascii_uppercase(), *b])
            {
                byte_run.set[usize::from(byte >> 6)] |= 1 << (byte & 63);
            }
            byte_run.most = byte_run.most.saturating_add(literal.bytes.len() as u32);
        }
        if literal.cut {
            self.cut(start);
        }
    }

    /// Goes on behind `bytes`, which are there, if they are these.
    pub fn expect_bytes(&mut self, bytes: &[u8], nocase: bool, cause: FaultCause) {
        let same = self.compare_bytes(bytes, nocase);
        for cond in same {
            self.body.expect(cond, self.field, cause);
        }
        self.at = self.at.advanced(bytes.len() as u32);
    }

    /// Whether the bytes from here on are these: all of the conditions hold.
    pub fn compare_bytes(&mut self, bytes: &[u8], nocase: bool) -> Vec<Value> {
        let mut conds = Vec::new();
        let mut offset = 0;
        while offset < bytes.len() {
            let left = bytes.len() - offset;
            let width = [8, 4, 2, 1].into_iter().find(|width| *width <= left).expect("one byte is left");
            // Where a wider load reaches back into what is compared already, one does for two.
            let (from, width) = match (left, bytes.len()) {
                (5..=7, 8..) => (bytes.len() - 8, 8),
                (3, 4..) => (bytes.len() - 4, 4),
                _ => (offset, width),
            };
            let (mut word, mut case) = ([0; 8], [0; 8]);
            word[..width].copy_from_slice(&bytes[from..from + width]);
            for (byte, case) in word.iter_mut().zip(&mut case) {
                if nocase && byte.is_ascii_alphabetic() {
                    (*byte, *case) = (byte.to_ascii_lowercase(), LOWER_BIT);
                }
            }
            let repr = IntRepr { width_bytes: width as u8, signed: false };
            let mut found = self.load(from as u32, repr, false);
            if case != [0; 8] {
                let case = self.body.f.define(Type::Uint, Op::Const(i64::from_le_bytes(case)));
                found = self.body.f.binary(Type::Uint, Binary::BitOr, found, case);
            }
            let wanted = self.body.f.define(Type::Uint, Op::Const(i64::from_le_bytes(word)));
            conds.push(self.body.f.binary(Type::Bool, Binary::Eq, found, wanted));
            offset = from + width;
        }
        conds
    }

    /// Bytes that may be there: looked at one by one, so that nothing is waited for that may not come.
    /// One that is supplied may be missing only where the string behind it is empty: `200OK` has no reason.
    fn optional_literal(&mut self, literal: &Literal, items: &[Item]) {
        let end = if literal.supplied { self.end_of_string(items.get(1)) } else { None };
        let start = self.at;
        let mut ends = Vec::new();
        let mut behind = start;
        for (index, byte) in literal.bytes.iter().enumerate() {
            if index == 0 {
                self.need(1);
                behind = self.at;
            } else {
                // The place where it starts is where the stage starts, however far it is compared.
                let state = self.stage();
                behind = self.at;
                self.wait(index as u32 + 1, state);
                behind.covered = self.at.covered;
            }
            let there = self.body.f.new_block(&[]);
            let absent = self.body.f.new_block(&[]);
            let offset = index as u32;
            let found = self.load(offset, IntRepr { width_bytes: 1, signed: false }, true);
            let same = self.is_byte(found, *byte, literal.nocase);
            if let Some(end) = end {
                let is_end = self.is_byte(found, end, false);
                let may_be = match index {
                    0 => self.body.f.binary(Type::Bool, Binary::Or, same, is_end),
                    _ => same,
                };
                self.body.expect(may_be, self.field, literal.cause);
            }
            self.body.f.branch_to(same, there, absent);
            ends.push((absent, behind));
            self.body.f.go_on_in(there);
        }
        let covered = self.at.covered;
        self.at = Cursor { covered, ..behind.advanced(literal.bytes.len() as u32) };
        if literal.cut {
            self.cut(behind);
        }
        ends.push((self.body.f.current(), self.at));
        if literal.supplied {
            self.supply(&literal.bytes, &mut ends[..literal.bytes.len()]);
        }
        self.join(ends);
    }

    /// The first byte of the delimiter of a string, if `item` is one with a delimiter.
    fn end_of_string(&self, item: Option<&Item>) -> Option<u8> {
        let Some(Item::Field(field)) = item else { return None };
        match &self.info.field(*field).kind {
            FieldKind::Text { until: Some(until), .. } => until.first().copied(),
            _ => None,
        }
    }

    /// Cuts the bytes between `start` and here, which have arrived: they are not forwarded.
    fn cut(&mut self, start: Cursor) {
        let (start, end) = (self.position(start), self.position(self.at));
        self.cut_there(start, end);
    }

    /// A range of what has been read is not passed on.
    pub fn cut_range(&mut self, start: Value, end: Value) {
        self.there(end);
        self.cut_there(start, end);
    }

    fn cut_there(&mut self, start: Value, end: Value) {
        let has_capacity = self.body.f.define(Type::Bool, Op::Cut { start, end });
        self.body.expect(has_capacity, self.field, FaultCause::TooLong);
    }

    fn is_byte(&mut self, found: Value, byte: u8, nocase: bool) -> Value {
        let (mut found, mut byte) = (found, byte);
        if nocase && byte.is_ascii_alphabetic() {
            let case = self.body.f.int(i64::from(LOWER_BIT));
            found = self.body.f.binary(Type::Int, Binary::BitOr, found, case);
            byte = byte.to_ascii_lowercase();
        }
        let wanted = self.body.f.int(i64::from(byte));
        self.body.f.binary(Type::Bool, Binary::Eq, found, wanted)
    }

    /// Ends the block: goes on at `then` if what is here is `bytes`, which are there, else at `otherwise`.
    pub fn branch_on_bytes(&mut self, bytes: &[u8], then: BlockId, otherwise: BlockId) {
        let mut conds = self.compare_bytes(bytes, false);
        let last = conds.pop().expect("a delimiter has bytes");
        for cond in conds {
            let next = self.body.f.new_block(&[]);
            self.body.f.branch_to(cond, next, otherwise);
            self.body.f.go_on_in(next);
        }
        self.body.f.branch_to(last, then, otherwise);
    }

    /// A number in an expression of the grammar, within `allowed`.
    pub fn exact_number(&mut self, expr: &Expr, field: FieldId, allowed: Interval, cause: FaultCause) -> Num {
        let value = self.body.expr(expr).num();
        let value = self.body.check_range(value, allowed, field.0, cause);
        self.body.narrow(value)
    }
}
