//! Interval arithmetic: the ranges of computed integers.
//! Promises: the range of an operation contains every result of it for operands in their ranges; nothing overflows,
//! because ranges are clamped at `i128`, far outside every 64-bit value.
//! Not here: wrapping at 64 bits (`expr/`), which programs do and grammars do not.

use crate::hir::{BinaryOp, IntRepr, Ty};

/// A range of integers, both ends included.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Range {
    pub(crate) lo: i128,
    pub(crate) hi: i128,
}

/// Values of `int`.
pub(crate) const INT: Range = Range { lo: i64::MIN as i128, hi: i64::MAX as i128 };
/// Values of `uint64`.
pub(crate) const UINT: Range = Range { lo: 0, hi: u64::MAX as i128 };

impl Range {
    pub(crate) fn point(value: i128) -> Self {
        Self { lo: value, hi: value }
    }

    pub(crate) fn of_repr(repr: IntRepr) -> Self {
        let bits = u32::from(repr.width_bytes) * 8;
        if repr.signed {
            Self { lo: -(1i128 << (bits - 1)), hi: (1i128 << (bits - 1)) - 1 }
        } else {
            Self { lo: 0, hi: (1i128 << bits) - 1 }
        }
    }

    pub(crate) fn is_point(self) -> bool {
        self.lo == self.hi
    }

    pub(crate) fn contains(self, value: i128) -> bool {
        (self.lo..=self.hi).contains(&value)
    }

    pub(crate) fn is_inside(self, outer: Range) -> bool {
        outer.lo <= self.lo && self.hi <= outer.hi
    }

    pub(crate) fn join(self, other: Range) -> Range {
        Range { lo: self.lo.min(other.lo), hi: self.hi.max(other.hi) }
    }

    fn corners(self, other: Range, op: impl Fn(i128, i128) -> i128) -> Range {
        let all =
            [op(self.lo, other.lo), op(self.lo, other.hi), op(self.hi, other.lo), op(self.hi, other.hi)];
        all.into_iter().skip(1).fold(Range::point(all[0]), |range, value| range.join(Range::point(value)))
    }

    pub(crate) fn add(self, other: Range) -> Range {
        self.corners(other, i128::saturating_add)
    }

    pub(crate) fn sub(self, other: Range) -> Range {
        self.corners(other, i128::saturating_sub)
    }

    pub(crate) fn mul(self, other: Range) -> Range {
        self.corners(other, i128::saturating_mul)
    }

    pub(crate) fn neg(self) -> Range {
        Range { lo: self.hi.saturating_neg(), hi: self.lo.saturating_neg() }
    }

    /// Floored quotient; a divisor of zero gives zero.
    pub(crate) fn div(self, by: Range) -> Range {
        let mut out: Option<Range> = by.contains(0).then(|| Range::point(0));
        for part in [Range { lo: by.lo, hi: by.hi.min(-1) }, Range { lo: by.lo.max(1), hi: by.hi }] {
            if part.lo <= part.hi {
                let quotients = self.corners(part, floor_div);
                out = Some(out.map_or(quotients, |range| range.join(quotients)));
            }
        }
        out.unwrap_or(Range::point(0))
    }

    /// Floored remainder, with the sign of the divisor; a divisor of zero gives zero.
    pub(crate) fn modulo(self, by: Range) -> Range {
        if self.is_point() && by.is_point() && by.lo != 0 {
            return Range::point(self.lo - floor_div(self.lo, by.lo).saturating_mul(by.lo));
        }
        let mut lo = by.lo.saturating_add(1).min(0);
        let mut hi = by.hi.saturating_sub(1).max(0);
        if self.lo >= 0 && by.lo >= 0 {
            hi = hi.min(self.hi);
            lo = 0;
        }
        if self.hi <= 0 && by.hi <= 0 {
            lo = lo.max(self.lo);
        }
        Range { lo, hi }
    }

    /// The results of an arithmetic operator; `None`: it is another operator.
    pub(crate) fn of_binary(op: BinaryOp, a: Range, b: Range) -> Option<Range> {
        match op {
            BinaryOp::Add => Some(a.add(b)),
            BinaryOp::Sub => Some(a.sub(b)),
            BinaryOp::Mul => Some(a.mul(b)),
            BinaryOp::Div => Some(a.div(b)),
            BinaryOp::Mod => Some(a.modulo(b)),
            _ => None,
        }
    }

    /// The smallest power of two that an unsigned range ends below.
    pub(crate) fn modulus(self) -> Option<i128> {
        (self.lo == 0).then(|| self.hi.checked_add(1)).flatten()
    }

    /// As a type: `unsigned` if some value does not fit `int64`.
    pub(crate) fn ty(self) -> Ty {
        Ty::Int { lo: self.lo, hi: self.hi, unsigned: self.hi > INT.hi }
    }

    /// For messages: `0 and 255`.
    pub(crate) fn describe(self) -> String {
        format!("{} and {}", self.lo, self.hi)
    }
}

/// The range of an integer type.
pub(crate) fn range_of(ty: &Ty) -> Option<Range> {
    match *ty {
        Ty::Int { lo, hi, .. } => Some(Range { lo, hi }),
        _ => None,
    }
}

fn floor_div(a: i128, b: i128) -> i128 {
    if b == 0 {
        return 0;
    }
    let quotient = a.wrapping_div(b);
    if a.wrapping_rem(b) != 0 && (a < 0) != (b < 0) { quotient - 1 } else { quotient }
}

#[cfg(test)]
mod tests {
    use super::{Range, floor_div};

    /// Every result of an operation on small ranges is in the computed range.
    #[test]
    fn ranges_contain_every_result() {
        let ends = -4i128..=4;
        let ranges: Vec<Range> = ends
            .clone()
            .flat_map(|lo| ends.clone().filter(move |hi| lo <= *hi).map(move |hi| Range { lo, hi }))
            .collect();
        for a in &ranges {
            for b in &ranges {
                check(*a, *b);
            }
        }
    }

    fn check(a: Range, b: Range) {
        for x in a.lo..=a.hi {
            for y in b.lo..=b.hi {
                assert!(a.add(b).contains(x + y), "{a:?} + {b:?}");
                assert!(a.sub(b).contains(x - y), "{a:?} - {b:?}");
                assert!(a.mul(b).contains(x * y), "{a:?} * {b:?}");
                assert!(a.div(b).contains(floor_div(x, y)), "{a:?} / {b:?} holds {x} / {y}");
                let rem = if y == 0 { 0 } else { x - floor_div(x, y) * y };
                assert!(a.modulo(b).contains(rem), "{a:?} mod {b:?} holds {x} mod {y}");
            }
        }
    }

    #[test]
    fn remainder_by_a_length_is_an_index() {
        let hash = super::UINT;
        assert_eq!(hash.modulo(Range { lo: 1, hi: 1024 }), Range { lo: 0, hi: 1023 });
    }
}
