//! Connections that are lent: to single exchanges too large for the shared connection, and, where a protocol says that
//! a connection carries one exchange at a time, to every exchange.
//! Promises: whom a connection is lent has it alone; one that rests is given out again last in, first out; one that was
//! answered early, said that it ends, or says more than it was asked is never given out again.

use flick_abi::FailureReason;
use flick_net::Driver;

use super::Worker;
use super::health::warn_of;
use crate::limits::{DEDICATED_CONN_IDLE_MS, SPARE_CONN_IDLE_MS};
use crate::run_queue::Flow;
use crate::slab::Key;
use crate::upstream::backend::BackendConnState;

/// Nanoseconds of a millisecond.
const MS: u64 = 1_000_000;

impl<D: Driver> Worker<D> {
    /// A lent connection to `backend` that is free, dialled now if need be.
    pub(super) fn borrow_conn(&mut self, backend: u32) -> Option<u32> {
        if !self.shared_conn_is_usable(backend) {
            return None;
        }
        if self.upstream.backends[backend as usize].exclusive {
            return self.borrow_exclusive(backend);
        }
        let dedicated = self.upstream.backends[backend as usize].dedicated.clone();
        let is_free = |backend_conn: &u32| {
            let backend_conn = &self.upstream.conns[*backend_conn];
            backend_conn.state == BackendConnState::Up
                && backend_conn.conn.is_some()
                && backend_conn.requests.is_empty()
                && !backend_conn.uploading
        };
        let idle_since_ns = |backend_conn: &u32| self.upstream.conns[*backend_conn].idle_since_ns;
        let free = dedicated.clone().filter(is_free).min_by_key(idle_since_ns);
        let idle_ns = self.io.now_ns().saturating_sub(SPARE_CONN_IDLE_MS * MS);
        if let Some(backend_conn) = free.filter(|backend_conn| idle_since_ns(backend_conn) <= idle_ns) {
            let is_gone =
                self.upstream.conns[backend_conn].conn.is_some_and(|conn| self.io.driver().is_hung_up(conn));
            if !is_gone {
                return free;
            }
            // A body is not sent twice, so it does not begin where it cannot end.
            self.fail_backend_conn(backend_conn, FailureReason::Unavailable, None);
            return if self.connect(backend_conn) { Some(backend_conn) } else { None };
        }
        let down = dedicated
            .clone()
            .find(|backend_conn| self.upstream.conns[*backend_conn].state == BackendConnState::Down);
        down.filter(|backend_conn| self.connect(*backend_conn)).or(free)
    }

    /// A connection for one exchange: the one that has rested for the shortest time, or a new one. `None`: all are in
    /// use, or it cannot be dialled.
    pub(super) fn borrow_exclusive(&mut self, backend: u32) -> Option<u32> {
        while let Some(backend_conn) = self.upstream.backends[backend as usize].idle.pop() {
            let state = &mut self.upstream.conns[backend_conn];
            state.is_idle = false;
            // One that its backend has ended, or talks on, is being seen to.
            if state.state == BackendConnState::Up
                && state.conn.is_some()
                && !state.eof
                && state.inbox.is_empty()
            {
                return Some(backend_conn);
            }
        }
        let backend_conn = self.upstream.backends[backend as usize].spare.pop()?;
        if self.connect(backend_conn) {
            return Some(backend_conn);
        }
        self.upstream.backends[backend as usize].spare.push(backend_conn);
        None
    }

    /// A connection has nothing to do: it rests until it is borrowed, or for too long.
    pub(super) fn keep_idle(&mut self, backend_conn: u32) {
        let now_ns = self.io.now_ns();
        let state = &mut self.upstream.conns[backend_conn];
        state.idle_since_ns = now_ns;
        state.is_idle = true;
        self.upstream.backends[state.backend as usize].idle.push(backend_conn);
        self.note_due(now_ns + DEDICATED_CONN_IDLE_MS * MS);
        self.tasks.free_capacity();
    }

    /// When a connection that rests is closed.
    pub(super) fn idle_until_ns(idle_since_ns: u64) -> u64 {
        idle_since_ns + DEDICATED_CONN_IDLE_MS * MS
    }

    /// An exchange on a connection that was lent to it alone is over.
    pub(super) fn give_back(&mut self, backend_conn: u32) {
        let state = &self.upstream.conns[backend_conn];
        if state.state == BackendConnState::Connecting {
            return;
        }
        let says_more = !state.inbox.is_empty();
        if says_more {
            self.log_backend(backend_conn, |context| {
                warn_of!(context, "backend sent more than it was asked for")
            });
            self.observe.counters().protocol_errors_backend.add(1);
        }
        let state = &self.upstream.conns[backend_conn];
        //= RFC 9112 section 6.3
        //# A client MUST NOT process, cache, or forward such extra data as a separate response
        if says_more || state.is_last || state.eof || state.conn.is_none() {
            self.retire_backend_conn(backend_conn);
        } else {
            self.keep_idle(backend_conn);
        }
    }

    /// Ends a connection on which nothing is under way, in good order.
    pub(super) fn retire_backend_conn(&mut self, backend_conn: u32) {
        if let Some(conn) = self.upstream.conns[backend_conn].conn.take() {
            self.io.driver_mut().close(conn);
        }
        self.close_backend_conn(backend_conn, FailureReason::Unavailable, None);
    }

    /// The recorder of a connection of an exclusive protocol that was lost; `was_refused`: the backend could not be dialled. One
    /// that we end ourselves while it is dialled, because its client went or sent nonsense, says nothing of the backend.
    pub(super) fn pool_lost(&mut self, backend_conn: u32, was_refused: bool) {
        let state = &mut self.upstream.conns[backend_conn];
        let (at, was_idle) = (state.backend as usize, std::mem::take(&mut state.is_idle));
        let backend = &mut self.upstream.backends[at];
        if was_idle {
            backend.idle.retain(|idle| *idle != backend_conn);
        }
        let probe = backend.shared;
        if backend_conn != probe {
            backend.spare.push(backend_conn);
        }
        if was_refused
            && !self.upstream.backends[at].is_relay
            && self.upstream.conns[probe].state == BackendConnState::Down
        {
            if std::mem::take(&mut self.upstream.backends[at].is_up) {
                self.observe.backend(at).up.sub(1);
            }
            self.schedule_reconnect(probe);
        }
    }

    /// A connection of an exclusive protocol has come up.
    pub(super) fn pool_connected(&mut self, backend_conn: u32) {
        let at = self.upstream.conns[backend_conn].backend as usize;
        self.upstream.backends[at].failures = 0;
        if !std::mem::replace(&mut self.upstream.backends[at].is_up, true) {
            self.observe.backend(at).up.add(1);
        }
        let state = &self.upstream.conns[backend_conn];
        if self.upstream.backends[at].is_relay {
            self.enqueue_backend_conn(backend_conn);
        } else if state.requests.is_empty() && !state.uploading && !state.is_abandoned {
            self.keep_idle(backend_conn);
        }
    }

    /// Whether a backend has a connection to lend now.
    pub(super) fn dedicates_now(&self, backend: u32) -> bool {
        let backend = &self.upstream.backends[backend as usize];
        if backend.exclusive {
            return !backend.idle.is_empty() || !backend.spare.is_empty();
        }
        let mut dedicated = backend.dedicated.clone();
        dedicated.any(|backend_conn| {
            let backend_conn = &self.upstream.conns[backend_conn];
            let is_free = backend_conn.state == BackendConnState::Up
                && backend_conn.requests.is_empty()
                && !backend_conn.uploading;
            backend_conn.state == BackendConnState::Down || is_free
        })
    }

    /// Whether a session that wants a connection to `backend` is worth waking: each that is free is promised once.
    pub(super) fn promise(&mut self, backend: u32) -> bool {
        if !self.shared_conn_is_usable(backend) {
            return true;
        }
        let backend = &mut self.upstream.backends[backend as usize];
        backend.promised += 1;
        backend.promised <= backend.idle.len() + backend.spare.len()
    }

    /// A session waits for a connection to `backend`.
    pub(super) fn wait_for_conn(&mut self, key: Key, backend: Option<u32>) -> Flow {
        let wants = backend.filter(|backend| self.upstream.backends[*backend as usize].exclusive);
        self.wait_for_capacity(key, wants)
    }

    /// Whether every backend that can be reached has a connection to lend, whichever a rule chooses.
    pub(super) fn all_dedicate(&self) -> bool {
        (0..self.upstream.backends.len() as u32)
            .filter(|backend| self.shared_conn_is_usable(*backend))
            .all(|backend| self.dedicates_now(backend))
    }

    /// Whether a lent connection of `backend` will become free, so that it is worth waiting for one.
    pub(super) fn dedicates(&self, backend: u32) -> bool {
        let backend = &self.upstream.backends[backend as usize];
        if backend.exclusive {
            return backend.spare.is_empty();
        }
        let mut dedicated = backend.dedicated.clone();
        dedicated.any(|backend_conn| self.upstream.conns[backend_conn].state != BackendConnState::Down)
    }
}
