//! Views of mapped memory.

use alloc::sync::Arc;
use core::ops::Deref;
use core::ptr::{NonNull, copy_nonoverlapping, write_bytes};

use crate::control::{Direction, MembersWords, ProcessWords, SideWords, ThreadWords, TokenWords};
use crate::limits::{RING_BYTES_MIN, RING_ORDER_MAX};
use crate::sync::AtomicU64;
use crate::sys::Mapping;

/// Marks structures that consist of atomics only.
///
/// # Safety
///
/// Every bit pattern is a valid value, and no method needs more than `&self`.
pub(crate) unsafe trait Atomics {}

// SAFETY: its fields, and theirs, are atomic integers.
unsafe impl Atomics for Direction {}
// SAFETY: its fields are atomic integers.
unsafe impl Atomics for SideWords {}
// SAFETY: it is one.
unsafe impl Atomics for AtomicU64 {}
// SAFETY: its fields are atomic integers.
unsafe impl Atomics for TokenWords {}
// SAFETY: its fields are atomic integers.
unsafe impl Atomics for ThreadWords {}
// SAFETY: its fields are atomic integers.
unsafe impl Atomics for ProcessWords {}
// SAFETY: its fields are atomic integers.
unsafe impl Atomics for MembersWords {}

/// Control words in a mapping.
#[derive(Debug)]
pub(crate) struct Words<T> {
    at: NonNull<T>,
    mapping: Arc<Mapping>,
}

impl<T> Clone for Words<T> {
    fn clone(&self) -> Self {
        Self { at: self.at, mapping: Arc::clone(&self.mapping) }
    }
}

// SAFETY: `Words` is a shared reference to atomics with an owner of the memory, and atomics are `Sync`.
unsafe impl<T: Atomics> Send for Words<T> {}
// SAFETY: as above.
unsafe impl<T: Atomics> Sync for Words<T> {}

impl<T: Atomics> Words<T> {
    /// Returns the words at an offset of the mapping; `None` if they are not inside or not aligned.
    pub fn at(mapping: &Arc<Mapping>, offset: u64) -> Option<Self> {
        let end = offset.checked_add(size_of::<T>() as u64)?;
        let is_aligned = offset.is_multiple_of(align_of::<T>() as u64);
        if !is_aligned || end > mapping.len() as u64 {
            return None;
        }
        // SAFETY: `offset < mapping.len()` by the check above, so the result is inside of the mapping.
        let at = unsafe { mapping.start().add(offset as usize) };
        Some(Self { at: at.cast(), mapping: Arc::clone(mapping) })
    }
}

impl<T: Atomics> Deref for Words<T> {
    type Target = T;

    fn deref(&self) -> &T {
        // SAFETY: `at` checked that the words are aligned and inside of the mapping, which `self.mapping` keeps;
        // every bit pattern is valid and every access atomic, as `Atomics` requires.
        unsafe { self.at.as_ref() }
    }
}

/// A list of words in a mapping.
#[derive(Debug)]
pub(crate) struct WordList<T = AtomicU64> {
    first: Words<T>,
    len: usize,
}

impl<T> Clone for WordList<T> {
    fn clone(&self) -> Self {
        Self { first: self.first.clone(), len: self.len }
    }
}

impl<T: Atomics> WordList<T> {
    /// Returns `len` words from an offset of the mapping; `None` if they are not inside or not aligned.
    pub fn at(mapping: &Arc<Mapping>, offset: u64, len: u32) -> Option<Self> {
        let end = offset.checked_add(size_of::<T>() as u64 * u64::from(len))?;
        let first = Words::at(mapping, offset)?;
        (end <= mapping.len() as u64).then_some(Self { first, len: len as usize })
    }
}

impl<T: Atomics> Deref for WordList<T> {
    type Target = [T];

    fn deref(&self) -> &[T] {
        // SAFETY: `at` checked that `len` words from `first` are inside of the mapping, which `first` keeps; every
        // access to them is atomic.
        unsafe { core::slice::from_raw_parts(self.first.at.as_ptr(), self.len) }
    }
}

/// The bytes of one ring. Positions count from the beginning of the stream and are masked here.
#[derive(Debug)]
pub(crate) struct Area {
    start: NonNull<u8>,
    bytes: u64,
    mapping: Arc<Mapping>,
}

// SAFETY: an area is a pointer into memory of the process with an owner of that memory; the bytes are copied, never
// borrowed.
unsafe impl Send for Area {}
// SAFETY: as above. Threads of one process that share an area are kept apart as processes are: by a token, and by the
// indices of the ring.
unsafe impl Sync for Area {}

impl Area {
    /// Returns the capacity, a power of two.
    pub fn len(&self) -> u64 {
        self.bytes
    }

    /// Splits a range of positions where the ring wraps: offset of the first piece, and its length.
    fn split(&self, at: u64, len: usize) -> (usize, usize) {
        assert!(len as u64 <= self.bytes, "a copy fits the ring");
        let offset = at & (self.bytes - 1);
        (offset as usize, len.min((self.bytes - offset) as usize))
    }

    /// Copies `from` to position `at`.
    pub fn copy_in(&self, at: u64, from: &[u8]) {
        let (offset, first) = self.split(at, from.len());
        let start = self.start.as_ptr();
        // SAFETY: `offset < self.bytes`, and the area is inside of the mapping.
        let to = unsafe { start.add(offset) };
        // SAFETY: `first <= from.len()` and `offset + first <= self.bytes` by `split`; memory of this process that
        // `from` borrows is not part of a mapping of shared memory.
        unsafe { copy_nonoverlapping(from.as_ptr(), to, first) };
        let rest = &from[first..];
        // SAFETY: `rest.len() <= offset`, because `from` is not longer than the area; the rest as above.
        unsafe { copy_nonoverlapping(rest.as_ptr(), start, rest.len()) };
    }

    /// Fills `out` from position `at`.
    pub fn copy_out(&self, at: u64, out: &mut [u8]) {
        let (offset, first) = self.split(at, out.len());
        let start = self.start.as_ptr();
        // SAFETY: `offset < self.bytes`, and the area is inside of the mapping.
        let from = unsafe { start.add(offset) };
        // SAFETY: `first <= out.len()` and `offset + first <= self.bytes` by `split`; `out` is borrowed memory of
        // this process, no part of a mapping of shared memory; any byte is a valid `u8`.
        unsafe { copy_nonoverlapping(from, out.as_mut_ptr(), first) };
        let rest = &mut out[first..];
        // SAFETY: `rest.len() <= offset`, because `out` is not longer than the area; the rest as above.
        unsafe { copy_nonoverlapping(start, rest.as_mut_ptr(), rest.len()) };
    }

    /// Clears all bytes, and returns the memory of a ring that had grown to the kernel.
    pub fn clear(&self) {
        if self.bytes > RING_BYTES_MIN && self.mapping.release(self.start, self.bytes as usize) {
            return;
        }
        // SAFETY: the area is inside of the mapping.
        unsafe { write_bytes(self.start.as_ptr(), 0, self.bytes as usize) };
    }
}

#[cfg(test)]
impl Area {
    /// Returns a ring that is smaller than those of a segment, so that tests wrap often.
    pub fn small(mapping: &Arc<Mapping>, offset: u64, bytes: u64) -> Self {
        assert!(bytes.is_power_of_two() && offset + bytes <= mapping.len() as u64);
        // SAFETY: the ring is inside of the mapping by the check above.
        let start = unsafe { mapping.start().add(offset as usize) };
        Self { start, bytes, mapping: Arc::clone(mapping) }
    }
}

/// The part of a segment that holds the rings of one sender.
#[derive(Clone, Debug)]
pub(crate) struct Window {
    offset: u64,
    bytes: u64,
    mapping: Arc<Mapping>,
}

impl Window {
    /// Returns the part from `offset`; `None` if it is not inside of the mapping.
    pub fn at(mapping: &Arc<Mapping>, offset: u64, bytes: u64) -> Option<Self> {
        let is_inside = offset.checked_add(bytes)? <= mapping.len() as u64;
        is_inside.then(|| Self { offset, bytes, mapping: Arc::clone(mapping) })
    }

    /// Returns the ring at a location that the other process may have written: bits 0 to 7 are the order, the rest
    /// the offset in units of the smallest ring. `None` if it is not a multiple of its size, or not inside.
    pub fn area(&self, location: u64) -> Option<Area> {
        let order = (location & 0xff) as u32;
        if order > RING_ORDER_MAX {
            return None;
        }
        let bytes = RING_BYTES_MIN << order;
        let offset = (location >> 8).checked_mul(RING_BYTES_MIN)?;
        if !offset.is_multiple_of(bytes) || offset.checked_add(bytes)? > self.bytes {
            return None;
        }
        // SAFETY: the ring is inside of the window by the check above, and the window inside of the mapping by
        // `at`.
        let start = unsafe { self.mapping.start().add((self.offset + offset) as usize) };
        Some(Area { start, bytes, mapping: Arc::clone(&self.mapping) })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn copies_wrap_and_stay_inside() {
        let mapping = Arc::new(Mapping::allocate(3 * 4096));
        let window = Window::at(&mapping, 4096, 4096).expect("inside");
        let area = window.area(0).expect("the whole window");
        area.copy_in(4090, b"0123456789");
        let mut out = [0; 10];
        area.copy_out(4090, &mut out);
        assert_eq!(&out, b"0123456789");
        area.copy_out(0, &mut out[..4]);
        assert_eq!(&out[..4], b"6789");
        let before = Window::at(&mapping, 0, 4096).and_then(|window| window.area(0)).expect("inside");
        let after = Window::at(&mapping, 8192, 4096).and_then(|window| window.area(0)).expect("inside");
        for neighbour in [before, after] {
            let mut bytes = [1; 4096];
            neighbour.copy_out(0, &mut bytes);
            assert_eq!(bytes, [0; 4096]);
        }
        area.clear();
        area.copy_out(4090, &mut out);
        assert_eq!(out, [0; 10]);
    }

    #[test]
    fn locations_outside_of_the_window_have_no_area() {
        let mapping = Arc::new(Mapping::allocate(8 * 4096));
        let window = Window::at(&mapping, 2 * 4096, 4 * 4096).expect("inside");
        for (location, bytes) in [(0, 4096), (3 << 8, 4096), (2 << 8 | 1, 8192), (2, 4 * 4096)] {
            assert_eq!(window.area(location).map(|area| area.len()), Some(bytes), "{location:x}");
        }
        for location in [4 << 8, 1 << 8 | 1, 4 << 8 | 1, 3, 255, u64::MAX, u64::MAX << 8, 1 << 63, 11] {
            assert!(window.area(location).is_none(), "{location:x}");
        }
        assert!(Window::at(&mapping, 8 * 4096, 1).is_none() && Window::at(&mapping, u64::MAX, 2).is_none());
    }

    #[test]
    fn words_are_aligned_and_inside() {
        let mapping = Arc::new(Mapping::allocate(4096));
        assert!(Words::<Direction>::at(&mapping, 4096 - 256).is_some());
        assert!(Words::<Direction>::at(&mapping, 4096 - 192).is_none());
        assert!(Words::<Direction>::at(&mapping, 32).is_none());
        assert!(Words::<Direction>::at(&mapping, u64::MAX - 63).is_none());
        assert!(WordList::<AtomicU64>::at(&mapping, 4096 - 16, 2).is_some_and(|words| words.len() == 2));
        assert!(WordList::<AtomicU64>::at(&mapping, 4096 - 16, 3).is_none());
    }
}
