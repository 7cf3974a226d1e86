//! Forwarded messages: the bytes of a message without the cuts, and with the texts that its grammar adds.
//! Promises: forwarding and rebuilding send the same bytes, because both walk [`Frame::forwarded`].

use std::iter::Peekable;

use super::Frame;
use super::cuts::Kept;
use crate::limits::{INSERTED_BYTES_MAX, INSERTS_MAX};

/// Texts with their positions in a message, ascending; texts at one place in the order in which they were added.
#[derive(Clone, Debug)]
pub struct Inserts {
    /// Place in the upper 32 bits, end of the text in `texts` in the lower ones.
    positions: [u64; INSERTS_MAX],
    texts: [u8; INSERTED_BYTES_MAX],
    len: usize,
}

/// A part of what is forwarded of a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ForwardedPart<'a> {
    /// This range of the message.
    Message(u64, u64),
    /// A text that the message does not have.
    Text(&'a [u8]),
}

impl<'a> ForwardedPart<'a> {
    /// Returns its bytes. Panics when the range is not in `message`.
    pub fn bytes(self, message: &'a [u8]) -> &'a [u8] {
        match self {
            ForwardedPart::Message(start, end) => &message[start as usize..end as usize],
            ForwardedPart::Text(text) => text,
        }
    }

    /// Returns the number of its bytes.
    pub fn len(self) -> usize {
        match self {
            ForwardedPart::Message(start, end) => (end - start) as usize,
            ForwardedPart::Text(text) => text.len(),
        }
    }

    /// Whether it has no byte.
    pub fn is_empty(self) -> bool {
        self.len() == 0
    }
}

impl Inserts {
    /// Offset of their number, a word, in bytes.
    pub(super) const LEN_OFFSET: usize = std::mem::offset_of!(Inserts, len);

    pub(super) const fn new() -> Self {
        Self { positions: [0; INSERTS_MAX], texts: [0; INSERTED_BYTES_MAX], len: 0 }
    }

    pub(super) fn clear(&mut self) {
        self.len = 0;
    }

    pub(super) fn copy_from(&mut self, other: &Self) {
        self.len = other.len;
        self.positions[..self.len].copy_from_slice(&other.positions[..self.len]);
        let bytes = self.text_bytes();
        self.texts[..bytes].copy_from_slice(&other.texts[..bytes]);
    }

    fn text_bytes(&self) -> usize {
        self.len.checked_sub(1).map_or(0, |last| (self.positions[last] & 0xffff_ffff) as usize)
    }

    fn get(&self, index: usize) -> (u64, &[u8]) {
        let start = index.checked_sub(1).map_or(0, |before| (self.positions[before] & 0xffff_ffff) as usize);
        let word = self.positions[index];
        (word >> 32, &self.texts[start..(word & 0xffff_ffff) as usize])
    }

    fn add(&mut self, at: u64, text: &[u8]) -> bool {
        let end = self.text_bytes();
        if self.len == INSERTS_MAX || end + text.len() > INSERTED_BYTES_MAX {
            return false;
        }
        let index = (0..self.len).take_while(|index| self.get(*index).0 <= at).count();
        let start = index.checked_sub(1).map_or(0, |before| (self.positions[before] & 0xffff_ffff) as usize);
        self.texts.copy_within(start..end, start + text.len());
        self.texts[start..start + text.len()].copy_from_slice(text);
        self.positions.copy_within(index..self.len, index + 1);
        self.positions[index] = (at << 32) | start as u64;
        self.len += 1;
        for word in &mut self.positions[index..self.len] {
            *word += text.len() as u64;
        }
        true
    }
}

impl Frame {
    /// Forwards `text` in front of byte `at` of the message. Returns `false` when the frame is full. Panics when `at`
    /// does not fit into 32 bits.
    pub fn insert(&mut self, at: u64, text: &[u8]) -> bool {
        assert!(at <= u64::from(u32::MAX), "texts are added to the head of a message");
        text.is_empty() || self.inserts.add(at, text)
    }

    /// Whether something else than the message is forwarded.
    pub fn is_edited(&self) -> bool {
        self.cuts_len() > 0 || self.inserts.len > 0
    }

    /// Returns the end of the last cut or text: what follows is forwarded unchanged.
    pub fn edits_end(&self) -> u64 {
        let last_cut = self.cuts().last().map_or(0, |(_, end)| end);
        let last_text = self.inserts.len.checked_sub(1).map_or(0, |last| self.inserts.get(last).0 + 1);
        last_cut.max(last_text)
    }

    /// Copies the cuts and texts of `other`.
    pub fn copy_edits(&mut self, other: &Frame) {
        let len = other.cuts_len();
        self.cuts[..len].copy_from_slice(&other.cuts[..len]);
        self.slots[super::SLOT_CUTS] = len as u64;
        self.inserts.copy_from(&other.inserts);
    }

    /// Returns what is forwarded of the bytes `[start, end)`: in order, no piece empty. A text belongs to the byte that
    /// it is in front of, also when that byte is cut.
    pub fn forwarded(&self, start: u64, end: u64) -> Forwarded<'_> {
        let first = (0..self.inserts.len).take_while(|index| self.inserts.get(*index).0 < start).count();
        Forwarded { inserts: &self.inserts, next: first, end, kept: self.kept(start, end).peekable() }
    }
}

/// Iterates over what is forwarded; see [`Frame::forwarded`].
#[derive(Clone, Debug)]
pub struct Forwarded<'a> {
    inserts: &'a Inserts,
    /// Index of the next text.
    next: usize,
    end: u64,
    kept: Peekable<Kept<'a>>,
}

impl<'a> Iterator for Forwarded<'a> {
    type Item = ForwardedPart<'a>;

    fn next(&mut self) -> Option<ForwardedPart<'a>> {
        let text = (self.next < self.inserts.len).then(|| self.inserts.get(self.next));
        let text = text.filter(|(at, _)| *at < self.end);
        match (text, self.kept.peek_mut()) {
            (Some((at, _)), Some((start, end))) if *start < at => {
                let from = std::mem::replace(start, at.min(*end));
                let to = *start;
                if to == *end {
                    self.kept.next();
                }
                Some(ForwardedPart::Message(from, to))
            }
            (Some((_, text)), _) => {
                self.next += 1;
                Some(ForwardedPart::Text(text))
            }
            (None, _) => self.kept.next().map(|(start, end)| ForwardedPart::Message(start, end)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::Frame;
    use crate::limits::{INSERTED_BYTES_MAX, INSERTS_MAX};

    fn check(cuts: &[(u64, u64)], inserts: &[(u64, &str)], (start, end): (u64, u64), forwarded: &str) {
        let mut frame = Frame::new();
        assert!(
            inserts.iter().all(|(at, text)| frame.insert(*at, text.as_bytes())),
            "the frame has capacity"
        );
        assert!(cuts.iter().all(|(start, end)| frame.cut(*start, *end)), "the frame has capacity");
        assert_eq!(frame.is_edited(), !cuts.is_empty() || !inserts.is_empty());
        let mut copy = Frame::new();
        copy.copy_edits(&frame);
        let pieces: Vec<_> = copy.forwarded(start, end).collect();
        assert!(!pieces.iter().any(|piece| piece.is_empty()), "{pieces:?}");
        let bytes: Vec<u8> = pieces.iter().flat_map(|piece| piece.bytes(b"0123456789")).copied().collect();
        assert_eq!(String::from_utf8_lossy(&bytes), forwarded, "{cuts:?} {inserts:?}");
    }

    #[test]
    fn texts_stand_in_front_of_their_bytes() {
        check(&[], &[], (0, 10), "0123456789");
        check(&[], &[(0, "a"), (5, "bc")], (0, 10), "a01234bc56789");
        check(&[], &[(5, "b"), (0, "a"), (5, "c")], (0, 10), "a01234bc56789");
        check(&[(2, 4), (5, 6)], &[(2, "a"), (5, "b"), (6, "c")], (0, 10), "01a4bc6789");
        check(&[(2, 6)], &[(3, "a"), (6, "b")], (0, 10), "01ab6789");
        check(&[(0, 10)], &[(3, "a")], (0, 10), "a");
        check(&[], &[(2, "a"), (4, "b"), (6, "c")], (2, 6), "a23b45");
        check(&[(1, 3)], &[(2, "a")], (3, 6), "345");
    }

    #[test]
    fn a_text_beyond_the_capacity_is_refused() {
        let mut frame = Frame::new();
        for index in 0..INSERTS_MAX as u64 {
            assert!(frame.insert(index, b"a"), "the frame has capacity");
        }
        assert!(!frame.insert(3, b"a"), "the frame has no place");
        assert!(frame.insert(3, b""), "an empty text needs none");
        frame.restart();
        assert!(frame.insert(0, &[b'a'; INSERTED_BYTES_MAX - 1]), "the frame has capacity");
        assert!(!frame.insert(0, b"bc"), "the texts are full");
        assert!(frame.insert(9, b"b"), "one byte is free");
        assert_eq!(frame.edits_end(), 10);
    }
}
