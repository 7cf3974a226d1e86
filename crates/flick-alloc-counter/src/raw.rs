//! The allocator: the system's, and a counter per thread.

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;

thread_local! {
    static COUNT: Cell<u64> = const { Cell::new(0) };
}

/// Counts the allocations of each thread. A test makes it its `#[global_allocator]`.
#[derive(Clone, Copy, Debug, Default)]
pub struct CountingAllocator;

/// Returns how many times this thread has allocated or reallocated.
pub fn allocations() -> u64 {
    COUNT.get()
}

// SAFETY: every call goes to the system's allocator unchanged; counting touches the thread's own counter only,
// which needs no allocation and no destructor.
unsafe impl GlobalAlloc for CountingAllocator {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        COUNT.set(COUNT.get() + 1);
        // SAFETY: our contract is the system allocator's.
        unsafe { System.alloc(layout) }
    }

    // The default would write memory that the kernel hands out zeroed, and make it resident.
    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        COUNT.set(COUNT.get() + 1);
        // SAFETY: our contract is the system allocator's.
        unsafe { System.alloc_zeroed(layout) }
    }

    unsafe fn realloc(&self, pointer: *mut u8, layout: Layout, new_bytes: usize) -> *mut u8 {
        COUNT.set(COUNT.get() + 1);
        // SAFETY: our contract is the system allocator's, and `pointer` came from it.
        unsafe { System.realloc(pointer, layout, new_bytes) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        // SAFETY: our contract is the system allocator's, and `pointer` came from it.
        unsafe { System.dealloc(pointer, layout) }
    }
}

#[cfg(test)]
mod tests {
    use super::{CountingAllocator, allocations};

    #[global_allocator]
    static ALLOCATOR: CountingAllocator = CountingAllocator;

    fn check(expected: std::ops::RangeInclusive<u64>, work: impl FnOnce()) {
        let before = allocations();
        work();
        let counted = allocations() - before;
        assert!(expected.contains(&counted), "counted {counted}, not {expected:?}");
    }

    #[test]
    fn counts_allocations_and_growth_only() {
        let mut list = Vec::with_capacity(4);
        check(0..=0, || list.push(1_u8));
        check(1..=1, || list.reserve(4096));
        check(1..=1, || drop(std::hint::black_box(Box::new(7_u64))));
    }

    #[test]
    fn each_thread_has_its_own_count() {
        let other = std::thread::spawn(|| check(1..=1, || drop(std::hint::black_box(vec![0_u8; 64]))));
        other.join().expect("the other thread does not panic");
    }
}
