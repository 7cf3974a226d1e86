//! Network buffers of one worker: pooled, reference-counted, append-only, shared without copying.
//! Promises: no heap allocation after [`Pool::new`]; memory is first touched when it is used, and given back when it
//! has not been used for a while; an appended byte never changes while a handle exists; exhaustion is `None`, not a
//! wait and not a crash.
//! Refuses: crossing threads (a pool and everything from it is `!Send`); growing; buffers of other sizes.
//! Source: FLICK §5 (buffers and task graphs are pre-allocated); slab free lists.

mod buf;
pub mod limits;
mod pool;
mod raw;
mod slice;
mod sys;

pub use buf::{Buf, ProvidedBuf};
pub use limits::{HUGE_BYTES, LARGE_BYTES, SMALL_BYTES};
pub use pool::{BufClass, Pool, PoolConfig};
pub use raw::Pages;
pub use slice::{Slice, pinned_bytes};
pub use sys::advise_huge_pages;
