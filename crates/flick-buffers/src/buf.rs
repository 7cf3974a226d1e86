//! One counted handle on an append-only buffer.
//! Promises: bytes `0..len` are frozen, `len..capacity` belong to whoever appends next; a clone is a count,
//! a drop of the last handle puts the buffer back; freeing twice or into another pool cannot be written.
//! Refuses: inserting, truncating, overwriting. A buffer starts over only when its last handle says `reset`.

use std::fmt;
use std::ops::Range;
use std::rc::Rc;

use crate::pool::{BufId, Shelf, Shelves, Slot, Writer};
use crate::raw::{FrozenRange, SpareRange};
use crate::slice::Slice;

/// A handle on one pooled buffer. Having a `Buf` means: its bytes below [`Buf::len`] do not change.
pub struct Buf {
    shelves: Rc<Shelves>,
    id: BufId,
}

impl Buf {
    /// Wraps a buffer whose one handle was counted by the pool already.
    pub(crate) fn adopt(shelves: Rc<Shelves>, id: BufId) -> Buf {
        Buf { shelves, id }
    }

    pub(crate) fn shelves(&self) -> &Rc<Shelves> {
        &self.shelves
    }

    /// Bytes the buffer can hold.
    #[inline]
    pub fn capacity(&self) -> u32 {
        self.id.class().bytes()
    }

    /// Bytes appended so far.
    #[inline]
    pub fn len(&self) -> u32 {
        self.slot().len.get()
    }

    /// Says whether nothing was appended yet.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Bytes that can still be appended; none while the buffer is lent.
    #[inline]
    pub fn spare(&self) -> u32 {
        match self.slot().writer.get() {
            Writer::Lent => 0,
            Writer::None | Writer::Appending => self.capacity() - self.len(),
        }
    }

    /// The frozen bytes.
    #[inline]
    pub fn bytes(&self) -> &[u8] {
        self.range_bytes(0..self.len())
    }

    /// Appends as much of `bytes` as fits and returns how much that was.
    pub fn append(&self, bytes: &[u8]) -> u32 {
        self.append_with(u32::try_from(bytes.len()).unwrap_or(u32::MAX), |spare| {
            spare.copy_from_slice(&bytes[..spare.len()]);
            spare.len() as u32
        })
    }

    /// Hands at most `max` spare bytes to `fill`, which returns how many of them, from the front, it wrote.
    ///
    /// Shape:  the slice given to `fill` has `min(max, spare)` bytes of unspecified content.
    /// Panics: `fill` claims more than it was given, or appends to this same buffer.
    pub fn append_with(&self, max: u32, fill: impl FnOnce(&mut [u8]) -> u32) -> u32 {
        let offered = max.min(self.spare());
        if offered == 0 {
            let taken = fill(&mut []);
            assert!(taken == 0, "no more bytes are appended than there was room for");
            return 0;
        }
        let appending = Appending::enter(self.slot());
        let start = self.len();
        let range = SpareRange { at: self.offset() + start as usize, len: offered as usize };
        let taken = fill(range.bytes(&self.shelf().area));
        assert!(taken <= offered, "no more bytes are appended than there was room for");
        self.slot().len.set(start + taken);
        drop(appending);
        taken
    }

    /// Says whether this is the only handle (slices count as handles).
    #[inline]
    pub fn is_unique(&self) -> bool {
        self.slot().handles.get() == 1
    }

    /// Empties the buffer for reuse if this is its only handle; says whether it did.
    ///
    /// Exclusive borrow: a view from [`Buf::bytes`] must not see the bytes change.
    pub fn reset(&mut self) -> bool {
        let unique = self.is_unique();
        if unique {
            self.slot().len.set(0);
        }
        unique
    }

    /// An owning view of the frozen bytes in `range`.
    ///
    /// Panics: `range` is not inside `0..len`.
    pub fn slice(&self, range: Range<u32>) -> Slice {
        Slice::new(self.clone(), range)
    }

    /// Lends the spare bytes out for writes behind Rust's back; until the loan ends, nobody else can append.
    ///
    /// Panics: the buffer is lent or being appended to already.
    pub fn lend(self) -> Lent {
        assert!(
            self.slot().writer.replace(Writer::Lent) == Writer::None,
            "a buffer has one writer at a time"
        );
        Lent { buf: self }
    }

    /// Says whether both handles name the same buffer.
    #[inline]
    pub fn same(&self, other: &Buf) -> bool {
        self.id == other.id && Rc::ptr_eq(&self.shelves, &other.shelves)
    }

    /// The frozen bytes in `range`, borrowed from this handle.
    #[inline]
    pub(crate) fn range_bytes(&self, range: Range<u32>) -> &[u8] {
        self.frozen_range(range).bytes(&self.shelf().area)
    }

    #[inline]
    fn frozen_range(&self, range: Range<u32>) -> FrozenRange {
        assert!(range.start <= range.end, "a view's start is not behind its end");
        assert!(range.end <= self.len(), "a view ends inside its buffer's frozen bytes");
        FrozenRange { at: self.offset() + range.start as usize, len: (range.end - range.start) as usize }
    }

    #[inline]
    fn shelf(&self) -> &Shelf {
        self.shelves.shelf(self.id.class())
    }

    #[inline]
    fn slot(&self) -> &Slot {
        &self.shelf().slots[self.id.index() as usize]
    }

    #[inline]
    fn offset(&self) -> usize {
        self.shelf().offset(self.id.index())
    }
}

impl Clone for Buf {
    #[inline]
    fn clone(&self) -> Buf {
        self.shelf().retain(self.id.index());
        Buf { shelves: Rc::clone(&self.shelves), id: self.id }
    }
}

impl Drop for Buf {
    #[inline]
    fn drop(&mut self) {
        self.shelf().release(self.id.index());
    }
}

impl fmt::Debug for Buf {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "Buf({:?} {}, {} of {} bytes)",
            self.id.class(),
            self.id.index(),
            self.len(),
            self.capacity()
        )
    }
}

/// The spare bytes of a buffer, lent to the kernel. Holding one means: nobody else writes them.
///
/// Ends when it is dropped; the holder sees to it that the kernel is done by then.
#[derive(Debug)]
pub struct Lent {
    buf: Buf,
}

impl Lent {
    /// The buffer; handles on it and slices of it may be taken while it is lent.
    pub fn buf(&self) -> &Buf {
        &self.buf
    }

    /// Bytes from [`Lent::spare_ptr`] to the end of the buffer.
    pub fn spare(&self) -> u32 {
        self.buf.capacity() - self.buf.len()
    }

    /// The first spare byte.
    pub fn spare_ptr(&self) -> *mut u8 {
        self.buf.shelf().area.pointer(self.buf.offset() + self.buf.len() as usize)
    }

    /// Freezes the next `n` spare bytes.
    ///
    /// # Safety
    /// The borrower has written these bytes through [`Lent::spare_ptr`] and will not write them again while a
    /// handle on the buffer lives.
    pub unsafe fn commit(&self, n: u32) {
        assert!(n <= self.spare(), "no more bytes are committed than there was room for");
        self.buf.slot().len.set(self.buf.len() + n);
    }
}

impl Drop for Lent {
    fn drop(&mut self) {
        self.buf.slot().writer.set(Writer::None);
    }
}

/// Holding one means: the spare bytes of this buffer are handed to exactly one closure. Unset on unwind too.
struct Appending<'slot>(&'slot Slot);

impl<'slot> Appending<'slot> {
    fn enter(slot: &'slot Slot) -> Appending<'slot> {
        assert!(slot.writer.replace(Writer::Appending) == Writer::None, "a buffer has one writer at a time");
        Appending(slot)
    }
}

impl Drop for Appending<'_> {
    fn drop(&mut self) {
        self.0.writer.set(Writer::None);
    }
}
