//! The frame of a message: what a generated parser leaves behind, one 64-bit slot each.
//! Also the items of its lists and the ranges of it that are never forwarded.
//! Promises: a frame holds no pointer, only offsets into the message, so it may be copied and kept.
//! Source: FLICK §4.2 (fields nobody reads are never decoded).

mod cuts;

use crate::limits::{CUTS_MAX, FRAME_SLOTS_MAX, ITEMS_MAX};

/// Where the parser goes on when it is called again with more bytes; 0 at the start of a message.
pub const SLOT_STATE: usize = 0;
/// Bytes of the message understood so far.
pub const SLOT_CURSOR: usize = 1;
/// Length of the whole message in bytes. Valid after `Step::Done`.
pub const SLOT_TOTAL: usize = 2;
/// Length of the head in bytes: what must lie in one piece; the rest may stream. Valid after `Step::Done`.
pub const SLOT_HEAD: usize = 3;
/// [`MessageFlags`]. Valid after `Step::Done`.
pub const SLOT_FLAGS: usize = 4;
/// What to write into the `loud` field when the message goes to a shared connection. Valid after `Done`.
pub const SLOT_LOUD: usize = 5;
/// The echo fields have all been decoded (1) or not yet (0): a malformed message can be answered if so.
pub const SLOT_ECHO_READY: usize = 6;
/// On a request's `Done`: what `%keep` says. Before a reply is parsed: what the request that it answers kept.
pub const SLOT_ASKED: usize = 7;
/// How many items there are.
pub const SLOT_ITEMS: usize = 8;
/// How many cuts there are.
pub const SLOT_CUTS: usize = 9;
/// The parser's own: how far a search has come.
pub const SLOT_SCAN: usize = 10;
/// The parser's own.
pub const SLOT_AUX: usize = 11;

/// One slot per decoded field, behind [`crate::limits::FRAME_HEAD_SLOTS`] slots of the platform's own.
///
/// An integer field is its value (sign-extended or zero-extended to 64 bits); a bytes field is a
/// [`crate::BytesRef`] in the message region.
#[derive(Clone, Debug)]
#[repr(C, align(64))]
pub struct Frame {
    /// The slots. First, because generated code gets the address of the frame as theirs.
    pub slots: [u64; FRAME_SLOTS_MAX],
    /// Elements of lists, [`crate::BytesRef`]s in the message region; `SLOT_ITEMS` of them count.
    pub items: [u64; ITEMS_MAX],
    /// Ranges of the message that are never forwarded: start in the upper, end in the lower 32 bits; ascending and
    /// apart; `SLOT_CUTS` of them count.
    pub cuts: [u64; CUTS_MAX],
}

impl Frame {
    /// A frame before the first byte of a message.
    pub const fn new() -> Self {
        Self { slots: [0; FRAME_SLOTS_MAX], items: [0; ITEMS_MAX], cuts: [0; CUTS_MAX] }
    }

    /// Makes the frame ready for the next message. Only the head slots need it: a parser writes a field's slot
    /// before anything reads it.
    pub fn restart(&mut self) {
        self.slots[SLOT_STATE] = 0;
        self.slots[SLOT_CURSOR] = 0;
        self.slots[SLOT_FLAGS] = 0;
        self.slots[SLOT_ECHO_READY] = 0;
        self.slots[SLOT_ASKED] = 0;
        self.slots[SLOT_ITEMS] = 0;
        self.slots[SLOT_CUTS] = 0;
    }

    /// Becomes a copy of `other`. Of items and cuts only those that count are copied.
    pub fn copy_from(&mut self, other: &Frame) {
        self.slots = other.slots;
        let items = other.items();
        self.items[..items.len()].copy_from_slice(items);
        let cuts = &other.cuts[..other.cuts_len()];
        self.cuts[..cuts.len()].copy_from_slice(cuts);
    }

    /// Makes the frame ready for the next part of the same message (`MessageFlags::PARTS`): state and fields stay.
    pub fn next_part(&mut self) {
        self.slots[SLOT_CURSOR] = 0;
        self.slots[SLOT_ITEMS] = 0;
        self.slots[SLOT_CUTS] = 0;
    }

    /// The items that count.
    pub fn items(&self) -> &[u64] {
        &self.items[..(self.slots[SLOT_ITEMS] as usize).min(ITEMS_MAX)]
    }

    /// Appends an item. Panics when there are [`ITEMS_MAX`]: the compiler bounds the lists of a message.
    pub fn push_item(&mut self, item: u64) {
        let len = self.items().len();
        assert!(len < ITEMS_MAX, "the lists of a message hold more items than their bound");
        self.items[len] = item;
        self.slots[SLOT_ITEMS] = len as u64 + 1;
    }

    /// Length of the whole message in bytes, after `Step::Done`.
    pub fn total_bytes(&self) -> u64 {
        self.slots[SLOT_TOTAL]
    }

    /// Length of the message's head in bytes, after `Step::Done`.
    pub fn head_bytes(&self) -> u64 {
        self.slots[SLOT_HEAD]
    }

    /// What the grammar says of this message, after `Step::Done`.
    pub fn flags(&self) -> MessageFlags {
        MessageFlags(self.slots[SLOT_FLAGS])
    }
}

impl Default for Frame {
    fn default() -> Self {
        Self::new()
    }
}

/// What a grammar's facts say of one message.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct MessageFlags(pub u64);

impl MessageFlags {
    /// `%ends`: this request ends the session; it is not forwarded.
    pub const ENDS: u64 = 1;
    /// `%mute`: this request gets no reply at all.
    pub const MUTE: u64 = 2;
    /// `%silent`: this reply is not passed on, because the client asked not to hear it.
    pub const SILENT: u64 = 4;
    /// `%more`: further replies to the same request follow this one.
    pub const MORE: u64 = 8;
    /// `%last`: the connection that it came on carries no further message of its direction behind this one. Of a
    /// request: the session ends with its reply. Of a reply: the backend connection is not used again.
    pub const LAST: u64 = 16;
    /// `%tunnel`, of a reply: behind it both directions are raw bytes until they close.
    pub const TUNNEL: u64 = 32;
    /// The message goes on behind its total length: the same parser is called on what follows, with the frame after
    /// [`Frame::next_part`]. The last part comes without.
    pub const PARTS: u64 = 64;
    /// All bytes until the peer closes belong to the message; its total length is `u64::MAX`.
    pub const UNTIL_CLOSE: u64 = 128;
    /// `%retry`, of a request: may be sent again when no byte of a reply came.
    pub const RETRY: u64 = 256;
    /// `%whole`, of a request: if it is short, nothing of it goes on before all of it is there.
    pub const WHOLE: u64 = 512;

    /// Whether all bits of `mask` are set.
    pub fn has(self, mask: u64) -> bool {
        self.0 & mask == mask
    }
}
