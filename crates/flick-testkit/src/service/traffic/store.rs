//! Clients of a key-value server: each has keys of its own, so its replies follow from its own requests.
//! Promises: every reply must be as a model of the store has it, byte for byte.
//! Refuses: servers behind it; there are none.

use std::collections::BTreeMap;

use flick_net::sim::SimRng;

use super::memcached_text::reply_cut;
use super::{Answer, Cut, Judged, Owed, Seat, TrafficProtocol, TrafficRequest, exact, fill, line_of};
use crate::service::fault_injection::FaultPlan;

/// The clients of a key-value server with memcached's text protocol.
#[derive(Clone, Copy, Debug)]
pub struct Store;

/// Keys of one client.
const KEYS: u64 = 3;
/// Longest value that a client stores; all that it could append to one is less than the store keeps.
const VALUE_BYTES_MAX: u64 = 14_000;

/// Applies a command to a model of the store and returns the reply; `data` is the value to store.
fn model(items: &mut BTreeMap<String, Vec<u8>>, words: &[&str], data: &[u8]) -> Vec<u8> {
    let key = words.get(1).copied().unwrap_or_default().to_owned();
    let is_there = items.contains_key(&key);
    match words[0] {
        "get" => {
            let found = words[1..].iter().filter_map(|key| Some((key, items.get(*key)?)));
            let values = found.flat_map(|(key, value)| {
                [format!("VALUE {key} 5 {}\r\n", value.len()).as_bytes(), value, b"\r\n"].concat()
            });
            return values.chain(*b"END\r\n").collect();
        }
        "set" => {
            items.insert(key, data.to_vec());
        }
        "add" if is_there => return b"NOT_STORED\r\n".to_vec(),
        "add" => {
            items.insert(key, data.to_vec());
        }
        "replace" | "append" if !is_there => return b"NOT_STORED\r\n".to_vec(),
        "replace" => {
            items.insert(key, data.to_vec());
        }
        "append" => items.entry(key).or_default().extend(data),
        "delete" if items.remove(&key).is_some() => return b"DELETED\r\n".to_vec(),
        "touch" if is_there => return b"TOUCHED\r\n".to_vec(),
        "delete" | "touch" => return b"NOT_FOUND\r\n".to_vec(),
        "incr" => {
            let Some(value) = items.get_mut(&key) else { return b"NOT_FOUND\r\n".to_vec() };
            let number = std::str::from_utf8(value).ok().and_then(|text| text.parse::<u64>().ok());
            let by: u64 = words[2].parse().unwrap_or_default();
            let Some(number) = number.filter(|_| value.len() <= 20) else {
                return b"CLIENT_ERROR cannot increment or decrement non-numeric value\r\n".to_vec();
            };
            let sum = number.wrapping_add(by).to_string();
            *value = sum.clone().into_bytes();
            return format!("{sum}\r\n").into_bytes();
        }
        _ => return b"ERROR\r\n".to_vec(),
    }
    b"STORED\r\n".to_vec()
}

impl TrafficProtocol for Store {
    fn requests(
        &self,
        rng: &mut SimRng,
        client: u64,
        plan: &FaultPlan,
        _is_last: bool,
    ) -> Vec<TrafficRequest> {
        let mut items = BTreeMap::new();
        let mut requests = Vec::new();
        for at in 0..rng.between(1, 2 * plan.requests) {
            let key = format!("key-{client}-{}", rng.between(0, KEYS));
            let number = rng.chance(400);
            let len = if rng.chance(30) { rng.between(1, VALUE_BYTES_MAX) } else { rng.between(0, 100) };
            let data =
                if number { at.to_string().into_bytes() } else { fill(&format!("{key}.{at}"), len as usize) };
            let silent = if rng.chance(150) { " noreply" } else { "" };
            let verb = ["set", "set", "add", "replace", "append"][rng.between(0, 4) as usize];
            let (text, has_data) = match rng.between(0, 11) {
                0..=4 => (format!("{verb} {key} 5 0 {}{silent}", data.len()), true),
                5 => (format!("delete {key}{silent}"), false),
                6 => (format!("touch {key} 1000"), false),
                7 | 8 => (format!("incr {key} {}{silent}", rng.between(1, 1 << 40)), false),
                9 => (format!("get key-{client}-0 key-{client}-1 key-{client}-2"), false),
                10 => ("bogus".into(), false),
                _ => (format!("get {key}"), false),
            };
            let words: Vec<&str> = text.split(' ').filter(|word| *word != "noreply").collect();
            let reply = model(&mut items, &words, &data);
            let is_silent = text.ends_with("noreply");
            let kind = u32::from(words[0] == "get");
            let mut bytes = format!("{text}\r\n").into_bytes();
            if has_data {
                bytes.extend([&data[..], b"\r\n"].concat());
            }
            let owed = if is_silent { Owed::Silence } else { Owed::Reply };
            requests.push(TrafficRequest { bytes, reply, kind, owed });
        }
        requests
    }

    fn nonsense(&self, rng: &mut SimRng) -> Vec<u8> {
        match rng.between(0, 2) {
            0 => b"GET / HTTP/1.0\r\n\r\n".to_vec(),
            1 => b"get \x00\r\n".to_vec(),
            _ => b"set k 0 0 5\r\nmore than five\r\n".to_vec(),
        }
    }

    fn reply(&self, request: &TrafficRequest, input: &[u8], _has_ended: bool) -> Cut {
        reply_cut(request.kind == 1, input)
    }

    fn judge(&self, request: &TrafficRequest, reply: &[u8]) -> Result<Judged, String> {
        exact(request, reply, |reply| reply == b"SERVER_ERROR too busy\r\n")
    }

    fn refusal(&self, input: &[u8]) -> Cut {
        line_of(input, &["ERROR", "CLIENT_ERROR", "SERVER_ERROR"])
    }

    fn asked(&self, _seat: &Seat, _input: &[u8]) -> Cut {
        Cut::Bad("the store has no backend".into())
    }

    fn answer(&self, _seat: &mut Seat, _request: &[u8]) -> Result<Answer, String> {
        Err("the store has no backend".into())
    }
}
