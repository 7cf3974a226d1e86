//! A fork.

/// Forks; returns the child's number, and 0 in the child.
pub fn fork() -> i32 {
    // SAFETY: the child continues on a copy of this thread's stack; it uses the allocator, which glibc keeps usable.
    unsafe { libc::fork() }
}

/// Ends this process without anything else.
pub fn exit(code: i32) -> ! {
    // SAFETY: the call takes a number and does not return.
    unsafe { libc::_exit(code) }
}
