//! Redis's protocol for fault-injection runs: commands of one key and of several, replies of every shape, made of the
//! keys they answer.
//! Promises: a reply tells its key wherever the command lets it.

use flick_net::sim::SimRng;

use super::{
    Answer, Cut, Judged, Owed, Seat, TrafficProtocol, TrafficRequest, exact, fill, line, line_of, random_len,
};
use crate::service::fault_injection::FaultPlan;

/// The peers of a proxy that shards Redis.
#[derive(Clone, Copy, Debug)]
pub struct Resp;

/// Keys that begin with this are not there.
const MISS: &str = "miss";
/// Longest of the values that the program buffers.
const BUFFERED_BYTES_MAX: u64 = 900;
/// Values of more bytes than this are refused early by servers that do so.
const EARLY_BYTES: usize = 15_000;
/// In these words.
const TOO_LARGE: &[u8] = b"-ERR too large\r\n";
/// Parts of a reply within parts.
const DEPTH_MAX: u32 = 8;

fn len_of(key: &str) -> usize {
    key.rsplit_once('#').and_then(|(_, digits)| digits.parse().ok()).unwrap_or(20)
}

fn bulk(data: &[u8]) -> Vec<u8> {
    [format!("${}\r\n", data.len()).as_bytes(), data, b"\r\n"].concat()
}

fn command(words: &[&[u8]]) -> Vec<u8> {
    let head = format!("*{}\r\n", words.len()).into_bytes();
    head.into_iter().chain(words.iter().flat_map(|word| bulk(word))).collect()
}

fn value(key: &str) -> Vec<u8> {
    if key.starts_with(MISS) { b"$-1\r\n".to_vec() } else { bulk(&fill(key, len_of(key))) }
}

/// Returns the reply of an honest server, or of all of them together.
fn honest(words: &[&str]) -> Option<Vec<u8>> {
    let key = words.get(1).copied().unwrap_or_default();
    let there = |keys: &[&str]| keys.iter().filter(|key| !key.starts_with(MISS)).count();
    let number = || key.bytes().fold(7_i32, |sum, byte| sum.wrapping_mul(31).wrapping_add(i32::from(byte)));
    Some(match words.first()?.to_ascii_lowercase().as_str() {
        "get" => value(key),
        "set" | "mset" => b"+OK\r\n".to_vec(),
        "incr" => format!(":{}\r\n", number()).into_bytes(),
        "del" | "exists" => format!(":{}\r\n", there(&words[1..])).into_bytes(),
        "mget" => {
            let head = format!("*{}\r\n", words.len() - 1).into_bytes();
            head.into_iter().chain(words[1..].iter().flat_map(|key| value(key))).collect()
        }
        "hgetall" => {
            let (field, nested) =
                (bulk(key.as_bytes()), [b"*2\r\n:1\r\n".as_slice(), &bulk(key.as_bytes())].concat());
            [b"%2\r\n".as_slice(), &field, &nested, &bulk(b"x"), b"_\r\n"].concat()
        }
        "echo" => bulk(key.as_bytes()),
        "subscribe" | "multi" | "blpop" => {
            format!("-ERR '{}' cannot be served by several servers\r\n", words[0]).into_bytes()
        }
        "quit" => b"+OK\r\n".to_vec(),
        _ => return None,
    })
}

/// Bytes of the value at the front.
fn value_cut(input: &[u8], depth: u32) -> Cut {
    let Some((text, mut at)) = line(input) else { return Cut::More };
    let size = || text.get(1..).and_then(|digits| digits.parse::<i64>().ok());
    let parts = match (text.bytes().next(), size()) {
        (Some(b'+' | b'-' | b':' | b'_'), _) | (Some(b'$' | b'*'), Some(-1)) => 0,
        (Some(b'$'), Some(size)) => {
            at += size as usize + 2;
            0
        }
        (Some(b'*'), Some(size)) => size,
        (Some(b'%'), Some(size)) => 2 * size,
        _ => return Cut::Bad("no value".into()),
    };
    for _ in 0..parts {
        if depth == 0 || input.len() < at {
            return if depth == 0 { Cut::Bad("too deep".into()) } else { Cut::More };
        }
        match value_cut(&input[at..], depth - 1) {
            Cut::Whole(len) => at += len,
            other => return other,
        }
    }
    if input.len() < at { Cut::More } else { Cut::Whole(at) }
}

/// The words of the command at the front, and its bytes.
fn words(input: &[u8]) -> Result<(Vec<Vec<u8>>, usize), Cut> {
    let (text, mut at) = line(input).ok_or(Cut::More)?;
    let bad = |what: &str| Cut::Bad(what.into());
    let count: usize =
        text.strip_prefix('*').and_then(|digits| digits.parse().ok()).ok_or(bad("no array"))?;
    let mut words = Vec::new();
    for _ in 0..count {
        let (text, len) = input.get(at..).and_then(line).ok_or(Cut::More)?;
        let size: usize =
            text.strip_prefix('$').and_then(|digits| digits.parse().ok()).ok_or(bad("no bulk"))?;
        at += len;
        words.push(input.get(at..at + size).ok_or(Cut::More)?.to_vec());
        at += size + 2;
    }
    if input.len() < at { Err(Cut::More) } else { Ok((words, at)) }
}

fn one(rng: &mut SimRng, name: &str, huge_per_mille: u32) -> TrafficRequest {
    let len = random_len(rng, huge_per_mille);
    let key = if rng.chance(150) { format!("{MISS}-{name}") } else { format!("key-{name}#{len}") };
    let several: Vec<String> = (0..rng.between(1, 6))
        .map(|at| match rng.chance(200) {
            true => format!("{MISS}-{name}-{at}"),
            false => format!("key-{name}-{at}#{}", rng.between(0, BUFFERED_BYTES_MAX)),
        })
        .collect();
    let set = format!("{name}#{}", len.min(12_000));
    let filled = fill(&set, len_of(&set));
    let text: Vec<String> = match rng.between(0, 12) {
        0..=2 => vec!["GET".into(), key],
        // A value longer than the program may buffer is refused.
        3 | 4 => vec!["SET".into(), set],
        5 => vec!["INCR".into(), key],
        6 => [vec!["DEL".into()], several].concat(),
        7 => [vec!["exists".into()], several].concat(),
        8 | 9 => [vec!["MGET".into()], several].concat(),
        10 => [vec!["MSET".into()], several.iter().flat_map(|key| [key.clone(), key.clone()]).collect()]
            .concat(),
        11 => vec!["HGETALL".into(), key],
        _ if rng.chance(300) => vec!["subscribe".into(), key],
        _ => vec!["ECHO".into(), key],
    };
    let words: Vec<&str> = text.iter().map(String::as_str).collect();
    let mut parts: Vec<&[u8]> = words.iter().map(|word| word.as_bytes()).collect();
    if words[0] == "SET" {
        parts.push(&filled);
    }
    let reply = honest(&words).unwrap_or_default();
    TrafficRequest { bytes: command(&parts), reply, kind: 0, owed: Owed::Reply }
}

impl TrafficProtocol for Resp {
    fn requests(
        &self,
        rng: &mut SimRng,
        client: u64,
        plan: &FaultPlan,
        is_last: bool,
    ) -> Vec<TrafficRequest> {
        let count = if is_last { 8 * plan.servers as u64 } else { rng.between(1, plan.requests) };
        let mut requests: Vec<TrafficRequest> =
            (0..count).map(|at| one(rng, &format!("{client}-{at}"), plan.huge_per_mille)).collect();
        if rng.chance(100) {
            let reply = b"+OK\r\n".to_vec();
            requests.push(TrafficRequest { bytes: command(&[b"QUIT"]), reply, kind: 0, owed: Owed::Reply });
        }
        requests
    }

    fn nonsense(&self, rng: &mut SimRng) -> Vec<u8> {
        match rng.between(0, 3) {
            0 => b"*2\r\n$3\r\nGET\r\n$-1\r\n".to_vec(),
            1 => b"*99999999999\r\n".to_vec(),
            2 => b"*1\r\n:5\r\n".to_vec(),
            _ => b"*2\r\n$3\r\nGETT\r\n".to_vec(),
        }
    }

    fn reply(&self, _request: &TrafficRequest, input: &[u8], _has_ended: bool) -> Cut {
        value_cut(input, DEPTH_MAX)
    }

    fn judge(&self, request: &TrafficRequest, reply: &[u8]) -> Result<Judged, String> {
        let is_large = request.bytes.len() > EARLY_BYTES && request.bytes.starts_with(b"*3\r\n$3\r\nSET");
        if reply == TOO_LARGE && is_large {
            return Ok(Judged::Served);
        }
        let failures = ["ERR backend unavailable", "ERR backend timed out", "BUSY too busy"];
        let is_failure =
            |reply: &[u8]| failures.iter().any(|text| reply == format!("-{text}\r\n").as_bytes());
        exact(request, reply, is_failure)
    }

    fn refusal(&self, input: &[u8]) -> Cut {
        line_of(input, &["-ERR Protocol error"])
    }

    fn asked(&self, _seat: &Seat, input: &[u8]) -> Cut {
        match words(input) {
            Ok((_, len)) => Cut::Whole(len),
            Err(cut) => cut,
        }
    }

    fn answer(&self, seat: &mut Seat, request: &[u8]) -> Result<Answer, String> {
        let (words, _) = words(request).map_err(|cut| format!("{cut:?}"))?;
        let key = words.get(1).map(|key| String::from_utf8_lossy(key).into_owned()).unwrap_or_default();
        let name = String::from_utf8_lossy(&words[0]).to_ascii_lowercase();
        if name == "set" && words.get(2) != Some(&fill(&key, len_of(&key))) {
            return Err("not the value that was sent".into());
        }
        if name == "mset" && words.get(2) != words.get(1) {
            return Err("not the value that was sent".into());
        }
        let is_split = matches!(name.as_str(), "mget" | "del" | "exists") && words.len() == 2;
        let is_whole = matches!(name.as_str(), "get" | "set" | "incr" | "hgetall" | "echo" | "mset");
        if !is_split && !is_whole {
            return Err("it is not for one server".into());
        }
        let once = (name == "incr").then(|| format!("{key} at {}", seat.server));
        let bytes = honest(&[&name, &key]).ok_or("an unknown command")?;
        Ok(Answer { bytes, closes: false, once })
    }

    fn early(&self, input: &[u8]) -> Option<(Vec<u8>, usize)> {
        let head = b"*3\r\n$3\r\nSET\r\n$";
        let rest = input.strip_prefix(head)?;
        let (text, len) = line(rest)?;
        let key_end = len + text.parse::<usize>().ok()? + 2;
        let (text, len) = line(rest.get(key_end..)?)?;
        let size: usize = text.strip_prefix('$')?.parse().ok()?;
        (size > EARLY_BYTES).then(|| (TOO_LARGE.to_vec(), head.len() + key_end + len + size + 2))
    }
}
