//! Reliability over real sockets: each test is named after the class of failure it is about.
//! Promises: loopback only, free ports only; every process is ended by its own handle; waiting is for a condition, with
//! a deadline. Tests that measure time, memory or descriptors run alone.
//! Refuses: faults that need a chosen interleaving; those are in the simulator.
//!
//! `FLICK_M1_SECONDS` makes the wrong-client test as long as it says (10 by default), `FLICK_IDLE_SECONDS` the watch on
//! idle sessions (2 by default).

mod common;

#[path = "reliability/machine.rs"]
mod machine;
#[path = "reliability/mock.rs"]
mod mock;
#[path = "reliability/proxy.rs"]
mod proxy;
#[path = "reliability/wire.rs"]
mod wire;

#[path = "reliability/backends.rs"]
mod backends;
#[path = "reliability/clients.rs"]
mod clients;
#[path = "reliability/container.rs"]
mod container;
#[path = "reliability/crowds.rs"]
mod crowds;
#[path = "reliability/drains.rs"]
mod drains;
#[path = "reliability/exhaustion.rs"]
mod exhaustion;
#[path = "reliability/garbage.rs"]
mod garbage;
#[path = "reliability/greedy_process.rs"]
mod greedy_process;
#[path = "reliability/idle.rs"]
mod idle;
#[path = "reliability/load.rs"]
mod load;
#[path = "reliability/quiet.rs"]
mod quiet;
#[path = "reliability/ring_memory.rs"]
mod ring_memory;
#[path = "reliability/shutdown.rs"]
mod shutdown;
#[path = "reliability/sizes.rs"]
mod sizes;
#[path = "reliability/slow_readers.rs"]
mod slow_readers;
#[path = "reliability/transports.rs"]
mod transports;
#[path = "reliability/unread_log.rs"]
mod unread_log;
