//! Messages of the memcached binary protocol, written down by hand: what peers in tests speak.
//! Promises: nothing of the compiler or of the platform's parsers is in here, so that one fault cannot hide on both
//! sides of a test.

/// Opcodes that tests use.
pub mod opcode {
    /// `get`.
    pub const GET: u8 = 0x00;
    /// `set`.
    pub const SET: u8 = 0x01;
    /// `delete`.
    pub const DELETE: u8 = 0x04;
    /// `quit`.
    pub const QUIT: u8 = 0x07;
    /// `get` that keeps silent about a miss.
    pub const GETQ: u8 = 0x09;
    /// `noop`.
    pub const NOOP: u8 = 0x0a;
    /// `stat`: several replies, the last without a key.
    pub const STAT: u8 = 0x10;
    /// `set` that keeps silent about success.
    pub const SETQ: u8 = 0x11;
    /// `delete` that keeps silent about success.
    pub const DELETEQ: u8 = 0x14;
    /// `quit` without a reply.
    pub const QUITQ: u8 = 0x17;
}

/// Statuses that tests use.
pub mod status {
    /// Success.
    pub const OK: u16 = 0;
    /// No such key.
    pub const MISS: u16 = 1;
    /// The value is too large.
    pub const TOO_LARGE: u16 = 3;
    /// The request makes no sense.
    pub const INVALID: u16 = 4;
    /// Out of memory.
    pub const NO_MEMORY: u16 = 0x82;
    /// Too busy.
    pub const BUSY: u16 = 0x85;
    /// Temporary failure.
    pub const UNAVAILABLE: u16 = 0x86;
}

/// Magic of a request.
pub const REQUEST: u8 = 0x80;
/// Magic of a reply.
pub const REPLY: u8 = 0x81;
/// Bytes of a message before extras, key and value.
pub const HEADER_BYTES: usize = 24;

/// One message.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Cmd {
    /// [`REQUEST`] or [`REPLY`].
    pub magic: u8,
    /// Opcode.
    pub opcode: u8,
    /// Status; in a request the virtual bucket.
    pub status: u16,
    /// Opaque, which a reply repeats.
    pub opaque: u32,
    /// Version of the value; checking clients put a tag here that servers send back.
    pub cas: u64,
    /// Extras.
    pub extras: Vec<u8>,
    /// Key.
    pub key: Vec<u8>,
    /// Value.
    pub value: Vec<u8>,
}

impl Cmd {
    /// A request, with the extras that its opcode needs.
    pub fn request(opcode: u8, opaque: u32, key: &[u8], value: &[u8]) -> Self {
        let extras = match opcode {
            opcode::SET | opcode::SETQ => vec![0xde, 0xad, 0xbe, 0xef, 0, 0, 0, 0],
            _ => Vec::new(),
        };
        let (key, value) = (key.to_vec(), value.to_vec());
        Self { magic: REQUEST, opcode, status: 0, opaque, cas: 0, extras, key, value }
    }

    /// A reply to `request` without a body.
    pub fn reply_to(request: &Cmd, status: u16) -> Self {
        let (opcode, opaque, cas) = (request.opcode, request.opaque, request.cas);
        Self { magic: REPLY, opcode, status, opaque, cas, extras: vec![], key: vec![], value: vec![] }
    }

    /// As it goes over the wire.
    pub fn bytes(&self) -> Vec<u8> {
        let total = self.extras.len() + self.key.len() + self.value.len();
        let mut bytes = Vec::with_capacity(HEADER_BYTES + total);
        bytes.extend([self.magic, self.opcode]);
        bytes.extend((self.key.len() as u16).to_be_bytes());
        bytes.extend([self.extras.len() as u8, 0]);
        bytes.extend(self.status.to_be_bytes());
        bytes.extend((total as u32).to_be_bytes());
        bytes.extend(self.opaque.to_be_bytes());
        bytes.extend(self.cas.to_be_bytes());
        bytes.extend(&self.extras);
        bytes.extend(&self.key);
        bytes.extend(&self.value);
        bytes
    }

    /// Length on the wire of the message that starts `bytes`, once its header is there.
    pub fn wire_bytes(bytes: &[u8]) -> Option<usize> {
        let total = bytes.get(8..12)?;
        (bytes.len() >= HEADER_BYTES).then_some(())?;
        Some(HEADER_BYTES + u32::from_be_bytes([total[0], total[1], total[2], total[3]]) as usize)
    }

    /// The message at the front of `bytes` as far as it is there, once header, extras and key are.
    /// `None` as well for lengths that contradict each other.
    pub fn head(bytes: &[u8]) -> Option<Self> {
        let wire = Self::wire_bytes(bytes)?;
        let (key_len, extras_len) = (usize::from(be16(&bytes[2..4])), usize::from(bytes[4]));
        let value_from = HEADER_BYTES + extras_len + key_len;
        if bytes.len() < value_from || wire < value_from {
            return None;
        }
        Some(Self {
            magic: bytes[0],
            opcode: bytes[1],
            status: be16(&bytes[6..8]),
            opaque: bytes[12..16].iter().fold(0, |value, byte| value << 8 | u32::from(*byte)),
            cas: bytes[16..24].iter().fold(0, |value, byte| value << 8 | u64::from(*byte)),
            extras: bytes[HEADER_BYTES..HEADER_BYTES + extras_len].to_vec(),
            key: bytes[HEADER_BYTES + extras_len..value_from].to_vec(),
            value: bytes[value_from..bytes.len().min(wire)].to_vec(),
        })
    }

    /// Takes the first whole message off `bytes`.
    pub fn take(bytes: &mut Vec<u8>) -> Option<Self> {
        let wire = Self::wire_bytes(bytes)?;
        if bytes.len() < wire {
            return None;
        }
        let cmd = Self::head(bytes)?;
        bytes.drain(..wire);
        Some(cmd)
    }

    /// Whether the request asks for silence in the ordinary case.
    pub fn is_quiet(&self) -> bool {
        matches!(self.opcode, opcode::GETQ | opcode::SETQ | opcode::DELETEQ)
    }
}

fn be16(bytes: &[u8]) -> u16 {
    u16::from_be_bytes([bytes[0], bytes[1]])
}

/// The value a server has for a key: it tells the key, and is as long as keys say that end in `#LEN`.
pub fn value_of(key: &[u8]) -> Vec<u8> {
    let mut value = b"value of ".to_vec();
    value.extend(key);
    value.push(b';');
    let digits = key.iter().rposition(|byte| *byte == b'#').map(|at| &key[at + 1..]);
    let len: usize = digits
        .and_then(|digits| std::str::from_utf8(digits).ok())
        .and_then(|text| text.parse().ok())
        .unwrap_or(0);
    let pattern = value.len();
    while value.len() < len {
        let more = (len - value.len()).min(pattern);
        value.extend_from_within(..more);
    }
    value
}
