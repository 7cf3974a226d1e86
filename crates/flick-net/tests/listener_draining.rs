//! A driver drains its listener while another one accepts on the same socket: each peer is accepted by one of the two.
//! One that finishes its listener accepts all peers in the listen backlog.

mod common;

use std::net::TcpStream;
use std::os::unix::net::UnixStream;
use std::time::{Duration, Instant};

use common::{open, pool};
use flick_buffers::Pool;
use flick_net::{AnyDriver, Driver, DriverEvent, DriverLimits, IoKind, ListenSocket, ListenerId};

const LIMITS: DriverLimits = DriverLimits {
    conns_max: 64,
    shm_conns_max: 0,
    output_slices_max: 64,
    events_max: 64,
    receive_bytes: 16384,
};
const ROUNDS: usize = 200;
/// Rounds of the race, which a peer meets once in a few hundred where two threads run at once; `FLICK_ROUNDS` sets
/// another number.
const RACE_ROUNDS: usize = 1_000;

/// Returns how many peers a poll accepts.
fn accepted(driver: &mut AnyDriver, pool: &Pool, wait: Duration, events: &mut Vec<DriverEvent>) -> usize {
    driver.poll(pool, Some(wait), events).expect("the driver polls");
    events.drain(..).filter(|event| matches!(event, DriverEvent::Accepted { .. })).count()
}

/// Two drivers, of which the old one listens, and a duplicate of its socket for the new one.
struct Pair {
    old: AnyDriver,
    new: AnyDriver,
    listener: ListenerId,
    other: ListenSocket,
    at: String,
}

impl Pair {
    /// Returns `None` where the kernel has no such driver.
    fn listening(kind: IoKind, pool: &Pool, events: &mut Vec<DriverEvent>) -> Option<Self> {
        let (mut old, new) = (open(kind, LIMITS)?, open(kind, LIMITS)?);
        let socket = ListenSocket::open(&"127.0.0.1:0".parse().expect("an endpoint")).expect("loopback");
        let at = socket.local_addr().to_string();
        let other = socket.duplicate().expect("a descriptor");
        let listener = old.listen_on(socket).expect("it listens");
        assert_eq!(accepted(&mut old, pool, Duration::ZERO, events), 0);
        Some(Self { old, new, listener, other, at })
    }
}

/// Returns how many peers a driver accepts until its listener is drained.
fn drain(
    round: usize,
    old: &mut AnyDriver,
    pool: &Pool,
    end: Instant,
    events: &mut Vec<DriverEvent>,
) -> usize {
    let mut found = 0;
    while old.is_draining_listeners() {
        assert!(Instant::now() < end, "round {round}: the old driver does not finish draining");
        found += accepted(old, pool, Duration::from_millis(10), events);
    }
    found
}

fn check(kind: IoKind) {
    let pool = pool();
    let mut events = Vec::new();
    for round in 0..ROUNDS {
        let Some(Pair { mut old, mut new, listener, other, at }) = Pair::listening(kind, &pool, &mut events)
        else {
            return;
        };
        let peer = TcpStream::connect(&at).expect("the old driver listens");
        old.drain_listener(listener);
        new.listen_on(other).expect("it listens");
        let end = Instant::now() + Duration::from_secs(20);
        let mut found = drain(round, &mut old, &pool, end, &mut events);
        drop(old);
        while found == 0 {
            assert!(Instant::now() < end, "round {round}: the peer is lost");
            found += accepted(&mut new, &pool, Duration::from_millis(100), &mut events);
        }
        assert_eq!(found, 1, "round {round}");
        drop(peer);
    }
}

#[test]
fn a_peer_of_a_draining_listener_is_not_lost_on_epoll() {
    check(IoKind::Epoll);
}

#[test]
fn a_peer_of_a_draining_listener_is_not_lost_on_uring() {
    check(IoKind::Uring);
}

/// Both listen when the old driver drains, as in a reload, and the peer connects at that moment.
fn check_race(kind: IoKind) {
    let (pool, mut events) = (pool(), Vec::new());
    let rounds = std::env::var("FLICK_ROUNDS").ok().and_then(|text| text.parse().ok()).unwrap_or(RACE_ROUNDS);
    for round in 0..rounds {
        let Some(Pair { mut old, mut new, listener, other, at }) = Pair::listening(kind, &pool, &mut events)
        else {
            return;
        };
        new.listen_on(other).expect("it listens");
        assert_eq!(accepted(&mut new, &pool, Duration::ZERO, &mut events), 0);
        let (ready, go) = std::sync::mpsc::channel();
        let peer = std::thread::spawn(move || {
            ready.send(()).expect("the test waits");
            TcpStream::connect(&at).expect("a driver listens")
        });
        go.recv().expect("the peer is about to connect");
        (0..round % 50 * 40).for_each(|_| std::hint::spin_loop());
        old.drain_listener(listener);
        let peer = peer.join().expect("it does not panic");
        let end = Instant::now() + Duration::from_secs(5);
        let mut found = drain(round, &mut old, &pool, end, &mut events);
        while found == 0 {
            assert!(Instant::now() < end, "round {round}: the peer is lost");
            found += accepted(&mut old, &pool, Duration::ZERO, &mut events);
            found += accepted(&mut new, &pool, Duration::from_millis(1), &mut events);
        }
        assert_eq!(found, 1, "round {round}");
        drop(peer);
    }
}

#[test]
fn a_peer_in_the_race_of_two_listeners_is_accepted_at_once_on_epoll() {
    check_race(IoKind::Epoll);
}

#[test]
fn a_peer_in_the_race_of_two_listeners_is_accepted_at_once_on_uring() {
    check_race(IoKind::Uring);
}

/// More than a driver accepts in one poll, and more than it has slots.
const BACKLOG: usize = 200;

/// Polls until all peers of finished listeners are delivered, each of which makes way for the next one.
fn accept_finished(driver: &mut AnyDriver, pool: &Pool) -> usize {
    let (mut events, mut found) = (Vec::new(), 0);
    let end = Instant::now() + Duration::from_secs(20);
    while driver.is_draining_listeners() {
        assert!(Instant::now() < end, "{found} of {BACKLOG} peers are delivered");
        driver.poll(pool, Some(Duration::from_millis(10)), &mut events).expect("the driver polls");
        for event in events.drain(..) {
            if let DriverEvent::Accepted { conn, .. } = event {
                found += 1;
                driver.abort(conn);
            }
        }
    }
    found
}

fn check_finish(kind: IoKind, is_paused: bool) {
    let (pool, mut events) = (pool(), Vec::new());
    let Some(mut driver) = open(kind, LIMITS) else { return };
    let listener = driver.listen(&"127.0.0.1:0".parse().expect("an endpoint")).expect("loopback");
    let at = driver.local_addr(listener).expect("it listens").to_string();
    driver.accept(listener, !is_paused);
    assert_eq!(accepted(&mut driver, &pool, Duration::ZERO, &mut events), 0);
    let peers: Vec<_> = (0..BACKLOG).map(|_| TcpStream::connect(&at).expect("it listens")).collect();
    driver.finish_listener(listener);
    TcpStream::connect(&at).expect_err("the socket is closed");
    assert_eq!(accept_finished(&mut driver, &pool), BACKLOG);
    drop(peers);
}

#[test]
fn peers_in_the_backlog_of_a_closed_listener_were_reset_on_epoll() {
    check_finish(IoKind::Epoll, false);
    check_finish(IoKind::Epoll, true);
}

#[test]
fn peers_in_the_backlog_of_a_closed_listener_were_reset_on_uring() {
    check_finish(IoKind::Uring, false);
    check_finish(IoKind::Uring, true);
}

#[test]
fn peers_in_the_backlog_of_a_closed_unix_listener_were_reset() {
    for (kind, name) in [(IoKind::Epoll, "epoll"), (IoKind::Uring, "uring")] {
        let pool = pool();
        let Some(mut driver) = open(kind, LIMITS) else { continue };
        let path = std::env::temp_dir().join(format!("flick-finish-{}-{name}.sock", std::process::id()));
        let listener = driver.listen(&flick_net::Endpoint::Unix(path.clone())).expect("a fresh path");
        let peers: Vec<_> = (0..BACKLOG).map(|_| UnixStream::connect(&path).expect("it listens")).collect();
        driver.finish_listener(listener);
        assert_eq!(accept_finished(&mut driver, &pool), BACKLOG, "{name}");
        drop(peers);
    }
}

/// With all slots taken, the driver neither wakes all the time nor closes those that wait for a slot.
#[test]
fn peers_of_a_closed_listener_wait_for_a_slot() {
    for kind in [IoKind::Epoll, IoKind::Uring] {
        let (pool, mut events, mut conns) = (pool(), Vec::new(), Vec::new());
        let Some(mut driver) = open(kind, LIMITS) else { continue };
        let listener = driver.listen(&"127.0.0.1:0".parse().expect("an endpoint")).expect("loopback");
        let at = driver.local_addr(listener).expect("it listens").to_string();
        let count = LIMITS.conns_max as usize + 1;
        let peers: Vec<_> = (0..count).map(|_| TcpStream::connect(&at).expect("it listens")).collect();
        driver.finish_listener(listener);
        while conns.len() + 1 < count {
            driver.poll(&pool, None, &mut events).expect("the driver polls");
            conns.extend(events.drain(..).filter_map(|event| match event {
                DriverEvent::Accepted { conn, .. } => Some(conn),
                _ => None,
            }));
        }
        let wait = driver.poll_timeout(&pool, Some(Duration::from_secs(1)));
        assert_ne!(wait, Some(Duration::ZERO), "{kind:?}: it sleeps until a slot is free");
        assert!(driver.is_draining_listeners(), "{kind:?}");
        driver.abort(conns[0]);
        assert_eq!(accept_finished(&mut driver, &pool), 1, "{kind:?}");
        drop(peers);
    }
}
