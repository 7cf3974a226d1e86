//! Memory of whole pages from the kernel.
//! Promises: it is zero and costs nothing until it is touched; it goes back to the kernel when it is dropped, whatever
//! the process allocated before. (An allocator that has freed large memory once keeps the next, and writes the zeros
//! itself.)

use std::alloc::{Layout, handle_alloc_error};
use std::fmt;
use std::ops::{Deref, DerefMut};
use std::ptr::{NonNull, null_mut};

use rustix::mm::{MapFlags, ProtFlags, mmap_anonymous, munmap};

/// Bytes of whole pages, which are zero at first.
///
/// Cost: a mapping, so it is for what is large and lives long.
pub struct Pages {
    base: NonNull<u8>,
    len: usize,
}

// SAFETY: the mapping belongs to this value alone and is reached through borrows of it only.
unsafe impl Send for Pages {}
// SAFETY: as above.
unsafe impl Sync for Pages {}

impl Pages {
    /// Maps `len` bytes. Ends the process as the standard allocator does if there is no memory.
    pub fn zeroed(len: usize) -> Self {
        if len == 0 {
            return Self { base: NonNull::dangling(), len };
        }
        let (access, flags) = (ProtFlags::READ | ProtFlags::WRITE, MapFlags::PRIVATE);
        // SAFETY: without an address the kernel maps where nothing is.
        let base = unsafe { mmap_anonymous(null_mut(), len, access, flags) };
        match base.ok().and_then(|base| NonNull::new(base.cast())) {
            Some(base) => Self { base, len },
            None => handle_alloc_error(Layout::from_size_align(len, 1).unwrap_or(Layout::new::<u8>())),
        }
    }

    /// Address of the first byte, on a page boundary unless there are no bytes.
    pub(crate) fn base(&self) -> NonNull<u8> {
        self.base
    }
}

impl Default for Pages {
    fn default() -> Self {
        Self::zeroed(0)
    }
}

impl Deref for Pages {
    type Target = [u8];

    #[inline]
    fn deref(&self) -> &[u8] {
        // SAFETY: `len` bytes are mapped from `base` on, initialised by the kernel, and this value is borrowed.
        unsafe { std::slice::from_raw_parts(self.base.as_ptr(), self.len) }
    }
}

impl DerefMut for Pages {
    #[inline]
    fn deref_mut(&mut self) -> &mut [u8] {
        // SAFETY: as in `deref`; the borrow is exclusive.
        unsafe { std::slice::from_raw_parts_mut(self.base.as_ptr(), self.len) }
    }
}

impl fmt::Debug for Pages {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Pages").field("len", &self.len).finish()
    }
}

impl Drop for Pages {
    fn drop(&mut self) {
        if self.len > 0 {
            // SAFETY: `zeroed` has mapped these bytes; no borrow outlives the value. A kernel that refuses, for want
            // of mappings to split, leaves them mapped.
            let _ = unsafe { munmap(self.base.as_ptr().cast(), self.len) };
        }
    }
}

#[cfg(test)]
mod tests {
    use super::Pages;

    #[test]
    fn pages_are_zero_whatever_was_freed_before() {
        for len in [0, 1, 4096, 5000, 3 << 20] {
            for _ in 0..3 {
                let mut pages = Pages::zeroed(len);
                assert!(pages.len() == len && pages.iter().all(|byte| *byte == 0));
                pages.fill(7);
                assert!(pages.iter().all(|byte| *byte == 7));
            }
        }
        assert!(Pages::default().is_empty());
    }
}
