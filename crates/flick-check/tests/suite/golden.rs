//! Golden files: diagnostics of bad programs, summaries of good ones.

use flick_check::{Severity, render, summary};
use flick_testkit::golden::{Golden, check_dir};

use crate::support::{assert_known, check, root};

/// Length of the comment that makes a file too large.
const PADDING_BYTES: usize = 5 * 1024 * 1024;

#[test]
fn bad_programs_have_the_expected_diagnostics() {
    check_dir(&root().join("tests/golden/bad"), "check", |golden| {
        let (program, diagnostics, sources) = check(&golden.name, &input(golden));
        let has_errors = diagnostics.iter().any(|found| found.severity == Severity::Error);
        assert!(!diagnostics.is_empty(), "{}: no diagnostics", golden.name);
        assert_eq!(
            program.is_none(),
            has_errors,
            "{}: a program exactly when there are no errors",
            golden.name
        );
        diagnostics.iter().map(|found| render(found, &sources, false)).collect::<Vec<_>>().join("\n")
    });
}

#[test]
fn good_programs_have_the_expected_summary() {
    check_dir(&root().join("tests/golden/ok"), "check", |golden| {
        let (program, diagnostics, sources) = check(&golden.name, &golden.input);
        let rendered: Vec<String> = diagnostics.iter().map(|found| render(found, &sources, false)).collect();
        assert!(rendered.is_empty(), "{}: {}", golden.name, rendered.join("\n"));
        program.iter().for_each(assert_known);
        let with_used = golden.directive.contains("with used grammars");
        summary(&program.expect("a program without errors"), with_used)
    });
}

/// The text to check; a directive may ask for more than a file should hold.
fn input(golden: &Golden) -> String {
    let mut text = golden.input.clone();
    if golden.directive.contains("padded to 5 MiB") {
        text.push('#');
        text.push_str(&"x".repeat(PADDING_BYTES));
    }
    text
}
