//! The replies of a web server to one fixed request of HTTP/1.1.
//!
//! Promises: a reply is whole when its head and `Content-Length` bytes are there; nothing is copied.
//! Refuses: chunked bodies and replies without a length (`Broken`).
//! Source: RFC 9112.

/// The request.
pub const GET: &[u8] = b"GET / HTTP/1.1\r\nHost: flick-load\r\n\r\n";

/// Longest head of a reply.
pub const HEAD_BYTES_MAX: usize = 4 << 10;

/// Result of parsing the front of a receive buffer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HttpParse {
    /// A whole reply of `len` bytes.
    Whole {
        /// Status code.
        status: u16,
        /// Bytes of head and body.
        len: usize,
    },
    /// The reply goes on.
    NeedMore,
    /// The bytes are no reply, or one without a length.
    Broken,
}

/// Parses the reply at the front of `input`.
pub fn parse_reply(input: &[u8]) -> HttpParse {
    let Some(head_bytes) = input.windows(4).position(|bytes| bytes == b"\r\n\r\n") else {
        return if input.len() > HEAD_BYTES_MAX { HttpParse::Broken } else { HttpParse::NeedMore };
    };
    let mut lines = input[..head_bytes].split(|byte| *byte == b'\n').map(<[u8]>::trim_ascii);
    let status = lines.next().and_then(|line| line.strip_prefix(b"HTTP/1.1 ")?.get(..3)).and_then(number);
    let body_bytes = lines.find_map(|line| {
        let (name, value) = line.split_at_checked(b"content-length:".len())?;
        name.eq_ignore_ascii_case(b"content-length:").then(|| number(value.trim_ascii()))
    });
    let (Some(status), Some(Some(body_bytes))) = (status, body_bytes) else { return HttpParse::Broken };
    let len = (head_bytes + 4).saturating_add(body_bytes);
    match u16::try_from(status) {
        Ok(status) if len <= input.len() => HttpParse::Whole { status, len },
        Ok(_) => HttpParse::NeedMore,
        Err(_) => HttpParse::Broken,
    }
}

fn number(text: &[u8]) -> Option<usize> {
    let digits =
        std::str::from_utf8(text).ok().filter(|text| text.bytes().all(|byte| byte.is_ascii_digit()))?;
    digits.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::{HEAD_BYTES_MAX, HttpParse, parse_reply};

    #[test]
    fn a_reply_is_whole_with_its_last_byte() {
        let text = b"HTTP/1.1 200 OK\r\nServer: x\r\ncontent-LENGTH: 5\r\n\r\nhello";
        for len in 0..text.len() {
            assert_eq!(parse_reply(&text[..len]), HttpParse::NeedMore, "{len} bytes");
        }
        let more = [&text[..], b"HTTP/1.1"].concat();
        for bytes in [&text[..], &more] {
            assert_eq!(parse_reply(bytes), HttpParse::Whole { status: 200, len: text.len() });
        }
    }

    #[test]
    fn replies_without_a_length_and_other_bytes_are_broken() {
        for text in [
            "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n",
            "HTTP/1.1 200 OK\r\nContent-Length: +5\r\n\r\nhello",
            "HTTP/1.1 2x0 OK\r\nContent-Length: 5\r\n\r\nhello",
            "STORED\r\n\r\n",
        ] {
            assert_eq!(parse_reply(text.as_bytes()), HttpParse::Broken, "{text:?}");
        }
        assert_eq!(parse_reply(&[b'x'; HEAD_BYTES_MAX + 1]), HttpParse::Broken);
    }
}
