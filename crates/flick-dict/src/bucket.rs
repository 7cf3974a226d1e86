//! A bucket: one cache line with a version, eight places for entries, and a link to an overflow bucket.
//! Promises: a reader that finds the same even version before and after has read what was there at one moment.
//! Refuses: knowing entries; a place is a tag, eight bits of the key's hash, and the number of a slot.
//! Source: Boehm, "Can seqlocks get along with programming language memory models?", §5: data in relaxed atomics, an
//! acquire fence before the second look, a release fence after the lock is taken.

use crate::config::WAYS;
use crate::limits::{LOCK_SPINS_MAX, LOCK_YIELDS_MAX};
use crate::sync::{AtomicU32, AtomicU64, Ordering, fence, relax};

/// The lowest bit of each byte.
const LOW_BITS: u64 = 0x0101_0101_0101_0101;
/// The highest bit of each byte.
const HIGH_BITS: u64 = 0x8080_8080_8080_8080;
const _: () = assert!(WAYS == 8);

/// A bucket. Of an overflow bucket, `version` is the number of the bucket it stands behind, whose lock covers it.
#[derive(Debug)]
#[repr(align(64))]
pub(crate) struct Bucket {
    version: AtomicU64,
    /// A byte for each way, way 0 in the lowest; 0 is free.
    tags: AtomicU64,
    /// By way: number of the slot plus one; 0 is free.
    slots: [AtomicU32; WAYS],
    /// Number of the next overflow bucket plus one; 0 is none.
    pub(crate) link: AtomicU64,
}

/// Version seen by a reader or left to the holder of a lock; even.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Version(u64);

impl Bucket {
    pub(crate) fn new() -> Self {
        Self {
            version: AtomicU64::new(0),
            tags: AtomicU64::new(0),
            slots: std::array::from_fn(|_| AtomicU32::new(0)),
            link: AtomicU64::new(0),
        }
    }

    /// Begins to read; `None` while a writer is at work.
    #[inline]
    pub(crate) fn begin_read(&self) -> Option<Version> {
        let version = self.version.load(Ordering::Acquire);
        (version & 1 == 0).then_some(Version(version))
    }

    /// Whether what was read since `seen` was there at one moment.
    #[inline]
    pub(crate) fn unchanged(&self, seen: Version) -> bool {
        fence(Ordering::Acquire);
        self.version.load(Ordering::Relaxed) == seen.0
    }

    /// Takes the lock if nobody has it.
    pub(crate) fn try_lock(&self) -> Option<Version> {
        let version = self.version.load(Ordering::Relaxed);
        (version & 1 == 0 && self.lock_at(Version(version))).then_some(Version(version))
    }

    /// Takes the lock if nothing has changed since `seen`.
    pub(crate) fn lock_at(&self, seen: Version) -> bool {
        let taken =
            self.version.compare_exchange(seen.0, seen.0 | 1, Ordering::Acquire, Ordering::Relaxed).is_ok();
        // Whoever reads a word that the holder will write, and then fences, must also see the version that is odd.
        fence(Ordering::Release);
        taken
    }

    /// Takes the lock. A holder never waits for anything, so this ends.
    pub(crate) fn lock(&self) -> Version {
        for turn in 0..LOCK_SPINS_MAX + LOCK_YIELDS_MAX {
            if let Some(version) = self.try_lock() {
                return version;
            }
            relax(turn);
        }
        panic!("a bucket's lock was never given back");
    }

    /// Gives the lock back. `changed`: readers who saw `version` must look again.
    pub(crate) fn unlock(&self, version: Version, changed: bool) {
        self.version.store(version.0 + if changed { 2 } else { 0 }, Ordering::Release);
    }

    /// The ways that may have this tag: the highest bit of their byte. All that have it are among them, and the lowest one
    /// has it. Without branches: which way it is cannot be predicted, and a wrong guess would keep the processor from
    /// going on to what follows while the line is still on its way from memory.
    /// Source: the test for a zero byte in a word, H. S. Warren, "Hacker's Delight", §6-1.
    #[inline]
    pub(crate) fn candidates(&self, tag: u8) -> u64 {
        let same = self.tags.load(Ordering::Relaxed) ^ (u64::from(tag) * LOW_BITS);
        same.wrapping_sub(LOW_BITS) & !same & HIGH_BITS
    }

    /// The way of the lowest candidate.
    #[inline]
    pub(crate) fn way_of(candidates: u64) -> usize {
        (candidates.trailing_zeros() / 8) as usize
    }

    /// The slot in a way.
    #[inline]
    pub(crate) fn slot(&self, way: usize) -> Option<usize> {
        // Acquire: who sees an entry in an overflow bucket also sees whose bucket it is.
        let slot = self.slots.get(way)?.load(Ordering::Acquire);
        slot.checked_sub(1).map(|slot| slot as usize)
    }

    /// Puts an entry into a way; with the lock held.
    pub(crate) fn set(&self, way: usize, tag: u8, slot: usize) {
        self.set_tag(way, tag);
        self.slots[way].store(slot as u32 + 1, Ordering::Release);
    }

    /// Frees a way; with the lock held.
    pub(crate) fn clear(&self, way: usize) {
        self.set_tag(way, 0);
        self.slots[way].store(0, Ordering::Relaxed);
    }

    fn set_tag(&self, way: usize, tag: u8) {
        let others = self.tags.load(Ordering::Relaxed) & !(0xff << (8 * way));
        self.tags.store(others | (u64::from(tag) << (8 * way)), Ordering::Relaxed);
    }

    /// A way's tag.
    pub(crate) fn tag(&self, way: usize) -> u8 {
        (self.tags.load(Ordering::Relaxed) >> (8 * way)) as u8
    }

    /// The first free way.
    pub(crate) fn free_way(&self) -> Option<usize> {
        (0..WAYS).find(|way| self.slot(*way).is_none())
    }

    /// The last way in use.
    pub(crate) fn last_way(&self) -> Option<usize> {
        (0..WAYS).rev().find(|way| self.slot(*way).is_some())
    }

    /// Of an overflow bucket: behind which bucket it stands.
    pub(crate) fn owner(&self) -> usize {
        self.version.load(Ordering::Relaxed) as usize
    }

    /// Of an overflow bucket: puts it behind another one.
    pub(crate) fn set_owner(&self, owner: usize) {
        self.version.store(owner as u64, Ordering::Relaxed);
    }
}
