//! Options of sockets that the libraries do not have: the kernel's own counts of the bytes of a TCP connection, the
//! network namespace, and the address of a peer that has reset its connection.
//! Source: `struct tcp_info` of `linux/tcp.h`, RFC 4898; `SO_NETNS_COOKIE` and `SO_PEERNAME` of
//! `asm-generic/socket.h`, `sk_getsockopt` of `net/core/sock.c`.

use std::ffi::c_void;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
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

/// Returns the address of the peer of a TCP connection, also after a reset, when getpeername(2) has none. Without the
/// scope of a link-local address.
pub(super) fn peer_name(socket: BorrowedFd<'_>) -> Option<SocketAddr> {
    let mut name = [0_u8; size_of::<libc::sockaddr_in6>()];
    // The kernel refuses to write more bytes than the address has.
    let is_written = [name.len(), size_of::<libc::sockaddr_in>()].into_iter().any(|bytes| {
        let mut len = bytes as libc::socklen_t;
        let out = name.as_mut_ptr().cast::<c_void>();
        // SAFETY: `out` points to `len` or more writable bytes for the whole call, and the kernel writes at most `len`.
        let result = unsafe {
            libc::getsockopt(socket.as_raw_fd(), libc::SOL_SOCKET, libc::SO_PEERNAME, out, &raw mut len)
        };
        result == 0
    });
    let family = i32::from(u16::from_ne_bytes([name[0], name[1]]));
    let ip = match family {
        _ if !is_written => return None,
        libc::AF_INET => IpAddr::V4(Ipv4Addr::from(<[u8; 4]>::try_from(&name[4..8]).ok()?)),
        libc::AF_INET6 => IpAddr::V6(Ipv6Addr::from(<[u8; 16]>::try_from(&name[8..24]).ok()?)),
        _ => return None,
    };
    Some(SocketAddr::new(ip, u16::from_be_bytes([name[2], name[3]])))
}
