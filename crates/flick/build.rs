//! Sets `FLICK_TARGET`, `FLICK_COMMIT` and `FLICK_BUILD` for `flick --version`.
//! The commit is the environment variable `FLICK_COMMIT` if it is set, else that of the git checkout, else that of the
//! archive that `git archive` wrote, else empty. Only builds with all optimisations have it, so that a commit does not
//! rebuild the crate while it is developed.
//!
//! It also compiles the library of `flick accel` (`preload`), which the binary holds as data: that library stands
//! alone, without `std`, and with an abort in place of a panic, which Cargo cannot say of one crate of a workspace.

use std::path::Path;
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
    preload(&target);
}

/// Sources of the library, from this crate.
const PRELOAD: &str = "../flick-preload/src";

/// Compiles the library; for an architecture that it does not know the file is empty.
fn preload(target: &str) {
    println!("cargo::rerun-if-changed={PRELOAD}");
    let variable = |name: &str| std::env::var(name).unwrap_or_default();
    let library = Path::new(&variable("OUT_DIR")).join("libflick_preload.so");
    if variable("CARGO_CFG_TARGET_ARCH") != "x86_64" {
        std::fs::write(&library, []).expect("the output directory is writable");
        return;
    }
    let mut rustc = Command::new(variable("RUSTC"));
    rustc.args(["--crate-name", "flick_preload", "--crate-type", "cdylib", "--edition", "2024"]);
    rustc.args(["--cfg", "flick_preload", "--target", target, "-o"]).arg(&library);
    for option in ["opt-level=3", "panic=abort", "relocation-model=pic", "force-unwind-tables=yes"] {
        rustc.args(["-C", option]);
    }
    // No library is needed, so that none of its functions can be called; it starts before all other libraries.
    for option in ["-nostdlib", "-nostartfiles", "-Wl,-z,initfirst", "-Wl,-z,now", "-Wl,-z,defs"] {
        rustc.arg(format!("-Clink-arg={option}"));
    }
    if let Ok(linker) = std::env::var("RUSTC_LINKER") {
        rustc.arg(format!("-Clinker={linker}"));
    }
    let status = rustc.arg(format!("{PRELOAD}/lib.rs")).status().expect("cargo names the compiler");
    assert!(status.success(), "the library of `flick accel` does not compile");
}

fn commit() -> Option<String> {
    if let Ok(commit) = std::env::var("FLICK_COMMIT") {
        return Some(commit);
    }
    if std::env::var("OPT_LEVEL").is_ok_and(|level| level != "3") {
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
