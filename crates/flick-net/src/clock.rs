//! The clock of the drivers on sockets.

use rustix::time::{ClockId, clock_gettime};

/// Returns the kernel's monotonic clock in nanoseconds.
pub fn monotonic_ns() -> u64 {
    let now = clock_gettime(ClockId::Monotonic);
    now.tv_sec as u64 * 1_000_000_000 + now.tv_nsec as u64
}
