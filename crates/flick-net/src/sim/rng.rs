//! The source of chance of a simulation.
//! Promises: the same seed gives the same numbers on every machine and in every version.
//! Source: SplitMix64 (Steele, Lea, Flood 2014), whose whole state is one counter.

/// A small generator; not for secrets.
#[derive(Clone, Debug)]
pub struct SimRng {
    state: u64,
}

impl SimRng {
    /// Creates a generator; any seed is as good as any other.
    pub fn new(seed: u64) -> SimRng {
        SimRng { state: seed }
    }

    /// Returns the next 64 bits.
    pub fn next_u64(&mut self) -> u64 {
        self.state = self.state.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut word = self.state;
        word = (word ^ (word >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        word = (word ^ (word >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        word ^ (word >> 31)
    }

    /// Returns a number from `low` to `high`, both included. Panics when `low > high`.
    pub fn between(&mut self, low: u64, high: u64) -> u64 {
        assert!(low <= high, "a range is not empty");
        match (high - low).checked_add(1) {
            Some(span) => low + self.next_u64() % span,
            None => self.next_u64(),
        }
    }

    /// Returns true in `per_mille` of 1000 cases. Draws nothing when the result is certain.
    pub fn chance(&mut self, per_mille: u32) -> bool {
        per_mille > 0 && self.between(0, 999) < u64::from(per_mille)
    }

    /// Shuffles items.
    pub fn shuffle<T>(&mut self, items: &mut [T]) {
        for last in (1..items.len()).rev() {
            items.swap(last, self.between(0, last as u64) as usize);
        }
    }
}
