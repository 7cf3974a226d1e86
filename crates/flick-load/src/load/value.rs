//! Keys by number, and values that name their key and their writer.
//!
//! Promises: a value that passes `is_value_of` has the length it was written with, was written under that key, and is
//! not a mixture of two writes. Values under `TAGGED_BYTES_MIN` bytes carry no writer, only the key and the length.
//! Refuses: detecting a stale write; with several writers only the store knows the order.

use crate::random::mix;

/// Shortest value that holds its writer and a checksum word.
pub(super) const TAGGED_BYTES_MIN: usize = 24;

const KEY_SALT: u64 = 0x666c_6963_6b2d_6b76;

/// Appends the key with number `key`, padded to `key_bytes`.
pub(super) fn append_key(key: u64, key_bytes: usize, out: &mut Vec<u8>) {
    let start = out.len();
    out.resize(start + key_bytes, b'0');
    write_key(key, &mut out[start..]);
}

/// Fills `out` with the key with number `key`: `k` and the number, padded with zeros.
pub(super) fn write_key(key: u64, out: &mut [u8]) {
    out[0] = b'k';
    let mut rest = key;
    for digit in out[1..].iter_mut().rev() {
        *digit = b'0' + (rest % 10) as u8;
        rest /= 10;
    }
    assert!(rest == 0, "the settings leave room for every key number");
}

/// Returns the shortest key that can hold every number below `keys`.
pub(super) fn key_bytes_min(keys: u64) -> usize {
    1 + keys.saturating_sub(1).checked_ilog10().map_or(1, |log| log as usize + 1)
}

/// Appends a value of `len` bytes for `key`, written by `writer` (the client and its sequence number).
pub(super) fn append_value(key: u64, writer: u64, len: usize, out: &mut Vec<u8>) {
    let end = out.len() + len;
    let mut words = Words::new(key, writer, len);
    while out.len() + 8 <= end {
        out.extend_from_slice(&words.next().to_le_bytes());
    }
    let tail = words.next().to_le_bytes();
    let tail_len = end - out.len();
    out.extend_from_slice(&tail[..tail_len]);
}

/// Returns whether `value` is a whole value written under `key`. Costs two multiplications per eight bytes, no memory.
pub(super) fn is_value_of(key: u64, value: &[u8]) -> bool {
    let writer = match value.get(8..).and_then(<[u8]>::first_chunk::<8>) {
        Some(word) => u64::from_le_bytes(*word),
        None => 0,
    };
    let mut words = Words::new(key, writer, value.len());
    let (whole, tail) = value.as_chunks::<8>();
    let whole_fit = whole.iter().all(|word| u64::from_le_bytes(*word) == words.next());
    whole_fit && words.next().to_le_bytes().starts_with(tail)
}

/// The words of a value: the key, the writer, then a stream that depends on both and on the length.
struct Words {
    key_word: u64,
    writer: u64,
    stream: u64,
    at: usize,
    tagged: bool,
}

impl Words {
    fn new(key: u64, writer: u64, len: usize) -> Words {
        let tagged = len >= TAGGED_BYTES_MIN;
        let writer = if tagged { writer } else { 0 };
        let key_word = mix(key ^ KEY_SALT);
        let stream = key_word ^ mix(writer.wrapping_add(len as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15));
        Words { key_word, writer, stream, at: 0, tagged }
    }

    fn next(&mut self) -> u64 {
        self.at += 1;
        match self.at {
            1 if self.tagged => self.key_word,
            2 if self.tagged => self.writer,
            at => mix(self.stream.wrapping_add(at as u64)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_value_proves_its_key_length_and_writer() {
        for len in (0..80).chain([1_000, 4_097]) {
            let mut value = Vec::new();
            append_value(7, 99, len, &mut value);
            assert_eq!(value.len(), len);
            assert!(is_value_of(7, &value), "{len}");
            if len > 2 {
                assert!(!is_value_of(8, &value), "another key, {len}");
                assert!(!is_value_of(7, &value[1..]), "the front is missing, {len}");
                assert!(!is_value_of(7, &value[..len - 1]), "the end is missing, {len}");
                value[len / 2] ^= 1;
                assert!(!is_value_of(7, &value), "one bit is wrong, {len}");
            }
        }
    }

    #[test]
    fn a_mixture_of_two_writes_is_detected() {
        let (mut a, mut b) = (Vec::new(), Vec::new());
        append_value(7, 1, 100, &mut a);
        append_value(7, 2, 100, &mut b);
        a[50..].copy_from_slice(&b[50..]);
        assert!(!is_value_of(7, &a));
    }

    #[test]
    fn keys_are_padded_numbers() {
        let mut key = Vec::new();
        append_key(42, 8, &mut key);
        assert_eq!(key, b"k0000042");
        assert_eq!([1, 10, 11, 100_000].map(key_bytes_min), [2, 2, 3, 6]);
    }
}
