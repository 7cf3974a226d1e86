//! A counted handle on an append-only buffer.
//! Promises: bytes `0..len` are frozen, `len..capacity` are for the next append; a clone costs a count; dropping the
//! last handle returns the buffer to its pool; freeing twice or into another pool does not compile.
//! Refuses: inserting, truncating, overwriting. Only the last handle can `reset` a buffer.

use std::fmt;
use std::ops::Range;
use std::rc::Rc;

use crate::pool::{BufId, ClassPool, ClassPools, Slot, Writer};
use crate::raw::{FrozenRange, SpareRange};
use crate::slice::Slice;

/// A handle on one pooled buffer. Having a `Buf` means: its bytes below [`Buf::len`] do not change.
pub struct Buf {
    pools: Rc<ClassPools>,
    id: BufId,
}

impl Buf {
    /// Wraps a buffer whose one handle the pool has counted already.
    pub(crate) fn adopt(pools: Rc<ClassPools>, id: BufId) -> Buf {
        Buf { pools, id }
    }

    pub(crate) fn pools(&self) -> &Rc<ClassPools> {
        &self.pools
    }

    /// Returns the bytes the buffer can hold.
    #[inline]
    pub fn capacity(&self) -> u32 {
        self.id.class().bytes()
    }

    /// Returns the bytes appended so far.
    #[inline]
    pub fn len(&self) -> u32 {
        self.slot().len.get()
    }

    /// Returns whether nothing was appended yet.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Returns the bytes that can still be appended; 0 while the buffer is provided to the kernel.
    #[inline]
    pub fn spare(&self) -> u32 {
        match self.slot().writer.get() {
            Writer::Kernel => 0,
            Writer::None | Writer::Appending => self.capacity() - self.len(),
        }
    }

    /// Returns the frozen bytes.
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

    /// Passes at most `max` spare bytes to `fill`, which returns how many of them it wrote, from the front.
    ///
    /// Shape:  the slice passed to `fill` has `min(max, spare)` bytes of unspecified content.
    /// Panics: `fill` returns more than the slice has, or appends to this same buffer.
    #[inline]
    pub fn append_with(&self, max: u32, fill: impl FnOnce(&mut [u8]) -> u32) -> u32 {
        let offered = max.min(self.spare());
        if offered == 0 {
            let taken = fill(&mut []);
            assert!(taken == 0, "no more bytes are appended than fit");
            return 0;
        }
        let appending = Appending::enter(self.slot());
        let start = self.len();
        let range = SpareRange { at: self.offset() + start as usize, len: offered as usize };
        let taken = fill(range.bytes(&self.class_pool().region));
        assert!(taken <= offered, "no more bytes are appended than fit");
        self.slot().len.set(start + taken);
        drop(appending);
        taken
    }

    /// Returns whether this is the only handle (slices count as handles).
    #[inline]
    pub fn is_unique(&self) -> bool {
        self.slot().handles.get() == 1
    }

    /// Empties the buffer for reuse if this is its only handle; returns whether it did.
    ///
    /// Takes `&mut self` so that no borrow from [`Buf::bytes`] is alive.
    pub fn reset(&mut self) -> bool {
        let unique = self.is_unique();
        if unique {
            self.slot().len.set(0);
        }
        unique
    }

    /// Returns an owning view of the frozen bytes in `range`.
    ///
    /// Panics: `range` is not inside `0..len`.
    pub fn slice(&self, range: Range<u32>) -> Slice {
        Slice::new(self.clone(), range)
    }

    /// Provides the spare bytes to the kernel; until the [`ProvidedBuf`] is dropped, nothing can be appended.
    ///
    /// Panics: the buffer is provided or being appended to already.
    pub fn into_provided(self) -> ProvidedBuf {
        assert!(
            self.slot().writer.replace(Writer::Kernel) == Writer::None,
            "a buffer has one writer at a time"
        );
        ProvidedBuf { buf: self }
    }

    /// Returns whether both handles name the same buffer.
    #[inline]
    pub fn is_same(&self, other: &Buf) -> bool {
        self.id == other.id && Rc::ptr_eq(&self.pools, &other.pools)
    }

    /// The frozen bytes in `range`, borrowed from this handle.
    #[inline]
    pub(crate) fn range_bytes(&self, range: Range<u32>) -> &[u8] {
        self.frozen_range(range).bytes(&self.class_pool().region)
    }

    #[inline]
    fn frozen_range(&self, range: Range<u32>) -> FrozenRange {
        assert!(range.start <= range.end, "a view's start is not behind its end");
        assert!(range.end <= self.len(), "a view ends inside its buffer's frozen bytes");
        FrozenRange { at: self.offset() + range.start as usize, len: (range.end - range.start) as usize }
    }

    #[inline]
    fn class_pool(&self) -> &ClassPool {
        self.pools.class_pool(self.id.class())
    }

    #[inline]
    fn slot(&self) -> &Slot {
        &self.class_pool().slots[self.id.index() as usize]
    }

    #[inline]
    fn offset(&self) -> usize {
        self.class_pool().offset(self.id.index())
    }
}

impl Clone for Buf {
    #[inline]
    fn clone(&self) -> Buf {
        self.class_pool().retain(self.id.index());
        Buf { pools: Rc::clone(&self.pools), id: self.id }
    }
}

impl Drop for Buf {
    #[inline]
    fn drop(&mut self) {
        self.class_pool().release(self.id.index());
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

/// A buffer whose spare bytes are provided to the kernel. Having one means: no other code writes them.
///
/// The owner drops it only after the kernel has released the memory.
#[derive(Debug)]
pub struct ProvidedBuf {
    buf: Buf,
}

impl ProvidedBuf {
    /// Returns the buffer; handles and slices of it may be taken while it is provided.
    pub fn buf(&self) -> &Buf {
        &self.buf
    }

    /// Returns the bytes from [`ProvidedBuf::spare_ptr`] to the end of the buffer.
    pub fn spare(&self) -> u32 {
        self.buf.capacity() - self.buf.len()
    }

    /// Returns a pointer to the first spare byte.
    pub fn spare_ptr(&self) -> *mut u8 {
        self.buf.class_pool().region.pointer(self.buf.offset() + self.buf.len() as usize)
    }

    /// Freezes the next `n` spare bytes.
    ///
    /// # Safety
    /// The kernel or the caller has written these bytes through [`ProvidedBuf::spare_ptr`] and does not write them
    /// again while a handle on the buffer lives.
    pub unsafe fn commit(&self, n: u32) {
        assert!(n <= self.spare(), "no more bytes are committed than fit");
        self.buf.slot().len.set(self.buf.len() + n);
    }
}

impl Drop for ProvidedBuf {
    fn drop(&mut self) {
        self.buf.slot().writer.set(Writer::None);
    }
}

/// Marks that the spare bytes of a buffer are passed to one closure; `Drop` clears the mark, on unwind too.
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
