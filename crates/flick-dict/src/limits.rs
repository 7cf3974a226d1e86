//! The limits of this crate and their relations.

/// Entries of a dictionary: their numbers fit 31 bits.
pub const ENTRIES_MAX: u64 = 1 << 30;
/// Longest key, in bytes.
pub const KEY_BYTES_MAX: u32 = 4 * 1024;
/// Longest value, in bytes.
pub const VALUE_BYTES_MAX: u32 = (1 << 20) + 64 * 1024;
/// Blocks of a dictionary whose entries may have several: their numbers fit 29 bits.
pub const BLOCKS_MAX: u64 = (1 << 29) - 2;
/// Longest entries that a dictionary bounded in bytes must hold at least: concurrent writers each hold part of what
/// they need.
pub const LONGEST_MIN: u64 = 4;
/// Attempts of a reader at a changing bucket before it takes the bucket's lock.
pub const READ_TRIES_MAX: usize = 16;
/// Busy attempts at a held lock before the thread yields its core.
pub const LOCK_BUSY_WAITS_MAX: u32 = 64;
/// Yields of a thread that waits for a lock. A holder never waits for anything, so more means a lost lock.
pub const LOCK_YIELDS_MAX: u32 = 50_000_000;
/// Entries that are loaded into the processor's cache at once: about as many lines as a core loads at a time.
pub const PRELOAD_KEYS_MAX: usize = 16;
/// Distance in a chain from a block to the one that it looks ahead to, which is loaded while those between are read.
pub const LOOK_AHEAD_BLOCKS: usize = 8;
/// Overflow buckets of one bucket.
pub const CHAIN_MAX: usize = 8;
/// Cells that the hand passes, or entries that leave the small queue, to find one entry to evict.
pub const EVICT_STEPS_MAX: usize = 128;
/// Entries compared to find an old one.
pub const EVICT_SAMPLE: usize = 16;
/// Entries evicted for one write: a long value may need the blocks of many.
pub const EVICT_ENTRIES_MAX: usize = 16 * 1024;
/// Searches of the hand that find no entry to evict, in one write. Entries may be few and long: then this lets the hand
/// pass 4 million cells.
pub const EVICT_TRIES_MAX: usize = 32 * 1024;
/// The small queue holds one in this many of the entries.
pub const SMALL_QUEUE_SHARE: u64 = 10;
/// Retries at the head of a free list that another thread has changed.
pub const FREE_LIST_TRIES_MAX: u32 = 1 << 20;
/// Payloads up to this many words are stored in one block of the longest one's length.
pub const INLINE_WORDS_WHOLE: usize = if cfg!(loom) { 4 } else { 32 };
/// Words of a block, where longer payloads continue in more of them. Models have smaller blocks, so that they end.
/// An item of the store with a value of 100 bytes fills two of them; longer blocks waste more, shorter ones are read
/// slower.
pub const BLOCK_WORDS: usize = if cfg!(loom) { 4 } else { 12 };

const _: () = assert!(KEY_BYTES_MAX < 1 << 13);
const _: () = assert!(VALUE_BYTES_MAX < 1 << 21);
const _: () = assert!(BLOCKS_MAX < (1 << 29) - 1);
const _: () = assert!(flick_abi::limits::DICT_KEY_BYTES_MAX <= KEY_BYTES_MAX as usize);
const _: () = assert!(flick_abi::limits::DICT_VALUE_BYTES_MAX <= VALUE_BYTES_MAX as usize);
const _: () = assert!(ENTRIES_MAX < u32::MAX as u64);
const _: () = assert!(BLOCK_WORDS <= INLINE_WORDS_WHOLE);
const _: () = assert!(EVICT_SAMPLE <= EVICT_STEPS_MAX);
// An evicted entry may free only one block, so the bound must exceed the blocks of the longest entry.
const _: () = assert!(
    EVICT_ENTRIES_MAX as u32 > (KEY_BYTES_MAX + VALUE_BYTES_MAX) / (8 * (BLOCK_WORDS as u32 - 1)) + 2
        || cfg!(loom)
);
