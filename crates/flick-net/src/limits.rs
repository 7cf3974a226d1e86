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

/// Bytes after which a poll receives from no further connection, about half a millisecond's worth: what has arrived is
/// handled first. Thousands of fast senders would otherwise make a poll last for a tenth of a second.
pub const RECEIVED_BYTES_PER_POLL_MAX: usize = 1 << 20;

/// Ready connections from which on each is received from once in a poll: as many as fill it.
pub const READY_MANY: usize = RECEIVED_BYTES_PER_POLL_MAX / LARGE_BYTES as usize;

/// Ready connections that receive little and come before the others in a poll: together they fill half of it.
pub const READY_LIGHT_MAX: usize = RECEIVED_BYTES_PER_POLL_MAX / 2 / LIGHT_BYTES_MAX as usize;

/// Writes to one connection in one poll.
pub const WRITES_PER_CONN_MAX: usize = 8;

/// Pieces of output in one write.
pub const WRITE_SLICES_MAX: usize = 64;

/// Readiness events taken from the kernel by one poll.
pub const KERNEL_EVENTS_MAX: usize = 512;

/// Shortest time between two marks at a queue's tail.
pub const QUEUE_MARK_NS: u64 = 10_000_000;

/// Marks in a queue at a time; a part of a longer queue has none.
pub const QUEUE_MARKS_MAX: usize = 32;

/// Least capacity for events of one poll, so that no kind of event starves another.
pub const EVENTS_MIN: usize = 8;

/// Part of that capacity that connections leave to peers that may be there to be accepted.
pub const PEERS_SHARE: usize = 4;

/// A receive buffer with less spare capacity is replaced by a fresh one.
pub const RECEIVE_SPARE_MIN: u32 = 4096;

/// Bytes discarded after a close, so that our last output reaches a peer that is still sending.
pub const LINGER_BYTES_MAX: usize = 1 << 20;

/// Receives of one closing connection in one poll.
pub const LINGER_RECEIVES_MAX: usize = 16;

/// Bytes discarded by one such receive.
pub const LINGER_SCRATCH_BYTES: usize = 16 * 1024;

/// Longest time that a closing connection waits for its peer to stop sending.
pub const LINGER_NS_MAX: u64 = 1_000_000_000;

/// Longest time that a closed connection takes to send its output.
pub const FLUSH_NS_MAX: u64 = 60_000_000_000;

/// Longest wait of an accept when another driver on the same socket took the pending connection first.
pub const ACCEPT_WAIT_MAX: Duration = Duration::from_millis(1);

/// Interval of the probes for resets that io_uring did not report.
pub const PROBE_INTERVAL_NS: u64 = 500_000_000;

/// Connections probed at a time: a system call for each that has received something since its last probe.
pub const PROBES_MAX: u32 = 1024;

/// Large buffers the ring holds ready for the kernel to receive into.
pub const PROVIDED_BUFS_MAX: u16 = 16;

/// Connections that one poll of io_uring arms while there are too few buffers for all. Several small messages share a
/// buffer.
pub const ARMED_WHEN_SHORT_MAX: usize = 4 * PROVIDED_BUFS_MAX as usize;

/// A receive that brings no more than this is of a connection that comes before fast senders when there are more of
/// these than one poll serves.
pub const LIGHT_BYTES_MAX: u32 = LARGE_BYTES / 4;

/// Of the connections armed meanwhile, those that go first: together they fill half of the buffers.
pub const LIGHT_ARMED_MAX: usize = ARMED_WHEN_SHORT_MAX / 2;

/// Requests handed to the ring by one system call.
pub const RING_REQUESTS_MAX: u32 = 512;

/// Completions the ring holds before the kernel buffers them elsewhere.
pub const RING_RESULTS_MAX: u32 = 4096;

/// Pieces of input kept for connections whose receiving was turned off after the kernel had received them.
pub const STASH_SLICES_MAX: u32 = 4096;

/// Peers that are accepted and not delivered yet when a listener is paused, drained or finished: a whole listen
/// backlog, which the kernel lets exceed its limit by one. More are closed.
pub const ACCEPTS_PARKED_MAX: usize = LISTEN_BACKLOG_MAX as usize + 1;

/// I/O vectors in one system call's worth of requests.
pub const RING_VECTORS_MAX: usize = 4096;

/// Rounds in which a dropped driver waits for the kernel to release its buffers.
pub const RING_DRAIN_ROUNDS_MAX: usize = 64;

/// Time after which a kernel that lacks memory for requests is asked again.
pub const RING_RETRY: Duration = Duration::from_millis(1);

/// Times that the kernel is asked to take requests for which the queue has no place otherwise.
pub const RING_SUBMITS_MAX: usize = 1000;

/// Connections of one shared listener that have sent nothing; a further one evicts the oldest.
pub const PREREAD_CONNS_MAX: u32 = 1024;

/// Time that a shared listener, or one for claims, without a free descriptor waits before it accepts again.
pub const ACCEPT_RETRY_NS: u64 = 100_000_000;

/// Longest message between a process and its successor in a hot restart.
pub const FD_MESSAGE_BYTES_MAX: usize = 8192;

/// Listening sockets inherited from systemd.
pub const INHERITED_SOCKETS_MAX: u32 = 256;

/// Pairs with other processes of one driver.
pub const SHM_PAIRS_MAX: u32 = 1024;

/// Pairs of one driver with the same process, handshakes among them.
pub const SHM_PAIRS_OF_PROCESS_MAX: usize = 128;

/// Part of the descriptors of this process that the pairs of one driver with the same process may have: one in this
/// many.
pub const SHM_PAIRS_OF_PROCESS_FILES_SHARE: u64 = 16;

/// Part of the descriptors of this process that second pairs with another process do not take: one in this many.
pub const SHM_PAIRS_FILES_LEFT_SHARE: u64 = 4;

/// Memory of all pairs of one driver, its own rings excepted, in multiples of what those may have. It holds the rings
/// of the other processes, and the control words and tables of connections, whether they are in use or not.
pub const SHM_PAIR_MEMORY_FACTOR: u64 = 2;

/// Bytes of a connection slot: its control words, and its part of the tables of this process.
pub const SHM_SLOT_BYTES: u64 = 2 * flick_shm::limits::DIRECTION_BYTES + 64;

/// Part of the memory for pairs that its process may still have which a new pair may have for the rings of the other
/// process: one in this many.
pub const SHM_PAIR_ARENA_SHARE: u64 = 4;

/// The same part, for its slots.
pub const SHM_PAIR_SLOTS_SHARE: u64 = 8;

/// Fewest bytes for the rings of the other process; a driver that has fewer refuses the pair.
pub const SHM_ARENA_BYTES_MIN: u64 = 64 << 10;

/// Connection slots of a pair that this process asks for; half of them are for its connections.
pub const SHM_SLOTS: u32 = 2048;

/// Bytes for the rings of each side that it asks for.
pub const SHM_ARENA_BYTES: u64 = 16 << 20;

/// Most bytes for the rings of each side of a pair.
pub const SHM_ARENA_BYTES_MAX: u64 = 256 << 20;

/// Bytes of the rings of one driver, over all pairs, whatever memory it is granted.
pub const SHM_RING_BYTES_MAX: u64 = 256 << 20;

/// Share of a driver's ring memory that one ring may have: one in this many.
pub const SHM_RING_SHARE: u64 = 16;

/// Bytes of a new connection's ring.
pub const SHM_RING_BYTES_START: u64 = 4096;

/// Bytes up to which a full ring grows.
pub const SHM_RING_BYTES_GROWN_MAX: u64 = 256 << 10;

/// Factor by which a full ring grows.
pub const SHM_RING_GROWTH: u64 = 8;

/// Longest handshake of two processes.
pub const SHM_HANDSHAKE_NS_MAX: u64 = 1_000_000_000;

/// Longest time until the other side of a claim asks.
pub const CLAIM_QUESTION_NS_MAX: u64 = SHM_HANDSHAKE_NS_MAX;

/// Claims of one driver whose other side has not asked yet.
pub const SILENT_CLAIMS_MAX: u32 = 64;

/// Part of a driver's connections through shared memory that such claims may have: one in this many.
pub const SILENT_CLAIMS_SHARE: u32 = 4;

/// Part of such claims that one process may have: one in this many.
pub const SILENT_CLAIMS_PROCESS_SHARE: u32 = 4;

/// Handshakes that one poll advances: each maps a segment and allocates, so that many of them would stall connections.
pub const SHM_HANDSHAKES_PER_POLL_MAX: usize = 16;

/// Ready bits after which a poll looks at no further pair.
pub const SHM_READY_BITS_PER_POLL_MAX: usize = 8192;

/// Bytes that are received from a process after its end: what its former ring and its present one can hold.
pub const SHM_LATE_BYTES_MAX: u64 = 2 * flick_shm::limits::RING_BYTES_MAX;

/// Pairs that a connect is moved to, after one refused it or ended.
pub const SHM_MOVES_MAX: u32 = 8;

/// Time between two lines in the log about connections without memory for their rings.
pub const SHM_REFUSALS_LOG_NS: u64 = 60_000_000_000;

/// Time that a pair without connections is kept.
pub const SHM_PAIR_UNUSED_NS_MAX: u64 = 10_000_000_000;

/// Pairs that are compared for the next connection to be accepted.
pub const SHM_FAIR_LOOKS_MAX: usize = 8;

/// Looks at an empty ring, or at empty ready bits, after which the other side has to signal.
pub const SHM_IDLE_LOOKS_MAX: u32 = 64;

/// Polls that serve connections through shared memory only, before the kernel is asked.
pub const SHM_POLLS_MAX: u32 = 32;

/// Time in which such polls may follow each other.
pub const SHM_POLLS_NS_MAX: u64 = 50_000;

/// Nanoseconds between two looks at the kernel while a driver busy-polls rings.
pub const SHM_BUSY_POLL_KERNEL_NS: u64 = 10_000;

/// Exchanges of an outgoing connection before it looks for rings: short connections do not pay for it.
pub const UPGRADE_EXCHANGES_MIN: u32 = 3;

/// Time after the first failed attempt before the next one; it grows with the square of the failures.
pub const UPGRADE_RETRY_NS: u64 = 1_000_000_000;

/// Attempts of a connection to find rings, one after the other.
pub const UPGRADE_ATTEMPTS_MAX: u8 = 3;

/// Looks at the kernel's counts of an adopted connection, at which bytes arrive, before it stays in the kernel.
pub const STREAM_OFFSET_LOOKS_MAX: usize = 8;

/// Accepted connections of Unix sockets that are compared with one question.
pub const UPGRADE_UNIX_LOOKS_MAX: usize = 256;

/// Workers of all processes of a host that listen at one address and offer rings.
pub const UPGRADE_NAMES_MAX: u8 = 64;

/// Time for which a name is taken to be absent.
pub const UPGRADE_NAMES_NS: u64 = 1_000_000_000;

/// Addresses of which absent names are remembered.
pub const UPGRADE_PORTS_MAX: usize = 16;

/// Time between two looks for connections to upgrade.
pub const UPGRADE_LOOK_NS: u64 = 1_000_000;

/// Absent names that one such look tries: each costs three system calls.
pub const UPGRADE_NAMES_PER_LOOK_MAX: u32 = 8;

/// Connections that one such look considers.
pub const UPGRADE_LOOKS_MAX: usize = 16;

/// Longest reply of the kernel to a question about one socket that is read; the rest is not needed.
pub const DIAG_REPLY_BYTES_MAX: usize = 128;

/// Replies to earlier questions that are skipped.
pub const DIAG_REPLIES_MAX: usize = 4;

/// Time after which a connection that does not return to the kernel counts as one that cannot be detached.
pub const DOWNGRADE_NS_MAX: u64 = 500_000_000;

const _: () = assert!(PROVIDED_BUFS_MAX.is_power_of_two());
const _: () = assert!(RING_VECTORS_MAX >= WRITE_SLICES_MAX);
const _: () = assert!(
    LIGHT_ARMED_MAX * LIGHT_BYTES_MAX as usize <= PROVIDED_BUFS_MAX as usize * LARGE_BYTES as usize / 2
);
const _: () = assert!(RECEIVE_SPARE_MIN <= LARGE_BYTES);
const _: () = assert!(WRITE_SLICES_MAX <= 1024, "the kernel's UIO_MAXIOV");
