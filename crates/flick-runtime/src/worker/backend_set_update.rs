//! New lists of backends, taken over between two turns: who is new is dialled, who has left gets nothing new and is seen
//! off once what is under way on it is over, or its time is.
//! Promises: a rule sees one list from its first statement to its last; a backend that stays keeps its connections;
//! a connection on which something is under way is not ended before `Timeouts::leave` has passed.

use std::sync::Arc;

use flick_abi::{Event, FailureReason};
use flick_net::Driver;

use super::Worker;
use crate::upstream::backend::{BackendConnState, BackendLife};
use crate::upstream::health::BackendHealth;

impl<D: Driver> Worker<D> {
    /// Makes of all slots what the lists say.
    pub(super) fn apply_backend_sets(&mut self) {
        let backend_set = Arc::clone(&self.upstream.backend_set);
        self.rules.host_mut().set_balancer(Arc::clone(backend_set.load_balancer()));
        for (at, slot) in backend_set.slots().iter().enumerate() {
            let backend = &mut self.upstream.backends[at];
            match (backend.life, slot.element, &slot.endpoint) {
                (BackendLife::Free, Some(element), Some(endpoint)) => {
                    backend.endpoint.clone_from(endpoint);
                    self.take_in(at, element);
                }
                (_, Some(element), Some(endpoint)) if backend.endpoint == *endpoint => {
                    backend.element = element;
                    if backend.life != BackendLife::SessionInfo {
                        self.come_back(at);
                    }
                }
                (_, Some(element), Some(endpoint)) => {
                    // Everything else was taken: whoever still has something under way there is told at once.
                    self.leave(at, 0);
                    self.end_all(at);
                    self.upstream.backends[at].endpoint.clone_from(endpoint);
                    self.take_in(at, element);
                }
                (BackendLife::SessionInfo, None, _) => {
                    let left_ns = self.io.now_ns();
                    self.leave(at, left_ns + self.ctx.setup().timeouts.backend_drain.as_nanos() as u64);
                }
                _ => {}
            }
        }
        (0..self.ctx.setup().program.channels.len()).for_each(|channel| self.weigh_checks(channel));
        self.tasks.free_capacity();
    }

    /// A new backend in a free slot.
    fn take_in(&mut self, at: usize, element: u64) {
        let now_ns = self.io.now_ns();
        let backend = &mut self.upstream.backends[at];
        (backend.life, backend.element) = (BackendLife::SessionInfo, element);
        (backend.failures, backend.is_up) = (0, false);
        backend.health = BackendHealth {
            back_ns: (self.upstream.backend_set.version() > 0).then_some(now_ns),
            ..BackendHealth::default()
        };
        backend.health.check.due_ns = now_ns;
        self.note_due(now_ns);
        self.observe.backend(at).clear();
        self.observe.backend(at).tracked.add(1);
        self.observe.backend(at).health.set(self.upstream.backends[at].health_state());
        self.connect_ahead(at);
    }

    /// One that had left and not finished is in its list again.
    fn come_back(&mut self, at: usize) {
        self.upstream.backends[at].life = BackendLife::SessionInfo;
        self.upstream.draining -= 1;
        if self.upstream.conns[self.upstream.backends[at].shared].state == BackendConnState::Down
            && !self.upstream.backends[at].is_up
        {
            self.connect_ahead(at);
        }
    }

    fn connect_ahead(&mut self, at: usize) {
        if !self.ctx.setup().is_relay {
            self.connect_shared(at as u32);
        }
    }

    /// It is not in its list any more.
    fn leave(&mut self, at: usize, until_ns: u64) {
        let backend = &mut self.upstream.backends[at];
        if backend.life == BackendLife::SessionInfo {
            self.upstream.draining += 1;
            let (service, worker) = (self.ctx.service(), self.ctx.index());
            tracing::info!(service, worker, address = %backend.endpoint, "backend has left its list");
        }
        backend.life = BackendLife::Leaving { until_ns };
        self.drop_check(at);
        self.note_due(self.io.now_ns());
    }

    /// Looks after those that have left: ends their connections on which nothing is under way, and when their time is over
    /// all of them.
    pub(super) fn see_off(&mut self, now_ns: u64) {
        for at in 0..self.upstream.backends.len() {
            let BackendLife::Leaving { until_ns } = self.upstream.backends[at].life else { continue };
            if now_ns >= until_ns {
                self.end_all(at);
                continue;
            }
            for backend_conn in self.upstream.backends[at].backend_conns() {
                if self.is_unused(backend_conn) {
                    self.retire_backend_conn(backend_conn);
                }
            }
            let is_down =
                |backend_conn: u32| self.upstream.conns[backend_conn].state == BackendConnState::Down;
            if self.upstream.backends[at].backend_conns().all(is_down) {
                self.is_seen_off(at);
            }
        }
    }

    /// A connection that nobody would miss.
    fn is_unused(&self, backend_conn: u32) -> bool {
        let state = &self.upstream.conns[backend_conn];
        let unsent = state.conn.is_some_and(|conn| self.io.driver().backlog_bytes(conn) > 0);
        state.state != BackendConnState::Down
            && state.requests.is_empty()
            && !state.uploading
            && !unsent
            && state.tunnel.is_none()
            && state.client_of.is_none()
    }

    /// Ends what a backend that has left still has.
    fn end_all(&mut self, at: usize) {
        for backend_conn in self.upstream.backends[at].backend_conns() {
            if self.upstream.conns[backend_conn].state != BackendConnState::Down {
                self.fail_backend_conn(backend_conn, FailureReason::Unavailable, Some(Event::Broken));
            }
        }
        self.is_seen_off(at);
    }

    fn is_seen_off(&mut self, at: usize) {
        self.upstream.backends[at].life = BackendLife::Free;
        if std::mem::take(&mut self.upstream.backends[at].is_up) {
            self.observe.backend(at).up.sub(1);
        }
        self.upstream.draining -= 1;
        self.observe.backend(at).tracked.sub(1);
        self.tasks.free_capacity();
    }
}
