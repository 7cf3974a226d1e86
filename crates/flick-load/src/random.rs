//! A small seeded generator, so that a run can be repeated from its printed seed.
//!
//! Promises: the same seed gives the same numbers on every machine.
//! Refuses: anything that needs unpredictability.
//! Source: SplitMix64 (Steele, Lea, Flood, 2014).

/// The state of one generator.
#[derive(Debug)]
pub(crate) struct Random(u64);

impl Random {
    pub(crate) fn new(seed: u64) -> Random {
        Random(seed)
    }

    pub(crate) fn next_u64(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        mix(self.0)
    }

    /// Returns a number above 0 and up to 1, with 53 random bits.
    pub(crate) fn unit(&mut self) -> f64 {
        unit(self.next_u64())
    }

    /// Returns a number below `end`, which must not be zero. The bias is under `end / 2^64`.
    pub(crate) fn below(&mut self, end: u64) -> u64 {
        assert!(end > 0, "an empty range has no members");
        ((u128::from(self.next_u64()) * u128::from(end)) >> 64) as u64
    }
}

/// Returns a random word as a number above 0 and up to 1.
pub(crate) fn unit(word: u64) -> f64 {
    ((word >> 11) + 1) as f64 / (1u64 << 53) as f64
}

/// Spreads every bit of `x` over the whole word.
pub(crate) fn mix(x: u64) -> u64 {
    let x = (x ^ (x >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let x = (x ^ (x >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    x ^ (x >> 31)
}
