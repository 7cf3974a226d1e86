//! What every driver promises, run against each of them: peers are scripts, the platform is a closure.
//! Nothing sleeps and no port is fixed; a test that hangs fails after `PATIENCE`.

#![expect(clippy::unwrap_used, reason = "a test says what it expects by failing")]

mod cases;
mod script;
mod simulated;
mod world;

use simulated::{HostileWorld, QuietWorld};
use world::{EpollWorld, UringWorld};

cases::on_every_driver!(epoll, EpollWorld);
cases::on_every_driver!(uring, UringWorld);
cases::on_every_driver!(sim_quiet, QuietWorld);
cases::on_every_driver!(sim_hostile, HostileWorld);
