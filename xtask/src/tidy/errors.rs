//! Checks that every error of the language is explained and shown: code, page and golden file belong together.

use std::collections::{BTreeMap, BTreeSet};

use super::files::{Finding, Text};

const PAGES: &str = "docs/errors/";
const GOLDEN: &str = "tests/golden/";
/// The crates that report errors of a user's program.
const REPORTERS: &[&str] = &["crates/flick-check/src/", "crates/flick-syntax/src/"];

/// Fails for a code without page or golden file, and for a page without code.
pub fn every_code_has_a_page_and_a_golden_file(texts: &[Text]) -> Vec<Finding> {
    let mut used: BTreeMap<String, (&Text, usize)> = BTreeMap::new();
    let reporters = texts.iter().filter(|text| REPORTERS.iter().any(|root| text.path.starts_with(root)));
    for text in reporters.filter(|text| text.is_rust() && !text.is_test()) {
        for (number, line) in text.lines().filter(|(_, line)| !line.trim_start().starts_with("//")) {
            for code in codes(line) {
                used.entry(code).or_insert((text, number));
            }
        }
    }
    let pages: BTreeMap<&str, &Text> = texts
        .iter()
        .filter_map(|text| Some((text.path.strip_prefix(PAGES)?.strip_suffix(".md")?, text)))
        .filter(|(name, _)| codes(name).next().is_some())
        .collect();
    let golden = texts.iter().filter(|text| text.path.starts_with(GOLDEN));
    let shown: BTreeSet<String> = golden.flat_map(|text| codes(&text.text).collect::<Vec<_>>()).collect();
    let mut findings = Vec::new();
    for (code, (text, number)) in &used {
        if !pages.contains_key(code.as_str()) {
            findings.push(text.finding(*number, format!("{code} has no page: write {PAGES}{code}.md")));
        }
        if !shown.contains(code) {
            findings.push(text.finding(
                *number,
                format!("{code} is in no file of {GOLDEN}: add a program with this error"),
            ));
        }
    }
    for (code, page) in pages.iter().filter(|(code, _)| !used.contains_key(**code)) {
        findings.push(page.finding(1, format!("nothing reports {code}")));
    }
    findings
}

/// All `E0xxx` in a text.
fn codes(text: &str) -> impl Iterator<Item = String> {
    text.match_indices("E0").filter_map(|(at, _)| {
        let code = text.get(at..at + 5)?;
        let is_word = !text[..at].ends_with(|before: char| before.is_ascii_alphanumeric());
        let is_whole = !text[at + 5..].starts_with(|after: char| after.is_ascii_alphanumeric());
        (is_word && is_whole && code[1..].bytes().all(|byte| byte.is_ascii_digit())).then(|| code.to_owned())
    })
}

#[cfg(test)]
mod tests {
    use super::codes;

    #[test]
    fn codes_are_whole_words() {
        let text = "E0301, (E0102) xE0444 E04555 E05 0xE0301";
        assert_eq!(codes(text).collect::<Vec<_>>(), ["E0301", "E0102"]);
    }
}
