//! Every bound of this crate, and how they relate.

use flick_buffers::LARGE_BYTES;

/// Connections the kernel keeps for one listener before they are accepted (it lowers this to its own limit).
pub const LISTEN_BACKLOG_MAX: i32 = 4096;

/// Listening sockets of one driver.
pub const LISTENERS_MAX: usize = 64;

/// Connections accepted by one poll, so that a flood of new peers cannot starve the present ones.
pub const ACCEPTS_PER_POLL_MAX: usize = 64;

/// Receives from one connection in one poll, so that a fast sender cannot starve the others.
pub const RECEIVES_PER_CONN_MAX: usize = 4;

/// Writes to one connection in one poll.
pub const WRITES_PER_CONN_MAX: usize = 8;

/// Pieces of output in one write.
pub const WRITE_SLICES_MAX: usize = 64;

/// Readiness reports taken from the kernel by one poll.
pub const KERNEL_EVENTS_MAX: usize = 512;

/// Fewest events a poll must have room for, so that no kind of event starves another.
pub const EVENTS_MIN: usize = 8;

/// A receive buffer with less room than this is given up for a fresh one.
pub const RECEIVE_SPARE_MIN: u32 = 4096;

/// Bytes thrown away after a close so that what we wrote last reaches a peer who is still sending.
pub const LINGER_BYTES_MAX: usize = 1 << 20;

/// Receives of one closing connection in one poll.
pub const LINGER_RECEIVES_MAX: usize = 16;

/// How long a closing connection waits for its peer to stop sending.
pub const LINGER_NS_MAX: u64 = 1_000_000_000;

const _: () = assert!(RECEIVE_SPARE_MIN <= LARGE_BYTES);
const _: () = assert!(WRITE_SLICES_MAX <= 1024, "the kernel's UIO_MAXIOV");
