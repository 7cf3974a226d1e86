//! Splits Rust source into code, comments and literals.
//! Promises: the regions cover the text without gaps, in order; any text has regions, also one that rustc rejects.
//! Not here: identifiers and keywords; a check finds those inside the regions of code.

use std::ops::Range;

/// Kind of a region of Rust source.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RegionKind {
    /// Everything else, whitespace and lifetimes included.
    Code,
    /// A line comment with its newline excluded, or a block comment.
    Comment,
    /// A string, byte string, raw string or character, with its quotes.
    Literal,
}

/// A range of bytes and what it is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Region {
    /// Kind of the region.
    pub kind: RegionKind,
    /// Bytes of the region.
    pub range: Range<usize>,
}

/// Splits `text` into regions.
pub fn regions(text: &str) -> Vec<Region> {
    let bytes = text.as_bytes();
    let mut regions = Vec::new();
    let (mut code_start, mut at) = (0, 0);
    while at < bytes.len() {
        let Some((kind, end)) = special(bytes, at) else {
            at += 1;
            continue;
        };
        if code_start < at {
            regions.push(Region { kind: RegionKind::Code, range: code_start..at });
        }
        regions.push(Region { kind, range: at..end });
        (code_start, at) = (end, end);
    }
    if code_start < at {
        regions.push(Region { kind: RegionKind::Code, range: code_start..at });
    }
    regions
}

/// The comment or literal that starts at `at`, and where it ends.
fn special(bytes: &[u8], at: usize) -> Option<(RegionKind, usize)> {
    let rest = &bytes[at..];
    if rest.starts_with(b"//") {
        let length = rest.iter().position(|byte| *byte == b'\n').unwrap_or(rest.len());
        return Some((RegionKind::Comment, at + length));
    }
    if rest.starts_with(b"/*") {
        return Some((RegionKind::Comment, at + block_comment(rest)));
    }
    let is_word_start = at == 0 || !is_word(bytes[at - 1]);
    if is_word_start && let Some(length) = raw_string(rest) {
        return Some((RegionKind::Literal, at + length));
    }
    match rest[0] {
        b'"' => Some((RegionKind::Literal, at + quoted(rest))),
        b'\'' => character(rest).map(|length| (RegionKind::Literal, at + length)),
        _ => None,
    }
}

/// Length of the block comment at the front; block comments nest.
fn block_comment(rest: &[u8]) -> usize {
    let (mut depth, mut at) = (0, 0);
    while at < rest.len() {
        if rest[at..].starts_with(b"/*") {
            (depth, at) = (depth + 1, at + 2);
        } else if rest[at..].starts_with(b"*/") {
            (depth, at) = (depth - 1, at + 2);
            if depth == 0 {
                return at;
            }
        } else {
            at += 1;
        }
    }
    at
}

/// Length of the raw string at the front: `r"…"`, `r#"…"#`, `br"…"`.
fn raw_string(rest: &[u8]) -> Option<usize> {
    let prefix = if rest.starts_with(b"r") {
        1
    } else if rest.starts_with(b"br") || rest.starts_with(b"cr") {
        2
    } else {
        return None;
    };
    let hashes = rest[prefix..].iter().take_while(|byte| **byte == b'#').count();
    let start = prefix + hashes;
    if rest.get(start) != Some(&b'"') {
        return None;
    }
    let closes = |at: &usize| {
        rest[*at] == b'"' && rest[at + 1..].iter().take_while(|byte| **byte == b'#').count() >= hashes
    };
    let end = (start + 1..rest.len()).find(closes);
    Some(end.map_or(rest.len(), |at| at + 1 + hashes))
}

/// Length of the string at the front, whose first byte is the quote.
fn quoted(rest: &[u8]) -> usize {
    let mut at = 1;
    while at < rest.len() {
        match rest[at] {
            b'\\' => at += 2,
            b'"' => return at + 1,
            _ => at += 1,
        }
    }
    rest.len()
}

/// Length of the character literal at the front; none for a lifetime.
fn character(rest: &[u8]) -> Option<usize> {
    let inside = rest.get(1)?;
    if *inside == b'\\' {
        let end = rest.iter().skip(3).position(|byte| *byte == b'\'')?;
        return Some(3 + end + 1);
    }
    let width = match inside {
        0x00..=0x7f => 1,
        0xc0..=0xdf => 2,
        0xe0..=0xef => 3,
        _ => 4,
    };
    (rest.get(1 + width) == Some(&b'\'')).then_some(width + 2)
}

fn is_word(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || byte == b'_'
}

#[cfg(test)]
mod tests {
    use super::{RegionKind, regions};

    fn check(text: &str, expected: &[(RegionKind, &str)]) {
        let found: Vec<_> =
            regions(text).into_iter().map(|region| (region.kind, &text[region.range])).collect();
        assert_eq!(found, expected, "{text}");
    }

    #[test]
    fn comments_and_literals_are_cut_out() {
        use RegionKind::{Code, Comment, Literal};
        check("a // b\nc", &[(Code, "a "), (Comment, "// b"), (Code, "\nc")]);
        check("a /* b /* c */ d */e", &[(Code, "a "), (Comment, "/* b /* c */ d */"), (Code, "e")]);
        check(r#"f("a\"//b")"#, &[(Code, "f("), (Literal, r#""a\"//b""#), (Code, ")")]);
        check(r##"r#"a" // "#;"##, &[(Literal, r##"r#"a" // "#"##), (Code, ";")]);
        check("b\"x\" br\"\\\"", &[(Code, "b"), (Literal, "\"x\""), (Code, " "), (Literal, "br\"\\\"")]);
        check("hexpr\"a\"", &[(Code, "hexpr"), (Literal, "\"a\"")]);
    }

    #[test]
    fn characters_are_not_lifetimes() {
        use RegionKind::{Code, Literal};
        check("'\"' 'a", &[(Literal, "'\"'"), (Code, " 'a")]);
        check("'\\'' 'x'", &[(Literal, "'\\''"), (Code, " "), (Literal, "'x'")]);
        check("&'a str<'b>", &[(Code, "&'a str<'b>")]);
        check("'ü' '\\u{7f}'", &[(Literal, "'ü'"), (Code, " "), (Literal, "'\\u{7f}'")]);
    }

    #[test]
    fn a_text_that_ends_early_has_regions() {
        use RegionKind::{Comment, Literal};
        check("\"a", &[(Literal, "\"a")]);
        check("\"a\\", &[(Literal, "\"a\\")]);
        check("/* a", &[(Comment, "/* a")]);
    }
}
