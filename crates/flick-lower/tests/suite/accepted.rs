//! What the checker accepts is lowered, verified and compiled: every program of the repository, documents included.
//! Promises: a program is refused before it runs, with a diagnostic, or never.

use std::fs;
use std::path::{Path, PathBuf};

use flick_check::hir::Program;
use flick_check::limits::UNIT_FIELDS_MAX;
use flick_codegen::{Options, compile};

use crate::source::verified;

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// The files with this ending under a directory of the repository, by name.
fn files(dir: &str, ending: &str) -> Vec<PathBuf> {
    let mut open = vec![root().join(dir)];
    let mut found = Vec::new();
    while let Some(dir) = open.pop() {
        for entry in fs::read_dir(&dir).unwrap_or_else(|error| panic!("{}: {error}", dir.display())) {
            let path = entry.expect("a readable directory").path();
            if path.is_dir() {
                open.push(path);
            } else if path.extension().is_some_and(|extension| extension == ending) {
                found.push(path);
            }
        }
    }
    found.sort();
    found
}

/// The texts between a ```flick line and the next ``` line.
fn blocks(page: &str) -> Vec<String> {
    let parts = page.split("```flick\n").skip(1);
    parts.map(|part| part.split("```").next().unwrap_or("").to_owned()).collect()
}

/// Checks `text` with the standard library, and with what stands beside it.
fn checked(text: &str, beside: Option<&Path>) -> Option<Program> {
    let loader = |name: &str| {
        let dirs = beside.into_iter().map(Path::to_path_buf).chain([root().join("stdlib")]);
        let paths = dirs.map(|dir| dir.join(format!("{name}.flick")));
        let text = paths.into_iter().find_map(|path| fs::read_to_string(path).ok())?;
        Some((format!("{name}.flick"), text))
    };
    flick_check::check("test.flick", text, &loader).0.filter(|program| program.process.is_some())
}

/// Lowers, verifies and compiles a program that was accepted; whether it was.
fn check(name: &str, text: &str, beside: Option<&Path>) -> bool {
    let Some(program) = checked(text, beside) else { return false };
    for program in program.each() {
        assert!(flick_lower::crowded(program).is_empty(), "{name} has room");
        let module = verified(flick_lower::lower(program));
        if let Err(error) = compile(&module, &Options::default()) {
            panic!("{name}: {error}");
        }
    }
    true
}

#[test]
fn what_the_checker_accepts_is_compiled() {
    let mut accepted = 0;
    for path in ["examples", "tests/golden/ok", "tests/services"].iter().flat_map(|dir| files(dir, "flick")) {
        let text = fs::read_to_string(&path).expect("a program is text");
        accepted += u32::from(check(&path.display().to_string(), &text, path.parent()));
    }
    for path in ["docs/language", "docs/errors", "docs/guide"].iter().flat_map(|dir| files(dir, "md")) {
        let page = fs::read_to_string(&path).expect("a page is text");
        for text in blocks(&page) {
            accepted += u32::from(check(&path.display().to_string(), &text, None));
        }
    }
    assert!(accepted > 100, "{accepted} programs were accepted");
}

/// A unit of `fields` texts, all of which the program reads and changes.
fn crowd(fields: usize) -> String {
    let each = |one: &dyn Fn(usize) -> String| (0..fields).map(one).collect::<String>();
    let unit = each(&|i| format!("  f{i} : string<20> &until = \"\\n\";\n"));
    let record = each(&|i| format!("  f{i} : string<20>\n"));
    let sum = (0..fields).map(|i| format!("len(req.f{i})")).collect::<Vec<_>>().join(" + ");
    format!(
        "type line = unit {{\n{unit}  %order = in_order;\n}};\ntype line: record\n{record}\n\
         proc P: (line/line client, [line/line] backends)\n  | backends => client\n  | client => go(backends)\n\
         fun go: ([-/line] backends, req: line) -> ()\n  (req with f0 = \"x\") => backends[({sum}) mod len(backends)]\n"
    )
}

#[test]
fn as_many_fields_as_a_frame_holds_are_compiled_and_more_are_counted() {
    // Each text that is read takes a place, the one that is changed two more.
    let most = UNIT_FIELDS_MAX - 2;
    assert!(check("the most fields", &crowd(most), None));
    let program = checked(&crowd(most + 1), None).expect("the checker does not count what is read");
    let found = flick_lower::crowded(&program);
    assert_eq!(found.len(), 1);
    assert_eq!(found[0].slots, UNIT_FIELDS_MAX + 1);
    assert_eq!(found[0].by_field[0].1, 3, "the changed field takes three");
}
