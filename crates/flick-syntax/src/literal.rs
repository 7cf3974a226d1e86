//! The values of literals: numbers with units and strings with escapes.
//! Promises: the value a literal has here is the one the whole compiler uses; nothing wraps.
//! Refuses: more than 64 bits, unknown units, unknown escapes; each with its place inside the literal.

use std::ops::Range;

/// Base unit of a number with a unit.
#[derive(Clone, Copy)]
enum Unit {
    Bytes,
    Nanoseconds,
}

/// The value of a literal.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub enum LiteralValue {
    /// `7`, `0x80`, `1_000`.
    Int(u64),
    /// `64KiB`, in bytes.
    Size(u64),
    /// `50ms`, in nanoseconds.
    Duration(u64),
    /// `"a\r\n"`, with its escapes resolved; any bytes, not only UTF-8.
    Bytes(Vec<u8>),
    /// `true` or `false`.
    Bool(bool),
}

/// Reason that a number has no value.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum NumberFault {
    TooLarge,
    NoDigits,
    UnknownUnit { unit_start: usize },
}

const UNITS: &[(&str, Unit, u64)] = &[
    ("B", Unit::Bytes, 1),
    ("KiB", Unit::Bytes, 1 << 10),
    ("MiB", Unit::Bytes, 1 << 20),
    ("GiB", Unit::Bytes, 1 << 30),
    ("ns", Unit::Nanoseconds, 1),
    ("us", Unit::Nanoseconds, 1_000),
    ("ms", Unit::Nanoseconds, 1_000_000),
    ("s", Unit::Nanoseconds, 1_000_000_000),
    ("min", Unit::Nanoseconds, 60_000_000_000),
    ("h", Unit::Nanoseconds, 3_600_000_000_000),
];

/// Parses the text of a `Number` token.
pub(crate) fn parse_number(text: &str) -> Result<LiteralValue, NumberFault> {
    if let Some(digits) = text.strip_prefix("0x").or_else(|| text.strip_prefix("0X")) {
        return parse_digits(digits, 16, 2).map(LiteralValue::Int);
    }
    let unit_start = text.find(|c: char| c.is_ascii_alphabetic()).unwrap_or(text.len());
    let (digits, unit_text) = text.split_at(unit_start);
    let value = parse_digits(digits, 10, 0)?;
    if unit_text.is_empty() {
        return Ok(LiteralValue::Int(value));
    }
    let &(_, unit, factor) = UNITS
        .iter()
        .find(|(name, _, _)| *name == unit_text)
        .ok_or(NumberFault::UnknownUnit { unit_start })?;
    let scaled = value.checked_mul(factor).ok_or(NumberFault::TooLarge)?;
    Ok(match unit {
        Unit::Bytes => LiteralValue::Size(scaled),
        Unit::Nanoseconds => LiteralValue::Duration(scaled),
    })
}

fn parse_digits(digits: &str, radix: u32, offset: usize) -> Result<u64, NumberFault> {
    let mut value = 0u64;
    let mut digit_count = 0u32;
    for (index, c) in digits.char_indices().filter(|(_, c)| *c != '_') {
        let digit = c.to_digit(radix).ok_or(NumberFault::UnknownUnit { unit_start: offset + index })?;
        value = value
            .checked_mul(u64::from(radix))
            .and_then(|v| v.checked_add(u64::from(digit)))
            .ok_or(NumberFault::TooLarge)?;
        digit_count += 1;
    }
    if digit_count == 0 { Err(NumberFault::NoDigits) } else { Ok(value) }
}

/// Resolves the escapes of a `Str` or `OpenStr` token (with its quotes) and returns the ranges of the bad ones, in
/// bytes from the start of the token. A bad escape contributes nothing to the value.
pub(crate) fn unescape(token_text: &str) -> (Vec<u8>, Vec<Range<usize>>) {
    let body = token_text.strip_prefix('"').unwrap_or(token_text);
    let mut value = Vec::with_capacity(body.len());
    let mut faults = Vec::new();
    let mut chars = body.char_indices().peekable();
    while let Some((index, c)) = chars.next() {
        match c {
            '"' => break,
            '\\' => {
                let escape_len = match chars.next() {
                    None => 1,
                    Some((_, 'x')) => {
                        let hex: String = body[index + 2..].chars().take(2).collect();
                        match u8::from_str_radix(&hex, 16) {
                            Ok(byte) if hex.len() == 2 && hex.is_ascii() && !hex.starts_with('+') => {
                                value.push(byte);
                                chars.next();
                                chars.next();
                                continue;
                            }
                            _ => 2,
                        }
                    }
                    Some((_, escaped)) => match simple_escape(escaped) {
                        Some(byte) => {
                            value.push(byte);
                            continue;
                        }
                        None => 1 + escaped.len_utf8(),
                    },
                };
                faults.push(1 + index..1 + index + escape_len);
            }
            _ => value.extend_from_slice(c.encode_utf8(&mut [0; 4]).as_bytes()),
        }
    }
    (value, faults)
}

fn simple_escape(c: char) -> Option<u8> {
    Some(match c {
        'r' => b'\r',
        'n' => b'\n',
        't' => b'\t',
        '0' => 0,
        '\\' => b'\\',
        '"' => b'"',
        _ => return None,
    })
}
