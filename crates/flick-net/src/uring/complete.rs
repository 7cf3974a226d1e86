//! Handling of the ring's results.
//! Promises: the bytes of receives are taken in the order of results, whatever connection they are for; the last result
//! of a dead connection's requests frees its slot.

use rustix::io::Errno;

use super::driver::{UringDriver, WakePath};
use super::probe::ProbeState;
use super::requests::Receive;
use super::sys::Completion;
use super::token::RequestToken;
use crate::conn::Conn;
use crate::driver::DriverEvent;
use crate::event_sink::EventSink;
use crate::fault::ConnFault;
use crate::limits::LIGHT_BYTES_MAX;
use crate::socket;

impl UringDriver {
    /// Acts on one result; puts at most one event.
    pub(super) fn complete(&mut self, completion: Completion, sink: &mut EventSink<'_>) {
        match RequestToken::unpack(completion.user_data) {
            RequestToken::Ignored => {}
            RequestToken::Waker => {
                if let WakePath::Ring { is_armed } = &mut self.wake_path {
                    *is_armed = completion.is_more();
                }
                if self.waker.take() {
                    sink.put(DriverEvent::Woken);
                }
            }
            RequestToken::Watched => self.watch.complete(),
            RequestToken::Poller => self.poller.complete(),
            RequestToken::Accept(listener) => self.accepted(listener, completion, sink),
            RequestToken::Receive(index) => self.received(index, completion, sink),
            RequestToken::Send(index) => self.sent(index, completion),
            RequestToken::Connect(index) => {
                if !self.is_last_of_dead(index, completion) {
                    self.end_connect(index);
                }
            }
        }
    }

    /// Counts a request's last result. Returns true if the connection is dead; then nothing but its slot matters, which
    /// this frees.
    fn is_last_of_dead(&mut self, index: u32, completion: Completion) -> bool {
        let conn = self.conns.at_mut(index).expect("a slot is kept until the last result");
        if !completion.is_more() {
            conn.part.count -= 1;
        }
        let (is_dead, count) = (conn.is_dead(), conn.part.count);
        if is_dead && count == 0 {
            self.free(index);
        }
        is_dead
    }

    /// A connect has succeeded or failed.
    pub(super) fn end_connect(&mut self, index: u32) {
        let Some(conn) = self.conns.at(index) else { return };
        if let Some(fault) = socket::connect_fault(&conn.part.socket) {
            return self.fail(index, fault);
        }
        let then = self.conns.established(index);
        self.conns.ready.push(index);
        self.apply(index, then);
    }

    fn sent(&mut self, index: u32, completion: Completion) {
        if self.is_last_of_dead(index, completion) {
            return;
        }
        let failed = match usize::try_from(completion.result) {
            Ok(bytes) => {
                self.conns.consume(index, bytes);
                None
            }
            Err(_) => match errno(completion) {
                Errno::INTR | Errno::AGAIN => None,
                errno => Some(ConnFault::of_established(errno)),
            },
        };
        self.conns.send_done(index);
        if let Some(fault) = failed {
            return self.fail(index, fault);
        }
        let then = self.conns.sent(index, self.now_ns);
        self.apply(index, then);
        if self.conns.at(index).is_some_and(|conn| conn.is_sendable()) {
            self.conns.dirty.push(index);
        }
    }

    fn received(&mut self, index: u32, completion: Completion, sink: &mut EventSink<'_>) {
        // First of all, whatever connection it is for: the position in the buffer has moved on.
        let data = self.ring.take_data(completion);
        if self.is_last_of_dead(index, completion) {
            return;
        }
        let handle = self.conns.handle(index);
        let Some(conn) = self.conns.at_mut(index) else { return };
        if let Some(data) = &data {
            conn.part.is_light = data.len() <= LIGHT_BYTES_MAX;
            conn.part.receive.feed();
            conn.part.was_fed = true;
            self.probes.set(&mut conn.part.probe, ProbeState::Recent);
        }
        if !completion.is_more() {
            let was_left_out = !conn.part.receive.is_fed() && completion.result == -libc::ENOBUFS;
            conn.part.receive = Receive::Idle;
            self.await_input(index, was_left_out);
        }
        let Some(conn) = self.conns.at_mut(index) else { return };
        if !conn.is_live() {
            return self.discard(index, completion);
        }
        if conn.has_failed() {
            self.conns.ready.push(index);
        }
        let Some(conn) = self.conns.at_mut(index) else { return };
        let is_deliverable = conn.wants_input() && conn.part.stash.is_empty();
        if let Some(data) = data {
            if is_deliverable {
                sink.put(DriverEvent::Data { conn: handle, data });
            } else if !self.stashes.push(&mut conn.part.stash, data) {
                self.fail(index, ConnFault::Exhausted);
            } else {
                self.conns.ready.push(index);
            }
        } else if completion.result == 0 {
            self.conns.end_input(index);
            if is_deliverable {
                self.conns.report_end(index, sink);
            }
        } else if !is_transient(errno(completion)) {
            self.fail(index, ConnFault::of_established(errno(completion)));
            self.conns.end_input(index);
        }
    }

    /// Throws away what has arrived for a connection that the platform has closed.
    fn discard(&mut self, index: u32, completion: Completion) {
        let is_over = match usize::try_from(completion.result) {
            Ok(0) => self.conns.discard_end(index),
            Ok(bytes) => self.conns.discard(index, bytes),
            Err(_) => !is_transient(errno(completion)),
        };
        if !is_over {
            return;
        }
        // Without its last bytes, the peer must not take what it got for all.
        match self.conns.at(index).is_some_and(Conn::is_closed_unsent) {
            true => self.reset(index),
            false => self.end(index),
        }
    }
}

/// Returns whether a receive ended for a reason that is not the connection's.
fn is_transient(errno: Errno) -> bool {
    matches!(errno, Errno::NOBUFS | Errno::CANCELED | Errno::INTR | Errno::AGAIN)
}

/// Returns the error of a result that has one.
pub(super) fn errno(completion: Completion) -> Errno {
    Errno::from_raw_os_error(-completion.result)
}
