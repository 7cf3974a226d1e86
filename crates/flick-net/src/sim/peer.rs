//! Scripted peers: what they are told and what they can do.
//! Promises: after `close` or `reset` a peer is told nothing more; what it had written still goes out (`close`).

use super::Rng;
use super::agenda::{Action, LinkId, Piece};
use super::world::Core;

/// The peer's end of one connection. All methods are called in virtual time, one at a time.
pub trait Actor {
    /// The connection is up.
    fn on_open(&mut self, io: &mut PeerIo<'_>) {
        let _ = io;
    }

    /// Bytes arrived, cut as the network pleased.
    fn on_data(&mut self, io: &mut PeerIo<'_>, data: &[u8]);

    /// The driver's side sends no more. Closes, unless it is overridden.
    fn on_eof(&mut self, io: &mut PeerIo<'_>) {
        io.close();
    }

    /// The connection is gone without a clean end, or was refused.
    fn on_reset(&mut self, io: &mut PeerIo<'_>) {
        let _ = io;
    }

    /// A timer set with [`PeerIo::timer`] has run out.
    fn on_timer(&mut self, io: &mut PeerIo<'_>, id: u64) {
        let _ = (io, id);
    }
}

/// What an actor can do to its connection.
pub struct PeerIo<'world> {
    pub(super) core: &'world mut Core,
    pub(super) link: LinkId,
}

impl PeerIo<'_> {
    /// Writes. Never refuses: what exceeds the window waits at the peer's side.
    pub fn write(&mut self, bytes: &[u8]) {
        let link = &mut self.core.links[self.link];
        if !link.peer_is_gone && !link.peer_ends {
            link.peer_out.extend(bytes);
            self.core.pump_to_driver(self.link);
        }
    }

    /// Bytes written that are not yet under way.
    pub fn backlog_bytes(&self) -> usize {
        self.core.links[self.link].peer_out.len()
    }

    /// Ends the connection once everything written has gone out.
    pub fn close(&mut self) {
        self.shutdown_write();
        self.core.links[self.link].peer_is_gone = true;
    }

    /// Says that no more will be written; reading goes on.
    pub fn shutdown_write(&mut self) {
        self.core.links[self.link].peer_ends = true;
        self.core.pump_to_driver(self.link);
    }

    /// Ends the connection at once; what has not gone out is lost.
    pub fn reset(&mut self) {
        let link = &mut self.core.links[self.link];
        if !link.peer_is_gone {
            link.peer_is_gone = true;
            link.peer_out.clear();
            self.core.send_to_driver(self.link, Piece::Reset);
        }
    }

    /// Asks for `on_timer` in `after_ns`.
    pub fn timer(&mut self, after_ns: u64, id: u64) {
        self.core.schedule(self.core.now_ns + after_ns, Action::Timer { link: self.link, id });
    }

    /// Stops or resumes reading: while paused, what arrives fills the window and then the driver's backlog.
    pub fn pause_reading(&mut self, pause: bool) {
        let link = &mut self.core.links[self.link];
        if std::mem::replace(&mut link.peer_is_paused, pause) && !pause {
            self.core.schedule(self.core.now_ns, Action::PeerReads { link: self.link });
        }
    }

    /// Virtual time.
    pub fn now_ns(&self) -> u64 {
        self.core.now_ns
    }

    /// The simulation's source of chance.
    pub fn rng(&mut self) -> &mut Rng {
        &mut self.core.rng
    }
}
