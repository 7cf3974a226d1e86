//! What the process's allocator is told: large blocks are mappings of their own, threads share few arenas, what is free goes back.
//! Promises: the tables of a service are zero without being touched, and the kernel's again as soon as the service has gone;
//! a hundred reloads leave the process as large as ten (`tests/soak.rs`). Why this allocator and not a faster one:
//! `docs/decisions/0015-the-systems-allocator.md`.
//! Refuses: everything else; the unsafe calls of this crate.
#![allow(unsafe_code, reason = "the allocator is told through C alone")]

/// Blocks of so many bytes and more are mapped. Left alone, the bound rises with each block that is freed, to 32 MiB, and what
/// lies below it would be cleared by hand and kept.
#[cfg(target_env = "gnu")]
const MAPPED_BYTES_MIN: libc::c_int = 256 << 10;

/// Areas that threads take memory from. A thread of its own keeps what its service was given, after both have gone.
#[cfg(target_env = "gnu")]
const ARENAS_MAX: libc::c_int = 2;

/// Tells the allocator how this process uses memory, before there is a second thread.
pub fn set_up_memory() {
    #[cfg(target_env = "gnu")]
    {
        // SAFETY: `mallopt` takes two numbers; one that it does not like changes nothing.
        unsafe { libc::mallopt(libc::M_MMAP_THRESHOLD, MAPPED_BYTES_MIN) };
        // SAFETY: as above.
        unsafe { libc::mallopt(libc::M_ARENA_MAX, ARENAS_MAX) };
    }
}

/// Gives free memory back to the kernel. Cost: a walk over what is free, some milliseconds after a compilation.
pub fn give_memory_back() {
    #[cfg(target_env = "gnu")]
    // SAFETY: `malloc_trim` takes the allocator's own locks and touches free memory only.
    unsafe {
        libc::malloc_trim(0)
    };
}
