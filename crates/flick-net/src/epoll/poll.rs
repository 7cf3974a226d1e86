//! One poll: write what is queued, wait, then serve every connection that is ready once.

use std::io;
use std::time::Duration;

use flick_buffers::Pool;
use rustix::buffer::spare_capacity;
use rustix::event::{Timespec, epoll};
use rustix::io::Errno;
use rustix::net::RecvFlags;

use super::driver::EpollDriver;
use super::readiness::Input;
use super::token::EpollToken;
use crate::clock::monotonic_ns;
use crate::conn::report::FaultReport;
use crate::driver::{Driver, DriverEvent, Handle, ListenerId};
use crate::event_sink::EventSink;
use crate::fault::ConnFault;
use crate::limits::{
    LIGHT_BYTES_MAX, LINGER_BYTES_MAX, LINGER_RECEIVES_MAX, LINGER_SCRATCH_BYTES, PEERS_SHARE,
    READY_LIGHT_MAX, READY_MANY, RECEIVED_BYTES_PER_POLL_MAX, RECEIVES_PER_CONN_MAX,
};
use crate::poller::timespec;
use crate::socket;

const _: () = assert!(LINGER_SCRATCH_BYTES * LINGER_RECEIVES_MAX <= LINGER_BYTES_MAX);

/// The timeout of a poll that does not wait.
const NO_TIME: Timespec = Timespec { tv_sec: 0, tv_nsec: 0 };

/// Result of serving one connection.
enum Served {
    /// Nothing more for now.
    Done,
    /// There is more, for the next poll.
    More,
    /// It waits for a receive buffer and for nothing else.
    Starved,
}

impl EpollDriver {
    pub(super) fn run_poll(
        &mut self,
        pool: &Pool,
        timeout: Option<Duration>,
        events: &mut Vec<DriverEvent>,
    ) -> io::Result<()> {
        let mut sink = EventSink::new(events, self.limits.events_max);
        self.quota.renew();
        self.received_bytes = 0;
        self.write_dirty();
        let woken = self.wait(self.wait_time(pool, timeout))?;
        if woken && self.waker.take() {
            sink.put(DriverEvent::Woken);
        }
        while let Some(index) = self.conns.expired_lingerer(self.now_ns) {
            self.drop_conn(index);
        }
        while let Some(index) = self.conns.expired_flusher(self.now_ns) {
            self.abort(self.conns.handle(index));
        }
        let peers_capacity = if self.has_peers() { sink.capacity() / PEERS_SHARE } else { 0 };
        self.serve_ready(pool, &mut sink, peers_capacity);
        let queued = self.ready_light.len() + self.conns.ready.len() + self.starved.len();
        self.queue_delay = self.queue_meter.end_poll(queued, self.now_ns);
        self.accept_parked(&mut sink);
        self.accept_ready(&mut sink);
        Ok(())
    }

    /// Returns how long to wait: not at all while there is work, and never past the end of a lingering close.
    pub(super) fn wait_time(&self, pool: &Pool, timeout: Option<Duration>) -> Option<Duration> {
        let can_receive = !self.starved.is_empty() && self.receive_buffer.is_available(pool);
        let is_ready = !self.ready_light.is_empty() || !self.conns.ready.is_empty();
        if can_receive || is_ready || !self.conns.dirty.is_empty() || self.has_accepts() {
            return Some(Duration::ZERO);
        }
        let Some(deadline_ns) = self.conns.linger_deadline_ns() else { return timeout };
        let linger = Duration::from_nanos(deadline_ns.saturating_sub(self.now_ns));
        Some(timeout.map_or(linger, |timeout| timeout.min(linger)))
    }

    /// Waits, and notes what the kernel reports. Returns whether the waker was among it.
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
            match EpollToken::unpack(report.data) {
                EpollToken::Waker => woken = true,
                EpollToken::Watched => self.is_watch_ready = true,
                EpollToken::Poller => self.is_poller_ready = true,
                EpollToken::Listener(index) => {
                    if let Some(listener) = self.listeners.get_mut(ListenerId(index)) {
                        listener.is_ready = true;
                    }
                }
                EpollToken::Conn(conn) => self.note(conn, report.flags),
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
        let is_ending = is_broken || flags.contains(epoll::EventFlags::RDHUP);
        if conn.is_connecting() {
            if is_broken || flags.contains(epoll::EventFlags::OUT) {
                // The edge that reports the connect may report data and its end as well.
                conn.part.note_input(is_ending);
                self.end_connect(index);
            }
            return;
        }
        // Both sides of a lingering one have ended after a HUP alone. What its peer has sent is still to be discarded:
        // closing would reset the connection otherwise, and the peer lose the output that is on its way.
        let is_over = flags.contains(epoll::EventFlags::ERR) || !conn.is_lingering();
        if is_broken && !conn.is_live() && is_over {
            return self.drop_conn(index);
        }
        if is_ending || flags.contains(epoll::EventFlags::IN) {
            conn.part.note_input(is_ending);
            let is_read = conn.awaits_input();
            if !is_read && flags.contains(epoll::EventFlags::ERR) {
                // No read would return the error, so it is taken and reported by itself.
                if let Some(fault) = socket::take_fault(&conn.part.socket) {
                    return self.fail(index, fault);
                }
            }
            if is_read || conn.is_lingering() {
                let queue = if conn.part.is_light { &mut self.ready_light } else { &mut self.conns.ready };
                queue.push(index);
            }
        }
        if flags.contains(epoll::EventFlags::OUT) {
            self.unblock(index);
        }
    }

    fn end_connect(&mut self, index: u32) {
        let Some(conn) = self.conns.at(index) else { return };
        if let Some(fault) = socket::connect_fault(&conn.part.socket) {
            return self.fail(index, fault);
        }
        let then = self.conns.established(index);
        self.conns.ready.push(index);
        self.apply(index, then);
        self.write(index);
    }

    /// Serves every connection that is ready now, once: first some of those that receive little, so that a short
    /// message does not wait for a round of hundreds of fast senders. Capacity for `left` events is left.
    fn serve_ready(&mut self, pool: &Pool, sink: &mut EventSink<'_>, left: usize) {
        if !self.starved.is_empty() && self.receive_buffer.is_available(pool) {
            while let Some(index) = self.starved.pop() {
                self.conns.ready.push(index);
            }
        }
        let mut light_left = READY_LIGHT_MAX.min(sink.capacity() / 2);
        for _ in 0..self.ready_light.len() + self.conns.ready.len() {
            if sink.capacity() <= left || self.received_bytes >= RECEIVED_BYTES_PER_POLL_MAX {
                break;
            }
            let light = if light_left > 0 { self.ready_light.pop() } else { None };
            light_left -= usize::from(light.is_some());
            let next = light.or_else(|| self.conns.ready.pop()).or_else(|| self.ready_light.pop());
            let Some(index) = next else { break };
            self.queue_meter.count_dequeued();
            match self.serve(index, pool, sink) {
                Served::Done => {}
                Served::More => self.conns.ready.push(index),
                Served::Starved => self.starved.push(index),
            }
        }
    }

    fn serve(&mut self, index: u32, pool: &Pool, sink: &mut EventSink<'_>) -> Served {
        let Some(conn) = self.conns.at(index) else { return Served::Done };
        if !conn.is_live() {
            return if conn.is_lingering() { self.discard(index) } else { Served::Done };
        }
        let has_failed = conn.has_failed();
        if self.conns.report_progress(index, sink) && has_failed {
            // It was reset while its first output was written: the platform is asked whether it receives before the
            // fault is reported, for the peer may have answered first.
            return Served::More;
        }
        let received = self.receive_some(index, pool, sink);
        if !matches!(received, Served::Done) {
            return received;
        }
        match self.conns.report_fault(index, sink) {
            FaultReport::None if self.conns.has_report(index) => Served::More,
            FaultReport::None => Served::Done,
            FaultReport::Later => Served::More,
            FaultReport::Ended => {
                // Output was lost, so the peer must not take what it got for the whole.
                self.reset(index);
                Served::Done
            }
        }
    }

    /// Receives from one connection until its input is dry, no buffer is left, the sink is full or it had its share.
    fn receive_some(&mut self, index: u32, pool: &Pool, sink: &mut EventSink<'_>) -> Served {
        let handle = self.conns.handle(index);
        let receives_max = if self.conns.ready.len() < READY_MANY { RECEIVES_PER_CONN_MAX } else { 1 };
        let Some(conn) = self.conns.at_mut(index) else { return Served::Done };
        if !conn.awaits_input() || conn.part.input == Input::Dry {
            return Served::Done;
        }
        for _ in 0..receives_max {
            if sink.is_full() {
                return Served::More;
            }
            let Some(buf) = self.receive_buffer.get(pool) else { return Served::Starved };
            let start = buf.len();
            let asked = buf.spare().min(self.limits.receive_bytes);
            let mut received = Ok(0);
            buf.append_with(asked, |spare| {
                received = rustix::net::recv(&conn.part.socket, spare, RecvFlags::empty())
                    .map(|(bytes, _)| bytes as u32);
                received.unwrap_or(0)
            });
            match received {
                Ok(0) => {
                    conn.part.input = Input::Dry;
                    self.conns.end_input(index);
                    self.conns.report_end(index, sink);
                    return Served::Done;
                }
                Ok(bytes) => {
                    self.received_bytes += bytes as usize;
                    conn.part.is_light = bytes < asked && bytes <= LIGHT_BYTES_MAX;
                    sink.put(DriverEvent::Data { conn: handle, data: buf.slice(start..start + bytes) });
                    if bytes < asked && conn.part.input == Input::Readable {
                        conn.part.input = Input::Dry;
                        return Served::Done;
                    }
                }
                Err(Errno::INTR) => {}
                Err(Errno::AGAIN) => {
                    conn.part.input = Input::Dry;
                    return Served::Done;
                }
                Err(errno) => {
                    conn.part.input = Input::Dry;
                    let then = self.conns.fail(index, ConnFault::of_established(errno));
                    self.apply(index, then);
                    return Served::Done;
                }
            }
        }
        Served::More
    }

    /// Throws away what has arrived for a lingering connection.
    fn discard(&mut self, index: u32) -> Served {
        for _ in 0..LINGER_RECEIVES_MAX {
            let Some(conn) = self.conns.at_mut(index) else { return Served::Done };
            let is_over = match socket::discard(&conn.part.socket, &mut self.scratch) {
                Err(Errno::AGAIN) => {
                    conn.part.input = Input::Dry;
                    return Served::Done;
                }
                Err(Errno::INTR) => false,
                Err(_) => true,
                Ok(0) => self.conns.discard_end(index),
                Ok(bytes) => self.conns.discard(index, bytes),
            };
            if is_over {
                self.drop_conn(index);
                return Served::Done;
            }
        }
        Served::More
    }
}
