//! The clocks of the drivers.

use rustix::time::{ClockId, clock_gettime};

use crate::sim::SimNet;

/// The clock of a driver.
pub(crate) enum Clock {
    /// The kernel's.
    Monotonic,
    /// That of a simulated network.
    Simulated(SimNet),
}

impl Clock {
    pub(crate) fn now_ns(&self) -> u64 {
        match self {
            Clock::Monotonic => monotonic_ns(),
            Clock::Simulated(net) => net.now_ns(),
        }
    }
}

/// Returns the kernel's monotonic clock in nanoseconds.
pub fn monotonic_ns() -> u64 {
    let now = clock_gettime(ClockId::Monotonic);
    now.tv_sec as u64 * 1_000_000_000 + now.tv_nsec as u64
}
