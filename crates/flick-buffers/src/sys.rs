//! Advice to the kernel about the memory of others.
//! Promises: the content of memory does not change; a kernel that refuses changes nothing.

use std::mem::MaybeUninit;

use rustix::mm::{Advice, madvise};
use rustix::param::page_size;

/// Asks for huge pages for memory that nothing has been written to and that will be read at random, so that its page
/// tables would not stay in the processor's cache. Pages at both ends that it shares with others are left out.
///
/// Cost: a system call. When it is written to, the kernel may compact memory first, some milliseconds per huge page.
pub fn advise_huge_pages<T>(memory: &mut [MaybeUninit<T>]) {
    let bytes = size_of_val(memory);
    let from = memory.as_mut_ptr().cast::<u8>();
    let skip = from.align_offset(page_size());
    let len = bytes.saturating_sub(skip) / page_size() * page_size();
    if len == 0 {
        return;
    }
    // A kernel without huge pages refuses.
    // SAFETY: the range lies in `memory`, as `skip + len <= bytes`, and this advice changes no content.
    let _ = unsafe { madvise(from.wrapping_add(skip).cast(), len, Advice::LinuxHugepage) };
}

#[cfg(test)]
mod tests {
    use super::advise_huge_pages;

    #[test]
    fn advice_on_huge_pages_changes_no_content() {
        // Of less than a page, of some, and from any address on.
        for bytes in [0, 1, 4095, 4096, 8191, 3 << 20] {
            let mut memory: Vec<u8> = Vec::with_capacity(bytes + 3);
            memory.extend_from_slice(b"abc");
            advise_huge_pages(memory.spare_capacity_mut());
            memory.resize(bytes + 3, 7);
            assert!(memory.starts_with(b"abc") && memory[3..].iter().all(|byte| *byte == 7));
        }
    }
}
