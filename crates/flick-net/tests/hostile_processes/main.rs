//! Processes that break the protocol of shared memory, die or take all they can, beside peers that keep it. The latter
//! lose nothing, their round trips are bounded, and nothing is left over from the former.
//! `FLICK_NET_HOSTILE_SEED` sets the first seed, `FLICK_NET_HOSTILE_ROUNDS` how often a session overwrites words, and
//! `FLICK_NET_HOSTILE_KILLS` how many processes are killed.

#![expect(clippy::unwrap_used, clippy::print_stdout, reason = "a test says what it expects by failing")]

mod greedy;
mod kills;
mod offers;
mod overwriting;
#[path = "../common/random.rs"]
mod random;
mod raw;
mod service;
mod symptoms;

use std::sync::{Mutex, MutexGuard, PoisonError};

use flick_net::IoKind;
use service::{Service, wait_until};

/// Both drivers.
const KINDS: [IoKind; 2] = [IoKind::Epoll, IoKind::Uring];

/// Tests count the descriptors of the process, so they run one after the other.
fn alone() -> MutexGuard<'static, ()> {
    static ALONE: Mutex<()> = Mutex::new(());
    ALONE.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Returns the number of open descriptors and of mapped segments.
fn resources() -> (usize, usize) {
    let descriptors = std::fs::read_dir("/proc/self/fd").expect("/proc is mounted").count();
    let maps = std::fs::read_to_string("/proc/self/maps").expect("/proc is mounted");
    (descriptors, maps.lines().filter(|line| line.contains("memfd:flick-shm")).count())
}

/// Returns them when they have been the same for some looks: what has ended may still be closing its descriptors.
fn settled_resources() -> (usize, usize) {
    let (mut last, mut looks) = (resources(), 0);
    wait_until("descriptors and segments stay as many as they are", || {
        let now = resources();
        looks = if now == last { looks + 1 } else { 0 };
        last = now;
        looks == 20
    });
    last
}

/// Runs a test with a service on each driver. What the process holds of the service is the same before and after.
fn with_services(test: impl Fn(&Service)) {
    let _alone = alone();
    for kind in KINDS {
        let Some(service) = Service::start(kind) else { continue };
        // The first peer makes the service allocate what it keeps.
        service::ShmPeer::connect(&service.shm, 1).round_trip(100);
        service.wait_unused();
        wait_until("the first pair has ended", || resources().1 == 0);
        let before = settled_resources();
        test(&service);
        service.wait_unused();
        wait_until(&format!("descriptors and segments are {before:?}"), || resources() == before);
        println!("{kind:?}: slowest poll {:?} us", service.counters.slowest_poll_us);
        service.stop();
    }
}
