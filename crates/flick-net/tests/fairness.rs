//! Peers who send without end: each has its part of what a driver receives. Peers who are sent much: a poll sends its part.

mod common;

use std::collections::BTreeMap;
use std::io::{ErrorKind, Read, Write};
use std::net::TcpStream;
use std::time::Duration;

use common::{open, pool};
use flick_buffers::{Class, LARGE_BYTES, Pool};
use flick_net::limits::PROVIDED_BUFS_MAX;
use flick_net::{AnyDriver, Driver, DriverLimits, Event, Handle, IoKind};

const LIMITS: DriverLimits =
    DriverLimits { conns_max: 64, output_slices_max: 64, events_max: 256, receive_bytes: 16384 };
const PEERS: usize = 20;
/// Polls in which peers are let in.
const ACCEPT_POLLS_MAX: usize = 100;
/// Polls that are looked at: some for each peer.
const POLLS: usize = PEERS * 6;

/// A driver, its buffers, and clients with their connections; `None` where the kernel has no such driver.
fn connected(kind: IoKind) -> Option<(AnyDriver, Pool, Vec<TcpStream>, Vec<Handle>)> {
    let (mut driver, pool) = (open(kind, LIMITS)?, pool());
    let listener = driver.listen(&"127.0.0.1:0".parse().expect("an endpoint")).expect("loopback");
    let at = driver.local_addr(listener).expect("just opened").to_string();
    let peers: Vec<TcpStream> = (0..PEERS)
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
    Some((driver, pool, peers, conns))
}

/// Everybody's socket is full before every poll; nobody is behind by more than a few polls' worth in the end.
fn check(kind: IoKind) {
    let Some((mut driver, pool, mut peers, conns)) = connected(kind) else { return };
    let mut events = Vec::with_capacity(LIMITS.events_max);
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

/// Everybody has sent much before anybody is received from: when the last one has had a buffer, most of the others have had no more.
#[test]
fn who_had_a_buffer_of_the_ring_had_all_it_wanted_before_others_had_any() {
    let Some((mut driver, pool, mut peers, conns)) = connected(IoKind::Uring) else { return };
    let buf_bytes = u64::from(LARGE_BYTES);
    let offer = vec![1; 4 * LARGE_BYTES as usize];
    for peer in &mut peers {
        peer.write_all(&offer).expect("a socket takes so much");
    }
    conns.iter().for_each(|conn| driver.receive(*conn, true));
    let mut events = Vec::with_capacity(LIMITS.events_max);
    let mut received: BTreeMap<u32, u64> = BTreeMap::new();
    for _ in 0..POLLS {
        driver.poll(&pool, Some(Duration::ZERO), &mut events).expect("the driver polls");
        for event in events.drain(..) {
            let Event::Data { conn, data } = event else { panic!("unexpected {event:?}") };
            *received.entry(conn.index).or_default() += u64::from(data.len());
        }
        if received.len() == PEERS {
            break;
        }
    }
    assert_eq!(received.len(), PEERS, "everybody has been received from: {received:?}");
    // The first turn is that of who comes first. In the last one some have had their second already.
    let most = (PEERS as u64 + 2 * u64::from(PROVIDED_BUFS_MAX)) * buf_bytes;
    let all: u64 = received.values().sum();
    assert!(all <= most, "{all} bytes until the last one had any: {received:?}");
}

/// Pieces of output of each connection, of which one fills a large buffer.
const PIECES: usize = 3;
/// What one poll may send.
const SENT_BYTES_MAX: usize = 40_000;

/// Everybody is sent more than a poll may send: each poll sends about what it may, in turns, and all of it arrives.
fn check_sending(kind: IoKind) {
    let Some((mut driver, pool, mut peers, conns)) = connected(kind) else { return };
    let mut events = Vec::with_capacity(LIMITS.events_max);
    driver.limit_poll(LIMITS.events_max, SENT_BYTES_MAX);
    let buf = pool.alloc(Class::Large).expect("the pool is full");
    let piece_bytes = buf.append(&[7; 16_000]) as usize;
    for conn in &conns {
        (0..PIECES).for_each(|_| driver.send(*conn, buf.slice(0..buf.len())));
    }
    let (mut received, mut bytes) = (vec![0; peers.len()], vec![0; 1 << 20]);
    let all_bytes = PEERS * PIECES * piece_bytes;
    let polls_min = all_bytes / (SENT_BYTES_MAX + piece_bytes);
    let mut polls = 0;
    while received.iter().sum::<usize>() < all_bytes {
        assert!(polls < 100 * polls_min, "{kind:?}: only {received:?} after {polls} polls");
        let before: usize = received.iter().sum();
        driver.poll(&pool, Some(Duration::ZERO), &mut events).expect("the driver polls");
        events.clear();
        for (peer, received) in peers.iter_mut().zip(&mut received) {
            match peer.read(&mut bytes) {
                Ok(length) => *received += length,
                Err(error) => assert_eq!(error.kind(), ErrorKind::WouldBlock, "the connection is up"),
            }
        }
        let sent = received.iter().sum::<usize>() - before;
        // What the kernel delivers late may come with the next.
        assert!(sent <= 2 * (SENT_BYTES_MAX + piece_bytes), "{kind:?}: {sent} bytes of one poll");
        polls += 1;
    }
    assert!(polls >= polls_min, "{kind:?}: {polls} polls sent {all_bytes} bytes");
}

#[test]
fn a_poll_sends_no_more_than_it_may_and_the_next_ones_send_the_rest_by_epoll() {
    check_sending(IoKind::Epoll);
}

#[test]
fn a_poll_sends_no_more_than_it_may_and_the_next_ones_send_the_rest_by_the_ring() {
    check_sending(IoKind::Uring);
}
