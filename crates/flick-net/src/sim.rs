//! A simulated network: one driver, scripted peers, faults and virtual time, all from one seed.
//! Promises: the same seed and the same calls give the same run, bit for bit; time passes only inside `poll`; the bytes
//! of a connection keep their order and none is delivered while receiving is off (asserted here).
//! Refuses: threads, sleeping, sockets; more than one driver on each side of a network.
//! Beside the network, [`crate::AnyDriver::simulated`] has real rings between the two drivers, on the same clock.
//! Start reading at `net.rs`, then `world.rs` and `driver_end.rs`.
//! Source: deterministic simulation testing as in FoundationDB and TigerBeetle.

mod config;
mod connection;
mod core;
mod driver;
mod driver_end;
mod event_queue;
mod net;
mod peer;
mod rng;
mod world;

pub use config::{Reachability, SimConfig};
pub use driver::SimDriver;
pub use net::SimNet;
pub use peer::{Actor, PeerIo};
pub use rng::SimRng;
