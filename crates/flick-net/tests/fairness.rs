//! Peers who send without end: each has its part of what a driver receives.

use std::collections::BTreeMap;
use std::io::{ErrorKind, Write};
use std::net::TcpStream;
use std::time::Duration;

use flick_buffers::{Pool, PoolConfig};
use flick_net::{AnyDriver, Driver, DriverLimits, Event, IoKind};

const LIMITS: DriverLimits =
    DriverLimits { conns_max: 64, output_slices_max: 64, events_max: 256, receive_bytes: 16384 };
const PEERS: usize = 20;
/// Polls in which peers are let in.
const ACCEPT_POLLS_MAX: usize = 100;
/// Polls that are looked at: some for each peer.
const POLLS: usize = PEERS * 6;

/// Everybody's socket is full before every poll; nobody is behind by more than a few polls' worth in the end.
fn check(kind: IoKind) {
    let mut driver = match AnyDriver::open(kind, LIMITS) {
        Ok(driver) => driver,
        Err(error) => return eprintln!("not tested: {error}"),
    };
    let pool = Pool::new(PoolConfig { small_count: 8, large_count: 64, huge_count: 0 });
    let listener = driver.listen(&"127.0.0.1:0".parse().expect("an endpoint")).expect("loopback");
    let at = driver.local_addr(listener).expect("just opened").to_string();
    let mut peers: Vec<TcpStream> = (0..PEERS)
        .map(|_| {
            let peer = TcpStream::connect(&at).expect("the driver listens");
            peer.set_nonblocking(true).expect("a socket may be non-blocking");
            peer
        })
        .collect();
    let (mut events, mut conns) = (Vec::with_capacity(LIMITS.events_max), Vec::new());
    for _ in 0..ACCEPT_POLLS_MAX {
        driver.poll(&pool, Some(Duration::from_millis(20)), &mut events).expect("the driver polls");
        conns.extend(events.drain(..).filter_map(|event| match event {
            Event::Accepted { conn, .. } => Some(conn),
            _ => None,
        }));
        if conns.len() == PEERS {
            break;
        }
    }
    assert_eq!(conns.len(), PEERS, "all peers are let in");
    conns.iter().for_each(|conn| driver.receive(*conn, true));
    let mut received: BTreeMap<u32, u64> = conns.iter().map(|conn| (conn.index, 0)).collect();
    let offer = vec![1; 64 * 1024];
    for _ in 0..POLLS {
        for peer in &mut peers {
            loop {
                match peer.write(&offer) {
                    Ok(_) => {}
                    Err(error) if error.kind() == ErrorKind::WouldBlock => break,
                    Err(error) => panic!("the connection is up: {error}"),
                }
            }
        }
        driver.poll(&pool, Some(Duration::ZERO), &mut events).expect("the driver polls");
        for event in events.drain(..) {
            match event {
                Event::Data { conn, data } => {
                    *received.get_mut(&conn.index).expect("a peer") += u64::from(data.len());
                }
                other => panic!("unexpected {other:?}"),
            }
        }
    }
    let (least, most) = (received.values().min().copied(), received.values().max().copied());
    let (least, most) = (least.expect("peers"), most.expect("peers"));
    assert!(
        least * 4 >= most,
        "{kind:?}: one peer was received {most} bytes from, another {least}: {received:?}"
    );
}

#[test]
fn every_fast_sender_has_its_part_of_epoll() {
    check(IoKind::Epoll);
}

#[test]
fn the_first_of_many_fast_senders_had_all_buffers_of_the_ring() {
    check(IoKind::Uring);
}
