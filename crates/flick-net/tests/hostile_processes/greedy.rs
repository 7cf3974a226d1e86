//! Processes that keep the protocol's form and take all they can.

use std::io::Read;
use std::process::Stdio;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use flick_shm::pair::Pair;
use flick_shm::segment::SegmentConfig;

use crate::raw::{OWN_SLEEP_AT, RawPeer, SLEEP_OF_OTHER_AT};
use crate::service::{Honest, LIMITS, Service, ShmPeer};
use crate::{service, with_services};

/// Variable that makes the binary the greedy neighbour.
const NAME: &str = "FLICK_NET_TEST_GREEDY";
/// Time for which each of them goes on.
const TIME: Duration = Duration::from_millis(450);
/// Rest between two attempts, so that the others get a core.
const REST: Duration = Duration::from_micros(20);

fn config(slots: u32) -> SegmentConfig {
    SegmentConfig { slots, arena_bytes: 16 << 20, huge_pages: false }
}

/// Runs a process beside peers that keep the protocol, and again and again until the time is over.
fn beside_honest_peers(what: &str, process: impl Fn(&Service)) {
    with_services(|service| {
        let honest = Honest::start(service);
        let end = Instant::now() + TIME;
        while Instant::now() < end {
            process(service);
        }
        honest.check(what);
        // The service has a slot and a pair for others again.
        service::wait_until("the others' connections have ended", || {
            service.counters.conns.load(Ordering::Relaxed) <= 3
        });
        ShmPeer::connect(&service.shm, 5).round_trip(1000);
    });
}

#[test]
fn a_process_that_never_reads_stalls_no_other() {
    beside_honest_peers("never reads", |service| {
        let mut peer = RawPeer::paired(&service.shm, &config(256));
        let mut pair = peer.pair();
        let mut conns: Vec<_> = (0..100).map(|_| pair.open(65536).expect("a slot is free")).collect();
        let end = Instant::now() + TIME / 2;
        while Instant::now() < end {
            for conn in &mut conns {
                // The service stops reading too, and may end the connection.
                let _ = conn.send(&[0xee; 5000]);
            }
            std::thread::sleep(REST);
        }
    });
}

#[test]
fn a_process_that_opens_and_closes_thousands_of_connections_stalls_no_other() {
    beside_honest_peers("opens and closes", |service| {
        let mut peer = RawPeer::paired(&service.shm, &config(256));
        let mut pair = peer.pair();
        let (mut opened, end) = (0, Instant::now() + Duration::from_secs(10));
        while opened < 3000 {
            assert!(Instant::now() < end, "after {opened} connections none can be opened");
            open_and_close(&mut pair, &mut opened);
            pair.reclaim();
            std::thread::sleep(REST);
        }
    });
}

fn open_and_close(pair: &mut Pair, opened: &mut u32) {
    for number in 0..16 {
        let Ok(mut conn) = pair.open(4096) else { return };
        *opened += 1;
        let _ = conn.send(&[0xee; 10]);
        if number % 2 == 0 {
            pair.close(conn);
        } else {
            pair.reset(conn);
        }
    }
}

#[test]
fn a_process_that_pairs_thousands_of_times_stalls_no_other() {
    beside_honest_peers("pairs", |service| {
        for _ in 0..50 {
            drop(RawPeer::paired(&service.shm, &SegmentConfig { arena_bytes: 1 << 20, ..config(128) }));
        }
    });
}

#[test]
fn a_process_that_opens_all_slots_leaves_them_when_it_ends() {
    beside_honest_peers("opens all slots", |service| {
        let refused = service.counters.refused.load(Ordering::Relaxed);
        let mut peer = RawPeer::paired(&service.shm, &config(2048));
        let mut pair = peer.pair();
        let conns: Vec<_> = (0..peer.slots / 2).map(|_| pair.open(4096).expect("a slot is free")).collect();
        assert!(conns.len() > LIMITS.shm_conns_max as usize);
        service::wait_until("the table is full", || {
            service.counters.refused.load(Ordering::Relaxed) > refused
        });
        // So that fewer processes of this kind wait to be accepted than one process may pair.
        std::thread::sleep(TIME / 8);
    });
}

#[test]
fn a_process_that_sets_all_ready_bits_stalls_no_other() {
    beside_honest_peers("sets ready bits", |service| {
        let peer = RawPeer::paired(&service.shm, &config(1 << 16));
        let end = Instant::now() + TIME / 2;
        while Instant::now() < end {
            peer.set_all_ready_bits();
            peer.signal();
            std::thread::sleep(REST);
        }
    });
}

/// The other side's end of the socket is its own: neither its flags nor what it leaves unread stop a signal.
#[test]
fn a_process_that_leaves_the_signals_of_the_service_unread_stalls_no_other() {
    beside_honest_peers("leaves signals unread", |service| {
        let mut peer = RawPeer::paired(&service.shm, &config(128));
        peer.socket.set_nonblocking(false).expect("an open socket");
        let mut pair = peer.pair();
        let mut conn = pair.open(4096).expect("a slot is free");
        let end = Instant::now() + TIME / 2;
        while Instant::now() < end {
            let _ = conn.send(&[0xee; 100]);
            let _ = conn.receive(&mut [0; 200]);
            peer.map.narrow(OWN_SLEEP_AT).store(1, Ordering::Release);
            let _ = conn.announce_sleep();
            peer.map.narrow(SLEEP_OF_OTHER_AT).store(0, Ordering::Release);
            std::thread::sleep(REST);
        }
    });
}

/// The greedy neighbour, when this binary is started again; otherwise nothing. It ends with its standard input.
#[test]
fn greedy_neighbour() {
    let Ok(name) = std::env::var(NAME) else { return };
    let mut peer = RawPeer::paired(&name, &config(1024));
    let mut pair = peer.pair();
    let _conns: Vec<_> = (0..peer.slots / 2).map(|_| pair.open(4096).expect("a slot is free")).collect();
    println!("opened");
    std::io::stdin().read_to_end(&mut Vec::new()).expect("the test lives");
}

/// A process holds all connections of the service and waits for more. Others get theirs, from what it holds.
#[test]
fn a_greedy_neighbour_kept_all_connections_of_a_service() {
    with_services(|service| {
        let refused = service.counters.refused.load(Ordering::Relaxed);
        let mut command = std::process::Command::new(std::env::current_exe().expect("this binary"));
        command.args(["--exact", "greedy::greedy_neighbour", "--nocapture"]).env(NAME, &service.shm);
        command.stdin(Stdio::piped()).stdout(Stdio::null());
        let mut greedy = command.spawn().expect("this binary starts");
        service::wait_until("the table is full", || {
            service.counters.refused.load(Ordering::Relaxed) > refused
        });
        for id in 1..20 {
            ShmPeer::connect(&service.shm, id).round_trip(1000);
        }
        // It keeps what no other process asks for.
        let conns = service.counters.conns.load(Ordering::Relaxed);
        assert!(conns > LIMITS.shm_conns_max / 2, "{conns} connections");
        drop(greedy.stdin.take());
        assert!(greedy.wait().expect("it is a child").success());
    });
}
