//! The dictionary that all workers of a service share (`global d: dict<K, V> max N entries, B bytes`).
//! Promises: no allocation after `new`; readers take no lock and, in the common case, write to no memory that is
//! shared; writers lock one bucket; a value is never torn and never another key's.
//! Refuses: clocks (the caller gives the time), I/O other than snapshots, types (keys and values are bytes).
//! Start reading at [`config`] (what it costs), then `bucket` and `store` (where things lie), then [`dictionary`].
//! Source: sequence locks as in H.-J. Boehm, "Can seqlocks get along with programming language memory models?"; the
//! clock of CLOCK page replacement.

#![forbid(unsafe_code)]

pub mod config;
pub mod limits;

mod bucket;
mod hashing;
mod store;
mod sync;
mod words;

pub mod dictionary;
mod room;
pub mod snapshot;

pub use config::{DictConfig, Evict, Seed, least_bytes, memory_bytes};
pub use dictionary::{Begun, Counts, DictError, Dictionary};
pub use snapshot::{LoadError, Loaded};
