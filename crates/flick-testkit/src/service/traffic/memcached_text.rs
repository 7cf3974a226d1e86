//! The memcached text protocol for fault-injection runs: what servers answer follows from the keys, so every reply
//! tells whose it is as far as the protocol lets it.
//! Promises: a value tells its key; numbers and meta replies are made of the key, too.

use flick_net::sim::SimRng;

use super::{
    Answer, Cut, Judged, Owed, Seat, TrafficProtocol, TrafficRequest, exact, fill, line, line_of, random_len,
};
use crate::service::fault_injection::FaultPlan;

/// Handling of commands by the service.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MemcachedTextKind {
    /// One server for each key; a request for several keys is split.
    Sharded,
    /// One server for each key, and a cache before it.
    Cached,
    /// Every server has everything.
    Copies,
}

/// The peers of a proxy of the memcached text protocol.
#[derive(Clone, Copy, Debug)]
pub struct MemcachedText(pub MemcachedTextKind);

/// Mark of a request whose reply ends with END.
const SEVERAL: u32 = 1;
/// Keys that begin with this are not there.
const MISS: &str = "miss";
/// Values of more bytes than this are refused early by servers that do so.
const EARLY_BYTES: usize = 15_000;
/// In these words.
const TOO_LARGE: &[u8] = b"SERVER_ERROR object too large for cache\r\n";
/// Longest value that a service may ask for rather than pass on.
const ASKED_BYTES_MAX: usize = 8_000;

/// The length that a key says behind its `#`.
fn len_of(key: &str) -> usize {
    key.rsplit_once('#').and_then(|(_, digits)| digits.parse().ok()).unwrap_or(20)
}

fn value_line(key: &str) -> Vec<u8> {
    let value = fill(key, len_of(key));
    [format!("VALUE {key} 77 {}\r\n", value.len()).as_bytes(), &value, b"\r\n"].concat()
}

fn is_there(key: &str) -> bool {
    !key.starts_with(MISS)
}

/// Returns the reply of an honest server to the command with these words; `None` for an unknown command.
pub(super) fn honest(words: &[&str]) -> Option<Vec<u8>> {
    let key = words.get(1).copied().unwrap_or_default();
    let found = |yes: &str| if is_there(key) { format!("{yes}\r\n") } else { "NOT_FOUND\r\n".into() };
    let number = || key.bytes().fold(7_u64, |sum, byte| sum.wrapping_mul(31).wrapping_add(u64::from(byte)));
    Some(match words.first().copied()? {
        "get" => {
            let values = words[1..].iter().filter(|key| is_there(key)).flat_map(|key| value_line(key));
            values.chain(*b"END\r\n").collect()
        }
        "set" => b"STORED\r\n".to_vec(),
        "add" => if is_there(key) { b"NOT_STORED\r\n" } else { b"STORED\r\n".as_slice() }.to_vec(),
        "delete" => found("DELETED").into_bytes(),
        "touch" => found("TOUCHED").into_bytes(),
        "incr" => found(&number().to_string()).into_bytes(),
        "mg" if is_there(key) => {
            let value = fill(key, len_of(key));
            [format!("VA {} k{key} O{key}\r\n", value.len()).as_bytes(), &value, b"\r\n"].concat()
        }
        "mg" => b"EN\r\n".to_vec(),
        "md" => format!("HD O{key}\r\n").into_bytes(),
        "version" => b"VERSION 1.6.18\r\n".to_vec(),
        "verbosity" => b"OK\r\n".to_vec(),
        _ => return None,
    })
}

/// Bytes of a reply to such a request.
pub(super) fn reply_cut(is_several: bool, input: &[u8]) -> Cut {
    let mut at = 0;
    loop {
        let Some((text, len)) = line(&input[at..]) else { return Cut::More };
        let mut words = text.split(' ');
        let data = match words.next().unwrap_or_default() {
            "VALUE" => words.nth(2),
            "VA" => words.next(),
            _ => return Cut::Whole(at + len),
        };
        let Some(size) = data.and_then(|digits| digits.parse::<usize>().ok()) else {
            return Cut::Bad("a value without a length".into());
        };
        let is_value = text.starts_with("VALUE");
        at += len + size + 2;
        if input.len() < at {
            return Cut::More;
        }
        if !is_value || !is_several {
            return Cut::Whole(at);
        }
    }
}

/// Whether a reply ends in the platform's failure.
pub(super) fn is_failure(reply: &[u8]) -> bool {
    let lines = ["backend unavailable", "backend timed out", "too busy", "no replica answers"];
    lines.iter().any(|text| reply.ends_with(format!("SERVER_ERROR {text}\r\n").as_bytes()))
}

impl MemcachedText {
    fn key(self, rng: &mut SimRng, name: &str, huge_per_mille: u32) -> String {
        let len = random_len(rng, huge_per_mille);
        let len = if self.0 == MemcachedTextKind::Sharded { len } else { len.min(ASKED_BYTES_MAX) };
        match rng.between(0, 7) {
            0 => format!("{MISS}-{name}"),
            1 => format!("zero-{name}#0"),
            _ => format!("key-{name}#{len}"),
        }
    }

    fn one(self, rng: &mut SimRng, name: &str, huge_per_mille: u32) -> TrafficRequest {
        let key = self.key(rng, name, huge_per_mille);
        let silent = if rng.chance(200) { " noreply" } else { "" };
        let end = if rng.chance(100) { "\n" } else { "\r\n" };
        let spaces = if rng.chance(100) { "   " } else { " " };
        let shared = if self.0 == MemcachedTextKind::Cached {
            format!("key-shared-{}#100", rng.between(0, 3))
        } else {
            key.clone()
        };
        let text = match rng.between(0, 13) {
            0 | 1 => format!("get {shared}"),
            2 if self.0 == MemcachedTextKind::Sharded => {
                // Small values: the program buffers what it asks for.
                let keys: Vec<String> = (0..rng.between(2, 6))
                    .map(|at| format!("key-{name}-{at}#{}", rng.between(0, 900)))
                    .collect();
                format!("get {} {MISS}-{name}", keys.join(spaces))
            }
            2..=4 => format!("get{spaces}{key}"),
            5..=7 => format!("set {key} 77 0 {}{silent}", len_of(&key)),
            8 => format!("delete {key}{silent}"),
            9 => format!("incr {key} 1{silent}"),
            10 => format!("touch {key} 100"),
            11 if self.0 == MemcachedTextKind::Sharded => format!("mg {key} v k"),
            11 => format!("md {key}"),
            12 if self.0 == MemcachedTextKind::Sharded => "verbosity 1".into(),
            12 => "add miss-it 77 0 3".into(),
            _ => "version".into(),
        };
        let words: Vec<&str> = text.split_whitespace().filter(|word| *word != "noreply").collect();
        let reply = honest(&words).unwrap_or_default();
        let mut bytes = format!("{text}{end}").into_bytes();
        match words[0] {
            "set" => bytes.extend([&fill(&key, len_of(&key))[..], b"\r\n"].concat()),
            "add" => bytes.extend(b"abc\r\n"),
            _ => {}
        }
        let is_silent = text.ends_with("noreply");
        let owed = if is_silent { Owed::Silence } else { Owed::Reply };
        TrafficRequest { bytes, reply, kind: u32::from(words[0] == "get"), owed }
    }
}

impl TrafficProtocol for MemcachedText {
    fn requests(
        &self,
        rng: &mut SimRng,
        client: u64,
        plan: &FaultPlan,
        is_last: bool,
    ) -> Vec<TrafficRequest> {
        let count = if is_last { 8 * plan.servers as u64 } else { rng.between(1, plan.requests) };
        let mut requests: Vec<TrafficRequest> =
            (0..count).map(|at| self.one(rng, &format!("{client}-{at}"), plan.huge_per_mille)).collect();
        if rng.chance(100) {
            requests.push(TrafficRequest {
                bytes: b"quit\r\n".to_vec(),
                reply: vec![],
                kind: 0,
                owed: Owed::Silence,
            });
        }
        requests
    }

    fn nonsense(&self, rng: &mut SimRng) -> Vec<u8> {
        match rng.between(0, 3) {
            0 => b"GET / HTTP/1.0\r\n\r\n".to_vec(),
            1 => b"bogus\r\n".to_vec(),
            2 => b"get \x00\r\n".to_vec(),
            _ => b"get ".iter().copied().chain(std::iter::repeat_n(b'k', 3_000)).collect(),
        }
    }

    fn reply(&self, request: &TrafficRequest, input: &[u8], _has_ended: bool) -> Cut {
        reply_cut(request.kind & SEVERAL == SEVERAL, input)
    }

    fn judge(&self, request: &TrafficRequest, reply: &[u8]) -> Result<Judged, String> {
        let judged = exact(request, reply, is_failure);
        // A merged reply omits the values of servers that do not answer.
        let is_buffered = request.kind & SEVERAL == SEVERAL && self.0 == MemcachedTextKind::Sharded;
        let is_early =
            reply == TOO_LARGE && request.bytes.starts_with(b"set ") && request.bytes.len() > EARLY_BYTES;
        match judged {
            Err(_) if is_early => Ok(Judged::Served),
            Err(_) if is_buffered && is_part_of(reply, &request.reply) => Ok(Judged::Failed),
            other => other,
        }
    }

    fn refusal(&self, input: &[u8]) -> Cut {
        line_of(input, &["ERROR", "CLIENT_ERROR", "SERVER_ERROR"])
    }

    fn asked(&self, _seat: &Seat, input: &[u8]) -> Cut {
        let Some((text, len)) = line(input) else { return Cut::More };
        let words: Vec<&str> = text.split_whitespace().collect();
        let data = match words.first().copied() {
            Some("set" | "add") => {
                words.get(4).and_then(|digits| digits.parse::<usize>().ok()).map(|size| size + 2)
            }
            _ => Some(0),
        };
        match data {
            None => Cut::Bad("a length that is none".into()),
            Some(size) if input.len() < len + size => Cut::More,
            Some(size) => Cut::Whole(len + size),
        }
    }

    fn answer(&self, seat: &mut Seat, request: &[u8]) -> Result<Answer, String> {
        let (text, len) = line(request).ok_or("no line")?;
        let words: Vec<&str> = text.split_whitespace().collect();
        if words.contains(&"noreply") || words.first() == Some(&"quit") {
            return Err("it must not reach a connection that others share".into());
        }
        let key = words.get(1).copied().unwrap_or_default();
        if words.first() == Some(&"set")
            && request[len..] != [&fill(key, len_of(key))[..], b"\r\n"].concat()[..]
        {
            return Err("not the value that was sent".into());
        }
        let bytes = honest(&words).ok_or("an unknown command")?;
        let once = (words[0] == "incr").then(|| format!("{text} at {}", seat.server));
        Ok(Answer { bytes, closes: false, once })
    }

    fn early(&self, input: &[u8]) -> Option<(Vec<u8>, usize)> {
        let (text, len) = line(input)?;
        let words: Vec<&str> = text.split(' ').collect();
        let size: usize = words.get(4)?.parse().ok()?;
        (words[0] == "set" && size > EARLY_BYTES).then(|| (TOO_LARGE.to_vec(), len + size + 2))
    }
}

/// Whether `part` is `whole` with some values left out, the end being there.
fn is_part_of(part: &[u8], whole: &[u8]) -> bool {
    let values = |mut bytes: &[u8]| {
        let mut values = Vec::new();
        while let Cut::Whole(len) = reply_cut(false, bytes) {
            values.push(bytes[..len].to_vec());
            bytes = &bytes[len..];
        }
        values
    };
    let mut rest = values(whole).into_iter();
    values(part).into_iter().all(|value| rest.any(|other| other == value)) && part.ends_with(b"END\r\n")
}
