//! Accepting, and the peers that the kernel had accepted when a listener was paused or drained.

use std::os::fd::OwnedFd;

use rustix::io::Errno;

use super::complete::errno;
use super::driver::UringDriver;
use super::requests::{ListenerState, Requests, UringListener};
use super::sys::{Completion, Ring};
use super::token::RequestToken;
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

    /// Reports a new connection. One of TCP whose peer has no address is closed, as if accepting it had failed.
    fn report_accepted(&mut self, id: ListenerId, socket: OwnedFd, sink: &mut EventSink<'_>) {
        let at = self.listeners.get(id).and_then(UringListener::socket).map(|socket| socket.local_addr());
        let is_unix = at.is_some_and(|at| matches!(at, Endpoint::Unix(_)));
        let peer = if is_unix { Some(PeerAddr::Unix) } else { socket::peer_addr(&socket) };
        let Some(peer) = peer else { return };
        let conn = self.conns.insert(Requests::new(socket), true);
        sink.put(DriverEvent::Accepted { listener: id, conn, peer });
    }

    /// Closes a listener, and parks the peers in its backlog: always, or only if it was accepting.
    pub(super) fn park_backlog(&mut self, id: ListenerId, also_if_paused: bool) {
        let Some(listener) = self.listeners.get_mut(id) else { return };
        let before = std::mem::replace(&mut listener.state, ListenerState::Draining);
        if listener.is_armed {
            self.ring.cancel_now(RequestToken::Accept(id));
        }
        if let ListenerState::Listening { socket, .. } = before
            && (listener.is_armed || also_if_paused)
        {
            let left = ACCEPTS_PARKED_MAX.saturating_sub(listener.parked.len());
            listener.parked.extend(std::iter::from_fn(|| socket::accept_if_any(&socket)).take(left));
        }
        self.remove_if_drained(id);
    }

    /// Returns whether parked peers could be delivered now.
    pub(super) fn has_parked(&self) -> bool {
        let delivers = |listener: &UringListener| listener.delivers() && !listener.parked.is_empty();
        !self.conns.is_full() && self.listeners.iter().any(delivers)
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
                let Some(listener) = self.listeners.get(id).filter(|listener| listener.delivers()) else {
                    break;
                };
                if listener.parked.is_empty() {
                    break;
                }
                let is_draining = listener.is_draining();
                if !self.free_slot() {
                    // A listener that is closed has nothing to pause: its peers wait for a slot.
                    if !is_draining {
                        self.pause_full(id, sink);
                    }
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
