//! The limits of this crate and their relations.

/// Entries of a dictionary: their numbers fit 31 bits.
pub const ENTRIES_MAX: u64 = 1 << 30;
/// Longest key, in bytes.
pub const KEY_BYTES_MAX: u32 = 4 * 1024;
/// Longest value, in bytes.
pub const VALUE_BYTES_MAX: u32 = (1 << 20) + 64 * 1024;
/// Types with values up to this length use chunks of 64 bytes, others chunks of 256.
pub const SHORT_VALUE_BYTES_MAX: u32 = 16 * 1024;
/// Chunks of a dictionary: their numbers fit 29 bits.
pub const CHUNKS_MAX: u64 = (1 << 29) - 2;
/// Longest entries that a dictionary bounded in bytes must hold at least: concurrent writers each hold part of what
/// they need.
pub const LONGEST_MIN: u64 = 4;
/// Attempts of a reader at a changing bucket before it takes the bucket's lock.
pub const READ_TRIES_MAX: usize = 16;
/// Busy attempts at a held lock before the thread yields its core.
pub const LOCK_BUSY_WAITS_MAX: u32 = 64;
/// Yields of a thread that waits for a lock. A holder never waits for anything, so more means a lost lock.
pub const LOCK_YIELDS_MAX: u32 = 50_000_000;
/// Overflow buckets of one bucket.
pub const CHAIN_MAX: usize = 8;
/// Cells that the clock's hand passes to find one entry to evict.
pub const EVICT_STEPS_MAX: usize = 128;
/// Entries compared to find an old one.
pub const EVICT_SAMPLE: usize = 16;
/// Entries evicted for one write: a long value may need the chunks of many.
pub const EVICT_ENTRIES_MAX: usize = 5 * 1024;
/// Searches of the hand that find no entry to evict, in one write. Where chunks are wanted, most entries may have none:
/// then this lets the hand pass 4 million cells.
pub const EVICT_TRIES_MAX: usize = 32 * 1024;
/// Retries at the head of a free list that another thread has changed.
pub const FREE_LIST_TRIES_MAX: u32 = 1 << 20;
/// Payloads up to this many words are stored in one piece; longer ones continue in chunks.
pub const INLINE_WORDS_WHOLE: usize = if cfg!(loom) { 4 } else { 32 };
/// Words in the slot of a payload that continues in chunks.
pub const INLINE_WORDS_CHUNKED: usize = if cfg!(loom) { 2 } else { 14 };
/// Payload of a short chunk, in words; one more word names the next chunk. Models are smaller, so that they end.
pub const CHUNK_WORDS_SHORT: usize = if cfg!(loom) { 2 } else { 7 };
/// Payload of a long chunk, in words.
pub const CHUNK_WORDS_LONG: usize = 31;

const _: () = assert!(KEY_BYTES_MAX < 1 << 13);
const _: () = assert!(VALUE_BYTES_MAX < 1 << 21);
const _: () = assert!(CHUNKS_MAX < (1 << 29) - 1);
const _: () = assert!(flick_abi::limits::DICT_KEY_BYTES_MAX <= KEY_BYTES_MAX as usize);
const _: () = assert!(flick_abi::limits::DICT_VALUE_BYTES_MAX <= VALUE_BYTES_MAX as usize);
const _: () = assert!(ENTRIES_MAX < u32::MAX as u64);
const _: () = assert!(INLINE_WORDS_CHUNKED <= INLINE_WORDS_WHOLE);
const _: () = assert!(EVICT_SAMPLE <= EVICT_STEPS_MAX);
// An entry that is evicted for its chunks may free only one, so the bound must exceed the chunks of the longest value.
const _: () =
    assert!(EVICT_ENTRIES_MAX as u32 > (KEY_BYTES_MAX + VALUE_BYTES_MAX) / (8 * CHUNK_WORDS_LONG as u32) + 2);
const _: () = assert!(EVICT_ENTRIES_MAX as u32 > (KEY_BYTES_MAX + SHORT_VALUE_BYTES_MAX) / 56 + 2);
