//! Names in shared memory that threads of one process use between each other: copies between descriptors and rings.
//! Promises: no other process has the name; what passes through such connections is no use of shared memory.
//! Not here: the copies.

use std::sync::atomic::{AtomicU32, Ordering};

use crate::address::Endpoint;

/// Begin of the names.
const PREFIX: &str = "flick-descriptor-";

/// Returns a new name.
pub fn internal_shm_name() -> String {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    format!("{PREFIX}{}-{}", std::process::id(), NEXT.fetch_add(1, Ordering::Relaxed))
}

/// Returns whether a name is one of this process.
pub(crate) fn is_internal(name: &str) -> bool {
    let rest = name.strip_prefix(PREFIX).and_then(|rest| rest.split_once('-'));
    rest.is_some_and(|(process, _)| process.parse() == Ok(std::process::id()))
}

/// Returns whether an address is one of this process.
pub(crate) fn is_of(at: &Endpoint) -> bool {
    matches!(at, Endpoint::Shm(name) if is_internal(name))
}
