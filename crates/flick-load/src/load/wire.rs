//! Requests and replies of a load, the same for both protocols.
//!
//! Promises: encoding writes into existing memory; only whole replies are returned; what the protocol forbids is
//! `Broken`, never a guess.

use crate::binary::{HEADER_BYTES, Header, MAGIC_REQUEST, MAGIC_RESPONSE, Opcode, Status};
use crate::http;
use crate::text;

use super::LoadProtocol;
use super::value::{append_key, append_value};

/// Longest error text that a binary reply may carry.
const ERROR_BYTES_MAX: usize = 512;

/// A request to encode.
#[derive(Clone, Copy, Debug)]
pub(super) struct Ask {
    pub(super) opaque: u32,
    pub(super) key: u64,
    pub(super) key_bytes: usize,
    /// The writer and the length of the value to set; `None` gets.
    pub(super) set: Option<(u64, usize)>,
}

/// One whole reply.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct WireReply<'a> {
    /// The opaque, where the protocol has one; otherwise replies come in order.
    pub(super) opaque: Option<u32>,
    pub(super) body: Body<'a>,
}

/// The body of a reply.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Body<'a> {
    /// A value, with its key where the protocol repeats it.
    Value(Option<&'a [u8]>, &'a [u8]),
    Miss,
    Stored,
    /// A page of HTTP.
    Page,
    Error(Status),
    /// Well-framed, but no reply to any request of the load.
    Nonsense,
}

/// Result of parsing the front of a receive buffer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum WireParse<'a> {
    Whole(WireReply<'a>, usize),
    NeedMore,
    Broken,
}

impl LoadProtocol {
    /// Returns the most bytes a request takes.
    pub(super) fn request_bytes_max(self, key_bytes: usize, value_bytes: usize) -> usize {
        match self {
            LoadProtocol::Binary => HEADER_BYTES + 8 + key_bytes + value_bytes,
            LoadProtocol::Text => "set  0 0 1048576\r\n\r\n".len() + key_bytes + value_bytes,
            LoadProtocol::Http => http::GET.len(),
        }
    }

    /// Returns the most bytes that a legal reply takes.
    pub(super) fn reply_bytes_max(self, value_bytes: usize) -> usize {
        match self {
            LoadProtocol::Binary => HEADER_BYTES + ERROR_BYTES_MAX.max(4 + value_bytes),
            LoadProtocol::Text => text::LINE_BYTES_MAX + value_bytes + "\r\nEND\r\n".len(),
            LoadProtocol::Http => http::HEAD_BYTES_MAX + value_bytes,
        }
    }

    /// Appends one request.
    pub(super) fn encode(self, ask: &Ask, out: &mut Vec<u8>) {
        match self {
            LoadProtocol::Binary => encode_binary(ask, out),
            LoadProtocol::Text => encode_text(ask, out),
            LoadProtocol::Http => out.extend_from_slice(http::GET),
        }
    }

    /// Parses the reply at the front of `input`.
    pub(super) fn parse(self, input: &[u8]) -> WireParse<'_> {
        match self {
            LoadProtocol::Binary => parse_binary(input),
            LoadProtocol::Text => parse_text(input),
            LoadProtocol::Http => parse_http(input),
        }
    }
}

fn encode_binary(ask: &Ask, out: &mut Vec<u8>) {
    let (opcode, extras_len, value_len) = match ask.set {
        Some((_, value_len)) => (Opcode::Set, 8, value_len),
        None => (Opcode::Get, 0, 0),
    };
    let header = Header {
        magic: MAGIC_REQUEST,
        opcode: opcode.byte(),
        key_len: u16::try_from(ask.key_bytes).expect("the settings bound keys"),
        extras_len,
        body_len: u32::try_from(usize::from(extras_len) + ask.key_bytes + value_len)
            .expect("the settings bound values"),
        opaque: ask.opaque,
        ..Header::default()
    };
    out.extend_from_slice(&header.encode());
    out.extend_from_slice(&[0; 8][..usize::from(extras_len)]);
    append_key(ask.key, ask.key_bytes, out);
    if let Some((writer, value_len)) = ask.set {
        append_value(ask.key, writer, value_len, out);
    }
}

fn encode_text(ask: &Ask, out: &mut Vec<u8>) {
    let mut key = [0; crate::limits::KEY_BYTES_MAX];
    let key = &mut key[..ask.key_bytes];
    super::value::write_key(ask.key, key);
    match ask.set {
        None => text::encode_get(key, out),
        Some((writer, value_len)) => {
            text::encode_set_line(key, value_len, out);
            append_value(ask.key, writer, value_len, out);
            out.extend_from_slice(b"\r\n");
        }
    }
}

fn parse_binary(input: &[u8]) -> WireParse<'_> {
    let Some(header) = Header::decode(input) else { return WireParse::NeedMore };
    if header.magic != MAGIC_RESPONSE || !header.lengths_agree() {
        return WireParse::Broken;
    }
    let Some(body) = input[HEADER_BYTES..].get(..header.body_len as usize) else {
        return WireParse::NeedMore;
    };
    let (extras_len, key_len) = (usize::from(header.extras_len), usize::from(header.key_len));
    let is_get = header.opcode == Opcode::Get.byte();
    let is_set = header.opcode == Opcode::Set.byte();
    let body = match Status::from_code(header.status) {
        Some(Status::NoError) if is_get && extras_len == 4 && key_len == 0 => Body::Value(None, &body[4..]),
        Some(Status::NoError) if is_set && body.is_empty() => Body::Stored,
        Some(Status::KeyNotFound) if is_get => Body::Miss,
        Some(status) if status != Status::NoError && (is_get || is_set) => Body::Error(status),
        _ => Body::Nonsense,
    };
    WireParse::Whole(WireReply { opaque: Some(header.opaque), body }, HEADER_BYTES + header.body_len as usize)
}

fn parse_text(input: &[u8]) -> WireParse<'_> {
    match text::parse_reply(input) {
        text::TextParse::NeedMore => WireParse::NeedMore,
        text::TextParse::Broken => WireParse::Broken,
        text::TextParse::Whole(reply, len) => {
            let body = match reply {
                text::TextReply::Value { key, data } => Body::Value(Some(key), data),
                text::TextReply::Miss => Body::Miss,
                text::TextReply::Stored => Body::Stored,
                text::TextReply::Error(status) => Body::Error(status),
            };
            WireParse::Whole(WireReply { opaque: None, body }, len)
        }
    }
}

fn parse_http(input: &[u8]) -> WireParse<'_> {
    match http::parse_reply(input) {
        http::HttpParse::NeedMore => WireParse::NeedMore,
        http::HttpParse::Broken => WireParse::Broken,
        http::HttpParse::Whole { status, len } => {
            let body = match status {
                200 => Body::Page,
                503 => Body::Error(Status::Busy),
                500..=599 => Body::Error(Status::InternalError),
                _ => Body::Error(Status::InvalidArguments),
            };
            WireParse::Whole(WireReply { opaque: None, body }, len)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_fit_their_bound() {
        for protocol in [LoadProtocol::Binary, LoadProtocol::Text] {
            for value_len in [0, 1, 100, 1 << 20] {
                let mut out = Vec::new();
                let ask = Ask { opaque: 1, key: 9, key_bytes: 20, set: Some((1, value_len)) };
                protocol.encode(&ask, &mut out);
                assert!(out.len() <= protocol.request_bytes_max(20, value_len), "{protocol:?} {value_len}");
                protocol.encode(&Ask { set: None, ..ask }, &mut out);
            }
        }
    }

    #[test]
    fn replies_to_no_request_are_nonsense() {
        let header =
            Header { magic: MAGIC_RESPONSE, opcode: Opcode::Set.byte(), opaque: 5, ..Header::default() };
        let parsed = |header: Header, body: &[u8]| {
            let mut bytes = header.encode().to_vec();
            bytes.extend_from_slice(body);
            match parse_binary(&bytes) {
                WireParse::Whole(reply, _) => format!("{:?}", reply.body),
                other => format!("{other:?}"),
            }
        };
        assert_eq!(parsed(header, b""), "Stored");
        assert_eq!(parsed(Header { body_len: 1, ..header }, b""), "NeedMore");
        assert_eq!(parsed(Header { body_len: 1, ..header }, b"x"), "Nonsense");
        assert_eq!(parsed(Header { status: 0x0999, ..header }, b""), "Nonsense");
        assert_eq!(parsed(Header { status: 0x0085, ..header }, b""), "Error(Busy)");
        assert_eq!(parsed(Header { magic: 0, ..header }, b""), "Broken");
        assert_eq!(parsed(Header { key_len: 2, body_len: 1, ..header }, b"x"), "Broken");
    }
}
