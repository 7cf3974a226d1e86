//! Eviction, and the sweep of expired entries.
//! Promises: no function waits for a lock, so the caller may hold one; each call is bounded.
//! Source: the clock of CLOCK page replacement; sampling as an approximation of "oldest".

use crate::config::{BUCKET_CELLS, Evict};
use crate::dictionary::{BucketGuard, Dictionary};
use crate::limits::{CHAIN_MAX, EVICT_ENTRIES_MAX, EVICT_SAMPLE, EVICT_STEPS_MAX, EVICT_TRIES_MAX};
use crate::sync::Ordering;

/// A used cell, at the time of reading.
#[derive(Clone, Copy)]
struct CellEntry {
    bucket: usize,
    cell: usize,
    slot: usize,
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
        self.buckets[bucket].slot(cell).map(|slot| CellEntry { bucket, cell, slot })
    }

    /// Returns the slots of a bucket's entries, for snapshots.
    pub(crate) fn slots_of(&self, head: usize) -> impl Iterator<Item = usize> + '_ {
        self.entries_of(head).map(|entry| entry.slot)
    }
}

impl Eviction<'_> {
    /// Evicts one entry anywhere, one with chunks if `chunks` are wanted; `false` when no entry may be evicted, or
    /// enough were evicted for one write.
    pub(crate) fn evict_one(&mut self, held: &mut BucketGuard<'_>, chunks: bool) -> bool {
        let config = &self.dictionary.config;
        let Some(entries_left) = self.entries_left.checked_sub(1) else { return false };
        self.entries_left = entries_left;
        let tries = match config.evict {
            Evict::Nothing if config.expire_ns.is_none() => 0,
            Evict::Nothing => 1,
            // Entries with chunks may be few among many: twice around, because the first round clears marks.
            Evict::Lru | Evict::Oldest if chunks => self.tries_left,
            // The entry that the hand found may be gone, or its bucket locked.
            Evict::Lru | Evict::Oldest => EVICT_SAMPLE,
        };
        let evicted = (0..tries).position(|_| {
            let victim = self.victim(chunks);
            victim.is_some_and(|victim| self.evict(held, victim))
        });
        if chunks {
            self.tries_left -= evicted.unwrap_or(tries).min(self.tries_left);
        }
        evicted.is_some()
    }

    /// Evicts one entry of the held bucket or its overflow buckets, which have no free cell.
    pub(crate) fn evict_here(&mut self, held: &mut BucketGuard<'_>) -> bool {
        let dictionary = self.dictionary;
        let expired = dictionary.first_expired(held.head, self.now_ns);
        let least = |entry: &CellEntry| {
            let slot = entry.slot;
            (dictionary.store.header(slot).used(), dictionary.store.stamp(slot))
        };
        let may_go = dictionary.config.evict != Evict::Nothing;
        let victim =
            expired.or_else(|| dictionary.entries_of(held.head).filter(|_| may_go).min_by_key(least));
        victim.is_some_and(|victim| self.evict(held, victim))
    }

    /// Advances the hand and chooses a victim, one with chunks if `chunks` are wanted.
    fn victim(&self, chunks: bool) -> Option<CellEntry> {
        let dictionary = self.dictionary;
        let cells = dictionary.buckets.len() * BUCKET_CELLS;
        let mut best: Option<(u64, CellEntry)> = None;
        let mut sampled = 0;
        for _ in 0..EVICT_STEPS_MAX {
            let cell = dictionary.counters.hand.fetch_add(1, Ordering::Relaxed) as usize % cells;
            let Some(entry) = dictionary.entry_at(cell / BUCKET_CELLS, cell % BUCKET_CELLS) else { continue };
            let slot = entry.slot;
            if self.keep == Some(slot) || (chunks && !dictionary.store.header(slot).has_chunks()) {
                continue;
            }
            if dictionary.is_expired(slot, self.now_ns) {
                return Some(entry);
            }
            match dictionary.config.evict {
                Evict::Nothing => continue,
                Evict::Lru if !dictionary.store.clear_used(slot) => return Some(entry),
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
        dictionary.free(held, victim.bucket, victim.cell, slot);
        true
    }
}
