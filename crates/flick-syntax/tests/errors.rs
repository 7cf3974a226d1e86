//! Syntax errors and their messages. Each case of `data/errors.golden` is a program and, behind `//>`,
//! every error in it: the position, what is wrong, what to write. `UPDATE=1 cargo test` rewrites the `//>` lines.
#![expect(clippy::unwrap_used, reason = "a test may panic")]

use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::path::Path;

use flick_syntax::{SyntaxError, parse};

/// Renders one error below the line it is on.
fn render(source: &str, error: &SyntaxError, out: &mut String) {
    let before = &source[..error.range.start];
    let line_number = before.matches('\n').count() + 1;
    let line_start = before.rfind('\n').map_or(0, |index| index + 1);
    let line = source[line_start..].lines().next().unwrap_or_default();
    let column = before[line_start..].chars().count();
    let width = source[error.range.clone()].lines().next().unwrap_or_default().chars().count().max(1);
    writeln!(out, "//> {line_number:2} | {}", line.replace('\t', " ")).unwrap();
    writeln!(out, "//>    | {}{} {:?}: {}", " ".repeat(column), "^".repeat(width), error.kind, error.title)
        .unwrap();
    writeln!(out, "//>    = {}", error.help).unwrap();
}

fn check(name: &str, source: &str) -> String {
    let parse = parse(source);
    assert_eq!(parse.syntax().text().to_string(), source, "{name} is not lossless");
    assert!(!parse.errors().is_empty(), "{name}: no error was found");
    let mut out = String::new();
    for error in parse.errors() {
        assert!(!error.title.ends_with('.') && !error.help.is_empty(), "{name}: {error:?}");
        render(source, error, &mut out);
    }
    out
}

#[test]
fn mistakes_are_explained() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data/errors.golden");
    let golden = std::fs::read_to_string(&path).unwrap();
    let mut actual = String::new();
    let mut names = BTreeSet::new();
    for case in golden.split("=== ").skip(1) {
        let (name, rest) = case.split_once('\n').unwrap();
        assert!(names.insert(name), "two cases are named {name}");
        let source: String =
            rest.lines().filter(|line| !line.starts_with("//>")).map(|line| format!("{line}\n")).collect();
        let source = source.trim_end_matches('\n').to_owned() + "\n";
        writeln!(actual, "=== {name}\n{source}{}", check(name, &source)).unwrap();
    }
    if std::env::var_os("UPDATE").is_some() {
        std::fs::write(&path, &actual).unwrap();
    }
    assert_eq!(
        actual.trim_end(),
        std::fs::read_to_string(&path).unwrap().trim_end(),
        "run with UPDATE=1 and review"
    );
}
