//! Connections to backends: connected ahead, connected again with growing pauses, and when one ends every request on it
//! is answered.

use flick_abi::{Event, FailureReason};
use flick_net::{ConnFault, Driver, Endpoint};

use super::Worker;
use super::health::warn_of;
use super::sending::BackendIncident;
use crate::inflight::{ReplyTarget, RequestId};
use crate::io::Role;
use crate::limits::BACKOFF_SHIFT_MAX;
use crate::observe::backend_log::{Trouble, WhyDown};
use crate::observe::descriptor_log::{DESCRIPTOR_LOG, is_exhaustion};
use crate::upstream::conn::{Closed, ClosedWhile, Holder, Purpose};

impl<D: Driver> Worker<D> {
    /// The address of a connection's backend, for the log.
    pub(super) fn address_of(&self, backend_conn: u32) -> &Endpoint {
        self.upstream.backend_of(backend_conn).endpoint()
    }

    /// Connects the shared connection of a backend that is listed.
    pub(super) fn connect_shared(&mut self, at: usize) {
        let backend = self.upstream.backend(at);
        let backend_conn = backend.shared();
        let purpose = if backend.is_exclusive() { Purpose::Spare } else { Purpose::Pipeline };
        if !backend.is_listed() {
            self.upstream.conn_mut(backend_conn).connect_again_at(None);
        } else if !self.connect(backend_conn, purpose) {
            self.schedule_reconnect(backend_conn);
        }
    }

    /// Begins to connect; `false` when the system has no descriptor or the address is refused at once.
    pub(super) fn connect(&mut self, backend_conn: u32, purpose: Purpose) -> bool {
        let handle = match self.io.driver_mut().connect(self.upstream.backend_of(backend_conn).endpoint()) {
            Ok(handle) => handle,
            Err(error) => {
                let fault = ConnFault::System(error.raw_os_error().unwrap_or_default());
                let at = self.upstream.conn(backend_conn).backend() as usize;
                self.upstream.backend_mut(at).set_why_down(WhyDown::Fault(fault));
                self.observe.counters().backend_connect_errors.add(1);
                if is_exhaustion(error.raw_os_error()) {
                    if let Some(left_out) = DESCRIPTOR_LOG.admit(self.io.now_ns()) {
                        let (service, address) = (self.ctx.service(), self.address_of(backend_conn));
                        tracing::warn!(service, %address, %error, left_out, "cannot connect to a backend");
                    }
                    return false;
                }
                self.log_backend(
                    backend_conn,
                    |context| warn_of!(context, %error, "cannot connect to a backend"),
                );
                return false;
            }
        };
        let deadline_ns = self.io.now_ns() + self.ctx.setup().timeouts.connect.as_nanos() as u64;
        let epoch = self.upstream.conn_mut(backend_conn).begin_connecting(handle, deadline_ns, purpose);
        self.io.set_role(handle, Role::BackendConn { backend_conn, epoch });
        self.note_due(deadline_ns);
        true
    }

    pub(super) fn backend_connected(&mut self, backend_conn: u32) {
        let now_ns = self.io.now_ns();
        let Some(handle) = self.upstream.conn_mut(backend_conn).connected(now_ns) else { return };
        self.io.driver_mut().receive(handle, true);
        self.observe.counters().backend_connections_opened.add(1);
        let conn = self.upstream.conn(backend_conn);
        let (at, dedicated) = (conn.backend() as usize, conn.is_dedicated());
        let backend = self.upstream.backend_mut(at);
        let exclusive = backend.is_exclusive();
        let is_relay = backend.is_relay();
        let was_down = !is_relay && backend.failures() > 0;
        if is_relay {
            backend.health_mut().note_answer(now_ns);
        } else if was_down {
            self.is_back(at);
        }
        if (is_relay || was_down) && self.note_trouble(at, Trouble::Down, false) {
            let health = self.upstream.backend(at).health();
            let what = match (health.is_ejected(), health.refuses()) {
                (true, _) => "backend accepts connections again, but is still ejected",
                (false, true) => "backend accepts connections again, but still fails its health checks",
                (false, false) => "backend is up",
            };
            tracing::info!(service = self.ctx.service(), address = %self.address_of(backend_conn), "{what}");
        }
        if exclusive {
            self.pool_connected(backend_conn);
        } else if !dedicated {
            self.upstream.backend_mut(at).set_failures(0);
            self.observe.backend(at).up.add(1);
        }
        self.show_health(at);
        self.tasks.free_capacity();
    }

    /// Ends a connection from our side; every request on it is answered with `reason`, or by the handler of `event`.
    pub(super) fn fail_backend_conn(
        &mut self,
        backend_conn: u32,
        reason: FailureReason,
        event: Option<Event>,
    ) {
        if let Some(handle) = self.upstream.conn_mut(backend_conn).take_handle() {
            self.io.driver_mut().abort(handle);
        }
        self.close_backend_conn(backend_conn, reason, event);
    }

    /// The driver has lost the connection. Replies that had arrived on it before are still delivered: a backend that
    /// refuses a large request early answers, and resets the connection right behind.
    pub(super) fn backend_conn_lost(&mut self, backend_conn: u32, fault: ConnFault) {
        let at = self.upstream.conn(backend_conn).backend() as usize;
        self.upstream.backend_mut(at).set_why_down(WhyDown::Fault(fault));
        let conn = self.upstream.conn_mut(backend_conn);
        conn.lose();
        let (front, is_refused) = (conn.requests().front(), conn.is_refused());
        let may_resend = front.is_some_and(|request| self.inflight.get(request).may_resend());
        if is_refused && !may_resend {
            self.close_backend_conn(backend_conn, FailureReason::Unavailable, Some(Event::Refused));
        } else {
            // Another connection may be needed for its request: not before all events are handled, for a new
            // connection may get the number of one whose end is not known yet.
            self.enqueue_backend_conn(backend_conn);
        }
    }

    /// Closes a connection whose attempt to connect has failed.
    pub(super) fn run_refused_backend_conn(&mut self, backend_conn: u32) {
        if self.upstream.conn(backend_conn).is_refused() {
            self.close_backend_conn(backend_conn, FailureReason::Unavailable, Some(Event::Refused));
        }
    }

    /// The connection is gone, and nothing more is wanted of it.
    pub(super) fn close_backend_conn(
        &mut self,
        backend_conn: u32,
        reason: FailureReason,
        event: Option<Event>,
    ) {
        self.resume_backend_conn(backend_conn);
        let conn = self.upstream.conn_mut(backend_conn);
        let Some(Closed { was, holder, body }) = conn.close() else { return };
        self.io.clear_inbox(conn.inbox_mut());
        let (at, dedicated) = (conn.backend() as usize, conn.is_dedicated());
        self.drop_body(body);
        let was_connected = was == ClosedWhile::Connected;
        if was_connected {
            self.observe.counters().backend_connections_closed.add(1);
        } else if event.is_some() {
            self.observe.counters().backend_connect_errors.add(1);
        }
        let backend = self.upstream.backend_mut(at);
        match event {
            Some(Event::Closed) => backend.set_why_down(WhyDown::Closed),
            Some(Event::TimedOut) => backend.set_why_down(WhyDown::ResponseTimeout),
            Some(Event::Malformed) => backend.set_why_down(WhyDown::WrongResponse),
            Some(Event::Refused | Event::Broken) | None => {}
        }
        let (exclusive, is_relay) = (backend.is_exclusive(), backend.is_relay());
        let is_picked = matches!(holder, Holder::Relay { is_picked: true, .. });
        if exclusive {
            if self.send_again(backend_conn, event) {
                return;
            }
            let has_request = !self.upstream.conn(backend_conn).requests().is_empty();
            if has_request && was_connected && matches!(event, Some(Event::Closed | Event::Broken)) {
                self.log_backend(backend_conn, |context| {
                    warn_of!(context, "backend ended a connection before its reply was whole")
                });
            }
            self.send_elsewhere(backend_conn, event);
            if holder == Holder::IdleList {
                self.upstream.backend_mut(at).remove_idle(backend_conn);
            }
            self.pool_lost(backend_conn, !was_connected && event.is_some());
        } else if !dedicated {
            if was_connected {
                self.observe.backend(at).up.sub(1);
            }
            self.schedule_reconnect(backend_conn);
        }
        let incident = event.map(|event| BackendIncident { event, backend: at as u32 });
        let handled = self.fail_all(backend_conn, reason, incident);
        match holder {
            Holder::Requests | Holder::IdleList => {}
            Holder::Tunnel(client) => self.tunnel_lost(client),
            Holder::Relay { client, next, is_picked: _ } => {
                self.relay_conn_lost(client, backend_conn, next, was_connected);
            }
        }
        // Of an exclusive protocol: an idle connection may end at any time, and means nothing.
        if is_relay && event.is_some() {
            self.relay_backend_lost(at, !was_connected, is_picked);
        }
        let matters = if exclusive && !is_relay { !was_connected } else { !dedicated };
        if let Some(incident) = incident.filter(|_| !handled && matters) {
            self.notify_of_backend(incident);
        }
        self.tasks.free_capacity();
    }

    /// A session of a relay has lost its connection to a backend, or got none.
    fn relay_backend_lost(&mut self, at: usize, was_refused: bool, is_picked: bool) {
        let why = self.upstream.backend_mut(at).take_why_down();
        self.ctx.setup().backend_log.note_lost(at, why);
        if was_refused {
            if self.note_trouble(at, Trouble::Down, true) {
                let (service, address) = (self.ctx.service(), self.upstream.backend(at).endpoint());
                tracing::warn!(service, %address, %why, "backend is down");
            }
            self.note_failure(at, is_picked);
        }
    }

    /// Answers every request of a lost connection. New ones cannot join meanwhile: it is down. Returns whether handlers
    /// answer any of them.
    fn fail_all(
        &mut self,
        backend_conn: u32,
        reason: FailureReason,
        incident: Option<BackendIncident>,
    ) -> bool {
        let mut handled = false;
        let at = self.upstream.conn(backend_conn).backend() as usize;
        for _ in 0..self.upstream.conn(backend_conn).requests().len() {
            let requests = self.upstream.conn_mut(backend_conn).requests_mut();
            let front = requests.front().map(|request| self.inflight.get(request));
            let reply_target = front.map_or(ReplyTarget::Nothing, |entry| entry.reply_target());
            let is_picked = front.is_some_and(|entry| entry.is_picked());
            let Some(request) = self.inflight.pop_backend_conn(requests, self.io.pieces_mut()) else {
                break;
            };
            // Without an incident the worker ends the connection because of its client, which is gone, too slow, or
            // sends nonsense: that is no failure of the backend.
            self.observe.backend(at).failures.add(u64::from(incident.is_some()));
            if incident.is_some() && reason != FailureReason::Overload {
                self.note_failure(at, is_picked);
            }
            if let ReplyTarget::Ask { suspended, ask } = reply_target {
                self.ask_failed(suspended, ask, reason);
            } else if self.is_awaited(request) {
                handled |= self.fail_or_handle(request, reason, incident);
            }
        }
        handled
    }

    /// Whether a client waits for the answer to the request. An entry in neither queue has been freed.
    pub(super) fn is_awaited(&self, request: RequestId) -> bool {
        let entry = self.inflight.get(request);
        entry.session().is_some() && !entry.is_done()
    }

    /// Sets the time to connect a shared connection again: pauses double, with jitter of a quarter either way.
    pub(super) fn schedule_reconnect(&mut self, backend_conn: u32) {
        let at = self.upstream.conn(backend_conn).backend() as usize;
        if !self.upstream.backend(at).is_listed() {
            self.upstream.conn_mut(backend_conn).connect_again_at(None);
            return;
        }
        let failures = self.upstream.backend(at).failures();
        let why = self.upstream.backend_mut(at).take_why_down();
        if failures == 0 && self.note_trouble(at, Trouble::Down, true) {
            let address = self.address_of(backend_conn);
            tracing::warn!(service = self.ctx.service(), %address, %why, "backend is down");
        }
        let timeouts = &self.ctx.setup().timeouts;
        let pause = (timeouts.reconnect_backoff_min.as_nanos() as u64) << failures.min(BACKOFF_SHIFT_MAX);
        let pause = pause.min(timeouts.reconnect_backoff_max.as_nanos() as u64).max(1);
        self.upstream.backend_mut(at).note_connect_failure();
        self.show_health(at);
        let connect_ns = self.io.now_ns() + pause - pause / 4 + self.upstream.jitter(pause / 2);
        self.upstream.conn_mut(backend_conn).connect_again_at(Some(connect_ns));
        self.note_due(connect_ns);
    }
}
