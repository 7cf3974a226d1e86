//! A Gaussian process: predicts a noisy quantity between observations, with its uncertainty.
//! Promises: length scales and noise are those of the greatest likelihood in a small table; the cost is bounded by
//! `TRIALS_MAX`³ for each entry of it.
//! Refuses: gradients, other kernels than Matérn 5/2, more than a few dimensions.
//! Source: Rasmussen and Williams, Gaussian Processes for Machine Learning, algorithm 2.1 and equation 4.17.

use crate::limits::TRIALS_MAX;

/// Length scales that are tried for each dimension, for inputs from 0 to 1.
const LENGTHS: [f64; 4] = [0.2, 0.4, 0.8, 1.6];

/// Variances of the noise that are tried, for outputs of variance 1.
const NOISES: [f64; 3] = [1e-4, 1e-3, 1e-2];

/// A process that has observed something.
#[derive(Clone, Debug)]
pub(crate) struct Gaussian {
    inputs: Vec<Vec<f64>>,
    lengths: Vec<f64>,
    /// Lower triangle of the Cholesky decomposition of the covariance.
    lower: Vec<Vec<f64>>,
    weights: Vec<f64>,
    mean: f64,
    deviation: f64,
}

impl Gaussian {
    /// Fits a process to observations.
    ///
    /// Shape: as many outputs as inputs, at least one, at most `TRIALS_MAX`; inputs of one dimension are equally long.
    pub(crate) fn fit(inputs: &[Vec<f64>], outputs: &[f64]) -> Self {
        assert!(!inputs.is_empty() && inputs.len() <= TRIALS_MAX, "there is something to fit, and a limit");
        assert!(inputs.len() == outputs.len(), "each input has an output");
        let count = outputs.len() as f64;
        let mean = outputs.iter().sum::<f64>() / count;
        let variance = outputs.iter().map(|output| (output - mean).powi(2)).sum::<f64>() / count;
        let deviation = variance.sqrt().max(1e-9);
        let scaled: Vec<f64> = outputs.iter().map(|output| (output - mean) / deviation).collect();
        let mut best: Option<(f64, Self)> = None;
        for lengths in tuples(inputs[0].len()) {
            for noise in NOISES {
                let covariance = covariance(inputs, &lengths, noise);
                let Some(lower) = cholesky(covariance) else { continue };
                let weights = solve_upper(&lower, &solve_lower(&lower, &scaled));
                let fit: f64 = scaled.iter().zip(&weights).map(|(output, weight)| output * weight).sum();
                let likelihood =
                    -0.5 * fit - lower.iter().enumerate().map(|(row, line)| line[row].ln()).sum::<f64>();
                if best.as_ref().is_none_or(|(greatest, _)| likelihood > *greatest) {
                    let inputs = inputs.to_vec();
                    let lengths = lengths.clone();
                    best = Some((likelihood, Self { inputs, lengths, lower, weights, mean, deviation }));
                }
            }
        }
        best.expect("a covariance with noise on its diagonal has a decomposition").1
    }

    /// Predicts mean and standard deviation, without the noise.
    pub(crate) fn predict(&self, input: &[f64]) -> (f64, f64) {
        let covariances: Vec<f64> =
            self.inputs.iter().map(|known| matern(known, input, &self.lengths)).collect();
        let mean: f64 = covariances.iter().zip(&self.weights).map(|(cov, weight)| cov * weight).sum();
        let reduced = solve_lower(&self.lower, &covariances);
        let variance = 1.0 - reduced.iter().map(|value| value * value).sum::<f64>();
        (self.mean + self.deviation * mean, self.deviation * variance.max(1e-12).sqrt())
    }
}

/// All combinations of length scales.
fn tuples(dimensions: usize) -> Vec<Vec<f64>> {
    let mut tuples = vec![Vec::new()];
    for _ in 0..dimensions {
        let longer = |tuple: &Vec<f64>| LENGTHS.map(|length| [tuple.as_slice(), &[length]].concat());
        tuples = tuples.iter().flat_map(longer).collect();
    }
    tuples
}

/// The kernel, 1 for equal inputs.
fn matern(left: &[f64], right: &[f64], lengths: &[f64]) -> f64 {
    let pairs = left.iter().zip(right).zip(lengths);
    let squared: f64 = pairs.map(|((left, right), length)| ((left - right) / length).powi(2)).sum();
    let distance = (5.0 * squared).sqrt();
    (1.0 + distance + distance * distance / 3.0) * (-distance).exp()
}

fn covariance(inputs: &[Vec<f64>], lengths: &[f64], noise: f64) -> Vec<Vec<f64>> {
    let row = |index: usize| -> Vec<f64> {
        let cell = |column: usize| {
            matern(&inputs[index], &inputs[column], lengths) + if index == column { noise } else { 0.0 }
        };
        (0..=index).map(cell).collect()
    };
    (0..inputs.len()).map(row).collect()
}

/// Decomposes the lower triangle of a symmetric matrix, unless it is not positive definite.
fn cholesky(mut matrix: Vec<Vec<f64>>) -> Option<Vec<Vec<f64>>> {
    for row in 0..matrix.len() {
        for column in 0..=row {
            let products: f64 = (0..column).map(|index| matrix[row][index] * matrix[column][index]).sum();
            let rest = matrix[row][column] - products;
            if row > column {
                matrix[row][column] = rest / matrix[column][column];
            } else if rest > 0.0 {
                matrix[row][row] = rest.sqrt();
            } else {
                return None;
            }
        }
    }
    Some(matrix)
}

fn solve_lower(lower: &[Vec<f64>], right: &[f64]) -> Vec<f64> {
    let mut solved: Vec<f64> = Vec::with_capacity(right.len());
    for (row, line) in lower.iter().enumerate() {
        let known: f64 = line.iter().zip(&solved).map(|(factor, value)| factor * value).sum();
        solved.push((right[row] - known) / line[row]);
    }
    solved
}

fn solve_upper(lower: &[Vec<f64>], right: &[f64]) -> Vec<f64> {
    let mut solved = vec![0.0; right.len()];
    for row in (0..right.len()).rev() {
        let known: f64 = (row + 1..right.len()).map(|below| lower[below][row] * solved[below]).sum();
        solved[row] = (right[row] - known) / lower[row][row];
    }
    solved
}

#[cfg(test)]
mod tests {
    use super::Gaussian;

    #[test]
    fn a_smooth_function_is_predicted_between_observations() {
        let f = |x: f64| (3.0 * x).sin() + 10.0;
        let inputs: Vec<Vec<f64>> = (0..8).map(|step| vec![f64::from(step) / 7.0]).collect();
        let outputs: Vec<f64> = inputs.iter().map(|input| f(input[0])).collect();
        let process = Gaussian::fit(&inputs, &outputs);
        for step in 0..50 {
            let x = f64::from(step) / 49.0;
            let (mean, deviation) = process.predict(&[x]);
            assert!((mean - f(x)).abs() < 0.03 && deviation < 0.1, "{x}: {mean} ± {deviation}, not {}", f(x));
        }
    }

    #[test]
    fn far_from_observations_it_is_unsure() {
        let process = Gaussian::fit(&[vec![0.0], vec![0.1], vec![0.2]], &[1.0, 2.0, 1.0]);
        let (near, far) = (process.predict(&[0.1]).1, process.predict(&[1.0]).1);
        assert!(far > 5.0 * near, "{near} {far}");
    }

    #[test]
    fn noise_is_not_followed() {
        let inputs: Vec<Vec<f64>> = (0..40).map(|step| vec![f64::from(step) / 39.0]).collect();
        let outputs: Vec<f64> =
            (0..40).map(|step| f64::from(step) + if step % 2 == 0 { 1.0 } else { -1.0 }).collect();
        let process = Gaussian::fit(&inputs, &outputs);
        let (mean, _) = process.predict(&[0.5]);
        assert!((mean - 19.5).abs() < 0.8, "{mean}");
    }
}
