//! Faults that fail a merge.

/// Fault for which a node fails its job.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MergeFault {
    /// An element is not of the grammar.
    Malformed {
        /// Index of the field in its unit.
        field: u32,
        /// Cause of the fault, see [`flick_abi::ParseStep::Fault`].
        cause: flick_abi::FaultCause,
    },
    /// A stream ended inside an element.
    Truncated,
    /// An element is longer than a merge takes.
    TooLong {
        /// Length of the element, as far as known.
        bytes: u64,
    },
    /// A stream is not sorted.
    Disorder,
    /// The program did not combine two elements, or not into an element.
    Combine,
    /// The program's rule on the result failed.
    Finish,
}
