//! Reads requests and replies by the letter of RFC 9112, with all bytes at hand, and refuses what has two meanings.
//! Promises: independent of flick's grammar; where the RFC leaves a choice it takes the stricter one, which is what
//! `stdlib/http.flick` says of itself. Slow, and proud of it.

use super::Asked;

/// Bytes up to the body: a limit of flick's own, which the RFC leaves to the server.
const HEAD_BYTES_MAX: usize = 16 * 1024;
/// Fields of a request, and of a response or a trailer.
const REQUEST_FIELDS_MAX: usize = 134;
const FIELDS_MAX: usize = 128;

/// Names that a `Connection` field may list, unless the connection is upgraded: another limit of flick's own.
const LISTED_NAMES_MAX: usize = 32;

/// A field's name and value without the blanks around it.
pub type HttpField<'a> = (&'a [u8], &'a [u8]);

/// A message that is there whole.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HttpMessage<'a> {
    /// Request line or status line.
    pub line: &'a [u8],
    /// The fields in their order.
    pub fields: Vec<HttpField<'a>>,
    /// The body, taken out of its chunks.
    pub body: Vec<u8>,
    /// Position at which the next message begins.
    pub next: usize,
    /// Continuation of the connection after the message.
    pub end: BodyEnd,
}

/// Continuation of a connection after a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BodyEnd {
    /// The next message may follow.
    Next,
    /// Nothing: it closes.
    Last,
    /// The final reply, behind an interim one.
    More,
    /// Bytes that are no HTTP.
    Tunnel,
    /// The body lasts until the connection ends.
    Close,
}

/// Reason that no message can be read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Trouble {
    /// It is not HTTP, or is ambiguous.
    Bad(&'static str),
    /// More bytes are needed.
    Short,
}

type Read<T> = Result<T, Trouble>;

impl HttpMessage<'_> {
    /// The values of all fields of this name.
    pub fn values(&self, name: &str) -> Vec<&[u8]> {
        values(&self.fields, name)
    }

    /// Whether a comma list of the field holds the token, in any case.
    pub fn has_token(&self, name: &str, token: &str) -> bool {
        has_token(&self.fields, name, token)
    }
}

/// Reads the request at the front of `bytes`.
pub fn request(bytes: &[u8]) -> Read<HttpMessage<'_>> {
    let start = (0..2).take_while(|line| bytes[2 * line..].starts_with(b"\r\n")).count() * 2;
    let (line, at) = line(bytes, start)?;
    let mut parts = line.split(|byte| *byte == b' ');
    let (method, target) = (parts.next().unwrap_or_default(), parts.next().unwrap_or_default());
    let version = parts.next().unwrap_or_default();
    must(parts.next().is_none(), "a request line of three parts")?;
    must((1..=32).contains(&method.len()) && method.iter().all(|byte| is_token(*byte)), "a method")?;
    must(target.len() <= 8192 && target.iter().all(|b| b.is_ascii_graphic() && *b != b'#'), "a target")?;
    let is_1_1 = is_1_1(version)?;
    let (fields, at) = fields(bytes, at, REQUEST_FIELDS_MAX)?;
    let host = once(&fields, "host")?;
    must(host.is_some() || !is_1_1, "a Host")?;
    let host = host.unwrap_or_default();
    must(host.iter().all(|byte| byte.is_ascii() && !b"@/?#, \t\\".contains(byte)), "a Host that is one")?;
    must(target_fits(method, target), "a target of one of four forms")?;
    for hidden in ["host", "content-length", "transfer-encoding"] {
        must(!has_token(&fields, "connection", hidden), "a Connection that hides nothing")?;
    }
    let framing = framing(&fields, is_1_1)?;
    must(method != b"CONNECT" || matches!(framing, Framing::None | Framing::Sized(0)), "no body of CONNECT")?;
    let (body, next) = match framing {
        Framing::None => (Vec::new(), at),
        Framing::Sized(len) => sized(bytes, at, len)?,
        Framing::Chunked => chunked(bytes, at)?,
    };
    let keeps = is_1_1 || has_token(&fields, "connection", "keep-alive");
    let is_last = !keeps || has_token(&fields, "connection", "close");
    Ok(HttpMessage { line, fields, body, next, end: if is_last { BodyEnd::Last } else { BodyEnd::Next } })
}

/// Reads the reply at the front of `bytes` to a request that asked this.
pub fn reply(bytes: &[u8], asked: Asked) -> Read<HttpMessage<'_>> {
    let start = if bytes.starts_with(b"\r\n") { 2 } else { 0 };
    let (line, at) = line(bytes, start)?;
    must(line.len() >= 12 && line[8] == b' ', "a status line")?;
    let is_1_1 = is_1_1(&line[..8])?;
    must(line[9..12].iter().all(u8::is_ascii_digit), "three digits")?;
    let status = line[9..12].iter().fold(0, |sum, digit| sum * 10 + u32::from(digit - b'0'));
    must(status >= 100, "a status from 100")?;
    must(!line.get(12).is_some_and(u8::is_ascii_digit), "three digits")?;
    must(line.get(12).is_none_or(|byte| *byte == b' '), "a space before a reason")?;
    let reason = &line[line.len().min(13)..];
    must(reason.len() <= 8192 && reason.iter().all(|byte| is_of_value(*byte)), "a reason")?;
    let (fields, at) = fields(bytes, at, FIELDS_MAX)?;
    for hidden in ["content-length", "transfer-encoding"] {
        must(!has_token(&fields, "connection", hidden), "a Connection that hides nothing")?;
    }
    let framing = framing(&fields, is_1_1)?;
    must(framing != Framing::Chunked || is_1_1, "no chunks in HTTP/1.0")?;
    must(status != 101 || asked == Asked::Upgrade, "no switch without a request for it")?;
    must(status != 101 || !has_token(&fields, "upgrade", "h2c"), "no switch to HTTP/2")?;
    let connected = asked == Asked::Connect && (200..300).contains(&status);
    let is_bodyless = asked == Asked::Head || status < 200 || status == 204 || status == 304 || connected;
    let closes = has_token(&fields, "connection", "close")
        || !is_1_1 && !has_token(&fields, "connection", "keep-alive");
    let end = match () {
        () if status == 101 || connected => BodyEnd::Tunnel,
        () if status < 200 => BodyEnd::More,
        () if framing == Framing::None && !is_bodyless => BodyEnd::Close,
        () if closes => BodyEnd::Last,
        () => BodyEnd::Next,
    };
    let (body, next) = match framing {
        _ if is_bodyless => (Vec::new(), at),
        Framing::None => (bytes[at..].to_vec(), bytes.len()),
        Framing::Sized(len) => sized(bytes, at, len)?,
        Framing::Chunked => chunked(bytes, at)?,
    };
    Ok(HttpMessage { line, fields, body, next, end })
}

fn must(holds: bool, what: &'static str) -> Read<()> {
    if holds { Ok(()) } else { Err(Trouble::Bad(what)) }
}

fn is_token(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&byte)
}

fn is_of_value(byte: u8) -> bool {
    byte == b'\t' || byte >= b' ' && byte != 0x7f
}

fn is_blank(byte: u8) -> bool {
    byte == b' ' || byte == b'\t'
}

/// The bytes up to CRLF, and where the next line begins.
fn line(bytes: &[u8], at: usize) -> Read<(&[u8], usize)> {
    let rest = &bytes[at..];
    let Some(len) = rest.windows(2).position(|two| two == b"\r\n") else { return Err(Trouble::Short) };
    let line = &rest[..len];
    must(!line.iter().any(|byte| *byte == b'\r' || *byte == b'\n'), "no line end inside a line")?;
    Ok((line, at + len + 2))
}

fn is_1_1(version: &[u8]) -> Read<bool> {
    let minor =
        version.strip_prefix(b"HTTP/1.").filter(|minor| minor.len() == 1 && minor[0].is_ascii_digit());
    must(minor.is_some(), "a version")?;
    Ok(minor != Some(b"0"))
}

fn fields(bytes: &[u8], start: usize, fields_max: usize) -> Read<(Vec<HttpField<'_>>, usize)> {
    let mut at = start;
    let mut fields = Vec::new();
    loop {
        let (text, next) = line(bytes, at)?;
        at = next;
        if text.is_empty() {
            must(at - start <= HEAD_BYTES_MAX, "a head of 16 KiB at most")?;
            let lists = |value: &[u8]| items(value).filter(|item| !item.is_empty()).count();
            let most = values(&fields, "connection").into_iter().map(lists).max().unwrap_or(0);
            let is_upgraded = has_token(&fields, "connection", "upgrade");
            must(is_upgraded || most <= LISTED_NAMES_MAX, "a Connection of 32 names at most")?;
            return Ok((fields, at));
        }
        must(fields.len() < fields_max, "as many fields as the grammar allows")?;
        let colon = text.iter().position(|byte| *byte == b':').unwrap_or(0);
        let (name, value) = (&text[..colon], &text[colon + 1..]);
        must((1..=256).contains(&name.len()) && name.iter().all(|byte| is_token(*byte)), "a name")?;
        let from = value.iter().position(|byte| !is_blank(*byte)).unwrap_or(value.len());
        must(from <= 64 && value.len() - from <= 8192, "a value of 8 KiB at most")?;
        must(value.iter().all(|byte| is_of_value(*byte)), "no controls in values")?;
        let end = value.iter().rposition(|byte| !is_blank(*byte)).map_or(from, |last| last + 1);
        fields.push((name, &value[from..end]));
    }
}

fn values<'a>(fields: &[HttpField<'a>], name: &str) -> Vec<&'a [u8]> {
    let named = fields.iter().filter(|(known, _)| known.eq_ignore_ascii_case(name.as_bytes()));
    named.map(|(_, value)| *value).collect()
}

fn once<'a>(fields: &[HttpField<'a>], name: &str) -> Read<Option<&'a [u8]>> {
    let values = values(fields, name);
    must(values.len() <= 1, "a field that stands there once")?;
    Ok(values.first().copied())
}

/// The items of a list with commas, without the blanks around them.
fn items(value: &[u8]) -> impl Iterator<Item = &[u8]> {
    value.split(|byte| *byte == b',').map(<[u8]>::trim_ascii)
}

fn has_token(fields: &[HttpField<'_>], name: &str, token: &str) -> bool {
    let is_token = |item: &[u8]| item.eq_ignore_ascii_case(token.as_bytes());
    values(fields, name).into_iter().any(|value| items(value).any(is_token))
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Framing {
    None,
    Sized(u64),
    Chunked,
}

fn framing(fields: &[HttpField<'_>], is_1_1: bool) -> Read<Framing> {
    let length = once(fields, "content-length")?;
    let coding = once(fields, "transfer-encoding")?;
    if let Some(digits) = length {
        must(coding.is_none(), "one way to frame")?;
        let is_short = (1..=LENGTH_DIGITS_MAX).contains(&digits.len());
        must(is_short && digits.iter().all(u8::is_ascii_digit), "a length of 1 to 19 digits")?;
        let text = std::str::from_utf8(digits).map_err(|_| Trouble::Bad("digits"))?;
        // Beyond 63 bits no length is a length.
        let len = text.parse::<i64>().map_err(|_| Trouble::Bad("a length that is one"))?;
        return Ok(Framing::Sized(len.unsigned_abs()));
    }
    let Some(coding) = coding else { return Ok(Framing::None) };
    must(is_1_1 && coding.eq_ignore_ascii_case(b"chunked"), "chunked, of HTTP/1.1")?;
    Ok(Framing::Chunked)
}

/// RFC 9112 §3.2.
fn target_fits(method: &[u8], target: &[u8]) -> bool {
    if method == b"CONNECT" {
        return target.contains(&b':') && !target.iter().any(|byte| b"@/?,\\".contains(byte));
    }
    let lower = target.to_ascii_lowercase();
    let rest = lower.strip_prefix(b"http://").or_else(|| lower.strip_prefix(b"https://"));
    let is_absolute = rest.is_some_and(|rest| {
        let end = rest.iter().position(|byte| b"/?".contains(byte)).unwrap_or(rest.len());
        end > 0 && !rest[..end].iter().any(|byte| b"@,\\".contains(byte))
    });
    target.starts_with(b"/") || target == b"*" && method == b"OPTIONS" || is_absolute
}

fn sized(bytes: &[u8], at: usize, len: u64) -> Read<(Vec<u8>, usize)> {
    if ((bytes.len() - at) as u64) < len {
        return Err(Trouble::Short);
    }
    let end = at + len as usize;
    Ok((bytes[at..end].to_vec(), end))
}

/// Digits that any length has at most.
const LENGTH_DIGITS_MAX: usize = 19;
/// Fields that no trailer may contain (RFC 9110 §6.5.1, §7.6.1): framing, routing, the connection.
const OF_HEADS_ALONE: [&str; 9] = [
    "host",
    "content-length",
    "transfer-encoding",
    "connection",
    "keep-alive",
    "proxy-connection",
    "te",
    "trailer",
    "upgrade",
];

fn chunked(bytes: &[u8], mut at: usize) -> Read<(Vec<u8>, usize)> {
    let (mut body, mut extensions) = (Vec::new(), 0);
    loop {
        let (text, next) = line(bytes, at)?;
        let digits = text.iter().position(|byte| !byte.is_ascii_hexdigit()).unwrap_or(text.len());
        let zeros =
            text[..digits].iter().take_while(|byte| **byte == b'0').count().min(digits.saturating_sub(1));
        must((1..=15).contains(&(digits - zeros)) && digits <= 15 + 64, "a size of 1 to 15 hex digits")?;
        let blanks = text[digits..].iter().take_while(|byte| is_blank(**byte)).count();
        must(blanks <= 64, "64 blanks at most")?;
        let extension = &text[digits + blanks..];
        must(extension.is_empty() || extension[0] == b';', "an extension behind a semicolon")?;
        must(extension.iter().all(|byte| is_of_value(*byte)), "no controls in extensions")?;
        must(extension.len() <= 8192, "an extension of 8 KiB at most")?;
        extensions += extension.len();
        must(extensions <= 16 * 1024, "16 KiB of extensions at most")?;
        let size =
            std::str::from_utf8(&text[..digits]).ok().and_then(|text| u64::from_str_radix(text, 16).ok());
        let size = size.unwrap_or(u64::MAX);
        if size == 0 {
            let (trailers, end) = fields(bytes, next, FIELDS_MAX)?;
            for framing in OF_HEADS_ALONE {
                must(values(&trailers, framing).is_empty(), "trailers that frame and route nothing")?;
            }
            return Ok((body, end));
        }
        let (chunk, end) = sized(bytes, next, size)?;
        body.extend(chunk);
        let Some(two) = bytes.get(end..end + 2) else { return Err(Trouble::Short) };
        must(two == b"\r\n", "CRLF behind a chunk")?;
        at = end + 2;
    }
}

#[cfg(test)]
mod tests {
    use super::{BodyEnd, Trouble, reply, request};
    use crate::http::table::{Case, replies, requests};

    fn check(case: &Case, found: Result<super::HttpMessage<'_>, Trouble>) {
        let name = &case.name;
        let is_refusal = case.verdict == "bad" || case.verdict.parse::<u16>().is_ok();
        match found {
            Ok(message) => {
                let end = match message.end {
                    BodyEnd::Next => "ok",
                    BodyEnd::Last if case.verdict == "close" => "close",
                    BodyEnd::Last => "ok",
                    BodyEnd::More => "more",
                    BodyEnd::Tunnel => "tunnel",
                    BodyEnd::Close => "end",
                };
                assert_eq!((end, message.next), (case.verdict.as_str(), case.next), "{name}");
                assert_eq!(message.body, case.body, "{name}");
            }
            // This reader looks at a line as soon as it has its end; a parser may wait for more first.
            Err(Trouble::Bad(what)) => assert!(is_refusal || case.verdict == "more", "{name}: {what}"),
            // What is refused may be refused before its end.
            Err(Trouble::Short) => {
                assert!(is_refusal || ["more", "short"].contains(&case.verdict.as_str()), "{name}")
            }
        }
    }

    #[test]
    fn the_strict_reader_agrees_with_the_tables() {
        for case in requests() {
            check(&case, request(&case.bytes));
        }
        for case in replies() {
            check(&case, reply(&case.bytes, case.asked));
        }
    }
}
