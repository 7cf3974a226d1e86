//! Semantics of the operations on strings. An operation that returns a part of a value returns a reference into the
//! same memory; one that makes new bytes writes them at the start of `out`, which engines let begin where the output of
//! the activation ends.

use std::io::Write as _;
use std::net::{Ipv6Addr, SocketAddr};

use flick_abi::BytesRef;

/// Longest text of an address: IPv6 in full, brackets, colon and port.
pub const ADDRESS_TEXT_MAX: usize = 47;
/// Longest text of a number: the sign and 19 digits, or 20 digits.
pub const DIGITS_MAX: usize = 20;

/// The number in digits, and how many of them count.
pub fn format_int(value: u64, is_signed: bool, base: u8) -> ([u8; DIGITS_MAX], usize) {
    let is_negative = is_signed && base == 10 && (value as i64) < 0;
    let mut rest = if is_negative { value.wrapping_neg() } else { value };
    let mut digits = [0; DIGITS_MAX];
    let mut start = DIGITS_MAX;
    loop {
        start -= 1;
        digits[start] = b"0123456789abcdef"[(rest % u64::from(base)) as usize];
        rest /= u64::from(base);
        if rest == 0 {
            break;
        }
    }
    if is_negative {
        start -= 1;
        digits[start] = b'-';
    }
    digits.copy_within(start.., 0);
    (digits, DIGITS_MAX - start)
}

/// An address as people write it, and how many bytes of it count.
pub fn format_address(bytes: &[u8]) -> ([u8; ADDRESS_TEXT_MAX], usize) {
    let mut text = [0; ADDRESS_TEXT_MAX];
    let Some((address, port)) = bytes.split_first_chunk::<16>() else { return (text, 0) };
    let address = Ipv6Addr::from(*address).to_canonical();
    let mut rest = &mut text[..];
    let written = match port {
        [] => write!(rest, "{address}"),
        [high, low] => write!(rest, "{}", SocketAddr::new(address, u16::from_be_bytes([*high, *low]))),
        _ => Ok(()),
    };
    written.expect("every address fits");
    let len = ADDRESS_TEXT_MAX - rest.len();
    (text, len)
}

/// The number that all of the bytes are; `None` where they are none within `int64`. In base 16 one to sixteen digits
/// of either case give their 64 bits.
pub fn parse_int(bytes: &[u8], base: u8) -> Option<i64> {
    if base == 16 {
        if bytes.is_empty() || bytes.len() > 16 {
            return None;
        }
        let add = |sum: u64, byte: &u8| Some((sum << 4) | u64::from(char::from(*byte).to_digit(16)?));
        return bytes.iter().try_fold(0, add).map(|bits| bits as i64);
    }
    let (is_negative, digits) = match bytes.split_first() {
        Some((b'-', digits)) => (true, digits),
        _ => (false, bytes),
    };
    if digits.is_empty() {
        return None;
    }
    let digits = without_zeros(digits);
    // Counted down, because there is one negative number more than positive ones.
    let add = |sum: i64, byte: &u8| {
        let digit = i64::from(char::from(*byte).to_digit(10)?);
        sum.checked_mul(10)?.checked_sub(digit)
    };
    let negative = digits.iter().try_fold(0, add)?;
    if is_negative { Some(negative) } else { negative.checked_neg() }
}

/// Digits without most of the zeros in front of them, of which there may be thousands.
fn without_zeros(mut digits: &[u8]) -> &[u8] {
    while let [b'0', b'0', b'0', b'0', b'0', b'0', b'0', b'0', rest @ ..] = digits {
        digits = rest;
    }
    digits
}

/// `bytes[start..end]` of a value of these bytes, which are inside it.
fn part(value: BytesRef, start: usize, end: usize) -> BytesRef {
    debug_assert!(start <= end && end <= value.len() as usize, "a part lies inside its value");
    BytesRef(value.0 - u64::from(value.len()) + ((start as u64) << 28) + (end - start) as u64)
}

/// Bytes `[start, end)`, both first clamped to `0..=len`, then `end` to at least `start`.
pub fn slice(value: BytesRef, start: i64, end: i64) -> BytesRef {
    let len = i64::from(value.len());
    let start = start.clamp(0, len);
    let end = end.clamp(0, len).max(start);
    part(value, start as usize, end as usize)
}

/// The byte at an index; -1 outside.
pub fn byte_at(bytes: &[u8], index: i64) -> i64 {
    let byte = usize::try_from(index).ok().and_then(|index| bytes.get(index));
    byte.map_or(-1, |byte| i64::from(*byte))
}

/// Returns the first position of `needle`, or -1. The position of an empty one is 0.
pub fn find(bytes: &[u8], needle: &[u8]) -> i64 {
    let found = match needle {
        // A search for more has to be prepared, which takes longer than most searches.
        [byte] => memchr::memchr(*byte, bytes),
        _ => memchr::memmem::find(bytes, needle),
    };
    found.map_or(-1, |at| at as i64)
}

/// Cuts `value`, whose bytes are given, at each `separator` into at most `max` parts, the last with the rest. Writes
/// a word for each part and returns how many bytes that makes. `None`: `out` is too short.
pub fn split(value: BytesRef, bytes: &[u8], separator: &[u8], max: u32, out: &mut [u8]) -> Option<usize> {
    let finder = (separator.len() > 1).then(|| memchr::memmem::Finder::new(separator));
    let next = |rest: &[u8]| match (&finder, separator) {
        (Some(finder), _) => finder.find(rest),
        // As in `find`.
        (None, [byte, ..]) => memchr::memchr(*byte, rest),
        (None, []) => None,
    };
    let (mut start, mut written) = (0, 0);
    for index in 0..max {
        let cut = if index + 1 == max { None } else { next(&bytes[start..]) };
        let end = cut.map_or(bytes.len(), |at| start + at);
        let word = part(value, start, end).0;
        out.get_mut(written..written + 8)?.copy_from_slice(&word.to_le_bytes());
        written += 8;
        if cut.is_none() {
            break;
        }
        start = end + separator.len();
    }
    Some(written)
}

/// Writes the bytes with ASCII letters in the other case where they are not in this one. `None`: `out` is too short.
pub fn case(bytes: &[u8], upper: bool, out: &mut [u8]) -> Option<usize> {
    let target = out.get_mut(..bytes.len())?;
    target.copy_from_slice(bytes);
    if upper {
        target.make_ascii_uppercase();
    } else {
        target.make_ascii_lowercase();
    }
    Some(bytes.len())
}

/// Without spaces, tabs, CR and LF at both ends. What is nothing else becomes the empty end of the value.
pub fn trim(value: BytesRef, bytes: &[u8]) -> BytesRef {
    let is_kept = |byte: &u8| !matches!(byte, b' ' | b'\t' | b'\r' | b'\n');
    let start = bytes.iter().position(is_kept).unwrap_or(bytes.len());
    let end = bytes.iter().rposition(is_kept).map_or(start, |last| last + 1);
    part(value, start, end)
}

/// Whether both are equal but for the case of ASCII letters.
pub fn same_text(a: &[u8], b: &[u8]) -> bool {
    a.eq_ignore_ascii_case(b)
}

#[cfg(test)]
mod tests {
    use flick_abi::{BytesRef, Region};

    use super::{byte_at, case, find, format_address, format_int, parse_int, slice, split, trim};

    #[test]
    fn numbers_are_written_and_read() {
        for (word, signed, base, text) in [
            (0, true, 10, "0"),
            (-1_i64, true, 10, "-1"),
            (-1, false, 10, "18446744073709551615"),
            (i64::MIN, true, 10, "-9223372036854775808"),
            (-1, true, 16, "ffffffffffffffff"),
            (255, false, 16, "ff"),
        ] {
            let (digits, len) = format_int(word as u64, signed, base);
            assert_eq!(std::str::from_utf8(&digits[..len]), Ok(text));
            if signed || base == 16 {
                assert_eq!(parse_int(text.as_bytes(), base), Some(word), "{text}");
            }
        }
    }

    #[test]
    fn addresses_are_written() {
        let mapped = [0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff, 192, 0, 2, 1];
        let mut loopback = [0; 16];
        loopback[15] = 1;
        for (address, port, text) in [
            (mapped, &[][..], "192.0.2.1"),
            (mapped, &[0x1f, 0x90], "192.0.2.1:8080"),
            (loopback, &[], "::1"),
            (loopback, &[0, 80], "[::1]:80"),
            ([0xab; 16], &[0xff, 0xff], "[abab:abab:abab:abab:abab:abab:abab:abab]:65535"),
            (loopback, &[0], ""),
        ] {
            let (found, len) = format_address(&[&address[..], port].concat());
            assert_eq!(std::str::from_utf8(&found[..len]), Ok(text));
        }
        assert_eq!(format_address(b"short").1, 0);
    }

    #[test]
    fn what_is_no_number_is_refused() {
        for text in
            ["", "-", "+1", " 1", "1 ", "--1", "9223372036854775808", "-9223372036854775809", "0x1", "1a"]
        {
            assert_eq!(parse_int(text.as_bytes(), 10), None, "{text}");
        }
        for text in ["", "-1", "g", "00000000000000001"] {
            assert_eq!(parse_int(text.as_bytes(), 16), None, "{text}");
        }
        assert_eq!(parse_int(b"00000000000000000000000000000009223372036854775807", 10), Some(i64::MAX));
        assert_eq!(parse_int(b"00000000", 10), Some(0));
        assert_eq!(parse_int(b"-000000000000000000000000000000001", 10), Some(-1));
        assert_eq!(parse_int(b"000000000000000000000000000000x1", 10), None);
        assert_eq!(parse_int(b"FfFf", 16), Some(0xffff));
    }

    fn value(bytes: &[u8]) -> BytesRef {
        BytesRef::new(Region::Message, 7, bytes.len() as u32)
    }

    /// Returns the text that a reference denotes in a message of seven more bytes in front.
    fn shown(bytes: &[u8], part: BytesRef) -> String {
        let message = [&[b'x'; 7][..], bytes].concat();
        let found = part.resolve(|_| Some(&message), &[], &[]).expect("a part lies inside its value");
        String::from_utf8_lossy(found).into_owned()
    }

    #[test]
    fn slices_clamp() {
        for (start, end, expected) in [
            (0, 5, "hello"),
            (1, 3, "el"),
            (-4, 2, "he"),
            (3, 99, "lo"),
            (4, 2, ""),
            (i64::MAX, i64::MIN, ""),
        ] {
            assert_eq!(shown(b"hello", slice(value(b"hello"), start, end)), expected, "{start}..{end}");
        }
        assert_eq!((byte_at(b"hello", 1), byte_at(b"hello", 5), byte_at(b"hello", -1)), (101, -1, -1));
    }

    #[test]
    fn splits_are_bounded() {
        for (text, separator, max, expected) in [
            ("a,b,c", ",", 9, &["a", "b", "c"][..]),
            ("a,b,c", ",", 2, &["a", "b,c"]),
            ("a,b,c", ",", 1, &["a,b,c"]),
            (",a,", ",", 9, &["", "a", ""]),
            ("a::b", "::", 9, &["a", "b"]),
            ("ab", "", 9, &["ab"]),
            ("", ",", 9, &[""]),
        ] {
            let mut out = [0; 80];
            let written = split(value(text.as_bytes()), text.as_bytes(), separator.as_bytes(), max, &mut out);
            let words = out[..written.expect("there is room")].chunks(8);
            let parts: Vec<String> = words
                .map(|word| BytesRef(u64::from_le_bytes(word.try_into().expect("a word is 8 bytes"))))
                .map(|part| shown(text.as_bytes(), part))
                .collect();
            assert_eq!(parts, expected, "{text:?} at {separator:?}");
        }
        assert_eq!(split(value(b"a,b"), b"a,b", b",", 9, &mut [0; 15]), None);
    }

    #[test]
    fn small_words() {
        for (text, expected) in [("  a b\r\n", "a b"), ("\t \n", ""), ("", ""), ("ab", "ab")] {
            assert_eq!(shown(text.as_bytes(), trim(value(text.as_bytes()), text.as_bytes())), expected);
        }
        assert_eq!((find(b"abcbc", b"bc"), find(b"abc", b"x"), find(b"", b"")), (1, -1, 0));
        let mut out = [0; 3];
        assert_eq!((case(b"aZ1", true, &mut out), out), (Some(3), *b"AZ1"));
        assert_eq!(case(b"aZ1", true, &mut out[..2]), None);
    }
}
