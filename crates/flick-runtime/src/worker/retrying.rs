//! Retries of requests that the grammar lets be repeated (`%retry`), that were sent completely, and that got no byte
//! of a reply.
//! Promises: a stale connection costs no failure; a request goes to another backend only if its rule picked without a
//! key and keeps nothing of the pick, at most [`RETRIES_MAX`](crate::limits::RETRIES_MAX) times, and only within the
//! retry budget; nothing else is sent twice.
//! Refuses: requests of rules that ask (they see the failure, and know better), and a second backend for those that ran
//! out of time.
//!
//! A retry to another backend asks the policy that the rule had asked, with the backend that failed taken for dead.
//! Where a key chose the backend, there is no other that has the key.

use flick_abi::{Event, Policy, Send};
use flick_net::Driver;

use super::Worker;
use super::backend_view::BackendView;
use super::dedicated::FOR_EXCHANGE;
use super::sending::Waiter;
use crate::backend_set::load_balancer::{Backends, Standing};
use crate::config::RetryLimits;
use crate::inflight::{QueueOf, RequestId};
use crate::pieces::PieceQueue;

/// The backends but for one.
struct Others<'a> {
    all: BackendView<'a>,
    but: u32,
}

impl Backends for Others<'_> {
    fn is_alive(&self, channel: u32, element: u64) -> bool {
        self.all.slot_of(channel, element) != Some(self.but as usize) && self.all.is_alive(channel, element)
    }

    fn standing(&self, channel: u32, element: u64) -> Standing {
        match self.all.slot_of(channel, element) == Some(self.but as usize) {
            true => Standing::Down,
            false => self.all.standing(channel, element),
        }
    }

    fn load(&self, channel: u32, element: u64) -> i64 {
        self.all.load(channel, element)
    }

    fn share_per_mille(&self, channel: u32, element: u64) -> u64 {
        self.all.share_per_mille(channel, element)
    }

    fn peer(&self, channel: u32, element: u64) -> [u8; 18] {
        self.all.peer(channel, element)
    }
}

impl<D: Driver> Worker<D> {
    /// Sends the request of a lost connection again on a fresh one to the same backend, which has closed an idle
    /// connection just when it was used.
    //= RFC 9110 section 9.2.2
    //# A proxy MUST NOT automatically retry non-idempotent requests.
    //= RFC 9112 section 9.3.1
    //# Connections can be closed at any time, with or without intention.
    pub(super) fn send_again(&mut self, backend_conn: u32, event: Option<Event>) -> bool {
        let state = self.upstream.conn(backend_conn);
        if !matches!(event, Some(Event::Closed | Event::Broken)) || !state.has_been_idle() {
            return false;
        }
        if !self.upstream.backend_of(backend_conn).is_listed() {
            return false;
        }
        let Some(request) = state.requests().front() else { return false };
        if !self.inflight.get(request).may_resend() || !self.connect(backend_conn, FOR_EXCHANGE) {
            return false;
        }
        self.send_kept(backend_conn, request);
        true
    }

    /// Sends the request of a lost connection to another backend, if it may be; the connection has no request then.
    /// One that ran out of time has this one chance only.
    pub(super) fn send_elsewhere(&mut self, backend_conn: u32, event: Option<Event>) {
        let Some(request) = self.upstream.conn(backend_conn).requests().front() else { return };
        let may_move = match event {
            Some(Event::Closed | Event::Broken | Event::Refused) => true,
            Some(Event::TimedOut) => !self.inflight.get(request).is_retried(),
            Some(Event::Malformed) | None => false,
        };
        // Where nothing else is left, a backend that has failed lately may do; not for one more that says nothing.
        let least = if event == Some(Event::TimedOut) { Standing::Healthy } else { Standing::LastResort };
        if may_move && self.move_request(backend_conn, least) {
            self.note_failure(self.upstream.conn(backend_conn).backend() as usize, true);
        }
    }

    /// Sends the request of a connection to another backend, of that standing at `least`, if it may be sent again and
    /// the retry budget is not used up; the connection has no request then. Returns whether it did.
    pub(super) fn move_request(&mut self, backend_conn: u32, least: Standing) -> bool {
        let Some(request) = self.upstream.conn(backend_conn).requests().front() else { return false };
        let Some((channel, policy)) = self.inflight.get(request).retry_pick() else { return false };
        let failed = self.upstream.conn(backend_conn).backend();
        let Some(target) = self.another((channel, policy), failed, least) else { return false };
        if self.is_over_time(backend_conn) || self.is_full(target) {
            return false;
        }
        let limits = RetryLimits {
            min_per_second: self.ctx.setup().retry_min_per_second,
            ..self.ctx.setup().limits.retries
        };
        if !self.inflight.take_retry(self.io.now_ns(), self.observe.counters().requests.get(), limits) {
            self.observe.counters().retries_denied.add(1);
            return false;
        }
        let Some(fresh) = self.borrow_exclusive(target) else {
            self.inflight.give_retry_back();
            return false;
        };
        let resend = self.inflight.get_mut(request).begin_retry();
        let popped = self
            .inflight
            .pop_backend_conn(self.upstream.conn_mut(backend_conn).requests_mut(), self.io.pieces_mut());
        assert!(popped == Some(request), "the front of a queue is what is taken off it");
        let now_ns = self.io.now_ns();
        self.inflight.get_mut(request).note_retried(resend, fresh, now_ns);
        self.inflight.push(self.upstream.conn_mut(fresh).requests_mut(), request, QueueOf::BackendConn);
        self.observe.backend(target as usize).requests.add(1);
        self.observe.backend(failed as usize).failures.add(1);
        self.log_sent(Waiter::InFlight(request), Some(request), target);
        self.send_kept(fresh, request);
        true
    }

    /// Returns the policy of the pick without a key that chose the backend of a send, if one did.
    pub(super) fn takes_pick(&mut self, send: &Send) -> Option<Policy> {
        let picked = self.rules.host_mut().take_picked()?;
        let is_it = (picked.channel, picked.element) == (send.channel, send.element);
        is_it.then_some(picked.policy)
    }

    /// Returns the channel and the policy of the pick of a request's backend, if another backend will do as well.
    pub(super) fn picked_freely(&self, send: &Send, policy: Policy, waiter: Waiter) -> Option<(u32, Policy)> {
        let numbered = self.ctx.setup().protocol_of(send.channel as usize).correlate.is_some();
        let is_free =
            self.ctx.setup().needs.picks_are_free && !numbered && matches!(waiter, Waiter::Session(_));
        is_free.then_some((send.channel, policy))
    }

    /// Picks a backend other than `but` by the policy of a pick without a key, of that standing at `least`; `None`: no
    /// other can be used.
    fn another(&mut self, (channel, policy): (u32, Policy), but: u32, least: Standing) -> Option<u32> {
        let setup = &**self.ctx.setup();
        let now_ns = self.io.now_ns();
        let all = BackendView { setup, upstream: &self.upstream, now_ns, client: None };
        let others = Others { all, but };
        let element = self.rules.host_mut().pick_again(policy, channel, &others);
        let will_do = others.standing(channel, element) <= least;
        self.upstream.backend_set().slot_of(channel, element).filter(|_| will_do)
    }

    /// Writes what is kept of a request to a connection, and goes on keeping it.
    fn send_kept(&mut self, backend_conn: u32, request: RequestId) {
        let Some(conn) = self.upstream.conn(backend_conn).handle() else { return };
        let mut rest = std::mem::replace(self.inflight.get_mut(request).resend_mut(), PieceQueue::new());
        while let Some(piece) = self.io.pieces_mut().pop(&mut rest) {
            // There is room: one has just been taken.
            self.io.pieces_mut().push(self.inflight.get_mut(request).resend_mut(), piece.clone());
            self.pass_to_backend_conn(backend_conn, conn, piece);
        }
        self.expect_reply(backend_conn, request);
        self.observe.counters().requests_retried.add(1);
    }
}
