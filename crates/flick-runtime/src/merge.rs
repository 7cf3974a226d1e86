//! Merging: the sorted streams of an array of connections become one, through a tree of tasks on all workers.
//! Promises: the result has one element for each key, whatever order bytes arrive in; a tree holds a fixed amount of
//! memory however long its streams are; a job that fails never looks complete to who gets its result.
//! Refuses: sorting. A stream that is out of order fails its job.
//! Source: FLICK §4.3 (`foldt`) and §5 (tasks to workers by hash of their identifiers).
//!
//! Start reading at `node.rs`, then `hub.rs`; the side of the connections is `worker/merging.rs`.

mod code;
mod fault;
mod hub;
mod input;
mod node;
mod tree;

pub use code::{MergeCode, MergeScratch};
pub use fault::MergeFault;
pub use hub::{Hub, JobEnd, JobStage, Leaf};
pub use node::{Node, NodeState};

use flick_abi::Merge;
use flick_net::Endpoint;

/// Destination of the result of a merge.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SinkAt {
    /// To a reducer that the worker connects to, once per job.
    Connect(Endpoint),
    /// To a reducer that has connected to us on that channel.
    Listen,
}

/// A merge bound to addresses.
#[derive(Clone, Debug)]
pub struct MergeSetup {
    /// The merge, as the program declares it.
    pub merge: Merge,
    /// Number of streams: elements of the array.
    pub streams: u32,
    /// Index of the channel of the result.
    pub sink_channel: usize,
    /// Destination of the result of a merge.
    pub sink: SinkAt,
    /// Bytes of a ring between two tasks.
    pub ring_bytes: usize,
}

impl MergeSetup {
    /// Longest record that is put into a ring: many fit, so that both sides work at once.
    pub fn chunk_bytes(&self) -> usize {
        chunk_bytes(self.ring_bytes)
    }
}

/// Longest record of a ring of that size.
fn chunk_bytes(ring_bytes: usize) -> usize {
    (ring_bytes / 2 - 8).min(crate::limits::MERGE_CHUNK_BYTES_MAX)
}
