//! An allocator for tests that counts what each thread asks for: how "allocates nothing after start" is checked.
//! Promises: every call goes to the system's allocator; a thread counts for itself, so that tests beside each other do
//! not disturb one another.
//! Not here: what is freed. A path that allocates nothing has nothing to free.

mod raw;

pub use raw::{Counting, allocations};
