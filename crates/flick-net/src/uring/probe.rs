//! Probes connections for resets that the kernel did not report.
//! Promises: a reset is found, whatever became of the receive that should have reported it; a connection is probed once
//! after it has been quiet for [`PROBE_INTERVAL_NS`], and not again before something arrives: an idle one costs
//! nothing.
//! Why: a multishot receive now and then misses a reset that came right behind data (seen on Linux 6.18). A send would
//! fail; a peer to which nothing is sent would keep its session until a timeout.

use crate::limits::PROBE_INTERVAL_NS;

/// Time of the next round of probes, and the slot from which it continues.
pub(super) struct ProbeSchedule {
    due_ns: u64,
    /// The slot to continue from.
    next: u32,
    /// Connections that are not [`ProbeState::Unneeded`].
    needed: u32,
}

/// Whether the kernel may have missed a reset of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ProbeState {
    Unneeded,
    /// Something has arrived, or receiving has begun, since the last round.
    Recent,
    /// Nothing has arrived for a round: worth a system call.
    Quiet,
}

impl ProbeSchedule {
    pub(super) fn new(now_ns: u64) -> ProbeSchedule {
        ProbeSchedule { due_ns: now_ns + PROBE_INTERVAL_NS, next: 0, needed: 0 }
    }

    /// Returns when the next round is due; `None` when no connection needs one.
    pub(super) fn due_ns(&self) -> Option<u64> {
        (self.needed > 0).then_some(self.due_ns)
    }

    /// Begins a round if one is due.
    pub(super) fn begin_round(&mut self, now_ns: u64) -> bool {
        let is_due = self.due_ns().is_some_and(|due_ns| due_ns <= now_ns);
        if is_due {
            self.due_ns = now_ns + PROBE_INTERVAL_NS;
        }
        is_due
    }

    /// Returns the next slot to look at, of the first `used`.
    pub(super) fn next_slot(&mut self, used: u32) -> u32 {
        let index = if self.next < used { self.next } else { 0 };
        self.next = index + 1;
        index
    }

    /// Changes the state of a connection.
    #[inline]
    pub(super) fn set(&mut self, state: &mut ProbeState, to: ProbeState) {
        self.needed += u32::from(to != ProbeState::Unneeded);
        self.needed -= u32::from(*state != ProbeState::Unneeded);
        *state = to;
    }
}
