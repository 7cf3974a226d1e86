//! Checks of all texts: nothing points to a place that a reader does not have.

use super::files::{Finding, Text};

/// Places that exist only on the machine, or in the papers, of whoever wrote a text. Written in two halves so that
/// this file does not find itself.
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
pub fn no_foreign_places(texts: &[Text]) -> Vec<Finding> {
    let places: Vec<String> = FOREIGN.iter().map(|(front, back)| format!("{front}{back}")).collect();
    let mut findings = Vec::new();
    for text in texts {
        for (number, line) in text.lines() {
            if let Some(place) = places.iter().find(|place| line.contains(place.as_str())) {
                findings.push(text.finding(number, format!("`{place}` is no place in this repository")));
            }
        }
    }
    findings
}

/// Fails for a relative link in a Markdown file whose target is not there.
pub fn links_lead_somewhere(texts: &[Text]) -> Vec<Finding> {
    let root = crate::run::root();
    let mut findings = Vec::new();
    for text in texts.iter().filter(|text| text.path.ends_with(".md")) {
        let here = root.join(&text.path);
        let here = here.parent().expect("a file lies in a directory");
        let mut is_code = false;
        for (number, line) in text.lines() {
            is_code ^= line.trim_start().starts_with("```");
            for target in links(line).filter(|_| !is_code) {
                let place = target.split('#').next().unwrap_or_default();
                if !place.is_empty() && !place.contains("://") && !here.join(place).exists() {
                    findings.push(text.finding(number, format!("the link to `{place}` leads nowhere")));
                }
            }
        }
    }
    findings
}

/// Targets of `[text](target)` in a line.
fn links(line: &str) -> impl Iterator<Item = &str> {
    line.split("](").skip(1).filter_map(|rest| rest.split(')').next())
}

#[cfg(test)]
mod tests {
    use super::links;

    #[test]
    fn all_links_of_a_line_are_seen() {
        let line = "[a](x.md), [b](y/z.md#part) and [c](https://example.org)";
        assert_eq!(links(line).collect::<Vec<_>>(), ["x.md", "y/z.md#part", "https://example.org"]);
    }
}
