//! Timeouts of backends: for a reply, for the next piece of one, and for all of it.
//! Promises: a late reply is ended by its connection's timer, and its client gets an error response if no byte of the
//! reply was delivered; the time that a client stalls a connection does not count against its backend.

use std::time::Duration;

use flick_net::Driver;

use super::Worker;
use crate::inflight::RequestId;
use crate::limits::SILENT_TIMES;

impl<D: Driver> Worker<D> {
    /// Sets the deadline for the reply to a request that has been sent.
    pub(super) fn expect_reply(&mut self, backend_conn: u32, request: RequestId) {
        let reply = self.response_timeout(backend_conn);
        self.expect(backend_conn, request, Some(reply));
    }

    /// As `expect_reply`, for a request that is sent for the first time. If another backend will do (`may_move`), it is
    /// watched whether its own is silent.
    pub(super) fn expect_first_reply(&mut self, backend_conn: u32, request: RequestId, may_move: bool) {
        let (retry, reply) = (self.ctx.setup().timeouts.retry, self.response_timeout(backend_conn));
        let is_watched = may_move && !retry.is_zero() && retry < reply;
        self.inflight.get_mut(request).set_watched(is_watched);
        self.expect(backend_conn, request, Some(if is_watched { retry } else { reply }));
    }

    /// Time that is left of the timeout of a reply of which no byte has come; zero: it has passed.
    fn response_time_left(&self, backend_conn: u32, request: RequestId) -> Duration {
        let waited_ns = self.io.now_ns().saturating_sub(self.inflight.get(request).sent_ns());
        self.response_timeout(backend_conn).saturating_sub(Duration::from_nanos(waited_ns))
    }

    /// Something of the reply to a watched request has come: its backend is not silent, and has the rest of its timeout
    /// for the rest of the reply.
    pub(super) fn watch_no_longer(&mut self, backend_conn: u32, request: RequestId) {
        let left = self.response_time_left(backend_conn, request);
        self.expect(backend_conn, request, Some(left));
    }

    /// Looks whether the backend of the request at the front of a connection is silent, if the request is watched and
    /// has time left. Returns whether that was so; then the request goes on, there or elsewhere.
    pub(super) fn watch(&mut self, backend_conn: u32) -> bool {
        let Some(request) = self.upstream.conn(backend_conn).requests().front() else { return false };
        if !self.inflight.get(request).is_watched() || self.is_over_time(backend_conn) {
            return false;
        }
        let left = self.response_time_left(backend_conn, request);
        if left.is_zero() {
            return false;
        }
        let at = self.upstream.conn(backend_conn).backend() as usize;
        let (now_ns, sent_ns) = (self.io.now_ns(), self.inflight.get(request).sent_ns());
        let since_ns = sent_ns.max(self.upstream.backend(at).health().received_ns());
        let retry = self.ctx.setup().timeouts.retry;
        let silent = Duration::from_nanos(now_ns.saturating_sub(since_ns));
        let Some(limit) = self.long_for_a_reply(at).map(|long| long.max(retry)) else {
            self.expect(backend_conn, request, Some(retry.min(left)));
            return true;
        };
        if silent < limit {
            self.expect(backend_conn, request, Some((limit - silent).min(left)));
            return true;
        }
        // Judged once more after as long again, if it has to stay.
        self.expect(backend_conn, request, Some(limit.min(left)));
        self.backend_is_silent(at);
        true
    }

    /// Returns a long time for a reply, judged by what the backends of the channel took lately; `None`: none has
    /// replied yet.
    fn long_for_a_reply(&self, at: usize) -> Option<Duration> {
        let channel = self.upstream.backend(at).channel();
        let of_channel = self.upstream.backends().iter().filter(|backend| backend.channel() == channel);
        let slowest_ns = of_channel.filter_map(|backend| backend.health().slowest_ns()).max();
        slowest_ns.map(|slowest_ns| Duration::from_nanos(slowest_ns.saturating_mul(SILENT_TIMES)))
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
