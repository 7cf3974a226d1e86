//! The random quantities of a load: sizes, gaps and keys.
//!
//! Promises: the same random numbers give the same samples; each sampler follows its distribution, which the tests
//! check by Kolmogorov-Smirnov.
//! Source: Atikoglu et al., *Workload Analysis of a Large-Scale Key-Value Store*, SIGMETRICS 2012, for the pool ETC;
//! Hörmann and Derflinger, *Rejection-inversion to generate variates from monotone discrete distributions*, 1996.

use crate::limits::{KEY_BYTES_MAX, VALUE_BYTES_MAX};
use crate::random::{Random, mix, unit};

/// Separates the choice of a key's length from all other uses of its number.
const KEY_LENGTH_SALT: u64 = 0x6b65_792d_6c65_6e67;

/// A generalized extreme value distribution.
#[derive(Clone, Copy, Debug)]
struct Gev {
    location: f64,
    scale: f64,
    shape: f64,
}

/// A generalized Pareto distribution.
#[derive(Clone, Copy, Debug)]
struct GeneralizedPareto {
    location: f64,
    scale: f64,
    shape: f64,
}

/// Lengths of the keys of ETC.
const ETC_KEY: Gev = Gev { location: 30.7984, scale: 8.204_49, shape: 0.078_688 };

/// Lengths of the values of ETC from 15 bytes on.
const ETC_VALUE: GeneralizedPareto = GeneralizedPareto { location: 15.0, scale: 214.476, shape: 0.348_238 };

/// Probability of each length below 15 bytes, beginning with 0.
const ETC_VALUE_SMALL: [f64; 15] = [
    0.005_36, 0.000_47, 0.178_20, 0.092_39, 0.000_18, 0.027_40, 0.000_65, 0.006_06, 0.000_23, 0.008_37,
    0.008_37, 0.089_89, 0.000_92, 0.003_26, 0.019_80,
];

/// Gaps between the requests of ETC, in microseconds.
const ETC_GAP: GeneralizedPareto = GeneralizedPareto { location: 0.0, scale: 16.029_2, shape: 0.154_971 };

impl Gev {
    /// Returns the value that a share `p` of all samples does not exceed; `p` is above 0 and at most 1.
    fn quantile(self, p: f64) -> f64 {
        self.location + self.scale * ((-p.ln()).powf(-self.shape) - 1.0) / self.shape
    }
}

impl GeneralizedPareto {
    /// Returns the value that a share `p` of all samples exceeds; `p` is above 0 and at most 1.
    fn exceeded_by(self, p: f64) -> f64 {
        self.location + self.scale * (p.powf(-self.shape) - 1.0) / self.shape
    }

    /// The mean; the location is 0, the shape below 1.
    fn mean(self) -> f64 {
        self.scale / (1.0 - self.shape)
    }
}

/// Returns the length of the key with this number in ETC; the same key has always the same.
pub(super) fn etc_key_bytes(key: u64, bytes_min: usize) -> usize {
    let length = ETC_KEY.quantile(unit(mix(key ^ KEY_LENGTH_SALT))).round();
    (length as usize).clamp(bytes_min, KEY_BYTES_MAX)
}

/// Returns the length of a value in ETC.
pub(super) fn etc_value_bytes(random: &mut Random) -> usize {
    let mut left = random.unit();
    for (bytes, probability) in ETC_VALUE_SMALL.into_iter().enumerate() {
        left -= probability;
        if left <= 0.0 {
            return bytes;
        }
    }
    (ETC_VALUE.exceeded_by(random.unit()) as usize).min(VALUE_BYTES_MAX)
}

/// Returns a gap between requests of ETC, rescaled to the mean 1.
pub(super) fn etc_gap(random: &mut Random) -> f64 {
    ETC_GAP.exceeded_by(random.unit()) / ETC_GAP.mean()
}

/// Returns a gap of a Poisson process, with the mean 1.
pub(super) fn exponential_gap(random: &mut Random) -> f64 {
    -random.unit().ln()
}

/// Zipf's distribution over `0..count`: item `i` is asked for in proportion to `(i + 1)^-exponent`. Takes constant
/// time and no table.
#[derive(Clone, Copy, Debug)]
pub(super) struct Zipf {
    count: u64,
    exponent: f64,
    /// Integral of the envelope at the left end, and at the right one.
    integral_first: f64,
    integral_last: f64,
    /// Distance to the left of an item within which it is accepted without a comparison.
    squeeze: f64,
}

impl Zipf {
    pub(super) fn new(count: u64, exponent: f64) -> Zipf {
        assert!(count > 0 && exponent > 0.0, "the settings have been checked");
        let mut zipf = Zipf { count, exponent, integral_first: 0.0, integral_last: 0.0, squeeze: 0.0 };
        zipf.integral_first = zipf.integral(1.5) - 1.0;
        zipf.integral_last = zipf.integral(count as f64 + 0.5);
        zipf.squeeze = 2.0 - zipf.integral_inverse(zipf.integral(2.5) - zipf.weight(2.0));
        zipf
    }

    pub(super) fn sample(&self, random: &mut Random) -> u64 {
        loop {
            let u = self.integral_last + random.unit() * (self.integral_first - self.integral_last);
            let x = self.integral_inverse(u);
            let item = ((x + 0.5) as u64).clamp(1, self.count);
            let at = item as f64;
            if at - x <= self.squeeze || u >= self.integral(at + 0.5) - self.weight(at) {
                return item - 1;
            }
        }
    }

    fn weight(&self, x: f64) -> f64 {
        (-self.exponent * x.ln()).exp()
    }

    /// Returns the integral of the weight, which is 0 at 1.
    fn integral(&self, x: f64) -> f64 {
        let log = x.ln();
        let y = (1.0 - self.exponent) * log;
        log * if y.abs() > 1e-8 { y.exp_m1() / y } else { 1.0 + y / 2.0 }
    }

    fn integral_inverse(&self, x: f64) -> f64 {
        let y = (x * (1.0 - self.exponent)).max(-1.0);
        (x * if y.abs() > 1e-8 { y.ln_1p() / y } else { 1.0 - y / 2.0 }).exp()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SAMPLES: usize = 100_000;

    /// Largest distance between the distribution of samples and the expected one that chance makes in one of a
    /// hundred runs.
    fn distance_max(samples: usize) -> f64 {
        1.63 / (samples as f64).sqrt()
    }

    /// Returns the Kolmogorov-Smirnov distance; `cdf`: the probability of a sample that is at most as large.
    fn distance(mut samples: Vec<f64>, is_discrete: bool, cdf: impl Fn(f64) -> f64) -> f64 {
        samples.sort_by(f64::total_cmp);
        let count = samples.len() as f64;
        let mut distance: f64 = 0.0;
        for (at, sample) in samples.iter().enumerate() {
            let is_last = samples.get(at + 1).is_none_or(|next| next > sample);
            let expected = cdf(*sample);
            if is_last {
                distance = distance.max(((at + 1) as f64 / count - expected).abs());
            }
            if !is_discrete {
                distance = distance.max((at as f64 / count - expected).abs());
            }
        }
        distance
    }

    fn samples(mut sample: impl FnMut(&mut Random) -> f64) -> Vec<f64> {
        let mut random = Random::new(7);
        (0..SAMPLES).map(|_| sample(&mut random)).collect()
    }

    #[track_caller]
    fn check(samples: Vec<f64>, is_discrete: bool, cdf: impl Fn(f64) -> f64) {
        let max = distance_max(samples.len());
        let distance = distance(samples, is_discrete, cdf);
        assert!(distance <= max, "distance {distance}, at most {max}");
    }

    fn pareto_cdf(location: f64, scale: f64, shape: f64, x: f64) -> f64 {
        1.0 - (1.0 + shape * (x - location).max(0.0) / scale).powf(-1.0 / shape)
    }

    /// The published distribution of the values of ETC: point masses, then a generalized Pareto distribution.
    fn etc_value_cdf(bytes: f64, shape: f64) -> f64 {
        let published = [
            0.00536, 0.00047, 0.17820, 0.09239, 0.00018, 0.02740, 0.00065, 0.00606, 0.00023, 0.00837,
            0.00837, 0.08989, 0.00092, 0.00326, 0.01980,
        ];
        let small: f64 = published.iter().take(bytes as usize + 1).sum();
        let all: f64 = published.iter().sum();
        // Lengths are whole: a sample of N bytes stands for all below N + 1.
        small + if bytes < 15.0 { 0.0 } else { (1.0 - all) * pareto_cdf(15.0, 214.476, shape, bytes + 1.0) }
    }

    #[test]
    fn etc_keys_have_the_published_lengths() {
        let lengths = (0..SAMPLES as u64).map(|key| etc_key_bytes(key, 6) as f64).collect();
        check(lengths, true, |bytes| {
            (-(1.0 + 0.078688 * (bytes + 0.5 - 30.7984) / 8.20449).powf(-1.0 / 0.078688)).exp()
        });
    }

    #[test]
    fn etc_values_have_the_published_lengths() {
        let lengths = samples(|random| etc_value_bytes(random) as f64);
        check(lengths.clone(), true, |bytes| etc_value_cdf(bytes, 0.348238));
        let wrong = distance(lengths, true, |bytes| etc_value_cdf(bytes, 0.5));
        assert!(wrong > distance_max(SAMPLES), "the test distinguishes shapes: {wrong}");
    }

    #[test]
    fn etc_gaps_have_the_published_distribution_and_the_mean_1() {
        let gaps = samples(etc_gap);
        let mean = gaps.iter().sum::<f64>() / gaps.len() as f64;
        assert!((mean - 1.0).abs() < 0.02, "{mean}");
        let published_mean = 16.0292 / (1.0 - 0.154971);
        check(gaps, false, |gap| pareto_cdf(0.0, 16.0292, 0.154971, gap * published_mean));
    }

    #[test]
    fn gaps_of_a_poisson_process_are_exponential() {
        check(samples(exponential_gap), false, |gap| 1.0 - (-gap).exp());
    }

    #[test]
    fn zipf_follows_its_weights() {
        for (count, exponent) in [(1, 0.99), (10, 1.0), (1_000, 0.99), (1_000, 2.5), (100_000, 0.5)] {
            let zipf = Zipf::new(count, exponent);
            let mut sums = Vec::with_capacity(count as usize);
            let mut sum = 0.0;
            for item in 1..=count {
                sum += (item as f64).powf(-exponent);
                sums.push(sum);
            }
            check(samples(|random| zipf.sample(random) as f64), true, |item| sums[item as usize] / sum);
        }
    }
}
