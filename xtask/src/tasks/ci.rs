//! Everything that must hold before a change is merged, cheapest first, with the time that each step takes and what a
//! step has left out.

use std::time::{Duration, Instant};

use super::{bench, deny, doc, fmt_check, lint, test};
use crate::run::{self, Outcome};
use crate::tidy;

/// Name and function of a step.
type Step = (&'static str, fn() -> Outcome);

const STEPS: &[Step] = &[
    ("fmt", fmt_check),
    ("tidy", tidy::run),
    ("deny", deny::run),
    ("lint", lint),
    ("doc", doc),
    ("test", test::run),
    ("bench", bench::run),
];

/// Runs the steps in order and stops at the first that fails.
pub fn run() -> Outcome {
    let mut times: Vec<(&str, Duration)> = Vec::with_capacity(STEPS.len());
    let mut outcome = Ok(());
    for (name, step) in STEPS {
        println!("\n== {name} ==");
        let start = Instant::now();
        outcome = step().map_err(|failure| format!("step `{name}` failed: {failure}"));
        times.push((name, start.elapsed()));
        if outcome.is_err() {
            break;
        }
    }
    println!();
    for (name, time) in &times {
        println!("{name:<6} {:>7.1} s", time.as_secs_f64());
    }
    let total: Duration = times.iter().map(|(_, time)| time).sum();
    println!("total  {:>7.1} s", total.as_secs_f64());
    for note in run::notes() {
        println!("{note}");
    }
    outcome
}
