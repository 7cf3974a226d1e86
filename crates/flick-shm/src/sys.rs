//! System calls: memory files, mappings, memory barriers, futexes, signals through sockets.
//! Promises: a mapping is released when it is dropped, and never earlier; a file of another process is mapped only if
//! it cannot shrink.
//! Refuses: huge pages of hugetlbfs in another process's file: it can take them back, and an access then raises SIGBUS.
//! Transparent huge pages of tmpfs have no such limit.

mod lock;

use core::ffi::CStr;
use core::ptr::{NonNull, null_mut};
use core::sync::atomic::{AtomicU32, Ordering};

use rustix::event::{PollFd, PollFlags, poll};
use rustix::fd::{AsRawFd, BorrowedFd, OwnedFd};
use rustix::fs::{
    MemfdFlags, SealFlags, fcntl_add_seals, fcntl_get_seals, fstat, fstatfs, ftruncate, memfd_create, stat,
};
use rustix::io::Errno;
use rustix::mm::{Advice, MapFlags, ProtFlags, madvise, mmap, mmap_anonymous, munmap};
use rustix::net::{RecvFlags, SendFlags, recv, send};
use rustix::process::{Pid, PidfdFlags, getpid, pidfd_open};
use rustix::thread::futex;
use rustix::thread::{MembarrierCommand, membarrier, membarrier_query, nanosleep};
use rustix::time::{ClockId, clock_gettime};

use crate::limits::{PAGE_BYTES, SIGNALS_PER_LOOK_MAX};
use crate::notify::Signals;
pub(crate) use lock::Lock;

/// `TMPFS_MAGIC` of `statfs(2)`, the file system of a memory file without huge pages of its own.
const TMPFS_MAGIC: u64 = 0x0102_1994;

/// Option of a Unix socket: whether peers may pass descriptors through it (Linux 6.16).
/// Source: `asm-generic/socket.h`.
const SO_PASSRIGHTS: libc::c_int = 83;

/// A signal: one byte of the socket between two processes.
const SIGNAL: u8 = 1;

/// `PID_FS_MAGIC` of `statfs(2)`, the file system of processes.
const PID_FS_MAGIC: u64 = 0x5049_4446;

/// Seals that a segment's file must have: its size is final, and so are the seals.
const SEALS: SealFlags = SealFlags::SHRINK.union(SealFlags::GROW).union(SealFlags::SEAL);

/// Memory that both processes have mapped.
#[derive(Debug)]
pub(crate) struct Mapping {
    start: NonNull<u8>,
    bytes: usize,
    /// Memory of a test, which was allocated and not mapped.
    #[cfg(test)]
    is_allocated: bool,
}

// SAFETY: a mapping belongs to the process, not to a thread, and this type reads and writes nothing; `raw` says why its
// accesses from several threads are sound.
unsafe impl Send for Mapping {}
// SAFETY: as above; `&Mapping` only returns the address and the length.
unsafe impl Sync for Mapping {}

impl Mapping {
    /// Maps the first `bytes` bytes of a sealed file, which the caller has checked with [`sealed_bytes`].
    ///
    /// Errors: those of `mmap(2)`.
    pub fn new(file: BorrowedFd<'_>, bytes: usize, huge_pages: bool) -> Result<Self, Errno> {
        let (access, flags) = (ProtFlags::READ | ProtFlags::WRITE, MapFlags::SHARED);
        // SAFETY: the kernel chooses the address, so no memory of this process is replaced.
        let start = unsafe { mmap(null_mut(), bytes, access, flags, file, 0) }?;
        let start = NonNull::new(start.cast()).ok_or(Errno::NOMEM)?;
        let mapping = Self {
            start,
            bytes,
            #[cfg(test)]
            is_allocated: false,
        };
        if huge_pages {
            // SAFETY: the range is the mapping that was just made; the advice changes no content.
            // A kernel without them refuses, and the segment keeps its small pages.
            let _ = unsafe { madvise(start.as_ptr().cast(), bytes, Advice::LinuxHugepage) };
        }
        Ok(mapping)
    }

    /// Maps a page of zero bytes that only this process has: in the child of a fork it is zero again.
    ///
    /// Errors: those of `mmap(2)`; of `madvise(2)` before Linux 4.14.
    pub fn cleared_by_fork() -> Result<Self, Errno> {
        let (bytes, access) = (PAGE_BYTES as usize, ProtFlags::READ | ProtFlags::WRITE);
        // SAFETY: the kernel chooses the address, so no memory of this process is replaced.
        let start = unsafe { mmap_anonymous(null_mut(), bytes, access, MapFlags::PRIVATE) }?;
        let start = NonNull::new(start.cast()).ok_or(Errno::NOMEM)?;
        let mapping = Self {
            start,
            bytes,
            #[cfg(test)]
            is_allocated: false,
        };
        // SAFETY: the range is the mapping that was just made, and nothing relies on its content in a child.
        unsafe { madvise(start.as_ptr().cast(), bytes, Advice::LinuxWipeOnFork) }?;
        Ok(mapping)
    }

    /// Returns the first byte.
    pub fn start(&self) -> NonNull<u8> {
        self.start
    }

    /// Returns the length.
    pub fn len(&self) -> usize {
        self.bytes
    }

    /// Returns whole pages to the kernel, so that they are zero and no memory; `false` if it did not take them.
    pub fn release(&self, start: NonNull<u8>, bytes: usize) -> bool {
        let offset = (start.addr().get()).checked_sub(self.start.addr().get());
        assert!(
            offset.is_some_and(|offset| offset + bytes <= self.bytes),
            "the pages are inside of the mapping"
        );
        if cfg!(miri) {
            return false;
        }
        // SAFETY: the range is inside of the mapping by the check above. The advice writes zeros as any store of this
        // process would; memory of another kind, such as a test's, is refused.
        unsafe { madvise(start.as_ptr().cast(), bytes, Advice::LinuxRemove) }.is_ok()
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        #[cfg(test)]
        if self.is_allocated {
            let layout = alloc::alloc::Layout::from_size_align(self.bytes, 4096).expect("as in `allocate`");
            // SAFETY: `allocate` took the memory with the same layout, and nothing points there any more, as below.
            unsafe { alloc::alloc::dealloc(self.start.as_ptr(), layout) };
            return;
        }
        // SAFETY: `start` and `bytes` are those of `mmap` in `new`, and no `Area` or `Words` points there any more:
        // each holds a reference-counted owner of this mapping.
        let _ = unsafe { munmap(self.start.as_ptr().cast(), self.bytes) };
    }
}

/// Creates a memory file of `bytes` zero bytes whose size is final.
///
/// Errors: those of `memfd_create(2)`, `ftruncate(2)` and `fcntl(2)`.
pub(crate) fn create_sealed_file(name: &CStr, bytes: u64) -> Result<OwnedFd, Errno> {
    let flags = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING;
    // Kernels before 6.3 do not know the seal against execution.
    let file = match memfd_create(name, flags | MemfdFlags::NOEXEC_SEAL) {
        Err(Errno::INVAL) => memfd_create(name, flags)?,
        file => file?,
    };
    ftruncate(&file, bytes)?;
    fcntl_add_seals(&file, SEALS)?;
    Ok(file)
}

/// Returns the size of a memory file that can neither shrink nor grow; `None` if it can, or has another file system.
///
/// Errors: those of `fcntl(2)` and `fstat(2)`; `INVAL` for a file that has no seals, such as a socket.
pub(crate) fn sealed_bytes(file: BorrowedFd<'_>) -> Result<Option<u64>, Errno> {
    let is_sealed = fcntl_get_seals(file)?.contains(SEALS);
    let is_tmpfs = fstatfs(file)?.f_type as u64 == TMPFS_MAGIC;
    Ok(if is_sealed && is_tmpfs { u64::try_from(fstat(file)?.st_size).ok() } else { None })
}

/// Registers this process as one whose cores other processes may interrupt for a barrier; returns whether it may also
/// ask for one. Only the first call of a process takes long.
pub(crate) fn register_barrier() -> bool {
    /// Number of the process that has registered; a child of a fork registers itself.
    static REGISTERED: AtomicU32 = AtomicU32::new(0);
    let process = getpid().as_raw_nonzero().get().unsigned_abs();
    if REGISTERED.load(Ordering::Relaxed) == process {
        return true;
    }
    let is_registered = membarrier_query().contains_command(MembarrierCommand::GlobalExpedited)
        && membarrier(MembarrierCommand::RegisterGlobalExpedited).is_ok()
        && membarrier(MembarrierCommand::GlobalExpedited).is_ok();
    if is_registered {
        REGISTERED.store(process, Ordering::Relaxed);
    }
    is_registered
}

/// Executes a full memory barrier on every core that runs a registered process; returns whether the kernel allowed it.
pub(crate) fn barrier_everywhere() -> bool {
    membarrier(MembarrierCommand::GlobalExpedited).is_ok()
}

/// Sleeps while the word has the value, until another process wakes it, a signal arrives or the time is over; returns
/// whether it is over. Without a limit no timer is armed and taken back, which costs more than the rest of the call.
pub(crate) fn futex_wait(word: &AtomicU32, value: u32, timeout_ms: Option<u32>) -> bool {
    let timeout = timeout_ms.map(|ms| futex::Timespec {
        tv_sec: i64::from(ms / 1000),
        tv_nsec: i64::from(ms % 1000) * 1_000_000,
    });
    // Every other result means that the caller looks again.
    futex::wait(word, futex::Flags::empty(), value, timeout.as_ref()) == Err(Errno::TIMEDOUT)
}

/// Wakes one thread that sleeps on the word.
pub(crate) fn futex_wake(word: &AtomicU32) {
    // It fails only for addresses that are no word of this process.
    let _ = futex::wake(word, futex::Flags::empty(), 1);
}

/// Wakes all threads that sleep on the word: none of another process gets the wake-up in the place of one of this.
pub(crate) fn futex_wake_all(word: &AtomicU32) {
    // As above.
    let _ = futex::wake(word, futex::Flags::empty(), i32::MAX.unsigned_abs());
}

/// Lets peers of a Unix socket pass descriptors through it, or not. The kernel closes those that are not received on
/// the thread that receives bytes or closes the socket, and a descriptor may take any time to close. Sockets that a
/// listener accepts inherit the option. Returns whether the kernel has it (Linux 6.16); without it, all may.
pub fn allow_descriptors(socket: BorrowedFd<'_>, is_allowed: bool) -> bool {
    let on = libc::c_int::from(is_allowed);
    let (value, bytes) = ((&raw const on).cast(), size_of_val(&on) as libc::socklen_t);
    // SAFETY: `value` points to `bytes` readable bytes for the whole call.
    unsafe { libc::setsockopt(socket.as_raw_fd(), libc::SOL_SOCKET, SO_PASSRIGHTS, value, bytes) == 0 }
}

/// The process at the other end of a Unix socket, as the kernel recorded it when the socket was connected.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PeerCredentials {
    /// Process number; 0: the process is in another PID namespace, and this one has no number for it.
    pub pid: i32,
    /// Effective user.
    pub uid: u32,
}

/// Reads `SO_PEERCRED`; the type of `rustix` has no value for a process without a number.
///
/// Errors: those of getsockopt(2).
pub fn peer_credentials(socket: BorrowedFd<'_>) -> Result<PeerCredentials, Errno> {
    let mut found = libc::ucred { pid: 0, uid: 0, gid: 0 };
    let (value, mut bytes) = ((&raw mut found).cast(), size_of_val(&found) as libc::socklen_t);
    let (level, option) = (libc::SOL_SOCKET, libc::SO_PEERCRED);
    // SAFETY: the kernel writes at most `bytes` bytes to `value`, which points to as many.
    match unsafe { libc::getsockopt(socket.as_raw_fd(), level, option, value, &raw mut bytes) } {
        0 => Ok(PeerCredentials { pid: found.pid, uid: found.uid }),
        _ => {
            // SAFETY: the call has no conditions.
            let errno = unsafe { libc::__errno_location() };
            // SAFETY: the address is that of this thread's error number.
            Err(Errno::from_raw_os_error(unsafe { *errno }))
        }
    }
}

/// Sleeps for a moment, or until a signal arrives.
pub(crate) fn nap(nanoseconds: u32) {
    let _ = nanosleep(&futex::Timespec { tv_sec: 0, tv_nsec: i64::from(nanoseconds) });
}

/// Returns the time of the monotonic clock in nanoseconds.
pub(crate) fn now_ns() -> u64 {
    let now = clock_gettime(ClockId::Monotonic);
    now.tv_sec as u64 * 1_000_000_000 + now.tv_nsec as u64
}

/// Returns the number of this process.
pub(crate) fn process_number() -> u32 {
    getpid().as_raw_pid() as u32
}

/// Returns the namespace in which this process has its number; `None` without `/proc`.
pub(crate) fn process_namespace() -> Option<u64> {
    stat(c"/proc/self/ns/pid").ok().map(|status| status.st_ino)
}

/// Returns a number that the kernel gives to no other process until it is started again; `None` before Linux 6.9.
pub(crate) fn process_birth(number: u32) -> Option<u64> {
    birth_of(&pidfd_open(Pid::from_raw(number as i32)?, PidfdFlags::empty()).ok()?)
}

fn birth_of(process: &OwnedFd) -> Option<u64> {
    let is_unique = fstatfs(process).is_ok_and(|status| status.f_type as u64 == PID_FS_MAGIC);
    if is_unique { fstat(process).ok().map(|status| status.st_ino) } else { None }
}

/// Returns whether a process lives. One with another birth has only its number.
pub(crate) fn is_process_alive(number: u32, birth: Option<u64>) -> bool {
    let Some(number) = Pid::from_raw(number as i32).filter(|_| number <= i32::MAX as u32) else {
        return false;
    };
    let process = match pidfd_open(number, PidfdFlags::empty()) {
        Ok(process) => process,
        Err(errno) => return errno != Errno::SRCH,
    };
    if birth.is_some() && birth_of(&process) != birth {
        return false;
    }
    let mut ended = [PollFd::new(&process, PollFlags::IN)];
    let now = futex::Timespec { tv_sec: 0, tv_nsec: 0 };
    poll(&mut ended, Some(&now)) != Ok(1)
}

/// Signals the process at the other end of a socket. Never blocks: the call says so itself, where the flag of a
/// descriptor that both processes have could be changed by the other one.
pub(crate) fn send_signal(socket: BorrowedFd<'_>) {
    // A full socket is readable already, and a closed one has no reader.
    let _ = send(socket, &[SIGNAL], SendFlags::DONTWAIT | SendFlags::NOSIGNAL);
}

/// Takes the signals of a socket.
pub(crate) fn take_signals(socket: BorrowedFd<'_>) -> Signals {
    let mut bytes = [0; SIGNALS_PER_LOOK_MAX];
    match recv(socket, &mut bytes, RecvFlags::DONTWAIT) {
        Err(Errno::AGAIN | Errno::INTR) => Signals::Nothing,
        Ok((_, count @ 1..)) if bytes.iter().take(count).all(|byte| *byte == SIGNAL) => Signals::Arrived,
        Ok(_) | Err(_) => Signals::Over,
    }
}

#[cfg(test)]
impl Mapping {
    /// Allocates memory that stands for a mapping, for tests and for Miri, which has no `mmap` of files.
    pub fn allocate(bytes: usize) -> Self {
        let layout = alloc::alloc::Layout::from_size_align(bytes, 4096).expect("a small multiple of a page");
        // SAFETY: the layout has a size above 0: callers ask for whole pages.
        let start = unsafe { alloc::alloc::alloc_zeroed(layout) };
        Self { start: NonNull::new(start).expect("tests have memory"), bytes, is_allocated: true }
    }
}
