//! Line-by-line differences between two texts, for people to read.
//! Promises: linear in the texts; every line of both is either the same in order, or printed with `-` or `+`.
//! Not the smallest difference: after a change, lines meet again only within [`LOOKAHEAD_LINES_MAX`].

use std::fmt::Write as _;

/// Maximum number of lines that a change removes and adds before the texts meet again.
const LOOKAHEAD_LINES_MAX: usize = 32;

/// Prints `name:line:` and the lines that go and come, for each place where the texts differ.
pub fn text(name: &str, before: &str, after: &str) -> String {
    let old: Vec<&str> = before.split_inclusive('\n').collect();
    let new: Vec<&str> = after.split_inclusive('\n').collect();
    let mut out = String::new();
    let (mut at, mut to) = (0, 0);
    while at < old.len() || to < new.len() {
        if old.get(at) == new.get(to) {
            (at, to) = (at + 1, to + 1);
            continue;
        }
        let (gone, come) = meeting(&old[at..], &new[to..]);
        put(&mut out, format_args!("{name}:{}:\n", at + 1));
        for line in &old[at..at + gone] {
            put(&mut out, format_args!("- {}\n", shown(line)));
        }
        for line in &new[to..to + come] {
            put(&mut out, format_args!("+ {}\n", shown(line)));
        }
        (at, to) = (at + gone, to + come);
    }
    out
}

/// Returns the numbers of lines removed and added until the texts meet again or both end; at most one of each if that
/// is too far.
fn meeting(old: &[&str], new: &[&str]) -> (usize, usize) {
    for distance in 1..=LOOKAHEAD_LINES_MAX {
        for gone in 0..=distance {
            let come = distance - gone;
            let meets = old.get(gone).is_some() && old.get(gone) == new.get(come);
            let is_end = gone == old.len() && come == new.len();
            // An empty line says little about where one is.
            if is_end || meets && !old[gone].trim().is_empty() {
                return (gone, come);
            }
        }
    }
    // Line for line is the best guess: a formatter rarely joins or parts lines.
    (old.len().min(1), new.len().min(1))
}

fn put(out: &mut String, text: std::fmt::Arguments<'_>) {
    out.write_fmt(text).expect("writing to a string does not fail");
}

/// A line without its end; white space that would not be seen at its end is made visible.
fn shown(line: &str) -> String {
    let text = line.strip_suffix('\n').unwrap_or(line);
    let seen = text.trim_end();
    let unseen = text[seen.len()..].chars().map(|c| match c {
        '\t' => "\\t",
        '\r' => "\\r",
        _ => "·",
    });
    let end = if line.ends_with('\n') { "" } else { " (no line break)" };
    format!("{seen}{}{end}", unseen.collect::<String>())
}

#[cfg(test)]
mod tests {
    use super::text;

    fn check(before: &str, after: &str, expected: &str) {
        assert_eq!(text("f", before, after), expected);
    }

    #[test]
    fn equal_texts_have_no_changes() {
        check("a\nb\n", "a\nb\n", "");
        check("", "", "");
    }

    #[test]
    fn a_changed_line_is_shown_with_its_number() {
        check("a\nb\nc\n", "a\nB\nc\n", "f:2:\n- b\n+ B\n");
    }

    #[test]
    fn lines_that_come_and_go() {
        check("a\nb\n", "a\nx\ny\nb\n", "f:2:\n+ x\n+ y\n");
        check("a\nx\nb\nc\n", "a\nb\nC\n", "f:2:\n- x\nf:4:\n- c\n+ C\n");
    }

    #[test]
    fn ends_of_lines_are_made_visible() {
        check("a \t\r\nb", "a\nb\n", "f:1:\n- a·\\t\\r\n- b (no line break)\n+ a\n+ b\n");
    }

    #[test]
    fn texts_that_never_meet_again_are_shown_line_for_line() {
        let (before, after) = ("a\n".repeat(100), "b\n".repeat(90));
        let shown = text("f", &before, &after);
        assert_eq!(shown.matches("- a").count(), 100);
        assert_eq!(shown.matches("+ b").count(), 90);
    }
}
