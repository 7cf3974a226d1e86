//! Bytes as 64-bit words, the unit of sharing: a word is read and written whole.

/// Returns the words that `bytes` bytes take.
pub(crate) const fn words(bytes: usize) -> usize {
    bytes.div_ceil(8)
}

/// Returns the bytes after the last whole word, as a word padded with zeros; `None` when there are none.
#[inline]
pub(crate) fn tail_word(bytes: &[u8]) -> Option<u64> {
    let rest = bytes.len() % 8;
    if rest == 0 {
        return None;
    }
    if let Some(last) = bytes.last_chunk::<8>() {
        // The last eight bytes end where the tail ends: the bytes before the tail are shifted out.
        return Some(u64::from_le_bytes(*last) >> (64 - 8 * rest));
    }
    Some(bytes.iter().rev().fold(0, |word, byte| (word << 8) | u64::from(*byte)))
}

/// Returns all words of `bytes`, the last one padded with zeros.
#[inline]
pub(crate) fn words_of(bytes: &[u8]) -> impl Iterator<Item = u64> + '_ {
    let (whole, _) = bytes.as_chunks::<8>();
    whole.iter().map(|word| u64::from_le_bytes(*word)).chain(tail_word(bytes))
}

/// Fills `out` with words; `false` when there are too few of them.
#[inline(always)]
pub(crate) fn fill(out: &mut [u8], mut next: impl FnMut() -> Option<u64>) -> bool {
    let (whole, rest) = out.as_chunks_mut::<8>();
    for target in whole {
        let Some(word) = next() else { return false };
        *target = word.to_le_bytes();
    }
    if !rest.is_empty() {
        let Some(word) = next() else { return false };
        for (index, byte) in rest.iter_mut().enumerate() {
            *byte = (word >> (8 * index)) as u8;
        }
    }
    true
}

#[cfg(test)]
mod tests {
    use super::{fill, words, words_of};

    #[test]
    fn bytes_round_trip_through_words() {
        for len in 0..40 {
            let bytes: Vec<u8> = (0..len).map(|index| 200 + index as u8).collect();
            let stored: Vec<u64> = words_of(&bytes).collect();
            assert_eq!(stored.len(), words(len), "{len} bytes");
            let mut back = vec![0; len];
            let mut next = stored.iter().copied();
            assert!(fill(&mut back, || next.next()));
            assert_eq!(back, bytes);
        }
    }

    #[test]
    fn too_few_words_return_false() {
        let mut out = [0; 9];
        let mut next = [1_u64].into_iter();
        assert!(!fill(&mut out, || next.next()));
    }
}
