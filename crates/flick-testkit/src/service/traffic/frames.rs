//! Frames of a length and that many bytes, through a proxy of frames: lines in frames.
//! Promises: those of [`super::lines::Lines`].

use flick_net::sim::SimRng;

use super::lines::Lines;
use super::{Answer, Cut, Judged, Seat, TrafficProtocol, TrafficRequest};
use crate::service::fault_injection::FaultPlan;

/// Frames with a length of 16 bits, the most significant byte first.
#[derive(Clone, Copy, Debug)]
pub struct Frames;

fn frame(bytes: &[u8]) -> Vec<u8> {
    [&(bytes.len() as u16).to_be_bytes()[..], bytes].concat()
}

/// Returns the content of a frame.
fn held(frame: &[u8]) -> &[u8] {
    frame.get(2..).unwrap_or_default()
}

fn cut(input: &[u8]) -> Cut {
    let Some(size) = input.get(..2) else { return Cut::More };
    let len = 2 + usize::from(u16::from_be_bytes([size[0], size[1]]));
    if input.len() < len { Cut::More } else { Cut::Whole(len) }
}

impl TrafficProtocol for Frames {
    fn may_wait_for_ever(&self) -> bool {
        true
    }

    fn requests(
        &self,
        rng: &mut SimRng,
        client: u64,
        plan: &FaultPlan,
        is_last: bool,
    ) -> Vec<TrafficRequest> {
        let framed = |line: TrafficRequest| TrafficRequest {
            bytes: frame(&line.bytes),
            reply: frame(&line.reply),
            ..line
        };
        Lines::any().requests(rng, client, plan, is_last).into_iter().map(framed).collect()
    }

    fn nonsense(&self, rng: &mut SimRng) -> Vec<u8> {
        Lines::any().nonsense(rng)
    }

    fn reply(&self, _request: &TrafficRequest, input: &[u8], _has_ended: bool) -> Cut {
        cut(input)
    }

    fn judge(&self, request: &TrafficRequest, reply: &[u8]) -> Result<Judged, String> {
        Lines::any().judge(request, reply)
    }

    fn asked(&self, _seat: &Seat, input: &[u8]) -> Cut {
        cut(input)
    }

    fn answer(&self, seat: &mut Seat, request: &[u8]) -> Result<Answer, String> {
        let answer = Lines::any().answer(seat, held(request))?;
        Ok(Answer { bytes: frame(&answer.bytes), ..answer })
    }

    fn garbage(&self) -> Option<&'static [u8]> {
        // Everything is a frame.
        None
    }
}
