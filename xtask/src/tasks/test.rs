//! Every test: units, golden files, documentation, simulated scenarios, and the tests with real peers.

use super::packages;
use crate::run::{self, Outcome};

/// Runs them with the profile `ci`: optimised enough for a hundred thousand generated messages, with every assertion.
/// The models run beside the tests, which wait most of their time; they get only what the tests leave of the cores.
pub fn run() -> Outcome {
    packages::ensure()?;
    let tests = ["test", "--workspace", "--profile", "ci"];
    run::run(run::cargo(&[&tests[..], &["--no-run"]].concat()))?;
    std::thread::scope(|scope| {
        let models = scope.spawn(models);
        let tests = run::run(run::cargo(&[&tests[..], &["--no-fail-fast"]].concat()));
        let models = models.join().map_err(|_| "a thread that starts models panicked".to_owned())?;
        tests.and(models)
    })
}

/// Runs the models of concurrent code: loom tries the interleavings of two threads, shuttle draws schedules of more.
/// Both need flags of their own for every crate, so each has its own target directory. Optimised, they take half as long.
/// Their output is printed when they have ended, so that it does not mix with that of tests.
fn models() -> Outcome {
    for (tool, models) in [
        ("loom", ["--package", "flick-dict", "--test", "models"].as_slice()),
        ("loom", &["--package", "flick-ring", "--lib"]),
        ("loom", &["--package", "flick-shm", "--lib"]),
        ("loom", &["--package", "flick-preload", "--lib"]),
        ("shuttle", &["--package", "flick-ring", "--lib"]),
    ] {
        let mut cargo = run::idle_cargo(&[&["test", "--profile", "long"], models].concat());
        cargo.env("RUSTFLAGS", format!("--cfg {tool}"));
        cargo.env("CARGO_TARGET_DIR", run::root().join("target").join(tool));
        run::run_printed_at_end(cargo)?;
    }
    Ok(())
}
