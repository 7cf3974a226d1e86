//! The kernel's own count of the bytes of a TCP connection.

use std::ffi::c_void;
use std::os::fd::{AsRawFd, BorrowedFd};

/// Offsets in `struct tcp_info` of `linux/tcp.h`.
const NOTSENT_BYTES_AT: usize = 144;
const BYTES_SENT_AT: usize = 200;
const BYTES_RETRANS_AT: usize = 208;
const INFO_BYTES: usize = 256;

/// Returns the bytes that were ever written to the socket.
pub fn written_bytes(socket: BorrowedFd<'_>) -> u64 {
    let mut info = [0_u8; INFO_BYTES];
    let mut len = INFO_BYTES as libc::socklen_t;
    let out = info.as_mut_ptr().cast::<c_void>();
    // SAFETY: `out` points to `len` writable bytes for the whole call, and the kernel writes at most `len`.
    let result =
        unsafe { libc::getsockopt(socket.as_raw_fd(), libc::IPPROTO_TCP, libc::TCP_INFO, out, &raw mut len) };
    assert!(result == 0 && len as usize >= BYTES_RETRANS_AT + 8, "the kernel counts the bytes of TCP");
    let wide = |at: usize| u64::from_ne_bytes(info[at..at + 8].try_into().expect("8 bytes"));
    let narrow = |at: usize| u32::from_ne_bytes(info[at..at + 4].try_into().expect("4 bytes"));
    wide(BYTES_SENT_AT) - wide(BYTES_RETRANS_AT) + u64::from(narrow(NOTSENT_BYTES_AT))
}

/// Forks; returns the child's number, and 0 in the child.
pub fn fork() -> i32 {
    // SAFETY: the child continues on a copy of this thread's stack; it uses the allocator, which glibc keeps usable,
    // and threads of its own.
    unsafe { libc::fork() }
}

/// Ends this process without anything else.
pub fn exit(code: i32) -> ! {
    // SAFETY: the call takes a number and does not return.
    unsafe { libc::_exit(code) }
}

/// Waits for the end of a child; returns whether it ended by itself and without a failure, or was killed.
pub fn has_succeeded_or_was_killed(child: i32) -> bool {
    let mut status = 0;
    // SAFETY: `status` is writable for the whole call.
    let waited = unsafe { libc::waitpid(child, &raw mut status, 0) };
    waited == child && (status == 0 || (libc::WIFSIGNALED(status) && libc::WTERMSIG(status) == libc::SIGKILL))
}

/// Calls a function whenever this thread gets `SIGUSR1`.
pub fn on_signal(handler: extern "C" fn(libc::c_int)) {
    // SAFETY: an action of zeros is a valid one, without flags and with an empty mask.
    let mut action: libc::sigaction = unsafe { std::mem::zeroed() };
    action.sa_sigaction = handler as *const () as usize;
    action.sa_flags = libc::SA_RESTART;
    // SAFETY: both pointers are valid for the call; the handler makes only calls that are allowed in one.
    let result = unsafe { libc::sigaction(libc::SIGUSR1, &raw const action, std::ptr::null_mut()) };
    assert_eq!(result, 0);
}

/// Sends `SIGUSR1` to a thread of this process.
pub fn interrupt(thread: libc::pthread_t) {
    // SAFETY: the caller joins the thread later, so its number is valid.
    unsafe { libc::pthread_kill(thread, libc::SIGUSR1) };
}

/// Returns the number of the calling thread.
pub fn this_thread() -> libc::pthread_t {
    // SAFETY: the call has no arguments and always succeeds.
    unsafe { libc::pthread_self() }
}
