//! Median and spread of a handful of rounds.

use serde::Serialize;

/// Median and extremes of one figure over the rounds.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub(crate) struct Spread {
    pub(crate) median: f64,
    pub(crate) min: f64,
    pub(crate) max: f64,
}

impl Spread {
    /// Sums up `figures`, of which there is at least one.
    pub(crate) fn of(figures: impl Iterator<Item = f64>) -> Spread {
        let mut sorted: Vec<f64> = figures.collect();
        sorted.sort_by(f64::total_cmp);
        assert!(!sorted.is_empty(), "there is at least one round");
        let (middle, is_odd) = (sorted.len() / 2, sorted.len() % 2 == 1);
        let median = if is_odd { sorted[middle] } else { (sorted[middle - 1] + sorted[middle]) / 2.0 };
        Spread { median, min: sorted[0], max: sorted[sorted.len() - 1] }
    }
}

#[cfg(test)]
mod tests {
    use super::Spread;

    #[test]
    fn the_median_is_the_middle() {
        let of = |figures: &[f64]| Spread::of(figures.iter().copied());
        assert_eq!(of(&[3.0, 1.0, 2.0]), Spread { median: 2.0, min: 1.0, max: 3.0 });
        assert_eq!(of(&[4.0, 1.0]), Spread { median: 2.5, min: 1.0, max: 4.0 });
    }
}
