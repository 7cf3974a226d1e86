//! Kernel sockets as both kernel drivers make them: non-blocking, close-on-exec, no delay.
//! Promises: every system call of set-up and tear-down is here; errors come back as the system's.
//! Refuses: reading and writing; how that is done is what tells the drivers apart.

use std::io;
use std::net::SocketAddr;
use std::os::fd::OwnedFd;
use std::path::Path;
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec};
use rustix::fd::AsFd;
use rustix::io::Errno;
use rustix::net::{
    AddressFamily, RecvFlags, Shutdown, SocketAddrAny, SocketAddrUnix, SocketFlags, SocketType, sockopt,
};

use crate::address::{Endpoint, PeerAddr};
use crate::driver::ConnFault;
use crate::limits::{ACCEPT_WAIT_MAX, LISTEN_BACKLOG_MAX};

/// How a dial began.
pub(crate) enum Dial {
    /// The socket is connected already (Unix sockets).
    Done,
    /// The kernel will tell.
    Pending,
    /// It failed at once.
    Failed(ConnFault),
}

pub(crate) fn open_listener(at: &Endpoint) -> io::Result<OwnedFd> {
    match at {
        Endpoint::Tcp(address) => {
            let socket = stream_socket(family_of(address))?;
            sockopt::set_socket_reuseaddr(&socket, true)?;
            sockopt::set_socket_reuseport(&socket, true)?;
            // Accepted sockets inherit it from here.
            sockopt::set_tcp_nodelay(&socket, true)?;
            prefer_plain_congestion(&socket, address);
            if address.is_ipv6() {
                // `[::]:80` and `:80` are two addresses and may belong to two services.
                sockopt::set_ipv6_v6only(&socket, true)?;
            }
            rustix::net::bind(&socket, address)?;
            rustix::net::listen(&socket, LISTEN_BACKLOG_MAX)?;
            Ok(socket)
        }
        Endpoint::Unix(path) => open_unix_listener(path),
    }
}

/// Whether somebody listens at an address already: the kernel lets sockets of one user share one, each with its part of the
/// clients, and tells nobody. A file has one owner anyhow.
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

/// Binds `path`. A file left by a process that died is removed; one that somebody answers on is not.
fn open_unix_listener(path: &Path) -> io::Result<OwnedFd> {
    let socket = stream_socket(AddressFamily::UNIX)?;
    let address = SocketAddrUnix::new(path)?;
    if let Err(error) = rustix::net::bind(&socket, &address) {
        if error != Errno::ADDRINUSE || !is_stale_socket(path)? {
            return Err(error.into());
        }
        std::fs::remove_file(path)?;
        rustix::net::bind(&socket, &address)?;
    }
    rustix::net::listen(&socket, LISTEN_BACKLOG_MAX)?;
    Ok(socket)
}

fn is_stale_socket(path: &Path) -> io::Result<bool> {
    use std::os::unix::fs::FileTypeExt;
    if !std::fs::symlink_metadata(path)?.file_type().is_socket() {
        return Ok(false);
    }
    let probe = stream_socket(AddressFamily::UNIX)?;
    let answer = rustix::net::connect(&probe, &SocketAddrUnix::new(path)?);
    Ok(answer == Err(Errno::CONNREFUSED))
}

/// The address a listening socket really has.
pub(crate) fn local_endpoint(socket: impl AsFd) -> io::Result<Endpoint> {
    let address = rustix::net::getsockname(socket)?;
    if let Ok(address) = SocketAddr::try_from(address.clone()) {
        return Ok(Endpoint::Tcp(address));
    }
    let unix = SocketAddrUnix::try_from(address)?;
    let path = unix.path().ok_or(Errno::INVAL)?;
    Ok(Endpoint::Unix(std::path::PathBuf::from(
        <std::ffi::OsStr as std::os::unix::ffi::OsStrExt>::from_bytes(path.to_bytes()),
    )))
}

/// Takes one waiting connection.
pub(crate) fn accept(listener: impl AsFd) -> Result<(OwnedFd, PeerAddr), Errno> {
    let flags = SocketFlags::NONBLOCK | SocketFlags::CLOEXEC;
    let (socket, peer) = rustix::net::acceptfrom_with(listener, flags)?;
    Ok((socket, peer_addr(peer)))
}

/// Takes one connection if any waits, also where the socket itself would wait for one. `None`: nobody does, or others were quicker.
///
/// Cost: a system call where nobody waits; a millisecond where others are quicker between that and the next.
pub(crate) fn accept_if_any(listener: impl AsFd) -> Option<OwnedFd> {
    loop {
        if !polls(&listener, PollFlags::IN) {
            return None;
        }
        // The flag that has a socket not wait is shared with all who have a descriptor of it; this is too, and harms nobody.
        sockopt::set_socket_timeout(&listener, sockopt::Timeout::Recv, Some(ACCEPT_WAIT_MAX)).ok()?;
        match rustix::net::acceptfrom_with(&listener, SocketFlags::CLOEXEC) {
            Ok((socket, _)) => return Some(socket),
            Err(errno) if is_of_one_peer(errno) => {}
            Err(_) => return None,
        }
    }
}

/// Whether an accept failed for one peer only, who gave up while it waited (accept(2) lists these as such), or was interrupted:
/// the next one may go well.
pub(crate) fn is_of_one_peer(errno: Errno) -> bool {
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

/// Who is at the other end of a connected socket.
pub(crate) fn peer_of(socket: impl AsFd) -> PeerAddr {
    peer_addr(rustix::net::getpeername(socket).ok().flatten())
}

/// Makes a socket wait (or not) when it is not ready. The ring needs sockets that would wait: it takes
/// `O_NONBLOCK` as the wish to be told so instead of being waited for.
pub(crate) fn set_blocking(socket: impl AsFd, blocking: bool) -> io::Result<()> {
    Ok(rustix::io::ioctl_fionbio(socket, !blocking)?)
}

fn peer_addr(address: Option<SocketAddrAny>) -> PeerAddr {
    match address.map(SocketAddr::try_from) {
        Some(Ok(address)) => PeerAddr::Tcp(address),
        _ => PeerAddr::Unix,
    }
}

/// Makes a socket and begins to connect it. Errors: no socket could be had.
pub(crate) fn dial(to: &Endpoint) -> io::Result<(OwnedFd, Dial)> {
    let (socket, outcome) = match to {
        Endpoint::Tcp(address) => {
            let socket = stream_socket(family_of(address))?;
            sockopt::set_tcp_nodelay(&socket, true)?;
            prefer_plain_congestion(&socket, address);
            let outcome = rustix::net::connect(&socket, address);
            (socket, outcome)
        }
        Endpoint::Unix(path) => {
            let socket = stream_socket(AddressFamily::UNIX)?;
            let outcome = rustix::net::connect(&socket, &SocketAddrUnix::new(path.as_path())?);
            (socket, outcome)
        }
    };
    let dial = match outcome {
        Ok(()) => Dial::Done,
        Err(Errno::INPROGRESS | Errno::INTR) => Dial::Pending,
        Err(errno) => Dial::Failed(dial_fault(errno)),
    };
    Ok((socket, dial))
}

/// The error a pending dial ended with, if it failed.
pub(crate) fn dial_outcome(socket: impl AsFd) -> Option<ConnFault> {
    match sockopt::socket_error(socket) {
        Ok(Ok(())) => None,
        Ok(Err(errno)) | Err(errno) => Some(dial_fault(errno)),
    }
}

/// Whether the peer has ended its side or reset the connection. It clears nothing.
pub(crate) fn is_hung_up(socket: impl AsFd) -> bool {
    polls(socket, PollFlags::RDHUP)
}

/// Whether one of these holds now, or the socket is over. One that cannot be asked is found out when it is used.
fn polls(socket: impl AsFd, what: PollFlags) -> bool {
    let mut polled = [PollFd::new(&socket, what)];
    let at_once = Timespec { tv_sec: 0, tv_nsec: 0 };
    let asked = rustix::event::poll(&mut polled, Some(&at_once));
    asked.is_ok() && polled[0].revents().intersects(what | PollFlags::HUP | PollFlags::ERR)
}

/// The error a connected socket has, if any; asking clears it.
pub(crate) fn pending_fault(socket: impl AsFd) -> Option<ConnFault> {
    match sockopt::socket_error(socket) {
        Ok(Ok(())) => None,
        Ok(Err(errno)) | Err(errno) => Some(conn_fault(errno)),
    }
}

/// A Unix path nobody listens on is refused just as a port nobody listens on.
pub(crate) fn dial_fault(errno: Errno) -> ConnFault {
    match errno {
        Errno::CONNREFUSED | Errno::NOENT => ConnFault::Refused,
        Errno::CONNRESET => ConnFault::Reset,
        other => ConnFault::System(other.raw_os_error()),
    }
}

pub(crate) fn conn_fault(errno: Errno) -> ConnFault {
    match errno {
        Errno::CONNRESET | Errno::PIPE | Errno::TIMEDOUT => ConnFault::Reset,
        other => ConnFault::System(other.raw_os_error()),
    }
}

/// Makes the coming close a reset.
pub(crate) fn reset_on_close(socket: impl AsFd) {
    // Unix sockets refuse this and need it not: dropping unread or unsent data resets their peer.
    let _ = sockopt::set_socket_linger(socket, Some(Duration::ZERO));
}

/// Says that we send no more.
pub(crate) fn shutdown_write(socket: impl AsFd) {
    // The peer may be gone already; the close that follows is the same.
    let _ = rustix::net::shutdown(socket, Shutdown::Write);
}

/// Looks at what has arrived without taking it; `Ok(0)` is the end of the stream.
pub(crate) fn peek(socket: impl AsFd, bytes: &mut [u8]) -> Result<usize, Errno> {
    rustix::net::recv(socket, bytes, RecvFlags::PEEK | RecvFlags::DONTWAIT).map(|(bytes, _)| bytes)
}

/// Throws away what has arrived; `Ok(0)` is the end of the stream.
pub(crate) fn discard(socket: impl AsFd, scratch: &mut [u8]) -> Result<usize, Errno> {
    rustix::net::recv(socket, scratch, RecvFlags::DONTWAIT).map(|(bytes, _)| bytes)
}

/// On loopback there is no path to probe: the plain algorithm spares each segment the work of pacing. A kernel
/// without it keeps its own.
fn prefer_plain_congestion(socket: impl AsFd, address: &SocketAddr) {
    if address.ip().is_loopback() {
        let _ = sockopt::set_tcp_congestion(socket, "reno");
    }
}

fn family_of(address: &SocketAddr) -> AddressFamily {
    if address.is_ipv4() { AddressFamily::INET } else { AddressFamily::INET6 }
}

fn stream_socket(family: AddressFamily) -> Result<OwnedFd, Errno> {
    rustix::net::socket_with(family, SocketType::STREAM, SocketFlags::NONBLOCK | SocketFlags::CLOEXEC, None)
}
