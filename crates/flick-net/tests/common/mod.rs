//! Set-up of tests of kernel drivers.

use flick_buffers::{Pool, PoolConfig};
use flick_net::{AnyDriver, DriverLimits, IoKind};

/// Opens a driver; `None`, with a message, where the kernel has no such one.
pub fn open(kind: IoKind, limits: DriverLimits) -> Option<AnyDriver> {
    AnyDriver::open(kind, limits).inspect_err(|error| eprintln!("not tested: {error}")).ok()
}

/// Buffers for a driver.
pub fn pool() -> Pool {
    Pool::new(PoolConfig { small_count: 8, large_count: 64, huge_count: 0 })
}
