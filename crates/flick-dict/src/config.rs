//! The configuration of a dictionary, and what it costs.
//!
//! Cost: 16 bytes of index for each of `entries_max`, and an eighth of that as reserve; per entry a slot of 16 bytes
//! and the payload, key and value rounded up to 8 bytes each. A type whose longest payload exceeds 256 bytes has slots
//! of 128 bytes; longer payloads continue in chunks that all entries share, of 64 bytes (56 of payload), or of 256 (248
//! of payload) where values may be longer than 16 KiB. The number of chunks:
//!
//! - a dictionary bounded in bytes (`max N entries, 64MiB bytes`) takes no more than those bytes for all of this;
//! - a dictionary that refuses when full (`evict nothing`) has chunks for `entries_max` of the longest entries;
//! - one that evicts has chunks for `entries_max` entries of a quarter of that length, and for at least 16 of the
//!   longest; it keeps fewer long entries. 100,000 entries of up to 1,000 bytes take 45 MB instead of 119 MB.

pub use flick_abi::Evict;

use crate::limits::{
    CHUNK_WORDS_LONG, CHUNK_WORDS_SHORT, CHUNKS_MAX, ENTRIES_MAX, INLINE_WORDS_CHUNKED, INLINE_WORDS_WHOLE,
    KEY_BYTES_MAX, LONGEST_MIN, SHORT_VALUE_BYTES_MAX, VALUE_BYTES_MAX,
};
use crate::words::words;

/// Cells of one bucket, which is one cache line.
pub(crate) const BUCKET_CELLS: usize = 8;
/// Entries per bucket of a full dictionary, on average: few enough that one in fifty buckets overflows.
const ENTRIES_PER_BUCKET: u64 = 4;
/// Words before a payload: lengths and mark; time.
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
    /// Entries.
    pub(crate) slots: u64,
    /// Payload words in a slot.
    pub(crate) inline_words: usize,
    /// Payload words in a chunk.
    pub(crate) chunk_words: usize,
    /// Chunks.
    pub(crate) chunks: u64,
    /// Chunks of one longest entry.
    longest: u64,
}

impl Sizes {
    pub(crate) fn of(config: &DictConfig) -> Self {
        let words_max = words(config.key_bytes_max as usize) + words(config.value_bytes_max as usize);
        let whole = words_max <= INLINE_WORDS_WHOLE;
        let inline_words = if whole { words_max } else { INLINE_WORDS_CHUNKED };
        let short = config.value_bytes_max <= SHORT_VALUE_BYTES_MAX;
        let chunk_words = if short { CHUNK_WORDS_SHORT } else { CHUNK_WORDS_LONG };
        let longest = words_max.saturating_sub(inline_words).div_ceil(chunk_words) as u64;
        let slots = config.entries_max;
        let buckets = slots.div_ceil(ENTRIES_PER_BUCKET).max(1);
        let overflow = buckets / 8 + 8;
        let all = slots.saturating_mul(longest);
        let mut sizes = Self { buckets, overflow, slots, inline_words, chunk_words, chunks: all, longest };
        sizes.chunks = match (config.bytes_max, config.evict) {
            (Some(bytes), _) => (bytes.saturating_sub(sizes.fixed_bytes()) / sizes.chunk_bytes()).min(all),
            (None, Evict::Nothing) => all,
            (None, Evict::Lru | Evict::Oldest) => {
                slots.saturating_mul(longest.div_ceil(4)).max(slots.min(16).saturating_mul(longest))
            }
        };
        sizes
    }

    /// Returns the bytes of index and slots.
    fn fixed_bytes(&self) -> u64 {
        let index = self.buckets.saturating_add(self.overflow).saturating_mul(BUCKET_BYTES);
        index.saturating_add(self.slots.saturating_mul(8 * self.stride() as u64))
    }

    fn chunk_bytes(&self) -> u64 {
        8 * (self.chunk_words as u64 + 1)
    }

    /// Returns the least bytes in which the longest entries fit.
    fn min_bytes(&self) -> u64 {
        let chunks = self.slots.min(LONGEST_MIN).saturating_mul(self.longest);
        self.fixed_bytes().saturating_add(chunks.saturating_mul(self.chunk_bytes()))
    }

    /// Returns the words of a slot.
    pub(crate) fn stride(&self) -> usize {
        SLOT_HEAD_WORDS + self.inline_words
    }
}

/// Returns the bytes that [`Dictionary::new`](crate::Dictionary::new) allocates for a configuration; it saturates.
pub fn memory_bytes(config: &DictConfig) -> u64 {
    let sizes = Sizes::of(config);
    sizes.fixed_bytes().saturating_add(sizes.chunks.saturating_mul(sizes.chunk_bytes()))
}

/// Returns the least `bytes_max`: the index and the slots of all entries, and the chunks of four longest ones.
pub fn min_bytes(config: &DictConfig) -> u64 {
    Sizes::of(config).min_bytes()
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
    if let Some(bytes) = config.bytes_max.filter(|bytes| *bytes < sizes.min_bytes()) {
        return Err(format!(
            "{} entries of up to {} bytes take at least {} bytes, not {bytes}",
            config.entries_max,
            config.value_bytes_max,
            sizes.min_bytes()
        ));
    }
    if sizes.chunks > CHUNKS_MAX {
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
        // 25,000 buckets and 3,133 overflow buckets; slots of 16 + 24 + 32 bytes.
        check(100_000, 32, Evict::Lru, (25_000 + 3_133) * 64 + 100_000 * 72);
        // The longest payload has 128 words: 14 in the slot, the others in 17 chunks; a quarter of those is 5.
        check(100_000, 1000, Evict::Lru, (25_000 + 3_133) * 64 + 100_000 * (128 + 5 * 64));
        check(100_000, 1000, Evict::Nothing, (25_000 + 3_133) * 64 + 100_000 * (128 + 17 * 64));
        check(1, 1000, Evict::Lru, (1 + 8) * 64 + 128 + 17 * 64);
        // Chunks take the bytes that index and slots leave.
        let fixed = (25_000 + 3_133) * 64 + 100_000 * 128;
        check_bounded(100_000, Some(64 << 20), 1 << 20, Evict::Lru, (64 << 20) - ((64 << 20) - fixed) % 256);
        check_bounded(100_000, Some(64 << 20), 1000, Evict::Nothing, (64 << 20) - ((64 << 20) - fixed) % 64);
        // No more than all entries can need is taken.
        check_bounded(1, Some(64 << 20), 1000, Evict::Lru, (1 + 8) * 64 + 128 + 17 * 64);
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
