//! Pages of results, as Markdown files.
//! Promises: lines have at most 120 characters, except rows of tables and blocks of code.

use std::io;
use std::path::Path;

/// Most characters of a line.
const LINE_CHARACTERS_MAX: usize = 120;

/// Writes `NAME` into `dir`, which is made if it is missing, with its paragraphs wrapped.
pub(crate) fn write(dir: &Path, name: &str, text: &str) -> io::Result<()> {
    std::fs::create_dir_all(dir)?;
    std::fs::write(dir.join(name), wrapped(text))
}

/// Breaks the lines that are too long, each by itself; those of a list are indented.
fn wrapped(text: &str) -> String {
    let (mut out, mut is_code) = (String::new(), false);
    for line in text.lines() {
        is_code ^= line.starts_with("```");
        if is_code || line.starts_with('|') || line.chars().count() <= LINE_CHARACTERS_MAX {
            out.push_str(line);
        } else {
            let indent = if line.starts_with("- ") || line.starts_with("  ") { "  " } else { "" };
            break_line(&mut out, line, indent);
        }
        out.push('\n');
    }
    out
}

fn break_line(out: &mut String, line: &str, indent: &str) {
    let mut width = 0;
    for (index, word) in line.split(' ').enumerate() {
        let length = word.chars().count();
        if index > 0 && width + 1 + length > LINE_CHARACTERS_MAX {
            out.push('\n');
            out.push_str(indent);
            width = indent.len();
        } else if index > 0 {
            out.push(' ');
            width += 1;
        }
        out.push_str(word);
        width += length;
    }
}

#[cfg(test)]
mod tests {
    use super::wrapped;

    #[test]
    fn long_lines_are_broken_between_words() {
        let long = "word ".repeat(30);
        let text = wrapped(&format!("short\n\n- {long}\n| {long} |\n```text\n{long}\n```\n"));
        let lines: Vec<&str> = text.lines().collect();
        assert_eq!(lines.len(), 8);
        assert!(lines[2].len() <= 120 && lines[3].starts_with("  word"));
        assert!(lines[4].starts_with("| word") && lines[4].ends_with('|'));
    }
}
