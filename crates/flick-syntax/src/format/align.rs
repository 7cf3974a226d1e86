//! Lines to text: the colons or equals signs of neighbouring items below each other, and the comments behind
//! neighbouring lines. An item of several lines ends its group, as an empty line does; a comment between two items
//! does not.

use crate::syntax_kind::SyntaxKind;

/// A line of the result before alignment.
#[derive(Default)]
pub(super) struct Line {
    /// Columns before the code, or before the comment of a line without code.
    pub(super) indent: usize,
    pub(super) is_after_blank: bool,
    pub(super) code: String,
    /// The token that the line's item is aligned at (`:` or `=`), and where in `code` it stands, in bytes.
    pub(super) marker: Option<(SyntaxKind, usize)>,
    pub(super) comment: Option<String>,
    /// A comment alone on its line that goes on below the one behind the line above.
    pub(super) follows_comment: bool,
    pub(super) starts_item: bool,
}

impl Line {
    /// Gives up aligning the line, which then has the plain space before its marker.
    pub(super) fn forget_marker(&mut self) {
        self.starts_item = false;
        if let Some((_, at)) = self.marker.take() {
            self.code.insert(at, ' ');
        }
    }

    /// Returns how many columns the code before byte `at` takes.
    fn width(&self, at: usize) -> usize {
        self.code[..at].chars().count()
    }

    fn end_column(&self) -> usize {
        self.indent + self.code.chars().count()
    }
}

/// Aligns the lines and joins them.
pub(super) fn render(mut lines: Vec<Line>) -> String {
    for kind in [SyntaxKind::Colon, SyntaxKind::Eq] {
        let width_of =
            |line: &Line| line.marker.filter(|marker| marker.0 == kind).map(|marker| line.width(marker.1));
        for_each_group(
            &mut lines,
            width_of,
            |line| line.code.is_empty(),
            |line, width, widest| {
                let (_, at) = line.marker.expect("only lines with a marker have a width");
                // A group of fields without names has its colons at the left.
                let padding = if widest == 0 { 0 } else { widest + 1 - width };
                line.code.insert_str(at, &" ".repeat(padding));
            },
        );
    }
    let commented =
        |line: &Line| line.comment.as_ref().filter(|_| !line.code.is_empty()).map(|_| line.end_column());
    for_each_group(
        &mut lines,
        commented,
        |_| false,
        |line, end, width| {
            line.code.push_str(&" ".repeat(width - end));
        },
    );
    let mut out = String::new();
    let mut comment_column = 0;
    for line in &lines {
        if line.is_after_blank {
            out.push('\n');
        }
        let indent = if line.follows_comment { comment_column } else { line.indent };
        out.push_str(&" ".repeat(indent));
        out.push_str(&line.code);
        if let Some(comment) = &line.comment {
            if !line.code.is_empty() {
                out.push(' ');
                comment_column = line.end_column() + 1;
            }
            out.push_str(comment.trim_end());
        }
        out.push('\n');
    }
    out
}

/// Calls `adjust(line, width, widest)` for each line with a width, where `widest` is taken over its neighbours; a
/// transparent line does not part them.
fn for_each_group(
    lines: &mut [Line],
    width_of: impl Fn(&Line) -> Option<usize>,
    is_transparent: impl Fn(&Line) -> bool,
    adjust: impl Fn(&mut Line, usize, usize),
) {
    let mut start = 0;
    while start < lines.len() {
        let indent = lines[start].indent;
        let mut widest = width_of(&lines[start]);
        let mut end = start + 1;
        while widest.is_some() && end < lines.len() && !lines[end].is_after_blank {
            let line = &lines[end];
            match width_of(line) {
                Some(width) if line.indent == indent => widest = widest.max(Some(width)),
                None if is_transparent(line) => {}
                _ => break,
            }
            end += 1;
        }
        if let Some(widest) = widest {
            for line in &mut lines[start..end] {
                if let Some(width) = width_of(line) {
                    adjust(line, width, widest);
                }
            }
        }
        start = end;
    }
}
