//! Ranges of a message that are never forwarded, such as the fields of one connection in HTTP.
//! Promises: the ranges are ascending and apart, so what is left of the message is found in one walk; whoever forwards
//! or rebuilds a message leaves out the same bytes, because all ask here.

use super::{Frame, SLOT_CUTS};
use crate::limits::CUTS_MAX;

impl Frame {
    /// How many cuts count.
    pub(super) fn cuts_len(&self) -> usize {
        (self.slots[SLOT_CUTS] as usize).min(CUTS_MAX)
    }

    /// The cuts as pairs of start and end.
    pub fn cuts(&self) -> impl Iterator<Item = (u64, u64)> + '_ {
        self.cuts[..self.cuts_len()].iter().map(|word| (word >> 32, word & 0xffff_ffff))
    }

    /// Bytes of the message that are cut.
    pub fn cut_bytes(&self) -> u64 {
        self.cuts().map(|(start, end)| end - start).sum()
    }

    /// Adds `[start, end)` to the cuts, joined with those that it touches. Returns whether there was room.
    /// Panics when the range is none within 32 bits.
    #[inline]
    pub fn cut(&mut self, start: u64, end: u64) -> bool {
        assert!(start <= end, "a cut ends before it starts");
        assert!(end <= u64::from(u32::MAX), "what is cut lies in the head of a message");
        let (mut start, mut end) = (start, end);
        if start == end {
            return true;
        }
        let len = self.cuts_len();
        // Mostly it lies behind all others, and goes on where the last one ends or is apart.
        match self.cuts[..len].last_mut() {
            Some(last) if *last & 0xffff_ffff == start => {
                *last = (*last & !0xffff_ffff) | end;
                return true;
            }
            Some(last) if *last & 0xffff_ffff > start => {}
            _ if len == CUTS_MAX => return false,
            _ => {
                self.cuts[len] = (start << 32) | end;
                self.slots[SLOT_CUTS] = len as u64 + 1;
                return true;
            }
        }
        // Those from `first` to `last` touch the new one.
        let first = self.cuts().take_while(|(_, known_end)| *known_end < start).count();
        let last = self.cuts().take_while(|(known_start, _)| *known_start <= end).count();
        if first == last && len == CUTS_MAX {
            return false;
        }
        if first < last {
            start = start.min(self.cuts[first] >> 32);
            end = end.max(self.cuts[last - 1] & 0xffff_ffff);
        }
        self.cuts.copy_within(last..len, first + 1);
        self.cuts[first] = (start << 32) | end;
        self.slots[SLOT_CUTS] = (len + 1 - (last - first)) as u64;
        true
    }

    /// Has the cuts of `other` from here on.
    pub fn copy_cuts(&mut self, other: &Frame) {
        let len = other.cuts_len();
        self.cuts[..len].copy_from_slice(&other.cuts[..len]);
        self.slots[super::SLOT_CUTS] = len as u64;
    }

    /// What is left of `[start, end)` of the message: ranges in order, none of them empty.
    pub fn kept(&self, start: u64, end: u64) -> Kept<'_> {
        Kept { cuts: &self.cuts[..self.cuts_len()], at: start, end }
    }
}

/// Walks over what cuts leave of a range; see [`Frame::kept`].
#[derive(Clone, Debug)]
pub struct Kept<'a> {
    cuts: &'a [u64],
    at: u64,
    end: u64,
}

impl Iterator for Kept<'_> {
    type Item = (u64, u64);

    fn next(&mut self) -> Option<(u64, u64)> {
        // Each round takes a cut away or gives a range.
        while self.at < self.end {
            let Some((word, rest)) = self.cuts.split_first() else {
                let range = (self.at, self.end);
                self.at = self.end;
                return Some(range);
            };
            let (start, end) = (word >> 32, word & 0xffff_ffff);
            let range = (self.at, start.min(self.end));
            self.at = self.at.max(end);
            self.cuts = rest;
            if range.0 < range.1 {
                return Some(range);
            }
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use super::Frame;
    use crate::limits::CUTS_MAX;

    fn check(cuts: &[(u64, u64)], expected: &[(u64, u64)], left: &str) {
        let mut frame = Frame::new();
        for (start, end) in cuts {
            assert!(frame.cut(*start, *end), "there is room");
        }
        assert_eq!(frame.cuts().collect::<Vec<_>>(), expected);
        let mut copy = Frame::new();
        copy.copy_from(&frame);
        let message = "0123456789";
        let kept = copy.kept(1, 9).map(|(start, end)| &message[start as usize..end as usize]);
        assert_eq!(kept.collect::<String>(), left, "{cuts:?}");
    }

    #[test]
    fn cuts_are_ascending_and_apart() {
        check(&[], &[], "12345678");
        check(&[(2, 4), (6, 7)], &[(2, 4), (6, 7)], "14578");
        check(&[(6, 7), (2, 4)], &[(2, 4), (6, 7)], "14578");
        check(&[(2, 4), (4, 5)], &[(2, 5)], "15678");
        check(&[(4, 5), (2, 4)], &[(2, 5)], "15678");
        check(&[(2, 4), (6, 7), (3, 9)], &[(2, 9)], "1");
        check(&[(2, 4), (2, 4)], &[(2, 4)], "145678");
        check(&[(0, 10)], &[(0, 10)], "");
        check(&[(8, 10), (0, 2), (5, 5)], &[(0, 2), (8, 10)], "234567");
    }

    #[test]
    fn what_finds_no_room_is_refused() {
        let mut frame = Frame::new();
        for index in 0..CUTS_MAX as u64 {
            assert!(frame.cut(10 * index, 10 * index + 2), "there is room");
        }
        assert!(!frame.cut(5, 6), "there is no room between two");
        assert!(!frame.cut(5000, 5001), "there is no room at the end");
        assert!(frame.cut(2, 10), "a cut that joins two takes no room");
        assert!(frame.cut(5000, 5001), "one has become free");
        assert_eq!(frame.cut_bytes(), 12 + 2 * (CUTS_MAX as u64 - 2) + 1);
    }
}
