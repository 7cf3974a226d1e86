//! The dictionary that all workers of a service share (`global d: dict<K, V> max N entries, B bytes`).
//! Promises: no allocation after `new`; readers take no lock and, in the common case, write to no shared memory;
//! writers lock one bucket; a value is never torn and never another key's.
//! Refuses: clocks (the caller passes the time), I/O other than snapshots, types (keys and values are bytes).
//! Start reading at [`config`] (the cost), then `bucket` and `store` (the layout), then [`dictionary`].
//! Source: sequence locks as in H.-J. Boehm, "Can seqlocks get along with programming language memory models?";
//! S3-FIFO, with the clock of CLOCK page replacement as its main queue.

#![forbid(unsafe_code)]

pub mod config;
pub mod limits;

mod bucket;
mod eviction;
mod hashing;
mod store;
mod sync;
mod words;

pub mod dictionary;
pub mod snapshot;

pub use config::{DictConfig, Evict, Seed, memory_bytes, min_bytes};
pub use dictionary::{DictCounts, DictError, Dictionary, PendingUpdate};
pub use snapshot::{LoadError, LoadSummary, SnapshotTime};
