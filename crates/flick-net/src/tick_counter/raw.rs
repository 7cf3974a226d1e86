//! The instruction that reads the counter.

/// Returns the counter of the core that runs.
#[cfg(target_arch = "x86_64")]
#[inline]
pub(super) fn ticks() -> u64 {
    // SAFETY: all processors of this architecture have the instruction, and Linux lets programs execute it.
    unsafe { core::arch::x86_64::_rdtsc() }
}
