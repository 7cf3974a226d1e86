//! Connections that are lent: to single exchanges too large for the shared connection, and, where a protocol says that
//! a connection carries one exchange at a time, to every exchange.
//! Promises: whom a connection is lent has it alone; one that rests is given out again last in, first out; one that was
//! answered early, said that it ends, or says more than it was asked is never given out again.

use flick_abi::FailureReason;
use flick_net::Driver;

use super::health::warn_of;
use super::{Flow, Worker};
use crate::limits::{IDLE_LINK_MS, LENT_REST_MS};
use crate::slab::Key;
use crate::upstream::backend::BackendConnState;

/// Nanoseconds of a millisecond.
const MS: u64 = 1_000_000;

impl<D: Driver> Worker<D> {
    /// A lent connection to `backend` that is free, dialled now if need be.
    pub(super) fn borrow_link(&mut self, backend: u32) -> Option<u32> {
        if !self.shared_link_is_usable(backend) {
            return None;
        }
        if self.backends[backend as usize].exclusive {
            return self.borrow_exclusive(backend);
        }
        let lent = self.backends[backend as usize].lent.clone();
        let is_free = |link: &u32| {
            let link = &self.links[*link as usize];
            link.state == BackendConnState::Up
                && link.conn.is_some()
                && link.requests.is_empty()
                && !link.uploading
        };
        let rests_since_ns = |link: &u32| self.links[*link as usize].rests_since_ns;
        let free = lent.clone().filter(is_free).min_by_key(rests_since_ns);
        let rested_ns = self.driver.now_ns().saturating_sub(LENT_REST_MS * MS);
        if let Some(link) = free.filter(|link| rests_since_ns(link) <= rested_ns) {
            let is_gone = self.links[link as usize].conn.is_some_and(|conn| self.driver.is_hung_up(conn));
            if !is_gone {
                return free;
            }
            // A body is not sent twice, so it does not begin where it cannot end.
            self.link_broken(link, FailureReason::Unavailable, None);
            return if self.dial(link) { Some(link) } else { None };
        }
        let down = lent.clone().find(|link| self.links[*link as usize].state == BackendConnState::Down);
        down.filter(|link| self.dial(*link)).or(free)
    }

    /// A connection for one exchange: the one that has rested for the shortest time, or a new one. `None`: all are in
    /// use, or it cannot be dialled.
    pub(super) fn borrow_exclusive(&mut self, backend: u32) -> Option<u32> {
        while let Some(link) = self.backends[backend as usize].idle.pop() {
            let state = &mut self.links[link as usize];
            state.is_idle = false;
            // One that its backend has ended, or talks on, is being seen to.
            if state.state == BackendConnState::Up
                && state.conn.is_some()
                && !state.eof
                && state.inbox.is_empty()
            {
                return Some(link);
            }
        }
        let link = self.backends[backend as usize].spare.pop()?;
        if self.dial(link) {
            return Some(link);
        }
        self.backends[backend as usize].spare.push(link);
        None
    }

    /// A connection has nothing to do: it rests until it is borrowed, or for too long.
    pub(super) fn rest_link(&mut self, link: u32) {
        let now_ns = self.driver.now_ns();
        let state = &mut self.links[link as usize];
        state.rests_since_ns = now_ns;
        state.is_idle = true;
        self.backends[state.backend as usize].idle.push(link);
        self.note_due(now_ns + IDLE_LINK_MS * MS);
        self.unblock = true;
    }

    /// When a connection that rests is closed.
    pub(super) fn rests_until_ns(rests_since_ns: u64) -> u64 {
        rests_since_ns + IDLE_LINK_MS * MS
    }

    /// An exchange on a connection that was lent to it alone is over.
    pub(super) fn give_back(&mut self, link: u32) {
        let state = &self.links[link as usize];
        if state.state == BackendConnState::Connecting {
            return;
        }
        let says_more = !state.inbox.is_empty();
        if says_more {
            self.say(link, |told| warn_of!(told, "backend sent more than it was asked for"));
            self.counters.protocol_errors_backend.add(1);
        }
        let state = &self.links[link as usize];
        //= RFC 9112 section 6.3
        //# A client MUST NOT process, cache, or forward such extra data as a separate response
        if says_more || state.is_last || state.eof || state.conn.is_none() {
            self.retire_link(link);
        } else {
            self.rest_link(link);
        }
    }

    /// Ends a connection on which nothing is under way, in good order.
    pub(super) fn retire_link(&mut self, link: u32) {
        if let Some(conn) = self.links[link as usize].conn.take() {
            self.driver.close(conn);
        }
        self.link_lost(link, FailureReason::Unavailable, None);
    }

    /// The recorder of a connection of an exclusive protocol that was lost; `was_refused`: the backend could not be dialled. One
    /// that we end ourselves while it is dialled, because its client went or sent nonsense, says nothing of the backend.
    pub(super) fn pool_lost(&mut self, link: u32, was_refused: bool) {
        let state = &mut self.links[link as usize];
        let (at, was_idle) = (state.backend as usize, std::mem::take(&mut state.is_idle));
        let backend = &mut self.backends[at];
        if was_idle {
            backend.idle.retain(|idle| *idle != link);
        }
        let probe = backend.shared;
        if link != probe {
            backend.spare.push(link);
        }
        if was_refused
            && !self.backends[at].private
            && self.links[probe as usize].state == BackendConnState::Down
        {
            if std::mem::take(&mut self.backends[at].is_up) {
                self.backend_counters[at].up.sub(1);
            }
            self.link_down(probe);
        }
    }

    /// A connection of an exclusive protocol has come up.
    pub(super) fn pool_connected(&mut self, link: u32) {
        let at = self.links[link as usize].backend as usize;
        self.backends[at].failures = 0;
        if !std::mem::replace(&mut self.backends[at].is_up, true) {
            self.backend_counters[at].up.add(1);
        }
        let state = &self.links[link as usize];
        if self.backends[at].private {
            self.enqueue_link(link);
        } else if state.requests.is_empty() && !state.uploading && !state.is_abandoned {
            self.rest_link(link);
        }
    }

    /// Whether a backend has a connection to lend now.
    pub(super) fn lends_now(&self, backend: u32) -> bool {
        let backend = &self.backends[backend as usize];
        if backend.exclusive {
            return !backend.idle.is_empty() || !backend.spare.is_empty();
        }
        let mut lent = backend.lent.clone();
        lent.any(|link| {
            let link = &self.links[link as usize];
            let is_free = link.state == BackendConnState::Up && link.requests.is_empty() && !link.uploading;
            link.state == BackendConnState::Down || is_free
        })
    }

    /// Whether a session that wants a connection to `backend` is worth waking: each that is free is promised once.
    pub(super) fn promise(&mut self, backend: u32) -> bool {
        if !self.shared_link_is_usable(backend) {
            return true;
        }
        let backend = &mut self.backends[backend as usize];
        backend.promised += 1;
        backend.promised <= backend.idle.len() + backend.spare.len()
    }

    /// A session waits for a connection to `backend`.
    pub(super) fn wait_for_link(&mut self, key: Key, backend: Option<u32>) -> Flow {
        let wants = backend.filter(|backend| self.backends[*backend as usize].exclusive);
        if let Some(session) = self.sessions.get_mut(key) {
            let wanted = std::mem::replace(&mut session.wants, wants);
            if let Some(backend) = wants {
                self.backends[backend as usize].pending += 1;
            }
            if let Some(backend) = wanted {
                self.backends[backend as usize].pending -= 1;
            }
        }
        self.wait_in_line(key)
    }

    /// Whether every backend that can be reached has a connection to lend, whichever a rule chooses.
    pub(super) fn all_lend(&self) -> bool {
        (0..self.backends.len() as u32)
            .filter(|backend| self.shared_link_is_usable(*backend))
            .all(|backend| self.lends_now(backend))
    }

    /// Whether a lent connection of `backend` will become free, so that it is worth waiting for one.
    pub(super) fn lends(&self, backend: u32) -> bool {
        let backend = &self.backends[backend as usize];
        if backend.exclusive {
            return backend.spare.is_empty();
        }
        let mut lent = backend.lent.clone();
        lent.any(|link| self.links[link as usize].state != BackendConnState::Down)
    }
}
