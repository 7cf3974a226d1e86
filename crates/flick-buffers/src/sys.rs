//! Advice to the kernel about the memory of others.
//! Promises: the content of memory does not change; a kernel that refuses changes nothing.

use rustix::mm::{Advice, madvise};
use rustix::param::page_size;

/// Asks for huge pages for `bytes` bytes from `start` on, which nothing has been written to and which will be read at
/// random, so that their page tables would not stay in the processor's cache. Pages at both ends that they share with
/// others are left out.
///
/// Cost: a system call. When it is written to, the kernel may compact memory first, some milliseconds per huge page.
pub fn advise_huge_pages(start: *mut u8, bytes: usize) {
    let skip = start.align_offset(page_size());
    let len = bytes.saturating_sub(skip) / page_size() * page_size();
    if len == 0 {
        return;
    }
    // A kernel without huge pages refuses.
    // SAFETY: this advice changes no content, whatever is at the addresses.
    let _ = unsafe { madvise(start.wrapping_add(skip).cast(), len, Advice::LinuxHugepage) };
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
            let free = memory.spare_capacity_mut();
            advise_huge_pages(free.as_mut_ptr().cast(), free.len());
            memory.resize(bytes + 3, 7);
            assert!(memory.starts_with(b"abc") && memory[3..].iter().all(|byte| *byte == 7));
        }
    }
}
