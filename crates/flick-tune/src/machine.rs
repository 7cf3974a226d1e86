//! The simulated server: the costs of its software, the power of its cores and packages.
//! Promises: every number is in `PUBLISHED`, `Path::linux` and `Path::libos`, with its unit and its source.
//! Not here: time and order of events (`simulate.rs`).
//! Source: the server of the study is a dual Intel Xeon E5-2690 (Sandy Bridge, 16 cores, 1.2 to 2.9 GHz) with an
//! Intel 82599; the cores of a package share voltage and clock (Intel's data sheet, volume 1, §4.2.1).

/// Clock at which the times of `Path` are given, in GHz.
pub const NOMINAL_GHZ: f64 = 2.9;

/// Instructions of Linux for one request, over those of the library operating system; also the ratio of their peaks.
const LIBOS_RATIO: f64 = 2.5;

/// An idle state.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct IdleState {
    /// Name in Intel's documents.
    pub name: &'static str,
    /// Idle time from which the governor chooses the state.
    pub residency_us: f64,
    /// Time in which a core leaves the state, at full power.
    pub exit_us: f64,
    /// Memory time for which lost caches slow the core down afterwards.
    pub refill_us: f64,
    /// Share of a core's leakage that remains.
    pub leakage_share: f64,
    /// Whether the package may stop its own clock while all cores are in such a state.
    pub is_deep: bool,
}

/// Number of idle states.
pub const IDLE_STATES: usize = 3;

/// Power and sleep of a server.
#[derive(Clone, Debug, PartialEq)]
pub struct Machine {
    /// Cores; each has a queue of the network card.
    pub cores: usize,
    /// Packages, among which the cores are distributed.
    pub packages: usize,
    /// Voltage at 0 GHz, extrapolated, in V.
    pub volts_base: f64,
    /// Voltage for each GHz, in V.
    pub volts_per_ghz: f64,
    /// Power of one running core, in W for V²·GHz.
    pub core_watts: f64,
    /// Leakage of one core, in W for V².
    pub leakage_watts: f64,
    /// Power of the clocked part of a package outside of its cores, in W for V²·GHz.
    pub package_watts: f64,
    /// Clock to which a package falls while all of its cores sleep deeply, in GHz.
    pub asleep_ghz: f64,
    /// Power of all packages that depends on nothing, in W.
    pub constant_watts: f64,
    /// Idle states, from shallow to deep.
    pub idle_states: [IdleState; IDLE_STATES],
    /// Time of a request outside of the server: both wires and the client.
    pub network_us: f64,
}

/// The work of the software on one packet's way.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Path {
    /// Name that the command line uses.
    pub name: &'static str,
    /// Mean time of a request at the nominal clock.
    pub request_us: f64,
    /// Time of an interrupt, with all that it wakes, at the nominal clock.
    pub interrupt_us: f64,
    /// Time of a poll that finds packets, at the nominal clock.
    pub poll_us: f64,
    /// Share of these times that waits for memory and does not change with the clock.
    pub memory_share: f64,
    /// Largest number of requests that a client sends at once on a connection.
    pub burst_max: u32,
}

impl Machine {
    /// Voltage at a clock.
    pub fn volts(&self, clock_ghz: f64) -> f64 {
        self.volts_base + self.volts_per_ghz * clock_ghz
    }

    /// V²f of a clock.
    pub fn v2f(&self, clock_ghz: f64) -> f64 {
        self.volts(clock_ghz).powi(2) * clock_ghz
    }

    /// Power of a core that runs at a clock, without its share of the package.
    pub fn running_core_watts(&self, clock_ghz: f64) -> f64 {
        self.core_watts * self.v2f(clock_ghz) + self.leakage_watts * self.volts(clock_ghz).powi(2)
    }
}

impl Machine {
    /// The server of the study.
    ///
    /// | constant | source |
    /// |---|---|
    /// | cores, packages | the study |
    /// | `core_watts`, `leakage_watts`, `package_watts`, `volts_per_ghz`, `network_us`, residency of C3 | fitted |
    /// | `volts_base` | 1.05 V at 2.9 GHz, assumed |
    /// | `constant_watts` | 1,400.93 J in 30 s: the library OS at its lowest setting and 200,000 requests/s |
    /// | `asleep_ghz` | the processor's lowest clock |
    /// | residency of C6 | 345/211 of C3's, as in Linux's `intel_idle` for Sandy Bridge |
    /// | exit and refill times | assumed: the published tail leaves no time for the 104 µs of `intel_idle`'s C6 |
    ///
    /// Fitted: `examples/fit.rs`, to the eight savings and the p99 at 200,000 requests/s; from another seed it prints
    /// constants within 2 % of these. Leakage and voltage are at the edges of their ranges: one load does not tell
    /// them from the power of the packages.
    pub fn published() -> Self {
        let state = |name, residency_us, exit_us, refill_us, leakage_share, is_deep| IdleState {
            name,
            residency_us,
            exit_us,
            refill_us,
            leakage_share,
            is_deep,
        };
        Self {
            cores: 16,
            packages: 2,
            volts_base: 0.47,
            volts_per_ghz: 0.2,
            core_watts: 1.0671,
            leakage_watts: 0.02,
            package_watts: 4.0304,
            asleep_ghz: 1.2,
            constant_watts: 39.143,
            idle_states: [
                state("C1", 0.0, 1.0, 0.0, 1.0, false),
                state("C3", 195.9, 6.0, 1.0, 0.5, true),
                state("C6", 320.4, 11.0, 2.0, 0.0, true),
            ],
            network_us: 21.59,
        }
    }
}

impl Path {
    /// Linux.
    ///
    /// | constant | source |
    /// |---|---|
    /// | `interrupt_us`, `memory_share` | fitted; for the latter 0.4 is assumed, and left only for a reason |
    /// | `request_us` | 16 cores serve 800,000 requests/s at 2.9 GHz: 20 µs, less 0.4 interrupts for each request |
    /// | `poll_us` | assumed: an interrupt without entry, wake-up and rescheduling |
    /// | `burst_max` | connections send independently; the fit is worse with bursts of 2 or 4 |
    pub const fn linux() -> Self {
        Self {
            name: "linux",
            request_us: 14.07,
            interrupt_us: 14.83,
            poll_us: 2.0,
            memory_share: 0.427,
            burst_max: 1,
        }
    }

    /// A library operating system: paths that are 2.5 times shorter.
    pub fn libos() -> Self {
        Self::linux().shortened()
    }

    /// The path of the library operating system, if this is that of Linux.
    pub fn shortened(&self) -> Self {
        Self {
            name: "libos",
            request_us: self.request_us / LIBOS_RATIO,
            interrupt_us: self.interrupt_us / LIBOS_RATIO,
            poll_us: self.poll_us / LIBOS_RATIO,
            ..*self
        }
    }
}
