//! A server that is faulty for a while, in the way of a [`BackendFault`].
//! Promises: before and after that time it is an honest server; a request that arrives meanwhile is handled at most
//! once.

use std::collections::VecDeque;

use flick_net::sim::{Actor, PeerIo};

use super::server::TrafficServer;
use crate::service::backend_faults::{BackendFault, SLOW_NS, TimedFault};

/// Timers of its own, beyond those of the healthy server.
const FAULT_BEGINS: u64 = 100;
const FAULT_ENDS: u64 = 101;
const READS_ON: u64 = 102;

pub(super) struct FaultyServer {
    healthy: TrafficServer,
    timed_fault: Option<TimedFault>,
    /// Input that a slow server has not read yet.
    unread: VecDeque<Vec<u8>>,
    /// It will never answer on this connection again.
    is_deaf: bool,
    /// It knows nothing of this connection any more.
    has_forgotten: bool,
}

impl FaultyServer {
    pub(super) fn new(healthy: TrafficServer, timed_fault: Option<TimedFault>) -> Self {
        Self { healthy, timed_fault, unread: VecDeque::new(), is_deaf: false, has_forgotten: false }
    }

    fn fault(&self, io: &PeerIo<'_>) -> Option<BackendFault> {
        self.timed_fault
            .as_ref()
            .filter(|timed_fault| timed_fault.while_ns.contains(&io.now_ns()))
            .map(|timed_fault| timed_fault.fault)
    }

    /// Reads some of what came while it was slow.
    fn read_on(&mut self, io: &mut PeerIo<'_>, pieces: usize) {
        for data in self.unread.drain(..pieces.min(self.unread.len())) {
            self.healthy.on_data(io, &data);
        }
    }

    fn begin_fault(&mut self, io: &mut PeerIo<'_>, fault: BackendFault, is_new: bool) {
        match fault {
            BackendFault::Refuses => io.close(),
            BackendFault::Stalls => io.pause_reading(true),
            BackendFault::HalfCloses => {
                self.is_deaf = true;
                io.shutdown_write();
            }
            BackendFault::Forgets => self.has_forgotten = !is_new,
            BackendFault::CutsReplies => self.healthy.set_cuts(true),
            // The others show when something is asked, or are the network's.
            BackendFault::Killed
            | BackendFault::ClosesOnRequest
            | BackendFault::Unreachable
            | BackendFault::Slow
            | BackendFault::Garbage => {}
        }
    }
}

impl Actor for FaultyServer {
    fn on_open(&mut self, io: &mut PeerIo<'_>) {
        self.healthy.on_open(io);
        let Some(while_ns) = self.timed_fault.as_ref().map(|timed_fault| timed_fault.while_ns.clone()) else {
            return;
        };
        let Some(left_ns) = while_ns.end.checked_sub(io.now_ns()) else { return };
        match self.fault(io) {
            Some(fault) => self.begin_fault(io, fault, true),
            None => io.timer(while_ns.start.saturating_sub(io.now_ns()), FAULT_BEGINS),
        }
        io.timer(left_ns, FAULT_ENDS);
    }

    fn on_data(&mut self, io: &mut PeerIo<'_>, data: &[u8]) {
        if self.is_deaf {
            return;
        }
        if self.has_forgotten {
            return io.reset();
        }
        match self.fault(io) {
            Some(BackendFault::ClosesOnRequest) => {
                self.is_deaf = true;
                io.close();
            }
            Some(BackendFault::Garbage) => {
                self.is_deaf = true;
                match self.healthy.protocol().garbage() {
                    Some(garbage) => io.write(garbage),
                    None => io.close(),
                }
            }
            Some(BackendFault::Slow) => {
                self.unread.push_back(data.to_vec());
                io.timer(SLOW_NS, READS_ON);
            }
            _ => self.healthy.on_data(io, data),
        }
    }

    fn on_timer(&mut self, io: &mut PeerIo<'_>, id: u64) {
        match (id, self.timed_fault.as_ref().map(|timed_fault| timed_fault.fault)) {
            (FAULT_BEGINS, Some(fault)) => self.begin_fault(io, fault, false),
            (FAULT_ENDS, Some(fault)) => match fault {
                BackendFault::Stalls => io.pause_reading(false),
                BackendFault::CutsReplies => self.healthy.set_cuts(false),
                BackendFault::Slow => self.read_on(io, usize::MAX),
                _ => {}
            },
            (READS_ON, _) => self.read_on(io, 1),
            _ => self.healthy.on_timer(io, id),
        }
    }
}
