//! Integers: exact arithmetic for what a peer's numbers decide, wrapping arithmetic for rules.
//! Promises: in exact mode a result is what integers without end would give, or the message is refused; it never
//! wraps. Checks and wide words appear only where ranges say that 64 bits might not do.
//! Refuses: operands beyond 64 signed bits in a division, and in a product beyond 128 bits: a fault.
//! Source: RELIABILITY P7 (lengths can never wrap); carries and 32-bit halves as in any multi-word arithmetic.

use flick_abi::FaultCause;
use flick_check::hir::{BinaryOp, Ty};
use flick_ir::data::{Binary, Op, Type, Value};

use crate::body::{Body, Mode, word_type};
use crate::interval::Interval;
use crate::value::{Num, Word};

impl Body<'_> {
    /// An integer constant.
    pub fn constant(&mut self, value: i128) -> Num {
        let range = Interval::of(value);
        if range.within(Interval::INT) {
            Num::one(self.f.int(value as i64), range)
        } else if range.within(Interval::UINT) {
            Num::one(self.f.define(Type::Uint, Op::Const(value as u64 as i64)), range)
        } else {
            let hi = self.f.int((value >> 64) as i64);
            let lo = self.f.define(Type::Uint, Op::Const(value as u64 as i64));
            Num { word: Word::Two { hi, lo }, range }
        }
    }

    /// `a op b` for arithmetic operators. `ty` says what a wrapping result is and may be.
    pub fn arithmetic(&mut self, op: BinaryOp, a: Num, b: Num, ty: &Ty) -> Num {
        match self.mode {
            Mode::Exact { field } => self.exact(op, a, b, field),
            Mode::Wrapping => {
                let signed = a.range.within(Interval::INT) && b.range.within(Interval::INT);
                let value = self.f.binary(word_type(ty), narrow_op(op, signed), a.value(), b.value());
                self.val_of_word(ty, value).num()
            }
        }
    }

    /// The exact sum. Panics in wrapping mode.
    pub fn exact_sum(&mut self, a: Num, b: Num) -> Num {
        let Mode::Exact { field } = self.mode else { panic!("places in a message are summed exactly") };
        self.exact(BinaryOp::Add, a, b, field)
    }

    fn exact(&mut self, op: BinaryOp, a: Num, b: Num, field: u32) -> Num {
        let divides = matches!(op, BinaryOp::Div | BinaryOp::Mod);
        if divides {
            return self.exact_division(op, a, b, field);
        }
        let Some(range) = range_of_arithmetic(op, a.range, b.range) else {
            let a = self.check_range(a, Interval::INT, field, FaultCause::Arithmetic);
            let b = self.check_range(b, Interval::INT, field, FaultCause::Arithmetic);
            return self.exact(op, a, b, field);
        };
        for (word, ty) in [(Interval::INT, Type::Int), (Interval::UINT, Type::Uint)] {
            if a.range.within(word) && b.range.within(word) && range.within(word) {
                let value = self.f.binary(ty, narrow_op(op, true), a.value(), b.value());
                return Num::one(value, range);
            }
        }
        if op == BinaryOp::Mul {
            let a = self.check_range(a, Interval::INT, field, FaultCause::Arithmetic);
            let b = self.check_range(b, Interval::INT, field, FaultCause::Arithmetic);
            let range = a.range.mul(b.range).expect("the product of two words has 128 bits");
            let (hi, lo) = self.wide_product(a.value(), b.value());
            return self.narrow(Num { word: Word::Two { hi, lo }, range });
        }
        let (hi, lo) = self.wide_sum(op, a, b);
        self.narrow(Num { word: Word::Two { hi, lo }, range })
    }

    fn exact_division(&mut self, op: BinaryOp, a: Num, b: Num, field: u32) -> Num {
        let unsigned = a.range.within(Interval::UINT) && b.range.within(Interval::UINT);
        let signed = a.range.within(Interval::INT) && b.range.within(Interval::INT);
        if !signed && !unsigned {
            let a = self.check_range(a, Interval::INT, field, FaultCause::Arithmetic);
            let b = self.check_range(b, Interval::INT, field, FaultCause::Arithmetic);
            return self.exact_division(op, a, b, field);
        }
        let least = Interval::INT.lo;
        let a = if signed && a.range.lo == least && b.range.lo < 0 {
            // The one signed quotient that has no word: -2^63 / -1.
            self.check_range(a, Interval::new(least + 1, Interval::INT.hi), field, FaultCause::Arithmetic)
        } else {
            a
        };
        let range = range_of_arithmetic(op, a.range, b.range).expect("a quotient of words is a word");
        let ty = if signed { Type::Int } else { Type::Uint };
        let value = self.f.binary(ty, narrow_op(op, signed), a.value(), b.value());
        Num::one(value, range)
    }

    /// `-a`.
    pub fn negate(&mut self, a: Num, ty: &Ty) -> Num {
        let zero = self.constant(0);
        self.arithmetic(BinaryOp::Sub, zero, a, ty)
    }

    /// Compares two numbers exactly, whatever the signs of their words.
    pub fn compare(&mut self, op: BinaryOp, a: Num, b: Num) -> Value {
        match op {
            BinaryOp::Gt => return self.compare(BinaryOp::Lt, b, a),
            BinaryOp::Ge => return self.compare(BinaryOp::Le, b, a),
            _ => {}
        }
        let signed = a.range.within(Interval::INT) && b.range.within(Interval::INT);
        let unsigned = a.range.within(Interval::UINT) && b.range.within(Interval::UINT);
        if signed || unsigned {
            let op = match (op, signed) {
                (BinaryOp::Eq, _) => Binary::Eq,
                (BinaryOp::Ne, _) => Binary::Ne,
                (BinaryOp::Lt, true) => Binary::LtS,
                (BinaryOp::Lt, false) => Binary::LtU,
                (BinaryOp::Le, true) => Binary::LeS,
                (BinaryOp::Le, false) => Binary::LeU,
                _ => panic!("{op:?} compares nothing"),
            };
            return self.f.binary(Type::Bool, op, a.value(), b.value());
        }
        self.compare_wide(op, a, b)
    }

    fn compare_wide(&mut self, op: BinaryOp, a: Num, b: Num) -> Value {
        let ((a_hi, a_lo), (b_hi, b_lo)) = (self.wide(a), self.wide(b));
        let same_hi = self.f.binary(Type::Bool, Binary::Eq, a_hi, b_hi);
        if matches!(op, BinaryOp::Eq | BinaryOp::Ne) {
            let same_lo = self.f.binary(Type::Bool, Binary::Eq, a_lo, b_lo);
            let same = self.f.binary(Type::Bool, Binary::And, same_hi, same_lo);
            return if op == BinaryOp::Eq { same } else { self.f.define(Type::Bool, Op::Not(same)) };
        }
        let lo_op = if op == BinaryOp::Lt { Binary::LtU } else { Binary::LeU };
        let lo = self.f.binary(Type::Bool, lo_op, a_lo, b_lo);
        let hi = self.f.binary(Type::Bool, Binary::LtS, a_hi, b_hi);
        self.f.define(Type::Bool, Op::Select { cond: same_hi, a: lo, b: hi })
    }

    /// Goes on only where `num` is within `allowed`; emits nothing where that is known.
    pub fn check_range(&mut self, num: Num, allowed: Interval, field: u32, cause: FaultCause) -> Num {
        let low = (num.range.lo < allowed.lo).then(|| {
            let bound = self.constant(allowed.lo);
            self.compare(BinaryOp::Le, bound, num)
        });
        let high = (num.range.hi > allowed.hi).then(|| {
            let bound = self.constant(allowed.hi);
            self.compare(BinaryOp::Le, num, bound)
        });
        let cond = match (low, high) {
            (None, None) => return num,
            (Some(cond), None) | (None, Some(cond)) => cond,
            (Some(low), Some(high)) => self.f.binary(Type::Bool, Binary::And, low, high),
        };
        self.expect(cond, field, cause);
        self.narrow(Num { word: num.word, range: num.range.clip(allowed) })
    }

    /// The same integer in one word, if its range fits one.
    pub fn narrow(&self, num: Num) -> Num {
        if !num.range.within(Interval::INT) && !num.range.within(Interval::UINT) {
            return num;
        }
        let low = match num.word {
            Word::One(value) => value,
            Word::Two { lo, .. } => lo,
        };
        Num::one(low, num.range)
    }

    /// Both halves of an integer.
    pub fn wide(&mut self, num: Num) -> (Value, Value) {
        match num.word {
            Word::Two { hi, lo } => (hi, lo),
            Word::One(value) if num.range.within(Interval::UINT) => (self.f.int(0), value),
            Word::One(value) => {
                let (zero, ones) = (self.f.int(0), self.f.int(-1));
                let negative = self.f.binary(Type::Bool, Binary::LtS, value, zero);
                let hi = self.f.define(Type::Int, Op::Select { cond: negative, a: ones, b: zero });
                (hi, value)
            }
        }
    }

    fn wide_sum(&mut self, op: BinaryOp, a: Num, b: Num) -> (Value, Value) {
        let ((a_hi, a_lo), (b_hi, b_lo)) = (self.wide(a), self.wide(b));
        let op = narrow_op(op, true);
        let lo = self.f.binary(Type::Uint, op, a_lo, b_lo);
        // A sum carries when it is less than a summand, a difference borrows when the minuend is the smaller.
        let (less, than) = if op == Binary::Add { (lo, a_lo) } else { (a_lo, b_lo) };
        let carry = self.f.binary(Type::Bool, Binary::LtU, less, than);
        let carry = self.f.bool_to_int(carry);
        let hi = self.f.binary(Type::Int, op, a_hi, b_hi);
        (self.f.binary(Type::Int, op, hi, carry), lo)
    }

    /// The 128-bit product of two signed words.
    fn wide_product(&mut self, a: Value, b: Value) -> (Value, Value) {
        let lo = self.f.binary(Type::Uint, Binary::Mul, a, b);
        let hi = self.unsigned_product_high(a, b);
        // As unsigned words, a negative factor is 2^64 too large: take the other factor off the upper half.
        let zero = self.f.int(0);
        let hi = [(a, b), (b, a)].into_iter().fold(hi, |hi, (factor, other)| {
            let negative = self.f.binary(Type::Bool, Binary::LtS, factor, zero);
            let excess = self.f.define(Type::Int, Op::Select { cond: negative, a: other, b: zero });
            self.f.binary(Type::Int, Binary::Sub, hi, excess)
        });
        (hi, lo)
    }

    fn unsigned_product_high(&mut self, a: Value, b: Value) -> Value {
        let half = self.f.define(Type::Uint, Op::Const(1 << 32));
        let upper = |body: &mut Self, x| body.f.binary(Type::Uint, Binary::DivU, x, half);
        let lower = |body: &mut Self, x| body.f.binary(Type::Uint, Binary::ModU, x, half);
        let add = |body: &mut Self, x, y| body.f.binary(Type::Uint, Binary::Add, x, y);
        let mul = |body: &mut Self, x, y| body.f.binary(Type::Uint, Binary::Mul, x, y);
        let (a1, a0, b1, b0) = (upper(self, a), lower(self, a), upper(self, b), lower(self, b));
        let low = mul(self, a0, b0);
        let cross = mul(self, a1, b0);
        let carry = upper(self, low);
        let middle = add(self, cross, carry);
        let cross = mul(self, a0, b1);
        let rest = lower(self, middle);
        let middle_low = add(self, cross, rest);
        let high = mul(self, a1, b1);
        let carry = upper(self, middle);
        let high = add(self, high, carry);
        let carry = upper(self, middle_low);
        add(self, high, carry)
    }
}

/// Returns the range of `a op b` for arithmetic operators.
pub fn range_of_arithmetic(op: BinaryOp, a: Interval, b: Interval) -> Option<Interval> {
    match op {
        BinaryOp::Add => a.add(b),
        BinaryOp::Sub => a.sub(b),
        BinaryOp::Mul => a.mul(b),
        BinaryOp::Div => a.div(b),
        BinaryOp::Mod => a.modulo(b),
        _ => panic!("{op:?} is no arithmetic"),
    }
}

fn narrow_op(op: BinaryOp, signed: bool) -> Binary {
    match (op, signed) {
        (BinaryOp::Add, _) => Binary::Add,
        (BinaryOp::Sub, _) => Binary::Sub,
        (BinaryOp::Mul, _) => Binary::Mul,
        (BinaryOp::Div, true) => Binary::DivS,
        (BinaryOp::Div, false) => Binary::DivU,
        (BinaryOp::Mod, true) => Binary::ModS,
        (BinaryOp::Mod, false) => Binary::ModU,
        _ => panic!("{op:?} is no arithmetic"),
    }
}
