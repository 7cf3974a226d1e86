//! Lines to text: the colons of neighbouring fields below each other, and the comments behind neighbouring lines.
//! A field of several lines ends its group, as an empty line does.

/// A line of the result before alignment.
#[derive(Default)]
pub(super) struct Line {
    /// Columns before the code, or before the comment of a line without code.
    pub(super) indent: usize,
    pub(super) is_after_blank: bool,
    pub(super) code: String,
    /// Where in `code` the colon of a field stands, in bytes.
    pub(super) colon: Option<usize>,
    pub(super) comment: Option<String>,
    /// A comment alone on its line that goes on below the one behind the line above.
    pub(super) follows_comment: bool,
    pub(super) starts_item: bool,
}

impl Line {
    fn end_column(&self) -> usize {
        self.indent + self.code.chars().count()
    }
}

/// Aligns the lines and joins them.
pub(super) fn render(mut lines: Vec<Line>) -> String {
    for_each_group(
        &mut lines,
        |line| line.colon,
        |line, colon, width| {
            // A group of fields without names has its colons at the left.
            let padding = if width == 0 { 0 } else { width + 1 - colon };
            line.code.insert_str(colon, &" ".repeat(padding));
        },
    );
    let commented =
        |line: &Line| line.comment.as_ref().filter(|_| !line.code.is_empty()).map(|_| line.end_column());
    for_each_group(&mut lines, commented, |line, end, width| {
        line.code.push_str(&" ".repeat(width - end));
    });
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

/// Calls `adjust(line, width, widest)` for each line with a width, where `widest` is taken over its neighbours.
fn for_each_group(
    lines: &mut [Line],
    width_of: impl Fn(&Line) -> Option<usize>,
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
                None if line.follows_comment => {}
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
