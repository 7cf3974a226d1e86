//! What the results of the ring mean.
//! Promises: a receive's bytes are taken in the order of results, whoever they were for; the last result of a
//! dead connection's requests frees its slot.

use std::os::fd::OwnedFd;

use rustix::io::Errno;

use super::looks::Doubt;
use super::sys::{Completion, Ring};
use super::turn::EventSink;
use super::{
    Conn, KIND_ACCEPT, KIND_DIAL, KIND_IGNORED, KIND_RECEIVE, KIND_SEND, KIND_SHIFT, KIND_WAKER, Listener,
    Phase, Receive, UringDriver,
};
use crate::address::{Endpoint, PeerAddr};
use crate::driver::{ConnFault, Driver, Event, ListenerId};
use crate::limits::{ACCEPTS_PARKED_MAX, LINGER_BYTES_MAX};
use crate::socket;

impl UringDriver {
    /// Acts on one result; puts at most one event.
    pub(super) fn complete(&mut self, completion: Completion, sink: &mut EventSink<'_>) {
        let index = completion.user_data as u32;
        match completion.user_data >> KIND_SHIFT {
            KIND_WAKER => {
                self.waker_is_armed = completion.is_more();
                if self.waker.take() {
                    sink.put(Event::Woken);
                }
            }
            KIND_ACCEPT => self.accepted(ListenerId(index), completion, sink),
            KIND_RECEIVE => self.received(index, completion, sink),
            KIND_SEND => self.sent(index, completion),
            KIND_DIAL => {
                if !self.is_last_of_dead(index, completion) {
                    self.end_dial(index);
                }
            }
            other => assert!(other == KIND_IGNORED, "every request has a kind"),
        }
    }

    /// Counts a request's last result. True if the connection was dead and nothing but its slot is left to care
    /// for, which this does.
    fn is_last_of_dead(&mut self, index: u32, completion: Completion) -> bool {
        let conn = self.conns.at_mut(index).expect("a slot is kept until the last result");
        if !completion.is_more() {
            conn.requests -= 1;
        }
        let is_dead = conn.phase == Phase::Dead;
        if is_dead && conn.requests == 0 {
            self.free(index);
        }
        is_dead
    }

    /// The dial of a connection is over, one way or the other.
    pub(super) fn end_dial(&mut self, index: u32) {
        let Some(conn) = self.conns.at_mut(index) else { return };
        if let Some(fault) = socket::dial_outcome(&conn.socket) {
            return self.fail(index, fault);
        }
        conn.phase = Phase::Open;
        conn.connected = true;
        self.ready.push(index);
        self.dirty.push(index);
        if conn.is_shutting && conn.output.is_empty() {
            socket::shutdown_write(&conn.socket);
        }
    }

    fn sent(&mut self, index: u32, completion: Completion) {
        if self.is_last_of_dead(index, completion) {
            return;
        }
        let low_bytes = self.marks.low_bytes;
        let Some(conn) = self.conns.at_mut(index) else { return };
        conn.is_sending = false;
        match usize::try_from(completion.result) {
            Ok(bytes) => self.outputs.consume(&mut conn.output, bytes),
            Err(_) => match errno(completion) {
                Errno::INTR | Errno::AGAIN => {}
                errno => return self.fail(index, socket::conn_fault(errno)),
            },
        }
        if conn.is_above_high && !conn.is_closing && conn.output.bytes() <= low_bytes {
            conn.is_above_high = false;
            conn.drained = true;
            self.ready.push(index);
        }
        if !conn.output.is_empty() {
            self.dirty.push(index);
        } else if conn.is_closing {
            self.finish_close(index);
        } else if conn.is_shutting {
            socket::shutdown_write(&conn.socket);
        }
    }

    fn received(&mut self, index: u32, completion: Completion, sink: &mut EventSink<'_>) {
        // First of all, whoever it is for: the buffer's place has moved on.
        let data = self.ring.take_data(completion);
        if self.is_last_of_dead(index, completion) {
            return;
        }
        let handle = self.conns.handle(index);
        let Some(conn) = self.conns.at_mut(index) else { return };
        if data.is_some() {
            conn.is_fed = true;
            self.looks.set(&mut conn.doubt, Doubt::Fresh);
        }
        if !completion.is_more() {
            conn.receive = Receive::Idle;
            let was_left_out = !conn.is_fed && completion.result == -libc::ENOBUFS;
            if was_left_out { self.hungry.push(index) } else { self.unarmed.push(index) }
        }
        if conn.is_closing {
            return self.discard(index, completion);
        }
        if conn.fault.is_some() {
            self.ready.push(index);
        }
        let can_hand_out = conn.wants && conn.stash.is_empty();
        if let Some(data) = data {
            if can_hand_out {
                sink.put(Event::Data { conn: handle, data });
            } else if !self.stashes.push(&mut conn.stash, data) {
                self.fail(index, ConnFault::Exhausted);
            } else {
                self.ready.push(index);
            }
        } else if completion.result == 0 {
            conn.met_eof = true;
            conn.reads_on = false;
            if can_hand_out && conn.fault.is_none() {
                conn.saw_eof = true;
                sink.put(Event::Eof { conn: handle });
            }
        } else {
            match errno(completion) {
                Errno::NOBUFS | Errno::CANCELED | Errno::INTR | Errno::AGAIN => {}
                errno => {
                    self.fail(index, socket::conn_fault(errno));
                    if let Some(conn) = self.conns.at_mut(index) {
                        conn.reads_on = false;
                    }
                }
            }
        }
    }

    /// Something arrived for a connection that is closed on our side.
    fn discard(&mut self, index: u32, completion: Completion) {
        let Some(conn) = self.conns.at_mut(index) else { return };
        let is_over = match usize::try_from(completion.result) {
            Ok(0) => {
                conn.met_eof = true;
                conn.phase == Phase::Lingering
            }
            Ok(bytes) => {
                conn.lingered_bytes += bytes;
                conn.lingered_bytes > LINGER_BYTES_MAX
            }
            Err(_) => {
                !matches!(errno(completion), Errno::NOBUFS | Errno::CANCELED | Errno::INTR | Errno::AGAIN)
            }
        };
        if is_over {
            self.end(index);
        }
    }

    fn accepted(&mut self, id: ListenerId, completion: Completion, sink: &mut EventSink<'_>) {
        let socket = Ring::take_socket(completion);
        let Some(listener) = self.listener_mut(id) else { return };
        listener.is_armed = completion.is_more();
        if listener.socket.is_none() {
            if listener.is_left {
                listener.parked.extend(socket);
                self.forget_left(id);
            } else if !listener.is_armed {
                self.listeners[id.0 as usize] = None;
            }
            return;
        }
        let may_go_on = match socket {
            Some(socket) => {
                self.admit(id, socket, sink);
                true
            }
            None => match errno(completion) {
                Errno::CANCELED | Errno::AGAIN => true,
                errno if socket::is_of_one_peer(errno) => true,
                errno => {
                    self.accept(id, false);
                    sink.put(Event::AcceptFailed { listener: id, errno: errno.raw_os_error() });
                    false
                }
            },
        };
        let is_accepting = self.listener_mut(id).is_some_and(|listener| listener.is_accepting);
        if may_go_on && is_accepting {
            self.accept(id, true);
        }
    }

    /// Hands a new connection to the platform, or keeps it until the platform wants it.
    fn admit(&mut self, id: ListenerId, socket: OwnedFd, sink: &mut EventSink<'_>) {
        let has_room = self.make_room();
        let Some(listener) = self.listener_mut(id) else { return };
        if listener.is_accepting && has_room && listener.parked.is_empty() {
            return self.present(id, socket, sink);
        }
        let is_new_pause = listener.is_accepting && !has_room;
        // More than this is a peer too many: it is let go.
        if listener.parked.len() < ACCEPTS_PARKED_MAX {
            listener.parked.push_back(socket);
        }
        if is_new_pause {
            self.pause_full(id, sink);
        }
    }

    fn pause_full(&mut self, id: ListenerId, sink: &mut EventSink<'_>) {
        self.accept(id, false);
        if let Some(listener) = self.listener_mut(id) {
            listener.waits_for_slot = true;
        }
        sink.put(Event::AcceptFailed { listener: id, errno: Errno::NFILE.raw_os_error() });
    }

    fn present(&mut self, id: ListenerId, socket: OwnedFd, sink: &mut EventSink<'_>) {
        let is_unix = self.listener_mut(id).is_some_and(|listener| {
            listener.socket.as_ref().is_some_and(|socket| matches!(socket.local_addr(), Endpoint::Unix(_)))
        });
        let peer = if is_unix { PeerAddr::Unix } else { socket::peer_of(&socket) };
        let conn =
            self.conns.insert(Conn::new(socket, Phase::Open)).expect("the table has room, by the caller");
        sink.put(Event::Accepted { listener: id, conn, peer });
    }

    /// Says whether peers wait that could be handed out now.
    pub(super) fn has_parked(&self) -> bool {
        self.listeners.iter().flatten().any(|listener| listener.hands_out() && !listener.parked.is_empty())
    }

    /// Frees the slot of a listener that was left, when it has nobody any more.
    pub(super) fn forget_left(&mut self, id: ListenerId) {
        let is_over =
            |listener: &mut Listener| listener.is_left && !listener.is_armed && listener.parked.is_empty();
        if self.listener_mut(id).is_some_and(is_over) {
            self.listeners[id.0 as usize] = None;
        }
    }

    /// Hands out peers that were accepted while the listener was paused.
    pub(super) fn accept_parked(&mut self, sink: &mut EventSink<'_>) {
        for index in 0..self.listeners.len() {
            let id = ListenerId(index as u32);
            while !sink.is_full() {
                let Some(listener) = self.listener_mut(id).filter(|listener| listener.hands_out()) else {
                    break;
                };
                if listener.parked.is_empty() {
                    break;
                }
                if !self.make_room() {
                    self.pause_full(id, sink);
                    break;
                }
                let parked = self.listener_mut(id).and_then(|listener| listener.parked.pop_front());
                if let Some(socket) = parked {
                    self.present(id, socket, sink);
                }
            }
            self.forget_left(id);
        }
    }
}

/// The error of a result that has one.
fn errno(completion: Completion) -> Errno {
    Errno::from_raw_os_error(-completion.result)
}
