//! The memcached binary protocol as one among others: gets, sets and deletes whose tags come back.
//! Promises: a reply tells its request by opaque, tag and value. What else a client may do is tested with
//! `service::client`.

use flick_net::sim::SimRng;

use super::{Answer, Cut, Judged, Owed, Seat, TrafficProtocol, TrafficRequest, random_len, shown};
use crate::service::fault_injection::FaultPlan;
use crate::service::memcached::{Cmd, REQUEST, opcode, status, value_of};
use crate::service::server;

/// The peers of a proxy of the memcached binary protocol.
#[derive(Clone, Copy, Debug)]
pub struct MemcachedBinary;

fn cut(input: &[u8]) -> Cut {
    match Cmd::wire_bytes(input) {
        Some(len) if input.len() >= len => Cut::Whole(len),
        _ => Cut::More,
    }
}

fn read(bytes: &[u8]) -> Result<Cmd, String> {
    Cmd::head(bytes).ok_or_else(|| format!("no message: {}", shown(bytes)))
}

impl TrafficProtocol for MemcachedBinary {
    fn requests(
        &self,
        rng: &mut SimRng,
        client: u64,
        plan: &FaultPlan,
        is_last: bool,
    ) -> Vec<TrafficRequest> {
        let count = if is_last { 8 * plan.servers as u64 } else { rng.between(1, plan.requests) };
        let one = |rng: &mut SimRng, at: u64| {
            let kind = [opcode::GET, opcode::GET, opcode::SET, opcode::DELETE][rng.between(0, 3) as usize];
            let key = format!("key-{client}-{at}#{}", random_len(rng, plan.huge_per_mille));
            let value = if kind == opcode::SET { value_of(key.as_bytes()) } else { Vec::new() };
            let opaque = rng.next_u64() as u32;
            let request = Cmd {
                cas: client << 48 | at << 32 | u64::from(opaque >> 7),
                ..Cmd::request(kind, opaque, key.as_bytes(), &value)
            };
            let reply = server::answer(&request).iter().flat_map(Cmd::bytes).collect();
            TrafficRequest { bytes: request.bytes(), reply, kind: u32::from(kind), owed: Owed::Reply }
        };
        (0..count).map(|at| one(rng, at)).collect()
    }

    fn nonsense(&self, _rng: &mut SimRng) -> Vec<u8> {
        b"GET / HTTP/1.0\r\n\r\n".to_vec()
    }

    fn reply(&self, _request: &TrafficRequest, input: &[u8], _has_ended: bool) -> Cut {
        cut(input)
    }

    fn judge(&self, request: &TrafficRequest, reply: &[u8]) -> Result<Judged, String> {
        if reply == request.reply {
            return Ok(Judged::Served);
        }
        let (asked, delivered) = (read(&request.bytes)?, read(reply)?);
        let is_own = delivered.opaque == asked.opaque && delivered.opcode == asked.opcode;
        let is_failure = matches!(delivered.status, status::UNAVAILABLE | status::BUSY);
        match is_own && is_failure {
            true => Ok(Judged::Failed),
            false => Err(format!("{} answered by {}", shown(&request.bytes), shown(reply))),
        }
    }

    fn asked(&self, _seat: &Seat, input: &[u8]) -> Cut {
        match input.first() {
            Some(&REQUEST) | None => cut(input),
            Some(_) => Cut::Bad("no request".into()),
        }
    }

    fn answer(&self, _seat: &mut Seat, request: &[u8]) -> Result<Answer, String> {
        let request = read(request)?;
        if request.opcode == opcode::SET && request.value != value_of(&request.key) {
            return Err("not the value that was sent".into());
        }
        let bytes = server::answer(&request).iter().flat_map(Cmd::bytes).collect();
        Ok(Answer { bytes, ..Answer::default() })
    }
}
