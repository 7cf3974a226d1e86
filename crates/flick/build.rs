//! Sets `FLICK_TARGET`, `FLICK_COMMIT` and `FLICK_BUILD` for `flick --version`.
//! The commit is the environment variable `FLICK_COMMIT` if it is set, else that of the git checkout, else that of the
//! archive that `git archive` wrote, else empty. Only release builds have it, so that a commit does not rebuild the
//! crate while it is developed.

use std::process::Command;

/// The line of `commit.txt`, in which `git archive` replaces this by the commit.
const PLACEHOLDER: &str = "$Format:";

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    println!("cargo::rerun-if-changed=commit.txt");
    println!("cargo::rerun-if-env-changed=FLICK_COMMIT");
    let target = std::env::var("TARGET").unwrap_or_default();
    println!("cargo::rustc-env=FLICK_TARGET={target}");
    let commit = commit().unwrap_or_default();
    println!("cargo::rustc-env=FLICK_COMMIT={commit}");
    println!("cargo::rustc-env=FLICK_BUILD={}", format!("{commit} {target}").trim_start());
}

fn commit() -> Option<String> {
    if let Ok(commit) = std::env::var("FLICK_COMMIT") {
        return Some(commit);
    }
    if std::env::var("PROFILE").is_ok_and(|profile| profile != "release") {
        return None;
    }
    of_checkout().or_else(of_archive)
}

/// The commit of the checkout, unless that is of another project, which has the sources of flick in a directory.
fn of_checkout() -> Option<String> {
    git(&["rev-parse", "--show-prefix"]).filter(|prefix| prefix == "crates/flick/")?;
    // The log of HEAD changes with every commit and checkout.
    println!("cargo::rerun-if-changed={}", git(&["rev-parse", "--git-path", "logs/HEAD"])?);
    git(&["rev-parse", "--short=12", "HEAD"])
}

fn of_archive() -> Option<String> {
    let text = std::fs::read_to_string("commit.txt").ok()?;
    let commit = text.trim().get(..12)?.to_owned();
    (!commit.starts_with(PLACEHOLDER)).then_some(commit)
}

fn git(arguments: &[&str]) -> Option<String> {
    let output =
        Command::new("git").args(arguments).output().ok().filter(|output| output.status.success())?;
    Some(String::from_utf8(output.stdout).ok()?.trim().to_owned())
}
