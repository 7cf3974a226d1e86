//! The promises of drivers, checked on each of them: peers are scripts, the platform is a closure.
//! Nothing sleeps and no port is fixed; a stalled test fails after `TEST_TIMEOUT`.

#![expect(clippy::unwrap_used, reason = "a test says what it expects by failing")]

mod cases;
mod script;
mod simulated;
mod world;

use simulated::{HostileWorld, QuietWorld};
use world::{EpollWorld, ShmWorld, UringWorld};

cases::on_every_driver!(epoll, EpollWorld);
cases::on_every_driver!(uring, UringWorld);
cases::on_every_driver!(shm_epoll, ShmWorld<false>);
cases::on_every_driver!(shm_uring, ShmWorld<true>);
cases::on_every_driver!(sim_quiet, QuietWorld);
cases::on_every_driver!(sim_hostile, HostileWorld);
