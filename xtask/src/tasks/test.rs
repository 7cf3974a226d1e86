//! Every test: units, golden files, documentation, simulated scenarios, and the tests with real peers.

use super::packages;
use crate::run::{self, Outcome};

/// Runs them. The `ci` profile is the tests' own: optimised enough that a hundred thousand generated messages are
/// quick, with every assertion in place.
pub fn run() -> Outcome {
    packages::ensure()?;
    run::run(run::cargo(&["test", "--workspace", "--profile", "ci", "--no-fail-fast"]))?;
    models()
}

/// The models of concurrent code: loom tries the interleavings. Everything is built for it, so it has its own place.
fn models() -> Outcome {
    let target = run::root().join("target/loom");
    for models in
        [["--package", "flick-dict", "--test", "models"].as_slice(), &["--package", "flick-ring", "--lib"]]
    {
        let mut cargo = run::cargo(&[&["test"], models].concat());
        cargo.env("RUSTFLAGS", "--cfg loom").env("CARGO_TARGET_DIR", &target);
        run::run(cargo)?;
    }
    Ok(())
}
