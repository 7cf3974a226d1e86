//! The meaning of each operation on words and bytes, in one place.
//! Promises: total functions, the same on every machine; the interpreter, constant folding and the helpers of
//! compiled code all call these, so that only the inlined operations can disagree, and those are compared in tests.
//! Refuses: control flow and memory; see `interp`.
//! Source: `data.rs`, whose comments these functions make exact.

mod lines;
mod scan;
mod strings;
mod transform;
mod words;

use crate::data::Binary;

pub use lines::{Line, LineScanner};
pub use scan::{cut_listed, guard, has_token, in_class, items, scan_run, seek, whole};
pub use strings::{
    ADDRESS_TEXT_MAX, DIGITS_MAX, byte_at, case, find, format_address, format_int, parse_int, same_text,
    slice, split, trim,
};
pub use transform::{NoTransform, transform};
pub use words::{
    EMPTY, PackItem, answer, as_type, message_body, message_get, message_number, pack, packed_bytes,
    state_load_bytes, state_store_bytes, state_words, word_get, word_set,
};

/// Largest number of bytes a `Need` can ask for; what lies beyond is asked for as this and never satisfied.
/// Two bits less than a word, because that is what a `ParseStep` can carry.
pub const NEED_BYTES_MAX: u64 = u64::MAX >> 2;

/// Element number that stands for every index too large for a channel value; outside every array.
pub const CHAN_ELEMENT_MAX: u64 = (1 << 48) - 1;

/// Returns the free output that `bytes` need, so that everything that is built elsewhere still fits.
pub fn with_reserve(bytes: u32) -> u64 {
    u64::from(bytes) + flick_abi::limits::BUILT_BYTES_MAX as u64
}

/// Result of a two-operand operation.
pub fn binary(op: Binary, a: u64, b: u64) -> u64 {
    let (sa, sb) = (a as i64, b as i64);
    match op {
        Binary::Add => a.wrapping_add(b),
        Binary::Sub => a.wrapping_sub(b),
        Binary::Mul => a.wrapping_mul(b),
        Binary::DivS => div_floor(sa, sb) as u64,
        Binary::DivU => a.checked_div(b).unwrap_or(0),
        Binary::ModS => mod_floor(sa, sb) as u64,
        Binary::ModU => a.checked_rem(b).unwrap_or(0),
        Binary::Eq => u64::from(a == b),
        Binary::Ne => u64::from(a != b),
        Binary::LtS => u64::from(sa < sb),
        Binary::LeS => u64::from(sa <= sb),
        Binary::LtU => u64::from(a < b),
        Binary::LeU => u64::from(a <= b),
        Binary::And | Binary::BitAnd => a & b,
        Binary::Or | Binary::BitOr => a | b,
        Binary::MinS => sa.min(sb) as u64,
        Binary::MaxS => sa.max(sb) as u64,
        Binary::MinU => a.min(b),
        Binary::MaxU => a.max(b),
    }
}

/// Quotient rounded towards minus infinity; by zero 0; `MIN / -1` wraps.
fn div_floor(a: i64, b: i64) -> i64 {
    if b == 0 {
        return 0;
    }
    let rest = a.wrapping_rem(b);
    a.wrapping_div(b) - i64::from(rest != 0 && (rest < 0) != (b < 0))
}

/// Remainder with the sign of the divisor; by zero 0.
fn mod_floor(a: i64, b: i64) -> i64 {
    if b == 0 {
        return 0;
    }
    let rest = a.wrapping_rem(b);
    if rest != 0 && (rest < 0) != (b < 0) { rest + b } else { rest }
}

/// Boolean not.
pub fn not(a: u64) -> u64 {
    a ^ 1
}

/// Hash of an integer: of its 8 little-endian bytes.
pub fn hash_int(value: u64) -> u64 {
    flick_abi::hash::hash(&value.to_le_bytes())
}

/// Hash of bytes.
pub fn hash_bytes(bytes: &[u8]) -> u64 {
    flick_abi::hash::hash(bytes)
}

/// Whether `needle` occurs in `bytes`; the empty one occurs everywhere.
pub fn contains(bytes: &[u8], needle: &[u8]) -> bool {
    find(bytes, needle) >= 0
}

/// Reads an integer of `width_bytes` at `at`. `None` when it lies outside `data` or has no such width.
pub fn load(data: &[u8], at: u64, width_bytes: u8, big_endian: bool, signed: bool) -> Option<u64> {
    let start = usize::try_from(at).ok()?;
    let bytes = data.get(start..start.checked_add(usize::from(width_bytes))?)?;
    let mut word = [0; 8];
    word.get_mut(..bytes.len())?.copy_from_slice(bytes);
    if big_endian {
        word[..bytes.len()].reverse();
    }
    Some(extend(u64::from_le_bytes(word), width_bytes, signed))
}

/// Keeps the low `width_bytes` of `value` and extends them with zeros or with the sign.
fn extend(value: u64, width_bytes: u8, signed: bool) -> u64 {
    let shift = 64 - 8 * u32::from(width_bytes);
    if signed { (((value << shift) as i64) >> shift) as u64 } else { (value << shift) >> shift }
}

/// The bytes that `EmitInt` writes: the first `width_bytes` of the array.
pub fn int_bytes(value: u64, width_bytes: u8, big_endian: bool) -> [u8; 8] {
    if big_endian { (value << (64 - 8 * u32::from(width_bytes))).to_be_bytes() } else { value.to_le_bytes() }
}

/// Bytes of the message that `Need { base, bytes }` asks for.
pub fn need_bytes(base: u64, bytes: u32) -> u64 {
    base.saturating_add(u64::from(bytes)).min(NEED_BYTES_MAX)
}

/// A channel value made of a channel's index and an element, which saturates at [`CHAN_ELEMENT_MAX`].
pub fn chan_elem(chan: u64, index: u64) -> u64 {
    (chan & 0xffff) | (index.min(CHAN_ELEMENT_MAX) << 16)
}

/// Index of a channel value in `Program::channels`.
pub fn chan_index(chan: u64) -> u32 {
    (chan & 0xffff) as u32
}

/// Element of a channel value.
pub fn chan_element(chan: u64) -> u64 {
    chan >> 16
}

#[cfg(test)]
mod tests {
    use super::{binary, chan_elem, chan_element, chan_index, int_bytes, load, need_bytes};
    use crate::data::Binary;

    #[test]
    fn division_is_floored_and_total() {
        for (a, b, quotient, rest) in [
            (7, 2, 3, 1),
            (-7, 2, -4, 1),
            (7, -2, -4, -1),
            (-7, -2, 3, -1),
            (5, 0, 0, 0),
            (i64::MIN, -1, i64::MIN, 0),
        ] {
            assert_eq!(binary(Binary::DivS, a as u64, b as u64) as i64, quotient, "{a} / {b}");
            assert_eq!(binary(Binary::ModS, a as u64, b as u64) as i64, rest, "{a} mod {b}");
        }
        assert_eq!(binary(Binary::DivU, 5, 0), 0);
        assert_eq!(binary(Binary::ModU, 5, 0), 0);
    }

    #[test]
    fn integers_on_the_wire_come_back() {
        for width in [1, 2, 4, 8] {
            for big in [false, true] {
                let value = 0x8182_8384_8586_8788_u64;
                let bytes = int_bytes(value, width, big);
                let low = value & (u64::MAX >> (64 - 8 * u32::from(width)));
                assert_eq!(load(&bytes, 0, width, big, false), Some(low));
                let signed = load(&bytes, 0, width, big, true).map(|v| v as i64);
                assert!(signed.is_some_and(|v| v < 0), "the top bit is set");
            }
        }
        assert_eq!(load(&[1, 2], 1, 2, true, false), None);
        assert_eq!(load(&[1, 2], u64::MAX, 2, true, false), None);
    }

    #[test]
    fn what_does_not_fit_saturates() {
        assert_eq!(need_bytes(u64::MAX, 4), u64::MAX >> 2);
        let chan = chan_elem(3, u64::MAX);
        assert_eq!((chan_index(chan), chan_element(chan)), (3, (1 << 48) - 1));
    }
}
