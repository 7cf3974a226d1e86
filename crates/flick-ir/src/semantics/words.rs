//! The operations on lists, packed values, state and answers: words of eight bytes, little-endian.

use flick_abi::limits::MESSAGES_MAX;
use flick_abi::{BytesRef, Region, SendBody};

use crate::data::Type;

/// A value without bytes, where an operation has none to give.
pub const EMPTY: BytesRef = BytesRef((Region::Const as u64) << 56);

/// A word read from memory, as a value of a type: anything but 0 is true.
pub fn as_type(word: u64, ty: Type) -> u64 {
    if ty == Type::Bool { u64::from(word != 0) } else { word }
}

/// Returns the offset of word `index` in `len` bytes, if the whole word is inside.
fn position(len: usize, index: i64) -> Option<usize> {
    let start = usize::try_from(index).ok()?.checked_mul(8)?;
    (len.checked_sub(start)? >= 8).then_some(start)
}

/// The word at `8 * index`; outside 0.
pub fn word_get(bytes: &[u8], index: i64) -> u64 {
    let Some(start) = position(bytes.len(), index) else { return 0 };
    let mut word = [0; 8];
    word.copy_from_slice(&bytes[start..start + 8]);
    u64::from_le_bytes(word)
}

/// Writes the word at `8 * index`. `None`: outside, a broken invariant.
pub fn word_set(bytes: &mut [u8], index: i64, word: u64) -> Option<()> {
    let start = position(bytes.len(), index)?;
    bytes[start..start + 8].copy_from_slice(&word.to_le_bytes());
    Some(())
}

/// One item to pack.
#[derive(Clone, Copy, Debug)]
pub enum PackItem<'a> {
    /// A word.
    Word(u64),
    /// Bytes.
    Bytes(&'a [u8]),
}

/// Writes items as `Op::Pack` says; returns how many bytes that makes. `None`: `out` is too short.
pub fn pack<'a>(items: impl ExactSizeIterator<Item = PackItem<'a>>, out: &mut [u8]) -> Option<usize> {
    let mut end = items.len() * 8;
    for (index, item) in items.enumerate() {
        let word = match item {
            PackItem::Word(word) => word,
            PackItem::Bytes(bytes) => {
                out.get_mut(end..end + bytes.len())?.copy_from_slice(bytes);
                let word = ((end as u64) << 32) | bytes.len() as u64;
                end += bytes.len();
                word
            }
        };
        out.get_mut(8 * index..8 * index + 8)?.copy_from_slice(&word.to_le_bytes());
    }
    Some(end)
}

/// The bytes item at `index` of packed `bytes`, which are the ones of `value`; empty when out of range in any way.
pub fn packed_bytes(value: BytesRef, bytes: &[u8], index: u32) -> BytesRef {
    let word = word_get(bytes, i64::from(index));
    let (start, len) = (word >> 32, word & 0xffff_ffff);
    if start + len > bytes.len() as u64 {
        return EMPTY;
    }
    BytesRef(value.0 - u64::from(value.len()) + (start << 28) + len)
}

/// Returns the word of a slot of message number `message`, as a value of this activation.
pub fn message_get(word: u64, message: u8, ty: Type) -> u64 {
    let is_inside = ty == Type::Bytes && BytesRef(word).region() == Region::Message as u64;
    if is_inside { BytesRef(word).in_message(message).0 } else { as_type(word, ty) }
}

/// The number of a message, if an activation can have that many.
pub fn message_number(word: u64) -> Option<u8> {
    u8::try_from(word).ok().filter(|number| usize::from(*number) < MESSAGES_MAX)
}

/// Returns the body of a send of message number `message`, unchanged.
pub fn message_body(message: u8) -> SendBody {
    if message == 0 { SendBody::Original } else { SendBody::Message(message) }
}

/// Answer number `index`; outside -1.
pub fn answer(answers: &[i64], index: i64) -> i64 {
    usize::try_from(index).ok().and_then(|index| answers.get(index)).copied().unwrap_or(-1)
}

/// Reads bytes of the state that start at `word` into `out`; returns how many, at most `max_bytes`. `None`: the state
/// or `out` is too short.
pub fn state_load_bytes(state: &[u64], word: u32, max_bytes: u32, out: &mut [u8]) -> Option<usize> {
    let (len, words) = state.get(word as usize..)?.split_first()?;
    let len = (*len).min(u64::from(max_bytes)) as usize;
    let words = words.get(..len.div_ceil(8))?;
    for (target, word) in out.get_mut(..len)?.chunks_mut(8).zip(words) {
        target.copy_from_slice(&word.to_le_bytes()[..target.len()]);
    }
    Some(len)
}

/// Writes bytes into the state at `word`: their length, then they themselves, filled up with zeros to a whole word.
/// `None`: the state is too short.
pub fn state_store_bytes(state: &mut [u64], word: u32, bytes: &[u8]) -> Option<()> {
    let (len, words) = state.get_mut(word as usize..)?.split_first_mut()?;
    let words = words.get_mut(..bytes.len().div_ceil(8))?;
    *len = bytes.len() as u64;
    for (target, bytes) in words.iter_mut().zip(bytes.chunks(8)) {
        let mut word = [0; 8];
        word[..bytes.len()].copy_from_slice(bytes);
        *target = u64::from_le_bytes(word);
    }
    Some(())
}

/// Words of state that bytes of this bound take.
pub fn state_words(max_bytes: u32) -> u32 {
    1 + max_bytes.div_ceil(8)
}

#[cfg(test)]
mod tests {
    use flick_abi::{BytesRef, Region};

    use super::{
        EMPTY, PackItem, answer, message_get, pack, packed_bytes, state_load_bytes, state_store_bytes,
        word_get, word_set,
    };
    use crate::data::Type;

    #[test]
    fn words_are_inside_or_nothing() {
        let mut bytes = [0; 20];
        assert_eq!(word_set(&mut bytes, 1, 0x0102), Some(()));
        assert_eq!((bytes[8], bytes[9], word_get(&bytes, 1)), (2, 1, 0x0102));
        for index in [2, -1, i64::MAX, i64::MIN] {
            assert_eq!((word_get(&bytes, index), word_set(&mut bytes, index, 1)), (0, None), "{index}");
        }
    }

    #[test]
    fn packed_values_come_back() {
        let items =
            [PackItem::Word(7), PackItem::Bytes(b"abc"), PackItem::Word(u64::MAX), PackItem::Bytes(b"")];
        let mut out = [0xaa; 64];
        let len = pack(items.into_iter(), &mut out).expect("there is room");
        assert_eq!(len, 35);
        let value = BytesRef::new(Region::Out, 100, len as u32);
        assert_eq!((word_get(&out[..len], 0), word_get(&out[..len], 2)), (7, u64::MAX));
        assert_eq!(packed_bytes(value, &out[..len], 1), BytesRef::new(Region::Out, 132, 3));
        assert_eq!(packed_bytes(value, &out[..len], 3), BytesRef::new(Region::Out, 135, 0));
        // A word that is no place, and an item that is not there.
        assert_eq!(packed_bytes(value, &out[..len], 2), EMPTY);
        assert_eq!(packed_bytes(value, &out[..len], 9).len(), 0);
        assert_eq!(pack(items.into_iter(), &mut out[..34]), None);
    }

    #[test]
    fn state_keeps_bytes() {
        let mut state = [9; 5];
        assert_eq!(state_store_bytes(&mut state, 1, b"0123456789"), Some(()));
        assert_eq!((state[0], state[1], state[4]), (9, 10, 9));
        let mut out = [0; 16];
        assert_eq!(state_load_bytes(&state, 1, 16, &mut out), Some(10));
        assert_eq!(&out[..10], b"0123456789");
        assert_eq!(state_load_bytes(&state, 1, 4, &mut out), Some(4));
        assert_eq!(state_store_bytes(&mut state, 3, b"0123456789"), None);
    }

    #[test]
    fn slots_of_other_messages_lie_in_those() {
        let field = BytesRef::new(Region::Message, 3, 4).0;
        assert_eq!(BytesRef(message_get(field, 5, Type::Bytes)).message(), Some(5));
        assert_eq!(message_get(field, 0, Type::Bytes), field);
        assert_eq!(message_get(field, 5, Type::Int), field);
        let constant = BytesRef::new(Region::Const, 3, 4).0;
        assert_eq!(message_get(constant, 5, Type::Bytes), constant);
        assert_eq!(message_get(7, 5, Type::Bool), 1);
        assert_eq!((answer(&[4], 0), answer(&[4], 1), answer(&[4], -1)), (4, -1, -1));
    }
}
