//! The part of memcached's meta protocol that a load needs: `mg` and `ms`, and every reply to them.
//!
//! Promises: no allocation in `parse_reply`; only whole replies are returned.
//! Refuses: quiet requests, and flags other than those that `encode_get` asks for.
//! Source: `doc/protocol.txt` of memcached.

use std::io::Write;

use crate::text::{self, TextParse, TextReply};

/// Appends `mg KEY k v`: the reply carries the key and the value.
pub fn encode_get(key: &[u8], out: &mut Vec<u8>) {
    out.extend_from_slice(b"mg ");
    out.extend_from_slice(key);
    out.extend_from_slice(b" k v\r\n");
}

/// Appends the line of an `ms` of `value_len` bytes; the value and an end of line must follow.
pub fn encode_set_line(key: &[u8], value_len: usize, out: &mut Vec<u8>) {
    out.extend_from_slice(b"ms ");
    out.extend_from_slice(key);
    write!(out, " {value_len}\r\n").expect("writing into memory does not fail");
}

/// Parses the reply at the front of `input`; errors are those of the text protocol.
pub fn parse_reply(input: &[u8]) -> TextParse<'_> {
    let Some((line, line_len)) = text::line(input) else { return text::unfinished_line(input) };
    if let Some(rest) = line.strip_prefix(b"VA ") {
        return parse_value(rest, &input[line_len..], line_len);
    }
    let reply = match line {
        b"EN" => TextReply::Miss,
        b"HD" => TextReply::Stored,
        other => match text::error_reply(other) {
            Some(reply) => reply,
            None => return TextParse::Broken,
        },
    };
    TextParse::Whole(reply, line_len)
}

/// Parses `BYTES kKEY`, and the value after it.
fn parse_value<'a>(words: &'a [u8], after_line: &'a [u8], line_len: usize) -> TextParse<'a> {
    let mut words = words.split(|&byte| byte == b' ');
    let (Some(len), Some([b'k', key @ ..])) = (words.next(), words.next()) else {
        return TextParse::Broken;
    };
    text::value_reply(key, len, after_line, line_len, b"\r\n")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::binary::Status;

    #[track_caller]
    fn check(input: &str, expected: TextReply<'_>) {
        text::tests::check_cuts(parse_reply, input, expected);
    }

    #[test]
    fn meta_replies_are_found_only_whole() {
        check("VA 5 kk1\r\nab\r\nc\r\n", TextReply::Value { key: b"k1", data: b"ab\r\nc" });
        check("VA 0 kk1\r\n\r\n", TextReply::Value { key: b"k1", data: b"" });
        check("EN\r\n", TextReply::Miss);
        check("HD\r\n", TextReply::Stored);
        check("NS\r\n", TextReply::Error(Status::NotStored, b"NS"));
        let text = b"SERVER_ERROR out of memory storing object";
        check("SERVER_ERROR out of memory storing object\r\n", TextReply::Error(Status::OutOfMemory, text));
    }

    #[test]
    fn other_meta_replies_are_broken() {
        for input in ["WHAT\r\n", "VA 5\r\n", "VA x kk\r\n", "VA 1 k\r\nabc\r\n", "VA 1 fk\r\na\r\n"] {
            assert_eq!(parse_reply(input.as_bytes()), TextParse::Broken, "{input:?}");
        }
    }
}
