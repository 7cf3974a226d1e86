//! Every test: units, golden files, documentation, simulated scenarios, and the tests with real peers.

use super::packages;
use crate::run::{self, Outcome};

/// Runs them. The `ci` profile is the tests' own: optimised enough that a hundred thousand generated messages are
/// quick, with every assertion in place.
pub fn run() -> Outcome {
    packages::ensure()?;
    run::run(run::cargo(&["test", "--workspace", "--profile", "ci", "--no-fail-fast"]))
}
