//! A bucket: one cache line with a version, six places for entries, and a link to an overflow bucket.
//! Promises: a reader that finds the same even version before and after has read what was there at one moment.
//! Refuses: knowing entries; a place is a tag and the number of a slot.
//! Source: Boehm, "Can seqlocks get along with programming language memory models?", §5: data in relaxed atomics, an
//! acquire fence before the second look, a release fence after the lock is taken.

use crate::config::WAYS;
use crate::limits::{LOCK_SPINS_MAX, LOCK_YIELDS_MAX};
use crate::sync::{AtomicU64, Ordering, fence, relax};

/// A bucket. Of an overflow bucket, `version` is the number of the bucket it stands behind, whose lock covers it.
#[derive(Debug)]
#[repr(align(64))]
pub(crate) struct Bucket {
    version: AtomicU64,
    /// A tag (upper half) and a slot's number plus one (lower half); 0 is free.
    pub(crate) ways: [AtomicU64; WAYS],
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
            ways: std::array::from_fn(|_| AtomicU64::new(0)),
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

    /// Of an overflow bucket: behind which bucket it stands.
    pub(crate) fn owner(&self) -> usize {
        self.version.load(Ordering::Relaxed) as usize
    }

    /// Of an overflow bucket: puts it behind another one.
    pub(crate) fn set_owner(&self, owner: usize) {
        self.version.store(owner as u64, Ordering::Relaxed);
    }
}

/// What stands in a way.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Way(u64);

impl Way {
    pub(crate) fn new(tag: u32, slot: usize) -> Self {
        Self((u64::from(tag) << 32) | (slot as u64 + 1))
    }

    #[inline]
    pub(crate) fn of_word(word: u64) -> Option<Self> {
        (word as u32 != 0).then_some(Self(word))
    }

    pub(crate) fn word(self) -> u64 {
        self.0
    }

    #[inline]
    pub(crate) fn slot(self) -> usize {
        (self.0 as u32 - 1) as usize
    }
}
