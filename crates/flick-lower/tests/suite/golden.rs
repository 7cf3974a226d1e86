//! Golden files: a program and the code it becomes, side by side.

use std::path::Path;

use flick_testkit::golden::check_dir;

use crate::source;

/// Shows the functions whose names start with one of the words behind `ir`; all of them without a word.
#[test]
fn code_is_as_written_down() {
    let dir = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden");
    check_dir(&dir, "ir", |golden| {
        let module = source::lower(&golden.input, source::FIXTURE);
        let words: Vec<&str> = golden.directive.split_whitespace().skip(1).collect();
        let shown = module.functions.iter().enumerate().filter(|(_, function)| {
            words.is_empty() || words.iter().any(|word| function.name.starts_with(word))
        });
        shown
            .map(|(index, function)| without_origins(&flick_ir::text::print_function(index, function)))
            .collect()
    });
}

/// Drops the places in the source, so that an edit of a grammar's comments changes nothing here.
fn without_origins(text: &str) -> String {
    let line = |line: &str| line.split_once(" @").map_or(line, |(code, _)| code).to_owned() + "\n";
    text.lines().map(line).collect()
}
