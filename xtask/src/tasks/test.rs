//! Every test: units, golden files, documentation, simulated scenarios, and the tests with real peers.

use super::packages;
use crate::run::{self, Outcome};

/// Runs them with the profile `ci`: optimised enough for a hundred thousand generated messages, with every assertion.
pub fn run() -> Outcome {
    packages::ensure()?;
    run::run(run::cargo(&["test", "--workspace", "--profile", "ci", "--no-fail-fast"]))?;
    models()
}

/// Runs the models of concurrent code: loom tries the interleavings of two threads, shuttle draws schedules of more.
/// Both need flags of their own for every crate, so each has its own target directory.
fn models() -> Outcome {
    for (tool, models) in [
        ("loom", ["--package", "flick-dict", "--test", "models"].as_slice()),
        ("loom", &["--package", "flick-ring", "--lib"]),
        ("loom", &["--package", "flick-shm", "--lib"]),
        ("shuttle", &["--package", "flick-ring", "--lib"]),
    ] {
        let mut cargo = run::cargo(&[&["test"], models].concat());
        cargo.env("RUSTFLAGS", format!("--cfg {tool}"));
        cargo.env("CARGO_TARGET_DIR", run::root().join("target").join(tool));
        run::run(cargo)?;
    }
    Ok(())
}
