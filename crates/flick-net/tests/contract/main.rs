//! The promises of drivers, checked on each of them: peers are scripts, the platform is a closure.
//! Nothing sleeps and no port is fixed; a stalled test fails after `TEST_TIMEOUT`.

#![expect(clippy::unwrap_used, reason = "a test says what it expects by failing")]

mod cases;
mod script;
mod simulated;
mod world;

use flick_net::Endpoint;
use simulated::{HostileWorld, QuietWorld};
use world::{EpollWorld, Kind, LIMITS, ShmWorld, UringWorld, World};

cases::on_every_driver!(epoll, EpollWorld);
cases::on_every_driver!(uring, UringWorld);
cases::on_every_driver!(shm_epoll, ShmWorld<false>);
cases::on_every_driver!(shm_uring, ShmWorld<true>);
cases::on_every_driver!(sim_quiet, QuietWorld);
cases::on_every_driver!(sim_hostile, HostileWorld);

/// It stayed in the directory for temporary files.
#[test]
fn socket_of_a_peer_stayed_behind() {
    let mut world = EpollWorld::with_limits(LIMITS);
    let at = world.fresh(Kind::Unix);
    let Endpoint::Unix(path) = world.serve(&at, Vec::new()) else { panic!("it is one of this kind") };
    assert!(path.exists());
    drop(world);
    assert!(!path.exists());
}
