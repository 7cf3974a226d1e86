//! Every bound of this crate, and how they relate.

use std::time::Duration;

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

/// How often the end of the line in front of a driver's polls is marked.
pub const LINE_MARK_NS: u64 = 10_000_000;

/// Marks in that line at a time; of a longer one a part has none.
pub const LINE_MARKS_MAX: usize = 32;

/// Fewest events a poll must have room for, so that no kind of event starves another.
pub const EVENTS_MIN: usize = 8;

/// A receive buffer with less room than this is given up for a fresh one.
pub const RECEIVE_SPARE_MIN: u32 = 4096;

/// Bytes thrown away after a close so that what we wrote last reaches a peer who is still sending.
pub const LINGER_BYTES_MAX: usize = 1 << 20;

/// Receives of one closing connection in one poll.
pub const LINGER_RECEIVES_MAX: usize = 16;

/// Bytes one such receive throws away.
pub const LINGER_SCRATCH_BYTES: usize = 16 * 1024;

/// How long a closing connection waits for its peer to stop sending.
pub const LINGER_NS_MAX: u64 = 1_000_000_000;

/// How long a peer is waited for that was there and that another driver on the same socket takes in that moment.
pub const ACCEPT_WAIT_MAX: Duration = Duration::from_millis(1);

/// How often connections on a ring are looked at whose peer may be gone untold.
pub const LOOK_NS: u64 = 500_000_000;

/// Connections looked at each time: a system call for each that something has come from.
pub const LOOKS_MAX: u32 = 1024;

/// Large buffers the ring holds ready for the kernel to receive into.
pub const PROVIDED_BUFS_MAX: u16 = 16;

/// Requests handed to the ring by one system call.
pub const RING_REQUESTS_MAX: u32 = 512;

/// Results the ring holds before the kernel keeps them aside.
pub const RING_RESULTS_MAX: u32 = 4096;

/// Pieces that arrived for connections whose receiving was turned off meanwhile.
pub const STASH_SLICES_MAX: u32 = 4096;

/// Peers the kernel had accepted when the platform paused a listener; more are let go.
pub const ACCEPTS_PARKED_MAX: usize = 1024;

/// Vectors for gathered writes in one system call's worth of requests.
pub const RING_VECTORS_MAX: usize = 4096;

/// Rounds in which a driver that is dropped waits for the kernel to let go of its buffers.
pub const RING_DRAIN_ROUNDS_MAX: usize = 64;

/// Peers of one door that have said nothing yet; beyond, whoever is silent for longest is let go.
pub const DOOR_SILENT_MAX: u32 = 1024;

/// How long a door that has no descriptor left waits before it accepts again.
pub const DOOR_AGAIN_NS: u64 = 100_000_000;

const _: () = assert!(PROVIDED_BUFS_MAX.is_power_of_two());
const _: () = assert!(RING_VECTORS_MAX >= WRITE_SLICES_MAX);
const _: () = assert!(RECEIVE_SPARE_MIN <= LARGE_BYTES);
const _: () = assert!(WRITE_SLICES_MAX <= 1024, "the kernel's UIO_MAXIOV");
/// Longest message between a process and the one that takes its place.
pub const PASSAGE_BYTES_MAX: usize = 8192;
/// Listening sockets that somebody else may have opened for this process.
pub const INHERITED_MAX: u32 = 256;
