//! Connections to backends: dialled ahead, dialled again with growing pauses, and when one ends every request on it
//! is answered.

use flick_abi::{Event, FailureReason};
use flick_net::{Driver, Endpoint};

use super::health::warn_of;
use super::sending::BackendIncident;
use super::{Role, Worker};
use crate::inflight::{ReplyTarget, RequestId};
use crate::limits::BACKOFF_SHIFT_MAX;
use crate::upstream::backend::{BackendConnState, BackendLife};

impl<D: Driver> Worker<D> {
    /// Where a connection leads, for the log.
    pub(super) fn address_of(&self, link: u32) -> &Endpoint {
        &self.backends[self.links[link as usize].backend as usize].endpoint
    }

    pub(super) fn dial_shared(&mut self, backend: u32) {
        let link = self.backends[backend as usize].shared;
        if self.backends[backend as usize].life != BackendLife::SessionInfo {
            self.links[link as usize].deadline_ns = u64::MAX;
        } else if !self.dial(link) {
            self.link_down(link);
        }
    }

    /// Starts dialling; `false` when the system has no descriptor or the address is refused at once.
    pub(super) fn dial(&mut self, link: u32) -> bool {
        let backend = self.links[link as usize].backend;
        let conn = match self.driver.connect(&self.backends[backend as usize].endpoint) {
            Ok(conn) => conn,
            Err(error) => {
                self.say(link, |told| warn_of!(told, %error, "cannot dial a backend"));
                return false;
            }
        };
        let deadline_ns = self.driver.now_ns() + self.setup.timeouts.connect.as_nanos() as u64;
        let state = &mut self.links[link as usize];
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
        state.gathers = false;
        self.roles[conn.index as usize] = Role::BackendConn { link, epoch: state.epoch };
        self.note_due(deadline_ns);
        true
    }

    pub(super) fn link_connected(&mut self, link: u32) {
        let state = &mut self.links[link as usize];
        let Some(conn) = state.conn else { return };
        state.state = BackendConnState::Up;
        state.receiving = true;
        self.driver.receive(conn, true);
        self.counters.backend_connections_opened.add(1);
        let (backend, lent) = (state.backend as usize, state.lent);
        if self.setup.private {
            let now_ns = self.driver.now_ns();
            self.backends[backend].health.note_answer(now_ns);
        } else if self.backends[backend].failures > 0 {
            self.is_back(backend);
            let address = self.address_of(link);
            tracing::info!(service = self.service, worker = self.index, %address, "backend is up");
        }
        if self.backends[backend].exclusive {
            self.pool_connected(link);
        } else if !lent {
            self.backends[backend].failures = 0;
            self.backend_counters[backend].up.add(1);
        }
        self.show_health(backend);
        self.unblock = true;
    }

    /// Ends a connection from our side; every request on it is answered with `reason`, or by the handler of `event`.
    pub(super) fn link_broken(&mut self, link: u32, reason: FailureReason, event: Option<Event>) {
        if let Some(conn) = self.links[link as usize].conn.take() {
            self.driver.abort(conn);
        }
        self.link_lost(link, reason, event);
    }

    /// The driver has lost the connection. Replies that had arrived on it before are still delivered: a backend that
    /// refuses a large request early answers, and resets the connection right behind.
    pub(super) fn link_gone(&mut self, link: u32) {
        let front = self.links[link as usize].requests.front();
        let is_kept = front.is_some_and(|request| !self.ledger.get(request).resend.is_empty());
        let state = &mut self.links[link as usize];
        state.conn = None;
        if state.state == BackendConnState::Up {
            state.eof = true;
            self.enqueue_link(link);
        } else if !is_kept {
            self.link_lost(link, FailureReason::Unavailable, Some(Event::Refused));
        } else {
            // Another may be dialled for its request: not before all events are handled, for a new connection may get the
            // number of one whose end is not known yet.
            self.enqueue_link(link);
        }
    }

    /// A connection that could not be made, once that is its turn.
    pub(super) fn refused_link_runs(&mut self, link: u32) {
        let state = &self.links[link as usize];
        let is_refused = state.state == BackendConnState::Connecting && state.conn.is_none();
        if is_refused {
            self.link_lost(link, FailureReason::Unavailable, Some(Event::Refused));
        }
    }

    /// The connection is gone, and nothing more is wanted of it.
    pub(super) fn link_lost(&mut self, link: u32, reason: FailureReason, event: Option<Event>) {
        let state = &mut self.links[link as usize];
        let was = state.state;
        state.state = BackendConnState::Down;
        state.conn = None;
        state.epoch = state.epoch.wrapping_add(1);
        state.uploading = false;
        state.becomes_tunnel = false;
        let (tunnel, owner) = (state.tunnel.take(), state.owner.take());
        let private_body = state.private_body.take();
        // A shared link gets a time to be dialled again below.
        state.deadline_ns = u64::MAX;
        let download = state.download.take();
        state.fill = None;
        state.grace = None;
        state.inbox.clear(&mut self.pieces, &mut self.frames);
        for body in [download.map(|download| download.body), private_body.map(|(body, _)| body)] {
            self.drop_rest(body);
        }
        self.unstall(link);
        self.counters.backend_connections_closed.add(1);
        let state = &self.links[link as usize];
        let (backend, lent) = (state.backend as usize, state.lent);
        let exclusive = self.backends[backend].exclusive;
        if exclusive {
            if self.send_again(link, event) {
                return;
            }
            let has_request = self.links[link as usize].requests.front().is_some();
            if has_request
                && was == BackendConnState::Up
                && matches!(event, Some(Event::Closed | Event::Broken))
            {
                self.say(link, |told| {
                    warn_of!(told, "backend ended a connection before its reply was whole")
                });
            }
            self.send_elsewhere(link, event);
            self.pool_lost(link, was == BackendConnState::Connecting && event.is_some());
        } else if !lent {
            if was == BackendConnState::Up {
                self.backend_counters[backend].up.sub(1);
            }
            self.link_down(link);
        }
        let mishap = event.map(|event| BackendIncident { event, backend: backend as u32 });
        let handled = self.fail_all(link, reason, mishap);
        if let Some(key) = tunnel {
            self.end_session(key, true);
        }
        if let Some(key) = owner {
            self.private_lost(key, link, was == BackendConnState::Up);
        }
        // Of an exclusive protocol: a connection that rests may end at any time, and means nothing.
        if self.setup.private && was == BackendConnState::Connecting && event.is_some() {
            self.note_failure(backend);
        }
        let matters =
            if exclusive && !self.setup.private { was == BackendConnState::Connecting } else { !lent };
        if let Some(mishap) = mishap.filter(|_| !handled && matters) {
            self.tell_of_backend(mishap);
        }
        self.unblock = true;
    }

    /// Answers every request of a lost connection. New ones cannot join meanwhile: the link is down. Whether handlers
    /// answer any of them.
    fn fail_all(&mut self, link: u32, reason: FailureReason, mishap: Option<BackendIncident>) -> bool {
        let mut handled = false;
        let backend = self.links[link as usize].backend as usize;
        let mut left = self.links[link as usize].requests.len();
        while left > 0 {
            left -= 1;
            let requests = &mut self.links[link as usize].requests;
            let tie = requests.front().map_or(ReplyTarget::Nothing, |request| self.ledger.get(request).tie);
            let Some(request) = self.ledger.pop_link(requests, &mut self.pieces) else { break };
            self.backend_counters[backend].failures.add(1);
            if mishap.is_some() && reason != FailureReason::Overload {
                self.note_failure(backend);
            }
            if let ReplyTarget::Ask { activation, ask } = tie {
                self.ask_failed(activation, ask, reason);
            } else if self.ledger_has_session(request) {
                handled |= self.fail_or_handle(request, reason, mishap);
            }
        }
        handled
    }

    /// Whether the entry is still in a session's queue; an entry in neither queue has been freed.
    pub(super) fn ledger_has_session(&self, request: RequestId) -> bool {
        self.ledger.get(request).session.is_some()
    }

    /// Sets the time to dial a shared link again: pauses double, with jitter of a quarter either way.
    pub(super) fn link_down(&mut self, link: u32) {
        let backend = self.links[link as usize].backend as usize;
        if self.backends[backend].life != BackendLife::SessionInfo {
            (self.links[link as usize].state, self.links[link as usize].deadline_ns) =
                (BackendConnState::Down, u64::MAX);
            return;
        }
        let timeouts = &self.setup.timeouts;
        if self.backends[backend].failures == 0 {
            let address = self.address_of(link);
            tracing::warn!(service = self.service, worker = self.index, %address, "backend is down");
        }
        let shift = self.backends[backend].failures.min(BACKOFF_SHIFT_MAX);
        let pause = (timeouts.reconnect_backoff_min.as_nanos() as u64) << shift;
        let pause = pause.min(timeouts.reconnect_backoff_max.as_nanos() as u64).max(1);
        self.backends[backend].failures = self.backends[backend].failures.saturating_add(1);
        self.show_health(backend);
        self.random ^= self.random << 13;
        self.random ^= self.random >> 7;
        self.random ^= self.random << 17;
        let jitter = self.random % (pause / 2 + 1);
        self.links[link as usize].state = BackendConnState::Down;
        let again_ns = self.driver.now_ns() + pause - pause / 4 + jitter;
        self.links[link as usize].deadline_ns = again_ns;
        self.note_due(again_ns);
    }
}
