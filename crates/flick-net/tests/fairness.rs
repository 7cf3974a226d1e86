//! Fairness among connections: fast senders share what a driver receives, and a poll sends no more than its limit.

mod common;

use std::collections::BTreeMap;
use std::io::{ErrorKind, Read, Write};
use std::net::TcpStream;
use std::time::Duration;

use common::{open, pool};
use flick_buffers::{BufClass, LARGE_BYTES, Pool};
use flick_net::limits::PROVIDED_BUFS_MAX;
use flick_net::{AnyDriver, Driver, DriverEvent, DriverLimits, Handle, IoKind};

const LIMITS: DriverLimits = DriverLimits {
    conns_max: 512,
    shm_conns_max: 0,
    output_slices_max: 64,
    events_max: 512,
    receive_bytes: 16384,
};
const PEERS: usize = 20;
/// Polls in which peers are accepted.
const ACCEPT_POLLS_MAX: usize = 100;
/// Polls of one test: some for each peer.
const POLLS: usize = PEERS * 6;

/// Returns a driver, its buffers, and clients with their connections; `None` where the kernel has no such driver.
fn connected(kind: IoKind, count: usize) -> Option<(AnyDriver, Pool, Vec<TcpStream>, Vec<Handle>)> {
    let (mut driver, pool) = (open(kind, LIMITS)?, pool());
    let listener = driver.listen(&"127.0.0.1:0".parse().expect("an endpoint")).expect("loopback");
    let at = driver.local_addr(listener).expect("just opened").to_string();
    let peers: Vec<TcpStream> = (0..count)
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
            DriverEvent::Accepted { conn, .. } => Some(conn),
            _ => None,
        }));
        if conns.len() == count {
            break;
        }
    }
    assert_eq!(conns.len(), count, "all peers are accepted");
    Some((driver, pool, peers, conns))
}

/// Every socket is full before every poll; in the end no peer is behind by more than a factor of four.
fn check(kind: IoKind) {
    let Some((mut driver, pool, mut peers, conns)) = connected(kind, PEERS) else { return };
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
                DriverEvent::Data { conn, data } => {
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
fn fast_senders_share_receives_on_epoll() {
    check(IoKind::Epoll);
}

#[test]
fn fast_senders_share_receives_on_uring() {
    check(IoKind::Uring);
}

/// Connections that are always ready fill each poll of a service that shares its thread.
fn check_accepts(kind: IoKind) {
    let (mut driver, pool) = match open(kind, LIMITS) {
        Some(driver) => (driver, pool()),
        None => return,
    };
    let listener = driver.listen(&"127.0.0.1:0".parse().expect("an endpoint")).expect("loopback");
    let at = driver.local_addr(listener).expect("just opened").to_string();
    driver.limit_poll(8, 1 << 20);
    let (mut peers, mut conns) = (Vec::new(), Vec::new());
    let mut events = Vec::with_capacity(LIMITS.events_max);
    let mut late = None;
    for poll in 0..POLLS {
        if conns.len() == PEERS && late.is_none() {
            late = Some(poll);
        }
        if peers.len() < PEERS || late == Some(poll) {
            peers.push(TcpStream::connect(&at).expect("the driver listens"));
        }
        peers.iter_mut().for_each(|peer| peer.write_all(b"abc").expect("it takes three bytes"));
        driver.poll(&pool, Some(Duration::from_millis(20)), &mut events).expect("the driver polls");
        for event in events.drain(..) {
            if let DriverEvent::Accepted { conn, .. } = event {
                driver.receive(conn, true);
                conns.push(conn);
            }
        }
        if conns.len() > PEERS {
            return;
        }
    }
    panic!("{kind:?}: one of {} was not accepted, of the others {late:?}", peers.len());
}

#[test]
fn client_beside_connections_that_are_always_ready_was_not_accepted_on_epoll() {
    check_accepts(IoKind::Epoll);
}

#[test]
fn client_beside_connections_that_are_always_ready_is_accepted_on_uring() {
    check_accepts(IoKind::Uring);
}

/// Every peer has sent much before receiving starts: when the last one has had a buffer, most others have had no more
/// than one.
#[test]
fn no_peer_gets_a_second_provided_buffer_before_all_had_one() {
    let Some((mut driver, pool, mut peers, conns)) = connected(IoKind::Uring, PEERS) else { return };
    let buf_bytes = u64::from(LARGE_BYTES);
    let offer = vec![1; 4 * LARGE_BYTES as usize];
    for peer in &mut peers {
        peer.write_all(&offer).expect("a socket takes that much");
    }
    conns.iter().for_each(|conn| driver.receive(*conn, true));
    let mut events = Vec::with_capacity(LIMITS.events_max);
    let mut received: BTreeMap<u32, u64> = BTreeMap::new();
    for _ in 0..POLLS {
        driver.poll(&pool, Some(Duration::ZERO), &mut events).expect("the driver polls");
        for event in events.drain(..) {
            let DriverEvent::Data { conn, data } = event else { panic!("unexpected {event:?}") };
            *received.entry(conn.index).or_default() += u64::from(data.len());
        }
        if received.len() == PEERS {
            break;
        }
    }
    assert_eq!(received.len(), PEERS, "every peer is received from: {received:?}");
    // The first peers get buffers first, and some have had their second when the last one gets its first.
    let most = (PEERS as u64 + 2 * u64::from(PROVIDED_BUFS_MAX)) * buf_bytes;
    let all: u64 = received.values().sum();
    assert!(all <= most, "{all} bytes until the last one had any: {received:?}");
}

/// Fast senders beside one that sends little: several polls receive from each once.
const SENDERS: usize = 320;
/// Messages of that one; with the first it shows that it sends little.
const SHORT_MESSAGES: usize = 20;

/// One peer sends two bytes each time when the last two have arrived, all others as fast as they can: it does not wait
/// until all others have been received from.
fn check_short_messages(kind: IoKind) {
    let Some((mut driver, pool, mut peers, conns)) = connected(kind, SENDERS + 1) else { return };
    let mut events = Vec::with_capacity(LIMITS.events_max);
    conns.iter().for_each(|conn| driver.receive(*conn, true));
    let offer = vec![1; 64 * 1024];
    let (mut short_conn, mut before_max) = (None, 0);
    for message in 0..SHORT_MESSAGES {
        peers[SENDERS].write_all(b"hi").expect("it takes two bytes");
        let (mut before, mut has_arrived) = (0, false);
        while !has_arrived {
            for peer in &mut peers[..SENDERS] {
                while peer.write(&offer).is_ok() {}
            }
            driver.poll(&pool, Some(Duration::ZERO), &mut events).expect("the driver polls");
            for event in events.drain(..) {
                let DriverEvent::Data { conn, data } = event else { panic!("unexpected {event:?}") };
                if data.len() == 2 {
                    short_conn = Some(conn);
                }
                has_arrived |= short_conn == Some(conn);
                before += usize::from(!has_arrived);
            }
        }
        // At first nothing has been received from any.
        before_max = before_max.max(if message < 2 { 0 } else { before });
    }
    assert!(before_max <= SENDERS / 4, "{kind:?}: {before_max} others of {SENDERS} were received from first");
}

#[test]
fn a_short_message_waited_for_a_round_of_fast_senders_on_epoll() {
    check_short_messages(IoKind::Epoll);
}

#[test]
fn a_short_message_waited_for_a_round_of_fast_senders_on_uring() {
    check_short_messages(IoKind::Uring);
}

/// Pieces of output per connection; each fills a large buffer.
const PIECES: usize = 3;
/// Bytes that one poll may send.
const SENT_BYTES_MAX: usize = 40_000;

/// Every peer is sent more than a poll may send: each poll sends about its limit, and all of it arrives.
fn check_sending(kind: IoKind) {
    let Some((mut driver, pool, mut peers, conns)) = connected(kind, PEERS) else { return };
    let mut events = Vec::with_capacity(LIMITS.events_max);
    driver.limit_poll(LIMITS.events_max, SENT_BYTES_MAX);
    let buf = pool.alloc(BufClass::Large).expect("the pool is full");
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
        // The kernel may deliver some of it late.
        assert!(sent <= 2 * (SENT_BYTES_MAX + piece_bytes), "{kind:?}: {sent} bytes of one poll");
        polls += 1;
    }
    assert!(polls >= polls_min, "{kind:?}: {polls} polls sent {all_bytes} bytes");
}

#[test]
fn a_poll_sends_no_more_than_its_limit_on_epoll() {
    check_sending(IoKind::Epoll);
}

#[test]
fn a_poll_sends_no_more_than_its_limit_on_uring() {
    check_sending(IoKind::Uring);
}
