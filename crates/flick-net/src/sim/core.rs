//! State that both sides of the simulation share: the clock, the event queue, the connections and the source of chance.

use std::collections::BinaryHeap;

use super::config::SimConfig;
use super::connection::{Side, SimConn};
use super::event_queue::{Action, ScheduledAction, Segment, SimConnId};
use super::rng::SimRng;

/// The shared state. Actors never see the driver and the driver never sees actors.
pub(super) struct Core {
    pub(super) config: SimConfig,
    pub(super) rng: SimRng,
    pub(super) now_ns: u64,
    pub(super) conns: Vec<SimConn>,
    /// By side: connections whose end there has something new: to read, to report, or window to send.
    pub(super) touched: [Vec<SimConnId>; 2],
    pub(super) accept_errno: Option<i32>,
    pub(super) trace_hash: u64,
    queue: BinaryHeap<ScheduledAction>,
    scheduled_count: u64,
}

/// Longest segment that travels whole.
const SEGMENT_BYTES_MAX: usize = 16 * 1024;

const FNV_OFFSET: u64 = 0xCBF2_9CE4_8422_2325;
const FNV_PRIME: u64 = 0x0000_0100_0000_01B3;

impl Core {
    pub(super) fn new(seed: u64, config: SimConfig) -> Core {
        Core {
            config,
            rng: SimRng::new(seed),
            now_ns: 0,
            conns: Vec::new(),
            touched: [Vec::new(), Vec::new()],
            accept_errno: None,
            trace_hash: FNV_OFFSET,
            queue: BinaryHeap::new(),
            scheduled_count: 0,
        }
    }

    /// Schedules an action; a time that has passed means now.
    pub(super) fn schedule(&mut self, at_ns: u64, action: Action) {
        self.scheduled_count += 1;
        let (at_ns, sequence) = (at_ns.max(self.now_ns), self.scheduled_count);
        self.queue.push(ScheduledAction { at_ns, sequence, action });
    }

    /// Returns when the next action is due.
    pub(super) fn next_ns(&self) -> Option<u64> {
        self.queue.peek().map(|next| next.at_ns)
    }

    /// Takes the next action if it is due.
    pub(super) fn next_due(&mut self) -> Option<Action> {
        if self.next_ns()? <= self.now_ns { self.queue.pop().map(|next| next.action) } else { None }
    }

    /// Adds to the fingerprint of the run.
    pub(super) fn trace(&mut self, kind: u8, who: u64, bytes: &[u8]) {
        let mut hash = self.trace_hash ^ self.now_ns.rotate_left(17) ^ who.rotate_left(40) ^ u64::from(kind);
        for &byte in bytes {
            hash = (hash ^ u64::from(byte)).wrapping_mul(FNV_PRIME);
        }
        self.trace_hash = hash.wrapping_mul(FNV_PRIME);
    }

    pub(super) fn between(&mut self, (low, high): (u64, u64)) -> u64 {
        self.rng.between(low, high)
    }

    /// Returns how much of `bytes` travels as one segment.
    pub(super) fn segment_bytes(&mut self, bytes: usize) -> usize {
        let whole = bytes.min(SEGMENT_BYTES_MAX);
        if self.rng.chance(self.config.split_per_mille) {
            let most = self.config.split_bytes_max.min(whole);
            self.rng.between(1, most as u64) as usize
        } else {
            whole
        }
    }

    /// Sends as much of what the peer wrote as the window allows.
    pub(super) fn pump_to_driver(&mut self, id: SimConnId) {
        loop {
            let window_bytes = self.config.window_bytes;
            let conn = &self.conns[id];
            let free_bytes = window_bytes.saturating_sub(conn.to_driver.held_bytes);
            let offered = conn.peer_out.len().min(free_bytes);
            if offered == 0 {
                break;
            }
            let taken = self.segment_bytes(offered);
            let conn = &mut self.conns[id];
            let bytes: Vec<u8> = conn.peer_out.drain(..taken).collect();
            let offset = conn.to_driver.sent_bytes;
            conn.to_driver.sent_bytes += taken as u64;
            conn.to_driver.held_bytes += taken;
            self.send_to_driver(id, Segment::Bytes { offset, bytes });
        }
        let conn = &mut self.conns[id];
        if conn.peer_has_ended() && conn.peer_out.is_empty() && !conn.to_driver.fin_is_sent {
            conn.to_driver.fin_is_sent = true;
            self.send_to_driver(id, Segment::Fin);
        }
    }

    /// Lets the sender use the window that a side has opened by reading.
    pub(super) fn opened_window(&mut self, side: Side, id: SimConnId) {
        if side == Side::Driver && self.conns[id].hosted_end.is_none() {
            self.pump_to_driver(id);
        } else {
            self.touch(side.other(), id);
        }
    }

    pub(super) fn touch(&mut self, side: Side, id: SimConnId) {
        self.touched[side as usize].push(id);
    }

    /// Lets a segment travel to the driver.
    pub(super) fn send_to_driver(&mut self, id: SimConnId, segment: Segment) {
        self.send_to(Side::Driver, id, segment);
    }

    /// Lets a segment travel to a side.
    pub(super) fn send_to(&mut self, side: Side, id: SimConnId, segment: Segment) {
        let delay_ns = self.between(self.config.delay_ns);
        let stream = self.conns[id].stream_to_mut(side);
        stream.last_ns = stream.last_ns.max(self.now_ns + delay_ns);
        let at_ns = stream.last_ns;
        self.schedule(at_ns, Action::Arrive { conn: id, side, segment });
    }

    /// Sends the FIN of a driver to the other side, once.
    pub(super) fn send_fin_to(&mut self, side: Side, id: SimConnId) {
        if !std::mem::replace(&mut self.conns[id].stream_to_mut(side).fin_is_sent, true) {
            self.send_to(side, id, Segment::Fin);
        }
    }

    /// Counts down to a random reset; returns whether it is due.
    pub(super) fn is_to_be_reset(&mut self, id: SimConnId) -> bool {
        let Some(left) = &mut self.conns[id].segments_to_reset else { return false };
        *left = left.saturating_sub(1);
        *left == 0
    }

    /// Returns whether nothing is scheduled.
    pub(super) fn is_idle(&self) -> bool {
        self.queue.is_empty()
    }
}
