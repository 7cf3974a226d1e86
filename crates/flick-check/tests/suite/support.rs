//! Checking a text the way `flick check` does, with the standard library of the repository.

use std::path::PathBuf;

use flick_check::{Diagnostic, Sources, hir};

/// The root of the repository.
pub fn root() -> PathBuf {
    PathBuf::from(concat!(env!("CARGO_MANIFEST_DIR"), "/../.."))
}

/// A text of the repository.
pub fn read(path: &str) -> String {
    let path = root().join(path);
    std::fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

/// Checks `text`; `use` lines find the standard library only.
pub fn check(name: &str, text: &str) -> (Option<hir::Program>, Vec<Diagnostic>, Sources) {
    flick_check::check(name, text, &|name| {
        let path = root().join(format!("stdlib/{name}.flick"));
        let text = std::fs::read_to_string(path).ok()?;
        Some((format!("<stdlib>/{name}.flick"), text))
    })
}

/// The codes of the diagnostics, in order.
pub fn codes(diagnostics: &[Diagnostic]) -> Vec<&'static str> {
    diagnostics.iter().map(|found| found.code).collect()
}
