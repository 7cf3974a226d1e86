//! Making room: eviction, and the sweep of what has expired.
//! Promises: nothing here waits for a lock, so it may be called with one held; each call is bounded.
//! Source: the clock of CLOCK page replacement; sampling as an approximation of "oldest".

use crate::config::{Evict, WAYS};
use crate::dictionary::{Dictionary, Held};
use crate::limits::{CHAIN_MAX, EVICT_ENTRIES_MAX, EVICT_SAMPLE, EVICT_STEPS_MAX, EVICT_TRIES_MAX};
use crate::sync::Ordering;

/// A way with an entry in it, as the hand saw it.
#[derive(Clone, Copy)]
struct Seen {
    bucket: usize,
    way: usize,
    slot: usize,
}

/// The making of room for one write.
pub(crate) struct Room<'a> {
    dictionary: &'a Dictionary,
    now_ns: u64,
    /// The slot being written, which stays.
    keep: Option<usize>,
    left: usize,
    tries_left: usize,
}

impl Dictionary {
    pub(crate) fn room(&self, now_ns: u64, keep: Option<usize>) -> Room<'_> {
        let turns = 2 * self.buckets.len() * WAYS / EVICT_STEPS_MAX + EVICT_SAMPLE;
        Room {
            dictionary: self,
            now_ns,
            keep,
            left: EVICT_ENTRIES_MAX,
            tries_left: turns.min(EVICT_TRIES_MAX),
        }
    }

    /// Removes what has expired from the next `buckets` buckets, each of about three entries; returns how many that was.
    /// To be called now and then where there is an expiry; a bucket that is being written is left for the next time.
    pub fn sweep(&self, now_ns: u64, buckets: usize) -> usize {
        if self.config.expire_ns.is_none() {
            return 0;
        }
        let mut removed = 0;
        for _ in 0..buckets.min(self.heads) {
            let head = self.tally.sweep.fetch_add(1, Ordering::Relaxed) as usize % self.heads;
            if self.first_over(head, now_ns).is_none() {
                continue;
            }
            let Some(mut held) = self.try_lock(head) else { continue };
            for _ in 0..WAYS * (CHAIN_MAX + 1) {
                let Some(seen) = self.first_over(head, now_ns) else { break };
                self.free(&mut held, seen.bucket, seen.way, seen.slot);
                self.tally.expirations.fetch_add(1, Ordering::Relaxed);
                removed += 1;
            }
        }
        removed
    }

    /// The first entry of a bucket and those behind it whose time is over.
    fn first_over(&self, head: usize, now_ns: u64) -> Option<Seen> {
        self.entries_of(head).find(|seen| self.is_over(seen.slot, now_ns))
    }

    /// The entries of a bucket and those behind it; a guess unless its lock is held.
    fn entries_of(&self, head: usize) -> impl Iterator<Item = Seen> + '_ {
        let mut next = Some(head);
        let chain = std::iter::from_fn(move || {
            let bucket = next?;
            let link = self.buckets[bucket].link.load(Ordering::Relaxed) as usize;
            next = link.checked_sub(1).map(|index| self.heads + index);
            Some(bucket)
        });
        chain
            .take(CHAIN_MAX + 1)
            .flat_map(move |bucket| (0..WAYS).filter_map(move |way| self.see(bucket, way)))
    }

    fn see(&self, bucket: usize, way: usize) -> Option<Seen> {
        self.buckets[bucket].slot(way).map(|slot| Seen { bucket, way, slot })
    }

    /// The slots of the entries of a bucket; for snapshots.
    pub(crate) fn slots_of(&self, head: usize) -> impl Iterator<Item = usize> + '_ {
        self.entries_of(head).map(|seen| seen.slot)
    }
}

impl Room<'_> {
    /// Frees one entry somewhere, of those with chunks if `chunks` are wanted; `false` when there is nothing that may go, or
    /// enough has gone for one write.
    pub(crate) fn make(&mut self, held: &mut Held<'_>, chunks: bool) -> bool {
        let config = &self.dictionary.config;
        let Some(left) = self.left.checked_sub(1) else { return false };
        self.left = left;
        let tries = match config.evict {
            Evict::Nothing if config.expire_ns.is_none() => 0,
            Evict::Nothing => 1,
            // Those with chunks may be few among many: twice around, because the first time takes marks away.
            Evict::Lru | Evict::Oldest if chunks => self.tries_left,
            // What the hand found may be gone, or its bucket locked, by the time it is taken.
            Evict::Lru | Evict::Oldest => EVICT_SAMPLE,
        };
        let made = (0..tries).position(|_| {
            let victim = self.victim(chunks);
            victim.is_some_and(|victim| self.evict(held, victim))
        });
        if chunks {
            self.tries_left -= made.unwrap_or(tries).min(self.tries_left);
        }
        made.is_some()
    }

    /// Frees one entry of the held bucket or those behind it: it has no place left.
    pub(crate) fn make_here(&mut self, held: &mut Held<'_>) -> bool {
        let dictionary = self.dictionary;
        let over = dictionary.first_over(held.head, self.now_ns);
        let least = |seen: &Seen| {
            let slot = seen.slot;
            (dictionary.store.header(slot).used(), dictionary.store.stamp(slot))
        };
        let may_go = dictionary.config.evict != Evict::Nothing;
        let victim = over.or_else(|| dictionary.entries_of(held.head).filter(|_| may_go).min_by_key(least));
        victim.is_some_and(|victim| self.evict(held, victim))
    }

    /// Moves the hand and chooses, among those with chunks if `chunks` are wanted.
    fn victim(&self, chunks: bool) -> Option<Seen> {
        let dictionary = self.dictionary;
        let places = dictionary.buckets.len() * WAYS;
        let mut best: Option<(u64, Seen)> = None;
        let mut sampled = 0;
        for _ in 0..EVICT_STEPS_MAX {
            let place = dictionary.tally.hand.fetch_add(1, Ordering::Relaxed) as usize % places;
            let Some(seen) = dictionary.see(place / WAYS, place % WAYS) else { continue };
            let slot = seen.slot;
            if self.keep == Some(slot) || (chunks && !dictionary.store.header(slot).has_chunks()) {
                continue;
            }
            if dictionary.is_over(slot, self.now_ns) {
                return Some(seen);
            }
            match dictionary.config.evict {
                Evict::Nothing => continue,
                Evict::Lru if !dictionary.store.unmark(slot) => return Some(seen),
                Evict::Lru | Evict::Oldest => {}
            }
            let stamp = dictionary.store.stamp(slot);
            if best.is_none_or(|(oldest, _)| stamp < oldest) {
                best = Some((stamp, seen));
            }
            sampled += 1;
            if dictionary.config.evict == Evict::Oldest && sampled >= EVICT_SAMPLE {
                break;
            }
        }
        best.map(|(_, seen)| seen)
    }

    /// Takes the entry away, if it is still there and its bucket is free or the one that is held.
    fn evict(&self, held: &mut Held<'_>, victim: Seen) -> bool {
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

    fn evict_from(&self, held: &mut Held<'_>, victim: Seen) -> bool {
        let dictionary = self.dictionary;
        let still = dictionary.see(victim.bucket, victim.way).is_some_and(|seen| seen.slot == victim.slot);
        let mine = victim.bucket == held.head
            || (victim.bucket >= dictionary.heads && dictionary.buckets[victim.bucket].owner() == held.head);
        if !still || !mine {
            return false;
        }
        let slot = victim.slot;
        let tally = &dictionary.tally;
        let counter =
            if dictionary.is_over(slot, self.now_ns) { &tally.expirations } else { &tally.evictions };
        counter.fetch_add(1, Ordering::Relaxed);
        dictionary.free(held, victim.bucket, victim.way, slot);
        true
    }
}
