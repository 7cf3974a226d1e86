//! A setting of a server: the clock of its cores, and how packets reach the software.
//! Promises: plain data, and the grid of settings that the published experiment measured.
//! Not here: what a setting costs (`simulate.rs`), which one is best (`search.rs`).

/// Time between two interrupts of the published experiment, in microseconds.
pub const DELAYS_US: [f64; 5] = [50.0, 100.0, 200.0, 300.0, 400.0];

/// Clocks of the published experiment, in GHz.
pub const CLOCKS_GHZ: [f64; 9] = [2.9, 2.7, 2.5, 2.3, 2.1, 1.9, 1.7, 1.5, 1.3];

/// The way in which packets reach the software.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Delivery {
    /// An interrupt, at least `delay_us` after the former one (`EITR` of the Intel 82599, `rx-usecs` of ethtool).
    Interrupt {
        /// Shortest time between two interrupts.
        delay_us: f64,
    },
    /// The core polls all the time and never sleeps.
    BusyPoll,
    /// The core polls for a while after its last packet, then waits for an interrupt.
    AdaptivePoll {
        /// Time for which it polls.
        window_us: f64,
        /// Shortest time between two interrupts.
        delay_us: f64,
    },
    /// Interrupts are suspended while a poll finds packets (`irq-suspend-timeout` of Linux 6.13), and delayed
    /// otherwise.
    Suspend {
        /// Shortest time between two interrupts.
        delay_us: f64,
    },
}

/// One setting of a server.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Setting {
    /// Clock of all cores, in GHz.
    pub clock_ghz: f64,
    /// Delivery of packets.
    pub delivery: Delivery,
}

impl Setting {
    /// A setting with interrupts.
    pub fn interrupts(clock_ghz: f64, delay_us: f64) -> Self {
        Self { clock_ghz, delivery: Delivery::Interrupt { delay_us } }
    }

    /// Shortest time between two interrupts, if there are any.
    pub fn delay_us(&self) -> Option<f64> {
        match self.delivery {
            Delivery::BusyPoll => None,
            Delivery::Interrupt { delay_us }
            | Delivery::AdaptivePoll { delay_us, .. }
            | Delivery::Suspend { delay_us } => Some(delay_us),
        }
    }
}

/// Every clock with every delay.
pub fn grid(clocks_ghz: &[f64], delays_us: &[f64]) -> Vec<Setting> {
    let settings = |clock: &f64| delays_us.iter().map(|delay| Setting::interrupts(*clock, *delay)).collect();
    let all: Vec<Vec<Setting>> = clocks_ghz.iter().map(settings).collect();
    all.concat()
}
