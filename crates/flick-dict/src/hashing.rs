//! The hash of keys. Keys come from peers, so the hash has a seed that peers cannot know.

use std::hash::{BuildHasher, Hasher};
use std::sync::OnceLock;

use foldhash::SharedSeed;
use foldhash::fast::SeedableRandomState;

use crate::config::Seed;

/// A hash function with its seed.
#[derive(Debug)]
pub(crate) struct KeyHash(SeedableRandomState);

impl KeyHash {
    pub(crate) fn new(seed: Seed) -> Self {
        static SHARED: OnceLock<SharedSeed> = OnceLock::new();
        Self(match seed {
            Seed::Fixed(seed) => SeedableRandomState::with_seed(seed, SharedSeed::global_fixed()),
            Seed::Random => {
                let shared = SHARED.get_or_init(|| SharedSeed::from_u64(os_random()));
                SeedableRandomState::with_seed(os_random(), shared)
            }
        })
    }

    #[inline]
    pub(crate) fn hash(&self, key: &[u8]) -> u64 {
        let mut hasher = self.0.build_hasher();
        hasher.write(key);
        hasher.finish()
    }
}

/// Returns a number from the system's source of randomness, from which std's maps take their keys.
fn os_random() -> u64 {
    std::collections::hash_map::RandomState::new().build_hasher().finish()
}
