//! The memory behind one class of buffers.
//! Promises: one mapping, zeroed by the kernel page by page as it is first touched, unmapped once.
//! Refuses: knowing which bytes are frozen and which are spare; `buf.rs` knows and upholds the contracts below.

mod pages;

use rustix::mm::{Advice, madvise};
use rustix::param::page_size;

pub use pages::Pages;

/// Zeroed memory of fixed size.
pub(crate) struct Region {
    /// They start on a page boundary, so that the memory of free buffers is whole pages.
    pages: Pages,
    /// The length of `pages`, which is not borrowed as a whole: handles borrow parts of it.
    len: usize,
}

impl Region {
    /// Maps `len` zeroed bytes. Cost: touches no page.
    pub(crate) fn new(len: usize) -> Region {
        Region { pages: Pages::zeroed(len), len }
    }

    /// Returns a pointer to byte `at`; `at` may be one past the end.
    pub(crate) fn pointer(&self, at: usize) -> *mut u8 {
        assert!(at <= self.len, "an offset into a pool's memory lies inside it");
        // SAFETY: `at <= len` (asserted above) and `len` bytes are mapped, by `new`.
        unsafe { self.pages.base().as_ptr().add(at) }
    }

    /// Returns the bytes `at..at + len`.
    ///
    /// # Safety
    /// For the life of the returned borrow no code writes these bytes.
    pub(crate) unsafe fn frozen(&self, at: usize, len: usize) -> &[u8] {
        assert!(len <= self.len && at <= self.len - len, "a view lies inside its pool's memory");
        let start = self.pointer(at);
        // SAFETY: in bounds by the assertion, initialised because the allocation was zeroed, alive because
        // `self` is borrowed, unwritten by this function's own contract.
        unsafe { std::slice::from_raw_parts(start, len) }
    }

    /// Returns the bytes `at..at + len`, for writing.
    ///
    /// # Safety
    /// For the life of the returned borrow no other code reads or writes these bytes.
    #[expect(clippy::mut_from_ref, reason = "disjointness is per range and is this function's contract")]
    pub(crate) unsafe fn spare(&self, at: usize, len: usize) -> &mut [u8] {
        assert!(len <= self.len && at <= self.len - len, "a view lies inside its pool's memory");
        let start = self.pointer(at);
        // SAFETY: in bounds by the assertion, initialised because the allocation was zeroed, alive because
        // `self` is borrowed, exclusive by this function's own contract.
        unsafe { std::slice::from_raw_parts_mut(start, len) }
    }

    /// Returns the pages `at..at + len` to the kernel, if it takes them; they read as zeros then.
    ///
    /// # Safety
    /// During the call no code reads or writes these bytes, and no code relies on what they hold.
    unsafe fn discard(&self, at: usize, len: usize) {
        assert!(len <= self.len && at <= self.len - len, "discarded memory lies inside its pool's");
        assert!(
            at.is_multiple_of(page_size()) && len.is_multiple_of(page_size()),
            "whole pages are discarded"
        );
        let start = self.pointer(at);
        // SAFETY: whole pages of this mapping (asserted above; it starts on a page boundary), which stay mapped
        // and initialised: the kernel fills them with zeros when they are next touched. Unused by this function's own
        // contract.
        let discarded = unsafe { madvise(start.cast(), len, Advice::LinuxDontNeed) };
        // It refuses locked memory (mlockall(2)), for example. The buffers can be used as before.
        let _ = discarded;
    }
}

/// The bytes `from..from + len` of one buffer's frozen part.
///
/// `buf.rs` passes offsets below the buffer's length only. This is the sound wrapper around
/// [`Region::frozen`]: bytes below a buffer's length are never written while a handle on it lives (appending
/// writes at and above the length; `reset` and freeing need the last handle, exclusively).
pub(crate) struct FrozenRange {
    /// Offset in the region.
    pub(crate) at: usize,
    /// Number of bytes.
    pub(crate) len: usize,
}

impl FrozenRange {
    /// Borrows the bytes for as long as the caller's handle is borrowed.
    #[inline]
    pub(crate) fn bytes<'handle>(&self, region: &'handle Region) -> &'handle [u8] {
        // SAFETY: `buf::Buf::frozen_range` alone constructs a `FrozenRange`; it asserts that the range lies
        // below the buffer's length, and the caller borrows a live handle for `'handle`.
        unsafe { region.frozen(self.at, self.len) }
    }
}

/// The spare bytes of one buffer while its writer mark is set.
pub(crate) struct SpareRange {
    /// Offset in the region.
    pub(crate) at: usize,
    /// Number of bytes.
    pub(crate) len: usize,
}

impl SpareRange {
    /// Borrows the bytes for writing; consumes the proof.
    #[expect(clippy::mut_from_ref, reason = "the range is the exclusive permission, not the region")]
    pub(crate) fn bytes(self, region: &Region) -> &mut [u8] {
        // SAFETY: `buf::Buf::append_with` constructs at most one `SpareRange` per buffer at a time (its writer mark),
        // at or above its length, where no `FrozenRange` reaches; freeing writes only with no handle left.
        unsafe { region.spare(self.at, self.len) }
    }
}

/// The memory of buffers that are all free.
pub(crate) struct FreeRange {
    /// Offset in the region.
    pub(crate) at: usize,
    /// Number of bytes.
    pub(crate) len: usize,
}

impl FreeRange {
    /// Returns the memory to the kernel. Both ends lie on page boundaries.
    pub(crate) fn discard(self, region: &Region) {
        // SAFETY: `pool::release` alone constructs a `FreeRange`, of buffers without handles: no view of them exists,
        // the kernel holds a handle on those it writes to, and a buffer that is taken again has length 0.
        unsafe { region.discard(self.at, self.len) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn discarded_pages_are_zero_and_their_neighbours_unchanged() {
        let page = page_size();
        let region = Region::new(3 * page);
        let all = SpareRange { at: 0, len: 3 * page };
        all.bytes(&region).fill(7);
        FreeRange { at: page, len: page }.discard(&region);
        let all = SpareRange { at: 0, len: 3 * page }.bytes(&region);
        assert!(all[..page].iter().all(|byte| *byte == 7));
        assert!(all[page..2 * page].iter().all(|byte| *byte == 0), "the kernel has taken the page");
        assert!(all[2 * page..].iter().all(|byte| *byte == 7));
    }
}
