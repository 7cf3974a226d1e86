//! Timeouts of backends: for a reply, for the next piece of one, and for all of it.
//! Promises: a late reply is ended by its connection's timer, and its client gets an error response if no byte of the
//! reply was delivered; the time that a client stalls a connection does not count against its backend.

use std::time::Duration;

use flick_net::Driver;

use super::Worker;
use crate::inflight::RequestId;

impl<D: Driver> Worker<D> {
    /// Sets the deadline for the reply to a request that has been sent.
    pub(super) fn expect_reply(&mut self, backend_conn: u32, request: RequestId) {
        let reply = self.response_timeout(backend_conn);
        self.expect(backend_conn, request, Some(reply));
    }

    /// Sets the deadline for the next piece of a reply, after one has arrived. On a dedicated connection, which stalls
    /// no other client, there is more time.
    pub(super) fn expect_piece(&mut self, backend_conn: u32, request: RequestId) {
        let timeout = if self.upstream.conn(backend_conn).is_dedicated() {
            self.ctx.setup().timeouts.stream_idle
        } else {
            self.response_timeout(backend_conn)
        };
        self.expect(backend_conn, request, Some(timeout));
    }

    fn response_timeout(&self, backend_conn: u32) -> Duration {
        let exclusive = self.upstream.backend_of(backend_conn).is_exclusive();
        self.ctx.setup().timeouts.response(exclusive)
    }

    /// A request is being sent, at the pace of its client.
    pub(super) fn expect_nothing_yet(&mut self, backend_conn: u32, request: RequestId) {
        self.expect(backend_conn, request, None);
    }

    /// Sets the deadline of a request on the clock of its connection, which stands while a client stalls it.
    //= RFC 9112 section 9.5
    //# A client, server, or proxy MAY close the transport connection at any time.
    fn expect(&mut self, backend_conn: u32, request: RequestId, timeout: Option<Duration>) {
        let whole = self.ctx.setup().timeouts.total;
        let now_ns = self.io.now_ns();
        let entry = self.inflight.get(request);
        let late_ns = timeout.map(|timeout| now_ns + timeout.as_nanos() as u64);
        let whole_ns = (!whole.is_zero()).then(|| entry.taken_ns() + whole.as_nanos() as u64);
        let due_ns = late_ns.into_iter().chain(whole_ns).min();
        if let Some(due_ns) = due_ns {
            self.note_due(due_ns);
        }
        let lag_ns = self.upstream.conn(backend_conn).stall().clock_lag_ns();
        self.inflight
            .get_mut(request)
            .set_deadline(due_ns.map_or(u64::MAX, |due_ns| due_ns.saturating_sub(lag_ns)));
    }

    /// Whether a request has had all the time that it may take.
    pub(super) fn is_over_time(&self, backend_conn: u32) -> bool {
        self.over_time_ns(backend_conn).is_some_and(|at_ns| self.io.now_ns() >= at_ns)
    }

    /// Time at which the request at the front of a connection has had all the time that it may take.
    pub(super) fn over_time_ns(&self, backend_conn: u32) -> Option<u64> {
        let whole = self.ctx.setup().timeouts.total;
        let front = self.upstream.conn(backend_conn).requests().front().filter(|_| !whole.is_zero())?;
        Some(self.inflight.get(front).taken_ns() + whole.as_nanos() as u64)
    }
}
