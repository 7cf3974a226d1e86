//! Ranges of a message that are never forwarded, such as the connection fields of HTTP.
//! Promises: the ranges are ascending and disjoint, so one walk finds the rest of the message.

use super::{Frame, SLOT_CUTS};
use crate::limits::CUTS_MAX;

impl Frame {
    /// Returns the number of valid cuts.
    pub(super) fn cuts_len(&self) -> usize {
        (self.slots[SLOT_CUTS] as usize).min(CUTS_MAX)
    }

    /// Returns the cuts as pairs of start and end.
    pub fn cuts(&self) -> impl Iterator<Item = (u64, u64)> + '_ {
        self.cuts[..self.cuts_len()].iter().map(|word| (word >> 32, word & 0xffff_ffff))
    }

    /// Adds `[start, end)` to the cuts and joins adjacent ones. Returns `false` when the frame is full. Panics when the
    /// range does not fit into 32 bits.
    #[inline]
    pub fn cut(&mut self, start: u64, end: u64) -> bool {
        assert!(start <= end, "a cut ends before it starts");
        assert!(end <= u64::from(u32::MAX), "cuts lie in the head of a message");
        let (mut start, mut end) = (start, end);
        if start == end {
            return true;
        }
        let len = self.cuts_len();
        // The usual case: the range lies behind all others.
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
        // The cuts from `first` to `last` touch the new one.
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

    /// Returns the ranges of `[start, end)` that are not cut: in order, none of them empty.
    pub(super) fn kept(&self, start: u64, end: u64) -> Kept<'_> {
        Kept { cuts: &self.cuts[..self.cuts_len()], at: start, end }
    }
}

/// Iterates over the uncut ranges; see [`Frame::kept`].
#[derive(Clone, Debug)]
pub(super) struct Kept<'a> {
    cuts: &'a [u64],
    at: u64,
    end: u64,
}

impl Iterator for Kept<'_> {
    type Item = (u64, u64);

    fn next(&mut self) -> Option<(u64, u64)> {
        // Each iteration removes a cut or returns a range.
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
            assert!(frame.cut(*start, *end), "the frame has capacity");
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
    fn a_cut_beyond_the_capacity_is_refused() {
        let mut frame = Frame::new();
        for index in 0..CUTS_MAX as u64 {
            assert!(frame.cut(10 * index, 10 * index + 2), "the frame has capacity");
        }
        assert!(!frame.cut(5, 6), "the frame is full");
        assert!(!frame.cut(5000, 5001), "the frame is full at the end");
        assert!(frame.cut(2, 10), "a cut that joins two needs no slot");
        assert!(frame.cut(5000, 5001), "one slot is free");
        let bytes: u64 = frame.cuts().map(|(start, end)| end - start).sum();
        assert_eq!(bytes, 12 + 2 * (CUTS_MAX as u64 - 2) + 1);
    }
}
