//! One activation of a rule: what it may look at and what it leaves behind.
//! Promises: a rule reads the message's head, its constants and what it has built itself; it changes nothing but
//! its own output and its list of sends, which the platform carries out when the rule has returned.
//! Refuses: I/O, allocation, waiting. That is why both engines can be compared on every call.

use crate::frame::Frame;
use crate::limits::{BYTES_OFFSET_MAX, SENDS_MAX};

/// Which memory a bytes value lies in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u64)]
pub enum Region {
    /// The head of the message under way.
    Message = 0,
    /// The program's constants.
    Const = 1,
    /// What this activation has built.
    Out = 2,
}

/// A bytes or string value of the language: region, offset, length, in one word.
///
/// Layout: bits 0..32 length, bits 32..62 offset, bits 62..64 region. Holding one proves nothing: whoever
/// follows it checks it against the region ([`BytesRef::resolve`]).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BytesRef(pub u64);

impl BytesRef {
    /// Packs a reference. Panics when `offset` exceeds what the word can hold.
    pub fn new(region: Region, offset: u64, len: u32) -> Self {
        assert!(offset <= BYTES_OFFSET_MAX, "bytes value starts beyond its region");
        Self(((region as u64) << 62) | (offset << 32) | u64::from(len))
    }

    /// Length in bytes.
    pub fn len(self) -> u32 {
        self.0 as u32
    }

    /// Whether it has no bytes.
    pub fn is_empty(self) -> bool {
        self.len() == 0
    }

    /// Offset in its region, in bytes.
    pub fn offset(self) -> u32 {
        ((self.0 >> 32) & BYTES_OFFSET_MAX) as u32
    }

    /// Number of its region; 3 is none.
    pub fn region(self) -> u64 {
        self.0 >> 62
    }

    /// The bytes. `None` when the reference leaves its region: a bug of the compiler, never of a peer.
    pub fn resolve<'a>(self, message: &'a [u8], consts: &'a [u8], out: &'a [u8]) -> Option<&'a [u8]> {
        let region = match self.region() {
            0 => message,
            1 => consts,
            2 => out,
            _ => return None,
        };
        let start = self.offset() as usize;
        region.get(start..start.checked_add(self.len() as usize)?)
    }
}

/// What a send carries.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SendBody {
    /// The message that started the rule, unchanged.
    Original,
    /// `out[offset..offset + len]`, then, when `tail` is set, the original message from `tail_from` to its end.
    Rebuilt {
        /// Start of the rebuilt head in the activation's output, in bytes.
        offset: u32,
        /// Length of the rebuilt head, in bytes.
        len: u32,
        /// Where in the original message the part starts that follows unchanged; `u32::MAX`: nothing follows.
        tail_from: u32,
    },
}

/// One message on its way to a channel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Send {
    /// Index in `Program::channels`.
    pub channel: u32,
    /// Element of an array of channels, as the program computed it: it may lie outside the array, which the
    /// platform answers as a failed request. 0 for a single channel.
    pub element: u64,
    /// What is sent.
    pub body: SendBody,
}

/// The sends of one activation, in program order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SendList {
    sends: [Send; SENDS_MAX],
    len: usize,
}

impl SendList {
    /// An empty list.
    pub const fn new() -> Self {
        Self { sends: [Send { channel: 0, element: 0, body: SendBody::Original }; SENDS_MAX], len: 0 }
    }

    /// Empties the list.
    pub fn clear(&mut self) {
        self.len = 0;
    }

    /// Appends. Panics when full: the checker bounds the sends of a rule by [`SENDS_MAX`].
    pub fn push(&mut self, send: Send) {
        assert!(self.len < SENDS_MAX, "a rule sends more messages than its bound");
        self.sends[self.len] = send;
        self.len += 1;
    }

    /// The sends so far.
    pub fn as_slice(&self) -> &[Send] {
        &self.sends[..self.len]
    }
}

impl Default for SendList {
    fn default() -> Self {
        Self::new()
    }
}

/// Everything one activation of a rule sees and leaves.
#[derive(Debug)]
pub struct RuleCall<'a> {
    /// The parsed message.
    pub frame: &'a Frame,
    /// At least the head of the message, from its first byte.
    pub message: &'a [u8],
    /// Element of the array of channels the message came from; 0 for a single channel.
    pub source_element: u64,
    /// Elements of each channel of the program (1 for a single channel), by channel index.
    pub channel_lens: &'a [u64],
    /// Where the rule builds bytes; at least [`crate::limits::OUT_BYTES_MAX`] long, contents undefined before.
    pub out: &'a mut [u8],
    /// Bytes of `out` in use.
    pub out_len: usize,
    /// The messages to send.
    pub sends: &'a mut SendList,
}
