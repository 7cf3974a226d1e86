//! Violations of the shared-memory protocol by the other process.
//! Promises: every value that the other process can write is checked before it is used as an index, a length or a
//! state; a wrong one becomes one of these faults, and costs the connection or the pair that it belongs to.

use core::fmt;

/// A violation of the shared-memory protocol by the other process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PeerFault {
    /// The sender's index is smaller than before.
    HeadDecreased,
    /// The sender's index is further than the ring is long.
    HeadOutOfRange,
    /// The receiver's index is smaller than before.
    TailDecreased,
    /// The receiver's index is beyond what was sent.
    TailOutOfRange,
    /// The number of the sender's ring is neither the present one nor the next.
    RingNumber,
    /// The sender's ring is not inside its arena, not aligned, or has no valid size.
    RingLocation,
    /// The sender's next ring starts at an impossible offset of the stream.
    RingStart,
    /// A sleep word has a value that no side writes.
    SleepWord,
    /// The other side answers in a slot with another generation than the connection's.
    SlotGeneration,
    /// The state of the transport switch is none that follows the former one.
    SwitchState,
    /// The cut of a direction is inconsistent with what this side has sent or received.
    SwitchCut,
}

impl fmt::Display for PeerFault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::HeadDecreased => "the sender's index decreased",
            Self::HeadOutOfRange => "the sender's index is beyond the ring",
            Self::TailDecreased => "the receiver's index decreased",
            Self::TailOutOfRange => "the receiver's index is beyond what was sent",
            Self::RingNumber => "the sender skipped a ring",
            Self::RingLocation => "the sender's ring is outside of its arena",
            Self::RingStart => "the sender's next ring starts at an impossible offset",
            Self::SleepWord => "a sleep word has an unknown value",
            Self::SlotGeneration => "a slot has another generation than its connection",
            Self::SwitchState => "the state of the transport switch is impossible",
            Self::SwitchCut => "the cut of a direction is impossible",
        })
    }
}

impl core::error::Error for PeerFault {}
