//! What a worker counts and records, and what other threads read of it.

pub mod access_log;
pub mod counters;
pub mod edge_counters;
pub(crate) mod heartbeat;
pub mod latency;
pub(crate) mod outlier;
pub mod session_list;
pub mod task_counters;
