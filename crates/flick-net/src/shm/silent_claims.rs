//! Accepted claims whose other side has not asked yet.
//! Promises: they take a small part of the connections, one process a part of that; each ends by time. An honest side
//! asks as soon as it is connected, so further claims wait until those before them have been asked.
//! Not here: what a claim asks (`any/upgrade.rs`).

use super::ShmTransport;
use super::pairs::NONE;
use crate::limits::{
    CLAIM_QUESTION_NS_MAX, SILENT_CLAIMS_MAX, SILENT_CLAIMS_PROCESS_SHARE, SILENT_CLAIMS_SHARE,
};

/// All of one driver, in the order in which they were accepted.
pub(super) struct SilentClaims {
    entries: Vec<SilentClaim>,
    most: usize,
    most_of_process: usize,
}

#[derive(Clone, Copy)]
struct SilentClaim {
    index: u32,
    pid: i32,
    deadline_ns: u64,
}

impl SilentClaims {
    pub(super) fn new(conns_max: u32) -> SilentClaims {
        let most = (conns_max / SILENT_CLAIMS_SHARE).clamp(1, SILENT_CLAIMS_MAX);
        SilentClaims {
            entries: Vec::with_capacity(most as usize),
            most: most as usize,
            most_of_process: (most / SILENT_CLAIMS_PROCESS_SHARE).max(1) as usize,
        }
    }

    /// Returns whether a process may have no further one now.
    pub(super) fn is_full_for(&self, pid: i32) -> bool {
        self.entries.len() >= self.most || self.count_of(pid) >= self.most_of_process
    }

    fn count_of(&self, pid: i32) -> usize {
        self.entries.iter().filter(|claim| claim.pid == pid).count()
    }

    pub(super) fn add(&mut self, index: u32, pid: i32, now_ns: u64) {
        self.entries.push(SilentClaim { index, pid, deadline_ns: now_ns + CLAIM_QUESTION_NS_MAX });
    }

    /// Forgets a claim; returns whether it was one of these.
    fn remove(&mut self, index: u32) -> bool {
        let at = self.entries.iter().position(|claim| claim.index == index);
        at.map(|at| self.entries.remove(at)).is_some()
    }

    /// Makes the oldest claim of the process that has most of them due; returns whether there is one.
    pub(super) fn expire_one(&mut self) -> bool {
        let of_process = |at: &usize| self.count_of(self.entries[*at].pid);
        let oldest = (0..self.entries.len()).rev().max_by_key(of_process);
        if let Some(at) = oldest {
            let mut claim = self.entries.remove(at);
            claim.deadline_ns = 0;
            self.entries.insert(0, claim);
        }
        oldest.is_some()
    }

    /// Returns the first deadline.
    pub(super) fn deadline_ns(&self) -> Option<u64> {
        self.entries.first().map(|claim| claim.deadline_ns)
    }
}

impl ShmTransport {
    /// Notes a claim that was accepted: its other side is to ask soon.
    pub(super) fn await_question(&mut self, pair: u32, index: u32) {
        let pid = self.pairs.pid(pair).unwrap_or_default();
        self.silent_claims.add(index, pid, self.now_ns);
    }

    /// Notes that the other side of a claim has asked, or that the claim has ended. Others may be accepted.
    pub(super) fn end_silence(&mut self, index: u32) {
        if self.silent_claims.remove(index) {
            self.pairs.queue_opened();
        }
    }

    /// Takes a claim that was not asked in time.
    pub(crate) fn take_late_claim(&mut self) -> Option<u32> {
        let first = self.silent_claims.entries.first();
        let index = first.filter(|claim| claim.deadline_ns <= self.now_ns)?.index;
        self.end_silence(index);
        Some(index)
    }
}

const _: () = assert!(SILENT_CLAIMS_MAX < NONE);
