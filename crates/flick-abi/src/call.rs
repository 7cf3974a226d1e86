//! One activation of a rule: its inputs and its outputs.
//! Promises: a rule reads the message's head, its constants and its own output; it changes nothing but its output and
//! its list of sends, which the platform executes after the rule has returned.
//! Refuses: I/O, allocation, waiting. So tests can compare both engines on every call.

use std::sync::atomic::AtomicU64;

use crate::frame::Frame;
use crate::host::Host;
use crate::limits::{ASKS_MAX, BYTES_OFFSET_MAX, SENDS_MAX};

/// The memory that a bytes value points into.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u64)]
pub enum Region {
    /// The head of message 0.
    Message = 0,
    /// The program's constants.
    Const = 1,
    /// The output of this activation.
    Out = 2,
}

/// A bytes or string value of the language: region, offset, length, in one word.
///
/// Layout: bits 0..28 length, bits 28..56 offset, bits 56..64 region: 0 message 0, 1 constants, 2 output, 3 + n
/// message n for n from 1. A reference is not checked before [`BytesRef::resolve`] compares it with its region.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BytesRef(pub u64);

impl BytesRef {
    /// The result of a host call without a value; resolves to `None`.
    pub const MISSING: BytesRef = BytesRef(u64::MAX);

    /// Packs a reference. Panics when `offset` or `len` exceeds what the word can hold.
    #[inline]
    pub fn new(region: Region, offset: u64, len: u32) -> Self {
        assert!(offset <= BYTES_OFFSET_MAX, "bytes value starts beyond its region");
        assert!(u64::from(len) <= BYTES_OFFSET_MAX, "bytes value is longer than any region");
        Self(((region as u64) << 56) | (offset << 28) | u64::from(len))
    }

    /// Returns the same range in message number `message`, for a reference into message 0. Panics on any other region.
    pub fn in_message(self, message: u8) -> Self {
        assert!(
            self.region() == Region::Message as u64,
            "only a reference into a message is moved to another"
        );
        if message == 0 {
            return self;
        }
        let region = u64::from(message) + 3;
        assert!(region < 0xff, "messages of an activation are numbered below their bound");
        Self(self.0 | (region << 56))
    }

    /// Length in bytes.
    #[inline]
    pub fn len(self) -> u32 {
        (self.0 & BYTES_OFFSET_MAX) as u32
    }

    /// Whether it has no bytes.
    pub fn is_empty(self) -> bool {
        self.len() == 0
    }

    /// Offset in its region, in bytes.
    #[inline]
    pub fn offset(self) -> u32 {
        ((self.0 >> 28) & BYTES_OFFSET_MAX) as u32
    }

    /// Number of its region.
    #[inline]
    pub fn region(self) -> u64 {
        self.0 >> 56
    }

    /// Number of the message it points into, if any.
    #[inline]
    pub fn message(self) -> Option<usize> {
        match self.region() {
            0 => Some(0),
            region @ 4..0xff => Some(region as usize - 3),
            _ => None,
        }
    }

    /// Returns the bytes; `message` returns those of a message by number. `None` when the reference leaves its region:
    /// a bug of the compiler, never an error of a peer.
    #[inline]
    pub fn resolve<'a>(
        self,
        message: impl FnOnce(usize) -> Option<&'a [u8]>,
        consts: &'a [u8],
        out: &'a [u8],
    ) -> Option<&'a [u8]> {
        let region = match self.region() {
            1 => consts,
            2 => out,
            _ => message(self.message()?)?,
        };
        let start = self.offset() as usize;
        region.get(start..start.checked_add(self.len() as usize)?)
    }
}

/// The bytes of a send.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SendBody {
    /// The message that started the rule, unchanged.
    Original,
    /// Another message of the activation, by number, unchanged.
    Message(u8),
    /// `out[offset..offset + len]`, then message `tail_of` from `tail_from` to its end.
    Rebuilt {
        /// Start of the rebuilt head in the activation's output, in bytes.
        offset: u32,
        /// Length of the rebuilt head, in bytes.
        len: u32,
        /// Offset in a message from which its bytes follow unchanged; `u32::MAX`: no bytes follow.
        tail_from: u32,
        /// Number of that message.
        tail_of: u8,
    },
}

/// One message for a channel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Send {
    /// Index in `Program::channels`.
    pub channel: u32,
    /// Element of an array of channels, as the program computed it. Outside of the array, the platform answers it as a
    /// failed request. 0 for a single channel.
    pub element: u64,
    /// Bytes to send.
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

/// One request whose reply the activation waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ask {
    /// The target and the message.
    pub send: Send,
    /// Timeout in nanoseconds; 0 and less: the response timeout.
    pub timeout_ns: i64,
}

/// The asks of one activation since its start or last suspension, in program order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AskList {
    asks: [Ask; ASKS_MAX],
    len: usize,
}

impl AskList {
    /// An empty list.
    pub const fn new() -> Self {
        let send = Send { channel: 0, element: 0, body: SendBody::Original };
        Self { asks: [Ask { send, timeout_ns: 0 }; ASKS_MAX], len: 0 }
    }

    /// Empties the list.
    pub fn clear(&mut self) {
        self.len = 0;
    }

    /// Appends. Panics when full: checker and platform bound the asks of a suspension by [`ASKS_MAX`].
    pub fn push(&mut self, ask: Ask) {
        assert!(self.len < ASKS_MAX, "an activation asks more than its bound");
        self.asks[self.len] = ask;
        self.len += 1;
    }

    /// The asks so far.
    pub fn as_slice(&self) -> &[Ask] {
        &self.asks[..self.len]
    }
}

impl Default for AskList {
    fn default() -> Self {
        Self::new()
    }
}

/// A message of an activation, other than message 0.
#[derive(Clone, Copy, Debug)]
pub struct Message<'a> {
    /// Its parsed fields.
    pub frame: &'a Frame,
    /// Its bytes.
    pub bytes: &'a [u8],
}

/// Outcome of running an activation: finished or suspended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RuleOutcome {
    /// It has finished.
    Finished,
    /// It waits for the replies to its asks. The platform resumes it with this state, the same messages followed by
    /// those replies, and unchanged `spills` and output.
    Suspended(u32),
}

/// The inputs and outputs of one activation of a rule.
pub struct RuleCall<'a> {
    /// The parsed message. For handlers and timers: a frame of which at most the echo fields are valid.
    pub frame: &'a Frame,
    /// The message from its first byte, at least its head. Empty for handlers and timers.
    pub message: &'a [u8],
    /// Messages 1 and up; at most [`crate::limits::MESSAGES_MAX`] less one.
    pub others: &'a [Message<'a>],
    /// Element of the array of channels the message came from; 0 for a single channel.
    pub source_element: u64,
    /// Elements of each channel of the program (1 for a single channel), by channel index.
    pub channel_lens: &'a [u64],
    /// The program's counters, by number, of which this caller is the only writer: code adds to them here. Gauges, and
    /// counters that are not here, are added to by [`Host::counter_add`].
    pub counters: &'a [AtomicU64],
    /// The output, in which the rule builds bytes; at least as long as what the program's bounds say that it builds,
    /// contents undefined before.
    pub out: &'a mut [u8],
    /// Bytes of `out` in use.
    pub out_len: usize,
    /// The messages to send.
    pub sends: &'a mut SendList,
    /// The messages to ask with; empty before.
    pub asks: &'a mut AskList,
    /// Results of the asks of the last suspension, when the activation is resumed: in order, each the number of a
    /// message or `-1 - FailureReason`.
    pub answers: &'a [i64],
    /// Words kept across suspensions; at least as many as `Bounds::spill_words`.
    pub spills: &'a mut [u64],
    /// The state to resume in; 0 at the start.
    pub resume: u32,
    /// The session's `local`s; `Program::state_words` words.
    pub state: &'a mut [u64],
    /// Reason for failing the client's request (a `FailureReason` as number); `None` if the rule does not fail it.
    pub failure: Option<u32>,
    /// The platform.
    pub host: &'a mut dyn Host,
}
