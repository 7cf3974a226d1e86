//! Random messages of HTTP/1.1, and random harm done to them.
//! Promises: what a seed gives never changes; what [`request`] and [`reply`] give is plain HTTP.

use super::Asked;
use crate::generate::Rng;

/// Longest body, in bytes.
const BODY_BYTES_MAX: u32 = 400;

/// A request and what its reply's framing depends on.
pub fn request(rng: &mut Rng) -> (Vec<u8>, Asked) {
    let is_1_0 = rng.one_in(8);
    let asked = match rng.below(10) {
        0 => Asked::Head,
        1 if !is_1_0 => Asked::Connect,
        2 if !is_1_0 => Asked::Upgrade,
        _ if is_1_0 => Asked::Get10,
        _ => Asked::Get,
    };
    let host = *rng.pick(&["a", "www.example.org", "example.org:8080", "[::1]:80", "10.0.0.1"]);
    let (method, target) = match asked {
        Asked::Head => ("HEAD", path(rng)),
        Asked::Connect => ("CONNECT", "a:443".to_owned()),
        _ if rng.one_in(12) => ("OPTIONS", "*".to_owned()),
        _ => {
            let method = *rng.pick(&["GET", "GET", "POST", "PUT", "DELETE", "PATCH", "X-1.a"]);
            let absolute = if rng.one_in(6) { format!("http://{host}") } else { String::new() };
            (method, absolute + &path(rng))
        }
    };
    let mut out = if rng.one_in(10) { b"\r\n".to_vec() } else { Vec::new() };
    out.extend(format!("{method} {target} HTTP/1.{}\r\n", u8::from(!is_1_0)).bytes());
    let mut fields = vec![field(rng, "Host", host)];
    some_fields(rng, &mut fields);
    match asked {
        Asked::Upgrade => {
            fields.push(field(rng, "Connection", "Upgrade, x-hop"));
            fields.push(field(rng, "Upgrade", "websocket"));
        }
        _ if rng.one_in(5) => {
            let value = *rng.pick(&["close", "keep-alive", "x-hop", "close, x-hop"]);
            fields.push(field(rng, "Connection", value));
        }
        _ => {}
    }
    let framing = match asked {
        Asked::Connect => 0,
        _ if is_1_0 => rng.below(2),
        _ => rng.below(3),
    };
    let body = body(rng, framing, &mut fields);
    (finish(rng, out, fields, body), asked)
}

/// A reply to a request that asked this. `true`: it lasts until its connection ends.
pub fn reply(rng: &mut Rng, asked: Asked) -> (Vec<u8>, bool) {
    let is_1_0 = rng.one_in(8);
    let status = match rng.below(8) {
        0 => *rng.pick(&[204, 304]),
        1 => *rng.pick(&[100, 102, 103]),
        2 if asked == Asked::Upgrade => 101,
        _ => *rng.pick(&[200, 200, 206, 301, 404, 500, 503, 599]),
    };
    let reason = *rng.pick(&["OK", "", "Not so \u{fc}ber", "a\tb"]);
    let out = format!("HTTP/1.{} {status} {reason}\r\n", u8::from(!is_1_0)).into_bytes();
    let mut fields = Vec::new();
    some_fields(rng, &mut fields);
    if rng.one_in(4) {
        let value = *rng.pick(&["close", "keep-alive", "x-hop", "keep-alive, close"]);
        fields.push(field(rng, "Connection", value));
    }
    let framing = rng.below(if is_1_0 { 2 } else { 3 });
    let is_connected = asked == Asked::Connect && (200..300).contains(&status);
    let has_body = !(asked == Asked::Head || status < 200 || status == 204 || status == 304 || is_connected);
    let mut body = body(rng, framing, &mut fields);
    if !has_body {
        body.clear();
    } else if framing == 0 {
        body = (0..rng.below(100)).map(|_| rng.word() as u8).collect();
    }
    (finish(rng, out, fields, body), has_body && framing == 0)
}

/// Does harm to a message: what a broken or malicious peer could make of it.
pub fn harm(rng: &mut Rng, bytes: &mut Vec<u8>) {
    const PIECES: &[&[u8]] = &[
        b"\r",
        b"\n",
        b"\r\n",
        b" ",
        b"\t",
        b"\0",
        b":",
        b",",
        b";",
        b"0",
        b"\x80",
        b"\x0b",
        b"+",
        b"-",
        b"#",
        b"/",
        b"\r\n ",
        b"chunked",
        b"Content-Length: 5\r\n",
        b"Transfer-Encoding: chunked\r\n",
        b"Host: b\r\n",
        b"Connection: host\r\n",
        b"\r\n\r\n",
        b"close",
        b"HTTP/1.0",
        b"HTTP/1.1",
    ];
    for _ in 0..=rng.below(2) {
        let at = rng.below(bytes.len() as u32 + 1) as usize;
        // Half of the harm is done at the end of a line, where framing is decided.
        let ends: Vec<usize> = (0..bytes.len()).filter(|at| bytes[*at] == b'\r').collect();
        let at = if ends.is_empty() || rng.one_in(2) { at } else { *rng.pick(&ends) };
        match rng.below(4) {
            0 => {
                let piece = *rng.pick(PIECES);
                bytes.splice(at..at, piece.iter().copied());
            }
            1 => {
                let end = bytes.len().min(at + 1 + rng.below(2) as usize);
                bytes.drain(at..end);
            }
            2 if at < bytes.len() => {
                bytes[at] = *rng.pick(&[0, b'\r', b'\n', b' ', b':', b'9', b'f', 0xff, b'a'])
            }
            _ => {
                let end = bytes.len().min(at + rng.below(40) as usize);
                let again = bytes[at..end].to_vec();
                bytes.splice(at..at, again);
            }
        }
    }
}

fn path(rng: &mut Rng) -> String {
    let parts = ["a", "index.html", "%2f", "..", "x=1&y=2", "", "{}|", "~user"];
    let mut path = String::new();
    for _ in 0..=rng.below(3) {
        path.push('/');
        path.push_str(rng.pick::<&str>(&parts));
    }
    if rng.one_in(3) {
        path.push_str("?q=/a:b@c");
    }
    path
}

fn field(rng: &mut Rng, name: &str, value: &str) -> Vec<u8> {
    let name: String = match rng.below(4) {
        0 => name.to_ascii_lowercase(),
        1 => name.to_ascii_uppercase(),
        _ => name.to_owned(),
    };
    let before = *rng.pick(&[" ", " ", "", "\t ", "   "]);
    let behind = *rng.pick(&["", "", "", " ", "\t"]);
    format!("{name}:{before}{value}{behind}\r\n").into_bytes()
}

fn some_fields(rng: &mut Rng, fields: &mut Vec<Vec<u8>>) {
    for _ in 0..rng.below(6) {
        let name = *rng.pick(&[
            "Accept",
            "X-A",
            "Cookie",
            "x-hop",
            "User-Agent",
            "TE",
            "Keep-Alive",
            "Hos",
            "Content-Lengt",
        ]);
        let long = "v".repeat(rng.below(80) as usize);
        let value = *rng.pick(&["", "*/*", "a=b; c=d", "caf\u{e9}", "1, 2", "a\tb", &long]);
        fields.push(field(rng, name, value));
    }
}

/// Adds the field that frames, and gives what stands behind the head: 0 nothing, 1 a sized body, 2 chunks.
fn body(rng: &mut Rng, framing: u32, fields: &mut Vec<Vec<u8>>) -> Vec<u8> {
    let len = if rng.one_in(4) { 0 } else { rng.below(BODY_BYTES_MAX) };
    let content: Vec<u8> = (0..len).map(|_| rng.word() as u8).collect();
    match framing {
        0 => Vec::new(),
        1 => {
            let zeros = if rng.one_in(6) { "00" } else { "" };
            fields.push(field(rng, "Content-Length", &format!("{zeros}{len}")));
            content
        }
        _ => {
            let coding = *rng.pick(&["chunked", "CHUNKED"]);
            fields.push(field(rng, "Transfer-Encoding", coding));
            let mut out = Vec::new();
            let mut rest = content.as_slice();
            while !rest.is_empty() {
                let (chunk, behind) = rest.split_at(rest.len().min(1 + rng.below(150) as usize));
                let extension = *rng.pick(&["", "", ";a", ";a=b", ";x=\"y z\""]);
                let size =
                    if rng.one_in(2) { format!("{:X}", chunk.len()) } else { format!("0{:x}", chunk.len()) };
                out.extend(format!("{size}{extension}\r\n").bytes());
                out.extend(chunk);
                out.extend(b"\r\n");
                rest = behind;
            }
            out.extend(b"0\r\n");
            if rng.one_in(3) {
                out.extend(field(rng, "X-Sum", "1"));
            }
            out.extend(b"\r\n");
            out
        }
    }
}

fn finish(rng: &mut Rng, mut out: Vec<u8>, mut fields: Vec<Vec<u8>>, body: Vec<u8>) -> Vec<u8> {
    // Any order: what frames may stand anywhere.
    while !fields.is_empty() {
        let at = rng.below(fields.len() as u32) as usize;
        out.extend(fields.swap_remove(at));
    }
    out.extend(b"\r\n");
    out.extend(body);
    out
}

#[cfg(test)]
mod tests {
    use super::{harm, reply, request};
    use crate::generate::Rng;
    use crate::http::strict;

    const MESSAGES: u64 = 3000;

    #[test]
    fn what_is_generated_is_http() {
        for seed in 0..MESSAGES {
            let mut rng = Rng::new(seed);
            let (bytes, asked) = request(&mut rng);
            let read = strict::request(&bytes)
                .unwrap_or_else(|trouble| panic!("seed {seed}: {trouble:?}: {}", bytes.escape_ascii()));
            assert_eq!(read.next, bytes.len(), "seed {seed}");
            let (bytes, _) = reply(&mut rng, asked);
            let read = strict::reply(&bytes, asked).unwrap_or_else(|trouble| {
                panic!("seed {seed}: {asked:?}: {trouble:?}: {}", bytes.escape_ascii())
            });
            assert_eq!(read.next, bytes.len(), "seed {seed}: {}", bytes.escape_ascii());
        }
    }

    #[test]
    fn harm_is_mostly_seen() {
        let refused = (0..MESSAGES).filter(|seed| {
            let mut rng = Rng::new(*seed);
            let (mut bytes, _) = request(&mut rng);
            harm(&mut rng, &mut bytes);
            strict::request(&bytes).is_err()
        });
        assert!(refused.count() as u64 * 4 > MESSAGES, "harm that harms nothing tests nothing");
    }
}
