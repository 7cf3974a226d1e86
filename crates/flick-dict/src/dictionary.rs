//! The operations of a dictionary. Times are nanoseconds of one clock, which the caller chooses.
//! Cost: a read is a hash, one cache line of the index and the entry itself; a write adds the bucket's lock; a write
//! that must evict looks at `EVICT_STEPS_MAX` cells per entry it evicts, most often.

use std::sync::atomic::AtomicU64 as PlainU64;

use crate::bucket::{Bucket, Version};
use crate::config::{DictConfig, Evict, Sizes, check};
use crate::eviction::{Eviction, SmallQueue};
use crate::hashing::KeyHash;
use crate::limits::{CHAIN_MAX, PRELOAD_KEYS_MAX, READ_TRIES_MAX};
use crate::store::{Entry, FreeList, Header, Store};
use crate::sync::{Ordering, back_off};

/// Reason for which a dictionary cannot be built.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum DictError {
    /// The configuration exceeds a limit; the text says which.
    Config(String),
    /// The system has no memory of this many bytes.
    Memory(u64),
}

impl std::fmt::Display for DictError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Config(what) => f.write_str(what),
            Self::Memory(bytes) => write!(f, "out of memory: a dictionary needs {bytes} bytes"),
        }
    }
}

impl std::error::Error for DictError {}

/// Counters of writers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DictCounts {
    /// Entries evicted for others.
    pub evictions: u64,
    /// Entries removed because they had expired.
    pub expirations: u64,
    /// Writes refused because the dictionary was full.
    pub refusals: u64,
    /// Snapshots that could not be written.
    pub snapshot_errors: u64,
}

/// Words that only writers touch, on their own cache lines.
#[derive(Debug, Default)]
#[repr(align(128))]
pub(crate) struct SharedCounters {
    pub(crate) entries: PlainU64,
    /// Blocks of the store that entries take.
    pub(crate) blocks: PlainU64,
    pub(crate) evictions: PlainU64,
    pub(crate) expirations: PlainU64,
    pub(crate) refusals: PlainU64,
    pub(crate) snapshot_errors: PlainU64,
    /// The clock's hand: where eviction continues.
    pub(crate) hand: PlainU64,
    /// Position at which the sweep continues.
    pub(crate) sweep: PlainU64,
}

/// A dictionary. Share it behind an `Arc`.
#[derive(Debug)]
pub struct Dictionary {
    pub(crate) config: DictConfig,
    hash: KeyHash,
    /// Number of buckets that keys are hashed to.
    pub(crate) heads: usize,
    /// The buckets that keys are hashed to, then the overflow buckets.
    pub(crate) buckets: Box<[Bucket]>,
    free_buckets: FreeList,
    pub(crate) store: Store,
    pub(crate) small_queue: SmallQueue,
    pub(crate) counters: SharedCounters,
}

/// An update that [`Dictionary::begin`] has started, for [`Dictionary::commit`] or [`Dictionary::abandon`].
#[derive(Debug)]
#[must_use = "an update that is never ended may lock its bucket forever"]
pub struct PendingUpdate {
    position: KeyPosition,
    seen: Version,
    locked: bool,
}

/// The bucket of a key, and its tag.
#[derive(Clone, Copy, Debug)]
pub(crate) struct KeyPosition {
    pub(crate) head: usize,
    pub(crate) tag: u8,
}

/// An entry that was found, and its cell.
#[derive(Clone, Copy, Debug)]
pub(crate) struct FoundEntry {
    pub(crate) bucket: usize,
    pub(crate) cell: usize,
    pub(crate) slot: usize,
    pub(crate) header: Header,
}

/// A held lock; dropping it releases the lock.
pub(crate) struct BucketGuard<'a> {
    dictionary: &'a Dictionary,
    pub(crate) head: usize,
    seen: Version,
    pub(crate) changed: bool,
}

impl Drop for BucketGuard<'_> {
    fn drop(&mut self) {
        self.dictionary.buckets[self.head].unlock(self.seen, self.changed);
    }
}

impl Dictionary {
    /// Builds an empty dictionary and allocates all it will ever use: [`crate::memory_bytes`].
    ///
    /// Errors: `Config` when the configuration exceeds a limit, `Memory` when the allocation fails.
    pub fn new(config: DictConfig) -> Result<Self, DictError> {
        Self::with_advice(config, |_, _| {})
    }

    /// As [`Dictionary::new`]; `advise` gets the address and the bytes of the index before anything is written to it.
    /// It is read at random, a cache line at a time.
    pub fn with_advice(config: DictConfig, advise: impl FnOnce(*mut u8, usize)) -> Result<Self, DictError> {
        let sizes: Sizes = check(&config).map_err(DictError::Config)?;
        let count = (sizes.buckets + sizes.overflow) as usize;
        let mut buckets = Vec::new();
        buckets.try_reserve_exact(count).map_err(|_| DictError::Memory(count as u64 * 64))?;
        let index = buckets.spare_capacity_mut();
        advise(index.as_mut_ptr().cast(), size_of_val(index));
        buckets.resize_with(count, Bucket::new);
        let buckets = buckets.into_boxed_slice();
        let heads = sizes.buckets as usize;
        let free_buckets = FreeList::full(sizes.overflow, |index| &buckets[heads + index].next);
        let store = Store::new(&sizes).map_err(DictError::Memory)?;
        let small_queue = SmallQueue::new(sizes.small_queue).map_err(DictError::Memory)?;
        let (hash, counters) = (KeyHash::new(config.seed), SharedCounters::default());
        Ok(Self { config, hash, heads, buckets, free_buckets, store, small_queue, counters })
    }

    /// Returns the configuration.
    pub fn config(&self) -> &DictConfig {
        &self.config
    }

    /// Writes the value of `key` to the front of `out` and returns its length; `None` when there is none or it has
    /// expired.
    /// Panics when `out` is shorter than the value.
    #[inline]
    pub fn get(&self, key: &[u8], now_ns: u64, out: &mut [u8]) -> Option<usize> {
        let position = self.position(key);
        let line = &self.buckets[position.head];
        // The common case in few instructions, so that the processor overlaps several reads: no writer is active, the
        // entry is the first candidate of its own bucket, or there is none.
        if let Some(seen) = line.begin_read() {
            let candidates = line.candidates(position.tag);
            if candidates != 0 {
                let cell = Bucket::cell_of(candidates);
                if let Some(slot) = line.slot(cell)
                    && let Some(header) = self.store.read(slot, key, out)
                    && !self.is_expired(slot, now_ns)
                    && line.unchanged(seen)
                {
                    self.touch(position.head, cell);
                    return Some(header.value_len());
                }
            } else if line.next().is_none() && line.unchanged(seen) {
                return None;
            }
        }
        self.get_slowly(position, key, now_ns, out)
    }

    #[inline(never)]
    fn get_slowly(&self, position: KeyPosition, key: &[u8], now_ns: u64, out: &mut [u8]) -> Option<usize> {
        self.read(position, |position| self.copy_out(position, key, now_ns, out)).0
    }

    /// Loads the entries of some keys into the processor's cache, for reads and writes that follow; those of more than
    /// [`PRELOAD_KEYS_MAX`] keys are not loaded.
    ///
    /// Cost: two cache misses one behind the other for all keys together, where each read has two by itself: no load of
    /// a loop depends on another one.
    pub fn preload<'a>(&self, keys: impl Iterator<Item = &'a [u8]>) {
        let mut positions = [KeyPosition { head: 0, tag: 0 }; PRELOAD_KEYS_MAX];
        let mut count = 0;
        for (position, key) in positions.iter_mut().zip(keys) {
            *position = self.position(key);
            count += 1;
        }
        let mut slots = [None; PRELOAD_KEYS_MAX];
        for (slot, position) in slots.iter_mut().zip(&positions[..count]) {
            *slot = self.buckets[position.head].likely_slot(position.tag);
        }
        let mut nexts = [0; PRELOAD_KEYS_MAX];
        for (next, slot) in nexts.iter_mut().zip(&slots[..count]) {
            *next = slot.map_or(0, |slot| self.store.preload(slot));
        }
        for next in &nexts[..count] {
            self.store.preload_next(*next);
        }
    }

    /// Returns whether `key` is there.
    pub fn has(&self, key: &[u8], now_ns: u64) -> bool {
        self.read(self.position(key), |position| {
            Some(
                self.find(position, key)
                    .filter(|at| !self.is_expired(at.slot, now_ns))
                    .inspect(|at| self.touch(at.bucket, at.cell)),
            )
        })
        .0
        .is_some()
    }

    /// Writes an entry, which expires `expire_ns` from now. Returns `false` when it was refused, and counts that.
    pub fn put(&self, key: &[u8], value: &[u8], now_ns: u64) -> bool {
        let expires_ns = now_ns.saturating_add(self.config.expire_ns.unwrap_or(0));
        self.put_until(key, value, now_ns, expires_ns)
    }

    /// As `put`, with the time of expiry.
    pub(crate) fn put_until(&self, key: &[u8], value: &[u8], now_ns: u64, stamp: u64) -> bool {
        let position = self.position(key);
        let mut held = self.lock(position.head);
        self.write(&mut held, position, now_ns, &Entry { key, value, stamp })
    }

    /// Removes `key`; returns whether it was there.
    pub fn remove(&self, key: &[u8], now_ns: u64) -> bool {
        let position = self.position(key);
        let mut held = self.lock(position.head);
        self.remove_held(&mut held, position, key, now_ns)
    }

    /// Returns the number of buckets that keys are hashed to, the unit of [`Dictionary::sweep`].
    pub fn buckets(&self) -> usize {
        self.heads
    }

    /// Returns the number of entries, including expired ones that no sweep has removed yet.
    pub fn len(&self) -> u64 {
        self.counters.entries.load(Ordering::Relaxed)
    }

    /// Returns the bytes of memory that its entries take, in whole blocks and without the index.
    pub fn bytes_used(&self) -> u64 {
        self.counters.blocks.load(Ordering::Relaxed) * self.store.block_bytes()
    }

    /// Returns whether it has no entries.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Returns the counters of writers since the start.
    pub fn counts(&self) -> DictCounts {
        let SharedCounters { evictions, expirations, refusals, snapshot_errors, .. } = &self.counters;
        let read = |counter: &PlainU64| counter.load(Ordering::Relaxed);
        DictCounts {
            evictions: read(evictions),
            expirations: read(expirations),
            refusals: read(refusals),
            snapshot_errors: read(snapshot_errors),
        }
    }

    /// Begins an update: as `get`, and remembers the version. With `exclusive`, no other thread changes the entry (or
    /// any other of its bucket) until the commit, which then succeeds; the caller must not wait for anything until
    /// then.
    pub fn begin(
        &self,
        key: &[u8],
        now_ns: u64,
        exclusive: bool,
        out: &mut [u8],
    ) -> (Option<usize>, PendingUpdate) {
        let position = self.position(key);
        if exclusive {
            let seen = self.buckets[position.head].lock();
            let found = self.copy_out(position, key, now_ns, out).expect("no thread changes a locked bucket");
            return (found, PendingUpdate { position, seen, locked: true });
        }
        let (found, seen) = self.read(position, |position| self.copy_out(position, key, now_ns, out));
        (found, PendingUpdate { position, seen, locked: false })
    }

    /// Ends an update: writes `value`, or removes the entry for `None`, if nothing has changed since `begin` with the
    /// same key. `false`: begin again. A value that is refused because the dictionary is full is counted, and returns
    /// `true`; in a dictionary that evicts, the entry is then gone.
    pub fn commit(&self, begun: PendingUpdate, key: &[u8], value: Option<&[u8]>, now_ns: u64) -> bool {
        let PendingUpdate { position, seen, locked } = begun;
        if !locked && !self.buckets[position.head].lock_at(seen) {
            return false;
        }
        let mut held = BucketGuard { dictionary: self, head: position.head, seen, changed: false };
        if let Some(value) = value {
            let stamp = now_ns.saturating_add(self.config.expire_ns.unwrap_or(0));
            self.write(&mut held, position, now_ns, &Entry { key, value, stamp });
        } else {
            self.remove_held(&mut held, position, key, now_ns);
        }
        true
    }

    /// Ends an update without a change.
    pub fn abandon(&self, begun: PendingUpdate) {
        if begun.locked {
            self.buckets[begun.position.head].unlock(begun.seen, false);
        }
    }

    #[inline]
    fn position(&self, key: &[u8]) -> KeyPosition {
        let hash = self.hash.hash(key);
        let head = ((u64::from(hash as u32) * self.heads as u64) >> 32) as usize;
        // Never 0, the tag of a free cell.
        KeyPosition { head, tag: ((hash >> 56) as u8).max(1) }
    }

    /// Reads optimistically, and with the bucket's lock when it changes too often. `look` returns `None` when it sees
    /// an impossible state.
    #[inline]
    fn read<T>(
        &self,
        position: KeyPosition,
        mut look: impl FnMut(KeyPosition) -> Option<Option<T>>,
    ) -> (Option<T>, Version) {
        let bucket = &self.buckets[position.head];
        for attempt in 0..READ_TRIES_MAX {
            if let Some(seen) = bucket.begin_read() {
                let found = look(position);
                if bucket.unchanged(seen) {
                    return (found.expect("an unchanged entry is whole and fits"), seen);
                }
            }
            back_off(attempt as u32);
        }
        let held = self.lock(position.head);
        (look(position).expect("an unchanged entry is whole and fits"), held.seen)
    }

    #[inline]
    fn copy_out(
        &self,
        position: KeyPosition,
        key: &[u8],
        now_ns: u64,
        out: &mut [u8],
    ) -> Option<Option<usize>> {
        let Some(at) = self.find(position, key) else { return Some(None) };
        if self.is_expired(at.slot, now_ns) {
            return Some(None);
        }
        let len = self.store.copy_value(at.slot, at.header, out)?;
        self.touch(at.bucket, at.cell);
        Some(Some(len))
    }

    /// Counts a use of an entry, if eviction needs that.
    #[inline]
    fn touch(&self, bucket: usize, cell: usize) {
        if self.config.evict == Evict::Lru {
            self.buckets[bucket].count_use(cell);
        }
    }

    /// Returns whether the entry has expired.
    #[inline]
    pub(crate) fn is_expired(&self, slot: usize, now_ns: u64) -> bool {
        self.config.expire_ns.is_some() && self.store.stamp(slot) <= now_ns
    }

    /// Finds `key`. Without the lock, the result is a guess until the version has been checked.
    #[inline]
    fn find(&self, position: KeyPosition, key: &[u8]) -> Option<FoundEntry> {
        let mut bucket = position.head;
        for _ in 0..=CHAIN_MAX {
            let line = &self.buckets[bucket];
            let mut candidates = line.candidates(position.tag);
            // At most one per cell.
            while candidates != 0 {
                let cell = Bucket::cell_of(candidates);
                candidates &= candidates - 1;
                let Some(slot) = line.slot(cell) else { continue };
                if let Some(header) = self.store.matches(slot, key) {
                    return Some(FoundEntry { bucket, cell, slot, header });
                }
            }
            bucket = self.overflow_of(bucket)?;
        }
        None
    }

    pub(crate) fn lock(&self, head: usize) -> BucketGuard<'_> {
        BucketGuard { dictionary: self, head, seen: self.buckets[head].lock(), changed: false }
    }

    pub(crate) fn try_lock(&self, head: usize) -> Option<BucketGuard<'_>> {
        let seen = self.buckets[head].try_lock()?;
        Some(BucketGuard { dictionary: self, head, seen, changed: false })
    }

    fn write(
        &self,
        held: &mut BucketGuard<'_>,
        position: KeyPosition,
        now_ns: u64,
        entry: &Entry<'_>,
    ) -> bool {
        let DictConfig { key_bytes_max, value_bytes_max, .. } = self.config;
        assert!(entry.key.len() <= key_bytes_max as usize, "a key is no longer than its type allows");
        assert!(entry.value.len() <= value_bytes_max as usize, "a value is no longer than its type allows");
        let written = match self.find(position, entry.key) {
            Some(at) => self.overwrite(held, at, now_ns, entry),
            None => self.insert(held, position, now_ns, entry),
        };
        if !written {
            self.counters.refusals.fetch_add(1, Ordering::Relaxed);
            // Who wrote to a cache takes the new value for stored, and may find it evicted, but not the old one.
            if self.config.evict != Evict::Nothing && self.remove_held(held, position, entry.key, now_ns) {
                self.counters.evictions.fetch_add(1, Ordering::Relaxed);
            }
        }
        written
    }

    fn overwrite(&self, held: &mut BucketGuard<'_>, at: FoundEntry, now_ns: u64, entry: &Entry<'_>) -> bool {
        held.changed = true;
        let mut eviction = self.eviction(now_ns, Some(at.slot));
        let chain =
            self.store.alloc_chain(entry.key, entry.value, Some(at.slot), || eviction.evict_one(held));
        let Some(chain) = chain else { return false };
        let before = self.store.blocks_of(at.slot);
        self.store.write(at.slot, chain, entry);
        let (blocks, after) = (&self.counters.blocks, self.store.blocks_of(at.slot));
        if after > before {
            blocks.fetch_add(after - before, Ordering::Relaxed);
        } else if after < before {
            blocks.fetch_sub(before - after, Ordering::Relaxed);
        }
        self.touch(at.bucket, at.cell);
        true
    }

    fn insert(
        &self,
        held: &mut BucketGuard<'_>,
        position: KeyPosition,
        now_ns: u64,
        entry: &Entry<'_>,
    ) -> bool {
        let mut eviction = self.eviction(now_ns, None);
        while !self.reserve_entry() {
            if !eviction.evict_one(held) {
                return false;
            }
        }
        let inserted = self.insert_reserved(held, position, &mut eviction, entry);
        if !inserted {
            self.counters.entries.fetch_sub(1, Ordering::Relaxed);
        }
        inserted
    }

    /// Counts one more entry, unless there are as many as there may be.
    fn reserve_entry(&self) -> bool {
        let more = |entries| (entries < self.config.entries_max).then_some(entries + 1);
        self.counters.entries.fetch_update(Ordering::Relaxed, Ordering::Relaxed, more).is_ok()
    }

    /// Inserts an entry that has been counted.
    fn insert_reserved(
        &self,
        held: &mut BucketGuard<'_>,
        position: KeyPosition,
        eviction: &mut Eviction<'_>,
        entry: &Entry<'_>,
    ) -> bool {
        let slot = loop {
            match self.store.alloc_block() {
                Some(slot) => break slot,
                None if eviction.evict_one(held) => {}
                None => return false,
            }
        };
        let chain = self.store.alloc_chain(entry.key, entry.value, None, || eviction.evict_one(held));
        let Some(chain) = chain else {
            self.store.free_block(slot);
            return false;
        };
        self.store.write(slot, chain, entry);
        let (line, cell) = loop {
            match self.free_cell(held) {
                Some(free) => break free,
                None if eviction.evict_here(held) => {}
                None => {
                    self.store.free_entry(slot);
                    return false;
                }
            }
        };
        held.changed = true;
        line.set(cell, position.tag, slot);
        self.counters.blocks.fetch_add(self.store.blocks_of(slot), Ordering::Relaxed);
        if !self.buckets[position.head].remembers(position.tag) {
            self.enter_small_queue(position.head, line, cell, slot);
        }
        true
    }

    /// Returns a free cell of the held bucket or its overflow buckets; adds an overflow bucket if needed.
    fn free_cell(&self, held: &mut BucketGuard<'_>) -> Option<(&Bucket, usize)> {
        let mut bucket = held.head;
        for _ in 0..CHAIN_MAX {
            let line = &self.buckets[bucket];
            if let Some(free) = line.free_cell() {
                return Some((line, free));
            }
            bucket = match self.overflow_of(bucket) {
                Some(next) => next,
                None => {
                    let index = self.free_buckets.pop(|index| &self.buckets[self.heads + index].next)?;
                    let new = &self.buckets[self.heads + index];
                    new.set_owner(held.head);
                    new.set_next(None);
                    held.changed = true;
                    line.set_next(Some(index));
                    self.heads + index
                }
            };
        }
        None
    }

    fn remove_held(
        &self,
        held: &mut BucketGuard<'_>,
        position: KeyPosition,
        key: &[u8],
        now_ns: u64,
    ) -> bool {
        let Some(at) = self.find(position, key) else { return false };
        let is_expired = self.is_expired(at.slot, now_ns);
        if is_expired {
            self.counters.expirations.fetch_add(1, Ordering::Relaxed);
        }
        self.free(held, at.bucket, at.cell, at.slot);
        !is_expired
    }

    /// Removes an entry from the held bucket or its overflow buckets. The last entry of the chain moves into its cell,
    /// so that a chain is never longer than its entries need.
    pub(crate) fn free(&self, held: &mut BucketGuard<'_>, bucket: usize, cell: usize, slot: usize) {
        held.changed = true;
        let (mut before, mut last) = (None, held.head);
        for _ in 0..CHAIN_MAX {
            let Some(next) = self.overflow_of(last) else { break };
            (before, last) = (Some(last), next);
        }
        let line = &self.buckets[last];
        self.buckets[bucket].move_last(cell, line);
        if let Some(before) = before
            && line.last_cell().is_none()
        {
            self.buckets[before].set_next(None);
            self.free_buckets.push(last - self.heads, |index| &self.buckets[self.heads + index].next);
        }
        self.counters.entries.fetch_sub(1, Ordering::Relaxed);
        self.counters.blocks.fetch_sub(self.store.blocks_of(slot), Ordering::Relaxed);
        self.store.free_entry(slot);
    }

    /// Returns the next overflow bucket of a bucket.
    pub(crate) fn overflow_of(&self, bucket: usize) -> Option<usize> {
        self.buckets[bucket].next().map(|index| self.heads + index)
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use crate::config::Seed;

    /// Puts a longer value in the place of one when no block is free, and returns the length of what is found then.
    fn found_after_a_refusal(evict: Evict) -> Option<usize> {
        let config = DictConfig {
            entries_max: 64,
            bytes_max: None,
            key_bytes_max: 8,
            value_bytes_max: 4_000,
            expire_ns: None,
            evict,
            seed: Seed::Fixed(1),
        };
        let dictionary = Dictionary::new(config).expect("a small dictionary fits");
        assert!(dictionary.put(b"k", b"old", 0));
        // As entries take them that other threads are writing.
        while dictionary.store.alloc_block().is_some() {}
        assert!(!dictionary.put(b"k", &[0; 4_000], 0));
        let mut out = [0; 4_000];
        dictionary.get(b"k", 0, &mut out)
    }

    #[test]
    fn a_cache_had_the_old_value_after_a_new_one_was_refused() {
        assert_eq!(found_after_a_refusal(Evict::Lru), None);
        assert_eq!(found_after_a_refusal(Evict::Oldest), None);
        assert_eq!(found_after_a_refusal(Evict::Nothing), Some(3));
    }
}
