//! System calls: memory files, mappings, memory barriers, futexes, eventfds.
//! Promises: a mapping is released when it is dropped, and never earlier; a file of another process is mapped only if
//! it cannot shrink.
//! Refuses: huge pages of hugetlbfs in another process's file: it can take them back, and an access then raises SIGBUS.
//! Transparent huge pages of tmpfs have no such limit.

use core::ffi::CStr;
use core::ptr::{NonNull, null_mut};
use core::sync::atomic::AtomicU32;

use rustix::event::{EventfdFlags, eventfd};
use rustix::fd::{AsFd, BorrowedFd, OwnedFd};
use rustix::fs::{
    MemfdFlags, OFlags, SealFlags, fcntl_add_seals, fcntl_get_seals, fcntl_getfl, fstat, fstatfs, ftruncate,
    memfd_create,
};
use rustix::io::Errno;
use rustix::mm::{Advice, MapFlags, ProtFlags, madvise, mmap, munmap};
use rustix::thread::futex;
use rustix::thread::{MembarrierCommand, membarrier, membarrier_query};

/// `TMPFS_MAGIC` of `statfs(2)`, the file system of a memory file without huge pages of its own.
const TMPFS_MAGIC: u64 = 0x0102_1994;

/// `ANON_INODE_FS_MAGIC` of `statfs(2)`, the file system of eventfds and others.
const ANON_INODE_MAGIC: u64 = 0x0904_1934;

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
/// ask for one.
pub(crate) fn register_barrier() -> bool {
    membarrier_query().contains_command(MembarrierCommand::GlobalExpedited)
        && membarrier(MembarrierCommand::RegisterGlobalExpedited).is_ok()
        && membarrier(MembarrierCommand::GlobalExpedited).is_ok()
}

/// Executes a full memory barrier on every core that runs a registered process; returns whether the kernel allowed it.
pub(crate) fn barrier_everywhere() -> bool {
    membarrier(MembarrierCommand::GlobalExpedited).is_ok()
}

/// Sleeps while the word has the value, until another process wakes it, a signal arrives or the time is over; returns
/// whether it is over.
pub(crate) fn futex_wait(word: &AtomicU32, value: u32, timeout_ms: u32) -> bool {
    let timeout = futex::Timespec {
        tv_sec: i64::from(timeout_ms / 1000),
        tv_nsec: i64::from(timeout_ms % 1000) * 1_000_000,
    };
    // Every other result means that the caller looks again.
    futex::wait(word, futex::Flags::empty(), value, Some(&timeout)) == Err(Errno::TIMEDOUT)
}

/// Wakes one thread that sleeps on the word.
pub(crate) fn futex_wake(word: &AtomicU32) {
    // It fails only for addresses that are no word of this process.
    let _ = futex::wake(word, futex::Flags::empty(), 1);
}

/// Creates an eventfd that never blocks.
///
/// Errors: those of `eventfd(2)`.
pub(crate) fn create_eventfd() -> Result<OwnedFd, Errno> {
    eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)
}

/// Returns whether a descriptor of another process is an eventfd that does not block: no pipe, socket or file, and of
/// the descriptors that are none of these (epolls, timers) the only one that takes a number. Adding 0 changes nothing.
/// The other process can still make it block later; see the limits in the documentation.
pub(crate) fn is_event(event: BorrowedFd<'_>) -> bool {
    fstatfs(event).is_ok_and(|status| status.f_type as u64 == ANON_INODE_MAGIC)
        && fcntl_getfl(event).is_ok_and(|flags| flags.contains(OFlags::NONBLOCK))
        && rustix::io::write(event, &0_u64.to_ne_bytes()) == Ok(size_of::<u64>())
}

/// Makes an eventfd readable.
pub(crate) fn signal_eventfd(event: impl AsFd) {
    // A full counter is readable already.
    let _ = rustix::io::write(event, &1_u64.to_ne_bytes());
}

/// Clears an eventfd.
pub(crate) fn clear_eventfd(event: impl AsFd) {
    // An empty counter is clear already.
    let _ = rustix::io::read(event, &mut [0; 8]);
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
