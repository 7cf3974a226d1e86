//! A driver drains its listener while another one accepts on the same socket: each peer is accepted by one of the two.

mod common;

use std::net::TcpStream;
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
