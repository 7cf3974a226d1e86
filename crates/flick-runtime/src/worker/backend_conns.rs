//! Connections to backends: dialled ahead, dialled again with growing pauses, and when one ends every request on it
//! is answered.

use flick_abi::{Event, FailureReason};
use flick_net::{Driver, Endpoint};

use super::Worker;
use super::health::warn_of;
use super::sending::BackendIncident;
use crate::inflight::{ReplyTarget, RequestId};
use crate::io::Role;
use crate::limits::BACKOFF_SHIFT_MAX;
use crate::upstream::backend::{BackendConnState, BackendLife, Closed};

impl<D: Driver> Worker<D> {
    /// Where a connection leads, for the log.
    pub(super) fn address_of(&self, backend_conn: u32) -> &Endpoint {
        &self.upstream.backends[self.upstream.conns[backend_conn].backend as usize].endpoint
    }

    pub(super) fn connect_shared(&mut self, backend: u32) {
        let backend_conn = self.upstream.backends[backend as usize].shared;
        if self.upstream.backends[backend as usize].life != BackendLife::SessionInfo {
            self.upstream.conns[backend_conn].deadline_ns = u64::MAX;
        } else if !self.connect(backend_conn) {
            self.schedule_reconnect(backend_conn);
        }
    }

    /// Starts dialling; `false` when the system has no descriptor or the address is refused at once.
    pub(super) fn connect(&mut self, backend_conn: u32) -> bool {
        let backend = self.upstream.conns[backend_conn].backend;
        let conn = match self.io.driver_mut().connect(&self.upstream.backends[backend as usize].endpoint) {
            Ok(conn) => conn,
            Err(error) => {
                self.log_backend(backend_conn, |context| warn_of!(context, %error, "cannot dial a backend"));
                return false;
            }
        };
        let deadline_ns = self.io.now_ns() + self.ctx.setup().timeouts.connect.as_nanos() as u64;
        let state = &mut self.upstream.conns[backend_conn];
        state.epoch = state.epoch.wrapping_add(1);
        state.state = BackendConnState::Connecting;
        state.conn = Some(conn);
        state.deadline_ns = deadline_ns;
        state.receiving = false;
        state.eof = false;
        state.exchanges = 0;
        state.is_last = false;
        state.is_abandoned = false;
        state.becomes_tunnel = false;
        state.buffers_reply = false;
        self.io.set_role(conn, Role::BackendConn { backend_conn, epoch: state.epoch });
        self.note_due(deadline_ns);
        true
    }

    pub(super) fn backend_connected(&mut self, backend_conn: u32) {
        let state = &mut self.upstream.conns[backend_conn];
        let Some(conn) = state.conn else { return };
        state.state = BackendConnState::Up;
        state.receiving = true;
        self.io.driver_mut().receive(conn, true);
        self.observe.counters().backend_connections_opened.add(1);
        let (backend, dedicated) = (state.backend as usize, state.dedicated);
        if self.ctx.setup().is_relay {
            let now_ns = self.io.now_ns();
            self.upstream.backends[backend].health.note_answer(now_ns);
        } else if self.upstream.backends[backend].failures > 0 {
            self.is_back(backend);
            let address = self.address_of(backend_conn);
            tracing::info!(service = self.ctx.service(), worker = self.ctx.index(), %address, "backend is up");
        }
        if self.upstream.backends[backend].exclusive {
            self.pool_connected(backend_conn);
        } else if !dedicated {
            self.upstream.backends[backend].failures = 0;
            self.observe.backend(backend).up.add(1);
        }
        self.show_health(backend);
        self.tasks.free_capacity();
    }

    /// Ends a connection from our side; every request on it is answered with `reason`, or by the handler of `event`.
    pub(super) fn fail_backend_conn(
        &mut self,
        backend_conn: u32,
        reason: FailureReason,
        event: Option<Event>,
    ) {
        if let Some(conn) = self.upstream.conns[backend_conn].conn.take() {
            self.io.driver_mut().abort(conn);
        }
        self.close_backend_conn(backend_conn, reason, event);
    }

    /// The driver has lost the connection. Replies that had arrived on it before are still delivered: a backend that
    /// refuses a large request early answers, and resets the connection right behind.
    pub(super) fn backend_conn_lost(&mut self, backend_conn: u32) {
        let front = self.upstream.conns[backend_conn].requests.front();
        let is_kept = front.is_some_and(|request| !self.inflight.table.get(request).resend.is_empty());
        let state = &mut self.upstream.conns[backend_conn];
        state.conn = None;
        if state.state == BackendConnState::Up {
            state.eof = true;
            self.enqueue_backend_conn(backend_conn);
        } else if !is_kept {
            self.close_backend_conn(backend_conn, FailureReason::Unavailable, Some(Event::Refused));
        } else {
            // Another may be dialled for its request: not before all events are handled, for a new connection may get the
            // number of one whose end is not known yet.
            self.enqueue_backend_conn(backend_conn);
        }
    }

    /// A connection that could not be made, once that is its turn.
    pub(super) fn run_refused_backend_conn(&mut self, backend_conn: u32) {
        let state = &self.upstream.conns[backend_conn];
        let is_refused = state.state == BackendConnState::Connecting && state.conn.is_none();
        if is_refused {
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
        let Closed { was, tunnel, client_of, download, relay_body } =
            self.upstream.conns[backend_conn].close();
        self.io.clear_inbox(&mut self.upstream.conns[backend_conn].inbox);
        for body in [download.map(|download| download.body), relay_body.map(|(body, _)| body)] {
            self.drop_rest(body);
        }
        self.unstall(backend_conn);
        self.observe.counters().backend_connections_closed.add(1);
        let state = &self.upstream.conns[backend_conn];
        let (backend, dedicated) = (state.backend as usize, state.dedicated);
        let exclusive = self.upstream.backends[backend].exclusive;
        if exclusive {
            if self.send_again(backend_conn, event) {
                return;
            }
            let has_request = self.upstream.conns[backend_conn].requests.front().is_some();
            if has_request
                && was == BackendConnState::Up
                && matches!(event, Some(Event::Closed | Event::Broken))
            {
                self.log_backend(backend_conn, |context| {
                    warn_of!(context, "backend ended a connection before its reply was whole")
                });
            }
            self.send_elsewhere(backend_conn, event);
            self.pool_lost(backend_conn, was == BackendConnState::Connecting && event.is_some());
        } else if !dedicated {
            if was == BackendConnState::Up {
                self.observe.backend(backend).up.sub(1);
            }
            self.schedule_reconnect(backend_conn);
        }
        let incident = event.map(|event| BackendIncident { event, backend: backend as u32 });
        let handled = self.fail_all(backend_conn, reason, incident);
        if let Some(key) = tunnel {
            self.end_session(key, true);
        }
        if let Some(key) = client_of {
            self.relay_conn_lost(key, backend_conn, was == BackendConnState::Up);
        }
        // Of an exclusive protocol: a connection that rests may end at any time, and means nothing.
        if self.ctx.setup().is_relay && was == BackendConnState::Connecting && event.is_some() {
            self.note_failure(backend);
        }
        let matters = if exclusive && !self.ctx.setup().is_relay {
            was == BackendConnState::Connecting
        } else {
            !dedicated
        };
        if let Some(incident) = incident.filter(|_| !handled && matters) {
            self.notify_of_backend(incident);
        }
        self.tasks.free_capacity();
    }

    /// Answers every request of a lost connection. New ones cannot join meanwhile: the link is down. Whether handlers
    /// answer any of them.
    fn fail_all(
        &mut self,
        backend_conn: u32,
        reason: FailureReason,
        incident: Option<BackendIncident>,
    ) -> bool {
        let mut handled = false;
        let backend = self.upstream.conns[backend_conn].backend as usize;
        let mut left = self.upstream.conns[backend_conn].requests.len();
        while left > 0 {
            left -= 1;
            let requests = &mut self.upstream.conns[backend_conn].requests;
            let reply_target = requests
                .front()
                .map_or(ReplyTarget::Nothing, |request| self.inflight.table.get(request).reply_target);
            let Some(request) = self.inflight.table.pop_backend_conn(requests, self.io.pieces_mut()) else {
                break;
            };
            self.observe.backend(backend).failures.add(1);
            if incident.is_some() && reason != FailureReason::Overload {
                self.note_failure(backend);
            }
            if let ReplyTarget::Ask { suspended, ask } = reply_target {
                self.ask_failed(suspended, ask, reason);
            } else if self.has_session(request) {
                handled |= self.fail_or_handle(request, reason, incident);
            }
        }
        handled
    }

    /// Whether the entry is still in a session's queue; an entry in neither queue has been freed.
    pub(super) fn has_session(&self, request: RequestId) -> bool {
        self.inflight.table.get(request).session.is_some()
    }

    /// Sets the time to dial a shared link again: pauses double, with jitter of a quarter either way.
    pub(super) fn schedule_reconnect(&mut self, backend_conn: u32) {
        let backend = self.upstream.conns[backend_conn].backend as usize;
        if self.upstream.backends[backend].life != BackendLife::SessionInfo {
            (self.upstream.conns[backend_conn].state, self.upstream.conns[backend_conn].deadline_ns) =
                (BackendConnState::Down, u64::MAX);
            return;
        }
        let timeouts = &self.ctx.setup().timeouts;
        if self.upstream.backends[backend].failures == 0 {
            let address = self.address_of(backend_conn);
            tracing::warn!(service = self.ctx.service(), worker = self.ctx.index(), %address, "backend is down");
        }
        let shift = self.upstream.backends[backend].failures.min(BACKOFF_SHIFT_MAX);
        let pause = (timeouts.reconnect_backoff_min.as_nanos() as u64) << shift;
        let pause = pause.min(timeouts.reconnect_backoff_max.as_nanos() as u64).max(1);
        self.upstream.backends[backend].failures = self.upstream.backends[backend].failures.saturating_add(1);
        self.show_health(backend);
        self.upstream.random ^= self.upstream.random << 13;
        self.upstream.random ^= self.upstream.random >> 7;
        self.upstream.random ^= self.upstream.random << 17;
        let jitter = self.upstream.random % (pause / 2 + 1);
        self.upstream.conns[backend_conn].state = BackendConnState::Down;
        let again_ns = self.io.now_ns() + pause - pause / 4 + jitter;
        self.upstream.conns[backend_conn].deadline_ns = again_ns;
        self.note_due(again_ns);
    }
}
