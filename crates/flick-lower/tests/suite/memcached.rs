//! Messages of memcached's binary protocol, by a model that knows nothing of the grammar.

use crate::random::Random;

/// A message, field by field.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Message {
    /// 0x80 or 0x81.
    pub magic: u8,
    /// Operation.
    pub opcode: u8,
    /// Reserved byte.
    pub data_type: u8,
    /// Status or virtual bucket.
    pub status: u16,
    /// Number that the reply repeats.
    pub opaque: u32,
    /// Version of the item.
    pub cas: u64,
    /// Extras.
    pub extras: Vec<u8>,
    /// Key.
    pub key: Vec<u8>,
    /// Value.
    pub value: Vec<u8>,
}

impl Message {
    /// As on the wire.
    pub fn bytes(&self) -> Vec<u8> {
        let total = (self.extras.len() + self.key.len() + self.value.len()) as u32;
        let mut bytes =
            header(self.magic, self.opcode, self.key.len() as u16, self.extras.len() as u8, total);
        bytes[5] = self.data_type;
        bytes[6..8].copy_from_slice(&self.status.to_be_bytes());
        bytes[12..16].copy_from_slice(&self.opaque.to_be_bytes());
        bytes[16..24].copy_from_slice(&self.cas.to_be_bytes());
        [&bytes[..], &self.extras, &self.key, &self.value].concat()
    }

    /// Reads one message that is exactly `bytes`.
    pub fn parse(bytes: &[u8]) -> Self {
        let key_len = usize::from(u16::from_be_bytes([bytes[2], bytes[3]]));
        let extras_len = usize::from(bytes[4]);
        let total = u32::from_be_bytes(bytes[8..12].try_into().unwrap()) as usize;
        assert_eq!(bytes.len(), 24 + total, "the message says how long it is: {bytes:?}");
        let (extras, rest) = bytes[24..].split_at(extras_len);
        let (key, value) = rest.split_at(key_len);
        Self {
            magic: bytes[0],
            opcode: bytes[1],
            data_type: bytes[5],
            status: u16::from_be_bytes([bytes[6], bytes[7]]),
            opaque: u32::from_be_bytes(bytes[12..16].try_into().unwrap()),
            cas: u64::from_be_bytes(bytes[16..24].try_into().unwrap()),
            extras: extras.to_vec(),
            key: key.to_vec(),
            value: value.to_vec(),
        }
    }

    /// Some request that memcached would understand or not.
    pub fn random(random: &mut Random) -> Self {
        let extras = [0, 0, 4, 8, 20][random.below(5) as usize];
        let key = [0, 1, 3, 10, 40, 250][random.below(6) as usize];
        let value = [0, 0, 1, 7, 100][random.below(5) as usize];
        Self {
            magic: if random.below(50) == 0 { random.below(256) as u8 } else { 0x80 },
            opcode: random.below(0x42) as u8,
            data_type: random.below(2) as u8,
            status: [0, 0, 1, 0x81, 0xffff][random.below(5) as usize],
            opaque: random.next() as u32,
            cas: random.next(),
            extras: random.bytes(extras),
            key: random.bytes(key),
            value: random.bytes(value),
        }
    }
}

/// A header, whether or not its lengths agree.
pub fn header(magic: u8, opcode: u8, key_len: u16, extras_len: u8, total_len: u32) -> Vec<u8> {
    let mut bytes = vec![0; 24];
    (bytes[0], bytes[1], bytes[4]) = (magic, opcode, extras_len);
    bytes[2..4].copy_from_slice(&key_len.to_be_bytes());
    bytes[8..12].copy_from_slice(&total_len.to_be_bytes());
    bytes
}
