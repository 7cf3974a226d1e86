//! The operations of a dictionary. Times are nanoseconds of one clock that the caller chooses, the same for all.
//! Cost: a read is a hash, one cache line of the index and the entry itself; a write adds the bucket's lock; a write
//! that must make room looks at `EVICT_STEPS_MAX` places for each entry it evicts.

use std::sync::atomic::AtomicU64 as PlainU64;

use crate::bucket::{Bucket, Version};
use crate::config::{DictConfig, Evict, Sizes, check};
use crate::hashing::KeyHash;
use crate::limits::{CHAIN_MAX, READ_TRIES_MAX};
use crate::store::{Entry, FreeList, Header, Store};
use crate::sync::{Ordering, relax};

/// Why there is no dictionary.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum DictError {
    /// The configuration exceeds what one can be; with what it exceeds.
    Config(String),
    /// The system has not that many bytes.
    Memory(u64),
}

impl std::fmt::Display for DictError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Config(what) => f.write_str(what),
            Self::Memory(bytes) => write!(f, "there are no {bytes} bytes of memory for a dictionary"),
        }
    }
}

impl std::error::Error for DictError {}

/// What writers have counted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Entries forgotten to make room.
    pub evictions: u64,
    /// Entries removed because their time was over.
    pub expirations: u64,
    /// Writes refused for want of room.
    pub refusals: u64,
}

/// Words that only writers touch, on cache lines of their own.
#[derive(Debug, Default)]
#[repr(align(128))]
pub(crate) struct Tally {
    pub(crate) entries: PlainU64,
    pub(crate) evictions: PlainU64,
    pub(crate) expirations: PlainU64,
    pub(crate) refusals: PlainU64,
    /// Where eviction looks next.
    pub(crate) hand: PlainU64,
    /// Where the sweep looks next.
    pub(crate) sweep: PlainU64,
}

/// A dictionary. Share it behind an `Arc`.
#[derive(Debug)]
pub struct Dictionary {
    pub(crate) config: DictConfig,
    hash: KeyHash,
    /// Number of buckets that keys are hashed to.
    pub(crate) heads: usize,
    /// Those, then the overflow buckets.
    pub(crate) buckets: Box<[Bucket]>,
    free_buckets: FreeList,
    pub(crate) store: Store,
    pub(crate) tally: Tally,
}

/// What [`Dictionary::begin`] saw; to be handed to [`Dictionary::commit`] or [`Dictionary::abandon`].
#[derive(Debug)]
#[must_use = "an update that is never committed may hold its bucket for ever"]
pub struct Begun {
    place: Place,
    seen: Version,
    locked: bool,
}

/// Where a key would be.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Place {
    pub(crate) head: usize,
    pub(crate) tag: u8,
}

/// An entry that was found: in which way of which bucket.
#[derive(Clone, Copy, Debug)]
pub(crate) struct At {
    pub(crate) bucket: usize,
    pub(crate) way: usize,
    pub(crate) slot: usize,
    pub(crate) header: Header,
}

/// A held lock; given back when dropped.
pub(crate) struct Held<'a> {
    dictionary: &'a Dictionary,
    pub(crate) head: usize,
    seen: Version,
    pub(crate) changed: bool,
}

impl Drop for Held<'_> {
    fn drop(&mut self) {
        self.dictionary.buckets[self.head].unlock(self.seen, self.changed);
    }
}

impl Dictionary {
    /// Builds an empty dictionary and allocates all it will ever use, [`crate::memory_bytes`] of it.
    ///
    /// Errors: [`DictError`].
    pub fn new(config: DictConfig) -> Result<Self, DictError> {
        let sizes: Sizes = check(&config).map_err(DictError::Config)?;
        let count = (sizes.buckets + sizes.overflow) as usize;
        let mut buckets = Vec::new();
        buckets.try_reserve_exact(count).map_err(|_| DictError::Memory(count as u64 * 64))?;
        buckets.resize_with(count, Bucket::new);
        let buckets = buckets.into_boxed_slice();
        let heads = sizes.buckets as usize;
        let free_buckets = FreeList::full(sizes.overflow, |index| &buckets[heads + index].link);
        let store = Store::new(&sizes).map_err(DictError::Memory)?;
        let hash = KeyHash::new(config.seed);
        Ok(Self { config, hash, heads, buckets, free_buckets, store, tally: Tally::default() })
    }

    /// What it was built from.
    pub fn config(&self) -> &DictConfig {
        &self.config
    }

    /// Writes the value of `key` to the front of `out` and returns its length; `None` when there is none or its time is
    /// over. Panics when `out` is shorter than the value.
    #[inline]
    pub fn get(&self, key: &[u8], now_ns: u64, out: &mut [u8]) -> Option<usize> {
        let place = self.place(key);
        let line = &self.buckets[place.head];
        // The usual case in few instructions, so that the processor can have several reads under way: nobody writes, the
        // entry is the first candidate of its own bucket and lies in one piece, or there is none.
        if let Some(seen) = line.begin_read() {
            let candidates = line.candidates(place.tag);
            if candidates != 0 {
                if let Some(slot) = line.slot(Bucket::way_of(candidates))
                    && let Some(header) = self.store.read_inline(slot, key, out)
                    && !self.is_over(slot, now_ns)
                    && line.unchanged(seen)
                {
                    self.touch(slot, header);
                    return Some(header.value_len());
                }
            } else if line.link.load(Ordering::Relaxed) == 0 && line.unchanged(seen) {
                return None;
            }
        }
        self.get_slowly(place, key, now_ns, out)
    }

    #[inline(never)]
    fn get_slowly(&self, place: Place, key: &[u8], now_ns: u64, out: &mut [u8]) -> Option<usize> {
        self.read(place, |place| self.copy_out(place, key, now_ns, out)).0
    }

    /// Whether `key` is there.
    pub fn has(&self, key: &[u8], now_ns: u64) -> bool {
        self.read(self.place(key), |place| {
            Some(
                self.find(place, key)
                    .filter(|at| !self.is_over(at.slot, now_ns))
                    .inspect(|at| self.touch(at.slot, at.header)),
            )
        })
        .0
        .is_some()
    }

    /// Writes an entry, which lives for `expire_ns` from now. Returns `false` when it was refused, and counts that.
    pub fn put(&self, key: &[u8], value: &[u8], now_ns: u64) -> bool {
        let expires_ns = now_ns.saturating_add(self.config.expire_ns.unwrap_or(0));
        self.put_until(key, value, now_ns, expires_ns)
    }

    /// As `put`, with the time at which it expires.
    pub(crate) fn put_until(&self, key: &[u8], value: &[u8], now_ns: u64, stamp: u64) -> bool {
        let place = self.place(key);
        let mut held = self.lock(place.head);
        self.write(&mut held, place, now_ns, &Entry { key, value, stamp })
    }

    /// Removes `key`; returns whether it was there.
    pub fn remove(&self, key: &[u8], now_ns: u64) -> bool {
        let place = self.place(key);
        let mut held = self.lock(place.head);
        self.remove_held(&mut held, place, key, now_ns)
    }

    /// Buckets that keys are hashed to: what [`Dictionary::sweep`] counts in.
    pub fn buckets(&self) -> usize {
        self.heads
    }

    /// Entries, those whose time is over and that were not yet swept away included.
    pub fn len(&self) -> u64 {
        self.tally.entries.load(Ordering::Relaxed)
    }

    /// Whether it has no entries.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// What writers have counted since the start.
    pub fn counts(&self) -> Counts {
        let Tally { evictions, expirations, refusals, .. } = &self.tally;
        let read = |counter: &PlainU64| counter.load(Ordering::Relaxed);
        Counts { evictions: read(evictions), expirations: read(expirations), refusals: read(refusals) }
    }

    /// Begins an update: as `get`, and remembers what was seen. With `exclusive`, nobody else changes the entry (or any
    /// other of its bucket) until the commit, which then succeeds; the caller must not wait for anybody until then.
    pub fn begin(&self, key: &[u8], now_ns: u64, exclusive: bool, out: &mut [u8]) -> (Option<usize>, Begun) {
        let place = self.place(key);
        if exclusive {
            let seen = self.buckets[place.head].lock();
            let found =
                self.copy_out(place, key, now_ns, out).expect("nobody changes a bucket that is locked");
            return (found, Begun { place, seen, locked: true });
        }
        let (found, seen) = self.read(place, |place| self.copy_out(place, key, now_ns, out));
        (found, Begun { place, seen, locked: false })
    }

    /// Ends an update: writes `value`, or removes the entry for `None`, if nothing changed since `begin` with the same
    /// key. `false`: begin again. A value refused for want of room is counted and is a success.
    pub fn commit(&self, begun: Begun, key: &[u8], value: Option<&[u8]>, now_ns: u64) -> bool {
        let Begun { place, seen, locked } = begun;
        if !locked && !self.buckets[place.head].lock_at(seen) {
            return false;
        }
        let mut held = Held { dictionary: self, head: place.head, seen, changed: false };
        if let Some(value) = value {
            let stamp = now_ns.saturating_add(self.config.expire_ns.unwrap_or(0));
            self.write(&mut held, place, now_ns, &Entry { key, value, stamp });
        } else {
            self.remove_held(&mut held, place, key, now_ns);
        }
        true
    }

    /// Ends an update without a change.
    pub fn abandon(&self, begun: Begun) {
        if begun.locked {
            self.buckets[begun.place.head].unlock(begun.seen, false);
        }
    }

    #[inline]
    fn place(&self, key: &[u8]) -> Place {
        let hash = self.hash.hash(key);
        let head = ((u64::from(hash as u32) * self.heads as u64) >> 32) as usize;
        // Never 0, which is the tag of a free way.
        Place { head, tag: ((hash >> 56) as u8).max(1) }
    }

    /// Reads optimistically, and with the bucket's lock when it changes too often. `look` gives `None` when what it sees
    /// cannot be.
    #[inline]
    fn read<T>(
        &self,
        place: Place,
        mut look: impl FnMut(Place) -> Option<Option<T>>,
    ) -> (Option<T>, Version) {
        let bucket = &self.buckets[place.head];
        for turn in 0..READ_TRIES_MAX {
            if let Some(seen) = bucket.begin_read() {
                let found = look(place);
                if bucket.unchanged(seen) {
                    return (found.expect("an entry that nobody changes is whole and fits"), seen);
                }
            }
            relax(turn as u32);
        }
        let held = self.lock(place.head);
        (look(place).expect("an entry that nobody changes is whole and fits"), held.seen)
    }

    #[inline]
    fn copy_out(&self, place: Place, key: &[u8], now_ns: u64, out: &mut [u8]) -> Option<Option<usize>> {
        let Some(at) = self.find(place, key) else { return Some(None) };
        if self.is_over(at.slot, now_ns) {
            return Some(None);
        }
        let len = self.store.copy_value(at.slot, at.header, out)?;
        self.touch(at.slot, at.header);
        Some(Some(len))
    }

    /// Marks as used, where that matters and is not yet so.
    #[inline]
    fn touch(&self, slot: usize, header: Header) {
        if self.config.evict == Evict::Lru && !header.used() {
            self.store.mark(slot);
        }
    }

    /// Whether the entry's time is over.
    #[inline]
    pub(crate) fn is_over(&self, slot: usize, now_ns: u64) -> bool {
        self.config.expire_ns.is_some() && self.store.stamp(slot) <= now_ns
    }

    /// Finds `key`. Without the lock, what is found is only a guess until the version has been looked at.
    #[inline]
    fn find(&self, place: Place, key: &[u8]) -> Option<At> {
        let mut bucket = place.head;
        for _ in 0..=CHAIN_MAX {
            let line = &self.buckets[bucket];
            let mut candidates = line.candidates(place.tag);
            // At most one for each way.
            while candidates != 0 {
                let way = Bucket::way_of(candidates);
                candidates &= candidates - 1;
                let Some(slot) = line.slot(way) else { continue };
                if let Some(header) = self.store.matches(slot, key) {
                    return Some(At { bucket, way, slot, header });
                }
            }
            bucket = self.behind(bucket)?;
        }
        None
    }

    pub(crate) fn lock(&self, head: usize) -> Held<'_> {
        Held { dictionary: self, head, seen: self.buckets[head].lock(), changed: false }
    }

    pub(crate) fn try_lock(&self, head: usize) -> Option<Held<'_>> {
        let seen = self.buckets[head].try_lock()?;
        Some(Held { dictionary: self, head, seen, changed: false })
    }

    fn write(&self, held: &mut Held<'_>, place: Place, now_ns: u64, entry: &Entry<'_>) -> bool {
        let DictConfig { key_bytes_max, value_bytes_max, .. } = self.config;
        assert!(entry.key.len() <= key_bytes_max as usize, "a key is longer than its type allows");
        assert!(entry.value.len() <= value_bytes_max as usize, "a value is longer than its type allows");
        let written = match self.find(place, entry.key) {
            Some(at) => self.overwrite(held, at, now_ns, entry),
            None => self.insert(held, place, now_ns, entry),
        };
        if !written {
            self.tally.refusals.fetch_add(1, Ordering::Relaxed);
        }
        written
    }

    fn overwrite(&self, held: &mut Held<'_>, at: At, now_ns: u64, entry: &Entry<'_>) -> bool {
        held.changed = true;
        let mut room = self.room(now_ns, Some(at.slot));
        let chain = self.store.take_chain(entry.key, entry.value, Some(at.slot), || room.make(held, true));
        let Some(chain) = chain else { return false };
        self.store.write(at.slot, chain, entry, true);
        true
    }

    fn insert(&self, held: &mut Held<'_>, place: Place, now_ns: u64, entry: &Entry<'_>) -> bool {
        let mut room = self.room(now_ns, None);
        let slot = loop {
            match self.store.take_slot() {
                Some(slot) => break slot,
                None if room.make(held, false) => {}
                None => return false,
            }
        };
        let chain = self.store.take_chain(entry.key, entry.value, None, || room.make(held, true));
        let Some(chain) = chain else {
            self.store.give_slot(slot);
            return false;
        };
        self.store.write(slot, chain, entry, false);
        let (line, way) = loop {
            match self.free_way(held) {
                Some(free) => break free,
                None if room.make_here(held) => {}
                None => {
                    self.store.give_chunks_of(slot);
                    self.store.give_slot(slot);
                    return false;
                }
            }
        };
        held.changed = true;
        line.set(way, place.tag, slot);
        self.tally.entries.fetch_add(1, Ordering::Relaxed);
        true
    }

    /// A free way of the held bucket or behind it, where an overflow bucket is put if need be.
    fn free_way(&self, held: &mut Held<'_>) -> Option<(&Bucket, usize)> {
        let mut bucket = held.head;
        for _ in 0..CHAIN_MAX {
            let line = &self.buckets[bucket];
            if let Some(free) = line.free_way() {
                return Some((line, free));
            }
            bucket = match self.behind(bucket) {
                Some(next) => next,
                None => {
                    let index = self.free_buckets.pop(|index| &self.buckets[self.heads + index].link)?;
                    let new = &self.buckets[self.heads + index];
                    new.set_owner(held.head);
                    new.link.store(0, Ordering::Relaxed);
                    held.changed = true;
                    line.link.store(index as u64 + 1, Ordering::Relaxed);
                    self.heads + index
                }
            };
        }
        None
    }

    fn remove_held(&self, held: &mut Held<'_>, place: Place, key: &[u8], now_ns: u64) -> bool {
        let Some(at) = self.find(place, key) else { return false };
        let over = self.is_over(at.slot, now_ns);
        if over {
            self.tally.expirations.fetch_add(1, Ordering::Relaxed);
        }
        self.free(held, at.bucket, at.way, at.slot);
        !over
    }

    /// Takes an entry out of the held bucket or one behind it. The last entry of the chain moves into its place, so that
    /// a chain is never longer than its entries need.
    pub(crate) fn free(&self, held: &mut Held<'_>, bucket: usize, way: usize, slot: usize) {
        held.changed = true;
        let (mut before, mut last) = (None, held.head);
        for _ in 0..CHAIN_MAX {
            let Some(next) = self.behind(last) else { break };
            (before, last) = (Some(last), next);
        }
        let line = &self.buckets[last];
        let moved = line.last_way().expect("the last bucket of a chain is not empty");
        let moved_slot = line.slot(moved).expect("it was found in use");
        self.buckets[bucket].set(way, line.tag(moved), moved_slot);
        line.clear(moved);
        if let Some(before) = before
            && line.last_way().is_none()
        {
            self.buckets[before].link.store(0, Ordering::Relaxed);
            self.free_buckets.push(last - self.heads, |index| &self.buckets[self.heads + index].link);
        }
        self.tally.entries.fetch_sub(1, Ordering::Relaxed);
        self.store.give_chunks_of(slot);
        self.store.give_slot(slot);
    }

    /// The overflow bucket behind a bucket.
    fn behind(&self, bucket: usize) -> Option<usize> {
        let link = self.buckets[bucket].link.load(Ordering::Relaxed) as usize;
        link.checked_sub(1).map(|index| self.heads + index)
    }
}
