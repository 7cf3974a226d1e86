//! The kernels as a Rust programmer would write them for a message that is parsed already.

/// The fields of a message.
pub struct Request<'a> {
    id: u32,
    seen: u64,
    cost: u16,
    key: &'a [u8],
    value: &'a [u8],
}

impl<'a> Request<'a> {
    /// The fields at their places.
    pub fn of(message: &'a [u8]) -> Self {
        let word = |at: usize, width: usize| {
            message[at..at + width].iter().fold(0_u64, |word, byte| (word << 8) | u64::from(*byte))
        };
        let (key_len, value_len) = (word(14, 1) as usize, word(15, 2) as usize);
        let (key, rest) = message[17..].split_at(key_len);
        Self {
            id: word(0, 4) as u32,
            seen: word(4, 8),
            cost: word(12, 2) as u16,
            key,
            value: &rest[..value_len],
        }
    }
}

pub fn shard(req: &Request<'_>) -> i64 {
    (flick_abi::hash::hash(req.key) % 16) as i64
}

pub fn verb(req: &Request<'_>) -> i64 {
    match req.key {
        b"get" | b"gets" => 0,
        b"set" => 1,
        b"add" => 2,
        b"replace" => 3,
        b"append" | b"prepend" => 4,
        b"incr" | b"decr" => 5,
        b"delete" => 6,
        _ => 7,
    }
}

pub fn route(req: &Request<'_>) -> i64 {
    if req.key.starts_with(b"/static/") {
        0
    } else if req.key.starts_with(b"/api/v1/") {
        1
    } else if req.key.starts_with(b"/api/") {
        2
    } else if req.key.ends_with(b".png") {
        3
    } else if req.key.windows(7).any(|part| part == b"/admin/") {
        4
    } else {
        5
    }
}

fn number(text: &[u8]) -> i64 {
    std::str::from_utf8(text).ok().and_then(|text| text.parse().ok()).unwrap_or(0)
}

pub fn combine(req: &Request<'_>) -> i64 {
    let sum = number(req.key).wrapping_add(number(req.value));
    sum.to_string().len() as i64
}

pub fn columns(req: &Request<'_>) -> i64 {
    req.key.split(|byte| *byte == b',').map(number).fold(0, i64::wrapping_add).rem_euclid(16)
}

pub fn header(req: &Request<'_>) -> i64 {
    let is = |name: &str| req.key.eq_ignore_ascii_case(name.as_bytes());
    if is("connection") || is("keep-alive") || is("te") {
        1
    } else if is("trailer") || is("transfer-encoding") {
        2
    } else if is("upgrade") || is("proxy-authorization") {
        3
    } else {
        0
    }
}

pub fn cache_key(req: &Request<'_>) -> i64 {
    let mut name = format!("v2:{}:", req.id).into_bytes();
    name.extend(req.key.iter().map(u8::to_ascii_lowercase));
    (flick_abi::hash::hash(&name) % 16) as i64
}

pub fn checksum(req: &Request<'_>) -> i64 {
    req.key.iter().fold(7_i64, |sum, byte| (sum * 31 + i64::from(*byte)) % 1_000_003) % 16
}

pub fn bucket(req: &Request<'_>) -> i64 {
    let elapsed = (req.seen % 1_000_000) as i64 - i64::from(req.id % 1000);
    let refilled = (elapsed * 50).div_euclid(1000).min(4000);
    let left = (refilled - i64::from(req.cost) * 3).max(0);
    (left * 7 + i64::from(req.cost)) % 16
}

pub fn choose(req: &Request<'_>) -> i64 {
    let loads = [
        i64::from(req.id),
        i64::from(req.cost),
        req.key.len() as i64,
        req.value.len() as i64,
        17,
        130,
        55,
        4,
    ];
    let mean = loads.iter().sum::<i64>() / 8;
    loads.iter().filter(|load| **load > mean).count() as i64
}
