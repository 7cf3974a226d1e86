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

/// Targets of `[text](target)` in a line.
fn targets(line: &str) -> impl Iterator<Item = &str> {
    line.split("](").skip(1).filter_map(|rest| rest.split(')').next())
}

#[cfg(test)]
mod tests {
    use super::targets;

    #[test]
    fn all_targets_of_a_line_are_found() {
        let line = "[a](x.md), [b](y/z.md#part) and [c](https://example.org)";
        assert_eq!(targets(line).collect::<Vec<_>>(), ["x.md", "y/z.md#part", "https://example.org"]);
    }
}
