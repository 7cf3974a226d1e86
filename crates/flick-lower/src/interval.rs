//! Intervals of integers: what a value may be, so that a check is emitted only where it can fail.
//! Promises: every result holds all values of the operation on members of its operands; `None` when the ends leave
//! 128 bits, where the caller narrows its operands first.
//! Refuses: precision beyond two ends; holes are forgotten.

use flick_check::hir::IntRepr;

/// All integers from `lo` to `hi`, both included. Never empty.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Interval {
    /// Least value.
    pub lo: i128,
    /// Largest value.
    pub hi: i128,
}

impl Interval {
    /// The range of a signed word.
    pub const INT: Self = Self { lo: i64::MIN as i128, hi: i64::MAX as i128 };
    /// The range of an unsigned word.
    pub const UINT: Self = Self { lo: 0, hi: u64::MAX as i128 };

    /// From `lo` to `hi`. Panics when that is empty.
    pub fn new(lo: i128, hi: i128) -> Self {
        assert!(lo <= hi, "an interval holds at least one value: {lo}..={hi}");
        Self { lo, hi }
    }

    /// Just `value`.
    pub fn of(value: i128) -> Self {
        Self { lo: value, hi: value }
    }

    /// The values of an integer of this shape.
    pub fn of_repr(repr: IntRepr) -> Self {
        let bits = u32::from(repr.width_bytes) * 8;
        if repr.signed {
            Self { lo: -(1i128 << (bits - 1)), hi: (1i128 << (bits - 1)) - 1 }
        } else {
            Self { lo: 0, hi: (1i128 << bits) - 1 }
        }
    }

    /// Whether every value of `self` is one of `other`.
    pub fn within(self, other: Self) -> bool {
        other.lo <= self.lo && self.hi <= other.hi
    }

    /// The least interval that holds both.
    pub fn hull(self, other: Self) -> Self {
        Self { lo: self.lo.min(other.lo), hi: self.hi.max(other.hi) }
    }

    /// The values of both; where they have none in common, the end of `other` nearest to `self`.
    pub fn clip(self, other: Self) -> Self {
        let lo = self.lo.clamp(other.lo, other.hi);
        Self { lo, hi: self.hi.clamp(lo, other.hi) }
    }

    /// Sum.
    pub fn add(self, other: Self) -> Option<Self> {
        Some(Self { lo: self.lo.checked_add(other.lo)?, hi: self.hi.checked_add(other.hi)? })
    }

    /// Difference.
    pub fn sub(self, other: Self) -> Option<Self> {
        Some(Self { lo: self.lo.checked_sub(other.hi)?, hi: self.hi.checked_sub(other.lo)? })
    }

    /// Product.
    pub fn mul(self, other: Self) -> Option<Self> {
        let ends = [
            self.lo.checked_mul(other.lo)?,
            self.lo.checked_mul(other.hi)?,
            self.hi.checked_mul(other.lo)?,
            self.hi.checked_mul(other.hi)?,
        ];
        Some(Self { lo: *ends.iter().min()?, hi: *ends.iter().max()? })
    }

    /// Floored quotient, where a division by zero gives 0.
    pub fn div(self, other: Self) -> Option<Self> {
        if self.lo >= 0 && other.lo >= 1 {
            return Some(Self { lo: self.lo / other.hi, hi: self.hi / other.lo });
        }
        let reach = self.reach()?;
        Some(if self.lo >= 0 && other.lo >= 0 {
            Self { lo: 0, hi: reach }
        } else {
            Self { lo: -reach, hi: reach }
        })
    }

    /// Floored remainder (sign of the divisor), where a division by zero gives 0.
    pub fn modulo(self, other: Self) -> Option<Self> {
        if other.lo >= 0 {
            let most = (other.hi - 1).max(0);
            return Some(Self { lo: 0, hi: if self.lo >= 0 { most.min(self.hi) } else { most } });
        }
        let reach = other.reach()?;
        Some(Self { lo: -reach, hi: reach })
    }

    /// Largest distance from 0.
    fn reach(self) -> Option<i128> {
        Some(self.lo.checked_abs()?.max(self.hi.checked_abs()?))
    }
}

#[cfg(test)]
mod tests {
    use super::Interval;

    #[test]
    fn results_hold_every_value_of_the_operation() {
        let small: Vec<Interval> =
            (-4..=4).flat_map(|lo| (lo..=4).map(move |hi| Interval::new(lo, hi))).collect();
        for a in &small {
            for b in &small {
                for x in a.lo..=a.hi {
                    for y in b.lo..=b.hi {
                        let quotient = if y == 0 { 0 } else { (x as f64 / y as f64).floor() as i128 };
                        let remainder = if y == 0 { 0 } else { x - quotient * y };
                        for (name, result, value) in [
                            ("add", a.add(*b), x + y),
                            ("sub", a.sub(*b), x - y),
                            ("mul", a.mul(*b), x * y),
                            ("div", a.div(*b), quotient),
                            ("mod", a.modulo(*b), remainder),
                        ] {
                            let result = result.expect("small intervals stay in 128 bits");
                            assert!(
                                Interval::of(value).within(result),
                                "{x} {name} {y} = {value} not in {result:?}"
                            );
                        }
                    }
                }
            }
        }
    }

    #[test]
    fn ends_beyond_128_bits_are_no_interval() {
        assert_eq!(Interval::of(i128::MAX).add(Interval::of(1)), None);
    }
}
