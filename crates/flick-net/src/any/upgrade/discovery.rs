//! Discovery of the other end of a connection: the names at which workers are asked, and the question itself.
//! Promises: a question names one connection of this network namespace; both ends write the same one.
//! Not here: asking and answering (`upgrade.rs`).
//!
//! Connections of TCP are named by their two addresses. A connection to a Unix socket has no address of its own, so the
//! asking end gets a name from the kernel ("autobind", unix(7)) when a process listens that it can ask; the other end
//! sees it, too.

use std::io::Write;
use std::net::{IpAddr, SocketAddr};
use std::os::fd::BorrowedFd;
use std::os::unix::ffi::OsStrExt;

use crate::address::{Endpoint, PeerAddr};
use crate::socket::{self, UnixName};

/// First bytes of a question about a connection of TCP, with the version of the protocol.
const MAGIC_TCP: [u8; MAGIC_BYTES] = *b"flickup1";
/// The same for a connection to a Unix socket.
const MAGIC_UNIX: [u8; MAGIC_BYTES] = *b"flickupu";
const MAGIC_BYTES: usize = 8;
const ADDRESS_BYTES: usize = 18;
/// Bytes of a question: magic and the two addresses of the asking end, or its name with zeros behind.
pub(super) const QUESTION_BYTES: usize = MAGIC_BYTES + 2 * ADDRESS_BYTES;
/// Position of the asking end's port.
const PORT_AT: usize = MAGIC_BYTES + 16;
/// Most bytes of the name of a worker.
pub(super) const NAME_BYTES_MAX: usize = 40;
/// Bit of the keys of Unix sockets.
const UNIX_KEY: u64 = 1 << 63;

/// Address that the accepting end listened at, as names of workers have it: the port, or a hash of the path.
pub(super) type ListenerKey = u64;

/// One question.
pub(super) type Question = [u8; QUESTION_BYTES];

/// Returns the key of an address that can be asked at.
pub(super) fn key_of(at: &Endpoint) -> Option<ListenerKey> {
    match at {
        Endpoint::Tcp(address) => Some(u64::from(address.port())),
        Endpoint::Unix(path) => Some(key_of_path(path.as_os_str().as_bytes())),
        Endpoint::Shm(_) | Endpoint::Descriptor(_) => None,
    }
}

/// Returns whether an address is of this host, whatever addresses the host has.
pub(super) fn is_surely_local(to: &Endpoint) -> bool {
    match to {
        Endpoint::Tcp(address) => address.ip().to_canonical().is_loopback(),
        Endpoint::Unix(_) => true,
        Endpoint::Shm(_) | Endpoint::Descriptor(_) => false,
    }
}

/// Hashes a path with FNV-1a. A collision costs a question that is refused.
fn key_of_path(path: &[u8]) -> ListenerKey {
    let add = |hash: u64, byte: &u8| (hash ^ u64::from(*byte)).wrapping_mul(0x0000_0100_0000_01b3);
    UNIX_KEY | path.iter().fold(0xcbf2_9ce4_8422_2325, add)
}

/// Writes the name of a worker that has connections of a listener.
pub(super) fn name_of<'space>(
    prefix: &str,
    key: ListenerKey,
    number: u8,
    space: &'space mut [u8; NAME_BYTES_MAX],
) -> &'space str {
    let mut rest = &mut space[..];
    let _ = write!(rest, "{prefix}.{key}.{number}");
    let left = rest.len();
    std::str::from_utf8(&space[..NAME_BYTES_MAX - left]).unwrap_or_default()
}

/// Names of a connection that both of its ends know.
pub(in crate::any) enum NamedBy<'conn> {
    /// The addresses of this end and of the other one, of a connection of TCP.
    Addresses(SocketAddr, SocketAddr),
    /// The socket, of another one.
    Socket(BorrowedFd<'conn>),
}

impl<'conn> NamedBy<'conn> {
    /// Returns the names of a connection of the kernel.
    pub(in crate::any) fn of_socket(socket: BorrowedFd<'conn>) -> Self {
        let Some(remote @ PeerAddr::Tcp(_)) = socket::peer_addr(socket) else { return Self::Socket(socket) };
        let local = socket::local_endpoint(socket).ok();
        local.and_then(|local| Self::of_addresses(&local, &remote)).unwrap_or(Self::Socket(socket))
    }

    /// Returns the names of a connection with these addresses, if it is one of TCP.
    pub(in crate::any) fn of_addresses(local: &Endpoint, remote: &PeerAddr) -> Option<Self> {
        let (Endpoint::Tcp(local), PeerAddr::Tcp(remote)) = (local, remote) else { return None };
        let plain = |address: &SocketAddr| SocketAddr::new(address.ip().to_canonical(), address.port());
        Some(Self::Addresses(plain(local), plain(remote)))
    }

    /// Returns the key of the listener that accepted an outgoing connection; `None`: it is on another host.
    pub(super) fn remote_key(&self) -> Option<ListenerKey> {
        match self {
            Self::Addresses(local, remote) => {
                let is_here = remote.ip().is_loopback() || remote.ip() == local.ip();
                is_here.then(|| u64::from(remote.port()))
            }
            Self::Socket(socket) => socket::with_remote_path(*socket, key_of_path),
        }
    }

    /// Returns the question about an outgoing connection.
    pub(super) fn question(&self) -> Option<Question> {
        match self {
            Self::Addresses(local, remote) => Some(of_addresses(*local, *remote)),
            Self::Socket(socket) => Some(of_name(&socket::bound_name(*socket)?)),
        }
    }

    /// Returns the question that the other end of an accepted connection would ask.
    pub(super) fn expected_question(&self) -> Option<Question> {
        match self {
            Self::Addresses(local, remote) => Some(of_addresses(*remote, *local)),
            Self::Socket(socket) => Some(of_name(&socket::remote_name(*socket)?)),
        }
    }
}

/// Returns the port of the asking end; 0 if the connection is one to a Unix socket.
pub(super) fn asking_port(question: &Question) -> u16 {
    if question[..MAGIC_BYTES] == MAGIC_UNIX {
        return 0;
    }
    u16::from_le_bytes([question[PORT_AT], question[PORT_AT + 1]])
}

fn of_addresses(asking: SocketAddr, asked: SocketAddr) -> Question {
    let mut bytes = [0; QUESTION_BYTES];
    bytes[..MAGIC_BYTES].copy_from_slice(&MAGIC_TCP);
    bytes[MAGIC_BYTES..MAGIC_BYTES + ADDRESS_BYTES].copy_from_slice(&pack(asking));
    bytes[MAGIC_BYTES + ADDRESS_BYTES..].copy_from_slice(&pack(asked));
    bytes
}

fn pack(address: SocketAddr) -> [u8; ADDRESS_BYTES] {
    let mut bytes = [0; ADDRESS_BYTES];
    let ip = match address.ip() {
        IpAddr::V4(ip) => ip.to_ipv6_mapped(),
        IpAddr::V6(ip) => ip,
    };
    bytes[..16].copy_from_slice(&ip.octets());
    bytes[16..].copy_from_slice(&address.port().to_le_bytes());
    bytes
}

fn of_name(name: &UnixName) -> Question {
    let mut bytes = [0; QUESTION_BYTES];
    bytes[..MAGIC_BYTES].copy_from_slice(&MAGIC_UNIX);
    bytes[MAGIC_BYTES..MAGIC_BYTES + name.len()].copy_from_slice(name);
    bytes
}
