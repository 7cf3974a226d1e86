//! Assigns comments to declarations: those directly above, behind, and within.
//! Promises: a comment belongs to one thing; the first block of a file belongs to the file. Citations of a standard
//! (`#=` and `##`) are in no page.
//! Source: the formatter's rule: a comment below one that stands behind a line, at the same column, continues it.

use std::ops::Range;

/// A comment of the source.
struct Comment {
    line: usize,
    start: usize,
    column: usize,
    /// Nothing but white space stands before it.
    is_alone: bool,
    /// It goes on with a comment behind the line above.
    goes_on: bool,
    /// Without its `#`; `None` for a line of a citation.
    text: Option<String>,
}

/// The comments of a file.
pub(crate) struct Comments {
    all: Vec<Comment>,
    /// Offset of the start of each line; in `firsts`, that of its first character that is not blank.
    lines: Vec<usize>,
    firsts: Vec<usize>,
    /// The first line behind the block that the file begins with.
    intro_end: usize,
}

impl Comments {
    /// Finds the comments: `ranges` are those of the tokens, in the order of the source.
    pub(crate) fn of(source: &str, ranges: impl Iterator<Item = Range<usize>>) -> Comments {
        let mut lines = vec![0];
        lines.extend(source.match_indices('\n').map(|(at, _)| at + 1));
        let mut all: Vec<Comment> = Vec::new();
        for range in ranges {
            let line = lines.partition_point(|start| *start <= range.start) - 1;
            let before = &source[lines[line]..range.start];
            let is_alone = before.trim().is_empty();
            let column = before.chars().count();
            let goes_on = is_alone
                && all.last().is_some_and(|last| {
                    last.line + 1 == line && last.column == column && (!last.is_alone || last.goes_on)
                });
            let text = source[range.clone()].strip_prefix('#').unwrap_or("").trim_end();
            let is_citation = text.starts_with(['=', '#']);
            let text = (!is_citation).then(|| text.strip_prefix(' ').unwrap_or(text).to_owned());
            all.push(Comment { line, start: range.start, column, is_alone, goes_on, text });
        }
        let intro =
            all.iter().enumerate().take_while(|(index, comment)| comment.line == *index && comment.is_alone);
        let intro_end = intro.count();
        let ends = lines.iter().skip(1).copied().chain([source.len()]);
        let firsts = lines.iter().zip(ends);
        let firsts = firsts.map(|(start, end)| end - source[*start..end].trim_start().len()).collect();
        Comments { all, lines, firsts, intro_end }
    }

    fn line_of(&self, offset: usize) -> usize {
        self.lines.partition_point(|start| *start <= offset) - 1
    }

    /// Returns what the file says about itself.
    pub(crate) fn intro(&self) -> Vec<String> {
        self.all.iter().take(self.intro_end).filter_map(|comment| comment.text.clone()).collect()
    }

    /// Returns the comment directly above what starts at `offset`.
    pub(crate) fn above(&self, offset: usize) -> Vec<String> {
        let mut line = self.line_of(offset);
        let mut found = Vec::new();
        if self.firsts[line] != offset {
            return found; // it is about what begins the line
        }
        let before = self.all.partition_point(|comment| comment.line < line);
        for comment in self.all[..before].iter().rev() {
            let is_next = comment.line + 1 == line && comment.is_alone && !comment.goes_on;
            if !is_next || comment.line < self.intro_end {
                break;
            }
            found.extend(comment.text.clone());
            line = comment.line;
        }
        found.reverse();
        found
    }

    /// Returns the comments within and behind what stands at `range`.
    pub(crate) fn beside(&self, range: Range<usize>) -> Vec<String> {
        let last = self.line_of(range.end.saturating_sub(1).max(range.start));
        let first = self.all.partition_point(|comment| comment.start < range.start);
        let mut found: Vec<String> = Vec::new();
        let mut is_ours = false;
        for comment in &self.all[first..] {
            let is_behind = !comment.is_alone && comment.line == last && comment.start >= range.end;
            is_ours = is_behind || range.contains(&comment.start) || comment.goes_on && is_ours;
            if is_ours {
                found.extend(comment.text.clone());
            } else if comment.line > last {
                break;
            }
        }
        found
    }

    /// Returns the comments above, within and behind what stands at `range`.
    pub(crate) fn about(&self, range: Range<usize>) -> Vec<String> {
        let mut found = self.above(range.start);
        found.extend(self.beside(range));
        found
    }
}
