//! `cargo xtask dist`: the release binary, with its debug information in a file beside it.
//! Promises: the binary has at most `BINARY_BYTES_MAX` and keeps its symbol table, so that backtraces and perf have
//! names without the other file; with it they have lines too.
//! Source: "Separate Debug Files" in GDB's manual.

use std::fs;
use std::path::Path;

use crate::run::{self, Outcome};

/// Size of the binary without its debug information.
const BINARY_BYTES_MAX: u64 = 25_000_000;
/// A function that every build has, and the file that defines it.
const KNOWN_SYMBOL: (&str, &str) = ("flick::main", "crates/flick/src/main.rs");

/// Builds, splits and checks `target/dist/flick-VERSION/flick` and `flick.debug`.
pub fn run() -> Outcome {
    run::run(run::cargo(&["build", "--profile", "dist", "--locked", "--package", "flick"]))?;
    let dist = run::target().join("dist");
    let built = dist.join("flick");
    let version = run::output(run::command(text(&built)?, &["--version"]))?;
    let number = version.split_whitespace().nth(1).ok_or("flick prints no version")?;
    let directory = dist.join(format!("flick-{number}"));
    let failed = |error| format!("cannot write {}: {error}", directory.display());
    fs::create_dir_all(&directory).map_err(failed)?;
    for file in ["LICENSE-APACHE", "LICENSE-MIT", "README.md", "CHANGELOG.md"] {
        fs::copy(run::root().join(file), directory.join(file)).map_err(failed)?;
    }
    let (binary, debug) = (directory.join("flick"), directory.join("flick.debug"));
    split(text(&built)?, text(&binary)?, text(&debug)?)?;
    check_size(&binary)?;
    check_lines(text(&binary)?)?;
    check_commit(&version)?;
    println!("{}: {}", directory.display(), version.trim_end());
    Ok(())
}

/// Copies a binary without its debug information, which goes to a file that the copy names.
fn split(built: &str, binary: &str, debug: &str) -> Outcome {
    run::run(run::command("objcopy", &["--only-keep-debug", "--compress-debug-sections", built, debug]))?;
    let debuglink = format!("--add-gnu-debuglink={debug}");
    run::run(run::command("objcopy", &["--strip-debug", &debuglink, built, binary]))
}

fn check_size(binary: &Path) -> Outcome {
    let bytes = fs::metadata(binary).map_err(|error| error.to_string())?.len();
    println!("{}: {bytes} bytes, at most {BINARY_BYTES_MAX}", binary.display());
    if bytes > BINARY_BYTES_MAX {
        return Err(format!("the release binary has {bytes} bytes, at most {BINARY_BYTES_MAX} are allowed"));
    }
    Ok(())
}

/// Checks that the binary has the name of a function, and that its line is found in the file beside it.
fn check_lines(binary: &str) -> Outcome {
    let (name, file) = KNOWN_SYMBOL;
    let symbols = run::output(run::command("nm", &["--demangle", binary]))?;
    let line = symbols.lines().find(|line| line.ends_with(&format!(" {name}")));
    let address = line.and_then(|line| line.split_whitespace().next());
    let address = address.ok_or_else(|| format!("{binary} has no symbol `{name}`"))?;
    let line = run::output(run::command("addr2line", &["--exe", binary, address]))?;
    println!("{name}: {}", line.trim_end());
    if line.contains(file) { Ok(()) } else { Err(format!("no debug information is found for `{name}`")) }
}

/// Checks that `flick --version` has the commit of this checkout, if it is one.
fn check_commit(version: &str) -> Outcome {
    match run::output(run::command("git", &["rev-parse", "--short=12", "HEAD"])) {
        Ok(head) if !version.contains(head.trim_end()) => {
            Err(format!("`flick --version` is {version:?}, without the commit {head:?}"))
        }
        _ => Ok(()),
    }
}

fn text(path: &Path) -> Result<&str, String> {
    path.to_str().ok_or_else(|| format!("{} is not UTF-8", path.display()))
}
