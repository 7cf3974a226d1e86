//! Pairing of two processes: one connects to the Unix socket of the other and passes a segment and two eventfds.
//! Promises: descriptors are taken only from a peer that the policy allows (the same user, unless configured
//! otherwise); a segment is validated before it is mapped; a peer that passes something else is refused and the
//! socket stays usable as a byte stream.
//! Not here: the byte stream (`stream.rs`). The socket remains open: its end shows that the other process has died.
//!
//! A name without `/` is an abstract Unix socket, one with `/` a path.

use core::fmt;
use core::mem::MaybeUninit;

use rustix::cmsg_space;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fd::{AsFd, BorrowedFd, OwnedFd};
use rustix::io::{Errno, IoSlice, IoSliceMut};
use rustix::net::{
    AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags, SocketAddrUnix, SocketFlags, SocketType, accept_with, bind, connect,
    getsockname, listen, recv, recvmsg, send, sendmsg, socket_with, sockopt,
};

use crate::limits::{HANDSHAKE_BYTES, HANDSHAKE_TIMEOUT_MS, NAME_BYTES_MAX, PAIRING_BACKLOG};
use crate::pair::{OpenError, Pair};
use crate::segment::{LAYOUT_VERSION, Segment, SegmentConfig, SegmentError};
use crate::sys;

/// First bytes of both messages of the handshake.
const MAGIC: [u8; 8] = *b"flickshm";
/// Beginning of the abstract socket of a name.
const ABSTRACT_PREFIX: &[u8] = b"flick-shm/";
/// Descriptors that the connecting side passes: the segment, its own eventfd, the other side's eventfd.
const DESCRIPTORS: usize = 3;

/// Users whose processes may pair with this one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum PairPolicy {
    /// Processes with the same effective user.
    #[default]
    SameUser,
    /// Processes of any user that can reach the socket.
    AnyUser,
}

impl PairPolicy {
    /// Returns whether a process of user `uid` may pair with one of user `own`.
    fn allows(self, uid: u32, own: u32) -> bool {
        match self {
            Self::SameUser => uid == own,
            Self::AnyUser => true,
        }
    }
}

/// Progress of a handshake that does not block.
#[derive(Debug)]
#[expect(clippy::large_enum_variant, reason = "a value is matched where it is returned, and never kept")]
pub enum Handshake<T> {
    /// The other side's message has not arrived: try again when the socket is readable.
    Pending(T),
    /// The processes are a pair, or the reason why they are none; the socket remains as a byte stream.
    Done(PeerProcess, Result<Pair, PairError>),
}

/// Failure to become a pair.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PairError {
    /// The name is empty or too long.
    Name,
    /// A system call failed.
    System(Errno),
    /// The other process belongs to a user that the policy excludes.
    User(u32),
    /// The other process does not speak this handshake.
    Handshake,
    /// The segment cannot be created or used.
    Segment(SegmentError),
    /// The pair cannot be used.
    Open(OpenError),
}

impl fmt::Display for PairError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Name => write!(f, "a name has 1 to {NAME_BYTES_MAX} bytes"),
            Self::System(errno) => write!(f, "system call failed: {errno}"),
            Self::User(uid) => write!(f, "the other process belongs to user {uid}"),
            Self::Handshake => f.write_str("the other process does not speak flick's handshake"),
            Self::Segment(error) => error.fmt(f),
            Self::Open(error) => error.fmt(f),
        }
    }
}

impl core::error::Error for PairError {}

impl From<Errno> for PairError {
    fn from(errno: Errno) -> Self {
        Self::System(errno)
    }
}

impl From<SegmentError> for PairError {
    fn from(error: SegmentError) -> Self {
        Self::Segment(error)
    }
}

impl From<OpenError> for PairError {
    fn from(error: OpenError) -> Self {
        Self::Open(error)
    }
}

/// The other process, and the socket that connects the two.
#[derive(Debug)]
pub struct PeerProcess {
    socket: OwnedFd,
    pid: i32,
    uid: u32,
}

impl PeerProcess {
    /// Reads the peer's credentials from the socket and applies the policy to them.
    fn new(socket: OwnedFd, policy: PairPolicy) -> Result<Self, PairError> {
        let credentials = sockopt::socket_peercred(&socket)?;
        let uid = credentials.uid.as_raw();
        if !policy.allows(uid, rustix::process::geteuid().as_raw()) {
            return Err(PairError::User(uid));
        }
        let pid = credentials.pid.as_raw_nonzero().get();
        Ok(Self { socket, pid, uid })
    }

    /// Returns the process number that the kernel recorded when the socket was connected.
    pub fn pid(&self) -> i32 {
        self.pid
    }

    /// Returns the effective user that the kernel recorded when the socket was connected.
    pub fn uid(&self) -> u32 {
        self.uid
    }

    /// Returns the socket.
    pub fn socket(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }

    /// Returns whether the other process has closed the socket, which the kernel does when it dies.
    pub fn is_gone(&self) -> bool {
        let flags = RecvFlags::PEEK | RecvFlags::DONTWAIT;
        !matches!(recv(&self.socket, &mut [0; 1], flags), Ok((_, 1..)) | Err(Errno::AGAIN | Errno::INTR))
    }

    /// Blocks until the socket is readable, or for `HANDSHAKE_TIMEOUT_MS`.
    fn wait(&self) -> Result<(), PairError> {
        let timeout = Timespec {
            tv_sec: (HANDSHAKE_TIMEOUT_MS / 1000) as i64,
            tv_nsec: (HANDSHAKE_TIMEOUT_MS % 1000) as i64 * 1_000_000,
        };
        match poll(&mut [PollFd::new(&self.socket, PollFlags::IN)], Some(&timeout)) {
            Ok(0) => Err(PairError::System(Errno::TIMEDOUT)),
            Ok(_) | Err(Errno::INTR) => Ok(()),
            Err(errno) => Err(errno.into()),
        }
    }
}

/// Returns the message of the handshake: magic, version, status.
fn hello(status: u32) -> [u8; HANDSHAKE_BYTES] {
    let mut message = [0; HANDSHAKE_BYTES];
    message[..8].copy_from_slice(&MAGIC);
    message[8..12].copy_from_slice(&LAYOUT_VERSION.to_le_bytes());
    message[12..].copy_from_slice(&status.to_le_bytes());
    message
}

/// Returns the status of a message; `None` if it has another magic or version.
fn parse(message: &[u8; HANDSHAKE_BYTES]) -> Option<u32> {
    let mut status = [0; 4];
    status.copy_from_slice(&message[12..]);
    let status = u32::from_le_bytes(status);
    (message[..12] == hello(0)[..12]).then_some(status)
}

fn address(name: &str) -> Result<SocketAddrUnix, PairError> {
    let name = name.strip_prefix("shm:").unwrap_or(name).as_bytes();
    if name.is_empty() || name.len() > NAME_BYTES_MAX || name.contains(&0) {
        return Err(PairError::Name);
    }
    if name.contains(&b'/') {
        return Ok(SocketAddrUnix::new(name)?);
    }
    let mut full = [0; ABSTRACT_PREFIX.len() + NAME_BYTES_MAX];
    let (prefix, rest) = full.split_at_mut(ABSTRACT_PREFIX.len());
    prefix.copy_from_slice(ABSTRACT_PREFIX);
    rest[..name.len()].copy_from_slice(name);
    Ok(SocketAddrUnix::new_abstract_name(&full[..ABSTRACT_PREFIX.len() + name.len()])?)
}

fn socket() -> Result<OwnedFd, Errno> {
    socket_with(AddressFamily::UNIX, SocketType::STREAM, SocketFlags::CLOEXEC, None)
}

/// Binds a listening socket to `shm:NAME`. Connections of it are for [`Acceptance`].
///
/// Errors: `Name`, `System`; `EADDRINUSE` also if a path exists already.
pub fn listen_at(name: &str) -> Result<OwnedFd, PairError> {
    let socket = socket()?;
    bind(&socket, &address(name)?)?;
    listen(&socket, PAIRING_BACKLOG)?;
    Ok(socket)
}

/// Returns the name of a listening socket that [`listen_at`] bound, without `shm:`; `None` if it is another socket.
pub fn name_of(socket: impl AsFd) -> Option<alloc::string::String> {
    let local = SocketAddrUnix::try_from(getsockname(socket).ok()?).ok()?;
    let name = local.abstract_name()?.strip_prefix(ABSTRACT_PREFIX)?;
    alloc::string::String::from_utf8(name.to_vec()).ok()
}

/// The accepting side of a handshake.
#[derive(Debug)]
pub struct Acceptance(PeerProcess);

impl Acceptance {
    /// Begins with a socket that was accepted, blocking or not.
    ///
    /// Errors: `User`, `System`: the socket is closed.
    pub fn begin(socket: OwnedFd, policy: PairPolicy) -> Result<Self, PairError> {
        Ok(Self(PeerProcess::new(socket, policy)?))
    }

    /// Returns the process number of the connecting process; see [`PeerProcess::pid`].
    pub fn pid(&self) -> i32 {
        self.0.pid()
    }

    /// Returns the socket.
    pub fn socket(&self) -> BorrowedFd<'_> {
        self.0.socket()
    }

    /// Takes the segment that the connecting process offers, and answers. Does not block.
    ///
    /// Errors: `Handshake`, `System`: the socket is closed.
    pub fn advance(self) -> Result<Handshake<Self>, PairError> {
        let received = match receive_descriptors(&self.0.socket) {
            Err(PairError::System(Errno::AGAIN | Errno::INTR)) => return Ok(Handshake::Pending(self)),
            received => received?,
        };
        let pair = received.and_then(|[file, peer_event, event]| {
            // A pipe or a socket could block this side when it signals.
            if ![&event, &peer_event].iter().all(|event| sys::is_event(event.as_fd())) {
                return Err(PairError::Handshake);
            }
            let segment = Segment::open(&file)?;
            Ok(Pair::new(segment, event, peer_event)?)
        });
        let status = u32::from(pair.is_ok());
        send(&self.0.socket, &hello(status), SendFlags::NOSIGNAL | SendFlags::DONTWAIT)?;
        Ok(Handshake::Done(self.0, pair))
    }
}

/// The connecting side of a handshake.
#[derive(Debug)]
pub struct Offer {
    peer: PeerProcess,
    segment: Segment,
    event: OwnedFd,
    peer_event: OwnedFd,
}

impl Offer {
    /// Connects to `shm:NAME` and offers a new segment. Does not block.
    ///
    /// Errors: `Name`, `User`, `Segment`, `Handshake`; `System`: `ECONNREFUSED` and `ENOENT` if no process listens,
    /// `EAGAIN` if too many processes wait to be accepted.
    pub fn begin(name: &str, config: &SegmentConfig, policy: PairPolicy) -> Result<Self, PairError> {
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        let socket = socket_with(AddressFamily::UNIX, SocketType::STREAM, flags, None)?;
        connect(&socket, &address(name)?)?;
        let peer = PeerProcess::new(socket, policy)?;
        let (segment, file) = Segment::create(config)?;
        let (event, peer_event) = (sys::create_eventfd()?, sys::create_eventfd()?);
        let passed = [file.as_fd(), event.as_fd(), peer_event.as_fd()];
        let mut space = [MaybeUninit::uninit(); cmsg_space!(ScmRights(DESCRIPTORS))];
        let mut ancillary = SendAncillaryBuffer::new(&mut space);
        if !ancillary.push(SendAncillaryMessage::ScmRights(&passed)) {
            return Err(PairError::Handshake);
        }
        sendmsg(&peer.socket, &[IoSlice::new(&hello(0))], &mut ancillary, SendFlags::NOSIGNAL)?;
        Ok(Self { peer, segment, event, peer_event })
    }

    /// Returns the process number of the listening process; see [`PeerProcess::pid`].
    pub fn pid(&self) -> i32 {
        self.peer.pid()
    }

    /// Returns the socket.
    pub fn socket(&self) -> BorrowedFd<'_> {
        self.peer.socket()
    }

    /// Takes the accepting process's answer. Does not block.
    ///
    /// Errors: `Handshake`, `System`: the socket is closed.
    pub fn advance(self) -> Result<Handshake<Self>, PairError> {
        let mut answer = [0; HANDSHAKE_BYTES];
        let count = match recv(&self.peer.socket, &mut answer, RecvFlags::DONTWAIT) {
            Err(Errno::AGAIN | Errno::INTR) => return Ok(Handshake::Pending(self)),
            received => received?.1,
        };
        let status = if count == HANDSHAKE_BYTES { parse(&answer) } else { None };
        let Self { peer, segment, event, peer_event } = self;
        match status {
            Some(1) => {
                let pair = Pair::new(segment, event, peer_event)?;
                Ok(Handshake::Done(peer, Ok(pair)))
            }
            Some(_) => Ok(Handshake::Done(peer, Err(PairError::Handshake))),
            None => Err(PairError::Handshake),
        }
    }
}

/// A Unix socket that accepts pairs, for a thread that blocks.
#[derive(Debug)]
pub struct PairListener {
    socket: OwnedFd,
    policy: PairPolicy,
}

impl PairListener {
    /// Listens at `shm:NAME`.
    ///
    /// Errors: those of [`listen_at`].
    pub fn bind(name: &str, policy: PairPolicy) -> Result<Self, PairError> {
        Ok(Self { socket: listen_at(name)?, policy })
    }

    /// Returns the listening socket, which is readable when a process connects.
    pub fn socket(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }

    /// Accepts a process. Without a pair, which the reason explains, the socket remains as a byte stream.
    ///
    /// Cost: blocks until a process connects, and then for `HANDSHAKE_TIMEOUT_MS` at most.
    /// Errors: `User`, `Handshake`, `System`: the socket is closed.
    pub fn accept(&self) -> Result<(PeerProcess, Result<Pair, PairError>), PairError> {
        let socket = accept_with(&self.socket, SocketFlags::CLOEXEC)?;
        let acceptance = Acceptance::begin(socket, self.policy)?;
        acceptance.0.wait()?;
        match acceptance.advance()? {
            Handshake::Done(peer, pair) => Ok((peer, pair)),
            Handshake::Pending(_) => Err(PairError::Handshake),
        }
    }
}

/// Receives the connecting side's message and its descriptors. The inner error: the message is right, but the
/// descriptors are not.
fn receive_descriptors(socket: &OwnedFd) -> Result<Result<[OwnedFd; DESCRIPTORS], PairError>, PairError> {
    let mut message = [0; HANDSHAKE_BYTES];
    let mut space = [MaybeUninit::uninit(); cmsg_space!(ScmRights(DESCRIPTORS))];
    let mut ancillary = RecvAncillaryBuffer::new(&mut space);
    let flags = RecvFlags::CMSG_CLOEXEC | RecvFlags::DONTWAIT;
    let received = recvmsg(socket, &mut [IoSliceMut::new(&mut message)], &mut ancillary, flags)?;
    if received.bytes != HANDSHAKE_BYTES || parse(&message).is_none() {
        return Err(PairError::Handshake);
    }
    let rights = ancillary.drain().filter_map(|message| match message {
        RecvAncillaryMessage::ScmRights(descriptors) => Some(descriptors),
        _ => None,
    });
    let mut descriptors = rights.flatten();
    let taken = [descriptors.next(), descriptors.next(), descriptors.next()];
    // Those that are left are closed when the iterator is dropped.
    Ok(match taken {
        [Some(file), Some(own), Some(other)] if descriptors.next().is_none() => Ok([file, own, other]),
        _ => Err(PairError::Handshake),
    })
}

/// Connects to `shm:NAME` and offers a new segment. Without a pair, which the reason explains, the socket remains as a
/// byte stream.
///
/// Cost: blocks for `HANDSHAKE_TIMEOUT_MS` at most.
/// Errors: `Name`, `User`, `Handshake`, `System`: the socket is closed.
pub fn connect_pair(
    name: &str,
    config: &SegmentConfig,
    policy: PairPolicy,
) -> Result<(PeerProcess, Result<Pair, PairError>), PairError> {
    let offer = Offer::begin(name, config, policy)?;
    offer.peer.wait()?;
    match offer.advance()? {
        Handshake::Done(peer, pair) => Ok((peer, pair)),
        Handshake::Pending(_) => Err(PairError::Handshake),
    }
}

#[cfg(all(test, not(miri)))]
mod tests {
    use super::*;

    #[test]
    fn names_have_a_length_and_no_zero_byte() {
        assert!(address("shm:a").is_ok() && address("a/b").is_ok());
        let long = "a".repeat(NAME_BYTES_MAX + 1);
        assert!(address(&long[1..]).is_ok());
        for name in ["", "shm:", "a\0b", &long] {
            assert_eq!(address(name).err(), Some(PairError::Name), "{name:?}");
        }
    }

    #[test]
    fn another_user_may_pair_only_if_the_policy_says_so() {
        for own in [0, 1000] {
            assert!(PairPolicy::default().allows(own, own) && PairPolicy::AnyUser.allows(33, own));
            assert!(!PairPolicy::default().allows(33, own), "root is no exception");
        }
        assert!(!PairPolicy::SameUser.allows(0, 33));
    }

    #[test]
    fn messages_with_another_magic_or_version_are_refused() {
        assert_eq!(parse(&hello(7)), Some(7));
        for at in 0..12 {
            let mut message = hello(7);
            message[at] ^= 1;
            assert_eq!(parse(&message), None, "byte {at}");
        }
    }
}
