//! The memory of entries: blocks of one length. An entry has one, or a chain of them; its first block is its slot.
//! Promises: a reader stays inside the bounds, however stale what it reads is; the caller's check of the bucket's
//! version decides whether the result is valid.
//! Refuses: deciding who may write; a slot belongs to the bucket that names it, and is written under that bucket's
//! lock.

use crate::config::{SLOT_HEAD_WORDS, Sizes};
use crate::limits::{FREE_LIST_TRIES_MAX, LOOK_AHEAD_BLOCKS};
use crate::sync::{AtomicU64, Ordering, back_off};
use crate::words::{fill, tail_word, words, words_of};

/// Bits of a header that hold the length of the key.
const KEY_BITS: u32 = 13;
/// Bits that hold the length of the value.
const VALUE_BITS: u32 = 21;

/// Word 0 of a slot: bits 0..13 length of the key, 13..34 of the value, 34..64 next block plus one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Header(u64);

impl Header {
    fn new(key_len: usize, value_len: usize, next: u32) -> Self {
        let lengths = key_len as u64 | ((value_len as u64) << KEY_BITS);
        Self(lengths | (u64::from(next) << (KEY_BITS + VALUE_BITS)))
    }

    #[inline]
    pub(crate) fn key_len(self) -> usize {
        (self.0 & ((1 << KEY_BITS) - 1)) as usize
    }

    #[inline]
    pub(crate) fn value_len(self) -> usize {
        ((self.0 >> KEY_BITS) & ((1 << VALUE_BITS) - 1)) as usize
    }

    #[inline]
    fn next(self) -> u32 {
        (self.0 >> (KEY_BITS + VALUE_BITS)) as u32
    }
}

/// Word 0 of a later block of a chain: bits 0..32 next block plus one, 34..64 the block [`LOOK_AHEAD_BLOCKS`] further
/// plus one, which is loaded ahead, as each next block is known only when the one before it has been loaded. A late
/// reader takes it for a [`Header`], whose lengths and next block are those of no entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Continuation(u64);

impl Continuation {
    fn new(next: u32, ahead: u32) -> Self {
        Self(u64::from(next) | (u64::from(ahead) << (KEY_BITS + VALUE_BITS)))
    }

    #[inline]
    fn next(self) -> u32 {
        self.0 as u32
    }

    #[inline]
    fn ahead(self) -> u32 {
        (self.0 >> (KEY_BITS + VALUE_BITS)) as u32
    }
}

/// A list of free elements. Numbers are one more than indices; 0 ends the list.
#[derive(Debug)]
pub(crate) struct FreeList {
    /// A count of changes in the upper half, against the ABA problem; the first number in the lower half.
    head: AtomicU64,
}

impl FreeList {
    fn new(first: u32) -> Self {
        Self { head: AtomicU64::new(u64::from(first)) }
    }

    /// Takes one; `next_of` returns the word that names the next.
    pub(crate) fn pop<'a>(&self, next_of: impl Fn(usize) -> &'a AtomicU64) -> Option<usize> {
        for attempt in 0..FREE_LIST_TRIES_MAX {
            let head = self.head.load(Ordering::Acquire);
            let first = head as u32;
            if first == 0 {
                return None;
            }
            let index = first as usize - 1;
            // Another thread may have taken and written it meanwhile; then the exchange fails.
            let next = next_of(index).load(Ordering::Relaxed) as u32;
            let new = ((head >> 32).wrapping_add(1) << 32) | u64::from(next);
            if self.head.compare_exchange(head, new, Ordering::AcqRel, Ordering::Relaxed).is_ok() {
                return Some(index);
            }
            back_off(attempt);
        }
        panic!("a free list changes forever");
    }

    /// Returns one to the list.
    pub(crate) fn push<'a>(&self, index: usize, next_of: impl Fn(usize) -> &'a AtomicU64) {
        self.push_chain(index, index, next_of);
    }

    /// Returns the chain from `first` to `last` to the list.
    fn push_chain<'a>(&self, first: usize, last: usize, next_of: impl Fn(usize) -> &'a AtomicU64) {
        for attempt in 0..FREE_LIST_TRIES_MAX {
            let head = self.head.load(Ordering::Relaxed);
            next_of(last).store(u64::from(head as u32), Ordering::Relaxed);
            let new = ((head >> 32).wrapping_add(1) << 32) | (first as u64 + 1);
            if self.head.compare_exchange(head, new, Ordering::AcqRel, Ordering::Relaxed).is_ok() {
                return;
            }
            back_off(attempt);
        }
        panic!("a free list changes forever");
    }

    /// Creates a list of `count` elements, first to last.
    pub(crate) fn full<'a>(count: u64, next_of: impl Fn(usize) -> &'a AtomicU64) -> Self {
        for index in 0..count as usize {
            let next = if index + 1 == count as usize { 0 } else { index as u64 + 2 };
            next_of(index).store(next, Ordering::Relaxed);
        }
        Self::new(u32::from(count > 0))
    }
}

/// All blocks of a dictionary.
#[derive(Debug)]
pub(crate) struct Store {
    words: Box<[AtomicU64]>,
    block_words: usize,
    free: FreeList,
}

/// Allocates zeroed words. Errors: the number of bytes that could not be allocated.
fn zeroed(count: u64) -> Result<Box<[AtomicU64]>, u64> {
    let bytes = count.saturating_mul(8);
    let mut words = Vec::new();
    let count = usize::try_from(count).map_err(|_| bytes)?;
    words.try_reserve_exact(count).map_err(|_| bytes)?;
    words.resize_with(count, || AtomicU64::new(0));
    Ok(words.into_boxed_slice())
}

impl Store {
    /// Errors: the number of bytes that could not be allocated.
    pub(crate) fn new(sizes: &Sizes) -> Result<Self, u64> {
        let block_words = sizes.block_words;
        let words = zeroed(sizes.blocks.saturating_mul(block_words as u64))?;
        let free = FreeList::full(sizes.blocks, |block| &words[block * block_words + 1]);
        Ok(Self { words, block_words, free })
    }

    pub(crate) fn block_bytes(&self) -> u64 {
        self.block_words as u64 * 8
    }

    #[inline]
    fn block(&self, block: usize) -> &[AtomicU64] {
        &self.words[block * self.block_words..(block + 1) * self.block_words]
    }

    /// Word 1 of a free block names the next free one: a late reader may still follow word 0.
    fn next_free(&self, block: usize) -> &AtomicU64 {
        &self.block(block)[1]
    }

    /// Takes a free block.
    pub(crate) fn alloc_block(&self) -> Option<usize> {
        self.free.pop(|block| self.next_free(block))
    }

    /// Frees a block that no chain continues.
    pub(crate) fn free_block(&self, block: usize) {
        self.free.push(block, |block| self.next_free(block));
    }

    /// Returns the word of a later block of a chain that is its [`Continuation`].
    fn continuation_word(&self, block: usize) -> &AtomicU64 {
        &self.block(block)[0]
    }

    /// Returns the continuation of a later block of a chain, and loads the block that it looks ahead to.
    fn continuation(&self, block: usize) -> Continuation {
        let continuation = Continuation(self.continuation_word(block).load(Ordering::Relaxed));
        self.preload_next(continuation.ahead());
        continuation
    }

    #[inline]
    pub(crate) fn header(&self, slot: usize) -> Header {
        Header(self.block(slot)[0].load(Ordering::Relaxed))
    }

    /// Returns when the entry expires; without expiry, when it was written.
    #[inline]
    pub(crate) fn stamp(&self, slot: usize) -> u64 {
        self.block(slot)[1].load(Ordering::Relaxed)
    }

    /// Returns the header if the slot holds `key`.
    #[inline]
    pub(crate) fn matches(&self, slot: usize, key: &[u8]) -> Option<Header> {
        let header = self.header(slot);
        let mut payload = self.payload(slot, header);
        let same = header.key_len() == key.len() && words_of(key).all(|word| payload.next() == Some(word));
        same.then_some(header)
    }

    /// Loads the first block of an entry into the processor's cache; returns the next one of its chain plus one.
    #[inline]
    pub(crate) fn preload(&self, slot: usize) -> u32 {
        let block = self.block(slot);
        // A block may lie in two cache lines.
        let _last = std::hint::black_box(block[self.block_words - 1].load(Ordering::Relaxed));
        Header(block[0].load(Ordering::Relaxed)).next()
    }

    /// Loads a later block of a chain, by its number plus one, if there is one.
    #[inline]
    pub(crate) fn preload_next(&self, next: u32) {
        let Some(block) = next.checked_sub(1) else { return };
        let first = (block as usize).wrapping_mul(self.block_words);
        for word in [first, first.wrapping_add(self.block_words - 1)] {
            let _word = std::hint::black_box(self.words.get(word).map(|word| word.load(Ordering::Relaxed)));
        }
    }

    /// If the slot holds `key`, copies the value to the front of `out`. `None` is no result: the entry may be another
    /// one, its key may continue in another block, or it is being changed.
    #[inline]
    pub(crate) fn read(&self, slot: usize, key: &[u8], out: &mut [u8]) -> Option<Header> {
        let (head, payload) = self.block(slot).split_first_chunk::<SLOT_HEAD_WORDS>()?;
        let header = Header(head[0].load(Ordering::Relaxed));
        if header.key_len() != key.len() {
            return None;
        }
        let out = out.get_mut(..header.value_len())?;
        let (whole, _) = key.as_chunks::<8>();
        let mut stored = payload.iter();
        for word in whole {
            if stored.next()?.load(Ordering::Relaxed) != u64::from_le_bytes(*word) {
                return None;
            }
        }
        if let Some(word) = tail_word(key)
            && stored.next()?.load(Ordering::Relaxed) != word
        {
            return None;
        }
        let mut rest = Payload { run: stored.as_slice(), next: header.next(), store: self };
        rest.copy(out).then_some(header)
    }

    /// Copies the value to the front of `out`. `None`: `out` is too short, or the entry is being changed.
    #[inline]
    pub(crate) fn copy_value(&self, slot: usize, header: Header, out: &mut [u8]) -> Option<usize> {
        let out = out.get_mut(..header.value_len())?;
        let key_words = words(header.key_len());
        let mut payload = self.payload(slot, header);
        if key_words <= payload.run.len() {
            payload.run = &payload.run[key_words..];
        } else {
            for _ in 0..key_words {
                payload.next()?;
            }
        }
        payload.copy(out).then_some(header.value_len())
    }

    /// Copies the key to the front of `out`; as `copy_value`.
    pub(crate) fn copy_key(&self, slot: usize, header: Header, out: &mut [u8]) -> Option<usize> {
        let out = out.get_mut(..header.key_len())?;
        let mut payload = self.payload(slot, header);
        fill(out, || payload.next()).then_some(header.key_len())
    }

    #[inline]
    fn payload(&self, slot: usize, header: Header) -> Payload<'_> {
        Payload { run: &self.block(slot)[SLOT_HEAD_WORDS..], next: header.next(), store: self }
    }

    /// Returns how many blocks an entry has behind its first one, by the lengths of its key and value.
    fn chain_len(&self, key_len: usize, value_len: usize) -> usize {
        let total = words(key_len) + words(value_len);
        total.saturating_sub(self.block_words - SLOT_HEAD_WORDS).div_ceil(self.block_words - 1)
    }

    /// Returns how many blocks an entry that was written has behind its first one, and the first of them plus one.
    fn chain_of(&self, slot: usize) -> (usize, u32) {
        let header = self.header(slot);
        (self.chain_len(header.key_len(), header.value_len()), header.next())
    }

    /// Returns how many blocks an entry that was written takes.
    pub(crate) fn blocks_of(&self, slot: usize) -> u64 {
        1 + self.chain_of(slot).0 as u64
    }

    /// Allocates the blocks of an entry behind its first one, those of `from` (an entry about to be overwritten) first;
    /// calls `evict` when none is free, which returns whether to try again. Returns the first of them plus one. `None`:
    /// no block is free; `from` keeps its chain.
    pub(crate) fn alloc_chain(
        &self,
        key: &[u8],
        value: &[u8],
        from: Option<usize>,
        evict: impl FnMut() -> bool,
    ) -> Option<u32> {
        let needed = self.chain_len(key.len(), value.len());
        let (kept, old) = from.map_or((0, 0), |slot| self.chain_of(slot));
        match (kept.checked_sub(needed), old.checked_sub(1)) {
            (Some(0), _) => Some(old),
            (Some(excess), Some(first)) => Some(self.free_run(first as usize, excess)),
            (Some(_), None) => panic!("a chain has as many blocks as its header says"),
            (None, _) => self.grow_chain(old, needed - kept, evict),
        }
    }

    /// Puts free blocks in front of a chain, which stays as it is; otherwise as `alloc_chain`.
    fn grow_chain(&self, old: u32, missing: usize, mut evict: impl FnMut() -> bool) -> Option<u32> {
        let (mut first, mut window) = (old, self.window(old));
        for taken in 0..missing {
            let allocated = loop {
                if let Some(block) = self.alloc_block() {
                    break Some(block);
                }
                if !evict() {
                    break None;
                }
            };
            let Some(block) = allocated else {
                if let (Some(front), Some(_)) = (first.checked_sub(1), taken.checked_sub(1)) {
                    self.free_run(front as usize, taken);
                }
                return None;
            };
            if missing > LOOK_AHEAD_BLOCKS {
                // Most free blocks are next to those of the chain they were in, and are taken in its order.
                let _before = self.continuation(block);
            }
            window[taken % LOOK_AHEAD_BLOCKS] = first;
            let continuation = Continuation::new(first, window[(taken + 1) % LOOK_AHEAD_BLOCKS]);
            self.continuation_word(block).store(continuation.0, Ordering::Relaxed);
            first = block as u32 + 1;
        }
        Some(first)
    }

    /// Returns the first blocks of a chain but the front one, plus one, the last one first, behind an empty cell: the
    /// window through which blocks in front of it look ahead.
    fn window(&self, first: u32) -> [u32; LOOK_AHEAD_BLOCKS] {
        let mut window = [0; LOOK_AHEAD_BLOCKS];
        let mut at = first;
        for cell in window[1..].iter_mut().rev() {
            let Some(block) = at.checked_sub(1) else { break };
            at = Continuation(self.continuation_word(block as usize).load(Ordering::Relaxed)).next();
            *cell = at;
        }
        window
    }

    /// Frees all blocks of an entry.
    pub(crate) fn free_entry(&self, slot: usize) {
        let (count, next) = self.chain_of(slot);
        self.free_blocks(slot, next, count);
    }

    /// Frees the first `count` blocks of a chain, and returns the one behind them plus one.
    fn free_run(&self, first: usize, count: usize) -> u32 {
        self.free_blocks(first, self.continuation(first).next(), count - 1)
    }

    /// Frees a block and the `count` blocks that follow it, of which `next` minus one is the first; returns the one
    /// behind them plus one.
    fn free_blocks(&self, first: usize, next: u32, count: usize) -> u32 {
        let (mut last, mut next) = (first, next);
        for _ in 0..count {
            self.next_free(last).store(u64::from(next), Ordering::Relaxed);
            last = (next as usize).checked_sub(1).expect("a chain has as many blocks as its header says");
            next = self.continuation(last).next();
        }
        self.free.push_chain(first, last, |block| self.next_free(block));
        next
    }

    /// Writes an entry whose chain is allocated.
    pub(crate) fn write(&self, slot: usize, chain: u32, entry: &Entry<'_>) {
        let words = self.block(slot);
        let header = Header::new(entry.key.len(), entry.value.len(), chain);
        words[0].store(header.0, Ordering::Relaxed);
        words[1].store(entry.stamp, Ordering::Relaxed);
        let mut payload = self.payload(slot, header);
        let written = payload.put(entry.key) && payload.put(entry.value);
        assert!(written, "the chain was allocated for this payload");
    }
}

/// An entry to write.
pub(crate) struct Entry<'a> {
    pub(crate) key: &'a [u8],
    pub(crate) value: &'a [u8],
    pub(crate) stamp: u64,
}

/// The words of an entry, in order. It ends early when the chain changes under a reader.
struct Payload<'a> {
    run: &'a [AtomicU64],
    next: u32,
    store: &'a Store,
}

impl<'a> Payload<'a> {
    /// Returns the rest of the piece, or the next piece; never an empty one.
    #[inline]
    fn piece(&mut self) -> Option<&'a [AtomicU64]> {
        if self.run.is_empty() {
            let (block, len) = (self.next.checked_sub(1)? as usize, self.store.block_words);
            // A block that is a slot by now leads anywhere.
            let (word, run) = self.store.words.get(block * len..(block + 1) * len)?.split_first()?;
            let continuation = Continuation(word.load(Ordering::Relaxed));
            self.store.preload_next(continuation.ahead());
            (self.next, self.run) = (continuation.next(), run);
        }
        Some(self.run)
    }

    #[inline]
    fn next_word(&mut self) -> Option<&'a AtomicU64> {
        let (first, rest) = self.piece()?.split_first()?;
        self.run = rest;
        Some(first)
    }

    #[inline]
    fn next(&mut self) -> Option<u64> {
        self.next_word().map(|word| word.load(Ordering::Relaxed))
    }

    /// Fills `out` with the next words; `false` when there are too few.
    #[inline]
    fn copy(&mut self, out: &mut [u8]) -> bool {
        let (mut whole, rest) = out.as_chunks_mut::<8>();
        while !whole.is_empty() {
            let Some(piece) = self.piece() else { return false };
            let count = piece.len().min(whole.len());
            let (now, later) = whole.split_at_mut(count);
            let (stored, left) = piece.split_at(count);
            let ((fours, few), (stored_fours, stored_few)) =
                (now.as_chunks_mut::<4>(), stored.as_chunks::<4>());
            for (four, stored) in fours.iter_mut().zip(stored_fours) {
                for (target, word) in four.iter_mut().zip(stored) {
                    *target = word.load(Ordering::Relaxed).to_le_bytes();
                }
            }
            for (target, word) in few.iter_mut().zip(stored_few) {
                *target = word.load(Ordering::Relaxed).to_le_bytes();
            }
            (self.run, whole) = (left, later);
        }
        rest.is_empty() || fill(rest, || self.next())
    }

    /// Writes `bytes` into the next words; `false` when there are too few.
    fn put(&mut self, bytes: &[u8]) -> bool {
        let (mut whole, _) = bytes.as_chunks::<8>();
        while !whole.is_empty() {
            let Some(piece) = self.piece() else { return false };
            let (now, later) = whole.split_at(piece.len().min(whole.len()));
            for (word, target) in now.iter().zip(piece) {
                target.store(u64::from_le_bytes(*word), Ordering::Relaxed);
            }
            (self.run, whole) = (&piece[now.len()..], later);
        }
        let Some(last) = tail_word(bytes) else { return true };
        let Some(target) = self.next_word() else { return false };
        target.store(last, Ordering::Relaxed);
        true
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::{Continuation, Entry, Store};
    use crate::config::{DictConfig, Seed, Sizes};
    use crate::limits::LOOK_AHEAD_BLOCKS;
    use crate::sync::Ordering;
    use flick_abi::Evict;

    fn store() -> Store {
        let config = DictConfig {
            entries_max: 16,
            bytes_max: None,
            key_bytes_max: 64,
            value_bytes_max: 16 * 1024,
            expire_ns: None,
            evict: Evict::Nothing,
            seed: Seed::Random,
        };
        Store::new(&Sizes::of(&config)).expect("a small store fits")
    }

    /// Writes a value of `len` bytes and reads it again; returns the blocks of its chain.
    fn rewrite(store: &Store, slot: usize, is_new: bool, len: usize) -> Vec<usize> {
        let value: Vec<u8> = (0..len).map(|at| (at % 251) as u8).collect();
        let from = (!is_new).then_some(slot);
        let chain = store.alloc_chain(b"key", &value, from, || false).expect("there are enough blocks");
        store.write(slot, chain, &Entry { key: b"key", value: &value, stamp: 0 });
        let mut out = vec![0; len];
        assert!(store.read(slot, b"key", &mut out).is_some() && out == value, "{len} bytes");
        let mut blocks = Vec::new();
        let mut next = chain;
        while let Some(block) = next.checked_sub(1) {
            blocks.push(block as usize);
            next = store.continuation(block as usize).next();
        }
        blocks
    }

    #[test]
    fn blocks_point_ahead_in_chains_that_grew_and_shrank() {
        let store = store();
        let (slot, _gap) = (store.alloc_block().expect("a block"), store.alloc_block().expect("a block"));
        let lens = [0, 5_000, 700, 760, 9_000, 9_000, 100, 16_000, 8_000, 1_200, 0, 16_000];
        for (write, len) in lens.into_iter().enumerate() {
            let blocks = rewrite(&store, slot, write == 0, len);
            assert_eq!(blocks.len(), store.chain_len(3, len), "{len} bytes");
            for (at, block) in blocks.iter().enumerate() {
                let continuation = Continuation(store.continuation_word(*block).load(Ordering::Relaxed));
                let ahead = blocks.get(at + LOOK_AHEAD_BLOCKS).map_or(0, |ahead| *ahead as u32 + 1);
                assert_eq!(continuation.ahead(), ahead, "block {at} of {len} bytes");
            }
        }
    }

    #[test]
    fn chain_that_does_not_fit_takes_no_block() {
        let store = store();
        let slots: Vec<usize> = (0..17).map(|_| store.alloc_block().expect("a block")).collect();
        rewrite(&store, slots[0], true, 8_000);
        for slot in &slots[1..16] {
            rewrite(&store, *slot, true, 16_000);
        }
        let value = vec![0; 16_000];
        let free = || {
            let blocks: Vec<usize> = std::iter::from_fn(|| store.alloc_block()).collect();
            blocks.iter().for_each(|block| store.free_block(*block));
            blocks.len()
        };
        let before = free();
        assert!(before > 0 && before < store.chain_len(3, 16_000));
        assert_eq!(store.alloc_chain(b"key", &value, None, || false), None);
        assert_eq!(free(), before, "all blocks are free again");
        slots[..16].iter().for_each(|slot| store.free_entry(*slot));
        let all = free();
        assert_eq!(
            all + 1,
            16 * (1 + store.chain_len(64, 16 * 1024)),
            "all but the slot that is not written"
        );
    }
}
