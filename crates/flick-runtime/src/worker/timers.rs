//! Deadlines: which are due, and how long the worker may sleep.

use std::time::Duration;

use flick_abi::{Event, FailureReason};
use flick_net::Driver;

use super::Worker;
use super::health::warn_of;
use crate::downstream::deadlines::DeadlineKind;
use crate::limits::{HUGE_TICK_MS, LEAVE_TICK_MS, TICK_MAX_MS};
use crate::observe::backend_log::WhyDown;
use crate::slab::Key;
use crate::upstream::backend::Backend;
use crate::upstream::conn::BackendConnState;
use crate::upstream::stall::Hold;

/// Interval at which a draining worker looks for idle sessions, in milliseconds.
const DRAIN_TICK_MS: u64 = 10;

impl<D: Driver> Worker<D> {
    /// Returns the longest time that the next wait may last; `None`: until an event.
    pub(super) fn wait_time(&self) -> Option<Duration> {
        let left = |due_ns: u64| Duration::from_nanos(due_ns.saturating_sub(self.io.now_ns()));
        let deadline = self.clock.due_ns().map(|due| left(due).min(Duration::from_millis(TICK_MAX_MS)));
        let wait = deadline.into_iter().chain(self.io.release_due_ns().map(left)).min();
        if self.tasks.needs_huge() {
            let tick = Duration::from_millis(HUGE_TICK_MS);
            return Some(wait.map_or(tick, |wait| wait.min(tick)));
        }
        if self.upstream.has_draining() {
            let tick = Duration::from_millis(LEAVE_TICK_MS);
            return Some(wait.map_or(tick, |wait| wait.min(tick)));
        }
        if self.listeners.is_draining() {
            let tick = Duration::from_millis(DRAIN_TICK_MS);
            return Some(wait.map_or(tick, |wait| wait.min(tick)));
        }
        wait
    }

    /// Notes a deadline: the worker wakes then at the latest.
    #[inline]
    pub(super) fn note_due(&mut self, at_ns: u64) {
        self.clock.note_due(at_ns);
    }

    /// Sets a session's deadline.
    pub(super) fn set_deadline(&mut self, key: Key, kind: DeadlineKind, at_ns: u64) {
        self.downstream.set_deadline(key, kind, at_ns);
        self.note_due(at_ns);
    }

    /// Returns the next deadline of a backend connection; `None`: there is none.
    fn backend_conn_due_ns(&self, backend_conn: u32) -> Option<u64> {
        let front = self.upstream.conn(backend_conn).requests().front();
        let request_ns = front.map(|request| self.inflight.get(request).deadline_ns());
        self.upstream.conn_due_ns(backend_conn, request_ns.filter(|due_ns| *due_ns != u64::MAX))
    }

    pub(super) fn run_timers(&mut self) {
        let now_ns = self.io.now_ns();
        if self.clock.is_due(now_ns) {
            self.run_due(now_ns);
        }
        if self.upstream.has_draining() {
            self.drain_backends(now_ns);
        }
        self.run_drain(now_ns);
        self.inflight.note_time(now_ns, self.observe.counters().requests.get());
    }

    /// Acts on all deadlines that have passed, and notes the next one.
    fn run_due(&mut self, now_ns: u64) {
        for at in 0..self.upstream.backends().len() {
            for backend_conn in self.upstream.backend(at).conns() {
                if self.backend_conn_due_ns(backend_conn).is_some_and(|due_ns| due_ns <= now_ns) {
                    self.backend_conn_due(backend_conn);
                }
            }
        }
        let eviction_ns = self.evict_holders(now_ns);
        while let Some((key, kind)) = self.downstream.take_expired(now_ns) {
            self.session_due(key, kind);
        }
        self.run_health(now_ns);
        self.run_ask_timers(now_ns);
        self.run_every(now_ns);
        self.rules.sweep(now_ns);
        if self.listeners.again_ns().is_some_and(|due| due <= now_ns) {
            self.resume_accept();
        }
        if self.merge_due_ns().is_some_and(|due| due <= now_ns) {
            self.merge_due();
        }
        let backend_conns = self.upstream.backends().iter().flat_map(Backend::conns);
        let backend_conns = backend_conns.filter_map(|backend_conn| self.backend_conn_due_ns(backend_conn));
        let sessions = self.downstream.next_deadline_ns().into_iter().chain(self.listeners.again_ns());
        let others =
            self.merge_due_ns().into_iter().chain(self.rules.next_due_ns()).chain(self.health_due_ns());
        let next_ns = backend_conns.chain(sessions).chain(others).chain(eviction_ns).min();
        self.clock.set_next_due(now_ns, next_ns);
    }

    fn backend_conn_due(&mut self, backend_conn: u32) {
        let conn = self.upstream.conn(backend_conn);
        let at = conn.backend() as usize;
        match (conn.state(), conn.stall().hold()) {
            (BackendConnState::Down { .. }, _) => self.connect_shared(at),
            (BackendConnState::Connecting { .. }, _) => {
                self.upstream.backend_mut(at).set_why_down(WhyDown::ConnectTimeout);
                self.fail_backend_conn(backend_conn, FailureReason::Timeout, Some(Event::Refused))
            }
            (_, Hold::Client { client, .. }) => self.drop_slow_client(backend_conn, client),
            // A sink that reads slowly, or not, keeps its connection: the next one would be filled as well.
            (BackendConnState::Idle { .. }, _) if self.is_clogged(backend_conn, 0) => {
                let now_ns = self.io.now_ns();
                self.upstream.conn_mut(backend_conn).renew_idle(now_ns);
            }
            (BackendConnState::Idle { .. }, _) => self.retire_backend_conn(backend_conn),
            _ => self.request_due(backend_conn),
        }
    }

    /// The deadline of the request at the front of a connection has passed.
    fn request_due(&mut self, backend_conn: u32) {
        if self.has_just_received(backend_conn)
            || !self.is_over_time(backend_conn) && self.upload_goes_on(backend_conn)
        {
            return;
        }
        if let Some(client) = self.over_time_by(backend_conn) {
            return self.drop_slow_client(backend_conn, client);
        }
        if let Some(client) = self.slow_uploader(backend_conn) {
            return self.request_is_too_late(client);
        }
        if self.watch(backend_conn) || self.ends_replaced(backend_conn) {
            return;
        }
        self.log_backend(backend_conn, |context| warn_of!(context, "backend did not answer in time"));
        self.note_silence(backend_conn);
        self.fail_backend_conn(backend_conn, FailureReason::Timeout, Some(Event::TimedOut));
    }

    /// Whether bytes of a backend arrived in the same iteration in which its deadline was found to have passed: then
    /// the worker was late, not the backend, and the bytes are handled first.
    fn has_just_received(&self, backend_conn: u32) -> bool {
        self.upstream.conn(backend_conn).is_queued()
            && self.backend_conn_due_ns(backend_conn).is_some_and(|due_ns| due_ns > self.clock.looked_ns())
    }

    fn session_due(&mut self, key: Key, kind: DeadlineKind) {
        match kind {
            DeadlineKind::Message => self.request_is_late(key),
            DeadlineKind::Linger | DeadlineKind::Flush => self.linger_on(key),
            DeadlineKind::Tunnel | DeadlineKind::HalfTunnel => self.end_tunnel(key),
            DeadlineKind::Queue => {
                if let Some(session) = self.downstream.client_mut(key) {
                    session.stream_mut().set_overdue(true);
                    self.enqueue_session(key);
                }
            }
            DeadlineKind::Idle => {
                let busy = self
                    .downstream
                    .client(key)
                    .is_some_and(|session| !session.stream().requests().is_empty());
                if busy {
                    self.arm_idle(key);
                } else {
                    //= RFC 9112 section 9.5
                    //# A client or server that wishes to time out SHOULD issue a graceful close on the connection.
                    self.stop_reading(key);
                    self.close_if_finished(key);
                }
            }
        }
    }
}
