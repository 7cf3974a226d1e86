//! Events of threads that sleep (`eventfd`), and waits of the kernel beside one.
//! Promises: the event of another process is used only if the kernel's number of it proves that it is the one which was
//! meant.

use super::pipe::{duplicate, repeat};
use super::socket::descriptor_of;
use super::{AT_FDCWD, BoundedText, O_CLOEXEC, call, close, own, plain};
use crate::limits::SELECT_FDS_MAX;
use crate::numbers as nr;

const EVENTFD2: u32 = 290;
const POLLIN: u64 = 1;
/// `EBADF` as a result.
pub const BAD_DESCRIPTOR: i64 = -9;

/// Moves a descriptor out of the numbers that programs use.
fn kept_above(fd: u64) -> Option<u32> {
    let kept = duplicate(fd);
    close(fd);
    kept.and_then(|kept| u32::try_from(kept).ok())
}

/// The descriptor, if it is an event; else it is closed. With the kernel's number of it.
fn numbered(fd: u32) -> Option<(u32, u32)> {
    let id = id_of(fd);
    if id.is_none() {
        close(u64::from(fd));
    }
    Some((fd, id?))
}

/// Makes an event; returns its descriptor and the kernel's number of it.
pub fn create() -> Option<(u32, u32)> {
    const CLOEXEC_NONBLOCK: u64 = 0o2_004_000;
    numbered(kept_above(u64::try_from(plain(EVENTFD2, [0, CLOEXEC_NONBLOCK, 0])).ok()?)?)
}

/// Gets the event of another process that the kernel has given this number.
pub fn of_process(process: u32, fd: u32, expected_id: u32) -> Option<u32> {
    let (fd, id) = numbered(kept_above(descriptor_of(process, fd)?)?)?;
    if id == expected_id {
        return Some(fd);
    }
    close(u64::from(fd));
    None
}

/// The kernel's number of an event. `None`: the descriptor is none.
fn id_of(fd: u32) -> Option<u32> {
    const LABEL: &[u8] = b"eventfd-id:";
    let mut path = BoundedText::empty();
    if !(path.push(b"/proc/self/fdinfo/") && path.push_number(fd)) {
        return None;
    }
    // SAFETY: the path ends with zero.
    let file = unsafe { call(own::OPENAT, [AT_FDCWD, path.address(), O_CLOEXEC, 0, 0, 0]) };
    let (file, mut text) = (u64::try_from(file).ok()?, [0_u8; 512]);
    // SAFETY: the kernel writes at most as many bytes as `text` has.
    let bytes = unsafe { call(nr::READ, [file, text.as_mut_ptr() as u64, text.len() as u64, 0, 0, 0]) };
    close(file);
    let text = text.get(..usize::try_from(bytes).ok()?)?;
    let line = text.split(|byte| *byte == b'\n').find_map(|line| line.strip_prefix(LABEL))?;
    let digits = line.iter().filter(|byte| byte.is_ascii_digit());
    Some(digits.fold(0_u32, |number, digit| number.wrapping_mul(10).wrapping_add(u32::from(digit - b'0'))))
}

/// Wakes the thread that waits for an event. Returns whether the event was there.
pub fn signal(fd: u32) -> bool {
    let one = 1_u64;
    // SAFETY: the kernel reads one word.
    unsafe { call(nr::WRITE, [u64::from(fd), &raw const one as u64, 8, 0, 0, 0]) == 8 }
}

/// Takes back what [`signal`] has done. Returns whether the event is there.
pub fn drain(fd: u32) -> bool {
    let mut count = 0_u64;
    // SAFETY: the kernel writes one word.
    let result = unsafe { call(nr::READ, [u64::from(fd), &raw mut count as u64, 8, 0, 0, 0]) };
    result != BAD_DESCRIPTOR
}

/// Outcome of a wait beside an event.
#[derive(Debug, Clone, Copy)]
pub struct Beside {
    /// Files of the program that are ready, or the error.
    pub result: i64,
    /// Whether the event has come.
    pub is_signalled: bool,
    /// Whether the time is over.
    pub is_over: bool,
}

impl Beside {
    fn new(result: i64, is_signalled: bool) -> Self {
        Self { result: result - i64::from(is_signalled), is_signalled, is_over: result == 0 }
    }
}

fn time_of(ns: u64) -> [u64; 2] {
    [ns / 1_000_000_000, ns % 1_000_000_000]
}

/// Makes an `epoll_ctl`; returns the kernel's result.
pub fn control(epoll: u32, operation: u32, fd: u32, (events, data): (u32, u64)) -> i64 {
    // `struct epoll_event` is packed.
    let event = [events, data as u32, (data >> 32) as u32];
    let arguments = [epoll, operation, fd].map(u64::from);
    // SAFETY: the kernel reads the event.
    unsafe { call(nr::EPOLL_CTL, [arguments[0], arguments[1], arguments[2], event.as_ptr() as u64, 0, 0]) }
}

/// An entry of a poll that waits for bytes of a descriptor.
pub fn readable(fd: u32) -> u64 {
    u64::from(fd) | POLLIN << 32
}

/// Waits for the entries of a poll, for `ns` at most. The last one becomes that of the event.
pub fn poll(entries: &mut [u64], event: u32, ns: u64, mask: [u64; 2]) -> Beside {
    let (count, time) = (entries.len() as u64, time_of(ns));
    if let Some(last) = entries.last_mut() {
        *last = readable(event);
    }
    let arguments = [entries.as_mut_ptr() as u64, count, time.as_ptr() as u64, mask[0], mask[1], 0];
    let result = repeat(nr::PPOLL, arguments);
    Beside::new(result, result > 0 && entries.last().is_some_and(|last| last >> 48 != 0))
}

/// Words of a set of `select`.
pub const SET_WORDS: usize = SELECT_FDS_MAX / 64;

/// Waits for the files of three sets and for an event, for `ns` at most.
/// `None`: its number is too large for a set.
pub fn select(
    sets: &mut [[u64; SET_WORDS]; 3],
    count: u64,
    event: u32,
    ns: u64,
    mask: u64,
) -> Option<Beside> {
    let (word, bit) = (event as usize / 64, 1_u64 << (event % 64));
    *sets[0].get_mut(word)? |= bit;
    let time = time_of(ns);
    let [reads, writes, others] = sets.each_mut().map(|set| set.as_mut_ptr() as u64);
    let count = count.max(u64::from(event) + 1);
    let result = repeat(nr::PSELECT6, [count, reads, writes, others, time.as_ptr() as u64, mask]);
    let own = sets[0].get_mut(word)?;
    let is_signalled = result > 0 && *own & bit != 0;
    *own &= !bit;
    Some(Beside::new(result, is_signalled))
}
