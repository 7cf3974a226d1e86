//! Accepting, and the peers that were in the backlog of a listener when it was finished.

use rustix::io::Errno;

use super::driver::{EpollDriver, INPUT_EDGES};
use super::readiness::{EpollListener, ParkedPeer};
use crate::driver::{Driver, DriverEvent, ListenerId};
use crate::event_sink::EventSink;
use crate::limits::ACCEPTS_PARKED_MAX;
use crate::listeners::Accepting;
use crate::socket;

/// Result of accepting one connection.
enum Accepted {
    /// There may be another.
    More,
    Empty,
    Failed(i32),
}

impl EpollDriver {
    pub(super) fn accept_ready(&mut self, sink: &mut EventSink<'_>) {
        self.accept_faults.report(sink);
        for id in self.listeners.ids() {
            let Some(listener) = self.listeners.get_mut(id) else { continue };
            if !std::mem::take(&mut listener.is_ready) {
                continue;
            }
            for _ in 0..self.accepts_max.min(sink.capacity()) {
                if !self.may_accept(id) {
                    break;
                }
                let is_free = self.free_slot();
                let accepted =
                    if is_free { self.accept_one(id, sink) } else { Accepted::Failed(libc::ENFILE) };
                match accepted {
                    Accepted::More => continue,
                    Accepted::Empty => {}
                    Accepted::Failed(errno) => self.pause(id, is_free, errno, sink),
                }
                break;
            }
        }
    }

    /// Returns whether there may be a peer for which a slot is free, or one is to be freed: no connection lingers less
    /// for a peer that does not come.
    fn may_accept(&self, id: ListenerId) -> bool {
        let has_peer = |listener: &EpollListener| socket::is_readable(&listener.socket);
        !self.conns.is_full() || self.listeners.get(id).is_some_and(has_peer)
    }

    /// Closes a listener, and parks the peers in its backlog.
    pub(super) fn park_backlog(&mut self, id: ListenerId) {
        let Some(listener) = self.listeners.remove(id) else { return };
        while self.parked.len() < ACCEPTS_PARKED_MAX {
            match socket::accept(&listener.socket) {
                Ok((socket, peer)) => self.parked.push_back(ParkedPeer { listener: id, socket, peer }),
                Err(errno) if socket::is_per_connection_error(errno) => {}
                Err(_) => break,
            }
        }
    }

    /// Returns whether parked peers could be delivered now, or failures are to be reported.
    pub(super) fn has_accepts(&self) -> bool {
        (!self.parked.is_empty() && !self.conns.is_full()) || !self.accept_faults.is_empty()
    }

    /// Returns whether peers may be there to be accepted.
    pub(super) fn has_peers(&self) -> bool {
        self.has_accepts() || self.listeners.iter().any(|listener| listener.is_ready)
    }

    /// Delivers parked peers.
    pub(super) fn accept_parked(&mut self, sink: &mut EventSink<'_>) {
        while !self.parked.is_empty() && !sink.is_full() && self.free_slot() {
            let Some(ParkedPeer { listener, socket, peer }) = self.parked.pop_front() else { return };
            // Without memory for its registration it is closed.
            if let Ok(conn) = self.insert(socket, true, INPUT_EDGES) {
                sink.put(DriverEvent::Accepted { listener, conn, peer });
            }
        }
    }

    fn accept_one(&mut self, id: ListenerId, sink: &mut EventSink<'_>) -> Accepted {
        let Some(listener) = self.listeners.get(id) else { return Accepted::Empty };
        match socket::accept(&listener.socket) {
            Ok((socket, peer)) => match self.insert(socket, true, INPUT_EDGES) {
                Ok(conn) => {
                    sink.put(DriverEvent::Accepted { listener: id, conn, peer });
                    Accepted::More
                }
                Err(error) => Accepted::Failed(error.raw_os_error().unwrap_or(libc::ENOMEM)),
            },
            Err(Errno::AGAIN) => Accepted::Empty,
            Err(errno) if socket::is_per_connection_error(errno) => Accepted::More,
            Err(errno) => Accepted::Failed(errno.raw_os_error()),
        }
    }

    fn pause(&mut self, id: ListenerId, is_slot_free: bool, errno: i32, sink: &mut EventSink<'_>) {
        self.accept(id, false);
        if let Some(listener) = self.listeners.get_mut(id).filter(|_| !is_slot_free) {
            listener.accepting = Accepting::WaitsForSlot;
        }
        sink.put(DriverEvent::AcceptFailed { listener: id, errno });
    }
}
