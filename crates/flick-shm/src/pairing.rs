//! Pairing of two processes: one connects to the Unix socket of the other, and gets a segment.
//! Promises: the listening process takes no descriptor, and decides about the size of the segment, which it creates;
//! the connecting one takes a descriptor only from a process that the policy allows (the same user, unless configured
//! otherwise), and validates the segment before it uses it; a process that asks for something else is refused and the
//! socket stays usable as a byte stream.
//! Not here: the byte stream (`stream.rs`). The socket remains open: it carries signals to sleeping event loops, and
//! its end shows that the other process has died.
//!
//! A name without `/` is an abstract Unix socket, one with `/` a path.

use alloc::sync::Arc;
use core::fmt;
use core::mem::MaybeUninit;

use rustix::cmsg_space;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fd::{AsFd, BorrowedFd, OwnedFd};
use rustix::io::{Errno, IoSlice, IoSliceMut};
use rustix::net::{
    AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags, Shutdown, SocketAddrUnix, SocketFlags, SocketType, accept_with, bind,
    connect, getsockname, listen, recv, recvmsg, send, sendmsg, shutdown, socket_with,
};

use crate::limits::{HANDSHAKE_BYTES, HANDSHAKE_TIMEOUT_MS, NAME_BYTES_MAX, PAIRING_BACKLOG};
use crate::pair::{OpenError, Pair};
use crate::segment::{LAYOUT_VERSION, Segment, SegmentConfig, SegmentError};
use crate::sys;
pub use crate::sys::allow_descriptors;
pub use crate::sys::{PeerCredentials, peer_credentials};

/// First bytes of both messages of the handshake.
const MAGIC: [u8; 8] = *b"flickshm";
/// Beginning of the abstract socket of a name.
const ABSTRACT_PREFIX: &[u8] = b"flick-shm/";
/// Status of a message: the segment comes with it, or the connecting process can execute barriers.
const STATUS_YES: u32 = 1;
/// Largest number of a system's error.
const LAST_ERRNO: u32 = 4095;

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
    socket: Arc<OwnedFd>,
    pid: i32,
    uid: u32,
}

impl PeerProcess {
    /// Reads the peer's credentials from the socket and applies the policy to them.
    fn new(socket: OwnedFd, policy: PairPolicy) -> Result<Self, PairError> {
        let PeerCredentials { pid, uid } = peer_credentials(socket.as_fd())?;
        if !policy.allows(uid, rustix::process::geteuid().as_raw()) {
            return Err(PairError::User(uid));
        }
        Ok(Self { socket: Arc::new(socket), pid, uid })
    }

    /// Returns the process number that the kernel recorded when the socket was connected; 0 of a process in another PID
    /// namespace.
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

    /// Returns the socket with a share in its owner.
    pub(crate) fn shared_socket(&self) -> &Arc<OwnedFd> {
        &self.socket
    }

    /// Returns whether the other process has closed the socket, which the kernel does when it dies.
    pub fn is_gone(&self) -> bool {
        let mut sources = [PollFd::new(&*self.socket, PollFlags::RDHUP)];
        let no_wait = Timespec { tv_sec: 0, tv_nsec: 0 };
        matches!(poll(&mut sources, Some(&no_wait)), Ok(1..))
    }

    /// Blocks until the socket is readable, or for `HANDSHAKE_TIMEOUT_MS`.
    fn wait(&self) -> Result<(), PairError> {
        let timeout = Timespec {
            tv_sec: (HANDSHAKE_TIMEOUT_MS / 1000) as i64,
            tv_nsec: (HANDSHAKE_TIMEOUT_MS % 1000) as i64 * 1_000_000,
        };
        match poll(&mut [PollFd::new(&*self.socket, PollFlags::IN)], Some(&timeout)) {
            Ok(0) => Err(PairError::System(Errno::TIMEDOUT)),
            Ok(_) | Err(Errno::INTR) => Ok(()),
            Err(errno) => Err(errno.into()),
        }
    }
}

impl Drop for PeerProcess {
    fn drop(&mut self) {
        // Connections that outlive the pair still have the socket: the other process sees the end now.
        let _ = shutdown(&*self.socket, Shutdown::Both);
    }
}

/// A message of the handshake. The sizes are those that the connecting process asks for; in an answer without a segment
/// the slots are the number of the system's error, or 0.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Hello {
    status: u32,
    slots: u32,
    arena_bytes: u64,
}

impl Hello {
    /// Returns the answer that there is no segment.
    fn refusal(error: SegmentError) -> Self {
        let slots = match error {
            SegmentError::System(errno) => errno.raw_os_error().unsigned_abs(),
            _ => 0,
        };
        Self { status: 0, slots, arena_bytes: 0 }
    }

    /// Returns the sizes that a request asks for.
    fn config(self) -> SegmentConfig {
        SegmentConfig { slots: self.slots, arena_bytes: self.arena_bytes, huge_pages: false }
    }

    /// Returns why an answer has no segment.
    fn reason(self) -> PairError {
        match self.slots {
            number @ 1..=LAST_ERRNO => SegmentError::System(Errno::from_raw_os_error(number as i32)).into(),
            _ => PairError::Handshake,
        }
    }

    /// Returns the bytes: magic, version, status, slots, nothing, bytes of an arena.
    fn bytes(self) -> [u8; HANDSHAKE_BYTES] {
        let mut message = [0; HANDSHAKE_BYTES];
        message[..8].copy_from_slice(&MAGIC);
        message[8..12].copy_from_slice(&LAYOUT_VERSION.to_le_bytes());
        message[12..16].copy_from_slice(&self.status.to_le_bytes());
        message[16..20].copy_from_slice(&self.slots.to_le_bytes());
        message[24..].copy_from_slice(&self.arena_bytes.to_le_bytes());
        message
    }

    /// Returns what a message says; `None` if it has another magic or version.
    fn parse(message: &[u8; HANDSHAKE_BYTES]) -> Option<Self> {
        let narrow = |at: usize| {
            let mut word = [0; 4];
            word.copy_from_slice(&message[at..at + 4]);
            u32::from_le_bytes(word)
        };
        let arena_bytes = u64::from(narrow(24)) | u64::from(narrow(28)) << 32;
        let hello = Self { status: narrow(12), slots: narrow(16), arena_bytes };
        (message[..12] == hello.bytes()[..12]).then_some(hello)
    }
}

/// Returns whether a name of a service can stand behind `shm:`: visible characters except `/`, of a limited length.
pub fn is_name(name: &str) -> bool {
    let fits = (1..=NAME_BYTES_MAX).contains(&name.len());
    fits && name.chars().all(|character| character.is_ascii_graphic() && character != '/')
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

/// Returns whether the kernel can refuse the descriptors of peers ([`allow_descriptors`]): where it cannot, a process
/// of any user can stop a thread that listens.
pub fn can_refuse_descriptors() -> bool {
    let socket = socket_with(AddressFamily::UNIX, SocketType::STREAM, SocketFlags::CLOEXEC, None);
    socket.is_ok_and(|socket| allow_descriptors(socket.as_fd(), false))
}

/// Returns a Unix socket through which peers pass no descriptors.
fn socket(flags: SocketFlags) -> Result<OwnedFd, Errno> {
    let socket = socket_with(AddressFamily::UNIX, SocketType::STREAM, SocketFlags::CLOEXEC | flags, None)?;
    allow_descriptors(socket.as_fd(), false);
    Ok(socket)
}

/// Binds a listening socket to `shm:NAME`. Connections of it are for [`Acceptance`].
///
/// Errors: `Name`, `System`; `EADDRINUSE` also if a path exists already.
pub fn listen_at(name: &str) -> Result<OwnedFd, PairError> {
    let socket = socket(SocketFlags::empty())?;
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

    /// Takes the request of the connecting process, and answers with a segment of the sizes that it asks for, but of
    /// those of `most` at most. Does not block.
    ///
    /// Errors: `Handshake`, `System`: the socket is closed.
    pub fn advance(self, most: &SegmentConfig) -> Result<Handshake<Self>, PairError> {
        let mut message = [0; HANDSHAKE_BYTES];
        let count = match recv(&*self.0.socket, &mut message, RecvFlags::DONTWAIT) {
            Err(Errno::AGAIN | Errno::INTR) => return Ok(Handshake::Pending(self)),
            received => received?.1,
        };
        let wanted = if count == HANDSHAKE_BYTES { Hello::parse(&message) } else { None };
        let wanted = wanted.ok_or(PairError::Handshake)?;
        let config = SegmentConfig {
            slots: wanted.slots.min(most.slots),
            arena_bytes: wanted.arena_bytes.min(most.arena_bytes),
            huge_pages: most.huge_pages,
        };
        // Sizes that are right but for the memory of this process.
        let lacks_memory = wanted.config().is_valid() && !config.is_valid();
        let created = if lacks_memory { Err(Errno::NOMEM.into()) } else { Segment::create(&config) };
        match created {
            Ok((segment, file)) => {
                segment.attach_other(wanted.status == STATUS_YES);
                let pair = Pair::new(segment, Arc::clone(&self.0.socket))?;
                self.answer(Hello { status: STATUS_YES, slots: 0, arena_bytes: 0 }, Some(file.as_fd()))?;
                Ok(Handshake::Done(self.0, Ok(pair)))
            }
            Err(error) => {
                self.answer(Hello::refusal(error), None)?;
                Ok(Handshake::Done(self.0, Err(error.into())))
            }
        }
    }

    fn answer(&self, message: Hello, file: Option<BorrowedFd<'_>>) -> Result<(), PairError> {
        let mut space = [MaybeUninit::uninit(); cmsg_space!(ScmRights(1))];
        let mut ancillary = SendAncillaryBuffer::new(&mut space);
        if !file.as_slice().is_empty() && !ancillary.push(SendAncillaryMessage::ScmRights(file.as_slice())) {
            return Err(PairError::Handshake);
        }
        let flags = SendFlags::NOSIGNAL | SendFlags::DONTWAIT;
        sendmsg(&*self.0.socket, &[IoSlice::new(&message.bytes())], &mut ancillary, flags)?;
        Ok(())
    }
}

/// The connecting side of a handshake.
#[derive(Debug)]
pub struct Offer {
    peer: PeerProcess,
    config: SegmentConfig,
}

impl Offer {
    /// Connects to `shm:NAME` and asks for a segment. Does not block.
    ///
    /// Errors: `Name`, `User`, `Segment`; `System`: `ECONNREFUSED` and `ENOENT` if no process listens, `EAGAIN` if too
    /// many processes wait to be accepted.
    pub fn begin(name: &str, config: &SegmentConfig, policy: PairPolicy) -> Result<Self, PairError> {
        if !config.is_valid() {
            return Err(SegmentError::Config.into());
        }
        // The first time it may take long, and the listening process waits only so long for the request.
        let status = if sys::register_barrier() { STATUS_YES } else { 0 };
        let socket = socket(SocketFlags::NONBLOCK)?;
        connect(&socket, &address(name)?)?;
        let peer = PeerProcess::new(socket, policy)?;
        allow_descriptors(peer.socket(), true);
        let wanted = Hello { status, slots: config.slots, arena_bytes: config.arena_bytes };
        match send(&*peer.socket, &wanted.bytes(), SendFlags::NOSIGNAL) {
            // The process has closed the socket meanwhile, which `advance` finds as well.
            Ok(_) | Err(Errno::PIPE | Errno::CONNRESET) => Ok(Self { peer, config: *config }),
            Err(errno) => Err(errno.into()),
        }
    }

    /// Returns the process number of the listening process; see [`PeerProcess::pid`].
    pub fn pid(&self) -> i32 {
        self.peer.pid()
    }

    /// Returns the socket.
    pub fn socket(&self) -> BorrowedFd<'_> {
        self.peer.socket()
    }

    /// Takes the listening process's answer, and its segment if that is no larger than what was asked for. Does not
    /// block.
    ///
    /// Errors: `Handshake`, `Segment`, `System`: the socket is closed.
    pub fn advance(self) -> Result<Handshake<Self>, PairError> {
        let received = match receive_answer(&self.peer.socket) {
            Err(PairError::System(Errno::AGAIN | Errno::INTR)) => return Ok(Handshake::Pending(self)),
            received => received?,
        };
        let file = match received {
            Ok(file) => file,
            Err(reason) => return Ok(Handshake::Done(self.peer, Err(reason))),
        };
        let segment = Segment::open(&file)?;
        if segment.slots() > self.config.slots || segment.arena_bytes() > self.config.arena_bytes {
            return Err(SegmentError::Size.into());
        }
        let pair = Pair::new(segment, Arc::clone(&self.peer.socket))?;
        Ok(Handshake::Done(self.peer, Ok(pair)))
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
        match acceptance.advance(&SegmentConfig::default())? {
            Handshake::Done(peer, pair) => Ok((peer, pair)),
            Handshake::Pending(_) => Err(PairError::Handshake),
        }
    }
}

/// Receives the listening side's answer: the segment's file, or why there is none.
fn receive_answer(socket: &OwnedFd) -> Result<Result<OwnedFd, PairError>, PairError> {
    let mut message = [0; HANDSHAKE_BYTES];
    let mut space = [MaybeUninit::uninit(); cmsg_space!(ScmRights(1))];
    let mut ancillary = RecvAncillaryBuffer::new(&mut space);
    let flags = RecvFlags::CMSG_CLOEXEC | RecvFlags::DONTWAIT;
    let received = recvmsg(socket, &mut [IoSliceMut::new(&mut message)], &mut ancillary, flags)?;
    let answer = if received.bytes == HANDSHAKE_BYTES { Hello::parse(&message) } else { None };
    let answer = answer.ok_or(PairError::Handshake)?;
    let rights = ancillary.drain().filter_map(|message| match message {
        RecvAncillaryMessage::ScmRights(descriptors) => Some(descriptors),
        _ => None,
    });
    let mut descriptors = rights.flatten();
    // Those that are left are closed when the iterator is dropped.
    match (answer.status == STATUS_YES, descriptors.next()) {
        (false, None) => Ok(Err(answer.reason())),
        (true, Some(file)) => Ok(Ok(file)),
        (false, Some(_)) | (true, None) => Err(PairError::Handshake),
    }
}

/// Connects to `shm:NAME` and asks for a segment. Without a pair, which the reason explains, the socket remains as a
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
    fn process_that_closed_at_once_was_a_broken_pipe_of_the_connect() {
        const OFFERS: usize = 2_000;
        let name = alloc::format!("pairing-closed-{}", std::process::id());
        let listener = PairListener::bind(&name, PairPolicy::default()).expect("the name is free");
        let closes = std::thread::spawn(move || {
            for _ in 0..OFFERS {
                drop(accept_with(&listener.socket, SocketFlags::CLOEXEC).expect("there is one"));
            }
        });
        for _ in 0..OFFERS {
            let offer = loop {
                match Offer::begin(&name, &SegmentConfig::default(), PairPolicy::default()) {
                    Err(PairError::System(Errno::AGAIN)) => std::thread::yield_now(),
                    begun => break begun.expect("the process has accepted"),
                }
            };
            offer.peer.wait().expect("the socket is closed");
            assert!(offer.advance().is_err(), "there is no answer");
        }
        closes.join().expect("it accepts them all");
    }

    #[test]
    fn messages_with_another_magic_or_version_are_refused() {
        let hello = Hello { status: 7, slots: 128, arena_bytes: 5 << 32 | 1 };
        assert_eq!(Hello::parse(&hello.bytes()), Some(hello));
        for at in 0..12 {
            let mut message = hello.bytes();
            message[at] ^= 1;
            assert_eq!(Hello::parse(&message), None, "byte {at}");
        }
    }
}
