//! The processor's time stamp counter, which is read in a quarter of the time that the kernel's clock takes.
//! Refuses: to say how long a tick is; who uses it measures that against the kernel's clock.

#[cfg(target_arch = "x86_64")]
mod raw;

/// Proof that this processor has a counter whose rate is constant.
#[derive(Clone, Copy, Debug)]
pub struct TickCounter(());

impl TickCounter {
    /// The counter, if there is one.
    pub fn find() -> Option<Self> {
        has_constant_rate().then_some(Self(()))
    }

    /// Returns the ticks since some time in the past. They are those of the core that runs: on another one the count
    /// may be smaller. Cost: about 10 ns.
    #[inline]
    pub fn read(self) -> u64 {
        #[cfg(target_arch = "x86_64")]
        return raw::ticks();
        #[cfg(not(target_arch = "x86_64"))]
        unreachable!("there is no counter")
    }
}

#[cfg(target_arch = "x86_64")]
fn has_constant_rate() -> bool {
    const ADVANCED_POWER_MANAGEMENT: u32 = 0x8000_0007;
    const INVARIANT_TSC: u32 = 1 << 8;
    let most = core::arch::x86_64::__cpuid(0x8000_0000).eax;
    most >= ADVANCED_POWER_MANAGEMENT
        && core::arch::x86_64::__cpuid(ADVANCED_POWER_MANAGEMENT).edx & INVARIANT_TSC != 0
}

#[cfg(not(target_arch = "x86_64"))]
fn has_constant_rate() -> bool {
    false
}
