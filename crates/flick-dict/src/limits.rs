//! The limits of this crate, and their relations.

/// Entries of a dictionary: their numbers fit 31 bits.
pub const ENTRIES_MAX: u64 = 1 << 30;
/// Longest key, in bytes.
pub const KEY_BYTES_MAX: u32 = 4 * 1024;
/// Longest value, in bytes.
pub const VALUE_BYTES_MAX: u32 = 16 * 1024;
/// Chunks of 64 bytes of a dictionary: their numbers fit 31 bits.
pub const CHUNKS_MAX: u64 = (1 << 31) - 2;
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
pub const EVICT_ENTRIES_MAX: usize = 1024;
/// Times the head of a free list is tried again because another thread was quicker.
pub const FREE_LIST_TRIES_MAX: u32 = 1 << 20;
/// Payloads up to this many words lie in one piece; longer ones go on in chunks.
pub const INLINE_WORDS_WHOLE: usize = 32;
/// Words in one piece of a payload that goes on in chunks.
pub const INLINE_WORDS_CHUNKED: usize = 14;

const _: () = assert!(KEY_BYTES_MAX < 1 << 16);
const _: () = assert!(VALUE_BYTES_MAX < 1 << 16);
const _: () = assert!(ENTRIES_MAX < u32::MAX as u64);
const _: () = assert!(INLINE_WORDS_CHUNKED <= INLINE_WORDS_WHOLE);
const _: () = assert!(EVICT_SAMPLE <= EVICT_STEPS_MAX);
// One entry of the shortest kind gives back no chunk at all, so the bound must exceed the chunks of the longest value.
const _: () = assert!(EVICT_ENTRIES_MAX as u32 > (KEY_BYTES_MAX + VALUE_BYTES_MAX) / 56);
