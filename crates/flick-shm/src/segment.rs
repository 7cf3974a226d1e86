//! A pair segment: the memory that two processes share, made once and divided into connection slots and rings.
//! Promises: both processes compute the same parts from two numbers of the header; a segment of another process is used
//! only if its file cannot shrink, its size is the one of the header, and both know the layout; a part is handed out
//! only if it is inside.
//! Refuses: trusting the header after [`Segment::open`]: nothing is read from it twice.
//!
//! ```text
//! 0        header, words of each side, summaries and words of the ready bitmaps
//! ...      slots, each with two directions of 256 bytes
//! ...      members; two tokens of 64 bytes for each direction: memory only where directions switch
//! ...      arena of side 0, arena of side 1: the rings that it sends through
//! ```

use alloc::sync::Arc;
use core::fmt;

use rustix::fd::{AsFd, OwnedFd};
use rustix::io::Errno;

use crate::control::{Direction, MembersWords, ProcessWords, SideWords, ThreadWords, TokenWords};
use crate::limits::{
    ARENA_BYTES_MAX, ARENA_BYTES_MIN, DIRECTION_BYTES, HUGE_PAGE_BYTES, PAGE_BYTES, PROCESSES_MAX,
    SEGMENT_BYTES_MAX, SLOTS_MAX, SLOTS_MIN, THREADS_MAX,
};
use crate::members::{EndNumber, Members, Threads};
use crate::raw::{Window, WordList, Words};
use crate::ready::ReadyBitmap;
use crate::sleep::Fencing;
use crate::switch::{Injector, PlainSteps, SwitchReceiver, SwitchSender, SwitchedRing};
use crate::sync::{AtomicU64, Ordering};
use crate::sys::{self, Mapping};
use crate::token::Token;

/// First word of a segment: "flickshm".
const MAGIC: u64 = u64::from_le_bytes(*b"flickshm");
/// Version of the layout; both sides must have the same.
pub const LAYOUT_VERSION: u32 = 3;
/// Capability bit: the side has attached.
pub const CAPABILITY_ATTACHED: u32 = 1;
/// Capability bit: the side may execute `membarrier(2)` on all cores, and other processes on its own.
pub const CAPABILITY_BARRIER: u32 = 2;

/// Offsets of the header's words.
const MAGIC_AT: u64 = 0;
const VERSION_AT: u64 = 8;
const SEGMENT_BYTES_AT: u64 = 16;
const SLOTS_AT: u64 = 24;
/// Offset of the words of side 0; those of side 1 follow.
const SIDES_AT: u64 = 128;
const SIDE_STRIDE: u64 = 128;
/// Offset of the summaries of the ready bitmaps.
const SUMMARIES_AT: u64 = 512;
const SUMMARY_STRIDE: u64 = 256;
/// Offset of the words of the ready bitmaps.
const READY_AT: u64 = PAGE_BYTES;

/// Bytes of a token.
const TOKEN_BYTES: u64 = size_of::<TokenWords>() as u64;
/// Offsets within the members: the threads, the processes, the end.
const THREADS_AT: u64 = size_of::<MembersWords>() as u64;
const PROCESSES_AT: u64 = THREADS_AT + THREADS_MAX as u64 * size_of::<ThreadWords>() as u64;
const MEMBERS_BYTES: u64 = PROCESSES_AT + PROCESSES_MAX as u64 * size_of::<ProcessWords>() as u64;

const _: () = {
    assert!(SIDES_AT + 2 * SIDE_STRIDE <= SUMMARIES_AT);
    assert!((SLOTS_MAX / 64 / 64 * 8) as u64 <= SUMMARY_STRIDE);
    assert!(SUMMARIES_AT + 2 * SUMMARY_STRIDE <= READY_AT);
    assert!(size_of::<SideWords>() as u64 <= SIDE_STRIDE);
};

/// One of the two processes of a pair: side 0 created the segment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Side {
    /// The creator.
    Zero,
    /// The process that received the segment.
    One,
}

impl Side {
    /// Returns the other side.
    pub fn other(self) -> Self {
        match self {
            Self::Zero => Self::One,
            Self::One => Self::Zero,
        }
    }

    pub(crate) fn index(self) -> u64 {
        match self {
            Self::Zero => 0,
            Self::One => 1,
        }
    }
}

/// Sizes of a segment.
#[derive(Clone, Copy, Debug)]
pub struct SegmentConfig {
    /// Connection slots, a power of two; each side opens connections in one half of them.
    pub slots: u32,
    /// Bytes for the rings of each side, a power of two.
    pub arena_bytes: u64,
    /// Whether to ask for transparent huge pages. An idle connection then costs more memory.
    pub huge_pages: bool,
}

impl SegmentConfig {
    /// Returns whether a segment can have these sizes.
    pub(crate) fn is_valid(&self) -> bool {
        Parts::new(self.slots, self.arena_bytes).is_some()
    }
}

impl Default for SegmentConfig {
    fn default() -> Self {
        Self { slots: 1 << 14, arena_bytes: 256 << 20, huge_pages: false }
    }
}

/// Failure to create or open a segment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SegmentError {
    /// A size of the configuration is outside of the limits or no power of two.
    Config,
    /// A system call failed.
    System(Errno),
    /// The file can shrink or grow, or is no memory file of tmpfs.
    NotSealed,
    /// The file's size is outside of the limits or not the one of its header.
    Size,
    /// The file begins with another word than a segment.
    Magic,
    /// The file has this version of the layout.
    Version(u32),
}

impl fmt::Display for SegmentError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Config => f.write_str("a size of the segment is outside of its limits"),
            Self::System(errno) => write!(f, "system call failed: {errno}"),
            Self::NotSealed => f.write_str("the segment's file is not a sealed memory file"),
            Self::Size => f.write_str("the segment's file has the wrong size"),
            Self::Magic => f.write_str("the file is not a segment"),
            Self::Version(version) => {
                write!(f, "the segment has layout version {version}, not {LAYOUT_VERSION}")
            }
        }
    }
}

impl core::error::Error for SegmentError {}

impl From<Errno> for SegmentError {
    fn from(errno: Errno) -> Self {
        Self::System(errno)
    }
}

/// Offsets of a segment's parts. Having one means: they are in order, aligned, and end at `bytes`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Parts {
    slots: u32,
    slots_at: u64,
    members_at: u64,
    tokens_at: u64,
    arena_at: u64,
    arena_bytes: u64,
    bytes: u64,
}

impl Parts {
    /// Returns the parts of a segment; `None` if a number is outside of the limits or no power of two.
    fn new(slots: u32, arena_bytes: u64) -> Option<Self> {
        let is_valid = slots.is_power_of_two()
            && (SLOTS_MIN..=SLOTS_MAX).contains(&slots)
            && arena_bytes.is_power_of_two()
            && (ARENA_BYTES_MIN..=ARENA_BYTES_MAX).contains(&arena_bytes);
        if !is_valid {
            return None;
        }
        let slots_at = READY_AT + (2 * u64::from(slots) / 8).next_multiple_of(PAGE_BYTES);
        let slots_end = slots_at + u64::from(slots) * 2 * DIRECTION_BYTES;
        let members_at = slots_end.next_multiple_of(PAGE_BYTES);
        let tokens_at = (members_at + MEMBERS_BYTES).next_multiple_of(PAGE_BYTES);
        let tokens_end = tokens_at + u64::from(slots) * 4 * TOKEN_BYTES;
        let arena_at = tokens_end.next_multiple_of(HUGE_PAGE_BYTES);
        Some(Self {
            slots,
            slots_at,
            members_at,
            tokens_at,
            arena_at,
            arena_bytes,
            bytes: arena_at + 2 * arena_bytes,
        })
    }

    /// Returns the parts of a segment with the two numbers of its header, which the other process wrote.
    fn from_header(slots: u32, bytes: u64) -> Option<Self> {
        let without_arena = Self::new(slots, ARENA_BYTES_MIN)?;
        let arenas = bytes.checked_sub(without_arena.arena_at)?;
        Self::new(slots, arenas / 2).filter(|parts| parts.bytes == bytes)
    }
}

/// The memory of a pair of processes, as one side sees it.
#[derive(Debug)]
pub struct Segment {
    mapping: Arc<Mapping>,
    parts: Parts,
    side: Side,
    can_barrier: bool,
}

impl Segment {
    /// Creates a segment, and the file that the other process opens.
    ///
    /// Errors: `Config`, `System`.
    pub fn create(config: &SegmentConfig) -> Result<(Self, OwnedFd), SegmentError> {
        let parts = Parts::new(config.slots, config.arena_bytes).ok_or(SegmentError::Config)?;
        let file = sys::create_sealed_file(c"flick-shm", parts.bytes)?;
        let mapping = Arc::new(Mapping::new(file.as_fd(), parts.bytes as usize, config.huge_pages)?);
        let segment = Self::attach(mapping, parts, Side::Zero);
        segment.word(VERSION_AT).store(u64::from(LAYOUT_VERSION), Ordering::Relaxed);
        segment.word(SEGMENT_BYTES_AT).store(parts.bytes, Ordering::Relaxed);
        segment.word(SLOTS_AT).store(u64::from(parts.slots), Ordering::Relaxed);
        segment.word(MAGIC_AT).store(MAGIC, Ordering::Release);
        Ok((segment, file))
    }

    /// Opens the segment of another process.
    ///
    /// Errors: `NotSealed`, `Size`, `Magic`, `Version`, `System`.
    pub fn open(file: impl AsFd) -> Result<Self, SegmentError> {
        let file = file.as_fd();
        let sealed = match sys::sealed_bytes(file) {
            // A file without seals.
            Err(Errno::INVAL) => None,
            sealed => sealed?,
        };
        let bytes = sealed.ok_or(SegmentError::NotSealed)?;
        if !(READY_AT..=SEGMENT_BYTES_MAX).contains(&bytes) || !bytes.is_multiple_of(PAGE_BYTES) {
            return Err(SegmentError::Size);
        }
        let mapping = Arc::new(Mapping::new(file, bytes as usize, false)?);
        let word = |at| Words::<AtomicU64>::at(&mapping, at).expect("a segment has a page");
        let read = |at| word(at).load(Ordering::Acquire);
        if read(MAGIC_AT) != MAGIC {
            return Err(SegmentError::Magic);
        }
        let version = read(VERSION_AT);
        if version != u64::from(LAYOUT_VERSION) {
            return Err(SegmentError::Version(u32::try_from(version).unwrap_or(u32::MAX)));
        }
        let slots = u32::try_from(read(SLOTS_AT)).map_err(|_| SegmentError::Size)?;
        let parts = Parts::from_header(slots, read(SEGMENT_BYTES_AT)).ok_or(SegmentError::Size)?;
        if parts.bytes != bytes {
            return Err(SegmentError::Size);
        }
        Ok(Self::attach(mapping, parts, Side::One))
    }

    fn attach(mapping: Arc<Mapping>, parts: Parts, side: Side) -> Self {
        let can_barrier = sys::register_barrier();
        let segment = Self { mapping, parts, side, can_barrier };
        let barrier = if can_barrier { CAPABILITY_BARRIER } else { 0 };
        segment.side_words(side).capabilities.store(CAPABILITY_ATTACHED | barrier, Ordering::Release);
        segment
    }

    /// Notes that the other process attaches, before it has done so: it has said what it can.
    pub(crate) fn attach_other(&self, can_barrier: bool) {
        let barrier = if can_barrier { CAPABILITY_BARRIER } else { 0 };
        let words = self.side_words(self.side.other());
        words.capabilities.store(CAPABILITY_ATTACHED | barrier, Ordering::Release);
    }

    fn word(&self, at: u64) -> Words<AtomicU64> {
        Words::at(&self.mapping, at).expect("the header is inside of the segment")
    }

    /// Returns the side of this process.
    pub fn side(&self) -> Side {
        self.side
    }

    /// Returns the number of slots.
    pub fn slots(&self) -> u32 {
        self.parts.slots
    }

    /// Returns the bytes for the rings of each side.
    pub fn arena_bytes(&self) -> u64 {
        self.parts.arena_bytes
    }

    /// Returns the capability bits of a side; 0 until it has attached.
    pub fn capabilities(&self, side: Side) -> u32 {
        self.side_words(side).capabilities.load(Ordering::Acquire)
    }

    /// Returns whether this process executes barriers on all cores.
    pub(crate) fn can_barrier(&self) -> bool {
        self.can_barrier
    }

    /// Returns the side that opens connections in a slot.
    pub fn owner(&self, slot: u32) -> Side {
        if slot < self.parts.slots / 2 { Side::Zero } else { Side::One }
    }

    /// Returns the control words of the bytes that `sender` sends in a slot; `None` for a slot that does not exist.
    pub(crate) fn direction(&self, slot: u32, sender: Side) -> Option<Words<Direction>> {
        let at = self.parts.slots_at + (u64::from(slot) * 2 + sender.index()) * DIRECTION_BYTES;
        if slot < self.parts.slots { Words::at(&self.mapping, at) } else { None }
    }

    /// Returns the rings through which a side sends.
    pub(crate) fn window(&self, sender: Side) -> Window {
        let at = self.parts.arena_at + sender.index() * self.parts.arena_bytes;
        Window::at(&self.mapping, at, self.parts.arena_bytes).expect("the parts are inside of the segment")
    }

    /// Returns the ring of a direction for the transport switch.
    fn switched(&self, slot: u32, sender: Side, location: u64) -> Option<SwitchedRing<PlainSteps>> {
        let fencing = self.switch_fencing();
        let (words, area) = (self.direction(slot, sender)?, self.window(sender).area(location)?);
        Some(SwitchedRing { words, area, fencing, steps: PlainSteps })
    }

    /// Returns the records of the members' threads, and the members' processes.
    fn threads(&self) -> Threads {
        const INSIDE: &str = "the parts are inside of the segment";
        let (at, mapping) = (self.parts.members_at, &self.mapping);
        Threads {
            header: Words::at(mapping, at).expect(INSIDE),
            records: WordList::at(mapping, at + THREADS_AT, THREADS_MAX).expect(INSIDE),
            processes: WordList::at(mapping, at + PROCESSES_AT, PROCESSES_MAX).expect(INSIDE),
        }
    }

    /// Returns this process's view of the segment's members, one for all of its threads and its children.
    ///
    /// Errors: `System`.
    pub fn members(&self) -> Result<Members, SegmentError> {
        Ok(Members::new(self.threads())?)
    }

    /// Returns the token of an end of a direction; `None` for a slot that does not exist.
    fn token(&self, slot: u32, sender: Side, is_receiver: bool) -> Option<Token> {
        if slot >= self.parts.slots {
            return None;
        }
        let number = (u64::from(slot) * 2 + sender.index()) * 2 + u64::from(is_receiver);
        Some(Token {
            words: Words::at(&self.mapping, self.parts.tokens_at + number * TOKEN_BYTES)?,
            end: EndNumber::new(slot, sender.index() as u32, is_receiver),
            threads: self.threads(),
            fencing: self.switch_fencing(),
        })
    }

    fn switch_fencing(&self) -> Fencing {
        if self.can_barrier { Fencing::Sleeper } else { Fencing::Both }
    }

    /// Returns the sending end of a switched direction, whose words are zero, with the ring at a location of `sender`'s
    /// arena; `None` if there is no such slot or ring. All processes of the direction must be able to execute barriers
    /// on all cores, or none of them.
    pub fn switch_sender(&self, slot: u32, sender: Side, location: u64) -> Option<SwitchSender<PlainSteps>> {
        let token = self.token(slot, sender, false)?;
        self.switched(slot, sender, location).map(|ring| SwitchSender::new(ring, token))
    }

    /// Returns the receiving end of a switched direction; see [`switch_sender`](Self::switch_sender).
    pub fn switch_receiver(
        &self,
        slot: u32,
        sender: Side,
        location: u64,
    ) -> Option<SwitchReceiver<PlainSteps>> {
        let token = self.token(slot, sender, true)?;
        self.switched(slot, sender, location).map(|ring| SwitchReceiver::new(ring, token))
    }

    /// Sets the words of a switched direction to zero, before its slot gets another connection. No thread is in a call.
    pub fn clear_switched(&self, slot: u32, sender: Side) {
        for is_receiver in [false, true] {
            if let Some(token) = self.token(slot, sender, is_receiver) {
                token.threads.forget_dead(token.end);
                token.words.reset();
            }
        }
        if let Some(words) = self.direction(slot, sender) {
            words.reset();
        }
    }

    /// Returns an injector of a switched direction with a number that no other has, and that is not 0; see
    /// [`switch_sender`](Self::switch_sender).
    pub fn injector(
        &self,
        slot: u32,
        sender: Side,
        location: u64,
        number: u32,
    ) -> Option<Injector<PlainSteps>> {
        self.switched(slot, sender, location).map(|ring| Injector::new(ring, number))
    }

    /// Returns the words of a side.
    pub(crate) fn side_words(&self, side: Side) -> Words<SideWords> {
        Words::at(&self.mapping, SIDES_AT + side.index() * SIDE_STRIDE)
            .expect("the header is inside of the segment")
    }

    /// Returns the bitmap that a side takes bits from.
    pub(crate) fn ready(&self, side: Side) -> ReadyBitmap {
        let words = self.parts.slots / 64;
        let summary_at = SUMMARIES_AT + side.index() * SUMMARY_STRIDE;
        let words_at = READY_AT + side.index() * u64::from(words) * 8;
        let list =
            |at, len| WordList::at(&self.mapping, at, len).expect("the parts are inside of the segment");
        ReadyBitmap::new(list(words_at, words), list(summary_at, words.div_ceil(64)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_are_computed_only_from_numbers_within_the_limits() {
        for (slots, arena) in [(128, 4096), (1 << 14, 256 << 20), (SLOTS_MAX, ARENA_BYTES_MAX)] {
            let parts = Parts::new(slots, arena).expect("within the limits");
            assert_eq!(Parts::from_header(slots, parts.bytes), Some(parts));
            assert!(parts.bytes <= SEGMENT_BYTES_MAX && parts.arena_at.is_multiple_of(HUGE_PAGE_BYTES));
            for bytes in [0, 1, parts.bytes - 4096, parts.bytes + 4096, parts.bytes + 1, u64::MAX] {
                assert_eq!(Parts::from_header(slots, bytes), None, "{slots} {bytes}");
            }
        }
        for slots in [0, 1, 64, 129, SLOTS_MAX + 1, SLOTS_MAX * 2, u32::MAX] {
            assert_eq!(Parts::new(slots, 4096), None, "{slots}");
        }
    }

    #[cfg(not(miri))]
    #[test]
    fn a_segment_opens_with_the_same_parts() {
        let config = SegmentConfig { slots: 256, arena_bytes: 1 << 20, huge_pages: true };
        let (created, file) = Segment::create(&config).expect("memory files exist");
        let opened = Segment::open(&file).expect("it is sealed");
        assert_eq!((created.parts, created.side), (opened.parts, opened.side.other()));
        let word = created.direction(255, Side::Zero).expect("a slot");
        word.sender.head.store(7, Ordering::Relaxed);
        let seen = opened.direction(255, Side::Zero).expect("a slot");
        assert_eq!(seen.sender.head.load(Ordering::Relaxed), 7);
        assert!(created.direction(256, Side::Zero).is_none());
        created.ready(Side::One).set(255);
        let mut taken = std::vec::Vec::new();
        opened.ready(Side::One).take(|slot| taken.push(slot));
        assert_eq!((taken, opened.ready(Side::Zero).is_any()), (std::vec![255], false));
    }
}
