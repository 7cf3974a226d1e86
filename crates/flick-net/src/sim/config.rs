//! Configuration of the simulated network: delays, cuts and resets.

/// Configuration of the simulated network. The default is a fast, faultless one; [`SimConfig::hostile`] is not.
#[derive(Clone, Debug)]
pub struct SimConfig {
    /// Number of segments, of 1000, that are cut short.
    pub split_per_mille: u32,
    /// Longest segment that is left after a cut; 1 gives single bytes.
    pub split_bytes_max: usize,
    /// Shortest and longest time a segment travels.
    pub delay_ns: (u64, u64),
    /// Shortest and longest time each half of a connect takes.
    pub connect_delay_ns: (u64, u64),
    /// Shortest and longest time until a driver that sleeps learns of a wake-up through shared memory.
    pub wake_delay_ns: (u64, u64),
    /// Bytes a connection holds in each direction, in flight or waiting to be read: a sender waits beyond it.
    pub window_bytes: usize,
    /// Number of connections, of 1000, that are reset after a few segments.
    pub reset_per_mille: u32,
    /// Delivers what different connections have ready in random order.
    pub reorder: bool,
    /// Virtual time one poll takes, so that time passes for a platform that never waits.
    pub poll_cost_ns: u64,
}

impl Default for SimConfig {
    fn default() -> SimConfig {
        SimConfig {
            split_per_mille: 0,
            split_bytes_max: 1,
            delay_ns: (10_000, 10_000),
            connect_delay_ns: (20_000, 20_000),
            wake_delay_ns: (5_000, 5_000),
            window_bytes: 64 * 1024,
            reset_per_mille: 0,
            reorder: false,
            poll_cost_ns: 1_000,
        }
    }
}

impl SimConfig {
    /// Returns a network that cuts, delays and reorders as much as TCP allows, but loses no connection.
    pub fn hostile() -> SimConfig {
        SimConfig {
            split_per_mille: 500,
            split_bytes_max: 7,
            delay_ns: (1_000, 2_000_000),
            connect_delay_ns: (1_000, 5_000_000),
            wake_delay_ns: (1_000, 2_000_000),
            window_bytes: 4096,
            reorder: true,
            ..SimConfig::default()
        }
    }
}

/// Reachability of a scripted server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reachability {
    /// It accepts connections.
    Up,
    /// New connections are refused; established ones go on.
    Refuse,
    /// Nothing passes in either direction and neither side is notified; what was sent arrives once it is `Up`.
    BlackHole,
}
