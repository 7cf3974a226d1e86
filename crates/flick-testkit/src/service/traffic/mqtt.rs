//! MQTT for fault-injection runs: clients that connect, publish, subscribe and ping; brokers that answer and
//! send on.
//! Promises: what a broker sends to a client tells which client and which packet it answers; `$` topics reach no
//! client.

use flick_net::sim::SimRng;

use super::lines::follow;
use super::{Answer, Cut, Judged, Owed, Seat, TrafficProtocol, TrafficRequest, exact, fill, random_len};
use crate::service::fault_injection::FaultPlan;

/// The peers of a door before brokers.
#[derive(Clone, Copy, Debug)]
pub struct Mqtt;

const CONNECT: u8 = 0x10;
const CONNACK: u8 = 0x20;
const PUBLISH: u8 = 0x30;
const PUBLISH_QOS_1: u8 = 0x32;
const PUBACK: u8 = 0x40;
const SUBSCRIBE: u8 = 0x82;
const SUBACK: u8 = 0x90;
const PINGREQ: u8 = 0xc0;
const PINGRESP: u8 = 0xd0;

fn packet(kind: u8, body: &[u8]) -> Vec<u8> {
    let mut bytes = vec![kind];
    let mut left = body.len();
    loop {
        let low = (left % 128) as u8;
        left /= 128;
        bytes.push(if left > 0 { low | 0x80 } else { low });
        if left == 0 {
            break;
        }
    }
    bytes.extend(body);
    bytes
}

fn text(text: &str) -> Vec<u8> {
    [&(text.len() as u16).to_be_bytes()[..], text.as_bytes()].concat()
}

/// The packet at the front: its bytes, and where its body begins.
fn cut(input: &[u8]) -> Result<(usize, usize), Cut> {
    let mut left = 0_usize;
    for at in 1..=4 {
        let byte = *input.get(at).ok_or(Cut::More)?;
        left |= usize::from(byte & 0x7f) << (7 * (at - 1));
        if byte & 0x80 == 0 {
            let len = at + 1 + left;
            return if input.len() < len { Err(Cut::More) } else { Ok((len, at + 1)) };
        }
    }
    Err(Cut::Bad("a length of five bytes".into()))
}

/// Returns the packet that a broker sends on for a packet of this name.
fn sent_on(name: &str, len: usize) -> Vec<u8> {
    packet(PUBLISH, &[text(&format!("on/{name}")), fill(name, len)].concat())
}

/// Returns the number of packets that answer one: each of them is a reply of its own to the client, joined here.
fn replies(kind: u32) -> usize {
    if kind == u32::from(PUBLISH_QOS_1) { 2 } else { 1 }
}

impl TrafficProtocol for Mqtt {
    fn may_wait_for_ever(&self) -> bool {
        true
    }

    fn requests(
        &self,
        rng: &mut SimRng,
        client: u64,
        plan: &FaultPlan,
        _is_last: bool,
    ) -> Vec<TrafficRequest> {
        let name = |at: u64| format!("{client}-{at}");
        let hello = [&text("MQTT")[..], &[4, 2, 0, 60], &text(&name(0))].concat();
        let first = TrafficRequest {
            bytes: packet(CONNECT, &hello),
            reply: packet(CONNACK, &[0, 0]),
            kind: u32::from(CONNECT),
            owed: Owed::Reply,
        };
        let one = |rng: &mut SimRng, at: u64| {
            let (name, id) = (name(at), (at as u16).to_be_bytes());
            let len = random_len(rng, plan.huge_per_mille);
            let payload = [format!("{name} ").as_bytes(), &fill(&name, len)].concat();
            let (kind, body, reply) = match rng.between(0, 5) {
                0 => (PINGREQ, vec![], packet(PINGRESP, &[])),
                1 => {
                    let body = [&id[..], &text(&format!("{name} filter")), &[0]].concat();
                    (SUBSCRIBE, body, packet(SUBACK, &[&id[..], &[0]].concat()))
                }
                2 => (PUBLISH, [text("room/1"), payload].concat(), sent_on(&name, len)),
                _ => {
                    let body = [text("room/2"), id.to_vec(), payload].concat();
                    (PUBLISH_QOS_1, body, [packet(PUBACK, &id), sent_on(&name, len)].concat())
                }
            };
            TrafficRequest { bytes: packet(kind, &body), reply, kind: u32::from(kind), owed: Owed::Reply }
        };
        let mut requests = vec![first];
        let mut at = 1;
        for _ in 0..rng.between(1, plan.requests) {
            if rng.chance(150) {
                let bytes = packet(PUBLISH, &[text("$SYS/x"), b"for no one".to_vec()].concat());
                requests.push(TrafficRequest { bytes, reply: vec![], kind: 0, owed: Owed::Silence });
                continue;
            }
            let request = one(rng, at);
            // Those that carry no name are not counted by the broker.
            at += u64::from(request.kind != u32::from(PINGREQ));
            requests.push(request);
        }
        requests
    }

    fn nonsense(&self, rng: &mut SimRng) -> Vec<u8> {
        match rng.between(0, 2) {
            0 => vec![0x00, 0x00],
            1 => vec![0x36, 0x02, 0x00, 0x00],
            _ => vec![0x30, 0xff, 0xff, 0xff, 0xff, 0x01],
        }
    }

    fn reply(&self, request: &TrafficRequest, input: &[u8], _has_ended: bool) -> Cut {
        let mut at = 0;
        for _ in 0..replies(request.kind) {
            match cut(&input[at..]) {
                Ok((len, _)) => at += len,
                Err(cut) => return cut,
            }
        }
        Cut::Whole(at)
    }

    fn judge(&self, request: &TrafficRequest, reply: &[u8]) -> Result<Judged, String> {
        exact(request, reply, |_| false)
    }

    fn may_end_behind(&self, input: &[u8]) -> bool {
        matches!(cut(input), Ok((len, _)) if len == input.len())
    }

    fn asked(&self, _seat: &Seat, input: &[u8]) -> Cut {
        match cut(input) {
            Ok((len, _)) => Cut::Whole(len),
            Err(cut) => cut,
        }
    }

    fn answer(&self, seat: &mut Seat, request: &[u8]) -> Result<Answer, String> {
        let (_, at) = cut(request).map_err(|cut| format!("{cut:?}"))?;
        let body = &request[at..];
        let read = |at: usize| -> Option<(String, usize)> {
            let size = usize::from(u16::from_be_bytes([*body.get(at)?, *body.get(at + 1)?]));
            Some((String::from_utf8_lossy(body.get(at + 2..at + 2 + size)?).into_owned(), at + 2 + size))
        };
        let bytes = match request[0] {
            CONNECT => {
                let (_, at) = read(0).ok_or("no protocol")?;
                let (name, _) = read(at + 4).ok_or("no client")?;
                follow(seat, &name)?;
                packet(CONNACK, &[0, 0])
            }
            PINGREQ => packet(PINGRESP, &[]),
            SUBSCRIBE => {
                let (filter, _) = read(2).ok_or("no filter")?;
                follow(seat, &filter)?;
                packet(SUBACK, &[body[0], body[1], 0])
            }
            kind @ (PUBLISH | PUBLISH_QOS_1) => {
                let (topic, at) = read(0).ok_or("no topic")?;
                if topic.starts_with('$') {
                    return Err("a topic that the door keeps out".into());
                }
                let (id, payload) = body[at..].split_at(if kind == PUBLISH { 0 } else { 2 });
                let text = String::from_utf8_lossy(payload).into_owned();
                follow(seat, &text)?;
                let name = text.split(' ').next().unwrap_or_default();
                let data = &payload[name.len() + 1..];
                if data != fill(name, data.len()) {
                    return Err("not what was published".into());
                }
                let acknowledged = if kind == PUBLISH { Vec::new() } else { packet(PUBACK, id) };
                [acknowledged, sent_on(name, data.len())].concat()
            }
            _ => return Err("an unknown packet".into()),
        };
        Ok(Answer { bytes, ..Answer::default() })
    }

    fn garbage(&self) -> Option<&'static [u8]> {
        Some(&[0x00, 0x00])
    }
}
