//! Words of a text, with identifiers cut at underscores, hyphens and changes of case.
//! Promises: words are lower case; every word knows the bytes it came from.

use std::ops::Range;

/// One word of a text.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Word {
    /// Lower case.
    pub text: String,
    /// Bytes of the word in the text.
    pub range: Range<usize>,
}

/// Separator between two words of a phrase.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Joint {
    /// Whitespace, a line end with its comment marker, or any form of [`Joint::Joined`].
    Any,
    /// One hyphen or underscore, or nothing but a change of case: the words are one identifier.
    Joined,
}

/// The words of `text`: `batchMax`, `batch_max` and `batch-max` are `batch` and `max`; `TCPPort2` is `tcp`, `port`,
/// `2`.
pub fn words(text: &str) -> Vec<Word> {
    let bytes = text.as_bytes();
    let mut words = Vec::new();
    let mut at = 0;
    while at < bytes.len() {
        if bytes[at].is_ascii_alphanumeric() {
            let end = word_end(bytes, at);
            words.push(Word { text: text[at..end].to_ascii_lowercase(), range: at..end });
            at = end;
        } else {
            at += 1;
        }
    }
    words
}

/// End of the word that starts at `start`.
fn word_end(bytes: &[u8], start: usize) -> usize {
    let class_end = |from: usize, is_in: fn(&u8) -> bool| {
        from + bytes[from..].iter().take_while(|byte| is_in(byte)).count()
    };
    let first = bytes[start];
    if first.is_ascii_digit() {
        return class_end(start, u8::is_ascii_digit);
    }
    if first.is_ascii_lowercase() {
        return class_end(start, u8::is_ascii_lowercase);
    }
    let capitals = class_end(start, u8::is_ascii_uppercase);
    match (capitals - start, bytes.get(capitals)) {
        // `Port`.
        (1, Some(next)) if next.is_ascii_lowercase() => class_end(capitals, u8::is_ascii_lowercase),
        // `TCPs` is `tcps`; `TCPPort` ends before the capital that starts `Port`.
        (_, Some(b's')) if !bytes.get(capitals + 1).is_some_and(u8::is_ascii_alphanumeric) => capitals + 1,
        (2.., Some(next)) if next.is_ascii_lowercase() => capitals - 1,
        _ => capitals,
    }
}

/// Whether `between`, the text from one word to the next, joins the two to a phrase.
pub fn joins(between: &str, joint: Joint) -> bool {
    match joint {
        Joint::Joined => matches!(between, "" | "-" | "_"),
        Joint::Any => {
            let is_blank = |byte| matches!(byte, b' ' | b'\t' | b'\n' | b'\r');
            let is_marker = |byte| matches!(byte, b'/' | b'!' | b'#' | b'*' | b'>' | b'\\');
            matches!(between, "" | "-" | "_")
                || (between.bytes().any(is_blank)
                    && between
                        .bytes()
                        .all(|byte| is_blank(byte) || (between.contains('\n') && is_marker(byte))))
        }
    }
}

/// The identifier around `range`: everything up to the next byte that cannot be part of a name. With `hyphens`, options
/// such as `--time-slice` are names too.
pub fn name_around(text: &str, range: Range<usize>, hyphens: bool) -> Range<usize> {
    let bytes = text.as_bytes();
    let is_part = |byte: &u8| byte.is_ascii_alphanumeric() || *byte == b'_' || (hyphens && *byte == b'-');
    let front = bytes[..range.start].iter().rev().take_while(|byte| is_part(byte)).count();
    let back = bytes[range.end..].iter().take_while(|byte| is_part(byte)).count();
    range.start - front..range.end + back
}

#[cfg(test)]
mod tests {
    use super::{Joint, joins, name_around, words};

    fn check(text: &str, expected: &[&str]) {
        let found: Vec<_> = words(text).into_iter().map(|word| word.text).collect();
        assert_eq!(found, expected, "{text}");
    }

    #[test]
    fn identifiers_are_cut_into_words() {
        check("batch_max batchMax BatchMax batch-max BATCH_MAX", &["batch", "max"].repeat(5));
        check("TCPPort2 parseHTTP x", &["tcp", "port", "2", "parse", "http", "x"]);
        check("a URLs b", &["a", "urls", "b"]);
        check("größe", &["gr", "e"]);
    }

    #[test]
    fn phrases_cross_line_ends_and_not_sentences() {
        assert!(joins(" ", Joint::Any));
        assert!(joins("\n    /// ", Joint::Any));
        assert!(joins("_", Joint::Any));
        assert!(joins("", Joint::Any));
        assert!(!joins(". ", Joint::Any));
        assert!(!joins(" / ", Joint::Any));
        assert!(!joins(" ", Joint::Joined));
        assert!(joins("-", Joint::Joined));
    }

    #[test]
    fn names_end_where_no_name_goes_on() {
        assert_eq!(name_around("a --time-slice=1", 4..8, true), 2..14);
        assert_eq!(name_around("x.time_slice(1)", 2..6, false), 2..12);
    }
}
