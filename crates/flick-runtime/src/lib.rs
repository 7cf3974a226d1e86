//! The platform: runs a compiled program on every core, between clients and backends.
//! Promises: one session never starves or crashes another; every queue, pool and retry has a limit named in
//! [`limits`] or [`config`]; the path of a message allocates nothing after start.
//! Refuses: knowing a protocol or the compiler. It sees programs only through `flick-abi`.
//! Start reading at `worker.rs`, then `worker/requests.rs` and `worker/replies.rs` for the life of one request.
#![forbid(unsafe_code)]

pub mod access;
mod activations;
mod ailing;
mod alarms;
mod backend;
mod balance;
mod body;
mod budget;
pub mod census;
pub mod config;
pub mod counters;
mod crew;
mod deadlines;
mod gather;
mod guests;
mod handover;
mod health;
mod heart;
pub mod host;
mod inbox;
pub mod latencies;
mod ledger;
pub mod limits;
mod locals;
pub mod memory;
mod merge;
mod needs;
pub mod open_files;
pub mod pick;
mod pieces;
mod platform;
mod retries;
mod roster;
mod session;
pub mod setup;
mod shared;
mod shedding;
mod slab;
pub mod state;
pub mod tasks;
mod watch;
pub mod ways;
mod worker;

pub use config::{Binding, Limits, Overflow, PlatformConfig, Policy, Timeouts};
pub use counters::{BackendCounters, Counters, Totals};
pub use handover::{Handed, Heir};
pub use health::HealthLimits;
pub use host::{Backends, WorkerHost};
pub use merge::{Hub, MergeSetup, SinkAt};
pub use platform::{Estate, Lists, Outcome, Platform, Running, Service, own_files};
pub use retries::RetryLimits;
pub use roster::Member;
pub use setup::{Setup, StartError};
pub use shared::Shared;
pub use state::State;
pub use watch::{BackendTotals, Snapshot, Watch, WorkerTotals};
pub use worker::{Audit, Worker, WorkerConfig};
