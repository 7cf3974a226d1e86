//! System calls and memory of pipes that move: segments, sleeps, the pipe of the kernel, copies between a ring and the
//! program.
//! Promises: a segment that can shrink is refused, so that its memory is always there; a forked process does not have
//! the memory of a segment.

use core::arch::asm;
use core::sync::atomic::AtomicU32;
use core::sync::atomic::Ordering::Relaxed;

use super::{
    AT_FDCWD, BoundedText, MAP_ANONYMOUS, MAP_FIXED, MAP_NORESERVE, MAP_PRIVATE, MAP_SHARED, O_CLOEXEC,
    PROT_READ, PROT_WRITE, ProgramMemory, call, close, file_facts, open, own, plain, settings,
};
use crate::limits::{CALL_BYTES_MAX, RESERVE_FD_MIN, RING_BYTES, SEGMENT_BYTES};
use crate::numbers as nr;
use crate::ring::Control;
use crate::sleep::ON_WORD;

const SIGPROCMASK: u32 = 14;
const SCHED_YIELD: u32 = 24;
const MADVISE: u32 = 28;
const SIGTIMEDWAIT: u32 = 128;
const FUTEX: u32 = 202;
const MEMBARRIER: u32 = 324;
const FUTEX_WAITV: u32 = 449;

/// `EINTR` as a result.
pub const INTERRUPTED: i64 = -4;
/// `EAGAIN` as a result.
pub const AGAIN: i64 = -11;
/// `EPIPE` as a result.
pub const BROKEN: i64 = -32;
/// `ETIMEDOUT` as a result.
pub const TIMED_OUT: i64 = -110;
/// `EINVAL` as a result.
const INVALID: i64 = -22;

/// Lets barriers of other processes reach this one.
pub fn register_barrier() -> bool {
    const REGISTER_GLOBAL_EXPEDITED: u64 = 4;
    plain(MEMBARRIER, [REGISTER_GLOBAL_EXPEDITED, 0, 0]) == 0
}

/// Executes a full fence on all threads of all processes that have registered.
pub fn barrier() {
    const GLOBAL_EXPEDITED: u64 = 2;
    plain(MEMBARRIER, [GLOBAL_EXPEDITED, 0, 0]);
}

/// Lets another thread run.
pub fn yield_core() {
    plain(SCHED_YIELD, [0; 3]);
}

/// The processor's counter of cycles.
#[inline]
pub fn cycles() -> u64 {
    // SAFETY: a program that forbids the instruction (`PR_SET_TSC`) would use it no more itself.
    unsafe { core::arch::x86_64::_rdtsc() }
}

/// The counter of cycles, and the number of the core, and 1. 0: the processor does not say it.
#[inline]
pub fn cycles_and_core() -> (u64, u32) {
    /// The kernel keeps the number in the low bits of what `rdtscp` returns.
    const CORE_MASK: u32 = 0xfff;
    if KNOWS_CORE.load(Relaxed) == 0 {
        return (cycles(), 0);
    }
    let mut core = 0;
    // SAFETY: the processor has the instruction, which writes to `core`; for its counter see above.
    let now = unsafe { core::arch::x86_64::__rdtscp(&raw mut core) };
    (now, (core & CORE_MASK) + 1)
}

/// The number of the core, and 1. 0: the processor does not say it.
#[inline]
pub fn core_number() -> u32 {
    cycles_and_core().1
}

/// 1: the processor has `rdtscp`.
static KNOWS_CORE: AtomicU32 = AtomicU32::new(0);

/// Looks whether the processor says on which core a thread is.
pub fn learn_core() {
    const EXTENDED: u32 = 0x8000_0001;
    const RDTSCP: u32 = 1 << 27;
    let has_extended = core::arch::x86_64::__cpuid(0x8000_0000).eax >= EXTENDED;
    let is_known = has_extended && core::arch::x86_64::__cpuid(EXTENDED).edx & RDTSCP != 0;
    KNOWS_CORE.store(u32::from(is_known), Relaxed);
}

/// Replaces the value of a word that no other thread writes; a signal comes before or behind. Returns whether it had
/// the expected value.
#[inline]
pub fn exchange_alone(word: &AtomicU32, expected: u32, new: u32) -> bool {
    let seen: u32;
    // SAFETY: the word is borrowed; one instruction reads and writes it.
    unsafe {
        asm!("cmpxchg dword ptr [{word}], {new:e}", word = in(reg) word.as_ptr(), new = in(reg) new,
            inlateout("eax") expected => seen, options(nostack));
    }
    seen == expected
}

/// Sleeps while a word has a value, for `ns` at most. A signal whose handler restarts calls continues the sleep.
///
/// Errors: [`INTERRUPTED`], [`TIMED_OUT`], [`AGAIN`] (the word has another value).
pub fn sleep(word: &AtomicU32, value: u32, ns: u64) -> i64 {
    let until = super::now_ns() + ns;
    let until = [until / 1_000_000_000, until % 1_000_000_000];
    // Value, address, `FUTEX2_SIZE_U32`.
    let waiter = [u64::from(value), core::ptr::from_ref(word) as u64, 2];
    let arguments = [waiter.as_ptr() as u64, 1, 0, until.as_ptr() as u64, 1, 0];
    // SAFETY: the kernel reads the waiter and the time, and the word while it is borrowed.
    unsafe { call(FUTEX_WAITV, arguments) }
}

/// Whether [`sleep`] is there: the kernel refuses none of its arguments but the count.
pub fn can_sleep() -> bool {
    plain(FUTEX_WAITV, [0; 3]) == INVALID
}

/// Wakes all who sleep on a word.
pub fn wake(word: &AtomicU32) {
    const WAKE: u64 = 1;
    plain(FUTEX, [core::ptr::from_ref(word) as u64, WAKE, i32::MAX as u64]);
}

/// Wakes who has stored [`ON_WORD`] in a word before it went to sleep on it.
#[inline]
pub fn wake_sleeper(word: &AtomicU32) {
    if word.load(Relaxed) == ON_WORD && word.compare_exchange(ON_WORD, 0, Relaxed, Relaxed).is_ok() {
        wake(word);
    }
}

/// Holds all signals back while it lives.
#[derive(Debug)]
pub struct SignalsHeld {
    before: u64,
}

impl SignalsHeld {
    /// Holds signals back.
    pub fn new() -> Self {
        const BLOCK: u64 = 0;
        let (all, mut before) = (u64::MAX, 0_u64);
        let arguments = [BLOCK, &raw const all as u64, &raw mut before as u64, 8, 0, 0];
        // SAFETY: the kernel reads one word and writes the other.
        unsafe { call(SIGPROCMASK, arguments) };
        Self { before }
    }

    /// Takes back the `SIGPIPE` that a write of the library has caused.
    pub fn discard_broken(&self) {
        let (broken, time) = (1_u64 << 12, [0_u64; 2]);
        let arguments = [&raw const broken as u64, 0, time.as_ptr() as u64, 8, 0, 0];
        // SAFETY: the kernel reads the set and the time.
        unsafe { call(SIGTIMEDWAIT, arguments) };
    }
}

impl Drop for SignalsHeld {
    fn drop(&mut self) {
        const SET: u64 = 2;
        // SAFETY: the kernel reads one word.
        unsafe { call(SIGPROCMASK, [SET, &raw const self.before as u64, 0, 8, 0, 0]) };
    }
}

/// Whether no process holds the other end of a pipe.
pub fn is_alone(fd: u64) -> bool {
    const ERROR_OR_HANGUP: u64 = 0x18;
    poll(fd, 0, 0) & ERROR_OR_HANGUP != 0
}

/// Waits for events of one descriptor, for this time at most, and returns them.
pub(super) fn poll(fd: u64, events: u64, ms: u64) -> u64 {
    let mut entry = fd & 0xffff_ffff | events << 32;
    // SAFETY: the kernel reads and writes one `struct pollfd`, which has eight bytes.
    let ready = unsafe { call(nr::POLL, [&raw mut entry as u64, 1, ms, 0, 0, 0]) };
    // A signal ends the wait as bytes do.
    if ready == 0 { 0 } else { (entry >> 48) | u64::from(ready < 0) }
}

/// Whether a descriptor is an end of a pipe of the default size that has no other settings than `O_NONBLOCK`.
pub fn is_plain_pipe(fd: u64, bytes: u64) -> bool {
    const GET_FLAGS: u64 = 3;
    const GET_PIPE_SIZE: u64 = 1032;
    // Reads or writes, not both; `O_LARGEFILE` says nothing.
    const PLAIN: i64 = 0o104_001;
    let flags = plain(own::FCNTL, [fd, GET_FLAGS, 0]);
    flags >= 0 && flags & !PLAIN == 0 && plain(own::FCNTL, [fd, GET_PIPE_SIZE, 0]) == bytes as i64
}

/// Whether calls on a descriptor wait.
pub fn is_blocking(fd: u64) -> bool {
    const GET_FLAGS: u64 = 3;
    plain(own::FCNTL, [fd, GET_FLAGS, 0]) as u64 & nr::NONBLOCK == 0
}

/// Opens the writable end of the pipe whose readable end is `fd`.
pub fn open_sender(fd: u64) -> Option<u64> {
    const WRITE_NONBLOCK: u64 = 0o4001;
    let mut path = BoundedText::empty();
    let is_complete = path.push(b"/proc/self/fd/") && path.push_number(fd as u32);
    let arguments = [AT_FDCWD, path.address(), WRITE_NONBLOCK | O_CLOEXEC, 0, 0, 0];
    // SAFETY: the path ends with zero.
    let result = if is_complete { unsafe { call(own::OPENAT, arguments) } } else { -1 };
    u64::try_from(result).ok()
}

/// Writes the program's bytes to a descriptor, with the flags of a send if there are any.
pub fn write(fd: u64, address: u64, bytes: u64, flags: u64) -> i64 {
    let number = if flags == 0 { nr::WRITE } else { nr::SENDTO };
    // SAFETY: the kernel reads what the program's own call names, and reports addresses that are none.
    unsafe { call(number, [fd, address, bytes, flags, 0, 0]) }
}

/// Duplicates a descriptor, to a number that no program expects.
pub fn duplicate(fd: u64) -> Option<u64> {
    const DUPLICATE_CLOEXEC: u64 = 1030;
    u64::try_from(plain(own::FCNTL, [fd, DUPLICATE_CLOEXEC, RESERVE_FD_MIN])).ok()
}

/// Whether a thread of this process sleeps in a call whose first argument is this descriptor. Where the kernel does not
/// say it, there is nothing to wait for.
pub fn is_in_call(thread: u32, fd: u64) -> bool {
    let mut path = BoundedText::empty();
    let is_complete = path.push(b"/proc/self/task/") && path.push_number(thread) && path.push(b"/syscall");
    let Some(file) = is_complete.then(|| open(&path).ok()).flatten() else { return true };
    let mut text = [0_u8; 64];
    // SAFETY: the kernel writes at most `text.len()` bytes to `text`.
    unsafe { call(nr::READ, [file, text.as_mut_ptr() as u64, text.len() as u64, 0, 0, 0]) };
    close(file);
    // The number of the call and its arguments, or that the thread runs.
    let argument = text.split(|byte| *byte == b' ').nth(1).and_then(|word| word.strip_prefix(b"0x"));
    let digit = |byte: u8| u64::from(if byte <= b'9' { byte & 0xf } else { (byte & 0xf) + 9 });
    let value = |digits: &[u8]| digits.iter().fold(0_u64, |value, byte| value << 4 | digit(*byte));
    argument.is_some_and(|digits| value(digits) == fd)
}

/// Makes a call of the program as it is.
pub fn repeat(number: u32, arguments: [u64; 6]) -> i64 {
    // SAFETY: the arguments are the program's.
    unsafe { call(number, arguments) }
}

/// Says to the monitor that a pipe or a connection of this process is used.
pub fn knock(pid: u32) {
    const UNIX_DATAGRAM: u64 = 2 | 0o2_004_000;
    let Some(directory) = settings().and_then(|all| all.state.bytes().splitn(2, |byte| *byte == b'=').nth(1))
    else {
        return;
    };
    let mut address = BoundedText::empty();
    if !(address.push(&[1, 0]) && address.push(directory) && address.push(b"/monitor.sock")) {
        return;
    }
    let bytes = address.bytes().len() as u64 + 1;
    if bytes > 110 {
        return;
    }
    let Ok(socket) = u64::try_from(plain(nr::SOCKET, [1, UNIX_DATAGRAM, 0])) else { return };
    const NOSIGNAL_DONTWAIT: u64 = 0x4040;
    let arguments = [socket, &raw const pid as u64, 4, NOSIGNAL_DONTWAIT, address.address(), bytes];
    // SAFETY: the kernel reads four bytes and the address.
    unsafe { call(nr::SENDTO, arguments) };
    close(socket);
}

/// A segment in memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PipeSegment(u64);

impl PipeSegment {
    /// Maps the segment that a monitor offers; also returns a descriptor of it with a number that no program expects.
    /// Replaces `retired`, a segment that [`PipeSegment::retire`] has emptied.
    pub fn map(monitor: u32, fd: u32, retired: Option<Self>) -> Option<(Self, u64)> {
        let mut path = BoundedText::empty();
        let is_complete =
            path.push(b"/proc/") && path.push_number(monitor) && path.push(b"/fd/") && path.push_number(fd);
        const READ_WRITE: u64 = 0o2;
        let arguments = [AT_FDCWD, path.address(), READ_WRITE | O_CLOEXEC, 0, 0, 0];
        // SAFETY: the path ends with zero.
        let result = if is_complete { unsafe { call(own::OPENAT, arguments) } } else { -1 };
        let fd = u64::try_from(result).ok()?;
        let segment = Self::map_file(fd, retired);
        let reserve = duplicate(fd);
        close(fd);
        match (segment, reserve) {
            (Some(segment), Some(reserve)) => Some((segment, reserve)),
            (Some(segment), None) => {
                segment.discard(retired);
                None
            }
            (None, Some(reserve)) => {
                close(reserve);
                None
            }
            (None, None) => None,
        }
    }

    fn map_file(fd: u64, retired: Option<Self>) -> Option<Self> {
        const GET_SEALS: u64 = 1034;
        // `F_SEAL_SEAL`, `F_SEAL_SHRINK`, `F_SEAL_GROW`.
        const SEALS: i64 = 7;
        const POPULATE: u64 = 0x8000;
        let is_sealed = plain(own::FCNTL, [fd, GET_SEALS, 0]) & SEALS == SEALS;
        if !is_sealed || file_facts(fd)?.bytes != SEGMENT_BYTES {
            return None;
        }
        let (at, fixed) = retired.map_or((0, 0), |retired| (retired.0, MAP_FIXED));
        let arguments = [at, SEGMENT_BYTES, PROT_READ | PROT_WRITE, MAP_SHARED | POPULATE | fixed, fd, 0];
        // SAFETY: a new mapping touches no memory that is in use, or replaces one in which no thread writes.
        let address = unsafe { call(own::MMAP, arguments) };
        let segment = Self(u64::try_from(address).ok()?);
        if !segment.is_not_forked() {
            segment.discard(retired);
            return None;
        }
        Some(segment)
    }

    /// Keeps the memory from forked processes.
    fn is_not_forked(self) -> bool {
        const DONT_FORK: u64 = 10;
        // SAFETY: the range is a mapping of `map_file` or of `retire`.
        unsafe { call(MADVISE, [self.0, SEGMENT_BYTES, DONT_FORK, 0, 0, 0]) == 0 }
    }

    /// Gives up what was mapped just now in the place of `retired`.
    pub fn discard(self, retired: Option<Self>) {
        if retired.is_some() {
            self.retire();
        } else {
            self.unmap();
        }
    }

    /// Replaces the segment by empty memory, which reads as a direction in the kernel: a thread that has found the
    /// segment before looks there, and finds nothing.
    pub fn retire(self) {
        let flags = MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED;
        // SAFETY: the range is a mapping of `map_file`, and no thread of this process is in a call there that counts.
        unsafe { call(own::MMAP, [self.0, SEGMENT_BYTES, PROT_READ | PROT_WRITE, flags, u64::MAX, 0]) };
        self.is_not_forked();
    }

    /// The address, for a word that holds it.
    pub fn into_word(self) -> u64 {
        self.0
    }

    /// The segment of a word.
    pub fn from_word(word: u64) -> Option<Self> {
        (word != 0).then_some(Self(word))
    }

    /// Unmaps the segment, which no slot has had.
    fn unmap(self) {
        // SAFETY: the range is a mapping of `map_file`.
        unsafe { call(own::MUNMAP, [self.0, SEGMENT_BYTES, 0, 0, 0, 0]) };
    }

    /// The words.
    #[inline]
    pub fn control(&self) -> &Control {
        // SAFETY: the mapping has a page for the words, which are atomics; it is borrowed while it is mapped.
        unsafe { &*(self.0 as *const Control) }
    }

    /// The address of a byte of the ring, and the bytes up to the ring's end.
    #[inline]
    pub fn at(self, index: u64) -> (u64, u64) {
        let offset = index & (RING_BYTES - 1);
        (self.0 + SEGMENT_BYTES - RING_BYTES + offset, RING_BYTES - offset)
    }

    /// Copies the program's bytes into the ring.
    #[inline]
    pub fn put(self, index: u64, from: u64, bytes: u64) {
        let (to, first) = self.at(index);
        let first = first.min(bytes);
        copy(to, from, first);
        if first < bytes {
            copy(self.at(0).0, from + first, bytes - first);
        }
    }

    /// Copies bytes of the ring to the program.
    #[inline]
    pub fn get(self, index: u64, to: u64, bytes: u64) {
        let (from, first) = self.at(index);
        let first = first.min(bytes);
        copy(to, from, first);
        if first < bytes {
            copy(to + first, self.at(0).0, bytes - first);
        }
    }

    /// Writes bytes of the ring to a pipe; returns the kernel's result.
    pub fn write(self, fd: u64, index: u64, bytes: u64) -> i64 {
        let (at, first) = self.at(index);
        let first = first.min(bytes);
        let vectors = [at, first, self.at(0).0, bytes - first];
        let count = if first < bytes { 2 } else { 1 };
        // SAFETY: the vectors name parts of the ring.
        unsafe { call(nr::WRITEV, [fd, vectors.as_ptr() as u64, count, 0, 0, 0]) }
    }
}

/// Copies bytes between a ring and the program; what the other process writes meanwhile makes them others, no more.
#[inline]
fn copy(to: u64, from: u64, bytes: u64) {
    // SAFETY: one range is a part of a ring, the other one is named by the program's call; they do not overlap.
    // The processor's own copy is no access of Rust, so that a concurrent one is no race of it.
    unsafe {
        asm!("rep movsb", inout("rcx") bytes => _, inout("rdi") to => _, inout("rsi") from => _,
            options(nostack, preserves_flags));
    }
}

/// The bytes that a call of the program reads or writes.
#[derive(Debug, Clone, Copy)]
pub struct Vectors {
    memory: ProgramMemory,
    /// The address of the bytes; of a list if there are several.
    address: u64,
    /// Entries of the list; `None`: there is none, and the length is `bytes`.
    count: Option<u64>,
    /// All bytes.
    pub bytes: u64,
    /// Flags of a send; of a receive only `MSG_PEEK`.
    pub flags: u64,
}

impl Vectors {
    /// The bytes of `read`, `write` and their forms with lists. `None`: the kernel has to judge the call.
    #[inline]
    pub fn of(number: u32, arguments: [u64; 6], memory: ProgramMemory) -> Option<Self> {
        let [_, address, count, ..] = arguments;
        if matches!(number, nr::READV | nr::WRITEV) {
            return Self::list(memory, address, count, 0);
        }
        Self::range(memory, address, count, 0)
    }

    /// The bytes of a range.
    #[inline]
    pub fn range(memory: ProgramMemory, address: u64, bytes: u64, flags: u64) -> Option<Self> {
        (bytes <= CALL_BYTES_MAX).then_some(Self { memory, address, count: None, bytes, flags })
    }

    /// The bytes of a list of ranges.
    #[inline]
    pub fn list(memory: ProgramMemory, address: u64, count: u64, flags: u64) -> Option<Self> {
        const VECTORS_MAX: u64 = 1024;
        if count > VECTORS_MAX {
            return None;
        }
        let mut bytes = 0_u64;
        for index in 0..count {
            bytes = bytes.checked_add(memory.word(address + 16 * index + 8))?;
        }
        (bytes <= CALL_BYTES_MAX).then_some(Self { memory, address, count: Some(count), bytes, flags })
    }

    /// Whether a receive leaves the bytes where they are.
    #[inline]
    pub fn peeks(&self) -> bool {
        self.flags & nr::MSG_PEEK != 0
    }

    /// Whether the bytes are one range; its address.
    pub fn single(&self) -> Option<u64> {
        self.count.is_none().then_some(self.address)
    }

    /// Calls `visit` with each range of `bytes` bytes from `skip` on, until it returns false.
    #[inline]
    pub fn ranges(&self, skip: u64, bytes: u64, mut visit: impl FnMut(u64, u64) -> bool) {
        let Some(count) = self.count else {
            visit(self.address + skip, bytes);
            return;
        };
        let (mut skip, mut left) = (skip, bytes);
        for index in 0..count {
            let at = self.address + 16 * index;
            let (address, bytes) = (self.memory.word(at), self.memory.word(at + 8));
            let skipped = skip.min(bytes);
            skip -= skipped;
            let part = (bytes - skipped).min(left);
            left -= part;
            if part > 0 && !visit(address + skipped, part) {
                return;
            }
        }
    }
}
