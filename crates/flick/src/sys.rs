//! What the process's allocator is told, once, before anything large is allocated.
//! Promises: the tables of a service are mappings of their own: zero without being touched, and the kernel's again as soon as
//! the service has gone. From an arena that has been used they would have to be cleared, page by page: after twelve reloads
//! 65 MiB of resident memory had become 220 (`tests/soak.rs`), where it is 31 and 33 now.
//! Refuses: everything else; the one unsafe call of this crate.
#![allow(unsafe_code, reason = "mimalloc's options are set through C alone")]

use std::ffi::c_int;

/// `mi_option_disallow_arena_alloc` of mimalloc 2 and 3: blocks too large for its pages come from the system, one by one.
const DISALLOW_ARENA_ALLOC: c_int = 26;

/// Large blocks come from the system and go back to it.
pub fn map_large_blocks() {
    // SAFETY: the option exists in the version that is linked; it is called before there is a second thread, as mimalloc asks.
    unsafe { libmimalloc_sys::mi_option_set_enabled(DISALLOW_ARENA_ALLOC, true) };
}
