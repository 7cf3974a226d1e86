//! Closed connections that wait a while for their peer to end its side too.
//! Promises: bounded in number and time; given up oldest first.
//! Source: RFC 9112 §9.6 (lingering close).

use std::collections::VecDeque;

use crate::driver::Handle;
use crate::limits::LINGER_NS_MAX;

/// Who lingers, the one to give up first in front.
pub(crate) struct Lingerers {
    waiting: VecDeque<Lingerer>,
}

struct Lingerer {
    conn: Handle,
    deadline_ns: u64,
}

impl Lingerers {
    pub(crate) fn new(conns_max: u32) -> Lingerers {
        Lingerers { waiting: VecDeque::with_capacity(conns_max as usize) }
    }

    /// Adds a connection; false when there are too many (those that ended early still count).
    pub(crate) fn push(&mut self, conn: Handle, now_ns: u64) -> bool {
        let fits = self.waiting.len() < self.waiting.capacity();
        if fits {
            self.waiting.push_back(Lingerer { conn, deadline_ns: now_ns + LINGER_NS_MAX });
        }
        fits
    }

    /// When the first is to be given up.
    pub(crate) fn deadline_ns(&self) -> Option<u64> {
        self.waiting.front().map(|lingerer| lingerer.deadline_ns)
    }

    /// Takes one whose time is over; the handle may be dead already.
    pub(crate) fn pop_expired(&mut self, now_ns: u64) -> Option<Handle> {
        if self.deadline_ns()? <= now_ns { self.pop_oldest() } else { None }
    }

    /// Takes the one that has waited longest.
    pub(crate) fn pop_oldest(&mut self) -> Option<Handle> {
        self.waiting.pop_front().map(|lingerer| lingerer.conn)
    }
}
