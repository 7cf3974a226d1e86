//! Outlier ejection and health checks: which backends get no requests, and when they get some again.
//! Promises: at most `outlier_max_ejected_percent` of a channel's backends are ejected for failed requests; when more
//! than that fail their health checks, checks do not count; a check has a connection of its own and ends in time.
//! Refuses: knowing what a reply means: its grammar says which one reports a failure (`%failed`).

use std::sync::Arc;

use flick_abi::FailureReason;
use flick_buffers::{BufClass, Slice};
use flick_net::{ConnFault, Driver, Endpoint, Handle};

use super::Worker;
use crate::backend_set::load_balancer::Standing;
use crate::io::Role;
use crate::observe::backend_log::{Trouble, WhyDown};
use crate::upstream::backend::Backend;
use crate::upstream::health::EjectedFrom;

/// Fields of a log line about a backend, beside the message.
pub(super) struct BackendLogContext<'a> {
    /// Name of the service.
    pub service: &'a str,
    /// Number of the worker.
    pub worker: usize,
    /// Address of the backend.
    pub address: &'a Endpoint,
    /// Lines that were left out before.
    pub left_out: u64,
}

/// Warns of a backend.
macro_rules! warn_of {
    ($context:expr, $($rest:tt)*) => {{
        let $crate::worker::health::BackendLogContext { service, worker, address, left_out } = $context;
        tracing::warn!(service, worker, %address, left_out, $($rest)*)
    }};
}
pub(super) use warn_of;

impl<D: Driver> Worker<D> {
    /// A request that a backend had was not answered, and it is to blame. `is_picked`: a pick without a key had chosen
    /// the backend.
    pub(super) fn note_failure(&mut self, at: usize, is_picked: bool) {
        let now_ns = self.io.now_ns();
        let limits = &self.ctx.setup().limits.health;
        let backend = self.upstream.backend_mut(at);
        if !backend.is_listed() || backend.health().is_ejected() {
            return;
        }
        if let Some(from) = backend.health_mut().note_failure(now_ns, is_picked, limits) {
            self.eject(at, from, "backend is ejected: too many requests have failed");
        }
    }

    /// The request at the front of a connection has run out of time. If its backend has sent nothing at all meanwhile,
    /// that is more than a slow request.
    pub(super) fn note_silence(&mut self, backend_conn: u32) {
        let conn = self.upstream.conn(backend_conn);
        let at = conn.backend() as usize;
        let Some(entry) = conn.requests().front().map(|request| self.inflight.get(request)) else { return };
        if entry.is_picked() && self.upstream.backend(at).health().received_ns() < entry.sent_ns() {
            self.backend_is_silent(at);
        }
    }

    /// A backend sends nothing, though requests of picks without a key wait for it. It is ejected at once, unless the
    /// settings say after how many failures, and what may be repeated of these requests goes elsewhere.
    pub(super) fn backend_is_silent(&mut self, at: usize) {
        let is_default = self.ctx.setup().limits.health.outlier_consecutive_failures.is_none();
        let backend = self.upstream.backend_mut(at);
        if is_default && backend.is_listed() && !backend.health().is_ejected() {
            backend.health_mut().put_on_trial();
            self.eject(at, EjectedFrom::Picks, "backend is ejected: it answers nothing");
        }
        for backend_conn in self.upstream.backend(at).conns() {
            let conn = self.upstream.conn(backend_conn);
            let front = conn.requests().front().filter(|_| conn.is_connected() && !conn.is_queued());
            if front.is_some_and(|request| self.inflight.get(request).is_watched())
                && self.move_request(backend_conn, Standing::Healthy)
            {
                self.fail_backend_conn(backend_conn, FailureReason::Timeout, None);
                self.note_failure(at, true);
            }
        }
    }

    /// Ejects a backend, unless too many of its channel are.
    fn eject(&mut self, at: usize, from: EjectedFrom, why: &'static str) {
        let now_ns = self.io.now_ns();
        let limits = &self.ctx.setup().limits.health;
        let channel = self.upstream.backend(at).channel();
        let (ejected, all) = self.upstream.count_listed(channel, |health| health.is_ejected());
        if (ejected + 1) * 100 > all * limits.outlier_max_ejected_percent as usize {
            return;
        }
        let backend = self.upstream.backend_mut(at);
        let until_ns = backend.health_mut().eject(now_ns, from, limits);
        let for_ms = (until_ns - now_ns) / 1_000_000;
        if self.note_trouble(at, Trouble::Ejected, true) {
            let (service, address) = (self.ctx.service(), self.upstream.backend(at).endpoint());
            tracing::warn!(service, %address, for_ms, "{why}");
        }
        self.observe.backend(at).ejections.add(1);
        self.note_due(until_ns);
        self.show_health(at);
    }

    /// A backend is up after it was not.
    pub(super) fn is_back(&mut self, at: usize) {
        let now_ns = self.io.now_ns();
        self.upstream.backend_mut(at).health_mut().note_back(now_ns);
    }

    /// Returns the time at which an ejection ends, or a health check begins or must be over; `None`: neither is due.
    pub(super) fn health_due_ns(&self) -> Option<u64> {
        let has_checks = !self.ctx.setup().limits.health.health_check_interval.is_zero();
        let listed = self.upstream.backends().iter().filter(|backend| backend.is_listed());
        listed.filter_map(|backend| backend.health().due_ns(has_checks)).min()
    }

    /// Ends ejections whose time is over, and begins and ends health checks.
    pub(super) fn run_health(&mut self, now_ns: u64) {
        let has_checks = !self.ctx.setup().limits.health.health_check_interval.is_zero();
        for at in 0..self.upstream.backends().len() {
            let backend = self.upstream.backend_mut(at);
            if !backend.is_listed() {
                continue;
            }
            if backend.health_mut().end_ejection(now_ns) {
                self.ejection_over(at);
                self.show_health(at);
                self.tasks.free_capacity();
            }
            let health = self.upstream.backend(at).health();
            if has_checks && health.is_check_due(now_ns) {
                if health.check_conn().is_some() {
                    self.check_over(at, Err(WhyDown::NoReply));
                } else {
                    self.begin_check(at);
                }
            }
        }
    }

    /// A backend is no longer ejected for its failed requests, or was not.
    fn ejection_over(&mut self, at: usize) {
        if self.note_trouble(at, Trouble::Ejected, false) {
            let (service, address) = (self.ctx.service(), self.upstream.backend(at).endpoint());
            tracing::info!(service, %address, "backend is no longer ejected");
        }
    }

    /// Notes what is wrong with a backend, or no longer. Returns whether that is news for all workers.
    pub(super) fn note_trouble(&mut self, at: usize, trouble: Trouble, on: bool) -> bool {
        let was_on = self.upstream.backend_mut(at).set_trouble(trouble, on);
        was_on != on && self.ctx.setup().backend_log.note(at, trouble, on)
    }

    fn begin_check(&mut self, at: usize) {
        let conn = match self.io.driver_mut().connect(self.upstream.backend(at).endpoint()) {
            Ok(conn) => conn,
            Err(error) => {
                let fault = ConnFault::System(error.raw_os_error().unwrap_or_default());
                return self.check_over(at, Err(WhyDown::Fault(fault)));
            }
        };
        self.io.set_role(conn, Role::Check(at as u32));
        let timeout = self.ctx.setup().limits.health.health_check_timeout;
        let due_ns = self.io.now_ns() + timeout.as_nanos() as u64;
        self.upstream.backend_mut(at).health_mut().begin_check(conn, due_ns);
        self.note_due(due_ns);
    }

    /// The connection of a check is up.
    pub(super) fn check_connected(&mut self, at: usize, conn: Handle) {
        let limits = &self.ctx.setup().limits.health;
        if limits.health_check_send.is_empty() && limits.health_check_expect.is_empty() {
            self.check_over(at, Ok(()));
            return;
        }
        let buf =
            if limits.health_check_send.is_empty() { None } else { self.io.pool().alloc(BufClass::Small) };
        if let Some(buf) = buf {
            let len = buf.append(&limits.health_check_send);
            self.io.driver_mut().send(conn, buf.slice(0..len));
        }
        self.io.driver_mut().receive(conn, true);
    }

    /// A part of the answer to a check has come.
    pub(super) fn check_data(&mut self, at: usize, data: &Slice) {
        let expected = &self.ctx.setup().limits.health.health_check_expect;
        let health = self.upstream.backend_mut(at).health_mut();
        if let Some(is_right) = health.compare_answer(expected, data.bytes()) {
            self.check_over(at, if is_right { Ok(()) } else { Err(WhyDown::UnexpectedReply) });
        }
    }

    /// A check has ended, one way or the other.
    pub(super) fn check_over(&mut self, at: usize, outcome: Result<(), WhyDown>) {
        self.drop_check(at);
        let is_good = outcome.is_ok();
        let limits = &self.ctx.setup().limits.health;
        let due_ns = self.io.now_ns() + limits.health_check_interval.as_nanos() as u64;
        if !is_good {
            self.observe.backend(at).health_check_failures.add(1);
        }
        let backend = self.upstream.backend_mut(at);
        if backend.health_mut().end_check(is_good, due_ns, limits) {
            let channel = backend.channel();
            let is_news = self.note_trouble(at, Trouble::FailsChecks, !is_good);
            let (service, address) = (self.ctx.service(), self.upstream.backend(at).endpoint());
            match outcome {
                Ok(()) if is_news => {
                    tracing::info!(service, %address, "backend passes its health checks again")
                }
                Err(why) if is_news => {
                    tracing::warn!(service, %address, %why, "backend fails its health checks")
                }
                Ok(()) | Err(_) => {}
            }
            if is_good {
                self.is_back(at);
                self.ejection_over(at);
            }
            self.weigh_checks(channel);
            self.tasks.free_capacity();
        }
        self.note_due(due_ns);
    }

    /// Ends the connection of a check, if one runs.
    pub(super) fn drop_check(&mut self, at: usize) {
        if let Some(conn) = self.upstream.backend_mut(at).health_mut().take_check_conn() {
            self.io.driver_mut().abort(conn);
        }
    }

    /// Whether checks count in a channel: not when more fail than may be ejected.
    pub(super) fn weigh_checks(&mut self, channel: usize) {
        let (failing, all) = self.upstream.count_listed(channel, |health| health.fails_checks());
        let is_needed =
            failing * 100 > all * self.ctx.setup().limits.health.outlier_max_ejected_percent as usize;
        for at in 0..self.upstream.backends().len() {
            if self.upstream.backend(at).channel() == channel {
                self.upstream.backend_mut(at).health_mut().set_needed(is_needed);
                self.show_health(at);
            }
        }
    }

    pub(super) fn show_health(&mut self, at: usize) {
        let (counters, backend) = (&self.observe.backend(at), self.upstream.backend(at));
        counters.unhealthy.clear();
        counters.unhealthy.add(u64::from(backend.health().is_out()));
        counters.health.set(backend.health_state());
    }

    /// Takes over the health of backends from before a reload; it holds until something else is found out.
    pub(super) fn take_over_outliers(&mut self) {
        let shared = Arc::clone(self.ctx.shared());
        let now_ns = self.io.now_ns();
        for known in shared.health_problems(self.ctx.index()) {
            let channels = &self.ctx.setup().program.channels;
            let is_it = |backend: &Backend| {
                backend.is_listed()
                    && *backend.endpoint() == known.endpoint
                    && channels[backend.channel()].name == known.channel
            };
            let Some(at) = self.upstream.backends().iter().position(is_it) else { continue };
            let limits = &self.ctx.setup().limits.health;
            let backend = self.upstream.backend_mut(at);
            backend.set_failures(u32::from(known.health_problem.is_down));
            let until_ns = backend.health_mut().inherit(known.health_problem, limits, now_ns);
            let (channel, fails_checks) = (backend.channel(), backend.health().fails_checks());
            // The generation before has logged it.
            self.note_trouble(at, Trouble::Down, known.health_problem.is_down);
            self.note_trouble(at, Trouble::Ejected, until_ns.is_some());
            self.note_trouble(at, Trouble::FailsChecks, fails_checks);
            if let Some(until_ns) = until_ns {
                self.note_due(until_ns);
            }
            self.weigh_checks(channel);
        }
    }

    /// Whether a backend has as many requests in flight as it may.
    pub(super) fn is_full(&self, backend: u32) -> bool {
        let most = self.ctx.setup().max_requests_per_backend;
        most > 0 && self.upstream.load(backend as usize) >= i64::from(most)
    }

    /// As [`Self::is_full`]; if so, that is counted.
    pub(super) fn sheds(&self, backend: u32) -> bool {
        let sheds = self.is_full(backend);
        if sheds {
            self.observe.backend(backend as usize).shed.add(1);
        }
        sheds
    }

    /// Whether as many clients wait for a connection to a backend as may; if so, that is counted.
    pub(super) fn is_crowded(&self, backend: Option<u32>) -> bool {
        let most = self.ctx.setup().max_pending_per_backend;
        let Some(at) = backend.map(|backend| backend as usize).filter(|_| most > 0) else { return false };
        let is_crowded = self.upstream.backend(at).pending() >= most && self.inflight.can_answer();
        if is_crowded {
            self.observe.backend(at).shed.add(1);
        }
        is_crowded
    }

    /// Logs something bad of the backend of a connection, unless much has been logged of it; `line` gets the backend
    /// and the count of lines left out.
    pub(super) fn log_backend(&mut self, backend_conn: u32, line: impl FnOnce(BackendLogContext<'_>)) {
        let now_ns = self.io.now_ns();
        let at = self.upstream.conn(backend_conn).backend() as usize;
        let backend = self.upstream.backend_mut(at);
        if let Some(left_out) = backend.health_mut().admit_log_line(now_ns) {
            let (service, worker, address) = (self.ctx.service(), self.ctx.index(), backend.endpoint());
            line(BackendLogContext { service, worker, address, left_out });
        }
    }
}
