//! How long the platform waits for a backend: for a reply, for the next piece of one, and for all of it.
//! Promises: what is late is ended by its connection's timer, and told in the protocol's words if nothing of it has been
//! passed on; the time that a client holds up a connection is not its backend's.

use std::time::Duration;

use flick_net::Driver;

use super::Worker;
use crate::inflight::RequestId;

impl<D: Driver> Worker<D> {
    /// A request has been sent: when its reply is late.
    pub(super) fn expect_reply(&mut self, backend_conn: u32, request: RequestId) {
        let reply = self.ctx.setup().timeouts.response;
        self.expect(backend_conn, request, Some(reply));
    }

    /// A piece of a reply has come: when the next one is late. On a connection that is lent, which holds up nobody, there is
    /// more time.
    pub(super) fn expect_piece(&mut self, backend_conn: u32, request: RequestId) {
        let timeouts = &self.ctx.setup().timeouts;
        let timeout = if self.upstream.conns[backend_conn].dedicated {
            timeouts.stream_idle
        } else {
            timeouts.response
        };
        self.expect(backend_conn, request, Some(timeout));
    }

    /// A request is being sent, at the pace of its client.
    pub(super) fn expect_nothing_yet(&mut self, backend_conn: u32, request: RequestId) {
        self.expect(backend_conn, request, None);
    }

    /// Sets the deadline of a request on the clock of its connection, which stands while a client holds it up.
    //= RFC 9112 section 9.5
    //# A client, server, or proxy MAY close the transport connection at any time.
    fn expect(&mut self, backend_conn: u32, request: RequestId, timeout: Option<Duration>) {
        let whole = self.ctx.setup().timeouts.total;
        let now_ns = self.io.now_ns();
        let entry = self.inflight.table.get(request);
        let late_ns = timeout.map(|timeout| now_ns + timeout.as_nanos() as u64);
        let whole_ns = (!whole.is_zero()).then(|| entry.taken_ns + whole.as_nanos() as u64);
        let due_ns = late_ns.into_iter().chain(whole_ns).min();
        if let Some(due_ns) = due_ns {
            self.note_due(due_ns);
        }
        let lag_ns = self.upstream.conns[backend_conn].clock_lag_ns;
        self.inflight.table.get_mut(request).deadline_ns =
            due_ns.map_or(u64::MAX, |due_ns| due_ns.saturating_sub(lag_ns));
    }

    /// Whether a request has had all the time that it may take.
    pub(super) fn is_over_time(&self, backend_conn: u32) -> bool {
        let whole = self.ctx.setup().timeouts.total;
        let front = self.upstream.conns[backend_conn].requests.front();
        let taken_ns = front.map(|request| self.inflight.table.get(request).taken_ns);
        let is_over = |taken_ns| self.io.now_ns() >= taken_ns + whole.as_nanos() as u64;
        !whole.is_zero() && taken_ns.is_some_and(is_over)
    }
}
