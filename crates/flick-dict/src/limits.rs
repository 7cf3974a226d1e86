//! The limits of this crate, and their relations.

/// Entries of a dictionary: their numbers fit 31 bits.
pub const ENTRIES_MAX: u64 = 1 << 30;
/// Longest key, in bytes.
pub const KEY_BYTES_MAX: u32 = 4 * 1024;
/// Longest value, in bytes.
pub const VALUE_BYTES_MAX: u32 = (1 << 20) + 64 * 1024;
/// Values of types up to this long lie in chunks of 64 bytes, longer ones in chunks of 256.
pub const SHORT_VALUE_BYTES_MAX: u32 = 16 * 1024;
/// Chunks of a dictionary: their numbers fit 29 bits.
pub const CHUNKS_MAX: u64 = (1 << 29) - 2;
/// Entries of the longest kind for which a dictionary bounded in bytes must have room: writers at the same time each hold
/// part of what they need.
pub const LONGEST_MIN: u64 = 4;
/// Times a reader looks at a bucket that changes under it before it takes the bucket's lock.
pub const READ_TRIES_MAX: usize = 16;
/// Looks at a lock that somebody else holds before the thread gives its core away.
pub const LOCK_SPINS_MAX: u32 = 64;
/// Times a thread gives its core away for a lock. A holder never waits for anything, so more is a lost lock.
pub const LOCK_YIELDS_MAX: u32 = 50_000_000;
/// Overflow buckets behind one bucket.
pub const CHAIN_MAX: usize = 8;
/// Places the hand of the clock passes to find one entry to evict.
pub const EVICT_STEPS_MAX: usize = 128;
/// Entries compared to find an old one.
pub const EVICT_SAMPLE: usize = 16;
/// Entries evicted to make room for one: a long value may need the chunks of many.
pub const EVICT_ENTRIES_MAX: usize = 5 * 1024;
/// Times the hand is moved on without finding one to evict, in one write. Where chunks are wanted, most entries may have
/// none: then this lets it pass 4 million places.
pub const EVICT_TRIES_MAX: usize = 32 * 1024;
/// Times the head of a free list is tried again because another thread was quicker.
pub const FREE_LIST_TRIES_MAX: u32 = 1 << 20;
/// Payloads up to this many words lie in one piece; longer ones go on in chunks.
pub const INLINE_WORDS_WHOLE: usize = if cfg!(loom) { 4 } else { 32 };
/// Words in one piece of a payload that goes on in chunks.
pub const INLINE_WORDS_CHUNKED: usize = if cfg!(loom) { 2 } else { 14 };
/// Payload of a short chunk, in words; one more links it to the next. Models are smaller, so that they end.
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
// An entry that is evicted for its chunks may give back one, so the bound must exceed the chunks of the longest value.
const _: () =
    assert!(EVICT_ENTRIES_MAX as u32 > (KEY_BYTES_MAX + VALUE_BYTES_MAX) / (8 * CHUNK_WORDS_LONG as u32) + 2);
const _: () = assert!(EVICT_ENTRIES_MAX as u32 > (KEY_BYTES_MAX + SHORT_VALUE_BYTES_MAX) / 56 + 2);
