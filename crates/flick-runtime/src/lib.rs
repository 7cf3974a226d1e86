//! The platform: runs a compiled program on every core, between clients and backends.
//! Promises: one session never starves or crashes another; every queue, pool and retry has a limit named in
//! [`limits`] or [`config`]; the path of a message allocates nothing after start.
//! Refuses: knowing a protocol or the compiler. It sees programs only through `flick-abi`.
//! Start reading at `worker.rs`, then `worker/requests.rs` and `worker/replies.rs` for the life of one request.
#![forbid(unsafe_code)]

pub mod backend_set;
mod clock;
pub mod config;
mod context;
mod downstream;
mod inflight;
mod io;
pub mod limits;
mod listener;
mod merge;
pub mod observe;
mod overload;
mod pieces;
mod platform;
pub mod rules;
mod run_queue;
pub mod setup;
mod shared;
mod slab;
pub mod state;
mod stopwatch;
mod thread;
pub mod tunables;
mod upstream;
mod worker;

pub use backend_set::load_balancer::{self, Backends};
pub use config::{
    BackendAddress, BackendMode, BackendOverride, Binding, HealthLimits, Limits, OnMaxConnections,
    PlatformConfig, RetryLimits, TaskScheduling, Timeouts,
};
pub use merge::{Hub, MergeSetup, SinkAt};
pub use observe::access_log::{self, AccessLog};
pub use observe::counters::{BackendCounters, Counters, Totals};
pub use observe::{edge_counters, latency, program_log, session_list, tap, task_counters};
pub use platform::{
    BackendSetHandle, ExitReport, Handoff, LoadedPlatform, Platform, RunningService, ServiceConfig,
    ServiceStats, StatsSnapshot, WorkerTotals, memory, open_files, own_files,
};
pub use rules::host::WorkerHost;
pub use setup::{Setup, StartError};
pub use shared::Shared;
pub use shared::handoff::{HandedConn, SessionCount, Successor};
pub use state::State;
pub use worker::{Worker, WorkerAudit, WorkerConfig};
