//! The picture of a unit: rows of 32 bits for what has a fixed width, boxes in a row for text, a frame for each choice.
//! Promises: every shape is drawn, in order; a field that goes on in the next row says so.
//! Source: the pictures of RFC 791 and RFC 9293, as tables, so that they can be read aloud.

use crate::limits::{FIELD_ROWS_MAX, PICTURE_BITS};
use crate::shape::Shape;

/// Draws shapes one below the other.
pub(crate) fn picture(shapes: &[Shape]) -> String {
    let mut out = String::new();
    let (mut row, mut at) = (0, 0);
    while at < shapes.len() {
        let boxes = boxes(&shapes[at..]);
        let has_bits = shapes[at..at + boxes].iter().any(|shape| matches!(shape, Shape::Bits { .. }));
        let next = at + boxes.max(1);
        if has_bits || matches!(shapes[at], Shape::Choice(_)) {
            pieces(&shapes[row..at], &mut out);
            row = next;
        }
        match &shapes[at] {
            Shape::Choice(arms) => choice(arms, &mut out),
            _ if has_bits => table(&shapes[at..next], &mut out),
            _ => {} // a piece of the row
        }
        at = next;
    }
    pieces(&shapes[row..], &mut out);
    if shapes.is_empty() {
        out.push_str("<div class=\"row\"><span class=\"none\">nothing</span></div>\n");
    }
    out
}

/// Returns how many shapes at the front are boxes of bits or bytes.
fn boxes(shapes: &[Shape]) -> usize {
    shapes.iter().take_while(|shape| matches!(shape, Shape::Bits { .. } | Shape::Bytes { .. })).count()
}

fn choice(arms: &[(String, Vec<Shape>)], out: &mut String) {
    out.push_str("<div class=\"choice\">\n");
    for (condition, shapes) in arms {
        out.push_str(&format!("<div class=\"arm\"><div class=\"when\">{condition}</div>\n"));
        out.push_str(&picture(shapes));
        out.push_str("</div>\n");
    }
    out.push_str("</div>\n");
}

fn pieces(run: &[Shape], out: &mut String) {
    if run.is_empty() {
        return;
    }
    out.push_str("<div class=\"row\">");
    for shape in run {
        match shape {
            Shape::Literal { label, is_optional, .. } => {
                let (class, note) =
                    if *is_optional { (" optional", "<small>or nothing</small>") } else { ("", "") };
                out.push_str(&format!("<span class=\"literal{class}\">{label}{note}</span>"));
            }
            Shape::Piece { label, made_of, repeats } => {
                let class = if *repeats { " repeats" } else { "" };
                let made_of =
                    if made_of.is_empty() { String::new() } else { format!("<small>{made_of}</small>") };
                out.push_str(&format!("<span class=\"piece{class}\">{label}{made_of}</span>"));
            }
            Shape::Bytes { label, length } => {
                let length =
                    if length.is_empty() { String::new() } else { format!("<small>{length}</small>") };
                out.push_str(&format!("<span class=\"piece open\">{label}{length}</span>"));
            }
            Shape::Bits { .. } | Shape::Choice(_) => {}
        }
    }
    out.push_str("</div>\n");
}

fn table(run: &[Shape], out: &mut String) {
    out.push_str("<table class=\"bits\"><thead><tr>");
    for bit in 0..PICTURE_BITS {
        out.push_str(&format!("<th scope=\"col\">{bit}</th>"));
    }
    out.push_str("</tr></thead><tbody>\n");
    let mut rows = Rows { cells: String::new(), column: 0 };
    for shape in run {
        match shape {
            Shape::Bits { label, bits } => rows.bits(label, *bits),
            Shape::Bytes { label, length } => rows.bytes(label, length),
            Shape::Literal { .. } | Shape::Piece { .. } | Shape::Choice(_) => {}
        }
    }
    rows.end_row();
    out.push_str(&rows.cells);
    out.push_str("</tbody></table>\n");
}

/// The rows of a table, and where the next bit goes.
struct Rows {
    cells: String,
    column: u32,
}

impl Rows {
    fn cell(&mut self, class: &str, columns: u32, text: &str) {
        if self.column == 0 {
            self.cells.push_str("<tr>");
        }
        let class = if class.is_empty() { String::new() } else { format!(" class=\"{class}\"") };
        let span = if columns == 1 { String::new() } else { format!(" colspan=\"{columns}\"") };
        self.cells.push_str(&format!("<td{class}{span}>{text}</td>"));
        self.column += columns;
        if self.column == PICTURE_BITS {
            self.cells.push_str("</tr>\n");
            self.column = 0;
        }
    }

    /// Fills what is left of a row.
    fn end_row(&mut self) {
        if self.column > 0 {
            self.cell("gap", PICTURE_BITS - self.column, "");
        }
    }

    fn bits(&mut self, label: &str, bits: u32) {
        let rows = (self.column + bits).div_ceil(PICTURE_BITS);
        if rows > FIELD_ROWS_MAX || self.column == 0 && bits.is_multiple_of(PICTURE_BITS) && rows > 1 {
            self.end_row();
            let class = if rows > FIELD_ROWS_MAX { "cut" } else { "tall" };
            self.cell(class, PICTURE_BITS, &format!("{label} <small>{} bytes</small>", bits / 8));
            return;
        }
        let mut left = bits;
        let mut is_first = true;
        while left > 0 {
            let here = left.min(PICTURE_BITS - self.column);
            left -= here;
            let class = match (is_first, left > 0) {
                (true, true) => "goes",
                (false, true) => "from goes",
                (false, false) => "from",
                (true, false) => "",
            };
            let text = if is_first { label.to_owned() } else { format!("<small>{label}, continued</small>") };
            self.cell(class, here, &text);
            is_first = false;
        }
    }

    fn bytes(&mut self, label: &str, length: &str) {
        self.end_row();
        let length = if length.is_empty() { String::new() } else { format!(" <small>{length}</small>") };
        self.cell("open", PICTURE_BITS, &format!("{label}{length}"));
    }
}
