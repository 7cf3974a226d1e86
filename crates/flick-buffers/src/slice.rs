//! An immutable view of part of a buffer that keeps the buffer alive.
//! Promises: its bytes never change; clone, `sub` and `advance` copy no bytes.
//! Refuses: spanning buffers; a message in two buffers is two slices.

use std::fmt;
use std::ops::Range;

use crate::buf::Buf;

/// Frozen bytes `start..end` of one [`Buf`].
#[derive(Clone)]
pub struct Slice {
    buf: Buf,
    start: u32,
    end: u32,
}

impl Slice {
    pub(crate) fn new(buf: Buf, range: Range<u32>) -> Slice {
        assert!(range.start <= range.end, "a slice does not start after its end");
        assert!(range.end <= buf.len(), "a slice ends inside its buffer's frozen bytes");
        Slice { buf, start: range.start, end: range.end }
    }

    /// Returns the bytes.
    #[inline]
    pub fn bytes(&self) -> &[u8] {
        self.buf.range_bytes(self.start..self.end)
    }

    /// Returns the number of bytes.
    #[inline]
    pub fn len(&self) -> u32 {
        self.end - self.start
    }

    /// Returns whether there are none.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.start == self.end
    }

    /// Returns a view of a part; `range` counts from this view's start. Panics when it reaches outside.
    pub fn sub(&self, range: Range<u32>) -> Slice {
        assert!(range.start <= range.end, "a slice does not start after its end");
        assert!(range.end <= self.len(), "a part of a slice lies inside it");
        Slice { buf: self.buf.clone(), start: self.start + range.start, end: self.start + range.end }
    }

    /// Removes the first `n` bytes from the view. Panics when it has fewer.
    pub fn advance(&mut self, n: u32) {
        assert!(n <= self.len(), "a slice is advanced by no more than it holds");
        self.start += n;
    }

    /// Returns the buffer.
    pub fn buf(&self) -> &Buf {
        &self.buf
    }

    /// Returns the offset of the first byte in the buffer.
    pub fn start(&self) -> u32 {
        self.start
    }

    /// Returns the offset after the last byte in the buffer.
    pub fn end(&self) -> u32 {
        self.end
    }

    /// Extends this view over `next` if that follows directly in the same buffer; returns whether it did.
    pub fn try_extend(&mut self, next: &Slice) -> bool {
        let contiguous = self.end == next.start && self.buf.is_same(&next.buf);
        if contiguous {
            self.end = next.end;
        }
        contiguous
    }
}

/// Returns the bytes of the buffers that slices keep from being reused; neighbours in one buffer count it once.
pub fn pinned_bytes<'a>(slices: impl Iterator<Item = &'a Slice>) -> u64 {
    let mut last: Option<&Buf> = None;
    let mut bytes = 0;
    for slice in slices {
        if last.is_none_or(|last| !last.is_same(&slice.buf)) {
            bytes += u64::from(slice.buf.capacity());
        }
        last = Some(&slice.buf);
    }
    bytes
}

impl AsRef<[u8]> for Slice {
    fn as_ref(&self) -> &[u8] {
        self.bytes()
    }
}

impl fmt::Debug for Slice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Slice({}..{} of {:?})", self.start, self.end, self.buf)
    }
}
