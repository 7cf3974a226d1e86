//! One turn of the io_uring driver: requests in, results out.
//! Promises: one system call while there is work, one more to wait when there is none; every loop is bounded.

use std::io;
use std::time::Duration;

use flick_buffers::Pool;

use super::looks::Doubt;
use super::{KIND_RECEIVE, KIND_SEND, KIND_WAKER, Phase, Receive, UringDriver, token};
use crate::driver::{Event, Handle};
use crate::epoll::monotonic_ns;
use crate::queue::Sink;
use crate::socket;

pub(super) type EventSink<'poll> = Sink<'poll, Event>;

impl UringDriver {
    pub(super) fn turn(
        &mut self,
        pool: &Pool,
        timeout: Option<Duration>,
        events: &mut Vec<Event>,
    ) -> io::Result<()> {
        let mut sink = Sink::new(events, self.limits.events_max);
        let room = sink.room();
        if self.is_announced() && self.waker.is_asked() && self.waker.take() {
            sink.put(Event::Woken);
        }
        self.prepare(pool);
        let is_busy = !self.ready.is_empty() || self.ring.completions() > 0 || self.has_parked();
        if self.ring.has_work() {
            self.ring.enter(0, None)?;
        }
        self.now_ns = monotonic_ns();
        self.hand_out(&mut sink);
        let has_more = !self.dirty.is_empty() || !self.ready.is_empty();
        if is_busy || has_more || sink.room() < room || timeout == Some(Duration::ZERO) {
            return Ok(());
        }
        self.prepare(pool);
        // Nothing was handed out, so the clock above is as good as one here.
        let begun_ns = self.now_ns;
        self.ring.enter(1, self.wait_time(timeout))?;
        self.now_ns = monotonic_ns();
        self.waited_ns += self.now_ns.saturating_sub(begun_ns);
        self.hand_out(&mut sink);
        Ok(())
    }

    /// Makes requests of everything that was asked for since the last turn.
    fn prepare(&mut self, pool: &Pool) {
        if !self.waker_is_armed
            && !self.is_announced()
            && let Some(eventfd) = self.waker.fd()
        {
            self.waker_is_armed = true;
            self.ring.watch(eventfd, libc::POLLIN, true, token(KIND_WAKER, 0));
        }
        self.allowance.renew();
        self.start_sends();
        if self.ring.provide(pool) {
            // The kernel fills buffers in this order: whoever was left without comes before whoever had some. While there are too few
            // for all, nobody has a second one before everybody has had one.
            let is_short = !self.hungry.is_empty();
            while let Some(index) = self.hungry.pop().or_else(|| self.unarmed.pop()) {
                self.arm(index, is_short);
            }
        }
    }

    pub(super) fn start_sends(&mut self) {
        for _ in 0..self.dirty.len() {
            if self.allowance.is_used_up() {
                break;
            }
            if let Some(index) = self.dirty.pop() {
                self.start_send(index);
            }
        }
    }

    fn start_send(&mut self, index: u32) {
        let Some(conn) = self.conns.at_mut(index) else { return };
        let may_send = conn.phase == Phase::Open && conn.fault.is_none() && !conn.is_sending && !conn.is_held;
        if may_send && !conn.output.is_empty() {
            conn.is_sending = true;
            conn.requests += 1;
            let pieces = self.outputs.first(&conn.output, self.allowance.left_bytes());
            let offered = self.ring.send(&conn.socket, pieces, token(KIND_SEND, index));
            self.allowance.take(offered);
        }
    }

    /// Has the kernel receive from a connection that is wanted, until told otherwise or `once`.
    fn arm(&mut self, index: u32, once: bool) {
        let Some(conn) = self.conns.at_mut(index) else { return };
        let is_wanted = match conn.phase {
            Phase::Open => conn.wants && (conn.fault.is_none() || conn.reads_on) && !conn.met_eof,
            Phase::Lingering => true,
            Phase::Dialling | Phase::Dead => false,
        };
        if is_wanted && conn.receive == Receive::Idle {
            conn.receive = Receive::Armed;
            conn.is_fed = false;
            conn.requests += 1;
            self.looks.set(&mut conn.doubt, Doubt::Fresh);
            if once {
                self.ring.receive_once(&conn.socket, token(KIND_RECEIVE, index));
            } else {
                self.ring.receive(&conn.socket, token(KIND_RECEIVE, index));
            }
        }
    }

    pub(super) fn wait_time(&self, timeout: Option<Duration>) -> Option<Duration> {
        let due_ns = self.lingerers.deadline_ns().into_iter().chain(self.looks.due_ns()).min();
        let Some(due_ns) = due_ns else { return timeout };
        let due = Duration::from_nanos(due_ns.saturating_sub(self.now_ns));
        Some(timeout.map_or(due, |timeout| timeout.min(due)))
    }

    /// Hands out what was left from before, then what the ring has brought.
    fn hand_out(&mut self, sink: &mut EventSink<'_>) {
        while let Some(conn) = self.lingerers.pop_expired(self.now_ns) {
            self.give_up(conn);
        }
        self.look();
        self.serve_ready(sink);
        self.accept_parked(sink);
        while !sink.is_full() {
            let Some(completion) = self.ring.next_completion() else { break };
            self.watched.pass();
            self.complete(completion, sink);
        }
        self.serve_ready(sink);
        self.line = self.watched.settle(self.ring.completions() + self.ready.len(), self.now_ns);
    }

    fn give_up(&mut self, conn: Handle) {
        if self.conns.get(conn).is_some_and(|conn| conn.phase == Phase::Lingering) {
            self.end(conn.index);
        }
    }

    /// Ends the connection that has lingered longest if its slot is needed. Says whether the table has room:
    /// often only a turn later, when the kernel has let go of it.
    pub(super) fn make_room(&mut self) -> bool {
        while self.conns.is_full() {
            let Some(oldest) = self.lingerers.pop_oldest() else { return false };
            self.give_up(oldest);
        }
        true
    }

    fn serve_ready(&mut self, sink: &mut EventSink<'_>) {
        for _ in 0..self.ready.len() {
            if sink.is_full() {
                return;
            }
            let Some(index) = self.ready.pop() else { break };
            self.watched.pass();
            if self.serve(index, sink) {
                self.ready.push(index);
            }
        }
    }

    /// Reports what one connection has; says whether the room for events was too small for it.
    fn serve(&mut self, index: u32, sink: &mut EventSink<'_>) -> bool {
        let handle = self.conns.handle(index);
        let Some(conn) = self.conns.at_mut(index).filter(|conn| !conn.is_closing) else { return false };
        if std::mem::take(&mut conn.connected) {
            sink.put(Event::Connected { conn: handle });
        }
        if conn.drained && !sink.is_full() {
            conn.drained = false;
            sink.put(Event::Drained { conn: handle });
        }
        while conn.wants && !conn.stash.is_empty() && !sink.is_full() {
            if let Some(data) = self.stashes.take_first(&mut conn.stash) {
                sink.put(Event::Data { conn: handle, data });
            }
        }
        if conn.wants
            && conn.stash.is_empty()
            && conn.met_eof
            && !conn.saw_eof
            && conn.fault.is_none()
            && !sink.is_full()
        {
            conn.saw_eof = true;
            sink.put(Event::Eof { conn: handle });
        }
        if conn.wants {
            self.unarmed.push(index);
        }
        let hides_data =
            conn.wants && (conn.reads_on || !conn.stash.is_empty() || conn.receive != Receive::Idle);
        if let Some(fault) = conn.fault.filter(|_| !hides_data) {
            if sink.is_full() {
                return true;
            }
            sink.put(Event::Failed { conn: handle, fault });
            // Output was lost, so the peer must not take what it got for the whole.
            socket::reset_on_close(&conn.socket);
            self.end(index);
            return false;
        }
        sink.is_full()
            && (conn.drained || (conn.wants && (!conn.stash.is_empty() || conn.met_eof != conn.saw_eof)))
    }
}
