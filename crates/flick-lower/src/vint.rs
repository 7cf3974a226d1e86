//! Hadoop's variable-length integers: how many bytes follow the first, what they say, and how they are written.
//! Promises: whatever the first byte, the length is 1 to 9 and the value an `int64`; a value is written in its
//! shortest form.
//! Source: the encoding of `WritableUtils.writeVLong` as its documentation describes it: -112..=127 are one byte;
//! else the first byte is -112 - n, or -120 - n for negative values, n the number of big-endian bytes of the value or,
//! for negative ones, of its complement.

use flick_check::hir::BinaryOp;
use flick_ir::data::{Binary, BlockId, Op, Type, Value};

use crate::body::Body;
use crate::interval::Interval;
use crate::value::{Num, Val};

/// The range of the first byte, signed.
pub const LEAD: Interval = Interval { lo: -128, hi: 127 };
/// Bytes of the whole.
pub const LENGTH: Interval = Interval { lo: 1, hi: 9 };
/// Values that take one byte.
const SHORT: Interval = Interval { lo: -112, hi: 127 };
/// The first byte of negative values is below it.
const NEGATIVE_BELOW: i64 = -120;
/// Bytes behind the first, at most.
const REST_BYTES_MAX: i64 = 8;

impl Body<'_> {
    /// The length of a number in bytes, from its first byte.
    pub fn vint_length(&mut self, lead: Value) -> Num {
        let is_short = self.at_least(lead, SHORT.lo as i64);
        let is_positive = self.at_least(lead, NEGATIVE_BELOW);
        // 1 + n where the first byte is -112 - n, or -120 - n.
        let (of_positive, of_negative) = (self.f.int(-111), self.f.int(-119));
        let base = self.select(is_positive, of_positive, of_negative);
        let long = self.f.binary(Type::Int, Binary::Sub, base, lead);
        let one = self.f.int(1);
        Num::one(self.select(is_short, one, long), LENGTH)
    }

    /// The value of a number from all its bytes.
    pub fn vint_value(&mut self, lead: Value, length: Value, bytes: Value) -> Num {
        let (long, done) = (self.f.new_block(&[]), self.f.new_block(&[Type::Int]));
        let is_short = self.at_least(lead, SHORT.lo as i64);
        let short = self.f.new_block(&[]);
        self.f.branch_to(is_short, short, long);
        self.f.go_on_in(short);
        self.f.jump(done, vec![lead]);

        self.f.go_on_in(long);
        let mut value = self.f.int(0);
        let shift = self.f.int(256);
        for index in 1..=REST_BYTES_MAX {
            let index = self.f.int(index);
            let is_there = self.f.binary(Type::Bool, Binary::LtS, index, length);
            let byte = self.f.define(Type::Int, Op::ByteAt { bytes, index });
            let shifted = self.f.binary(Type::Int, Binary::Mul, value, shift);
            let longer = self.f.binary(Type::Int, Binary::Add, shifted, byte);
            value = self.select(is_there, longer, value);
        }
        let is_positive = self.at_least(lead, NEGATIVE_BELOW);
        let complement = self.complement(value);
        let value = self.select(is_positive, value, complement);
        self.f.jump(done, vec![value]);
        self.f.go_on_in(done);
        Num::one(self.f.params(done)[0], Interval::INT)
    }

    /// Writes a number in its shortest form.
    pub fn emit_vint(&mut self, num: Num) {
        let value = num.value();
        if num.range.within(SHORT) {
            return self.emit_bytes_of(value, 1);
        }
        let low = self.constant(SHORT.lo);
        let high = self.constant(SHORT.hi);
        let low = self.compare(BinaryOp::Ge, num, low);
        let high = self.compare(BinaryOp::Le, num, high);
        let is_short = self.f.binary(Type::Bool, Binary::And, low, high);
        let (short, long) = (self.f.new_block(&[]), self.f.new_block(&[]));
        self.f.branch_to(is_short, short, long);
        self.f.go_on_in(short);
        self.emit_bytes_of(value, 1);
        let mut ends = vec![(self.f.current(), Val::Nothing)];
        self.f.go_on_in(long);
        ends.extend(self.emit_long_vint(value).into_iter().map(|block| (block, Val::Nothing)));
        self.join(ends);
    }

    /// One way for each number of bytes. Returns the blocks in which the ways end.
    fn emit_long_vint(&mut self, value: Value) -> Vec<BlockId> {
        let zero = self.f.int(0);
        let is_negative = self.f.binary(Type::Bool, Binary::LtS, value, zero);
        let complement = self.complement(value);
        let magnitude = self.select(is_negative, complement, value);
        let (of_negative, of_positive) = (self.f.int(NEGATIVE_BELOW), self.f.int(SHORT.lo as i64));
        let base = self.select(is_negative, of_negative, of_positive);
        let mut ends = Vec::new();
        for bytes in 1..=REST_BYTES_MAX {
            let this = self.f.new_block(&[]);
            let longer = (bytes < REST_BYTES_MAX).then(|| self.f.new_block(&[]));
            match longer {
                Some(longer) => {
                    let most = self.f.int((1 << (8 * bytes)) - 1);
                    let fits = self.f.binary(Type::Bool, Binary::LeS, magnitude, most);
                    self.f.branch_to(fits, this, longer);
                }
                None => self.f.jump(this, Vec::new()),
            }
            self.f.go_on_in(this);
            let count = self.f.int(bytes);
            let lead = self.f.binary(Type::Int, Binary::Sub, base, count);
            self.emit_bytes_of(lead, 1);
            let mut rest = bytes;
            for width in [1, 2, 4, 8].into_iter().filter(|width| bytes & width != 0) {
                rest -= width;
                let part = match rest {
                    0 => magnitude,
                    rest => {
                        let divisor = self.f.int(1 << (8 * rest));
                        self.f.binary(Type::Int, Binary::DivU, magnitude, divisor)
                    }
                };
                self.emit_bytes_of(part, width as u8);
            }
            ends.push(self.f.current());
            if let Some(longer) = longer {
                self.f.go_on_in(longer);
            }
        }
        ends
    }

    fn emit_bytes_of(&mut self, value: Value, width_bytes: u8) {
        self.f.effect(Op::EmitInt { value, width_bytes, big_endian: true });
    }

    /// `-1 - value`: all bits the other way.
    fn complement(&mut self, value: Value) -> Value {
        let ones = self.f.int(-1);
        self.f.binary(Type::Int, Binary::Sub, ones, value)
    }

    fn at_least(&mut self, value: Value, least: i64) -> Value {
        let least = self.f.int(least);
        self.f.binary(Type::Bool, Binary::LeS, least, value)
    }

    /// `a` where `cond` holds, else `b`: signed words.
    pub fn select(&mut self, cond: Value, a: Value, b: Value) -> Value {
        self.f.define(self.f.type_of(a), Op::Select { cond, a, b })
    }
}
