//! System calls of connections that move: what is in flight, the socket at the other end, the bytes of messages.
//! Promises: a socket of another process is used only while its cookie proves that it is the one which was meant.

use super::pipe::{PipeSegment, Vectors, poll};
use super::{ProgramMemory, SOL_SOCKET, call, close, own, plain, socket_option};
use crate::limits::SEND_BUFFER_MIN;
use crate::numbers as nr;
use crate::state::Kind;

const GETSOCKNAME: u32 = 51;
const GETPEERNAME: u32 = 52;
const PIDFD_OPEN: u32 = 434;
const PIDFD_GETFD: u32 = 438;

const SOL_TCP: u64 = 6;
const SO_SNDBUF: u64 = 7;
const SO_PASSCRED: u64 = 16;
const SO_RCVLOWAT: u64 = 18;
const SO_RCVTIMEO: u64 = 20;
const SO_SNDTIMEO: u64 = 21;
const SO_PASSSEC: u64 = 34;
const SO_PEEK_OFF: u64 = 42;
const SO_COOKIE: u64 = 57;
const SO_NETNS_COOKIE: u64 = 71;
const SO_PASSPIDFD: u64 = 76;
const TCP_CORK: u64 = 3;
const TCP_ULP: u64 = 31;

const POLLIN: u64 = 1;
/// `POLLERR`, `POLLHUP`, `POLLRDHUP`.
const ENDED: u64 = 0x2018;

/// Bytes that were sent and are not yet acknowledged (TCP), or not yet read (Unix).
pub fn outstanding_bytes(fd: u64) -> u64 {
    const OUTQ: u64 = 0x5411;
    let mut bytes = 0_u64;
    // SAFETY: the kernel writes four bytes to `bytes`.
    let result = unsafe { call(own::IOCTL, [fd, OUTQ, &raw mut bytes as u64, 0, 0, 0]) };
    if result == 0 { bytes } else { u64::MAX }
}

/// Whether the other end has ended or is closed, or has said that it sends no more.
pub fn has_ended(fd: u64) -> bool {
    poll(fd, ENDED, 0) & ENDED != 0
}

/// Waits until there is something to read, for this time at most; returns whether there is.
pub fn is_readable(fd: u64, ms: u64) -> bool {
    poll(fd, POLLIN, ms) != 0
}

/// Sends a part of a ring without waiting; returns the kernel's result.
pub fn send(segment: PipeSegment, fd: u64, index: u64, bytes: u64) -> i64 {
    const NOSIGNAL_DONTWAIT: u64 = 0x4040;
    let (at, first) = segment.at(index);
    // SAFETY: the range is a part of the ring.
    unsafe { call(nr::SENDTO, [fd, at, first.min(bytes), NOSIGNAL_DONTWAIT, 0, 0]) }
}

/// Whether something can be sent.
pub fn is_writable(fd: u64) -> bool {
    const POLLOUT: u64 = 4;
    poll(fd, POLLOUT, 0) & POLLOUT != 0
}

/// Acknowledges what was received at once (`TCP_QUICKACK`).
pub fn acknowledge(fd: u64) {
    const TCP_QUICKACK: u64 = 12;
    let on = 1_u32;
    // SAFETY: the kernel reads four bytes.
    unsafe { call(nr::SETSOCKOPT, [fd, SOL_TCP, TCP_QUICKACK, &raw const on as u64, 4, 0]) };
}

/// Waits until more can be sent.
pub fn wait_writable(fd: u64) {
    const POLLOUT: u64 = 4;
    const WRITABLE_MS_MAX: u64 = 100;
    poll(fd, POLLOUT, WRITABLE_MS_MAX);
}

/// An option of up to 16 bytes.
fn option_words(fd: u64, level: u64, name: u64) -> Option<[u64; 2]> {
    let (mut value, mut bytes) = ([0_u64; 2], 16_u32);
    let arguments = [fd, level, name, value.as_mut_ptr() as u64, &raw mut bytes as u64, 0];
    // SAFETY: the kernel writes at most `bytes` bytes to `value`, and the length to `bytes`.
    let result = unsafe { call(own::GETSOCKOPT, arguments) };
    (result == 0).then_some(value)
}

/// Whether a connection waits without a limit of time or not at all, has a large send buffer, and no settings that
/// change its bytes or say who has sent them.
pub fn is_plain(fd: u64, kind: Kind) -> bool {
    const GET_FLAGS: u64 = 3;
    // `O_RDWR`, `O_LARGEFILE`, `O_NONBLOCK`.
    const PLAIN: i64 = 0o104_002;
    // `SO_PEEK_OFF` where peeks begin with the next byte.
    const NO_OFFSET: u64 = 0xffff_ffff;
    let flags = plain(own::FCNTL, [fd, GET_FLAGS, 0]);
    let has_time = |name| option_words(fd, SOL_SOCKET, name) != Some([0, 0]);
    let is_own_kind = match kind {
        // A layer above TCP, as kTLS is. With `TCP_CORK` the last write before a ring would be held back.
        Kind::Tcp => [TCP_ULP, TCP_CORK]
            .iter()
            .all(|name| option_words(fd, SOL_TCP, *name).is_none_or(|value| value == [0, 0])),
        // Old kernels do not know all of them.
        _ => [SO_PASSCRED, SO_PASSSEC, SO_PASSPIDFD]
            .iter()
            .all(|name| socket_option(fd, *name).unwrap_or(0) == 0),
    };
    flags >= 0
        && flags & !PLAIN == 0
        && is_own_kind
        && !has_time(SO_RCVTIMEO)
        && !has_time(SO_SNDTIMEO)
        && socket_option(fd, SO_PEEK_OFF).is_none_or(|bytes| bytes == NO_OFFSET)
        && socket_option(fd, SO_RCVLOWAT) == Some(1)
        && socket_option(fd, SO_SNDBUF).is_some_and(|bytes| bytes >= SEND_BUFFER_MIN)
}

/// An address of TCP: sixteen bytes, in which those of version 4 are mapped to version 6, and the port.
type Address = (u64, u64, u16);

fn address(number: u32, fd: u64) -> Option<Address> {
    const IPV4: u16 = 2;
    const IPV6: u16 = 10;
    const MAPPED: u64 = 0xffff << 32;
    let (mut name, mut bytes) = ([0_u64; 4], 32_u32);
    // SAFETY: the kernel writes at most `bytes` bytes to `name`, and the length to `bytes`.
    let result = unsafe { call(number, [fd, name.as_mut_ptr() as u64, &raw mut bytes as u64, 0, 0, 0]) };
    if result != 0 {
        return None;
    }
    let port = (name[0] >> 16) as u16;
    // The port as it lies in memory: only equality counts.
    match name[0] as u16 {
        IPV4 => Some((0, (name[0] >> 32).swap_bytes() >> 32 | MAPPED, port)),
        IPV6 => Some((name[1].swap_bytes(), name[2].swap_bytes(), port)),
        _ => None,
    }
}

/// The addresses of both ends, the own one first.
fn addresses(fd: u64) -> Option<(Address, Address)> {
    Some((address(GETSOCKNAME, fd)?, address(GETPEERNAME, fd)?))
}

/// A number that is equal for both ends of a connection of TCP, and rarely for others. 0: there is none.
pub fn pair_of(fd: u64) -> u64 {
    const MULTIPLIER: u64 = 0x9e37_79b9_7f4a_7c15;
    let Some((local, remote)) = addresses(fd) else { return 0 };
    let (low, high) = if local < remote { (local, remote) } else { (remote, local) };
    let namespace = socket_option(fd, SO_NETNS_COOKIE).unwrap_or_default();
    let words = [low.0, low.1, high.0, high.1, u64::from(low.2) << 16 | u64::from(high.2), namespace];
    let mix = |hash: u64, word: &u64| (hash.rotate_left(29) ^ word).wrapping_mul(MULTIPLIER);
    words.iter().fold(1, mix)
}

/// The cookie of a socket.
pub fn cookie(fd: u64) -> Option<u64> {
    socket_option(fd, SO_COOKIE).filter(|cookie| *cookie != 0)
}

/// Duplicates a descriptor of another process.
pub(super) fn descriptor_of(process: u32, fd: u32) -> Option<u64> {
    let process = u64::try_from(plain(PIDFD_OPEN, [u64::from(process), 0, 0])).ok()?;
    let own = plain(PIDFD_GETFD, [process, u64::from(fd), 0]);
    close(process);
    u64::try_from(own).ok()
}

/// A socket of another process, which [`close`] closes. Having one means that it has the cookie that was asked for.
#[derive(Debug)]
pub struct PeerSocket(u64);

impl PeerSocket {
    /// Gets it.
    pub fn of(process: u32, fd: u32, expected_cookie: u64) -> Option<Self> {
        let socket = Self(descriptor_of(process, fd)?);
        (cookie(socket.0) == Some(expected_cookie)).then_some(socket)
    }

    /// Its descriptor in this process.
    pub fn fd(&self) -> u64 {
        self.0
    }

    /// Whether it holds small sends back until earlier ones are acknowledged (Nagle's algorithm).
    pub fn holds_back(&self) -> bool {
        const TCP_NODELAY: u64 = 1;
        option_words(self.0, SOL_TCP, TCP_NODELAY) == Some([0, 0])
    }

    /// Whether it is the other end of a connection of TCP.
    pub fn is_other_end_of(&self, fd: u64) -> bool {
        let namespace = |fd| socket_option(fd, SO_NETNS_COOKIE);
        let (own, other) = (addresses(fd), addresses(self.0));
        own.is_some()
            && own == other.map(|(local, remote)| (remote, local))
            && namespace(fd) == namespace(self.0)
    }
}

impl Drop for PeerSocket {
    fn drop(&mut self) {
        close(self.0);
    }
}

/// The bytes of a call on a socket. `None`: the kernel has to judge it, since it has an address, control data or flags
/// that a ring does not obey. A connection of TCP ignores the address of a send.
pub fn bytes_of(
    kind: Option<Kind>,
    number: u32,
    arguments: [u64; 6],
    memory: ProgramMemory,
) -> Option<Vectors> {
    const PLAIN_RECEIVES: u64 = 0x4000 | nr::MSG_DONTWAIT | nr::MSG_PEEK;
    const ADDRESS_BYTES_MAX: u64 = 128;
    let [_, address, bytes, flags, name, name_bytes] = arguments;
    let is_tcp = kind == Some(Kind::Tcp);
    match number {
        nr::SENDTO if flags & !nr::PLAIN_SENDS == 0 => {
            let is_plain = name == 0 || is_tcp && name_bytes <= ADDRESS_BYTES_MAX;
            is_plain.then(|| Vectors::range(memory, address, bytes, flags)).flatten()
        }
        nr::RECVFROM if flags & !PLAIN_RECEIVES == 0 => {
            let is_length = || name_bytes != 0 && memory.half(name_bytes) as i32 >= 0;
            let is_plain = name == 0 || is_tcp && is_length();
            is_plain.then(|| Vectors::range(memory, address, bytes, flags & nr::MSG_PEEK)).flatten()
        }
        nr::SENDMSG if bytes & !nr::PLAIN_SENDS == 0 => message(memory, address, bytes),
        nr::RECVMSG if bytes & !PLAIN_RECEIVES == 0 => message(memory, address, bytes & nr::MSG_PEEK),
        nr::READ | nr::WRITE | nr::READV | nr::WRITEV => Vectors::of(number, arguments, memory),
        _ => None,
    }
}

const MESSAGE_CONTROL_BYTES: u64 = 40;
const MESSAGE_FLAGS: u64 = 48;

/// The bytes of a message without an address and control data.
fn message(memory: ProgramMemory, header: u64, flags: u64) -> Option<Vectors> {
    let word = |at| memory.word(header + at);
    let (name, list, count, control, control_bytes) =
        (word(0), word(16), word(24), word(32), word(MESSAGE_CONTROL_BYTES));
    if name != 0 || control != 0 || control_bytes != 0 {
        return None;
    }
    Vectors::list(memory, list, count, flags)
}

/// Completes a receive: a message of `recvmsg` has no flags, and `recvfrom` has no address of a connection of TCP.
pub fn complete(number: u32, arguments: [u64; 6], memory: ProgramMemory) {
    match number {
        // Four bytes of flags, and four that pad.
        nr::RECVMSG => memory.set_word(arguments[1] + MESSAGE_FLAGS, 0),
        nr::RECVFROM if arguments[4] != 0 => memory.set_half(arguments[5], 0),
        _ => {}
    }
}
