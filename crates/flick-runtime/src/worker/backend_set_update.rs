//! New lists of backends, applied between two iterations of the event loop: a new backend is connected, a removed one
//! gets no new request and drains until the requests in flight are answered, or its time is over.
//! Promises: a rule sees one list from its first statement to its last; a backend that stays keeps its connections;
//! a connection with requests in flight is not ended before `Timeouts::backend_drain` has passed.

use std::sync::Arc;

use flick_abi::{Event, FailureReason};
use flick_net::{Driver, Endpoint};

use super::Worker;
use crate::config::BackendMode;
use crate::observe::backend_log::Trouble;
use crate::upstream::backend::BackendLife;
use crate::upstream::health::BackendHealth;

impl<D: Driver> Worker<D> {
    /// Makes of all slots what the lists say.
    pub(super) fn apply_backend_sets(&mut self) {
        let backend_set = Arc::clone(self.upstream.backend_set());
        self.rules.host_mut().set_balancer(Arc::clone(backend_set.load_balancer()));
        for (at, slot) in backend_set.slots().iter().enumerate() {
            self.upstream.backend_mut(at).set_mode(slot.mode);
            let backend = self.upstream.backend(at);
            // A backend in maintenance has its place in the list, and no connections.
            let element = slot.element.filter(|_| slot.mode != BackendMode::Maint);
            match (backend.life(), element, &slot.endpoint) {
                (BackendLife::Free, Some(element), Some(endpoint)) => self.add_backend(at, endpoint, element),
                (_, Some(element), Some(endpoint)) if backend.endpoint() == endpoint => {
                    self.relist_backend(at, element);
                }
                (_, Some(element), Some(endpoint)) => {
                    // Every other slot was in use: what is in flight there fails at once.
                    self.drain_backend(at, 0);
                    self.end_all(at);
                    self.add_backend(at, endpoint, element);
                }
                (BackendLife::Listed, None, _) => {
                    let drain_ns = self.ctx.setup().timeouts.backend_drain.as_nanos() as u64;
                    self.drain_backend(at, self.io.now_ns() + drain_ns);
                }
                _ => {}
            }
        }
        (0..self.ctx.setup().program.channels.len()).for_each(|channel| self.weigh_checks(channel));
        self.tasks.free_capacity();
    }

    /// A new backend in a free slot.
    fn add_backend(&mut self, at: usize, endpoint: &Endpoint, element: u64) {
        let now_ns = self.io.now_ns();
        let health = BackendHealth::new(now_ns, self.upstream.backend_set().version() > 0);
        self.upstream.backend_mut(at).add(endpoint, element, health);
        self.note_due(now_ns);
        self.observe.backend(at).clear();
        self.observe.backend(at).tracked.add(1);
        self.observe.backend(at).health.set(self.upstream.backend(at).health_state());
        self.connect_ahead(at);
    }

    /// A backend is in its list, perhaps again after it was removed and has not drained.
    fn relist_backend(&mut self, at: usize, element: u64) {
        let was_removed = self.upstream.relist(at, element);
        let backend = self.upstream.backend(at);
        if was_removed && self.upstream.conn(backend.shared()).is_down() && !backend.is_up() {
            self.connect_ahead(at);
        }
    }

    fn connect_ahead(&mut self, at: usize) {
        if !self.ctx.setup().is_relay {
            self.connect_shared(at);
        }
    }

    /// A backend was removed from its list.
    fn drain_backend(&mut self, at: usize, until_ns: u64) {
        if self.upstream.drain(at, until_ns) {
            let address = self.upstream.backend(at).endpoint();
            let service = self.ctx.service();
            // Every worker applies the list; one line says so.
            if self.ctx.index() == 0 {
                match self.upstream.backend(at).mode() {
                    BackendMode::Maint => tracing::info!(service, %address, "backend is in maintenance"),
                    _ => tracing::info!(service, %address, "backend has left its list"),
                }
            }
        }
        self.drop_check(at);
        self.note_due(self.io.now_ns());
    }

    /// Ends those connections of removed backends that have no requests in flight, and all of them when the time of
    /// their backend is over.
    pub(super) fn drain_backends(&mut self, now_ns: u64) {
        for at in 0..self.upstream.backends().len() {
            let BackendLife::Draining { until_ns } = self.upstream.backend(at).life() else { continue };
            if now_ns >= until_ns {
                self.end_all(at);
                continue;
            }
            for backend_conn in self.upstream.backend(at).conns() {
                if self.upstream.conn(backend_conn).is_unused() && !self.is_clogged(backend_conn, 0) {
                    self.retire_backend_conn(backend_conn);
                }
            }
            if self.upstream.backend(at).conns().all(|slot| self.upstream.conn(slot).is_down()) {
                self.backend_drained(at);
            }
        }
    }

    /// Ends all connections of a removed backend.
    fn end_all(&mut self, at: usize) {
        for backend_conn in self.upstream.backend(at).conns() {
            if !self.upstream.conn(backend_conn).is_down() {
                self.fail_backend_conn(backend_conn, FailureReason::Unavailable, Some(Event::Broken));
            }
        }
        self.backend_drained(at);
    }

    fn backend_drained(&mut self, at: usize) {
        self.upstream.free(at);
        for trouble in Trouble::ALL {
            self.note_trouble(at, trouble, false);
        }
        if self.upstream.backend_mut(at).set_up(false) {
            self.observe.backend(at).up.sub(1);
        }
        self.observe.backend(at).tracked.sub(1);
        self.tasks.free_capacity();
    }
}
