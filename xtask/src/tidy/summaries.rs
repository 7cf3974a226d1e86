//! The first lines of documentation comments.

use super::files::{Finding, Text};

/// Words that begin a clause instead of naming the item.
const CLAUSES: [&str; 7] = ["What", "How", "Who", "Whose", "Where", "Which", "Why"];

/// Fails for a documentation comment that begins with a clause: "What a worker shows" has to be "Counters of a worker",
/// "How many wait" has to be "Number of waiting clients". `Whether` may begin the summary of a boolean.
pub fn summaries_name_the_item(texts: &[Text]) -> Vec<Finding> {
    let mut findings = Vec::new();
    for text in texts.iter().filter(|text| text.is_rust()) {
        let mut is_inside = false;
        for (number, line) in text.lines() {
            let first = if is_inside { None } else { first_word(line) };
            is_inside = doc(line).is_some();
            if let Some(word) = first.filter(|word| CLAUSES.contains(word)) {
                findings.push(text.finding(
                    number,
                    format!(
                        "a summary begins with `{word}`: name the item, or say in a sentence what it does"
                    ),
                ));
            }
        }
    }
    findings
}

/// Text of a documentation comment.
fn doc(line: &str) -> Option<&str> {
    let line = line.trim_start();
    line.strip_prefix("///").or_else(|| line.strip_prefix("//!"))
}

fn first_word(line: &str) -> Option<&str> {
    doc(line)?.trim_start().split(|c: char| !c.is_alphabetic()).next()
}

#[cfg(test)]
mod tests {
    use super::summaries_name_the_item;
    use crate::tidy::files::Text;

    #[test]
    fn clauses_at_the_start_of_a_summary_are_found() {
        let text = "//! How it works.\n\n/// Number of clients.\n/// Which of them wait: see below.\nfn a();\n    /// Who.\n// What\n";
        let text = Text { path: "a.rs".to_owned(), text: text.to_owned() };
        let lines: Vec<_> = summaries_name_the_item(&[text]).iter().map(|finding| finding.line).collect();
        assert_eq!(lines, [1, 6]);
    }
}
