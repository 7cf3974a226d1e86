//! What will happen and when, in an order that is total.
//! Promises: of two things at the same time, the one that was planned first happens first.

use std::cmp::Ordering;

use super::Reach;
use crate::address::Endpoint;

/// A connection of the simulation, for ever: numbers are not used again.
pub(super) type LinkId = usize;

/// Something that happens at a time.
pub(super) enum Action {
    /// A scripted client dials the driver.
    Dial {
        link: LinkId,
        to: Endpoint,
    },
    /// A dial of the driver reaches its server.
    Syn {
        link: LinkId,
    },
    /// Something reaches the driver's end.
    ToDriver {
        link: LinkId,
        piece: Piece,
    },
    /// Something reaches the peer's end.
    ToPeer {
        link: LinkId,
        piece: Piece,
    },
    /// A peer that had paused reads what has piled up.
    PeerReads {
        link: LinkId,
    },
    /// A peer's own timer.
    Timer {
        link: LinkId,
        id: u64,
    },
    SetReach {
        server: Endpoint,
        reach: Reach,
    },
    Kill {
        server: Endpoint,
    },
}

/// What travels on a connection.
pub(super) enum Piece {
    /// The dial succeeded.
    Up,
    /// The dial was refused.
    Refused,
    /// Bytes, and where in the stream they belong.
    Bytes {
        offset: u64,
        bytes: Vec<u8>,
    },
    Fin,
    Reset,
}

/// An action with its place in the order.
pub(super) struct Entry {
    pub(super) at_ns: u64,
    pub(super) sequence: u64,
    pub(super) action: Action,
}

impl Entry {
    fn key(&self) -> (u64, u64) {
        (self.at_ns, self.sequence)
    }
}

/// Reversed, because the standard heap has its greatest on top and the earliest is wanted.
impl Ord for Entry {
    fn cmp(&self, other: &Entry) -> Ordering {
        other.key().cmp(&self.key())
    }
}

impl PartialOrd for Entry {
    fn partial_cmp(&self, other: &Entry) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl PartialEq for Entry {
    fn eq(&self, other: &Entry) -> bool {
        self.key() == other.key()
    }
}

impl Eq for Entry {}
