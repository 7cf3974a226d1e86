//! A server that is healthy but for a while: what ails it is said in [`Ailment`].
//! Promises: before and behind that while it is an honest server; what reaches it meanwhile is seen once or not at all.

use std::collections::VecDeque;

use flick_net::sim::{Actor, PeerIo};

use super::server::Server;
use crate::service::ailing::{Ailing, Ailment, SLOW_NS};

/// Timers of its own, beyond those of the healthy server.
const FALLS_ILL: u64 = 100;
const IS_WELL: u64 = 101;
const READS_ON: u64 = 102;

pub(super) struct Patient {
    healthy: Server,
    ailing: Option<Ailing>,
    /// What a slow one has not read yet.
    unread: VecDeque<Vec<u8>>,
    /// It will never answer on this connection again.
    is_deaf: bool,
    /// It knows nothing of this connection any more.
    has_forgotten: bool,
}

impl Patient {
    pub(super) fn new(healthy: Server, ailing: Option<Ailing>) -> Self {
        Self { healthy, ailing, unread: VecDeque::new(), is_deaf: false, has_forgotten: false }
    }

    fn ailment(&self, io: &PeerIo<'_>) -> Option<Ailment> {
        self.ailing
            .as_ref()
            .filter(|ailing| ailing.while_ns.contains(&io.now_ns()))
            .map(|ailing| ailing.ailment)
    }

    /// Reads some of what came while it was slow.
    fn read_on(&mut self, io: &mut PeerIo<'_>, pieces: usize) {
        for data in self.unread.drain(..pieces.min(self.unread.len())) {
            self.healthy.on_data(io, &data);
        }
    }

    fn fall_ill(&mut self, io: &mut PeerIo<'_>, ailment: Ailment, is_new: bool) {
        match ailment {
            Ailment::Refuses => io.close(),
            Ailment::Stalls => io.pause_reading(true),
            Ailment::HalfCloses => {
                self.is_deaf = true;
                io.shutdown_write();
            }
            Ailment::Forgets => self.has_forgotten = !is_new,
            Ailment::CutsReplies => self.healthy.set_cuts(true),
            // The others show when something is asked, or are the network's.
            Ailment::Killed | Ailment::HangsUp | Ailment::Unreachable | Ailment::Slow | Ailment::Garbage => {}
        }
    }
}

impl Actor for Patient {
    fn on_open(&mut self, io: &mut PeerIo<'_>) {
        self.healthy.on_open(io);
        let Some(while_ns) = self.ailing.as_ref().map(|ailing| ailing.while_ns.clone()) else { return };
        let Some(left_ns) = while_ns.end.checked_sub(io.now_ns()) else { return };
        match self.ailment(io) {
            Some(ailment) => self.fall_ill(io, ailment, true),
            None => io.timer(while_ns.start.saturating_sub(io.now_ns()), FALLS_ILL),
        }
        io.timer(left_ns, IS_WELL);
    }

    fn on_data(&mut self, io: &mut PeerIo<'_>, data: &[u8]) {
        if self.is_deaf {
            return;
        }
        if self.has_forgotten {
            return io.reset();
        }
        match self.ailment(io) {
            Some(Ailment::HangsUp) => {
                self.is_deaf = true;
                io.close();
            }
            Some(Ailment::Garbage) => {
                self.is_deaf = true;
                match self.healthy.protocol().garbage() {
                    Some(garbage) => io.write(garbage),
                    None => io.close(),
                }
            }
            Some(Ailment::Slow) => {
                self.unread.push_back(data.to_vec());
                io.timer(SLOW_NS, READS_ON);
            }
            _ => self.healthy.on_data(io, data),
        }
    }

    fn on_timer(&mut self, io: &mut PeerIo<'_>, id: u64) {
        match (id, self.ailing.as_ref().map(|ailing| ailing.ailment)) {
            (FALLS_ILL, Some(ailment)) => self.fall_ill(io, ailment, false),
            (IS_WELL, Some(ailment)) => match ailment {
                Ailment::Stalls => io.pause_reading(false),
                Ailment::CutsReplies => self.healthy.set_cuts(false),
                Ailment::Slow => self.read_on(io, usize::MAX),
                _ => {}
            },
            (READS_ON, _) => self.read_on(io, 1),
            _ => self.healthy.on_timer(io, id),
        }
    }
}
