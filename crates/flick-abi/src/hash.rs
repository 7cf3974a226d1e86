//! The language's `hash`. Frozen: the same bytes give the same number in every release and on every machine,
//! because operators place keys with it.
//! Source: XXH3-64 with seed 0, as specified by the xxHash project; vectors in the tests.

/// Hashes `bytes` as `hash(x)` of the language does.
pub fn hash(bytes: &[u8]) -> u64 {
    xxhash_rust::xxh3::xxh3_64(bytes)
}

#[cfg(test)]
mod tests {
    use super::hash;

    #[test]
    fn hash_never_changes_between_releases() {
        for (input, expected) in
            [("", 0x2d06_8005_38d3_94c2_u64), ("a", 0xe6c6_32b6_1e96_4e1f), ("abc", 0x78af_5f94_892f_3950)]
        {
            assert_eq!(hash(input.as_bytes()), expected, "hash({input:?})");
        }
    }
}
