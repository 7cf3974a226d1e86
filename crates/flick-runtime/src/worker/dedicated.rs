//! Dedicated connections: for single exchanges too long for the shared connection, and, where a protocol says that a
//! connection carries one exchange at a time, for every exchange.
//! Promises: an exchange has its connection alone; an idle one is given out again last in, first out; one that was
//! answered early, said that it ends, or says more than it was asked is never given out again.

use flick_abi::FailureReason;
use flick_net::Driver;

use super::Worker;
use super::health::warn_of;
use crate::limits::{REFUSALS_MAX, SPARE_CONN_IDLE_MS};
use crate::run_queue::Flow;
use crate::slab::Key;
use crate::upstream::Upstream;
use crate::upstream::conn::{AfterExchange, Purpose};

/// Nanoseconds of a millisecond.
const MS: u64 = 1_000_000;
/// Purpose of a connection that is connected because one exchange needs it now.
pub(super) const FOR_EXCHANGE: Purpose = Purpose::Exchange { is_uploading: false };

impl<D: Driver> Worker<D> {
    /// A dedicated connection to `backend` that is free, connected now if need be.
    pub(super) fn borrow_conn(&mut self, backend: u32) -> Option<u32> {
        if !self.shared_conn_is_usable(backend) {
            return None;
        }
        if self.upstream.backend(backend as usize).is_exclusive() {
            return self.borrow_exclusive(backend);
        }
        let dedicated = self.upstream.backend(backend as usize).dedicated();
        let idle = |slot: u32| {
            let conn = self.upstream.conn(slot);
            conn.handle().and(conn.idle_since_ns()).map(|since_ns| (slot, since_ns))
        };
        let free = dedicated.clone().filter_map(idle).min_by_key(|(_, since_ns)| *since_ns);
        let idle_ns = self.io.now_ns().saturating_sub(SPARE_CONN_IDLE_MS * MS);
        if let Some((slot, _)) = free.filter(|(_, since_ns)| *since_ns <= idle_ns) {
            let is_gone =
                self.upstream.conn(slot).handle().is_some_and(|handle| self.io.driver().is_hung_up(handle));
            if !is_gone {
                self.upstream.conn_mut(slot).begin_exchange();
                return Some(slot);
            }
            // A body is not sent twice, so it does not begin where it cannot end.
            self.fail_backend_conn(slot, FailureReason::Unavailable, None);
            return self.connect(slot, FOR_EXCHANGE).then_some(slot);
        }
        let down = dedicated.clone().find(|slot| self.upstream.conn(*slot).is_down());
        if let Some(slot) = down.filter(|slot| self.connect(*slot, FOR_EXCHANGE)) {
            return Some(slot);
        }
        let (slot, _) = free?;
        self.upstream.conn_mut(slot).begin_exchange();
        Some(slot)
    }

    /// A connection for one exchange: the one that was idle for the shortest time, or a new one. `None`: all are in
    /// use, or it cannot be connected.
    pub(super) fn borrow_exclusive(&mut self, backend: u32) -> Option<u32> {
        if let Some(slot) = self.upstream.take_idle(backend as usize) {
            return Some(slot);
        }
        let slot = self.upstream.backend_mut(backend as usize).pop_spare()?;
        if self.connect(slot, FOR_EXCHANGE) {
            return Some(slot);
        }
        self.upstream.backend_mut(backend as usize).push_spare(slot);
        None
    }

    /// A connection without an exchange is kept for the next one.
    fn keep_idle(&mut self, backend_conn: u32) {
        self.upstream.keep_idle(backend_conn);
        self.note_due(Upstream::idle_until_ns(self.io.now_ns()));
        self.tasks.free_capacity();
    }

    /// An exchange on a dedicated connection is over.
    pub(super) fn give_back(&mut self, backend_conn: u32) {
        let conn = self.upstream.conn_mut(backend_conn);
        let is_last = conn.after_exchange() == AfterExchange::Close;
        if !conn.end_exchange(self.io.now_ns()) {
            return;
        }
        let says_more = !conn.inbox().is_empty();
        let is_over = is_last || conn.has_ended() || conn.handle().is_none();
        if says_more {
            self.log_backend(backend_conn, |context| {
                warn_of!(context, "backend sent more than it was asked for")
            });
            self.observe.counters().protocol_errors_backend.add(1);
        }
        //= RFC 9112 section 6.3
        //# A client MUST NOT process, cache, or forward such extra data as a separate response
        if says_more || is_over {
            self.retire_backend_conn(backend_conn);
        } else if self.upstream.backend_of(backend_conn).is_exclusive() {
            self.keep_idle(backend_conn);
        } else {
            self.tasks.free_capacity();
        }
    }

    /// Ends a connection without requests in flight, in good order.
    pub(super) fn retire_backend_conn(&mut self, backend_conn: u32) {
        if let Some(handle) = self.upstream.conn_mut(backend_conn).take_handle() {
            self.io.driver_mut().close(handle);
        }
        self.close_backend_conn(backend_conn, FailureReason::Unavailable, None);
    }

    /// A connection of an exclusive protocol has closed; `was_refused`: the backend could not be connected. One that we
    /// end ourselves while it connects, because its client left or sent nonsense, says nothing of the backend.
    pub(super) fn pool_lost(&mut self, backend_conn: u32, was_refused: bool) {
        let at = self.upstream.conn(backend_conn).backend() as usize;
        let backend = self.upstream.backend_mut(at);
        backend.push_spare(backend_conn);
        let (probe, is_relay) = (backend.shared(), backend.is_relay());
        // One with open connections may refuse more because its accept queue is full.
        let may_be_busy = was_refused && backend.note_refusal() < REFUSALS_MAX;
        let is_busy = may_be_busy && self.has_open_conn(at);
        if was_refused && !is_relay && !is_busy && self.upstream.conn(probe).is_down() {
            if self.upstream.backend_mut(at).set_up(false) {
                self.observe.backend(at).up.sub(1);
            }
            self.schedule_reconnect(probe);
        }
    }

    /// Whether a backend has accepted a connection that is still open.
    fn has_open_conn(&self, at: usize) -> bool {
        self.upstream.backend(at).conns().any(|conn| self.upstream.conn(conn).is_connected())
    }

    /// A connection of an exclusive protocol has come up.
    pub(super) fn pool_connected(&mut self, backend_conn: u32) {
        let at = self.upstream.conn(backend_conn).backend() as usize;
        let backend = self.upstream.backend_mut(at);
        let is_relay = backend.is_relay();
        backend.set_failures(0);
        if !backend.set_up(true) {
            self.observe.backend(at).up.add(1);
        }
        if is_relay {
            self.enqueue_backend_conn(backend_conn);
        } else if self.upstream.conn(backend_conn).is_idle() {
            self.keep_idle(backend_conn);
        } else {
            // Its client may have left while it was being connected.
            self.enqueue_backend_conn(backend_conn);
        }
    }

    /// Whether a backend has a free dedicated connection now.
    pub(super) fn dedicates_now(&self, backend: u32) -> bool {
        if self.upstream.backend(backend as usize).is_exclusive() {
            return self.upstream.task_may_take(backend);
        }
        let backend = self.upstream.backend(backend as usize);
        backend.dedicated().map(|slot| self.upstream.conn(slot)).any(|conn| conn.is_idle() || conn.is_down())
    }

    /// Whether a session that wants a connection to `backend`, or a turn at the shared one, is worth waking: each free
    /// one is promised once.
    pub(super) fn promise(&mut self, backend: u32) -> bool {
        let (at, is_usable) = (backend as usize, self.shared_conn_is_usable(backend));
        let backend = self.upstream.backend(at);
        let free_count = if backend.is_exclusive() {
            backend.free_count()
        } else {
            self.upstream.conn(backend.shared()).quanta() as usize
        };
        !is_usable || self.upstream.backend_mut(at).promise(free_count)
    }

    /// A client for which a connection was kept has run: what it has not taken is the next one's.
    pub(super) fn end_promise(&mut self, backend: u32) {
        self.upstream.keep_for_task(None);
        let backend = self.upstream.backend_mut(backend as usize);
        backend.end_promise();
        if backend.free_count() > 0 && backend.pending() > 0 {
            self.tasks.free_capacity();
        }
    }

    /// A session waits for a connection to `backend`.
    pub(super) fn wait_for_conn(&mut self, key: Key, backend: Option<u32>) -> Flow {
        let wants = backend.filter(|backend| self.upstream.backend(*backend as usize).is_exclusive());
        let holder = wants.and_then(|backend| self.longest_holder(backend as usize));
        if let Some((evict_ns, _)) = holder {
            self.note_due(evict_ns);
        }
        self.wait_for_capacity(key, wants)
    }

    /// Whether every usable backend has a free dedicated connection, whichever a rule chooses. Those of channels
    /// without a rule do not count beside others: they get copies, which may be dropped.
    pub(super) fn all_dedicate(&self) -> bool {
        let setup = self.ctx.setup();
        let has_others = (0..setup.program.channels.len()).any(|channel| setup.handles(channel));
        let counts = |backend: &u32| {
            let channel = self.upstream.backend(*backend as usize).channel();
            self.shared_conn_is_usable(*backend) && !(has_others && setup.lacks_rule(channel))
        };
        (0..self.upstream.backends().len() as u32).filter(counts).all(|backend| self.dedicates_now(backend))
    }

    /// Whether a dedicated connection of `backend` will become free, so that it is worth waiting for one.
    pub(super) fn dedicates(&self, backend: u32) -> bool {
        let backend = self.upstream.backend(backend as usize);
        if backend.is_exclusive() {
            return backend.has_no_spare();
        }
        backend.dedicated().any(|slot| !self.upstream.conn(slot).is_down())
    }
}
