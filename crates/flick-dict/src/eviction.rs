//! Eviction, and the sweep of expired entries.
//! Promises: no function waits for a lock, so the caller may hold one; each call is bounded.
//! Source: S3-FIFO (Yang et al., "FIFO queues are all you need for cache eviction", SOSP 2023): new entries go through
//! a small queue, so that those that are used once leave soon; entries that were evicted from it lately, and come
//! again, do not. The main queue is a clock here: its hand goes around the cells, and takes a use from each entry that
//! it passes. Sampling as an approximation of "oldest".

use std::sync::atomic::AtomicU64 as PlainU64;

use crate::bucket::Bucket;
use crate::config::{BUCKET_CELLS, Evict};
use crate::dictionary::{BucketGuard, Dictionary};
use crate::limits::{
    CHAIN_MAX, EVICT_ENTRIES_MAX, EVICT_SAMPLE, EVICT_STEPS_MAX, EVICT_TRIES_MAX, SMALL_QUEUE_SHARE,
};
use crate::sync::Ordering;

/// The small queue: the latest new entries, oldest first. An entry that is removed, or leaves its bucket otherwise,
/// stays noted until its turn comes.
/// Promises: no call waits; what one thread notes is taken once, or overwritten and returned.
#[derive(Debug)]
pub(crate) struct SmallQueue {
    /// The bucket that an entry hashes to in the upper half, its slot plus one in the lower; 0 is none.
    notes: Box<[PlainU64]>,
    taken: PlainU64,
    noted: PlainU64,
}

impl SmallQueue {
    /// Errors: the number of bytes that could not be allocated.
    pub(crate) fn new(capacity: u64) -> Result<Self, u64> {
        let mut notes = Vec::new();
        notes.try_reserve_exact(capacity as usize).map_err(|_| capacity.saturating_mul(8))?;
        notes.resize_with(capacity as usize, PlainU64::default);
        Ok(Self { notes: notes.into_boxed_slice(), taken: PlainU64::new(0), noted: PlainU64::new(0) })
    }

    fn len(&self) -> u64 {
        self.noted.load(Ordering::Relaxed).saturating_sub(self.taken.load(Ordering::Relaxed))
    }

    /// Notes a new entry; returns the oldest one if the queue was full.
    fn push(&self, head: usize, slot: usize) -> Option<(usize, usize)> {
        let capacity = self.notes.len() as u64;
        let at = self.noted.fetch_add(1, Ordering::Relaxed);
        self.taken.fetch_max((at + 1).saturating_sub(capacity), Ordering::Relaxed);
        let note = (head as u64) << 32 | (slot as u64 + 1);
        Self::entry(self.notes[(at % capacity) as usize].swap(note, Ordering::Relaxed))
    }

    /// Takes the oldest entry.
    fn pop(&self) -> Option<(usize, usize)> {
        let noted = self.noted.load(Ordering::Relaxed);
        let next = |taken| (taken < noted).then_some(taken + 1);
        let at = self.taken.fetch_update(Ordering::Relaxed, Ordering::Relaxed, next).ok()?;
        Self::entry(self.notes[(at % self.notes.len() as u64) as usize].swap(0, Ordering::Relaxed))
    }

    fn entry(note: u64) -> Option<(usize, usize)> {
        Some(((note >> 32) as usize, (note as u32).checked_sub(1)? as usize))
    }
}

/// A used cell, at the time of reading.
#[derive(Clone, Copy)]
struct CellEntry {
    bucket: usize,
    cell: usize,
    slot: usize,
    /// It was taken from the small queue.
    is_small: bool,
}

/// The evictions for one write.
pub(crate) struct Eviction<'a> {
    dictionary: &'a Dictionary,
    now_ns: u64,
    /// The slot being written, which is not evicted.
    keep: Option<usize>,
    entries_left: usize,
    tries_left: usize,
}

impl Dictionary {
    pub(crate) fn eviction(&self, now_ns: u64, keep: Option<usize>) -> Eviction<'_> {
        let tries = 2 * self.buckets.len() * BUCKET_CELLS / EVICT_STEPS_MAX + EVICT_SAMPLE;
        Eviction {
            dictionary: self,
            now_ns,
            keep,
            entries_left: EVICT_ENTRIES_MAX,
            tries_left: tries.min(EVICT_TRIES_MAX),
        }
    }

    /// Puts a new entry, in a cell of `line`, into the small queue, if there is one; the caller holds the lock of
    /// `head`.
    pub(crate) fn enter_small_queue(&self, head: usize, line: &Bucket, cell: usize, slot: usize) {
        if self.small_queue.notes.is_empty() {
            return;
        }
        line.set_small(cell);
        // The dictionary is not full, or holds entries that are longer than most: the oldest one stays.
        if let Some((head, slot)) = self.small_queue.push(head, slot)
            && let Some(entry) = self.noted_entry(head, slot)
        {
            self.buckets[entry.bucket].leave_small(entry.cell);
        }
    }

    /// Returns an entry of the small queue; a guess unless the lock of `head` is held.
    fn noted_entry(&self, head: usize, slot: usize) -> Option<CellEntry> {
        let mut entries = self.entries_of(head);
        entries.find(|entry| entry.slot == slot && self.buckets[entry.bucket].is_small(entry.cell))
    }

    /// Removes the expired entries of the next `buckets` buckets, of about three entries each; returns how many. The
    /// owner of a dictionary with expiry calls it regularly; it skips a bucket that is being written.
    pub fn sweep(&self, now_ns: u64, buckets: usize) -> usize {
        if self.config.expire_ns.is_none() {
            return 0;
        }
        let mut removed = 0;
        for _ in 0..buckets.min(self.heads) {
            let head = self.counters.sweep.fetch_add(1, Ordering::Relaxed) as usize % self.heads;
            if self.first_expired(head, now_ns).is_none() {
                continue;
            }
            let Some(mut held) = self.try_lock(head) else { continue };
            for _ in 0..BUCKET_CELLS * (CHAIN_MAX + 1) {
                let Some(entry) = self.first_expired(head, now_ns) else { break };
                self.free(&mut held, entry.bucket, entry.cell, entry.slot);
                self.counters.expirations.fetch_add(1, Ordering::Relaxed);
                removed += 1;
            }
        }
        removed
    }

    /// Returns the first expired entry of a bucket and its overflow buckets.
    fn first_expired(&self, head: usize, now_ns: u64) -> Option<CellEntry> {
        self.entries_of(head).find(|entry| self.is_expired(entry.slot, now_ns))
    }

    /// Returns the entries of a bucket and its overflow buckets; a guess unless the lock is held.
    fn entries_of(&self, head: usize) -> impl Iterator<Item = CellEntry> + '_ {
        let mut next = Some(head);
        let chain = std::iter::from_fn(move || {
            let bucket = next?;
            next = self.overflow_of(bucket);
            Some(bucket)
        });
        chain
            .take(CHAIN_MAX + 1)
            .flat_map(move |bucket| (0..BUCKET_CELLS).filter_map(move |cell| self.entry_at(bucket, cell)))
    }

    fn entry_at(&self, bucket: usize, cell: usize) -> Option<CellEntry> {
        self.buckets[bucket].slot(cell).map(|slot| CellEntry { bucket, cell, slot, is_small: false })
    }

    /// Returns the slots of a bucket's entries, for snapshots.
    pub(crate) fn slots_of(&self, head: usize) -> impl Iterator<Item = usize> + '_ {
        self.entries_of(head).map(|entry| entry.slot)
    }
}

impl Eviction<'_> {
    /// Evicts one entry anywhere; `false` when no entry may be evicted, or enough were evicted for one write.
    pub(crate) fn evict_one(&mut self, held: &mut BucketGuard<'_>) -> bool {
        let config = &self.dictionary.config;
        let Some(entries_left) = self.entries_left.checked_sub(1) else { return false };
        self.entries_left = entries_left;
        let tries = match config.evict {
            Evict::Nothing if config.expire_ns.is_none() => 0,
            Evict::Nothing => 1,
            // Entries may be few among many cells, and one that was found may be gone, or its bucket locked.
            Evict::Lru | Evict::Oldest => self.tries_left,
        };
        let evicted = (0..tries).position(|_| {
            let victim = self.small_victim().or_else(|| self.victim());
            victim.is_some_and(|victim| self.evict(held, victim))
        });
        self.tries_left -= evicted.unwrap_or(tries).min(self.tries_left);
        evicted.is_some()
    }

    /// Evicts one entry of the held bucket or its overflow buckets, which have no free cell.
    pub(crate) fn evict_here(&mut self, held: &mut BucketGuard<'_>) -> bool {
        let dictionary = self.dictionary;
        let expired = dictionary.first_expired(held.head, self.now_ns);
        let least = |entry: &CellEntry| {
            (dictionary.buckets[entry.bucket].uses(entry.cell), dictionary.store.stamp(entry.slot))
        };
        let may_go = dictionary.config.evict != Evict::Nothing;
        let victim =
            expired.or_else(|| dictionary.entries_of(held.head).filter(|_| may_go).min_by_key(least));
        victim.is_some_and(|victim| self.evict(held, victim))
    }

    /// Takes entries from the small queue, while it has its share of all entries, up to one that was not used. Those
    /// that were used stay, as do those that are found and cannot be evicted.
    fn small_victim(&self) -> Option<CellEntry> {
        let dictionary = self.dictionary;
        for _ in 0..EVICT_STEPS_MAX {
            if dictionary.small_queue.len().saturating_mul(SMALL_QUEUE_SHARE) < dictionary.len() {
                return None;
            }
            let (head, slot) = dictionary.small_queue.pop()?;
            let Some(entry) = dictionary.noted_entry(head, slot) else { continue };
            let line = &dictionary.buckets[entry.bucket];
            let was_used = line.uses(entry.cell) > 0;
            line.leave_small(entry.cell);
            if !was_used && self.keep != Some(slot) {
                return Some(CellEntry { is_small: true, ..entry });
            }
        }
        None
    }

    /// Advances the hand and chooses a victim.
    fn victim(&self) -> Option<CellEntry> {
        let dictionary = self.dictionary;
        let cells = dictionary.buckets.len() * BUCKET_CELLS;
        let mut best: Option<(u64, CellEntry)> = None;
        let mut sampled = 0;
        for _ in 0..EVICT_STEPS_MAX {
            let cell = dictionary.counters.hand.fetch_add(1, Ordering::Relaxed) as usize % cells;
            let Some(entry) = dictionary.entry_at(cell / BUCKET_CELLS, cell % BUCKET_CELLS) else { continue };
            let (slot, line) = (entry.slot, &dictionary.buckets[entry.bucket]);
            if self.keep == Some(slot) {
                continue;
            }
            if dictionary.is_expired(slot, self.now_ns) {
                return Some(entry);
            }
            match dictionary.config.evict {
                Evict::Nothing => continue,
                Evict::Lru if line.is_small(entry.cell) => {}
                Evict::Lru if !line.take_use(entry.cell) => return Some(entry),
                Evict::Lru | Evict::Oldest => {}
            }
            let stamp = dictionary.store.stamp(slot);
            if best.is_none_or(|(oldest, _)| stamp < oldest) {
                best = Some((stamp, entry));
            }
            sampled += 1;
            if dictionary.config.evict == Evict::Oldest && sampled >= EVICT_SAMPLE {
                break;
            }
        }
        best.map(|(_, entry)| entry)
    }

    /// Evicts the entry if it is still there and its bucket's lock is free or held by the caller.
    fn evict(&self, held: &mut BucketGuard<'_>, victim: CellEntry) -> bool {
        let dictionary = self.dictionary;
        let head = if victim.bucket < dictionary.heads {
            victim.bucket
        } else {
            dictionary.buckets[victim.bucket].owner()
        };
        if head == held.head {
            return self.evict_from(held, victim);
        }
        dictionary.try_lock(head).is_some_and(|mut other| self.evict_from(&mut other, victim))
    }

    fn evict_from(&self, held: &mut BucketGuard<'_>, victim: CellEntry) -> bool {
        let dictionary = self.dictionary;
        let is_there =
            dictionary.entry_at(victim.bucket, victim.cell).is_some_and(|entry| entry.slot == victim.slot);
        let is_owned = victim.bucket == held.head
            || (victim.bucket >= dictionary.heads && dictionary.buckets[victim.bucket].owner() == held.head);
        if !is_there || !is_owned {
            return false;
        }
        let slot = victim.slot;
        let counters = &dictionary.counters;
        let counter = if dictionary.is_expired(slot, self.now_ns) {
            &counters.expirations
        } else {
            &counters.evictions
        };
        counter.fetch_add(1, Ordering::Relaxed);
        if victim.is_small {
            dictionary.buckets[held.head].remember(dictionary.buckets[victim.bucket].tag(victim.cell));
        }
        dictionary.free(held, victim.bucket, victim.cell, slot);
        true
    }
}
