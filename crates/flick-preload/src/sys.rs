//! System calls without libc, the memory of the program's arguments, and the memory of the state.
//! Promises: nothing here calls a function of libc, so that a hook never enters another hook; errors of the kernel are
//! negative results.
#![allow(
    unsafe_code,
    reason = "system calls and pointers of the program; only modules named `sys` and `raw` have such code"
)]

pub mod event;
pub mod pipe;
pub mod socket;

use core::arch::asm;
use core::mem::offset_of;
use core::ptr;
use core::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use core::sync::atomic::{AtomicPtr, AtomicU32, AtomicU64};

use crate::limits::{CHUNK_FDS, FDS_MAX, PAGE_BYTES, PATH_BYTES_MAX};
use crate::permits::{PERMITS_FILE, PollingPermits};
use crate::state::{Chunk, ProcessTable, STATE_BYTES, reason};

/// Makes a system call.
///
/// # Safety
/// The arguments are valid for the call, which keeps the memory that Rust owns as it is.
pub unsafe fn call(number: u32, arguments: [u64; 6]) -> i64 {
    let [a, b, c, d, e, f] = arguments;
    let result: i64;
    // SAFETY: the kernel changes rax, rcx and r11 only; the rest is the caller's contract.
    unsafe {
        asm!("syscall", inlateout("rax") u64::from(number) => result, in("rdi") a, in("rsi") b, in("rdx") c,
            in("r10") d, in("r8") e, in("r9") f, lateout("rcx") _, lateout("r11") _, options(nostack));
    }
    result
}

/// Numbers of system calls that only the library makes.
mod own {
    pub const FSTAT: u32 = 5;
    pub const MMAP: u32 = 9;
    pub const MPROTECT: u32 = 10;
    pub const MUNMAP: u32 = 11;
    pub const IOCTL: u32 = 16;
    pub const MADVISE: u32 = 28;
    pub const GETPID: u32 = 39;
    pub const GETSOCKOPT: u32 = 55;
    pub const FCNTL: u32 = 72;
    pub const FTRUNCATE: u32 = 77;
    pub const UNLINK: u32 = 87;
    pub const GETRLIMIT: u32 = 97;
    pub const GETEUID: u32 = 107;
    pub const GETTID: u32 = 186;
    pub const CLOCK_GETTIME: u32 = 228;
    pub const OPENAT: u32 = 257;
}

const AT_FDCWD: u64 = -100_i64 as u64;
const PROT_READ: u64 = 1;
const PROT_WRITE: u64 = 2;
const PROT_EXEC: u64 = 4;
const MAP_SHARED: u64 = 1;
const MAP_PRIVATE: u64 = 2;
const MAP_FIXED: u64 = 0x10;
const MAP_ANONYMOUS: u64 = 0x20;
const MAP_NORESERVE: u64 = 0x4000;
const MAP_FIXED_NOREPLACE: u64 = 0x10_0000;
const MADV_WIPEONFORK: u64 = 18;
const MADV_POPULATE_WRITE: u64 = 23;
const O_CLOEXEC: u64 = 0o2_000_000;
const O_NOFOLLOW: u64 = 0o400_000;
const SOL_SOCKET: u64 = 1;

/// Makes a system call whose arguments are numbers.
fn plain(number: u32, arguments: [u64; 3]) -> i64 {
    let [a, b, c] = arguments;
    // SAFETY: the callers below pass no pointer.
    unsafe { call(number, [a, b, c, 0, 0, 0]) }
}

/// The thread's number.
pub fn thread_id() -> u32 {
    plain(own::GETTID, [0; 3]) as u32
}

/// The process's number.
pub fn process_id() -> u32 {
    plain(own::GETPID, [0; 3]) as u32
}

/// Whether a thread of this process has ended.
pub fn is_thread_gone(process: u32, thread: u32) -> bool {
    const TGKILL: u32 = 234;
    const NO_SUCH_THREAD: i64 = -3;
    plain(TGKILL, [u64::from(process), u64::from(thread), 0]) == NO_SUCH_THREAD
}

/// Ends the process with `SIGABRT`.
#[cfg(flick_preload)]
pub fn abort() -> ! {
    const KILL: u32 = 62;
    loop {
        plain(KILL, [u64::from(process_id()), 6, 0]);
    }
}

/// Nanoseconds of the monotonic clock.
pub fn now_ns() -> u64 {
    const CLOCK_MONOTONIC: u64 = 1;
    clock_ns(CLOCK_MONOTONIC)
}

fn clock_ns(clock: u64) -> u64 {
    let mut time = [0_u64; 2];
    // SAFETY: the kernel writes two words to `time`.
    unsafe { call(own::CLOCK_GETTIME, [clock, time.as_mut_ptr() as u64, 0, 0, 0, 0]) };
    time[0] * 1_000_000_000 + time[1]
}

/// The name of this thread, which is that of a process with one thread.
fn thread_name() -> [u64; 2] {
    const GET_NAME: u64 = 16;
    let mut name = [0_u64; 2];
    // SAFETY: the kernel writes 16 bytes to `name`.
    unsafe { call(crate::numbers::PRCTL, [GET_NAME, name.as_mut_ptr() as u64, 0, 0, 0, 0]) };
    name
}

/// Most bytes of a file that this process writes or sizes (`ulimit -f`); beyond, the kernel sends SIGXFSZ.
fn file_bytes_max() -> u64 {
    const FSIZE: u64 = 1;
    let mut limit = [u64::MAX; 2];
    // SAFETY: the kernel writes two words to `limit`.
    unsafe { call(own::GETRLIMIT, [FSIZE, limit.as_mut_ptr() as u64, 0, 0, 0, 0]) };
    limit[0]
}

/// An option of a socket, of at most eight bytes.
pub fn socket_option(fd: u64, name: u64) -> Option<u64> {
    let (mut value, mut bytes) = (0_u64, 8_u32);
    let arguments = [fd, SOL_SOCKET, name, &raw mut value as u64, &raw mut bytes as u64, 0];
    // SAFETY: the kernel writes at most `bytes` bytes to `value`, and the length to `bytes`.
    let result = unsafe { call(own::GETSOCKOPT, arguments) };
    (result == 0).then_some(value)
}

/// Facts of a connection of TCP.
#[derive(Debug, Clone, Copy)]
pub struct TcpFacts {
    /// The state, as the kernel numbers them.
    pub state: u8,
    /// Bytes that the program has given to the kernel.
    pub sent: u64,
    /// Bytes that have arrived.
    pub received: u64,
}

/// Asks for `TCP_INFO`.
pub fn tcp_facts(fd: u64) -> Option<TcpFacts> {
    const BYTES: usize = 216;
    const TCP_INFO: u64 = 11;
    /// States with a FIN of this end that may be unsent, FIN_WAIT1, LAST_ACK and CLOSING: it counts as an unsent byte.
    const MAY_OWE_FIN: [u8; 3] = [4, 9, 11];
    let (mut info, mut bytes) = ([0_u64; BYTES / 8], BYTES as u32);
    let arguments = [fd, 6, TCP_INFO, info.as_mut_ptr() as u64, &raw mut bytes as u64, 0];
    // SAFETY: the kernel writes at most `bytes` bytes to `info`, and the length to `bytes`.
    let result = unsafe { call(own::GETSOCKOPT, arguments) };
    // `tcpi_bytes_received`, `tcpi_notsent_bytes`, `tcpi_bytes_sent`, `tcpi_bytes_retrans`.
    let (received, unsent, sent, again) = (info[16], info[18] & 0xffff_ffff, info[25], info[26]);
    let state = info[0] as u8;
    let unsent = unsent.saturating_sub(u64::from(MAY_OWE_FIN.contains(&state)));
    (result == 0 && bytes as usize == BYTES).then_some(TcpFacts {
        state,
        sent: sent.wrapping_sub(again).wrapping_add(unsent),
        received,
    })
}

/// Bytes that can be read from a socket or a pipe (`FIONREAD`).
pub fn unread_bytes(fd: u64) -> u64 {
    let mut bytes = 0_u64;
    // SAFETY: the kernel writes four bytes to `bytes`.
    let result = unsafe { call(own::IOCTL, [fd, 0x541b, &raw mut bytes as u64, 0, 0, 0]) };
    if result == 0 { bytes } else { 0 }
}

/// Whether a descriptor is open for writing.
pub fn is_writable(fd: u64) -> bool {
    const GET_FLAGS: u64 = 3;
    let flags = plain(own::FCNTL, [fd, GET_FLAGS, 0]);
    flags > 0 && flags & 3 != 0
}

/// Mode, device and inode of a file, its owner and its size.
#[derive(Debug, Clone, Copy)]
pub struct FileFacts {
    /// Type and permissions.
    pub mode: u32,
    /// Device and inode.
    pub id: (u64, u64),
    /// Owner.
    pub owner: u32,
    /// Size in bytes.
    pub bytes: u64,
}

/// Asks for the facts of a file.
pub fn file_facts(fd: u64) -> Option<FileFacts> {
    let mut stat = [0_u64; 18];
    // SAFETY: the kernel's `struct stat` has 144 bytes.
    let result = unsafe { call(own::FSTAT, [fd, stat.as_mut_ptr() as u64, 0, 0, 0, 0]) };
    let (mode, owner) = (stat[3] as u32, (stat[3] >> 32) as u32);
    (result == 0).then_some(FileFacts { mode, id: (stat[0], stat[1]), owner, bytes: stat[6] })
}

/// The effective user.
pub fn effective_user() -> u32 {
    plain(own::GETEUID, [0; 3]) as u32
}

/// Memory of the program. Having one means: this is a hook, and the addresses that are read are arguments of its call
/// which the kernel accepts.
#[derive(Debug, Clone, Copy)]
pub struct ProgramMemory(());

impl ProgramMemory {
    /// Promises that addresses come from the call that is hooked.
    ///
    /// # Safety
    /// As the sentence says.
    pub unsafe fn new() -> Self {
        Self(())
    }

    /// Reads a word.
    pub fn word(self, address: u64) -> u64 {
        // SAFETY: the type's contract; `read_unaligned` needs no alignment.
        unsafe { ptr::read_unaligned(address as *const u64) }
    }

    /// Reads half a word.
    pub fn half(self, address: u64) -> u32 {
        // SAFETY: as above.
        unsafe { ptr::read_unaligned(address as *const u32) }
    }

    /// Writes a word, which the kernel would write.
    pub fn set_word(self, address: u64, value: u64) {
        // SAFETY: as above.
        unsafe { ptr::write_unaligned(address as *mut u64, value) };
    }

    /// Writes half a word, which the kernel would write.
    pub fn set_half(self, address: u64, value: u32) {
        // SAFETY: as above.
        unsafe { ptr::write_unaligned(address as *mut u32, value) };
    }

    /// Whether the program surely has memory at an address: on the stack of the first thread, on which this runs, above
    /// the hook's own frame.
    #[inline]
    pub fn is_on_stack(self, address: u64, bytes: u64) -> bool {
        /// Below the stack's top by less than this there is nothing but the stack.
        const STACK_BYTES: u64 = 8 << 20;
        let frame = 0_u8;
        let (top, here) = (STACK_TOP.load(Relaxed), ptr::from_ref(&frame).addr() as u64);
        here < top && top - here < STACK_BYTES && (here..top.saturating_sub(bytes)).contains(&address)
    }

    /// Whether the program can read memory at an address. Where that is not sure, the kernel says it, which takes a
    /// call for each page.
    pub fn is_readable(self, address: u64, bytes: u64) -> bool {
        const SIGPROCMASK: u32 = 14;
        const FAULT: i64 = -14;
        const WORD: u64 = 8;
        const NO_SUCH_CHANGE: u64 = u64::MAX;
        if self.is_on_stack(address, bytes) {
            return true;
        }
        let (first, end) = (address & !(WORD - 1), address.saturating_add(bytes));
        let pages = (first | (PAGE_BYTES as u64 - 1)).saturating_add(1)..end;
        core::iter::once(first).chain(pages.step_by(PAGE_BYTES)).all(|word| {
            // SAFETY: the kernel reads the set at `word`, where it can, and refuses the change.
            unsafe { call(SIGPROCMASK, [NO_SUCH_CHANGE, word, 0, WORD, 0, 0]) != FAULT }
        })
    }

    /// Reads a byte.
    pub fn byte(self, address: u64) -> u8 {
        // SAFETY: as above.
        unsafe { ptr::read(address as *const u8) }
    }

    /// The bytes of a string, up to its end or `bytes_max`.
    pub fn text(self, address: u64, bytes_max: usize) -> &'static [u8] {
        let mut bytes = 0;
        while bytes < bytes_max && self.byte(address + bytes as u64) != 0 {
            bytes += 1;
        }
        // SAFETY: the bytes were read just now, and a call's strings stay while it is made.
        unsafe { core::slice::from_raw_parts(address as *const u8, bytes) }
    }
}

/// An address at the top of the first thread's stack. 0: none is known.
static STACK_TOP: AtomicU64 = AtomicU64::new(0);

/// Notes an address at the top of the first thread's stack.
pub fn set_stack_top(address: u64) {
    STACK_TOP.store(address, Relaxed);
}

/// Makes `execve` or `execveat` with another environment, and returns its error.
pub fn execute(number: u32, arguments: [u64; 6]) -> i64 {
    // SAFETY: the arguments are the program's, but for the environment, which the caller built on its stack.
    unsafe { call(number, arguments) }
}

/// Settings of the process, written once before the first hook.
#[derive(Debug)]
#[repr(C)]
pub struct Settings {
    /// `LD_PRELOAD=` and the library's path.
    pub preload: BoundedText,
    /// `FLICK_ACCEL_STATE=` and the directory of states.
    pub state: BoundedText,
    /// `FLICK_ACCEL_VERIFY=1`, or nothing.
    pub verify: BoundedText,
    /// `FLICK_ACCEL_MOVE=` with its value, or nothing.
    pub moves: BoundedText,
}

/// A text of bounded length, with a zero byte behind it.
#[derive(Debug)]
#[repr(C)]
pub struct BoundedText {
    bytes: [u8; PATH_BYTES_MAX + 64],
    len: usize,
}

impl BoundedText {
    /// The text without any bytes.
    pub const fn empty() -> Self {
        Self { bytes: [0; PATH_BYTES_MAX + 64], len: 0 }
    }

    /// Appends bytes; returns false, and appends none, if they do not fit.
    pub fn push(&mut self, more: &[u8]) -> bool {
        let Some(free) = self.bytes.get_mut(self.len..PATH_BYTES_MAX + 63) else { return false };
        let Some(target) = free.get_mut(..more.len()) else { return false };
        for (to, from) in target.iter_mut().zip(more) {
            *to = *from;
        }
        self.len += more.len();
        true
    }

    /// Appends a number.
    pub fn push_number(&mut self, number: u32) -> bool {
        let mut digits = [0_u8; 10];
        let (mut rest, mut at) = (number, digits.len());
        for digit in digits.iter_mut().rev() {
            *digit = b'0' + (rest % 10) as u8;
            rest /= 10;
            at -= 1;
            if rest == 0 {
                break;
            }
        }
        self.push(digits.get(at..).unwrap_or_default())
    }

    /// The bytes.
    pub fn bytes(&self) -> &[u8] {
        self.bytes.get(..self.len).unwrap_or_default()
    }

    /// The address of the bytes, which end with zero.
    pub fn address(&self) -> u64 {
        self.bytes.as_ptr() as u64
    }
}

static SETTINGS: AtomicPtr<Settings> = AtomicPtr::new(ptr::null_mut());
static STATE: AtomicPtr<ProcessTable> = AtomicPtr::new(ptr::null_mut());
/// A word that is zero in a forked process.
static FORK_WORD: AtomicPtr<AtomicU32> = AtomicPtr::new(ptr::null_mut());

/// The state, once the library is live.
#[inline]
pub fn state() -> Option<&'static ProcessTable> {
    // SAFETY: the pointer is null or a mapping that is never unmapped; `ProcessTable` is made of atomics.
    unsafe { STATE.load(Acquire).as_ref() }
}

/// The word that is zero in a forked process.
#[inline]
pub fn fork_word() -> Option<&'static AtomicU32> {
    // SAFETY: the pointer is null or a mapping that is never unmapped.
    unsafe { FORK_WORD.load(Acquire).as_ref() }
}

/// The settings, once the library is loaded.
pub fn settings() -> Option<&'static Settings> {
    // SAFETY: the pointer is null or a mapping that is never unmapped, and never written after it was set.
    unsafe { SETTINGS.load(Acquire).as_ref() }
}

/// Maps memory, zeroed and private.
fn map_private(bytes: usize) -> Option<*mut u8> {
    let flags = MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE;
    let arguments = [0, bytes as u64, PROT_READ | PROT_WRITE, flags, u64::MAX, 0];
    // SAFETY: a new mapping touches no memory that is in use.
    let address = unsafe { call(own::MMAP, arguments) };
    (address > 0).then_some(address as *mut u8)
}

/// Writes the settings and makes them visible. Called once, before there is a second thread.
pub fn set_settings(write: impl FnOnce(&mut Settings) -> bool) -> bool {
    let Some(memory) = map_private(size_of::<Settings>()) else { return false };
    // SAFETY: the mapping is new, zeroed, large enough and aligned to a page; all zero is a valid `Settings`.
    let settings = unsafe { &mut *memory.cast::<Settings>() };
    let is_written = write(settings);
    if is_written {
        SETTINGS.store(settings, Release);
    }
    is_written
}

/// Maps the word that a fork clears.
///
/// Errors: the kernel cannot do it; forked processes could not be distinguished then.
pub fn set_fork_word() -> Result<(), i64> {
    let memory = map_private(PAGE_BYTES).ok_or(-12)?;
    // SAFETY: the range is the mapping above.
    let result = unsafe { call(own::MADVISE, [memory as u64, PAGE_BYTES as u64, MADV_WIPEONFORK, 0, 0, 0]) };
    if result < 0 {
        return Err(result);
    }
    FORK_WORD.store(memory.cast(), Release);
    if let Some(word) = fork_word() {
        word.store(1, Release);
    }
    Ok(())
}

/// Path of this process's state.
fn state_path(pid: u32) -> Option<BoundedText> {
    path_in_states(|path| path.push_number(pid) && path.push(b".state"))
}

/// Path of a file in the directory of states.
fn path_in_states(push_name: impl FnOnce(&mut BoundedText) -> bool) -> Option<BoundedText> {
    let directory = settings()?.state.bytes().splitn(2, |byte| *byte == b'=').nth(1)?;
    let mut path = BoundedText::empty();
    let is_complete =
        !directory.is_empty() && path.push(directory) && path.push(b"/") && push_name(&mut path);
    is_complete.then_some(path)
}

/// Creates and maps the state of this process: a file, or private memory if that fails.
pub fn create_state() -> Option<&'static ProcessTable> {
    let pid = process_id();
    let shared = state_path(pid).and_then(|path| map_state_file(&path));
    let is_private = shared.is_none();
    let memory = shared.or_else(|| map_private(STATE_BYTES))?;
    // SAFETY: the mapping has `STATE_BYTES` bytes, is zeroed and stays, and all zero is a valid table; other
    // processes read it, and write nothing but offers, which are checked.
    let state = unsafe { &*memory.cast::<ProcessTable>() };
    const CLOCK_BOOTTIME: u64 = 7;
    state.pid.store(pid, Relaxed);
    state.created_ns.store(clock_ns(CLOCK_BOOTTIME), Relaxed);
    for (word, part) in state.name.iter().zip(thread_name()) {
        word.store(part, Relaxed);
    }
    if is_private {
        state.not_followed.fetch_or(reason::PRIVATE, Relaxed);
    }
    Some(state)
}

/// Makes a state the one that hooks use.
pub fn publish_state(state: &'static ProcessTable) {
    STATE.store(ptr::from_ref(state).cast_mut(), Release);
}

/// Creates and maps the file of a state. Where the limit of file sizes is lower than the table, the file is shorter:
/// the chunks behind its end cannot be populated.
fn map_state_file(path: &BoundedText) -> Option<*mut u8> {
    const CREATE: u64 = 0o2 | 0o100 | 0o200;
    // SAFETY: the path ends with zero.
    unsafe { call(own::UNLINK, [path.address(), 0, 0, 0, 0, 0]) };
    let flags = CREATE | O_CLOEXEC | O_NOFOLLOW;
    // SAFETY: as above.
    let fd = unsafe { call(own::OPENAT, [AT_FDCWD, path.address(), flags, 0o600, 0, 0]) };
    let fd = u64::try_from(fd).ok()?;
    let bytes = file_bytes_max().min(STATE_BYTES as u64) & !(PAGE_BYTES as u64 - 1);
    let is_sized = bytes > 0 && plain(own::FTRUNCATE, [fd, bytes, 0]) == 0;
    let arguments = [0, STATE_BYTES as u64, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0];
    // SAFETY: a new mapping touches no memory that is in use.
    let address = if is_sized { unsafe { call(own::MMAP, arguments) } } else { -1 };
    close(fd);
    let is_mapped = address > 0 && populate(address as u64, offset_of!(ProcessTable, chunks));
    if !is_mapped {
        // SAFETY: the path ends with zero.
        unsafe { call(own::UNLINK, [path.address(), 0, 0, 0, 0, 0]) };
    }
    is_mapped.then_some(address as *mut u8)
}

/// The permits to poll.
static PERMITS: AtomicPtr<PollingPermits> = AtomicPtr::new(ptr::null_mut());

/// The permits to poll, if they are there.
pub fn polling_permits() -> Option<&'static PollingPermits> {
    // SAFETY: the pointer is null or a mapping that is never unmapped; `PollingPermits` is made of atomics.
    unsafe { PERMITS.load(Acquire).as_ref() }
}

/// Maps the permits to poll. Without them no wait polls for long.
pub fn map_polling_permits() {
    const READ_WRITE: u64 = 2;
    let Some(path) = path_in_states(|path| path.push(PERMITS_FILE.as_bytes())) else { return };
    let flags = READ_WRITE | O_CLOEXEC | O_NOFOLLOW;
    // SAFETY: the path ends with zero.
    let fd = unsafe { call(own::OPENAT, [AT_FDCWD, path.address(), flags, 0, 0, 0]) };
    let Ok(fd) = u64::try_from(fd) else { return };
    let is_whole = file_facts(fd).is_some_and(|facts| facts.bytes == size_of::<PollingPermits>() as u64);
    let arguments = [0, size_of::<PollingPermits>() as u64, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0];
    // SAFETY: a new mapping touches no memory that is in use.
    let address = if is_whole { unsafe { call(own::MMAP, arguments) } } else { -1 };
    close(fd);
    if address > 0 {
        PERMITS.store(address as *mut PollingPermits, Release);
    }
}

/// Closes a descriptor of the library's own.
pub fn close(fd: u64) {
    plain(crate::numbers::CLOSE, [fd, 0, 0]);
}

/// Allocates the pages of a range, so that no later access can fail.
fn populate(address: u64, bytes: usize) -> bool {
    let first = address & !(PAGE_BYTES as u64 - 1);
    let end = address + bytes as u64;
    // SAFETY: the range is a part of the state's mapping; populating changes no byte.
    let result = unsafe { call(own::MADVISE, [first, end - first, MADV_POPULATE_WRITE, 0, 0, 0]) };
    result == 0
}

/// Populates the chunk of a descriptor. Private memory needs it no less: the kernel may have none.
pub fn populate_chunk(state: &ProcessTable, fd: usize) -> bool {
    let Some(chunk) = state.chunks.get(fd / CHUNK_FDS).filter(|_| fd < FDS_MAX) else {
        state.not_followed.fetch_or(reason::MANY_FDS, Relaxed);
        return false;
    };
    let is_populated = populate(ptr::from_ref(chunk) as u64, size_of::<Chunk>());
    if is_populated {
        state.mark_populated(fd);
    }
    is_populated
}

/// Removes the file of the state.
pub fn remove_state(state: &ProcessTable) {
    if let Some(path) = state_path(state.pid.load(Relaxed)) {
        // SAFETY: the path ends with zero.
        unsafe { call(own::UNLINK, [path.address(), 0, 0, 0, 0, 0]) };
    }
}

/// Opens a file for reading.
pub fn open(path: &BoundedText) -> Result<u64, i64> {
    // SAFETY: the path ends with zero.
    let fd = unsafe { call(own::OPENAT, [AT_FDCWD, path.address(), O_CLOEXEC | O_NOFOLLOW, 0, 0, 0]) };
    u64::try_from(fd).map_err(|_| fd)
}

/// Maps a file for reading.
pub fn map_file(fd: u64, bytes: usize) -> Result<&'static [u8], i64> {
    // SAFETY: a new mapping touches no memory that is in use.
    let address = unsafe { call(own::MMAP, [0, bytes as u64, PROT_READ, MAP_PRIVATE, fd, 0]) };
    if address < 0 {
        return Err(address);
    }
    // SAFETY: the mapping has this many bytes; the file's owner is this user or root, who replaces and does not
    // truncate it.
    Ok(unsafe { core::slice::from_raw_parts(address as *const u8, bytes) })
}

/// Unmaps what [`map_file`] has mapped.
pub fn unmap(bytes: &'static [u8]) {
    // SAFETY: the caller passes the whole mapping, and uses it no more.
    unsafe { call(own::MUNMAP, [bytes.as_ptr() as u64, bytes.len() as u64, 0, 0, 0, 0]) };
}

/// The memory of libc.
#[derive(Debug, Clone, Copy)]
pub struct Libc {
    base: u64,
}

impl Libc {
    /// The libc at an address.
    ///
    /// # Safety
    /// A whole glibc is loaded at `base`.
    pub unsafe fn at(base: u64) -> Self {
        Self { base }
    }

    /// Its bytes at an offset.
    pub fn bytes(self, offset: u32, bytes: u32) -> &'static [u8] {
        // SAFETY: callers read headers, notes and text, which are mapped for reading as long as the process lives.
        unsafe { core::slice::from_raw_parts((self.base + u64::from(offset)) as *const u8, bytes as usize) }
    }

    /// Maps the stubs below it, and the word with the address of `entry` behind them.
    pub fn map_stubs(self, fd: u64, offset: u32, bytes: u32, below: u32, entry: u64) -> Result<(), i64> {
        let (address, bytes) = (self.base - u64::from(below), u64::from(bytes));
        let (page, flags) = (PAGE_BYTES as u64, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE);
        let arguments = [address, bytes + page, PROT_READ | PROT_WRITE, flags, u64::MAX, 0];
        // SAFETY: `MAP_FIXED_NOREPLACE` refuses memory that is in use.
        let result = unsafe { call(own::MMAP, arguments) };
        if result != address as i64 {
            return Err(if result < 0 { result } else { -17 });
        }
        // SAFETY: the word is in the mapping above.
        unsafe { ptr::write((address + bytes) as *mut u64, entry) };
        // SAFETY: the page is in the mapping above.
        unsafe { call(own::MPROTECT, [address + bytes, page, PROT_READ, 0, 0, 0]) };
        let arguments =
            [address, bytes, PROT_READ | PROT_EXEC, MAP_PRIVATE | MAP_FIXED, fd, u64::from(offset)];
        // SAFETY: it replaces a part of the mapping above.
        let result = unsafe { call(own::MMAP, arguments) };
        if result < 0 { Err(result) } else { Ok(()) }
    }

    /// Replaces pages of its text by pages of a file.
    pub fn map_text(self, fd: u64, address: u32, bytes: u32, offset: u32) -> Result<(), i64> {
        let address = self.base + u64::from(address);
        let flags = MAP_PRIVATE | MAP_FIXED;
        let arguments = [address, u64::from(bytes), PROT_READ | PROT_EXEC, flags, fd, u64::from(offset)];
        // SAFETY: the caller has compared the file's pages with those in memory: each instruction stays, or jumps to a
        // stub that is mapped. One thread runs.
        let result = unsafe { call(own::MMAP, arguments) };
        if result < 0 { Err(result) } else { Ok(()) }
    }
}
