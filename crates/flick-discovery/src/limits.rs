//! Bounds and intervals of service discovery.

use std::time::Duration;

/// Interval between two checks of a file for a change.
pub const FILE_POLL_INTERVAL: Duration = Duration::from_millis(250);
/// Largest file of a backend list, in bytes.
pub const FILE_BYTES_MAX: u64 = 1 << 20;

/// Shortest time before a name is resolved again, whatever its TTL.
pub const TTL_MIN: Duration = Duration::from_secs(1);
/// Longest time before a name is resolved again, whatever its TTL.
pub const TTL_MAX: Duration = Duration::from_secs(3600);
/// Longest time before a name without records is resolved again.
pub const NEGATIVE_TTL_MAX: Duration = Duration::from_secs(30);
/// Longest time before a name is resolved again of which only A or only AAAA records were received.
pub const PARTIAL_TTL_MAX: Duration = Duration::from_secs(30);
/// Delay before the first retry of a failed lookup. It doubles with every failure.
pub const RETRY_DELAY_MIN: Duration = Duration::from_secs(1);
/// Longest delay before a failed lookup is retried.
pub const RETRY_DELAY_MAX: Duration = Duration::from_secs(30);
/// SRV targets whose addresses are looked up.
pub const SRV_TARGETS_MAX: usize = 256;

/// Longest wait for the response of one name server.
pub const RESPONSE_TIMEOUT: Duration = Duration::from_secs(1);
/// Attempts at each name server before a lookup fails.
pub const ATTEMPTS_MAX: u32 = 2;
/// Name servers of `/etc/resolv.conf` that are used.
pub const NAME_SERVERS_MAX: usize = 3;
/// Longest response over UDP, in bytes.
pub const UDP_BYTES_MAX: usize = 65_535;
/// Responses to other questions that are skipped while waiting for the right one.
pub const STRAY_RESPONSES_MAX: u32 = 16;

const _: () = assert!(TTL_MIN.as_secs() <= NEGATIVE_TTL_MAX.as_secs());
const _: () = assert!(NEGATIVE_TTL_MAX.as_secs() <= TTL_MAX.as_secs());
const _: () = assert!(RETRY_DELAY_MIN.as_secs() <= RETRY_DELAY_MAX.as_secs());
