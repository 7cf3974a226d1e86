//! Checks of all texts: paths and hyperlinks point to files that every reader has.

use super::files::{Finding, Text};

/// Paths and papers that exist only on an author's machine. Written in two halves, so that the check does not find them
/// in this file.
const FOREIGN: &[(&str, &str)] = &[
    ("shared", "/design"),
    ("/wo", "rk/"),
    ("/ro", "ot/"),
    ("/ho", "me/"),
    ("/tm", "p/target"),
    ("LANGUAGE", ".md"),
    ("RELIABILITY", ".md"),
    ("DEPENDENCIES", ".md"),
    ("BENCH", ".md"),
    ("STYLE", ".md"),
];

/// Fails for a path or paper that is not part of the repository.
pub fn no_foreign_paths(texts: &[Text]) -> Vec<Finding> {
    let paths: Vec<String> = FOREIGN.iter().map(|(front, back)| format!("{front}{back}")).collect();
    let mut findings = Vec::new();
    for text in texts {
        for (number, line) in text.lines() {
            if let Some(path) = paths.iter().find(|path| line.contains(path.as_str())) {
                findings.push(text.finding(number, format!("`{path}` is not a path of this repository")));
            }
        }
    }
    findings
}

/// Fails for a relative link in a Markdown file whose target does not exist.
pub fn hyperlinks_have_targets(texts: &[Text]) -> Vec<Finding> {
    let root = crate::run::root();
    let mut findings = Vec::new();
    for text in texts.iter().filter(|text| text.path.ends_with(".md")) {
        let here = root.join(&text.path);
        let here = here.parent().expect("a file lies in a directory");
        let mut is_code = false;
        for (number, line) in text.lines() {
            is_code ^= line.trim_start().starts_with("```");
            for target in targets(line).filter(|_| !is_code) {
                let path = target.split('#').next().unwrap_or_default();
                if !path.is_empty() && !path.contains("://") && !here.join(path).exists() {
                    findings.push(
                        text.finding(number, format!("the target of the link, `{path}`, does not exist")),
                    );
                }
            }
        }
    }
    findings
}

/// The page that names the test of each promise.
const TESTS: &str = "docs/reliability.md";

/// Fails for a test that the page of tests names and no Rust file has. A name may be the beginning of several, as
/// `cargo test` reads it; a name without `_` is that of a file.
pub fn named_tests_exist(texts: &[Text]) -> Vec<Finding> {
    let sources: Vec<&str> =
        texts.iter().filter(|text| text.is_rust()).map(|text| text.text.as_str()).collect();
    let is_test = |name: &str| sources.iter().any(|source| source.contains(&format!("fn {name}")));
    let is_file = |name: &str| texts.iter().any(|text| text.path.contains(name));
    let mut findings = Vec::new();
    for text in texts.iter().filter(|text| text.path == TESTS) {
        for (number, line) in text.lines().filter(|(_, line)| line.starts_with('|')) {
            let last_cell = line.trim_end_matches('|').rsplit('|').next().unwrap_or_default();
            let spans = last_cell.split('`').skip(1).step_by(2);
            for name in spans.filter_map(|span| span.rsplit("::").next()) {
                // Names of metrics begin with `flick_`.
                let is_name = name.contains('_')
                    && !name.starts_with("flick_")
                    && name.bytes().all(|byte| byte.is_ascii_lowercase() || b"_0123456789".contains(&byte));
                if is_name && !is_test(name) && !is_file(name) {
                    findings.push(text.finding(number, format!("there is no test `{name}`")));
                }
            }
        }
    }
    findings
}

/// Targets of `[text](target)` in a line.
fn targets(line: &str) -> impl Iterator<Item = &str> {
    line.split("](").skip(1).filter_map(|rest| rest.split(')').next())
}

#[cfg(test)]
mod tests {
    use super::{TESTS, named_tests_exist, targets};
    use crate::tidy::files::Text;

    #[test]
    fn tests_that_do_not_exist_are_found() {
        let page =
            "| a promise | `x` | `main::first_test`, `first`, `second_one` |\n| `no_test` | `some_file` |\n";
        let text = |path: &str, text: &str| Text { path: path.to_owned(), text: text.to_owned() };
        let texts = [text(TESTS, page), text("tests/some_file.rs", "#[test]\nfn first_test_of_many() {}")];
        let found: Vec<String> = named_tests_exist(&texts).iter().map(ToString::to_string).collect();
        assert_eq!(found, ["docs/reliability.md:1: there is no test `second_one`"]);
    }

    #[test]
    fn all_targets_of_a_line_are_found() {
        let line = "[a](x.md), [b](y/z.md#part) and [c](https://example.org)";
        assert_eq!(targets(line).collect::<Vec<_>>(), ["x.md", "y/z.md#part", "https://example.org"]);
    }
}
