//! The part of the Redis protocol (RESP2) that a load needs: `GET` and `SET`, and every reply to them.
//!
//! Promises: no allocation in `parse_reply`; only whole replies are returned.
//! Refuses: nested replies, and lines beyond `LINE_BYTES_MAX`.
//! Source: the RESP specification of Redis.

use std::io::Write;

use crate::binary::Status;
use crate::text::{self, TextParse, TextReply};

/// Appends `GET KEY`.
pub fn encode_get(key: &[u8], out: &mut Vec<u8>) {
    out.extend_from_slice(b"*2\r\n$3\r\nGET\r\n");
    append_bulk(key, out);
}

/// Appends `SET KEY` up to a value of `value_len` bytes; the value and an end of line must follow.
pub fn encode_set_line(key: &[u8], value_len: usize, out: &mut Vec<u8>) {
    out.extend_from_slice(b"*3\r\n$3\r\nSET\r\n");
    append_bulk(key, out);
    write!(out, "${value_len}\r\n").expect("writing into memory does not fail");
}

fn append_bulk(bytes: &[u8], out: &mut Vec<u8>) {
    write!(out, "${}\r\n", bytes.len()).expect("writing into memory does not fail");
    out.extend_from_slice(bytes);
    out.extend_from_slice(b"\r\n");
}

/// Parses the reply at the front of `input`. A value has no key: its reply is [`TextReply::Value`] with an empty one.
pub fn parse_reply(input: &[u8]) -> TextParse<'_> {
    let Some((line, line_len)) = text::line(input) else { return text::unfinished_line(input) };
    let reply = match line {
        b"$-1" | b"_" => TextReply::Miss,
        b"+OK" => TextReply::Stored,
        [b'-', error @ ..] => TextReply::Error(status_of(error), error),
        [b'$', len @ ..] => {
            return text::value_reply(b"", len, &input[line_len..], line_len, b"\r\n");
        }
        _ => return TextParse::Broken,
    };
    TextParse::Whole(reply, line_len)
}

/// Returns the status of the binary protocol of memcached that comes nearest to an error of Redis.
fn status_of(error: &[u8]) -> Status {
    match error.split(|byte| *byte == b' ').next().unwrap_or_default() {
        b"OOM" => Status::OutOfMemory,
        b"NOAUTH" | b"WRONGPASS" | b"NOPERM" => Status::AuthError,
        b"BUSY" => Status::Busy,
        b"LOADING" | b"TRYAGAIN" | b"CLUSTERDOWN" | b"MASTERDOWN" => Status::TemporaryFailure,
        b"MOVED" | b"ASK" => Status::WrongVbucket,
        b"WRONGTYPE" => Status::InvalidArguments,
        _ => Status::InternalError,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(input: &str, expected: TextReply<'_>) {
        text::tests::check_cuts(parse_reply, input, expected);
    }

    #[test]
    fn replies_of_redis_are_found_only_whole() {
        check("$5\r\nab\r\nc\r\n", TextReply::Value { key: b"", data: b"ab\r\nc" });
        check("$0\r\n\r\n", TextReply::Value { key: b"", data: b"" });
        check("$-1\r\n", TextReply::Miss);
        check("_\r\n", TextReply::Miss);
        check("+OK\r\n", TextReply::Stored);
        check("-NOAUTH no\r\n", TextReply::Error(Status::AuthError, b"NOAUTH no"));
    }

    #[test]
    fn other_replies_of_redis_are_broken() {
        for input in ["+PONG\r\n", ":1\r\n", "*1\r\n", "$-2\r\n", "$99999999\r\n", "$1\r\nabc\r\n"] {
            assert_eq!(parse_reply(input.as_bytes()), TextParse::Broken, "{input:?}");
        }
    }

    #[test]
    fn requests_of_redis_have_lengths() {
        let mut out = Vec::new();
        encode_get(b"key", &mut out);
        encode_set_line(b"key", 2, &mut out);
        assert_eq!(out, b"*2\r\n$3\r\nGET\r\n$3\r\nkey\r\n*3\r\n$3\r\nSET\r\n$3\r\nkey\r\n$2\r\n");
    }
}
