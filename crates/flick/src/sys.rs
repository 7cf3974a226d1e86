//! Inherited descriptors and signals, and settings of the process's allocator: large blocks are mapped, threads share
//! few arenas, free memory is returned.
//! Promises: the tables of a service are zero pages until they are used, and returned to the kernel when the service
//! ends; a hundred reloads leave the process as large as ten (`tests/soak.rs`). Why this allocator and not a faster
//! one: `docs/decisions/0015-the-systems-allocator.md`. The only unsafe code of this crate.
#![allow(
    unsafe_code,
    reason = "`mallopt`, `malloc_trim` and `sigaction` are C functions; a descriptor's number proves nothing"
)]

use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::os::unix::process::CommandExt;
use std::process::Command;
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};

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

/// Takes over standard input, which is `/dev/null` from now on.
///
/// Errors: `EMFILE` and other errors of duplicating and opening files.
pub fn take_stdin() -> io::Result<OwnedFd> {
    let (taken, null) = (io::stdin().as_fd().try_clone_to_owned()?, std::fs::File::open("/dev/null")?);
    // SAFETY: standard input belongs to no value that would close it.
    match unsafe { libc::dup2(null.as_raw_fd(), 0) } {
        0 => Ok(taken),
        _ => Err(io::Error::last_os_error()),
    }
}

/// Facts that this process has inherited: bits 0 to 2 for standard descriptors that were closed, [`SIGPIPE_IGNORED`].
static INHERITED: AtomicU32 = AtomicU32::new(0);
const SIGPIPE_IGNORED: u32 = 8;

// Runs before the runtime of Rust, which opens closed standard descriptors and ignores SIGPIPE.
#[used]
#[unsafe(link_section = ".init_array")]
static RECORD_INHERITED: extern "C" fn() = record_inherited;

extern "C" fn record_inherited() {
    let mut inherited = 0;
    for number in 0..3 {
        // SAFETY: the borrow ends with the statement; a number that is not open is an error of the call.
        if fcntl_getfd(unsafe { BorrowedFd::borrow_raw(number) }).is_err() {
            inherited |= 1 << number;
        }
    }
    // SAFETY: all zero is a valid `sigaction`.
    let mut action: libc::sigaction = unsafe { std::mem::zeroed() };
    // SAFETY: the function writes to `action` only.
    unsafe { libc::sigaction(libc::SIGPIPE, std::ptr::null(), &raw mut action) };
    if action.sa_sigaction == libc::SIG_IGN {
        inherited |= SIGPIPE_IGNORED;
    }
    INHERITED.store(inherited, Relaxed);
}

/// Replaces this process by a program that inherits the standard descriptors, the action of SIGPIPE and the blocked
/// signals that this process has inherited.
pub fn exec_as_inherited(mut command: Command) -> std::io::Error {
    let inherited = INHERITED.load(Relaxed);
    // SAFETY: all zero is a valid set of signals.
    let mut blocked: libc::sigset_t = unsafe { std::mem::zeroed() };
    // SAFETY: the function writes to `blocked` only.
    unsafe { libc::pthread_sigmask(libc::SIG_SETMASK, std::ptr::null(), &raw mut blocked) };
    let restore = move || {
        if inherited & SIGPIPE_IGNORED != 0 {
            // SAFETY: no handler is installed.
            unsafe { libc::signal(libc::SIGPIPE, libc::SIG_IGN) };
        }
        // SAFETY: the function reads `blocked` only.
        unsafe { libc::pthread_sigmask(libc::SIG_SETMASK, &raw const blocked, std::ptr::null_mut()) };
        for number in (0..3).filter(|number| inherited & 1 << number != 0) {
            // SAFETY: the runtime has opened it, and nothing uses it but messages about a failure.
            unsafe { libc::close(number) };
        }
        Ok(())
    };
    // SAFETY: `restore` runs in this process, which has one thread; its functions are safe in signal handlers.
    unsafe { command.pre_exec(restore) };
    command.exec()
}

/// SIGHUP, SIGUSR1 and SIGUSR2, which wait until this is dropped: the process has no handlers yet, and their default
/// action would end it.
pub struct HeldSignals {
    /// The signals that were blocked before.
    before: libc::sigset_t,
}

impl HeldSignals {
    /// Holds them, in this thread and those that it starts.
    pub fn hold() -> Self {
        // SAFETY: all zero is a valid set of signals.
        let (mut held, mut before): (libc::sigset_t, libc::sigset_t) = unsafe { std::mem::zeroed() };
        for signal in [libc::SIGHUP, libc::SIGUSR1, libc::SIGUSR2] {
            // SAFETY: the function writes to `held` only.
            unsafe { libc::sigaddset(&raw mut held, signal) };
        }
        // SAFETY: the function reads `held`, and writes to `before` only.
        unsafe { libc::pthread_sigmask(libc::SIG_BLOCK, &raw const held, &raw mut before) };
        Self { before }
    }
}

impl Drop for HeldSignals {
    fn drop(&mut self) {
        // SAFETY: the function reads `before` only.
        unsafe { libc::pthread_sigmask(libc::SIG_SETMASK, &raw const self.before, std::ptr::null_mut()) };
    }
}

/// Has programs that this process starts inherit nothing but the three standard descriptors.
pub fn close_on_exec() {
    const FIRST: libc::c_uint = 3;
    // SAFETY: the call sets flags of descriptors; a kernel without it refuses, and closes none.
    unsafe {
        libc::syscall(libc::SYS_close_range, FIRST, libc::c_uint::MAX, libc::CLOSE_RANGE_CLOEXEC);
    }
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

/// Disables transparent huge pages, but for memory that asks for them. Tables are as large as their limits, and their
/// pages are touched only when used; a huge page would touch 2 MiB at a time, so that 10,000 idle connections would use
/// the memory of 40,000. A kernel before Linux 6.18 has no such exception: there, nothing is disabled unless all memory
/// of all programs gets huge pages.
///
/// Errors: those of prctl(2).
pub fn disable_huge_pages() -> io::Result<()> {
    const EXCEPT_ADVISED: libc::c_ulong = 1 << 1;
    let disable = |flags: libc::c_ulong| {
        // SAFETY: the call sets a flag of the process.
        match unsafe {
            libc::prctl(
                libc::PR_SET_THP_DISABLE,
                1 as libc::c_ulong,
                flags,
                0 as libc::c_ulong,
                0 as libc::c_ulong,
            )
        } {
            0 => Ok(()),
            _ => Err(io::Error::last_os_error()),
        }
    };
    disable(EXCEPT_ADVISED).or_else(|error| {
        let enabled = std::fs::read_to_string("/sys/kernel/mm/transparent_hugepage/enabled");
        match enabled {
            Ok(text) if text.contains("[always]") => disable(0),
            Ok(_) => Ok(()),
            Err(_) => Err(error),
        }
    })
}

/// Returns free memory to the kernel. Cost: a walk over the free lists, some milliseconds after a compilation.
pub fn trim_memory() {
    #[cfg(target_env = "gnu")]
    // SAFETY: `malloc_trim` takes the allocator's locks and touches free memory only.
    unsafe {
        libc::malloc_trim(0)
    };
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU32, Ordering};

    use super::HeldSignals;

    static SEEN: AtomicU32 = AtomicU32::new(0);

    extern "C" fn note(_signal: libc::c_int) {
        SEEN.fetch_add(1, Ordering::Relaxed);
    }

    #[test]
    fn held_signals_arrive_when_they_are_let_go() {
        // SAFETY: the handler adds to an atomic number, and nothing else.
        unsafe { libc::signal(libc::SIGUSR1, note as *const () as libc::sighandler_t) };
        let held = HeldSignals::hold();
        // SAFETY: the call sends a signal that has a handler to this thread.
        unsafe { libc::raise(libc::SIGUSR1) };
        assert_eq!(SEEN.load(Ordering::Relaxed), 0);
        drop(held);
        assert_eq!(SEEN.load(Ordering::Relaxed), 1);
    }
}
