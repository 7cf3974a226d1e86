//! The way of a parser over a message: a bound of all rounds of nested loops together.

/// The way of all rounds of a loop over a message, in one call of a parser, from front to back. What a round
/// searches and takes for a value is behind all that the rounds before it did, those of loops around it and inside it
/// included.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Advance {
    /// Bytes that each round passes at least, without those of rounds of loops inside it; not 0.
    pub least: u32,
    /// Bytes that all of them pass at most.
    pub most: u32,
}

impl Advance {
    /// Returns how often the loop goes round at most in one call, however often it is entered.
    pub fn rounds_max(self) -> u32 {
        self.most / self.least.max(1)
    }
}
