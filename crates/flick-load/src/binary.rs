//! The memcached binary protocol: the 24-byte header, opcodes and statuses.
//!
//! Promises: no allocation; decoding reads exactly 24 bytes and never panics on what a peer sent.
//! Refuses: validating a frame. The reader checks whether lengths agree with each other and with the opcode.
//! Source: memcached binary protocol revamped, §2 (header), §3 (codes).

mod opcode;
mod status;

pub use opcode::Opcode;
pub use status::Status;

/// Bytes of every header.
pub const HEADER_BYTES: usize = 24;

/// First byte of a request.
pub const MAGIC_REQUEST: u8 = 0x80;

/// First byte of a response.
pub const MAGIC_RESPONSE: u8 = 0x81;

/// The header of one message, request or response, in host byte order.
///
/// The opcode and status are kept as sent: [`Opcode::from_byte`] and [`Status::from_code`] return whether they are
/// known.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Header {
    /// [`MAGIC_REQUEST`] or [`MAGIC_RESPONSE`] in a well-formed message.
    pub magic: u8,
    /// Command of the request; echoed in the response.
    pub opcode: u8,
    /// Length of the key inside the body.
    pub key_len: u16,
    /// Length of the extras at the front of the body.
    pub extras_len: u8,
    /// Always zero in this protocol version.
    pub data_type: u8,
    /// Vbucket of a request, status of a response.
    pub status: u16,
    /// Length of extras, key and value together.
    pub body_len: u32,
    /// Chosen by the client, echoed by the server.
    pub opaque: u32,
    /// Version of the item; zero means any.
    pub cas: u64,
}

impl Header {
    /// Decodes the header at the front of `input`.
    ///
    /// Shape: `input` may be any length; exactly [`HEADER_BYTES`] are read, big-endian.
    /// Returns `None` when fewer bytes than that are there.
    #[inline]
    pub fn decode(input: &[u8]) -> Option<Header> {
        let h = input.first_chunk::<HEADER_BYTES>()?;
        Some(Header {
            magic: h[0],
            opcode: h[1],
            key_len: u16::from_be_bytes([h[2], h[3]]),
            extras_len: h[4],
            data_type: h[5],
            status: u16::from_be_bytes([h[6], h[7]]),
            body_len: u32::from_be_bytes([h[8], h[9], h[10], h[11]]),
            opaque: u32::from_be_bytes([h[12], h[13], h[14], h[15]]),
            cas: u64::from_be_bytes([h[16], h[17], h[18], h[19], h[20], h[21], h[22], h[23]]),
        })
    }

    /// Encodes the header as it travels.
    #[inline]
    pub fn encode(&self) -> [u8; HEADER_BYTES] {
        let mut h = [0; HEADER_BYTES];
        h[0] = self.magic;
        h[1] = self.opcode;
        h[2..4].copy_from_slice(&self.key_len.to_be_bytes());
        h[4] = self.extras_len;
        h[5] = self.data_type;
        h[6..8].copy_from_slice(&self.status.to_be_bytes());
        h[8..12].copy_from_slice(&self.body_len.to_be_bytes());
        h[12..16].copy_from_slice(&self.opaque.to_be_bytes());
        h[16..24].copy_from_slice(&self.cas.to_be_bytes());
        h
    }

    /// Returns whether extras and key fit into the body, which every well-formed message fulfils.
    pub fn lengths_agree(&self) -> bool {
        u32::from(self.extras_len) + u32::from(self.key_len) <= self.body_len
    }

    /// Returns the length of the value: the body without extras and key, zero when the lengths disagree.
    pub fn value_len(&self) -> u32 {
        self.body_len.saturating_sub(u32::from(self.extras_len) + u32::from(self.key_len))
    }
}

/// Appends a whole message to `out`, with every length in `header` set from the parts.
///
/// Shape: `extras` at most 255 bytes, `key` at most 65,535; longer ones break our own invariant and panic.
pub fn encode_message(header: Header, extras: &[u8], key: &[u8], value: &[u8], out: &mut Vec<u8>) {
    let header = Header {
        key_len: u16::try_from(key.len()).expect("a key length fits the header"),
        extras_len: u8::try_from(extras.len()).expect("an extras length fits the header"),
        body_len: u32::try_from(extras.len() + key.len() + value.len())
            .expect("a body length fits the header"),
        ..header
    };
    out.extend_from_slice(&header.encode());
    out.extend_from_slice(extras);
    out.extend_from_slice(key);
    out.extend_from_slice(value);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn header_survives_the_round_trip() {
        let header = Header {
            magic: MAGIC_REQUEST,
            opcode: Opcode::Set.byte(),
            key_len: 0x0102,
            extras_len: 8,
            data_type: 0,
            status: 0x0304,
            body_len: 0x0506_0708,
            opaque: 0x090a_0b0c,
            cas: 0x0d0e_0f10_1112_1314,
        };
        let bytes = header.encode();
        assert_eq!(bytes[..4], [0x80, 0x01, 1, 2]);
        assert_eq!(bytes[12..16], [9, 10, 11, 12]);
        assert_eq!(Header::decode(&bytes), Some(header));
        assert_eq!(Header::decode(&bytes[..23]), None);
    }

    #[test]
    fn disagreeing_lengths_are_detected_without_overflow() {
        let header = Header { key_len: u16::MAX, extras_len: u8::MAX, body_len: 3, ..Header::default() };
        assert!(!header.lengths_agree());
        assert_eq!(header.value_len(), 0);
    }

    #[test]
    fn every_known_byte_keeps_its_opcode_and_status() {
        for byte in 0..=u8::MAX {
            if let Some(opcode) = Opcode::from_byte(byte) {
                assert_eq!(opcode.byte(), byte);
                assert!(!opcode.non_quiet().is_quiet(), "{opcode:?}");
            }
        }
        for code in 0..=u16::MAX {
            if let Some(status) = Status::from_code(code) {
                assert_eq!(status.code(), code);
            }
        }
    }
}
