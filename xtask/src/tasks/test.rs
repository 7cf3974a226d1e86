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

/// The models of concurrent code: loom tries the interleavings of two threads, shuttle draws schedules of more. Everything is
/// built for each of them, so each has its own place.
fn models() -> Outcome {
    for (tool, models) in [
        ("loom", ["--package", "flick-dict", "--test", "models"].as_slice()),
        ("loom", &["--package", "flick-ring", "--lib"]),
        ("shuttle", &["--package", "flick-ring", "--lib"]),
    ] {
        let mut cargo = run::cargo(&[&["test"], models].concat());
        cargo.env("RUSTFLAGS", format!("--cfg {tool}"));
        cargo.env("CARGO_TARGET_DIR", run::root().join("target").join(tool));
        run::run(cargo)?;
    }
    Ok(())
}
