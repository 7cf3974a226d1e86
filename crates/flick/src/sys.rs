//! Inherited descriptors, and settings of the process's allocator: large blocks are mapped, threads share few arenas,
//! free memory is returned.
//! Promises: the tables of a service are zero pages until they are used, and returned to the kernel when the service
//! ends; a hundred reloads leave the process as large as ten (`tests/soak.rs`). Why this allocator and not a faster
//! one: `docs/decisions/0015-the-systems-allocator.md`. The only unsafe code of this crate.
#![allow(
    unsafe_code,
    reason = "`mallopt` and `malloc_trim` are C functions; a descriptor's number proves nothing"
)]

use std::os::fd::{BorrowedFd, OwnedFd};

use rustix::io::{Errno, FdFlags, fcntl_getfd};

/// Duplicates a descriptor that this process inherited.
///
/// Errors: `BADF`: it is not open, or this process has opened it itself.
pub fn inherited_descriptor(number: u32) -> Result<OwnedFd, Errno> {
    let number = i32::try_from(number).map_err(|_| Errno::BADF)?;
    // SAFETY: the borrow ends with this function, which closes nothing; a number that is not open is an error of the
    // calls below. It is not -1, because it was unsigned.
    let descriptor = unsafe { BorrowedFd::borrow_raw(number) };
    // What this process opens is closed on exec(2), so it cannot be inherited.
    if fcntl_getfd(descriptor)?.contains(FdFlags::CLOEXEC) {
        return Err(Errno::BADF);
    }
    rustix::io::fcntl_dupfd_cloexec(descriptor, 0)
}

/// Size from which blocks are mapped. The default threshold grows with each freed block, up to 32 MiB; below it, blocks
/// are cleared by hand and not returned.
#[cfg(target_env = "gnu")]
const MAPPED_BYTES_MIN: libc::c_int = 256 << 10;

/// Number of arenas. An arena per thread would keep the memory of a service after both have ended.
#[cfg(target_env = "gnu")]
const ARENAS_MAX: libc::c_int = 2;

/// Configures the allocator. Call it before there is a second thread.
pub fn configure_allocator() {
    #[cfg(target_env = "gnu")]
    {
        // SAFETY: `mallopt` takes two integers and rejects invalid ones.
        unsafe { libc::mallopt(libc::M_MMAP_THRESHOLD, MAPPED_BYTES_MIN) };
        // SAFETY: as above.
        unsafe { libc::mallopt(libc::M_ARENA_MAX, ARENAS_MAX) };
    }
}

/// Returns free memory to the kernel. Cost: a walk over the free lists, some milliseconds after a compilation.
pub fn trim_memory() {
    #[cfg(target_env = "gnu")]
    // SAFETY: `malloc_trim` takes the allocator's locks and touches free memory only.
    unsafe {
        libc::malloc_trim(0)
    };
}
