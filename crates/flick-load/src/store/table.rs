//! The items of the store: a chained hash table over a slab, with a list from newest to oldest.
//!
//! Promises: at most `entries_max` items and about `bytes_max` bytes; a write into a full table evicts the oldest
//! items; an overwrite reuses the memory of what it overwrites.
//! Refuses: reading a clock. The caller passes the time, in seconds.

use xxhash_rust::xxh3::xxh3_64_with_seed;

/// Marks the end of a chain or of the age list.
const NONE: u32 = u32::MAX;

/// Bytes that an item costs beside its key and value.
const ITEM_OVERHEAD_BYTES: usize = size_of::<Item>();

/// One item. A free slot has an empty `data` and is linked through `chain`.
struct Item {
    hash: u64,
    /// Next item of the same bucket, or next free slot.
    chain: u32,
    newer: u32,
    older: u32,
    flags: u32,
    cas: u64,
    /// Second after which the item is gone; zero means never.
    expires_s: u64,
    key_len: usize,
    /// Key and value, one after the other.
    data: Vec<u8>,
}

/// View of an item for a reader.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct ItemView<'a> {
    pub(super) value: &'a [u8],
    pub(super) flags: u32,
    pub(super) cas: u64,
}

/// A bounded set of items.
pub(super) struct Table {
    buckets: Vec<u32>,
    items: Vec<Item>,
    free: u32,
    newest: u32,
    oldest: u32,
    seed: u64,
    entries_max: usize,
    bytes_max: usize,
    entries: usize,
    bytes: usize,
    evictions: u64,
    next_cas: u64,
}

impl Table {
    /// Builds an empty table. Keys are hashed with `seed`, so that no client can choose keys of one bucket.
    pub(super) fn new(entries_max: usize, bytes_max: usize, seed: u64) -> Table {
        assert!(entries_max > 0 && entries_max < NONE as usize, "slots are named by u32");
        Table {
            buckets: vec![NONE; entries_max.next_power_of_two()],
            items: Vec::new(),
            free: NONE,
            newest: NONE,
            oldest: NONE,
            seed,
            entries_max,
            bytes_max,
            entries: 0,
            bytes: 0,
            evictions: 0,
            next_cas: 1,
        }
    }

    pub(super) fn len(&self) -> usize {
        self.entries
    }

    pub(super) fn bytes(&self) -> usize {
        self.bytes
    }

    pub(super) fn evictions(&self) -> u64 {
        self.evictions
    }

    /// Returns the item under `key`, unless it has expired.
    pub(super) fn get(&mut self, key: &[u8], now_s: u64) -> Option<ItemView<'_>> {
        let slot = self.find(key, now_s)?;
        let item = &self.items[slot as usize];
        Some(ItemView { value: &item.data[item.key_len..], flags: item.flags, cas: item.cas })
    }

    /// Sets the expiry of the item under `key`; returns whether there is one.
    pub(super) fn touch(&mut self, key: &[u8], expires_s: u64, now_s: u64) -> bool {
        let Some(slot) = self.find(key, now_s) else { return false };
        self.items[slot as usize].expires_s = expires_s;
        true
    }

    /// Writes `front` and `back` as the value under `key` and returns the new version, or `None` if it can never fit.
    pub(super) fn set(
        &mut self,
        key: &[u8],
        (front, back): (&[u8], &[u8]),
        flags: u32,
        expires_s: u64,
        now_s: u64,
    ) -> Option<u64> {
        let charge = ITEM_OVERHEAD_BYTES + key.len() + front.len() + back.len();
        if charge > self.bytes_max {
            self.remove(key, now_s);
            return None;
        }
        let slot = match self.find(key, now_s) {
            Some(slot) => self.detach(slot),
            None => self.insert_empty(key),
        };
        let cas = self.next_cas;
        self.next_cas += 1;
        let item = &mut self.items[slot as usize];
        item.flags = flags;
        item.expires_s = expires_s;
        item.cas = cas;
        item.key_len = key.len();
        item.data.clear();
        item.data.reserve_exact(key.len() + front.len() + back.len());
        item.data.extend_from_slice(key);
        item.data.extend_from_slice(front);
        item.data.extend_from_slice(back);
        // A much shorter value must not keep the memory of a long one: bytes are counted by length.
        if item.data.capacity() > 2 * item.data.len() + 64 {
            item.data.shrink_to_fit();
        }
        self.bytes += charge;
        self.attach_newest(slot);
        while self.bytes > self.bytes_max {
            self.evict_oldest();
        }
        Some(cas)
    }

    /// Writes `front` before or `back` after the existing value under `key`, keeping flags and expiry.
    pub(super) fn extend(&mut self, key: &[u8], front: &[u8], back: &[u8], now_s: u64) -> Option<u64> {
        let slot = self.find(key, now_s)?;
        let item = &self.items[slot as usize];
        let (flags, expires_s) = (item.flags, item.expires_s);
        let joined = [front, &item.data[item.key_len..], back].concat();
        self.set(key, (&joined, &[]), flags, expires_s, now_s)
    }

    /// Overwrites the value under `key`, keeping flags and expiry.
    pub(super) fn set_value(&mut self, key: &[u8], value: &[u8], now_s: u64) -> Option<u64> {
        let slot = self.find(key, now_s)?;
        let (flags, expires_s) = (self.items[slot as usize].flags, self.items[slot as usize].expires_s);
        self.set(key, (value, &[]), flags, expires_s, now_s)
    }

    /// Removes the item under `key`; returns whether there was one.
    pub(super) fn remove(&mut self, key: &[u8], now_s: u64) -> bool {
        let Some(slot) = self.find(key, now_s) else { return false };
        self.free_slot(slot);
        true
    }

    /// Removes every item and frees its memory.
    pub(super) fn clear(&mut self) {
        self.buckets.fill(NONE);
        self.items = Vec::new();
        (self.free, self.newest, self.oldest) = (NONE, NONE, NONE);
        (self.entries, self.bytes) = (0, 0);
    }

    /// Finds the slot of `key`; an expired item is removed on the way.
    fn find(&mut self, key: &[u8], now_s: u64) -> Option<u32> {
        let hash = xxh3_64_with_seed(key, self.seed);
        let mut slot = self.buckets[self.bucket(hash)];
        while slot != NONE {
            let item = &self.items[slot as usize];
            if item.hash == hash && &item.data[..item.key_len] == key {
                if item.expires_s != 0 && item.expires_s <= now_s {
                    self.free_slot(slot);
                    return None;
                }
                return Some(slot);
            }
            slot = item.chain;
        }
        None
    }

    /// Takes a slot for a new `key` and chains it into its bucket; evicts first when every slot is taken.
    fn insert_empty(&mut self, key: &[u8]) -> u32 {
        if self.entries == self.entries_max {
            self.evict_oldest();
        }
        let hash = xxh3_64_with_seed(key, self.seed);
        let bucket = self.bucket(hash);
        let slot = if self.free == NONE {
            let slot = u32::try_from(self.items.len()).expect("entries_max fits u32");
            self.items.push(Item::empty());
            slot
        } else {
            let slot = self.free;
            self.free = self.items[slot as usize].chain;
            slot
        };
        let item = &mut self.items[slot as usize];
        item.hash = hash;
        item.chain = self.buckets[bucket];
        self.buckets[bucket] = slot;
        self.entries += 1;
        slot
    }

    /// Takes an item out of the age list and the byte count, keeping it in its bucket.
    fn detach(&mut self, slot: u32) -> u32 {
        let item = &self.items[slot as usize];
        let (newer, older) = (item.newer, item.older);
        self.bytes -= ITEM_OVERHEAD_BYTES + item.data.len();
        match newer {
            NONE => self.newest = older,
            newer => self.items[newer as usize].older = older,
        }
        match older {
            NONE => self.oldest = newer,
            older => self.items[older as usize].newer = newer,
        }
        slot
    }

    fn attach_newest(&mut self, slot: u32) {
        let older = self.newest;
        let item = &mut self.items[slot as usize];
        (item.newer, item.older) = (NONE, older);
        match older {
            NONE => self.oldest = slot,
            older => self.items[older as usize].newer = slot,
        }
        self.newest = slot;
    }

    fn evict_oldest(&mut self) {
        assert!(self.oldest != NONE, "a full table has an oldest item");
        self.evictions += 1;
        self.free_slot(self.oldest);
    }

    fn free_slot(&mut self, slot: u32) {
        self.detach(slot);
        let bucket = self.bucket(self.items[slot as usize].hash);
        let chain = self.items[slot as usize].chain;
        if self.buckets[bucket] == slot {
            self.buckets[bucket] = chain;
        } else {
            let mut before = self.buckets[bucket];
            while self.items[before as usize].chain != slot {
                before = self.items[before as usize].chain;
            }
            self.items[before as usize].chain = chain;
        }
        self.items[slot as usize] = Item { chain: self.free, ..Item::empty() };
        self.free = slot;
        self.entries -= 1;
    }

    fn bucket(&self, hash: u64) -> usize {
        hash as usize & (self.buckets.len() - 1)
    }
}

impl Item {
    fn empty() -> Item {
        Item {
            hash: 0,
            chain: NONE,
            newer: NONE,
            older: NONE,
            flags: 0,
            cas: 0,
            expires_s: 0,
            key_len: 0,
            data: Vec::new(),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::VecDeque;

    use super::*;
    use crate::random::Random;

    /// Runs random writes, reads and removals against a list with linear search.
    #[test]
    fn agrees_with_a_plain_list() {
        for seed in 0..20 {
            let mut random = Random::new(seed);
            let mut table = Table::new(16, 1 << 20, seed);
            let mut model: VecDeque<(Vec<u8>, Vec<u8>)> = VecDeque::new();
            for step in 0..2_000 {
                let key = format!("key{}", random.below(24)).into_bytes();
                let at = model.iter().position(|(k, _)| *k == key);
                match random.below(3) {
                    0 => {
                        let value = vec![step as u8; random.below(64) as usize];
                        assert!(table.set(&key, (&value, &[]), 0, 0, 0).is_some());
                        if let Some(at) = at {
                            model.remove(at);
                        } else if model.len() == 16 {
                            model.pop_front();
                        }
                        model.push_back((key, value));
                    }
                    1 => {
                        assert_eq!(table.remove(&key, 0), at.is_some(), "seed {seed} step {step}");
                        at.map(|at| model.remove(at));
                    }
                    _ => {
                        let seen = table.get(&key, 0).map(|item| item.value.to_vec());
                        assert_eq!(seen, at.map(|at| model[at].1.clone()), "seed {seed} step {step}");
                    }
                }
                let bytes: usize = model.iter().map(|(k, v)| k.len() + v.len() + ITEM_OVERHEAD_BYTES).sum();
                assert_eq!((table.len(), table.bytes()), (model.len(), bytes), "seed {seed} step {step}");
            }
        }
    }

    #[test]
    fn bytes_are_bounded_and_the_oldest_is_evicted_first() {
        let mut table = Table::new(1_000, 10_000, 1);
        for i in 0..100u8 {
            assert!(table.set(&[i], (&[i; 1_000], &[]), 0, 0, 0).is_some());
            assert!(table.bytes() <= 10_000);
        }
        assert!(table.get(&[99], 0).is_some());
        assert!(table.get(&[80], 0).is_none());
        assert_eq!(table.set(b"huge", (&[0; 10_000], &[]), 0, 0, 0), None);
        assert_eq!(table.evictions(), 100 - table.len() as u64);
    }

    #[test]
    fn an_item_expires_at_its_second() {
        let mut table = Table::new(10, 10_000, 1);
        table.set(b"k", (b"v", b""), 7, 100, 99);
        assert_eq!(table.get(b"k", 99).map(|item| item.flags), Some(7));
        assert!(table.touch(b"k", 102, 99));
        assert!(table.get(b"k", 101).is_some());
        assert!(table.get(b"k", 102).is_none());
        assert_eq!(table.len(), 0);
    }
}
