//! A bucket: one cache line with a version, eight cells for entries, their marks, the number of an overflow bucket, and
//! what was evicted lately.
//! Promises: a reader that sees the same even version before and after has read one consistent state.
//! Refuses: knowing entries; a cell holds a tag, eight bits of the key's hash, and the number of a slot.
//! Source: Boehm, "Can seqlocks get along with programming language memory models?", §5: data in relaxed atomics, an
//! acquire fence before the version is read again, a release fence after the lock is taken.

use crate::config::BUCKET_CELLS;
use crate::limits::{LOCK_BUSY_WAITS_MAX, LOCK_YIELDS_MAX};
use crate::sync::{AtomicU32, AtomicU64, Ordering, back_off, fence};

/// The lowest bit of each byte.
const LOW_BITS: u64 = 0x0101_0101_0101_0101;
/// The highest bit of each byte.
const HIGH_BITS: u64 = 0x8080_8080_8080_8080;
const _: () = assert!(BUCKET_CELLS == 8);

/// A bucket. In an overflow bucket, `version` is the number of the bucket that owns it, whose lock covers it.
#[derive(Debug)]
#[repr(align(64))]
pub(crate) struct Bucket {
    version: AtomicU64,
    /// One byte per cell, cell 0 in the lowest; 0 is free.
    tags: AtomicU64,
    /// Per cell the number of the slot plus one; 0 is free.
    slots: [AtomicU32; BUCKET_CELLS],
    /// One byte per cell for the eviction policy.
    marks: AtomicU64,
    /// Lower half: number of the next overflow bucket plus one; 0 is none. Upper half: the tags of the last four
    /// entries that were evicted from the small queue, the latest in the lowest byte.
    pub(crate) next: AtomicU64,
}

/// Bits of a mark that count uses, up to [`USES_MAX`].
const USES: u64 = 3;
/// Most uses that are counted.
const USES_MAX: u64 = 3;
/// Bit of a mark: the entry is in the small queue.
const SMALL: u64 = 4;

/// A version that a reader saw, or at which a lock was taken; even.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Version(u64);

impl Bucket {
    pub(crate) fn new() -> Self {
        Self {
            version: AtomicU64::new(0),
            tags: AtomicU64::new(0),
            slots: std::array::from_fn(|_| AtomicU32::new(0)),
            marks: AtomicU64::new(0),
            next: AtomicU64::new(0),
        }
    }

    fn mark(&self, cell: usize) -> u64 {
        self.marks.load(Ordering::Relaxed) >> (8 * cell) & 0xff
    }

    fn set_mark(&self, cell: usize, mark: u64) {
        self.marks.fetch_and(!(0xff << (8 * cell)), Ordering::Relaxed);
        self.marks.fetch_or(mark << (8 * cell), Ordering::Relaxed);
    }

    /// Counts a use of the entry in a cell. It writes only while few uses are counted, and a lost count is harmless, as
    /// is one of an entry that is there by now.
    #[inline]
    pub(crate) fn count_use(&self, cell: usize) {
        let marks = self.marks.load(Ordering::Relaxed);
        if marks >> (8 * cell) & USES < USES_MAX {
            let more = marks + (1 << (8 * cell));
            let _lost = self.marks.compare_exchange(marks, more, Ordering::Relaxed, Ordering::Relaxed);
        }
    }

    /// Returns how often the entry in a cell was used, at most [`USES_MAX`] times.
    pub(crate) fn uses(&self, cell: usize) -> u64 {
        self.mark(cell) & USES
    }

    /// Takes one of the counted uses; returns whether there was one.
    pub(crate) fn take_use(&self, cell: usize) -> bool {
        let marks = self.marks.load(Ordering::Relaxed);
        let was_used = marks >> (8 * cell) & USES > 0;
        if was_used {
            let fewer = marks - (1 << (8 * cell));
            let _lost = self.marks.compare_exchange(marks, fewer, Ordering::Relaxed, Ordering::Relaxed);
        }
        was_used
    }

    /// Returns whether the entry in a cell is in the small queue.
    pub(crate) fn is_small(&self, cell: usize) -> bool {
        self.mark(cell) & SMALL != 0
    }

    /// Notes that the entry in a cell is in the small queue.
    pub(crate) fn set_small(&self, cell: usize) {
        self.marks.fetch_or(SMALL << (8 * cell), Ordering::Relaxed);
    }

    /// Notes that the entry in a cell has left the small queue. Its uses count no longer.
    pub(crate) fn leave_small(&self, cell: usize) {
        self.marks.fetch_and(!((SMALL | USES) << (8 * cell)), Ordering::Relaxed);
    }

    /// Remembers the tag of an entry that was evicted from the small queue; the caller holds the lock.
    pub(crate) fn remember(&self, tag: u8) {
        let next = self.next.load(Ordering::Relaxed);
        let tags = (next >> 32 << 8 | u64::from(tag)) << 32;
        self.next.store(tags | next & u64::from(u32::MAX), Ordering::Relaxed);
    }

    /// Returns whether an entry with that tag was evicted from the small queue lately.
    pub(crate) fn remembers(&self, tag: u8) -> bool {
        (self.next.load(Ordering::Relaxed) >> 32).to_le_bytes()[..4].contains(&tag)
    }

    /// Returns the number of the next overflow bucket.
    #[inline]
    pub(crate) fn next(&self) -> Option<usize> {
        (self.next.load(Ordering::Relaxed) as u32).checked_sub(1).map(|index| index as usize)
    }

    /// Sets the number of the next overflow bucket; the caller holds the lock.
    pub(crate) fn set_next(&self, next: Option<usize>) {
        let tags = self.next.load(Ordering::Relaxed) >> 32 << 32;
        self.next.store(tags | next.map_or(0, |index| index as u64 + 1), Ordering::Relaxed);
    }

    /// Begins to read; `None` while a writer holds the lock.
    #[inline]
    pub(crate) fn begin_read(&self) -> Option<Version> {
        let version = self.version.load(Ordering::Acquire);
        (version & 1 == 0).then_some(Version(version))
    }

    /// Returns whether everything read since `seen` belongs to one state.
    #[inline]
    pub(crate) fn unchanged(&self, seen: Version) -> bool {
        fence(Ordering::Acquire);
        self.version.load(Ordering::Relaxed) == seen.0
    }

    /// Takes the lock if it is free.
    pub(crate) fn try_lock(&self) -> Option<Version> {
        let version = self.version.load(Ordering::Relaxed);
        (version & 1 == 0 && self.lock_at(Version(version))).then_some(Version(version))
    }

    /// Takes the lock if nothing has changed since `seen`.
    pub(crate) fn lock_at(&self, seen: Version) -> bool {
        let taken =
            self.version.compare_exchange(seen.0, seen.0 | 1, Ordering::Acquire, Ordering::Relaxed).is_ok();
        // A reader that sees a word written under the lock, and then fences, must also see the odd version.
        fence(Ordering::Release);
        taken
    }

    /// Takes the lock. A holder never waits for anything, so this ends.
    pub(crate) fn lock(&self) -> Version {
        for attempt in 0..LOCK_BUSY_WAITS_MAX + LOCK_YIELDS_MAX {
            if let Some(version) = self.try_lock() {
                return version;
            }
            back_off(attempt);
        }
        panic!("a bucket's lock was never released");
    }

    /// Releases the lock. `changed`: readers that saw `version` must read again.
    pub(crate) fn unlock(&self, version: Version, changed: bool) {
        self.version.store(version.0 + if changed { 2 } else { 0 }, Ordering::Release);
    }

    /// Returns the cells that may have this tag, as the highest bit of their byte. All that have it are among them, and
    /// the lowest one has it. It has no branches: which cell it is cannot be predicted, and a mispredicted branch would
    /// stall the processor while the cache line is still being loaded.
    /// Source: the test for a zero byte in a word, H. S. Warren, "Hacker's Delight", §6-1.
    #[inline]
    pub(crate) fn candidates(&self, tag: u8) -> u64 {
        let same = self.tags.load(Ordering::Relaxed) ^ (u64::from(tag) * LOW_BITS);
        same.wrapping_sub(LOW_BITS) & !same & HIGH_BITS
    }

    /// Returns the cell of the lowest candidate.
    #[inline]
    pub(crate) fn cell_of(candidates: u64) -> usize {
        (candidates.trailing_zeros() / 8) as usize
    }

    /// Returns the slot of the lowest candidate, which most often has the key.
    #[inline]
    pub(crate) fn likely_slot(&self, tag: u8) -> Option<usize> {
        self.slot(Self::cell_of(self.candidates(tag)))
    }

    /// Returns the slot in a cell.
    #[inline]
    pub(crate) fn slot(&self, cell: usize) -> Option<usize> {
        // Acquire: a thread that sees an entry in an overflow bucket also sees its owner.
        let slot = self.slots.get(cell)?.load(Ordering::Acquire);
        slot.checked_sub(1).map(|slot| slot as usize)
    }

    /// Puts an entry without marks into a cell; the caller holds the lock.
    pub(crate) fn set(&self, cell: usize, tag: u8, slot: usize) {
        self.set_mark(cell, 0);
        self.set_tag(cell, tag);
        self.slots[cell].store(slot as u32 + 1, Ordering::Release);
    }

    /// Moves the entry of the last used cell of `from` into a cell; the caller holds the lock.
    pub(crate) fn move_last(&self, cell: usize, from: &Bucket) {
        let last = from.last_cell().expect("the last bucket of a chain is not empty");
        let slot = from.slot(last).expect("the cell is in use");
        let mark = from.mark(last);
        self.set(cell, from.tag(last), slot);
        self.set_mark(cell, mark);
        from.clear(last);
    }

    /// Frees a cell; the caller holds the lock.
    pub(crate) fn clear(&self, cell: usize) {
        self.set_tag(cell, 0);
        self.slots[cell].store(0, Ordering::Relaxed);
    }

    fn set_tag(&self, cell: usize, tag: u8) {
        let others = self.tags.load(Ordering::Relaxed) & !(0xff << (8 * cell));
        self.tags.store(others | (u64::from(tag) << (8 * cell)), Ordering::Relaxed);
    }

    /// Returns a cell's tag.
    pub(crate) fn tag(&self, cell: usize) -> u8 {
        (self.tags.load(Ordering::Relaxed) >> (8 * cell)) as u8
    }

    /// Returns the first free cell.
    pub(crate) fn free_cell(&self) -> Option<usize> {
        (0..BUCKET_CELLS).find(|cell| self.slot(*cell).is_none())
    }

    /// Returns the last used cell.
    pub(crate) fn last_cell(&self) -> Option<usize> {
        (0..BUCKET_CELLS).rev().find(|cell| self.slot(*cell).is_some())
    }

    /// Returns the bucket that owns this overflow bucket.
    pub(crate) fn owner(&self) -> usize {
        self.version.load(Ordering::Relaxed) as usize
    }

    /// Sets the bucket that owns this overflow bucket.
    pub(crate) fn set_owner(&self, owner: usize) {
        self.version.store(owner as u64, Ordering::Relaxed);
    }
}
