//! New clients: let in, made to wait, or refused.
//! Promises: never more sessions than the limit, over all workers; with `Overflow::Pause` a client that was accepted
//! before accepting stopped is not sent away but waits, in order; out of descriptors, accepting pauses and is tried
//! again.

use flick_net::{Driver, Handle};

use super::{Role, Worker};
use crate::config::Overflow;
use crate::session::Session;

/// How long accepting pauses when there is no room, unless a session of this worker ends before.
const ACCEPT_AGAIN_NS: u64 = 100_000_000;

impl<D: Driver> Worker<D> {
    pub(super) fn accepted(&mut self, conn: Handle) {
        let pauses = self.setup.limits.overflow == Overflow::Pause;
        if self.draining_since_ns.is_some() {
            self.refuse(conn);
        } else if pauses && !self.waiting.is_empty() {
            self.keep_waiting(conn);
        } else if self.shared.take_session(self.setup.limits.sessions_max) {
            self.open_session(conn);
        } else if pauses {
            self.keep_waiting(conn);
        } else {
            self.refuse(conn);
        }
        if pauses && self.shared.sessions_full(self.setup.limits.sessions_max) {
            self.pause_accept();
        }
    }

    pub(super) fn refuse(&mut self, conn: Handle) {
        self.counters.sessions_refused.add(1);
        self.driver.abort(conn);
    }

    /// The kernel hands out several clients at once, and another worker may have taken the last place: those who
    /// come too early stay connected, unread.
    pub(super) fn keep_waiting(&mut self, conn: Handle) {
        self.roles[conn.index as usize] = Role::Waiting;
        self.waiting.push_back(conn);
        self.pause_accept();
    }

    /// Begins a session, for which a place has been taken.
    fn open_session(&mut self, conn: Handle) {
        let now_ns = self.driver.now_ns();
        let state = self.locals.take();
        let Some(key) = self.sessions.insert(Session::new(conn, self.setup.listened, state, now_ns)) else {
            self.locals.give(state);
            self.shared.give_session();
            self.refuse(conn);
            return;
        };
        self.counters.sessions_accepted.add(1);
        self.counters.sessions_open.add(1);
        self.roles[conn.index as usize] = Role::Client(key);
        self.arm_idle(key);
        if let Some(session) = self.sessions.get_mut(key) {
            session.receiving = true;
        }
        self.driver.receive(conn, true);
        if self.setup.private {
            // A relay of raw bytes has its message begin with the connection.
            self.enqueue_session(key);
        }
    }

    pub(super) fn accept_failed(&mut self, errno: i32) {
        tracing::warn!(errno, "accepting failed; paused");
        self.counters.accept_pauses.add(1);
        self.accept_paused = true;
        self.accept_again();
    }

    fn accept_again(&mut self) {
        let at_ns = self.driver.now_ns() + ACCEPT_AGAIN_NS;
        self.accept_again_ns = Some(at_ns);
        self.note_due(at_ns);
    }

    fn pause_accept(&mut self) {
        if self.accept_paused {
            return;
        }
        self.counters.accept_pauses.add(1);
        self.accept_paused = true;
        self.accept_again();
        for at in 0..self.listeners.len() {
            self.driver.accept(self.listeners[at], false);
        }
    }

    /// Lets in who waits, as far as there is room, and then accepts again if there still is.
    pub(super) fn resume_accept(&mut self) {
        self.accept_again_ns = None;
        if !self.accept_paused || self.draining_since_ns.is_some() {
            return;
        }
        if self.merging.is_some() {
            self.merge_resume_accept();
            return;
        }
        let sessions_max = self.setup.limits.sessions_max;
        while !self.waiting.is_empty() && self.shared.take_session(sessions_max) {
            if let Some(conn) = self.waiting.pop_front() {
                self.open_session(conn);
            }
        }
        let is_full =
            self.setup.limits.overflow == Overflow::Pause && self.shared.sessions_full(sessions_max);
        if is_full || !self.waiting.is_empty() {
            self.accept_again();
            return;
        }
        self.accept_paused = false;
        for at in 0..self.listeners.len() {
            self.driver.accept(self.listeners[at], true);
        }
    }

    /// Accepts nobody any more, and sends away who waits: nothing of theirs has been taken.
    pub(super) fn stop_accepting(&mut self) {
        for listener in std::mem::take(&mut self.listeners) {
            self.driver.close_listener(listener);
        }
        while let Some(conn) = self.waiting.pop_front() {
            self.forget(conn);
            self.refuse(conn);
        }
    }
}
