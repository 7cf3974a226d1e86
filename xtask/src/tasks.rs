//! The tasks. The short ones are here, the others in files of their names.

pub mod ci;
pub mod deny;
pub mod fuzz;
pub mod packages;
pub mod storms;
pub mod test;

use crate::run::{self, Outcome};

/// Formats the code.
pub fn fmt() -> Outcome {
    run::run(run::cargo(&["fmt", "--all"]))
}

/// Fails where `fmt` would change something.
pub fn fmt_check() -> Outcome {
    run::run(run::cargo(&["fmt", "--all", "--check"]))
        .map_err(|failure| format!("{failure}\nthe code is not formatted: run `cargo xtask fmt`"))
}

/// Clippy over all crates and targets. The profile is that of the tests, so that their builds are shared.
pub fn lint() -> Outcome {
    run::run(run::cargo(&[
        "clippy",
        "--workspace",
        "--all-targets",
        "--profile",
        "ci",
        "--",
        "-D",
        "warnings",
    ]))
}

/// Builds the documentation of our own crates.
pub fn doc() -> Outcome {
    let mut doc = run::cargo(&["doc", "--workspace", "--no-deps", "--profile", "ci"]);
    doc.env("RUSTDOCFLAGS", "-D warnings");
    run::run(doc)
}
