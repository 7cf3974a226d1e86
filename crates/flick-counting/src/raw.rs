//! The allocator itself: the system's, and a number for each thread.

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;

thread_local! {
    static COUNT: Cell<u64> = const { Cell::new(0) };
}

/// Counts the allocations of each thread. A test makes it its `#[global_allocator]`.
#[derive(Clone, Copy, Debug, Default)]
pub struct Counting;

/// How many times this thread has allocated, or let something grow.
pub fn allocations() -> u64 {
    COUNT.get()
}

// SAFETY: every call goes to the system's allocator unchanged; counting touches a thread's own number only, which needs no
// allocation and no destructor.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        COUNT.set(COUNT.get() + 1);
        // SAFETY: our contract is the system allocator's.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        // SAFETY: our contract is the system allocator's, and `pointer` came from it.
        unsafe { System.dealloc(pointer, layout) }
    }
}

#[cfg(test)]
mod tests {
    use super::{Counting, allocations};

    #[global_allocator]
    static ALLOCATOR: Counting = Counting;

    fn check(expected: std::ops::RangeInclusive<u64>, work: impl FnOnce()) {
        let before = allocations();
        work();
        let counted = allocations() - before;
        assert!(expected.contains(&counted), "counted {counted}, not {expected:?}");
    }

    #[test]
    fn what_allocates_is_counted_and_what_does_not_is_not() {
        let mut list = Vec::with_capacity(4);
        check(0..=0, || list.push(1_u8));
        check(1..=1, || list.reserve(4096));
        check(1..=1, || drop(std::hint::black_box(Box::new(7_u64))));
    }

    #[test]
    fn another_thread_counts_for_itself() {
        let other = std::thread::spawn(|| check(1..=1, || drop(std::hint::black_box(vec![0_u8; 64]))));
        other.join().expect("the other thread counts one");
    }
}
