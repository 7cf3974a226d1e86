//! The part of the memcached text protocol that a load needs: `get` and `set`, and every reply to them.
//!
//! Promises: no allocation in `parse_reply`; only whole replies are returned.
//! Refuses: replies with more than one value (the load never asks for several keys), and lines beyond `LINE_BYTES_MAX`.
//! Source: `doc/protocol.txt` of memcached.

use std::io::Write;

use crate::binary::Status;
use crate::limits::{KEY_BYTES_MAX, VALUE_BYTES_MAX};

/// Longest line of a reply, with its end.
pub const LINE_BYTES_MAX: usize = KEY_BYTES_MAX + 262;

/// One whole reply.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TextReply<'a> {
    /// The one value asked for, with its key.
    Value {
        /// The key as the server repeats it.
        key: &'a [u8],
        /// The value.
        data: &'a [u8],
    },
    /// `END` without a value: a miss.
    Miss,
    /// `STORED`.
    Stored,
    /// Any error line, as a status of the binary protocol and as it is.
    Error(Status, &'a [u8]),
}

/// Result of parsing the front of a receive buffer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TextParse<'a> {
    /// A reply, and how many bytes it took.
    Whole(TextReply<'a>, usize),
    /// Not yet a whole reply.
    NeedMore,
    /// Something the protocol does not allow; the rest of the stream cannot be parsed.
    Broken,
}

/// Appends `get KEY`.
pub fn encode_get(key: &[u8], out: &mut Vec<u8>) {
    out.extend_from_slice(b"get ");
    out.extend_from_slice(key);
    out.extend_from_slice(b"\r\n");
}

/// Appends the line of a `set` of `value_len` bytes; the value and an end of line must follow.
pub fn encode_set_line(key: &[u8], value_len: usize, out: &mut Vec<u8>) {
    out.extend_from_slice(b"set ");
    out.extend_from_slice(key);
    write!(out, " 0 0 {value_len}\r\n").expect("writing into memory does not fail");
}

/// Parses the reply at the front of `input`.
pub fn parse_reply(input: &[u8]) -> TextParse<'_> {
    let Some((line, line_len)) = line(input) else { return unfinished_line(input) };
    if let Some(rest) = line.strip_prefix(b"VALUE ") {
        return parse_value(rest, &input[line_len..], line_len);
    }
    let reply = match line {
        b"END" => TextReply::Miss,
        b"STORED" => TextReply::Stored,
        other => match error_reply(other) {
            Some(reply) => reply,
            None => return TextParse::Broken,
        },
    };
    TextParse::Whole(reply, line_len)
}

/// Returns the reply of a line that says why nothing was read or written.
pub(crate) fn error_reply(line: &[u8]) -> Option<TextReply<'_>> {
    let status = match line {
        b"NOT_STORED" | b"NS" => Status::NotStored,
        b"EXISTS" | b"EX" => Status::KeyExists,
        b"NOT_FOUND" | b"NF" => Status::KeyNotFound,
        b"ERROR" => Status::UnknownCommand,
        other if other.starts_with(b"CLIENT_ERROR") => Status::InvalidArguments,
        other if other.starts_with(b"SERVER_ERROR out of memory") => Status::OutOfMemory,
        other if other.starts_with(b"SERVER_ERROR object too large") => Status::ValueTooLarge,
        other if other.starts_with(b"SERVER_ERROR") => Status::InternalError,
        _ => return None,
    };
    Some(TextReply::Error(status, line))
}

/// Returns the result for input without a whole line.
pub(crate) fn unfinished_line(input: &[u8]) -> TextParse<'_> {
    if input.len() > LINE_BYTES_MAX { TextParse::Broken } else { TextParse::NeedMore }
}

/// Parses `KEY FLAGS BYTES`, the value after it, and the `END` that closes the reply.
fn parse_value<'a>(words: &'a [u8], after_line: &'a [u8], line_len: usize) -> TextParse<'a> {
    let mut words = words.split(|&byte| byte == b' ');
    let (Some(key), Some(_flags), Some(len)) = (words.next(), words.next(), words.next()) else {
        return TextParse::Broken;
    };
    value_reply(key, len, after_line, line_len, b"\r\nEND\r\n")
}

/// Returns the reply with a value: `digits` is its length, `end` follows it.
pub(crate) fn value_reply<'a>(
    key: &'a [u8],
    digits: &[u8],
    after_line: &'a [u8],
    line_len: usize,
    end: &[u8],
) -> TextParse<'a> {
    let Some(len) = value_len(digits) else { return TextParse::Broken };
    let Some((data, rest)) = after_line.split_at_checked(len) else { return TextParse::NeedMore };
    if rest.starts_with(end) {
        TextParse::Whole(TextReply::Value { key, data }, line_len + len + end.len())
    } else if end.starts_with(rest) {
        TextParse::NeedMore
    } else {
        TextParse::Broken
    }
}

/// Returns the first line of `input` without its end, and its length with it.
pub(crate) fn line(input: &[u8]) -> Option<(&[u8], usize)> {
    let window = &input[..input.len().min(LINE_BYTES_MAX)];
    let newline = window.iter().position(|&byte| byte == b'\n')?;
    let line = &input[..newline];
    Some((line.strip_suffix(b"\r").unwrap_or(line), newline + 1))
}

/// Reads the length of a value that a server may send.
fn value_len(digits: &[u8]) -> Option<usize> {
    if digits.is_empty() || digits.len() > 10 {
        return None;
    }
    let len = digits
        .iter()
        .try_fold(0usize, |sum, &digit| digit.is_ascii_digit().then(|| sum * 10 + usize::from(digit - b'0')));
    len.filter(|&len| len <= VALUE_BYTES_MAX)
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    /// Parses `input` at every length: each shorter one must ask for more, the whole one must give `expected`.
    #[track_caller]
    pub(crate) fn check_cuts(parse: fn(&[u8]) -> TextParse<'_>, input: &str, expected: TextReply<'_>) {
        let bytes = input.as_bytes();
        for len in 0..bytes.len() {
            assert_eq!(parse(&bytes[..len]), TextParse::NeedMore, "cut at {len} of {input:?}");
        }
        assert_eq!(parse(bytes), TextParse::Whole(expected, bytes.len()));
    }

    #[track_caller]
    fn check(input: &str, expected: TextReply<'_>) {
        check_cuts(parse_reply, input, expected);
    }

    #[test]
    fn replies_are_found_only_whole() {
        check("VALUE k1 0 5\r\nab\r\nc\r\nEND\r\n", TextReply::Value { key: b"k1", data: b"ab\r\nc" });
        check("END\r\n", TextReply::Miss);
        check("STORED\r\n", TextReply::Stored);
        let refused = b"SERVER_ERROR Connection refused";
        check("SERVER_ERROR Connection refused\r\n", TextReply::Error(Status::InternalError, refused));
        check("CLIENT_ERROR bad\r\n", TextReply::Error(Status::InvalidArguments, b"CLIENT_ERROR bad"));
    }

    #[test]
    fn nonsense_is_broken() {
        for input in [
            "WHAT\r\n",
            "VALUE k 0\r\n",
            "VALUE k 0 99999999\r\n",
            "VALUE k 0 x\r\n",
            "VALUE k 0 1\r\nabcdefgh",
        ] {
            assert_eq!(parse_reply(input.as_bytes()), TextParse::Broken, "{input:?}");
        }
        assert_eq!(parse_reply(&[b'a'; LINE_BYTES_MAX + 1]), TextParse::Broken);
    }
}
