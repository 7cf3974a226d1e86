//! The length of lines of documents and comments.

use super::files::{Finding, Text};
use super::lexer::{self, RegionKind};

/// Most characters of a line.
const CHARACTERS_MAX: usize = 120;

/// Fails for a longer line of Markdown, and for a longer line with a comment in Rust. Rows of tables are exempt, their
/// cells cannot break; so is a line without a space to break at.
pub fn no_line_is_too_long(texts: &[Text]) -> Vec<Finding> {
    let mut findings = Vec::new();
    for text in texts {
        let comments = if text.is_rust() { comment_lines(&text.text) } else { Vec::new() };
        let is_markdown = text.path.ends_with(".md");
        for (number, line) in text.lines().filter(|(_, line)| line.len() > CHARACTERS_MAX) {
            let count = line.chars().count();
            let is_document = is_markdown && !line.trim_start().starts_with('|');
            if count > CHARACTERS_MAX && can_break(line) && (is_document || comments.contains(&number)) {
                findings.push(text.finding(
                    number,
                    format!("{count} characters, at most {CHARACTERS_MAX}: break the line"),
                ));
            }
        }
    }
    findings
}

/// Whether a word starts after the marker at the front and before the limit.
fn can_break(line: &str) -> bool {
    let marker = |c: char| c.is_whitespace() || "-*/!>#".contains(c);
    line.trim_start_matches(marker).trim_end().contains(' ')
}

/// Numbers of the lines that a comment is on.
fn comment_lines(text: &str) -> Vec<usize> {
    let comments = lexer::regions(text).into_iter().filter(|region| region.kind == RegionKind::Comment);
    let (mut lines, mut line, mut at) = (Vec::new(), 1, 0);
    for region in comments {
        line += text[at..region.range.start].matches('\n').count();
        let count = text[region.range.clone()].matches('\n').count();
        lines.extend(line..=line + count);
        (line, at) = (line + count, region.range.end);
    }
    lines
}

#[cfg(test)]
mod tests {
    use super::no_line_is_too_long;
    use crate::tidy::files::Text;

    fn check(path: &str, text: &str, expected: &[usize]) {
        let text = Text { path: path.to_owned(), text: text.to_owned() };
        let lines: Vec<_> = no_line_is_too_long(&[text]).iter().map(|finding| finding.line).collect();
        assert_eq!(lines, expected);
    }

    #[test]
    fn long_lines_of_documents_and_comments_are_found() {
        let (fits, long) = ("ü ".repeat(60), "a ".repeat(61));
        check("a.md", &format!("{fits}\n{long}\n| {long} |\nhttps://{}\n", long.replace(' ', "a")), &[2]);
        check("a.rs", &format!("// {long}\nlet a = \"{long}\";\n/*\n{long} */ let b;\n"), &[1, 4]);
        check("a.flick", &long, &[]);
    }
}
