//! The user that owns the other end of a TCP connection within this host, as the kernel knows it.
//! Promises: an answer is about the one established socket that the connection leads to; nothing blocks, and nothing is
//! allocated after `open`.
//! Refuses: connections of other network namespaces, where the same addresses name other sockets.
//! Source: sock_diag(7), `linux/inet_diag.h`, `linux/netlink.h`.

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::net::{AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType, netlink};

use super::raw;
use crate::limits::{DIAG_REPLIES_MAX, DIAG_REPLY_BYTES_MAX};

/// `SOCK_DIAG_BY_FAMILY`, the type of requests and replies.
const BY_FAMILY: u16 = 20;
/// `NLM_F_REQUEST`.
const REQUEST: u16 = 1;
/// `TCP_ESTABLISHED`, and the set of all states.
const ESTABLISHED: u8 = 1;
const ALL_STATES: u32 = u32::MAX;
/// Bytes of `struct nlmsghdr`, of `struct inet_diag_sockid` and of the request with both.
const HEADER_BYTES: usize = 16;
const SOCKET_ID_BYTES: usize = 48;
const REQUEST_BYTES: usize = HEADER_BYTES + 8 + SOCKET_ID_BYTES;
/// Positions in a reply, a header and `struct inet_diag_msg`: state, user.
const STATE_AT: usize = HEADER_BYTES + 1;
const UID_AT: usize = HEADER_BYTES + 4 + SOCKET_ID_BYTES + 12;
/// Bytes of the addresses and ports in `struct inet_diag_sockid`; the interface and the cookie follow.
const ADDRESSES_BYTES: usize = 36;

/// A way to ask the kernel for the owners of sockets.
#[derive(Debug)]
pub(crate) struct SocketOwners {
    diag: OwnedFd,
    /// Network namespace that is asked about.
    namespace: u64,
    /// Number of the last request, which its reply repeats.
    sequence: u32,
}

impl SocketOwners {
    /// Opens a socket of the kernel's socket monitor.
    ///
    /// Errors: those of socket(2), where a filter or the kernel has no `NETLINK_SOCK_DIAG`; `Unsupported` before Linux
    /// 5.14.
    pub(crate) fn open() -> io::Result<SocketOwners> {
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        let kind = (AddressFamily::NETLINK, SocketType::RAW, Some(netlink::SOCK_DIAG));
        let diag = rustix::net::socket_with(kind.0, kind.1, flags, kind.2)?;
        let namespace = raw::network_namespace(diag.as_fd()).ok_or(io::ErrorKind::Unsupported)?;
        Ok(SocketOwners { diag, namespace, sequence: 0 })
    }

    /// Returns the user that owns the other end of an established connection between two addresses. `None`: the kernel
    /// does not tell, or the end is not on this host, or not established.
    ///
    /// Cost: three system calls.
    pub(crate) fn of_other_end(
        &mut self,
        socket: BorrowedFd<'_>,
        local: SocketAddr,
        remote: SocketAddr,
    ) -> Option<u32> {
        if raw::network_namespace(socket) != Some(self.namespace) {
            return None;
        }
        self.sequence = self.sequence.wrapping_add(1);
        let request = request(self.sequence, remote, local);
        rustix::net::send(&self.diag, &request, SendFlags::empty()).ok()?;
        // The kernel has replied when `send` returns.
        for _ in 0..DIAG_REPLIES_MAX {
            let mut reply = [0; DIAG_REPLY_BYTES_MAX];
            let (count, _) = rustix::net::recv(&self.diag, &mut reply[..], RecvFlags::DONTWAIT).ok()?;
            if number_at(&reply, 8) == self.sequence {
                return owner_in(&reply[..count]);
            }
        }
        None
    }
}

/// Returns the request for the socket that is bound to `local` and connected to `remote`.
fn request(sequence: u32, local: SocketAddr, remote: SocketAddr) -> [u8; REQUEST_BYTES] {
    let mut bytes = [0; REQUEST_BYTES];
    let family = if local.is_ipv4() { AddressFamily::INET } else { AddressFamily::INET6 };
    bytes[..4].copy_from_slice(&(REQUEST_BYTES as u32).to_ne_bytes());
    bytes[4..6].copy_from_slice(&BY_FAMILY.to_ne_bytes());
    bytes[6..8].copy_from_slice(&REQUEST.to_ne_bytes());
    bytes[8..12].copy_from_slice(&sequence.to_ne_bytes());
    bytes[HEADER_BYTES] = family.as_raw() as u8;
    bytes[HEADER_BYTES + 1] = libc::IPPROTO_TCP as u8;
    bytes[HEADER_BYTES + 4..HEADER_BYTES + 8].copy_from_slice(&ALL_STATES.to_ne_bytes());
    let socket_id = &mut bytes[HEADER_BYTES + 8..];
    socket_id[..2].copy_from_slice(&local.port().to_be_bytes());
    socket_id[2..4].copy_from_slice(&remote.port().to_be_bytes());
    for (at, ip) in [(4, local.ip()), (20, remote.ip())] {
        match ip {
            IpAddr::V4(ip) => socket_id[at..at + 4].copy_from_slice(&ip.octets()),
            IpAddr::V6(ip) => socket_id[at..at + 16].copy_from_slice(&ip.octets()),
        }
    }
    // Any interface, and any cookie (`INET_DIAG_NOCOOKIE`).
    socket_id[ADDRESSES_BYTES + 4..].fill(0xff);
    bytes
}

/// Returns the user in a reply about an established socket. The kernel may have found a listener, or an end that no
/// process has any more.
fn owner_in(reply: &[u8]) -> Option<u32> {
    let is_socket = reply.len() >= UID_AT + 4 && reply[4..6] == BY_FAMILY.to_ne_bytes();
    (is_socket && reply[STATE_AT] == ESTABLISHED).then(|| number_at(reply, UID_AT))
}

fn number_at(bytes: &[u8], at: usize) -> u32 {
    bytes[at..].first_chunk().map_or(0, |bytes| u32::from_ne_bytes(*bytes))
}

#[cfg(test)]
mod tests {
    use std::net::{TcpListener, TcpStream};

    use super::*;

    fn connection(at: &str) -> Option<(TcpStream, TcpStream)> {
        // Without IPv6 there is nothing to test.
        let listener = TcpListener::bind(at).ok()?;
        let client = TcpStream::connect(listener.local_addr().expect("it is bound")).expect("it listens");
        let server = listener.accept().expect("it is connected").0;
        Some((client, server))
    }

    fn owner_of_other_end(owners: &mut SocketOwners, stream: &TcpStream) -> Option<u32> {
        let (local, remote) = (stream.local_addr().expect("a socket"), stream.peer_addr().expect("a socket"));
        owners.of_other_end(stream.as_fd(), local, remote)
    }

    #[test]
    fn owner_of_either_end_is_known() {
        let own = rustix::process::geteuid().as_raw();
        let mut owners = SocketOwners::open().expect("this kernel has sock_diag");
        for at in ["127.0.0.1:0", "[::1]:0"] {
            let Some((client, server)) = connection(at) else { continue };
            for _ in 0..3 {
                assert_eq!(owner_of_other_end(&mut owners, &client), Some(own), "{at}");
                assert_eq!(owner_of_other_end(&mut owners, &server), Some(own), "{at}");
            }
        }
    }

    #[test]
    fn end_that_is_over_had_an_owner() {
        let mut owners = SocketOwners::open().expect("this kernel has sock_diag");
        let (client, server) = connection("127.0.0.1:0").expect("loopback");
        drop(client);
        assert_eq!(owner_of_other_end(&mut owners, &server), None);
        let (client, server) = connection("127.0.0.1:0").expect("loopback");
        client.shutdown(std::net::Shutdown::Write).expect("it is connected");
        assert_eq!(owner_of_other_end(&mut owners, &server), None);
    }

    #[test]
    fn listener_was_taken_for_the_other_end() {
        let mut owners = SocketOwners::open().expect("this kernel has sock_diag");
        let listener = TcpListener::bind("127.0.0.1:0").expect("loopback");
        let at = listener.local_addr().expect("it is bound");
        let client = TcpStream::connect(at).expect("it listens");
        let elsewhere = "127.0.0.1:1".parse().expect("an address");
        assert_eq!(owners.of_other_end(client.as_fd(), elsewhere, at), None);
    }
}
