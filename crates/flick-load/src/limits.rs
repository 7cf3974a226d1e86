//! The limits of this crate.
//!
//! Promises: no buffer, queue, table or retry of the crate grows past a constant named here or a setting that is
//! checked against one.
//! Source: the item limits are memcached's own (250-byte keys, 1 MiB items).

use std::time::Duration;

/// Longest key, in bytes: the protocol's limit.
pub const KEY_BYTES_MAX: usize = 250;

/// Largest value of one item, in bytes: memcached's default.
pub const VALUE_BYTES_MAX: usize = 1 << 20;

/// Largest body the store keeps; a longer one is skipped and answered with `ValueTooLarge`.
pub const BODY_BYTES_MAX: usize = VALUE_BYTES_MAX + KEY_BYTES_MAX + 20;

/// Bytes the store reads at once, shared by all its connections.
pub const STORE_READ_BYTES: usize = 64 << 10;

/// Unsent bytes of a connection above which the store stops reading from it.
pub const STORE_UNSENT_BYTES_MAX: usize = 256 << 10;

/// Buffer capacity that an idle connection of the store may keep.
pub const STORE_IDLE_BYTES_MAX: usize = 4 << 10;

/// Readiness events taken from the kernel at once.
pub const EVENTS_MAX: usize = 512;

/// Connections accepted in one iteration of the store's loop, so that a flood of them cannot starve the open ones.
pub const ACCEPTS_PER_LOOP_MAX: usize = 64;

/// Connections of one load.
pub const CONNECTIONS_MAX: usize = 20_000;

/// Unanswered requests of one connection of the load: the low bits of the opaque name the slot.
pub const DEPTH_MAX: usize = 1 << SLOT_BITS;

/// Bits of the opaque that name the slot; the rest identify generation and connection.
pub const SLOT_BITS: u32 = 10;

/// Bytes of received replies the load holds per connection, unless one reply needs more.
pub const LOAD_RECV_BYTES: usize = 16 << 10;

/// Threads of one load.
pub const THREADS_MAX: usize = 64;

/// Largest random piece of one write when writes are split.
pub const SPLIT_BYTES_MAX: u64 = 64;

/// Longest time the load waits for its first connections before it starts counting.
pub const CONNECT_WAIT_MAX: Duration = Duration::from_secs(10);

/// Longest time without a reply, or without a connection, while the keys of a load are written.
pub const POPULATE_WAIT_MAX: Duration = Duration::from_secs(10);

/// Shortest pause before a lost connection is tried again; doubled at each failure.
pub const RECONNECT_PAUSE_MIN: Duration = Duration::from_millis(10);

/// Longest pause before a lost connection is tried again.
pub const RECONNECT_PAUSE_MAX: Duration = Duration::from_millis(500);

/// Longest time the load waits for a server to close a connection, as its reply has announced.
pub const CLOSE_WAIT_MAX: Duration = Duration::from_secs(1);

/// Longest request target and longest host of a request of HTTP.
pub const HTTP_NAME_BYTES_MAX: usize = 4 << 10;

/// Loads of one search for a rate.
pub const SEARCH_TRIALS_MAX: usize = 12;

/// A search ends when the range of rates is this narrow, in percent of its upper end.
pub const SEARCH_CLOSER_PER_CENT: f64 = 2.0;

/// Largest exponent of the popularity of keys.
pub const ZIPF_EXPONENT_MAX: f64 = 10.0;

/// Longest latency the histogram tells apart, in microseconds; longer ones are recorded as this. A histogram up to it
/// takes 188 KB, and each thread has two.
pub const LATENCY_US_MAX: u64 = 3_600_000_000;

const _: () = {
    assert!(BODY_BYTES_MAX > VALUE_BYTES_MAX + KEY_BYTES_MAX);
    assert!(DEPTH_MAX <= u16::MAX as usize, "slots are named by u16");
    assert!(STORE_IDLE_BYTES_MAX < STORE_READ_BYTES);
    assert!(SPLIT_BYTES_MAX > 0);
    assert!(crate::http::HEAD_BYTES_MAX <= LOAD_RECV_BYTES, "a head fits the receive buffer");
};
