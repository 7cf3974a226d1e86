//! Judges what a server receives: whether all readers see the same requests in it.
//! Promises: the strict reader accepts what has one meaning, and every lenient reader agrees with it on where requests
//! begin and end and on method, target and host.

use super::lenient::{Leniency, READERS, Stop, Understood, read, split_target};
use super::strict::{self, HttpMessage, Trouble};

/// Two readers see different requests.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Ambiguity {
    /// In which ways the reader is lenient that departs from the others; in none: it is the strict one.
    pub reader: &'static [Leniency],
    /// The requests that it sees, and those that the others see.
    pub seen: String,
}

/// Bytes that have one meaning.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Meaning {
    /// The requests that are there whole.
    pub requests: Vec<Understood>,
    /// A further one has begun.
    pub is_cut: bool,
}

/// Reads the bytes of a connection with every reader.
///
/// Errors: the first reader that sees something else.
pub fn judge(bytes: &[u8]) -> Result<Meaning, Ambiguity> {
    let plain = read(bytes, &[]);
    let differs = |reader, seen: (Vec<Understood>, Stop)| {
        let seen = format!("it sees {}, others see {}", shown(&seen), shown(&plain));
        Err(Ambiguity { reader, seen })
    };
    for reader in READERS {
        let seen = read(bytes, reader);
        if seen != plain {
            return differs(reader, seen);
        }
    }
    let seen = strictly(bytes);
    if seen != plain || seen.1 == Stop::Refused {
        return differs(&[], seen);
    }
    Ok(Meaning { requests: seen.0, is_cut: seen.1 == Stop::Short })
}

/// Returns the parts of a strictly read request that a server acts on.
pub fn understood(message: &HttpMessage<'_>) -> Understood {
    let mut parts = message.line.split(|byte| *byte == b' ');
    let (method, target) = (parts.next().unwrap_or_default(), parts.next().unwrap_or_default());
    let (target, authority) = split_target(method, target);
    let named = message.values("host").first().copied().unwrap_or_default();
    let host = authority.unwrap_or(named).to_ascii_lowercase();
    Understood { method: method.to_vec(), target, host, end: message.next }
}

/// The requests of a connection as the strict reader sees them.
pub fn strictly(bytes: &[u8]) -> (Vec<Understood>, Stop) {
    let (mut found, mut at) = (Vec::new(), 0);
    while at < bytes.len() {
        match strict::request(&bytes[at..]) {
            Ok(message) => {
                let mut request = understood(&message);
                request.end += at;
                at = request.end;
                found.push(request);
            }
            Err(Trouble::Short) => return (found, Stop::Short),
            Err(Trouble::Bad(_)) => return (found, Stop::Refused),
        }
    }
    (found, Stop::End)
}

fn shown((requests, stop): &(Vec<Understood>, Stop)) -> String {
    let each = requests.iter().map(|request| {
        let Understood { method, target, host, end } = request;
        let text = |bytes: &[u8]| bytes.escape_ascii().to_string();
        format!("{} {} of `{}` up to {end}", text(method), text(target), text(host))
    });
    let mut parts: Vec<String> = each.collect();
    parts.push(format!("{stop:?}"));
    format!("[{}]", parts.join(", "))
}

#[cfg(test)]
mod tests {
    use super::{Leniency, judge};
    use crate::generate::Rng;
    use crate::http::generate;

    /// Output of forwarders with one bug each, and the reader that sees something else in it than others.
    const AMBIGUOUS: [(&str, Leniency); 15] = [
        (
            "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 6\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\nG",
            Leniency::PrefersLength,
        ),
        (
            "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\nTransfer-Encoding: xchunked\r\n\r\n0\r\n\r\n",
            Leniency::PrefersLength,
        ),
        (
            "POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked, identity\r\n\r\n0\r\n\r\n",
            Leniency::PrefersLength,
        ),
        (
            "POST / HTTP/1.0\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\n\r\n",
            Leniency::OldVersion,
        ),
        (
            "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 0\r\nContent-Length: 5\r\n\r\nhello",
            Leniency::LastField,
        ),
        ("GET / HTTP/1.1\r\nHost: a\r\nHost: b\r\n\r\n", Leniency::LastField),
        ("GET / HTTP/1.1\r\nHost: a\r\nX: y\n\nGET /2 HTTP/1.1\r\n\r\n", Leniency::BareLf),
        ("POST / HTTP/1.1\r\nHost: a\r\nX: y\rContent-Length: 5\r\n\r\nhello", Leniency::BareCr),
        ("POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 1\r\n 0\r\n\r\nx", Leniency::ObsFold),
        ("POST / HTTP/1.1\r\nHost: a\r\nContent-Length : 5\r\n\r\nhello", Leniency::BlankBeforeColon),
        ("POST / HTTP/1.1\r\nHost: a\r\nContent-Length 5\r\n\r\nhello", Leniency::NoColon),
        ("POST / HTTP/1.1\r\nHost: a\r\nContent-Length: +5\r\n\r\nhello", Leniency::LooseNumbers),
        ("GET / HTTP/1.1\r\nHost: a\u{b}\r\n\r\n", Leniency::WideBlanks),
        ("GET / HTTP/1.1\r\nHost: a\0b\r\n\r\n", Leniency::NulEnds),
        ("GET http://a/ HTTP/1.1\r\nHost: b\r\n\r\n", Leniency::HostField),
    ];

    #[test]
    fn every_reader_finds_what_a_forwarder_should_not_have_sent() {
        for (text, leniency) in AMBIGUOUS {
            let found = judge(text.as_bytes()).expect_err(text);
            assert_eq!(found.reader.first(), Some(&leniency), "{}: {found:?}", text.escape_debug());
        }
        let chunks = "POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhelloXX0\r\n\r\n";
        let found = judge(chunks.as_bytes()).expect_err("a chunk without its end");
        assert_eq!(found.reader, [Leniency::AnyChunkEnd], "{found:?}");
    }

    #[test]
    fn what_only_the_strict_reader_refuses_is_found() {
        let found = judge(b"G(T / HTTP/1.1\r\nHost: a\r\n\r\n").expect_err("a method that is none");
        assert!(found.reader.is_empty(), "{found:?}");
    }

    #[test]
    fn plain_requests_have_one_meaning() {
        for seed in 0..2000 {
            let mut rng = Rng::new(seed);
            let (mut bytes, _) = generate::request(&mut rng);
            let whole = judge(&bytes).unwrap_or_else(|found| panic!("seed {seed}: {found:?}"));
            assert_eq!((whole.requests.len(), whole.is_cut), (1, false), "seed {seed}");
            bytes.truncate(1 + rng.below(bytes.len() as u32 - 1) as usize);
            let cut = judge(&bytes).unwrap_or_else(|found| panic!("seed {seed}: {found:?}"));
            assert!(cut.requests.len() + usize::from(cut.is_cut) <= 1, "seed {seed}: {cut:?}");
        }
    }
}
