//! Verdicts as data: reads `tests/http/requests.txt` and `replies.txt`, whose heads say how they are written.
//! Promises: a table that is not written as its head says is a panic that names the line.

use super::Asked;

/// The table of requests.
pub const REQUESTS: &str = include_str!("../../../../tests/http/requests.txt");
/// The table of replies.
pub const REPLIES: &str = include_str!("../../../../tests/http/replies.txt");

/// One case of a table.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Case {
    /// Its name, unlike all others of its table.
    pub name: String,
    /// Kind of the request that a reply answers; always `Get` in the table of requests.
    pub asked: Asked,
    /// The class of failures, `H1` to `H24`, or `-`.
    pub class: String,
    /// The section of the RFC that decides.
    pub section: String,
    /// The verdict, as the table's head lists them.
    pub verdict: String,
    /// Bytes of the message.
    pub bytes: Vec<u8>,
    /// Position at which the next message begins.
    pub next: usize,
    /// The body, taken out of its chunks.
    pub body: Vec<u8>,
}

/// Reads the table of requests.
pub fn requests() -> Vec<Case> {
    read(REQUESTS, false)
}

/// Reads the table of replies.
pub fn replies() -> Vec<Case> {
    read(REPLIES, true)
}

fn read(table: &str, of_replies: bool) -> Vec<Case> {
    let mut cases: Vec<Case> = Vec::new();
    let mut text = String::new();
    for line in table.lines().chain([""]) {
        if let Some(bytes) = line.strip_prefix("  ") {
            text.push_str(bytes);
            continue;
        }
        if let Some(case) = cases.last_mut().filter(|_| !text.is_empty()) {
            (case.bytes, case.next) = bytes(&std::mem::take(&mut text));
        }
        if line.is_empty() || line.starts_with('#') {
            continue;
        }
        let parts: Vec<&str> = line.split(" | ").collect();
        let (name, asked, rest) = match (of_replies, parts.as_slice()) {
            (false, [name, rest @ ..]) => (name, Asked::Get, rest),
            (true, [name, asked, rest @ ..]) => (name, asked_of(asked), rest),
            _ => panic!("a line without its parts: {line}"),
        };
        let ([class, section, verdict] | [class, section, verdict, _]) = rest else {
            panic!("class, section, verdict and body are expected: {line}");
        };
        assert!(cases.iter().all(|case| case.name != *name), "`{name}` stands there twice");
        cases.push(Case {
            name: (*name).to_owned(),
            asked,
            class: (*class).to_owned(),
            section: (*section).to_owned(),
            verdict: (*verdict).to_owned(),
            bytes: Vec::new(),
            next: 0,
            body: rest.get(3).map_or_else(Vec::new, |body| bytes(body).0),
        });
    }
    cases
}

fn asked_of(text: &str) -> Asked {
    match text {
        "GET" => Asked::Get,
        "GET/1.0" => Asked::Get10,
        "HEAD" => Asked::Head,
        "CONNECT" => Asked::Connect,
        "UPGRADE" => Asked::Upgrade,
        _ => panic!("`{text}` is none of what may be asked"),
    }
}

/// Returns the bytes that an escaped text stands for, and the position of the mark in them: the end, without a mark.
pub(super) fn bytes(text: &str) -> (Vec<u8>, usize) {
    let mut out = Vec::new();
    let mut mark = None;
    let mut rest = text.as_bytes();
    while let Some((first, behind)) = rest.split_first() {
        rest = behind;
        if *first != b'\\' {
            out.push(*first);
            continue;
        }
        let (kind, behind) = rest.split_first().unwrap_or_else(|| panic!("`\\` at the end: {text}"));
        rest = behind;
        match kind {
            b'r' => out.push(b'\r'),
            b'n' => out.push(b'\n'),
            b't' => out.push(b'\t'),
            b'0' => out.push(0),
            b'\\' => out.push(b'\\'),
            b'|' => mark = Some(out.len()),
            b'x' => {
                let digits = std::str::from_utf8(&rest[..2]).expect("two hex digits");
                out.push(u8::from_str_radix(digits, 16).expect("two hex digits"));
                rest = &rest[2..];
            }
            b'*' => {
                let (times, inner, behind) = repeated(rest);
                out.extend(bytes(inner).0.repeat(times));
                rest = behind;
            }
            _ => panic!("`\\{}` means nothing: {text}", char::from(*kind)),
        }
    }
    let next = mark.unwrap_or(out.len());
    (out, next)
}

/// Number and text of `N{text}`, in which braces are paired, and what is behind it.
fn repeated(text: &[u8]) -> (usize, &str, &[u8]) {
    let open = text.iter().position(|byte| *byte == b'{').expect("`{` behind the number");
    let times = std::str::from_utf8(&text[..open]).expect("digits").parse().expect("a number of times");
    let mut depth = 0;
    for (at, byte) in text.iter().enumerate().skip(open) {
        match byte {
            b'{' => depth += 1,
            b'}' => depth -= 1,
            _ => continue,
        }
        if depth == 0 {
            let inner = std::str::from_utf8(&text[open + 1..at]).expect("the table is UTF-8");
            return (times, inner, &text[at + 1..]);
        }
    }
    panic!("`{{` without `}}`");
}

#[cfg(test)]
mod tests {
    use super::{replies, requests};

    /// Minimum number of requests in the table, as the issue requires.
    const REQUESTS_MIN: usize = 150;
    const REPLIES_MIN: usize = 80;

    #[test]
    fn the_tables_are_read_whole() {
        let (requests, replies) = (requests(), replies());
        assert!(requests.len() >= REQUESTS_MIN, "{} requests", requests.len());
        assert!(replies.len() >= REPLIES_MIN, "{} replies", replies.len());
        for case in requests.iter().chain(&replies) {
            assert!(!case.bytes.is_empty(), "`{}` has no bytes", case.name);
        }
    }

    #[test]
    fn escapes_and_repetitions() {
        let (bytes, next) = super::bytes(r"a\r\n\x7f\0\*3{b\*2{c}}\|d\\");
        assert_eq!((bytes.as_slice(), next), (b"a\r\n\x7f\0bccbccbccd\\".as_slice(), 14));
    }
}
