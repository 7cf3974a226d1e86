//! Sets `FLICK_TARGET`, `FLICK_COMMIT` and `FLICK_BUILD` for `flick --version`.
//! The commit is that of the git checkout, or the environment variable `FLICK_COMMIT` if it is set, or empty. Only release
//! builds ask git, so that a commit does not rebuild the crate while it is developed.

use std::process::Command;

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
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
    // The log of HEAD changes with every commit and checkout.
    println!("cargo::rerun-if-changed={}", git(&["rev-parse", "--git-path", "logs/HEAD"])?);
    git(&["rev-parse", "--short=12", "HEAD"])
}

fn git(arguments: &[&str]) -> Option<String> {
    let output =
        Command::new("git").args(arguments).output().ok().filter(|output| output.status.success())?;
    Some(String::from_utf8(output.stdout).ok()?.trim().to_owned())
}
