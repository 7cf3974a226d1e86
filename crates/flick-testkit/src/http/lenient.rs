//! Readers of requests that depart from RFC 9112 as servers in the field have done, each in its own way.
//! Promises: independent of flick's grammar and of the strict reader; where a request leaves no choice, all of them
//! read what RFC 9112 says.
//! Not here: limits, replies, what is in a body.
//! Source: published reports of request smuggling (PortSwigger, the HTTP Garden) and RFC 9112 section 11.

/// A way in which a reader departs from RFC 9112.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Leniency {
    /// Content-Length overrides Transfer-Encoding, and unknown codings are ignored.
    PrefersLength,
    /// Every Transfer-Encoding that contains `chunked` means chunks, in every version.
    PrefersChunks,
    /// Transfer-Encoding means nothing in HTTP/1.0.
    OldVersion,
    /// The last of several fields of one name counts.
    LastField,
    /// LF alone ends a line.
    BareLf,
    /// CR alone ends a line.
    BareCr,
    /// A line that begins with a blank continues the field before it.
    ObsFold,
    /// Blanks around a field name are ignored.
    BlankBeforeColon,
    /// A field name ends at its first blank, also if there is no colon.
    NoColon,
    /// Numbers may have a sign, a prefix of their base, underscores, and anything behind them.
    LooseNumbers,
    /// Control characters, NEL and NBSP are blanks.
    WideBlanks,
    /// A NUL ends a name and a value.
    NulEnds,
    /// The Host field overrides the host in the target.
    HostField,
    /// The two bytes behind a chunk are skipped unread.
    AnyChunkEnd,
}

use Leniency::{
    AnyChunkEnd, BareCr, BareLf, BlankBeforeColon, HostField, LastField, LooseNumbers, NoColon, NulEnds,
    ObsFold, OldVersion, PrefersChunks, PrefersLength, WideBlanks,
};

/// The readers: each leniency alone, then some that go together in known servers.
pub const READERS: [&[Leniency]; 18] = [
    &[PrefersLength],
    &[PrefersChunks],
    &[OldVersion],
    &[LastField],
    &[BareLf],
    &[BareCr],
    &[ObsFold],
    &[BlankBeforeColon],
    &[NoColon],
    &[LooseNumbers],
    &[WideBlanks],
    &[NulEnds],
    &[HostField],
    &[AnyChunkEnd],
    &[BareLf, ObsFold, BlankBeforeColon],
    &[PrefersLength, LastField, LooseNumbers, BareLf],
    &[PrefersChunks, BareLf, BareCr, ObsFold, WideBlanks, AnyChunkEnd],
    &[PrefersChunks, BlankBeforeColon, WideBlanks, LooseNumbers, NulEnds],
];

/// The parts of a request that a server acts on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Understood {
    /// The method.
    pub method: Vec<u8>,
    /// The target, without scheme and host.
    pub target: Vec<u8>,
    /// The host that the request is for.
    pub host: Vec<u8>,
    /// Position of the next message.
    pub end: usize,
}

/// Reason for which a reader has stopped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stop {
    /// All bytes are read.
    End,
    /// A request has begun and more bytes are needed.
    Short,
    /// It answers 400 and closes.
    Refused,
}

type Read<T> = Result<T, Stop>;
type Field = (Vec<u8>, Vec<u8>);
/// Method, target and version, which HTTP/0.9 lacks.
type RequestLine<'l> = (&'l [u8], &'l [u8], Option<&'l [u8]>);

/// Reads all requests of a connection.
pub fn read(bytes: &[u8], allowed: &[Leniency]) -> (Vec<Understood>, Stop) {
    let reader = Reader { bytes, allowed };
    let (mut found, mut at) = (Vec::new(), 0);
    loop {
        match reader.request(at) {
            Ok(request) => {
                at = request.end;
                found.push(request);
            }
            Err(stop) => return (found, stop),
        }
    }
}

/// Splits a target into what is left without scheme and host, and the host.
pub fn split_target<'a>(method: &[u8], target: &'a [u8]) -> (Vec<u8>, Option<&'a [u8]>) {
    let scheme = [b"http://".as_slice(), b"https://"]
        .into_iter()
        .find(|scheme| target.len() >= scheme.len() && target[..scheme.len()].eq_ignore_ascii_case(scheme));
    let Some(scheme) = scheme else { return (target.to_vec(), None) };
    let rest = &target[scheme.len()..];
    let (host, path) = rest.split_at(rest.iter().position(|byte| b"/?".contains(byte)).unwrap_or(rest.len()));
    let path = match path.first() {
        None if method == b"OPTIONS" => b"*".to_vec(),
        Some(b'/') => path.to_vec(),
        _ => [b"/", path].concat(),
    };
    (path, Some(host))
}

struct Reader<'a> {
    bytes: &'a [u8],
    allowed: &'a [Leniency],
}

impl<'a> Reader<'a> {
    fn allows(&self, leniency: Leniency) -> bool {
        self.allowed.contains(&leniency)
    }

    fn is_blank(&self, byte: u8) -> bool {
        matches!(byte, b' ' | b'\t')
            || self.allows(WideBlanks)
                && matches!(byte, b'\r' | b'\n' | 0x0b | 0x0c | 0x1c..=0x1f | 0x85 | 0xa0)
    }

    fn trimmed<'t>(&self, text: &'t [u8]) -> &'t [u8] {
        let text = match text.iter().position(|byte| *byte == 0) {
            Some(at) if self.allows(NulEnds) => &text[..at],
            _ => text,
        };
        let start = text.iter().position(|byte| !self.is_blank(*byte)).unwrap_or(text.len());
        let end = text.iter().rposition(|byte| !self.is_blank(*byte)).map_or(start, |last| last + 1);
        &text[start..end]
    }

    /// The line at a position, and where the next one begins.
    fn line(&self, at: usize) -> Read<(&'a [u8], usize)> {
        let rest = self.bytes.get(at..).unwrap_or_default();
        for (index, byte) in rest.iter().enumerate() {
            let next = at + index + 1;
            match byte {
                b'\r' if rest.get(index + 1) == Some(&b'\n') => return Ok((&rest[..index], next + 1)),
                b'\r' if self.allows(BareCr) => {
                    // A LF may follow that belongs to it.
                    let is_last = index + 1 == rest.len();
                    return if is_last { Err(Stop::Short) } else { Ok((&rest[..index], next)) };
                }
                b'\n' if self.allows(BareLf) => return Ok((&rest[..index], next)),
                _ => {}
            }
        }
        Err(Stop::Short)
    }

    fn request(&self, start: usize) -> Read<Understood> {
        let mut at = start;
        let line = loop {
            if at >= self.bytes.len() {
                return Err(if at == start { Stop::End } else { Stop::Short });
            }
            let (line, next) = self.line(at)?;
            at = next;
            if !line.is_empty() {
                break line;
            }
        };
        let (method, target, version) = self.request_line(line)?;
        let Some(version) = version else {
            // HTTP/0.9 has no fields and no body.
            return Ok(Understood {
                method: method.to_vec(),
                target: target.to_vec(),
                host: Vec::new(),
                end: at,
            });
        };
        let (fields, at) = self.fields(at)?;
        let end = self.body(&fields, version == b"HTTP/1.0", at)?;
        let (target, authority) = split_target(method, target);
        let named = self.value(&fields, "host").unwrap_or_default();
        let host = match authority {
            Some(authority) if !self.allows(HostField) => authority,
            _ => named,
        };
        Ok(Understood { method: method.to_vec(), target, host: host.to_ascii_lowercase(), end })
    }

    fn request_line<'l>(&self, line: &'l [u8]) -> Read<RequestLine<'l>> {
        if self.allows(WideBlanks) {
            let mut words = line.split(|byte| self.is_blank(*byte)).filter(|word| !word.is_empty());
            return match (words.next(), words.next(), words.next()) {
                (Some(method), Some(target), version) => Ok((method, target, version)),
                _ => Err(Stop::Refused),
            };
        }
        let Some(first) = line.iter().position(|byte| *byte == b' ') else { return Err(Stop::Refused) };
        let (method, rest) = (&line[..first], &line[first + 1..]);
        let last = rest.iter().rposition(|byte| *byte == b' ');
        match last.map(|last| (&rest[..last], &rest[last + 1..])) {
            Some((target, version)) if version.starts_with(b"HTTP/") => Ok((method, target, Some(version))),
            _ => Ok((method, rest, None)),
        }
    }

    fn fields(&self, mut at: usize) -> Read<(Vec<Field>, usize)> {
        let mut fields = Vec::<Field>::new();
        loop {
            let (line, next) = self.line(at)?;
            at = next;
            if line.is_empty() {
                return Ok((fields, at));
            }
            if let (true, Some(last)) = (self.allows(ObsFold) && self.is_blank(line[0]), fields.last_mut()) {
                let more = self.trimmed(line);
                if !last.1.is_empty() {
                    last.1.push(b' ');
                }
                last.1.extend(more);
                continue;
            }
            let colon = line.iter().position(|byte| *byte == b':');
            let blank = line.iter().position(|byte| self.is_blank(*byte)).filter(|_| self.allows(NoColon));
            let Some(end) = colon.or(blank) else { continue };
            let (name, value) = (&line[..end], self.trimmed(&line[end + 1..]));
            let trims = self.allows(BlankBeforeColon) || self.allows(WideBlanks) || self.allows(NulEnds);
            let name = if trims { self.trimmed(name) } else { name };
            fields.push((name.to_ascii_lowercase(), value.to_vec()));
        }
    }

    fn value<'f>(&self, fields: &'f [Field], name: &str) -> Option<&'f [u8]> {
        let mut values =
            fields.iter().filter(|(known, _)| known == name.as_bytes()).map(|(_, value)| &value[..]);
        if self.allows(LastField) { values.next_back() } else { values.next() }
    }

    /// Returns the end of the body.
    fn body(&self, fields: &[Field], is_1_0: bool, at: usize) -> Read<usize> {
        let (length, coding) =
            (self.value(fields, "content-length"), self.value(fields, "transfer-encoding"));
        let coding = coding.filter(|_| !(is_1_0 && self.allows(OldVersion)));
        let coding = coding.map(|value| {
            let value = value.to_ascii_lowercase();
            value == b"chunked"
                || self.allows(PrefersChunks) && value.windows(7).any(|window| window == b"chunked")
        });
        let ignores = self.allows(PrefersLength) || self.allows(PrefersChunks);
        match (length, coding) {
            (Some(length), _) if self.allows(PrefersLength) => self.sized(length, at),
            (_, Some(true)) => self.chunks(at),
            (_, Some(false)) if !ignores => Err(Stop::Refused),
            (Some(length), _) => self.sized(length, at),
            (None, _) => Ok(at),
        }
    }

    fn sized(&self, length: &[u8], at: usize) -> Read<usize> {
        let length = if self.allows(LooseNumbers) { loose(length, 10) } else { digits(length, 10) };
        self.skipped(at, length.ok_or(Stop::Refused)?)
    }

    fn skipped(&self, at: usize, count: u64) -> Read<usize> {
        if count > (self.bytes.len() - at) as u64 { Err(Stop::Short) } else { Ok(at + count as usize) }
    }

    fn chunks(&self, mut at: usize) -> Read<usize> {
        loop {
            let (line, next) = self.line(at)?;
            let size = if self.allows(LooseNumbers) {
                loose(line, 16)
            } else {
                let line = if self.allows(WideBlanks) { self.trimmed(line) } else { line };
                let len = line.iter().position(|byte| !byte.is_ascii_hexdigit()).unwrap_or(line.len());
                digits(&line[..len], 16)
            };
            let size = size.ok_or(Stop::Refused)?;
            if size == 0 {
                return Ok(self.fields(next)?.1);
            }
            at = self.skipped(next, size)?;
            at = if self.allows(AnyChunkEnd) { self.skipped(at, 2)? } else { self.chunk_end(at)? };
        }
    }

    fn chunk_end(&self, at: usize) -> Read<usize> {
        let (line, next) = self.line(at)?;
        if line.is_empty() { Ok(next) } else { Err(Stop::Refused) }
    }
}

/// A number that consists of digits.
fn digits(text: &[u8], radix: u32) -> Option<u64> {
    let text = std::str::from_utf8(text).ok().filter(|text| !text.starts_with('+'))?;
    // A larger number asks for bytes that never come.
    u64::from_str_radix(text, radix).ok().filter(|number| *number <= u64::MAX / 2)
}

/// A number as C and Python read it: the longest front that is one, with its sign and the prefix of its base.
fn loose(text: &[u8], radix: u32) -> Option<u64> {
    let text: Vec<u8> = text.trim_ascii().iter().copied().filter(|byte| *byte != b'_').collect();
    let text = text.strip_prefix(b"+").or(text.strip_prefix(b"-")).unwrap_or(&text);
    let lower = text.to_ascii_lowercase();
    let (text, radix) = match lower.strip_prefix(b"0x") {
        Some(rest) => (rest, 16),
        None => (lower.as_slice(), radix),
    };
    let len = text.iter().position(|byte| !char::from(*byte).is_digit(radix)).unwrap_or(text.len());
    digits(&text[..len], radix).or((len == 0).then_some(0))
}
