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
