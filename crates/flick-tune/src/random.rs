//! A small seeded generator, and the distributions of the model.
//!
//! Promises: the same seed gives the same numbers.
//! Refuses: anything that needs unpredictability.
//! Source: SplitMix64 (Steele, Lea, Flood, 2014); gaps of ETC: Atikoglu et al., SIGMETRICS 2012, table 4.

/// Shape of the generalised Pareto distribution of ETC's gaps; its location is 0.
const GAP_SHAPE: f64 = 0.154_971;

/// Scale of the same distribution, in microseconds.
const GAP_SCALE_US: f64 = 16.029_2;

/// The state of one generator.
#[derive(Clone, Debug)]
pub struct SeededRandom(u64);

impl SeededRandom {
    /// Starts a generator at a seed.
    pub fn new(seed: u64) -> Self {
        Self(seed)
    }

    /// Returns 64 random bits.
    pub fn next_u64(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let x = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let x = (x ^ (x >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        x ^ (x >> 31)
    }

    /// Returns a number in the open interval from 0 to 1.
    pub fn uniform(&mut self) -> f64 {
        ((self.next_u64() >> 12) as f64 + 0.5) / (1_u64 << 52) as f64
    }

    /// Returns a gap of ETC, rescaled to a mean.
    pub fn etc_gap(&mut self, mean: f64) -> f64 {
        let gap_us = GAP_SCALE_US * (self.uniform().powf(-GAP_SHAPE) - 1.0) / GAP_SHAPE;
        gap_us * mean / (GAP_SCALE_US / (1.0 - GAP_SHAPE))
    }
}

#[cfg(test)]
mod tests {
    use super::{GAP_SCALE_US, GAP_SHAPE, SeededRandom};

    #[test]
    fn gaps_are_distributed_as_published() {
        let mean = GAP_SCALE_US / (1.0 - GAP_SHAPE);
        let mut random = SeededRandom::new(1);
        let mut gaps: Vec<f64> = (0..20_000).map(|_| random.etc_gap(mean)).collect();
        gaps.sort_by(f64::total_cmp);
        let distribution = |gap: f64| 1.0 - (1.0 + GAP_SHAPE * gap / GAP_SCALE_US).powf(-1.0 / GAP_SHAPE);
        let count = gaps.len() as f64;
        let distance =
            gaps.iter().enumerate().map(|(index, gap)| (distribution(*gap) - index as f64 / count).abs());
        // Kolmogorov-Smirnov at the level 0.001.
        assert!(distance.fold(0.0, f64::max) < 1.95 / count.sqrt());
    }
}
