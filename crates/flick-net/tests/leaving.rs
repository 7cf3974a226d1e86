//! A driver that leaves its listener to another one: who has come is handed out by one of the two, however close it was.

mod common;

use std::net::TcpStream;
use std::time::{Duration, Instant};

use common::{open, pool};
use flick_buffers::Pool;
use flick_net::{AnyDriver, Driver, DriverLimits, Event, IoKind, ListenSocket};

const LIMITS: DriverLimits =
    DriverLimits { conns_max: 64, output_slices_max: 64, events_max: 64, receive_bytes: 16384 };
const ROUNDS: usize = 200;

/// How many peers a poll hands out.
fn accepted(driver: &mut AnyDriver, pool: &Pool, wait: Duration, events: &mut Vec<Event>) -> usize {
    driver.poll(pool, Some(wait), events).expect("the driver polls");
    events.drain(..).filter(|event| matches!(event, Event::Accepted { .. })).count()
}

fn check(kind: IoKind) {
    let pool = pool();
    let mut events = Vec::new();
    for round in 0..ROUNDS {
        let (Some(mut old), Some(mut new)) = (open(kind, LIMITS), open(kind, LIMITS)) else { return };
        let socket = ListenSocket::open(&"127.0.0.1:0".parse().expect("an endpoint")).expect("loopback");
        let at = socket.local_addr().to_string();
        let other = socket.duplicate().expect("a descriptor");
        let listener = old.listen_on(socket).expect("it listens");
        assert_eq!(accepted(&mut old, &pool, Duration::ZERO, &mut events), 0);
        let peer = TcpStream::connect(&at).expect("the old driver listens");
        old.leave_listener(listener);
        new.listen_on(other).expect("it listens");
        let (mut found, end) = (0, Instant::now() + Duration::from_secs(20));
        while old.is_leaving() {
            assert!(Instant::now() < end, "round {round}: the old driver does not let go");
            found += accepted(&mut old, &pool, Duration::from_millis(10), &mut events);
        }
        drop(old);
        while found == 0 {
            assert!(Instant::now() < end, "round {round}: nobody has the peer");
            found += accepted(&mut new, &pool, Duration::from_millis(100), &mut events);
        }
        assert_eq!(found, 1, "round {round}");
        drop(peer);
    }
}

#[test]
fn who_comes_while_a_listener_is_left_is_not_lost_over_epoll() {
    check(IoKind::Epoll);
}

#[test]
fn who_comes_while_a_listener_is_left_is_not_lost_over_uring() {
    check(IoKind::Uring);
}
