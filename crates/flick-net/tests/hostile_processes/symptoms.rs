//! Defects that were found, by symptom.

use std::io::Write;
use std::net::Shutdown;
use std::os::unix::net::UnixStream;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use flick_net::limits::{SHM_HANDSHAKE_NS_MAX, SHM_LATE_BYTES_MAX, SHM_PAIRS_OF_PROCESS_MAX};
use flick_net::{AnyDriver, Driver, DriverEvent, Endpoint, IoKind};
use flick_shm::conn::OpenAnswer;
use flick_shm::segment::SegmentConfig;
use rustix::net::{RecvFlags, recv};

use crate::raw::{RawPeer, SLEEP_OF_OTHER_AT, connect};
use crate::service::{LIMITS, SINK, bytes, fresh_name, pool, wait_until};
use crate::{alone, with_services};

const CONFIG: SegmentConfig = SegmentConfig { slots: 128, arena_bytes: 4 << 20, huge_pages: false };

/// A peer ends its direction, leaves the echo unread and dies: the connection waits for space that never comes.
#[test]
fn a_connection_without_space_ends_when_its_peer_dies_behind_its_last_byte() {
    with_services(|service| {
        let mut peer = RawPeer::paired(&service.shm, &CONFIG);
        let mut pair = peer.pair();
        let mut conn = pair.open(1 << 16).expect("the pair is new");
        let mut moved = Instant::now();
        while moved.elapsed() < Duration::from_millis(200) {
            if conn.send(&[0xee; 8192]).expect("the service keeps the protocol") > 0 {
                moved = Instant::now();
            }
            std::thread::sleep(Duration::from_micros(20));
        }
        conn.finish_sending().expect("the service keeps the protocol");
        // What is dropped here announces nothing, as a death does.
        drop((peer, pair, conn));
        service.wait_unused();
    });
}

/// A peer ends its direction, whose end is delivered, and dies: the service waits for something else and sends nothing.
#[test]
fn death_behind_a_delivered_end_was_not_reported_before_the_next_send() {
    let _alone = alone();
    let mut driver = AnyDriver::open(IoKind::Epoll, LIMITS).expect("every kernel has epoll");
    let (pool, name, mut events) = (pool(), fresh_name(), Vec::new());
    driver.listen(&Endpoint::Shm(name.clone())).expect("the name is fresh");
    let asked = RawPeer::ask(&name, &CONFIG);
    let end = Instant::now() + Duration::from_secs(5);
    let mut poll = |driver: &mut AnyDriver| {
        assert!(Instant::now() < end, "nothing is reported");
        driver.poll(&pool, Some(Duration::from_millis(10)), &mut events).expect("the driver polls");
        std::mem::take(&mut events)
    };
    (0..2).for_each(|_| assert!(poll(&mut driver).is_empty()));
    let mut peer = RawPeer::answered(asked);
    let mut pair = peer.pair();
    let mut conn = pair.open(4096).expect("the pair is new");
    assert_eq!(conn.send(b"asked"), Ok(5));
    conn.finish_sending().expect("the driver keeps the protocol");
    let mut has_ended = false;
    while !has_ended {
        for event in poll(&mut driver) {
            if let DriverEvent::Accepted { conn, .. } = event {
                driver.receive(conn, true);
            }
            has_ended |= matches!(event, DriverEvent::Eof { .. });
        }
    }
    // As above.
    drop((peer, pair, conn));
    let is_failure = |event: &DriverEvent| matches!(event, DriverEvent::Failed { .. });
    while !poll(&mut driver).iter().any(is_failure) {}
}

/// A peer opens a connection, sends, closes and ends, all before the service looks again.
#[test]
fn what_a_process_sends_right_before_it_ends_is_delivered() {
    with_services(|service| {
        for round in 0..200_u64 {
            let mut peer = RawPeer::paired(&service.shm, &CONFIG);
            let mut pair = peer.pair();
            let (mut conn, id) = (pair.open(1 << 16).expect("the pair is new"), 10 + (round % 100) as u8);
            let message = [&[SINK, id], &bytes(id, 0, 1000)[..]].concat();
            assert_eq!(conn.send(&message), Ok(1002));
            let is_closed = round % 2 == 0;
            if is_closed {
                pair.close(conn);
            }
            drop((peer, pair));
            let end = service.ends.recv_timeout(Duration::from_secs(5));
            let end = end.unwrap_or_else(|_| panic!("round {round} is lost: {:?}", service.counters));
            assert_eq!((end.id, end.bytes, end.has_failed), (id, 1000, !is_closed));
        }
    });
}

/// Polls of a service that is idle, in the time that the test watches it.
const IDLE_POLLS_MAX: u64 = 50;

/// A peer signals the service, also often, and leaves its sleep word alone.
#[test]
fn a_signal_without_news_does_not_keep_the_service_awake() {
    with_services(|service| {
        for signals in [1, 200, 2000] {
            let mut peer = RawPeer::paired(&service.shm, &CONFIG);
            let polls = || service.counters.polls.load(Ordering::Relaxed);
            // The service sleeps.
            let sleep_word = peer.map.narrow(SLEEP_OF_OTHER_AT);
            wait_until("the service sleeps", || sleep_word.load(Ordering::Relaxed) != 0);
            std::thread::sleep(Duration::from_millis(20));
            let before = polls();
            peer.socket.write_all(&vec![1; signals]).expect("the service lives");
            std::thread::sleep(Duration::from_millis(100));
            let count = polls() - before;
            assert!(count < IDLE_POLLS_MAX, "{signals} signals: {count} polls of an idle service");
        }
    });
}

/// A service closes a listener and opens another, which gets the number of the first.
#[test]
fn a_new_listener_gets_no_connection_of_a_closed_one() {
    let _alone = alone();
    let mut driver = AnyDriver::open(IoKind::Epoll, LIMITS).expect("every kernel has epoll");
    let (pool, mut events) = (pool(), Vec::new());
    let name = fresh_name();
    let first = driver.listen(&Endpoint::Shm(name.clone())).expect("the name is fresh");
    let asked = RawPeer::ask(&name, &CONFIG);
    driver.poll(&pool, Some(Duration::from_secs(1)), &mut events).expect("the driver polls");
    driver.poll(&pool, Some(Duration::from_millis(10)), &mut events).expect("the driver polls");
    let mut peer = RawPeer::answered(asked);
    driver.close_listener(first);
    let second = driver.listen(&Endpoint::Shm(fresh_name())).expect("the name is fresh");
    assert_eq!(first, second, "numbers are used again");
    let mut pair = peer.pair();
    let mut conn = pair.open(4096).expect("the pair is new");
    let end = Instant::now() + Duration::from_secs(5);
    while conn.answer().expect("the driver keeps the protocol") == OpenAnswer::Pending {
        assert!(Instant::now() < end, "the connection is not answered");
        driver.poll(&pool, Some(Duration::from_millis(10)), &mut events).expect("the driver polls");
    }
    assert_eq!(conn.answer(), Ok(OpenAnswer::Refused));
    assert!(events.is_empty(), "{events:?}");
}

/// The driver closes hundreds of connections, then the peer does, all between two looks of the driver.
#[test]
fn slots_of_many_connections_that_end_together_are_free_again() {
    const CONNS: usize = 300;
    let _alone = alone();
    let mut driver = AnyDriver::open(IoKind::Epoll, LIMITS).expect("every kernel has epoll");
    let (pool, mut events, name) = (pool(), Vec::new(), fresh_name());
    driver.listen(&Endpoint::Shm(name.clone())).expect("the name is fresh");
    let config = SegmentConfig { slots: 1024, ..CONFIG };
    let asked = RawPeer::ask(&name, &config);
    let mut poll = |driver: &mut AnyDriver| {
        driver.poll(&pool, Some(Duration::from_millis(10)), &mut events).expect("the driver polls");
        std::mem::take(&mut events)
    };
    (0..3).for_each(|_| drop(poll(&mut driver)));
    let mut peer = RawPeer::answered(asked);
    let mut pair = peer.pair();
    let conns: Vec<_> = (0..CONNS).map(|_| pair.open(4096).expect("a slot is free")).collect();
    let mut accepted = 0;
    while accepted < CONNS {
        for event in poll(&mut driver) {
            let DriverEvent::Accepted { conn, .. } = event else { panic!("unexpected {event:?}") };
            accepted += 1;
            driver.abort(conn);
        }
    }
    conns.into_iter().for_each(|conn| pair.close(conn));
    (0..10).for_each(|_| drop(poll(&mut driver)));
    let end = Instant::now() + Duration::from_secs(5);
    while pair.closed_conns() > 0 {
        assert!(Instant::now() < end, "{} slots are still in use", pair.closed_conns());
        pair.reclaim();
    }
}

/// A process connects many times and sends nothing: it gets its share of pairs, and the others are closed at once.
#[test]
fn a_process_with_many_handshakes_leaves_pairs_for_others() {
    let _alone = alone();
    let mut driver = AnyDriver::open(IoKind::Epoll, LIMITS).expect("every kernel has epoll");
    let (pool, mut events, name) = (pool(), Vec::new(), fresh_name());
    driver.listen(&Endpoint::Shm(name.clone())).expect("the name is fresh");
    let mut sockets = Vec::new();
    let begun = Instant::now();
    while sockets.len() < SHM_PAIRS_OF_PROCESS_MAX + 100 {
        sockets.extend((0..50).map(|_| connect(&name)));
        driver.poll(&pool, Some(Duration::from_millis(1)), &mut events).expect("the driver polls");
    }
    (0..5).for_each(|_| driver.poll(&pool, Some(Duration::ZERO), &mut events).expect("the driver polls"));
    let is_open = |socket: &&UnixStream| {
        let flags = RecvFlags::PEEK | RecvFlags::DONTWAIT;
        recv(socket, &mut [0; 1], flags) == Err(rustix::io::Errno::AGAIN)
    };
    let open = sockets.iter().filter(is_open).count();
    let is_in_time = begun.elapsed() < Duration::from_nanos(SHM_HANDSHAKE_NS_MAX);
    assert!(open == SHM_PAIRS_OF_PROCESS_MAX || !is_in_time, "{open} handshakes");
}

/// A process shuts its socket down, which ends its pair, and then fills its ring before every poll.
#[test]
fn a_process_that_goes_on_after_its_pair_ended_keeps_no_connection() {
    const POLLS_MAX: usize = 1000;
    let _alone = alone();
    let mut driver = AnyDriver::open(IoKind::Epoll, LIMITS).expect("every kernel has epoll");
    let (pool, mut events, name) = (pool(), Vec::new(), fresh_name());
    driver.listen(&Endpoint::Shm(name.clone())).expect("the name is fresh");
    let asked = RawPeer::ask(&name, &CONFIG);
    let mut poll = |driver: &mut AnyDriver| {
        driver.poll(&pool, Some(Duration::from_millis(1)), &mut events).expect("the driver polls");
        std::mem::take(&mut events)
    };
    (0..3).for_each(|_| drop(poll(&mut driver)));
    let mut peer = RawPeer::answered(asked);
    let mut conn = peer.pair().open(1 << 20).expect("the pair is new");
    let mut received = 0;
    for count in 0.. {
        assert!(count < POLLS_MAX, "the connection has not ended after {received} bytes");
        while conn.send(&[0xee; 8192]).is_ok_and(|sent| sent > 0) {}
        let mut has_failed = false;
        for event in poll(&mut driver) {
            match event {
                DriverEvent::Accepted { conn, .. } => driver.receive(conn, true),
                DriverEvent::Data { data, .. } => received += u64::from(data.len()),
                DriverEvent::Failed { .. } => has_failed = true,
                other => panic!("unexpected {other:?}"),
            }
        }
        if has_failed {
            break;
        }
        if count == 10 {
            peer.socket.shutdown(Shutdown::Write).expect("the socket is open");
        }
    }
    assert!(received > SHM_LATE_BYTES_MAX, "{received}");
}
