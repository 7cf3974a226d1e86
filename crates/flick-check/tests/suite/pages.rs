//! Error pages and the reference: their examples are programs, and behave as stated.

use flick_check::{Severity, codes as known_codes, explain};

use crate::support::{check, codes, read, root};

#[test]
fn examples_of_error_pages_behave_as_stated() {
    let mut failures = Vec::new();
    for code in known_codes() {
        let page = explain(code).expect("codes have pages");
        assert!(page.starts_with(&format!("# {code}: ")), "{code}: the title of its page");
        let (before, right) = page.split_once("\nRight:\n").unwrap_or((page, ""));
        for wrong in blocks(before) {
            let (_, diagnostics, _) = check(code, &wrong);
            if !codes(&diagnostics).contains(&code) {
                failures.push(format!("{code}: its wrong example gives {:?}", codes(&diagnostics)));
            }
        }
        for right in blocks(right) {
            let (_, diagnostics, _) = check(code, &right);
            if !diagnostics.is_empty() {
                failures.push(format!("{code}: its right example gives {:?}", codes(&diagnostics)));
            }
        }
    }
    assert!(failures.is_empty(), "{}", failures.join("\n"));
}

#[test]
fn every_code_has_a_page_and_a_golden_file() {
    let golden: String = flick_testkit::golden::files(&root().join("tests/golden/bad"))
        .iter()
        .map(|path| std::fs::read_to_string(path).expect("golden files are text"))
        .collect();
    let missing: Vec<&str> = known_codes().filter(|code| !golden.contains(&format!("[{code}]"))).collect();
    assert!(missing.is_empty(), "no golden file shows {missing:?}");
    let pages = std::fs::read_dir(root().join("docs/errors")).expect("the pages are there");
    for page in pages {
        let name = page.expect("a readable directory").file_name().to_string_lossy().into_owned();
        if let Some(code) = name.strip_suffix(".md").filter(|name| name.starts_with("E0")) {
            assert!(explain(code).is_some(), "{name}: no such code");
        }
    }
}

#[test]
fn every_code_that_is_reported_has_a_page() {
    let wordings =
        std::fs::read_dir(root().join("crates/flick-check/src/report")).expect("the wordings are there");
    let mut missing = Vec::new();
    for file in wordings {
        let path = file.expect("a readable directory").path();
        let text = std::fs::read_to_string(&path).expect("source is text");
        let codes = text.split('"').filter(|part| part.len() == 5 && part.starts_with("E0"));
        missing.extend(codes.filter(|code| explain(code).is_none()).map(str::to_owned));
    }
    assert!(missing.is_empty(), "no page explains {missing:?}");
}

#[test]
fn code_blocks_of_the_reference_are_accepted() {
    for block in blocks(&read("docs/language/reference.md")) {
        let (program, diagnostics, _) = check("reference.md", &block);
        let errors: Vec<_> = diagnostics.iter().filter(|found| found.severity == Severity::Error).collect();
        assert!(program.is_some() && errors.is_empty(), "{errors:?} in\n{block}");
    }
}

/// The texts between a ```flick line and the next ``` line.
fn blocks(page: &str) -> Vec<String> {
    let mut out: Vec<String> = Vec::new();
    let mut is_inside = false;
    for line in page.lines() {
        if is_inside && line == "```" {
            is_inside = false;
        } else if is_inside {
            let block = out.last_mut().expect("a block was begun");
            block.push_str(line);
            block.push('\n');
        } else if line == "```flick" {
            is_inside = true;
            out.push(String::new());
        }
    }
    out
}
