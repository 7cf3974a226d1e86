//! The tasks. The short ones are here, each of the others is in the file of its name.

pub mod bench;
pub mod ci;
pub mod deny;
pub mod dist;
pub mod faults;
pub mod fuzz;
pub mod packages;
pub mod test;

use crate::run::{self, Outcome};

/// Formats the code.
pub fn fmt() -> Outcome {
    run::run(run::cargo(&["fmt", "--all"]))
}

/// Fails if `fmt` would change a file.
pub fn fmt_check() -> Outcome {
    run::run(run::cargo(&["fmt", "--all", "--check"]))
        .map_err(|failure| format!("{failure}\nthe code is not formatted: run `cargo xtask fmt`"))
}

/// Clippy over all crates and targets, with and without default features, which only flick has: of the whole workspace
/// both times, as a part of it has dependencies with other features, which are built again. Uses the tests' profile, so
/// that they share their builds. `flick-shm` is checked alone as well: in a build of the workspace, other crates switch
/// features of its dependencies on.
pub fn lint() -> Outcome {
    clippy(&["--workspace", "--all-targets"])?;
    clippy(&["--workspace", "--all-targets", "--no-default-features"])?;
    run::run(run::cargo(&["check", "--profile", "ci", "--package", "flick-shm", "--lib"]))
}

fn clippy(selection: &[&str]) -> Outcome {
    run::run(run::cargo(&[&["clippy", "--profile", "ci"], selection, &["--", "-D", "warnings"]].concat()))
}

/// Builds the documentation of our own crates.
pub fn doc() -> Outcome {
    let mut doc = run::cargo(&["doc", "--workspace", "--no-deps", "--profile", "ci"]);
    doc.env("RUSTDOCFLAGS", "-D warnings");
    run::run(doc)
}
