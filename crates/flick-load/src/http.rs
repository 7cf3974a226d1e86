//! A fixed request of HTTP/1.0 or HTTP/1.1, and the replies of a web server to it.
//!
//! Promises: a reply is whole with the last byte of its body, which may be framed by `Content-Length`, by chunks or by
//! the end of the connection; a body is read piece by piece and never buffered; what the RFC forbids is `Broken`.
//! Refuses: bodies of requests; replies with both framings; heads beyond `HEAD_BYTES_MAX`.
//! Source: RFC 9112.

use std::io::Write;

/// The request for `/` by HTTP/1.1.
pub const GET: &[u8] = b"GET / HTTP/1.1\r\nHost: flick-load\r\n\r\n";

/// Longest head of a reply, and longest line in a chunked body.
pub const HEAD_BYTES_MAX: usize = 8 << 10;

/// Version of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HttpVersion {
    /// HTTP/1.0: a connection persists if both sides say `keep-alive`.
    Http10,
    /// HTTP/1.1: a connection persists unless a side says `close`.
    Http11,
}

/// The request that a load repeats.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HttpRequest {
    /// Version.
    pub version: HttpVersion,
    /// The `Host` field.
    pub host: String,
    /// The request target, with its query.
    pub path: String,
}

impl Default for HttpRequest {
    fn default() -> Self {
        Self { version: HttpVersion::Http11, host: "flick-load".to_owned(), path: "/".to_owned() }
    }
}

impl HttpRequest {
    /// Returns its bytes; `is_last`: the server is asked to close the connection behind its reply.
    pub fn bytes(&self, is_last: bool) -> Vec<u8> {
        let (version, connection) = match (self.version, is_last) {
            (HttpVersion::Http10, false) => ("1.0", "Connection: keep-alive\r\n"),
            (HttpVersion::Http10, true) => ("1.0", ""),
            (HttpVersion::Http11, false) => ("1.1", ""),
            (HttpVersion::Http11, true) => ("1.1", "Connection: close\r\n"),
        };
        let mut bytes = Vec::new();
        write!(bytes, "GET {} HTTP/{version}\r\nHost: {}\r\n{connection}\r\n", self.path, self.host)
            .expect("writing into memory does not fail");
        bytes
    }
}

/// Result of a step of the reader.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HttpStep {
    /// A reply has ended.
    Whole {
        /// Status code.
        status: u16,
        /// The server closes the connection behind it.
        closes: bool,
    },
    /// The reply goes on.
    NeedMore,
    /// The bytes are no legal reply, for this reason.
    Broken(&'static str),
}

/// The part of a reply that comes next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Part {
    Head,
    Body { left: u64 },
    UntilClose,
    ChunkLine,
    Chunk { left: u64 },
    ChunkEnd,
    Trailers { bytes: usize },
    Done,
}

/// Reads the replies of one connection, one after the other.
#[derive(Clone, Debug)]
pub struct HttpReader {
    version: HttpVersion,
    part: Part,
    status: u16,
    closes: bool,
}

impl HttpReader {
    /// Returns a reader of replies to requests of this version.
    pub fn new(version: HttpVersion) -> Self {
        Self { version, part: Part::Head, status: 0, closes: false }
    }

    /// Begins again, for another connection.
    pub fn restart(&mut self) {
        *self = Self::new(self.version);
    }

    /// Reads the front of `input` up to the end of a reply; returns how many bytes the caller may drop.
    pub fn advance(&mut self, input: &[u8]) -> (usize, HttpStep) {
        let mut at = 0;
        loop {
            let rest = &input[at..];
            match self.step(rest) {
                Ok(Some(len)) => at += len,
                Ok(None) => return (at, HttpStep::NeedMore),
                Err(why) => return (at, HttpStep::Broken(why)),
            }
            if self.part == Part::Done {
                self.part = Part::Head;
                return (at, HttpStep::Whole { status: self.status, closes: self.closes });
            }
        }
    }

    /// Ends a reply that lasts until the connection ends; `None` if there is none.
    pub fn finish(&mut self) -> Option<HttpStep> {
        let is_whole = self.part == Part::UntilClose;
        is_whole.then_some(HttpStep::Whole { status: self.status, closes: true })
    }

    /// Reads one part, or as much of it as there is; `None` if `rest` has to be longer.
    fn step(&mut self, rest: &[u8]) -> Result<Option<usize>, &'static str> {
        if rest.is_empty() {
            return Ok(None);
        }
        let (len, next) = match self.part {
            Part::Head => {
                let end = rest.windows(4).position(|bytes| bytes == b"\r\n\r\n").map(|end| end + 4);
                let Some(end) = within_bound(end, rest.len())? else { return Ok(None) };
                (end, self.head(&rest[..end - 4])?)
            }
            Part::Body { left } => {
                let len = left.min(rest.len() as u64);
                (len as usize, if len == left { Part::Done } else { Part::Body { left: left - len } })
            }
            Part::UntilClose => (rest.len(), Part::UntilClose),
            Part::ChunkLine => {
                let Some(line) = line_len(rest)? else { return Ok(None) };
                let next = match chunk_bytes(&rest[..line]).ok_or("a chunk size that is no number")? {
                    0 => Part::Trailers { bytes: 0 },
                    left => Part::Chunk { left },
                };
                (line, next)
            }
            Part::Chunk { left } => {
                let len = left.min(rest.len() as u64);
                (len as usize, if len == left { Part::ChunkEnd } else { Part::Chunk { left: left - len } })
            }
            Part::ChunkEnd => match rest {
                [b'\r', b'\n', ..] => (2, Part::ChunkLine),
                [b'\r'] => return Ok(None),
                _ => return Err("a chunk that is longer than its size"),
            },
            Part::Trailers { bytes } => {
                let Some(line) = line_len(rest)? else { return Ok(None) };
                let bytes = bytes + line;
                if bytes > HEAD_BYTES_MAX {
                    return Err("trailers of more than 8 KiB");
                }
                (line, if line == 2 { Part::Done } else { Part::Trailers { bytes } })
            }
            Part::Done => (0, Part::Head),
        };
        self.part = next;
        Ok(Some(len))
    }

    /// Reads a head, without the empty line at its end, and returns what follows it.
    fn head(&mut self, head: &[u8]) -> Result<Part, &'static str> {
        let mut lines =
            head.split(|byte| *byte == b'\n').map(|line| line.strip_suffix(b"\r").unwrap_or(line));
        let status_line = lines.next().unwrap_or_default();
        let (is_10, status) = status_of(status_line).ok_or("a status line that is not one of HTTP/1")?;
        let (mut length, mut is_chunked, mut says_close, mut says_keep) = (None, false, false, false);
        for line in lines {
            let colon = line.iter().position(|byte| *byte == b':').ok_or("a field without a colon")?;
            let (name, value) = (&line[..colon], line[colon + 1..].trim_ascii());
            if name.eq_ignore_ascii_case(b"content-length") {
                let bytes = number(value, 10).ok_or("a Content-Length that is no number")?;
                if length.replace(bytes).is_some_and(|other| other != bytes) {
                    return Err("two lengths that differ");
                }
            } else if name.eq_ignore_ascii_case(b"transfer-encoding") {
                if !value.eq_ignore_ascii_case(b"chunked") {
                    return Err("a transfer encoding other than chunked");
                }
                is_chunked = true;
            } else if name.eq_ignore_ascii_case(b"connection") {
                let has = |option: &[u8]| {
                    value
                        .split(|byte| *byte == b',')
                        .any(|word| word.trim_ascii().eq_ignore_ascii_case(option))
                };
                says_close |= has(b"close");
                says_keep |= has(b"keep-alive");
            }
        }
        if (100..200).contains(&status) {
            return if status == 101 { Err("a switch of protocols") } else { Ok(Part::Head) };
        }
        self.status = status;
        let persists_if_said = is_10 || self.version == HttpVersion::Http10;
        self.closes = says_close || (persists_if_said && !says_keep);
        match (length, is_chunked) {
            (Some(_), true) => Err("a reply with a length and chunks"),
            _ if matches!(status, 204 | 304) => Ok(Part::Done),
            (None, true) => Ok(Part::ChunkLine),
            (Some(0), false) => Ok(Part::Done),
            (Some(left), false) => Ok(Part::Body { left }),
            (None, false) => {
                self.closes = true;
                Ok(Part::UntilClose)
            }
        }
    }
}

/// Returns whether a status line is of HTTP/1.0, and its status.
fn status_of(line: &[u8]) -> Option<(bool, u16)> {
    let rest = line.strip_prefix(b"HTTP/1.")?;
    let [minor @ b'0'..=b'9', b' ', code @ ..] = rest else { return None };
    let (code, reason) = code.split_at_checked(3)?;
    let status = u16::try_from(number(code, 10)?).ok().filter(|status| (100..1000).contains(status))?;
    (reason.is_empty() || reason[0] == b' ').then_some((*minor == b'0', status))
}

/// Returns the length of the first line with its end.
fn line_len(rest: &[u8]) -> Result<Option<usize>, &'static str> {
    within_bound(rest.windows(2).position(|bytes| bytes == b"\r\n").map(|end| end + 2), rest.len())
}

fn within_bound(end: Option<usize>, len: usize) -> Result<Option<usize>, &'static str> {
    match end {
        Some(end) if end > HEAD_BYTES_MAX => Err("a head or line of more than 8 KiB"),
        None if len >= HEAD_BYTES_MAX => Err("a head or line of more than 8 KiB"),
        end => Ok(end),
    }
}

/// Returns the size in a line before a chunk; extensions are ignored.
fn chunk_bytes(line: &[u8]) -> Option<u64> {
    let end = line.iter().position(|byte| matches!(byte, b';' | b'\r'))?;
    number(line[..end].trim_ascii_end(), 16)
}

/// Reads digits, and nothing but digits.
fn number(text: &[u8], radix: u32) -> Option<u64> {
    let is_plain = text.iter().all(u8::is_ascii_alphanumeric);
    let digits = std::str::from_utf8(text).ok().filter(|_| is_plain && text.len() <= 15)?;
    u64::from_str_radix(digits, radix).ok()
}

#[cfg(test)]
mod tests {
    use super::{HEAD_BYTES_MAX, HttpReader, HttpRequest, HttpStep, HttpVersion};

    /// Reads `text` in two pieces, cut at every byte, and returns the one result.
    #[track_caller]
    fn read(version: HttpVersion, text: &str) -> HttpStep {
        let whole = HttpReader::new(version).advance(text.as_bytes());
        for cut in 0..text.len() {
            let mut reader = HttpReader::new(version);
            let (dropped, first) = reader.advance(&text.as_bytes()[..cut]);
            if first == HttpStep::NeedMore {
                let (more, step) = reader.advance(&text.as_bytes()[dropped..]);
                assert_eq!((dropped + more, step), whole, "cut at {cut} of {text:?}");
            } else {
                assert!(cut >= whole.0 && first == whole.1, "cut at {cut} of {text:?}: {first:?}");
            }
        }
        whole.1
    }

    #[track_caller]
    fn whole(text: &str, status: u16, closes: bool) {
        assert_eq!(read(HttpVersion::Http11, text), HttpStep::Whole { status, closes }, "{text:?}");
    }

    #[test]
    fn replies_end_with_their_last_byte() {
        whole("HTTP/1.1 200 OK\r\ncontent-LENGTH: 5\r\n\r\nhello", 200, false);
        whole("HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\nConnection: x, Close\r\n\r\n", 404, true);
        whole("HTTP/1.1 304 Not Modified\r\nContent-Length: 5\r\n\r\n", 304, false);
        whole("HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 204 \r\n\r\n", 204, false);
        let chunks = "5\r\nhello\r\nA;x=1\r\n0123456789\r\n0\r\nTrailer: 1\r\n\r\n";
        whole(&format!("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n{chunks}"), 200, false);
        let (len, step) = HttpReader::new(HttpVersion::Http11)
            .advance(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nhiHTTP/1.1");
        assert_eq!((len, step), (40, HttpStep::Whole { status: 200, closes: false }));
    }

    #[test]
    fn http_1_0_persists_only_by_agreement() {
        let old = "HTTP/1.0 200 OK\r\nContent-Length: 0\r\n\r\n";
        let keeps = "HTTP/1.1 200 OK\r\nContent-Length: 0\r\nConnection: keep-alive\r\n\r\n";
        let closes = |version, text| match read(version, text) {
            HttpStep::Whole { closes, .. } => closes,
            other => panic!("{other:?}"),
        };
        assert!(closes(HttpVersion::Http11, old) && closes(HttpVersion::Http10, old));
        assert!(!closes(HttpVersion::Http11, keeps) && !closes(HttpVersion::Http10, keeps));
        assert!(closes(HttpVersion::Http10, &keeps.replace("keep-alive", "upgrade")));
    }

    #[test]
    fn a_reply_without_a_length_ends_with_its_connection() {
        let mut reader = HttpReader::new(HttpVersion::Http10);
        let text = b"HTTP/1.0 200 OK\r\n\r\nany bytes";
        assert_eq!(reader.advance(&text[..10]), (0, HttpStep::NeedMore));
        assert_eq!(reader.finish(), None, "the head is cut");
        assert_eq!(reader.advance(text), (text.len(), HttpStep::NeedMore));
        assert_eq!(reader.finish(), Some(HttpStep::Whole { status: 200, closes: true }));
    }

    #[test]
    fn what_the_rfc_forbids_is_broken() {
        for text in [
            "HTTP/1.1 200 OK\r\nContent-Length: +5\r\n\r\nhello",
            "HTTP/1.1 200 OK\r\nContent-Length: 5\r\nContent-Length: 6\r\n\r\nhello",
            "HTTP/1.1 200 OK\r\nContent-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\nhello",
            "HTTP/1.1 200 OK\r\nTransfer-Encoding: gzip\r\n\r\n",
            "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nx\r\n",
            "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n1\r\nab\r\n",
            "HTTP/1.1 200 OK\r\nno colon\r\n\r\n",
            "HTTP/1.1 2x0 OK\r\nContent-Length: 5\r\n\r\nhello",
            "HTTP/2 200\r\n\r\n",
            "STORED\r\n\r\n",
        ] {
            assert!(matches!(read(HttpVersion::Http11, text), HttpStep::Broken(_)), "{text:?}");
        }
        let long = HttpReader::new(HttpVersion::Http11).advance(&[b'x'; HEAD_BYTES_MAX]);
        assert!(matches!(long, (0, HttpStep::Broken(_))), "{long:?}");
    }

    #[test]
    fn a_request_asks_for_what_the_version_does_not_imply() {
        let text = |version, is_last| {
            let request = HttpRequest { version, path: "/a?b".to_owned(), ..HttpRequest::default() };
            String::from_utf8(request.bytes(is_last)).unwrap()
        };
        assert_eq!(text(HttpVersion::Http11, false), "GET /a?b HTTP/1.1\r\nHost: flick-load\r\n\r\n");
        assert!(text(HttpVersion::Http11, true).ends_with("\r\nConnection: close\r\n\r\n"));
        assert!(text(HttpVersion::Http10, false).ends_with("\r\nConnection: keep-alive\r\n\r\n"));
        assert!(!text(HttpVersion::Http10, true).contains("Connection"));
    }
}
