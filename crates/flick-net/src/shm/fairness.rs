//! Shares of connections: which process pays when all connections are in use.
//! Promises: a process that waits with fewer connections than another one has gets its share: the process that holds
//! most loses the connection that was idle longest, one at a time; while no process waits, one may have all. A process
//! waits with connections that are not accepted, and with those that have no session, which it does not hold.
//! Not here: shares of memory (`pairs.rs`).

use super::ShmTransport;
use super::pairs::PairTable;
use crate::driver::{Handle, ListenerId};
use crate::fault::ConnFault;
use crate::limits::SHM_FAIR_LOOKS_MAX;
use crate::listeners::Accepting;

/// The connections of one process, or of one of its pairs.
#[derive(Clone, Copy, Debug)]
pub(super) struct Holdings {
    pub(super) pid: i32,
    pub(super) conns: u32,
    /// It has opened a connection that a paused listener does not accept, or that has no session.
    pub(super) is_waiting: bool,
}

impl ShmTransport {
    /// Limits how many connections are accepted for the platform from now on.
    pub(crate) fn limit_accepts(&mut self, most: u32) {
        self.accepts_left = most;
    }

    /// Notes that the platform has no session for a connection yet.
    pub(crate) fn wait_for_session(&mut self, conn: Handle) {
        if let Some(conn) = self.conns.get_mut(conn) {
            conn.part.is_waiting = true;
        }
    }

    /// Fails a connection of the process that holds most, if another one waits with fewer at a listener that is paused;
    /// processes can pair there from now on. The platform calls it while all its sessions are in use. Returns whether
    /// one was failed.
    pub(crate) fn evict_greedy(&mut self) -> bool {
        for id in self.listeners.ids() {
            if self.listeners.get(id).is_some_and(|at| !at.is_for_claims) {
                self.watch(id, true);
            }
        }
        let listeners = &self.listeners;
        let is_paused = |id| {
            let listener = listeners.get(id).filter(|at| !at.is_for_claims)?;
            Some(listener.accepting != Accepting::On)
        };
        let conns = (0..self.conns.used()).filter_map(|index| self.conns.at(index));
        let waiting = conns.filter(|conn| conn.part.is_waiting && conn.is_live()).map(|conn| conn.part.pair);
        let Some(greedy) = self.pairs.greedy(is_paused, waiting) else { return false };
        let mut longest: Option<(u32, u32)> = None;
        for index in 0..self.conns.used() {
            let Some(conn) = self.conns.at(index) else { continue };
            let listener = self.pairs.listener(conn.part.pair).and_then(|id| self.listeners.get(id));
            let is_accepted = listener.is_some_and(|at| !at.is_for_claims);
            if !is_accepted || self.pairs.pid(conn.part.pair) != Some(greedy) {
                continue;
            }
            if conn.has_failed() {
                // The platform has not yet ended the one before.
                return false;
            }
            let looks = conn.part.idle_looks;
            if conn.is_live() && !conn.part.is_waiting && longest.is_none_or(|(_, most)| looks > most) {
                longest = Some((index, looks));
            }
        }
        let Some((index, _)) = longest else { return false };
        tracing::debug!(pid = greedy, "a process that holds most connections makes space for another one");
        self.fail(index, ConnFault::Exhausted);
        true
    }
}

impl PairTable {
    /// Returns the process that holds most connections, if another one waits that would hold fewer also after it got
    /// one of them. `waiting`: the pairs of accepted connections that wait for sessions.
    fn greedy(
        &mut self,
        is_paused: impl Fn(ListenerId) -> Option<bool>,
        waiting: impl Iterator<Item = u32>,
    ) -> Option<i32> {
        self.list_holdings(is_paused);
        self.holdings.sort_unstable_by_key(|of| of.pid);
        self.holdings.dedup_by(|next, of| {
            let is_same = next.pid == of.pid;
            if is_same {
                of.conns += next.conns;
                of.is_waiting |= next.is_waiting;
            }
            is_same
        });
        for pair in waiting {
            let pid = self.pid(pair);
            if let Some(of) = self.holdings.iter_mut().find(|of| Some(of.pid) == pid) {
                of.conns = of.conns.saturating_sub(1);
                of.is_waiting = true;
            }
        }
        let holdings = &self.holdings;
        let least = holdings.iter().filter(|of| of.is_waiting).map(|of| of.conns).min()?;
        let most = holdings.iter().max_by_key(|of| of.conns)?;
        (most.conns > least + 1).then_some(most.pid)
    }

    /// Takes the next pair with connections to be accepted: of several, one whose process holds few connections. A
    /// process that sets ready bits without opening anything comes behind all others.
    pub(super) fn take_opened(&mut self) -> Option<u32> {
        let mut taken = self.opened.pop()?;
        for _ in 0..self.opened.len().min(SHM_FAIR_LOOKS_MAX) {
            let other = self.opened.pop()?;
            let (first, later) = if self.conns_of_process(other) < self.conns_of_process(taken) {
                (other, taken)
            } else {
                (taken, other)
            };
            self.opened.push(later);
            taken = first;
        }
        Some(taken)
    }
}
