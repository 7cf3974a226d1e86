//! Kernel sockets: creation, options, accept, connect, shutdown. New sockets are non-blocking, close-on-exec,
//! `TCP_NODELAY`.
//! Promises: every system call of set-up and tear-down is here; errors are the system's.
//! Refuses: reading and writing, in which the two kernel drivers differ.

mod owner;
mod raw;
#[cfg(test)]
mod tests;

use std::io;
use std::net::SocketAddr;
use std::os::fd::{BorrowedFd, OwnedFd};
use std::os::unix::fs::FileTypeExt;
use std::path::Path;
use std::time::Duration;

use flick_shm::pairing::peer_credentials;
use rustix::event::{PollFd, PollFlags, Timespec};
use rustix::fd::AsFd;
use rustix::io::Errno;
use rustix::net::{
    AddressFamily, RecvFlags, Shutdown, SocketAddrAny, SocketAddrUnix, SocketFlags, SocketType, sockopt,
};

use crate::address::{Endpoint, PeerAddr};
use crate::fault::ConnFault;
use crate::limits::{ACCEPT_WAIT_MAX, LISTEN_BACKLOG_MAX, STREAM_OFFSET_LOOKS_MAX};
pub(crate) use owner::SocketOwners;

/// Abstract name of a Unix socket that the kernel has chosen; zeros follow it.
pub(crate) type UnixName = [u8; 16];

/// Result of starting a connect.
pub(crate) enum ConnectStart {
    /// The socket is connected (Unix sockets, and some on the loopback).
    Done,
    /// In progress: the kernel signals the result.
    Pending,
    /// It failed at once.
    Failed(ConnFault),
}

impl ConnectStart {
    fn of(outcome: Result<(), Errno>) -> ConnectStart {
        match outcome {
            Ok(()) => ConnectStart::Done,
            Err(Errno::INPROGRESS | Errno::INTR) => ConnectStart::Pending,
            Err(errno) => ConnectStart::Failed(ConnFault::of_connect(errno)),
        }
    }
}

pub(crate) fn open_listener(at: &Endpoint) -> io::Result<OwnedFd> {
    match at {
        Endpoint::Tcp(address) => {
            let socket = stream_socket(family_of(address))?;
            sockopt::set_socket_reuseaddr(&socket, true)?;
            sockopt::set_socket_reuseport(&socket, true)?;
            // Accepted sockets inherit it from here.
            sockopt::set_tcp_nodelay(&socket, true)?;
            prefer_reno_on_loopback(&socket, address);
            if address.is_ipv6() {
                // `[::]:80` and `:80` are two addresses and may belong to two services.
                sockopt::set_ipv6_v6only(&socket, true)?;
            }
            rustix::net::bind(&socket, address)?;
            rustix::net::listen(&socket, LISTEN_BACKLOG_MAX)?;
            Ok(socket)
        }
        Endpoint::Unix(path) => open_unix_listener(path),
        Endpoint::Shm(name) => flick_shm::pairing::listen_at(name).map_err(|error| match error {
            flick_shm::pairing::PairError::System(errno) => errno.into(),
            other => io::Error::other(other.to_string()),
        }),
        Endpoint::Descriptor(_) => Err(io::ErrorKind::Unsupported.into()),
    }
}

/// Fails if a socket already listens on a TCP address: with `SO_REUSEPORT` the kernel would silently let both share it
/// and split the clients. A Unix socket file has one owner anyway.
pub(crate) fn refuse_taken(at: &Endpoint) -> io::Result<()> {
    let Endpoint::Tcp(address) = at else { return Ok(()) };
    if address.port() == 0 {
        return Ok(());
    }
    let socket = stream_socket(family_of(address))?;
    sockopt::set_socket_reuseaddr(&socket, true)?;
    if address.is_ipv6() {
        sockopt::set_ipv6_v6only(&socket, true)?;
    }
    Ok(rustix::net::bind(&socket, address)?)
}

/// Binds `path`. Replaces the stale file of a dead process, but no file on which a process accepts.
fn open_unix_listener(path: &Path) -> io::Result<OwnedFd> {
    let socket = unix_socket()?;
    let address = SocketAddrUnix::new(path)?;
    if let Err(error) = rustix::net::bind(&socket, &address) {
        if error != Errno::ADDRINUSE {
            return Err(error.into());
        }
        if !std::fs::symlink_metadata(path)?.file_type().is_socket() {
            let message = "there is a file with this name that is no socket";
            return Err(io::Error::new(io::ErrorKind::AlreadyExists, message));
        }
        let probe = stream_socket(AddressFamily::UNIX)?;
        if rustix::net::connect(&probe, &address) != Err(Errno::CONNREFUSED) {
            return Err(error.into());
        }
        std::fs::remove_file(path)?;
        rustix::net::bind(&socket, &address)?;
    }
    rustix::net::listen(&socket, LISTEN_BACKLOG_MAX)?;
    Ok(socket)
}

/// Returns the address that a listening socket is bound to, or at which a connection was accepted.
///
/// Errors: those of getsockname(2); `EINVAL` of a Unix socket without a path.
pub fn local_endpoint(socket: impl AsFd) -> io::Result<Endpoint> {
    let address = rustix::net::getsockname(&socket)?;
    if let Ok(address) = SocketAddr::try_from(address.clone()) {
        return Ok(Endpoint::Tcp(address));
    }
    if let Some(name) = flick_shm::pairing::name_of(&socket) {
        return Ok(Endpoint::Shm(name));
    }
    let unix = SocketAddrUnix::try_from(address)?;
    let path = unix.path().ok_or(Errno::INVAL)?;
    Ok(Endpoint::Unix(std::path::PathBuf::from(
        <std::ffi::OsStr as std::os::unix::ffi::OsStrExt>::from_bytes(path.to_bytes()),
    )))
}

/// Returns the abstract name of an outgoing connection to a Unix socket. The kernel gives it one if it has none.
pub(crate) fn bound_name(socket: BorrowedFd<'_>) -> Option<UnixName> {
    // It fails if there is a name already.
    let _ = rustix::net::bind(socket, &SocketAddrUnix::new_unnamed());
    abstract_name(rustix::net::getsockname(socket).ok()?)
}

/// Returns the abstract name of the other end of a connection of a Unix socket.
pub(crate) fn remote_name(socket: BorrowedFd<'_>) -> Option<UnixName> {
    abstract_name(rustix::net::getpeername(socket).ok()??)
}

/// Returns the number of the process that connected to a Unix socket; `None` of one in another PID namespace.
pub(crate) fn peer_pid(socket: BorrowedFd<'_>) -> Option<i32> {
    Some(peer_credentials(socket).ok()?.pid).filter(|pid| *pid > 0)
}

/// Returns the user of the process that connected to a Unix socket, or that listened at it.
pub(crate) fn peer_uid(socket: BorrowedFd<'_>) -> Option<u32> {
    Some(peer_credentials(socket).ok()?.uid)
}

fn abstract_name(address: SocketAddrAny) -> Option<UnixName> {
    let unix = SocketAddrUnix::try_from(address).ok()?;
    let mut name = UnixName::default();
    let text = unix.abstract_name()?;
    name.get_mut(..text.len())?.copy_from_slice(text);
    Some(name)
}

/// Calls `of_path` with the path that the other end of an outgoing connection listened at.
pub(crate) fn with_remote_path<R>(socket: BorrowedFd<'_>, of_path: impl FnOnce(&[u8]) -> R) -> Option<R> {
    let unix = SocketAddrUnix::try_from(rustix::net::getpeername(socket).ok()??).ok()?;
    unix.path_bytes().map(of_path)
}

/// Accepts one pending connection.
pub(crate) fn accept(listener: impl AsFd) -> Result<(OwnedFd, PeerAddr), Errno> {
    let flags = SocketFlags::NONBLOCK | SocketFlags::CLOEXEC;
    let (socket, peer) = rustix::net::acceptfrom_with(listener, flags)?;
    Ok((socket, to_peer_addr(peer)))
}

/// Accepts one pending connection without waiting, from a socket of [`set_blocking_briefly`]. `None`: none is pending,
/// or another thread took it.
///
/// Cost: one system call when none is pending; up to [`ACCEPT_WAIT_MAX`] when another thread takes it after the poll.
pub(crate) fn accept_if_any(listener: impl AsFd) -> Option<OwnedFd> {
    loop {
        if !polls(&listener, PollFlags::IN) {
            return None;
        }
        match rustix::net::acceptfrom_with(&listener, SocketFlags::CLOEXEC) {
            Ok((socket, _)) => return Some(socket),
            Err(errno) if is_per_connection_error(errno) => {}
            Err(_) => return None,
        }
    }
}

/// Returns whether an accept failed for one connection only (accept(2), "Error handling") or was interrupted: the next
/// one may succeed.
pub(crate) fn is_per_connection_error(errno: Errno) -> bool {
    matches!(
        errno,
        Errno::CONNABORTED
            | Errno::INTR
            | Errno::PROTO
            | Errno::PERM
            | Errno::HOSTUNREACH
            | Errno::NETUNREACH
            | Errno::NETDOWN
            | Errno::HOSTDOWN
    )
}

/// Returns the peer address of a socket that is or was connected; `None`: the kernel has none.
pub fn peer_addr(socket: impl AsFd) -> Option<PeerAddr> {
    match rustix::net::getpeername(&socket) {
        Ok(address) => Some(to_peer_addr(address)),
        // Its peer has reset it.
        Err(_) => raw::peer_name(socket.as_fd()).map(PeerAddr::Tcp),
    }
}

/// Sets or clears `O_NONBLOCK`. io_uring needs blocking sockets: on non-blocking ones its requests complete with
/// `EAGAIN` instead of waiting.
pub(crate) fn set_blocking(socket: impl AsFd, blocking: bool) -> io::Result<()> {
    Ok(rustix::io::ioctl_fionbio(socket, !blocking)?)
}

/// Lets io_uring wait at a listening socket. `O_NONBLOCK` is shared by all duplicates of it, and some rely on it: an
/// earlier generation accepts until there is no peer left. So is the time limit, which no other relies on: an accept
/// waits for [`ACCEPT_WAIT_MAX`] at most.
pub(crate) fn set_blocking_briefly(listener: impl AsFd) -> io::Result<()> {
    sockopt::set_socket_timeout(&listener, sockopt::Timeout::Recv, Some(ACCEPT_WAIT_MAX))?;
    set_blocking(listener, true)
}

fn to_peer_addr(address: Option<SocketAddrAny>) -> PeerAddr {
    match address.map(SocketAddr::try_from) {
        Some(Ok(address)) => PeerAddr::Tcp(address),
        _ => PeerAddr::Unix,
    }
}

/// Creates a socket and starts to connect it.
///
/// Errors: those of socket(2).
pub(crate) fn start_connect(to: &Endpoint) -> io::Result<(OwnedFd, ConnectStart)> {
    let (socket, outcome) = match to {
        Endpoint::Tcp(address) => {
            let socket = stream_socket(family_of(address))?;
            sockopt::set_tcp_nodelay(&socket, true)?;
            prefer_reno_on_loopback(&socket, address);
            let outcome = rustix::net::connect(&socket, address);
            (socket, outcome)
        }
        Endpoint::Unix(path) => {
            let socket = unix_socket()?;
            let outcome = rustix::net::connect(&socket, &SocketAddrUnix::new(path.as_path())?);
            (socket, outcome)
        }
        // A driver without shared memory.
        Endpoint::Shm(_) | Endpoint::Descriptor(_) => return Err(io::ErrorKind::Unsupported.into()),
    };
    Ok((socket, ConnectStart::of(outcome)))
}

/// Returns the fault of a finished connect, if it failed. A socket that is connected to itself counts as refused.
pub(crate) fn connect_fault(socket: impl AsFd) -> Option<ConnFault> {
    match sockopt::socket_error(&socket) {
        Ok(Ok(())) if is_connected_to_itself(&socket) => {
            // Closed as usual, it would keep the port for a minute in the state TIME_WAIT.
            reset_on_close(&socket);
            Some(ConnFault::Refused)
        }
        Ok(Ok(())) => None,
        Ok(Err(errno)) | Err(errno) => Some(ConnFault::of_connect(errno)),
    }
}

/// Returns whether both ends of a connection are this socket. A connect to a port of this machine on which no process
/// listens succeeds if the kernel has chosen that very port for its own end (simultaneous open, RFC 9293 §3.5). Such a
/// connection keeps the server that wants to listen there from its port.
fn is_connected_to_itself(socket: impl AsFd) -> bool {
    let address = |address: SocketAddrAny| SocketAddr::try_from(address).ok();
    let local = rustix::net::getsockname(&socket).ok().and_then(address);
    let peer = || rustix::net::getpeername(&socket).ok().flatten().and_then(address);
    local.is_some_and(|local| peer() == Some(local))
}

/// Returns whether the peer has ended its side or reset the connection. Clears no error.
pub(crate) fn is_hung_up(socket: impl AsFd) -> bool {
    polls(socket, PollFlags::RDHUP)
}

/// Returns the bytes of the stream that were ever written to a socket of TCP, and that were ever read from it. `None`:
/// the kernel does not count them, the peer has ended its side, which it counts as a byte, or bytes arrive all the
/// time.
pub(crate) fn stream_offsets(socket: BorrowedFd<'_>) -> Option<(u64, u64)> {
    let mut counts = raw::byte_counts(socket)?;
    for _ in 0..STREAM_OFFSET_LOOKS_MAX {
        let unread = rustix::io::ioctl_fionread(socket).ok()?;
        let (written, arrived) = std::mem::replace(&mut counts, raw::byte_counts(socket)?);
        // Else what has arrived between the two looks would count as read before.
        if counts == (written, arrived) {
            let read = arrived.checked_sub(unread)?;
            return (!is_hung_up(socket)).then_some((written, read));
        }
    }
    None
}

/// Returns whether a descriptor is readable now.
pub(crate) fn is_readable(descriptor: impl AsFd) -> bool {
    polls(descriptor, PollFlags::IN)
}

/// Returns whether one of these conditions holds now, or the connection is over. False when poll(2) fails; using the
/// socket then shows why.
fn polls(socket: impl AsFd, what: PollFlags) -> bool {
    let mut polled = [PollFd::new(&socket, what)];
    let no_wait = Timespec { tv_sec: 0, tv_nsec: 0 };
    let result = rustix::event::poll(&mut polled, Some(&no_wait));
    result.is_ok() && polled[0].revents().intersects(what | PollFlags::HUP | PollFlags::ERR)
}

/// Takes the pending error of a connected socket (`SO_ERROR`), if any.
pub(crate) fn take_fault(socket: impl AsFd) -> Option<ConnFault> {
    match sockopt::socket_error(socket) {
        Ok(Ok(())) => None,
        Ok(Err(errno)) | Err(errno) => Some(ConnFault::of_established(errno)),
    }
}

/// Makes the coming close a reset (`SO_LINGER` with zero).
pub(crate) fn reset_on_close(socket: impl AsFd) {
    // Unix sockets refuse this and do not need it: dropping unread or unsent data resets their peer.
    let _ = sockopt::set_socket_linger(socket, Some(Duration::ZERO));
}

/// Shuts down the write side (sends a FIN).
pub(crate) fn shutdown_write(socket: impl AsFd) {
    // The peer may have reset the connection already; the close that follows is the same.
    let _ = rustix::net::shutdown(socket, Shutdown::Write);
}

/// Shuts down the read side: what has arrived can be read, then the stream ends.
pub(crate) fn shutdown_read(socket: impl AsFd) {
    // The connection may be over already, which is the same.
    let _ = rustix::net::shutdown(socket, Shutdown::Read);
}

/// Peeks at the input; `Ok(0)` is the end of the stream.
pub(crate) fn peek(socket: impl AsFd, bytes: &mut [u8]) -> Result<usize, Errno> {
    rustix::net::recv(socket, bytes, RecvFlags::PEEK | RecvFlags::DONTWAIT).map(|(bytes, _)| bytes)
}

/// Discards input; `Ok(0)` is the end of the stream.
pub(crate) fn discard(socket: impl AsFd, scratch: &mut [u8]) -> Result<usize, Errno> {
    rustix::net::recv(socket, scratch, RecvFlags::DONTWAIT).map(|(bytes, _)| bytes)
}

/// Selects Reno congestion control on loopback, where there is no path to probe: it saves the work of pacing each
/// segment. A kernel without it keeps its default.
fn prefer_reno_on_loopback(socket: impl AsFd, address: &SocketAddr) {
    if address.ip().is_loopback() {
        let _ = sockopt::set_tcp_congestion(socket, "reno");
    }
}

fn family_of(address: &SocketAddr) -> AddressFamily {
    if address.is_ipv4() { AddressFamily::INET } else { AddressFamily::INET6 }
}

/// Returns a Unix socket that takes no descriptors: the kernel closes those that are not received on the thread that
/// receives bytes, and a descriptor may take any time to close.
fn unix_socket() -> Result<OwnedFd, Errno> {
    let socket = stream_socket(AddressFamily::UNIX)?;
    flick_shm::pairing::allow_descriptors(socket.as_fd(), false);
    Ok(socket)
}

fn stream_socket(family: AddressFamily) -> Result<OwnedFd, Errno> {
    rustix::net::socket_with(family, SocketType::STREAM, SocketFlags::NONBLOCK | SocketFlags::CLOEXEC, None)
}
