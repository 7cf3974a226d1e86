//! Ends the clients of a worker that drains: each behind a reply.
//! Promises: a client that asks one request after another loses none, nor does one that had connected before the drain
//! and was not accepted yet. Where the grammar has `%keep_last` (HTTP), every reply says from the start of a drain that
//! it is the last; elsewhere sessions end in the second half of the deadline, one after another, so that their clients
//! do not all come back at once.
//! Not here: clients that migrate to a successor (`migrate.rs`), which need not end.

use flick_abi::FailureReason;
use flick_net::Driver;

use super::Worker;
use crate::downstream::client::ClientConn;
use crate::inflight::{InflightRequest, ReplyTarget};
use crate::limits::{DRAIN_QUIET_MS, LINGER_MS};
use crate::listener::Drain;
use crate::slab::Key;

/// Nanoseconds of a millisecond.
const MS: u64 = 1_000_000;
/// Steps in which the sessions of a worker end, in the second half of a drain.
const ENDING_STEPS: u64 = 1 << 10;
/// Multiplied with the number of a session, its upper bits are spread evenly (the golden ratio).
const SPREAD: u64 = 0x9e37_79b9_7f4a_7c15;

/// A worker that ends with clients, cut off at the deadline or by a panic, gives back their session slots: the service
/// that replaces this one has the same ones. No caller waits for its session list.
impl<D: Driver> Drop for Worker<D> {
    fn drop(&mut self) {
        for index in 0..self.downstream.slots_used() {
            let Some(key) = self.downstream.key_at(index) else { continue };
            let Some(session) = self.downstream.remove(key) else { continue };
            self.observe.counters().connections_open.sub(1);
            self.release_session_slot(session.handle());
        }
        self.lose_handed();
        if let Some(question) = self.ctx.shared().question(self.ctx.index()) {
            question.close();
        }
    }
}

impl<D: Driver> Worker<D> {
    /// Drains: the worker accepts no client that connects from now on; each session ends behind a reply or when it has
    /// been idle for a moment, and at the deadline after the replies to its requests. Clients that wait for a session
    /// slot have one when another client has left, until the deadline.
    pub(super) fn run_drain(&mut self, now_ns: u64) {
        let Some(deadline) = self.ctx.shared().drain_asked() else { return };
        let is_replaced = self.ctx.shared().is_replaced();
        let drain = self.listeners.drain();
        let since_ns = match (drain, is_replaced) {
            (Drain::Migrating { since_ns }, true) | (Drain::Ending { since_ns }, _) => since_ns,
            (Drain::Off, true) => {
                self.begin_migration();
                self.listeners.set_drain(Drain::Migrating { since_ns: now_ns });
                now_ns
            }
            (Drain::Off | Drain::Migrating { .. }, false) => {
                if drain == Drain::Off {
                    self.stop_accepting()
                } else {
                    self.end_migration()
                }
                // The deadline counts from here: that of a migration was another one.
                self.listeners.set_drain(Drain::Ending { since_ns: now_ns });
                now_ns
            }
        };
        let late = now_ns.saturating_sub(since_ns) >= deadline.as_nanos() as u64;
        if is_replaced {
            self.migrate_clients();
        }
        if late || (!is_replaced && self.merging.is_some()) {
            self.reject_waiting();
        }
        for index in 0..self.downstream.slots_used() {
            let Some(key) = self.downstream.key_at(index) else { continue };
            let Some(session) = self.downstream.client(key) else { continue };
            let quiet = session.stream().requests().is_empty()
                && session.inbox().is_at_boundary()
                && !(is_replaced && self.io.driver().can_detach(session.handle()))
                && session.idle_ns(now_ns) >= DRAIN_QUIET_MS * MS;
            if session.stream().tunnel().is_some() || (self.ctx.setup().is_relay && session.takes_requests())
            {
                if quiet || late {
                    self.end_tunnel(key);
                }
                continue;
            }
            if session.takes_requests() && (quiet || late) {
                self.fail_begun(key, FailureReason::Unavailable);
                self.stop_reading(key);
                self.abandon_upload(key, FailureReason::Unavailable);
                self.close_if_finished(key);
            }
        }
    }

    /// Whether a draining worker has nothing left to do.
    pub(super) fn drained(&mut self) -> bool {
        let (Some(since_ns), Some(deadline)) =
            (self.listeners.drain().since_ns(), self.ctx.shared().drain_asked())
        else {
            return false;
        };
        let overdue_ns = deadline.as_nanos() as u64 + LINGER_MS * MS;
        // Handlers of clients that have just gone still run.
        // What a relay's client sent last may still be on its way to the backend when both are gone.
        let is_done = self.downstream.len() == 0
            && self.listeners.waiting_len() == 0
            && !self.io.driver().is_draining_listeners()
            && self.tasks.is_empty()
            && self.merge_is_finished();
        let is_over = (is_done && !self.io.driver().is_flushing() && !self.has_requests_to_send())
            || self.io.now_ns().saturating_sub(since_ns) >= overdue_ns;
        // Clients that were queued for this worker at the last moment are served, or handed on, first.
        is_over && self.drained_handoff_queue() && (self.downstream.len() == 0 || !is_done)
    }

    /// Whether a backend connection has requests, of clients that are gone, that the kernel or a ring has not taken.
    /// Copies for mirrors do not count.
    fn has_requests_to_send(&self) -> bool {
        let mut conns = (0..self.upstream.conns_count() as u32).map(|at| self.upstream.conn(at));
        conns.any(|conn| {
            let has_output = conn.handle().is_some_and(|handle| self.io.driver().backlog_bytes(handle) > 0);
            has_output && !self.gets_only_copies(conn.backend())
        })
    }

    /// Number that a request has kept for its reply, with the notice that its session ends (`%keep_last`), if it does.
    pub(super) fn kept_for_reply(&self, entry: &InflightRequest, keep_last: u64) -> u64 {
        if keep_last == 0 {
            return entry.kept();
        }
        let session = match entry.reply_target() {
            // A rule may pass the reply on to its client.
            ReplyTarget::Ask { suspended, .. } => {
                self.rules.suspended().get(suspended).and_then(|suspended| suspended.session)
            }
            _ => entry.session(),
        };
        entry.kept() + self.notice(session, keep_last)
    }

    /// `keep_last`, if the reply that is being read or built for a session is its last.
    pub(super) fn notice(&self, session: Option<Key>, keep_last: u64) -> u64 {
        if keep_last == 0 {
            return 0;
        }
        let client = session.and_then(|key| self.downstream.client(key));
        let ends = client.is_some_and(|client| {
            client.stream().ends_after_reply() || self.listeners.is_draining() && self.is_leaving(client)
        });
        if ends { keep_last } else { 0 }
    }

    /// Whether the replies to a client of a draining worker say that they are its last. Requests that it has sent
    /// already are answered before, in the first half of the deadline.
    fn is_leaving(&self, client: &ClientConn) -> bool {
        // A client that can migrate later need not leave; one through shared memory never can.
        let is_replaced = self.ctx.shared().is_replaced() && self.io.driver().can_detach(client.handle());
        let stays = is_replaced && self.can_migrate(client);
        !stays && (self.drain_is_half_over(0) || !is_replaced && client.inbox().is_at_boundary())
    }

    /// Whether half of the drain's deadline is over, and `step` of [`ENDING_STEPS`] of the next two fifths.
    fn drain_is_half_over(&self, step: u64) -> bool {
        let (Some(since_ns), Some(deadline)) =
            (self.listeners.drain().since_ns(), self.ctx.shared().drain_asked())
        else {
            return false;
        };
        let deadline_ns = deadline.as_nanos() as u64;
        let at_ns = deadline_ns / 2 + deadline_ns / 5 * 2 / ENDING_STEPS * step;
        self.io.now_ns().saturating_sub(since_ns) >= at_ns
    }

    /// Whether a session of a draining worker ends now, with all its requests answered, although no reply has said so.
    pub(super) fn ends_unannounced(&self, key: Key) -> bool {
        // Replies of exclusive protocols may be the beginning of a tunnel.
        if !self.listeners.is_draining() || self.ctx.setup().protocol().exclusive {
            return false;
        }
        let Some(client) = self.downstream.client(key) else { return false };
        let step = u64::from(key.index).wrapping_mul(SPREAD) >> (u64::BITS - ENDING_STEPS.ilog2());
        client.takes_requests()
            && client.stream().requests().is_empty()
            && client.inbox().is_at_boundary()
            && !client.stream().has_upload()
            && self.drain_is_half_over(step)
            && !(self.ctx.shared().is_replaced() && self.can_migrate(client))
    }
}
