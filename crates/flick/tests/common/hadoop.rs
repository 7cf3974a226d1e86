//! Pairs of keys and values as Hadoop's mappers send them.

/// A number as Hadoop writes it: one byte from -112 to 127, otherwise the number of bytes and those.
pub fn vint(number: usize) -> Vec<u8> {
    if number <= 127 {
        return vec![number as u8];
    }
    let bytes = number.to_be_bytes();
    let skipped = bytes.iter().take_while(|byte| **byte == 0).count();
    let first = -112 - (bytes.len() - skipped) as i8;
    [&[first as u8], &bytes[skipped..]].concat()
}

/// A pair as it travels.
pub fn pair(key: &[u8], value: &[u8]) -> Vec<u8> {
    [&vint(key.len())[..], &vint(value.len()), key, value].concat()
}

/// Reads a number of [`vint`]; `None`: it is not all there.
fn take_vint(bytes: &mut &[u8]) -> Option<usize> {
    let first = *bytes.first()? as i8;
    let more = if first >= -112 { 0 } else { (-112 - i32::from(first)) as usize };
    let number = match more {
        0 => first as usize,
        more => bytes.get(1..=more)?.iter().fold(0, |number, byte| number << 8 | usize::from(*byte)),
    };
    *bytes = &bytes[1 + more..];
    Some(number)
}

/// Reads a pair; `None`: it is not all there.
pub fn take_pair<'b>(bytes: &mut &'b [u8]) -> Option<(&'b [u8], &'b [u8])> {
    let (key_len, value_len) = (take_vint(bytes)?, take_vint(bytes)?);
    let (key, rest) = bytes.split_at_checked(key_len)?;
    let (value, rest) = rest.split_at_checked(value_len)?;
    *bytes = rest;
    Some((key, value))
}
