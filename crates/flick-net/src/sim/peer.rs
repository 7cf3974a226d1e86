//! Scripted peers: what they are called with and what they can do.
//! Promises: after `close` or `reset` no callback of a peer is called; what it had written before `close` is still
//! sent.

use super::connection::PeerSide;
use super::core::Core;
use super::event_queue::{Action, Segment, SimConnId};
use super::rng::SimRng;

/// The peer's end of one connection. All methods are called in virtual time, one at a time.
pub trait Actor {
    /// The connection is established.
    fn on_open(&mut self, io: &mut PeerIo<'_>) {
        let _ = io;
    }

    /// Bytes arrived, cut as the network decided.
    fn on_data(&mut self, io: &mut PeerIo<'_>, data: &[u8]);

    /// The driver's side sends no more. Closes, unless it is overridden.
    fn on_eof(&mut self, io: &mut PeerIo<'_>) {
        io.close();
    }

    /// The connection has ended without a clean end, or was refused.
    fn on_reset(&mut self, io: &mut PeerIo<'_>) {
        let _ = io;
    }

    /// A timer set with [`PeerIo::timer`] has expired.
    fn on_timer(&mut self, io: &mut PeerIo<'_>, id: u64) {
        let _ = (io, id);
    }
}

/// Operations of an actor on its connection.
pub struct PeerIo<'world> {
    pub(super) core: &'world mut Core,
    pub(super) conn: SimConnId,
}

impl PeerIo<'_> {
    /// Writes. Never refuses: what exceeds the window waits at the peer's side.
    pub fn write(&mut self, bytes: &[u8]) {
        let conn = &mut self.core.conns[self.conn];
        if conn.peer == PeerSide::Open {
            conn.peer_out.extend(bytes);
            self.core.pump_to_driver(self.conn);
        }
    }

    /// Returns the bytes written that are not yet sent.
    pub fn backlog_bytes(&self) -> usize {
        self.core.conns[self.conn].peer_out.len()
    }

    /// Ends the connection once everything written is sent.
    pub fn close(&mut self) {
        self.shutdown_write();
        let conn = &mut self.core.conns[self.conn];
        if conn.peer == PeerSide::HalfClosed {
            conn.peer = PeerSide::Closed;
        }
    }

    /// Ends the peer's stream; reading goes on.
    pub fn shutdown_write(&mut self) {
        let conn = &mut self.core.conns[self.conn];
        if conn.peer == PeerSide::Open {
            conn.peer = PeerSide::HalfClosed;
        }
        self.core.pump_to_driver(self.conn);
    }

    /// Ends the connection at once; what is not sent is lost.
    pub fn reset(&mut self) {
        let conn = &mut self.core.conns[self.conn];
        if !conn.peer_is_gone() {
            conn.lose_peer();
            self.core.send_to_driver(self.conn, Segment::Reset);
        }
    }

    /// Asks for `on_timer` in `after_ns`.
    pub fn timer(&mut self, after_ns: u64, id: u64) {
        self.core.schedule(self.core.now_ns + after_ns, Action::Timer { conn: self.conn, id });
    }

    /// Stops or resumes reading: while paused, what arrives fills the window and then the driver's backlog.
    pub fn pause_reading(&mut self, pause: bool) {
        let conn = &mut self.core.conns[self.conn];
        if std::mem::replace(&mut conn.peer_is_paused, pause) && !pause {
            self.core.schedule(self.core.now_ns, Action::PeerReads { conn: self.conn });
        }
    }

    /// Returns the virtual time.
    pub fn now_ns(&self) -> u64 {
        self.core.now_ns
    }

    /// Returns the simulation's source of chance.
    pub fn rng(&mut self) -> &mut SimRng {
        &mut self.core.rng
    }
}
