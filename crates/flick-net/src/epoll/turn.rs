//! One turn of the epoll driver: write what was appended, wait once, look at what happened, hand it out.
//! Promises: every loop is bounded, so a turn's work is; what does not fit into this turn keeps its place.

use std::io::{self, IoSlice};
use std::time::Duration;

use flick_buffers::Pool;
use rustix::buffer::spare_capacity;
use rustix::event::{Timespec, epoll};
use rustix::io::Errno;
use rustix::net::{RecvFlags, SendAncillaryBuffer, SendFlags};

use super::{Conn, EpollDriver, INPUT_EDGES, Phase, Token, monotonic_ns};
use crate::driver::{ConnFault, Driver, Event, Handle, ListenerId};
use crate::limits::{ACCEPTS_PER_POLL_MAX, RECEIVES_PER_CONN_MAX, WRITE_SLICES_MAX, WRITES_PER_CONN_MAX};
use crate::output::OutputSlab;
use crate::queue::Sink;
use crate::socket;
use crate::watch::timespec;

type EventSink<'poll> = Sink<'poll, Event>;

/// The time-out of a poll that does not wait.
const NO_TIME: Timespec = Timespec { tv_sec: 0, tv_nsec: 0 };

/// What looking at one connection came to.
enum Served {
    /// Nothing more for now.
    Done,
    /// There is more; it did not fit into this turn.
    More,
    /// It waits for a receive buffer and for nothing else.
    Starved,
}

impl EpollDriver {
    pub(super) fn turn(
        &mut self,
        pool: &Pool,
        timeout: Option<Duration>,
        events: &mut Vec<Event>,
    ) -> io::Result<()> {
        let mut sink = Sink::new(events, self.limits.events_max);
        self.allowance.renew();
        self.write_dirty();
        let woken = self.wait(self.wait_time(pool, timeout))?;
        if woken && self.waker.take() {
            sink.put(Event::Woken);
        }
        self.expire_lingerers();
        self.serve_ready(pool, &mut sink);
        self.line = self.watched.settle(self.ready.len(), self.now_ns);
        self.accept_ready(&mut sink);
        Ok(())
    }

    pub(super) fn write_dirty(&mut self) {
        for _ in 0..self.dirty.len() {
            if self.allowance.is_used_up() {
                return;
            }
            if let Some(index) = self.dirty.pop() {
                self.write(index);
            }
        }
    }

    /// How long to wait: not at all while something is left to do, and never past a lingerer's deadline.
    pub(super) fn wait_time(&self, pool: &Pool, timeout: Option<Duration>) -> Option<Duration> {
        let has_ready = !self.ready.is_empty() && (!self.is_starved || self.intake.has_room(pool));
        if has_ready || !self.dirty.is_empty() {
            return Some(Duration::ZERO);
        }
        let Some(deadline_ns) = self.lingerers.deadline_ns() else { return timeout };
        let linger = Duration::from_nanos(deadline_ns.saturating_sub(self.now_ns));
        Some(timeout.map_or(linger, |timeout| timeout.min(linger)))
    }

    /// Waits and notes what the kernel reports. Says whether the waker was among it.
    fn wait(&mut self, timeout: Option<Duration>) -> io::Result<bool> {
        let timeout = timeout.map(timespec);
        let mut reports = std::mem::take(&mut self.kernel_events);
        reports.clear();
        let begun_ns =
            if timeout.is_some_and(|timeout| timeout == NO_TIME) { None } else { Some(monotonic_ns()) };
        let waited = epoll::wait(&self.epoll, spare_capacity(&mut reports), timeout.as_ref());
        self.now_ns = monotonic_ns();
        self.waited_ns += begun_ns.map_or(0, |begun_ns| self.now_ns.saturating_sub(begun_ns));
        let mut woken = false;
        for report in &reports {
            match Token::unpack(report.data) {
                Token::Waker => woken = true,
                Token::Listener(index) => {
                    if let Some(listener) = self.listener_mut(ListenerId(index)) {
                        listener.is_ready = true;
                    }
                }
                Token::Conn(conn) => self.note(conn, report.flags),
            }
        }
        self.kernel_events = reports;
        match waited {
            Ok(_) | Err(Errno::INTR) => Ok(woken),
            Err(error) => Err(error.into()),
        }
    }

    /// Notes an edge of one connection.
    fn note(&mut self, handle: Handle, flags: epoll::EventFlags) {
        let Some(conn) = self.conns.get_mut(handle) else { return };
        let index = handle.index;
        let is_broken = flags.intersects(epoll::EventFlags::ERR | epoll::EventFlags::HUP);
        if conn.phase == Phase::Dialling {
            if is_broken || flags.contains(epoll::EventFlags::OUT) {
                self.end_dial(index);
            }
            return;
        }
        if conn.is_closing && is_broken {
            return self.drop_conn(index);
        }
        if is_broken || flags.intersects(epoll::EventFlags::IN | epoll::EventFlags::RDHUP) {
            conn.is_readable = true;
            conn.is_ended |= is_broken || flags.contains(epoll::EventFlags::RDHUP);
            let nobody_reads = !conn.can_receive();
            if nobody_reads && flags.contains(epoll::EventFlags::ERR) {
                // Nobody would meet the error while reading, so it is fetched and reported by itself.
                if let Some(fault) = socket::pending_fault(&conn.socket) {
                    return self.fail(index, fault);
                }
            }
            if !nobody_reads || conn.phase == Phase::Lingering {
                self.push_ready(index);
            }
        }
        self.unblock(index, flags);
    }

    fn unblock(&mut self, index: u32, flags: epoll::EventFlags) {
        let Some(conn) = self.conns.at_mut(index) else { return };
        if flags.contains(epoll::EventFlags::OUT) && conn.is_blocked {
            conn.is_blocked = false;
            self.write(index);
        }
    }

    fn end_dial(&mut self, index: u32) {
        let Some(conn) = self.conns.at_mut(index) else { return };
        match socket::dial_outcome(&conn.socket) {
            Some(_) if conn.is_closing => self.drop_conn(index),
            Some(fault) => self.fail(index, fault),
            None => {
                conn.phase = Phase::Open;
                // The edge that told of the connection may have told of data as well.
                conn.is_readable = true;
                conn.connected = true;
                self.push_ready(index);
                self.write(index);
            }
        }
    }

    /// Writes a connection's output until it is gone, the kernel is full or a bound is reached.
    fn write(&mut self, index: u32) {
        let Some(conn) = self.conns.at_mut(index) else { return };
        if conn.phase != Phase::Open || conn.is_blocked || conn.is_held || conn.fault.is_some() {
            return;
        }
        let mut writes = 0;
        while !conn.output.is_empty() {
            if writes == WRITES_PER_CONN_MAX || self.allowance.is_used_up() {
                self.dirty.push(index);
                break;
            }
            writes += 1;
            match write_some(conn, &self.outputs, self.allowance.left_bytes()) {
                Ok(bytes) => {
                    self.allowance.take(bytes);
                    self.outputs.consume(&mut conn.output, bytes);
                }
                Err(Errno::INTR) => {}
                Err(Errno::AGAIN) => {
                    conn.is_blocked = true;
                    break;
                }
                Err(_) if conn.is_closing => return self.drop_conn(index),
                Err(errno) => return self.fail(index, socket::conn_fault(errno)),
            }
        }
        if conn.is_blocked && !conn.watches_output {
            conn.watches_output = true;
            let flags = INPUT_EDGES | epoll::EventFlags::OUT;
            let token = Token::Conn(self.conns.handle(index)).pack();
            let conn = self.conns.at_mut(index).expect("written to just above");
            if let Err(errno) = epoll::modify(&self.epoll, &conn.socket, token, flags) {
                return self.fail(index, ConnFault::System(errno.raw_os_error()));
            }
        }
        self.after_write(index);
    }

    fn after_write(&mut self, index: u32) {
        let low_bytes = self.marks.low_bytes;
        let Some(conn) = self.conns.at_mut(index) else { return };
        if conn.is_closing {
            if conn.output.is_empty() {
                self.finish_close(index);
            }
            return;
        }
        if conn.is_shutting && conn.output.is_empty() {
            socket::shutdown_write(&conn.socket);
        }
        if conn.is_above_high && conn.output.bytes() <= low_bytes {
            conn.is_above_high = false;
            conn.drained = true;
            self.push_ready(index);
        }
    }

    /// Looks once at every connection that is ready now.
    fn serve_ready(&mut self, pool: &Pool, sink: &mut EventSink<'_>) {
        let mut all_starved = true;
        for _ in 0..self.ready.len() {
            if sink.is_full() {
                all_starved = false;
                break;
            }
            let Some(index) = self.ready.pop() else { break };
            self.watched.pass();
            match self.serve(index, pool, sink) {
                Served::Done => {}
                Served::More => {
                    all_starved = false;
                    self.ready.push(index);
                }
                Served::Starved => self.ready.push(index),
            }
        }
        self.is_starved = all_starved;
    }

    fn serve(&mut self, index: u32, pool: &Pool, sink: &mut EventSink<'_>) -> Served {
        let handle = self.conns.handle(index);
        let Some(conn) = self.conns.at_mut(index) else { return Served::Done };
        if conn.is_closing {
            if conn.fault.is_some() {
                self.drop_conn(index);
            } else if conn.phase == Phase::Lingering && self.linger(index) {
                return Served::More;
            }
            return Served::Done;
        }
        if std::mem::take(&mut conn.connected) {
            sink.put(Event::Connected { conn: handle });
        }
        if conn.drained && !sink.is_full() {
            conn.drained = false;
            sink.put(Event::Drained { conn: handle });
        }
        let received = if conn.can_receive() { self.receive_some(handle, pool, sink) } else { Served::Done };
        if !matches!(received, Served::Done) {
            return received;
        }
        let Some(conn) = self.conns.at_mut(index) else { return Served::Done };
        if sink.is_full() && (conn.drained || conn.fault.is_some()) {
            return Served::More;
        }
        if let Some(fault) = conn.fault {
            sink.put(Event::Failed { conn: handle, fault });
            // Output was lost, so the peer must not take what it got for the whole.
            socket::reset_on_close(&conn.socket);
            self.drop_conn(index);
        }
        Served::Done
    }

    /// Receives from one connection until it is dry, the buffers or the room for events are used up, or it had
    /// its share.
    fn receive_some(&mut self, handle: Handle, pool: &Pool, sink: &mut EventSink<'_>) -> Served {
        let Some(conn) = self.conns.get_mut(handle) else { return Served::Done };
        for _ in 0..RECEIVES_PER_CONN_MAX {
            if sink.is_full() {
                return Served::More;
            }
            let Some(buf) = self.intake.room(pool) else { return Served::Starved };
            let start = buf.len();
            let asked = buf.spare().min(self.limits.receive_bytes);
            let mut outcome = Ok(0);
            buf.append_with(asked, |spare| {
                outcome =
                    rustix::net::recv(&conn.socket, spare, RecvFlags::empty()).map(|(bytes, _)| bytes as u32);
                outcome.unwrap_or(0)
            });
            match outcome {
                Ok(0) => {
                    conn.saw_eof = true;
                    conn.is_readable = false;
                    if conn.fault.is_none() {
                        sink.put(Event::Eof { conn: handle });
                    }
                    return Served::Done;
                }
                Ok(bytes) => {
                    sink.put(Event::Data { conn: handle, data: buf.slice(start..start + bytes) });
                    if bytes < asked && !conn.is_ended {
                        conn.is_readable = false;
                        return Served::Done;
                    }
                }
                Err(Errno::INTR) => {}
                Err(Errno::AGAIN) => {
                    conn.is_readable = false;
                    return Served::Done;
                }
                Err(errno) => {
                    conn.is_readable = false;
                    self.outputs.clear(&mut conn.output);
                    conn.fault.get_or_insert(socket::conn_fault(errno));
                    return Served::Done;
                }
            }
        }
        Served::More
    }

    fn accept_ready(&mut self, sink: &mut EventSink<'_>) {
        for index in 0..self.listeners.len() {
            let id = ListenerId(index as u32);
            let Some(listener) = self.listener_mut(id) else { continue };
            if std::mem::take(&mut listener.is_ready) {
                for _ in 0..ACCEPTS_PER_POLL_MAX.min(sink.room()) {
                    if !self.accept_one(id, sink) {
                        break;
                    }
                }
            }
        }
    }

    /// Takes one waiting peer; says whether there may be another.
    fn accept_one(&mut self, id: ListenerId, sink: &mut EventSink<'_>) -> bool {
        let has_room = self.make_room();
        let Some(listener) = self.listener_mut(id) else { return false };
        let accepted = if has_room { socket::accept(&listener.socket) } else { Err(Errno::NFILE) };
        let outcome = accepted.and_then(|(socket, peer)| {
            let conn =
                self.conns.insert(Conn::new(socket, Phase::Open)).expect("the table was not full above");
            let state = self.conns.get_mut(conn).expect("inserted just above");
            let added = epoll::add(&self.epoll, &state.socket, Token::Conn(conn).pack(), INPUT_EDGES);
            if added.is_err() {
                self.drop_conn(conn.index);
            }
            added.map(|()| Event::Accepted { listener: id, conn, peer })
        });
        match outcome {
            Ok(event) => sink.put(event),
            Err(Errno::AGAIN) => return false,
            Err(errno) if socket::is_of_one_peer(errno) => {}
            Err(errno) => {
                self.accept(id, false);
                if let Some(listener) = self.listener_mut(id) {
                    listener.waits_for_slot = !has_room;
                }
                sink.put(Event::AcceptFailed { listener: id, errno: errno.raw_os_error() });
                return false;
            }
        }
        true
    }
}

/// Offers the front of a connection's output, about so many bytes, to the kernel; returns how much it took.
fn write_some(conn: &Conn, outputs: &OutputSlab, bytes: usize) -> Result<usize, Errno> {
    let mut pieces = [IoSlice::new(&[]); WRITE_SLICES_MAX];
    let mut count = 0;
    for (piece, slice) in pieces.iter_mut().zip(outputs.first(&conn.output, bytes)) {
        *piece = IoSlice::new(slice.bytes());
        count += 1;
    }
    if count == 1 {
        return rustix::net::send(&conn.socket, &pieces[0], SendFlags::NOSIGNAL);
    }
    let mut no_control = SendAncillaryBuffer::default();
    rustix::net::sendmsg(&conn.socket, &pieces[..count], &mut no_control, SendFlags::NOSIGNAL)
}
