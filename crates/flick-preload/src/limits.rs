//! The limits of the preloaded library.

/// Descriptors of a process that are followed: numbers below this.
pub const FDS_MAX: usize = 1 << 16;

/// Descriptors in a chunk of the table. A chunk is populated when its first descriptor is entered.
pub const CHUNK_FDS: usize = 256;

/// Chunks of the table.
pub const CHUNKS_MAX: usize = FDS_MAX / CHUNK_FDS;

/// Bytes of a path: the library's, the directory of states, a patched text.
pub const PATH_BYTES_MAX: usize = 512;

/// Variables of an environment that is completed for a new image; a larger one is passed unchanged.
pub const ENVIRONMENT_MAX: usize = 1000;

/// Bytes of an `LD_PRELOAD` that is completed for a new image.
pub const PRELOAD_BYTES_MAX: usize = 2048;

/// Descriptors in one message (`SCM_MAX_FD` of the kernel).
pub const PASSED_FDS_MAX: usize = 253;

/// Messages of one `sendmmsg` or `recvmmsg` (`UIO_MAXIOV` of the kernel).
pub const MESSAGES_MAX: usize = 1024;

/// Bytes of control data that are looked through for descriptors.
pub const CONTROL_BYTES_MAX: usize = 1 << 14;

/// Libraries in a process's list that are looked at for libc and for this library.
pub const LIBRARIES_MAX: usize = 4096;

/// Sites in a patched text.
pub const SITES_MAX: usize = 512;

/// Runs of pages in a patched text.
pub const RUNS_MAX: usize = 128;

/// Bytes of a patched text's file.
pub const IMAGE_BYTES_MAX: usize = 4 << 20;

/// Bytes of a page.
pub const PAGE_BYTES: usize = 4096;

const _: () = assert!(FDS_MAX.is_multiple_of(CHUNK_FDS));

/// Comparisons of a connection with the kernel's counts before it counts as different.
pub const COMPARISONS_MAX: u32 = 4;

/// Bytes of the ring of a pipe.
pub const RING_BYTES: u64 = 1 << 16;

/// Bytes of a pipe of the kernel that may move: the default. A pipe of another size stays in the kernel.
pub const PIPE_BYTES: u64 = 1 << 16;

/// Bytes that one write passes whole, if they fit (`PIPE_BUF` of the kernel).
pub const PIPE_BUF: u64 = 4096;

/// Bytes that a ring holds: what its pipe can take beside the last write through the kernel, in whole pages.
pub const RING_BYTES_MAX: u64 = PIPE_BYTES - PIPE_BUF;

/// Bytes of a segment: a page of words and the ring.
pub const SEGMENT_BYTES: u64 = PAGE_BYTES as u64 + RING_BYTES;

/// Directions of a process that are moved at a time: pipes have one, connections two.
pub const MOVED_MAX: usize = 256;

const _: () = assert!(MOVED_MAX.is_multiple_of(64));

/// Bytes of the send buffer of a socket that may move: it takes what a ring holds beside what is in flight.
pub const SEND_BUFFER_MIN: u64 = 160 << 10;

/// Time for which a receiver waits for bytes that were sent before the ring, until it returns to the kernel.
pub const IN_FLIGHT_MS_MAX: u64 = 50;

/// Smallest number of a descriptor that is kept, so that one is free when bytes are returned to a pipe.
pub const RESERVE_FD_MIN: u64 = 200;

/// Calls through the kernel after which a pipe or a connection is to move; also after each power of two of calls
/// beyond.
pub const MOVE_CALLS_MIN: u32 = 32;

/// Time that an end sleeps beside the ring, before it returns to the kernel and sleeps there.
pub const SLEEP_NS_MAX: u64 = 20_000_000;

/// Time that an end waits for one that returns bytes to the kernel, before it looks whether that one is dead.
pub const FROZEN_NS_MAX: u64 = 1_000_000;

/// Time that a close or an exit waits at most for an end that returns bytes to the kernel: it may be stopped there.
pub const CLOSE_NS_MAX: u64 = 100_000_000;

/// Cycles for which an end polls before it sleeps: some 60 microseconds. That is longer than a halted core takes to
/// wake: else two ends that wait for each other in turn would both be asleep each time.
pub const POLL_CYCLES: u64 = 150_000;

/// Cycles for which an end polls without a permit: a microsecond, which is less than it costs to fall asleep and wake.
pub const FREE_POLL_CYCLES: u64 = 2_500;

/// Cycles after which a permit to poll lapses: that of a process which was stopped or killed.
pub const PERMIT_CYCLES: u64 = 2 * POLL_CYCLES;

/// Permits to poll: as many as a page holds.
pub const PERMITS_MAX: usize = 63;

const _: () = assert!(FREE_POLL_CYCLES < YIELD_CYCLES && YIELD_CYCLES < POLL_CYCLES);

/// Cycles after which a polling end yields its core.
pub const YIELD_CYCLES: u64 = 10_000;

/// Waits that sleep at once after polling has failed, at most.
pub const POLL_SKIPS_MAX: u32 = 1023;

/// Reads between two sleeps of a receiver, from which on the ring is worth it.
pub const SLEEP_READS_MIN: u64 = 8;

/// Reads since the last sleep of a receiver, after which its sender executes no fences for it any more. The next sleep
/// needs a barrier on all cores again.
pub const FENCED_READS_MAX: u64 = 256;

/// Sleeps after fewer reads, after which the receiver returns to the kernel.
pub const POOR_SLEEPS_MAX: u32 = 4;

/// Cycles after which a sender looks again whether the receiver is alive: less than a millisecond.
pub const ALIVE_CYCLES: u64 = 1 << 21;

/// Looks at the state of one that enters the ring, before the receiver refuses.
pub const ENTERING_LOOKS_MAX: u32 = 1000;

/// Pauses of a sender that waits for an empty pipe, to enter the ring.
pub const EMPTY_PAUSES_MAX: u32 = 20;

/// Cycles for which it waits at most: less than a millisecond.
pub const EMPTY_CYCLES: u64 = 1 << 21;

/// Length of each such pause.
pub const EMPTY_PAUSE_NS: u64 = 50_000;

/// Writes through the kernel between two attempts to enter the ring, at most, as a power of two.
pub const ENTER_SKIPS_LOG2_MAX: u32 = 12;

/// Sends in one epoch of the ring, from which on it was worth entering.
pub const ENTER_SENDS_MIN: u64 = 64;

const _: () = assert!(RING_BYTES_MAX < RING_BYTES && RING_BYTES_MAX + PIPE_BUF <= PIPE_BYTES);
const _: () = assert!(2 * (RING_BYTES_MAX + PIPE_BUF) < SEND_BUFFER_MIN);

/// Epoll instances of a process that are followed.
pub const EPOLLS_MAX: usize = 16;

/// Cycles in which `epoll_wait` asks the kernel once, while rings are ready: some 20 microseconds.
pub const ASK_CYCLES: u64 = 50_000;

/// Calls of `epoll_wait` that rings answer between two such questions, at most.
pub const ASK_SKIPS_MAX: u32 = 32;

/// Bits for files that threads wait for by `poll` or `select`: a bit is of all files whose first descriptors are equal
/// modulo this.
pub const POLLED_BITS: usize = 62;

/// Threads of a process that wait beside rings; more wait in the kernel.
pub const WAITERS_MAX: usize = 16;

/// Waits of more threads between two looks for one that has ended.
pub const WAITER_MISSES: u32 = 256;

/// Files of a `poll` that waits beside rings; one of more waits in the kernel.
pub const POLL_ENTRIES_MAX: usize = 128;

/// Descriptors of a `select` (`FD_SETSIZE` of libc).
pub const SELECT_FDS_MAX: usize = 1024;

/// Sleeps of one wait that end without a cause, before it returns to the kernel.
pub const SPURIOUS_MAX: u32 = 8;

/// Bytes that one call moves at most (`MAX_RW_COUNT` of the kernel).
pub const CALL_BYTES_MAX: u64 = 0x7fff_f000;

/// Time that a thread sleeps for a direction that another thread uses, before it looks whether the other thread is
/// alive.
pub const TOKEN_NAP_NS: u64 = 1_000_000;

/// Such sleeps of a call that waits, before the file returns to the kernel for good.
pub const TOKEN_NAPS_MAX: u32 = 100;

/// Time that a thread which closes or replaces a descriptor waits at most for another one that goes on with a duplicate
/// of it: on a busy machine that one may not run for tens of milliseconds.
pub const PARTED_NS_MAX: u64 = 100_000_000;

/// Time between two looks whether it does.
pub const PARTED_NAP_NS: u64 = 20_000;

/// Time that a thread sleeps for the lock of all files, before it looks again.
pub const LOCK_NAP_NS: u64 = 20_000_000;

/// Threads that make processes at a time and are noted; where there are more, one that ends at once keeps all in the
/// kernel.
pub const FORKERS_MAX: usize = 8;

/// Looks at an offer while a thread makes a process, between two looks for one that has ended.
pub const FORKER_LOOKS: u32 = 256;

/// Calls in which an offer is looked at again, since other threads send or receive meanwhile and the counts differ.
pub const OFFER_TRIES_MAX: u32 = 64;
