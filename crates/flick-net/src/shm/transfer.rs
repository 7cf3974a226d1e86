//! Bytes between the platform's buffers and the rings.

use flick_buffers::Pool;
use flick_shm::conn::RingRead;

use super::ShmTransport;
use super::continued::is_end;
use crate::conn::report::FaultReport;
use crate::driver::DriverEvent;
use crate::event_sink::EventSink;
use crate::fault::ConnFault;
use crate::limits::{
    LINGER_RECEIVES_MAX, READY_MANY, RECEIVED_BYTES_PER_POLL_MAX, RECEIVES_PER_CONN_MAX, SHM_LATE_BYTES_MAX,
    SHM_RING_GROWTH, WRITES_PER_CONN_MAX,
};

/// Result of serving one connection.
enum Served {
    /// Nothing more for now.
    Done,
    /// There is more, for the next poll.
    More,
    /// It waits for a receive buffer and for nothing else.
    Starved,
}

/// Result of one attempt to send.
enum Written {
    /// The ring took everything.
    All,
    /// The ring is full; the other side signals when it has space.
    Blocked,
    /// The ring has space again, or a larger one was taken.
    Again,
}

impl ShmTransport {
    pub(super) fn write_dirty(&mut self) {
        for _ in 0..self.conns.dirty.len() {
            if self.quota.is_used_up() {
                return;
            }
            if let Some(index) = self.conns.dirty.pop() {
                self.write(index);
            }
        }
    }

    /// Copies a connection's output to its ring until it is sent, the ring is full or a limit is reached.
    fn write(&mut self, index: u32) {
        let mut writes = 0;
        while self.conns.at(index).is_some_and(|conn| conn.is_sendable()) {
            if writes == WRITES_PER_CONN_MAX || self.quota.is_used_up() {
                self.conns.dirty.push(index);
                break;
            }
            writes += 1;
            match self.write_once(index) {
                Ok(Written::All | Written::Again) => {}
                Ok(Written::Blocked) => self.conns.block_output(index),
                Err(fault) => return self.fail(index, fault),
            }
        }
        if writes > 0 {
            let then = self.conns.sent(index, self.now_ns);
            self.apply(index, then);
        }
    }

    /// Copies what fits, and publishes it at once.
    fn write_once(&mut self, index: u32) -> Result<Written, ConnFault> {
        let (Some(conn), Some(ring)) = (self.conns.at(index), &mut self.rings[index as usize]) else {
            return Err(ConnFault::Reset);
        };
        let reset = |_| ConnFault::Reset;
        if ring.is_peer_closed() && !conn.has_input_end() {
            // Its reply is read first; output is discarded, as by a kernel whose socket is closed.
            let discarded = self.conns.output(conn, self.quota.left_bytes()).map(|slice| slice.bytes().len());
            let discarded = discarded.sum();
            self.conns.consume(index, discarded);
            return Ok(Written::All);
        }
        if ring.is_peer_gone() || self.pairs.is_gone(conn.part.pair) {
            return Err(ConnFault::Reset);
        }
        let (mut sent, mut is_full) = (0, false);
        for slice in self.conns.output(conn, self.quota.left_bytes()) {
            let taken = ring.push(slice.bytes()).map_err(reset)?;
            sent += taken;
            is_full = taken < slice.bytes().len();
            if is_full {
                break;
            }
        }
        ring.publish().map_err(reset)?;
        let pair = conn.part.pair;
        self.quota.take(sent);
        self.stats.sent_bytes += if self.pairs.is_internal(pair) { 0 } else { sent as u64 };
        self.conns.consume(index, sent);
        if !is_full {
            return Ok(Written::All);
        }
        let wanted = (ring.send_capacity() * SHM_RING_GROWTH).min(self.pairs.grown_bytes_max());
        if wanted > ring.send_capacity() && self.pairs.resize(pair, ring, wanted).map_err(reset)? {
            return Ok(Written::Again);
        }
        Ok(if ring.announce_full().map_err(reset)? { Written::Blocked } else { Written::Again })
    }

    /// Serves every connection that is ready now, once.
    pub(super) fn serve_ready(&mut self, pool: &Pool, sink: &mut EventSink<'_>) {
        for _ in 0..self.conns.ready.len() {
            if sink.is_full() || self.received_bytes >= RECEIVED_BYTES_PER_POLL_MAX {
                break;
            }
            let Some(index) = self.conns.ready.pop() else { break };
            match self.serve(index, pool, sink) {
                Served::Done => {}
                Served::More => self.conns.ready.push(index),
                Served::Starved => self.starved.push(index),
            }
        }
    }

    fn serve(&mut self, index: u32, pool: &Pool, sink: &mut EventSink<'_>) -> Served {
        let Some(conn) = self.conns.at(index) else { return Served::Done };
        if conn.is_connecting() {
            self.end_connect(index);
        }
        self.unblock(index);
        let Some(conn) = self.conns.at(index) else { return Served::Done };
        if !conn.is_live() {
            return if conn.is_lingering() { self.discard(index) } else { Served::Done };
        }
        let is_claim =
            conn.part.is_claim && !conn.is_connecting() && (!conn.has_failed() || conn.holds_fault());
        self.conns.report_progress(index, sink);
        if is_claim {
            self.claims.push(index);
            return Served::Done;
        }
        let received = self.receive_some(index, pool, sink);
        if !matches!(received, Served::Done) {
            return received;
        }
        match self.conns.report_fault(index, sink) {
            FaultReport::None if self.conns.has_report(index) => Served::More,
            FaultReport::None => Served::Done,
            FaultReport::Later => Served::More,
            FaultReport::Ended => {
                self.drop_conn(index, false);
                Served::Done
            }
        }
    }

    /// Throws away what has arrived for a lingering connection.
    fn discard(&mut self, index: u32) -> Served {
        for _ in 0..LINGER_RECEIVES_MAX {
            let Some(conn) = self.conns.at(index) else { return Served::Done };
            let Some(ring) = &mut self.rings[index as usize] else { return Served::Done };
            let is_over = match ring.receive(&mut self.scratch) {
                Ok(RingRead::Empty) if self.pairs.is_gone(conn.part.pair) => true,
                Ok(RingRead::Empty) => {
                    self.poll_again(index);
                    return Served::Done;
                }
                Ok(RingRead::Bytes(bytes)) => self.conns.discard(index, bytes),
                Ok(RingRead::Finished) => self.conns.discard_end(index),
                Ok(RingRead::Reset) | Err(_) => true,
            };
            if is_over {
                self.drop_conn(index, true);
                return Served::Done;
            }
        }
        Served::More
    }

    /// Sends on if a full ring has space again.
    fn unblock(&mut self, index: u32) {
        let Some(conn) = self.conns.at(index).filter(|conn| conn.is_blocked()) else { return };
        let Some(ring) = &mut self.rings[index as usize] else { return };
        let is_gone = ring.is_peer_gone() || self.pairs.is_gone(conn.part.pair);
        // A wake-up may come too early; another one has to be asked for then.
        let has_space = is_gone || ring.has_space().unwrap_or(true) || !ring.announce_full().unwrap_or(false);
        if has_space && self.conns.unblock_output(index) {
            self.write(index);
        }
    }

    /// Receives from one connection until its ring is empty, no buffer is left, the sink is full or it had its share.
    fn receive_some(&mut self, index: u32, pool: &Pool, sink: &mut EventSink<'_>) -> Served {
        let receives_max = if self.conns.ready.len() < READY_MANY { RECEIVES_PER_CONN_MAX } else { 1 };
        for _ in 0..receives_max {
            let conn = self.conns.at(index).filter(|conn| conn.awaits_input());
            let Some(pair) = conn.map(|conn| conn.part.pair) else {
                self.conns.report_end(index, sink);
                return Served::Done;
            };
            let Some(ring) = &mut self.rings[index as usize] else { return Served::Done };
            if sink.is_full() {
                return Served::More;
            }
            let Some(buf) = self.receive_buffer.get(pool) else { return Served::Starved };
            let start = buf.len();
            let asked = buf.spare().min(self.limits.receive_bytes);
            let mut read = Ok(RingRead::Empty);
            buf.append_with(asked, |spare| {
                read = ring.receive(spare);
                if let Ok(RingRead::Bytes(bytes)) = read { bytes as u32 } else { 0 }
            });
            match read {
                Ok(RingRead::Bytes(bytes)) => {
                    let Some(conn) = self.conns.at_mut(index) else { return Served::Done };
                    conn.part.idle_looks = 0;
                    let is_gone = self.pairs.is_gone(pair);
                    conn.part.late_bytes += if is_gone { bytes as u64 } else { 0 };
                    let is_too_late = conn.part.late_bytes > SHM_LATE_BYTES_MAX;
                    self.received_bytes += bytes;
                    self.stats.received_bytes += if self.pairs.is_internal(pair) { 0 } else { bytes as u64 };
                    let data = buf.slice(start..start + bytes as u32);
                    sink.put(DriverEvent::Data { conn: self.conns.handle(index), data });
                    if is_too_late {
                        // The process lives and sends on, though its pair has ended.
                        if !self.leave_rings_of(index) {
                            self.rings[index as usize] = None;
                            self.fail(index, ConnFault::Reset);
                        }
                        return Served::Done;
                    }
                    // No news follow of a process that is gone: its end is looked for at once.
                    if bytes < asked as usize && !is_gone {
                        self.poll_again(index);
                        return Served::Done;
                    }
                }
                ref read if is_end(&self.pairs, pair, read) && self.leave_rings_of(index) => {
                    return Served::More;
                }
                // Whatever the words of a process say that is gone, nothing follows.
                Ok(RingRead::Empty) if self.pairs.is_gone(pair) => {
                    self.fail(index, ConnFault::Reset);
                    return Served::Done;
                }
                Ok(RingRead::Empty) => {
                    self.poll_again(index);
                    return Served::Done;
                }
                Ok(RingRead::Finished) => self.conns.end_input(index),
                Ok(RingRead::Reset) => {
                    self.fail(index, ConnFault::Reset);
                    return Served::Done;
                }
                Err(fault) => {
                    self.fail_peer(index, fault);
                    return Served::Done;
                }
            }
        }
        Served::More
    }
}
