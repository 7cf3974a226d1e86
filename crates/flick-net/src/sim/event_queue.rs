//! The future actions of a simulation, in a total order.
//! Promises: of two actions at the same time, the one that was scheduled first happens first.

use std::cmp::Ordering;

use super::config::Reachability;
use super::connection::Side;
use crate::address::Endpoint;

/// A connection of the simulation; numbers are not reused.
pub(super) type SimConnId = usize;

/// Something that happens at a time.
pub(super) enum Action {
    /// A scripted client, or the peers' driver, connects to the driver.
    ConnectToDriver {
        conn: SimConnId,
        to: Endpoint,
    },
    /// A connect of the driver reaches its server.
    Syn {
        conn: SimConnId,
    },
    /// A segment reaches an end.
    Arrive {
        conn: SimConnId,
        side: Side,
        segment: Segment,
    },
    /// A driver learns that the descriptor which it watches is readable.
    WatchReady {
        side: Side,
    },
    /// A peer that had paused reads what has arrived.
    PeerReads {
        conn: SimConnId,
    },
    /// A peer's own timer.
    Timer {
        conn: SimConnId,
        id: u64,
    },
    SetReachability {
        server: Endpoint,
        reachability: Reachability,
    },
    Kill {
        server: Endpoint,
    },
}

/// A segment that travels on a connection.
pub(super) enum Segment {
    /// The connect succeeded.
    Established,
    /// The connect was refused.
    Refused,
    /// Bytes, and their position in the stream.
    Bytes {
        offset: u64,
        bytes: Vec<u8>,
    },
    Fin,
    Reset,
}

/// An action with its position in the order.
pub(super) struct ScheduledAction {
    pub(super) at_ns: u64,
    pub(super) sequence: u64,
    pub(super) action: Action,
}

impl ScheduledAction {
    fn key(&self) -> (u64, u64) {
        (self.at_ns, self.sequence)
    }
}

/// Reversed, because the standard heap has its greatest on top and the earliest is wanted.
impl Ord for ScheduledAction {
    fn cmp(&self, other: &ScheduledAction) -> Ordering {
        other.key().cmp(&self.key())
    }
}

impl PartialOrd for ScheduledAction {
    fn partial_cmp(&self, other: &ScheduledAction) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl PartialEq for ScheduledAction {
    fn eq(&self, other: &ScheduledAction) -> bool {
        self.key() == other.key()
    }
}

impl Eq for ScheduledAction {}
