//! Requests and replies of a load to a store, the same for all its protocols.
//!
//! Promises: encoding writes into existing memory; only whole replies are returned; what the protocol forbids is
//! `Broken`, never a guess.

use crate::binary::{HEADER_BYTES, Header, MAGIC_REQUEST, MAGIC_RESPONSE, Opcode, Status};
use crate::text::{TextParse, TextReply};
use crate::{meta, resp, text};

use crate::limits::{KEY_BYTES_MAX, LOAD_RECV_BYTES};

use super::LoadProtocol;
use super::value::{append_key, append_value};

/// Bytes that a request of HTTP takes, usually.
const HTTP_BYTES: usize = 128;

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
    /// An error, and the text that names it, where there is one.
    Error(Status, &'a [u8]),
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
            LoadProtocol::Text | LoadProtocol::Meta => {
                "set  0 0 1048576\r\n\r\n".len() + key_bytes + value_bytes
            }
            LoadProtocol::Resp => {
                "*3\r\n$3\r\nSET\r\n$250\r\n\r\n$1048576\r\n\r\n".len() + key_bytes + value_bytes
            }
            LoadProtocol::Http => HTTP_BYTES,
        }
    }

    /// Returns the most bytes that a legal reply takes.
    pub(super) fn reply_bytes_max(self, value_bytes: usize) -> usize {
        match self {
            LoadProtocol::Binary => HEADER_BYTES + ERROR_BYTES_MAX.max(4 + value_bytes),
            LoadProtocol::Text | LoadProtocol::Meta | LoadProtocol::Resp => {
                text::LINE_BYTES_MAX + value_bytes + "\r\nEND\r\n".len()
            }
            // A body is not buffered.
            LoadProtocol::Http => LOAD_RECV_BYTES,
        }
    }

    /// Appends one request; not for HTTP, whose request is always the same.
    pub(super) fn encode(self, ask: &Ask, out: &mut Vec<u8>) {
        match self {
            LoadProtocol::Binary => encode_binary(ask, out),
            LoadProtocol::Text => encode_lines(ask, text::encode_get, text::encode_set_line, out),
            LoadProtocol::Meta => encode_lines(ask, meta::encode_get, meta::encode_set_line, out),
            LoadProtocol::Resp => encode_lines(ask, resp::encode_get, resp::encode_set_line, out),
            LoadProtocol::Http => panic!("a page has no key"),
        }
    }

    /// Parses the reply at the front of `input`; not for HTTP, whose reader keeps a state.
    pub(super) fn parse(self, input: &[u8]) -> WireParse<'_> {
        match self {
            LoadProtocol::Binary => parse_binary(input),
            LoadProtocol::Text => of_lines(text::parse_reply(input)),
            LoadProtocol::Meta => of_lines(meta::parse_reply(input)),
            LoadProtocol::Resp => of_lines(resp::parse_reply(input)),
            LoadProtocol::Http => panic!("a page has no key"),
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

fn encode_lines(
    ask: &Ask,
    get: fn(&[u8], &mut Vec<u8>),
    set_line: fn(&[u8], usize, &mut Vec<u8>),
    out: &mut Vec<u8>,
) {
    let mut key = [0; KEY_BYTES_MAX];
    let key = &mut key[..ask.key_bytes];
    super::value::write_key(ask.key, key);
    match ask.set {
        None => get(key, out),
        Some((writer, value_len)) => {
            set_line(key, value_len, out);
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
        Some(status) if status != Status::NoError && (is_get || is_set) => Body::Error(status, body),
        _ => Body::Nonsense,
    };
    WireParse::Whole(WireReply { opaque: Some(header.opaque), body }, HEADER_BYTES + header.body_len as usize)
}

fn of_lines(parsed: TextParse<'_>) -> WireParse<'_> {
    match parsed {
        TextParse::NeedMore => WireParse::NeedMore,
        TextParse::Broken => WireParse::Broken,
        TextParse::Whole(reply, len) => {
            let body = match reply {
                TextReply::Value { key, data } => Body::Value((!key.is_empty()).then_some(key), data),
                TextReply::Miss => Body::Miss,
                TextReply::Stored => Body::Stored,
                TextReply::Error(status, text) => Body::Error(status, text),
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
        let protocols = [LoadProtocol::Binary, LoadProtocol::Text, LoadProtocol::Meta, LoadProtocol::Resp];
        for protocol in protocols {
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
        assert_eq!(parsed(Header { status: 0x0085, ..header }, b""), "Error(Busy, [])");
        assert_eq!(parsed(Header { magic: 0, ..header }, b""), "Broken");
        assert_eq!(parsed(Header { key_len: 2, body_len: 1, ..header }, b"x"), "Broken");
    }
}
