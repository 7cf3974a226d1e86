//! A global allocator for tests that counts the allocations of each thread: it checks "allocates nothing after start".
//! Promises: every call goes to the system's allocator; each thread has its own count, so concurrent tests do not
//! disturb each other.
//! Not here: deallocations. Code that allocates nothing has nothing to free.

mod raw;

pub use raw::{CountingAllocator, allocations};
