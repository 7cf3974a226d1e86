//! What a worker counts and records, and what other threads read of it.

pub mod access_log;
pub mod counters;
pub mod edge_counters;
pub(crate) mod heartbeat;
pub mod latency;
pub(crate) mod outlier;
pub mod session_list;
pub mod task_counters;

use std::sync::Arc;

use self::access_log::AccessRecorder;
use self::counters::{BackendCounters, Counters};
use self::edge_counters::EdgeCounters;
use self::heartbeat::Heartbeat;

/// Component of the worker. Its counters, the recorder of the access log, and the heartbeat that a watchdog reads.
pub(crate) struct Observe {
    pub(crate) counters: Arc<Counters>,
    pub(crate) backend_counters: Arc<Vec<BackendCounters>>,
    pub(crate) edge_counters: Arc<EdgeCounters>,
    pub(crate) access: Option<Box<AccessRecorder>>,
    pub(crate) heartbeat: Heartbeat,
    /// When the requests arrived that were answered since the clock was last read.
    pub(crate) answered: Vec<u64>,
}
