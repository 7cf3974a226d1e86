//! A class of bytes as a chart of all 256 bytes.

use crate::html::escape;
use crate::scope::ByteSet;

/// Draws the chart of a set: sixteen rows of sixteen, those above 0x7f in one line where they are all alike.
pub(crate) fn chart(set: &ByteSet) -> String {
    let mut out = "<table class=\"chart\"><tbody>\n".to_owned();
    let high = &set[128..];
    let is_uniform = high.iter().all(|is_in| *is_in == high[0]);
    for row in 0..if is_uniform { 8usize } else { 16 } {
        out.push_str(&format!("<tr><th scope=\"row\">{row:x}0</th>"));
        for (byte, is_in) in set.iter().enumerate().skip(row * 16).take(16) {
            let class = if *is_in { " class=\"in\"" } else { "" };
            out.push_str(&format!("<td{class} title=\"0x{byte:02x}\">{}</td>", glyph(byte as u8)));
        }
        out.push_str("</tr>\n");
    }
    if is_uniform {
        let (class, word) = if high[0] { (" class=\"in\"", "all") } else { ("", "none") };
        out.push_str(&format!(
            "<tr><th scope=\"row\">80</th><td colspan=\"16\"{class}>{word} of 0x80 to 0xff</td></tr>\n"
        ));
    }
    out.push_str("</tbody></table>\n");
    out
}

fn glyph(byte: u8) -> String {
    match byte {
        b'!'..=b'~' => escape(&char::from(byte).to_string()),
        b' ' => "SP".to_owned(),
        b'\t' => "TAB".to_owned(),
        b'\n' => "LF".to_owned(),
        b'\r' => "CR".to_owned(),
        _ => String::new(),
    }
}
