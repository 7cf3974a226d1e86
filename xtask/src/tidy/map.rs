//! Checks `ARCHITECTURE.md` and the glossary: their paths exist, and the names in their tables are in the files beside
//! them.

use super::files::{Finding, Text};

/// The pages.
const MAPS: &[&str] = &["ARCHITECTURE.md", "docs/glossary.md"];
/// Endings of the paths that they name.
const ENDINGS: &[&str] = &[".rs", ".md", ".toml", ".flick", ".scn", ".svg", "/"];

/// Fails for a path in code quotes that does not exist, from the root or, in a section about a crate, from its sources,
/// and for a name in a table's row that none of the row's files holds.
pub fn the_map_is_true(texts: &[Text]) -> Vec<Finding> {
    let maps = texts.iter().filter(|text| MAPS.contains(&text.path.as_str()));
    maps.flat_map(|map| findings(map, texts)).collect()
}

/// The findings in one page.
fn findings(map: &Text, texts: &[Text]) -> Vec<Finding> {
    let (mut findings, mut section) = (Vec::new(), String::new());
    for (number, line) in map.lines() {
        if line.starts_with('#') {
            section = spans(line).find(|span| span.contains('/')).unwrap_or_default().to_owned();
        }
        let mut files = Vec::new();
        // A bare name, such as `limits.rs`, stands for the files of all crates unless the section is about one.
        for span in spans(line).filter(|span| is_path(span) && (span.contains('/') || !section.is_empty())) {
            let candidates = [
                span.trim_end_matches('/').to_owned(),
                format!("{section}/src/{span}"),
                format!("{section}/{span}"),
            ];
            match candidates.iter().find(|path| exists(texts, path)) {
                Some(path) => files.push(path.clone()),
                None => findings.push(map.finding(number, format!("`{span}` does not exist"))),
            }
        }
        let is_row = line.starts_with('|') && !files.is_empty();
        let last_cell = line.trim_end_matches('|').rsplit('|').next().unwrap_or_default();
        for span in spans(last_cell).filter(|span| is_row && !is_path(span)) {
            let inside =
                |text: &&Text| files.iter().any(|file| super::terms::table::is_below(&text.path, file));
            if !texts.iter().filter(inside).any(|text| text.text.contains(span)) {
                findings.push(map.finding(number, format!("`{span}` is not in {}", files.join(", "))));
            }
        }
    }
    findings
}

/// Whether a file or directory is there.
fn exists(texts: &[Text], path: &str) -> bool {
    let is_text = texts.iter().any(|text| super::terms::table::is_below(&text.path, path));
    is_text || crate::run::root().join(path).exists()
}

/// Returns the spans of a line in code quotes.
fn spans(line: &str) -> impl Iterator<Item = &str> {
    line.split('`').skip(1).step_by(2)
}

fn is_path(span: &str) -> bool {
    let is_plain = span.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-_./".contains(&byte));
    let is_below = span.split_once('/').is_some_and(|(first, _)| !first.is_empty());
    is_plain && (is_below || ENDINGS.iter().any(|ending| span.len() > ending.len() && span.ends_with(ending)))
}

#[cfg(test)]
mod tests {
    use super::{MAPS, the_map_is_true};
    use crate::tidy::files::Text;

    fn check(map: &str, expected: &[usize]) {
        let texts = [(MAPS[0], map), ("crates/x/src/a/b.rs", "fn pick() {}"), ("crates/y/src/c.rs", "")];
        let texts = texts.map(|(path, text)| Text { path: path.to_owned(), text: text.to_owned() });
        let lines: Vec<_> = the_map_is_true(&texts).iter().map(|finding| finding.line).collect();
        assert_eq!(lines, expected, "{map}");
    }

    #[test]
    fn paths_exist() {
        check("see `crates/x/src/a/b.rs`, `crates/x`, `a::b`, `cargo test`\nand `crates/x/src/d.rs`\n", &[2]);
        check("### `crates/x`\nread `a/b.rs`\n### `crates/y`\nread `a/b.rs`, `c.rs`\n", &[4]);
    }

    #[test]
    fn bare_names_are_files_of_a_sections_crate() {
        check("`limits.rs`\n### `crates/y`\n`limits.rs`, `c.rs`\n", &[3]);
    }

    #[test]
    fn names_in_a_row_are_in_its_files() {
        check(
            "| choose | `crates/x/src/a/b.rs`, `pick` |\n| choose | `crates/x/src/a/b.rs`, `take` |\n",
            &[2],
        );
        check("| see `take` | `crates/x` (`pick`) |\n", &[]);
    }
}
