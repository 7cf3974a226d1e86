//! Back-pressure from clients: a backend connection whose client does not read what it is sent is not read either.
//! Promises: a client has a bounded number of unread bytes; one that stalls a connection for long is dropped; the time
//! of a stall does not count against the backend.

use std::time::Duration;

use flick_net::Driver;

use super::Worker;
use super::deliver::large_are_plentiful;
use crate::limits::{
    BACKEND_CONN_BACKLOG_BYTES_MAX, SESSION_BACKLOG_BYTES_MAX, SESSION_ROOMY_BYTES_MAX,
    SESSION_SHARED_BYTES_MAX, STALL_TIME_MAX, TUNNEL_IDLE_MS,
};
use crate::slab::Key;
use crate::upstream::conn::{BackendConnState, Recipient};

impl<D: Driver> Worker<D> {
    /// The session that would be sent more than it may leave unread, if it were sent more now.
    pub(super) fn held_up_by(&self, backend_conn: u32, to: Recipient) -> Option<Key> {
        let key = self.client_of(to)?;
        let session = self.downstream.client(key)?;
        let unread = self.io.driver().backlog_bytes(session.handle()) as u64;
        // A dedicated connection may be held up: the others have their own.
        if self.upstream.conn(backend_conn).is_dedicated() {
            let bytes = unread + session.stream().held_bytes();
            return (bytes > SESSION_BACKLOG_BYTES_MAX as u64).then_some(key);
        }
        // A reply that is held behind an earlier one stalls no connection: `relieve_buffers`.
        let plenty = large_are_plentiful(self.io.pool());
        let most = if plenty { SESSION_ROOMY_BYTES_MAX } else { SESSION_SHARED_BYTES_MAX };
        (unread > most as u64).then_some(key)
    }

    /// Whether a client takes more from a backend connection of its own; if it does not read, the connection stalls.
    pub(super) fn client_takes(&mut self, backend_conn: u32, key: Key) -> bool {
        let Some(session) = self.downstream.client(key) else { return false };
        let sender = session.stream().relay_sender();
        if !session.takes_requests() || sender.is_some_and(|sender| sender != backend_conn) {
            return false;
        }
        if let Some(client) = self.held_up_by(backend_conn, Recipient::Client(key)) {
            self.stall(backend_conn, client);
            return false;
        }
        self.upstream.conn_mut(backend_conn).stall_mut().note_delivered();
        true
    }

    /// Whether another leg of the same relay is in the middle of a long message, which its client gets first.
    pub(super) fn awaits_another_leg(&self, backend_conn: u32) -> bool {
        let client = self.upstream.conn(backend_conn).relay_client();
        let stream = client.and_then(|key| self.downstream.stream(key));
        stream.and_then(|stream| stream.relay_sender()).is_some_and(|sender| sender != backend_conn)
    }

    /// Pauses a connection because a client does not read what it gets from it.
    pub(super) fn stall(&mut self, backend_conn: u32, client: Key) {
        let timeouts = &self.ctx.setup().timeouts;
        // A dedicated connection stalls no client but its own.
        let conn = self.upstream.conn(backend_conn);
        let timeout = match conn.state() {
            BackendConnState::Tunnel { .. } => Duration::from_millis(TUNNEL_IDLE_MS),
            BackendConnState::RelayLeg(_) => timeouts.idle(true).unwrap_or(Duration::MAX).min(STALL_TIME_MAX),
            _ if conn.is_dedicated() => timeouts.client_request,
            _ => timeouts.client_write,
        };
        let now_ns = self.io.now_ns();
        let left_ns = self.over_time_ns(backend_conn).map_or(u64::MAX, |at_ns| at_ns.saturating_sub(now_ns));
        let timeout_ns = left_ns.min(timeout.as_nanos() as u64);
        let until_ns = self.upstream.stall(backend_conn, client, now_ns, timeout_ns);
        self.note_due(until_ns);
        // Who waits for the connection may get it sooner.
        if self.upstream.backend_of(backend_conn).pending() > 0 {
            self.note_due(now_ns + self.ctx.setup().timeouts.client_write.as_nanos() as u64);
        }
    }

    /// The client of an exchange that has had all the time it may take, if it has not read what it was sent: then it
    /// was slow, and not its backend.
    pub(super) fn over_time_by(&self, backend_conn: u32) -> Option<Key> {
        let front = self.upstream.conn(backend_conn).requests().front()?;
        let key = self.client_of(Recipient::Request(front)).filter(|_| self.is_over_time(backend_conn))?;
        let session = self.downstream.client(key)?;
        (self.io.driver().backlog_bytes(session.handle()) > 0).then_some(key)
    }

    /// The client of an exchange that has had all the time it may take, if it is still sending the body, and the
    /// backend has taken what there was of it: then it was slow, and not its backend.
    pub(super) fn slow_uploader(&self, backend_conn: u32) -> Option<Key> {
        let conn = self.upstream.conn(backend_conn);
        let waits = conn.is_uploading() && !self.is_clogged(backend_conn, BACKEND_CONN_BACKLOG_BYTES_MAX);
        let front = conn.requests().front().filter(|_| waits && self.is_over_time(backend_conn))?;
        self.client_of(Recipient::Request(front))
    }

    /// The timeout of a client that stalls a connection has expired: drops the client.
    pub(super) fn drop_slow_client(&mut self, backend_conn: u32, client: Key) {
        self.observe.counters().slow_clients_dropped.add(1);
        let now_ns = self.io.now_ns();
        self.upstream.conn_mut(backend_conn).stall_mut().note_dropped(now_ns);
        self.end_session(client, true);
        self.enqueue_backend_conn(backend_conn);
    }

    /// Ends a stall, and takes its time out of the connection's clock: its backend was not slow, a client was.
    #[inline]
    pub(super) fn resume_backend_conn(&mut self, backend_conn: u32) {
        if self.upstream.conn(backend_conn).is_held() {
            self.upstream.resume(backend_conn, self.io.now_ns());
        }
    }
}
