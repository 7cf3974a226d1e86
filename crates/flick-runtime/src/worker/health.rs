//! How backends are found to be bad, and good again: by what becomes of requests, and by checks.
//! Promises: at most `outlier_max_ejected_percent` of a channel's backends are out for what became of requests; when more than that
//! fail their checks, checks do not count; a check has a connection of its own and ends within its time.
//! Refuses: knowing what a reply means: a backend that answers is good, whatever it answers.

use std::sync::Arc;

use flick_buffers::{BufClass, Slice};
use flick_net::{Driver, Endpoint, Handle};

use super::Worker;
use crate::io::Role;
use crate::observe::outlier::HealthState;
use crate::upstream::backend::BackendLife;

/// What a line about a backend says beside what is wrong.
pub(super) struct BackendLogContext<'a> {
    /// Whose backend it is.
    pub service: &'a str,
    /// Who has seen it.
    pub worker: usize,
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
    /// A request that a backend had was not answered, and it is to blame.
    pub(super) fn note_failure(&mut self, at: usize) {
        let limits = &self.ctx.setup().limits.health;
        let backend = &mut self.upstream.backends[at];
        if backend.life != BackendLife::SessionInfo || backend.health.is_ejected {
            return;
        }
        if !backend.health.note_failure(self.io.now_ns(), limits) {
            return;
        }
        let channel = backend.channel;
        let listed = |other: &&crate::upstream::backend::Backend| {
            other.channel == channel && other.life == BackendLife::SessionInfo
        };
        let all = self.upstream.backends.iter().filter(listed).count();
        let out =
            self.upstream.backends.iter().filter(listed).filter(|other| other.health.is_ejected).count();
        if (out + 1) * 100 > all * limits.outlier_max_ejected_percent as usize {
            return;
        }
        let now_ns = self.io.now_ns();
        let backend = &mut self.upstream.backends[at];
        let until_ns = backend.health.eject(now_ns, limits);
        let for_ms = (until_ns - now_ns) / 1_000_000;
        let (service, worker) = (self.ctx.service(), self.ctx.index());
        tracing::warn!(service, worker, address = %backend.endpoint, for_ms, "backend gets no requests: too many have failed");
        self.observe.backend(at).ejections.add(1);
        self.note_due(until_ns);
        self.show_health(at);
    }

    /// It is there again after it was not.
    pub(super) fn is_back(&mut self, at: usize) {
        self.upstream.backends[at].health.back_ns = Some(self.io.now_ns());
    }

    /// When health is to be looked at next.
    pub(super) fn health_due_ns(&self) -> Option<u64> {
        let checks = !self.ctx.setup().limits.health.health_check_interval.is_zero();
        let listed = self.upstream.backends.iter().filter(|backend| backend.life == BackendLife::SessionInfo);
        let each = listed.flat_map(|backend| {
            let health = &backend.health;
            let check = Some(health.check.due_ns).filter(|_| checks);
            check.into_iter().chain(Some(health.until_ns).filter(|_| health.is_ejected))
        });
        each.min()
    }

    /// Lets in again whose time is over, and begins and ends checks.
    pub(super) fn run_health(&mut self, now_ns: u64) {
        let every_ns = self.ctx.setup().limits.health.health_check_interval.as_nanos() as u64;
        for at in 0..self.upstream.backends.len() {
            if self.upstream.backends[at].life != BackendLife::SessionInfo {
                continue;
            }
            let health = &mut self.upstream.backends[at].health;
            if health.is_ejected && health.until_ns <= now_ns {
                health.is_ejected = false;
                self.is_back(at);
                self.show_health(at);
                self.tasks.free_capacity();
            }
            let check = &self.upstream.backends[at].health.check;
            if every_ns > 0 && check.due_ns <= now_ns {
                if check.conn.is_some() {
                    self.check_over(at, false);
                } else {
                    self.begin_check(at);
                }
            }
        }
    }

    fn begin_check(&mut self, at: usize) {
        let Ok(conn) = self.io.driver_mut().connect(&self.upstream.backends[at].endpoint) else {
            self.check_over(at, false);
            return;
        };
        self.io.set_role(conn, Role::Check(at as u32));
        let due_ns = self.io.now_ns() + self.ctx.setup().limits.health.health_check_timeout.as_nanos() as u64;
        let check = &mut self.upstream.backends[at].health.check;
        (check.conn, check.due_ns, check.len) = (Some(conn), due_ns, 0);
        self.note_due(due_ns);
    }

    /// The connection of a check is up.
    pub(super) fn check_connected(&mut self, at: usize, conn: Handle) {
        let limits = &self.ctx.setup().limits.health;
        if limits.health_check_send.is_empty() && limits.health_check_expect.is_empty() {
            self.check_over(at, true);
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

    /// Something of the answer to a check has come.
    pub(super) fn check_data(&mut self, at: usize, data: &Slice) {
        let expected = &self.ctx.setup().limits.health.health_check_expect;
        let check = &mut self.upstream.backends[at].health.check;
        let want = &expected[check.len.min(expected.len())..];
        let compared = want.len().min(data.bytes().len());
        let is_right = want[..compared] == data.bytes()[..compared];
        check.len += compared;
        if !is_right || compared == want.len() {
            self.check_over(at, is_right);
        }
    }

    /// A check has ended, one way or the other.
    pub(super) fn check_over(&mut self, at: usize, is_good: bool) {
        if let Some(conn) = self.upstream.backends[at].health.check.conn.take() {
            self.io.driver_mut().abort(conn);
        }
        let limits = &self.ctx.setup().limits.health;
        let due_ns = self.io.now_ns() + limits.health_check_interval.as_nanos() as u64;
        let health = &mut self.upstream.backends[at].health;
        health.check.due_ns = due_ns;
        if !is_good {
            self.observe.backend(at).health_check_failures.add(1);
        }
        let is_news = is_good == health.fails_checks;
        health.check.against = if is_news { health.check.against + 1 } else { 0 };
        let needed = if is_good { limits.health_check_rise } else { limits.health_check_fall };
        if is_news && health.check.against >= needed.max(1) {
            (health.fails_checks, health.check.against) = (!is_good, 0);
            let (service, worker, address) =
                (self.ctx.service(), self.ctx.index(), &self.upstream.backends[at].endpoint);
            if is_good {
                tracing::info!(service, worker, %address, "backend passes its checks again");
                self.is_back(at);
            } else {
                tracing::warn!(service, worker, %address, "backend fails its checks");
            }
            self.weigh_checks(self.upstream.backends[at].channel);
            self.tasks.free_capacity();
        }
        self.note_due(due_ns);
    }

    /// Ends a check of a backend that has left.
    pub(super) fn drop_check(&mut self, at: usize) {
        if let Some(conn) = self.upstream.backends[at].health.check.conn.take() {
            self.io.driver_mut().abort(conn);
        }
    }

    /// Whether checks count in a channel: not when more fail than may be out.
    pub(super) fn weigh_checks(&mut self, channel: usize) {
        let listed = |other: &&crate::upstream::backend::Backend| {
            other.channel == channel && other.life == BackendLife::SessionInfo
        };
        let all = self.upstream.backends.iter().filter(listed).count();
        let failing =
            self.upstream.backends.iter().filter(listed).filter(|other| other.health.fails_checks).count();
        let is_needed =
            failing * 100 > all * self.ctx.setup().limits.health.outlier_max_ejected_percent as usize;
        for at in 0..self.upstream.backends.len() {
            if self.upstream.backends[at].channel == channel {
                self.upstream.backends[at].health.is_needed = is_needed;
                self.show_health(at);
            }
        }
    }

    pub(super) fn show_health(&mut self, at: usize) {
        let counters = self.observe.backend(at);
        counters.unhealthy.clear();
        counters.unhealthy.add(u64::from(self.upstream.backends[at].health.is_out()));
        counters.health.set(self.upstream.backends[at].health_state());
    }

    /// What was known of backends before a reload holds until something else is found out.
    pub(super) fn take_over_outliers(&mut self) {
        let shared = Arc::clone(self.ctx.shared());
        let now_ns = self.io.now_ns();
        for health_problems in shared.health_problems(self.ctx.index()) {
            let channels = &self.ctx.setup().program.channels;
            let is_it = |backend: &crate::upstream::backend::Backend| {
                backend.life == BackendLife::SessionInfo
                    && backend.endpoint == health_problems.endpoint
                    && channels[backend.channel].name == health_problems.channel
            };
            let Some(at) = self.upstream.backends.iter().position(is_it) else { continue };
            let HealthState { until_ns, back_ns, ejections, is_ejected, fails_checks, is_down } =
                health_problems.health_problem;
            let health = &mut self.upstream.backends[at].health;
            let checks = !self.ctx.setup().limits.health.health_check_interval.is_zero();
            health.fails_checks = fails_checks && checks;
            (health.until_ns, health.ejections) = (until_ns, ejections);
            health.back_ns = (back_ns > 0).then_some(back_ns);
            if is_ejected && until_ns > now_ns {
                health.is_ejected = true;
                self.note_due(until_ns);
            }
            self.upstream.backends[at].failures = u32::from(is_down);
            self.observe.backend(at).health.set(self.upstream.backends[at].health_state());
            self.weigh_checks(self.upstream.backends[at].channel);
        }
    }

    /// Whether a backend has as much under way as it may; then counted.
    pub(super) fn sheds(&self, backend: u32) -> bool {
        let most = self.ctx.setup().max_requests_per_backend;
        let at = backend as usize;
        let sheds = most > 0 && self.upstream.backends[at].load(&self.upstream.conns) >= i64::from(most);
        if sheds {
            self.observe.backend(at).shed.add(1);
        }
        sheds
    }

    /// Whether so many already wait for a connection to a backend that nobody else may; then counted.
    pub(super) fn is_crowded(&self, backend: Option<u32>) -> bool {
        let most = self.ctx.setup().max_pending_per_backend;
        let Some(at) = backend.map(|backend| backend as usize).filter(|_| most > 0) else { return false };
        let is_crowded = self.upstream.backends[at].pending >= most && self.inflight.table.can_answer();
        if is_crowded {
            self.observe.backend(at).shed.add(1);
        }
        is_crowded
    }

    /// Says something bad of the backend of a connection, unless much is being said of it; `line` gets whose it
    /// is and how often it was left out.
    pub(super) fn log_backend(&mut self, backend_conn: u32, line: impl FnOnce(BackendLogContext<'_>)) {
        let now_ns = self.io.now_ns();
        let backend = &mut self.upstream.backends[self.upstream.conns[backend_conn].backend as usize];
        if let Some(left_out) = backend.health.log_throttle.admit(now_ns) {
            let (service, worker, address) = (self.ctx.service(), self.ctx.index(), &backend.endpoint);
            line(BackendLogContext { service, worker, address, left_out });
        }
    }
}
