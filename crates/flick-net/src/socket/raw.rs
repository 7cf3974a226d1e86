//! Options of sockets that the libraries do not have: the kernel's own counts of the bytes of a TCP connection, and the
//! network namespace.
//! Source: `struct tcp_info` of `linux/tcp.h`, RFC 4898; `SO_NETNS_COOKIE` of `asm-generic/socket.h`.

use std::ffi::c_void;
use std::os::fd::{AsRawFd, BorrowedFd};

/// Offsets of fields in the structure.
const BYTES_RECEIVED_AT: usize = 128;
const NOTSENT_BYTES_AT: usize = 144;
const BYTES_SENT_AT: usize = 200;
const BYTES_RETRANS_AT: usize = 208;
/// Bytes of it up to the last of these.
const INFO_BYTES: usize = 216;
/// Option of a socket: the number of its network namespace, which no other one ever has (Linux 5.14).
const SO_NETNS_COOKIE: libc::c_int = 71;

/// Returns the bytes that were ever written to the socket, and that have arrived at it; `None` if the kernel does not
/// count them.
pub(super) fn byte_counts(socket: BorrowedFd<'_>) -> Option<(u64, u64)> {
    let mut info = [0_u8; INFO_BYTES];
    let mut len = INFO_BYTES as libc::socklen_t;
    let out = info.as_mut_ptr().cast::<c_void>();
    // SAFETY: `out` points to `len` writable bytes for the whole call, and the kernel writes at most `len`.
    let result =
        unsafe { libc::getsockopt(socket.as_raw_fd(), libc::IPPROTO_TCP, libc::TCP_INFO, out, &raw mut len) };
    if result != 0 || (len as usize) < INFO_BYTES {
        return None;
    }
    let word = |at: usize| Some(u64::from_ne_bytes(info[at..at + 8].try_into().ok()?));
    let not_sent = u32::from_ne_bytes(info[NOTSENT_BYTES_AT..NOTSENT_BYTES_AT + 4].try_into().ok()?);
    // Bytes that were sent again count twice.
    let sent = word(BYTES_SENT_AT)?.checked_sub(word(BYTES_RETRANS_AT)?)?;
    Some((sent + u64::from(not_sent), word(BYTES_RECEIVED_AT)?))
}

/// Returns the number of a socket's network namespace; `None` before Linux 5.14.
pub(super) fn network_namespace(socket: BorrowedFd<'_>) -> Option<u64> {
    let mut cookie = 0_u64;
    let mut len = size_of_val(&cookie) as libc::socklen_t;
    let out = (&raw mut cookie).cast::<c_void>();
    // SAFETY: `out` points to `len` writable bytes for the whole call, and the kernel writes at most `len`.
    let result =
        unsafe { libc::getsockopt(socket.as_raw_fd(), libc::SOL_SOCKET, SO_NETNS_COOKIE, out, &raw mut len) };
    (result == 0).then_some(cookie)
}
