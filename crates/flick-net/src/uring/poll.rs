//! One poll of the ring: requests in, results out.
//! Promises: one system call while there is work, one more to wait when there is none; every loop is bounded.

use std::io;
use std::time::Duration;

use flick_buffers::Pool;

use super::driver::{UringDriver, WakePath};
use super::probe::ProbeState;
use super::requests::{Receive, Requests};
use super::token::RequestToken;
use crate::clock::monotonic_ns;
use crate::conn::Conn;
use crate::conn::report::FaultReport;
use crate::driver::{Driver, DriverEvent};
use crate::event_sink::EventSink;
use crate::fault::ConnFault;
use crate::limits::{ARMED_WHEN_SHORT_MAX, LIGHT_ARMED_MAX, PROBES_MAX};
use crate::socket;

impl UringDriver {
    pub(super) fn run_poll(
        &mut self,
        pool: &Pool,
        timeout: Option<Duration>,
        events: &mut Vec<DriverEvent>,
    ) -> io::Result<()> {
        let mut sink = EventSink::new(events, self.limits.events_max);
        let capacity = sink.capacity();
        if self.polls_waker() && self.waker.is_requested() && self.waker.take() {
            sink.put(DriverEvent::Woken);
        }
        let is_left = self.prepare(pool);
        let is_busy =
            is_left || !self.conns.ready.is_empty() || self.ring.completions() > 0 || self.has_parked();
        // A wait submits too; only what takes time must not be counted as waiting.
        let is_wait_next = !is_busy && timeout != Some(Duration::ZERO) && self.ring.requests() <= 1;
        if self.ring.has_work() && !(is_wait_next && self.watch.is_just_armed) {
            self.ring.enter(0, None)?;
        }
        self.watch.is_just_armed = false;
        self.now_ns = monotonic_ns();
        self.deliver(&mut sink);
        let has_more = !self.conns.dirty.is_empty()
            || !self.conns.ready.is_empty()
            || self.conns.has_held_faults()
            // A connection that has just ended may have left its slot to a peer.
            || self.has_parked();
        if is_busy || has_more || sink.capacity() < capacity || timeout == Some(Duration::ZERO) {
            return Ok(());
        }
        if self.prepare(pool) {
            return Ok(());
        }
        // Nothing was delivered, so the clock above is as good as one here.
        let begun_ns = self.now_ns;
        self.ring.enter(1, self.wait_time(timeout))?;
        self.now_ns = monotonic_ns();
        self.waited_ns += self.now_ns.saturating_sub(begun_ns);
        self.deliver(&mut sink);
        Ok(())
    }

    /// Makes requests of everything that was asked for since the last poll. Returns whether connections are left that
    /// the next poll arms.
    fn prepare(&mut self, pool: &Pool) -> bool {
        if let WakePath::Ring { is_armed: is_armed @ false } = &mut self.wake_path
            && let Some(eventfd) = self.waker.fd()
        {
            *is_armed = true;
            self.ring.watch(eventfd, libc::POLLIN, true, RequestToken::Waker);
        }
        if self.knows_watch() {
            self.watch.arm(&mut self.ring, RequestToken::Watched);
        }
        self.poller.arm(&mut self.ring, RequestToken::Poller);
        self.quota.renew();
        self.start_sends();
        if !self.ring.provide(pool) {
            return false;
        }
        // The kernel fills buffers in this order: connections that were left without one come first. While there are
        // too few for all, no connection gets a second one before every connection has had one, and only some are
        // armed: the kernel would look at all the others in vain, at each poll. Those that receive little come before
        // all others, so that a short message does not wait for a round of hundreds of fast senders; they leave half of
        // the buffers.
        let is_short = std::mem::take(&mut self.is_light_starved) || !self.starved.is_empty();
        let mut left = if is_short { ARMED_WHEN_SHORT_MAX } else { usize::MAX };
        let mut light_left = LIGHT_ARMED_MAX;
        while left > 0 {
            let light = if light_left > 0 { self.light.pop() } else { None };
            light_left -= usize::from(light.is_some());
            let next = light.or_else(|| self.starved.pop()).or_else(|| self.unarmed.pop());
            let Some(index) = next.or_else(|| self.light.pop()) else { return false };
            self.arm(index, is_short);
            left -= 1;
        }
        self.has_unarmed()
    }

    pub(super) fn start_sends(&mut self) {
        for _ in 0..self.conns.dirty.len() {
            if self.quota.is_used_up() {
                break;
            }
            if let Some(index) = self.conns.dirty.pop() {
                self.start_send(index);
            }
        }
    }

    fn start_send(&mut self, index: u32) {
        let Some(conn) = self.conns.at(index).filter(|conn| conn.is_sendable()) else { return };
        let pieces = self.conns.output(conn, self.quota.left_bytes());
        let offered = self.ring.send(&conn.part.socket, pieces, RequestToken::Send(index));
        self.quota.take(offered);
        self.conns.begin_send(index);
        if let Some(conn) = self.conns.at_mut(index) {
            conn.part.count += 1;
        }
    }

    /// Makes the kernel receive from a connection whose input is wanted, until it is cancelled or `once`.
    fn arm(&mut self, index: u32, once: bool) {
        let Some(conn) = self.conns.at_mut(index) else { return };
        let is_wanted = match conn.fault() {
            None => conn.awaits_input() || conn.is_lingering(),
            Some(_) => reads_past_fault(conn),
        };
        if is_wanted && conn.part.receive == Receive::Idle {
            conn.part.arm_receive();
            self.probes.set(&mut conn.part.probe, ProbeState::Recent);
            // Many connections end after their first message, and a request that goes on would have to be cancelled.
            if once || !conn.part.was_fed {
                self.ring.receive_once(&conn.part.socket, RequestToken::Receive(index));
            } else {
                self.ring.receive(&conn.part.socket, RequestToken::Receive(index));
            }
        }
    }

    pub(super) fn wait_time(&self, timeout: Option<Duration>) -> Option<Duration> {
        let due_ns = self.conns.linger_deadline_ns().into_iter().chain(self.probes.due_ns()).min();
        let Some(due_ns) = due_ns else { return timeout };
        let due = Duration::from_nanos(due_ns.saturating_sub(self.now_ns));
        Some(timeout.map_or(due, |timeout| timeout.min(due)))
    }

    /// Delivers what was left from before, then what the ring has brought.
    fn deliver(&mut self, sink: &mut EventSink<'_>) {
        while let Some(index) = self.conns.expired_lingerer(self.now_ns) {
            self.end(index);
        }
        while let Some(index) = self.conns.expired_flusher(self.now_ns) {
            self.abort(self.conns.handle(index));
        }
        self.probe();
        self.serve_ready(sink);
        self.accept_parked(sink);
        while !sink.is_full() {
            let Some(completion) = self.ring.next_completion() else { break };
            self.queue_meter.count_dequeued();
            self.complete(completion, sink);
        }
        self.serve_ready(sink);
        let queued = self.ring.completions() + self.conns.ready.len();
        self.queue_delay = self.queue_meter.end_poll(queued, self.now_ns);
    }

    fn serve_ready(&mut self, sink: &mut EventSink<'_>) {
        for _ in 0..self.conns.ready.len() {
            if sink.is_full() {
                return;
            }
            let Some(index) = self.conns.ready.pop() else { break };
            self.queue_meter.count_dequeued();
            if self.serve(index, sink) {
                self.conns.ready.push(index);
            }
        }
    }

    /// Reports what one connection has; returns whether the sink had too little capacity for it.
    fn serve(&mut self, index: u32, sink: &mut EventSink<'_>) -> bool {
        if self.conns.at(index).is_none_or(|conn| !conn.is_live()) {
            return false;
        }
        self.conns.report_progress(index, sink);
        if !self.deliver_stash(index, sink) {
            return true;
        }
        self.conns.report_end(index, sink);
        if self.conns.at(index).is_some_and(|conn| conn.awaits_input()) {
            self.await_input(index, false);
        }
        let Some(conn) = self.conns.at(index) else { return false };
        let input_is_due = conn.wants_input() && conn.part.receive != Receive::Idle;
        if input_is_due || reads_past_fault(conn) {
            return sink.is_full() && self.conns.has_report(index);
        }
        match self.conns.report_fault(index, sink) {
            FaultReport::None => sink.is_full() && self.conns.has_report(index),
            FaultReport::Later => true,
            FaultReport::Ended => {
                // Output was lost, so the peer must not take what it got for the whole.
                self.reset(index);
                false
            }
        }
    }

    /// Delivers input that came while receiving was off, if it is on now; returns whether the sink had capacity for it.
    fn deliver_stash(&mut self, index: u32, sink: &mut EventSink<'_>) -> bool {
        let handle = self.conns.handle(index);
        let Some(conn) = self.conns.at_mut(index).filter(|conn| conn.wants_input()) else { return true };
        while !conn.part.stash.is_empty() {
            if sink.is_full() {
                return false;
            }
            if let Some(data) = self.stashes.take_first(&mut conn.part.stash) {
                sink.put(DriverEvent::Data { conn: handle, data });
            }
        }
        true
    }

    /// Probes some connections if it is time to. Those that are over are received from again, which reports what
    /// happened.
    fn probe(&mut self) {
        if !self.probes.begin_round(self.now_ns) {
            return;
        }
        let used = self.conns.used();
        for _ in 0..used.min(PROBES_MAX) {
            let index = self.probes.next_slot(used);
            self.probe_conn(index);
        }
    }

    fn probe_conn(&mut self, index: u32) {
        let Some(conn) = self.conns.at_mut(index) else { return };
        match conn.part.probe {
            ProbeState::Unneeded => {}
            ProbeState::Recent => self.probes.set(&mut conn.part.probe, ProbeState::Quiet),
            ProbeState::Quiet => {
                self.probes.set(&mut conn.part.probe, ProbeState::Unneeded);
                // A receive that is just about to report it is cancelled without harm.
                if conn.is_live() && conn.part.receive.is_armed() && socket::is_hung_up(&conn.part.socket) {
                    self.cancel_receive(index);
                }
            }
        }
    }
}

/// Returns whether a failed connection is still received from: after a reset, what the peer sent before it.
fn reads_past_fault(conn: &Conn<Requests>) -> bool {
    conn.fault() == Some(ConnFault::Reset) && conn.awaits_input()
}
