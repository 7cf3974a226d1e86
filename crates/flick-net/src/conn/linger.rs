//! The queue of closed connections that wait for their peer to end its side too.
//! Promises: bounded in number and time; the oldest is given up first.
//! Source: RFC 9112 §9.6 (lingering close).

use std::collections::VecDeque;

use crate::driver::Handle;

/// The lingering connections, oldest first.
pub(crate) struct LingerQueue {
    queue: VecDeque<Lingerer>,
    lingerers_max: usize,
    wait_ns: u64,
}

struct Lingerer {
    conn: Handle,
    deadline_ns: u64,
}

impl LingerQueue {
    /// A queue of connections that wait for `wait_ns` each.
    pub(crate) fn new(lingerers_max: u32, wait_ns: u64) -> LingerQueue {
        let lingerers_max = lingerers_max as usize;
        LingerQueue { queue: VecDeque::with_capacity(lingerers_max), lingerers_max, wait_ns }
    }

    /// Adds a connection; false when the queue is full (connections that ended early still count).
    pub(crate) fn push(&mut self, conn: Handle, now_ns: u64) -> bool {
        let fits = self.queue.len() < self.lingerers_max;
        if fits {
            self.queue.push_back(Lingerer { conn, deadline_ns: now_ns + self.wait_ns });
        }
        fits
    }

    /// Forgets those that wait no more.
    pub(crate) fn retain(&mut self, waits: impl Fn(Handle) -> bool) {
        self.queue.retain(|lingerer| waits(lingerer.conn));
    }

    /// Returns when the oldest is to be given up.
    pub(crate) fn deadline_ns(&self) -> Option<u64> {
        self.queue.front().map(|lingerer| lingerer.deadline_ns)
    }

    /// Returns the oldest; its handle may be dead already.
    pub(crate) fn oldest(&self) -> Option<Handle> {
        self.queue.front().map(|lingerer| lingerer.conn)
    }

    /// Takes the oldest that still waits, if its deadline has passed.
    pub(crate) fn pop_expired(&mut self, now_ns: u64, waits: impl Fn(Handle) -> bool) -> Option<u32> {
        while self.deadline_ns()? <= now_ns {
            let handle = self.pop_oldest()?;
            if waits(handle) {
                return Some(handle.index);
            }
        }
        None
    }

    /// Takes the oldest; its handle may be dead already.
    pub(crate) fn pop_oldest(&mut self) -> Option<Handle> {
        self.queue.pop_front().map(|lingerer| lingerer.conn)
    }
}
