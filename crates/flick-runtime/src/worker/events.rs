//! Events: failures of clients and backends, passed to the handlers of the program, and the program's timers.
//! Promises: a handler runs once for each request that failed, with its session's state and a chance to answer it, or
//! once for a connection on which none was in flight; for a client once, when it sends malformed data or ends. An event
//! without a handler does what `docs/internals/events.md` says. An event whose handler cannot be started is counted.

use flick_abi::{Event, FailureReason, Frame};
use flick_net::Driver;

use super::Worker;
use super::deliver::restore_request;
use super::sending::BackendIncident;
use crate::inflight::{ReplyTarget, RequestId};
use crate::rules::suspended::SuspendedRule;
use crate::run_queue::Task;
use crate::slab::Key;

impl<D: Driver> Worker<D> {
    /// Starts a rule that no reply waits for. `None`: the table of suspended rules is full.
    fn suspend_rule(&mut self, suspended: SuspendedRule, frame: &Frame) -> Option<Key> {
        let (state, start) = (suspended.state, suspended.start);
        let Some(key) = self.rules.suspended_mut().insert(suspended, frame) else {
            if let Some(state) = state {
                self.rules.locals_mut().give(state);
            }
            self.observe.counters().events_dropped.add(1);
            return None;
        };
        self.observe.counters().rules_suspended.add(1);
        self.observe.edges().started(start, 1);
        self.tasks.push(Task::SuspendedRule(key));
        Some(key)
    }

    /// Answers a request that gets no reply from its backend: its handler does, or it fails. Returns whether there is a
    /// handler.
    pub(super) fn fail_or_handle(
        &mut self,
        request: RequestId,
        reason: FailureReason,
        incident: Option<BackendIncident>,
    ) -> bool {
        let handled = incident.is_some_and(|incident| self.handle_failed(request, reason, incident));
        if !handled {
            self.fail_request(request, reason);
        }
        handled
    }

    fn handle_failed(
        &mut self,
        request: RequestId,
        reason: FailureReason,
        incident: BackendIncident,
    ) -> bool {
        let backend = self.upstream.backend(incident.backend as usize);
        let Some((rule, start)) = self.ctx.setup().needs.handler(incident.event, backend.channel()) else {
            return false;
        };
        let entry = self.inflight.get(request);
        if entry.has_begun() || entry.session().is_none() {
            return false;
        }
        let suspended = SuspendedRule {
            element: backend.element(),
            session: entry.session(),
            request: Some(request),
            reason: Some(reason),
            ..SuspendedRule::new(rule, start)
        };
        let mut frame = Frame::new();
        restore_request(&mut frame, &self.ctx.setup().protocol().echo, entry.echo());
        let Some(key) = self.suspend_rule(suspended, &frame) else { return false };
        self.inflight.get_mut(request).set_reply_target(ReplyTarget::Answerer(key));
        true
    }

    /// Starts the handler for an incident of a backend connection on which no request was in flight.
    pub(super) fn notify_of_backend(&mut self, incident: BackendIncident) {
        let backend = self.upstream.backend(incident.backend as usize);
        let Some((rule, start)) = self.ctx.setup().needs.handler(incident.event, backend.channel()) else {
            return;
        };
        if self.rules.suspended().is_full() {
            self.observe.counters().events_dropped.add(1);
            return;
        }
        let (element, state) = (backend.element(), Some(self.rules.locals_mut().take()));
        let suspended = SuspendedRule { element, state, ..SuspendedRule::new(rule, start) };
        self.suspend_rule(suspended, &Frame::new());
    }

    /// Starts the handler for a client that sent malformed data. If the handler does not answer, the worker does, where
    /// it can. Returns whether there is a handler.
    pub(super) fn handle_malformed(
        &mut self,
        key: Key,
        frame: &Frame,
        answer: Option<FailureReason>,
    ) -> bool {
        let Some((rule, start)) = self.ctx.setup().needs.handler(Event::Malformed, self.ctx.setup().listened)
        else {
            return false;
        };
        let echo = self.echo_of(frame);
        let Some(request) = self.open_request(Some(key), echo, u64::MAX) else { return false };
        let suspended = SuspendedRule {
            session: Some(key),
            request: Some(request),
            reason: answer,
            ..SuspendedRule::new(rule, start)
        };
        if let Some(session) = self.downstream.client_mut(key) {
            session.stream_mut().set_notified();
        }
        match (self.suspend_rule(suspended, frame), answer) {
            (Some(suspended), _) => {
                self.inflight.get_mut(request).set_reply_target(ReplyTarget::Answerer(suspended));
            }
            (None, Some(reason)) => self.fail_request(request, reason),
            (None, None) => self.finish_request(request),
        }
        true
    }

    /// Starts the handler for a session that has ended, with its state; without a handler the state is freed.
    pub(super) fn notify_of_client(
        &mut self,
        session: &crate::downstream::client::ClientConn,
        in_good_order: bool,
    ) {
        let event = if in_good_order { Event::Closed } else { Event::Broken };
        let handler = self
            .ctx
            .setup()
            .needs
            .handler(event, self.ctx.setup().listened)
            .filter(|_| !session.stream().is_notified());
        match handler {
            Some((rule, start)) => {
                let suspended = SuspendedRule {
                    state: Some(session.stream().state()),
                    ..SuspendedRule::new(rule, start)
                };
                self.suspend_rule(suspended, &Frame::new());
            }
            None => self.rules.locals_mut().give(session.stream().state()),
        }
    }

    /// Starts the timers that are due. One whose last run is not over is skipped.
    pub(super) fn run_every(&mut self, now_ns: u64) {
        for at in 0..self.rules.timer_count() {
            if !self.rules.timer_fires(at, now_ns) {
                continue;
            }
            let Some((rule, start, state)) = self.rules.begin_timer(at) else {
                self.observe.counters().events_dropped.add(1);
                continue;
            };
            let suspended =
                SuspendedRule { state: Some(state), timer: Some(at), ..SuspendedRule::new(rule, start) };
            if self.suspend_rule(suspended, &Frame::new()).is_none() {
                self.rules.end_timer(at);
            }
        }
    }
}
