//! The limits of this crate.

/// Bytes of a page; rings and the parts of a segment start at multiples of it.
pub const PAGE_BYTES: u64 = 4096;
/// Bytes of a huge page; a segment that asks for huge pages is a multiple of it.
pub const HUGE_PAGE_BYTES: u64 = 2 << 20;
/// Smallest ring in bytes.
pub const RING_BYTES_MIN: u64 = PAGE_BYTES;
/// Largest ring in bytes.
pub const RING_BYTES_MAX: u64 = RING_BYTES_MIN << RING_ORDER_MAX;
/// Largest order of a ring; a ring of order `n` has `RING_BYTES_MIN << n` bytes.
pub const RING_ORDER_MAX: u32 = 10;
/// Fewest connection slots of a segment; half of them belong to each side.
pub const SLOTS_MIN: u32 = 128;
/// Most connection slots of a segment.
pub const SLOTS_MAX: u32 = 1 << 16;
/// Fewest bytes for the rings of one side.
pub const ARENA_BYTES_MIN: u64 = RING_BYTES_MIN;
/// Most bytes for the rings of one side.
pub const ARENA_BYTES_MAX: u64 = 1 << 30;
/// Bytes of the control words of one direction of a connection.
pub const DIRECTION_BYTES: u64 = 256;
/// Most bytes of a segment: what the largest slot table and two of the largest arenas need.
pub const SEGMENT_BYTES_MAX: u64 = 3 << 30;
/// Most closed connections that one call looks at to reclaim their memory.
pub const RECLAIM_STEPS_MAX: usize = 16;
/// Most looks at the control word of a switched direction in one call; after them the caller tries again later.
pub const SWITCH_ATTEMPTS_MAX: usize = 8;
/// Most attempts to change the control word of a switched direction, which a dishonest peer may change all the time.
pub const CONTROL_ATTEMPTS_MAX: usize = 64;
/// Most processes that have a segment open and use switched directions.
pub const PROCESSES_MAX: u32 = 64;
/// Most threads of all processes that use the switched directions of a segment.
pub const THREADS_MAX: u32 = 256;
/// Most processes that have one end of a switched direction open.
pub const HOLDERS_MAX: usize = 8;
/// Most calls of one thread at once: one, and those of signal handlers that interrupt each other.
pub const CALL_DEPTH_MAX: usize = 4;
/// Looks for a token that only spin.
pub const TOKEN_BUSY_POLLS: u32 = 64;
/// Looks for a token that yield the core, after those that spin.
pub const TOKEN_YIELDS: u32 = 64;
/// Looks for a token that sleep, after those that yield. After them the thread that has it counts as stopped.
pub const TOKEN_NAPS: u32 = 20;
/// Length of such a sleep in nanoseconds.
pub const TOKEN_NAP_NS: u32 = 50_000;
/// Looks for which the owner of a token leaves it to a thread that wants it.
pub const TOKEN_GIVE_WAY_LOOKS: u32 = TOKEN_BUSY_POLLS + TOKEN_YIELDS / 2;
/// Takeovers in quick succession after which the threads of an end share a lock.
pub const SHARED_AFTER_REVOCATIONS: u32 = 2;
/// Longest time in nanoseconds between takeovers in quick succession.
pub const REVOCATION_WINDOW_NS: u64 = 1_000_000;
/// Locks of one thread in sequence, without another that waits, after which it owns the token.
pub const BIAS_AFTER_LOCKS: u32 = 64;
/// Bytes of each message of the handshake.
pub const HANDSHAKE_BYTES: usize = 32;
/// Longest wait for the other side's message of the handshake, in milliseconds.
pub const HANDSHAKE_TIMEOUT_MS: u64 = 1000;
/// Signals that one look takes; further ones are left to the next.
pub const SIGNALS_PER_LOOK_MAX: usize = 512;
/// Sleeps after which an edge-triggered event loop takes their signals; one sleep has one signal at most.
pub const SIGNALS_UNREAD_MAX: u32 = 4;
/// Memory that the kernel charges for an unread signal, at most.
pub const SIGNAL_BYTES_CHARGED: u32 = 768;
/// Smallest buffer of a socket that the kernel lets anyone set.
pub const SOCKET_BYTES_MIN: u32 = 4608;
/// Most bytes of a name behind `shm:`.
pub const NAME_BYTES_MAX: usize = 90;
/// Most processes that wait to be accepted.
pub const PAIRING_BACKLOG: i32 = 128;
/// Looks at a ring between two looks at the clock, while a stream busy-polls.
pub const BUSY_POLL_LOOKS: u32 = 32;
/// Most waits of a stream that do not busy-poll, after others did without success.
pub const BUSY_POLL_PAUSE_MAX: u32 = 1023;
/// Time in nanoseconds after which a wait that busy-polls yields the core to other threads.
pub const BUSY_POLL_YIELD_NS: u64 = 5_000;
/// Shortest time in nanoseconds of a call that has let another thread run.
pub const CORE_SWITCH_NS: u64 = 800;
/// Shortest time in nanoseconds of such a call that shows a program which does not give the core back.
pub const CORE_LOST_NS: u64 = 1_000_000;
/// Shortest time in nanoseconds without busy-polling after that.
pub const CORE_LOST_PAUSE_NS_MIN: u64 = 10_000_000;
/// Longest such time.
pub const CORE_LOST_PAUSE_NS_MAX: u64 = 400_000_000;
/// Time after such a pause in which the same makes the next one twice as long, as a multiple of the time that was lost.
pub const CORE_LOST_AGAIN: u64 = 200;
/// Longest sleep on a futex in milliseconds, before a wait looks whether the other process lives.
pub const FUTEX_SLEEP_MS_MAX: u32 = 20;
/// Most streams of which a watch watches the other processes.
pub const PEERS_WATCHED_MAX: u32 = 500;
/// Reports of the kernel that a watch takes at once.
pub const WATCH_REPORTS_MAX: usize = 64;
/// Sleep of a watch in nanoseconds behind reports that were not the end of another process. One can cause them.
pub const WATCH_NAP_NS: u32 = 1_000_000;
/// Most bytes that a send or a receive copies before the other side sees them, so that both copy at the same time.
pub const PIECE_BYTES_MAX: u64 = 32 << 10;
/// Most connections of a set of clients.
pub const CLIENT_CONNS_MAX: u32 = SLOTS_MAX / 2;
/// Most processes that a set of clients is paired with.
pub const CLIENT_PAIRS_MAX: usize = 64;
/// Pairs that a connect of a client is moved to, after one refused it or ended.
pub const CLIENT_MOVES_MAX: u32 = 4;
/// Reports of the kernel that one wait of a set of clients takes.
pub const CLIENT_REPORTS_MAX: usize = 512;
/// Times its first ring that a connection of a client has in a pair on average; some grow to their largest.
pub const CLIENT_RING_SHARE: u64 = 16;
/// Rings of a client that can grow to their largest at the same time, however few connections it has.
pub const CLIENT_GROWN_RINGS: u64 = 8;
/// Looks at an empty ring of a client after which the other side has to set a ready bit.
pub const CLIENT_IDLE_LOOKS_MAX: u32 = 64;
/// Waits of a set of clients that find something in shared memory, before one asks the kernel.
pub const CLIENT_LOOKS_MAX: u32 = 32;
/// Times its size to which a full ring of a client or a stream grows.
pub const RING_GROWTH: u64 = 4;

const _: () = {
    assert!(RING_BYTES_MAX <= 4 << 20, "a cut holds 24 bits of an index: two rings fit into them");
    assert!(PROCESSES_MAX < 256, "a process has 8 bits in the number of a holder");
    assert!(THREADS_MAX < 1 << 16, "a thread has 16 bits in a token");
    assert!(
        (SIGNALS_UNREAD_MAX + 2) * SIGNAL_BYTES_CHARGED <= SOCKET_BYTES_MIN,
        "a signal finds space, or another one that is not reported"
    );
    assert!(
        8 * (1 + PEERS_WATCHED_MAX as u64) <= PAGE_BYTES,
        "a page has the state of a watch and one of each stream"
    );
    assert!(SLOTS_MIN.is_power_of_two() && SLOTS_MAX.is_power_of_two());
    assert!(SLOTS_MIN / 2 >= 64, "the slots of one side fill whole words of the ready bitmap");
    assert!(ARENA_BYTES_MIN.is_power_of_two() && ARENA_BYTES_MAX.is_power_of_two());
    assert!(
        2 * ARENA_BYTES_MAX
            + 2 * (DIRECTION_BYTES + 128) * (SLOTS_MAX as u64)
            + HUGE_PAGE_BYTES
            + 32 * PAGE_BYTES
            <= SEGMENT_BYTES_MAX
    );
};
