//! The memory of entries: slots with the whole payload, or with its first part and a chain of shared chunks.
//! Promises: a reader stays inside the bounds, however stale what it reads is; the caller's check of the bucket's
//! version decides whether the result is valid.
//! Refuses: deciding who may write; a slot belongs to the bucket that names it, and is written under that bucket's
//! lock.

use crate::config::{SLOT_HEAD_WORDS, Sizes};
use crate::limits::FREE_LIST_TRIES_MAX;
use crate::sync::{AtomicU64, Ordering, back_off};
use crate::words::{fill, tail_word, words, words_of};

/// The entry was used since the clock's hand last passed it.
const USED: u64 = 1 << 63;

/// Bits of a header that hold the length of the key.
const KEY_BITS: u32 = 13;
/// Bits that hold the length of the value.
const VALUE_BITS: u32 = 21;

/// Word 0 of a slot: bits 0..13 length of the key, 13..34 of the value, 34..63 first chunk plus one, 63 used.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Header(u64);

impl Header {
    fn new(key_len: usize, value_len: usize, chunk: u32, used: bool) -> Self {
        let lengths = key_len as u64 | ((value_len as u64) << KEY_BITS);
        Self(lengths | (u64::from(chunk) << (KEY_BITS + VALUE_BITS)) | if used { USED } else { 0 })
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
    pub(crate) fn used(self) -> bool {
        self.0 & USED != 0
    }

    #[inline]
    fn chunk(self) -> u32 {
        ((self.0 & !USED) >> (KEY_BITS + VALUE_BITS)) as u32
    }

    /// Returns whether the entry continues in chunks.
    pub(crate) fn has_chunks(self) -> bool {
        self.chunk() != 0
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

/// All slots and chunks of a dictionary.
#[derive(Debug)]
pub(crate) struct Store {
    slots: Box<[AtomicU64]>,
    stride: usize,
    inline_words: usize,
    /// Words of a chunk; the first one names the next chunk.
    chunk_stride: usize,
    chunks: Box<[AtomicU64]>,
    free_slots: FreeList,
    free_chunks: FreeList,
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
        let stride = sizes.stride();
        let slots = zeroed(sizes.slots.saturating_mul(stride as u64))?;
        let chunk_stride = sizes.chunk_words + 1;
        let chunks = zeroed(sizes.chunks.saturating_mul(chunk_stride as u64))?;
        let free_slots = FreeList::full(sizes.slots, |slot| &slots[slot * stride + 1]);
        let free_chunks = FreeList::full(sizes.chunks, |chunk| &chunks[chunk * chunk_stride]);
        let inline_words = sizes.inline_words;
        Ok(Self { stride, inline_words, chunk_stride, slots, chunks, free_slots, free_chunks })
    }

    #[inline]
    fn slot(&self, slot: usize) -> &[AtomicU64] {
        &self.slots[slot * self.stride..(slot + 1) * self.stride]
    }

    /// Word 1 of a free slot names the next: a late reader may still mark word 0.
    pub(crate) fn alloc_slot(&self) -> Option<usize> {
        self.free_slots.pop(|slot| &self.slot(slot)[1])
    }

    pub(crate) fn free_slot(&self, slot: usize) {
        self.free_slots.push(slot, |slot| &self.slot(slot)[1]);
    }

    fn next_chunk(&self, chunk: usize) -> &AtomicU64 {
        &self.chunks[chunk * self.chunk_stride]
    }

    #[inline]
    pub(crate) fn header(&self, slot: usize) -> Header {
        Header(self.slot(slot)[0].load(Ordering::Relaxed))
    }

    /// Returns when the entry expires; without expiry, when it was written.
    #[inline]
    pub(crate) fn stamp(&self, slot: usize) -> u64 {
        self.slot(slot)[1].load(Ordering::Relaxed)
    }

    /// Marks an entry as used. Harmless on a slot that belongs to another entry by now.
    #[inline]
    pub(crate) fn mark_used(&self, slot: usize) {
        self.slot(slot)[0].fetch_or(USED, Ordering::Relaxed);
    }

    /// Clears the mark; returns whether it was set.
    pub(crate) fn clear_used(&self, slot: usize) -> bool {
        self.header(slot).used() && self.slot(slot)[0].fetch_and(!USED, Ordering::Relaxed) & USED != 0
    }

    /// Returns the header if the slot holds `key`.
    #[inline]
    pub(crate) fn matches(&self, slot: usize, key: &[u8]) -> Option<Header> {
        let header = self.header(slot);
        let mut payload = self.payload(slot, header);
        let same = header.key_len() == key.len() && words_of(key).all(|word| payload.next() == Some(word));
        same.then_some(header)
    }

    /// If the slot holds `key`, copies the value to the front of `out`. `None` is no result: the entry may be another
    /// one, its key may continue in a chunk, or it is being changed.
    #[inline]
    pub(crate) fn read(&self, slot: usize, key: &[u8], out: &mut [u8]) -> Option<Header> {
        let words = self.slots.get(slot * self.stride..)?.get(..self.stride)?;
        let (head, payload) = words.split_first_chunk::<SLOT_HEAD_WORDS>()?;
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
        let mut rest = Payload { run: stored.as_slice(), chunk: header.chunk(), store: self };
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
        Payload { run: &self.slot(slot)[SLOT_HEAD_WORDS..], chunk: header.chunk(), store: self }
    }

    fn chunks_for(&self, key: &[u8], value: &[u8]) -> usize {
        let total = words(key.len()) + words(value.len());
        total.saturating_sub(self.inline_words).div_ceil(self.chunk_stride - 1)
    }

    /// Allocates the chunks of an entry, those of `from` (an entry about to be overwritten) first; calls `evict` when
    /// none is free, which returns whether to try again. Returns the first chunk plus one. `None`: no chunk is free;
    /// `from` keeps its chain.
    pub(crate) fn alloc_chain(
        &self,
        key: &[u8],
        value: &[u8],
        from: Option<usize>,
        mut evict: impl FnMut() -> bool,
    ) -> Option<u32> {
        let needed = self.chunks_for(key, value);
        let old = from.map_or(0, |slot| self.header(slot).chunk());
        let (mut kept, mut last) = (0, 0);
        let mut at = old;
        while kept < needed && at != 0 {
            (kept, last) = (kept + 1, at);
            at = self.next_chunk(at as usize - 1).load(Ordering::Relaxed) as u32;
        }
        if kept == needed {
            self.free_chain(at);
            if last == 0 {
                return Some(0);
            }
            self.next_chunk(last as usize - 1).store(0, Ordering::Relaxed);
            return Some(old);
        }
        // Missing chunks are collected in front of the old chain, so that nothing is lost when there are too few.
        let mut first = 0_u32;
        for _ in kept..needed {
            let allocated = loop {
                if let Some(chunk) = self.free_chunks.pop(|chunk| self.next_chunk(chunk)) {
                    break Some(chunk);
                }
                if !evict() {
                    break None;
                }
            };
            let Some(chunk) = allocated else {
                self.free_chain(first);
                return None;
            };
            self.next_chunk(chunk).store(u64::from(first), Ordering::Relaxed);
            first = chunk as u32 + 1;
        }
        let mut end = first;
        for _ in kept + 1..needed {
            end = self.next_chunk(end as usize - 1).load(Ordering::Relaxed) as u32;
        }
        self.next_chunk(end as usize - 1).store(u64::from(old), Ordering::Relaxed);
        Some(first)
    }

    /// Frees the chunks of a chain.
    fn free_chain(&self, first: u32) {
        let (mut at, mut last) = (first, 0);
        while at != 0 {
            last = at as usize - 1;
            at = self.next_chunk(last).load(Ordering::Relaxed) as u32;
        }
        if let Some(first) = first.checked_sub(1) {
            self.free_chunks.push_chain(first as usize, last, |chunk| self.next_chunk(chunk));
        }
    }

    /// Frees all chunks of an entry.
    pub(crate) fn free_chunks_of(&self, slot: usize) {
        self.free_chain(self.header(slot).chunk());
    }

    /// Writes an entry whose chain is allocated.
    pub(crate) fn write(&self, slot: usize, chain: u32, entry: &Entry<'_>, used: bool) {
        let words = self.slot(slot);
        let header = Header::new(entry.key.len(), entry.value.len(), chain, used);
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
    chunk: u32,
    store: &'a Store,
}

impl<'a> Payload<'a> {
    /// Returns the rest of the piece, or the next piece; never an empty one.
    #[inline]
    fn piece(&mut self) -> Option<&'a [AtomicU64]> {
        if self.run.is_empty() {
            let (chunk, stride) = (self.chunk.checked_sub(1)? as usize, self.store.chunk_stride);
            let words = &self.store.chunks[chunk * stride..(chunk + 1) * stride];
            self.chunk = words[0].load(Ordering::Relaxed) as u32;
            self.run = &words[1..];
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
            let ((fours, few), (stored_fours, stored_few)) = (now.as_chunks_mut::<4>(), stored.as_chunks::<4>());
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
