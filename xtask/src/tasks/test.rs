//! Every test: units, golden files, documentation, simulated scenarios, and the tests with real peers.

use std::collections::BTreeSet;
use std::fs;

use super::packages;
use crate::run::{self, Outcome};

/// Builds for the tests: optimised enough for a hundred thousand generated messages, with every assertion.
const CARGO_TEST: [&str; 4] = ["test", "--workspace", "--profile", "ci"];
/// Files of tests that compute and neither wait nor measure time, each for more than five seconds.
const COMPUTING: [&str; 7] = [
    "differential",
    "exchange_allocations",
    "exchanges",
    "following",
    "replies_under_faults",
    "simulated",
    "suite",
];

/// Runs them. The models, and the tests that compute, run beside the others, which wait most of their time, and get
/// only what those leave of the cores.
pub fn run() -> Outcome {
    packages::ensure()?;
    let others = files_of_tests()?.into_iter().filter(|name| !COMPUTING.contains(&name.as_str()));
    let others: Vec<String> = others.flat_map(|name| ["--test".to_owned(), name]).collect();
    let others: Vec<&str> = others.iter().map(String::as_str).collect();
    run::run(run::cargo(&[&CARGO_TEST[..], &["--no-run"]].concat()))?;
    std::thread::scope(|scope| {
        let beside = scope.spawn(|| computing().and(models()));
        let kinds = ["--no-fail-fast", "--lib", "--bins"].as_slice();
        let tests = run::run(run::cargo(&[&CARGO_TEST, kinds, &others].concat()));
        let examples = run::run(run::cargo(&[&CARGO_TEST[..], &["--no-fail-fast", "--doc"]].concat()));
        let beside = beside.join().map_err(|_| "a thread that starts models panicked".to_owned())?;
        tests.and(examples).and(beside)
    })
}

/// Names of the files of tests of all crates: of `tests/NAME.rs` and `tests/NAME/main.rs`.
fn files_of_tests() -> Result<BTreeSet<String>, String> {
    let crates = run::root().join("crates");
    let unread = |error: std::io::Error| format!("cannot list the tests below {}: {error}", crates.display());
    let mut names = BTreeSet::new();
    for each in fs::read_dir(&crates).map_err(unread)? {
        let Ok(files) = fs::read_dir(each.map_err(unread)?.path().join("tests")) else { continue };
        for file in files {
            let path = file.map_err(unread)?.path();
            let is_test = path.extension().is_some_and(|kind| kind == "rs") || path.join("main.rs").is_file();
            names
                .extend(path.file_stem().filter(|_| is_test).map(|name| name.to_string_lossy().into_owned()));
        }
    }
    Ok(names)
}

/// Runs the tests that compute.
fn computing() -> Outcome {
    let names: Vec<&str> = COMPUTING.iter().flat_map(|name| ["--test", name]).collect();
    run::run_printed_at_end(run::idle_cargo(&[&CARGO_TEST[..], &["--no-fail-fast"], &names].concat()))
}

/// Runs the models of concurrent code: loom tries the interleavings of two threads, shuttle draws schedules of more.
/// Both need flags of their own for every crate, so each has its own target directory. Optimised, they take half as
/// long. Their output is printed when they have ended, so that it does not mix with that of tests.
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
