//! Processes that ask for something else than a segment, or stop in the middle.

use std::io::Write;
use std::os::fd::AsFd;
use std::os::unix::net::UnixStream;

use flick_net::limits::{
    SHM_PAIR_MEMORY_FACTOR, SHM_PAIRS_OF_PROCESS_MAX, SHM_RING_BYTES_MAX, SHM_SLOT_BYTES,
};
use flick_shm::segment::SegmentConfig;

use crate::raw::{self, RawPeer, answer, connect, hello, pass, wait_closed};
use crate::service::{Honest, LIMITS, ShmPeer};
use crate::with_services;

const CONFIG: SegmentConfig = SegmentConfig { slots: 128, arena_bytes: 1 << 20, huge_pages: false };

/// The driver refuses the request, or closes the socket at once.
fn check_refused(socket: &UnixStream, what: &str) {
    assert!(answer(socket).is_none(), "{what}");
    wait_closed(socket);
}

#[test]
fn wrong_requests_are_refused_and_leave_nothing() {
    with_services(|service| {
        let honest = Honest::start(service);
        let silent: Vec<UnixStream> = (0..20).map(|_| connect(&service.shm)).collect();
        for (what, slots, arena_bytes) in [
            ("no slots", 0, 1 << 20),
            ("few slots", 64, 1 << 20),
            ("a number of slots that is no power of two", 129, 1 << 20),
            ("no arena", 128, 0),
            ("an arena of one byte", 128, 1),
            ("an arena that is no power of two", 128, 3 << 18),
        ] {
            let socket = RawPeer::ask(&service.shm, &SegmentConfig { slots, arena_bytes, huge_pages: false });
            check_refused(&socket, what);
        }
        let good = hello(&CONFIG);
        let with = |at: usize, byte: u8| {
            let mut message = good;
            message[at] ^= byte;
            message
        };
        for (what, message) in [
            ("half a message", &good[..16]),
            ("a message of one byte", &good[..1]),
            ("another protocol", b"GET / HTTP/1.1\r\nHost: a\r\n\r\n...."),
            ("another magic", &with(0, 1)),
            ("another version of the message", &with(8, 0xff)),
        ] {
            let socket = connect(&service.shm);
            let _ = pass(&socket, message, &[]);
            check_refused(&socket, what);
        }
        // More than the message: a pair, which ends because the rest is no signal.
        let socket = connect(&service.shm);
        let _ = pass(&socket, &[good, good].concat(), &[]);
        wait_closed(&socket);
        // Ends at each step.
        drop(connect(&service.shm));
        (&connect(&service.shm)).write_all(&good[..5]).unwrap();
        drop(RawPeer::ask(&service.shm, &CONFIG));
        drop(RawPeer::paired(&service.shm, &CONFIG));
        let mut peer = RawPeer::paired(&service.shm, &CONFIG);
        let conn = peer.pair().open(4096).expect("the pair is new");
        drop((peer, conn));
        // Bytes behind the handshake end the pair, if they are no signals.
        let peer = RawPeer::paired(&service.shm, &CONFIG);
        let _ = raw::pass(&peer.socket, b"x", &[]);
        wait_closed(&peer.socket);
        ShmPeer::connect(&service.shm, 4).round_trip(1000);
        silent.iter().for_each(wait_closed);
        honest.check("wrong requests");
    });
}

/// The driver takes no descriptor: it never closes one that takes long to close.
#[test]
fn a_process_passed_descriptors_to_the_thread_that_serves_others() {
    with_services(|service| {
        let (reader, _writer) = std::io::pipe().unwrap();
        let socket = connect(&service.shm);
        match pass(&socket, &hello(&CONFIG), &[reader.as_fd(); 8]) {
            Err(errno) => assert_eq!(errno, rustix::io::Errno::PERM),
            // The kernel closes them when the message is received.
            Ok(_) => eprintln!("not tested: kernels before 6.16 pass descriptors to any socket"),
        }
        drop(socket);
        // The option was not inherited by chance: without descriptors the same message is right.
        drop(RawPeer::paired(&service.shm, &CONFIG));
    });
}

/// The memory that a process asks for is not what it gets: the driver bounds it, and leaves as much for others.
#[test]
fn a_process_chose_the_memory_of_its_pairs() {
    with_services(|service| {
        let most = SegmentConfig { slots: 1 << 16, arena_bytes: 1 << 30, huge_pages: false };
        let mut peers = Vec::new();
        let mut total = 0;
        for _ in 0..SHM_PAIRS_OF_PROCESS_MAX / 2 {
            let socket = RawPeer::ask(&service.shm, &most);
            let Some(file) = answer(&socket) else { continue };
            let mut peer = RawPeer::with(socket, &file);
            let pair = peer.pair();
            assert!(pair.slots() <= 4 * LIMITS.shm_conns_max);
            total += u64::from(pair.slots()) * SHM_SLOT_BYTES + pair.arena_bytes();
            peers.push((peer, pair));
        }
        let all = SHM_PAIR_MEMORY_FACTOR * SHM_RING_BYTES_MAX;
        assert!(
            peers.len() > 4 && (all / 4..=2 * all / 3).contains(&total),
            "{} pairs, {total} bytes",
            peers.len()
        );
        drop(peers);
        ShmPeer::connect(&service.shm, 4).round_trip(1000);
    });
}
