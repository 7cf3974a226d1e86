//! Accepting, and the peers that the kernel had accepted when a listener was paused or drained.

use std::os::fd::OwnedFd;

use rustix::io::Errno;

use super::complete::errno;
use super::driver::UringDriver;
use super::requests::{ListenerState, Requests, UringListener};
use super::sys::{Completion, Ring};
use crate::address::{Endpoint, PeerAddr};
use crate::driver::{Driver, DriverEvent, ListenerId};
use crate::event_sink::EventSink;
use crate::limits::ACCEPTS_PARKED_MAX;
use crate::listeners::Accepting;
use crate::socket;

impl UringDriver {
    /// The accept request of a listener has a result.
    pub(super) fn accepted(&mut self, id: ListenerId, completion: Completion, sink: &mut EventSink<'_>) {
        let socket = Ring::take_socket(completion);
        let Some(listener) = self.listeners.get_mut(id) else { return };
        listener.is_armed = completion.is_more();
        match listener.state {
            ListenerState::Listening { .. } => {}
            ListenerState::Draining => {
                listener.parked.extend(socket);
                return self.remove_if_drained(id);
            }
            ListenerState::Closed if listener.is_armed => return,
            ListenerState::Closed => {
                self.listeners.remove(id);
                return;
            }
        }
        match socket {
            Some(socket) => self.admit(id, socket, sink),
            None => match errno(completion) {
                Errno::CANCELED | Errno::AGAIN => {}
                errno if socket::is_per_connection_error(errno) => {}
                errno => {
                    self.accept(id, false);
                    sink.put(DriverEvent::AcceptFailed { listener: id, errno: errno.raw_os_error() });
                }
            },
        }
        if self.listeners.get(id).is_some_and(|listener| listener.is(Accepting::On)) {
            self.accept(id, true);
        }
    }

    /// Reports a new connection, or parks it until the platform accepts again.
    fn admit(&mut self, id: ListenerId, socket: OwnedFd, sink: &mut EventSink<'_>) {
        let is_free = self.free_slot();
        let Some(listener) = self.listeners.get_mut(id) else { return };
        let is_on = listener.is(Accepting::On);
        if is_on && is_free && listener.parked.is_empty() {
            return self.report_accepted(id, socket, sink);
        }
        // A peer beyond the limit is closed.
        if listener.parked.len() < ACCEPTS_PARKED_MAX {
            listener.parked.push_back(socket);
        }
        if is_on && !is_free {
            self.pause_full(id, sink);
        }
    }

    fn pause_full(&mut self, id: ListenerId, sink: &mut EventSink<'_>) {
        self.accept(id, false);
        if let Some(listener) = self.listeners.get_mut(id) {
            listener.set_accepting(Accepting::WaitsForSlot);
        }
        sink.put(DriverEvent::AcceptFailed { listener: id, errno: Errno::NFILE.raw_os_error() });
    }

    fn report_accepted(&mut self, id: ListenerId, socket: OwnedFd, sink: &mut EventSink<'_>) {
        let at = self.listeners.get(id).and_then(UringListener::socket).map(|socket| socket.local_addr());
        let is_unix = at.is_some_and(|at| matches!(at, Endpoint::Unix(_)));
        let peer = if is_unix { PeerAddr::Unix } else { socket::peer_addr(&socket) };
        let conn = self.conns.insert(Requests::new(socket), true);
        sink.put(DriverEvent::Accepted { listener: id, conn, peer });
    }

    /// Returns whether parked peers could be delivered now.
    pub(super) fn has_parked(&self) -> bool {
        self.listeners.iter().any(|listener| listener.delivers() && !listener.parked.is_empty())
    }

    /// Frees the slot of a draining listener that has no peer left.
    pub(super) fn remove_if_drained(&mut self, id: ListenerId) {
        let is_over = |listener: &UringListener| {
            listener.is_draining() && !listener.is_armed && listener.parked.is_empty()
        };
        if self.listeners.get(id).is_some_and(is_over) {
            self.listeners.remove(id);
        }
    }

    /// Delivers peers that were accepted while their listener was paused.
    pub(super) fn accept_parked(&mut self, sink: &mut EventSink<'_>) {
        for id in self.listeners.ids() {
            while !sink.is_full() {
                let listener = self.listeners.get(id).filter(|listener| listener.delivers());
                if listener.is_none_or(|listener| listener.parked.is_empty()) {
                    break;
                }
                if !self.free_slot() {
                    self.pause_full(id, sink);
                    break;
                }
                let parked = self.listeners.get_mut(id).and_then(|listener| listener.parked.pop_front());
                if let Some(socket) = parked {
                    self.report_accepted(id, socket, sink);
                }
            }
            self.remove_if_drained(id);
        }
    }
}
