//! Random inputs that a seed repeats.

/// Random numbers (Steele et al., "Fast Splittable Pseudorandom Number Generators", 2014).
pub struct Random(pub u64);

impl Random {
    /// Returns any number.
    pub fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    /// Returns a number below `end`.
    pub fn below(&mut self, end: u64) -> u64 {
        self.next() % end
    }

    /// Returns what a dishonest process may write in place of a word of a ring's state.
    pub fn word_instead_of(&mut self, before: u64) -> u64 {
        match self.below(8) {
            0 => 0,
            1 => self.below(4),
            2 => u64::MAX,
            3 => before.wrapping_add(self.below(5000)),
            4 => before.wrapping_sub(self.below(5000)),
            5 => before ^ 1 << self.below(64),
            6 => self.below(1 << 20),
            _ => self.next(),
        }
    }
}

/// Returns the number in an environment variable.
pub fn number(variable: &str, default: u64) -> u64 {
    std::env::var(variable).ok().and_then(|value| value.parse().ok()).unwrap_or(default)
}
