//! The encodings and decodings of `Op::Transform`.
//! Promises: what an encoding gives, its decoding takes back to the same bytes, and no decoding takes two texts of the
//! same meaning where only one is given (base64: padding and unused bits are exact).
//! Source: RFC 3986 §2.1 to §2.3; RFC 4648 §4 and §3.5.

use base64::engine::general_purpose::STANDARD;
use base64::{DecodeSliceError, Engine};

use crate::data::Transform;

/// The reason that there is no result.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NoTransform {
    /// The bytes are not of the form.
    Malformed,
    /// `out` is too short.
    TooLong,
}

/// Writes what the bytes become to the start of `out`; returns how many bytes that makes.
pub fn transform(kind: Transform, bytes: &[u8], out: &mut [u8]) -> Result<usize, NoTransform> {
    let mut out = Writer { out, len: 0 };
    match kind {
        Transform::PercentDecode => percent_decode(bytes, &mut out)?,
        Transform::PercentEncode => percent_encode(bytes, &mut out)?,
        Transform::Base64Decode => base64_decode(bytes, &mut out)?,
        Transform::Base64Encode => base64_encode(bytes, &mut out)?,
    }
    Ok(out.len)
}

struct Writer<'a> {
    out: &'a mut [u8],
    len: usize,
}

impl Writer<'_> {
    fn put(&mut self, bytes: &[u8]) -> Result<(), NoTransform> {
        let target = self.out.get_mut(self.len..self.len + bytes.len()).ok_or(NoTransform::TooLong)?;
        target.copy_from_slice(bytes);
        self.len += bytes.len();
        Ok(())
    }
}

fn percent_decode(mut bytes: &[u8], out: &mut Writer<'_>) -> Result<(), NoTransform> {
    let digit = |byte: u8| char::from(byte).to_digit(16).map(|digit| digit as u8);
    while let Some((first, rest)) = bytes.split_first() {
        let (byte, after) = match (first, rest) {
            (b'%', [high, low, after @ ..]) => {
                let byte = digit(*high).zip(digit(*low)).map(|(high, low)| (high << 4) | low);
                (byte.ok_or(NoTransform::Malformed)?, after)
            }
            (b'%', _) => return Err(NoTransform::Malformed),
            _ => (*first, rest),
        };
        out.put(&[byte])?;
        bytes = after;
    }
    Ok(())
}

fn percent_encode(bytes: &[u8], out: &mut Writer<'_>) -> Result<(), NoTransform> {
    for byte in bytes {
        if byte.is_ascii_alphanumeric() || b"-._~".contains(byte) {
            out.put(&[*byte])?;
        } else {
            let digit = |half: u8| b"0123456789ABCDEF"[usize::from(half)];
            out.put(&[b'%', digit(byte >> 4), digit(byte & 15)])?;
        }
    }
    Ok(())
}

fn base64_decode(bytes: &[u8], out: &mut Writer<'_>) -> Result<(), NoTransform> {
    let decoded = STANDARD.decode_slice(bytes, &mut out.out[out.len..]);
    out.len += decoded.map_err(|error| match error {
        DecodeSliceError::DecodeError(_) => NoTransform::Malformed,
        DecodeSliceError::OutputSliceTooSmall => NoTransform::TooLong,
    })?;
    Ok(())
}

fn base64_encode(bytes: &[u8], out: &mut Writer<'_>) -> Result<(), NoTransform> {
    let encoded = STANDARD.encode_slice(bytes, &mut out.out[out.len..]);
    out.len += encoded.map_err(|_| NoTransform::TooLong)?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::{NoTransform, transform};
    use crate::data::Transform::{self, Base64Decode, Base64Encode, PercentDecode, PercentEncode};

    fn check(kind: Transform, text: &[u8], expected: Option<&[u8]>) {
        let mut out = [0; 64];
        let len = transform(kind, text, &mut out);
        match expected {
            Some(expected) => assert_eq!(len.map(|len| &out[..len]), Ok(expected), "{kind:?} {text:?}"),
            None => assert_eq!(len, Err(NoTransform::Malformed), "{kind:?} {text:?}"),
        }
    }

    #[test]
    fn percents() {
        check(PercentDecode, b"a%41%2fb+c", Some(b"aA/b+c"));
        for bad in [&b"%"[..], b"a%4", b"%g0", b"%0g"] {
            check(PercentDecode, bad, None);
        }
        check(PercentEncode, b"a/b c\xff~", Some(b"a%2Fb%20c%FF~"));
    }

    #[test]
    fn base64_is_exact() {
        // RFC 4648 §10.
        for (plain, text) in [
            (&b""[..], &b""[..]),
            (b"f", b"Zg=="),
            (b"fo", b"Zm8="),
            (b"foo", b"Zm9v"),
            (b"foob", b"Zm9vYg=="),
            (b"foobar", b"Zm9vYmFy"),
        ] {
            check(Base64Encode, plain, Some(text));
            check(Base64Decode, text, Some(plain));
        }
        for bad in [&b"Zg="[..], b"Zg", b"Zh==", b"Zm9=", b"Z===", b"====", b"Zg==Zg==", b"Zm 9"] {
            check(Base64Decode, bad, None);
        }
    }

    #[test]
    fn results_longer_than_the_output_are_too_long() {
        for (kind, text) in [
            (PercentDecode, &b"abc"[..]),
            (PercentEncode, b"/"),
            (Base64Encode, b"a"),
            (Base64Decode, b"Zm9v"),
        ] {
            assert_eq!(transform(kind, text, &mut [0; 2]), Err(NoTransform::TooLong), "{kind:?}");
        }
    }
}
