//! STOMP for fault-injection runs: frames with and without a length, heart-beats between them, receipts from the
//! server.
//! Promises: a receipt and a message tell which frame they answer.

use flick_net::sim::SimRng;

use super::lines::follow;
use super::{Answer, Cut, Judged, Owed, Seat, TrafficProtocol, TrafficRequest, exact, fill, random_len};
use crate::service::fault_injection::FaultPlan;

/// The peers of a door before servers.
#[derive(Clone, Copy, Debug)]
pub struct Stomp;

fn frame(command: &str, headers: &[(&str, &str)], body: &[u8], is_sized: bool) -> Vec<u8> {
    let mut text = format!("{command}\n");
    for (name, value) in headers {
        text.push_str(&format!("{name}:{value}\n"));
    }
    if is_sized {
        text.push_str(&format!("content-length:{}\n", body.len()));
    }
    text.push('\n');
    [text.as_bytes(), body, b"\0"].concat()
}

/// The frame at the front: heart-beats before it, its text, its body, its bytes.
fn read(input: &[u8]) -> Result<(&str, &[u8], usize), Cut> {
    let start = input.iter().position(|byte| !b"\r\n".contains(byte)).ok_or(Cut::More)?;
    let end = input[start..].windows(2).position(|two| two == b"\n\n").ok_or(Cut::More)? + start;
    let text = std::str::from_utf8(&input[start..end]).map_err(|_| Cut::Bad("no text".into()))?;
    let from = end + 2;
    let body_end = match header(text, "content-length") {
        Some(digits) => from + digits.parse::<usize>().map_err(|_| Cut::Bad("no length".into()))?,
        None => input[from..].iter().position(|byte| *byte == 0).ok_or(Cut::More)? + from,
    };
    match input.get(body_end) {
        None => Err(Cut::More),
        Some(0) => Ok((text, &input[from..body_end], body_end + 1)),
        Some(_) => Err(Cut::Bad("a body longer than its length".into())),
    }
}

fn header<'a>(text: &'a str, name: &str) -> Option<&'a str> {
    text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'))
}

impl TrafficProtocol for Stomp {
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
        let host = format!("{}.example.org", rng.between(0, 99));
        let bytes = frame("CONNECT", &[("host", &host), ("x", &name(0))], b"", false);
        let reply = frame("CONNECTED", &[("version", "1.2"), ("for", &name(0))], b"", false);
        let mut requests = vec![TrafficRequest { bytes, reply, kind: 0, owed: Owed::Reply }];
        for at in 1..=rng.between(1, plan.requests) {
            let (name, is_sized) = (name(at), rng.chance(600));
            let len = random_len(rng, plan.huge_per_mille);
            // Without a length a frame has 8 KiB at most.
            let len = if is_sized { len } else { len.min(3_000) };
            let bytes = frame("SEND", &[("destination", "/q"), ("x", &name)], &fill(&name, len), is_sized);
            let beats = ["", "", "\n", "\r\n", "\n\n"][rng.between(0, 4) as usize];
            let bytes = [beats.as_bytes(), &bytes].concat();
            let reply = frame("MESSAGE", &[("for", &name)], &fill(&name, len), is_sized);
            requests.push(TrafficRequest { bytes, reply, kind: 0, owed: Owed::Reply });
        }
        requests
    }

    fn nonsense(&self, rng: &mut SimRng) -> Vec<u8> {
        match rng.between(0, 2) {
            0 => b"send\n\n\0".to_vec(),
            1 => b"SEND\nno colon\n\n\0".to_vec(),
            _ => b"SEND\ncontent-length:-1\n\n\0".to_vec(),
        }
    }

    fn reply(&self, _request: &TrafficRequest, input: &[u8], _has_ended: bool) -> Cut {
        match read(input) {
            Ok((.., len)) => Cut::Whole(len),
            Err(cut) => cut,
        }
    }

    fn judge(&self, request: &TrafficRequest, reply: &[u8]) -> Result<Judged, String> {
        exact(request, reply, |_| false)
    }

    fn asked(&self, _seat: &Seat, input: &[u8]) -> Cut {
        match read(input) {
            Ok((.., len)) => Cut::Whole(len),
            Err(cut) => cut,
        }
    }

    fn answer(&self, seat: &mut Seat, request: &[u8]) -> Result<Answer, String> {
        let (text, body, _) = read(request).map_err(|cut| format!("{cut:?}"))?;
        let name = header(text, "x").ok_or("no name")?;
        follow(seat, name)?;
        let bytes = if text.starts_with("CONNECT") {
            frame("CONNECTED", &[("version", "1.2"), ("for", name)], b"", false)
        } else {
            if body != fill(name, body.len()) {
                return Err("not what was sent".into());
            }
            frame("MESSAGE", &[("for", name)], body, header(text, "content-length").is_some())
        };
        Ok(Answer { bytes, ..Answer::default() })
    }

    fn garbage(&self) -> Option<&'static [u8]> {
        Some(b"nonsense\n\n\0")
    }
}
