//! The frame of a message: what a generated parser has decoded, one 64-bit slot per field.
//! Also the items of its lists and the ranges of it that are never forwarded.
//! Promises: a frame holds no pointer, only offsets into the message, so it may be copied and kept.
//! Source: FLICK §4.2 (unused fields are never decoded).

mod cuts;
mod inserts;

pub use inserts::{ForwardedPart, Inserts};

use crate::limits::{CUTS_MAX, FRAME_SLOTS_MAX, ITEMS_MAX, STATUS_MAX};

/// State in which the parser resumes with more bytes; 0 at the start of a message.
pub const SLOT_STATE: usize = 0;
/// Bytes of the message that are parsed.
pub const SLOT_CURSOR: usize = 1;
/// Length of the whole message in bytes. Valid after `ParseStep::Done`.
pub const SLOT_TOTAL: usize = 2;
/// Length of the head in bytes: the part that must be contiguous. The rest may be streamed. Valid after
/// `ParseStep::Done`.
pub const SLOT_HEAD: usize = 3;
/// [`MessageFlags`]. Valid after `ParseStep::Done`.
pub const SLOT_FLAGS: usize = 4;
/// The value that replaces the `%loud` field on a shared connection. Valid after `Done`.
pub const SLOT_NON_QUIET: usize = 5;
/// Whether all echo fields are decoded (1) or not (0): if so, the platform can reply to a malformed message.
pub const SLOT_ECHO_READY: usize = 6;
/// After the `Done` of a request: the value of `%keep`. Before a reply is parsed: that of the request it answers.
pub const SLOT_ASKED: usize = 7;
/// Number of items.
pub const SLOT_ITEMS: usize = 8;
/// Number of cuts.
pub const SLOT_CUTS: usize = 9;
/// The parser's own: how far a search has come.
pub const SLOT_SCAN: usize = 10;
/// Before a request is parsed: the `%carry` of the request before it on the same connection. After its `Done`: its own.
/// It stays what it is when a frame is restarted, so that requests parsed one after the other hand it on.
pub const SLOT_CARRIED: usize = 11;

/// The bits of a status code.
const STATUS_MASK: u16 = 0x3ff;
const _: () = assert!(STATUS_MAX <= STATUS_MASK);

/// One slot per decoded field, behind [`crate::limits::FRAME_HEAD_SLOTS`] slots of the platform.
/// ⏎ An integer field is its value (sign-extended or zero-extended to 64 bits); a bytes field is a [`crate::BytesRef`]
/// into the message.
#[derive(Clone, Debug)]
#[repr(C, align(64))]
pub struct Frame {
    /// The slots. They come first, because generated code uses the address of the frame as theirs.
    pub slots: [u64; FRAME_SLOTS_MAX],
    /// Elements of lists, as [`crate::BytesRef`]s into the message; the first `SLOT_ITEMS` are valid.
    pub items: [u64; ITEMS_MAX],
    /// Ranges of the message that are never forwarded: start in the upper, end in the lower 32 bits; ascending and
    /// disjoint; the first `SLOT_CUTS` are valid.
    pub cuts: [u64; CUTS_MAX],
    /// Texts that are forwarded although the message does not have them.
    pub inserts: Inserts,
}

impl Frame {
    /// Offset of the number of texts that are added to a message, a word, in bytes.
    pub const INSERTS_LEN_OFFSET: usize = std::mem::offset_of!(Frame, inserts) + Inserts::LEN_OFFSET;

    /// Returns a frame before the first byte of a message.
    pub const fn new() -> Self {
        Self {
            slots: [0; FRAME_SLOTS_MAX],
            items: [0; ITEMS_MAX],
            cuts: [0; CUTS_MAX],
            inserts: Inserts::new(),
        }
    }

    /// Whether a parsed message is handled by its head: one of parts, and one longer than `whole_bytes_max` that is not
    /// all head.
    #[inline]
    pub fn is_by_head(&self, whole_bytes_max: u64) -> bool {
        let is_long = self.total_bytes() > whole_bytes_max && self.head_bytes() < self.total_bytes();
        is_long || self.flags().has(MessageFlags::PARTS)
    }

    /// Whether a parsed message, of which `have` bytes are there, is there whole and handled so.
    #[inline]
    pub fn is_whole(&self, have: u64, whole_bytes_max: u64) -> bool {
        have >= self.total_bytes() && !self.is_by_head(whole_bytes_max)
    }

    /// Resets the frame for the next message. Only head slots are reset: a parser writes a field's slot before it is
    /// read. [`SLOT_CARRIED`] is not: who parses messages of more than one connection sets it.
    pub fn restart(&mut self) {
        self.slots[SLOT_STATE] = 0;
        self.slots[SLOT_CURSOR] = 0;
        self.slots[SLOT_FLAGS] = 0;
        self.slots[SLOT_ECHO_READY] = 0;
        self.slots[SLOT_ASKED] = 0;
        self.slots[SLOT_ITEMS] = 0;
        self.slots[SLOT_CUTS] = 0;
        self.inserts.clear();
    }

    /// Copies `other`; of items and cuts only the valid ones.
    pub fn copy_from(&mut self, other: &Frame) {
        self.slots = other.slots;
        let items = other.items();
        self.items[..items.len()].copy_from_slice(items);
        let cuts = &other.cuts[..other.cuts_len()];
        self.cuts[..cuts.len()].copy_from_slice(cuts);
        self.inserts.copy_from(&other.inserts);
    }

    /// Resets the frame for the next part of the same message (`MessageFlags::PARTS`); state and fields stay.
    pub fn next_part(&mut self) {
        self.slots[SLOT_CURSOR] = 0;
        self.slots[SLOT_ITEMS] = 0;
        self.slots[SLOT_CUTS] = 0;
        self.inserts.clear();
    }

    /// Returns the valid items.
    pub fn items(&self) -> &[u64] {
        &self.items[..(self.slots[SLOT_ITEMS] as usize).min(ITEMS_MAX)]
    }

    /// Appends an item. Panics beyond [`ITEMS_MAX`]: the compiler bounds the lists of a message.
    pub fn push_item(&mut self, item: u64) {
        let len = self.items().len();
        assert!(len < ITEMS_MAX, "the lists of a message hold more items than their bound");
        self.items[len] = item;
        self.slots[SLOT_ITEMS] = len as u64 + 1;
    }

    /// Length of the whole message in bytes, after `ParseStep::Done`.
    pub fn total_bytes(&self) -> u64 {
        self.slots[SLOT_TOTAL]
    }

    /// Length of the message's head in bytes, after `ParseStep::Done`.
    pub fn head_bytes(&self) -> u64 {
        self.slots[SLOT_HEAD]
    }

    /// Returns the facts of this message, after `ParseStep::Done`.
    pub fn flags(&self) -> MessageFlags {
        MessageFlags(self.slots[SLOT_FLAGS])
    }
}

impl Default for Frame {
    fn default() -> Self {
        Self::new()
    }
}

/// The facts of one message, as its grammar states them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct MessageFlags(pub u64);

impl MessageFlags {
    /// `%ends`: this request ends the session; it is not forwarded.
    pub const ENDS: u64 = 1;
    /// `%mute`: this request gets no reply.
    pub const ONE_WAY: u64 = 2;
    /// `%silent`: this reply is not forwarded, because the client asked for none.
    pub const SILENT: u64 = 4;
    /// `%more`: further replies to the same request follow this one.
    pub const MORE: u64 = 8;
    /// `%last`: the connection carries no further message in this direction. Of a request: the session ends with its
    /// reply. Of a reply: the backend connection is not used again.
    pub const LAST: u64 = 16;
    /// `%tunnel`, of a reply: after it both directions are raw bytes until they close.
    pub const TUNNEL: u64 = 32;
    /// The message continues behind its total length: the same parser is called on the next bytes, with the frame after
    /// [`Frame::next_part`]. The last part has no such flag.
    pub const PARTS: u64 = 64;
    /// All bytes until the peer closes belong to the message; its total length is `u64::MAX`.
    pub const UNTIL_CLOSE: u64 = 128;
    /// `%retry`, of a request: it may be retried if no byte of a reply has arrived.
    pub const RETRY: u64 = 256;
    /// `%whole`, of a request: if it is short, it is forwarded only when it is complete.
    pub const WHOLE: u64 = 512;
    /// `%closes`, of a reply: the session ends with it.
    pub const CLOSES: u64 = 1024;
    /// `%stateful`, of a request: it changes the state of the connection that carries it.
    pub const STATEFUL: u64 = 2048;
    /// `%failed`, of a reply: the backend says that it has failed.
    pub const FAILED: u64 = 4096;
    /// First bit of `%status`, of a reply: its status code, at most [`STATUS_MAX`].
    pub const STATUS_SHIFT: u32 = 13;

    /// Whether all bits of `mask` are set.
    pub fn has(self, mask: u64) -> bool {
        self.0 & mask == mask
    }

    /// Whether any bit of `mask` is set.
    #[inline]
    pub fn has_any(self, mask: u64) -> bool {
        self.0 & mask != 0
    }

    /// Returns the status code of a reply (`%status`); `None` if its grammar states none.
    pub fn status(self) -> Option<u16> {
        let status = (self.0 >> Self::STATUS_SHIFT) as u16 & STATUS_MASK;
        (status != 0).then_some(status)
    }
}
