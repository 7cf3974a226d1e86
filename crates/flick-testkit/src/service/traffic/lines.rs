//! Peers of services that pass bytes on: lines through a relay, and packets of a capture one way.
//! Promises: a server sees the bytes of one client on each connection, in their order and without a gap; so does a
//! client of what its server says.

use flick_net::sim::SimRng;

use super::{
    Answer, Cut, Judged, Owed, Seat, TrafficProtocol, TrafficRequest, exact, fill, line, random_len,
};
use crate::service::fault_injection::FaultPlan;

/// Lines that are answered by lines, through anything that passes on bytes.
#[derive(Clone, Copy, Debug)]
pub struct Lines {
    /// Longest filling of a line.
    pub len_max: usize,
}

impl Lines {
    /// Lines of any length.
    pub fn any() -> Self {
        Self { len_max: usize::MAX }
    }
}

/// Checks that a line `CLIENT-NUMBER ...` is the one after the last of its connection.
pub(super) fn follow(seat: &mut Seat, text: &str) -> Result<(), String> {
    let name = text.split(' ').next().unwrap_or_default();
    let (client, number) = name.split_once('-').ok_or("no line of ours")?;
    let number: u64 = number.parse().map_err(|_| "no number")?;
    let expected = match seat.memory.split_once('-') {
        Some((last_client, last)) if last_client == client => last.parse::<u64>().unwrap_or_default() + 1,
        Some(_) => return Err("another client's on the same connection".into()),
        None => 0,
    };
    if number != expected {
        return Err(format!("{number} where {expected} was to come"));
    }
    seat.memory = name.to_owned();
    Ok(())
}

impl TrafficProtocol for Lines {
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
        let one = |rng: &mut SimRng, at: u64| {
            let name = format!("{client}-{at}");
            let mut some = || random_len(rng, plan.huge_per_mille).min(self.len_max);
            let (len, back) = (some(), some());
            let bytes = [format!("{name} {back} ").as_bytes(), &fill(&name, len), b"\n"].concat();
            let reply = [format!("re {name} ").as_bytes(), &fill(&name, back), b"\n"].concat();
            TrafficRequest { bytes, reply, kind: 0, owed: Owed::Reply }
        };
        (0..rng.between(1, plan.requests)).map(|at| one(rng, at)).collect()
    }

    fn nonsense(&self, _rng: &mut SimRng) -> Vec<u8> {
        // Nothing is, to a relay.
        Vec::new()
    }

    fn reply(&self, _request: &TrafficRequest, input: &[u8], _has_ended: bool) -> Cut {
        line(input).map_or(Cut::More, |(_, len)| Cut::Whole(len))
    }

    fn judge(&self, request: &TrafficRequest, reply: &[u8]) -> Result<Judged, String> {
        exact(request, reply, |_| false)
    }

    fn may_end_behind(&self, _input: &[u8]) -> bool {
        true
    }

    fn asked(&self, _seat: &Seat, input: &[u8]) -> Cut {
        line(input).map_or(Cut::More, |(_, len)| Cut::Whole(len))
    }

    fn answer(&self, seat: &mut Seat, request: &[u8]) -> Result<Answer, String> {
        let (text, _) = line(request).ok_or("no line")?;
        follow(seat, text)?;
        let words: Vec<&str> = text.splitn(3, ' ').collect();
        let (name, back, data) = (words[0], words.get(1).copied().unwrap_or_default(), words.get(2).copied());
        let data = data.unwrap_or_default().as_bytes();
        if data != fill(name, data.len()) {
            return Err("not what was sent".into());
        }
        let back: usize = back.parse().map_err(|_| "no length")?;
        let bytes = [format!("re {name} ").as_bytes(), &fill(name, back), b"\n"].concat();
        Ok(Answer { bytes, ..Answer::default() })
    }

    fn garbage(&self) -> Option<&'static [u8]> {
        None
    }
}

/// Captures of packets that pass through to a server which says nothing.
#[derive(Clone, Copy, Debug)]
pub struct Captures;

const FILE_HEADER: [u8; 24] =
    [0xd4, 0xc3, 0xb2, 0xa1, 2, 0, 4, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 4, 0, 1, 0, 0, 0];
const RECORD_HEADER_BYTES: usize = 16;

fn packet(name: &str, len: usize) -> Vec<u8> {
    let data = [format!("{name} ").as_bytes(), &fill(name, len)].concat();
    let kept = (data.len() as u32).to_le_bytes();
    [&1_700_000_000_u32.to_le_bytes()[..], &5_u32.to_le_bytes(), &kept, &kept, &data].concat()
}

impl TrafficProtocol for Captures {
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
        let silence = |bytes: Vec<u8>| TrafficRequest { bytes, reply: vec![], kind: 0, owed: Owed::Silence };
        let packets: Vec<TrafficRequest> = (0..rng.between(1, plan.requests))
            .map(|at| silence(packet(&format!("{client}-{at}"), random_len(rng, plan.huge_per_mille))))
            .collect();
        [vec![silence(FILE_HEADER.to_vec())], packets].concat()
    }

    fn nonsense(&self, rng: &mut SimRng) -> Vec<u8> {
        match rng.between(0, 1) {
            // A big-endian capture's number; more kept than was there.
            0 => [0xa1, 0xb2, 0xc3, 0xd4].repeat(6),
            _ => [1_u32, 1, 200, 100].iter().flat_map(|word| word.to_le_bytes()).collect(),
        }
    }

    fn reply(&self, _request: &TrafficRequest, _input: &[u8], _has_ended: bool) -> Cut {
        Cut::Bad("nothing comes back".into())
    }

    fn judge(&self, _request: &TrafficRequest, _reply: &[u8]) -> Result<Judged, String> {
        Err("nothing comes back".into())
    }

    fn asked(&self, _seat: &Seat, input: &[u8]) -> Cut {
        if input.starts_with(&FILE_HEADER[..input.len().min(4)]) {
            return if input.len() < FILE_HEADER.len() { Cut::More } else { Cut::Whole(FILE_HEADER.len()) };
        }
        let Some(kept) = input.get(8..12) else { return Cut::More };
        let len = RECORD_HEADER_BYTES + u32::from_le_bytes([kept[0], kept[1], kept[2], kept[3]]) as usize;
        if input.len() < len { Cut::More } else { Cut::Whole(len) }
    }

    fn answer(&self, seat: &mut Seat, request: &[u8]) -> Result<Answer, String> {
        if request == FILE_HEADER {
            let is_first = seat.memory.is_empty();
            return if is_first { Ok(Answer::default()) } else { Err("a header among packets".into()) };
        }
        let data = &request[RECORD_HEADER_BYTES..];
        let text = String::from_utf8_lossy(data).into_owned();
        let name = text.split(' ').next().unwrap_or_default().to_owned();
        follow(seat, &text)?;
        if data[name.len() + 1..] != fill(&name, data.len() - name.len() - 1) {
            return Err("not the packet that was sent".into());
        }
        Ok(Answer::default())
    }

    fn garbage(&self) -> Option<&'static [u8]> {
        None
    }
}
