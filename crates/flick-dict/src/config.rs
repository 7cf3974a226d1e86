//! The configuration of a dictionary, and what it costs.
//!
//! Cost: 16 bytes of index for each of `entries_max`, an eighth of that as reserve, and a byte for the small queue of a
//! dictionary that evicts. Entries are stored in blocks. If the longest payload (key and value, each rounded up to 8
//! bytes) has at most 256 bytes, every entry has one block of that length and 16 bytes. If not, blocks have 96 bytes:
//! the first one of an entry holds 80 bytes of payload, the others 88. The number of blocks:
//!
//! - a dictionary bounded in bytes (`max N entries, 64MiB bytes`) takes no more than those bytes for all of this;
//! - a dictionary that refuses when full (`evict nothing`) has blocks for `entries_max` of the longest entries;
//! - one that evicts has blocks for `entries_max` entries of a quarter of that length, and for at least 16 of the
//!   longest; it keeps fewer long entries. 100,000 entries of up to 1,000 bytes take 40 MB instead of 117 MB.

pub use flick_abi::Evict;

use crate::limits::{
    BLOCK_WORDS, BLOCKS_MAX, ENTRIES_MAX, INLINE_WORDS_WHOLE, KEY_BYTES_MAX, LONGEST_MIN, SMALL_QUEUE_SHARE,
    VALUE_BYTES_MAX,
};
use crate::words::words;

/// Cells of one bucket, which is one cache line.
pub(crate) const BUCKET_CELLS: usize = 8;
/// Entries per bucket of a full dictionary, on average: few enough that one in fifty buckets overflows.
const ENTRIES_PER_BUCKET: u64 = 4;
/// Words before the payload in the first block of an entry: lengths and next block; time.
pub(crate) const SLOT_HEAD_WORDS: usize = 2;
/// Bytes of one bucket.
const BUCKET_BYTES: u64 = 64;

/// The seed of the hash.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Seed {
    /// From the system: peers cannot choose keys that fall into one bucket.
    Random,
    /// A number: the same buckets in every run, for simulations and tests.
    Fixed(u64),
}

/// The configuration of a dictionary.
#[derive(Clone, Debug)]
pub struct DictConfig {
    /// Most entries, from 1 to [`ENTRIES_MAX`].
    pub entries_max: u64,
    /// Most memory in bytes, all of it; `None`: it follows from the entries.
    pub bytes_max: Option<u64>,
    /// Longest key, in bytes; at most [`KEY_BYTES_MAX`].
    pub key_bytes_max: u32,
    /// Longest value, in bytes; at most [`VALUE_BYTES_MAX`].
    pub value_bytes_max: u32,
    /// Time from the last write of an entry to its expiry, in nanoseconds; `None`: entries do not expire.
    pub expire_ns: Option<u64>,
    /// Eviction policy of writes to the dictionary when it is full.
    pub evict: Evict,
    /// The seed of the hash.
    pub seed: Seed,
}

impl DictConfig {
    /// Returns the configuration of a program's dictionary.
    pub fn of(dict: &flick_abi::Dict, seed: Seed) -> Self {
        Self {
            entries_max: dict.entries_max,
            bytes_max: dict.bytes_max,
            key_bytes_max: dict.key_bytes_max,
            value_bytes_max: dict.value_bytes_max,
            expire_ns: dict.expire_ns,
            evict: dict.evict,
            seed,
        }
    }
}

/// Sizes that follow from a configuration.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Sizes {
    /// Buckets that keys are hashed to.
    pub(crate) buckets: u64,
    /// Overflow buckets.
    pub(crate) overflow: u64,
    /// Entries that the small queue holds.
    pub(crate) small_queue: u64,
    /// Words of a block.
    pub(crate) block_words: usize,
    /// Blocks.
    pub(crate) blocks: u64,
    /// Blocks of one longest entry.
    longest: u64,
}

impl Sizes {
    pub(crate) fn of(config: &DictConfig) -> Self {
        let words_max = words(config.key_bytes_max as usize) + words(config.value_bytes_max as usize);
        let whole = words_max <= INLINE_WORDS_WHOLE;
        let block_words = if whole { SLOT_HEAD_WORDS + words_max } else { BLOCK_WORDS };
        let rest = words_max.saturating_sub(block_words - SLOT_HEAD_WORDS);
        let longest = 1 + rest.div_ceil(block_words - 1) as u64;
        let entries = config.entries_max;
        let buckets = entries.div_ceil(ENTRIES_PER_BUCKET).max(1);
        let overflow = buckets / 8 + 8;
        let small_queue = if config.evict == Evict::Lru { entries / SMALL_QUEUE_SHARE } else { 0 };
        let all = entries.saturating_mul(longest);
        let mut sizes = Self { buckets, overflow, small_queue, block_words, blocks: all, longest };
        sizes.blocks = match (config.bytes_max, config.evict) {
            (Some(bytes), _) => (bytes.saturating_sub(sizes.index_bytes()) / sizes.block_bytes()).min(all),
            (None, Evict::Nothing) => all,
            (None, Evict::Lru | Evict::Oldest) => {
                let quarter = 1 + (longest - 1).div_ceil(4);
                entries.saturating_mul(quarter).max(entries.min(16).saturating_mul(longest))
            }
        };
        sizes
    }

    /// Returns the bytes of buckets and small queue.
    fn index_bytes(&self) -> u64 {
        let buckets = self.buckets.saturating_add(self.overflow).saturating_mul(BUCKET_BYTES);
        buckets.saturating_add(self.small_queue.saturating_mul(8))
    }

    fn block_bytes(&self) -> u64 {
        8 * self.block_words as u64
    }

    fn bytes_of(&self, blocks: u64) -> u64 {
        self.index_bytes().saturating_add(blocks.saturating_mul(self.block_bytes()))
    }

    /// Returns the least bytes in which the longest entries fit.
    fn min_bytes(&self, entries_max: u64) -> u64 {
        self.bytes_of(entries_max.min(LONGEST_MIN).saturating_mul(self.longest))
    }
}

/// Returns the bytes that [`Dictionary::new`](crate::Dictionary::new) allocates for a configuration; it saturates.
pub fn memory_bytes(config: &DictConfig) -> u64 {
    let sizes = Sizes::of(config);
    sizes.bytes_of(sizes.blocks)
}

/// Returns the least `bytes_max`: the index of all entries, and the blocks of four longest ones.
pub fn min_bytes(config: &DictConfig) -> u64 {
    Sizes::of(config).min_bytes(config.entries_max)
}

/// Checks a configuration. Errors: what it exceeds.
pub(crate) fn check(config: &DictConfig) -> Result<Sizes, String> {
    if config.entries_max == 0 || config.entries_max > ENTRIES_MAX {
        return Err(format!("a dictionary has from 1 to {ENTRIES_MAX} entries, not {}", config.entries_max));
    }
    if config.key_bytes_max > KEY_BYTES_MAX {
        return Err(format!("keys of {} bytes are longer than {KEY_BYTES_MAX}", config.key_bytes_max));
    }
    if config.value_bytes_max > VALUE_BYTES_MAX {
        return Err(format!("values of {} bytes are longer than {VALUE_BYTES_MAX}", config.value_bytes_max));
    }
    let sizes = Sizes::of(config);
    let least = sizes.min_bytes(config.entries_max);
    if let Some(bytes) = config.bytes_max.filter(|bytes| *bytes < least) {
        return Err(format!(
            "{} entries of up to {} bytes take at least {least} bytes, not {bytes}",
            config.entries_max, config.value_bytes_max
        ));
    }
    if sizes.longest > 1 && sizes.blocks > BLOCKS_MAX {
        return Err(format!(
            "{} entries of up to {} bytes are more than one dictionary holds",
            config.entries_max, config.value_bytes_max
        ));
    }
    Ok(sizes)
}

#[cfg(test)]
mod tests {
    use super::{DictConfig, Evict, Seed, memory_bytes};

    fn check(entries_max: u64, value_bytes_max: u32, evict: Evict, expected: u64) {
        check_bounded(entries_max, None, value_bytes_max, evict, expected);
    }

    fn check_bounded(
        entries_max: u64,
        bytes_max: Option<u64>,
        value_bytes_max: u32,
        evict: Evict,
        expected: u64,
    ) {
        let config = DictConfig {
            entries_max,
            bytes_max,
            key_bytes_max: 20,
            value_bytes_max,
            expire_ns: None,
            evict,
            seed: Seed::Random,
        };
        assert_eq!(memory_bytes(&config), expected, "{config:?}");
    }

    #[test]
    fn memory_bytes_matches_the_documentation() {
        // 25,000 buckets and 3,133 overflow buckets; a small queue of 10,000 entries.
        let index = (25_000 + 3_133) * 64;
        let queue = 10_000 * 8;
        // Blocks of 16 + 24 + 32 bytes.
        check(100_000, 32, Evict::Lru, index + queue + 100_000 * 72);
        check(100_000, 32, Evict::Nothing, index + 100_000 * 72);
        // The longest payload has 128 words: 10 in the first block, the others in 11 blocks; a quarter of those is 3.
        check(100_000, 1000, Evict::Lru, index + queue + 100_000 * 4 * 96);
        check(100_000, 1000, Evict::Nothing, index + 100_000 * 12 * 96);
        check(1, 1000, Evict::Lru, (1 + 8) * 64 + 12 * 96);
        // Blocks take the bytes that the index leaves.
        let (all, fixed) = (64 << 20, index + queue);
        check_bounded(100_000, Some(all), 1 << 20, Evict::Lru, all - (all - fixed) % 96);
        check_bounded(100_000, Some(all), 1000, Evict::Nothing, all - (all - index) % 96);
        // No more than all entries can need is taken.
        check_bounded(1, Some(64 << 20), 1000, Evict::Lru, (1 + 8) * 64 + 12 * 96);
    }

    #[test]
    fn a_bound_in_bytes_must_hold_four_of_the_longest_entries() {
        let config = |bytes_max| DictConfig {
            entries_max: 1_000,
            bytes_max: Some(bytes_max),
            key_bytes_max: 250,
            value_bytes_max: 1 << 20,
            expire_ns: None,
            evict: Evict::Lru,
            seed: Seed::Random,
        };
        let least = super::min_bytes(&config(0));
        assert!((4 << 20..6 << 20).contains(&least), "{least}");
        assert!(super::check(&config(least)).is_ok());
        assert!(super::check(&config(least - 1)).is_err());
    }
}
