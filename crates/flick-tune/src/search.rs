//! The search for the cheapest setting that keeps a limit, with few and noisy trials.
//! Promises: the next trial is that of the greatest expected improvement, times the probability that the limit is
//! kept; while no trial has kept it, the one that most probably does. The same seed chooses the same trials.
//! Not here: what a trial is (a run of the model or of a machine).
//! Source: Gardner et al., Bayesian optimization with inequality constraints, ICML 2014; for noise, the best is the
//! lowest predicted mean and not the lowest observation, as in Letham et al., Bayesian Analysis 14(2), 2019.

use crate::gaussian::Gaussian;
use crate::limits::{GRID_MAX, TRIALS_MAX};
use crate::random::SeededRandom;

/// Trials at random settings, before the first that is chosen.
const TRIALS_RANDOM: usize = 4;

/// Share of the limit above which an observation counts as this share: an overloaded server's latency says only that
/// it is overloaded.
const EXCESS_MAX: f64 = 2.0;

/// Probability of keeping the limit that the answer must have.
const CONFIDENCE: f64 = 0.7;

/// One observation.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Trial {
    /// Index of the candidate.
    pub candidate: usize,
    /// The cost that is minimised; above 0.
    pub cost: f64,
    /// The quantity that has a limit; above 0.
    pub limited: f64,
}

/// A candidate with what is predicted of it.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Prediction {
    /// Index of the candidate.
    pub candidate: usize,
    /// The cost.
    pub cost: f64,
    /// The quantity that has a limit.
    pub limited: f64,
    /// Probability that the limit is kept.
    pub kept: f64,
}

/// A search.
#[derive(Clone, Debug)]
pub struct Search {
    candidates: Vec<Vec<f64>>,
    limit: f64,
    trials: Vec<Trial>,
    random: SeededRandom,
}

impl Search {
    /// Starts a search among candidates, whose coordinates are between 0 and 1.
    ///
    /// Panics if there is no candidate, or more than `GRID_MAX`.
    pub fn new(candidates: Vec<Vec<f64>>, limit: f64, seed: u64) -> Self {
        assert!(!candidates.is_empty() && candidates.len() <= GRID_MAX, "there are candidates, and a limit");
        Self { candidates, limit, trials: Vec::new(), random: SeededRandom::new(seed) }
    }

    /// Adds an observation. Panics behind `TRIALS_MAX` of them.
    pub fn observe(&mut self, trial: Trial) {
        assert!(self.trials.len() < TRIALS_MAX, "a search has a limit");
        assert!(trial.candidate < self.candidates.len(), "a trial is of a candidate");
        self.trials.push(trial);
    }

    /// All observations.
    pub fn trials(&self) -> &[Trial] {
        &self.trials
    }

    /// Chooses the candidate of the next trial.
    pub fn next_candidate(&mut self) -> usize {
        if self.trials.len() < TRIALS_RANDOM {
            return ((self.random.uniform() * self.candidates.len() as f64) as usize)
                .min(self.candidates.len() - 1);
        }
        let processes = self.processes();
        let best = self.best_of(&processes).map(|best| processes.cost.predict(&self.candidates[best]).0);
        let worth = |candidate: &Vec<f64>| {
            let kept = processes.kept(candidate, self.limit);
            let Some(best) = best else { return kept };
            let (mean, deviation) = processes.cost.predict(candidate);
            let z = (best - mean) / deviation;
            kept * ((best - mean) * normal_share(z) + deviation * normal_density(z))
        };
        let worths: Vec<f64> = self.candidates.iter().map(worth).collect();
        (0..worths.len())
            .max_by(|left, right| worths[*left].total_cmp(&worths[*right]))
            .expect("there are candidates")
    }

    /// The tried candidate with the lowest predicted cost, of those that keep the limit with confidence.
    pub fn best(&self) -> Option<usize> {
        if self.trials.is_empty() { None } else { self.best_of(&self.processes()) }
    }

    /// Of all candidates, also those that were never tried, the one with the lowest cost that is predicted with its
    /// uncertainty, of those that keep the limit with confidence.
    pub fn predicted_best(&self) -> Option<Prediction> {
        if self.trials.is_empty() {
            return None;
        }
        let processes = self.processes();
        let predict = |candidate: usize| {
            let input = &self.candidates[candidate];
            let (cost, deviation) = processes.cost.predict(input);
            let limited = processes.limited.predict(input).0.exp();
            let kept = processes.kept(input, self.limit);
            (cost + deviation, Prediction { candidate, cost: cost.exp(), limited, kept })
        };
        let kept = (0..self.candidates.len()).map(predict).filter(|(_, one)| one.kept >= CONFIDENCE);
        kept.min_by(|(left, _), (right, _)| left.total_cmp(right)).map(|(_, best)| best)
    }

    fn best_of(&self, processes: &Processes) -> Option<usize> {
        let tried = self.trials.iter().map(|trial| trial.candidate);
        let kept = tried.filter(|tried| processes.kept(&self.candidates[*tried], self.limit) >= CONFIDENCE);
        let cost = |tried: &usize| processes.cost.predict(&self.candidates[*tried]).0;
        kept.min_by(|left, right| cost(left).total_cmp(&cost(right)))
    }

    fn processes(&self) -> Processes {
        let inputs: Vec<Vec<f64>> =
            self.trials.iter().map(|trial| self.candidates[trial.candidate].clone()).collect();
        let costs: Vec<f64> = self.trials.iter().map(|trial| trial.cost.ln()).collect();
        let excess = self.limit * EXCESS_MAX;
        let limited: Vec<f64> = self.trials.iter().map(|trial| trial.limited.min(excess).ln()).collect();
        Processes { cost: Gaussian::fit(&inputs, &costs), limited: Gaussian::fit(&inputs, &limited) }
    }
}

/// The logarithms of both quantities, as predicted.
struct Processes {
    cost: Gaussian,
    limited: Gaussian,
}

impl Processes {
    /// Probability that a candidate keeps the limit.
    fn kept(&self, candidate: &[f64], limit: f64) -> f64 {
        let (mean, deviation) = self.limited.predict(candidate);
        normal_share((limit.ln() - mean) / deviation)
    }
}

fn normal_density(z: f64) -> f64 {
    (-0.5 * z * z).exp() / (2.0 * std::f64::consts::PI).sqrt()
}

/// Share of the normal distribution below `z`, within 1.5e-7 (Abramowitz and Stegun, 7.1.26).
fn normal_share(z: f64) -> f64 {
    let x = z.abs() / std::f64::consts::SQRT_2;
    let t = 1.0 / (1.0 + 0.327_591_1 * x);
    let factors = [1.061_405_429, -1.453_152_027, 1.421_413_741, -0.284_496_736, 0.254_829_592];
    let tail = factors.iter().fold(0.0, |sum, factor| (sum + factor) * t) * (-x * x).exp();
    if z < 0.0 { tail / 2.0 } else { 1.0 - tail / 2.0 }
}

#[cfg(test)]
mod tests {
    use super::{Search, Trial, normal_share};

    #[test]
    fn shares_of_the_normal_distribution_are_known() {
        for (z, share) in [(0.0, 0.5), (1.0, 0.841_344_7), (-1.959_964, 0.025), (3.0, 0.998_650_1)] {
            assert!((normal_share(z) - share).abs() < 1e-6, "{z}: {}", normal_share(z));
        }
    }

    #[test]
    fn a_minimum_on_the_limit_is_found() {
        // The cost falls along the line, and beyond 0.6 the limit is not kept.
        let candidates: Vec<Vec<f64>> = (0..=100).map(|step| vec![f64::from(step) / 100.0]).collect();
        let mut search = Search::new(candidates.clone(), 1.6, 3);
        for _ in 0..12 {
            let candidate = search.next_candidate();
            let x = candidates[candidate][0];
            search.observe(Trial { candidate, cost: 10.0 - x, limited: 1.0 + x });
        }
        let best = search.best().expect("a candidate keeps the limit");
        assert!((57..=60).contains(&best), "{best} of {:?}", search.trials());
    }

    #[test]
    fn untried_candidate_is_predicted_between_trials() {
        let candidates: Vec<Vec<f64>> = (0..=100).map(|step| vec![f64::from(step) / 100.0]).collect();
        let mut search = Search::new(candidates.clone(), 1.6, 3);
        assert_eq!(search.predicted_best(), None);
        for candidate in [0, 20, 40, 70, 90] {
            let x = candidates[candidate][0];
            search.observe(Trial { candidate, cost: 10.0 - x, limited: 1.0 + x });
        }
        assert_eq!(search.best(), Some(40));
        let best = search.predicted_best().expect("a candidate keeps the limit");
        assert!((56..=60).contains(&best.candidate) && best.kept >= 0.7, "{best:?}");
        let x = candidates[best.candidate][0];
        assert!((best.cost - (10.0 - x)).abs() < 0.01 && (best.limited - (1.0 + x)).abs() < 0.01, "{best:?}");
    }

    #[test]
    fn without_a_candidate_that_keeps_the_limit_there_is_no_answer() {
        let mut search = Search::new(vec![vec![0.0], vec![0.5], vec![1.0]], 1.0, 1);
        assert_eq!(search.best(), None);
        for _ in 0..6 {
            let candidate = search.next_candidate();
            search.observe(Trial { candidate, cost: 1.0, limited: 3.0 });
        }
        assert_eq!(search.best(), None);
    }
}
