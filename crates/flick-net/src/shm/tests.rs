//! Tests of the transport's clock and of early wake-ups; the contract of drivers (`tests/contract`) shows the rest.

use std::time::Duration;

use flick_buffers::{BufClass, Pool, PoolConfig};
use flick_shm::conn::{RingConn, RingRead};
use flick_shm::pair::Pair;
use flick_shm::pairing::{PairListener, PairPolicy, PeerProcess};

use super::ShmTransport;
use crate::address::Endpoint;
use crate::clock::{Clock, monotonic_ns};
use crate::driver::{DriverEvent, DriverLimits, Handle, ShmStats};
use crate::event_sink::EventSink;
use crate::fault::ConnFault;
use crate::internal::internal_shm_name;
use crate::limits::FLUSH_NS_MAX;
use crate::listen::ListenSocket;

const LIMITS: DriverLimits = DriverLimits {
    conns_max: 0,
    shm_conns_max: 4,
    output_slices_max: 64,
    events_max: 8,
    receive_bytes: 4096,
};

/// Begins a poll now; the events.
fn poll(transport: &mut ShmTransport) -> Vec<DriverEvent> {
    let pool = Pool::new(PoolConfig { small_count: 0, large_count: 1, huge_count: 0 });
    let mut events = Vec::with_capacity(LIMITS.events_max);
    transport.begin_poll(monotonic_ns());
    transport.take_news();
    transport.serve_all(&pool, &mut EventSink::new(&mut events, LIMITS.events_max));
    events
}

/// A transport with one connection, which another side of this process has accepted with a small ring; the pair and the
/// ring of that side.
fn connected(name: &str) -> (ShmTransport, Handle, (PeerProcess, Pair), RingConn) {
    let name = format!("flick-net-{name}-{}", std::process::id());
    let listener = PairListener::bind(&name, PairPolicy::SameUser).expect("the name is free");
    let mut transport = ShmTransport::new(&LIMITS, Clock::Monotonic).expect("an epoll");
    let conn = transport.connect(&name).expect("the table has capacity");
    let (process, pair) = listener.accept().expect("it has connected");
    let mut pair = pair.expect("it asks for a segment");
    poll(&mut transport);
    let peer = pair.accept(pair.slots() / 2, 4096).expect("memory").expect("the first slot was opened");
    (transport, conn, (process, pair), peer)
}

#[test]
fn first_connect_failed_when_the_last_poll_was_long_ago() {
    let name = format!("flick-net-clock-{}", std::process::id());
    let listener = PairListener::bind(&name, PairPolicy::SameUser).expect("the name is free");
    let mut transport = ShmTransport::new(&LIMITS, Clock::Monotonic).expect("an epoll");
    transport.begin_poll(0);
    transport.connect(&name).expect("the table has capacity");
    let events = poll(&mut transport);
    assert!(events.is_empty(), "the handshake has a second from the connect on: {events:?}");
    let (_peer, pair) = listener.accept().expect("it has connected");
    let mut pair = pair.expect("it asks for a segment");
    let events = poll(&mut transport);
    assert!(events.is_empty(), "{events:?}");
    pair.accept(pair.slots() / 2, 4096).expect("memory").expect("the first slot was opened");
    let events = poll(&mut transport);
    assert!(matches!(events[..], [DriverEvent::Connected { .. }]), "{events:?}");
}

#[test]
fn service_without_memory_for_a_pair_appeared_to_speak_another_protocol() {
    let name = format!("flick-net-memory-{}", std::process::id());
    let open = || ShmTransport::new(&LIMITS, Clock::Monotonic).expect("an epoll");
    let (mut service, mut client) = (open(), open());
    service.limit_rings(0);
    let socket = ListenSocket::open(&Endpoint::Shm(name.clone())).expect("the name is free");
    service.listen_on(socket).expect("it is the first listener");
    client.connect(&name).expect("the table has capacity");
    // One poll accepts the process, the next one answers.
    (0..2).for_each(|_| assert!(poll(&mut service).is_empty()));
    let events = poll(&mut client);
    let [DriverEvent::Failed { fault, .. }] = events[..] else { panic!("{events:?}") };
    assert_eq!(fault, ConnFault::PairMemory);
    // Nor has a process without memory a pair to offer.
    client.limit_rings(0);
    client.connect(&name).expect("the table has capacity");
    let events = poll(&mut client);
    let [DriverEvent::Failed { fault, .. }] = events[..] else { panic!("{events:?}") };
    assert_eq!(fault, ConnFault::PairMemory);
}

#[test]
fn connection_refused_for_lack_of_memory_was_counted_nowhere() {
    let name = format!("flick-net-rings-{}", std::process::id());
    let open = || ShmTransport::new(&LIMITS, Clock::Monotonic).expect("an epoll");
    let (mut service, mut client) = (open(), open());
    let socket = ListenSocket::open(&Endpoint::Shm(name.clone())).expect("the name is free");
    service.listen_on(socket).expect("it is the first listener");
    client.connect(&name).expect("the table has capacity");
    let accepted = (0..10).find_map(|_| {
        poll(&mut client);
        poll(&mut service).pop()
    });
    assert!(matches!(accepted, Some(DriverEvent::Accepted { .. })), "{accepted:?}");
    poll(&mut client);
    service.limit_rings(0);
    client.connect(&name).expect("the table has capacity");
    let fault = (0..100).find_map(|_| {
        poll(&mut service);
        poll(&mut client).into_iter().find_map(|event| match event {
            DriverEvent::Failed { fault, .. } => Some(fault),
            _ => None,
        })
    });
    assert_eq!(fault, Some(ConnFault::PairMemory));
    assert_eq!((service.stats().refused, service.stats().plain_limit), (1, 0));
}

/// Sends through a connection between two transports of this process; their use afterwards.
fn use_of(name: &str) -> [ShmStats; 2] {
    let open = || ShmTransport::new(&LIMITS, Clock::Monotonic).expect("an epoll");
    let (mut service, mut client) = (open(), open());
    let socket = ListenSocket::open(&Endpoint::Shm(name.to_owned())).expect("the name is free");
    service.listen_on(socket).expect("it is the first listener");
    let conn = client.connect(name).expect("the table has capacity");
    let pool = Pool::new(PoolConfig { small_count: 0, large_count: 2, huge_count: 0 });
    let buf = pool.alloc(BufClass::Large).expect("the pool has enough");
    buf.append_with(100, |spare| spare.len() as u32);
    client.send(conn, buf.slice(0..100));
    let has_arrived = (0..100).any(|_| {
        poll(&mut client);
        poll(&mut service).into_iter().any(|event| match event {
            DriverEvent::Accepted { conn, .. } => {
                service.receive(conn, true);
                false
            }
            event => matches!(event, DriverEvent::Data { .. }),
        })
    });
    assert!(has_arrived);
    [service.stats(), client.stats()]
}

#[test]
fn connection_between_threads_of_a_filter_counted_as_use_of_shared_memory() {
    assert_eq!(use_of(&internal_shm_name()), [ShmStats::default(); 2]);
    let [service, client] = use_of(&format!("flick-net-use-{}", std::process::id()));
    assert_eq!((service.conns, service.pairs, service.received_bytes), (1, 1, 100));
    assert_eq!((client.conns, client.pairs, client.sent_bytes), (1, 1, 100));
}

#[test]
fn sender_stalled_that_was_woken_before_its_larger_ring_had_space() {
    let (mut transport, conn, _pair, mut peer) = connected("early");
    let events = poll(&mut transport);
    assert!(matches!(events[..], [DriverEvent::Connected { .. }]), "{events:?}");
    let pool = Pool::new(PoolConfig { small_count: 0, large_count: 32, huge_count: 0 });
    let send = |transport: &mut ShmTransport, bytes: u32| {
        let buf = pool.alloc(BufClass::Large).expect("the pool has enough");
        buf.append_with(bytes, |spare| spare.len() as u32);
        transport.send(conn, buf.slice(0..bytes));
    };
    send(&mut transport, 4096);
    poll(&mut transport);
    let mut received = 0;
    let mut out = vec![0; 64 << 10];
    let mut receive = |bytes: usize| {
        match peer.receive(&mut out[..bytes]).expect("an honest sender") {
            RingRead::Bytes(count) => received += count,
            RingRead::Empty => {}
            other => panic!("{other:?} after {received} bytes"),
        }
        received
    };
    // It looks at the sender's index now, and not again until it has read 4096 bytes.
    receive(1);
    (0..20).for_each(|_| send(&mut transport, 16 << 10));
    poll(&mut transport);
    receive(3000);
    let total = 4096 + 20 * (16 << 10);
    let all = (0..1000).find(|_| {
        poll(&mut transport);
        receive(64 << 10) == total
    });
    assert!(all.is_some(), "the sender was never woken again");
}

/// The other side answers and closes the connection before it reads: the reply precedes the end, and no fault comes
/// before it. Slots are used again.
#[test]
fn reply_was_lost_behind_which_the_other_side_closed_at_once() {
    let name = format!("flick-net-closed-{}", std::process::id());
    let listener = PairListener::bind(&name, PairPolicy::SameUser).expect("the name is free");
    let mut transport = ShmTransport::new(&LIMITS, Clock::Monotonic).expect("an epoll");
    let pool = Pool::new(PoolConfig { small_count: 0, large_count: 4, huge_count: 0 });
    let mut first = None;
    for round in 0..20_u8 {
        let conn = transport.connect(&name).expect("the table has capacity");
        let pair = first.get_or_insert_with(|| listener.accept().expect("it has connected"));
        let pair = pair.1.as_mut().expect("it asks for a segment");
        poll(&mut transport);
        let mut opened = Vec::new();
        pair.take_ready(|slot| opened.push(slot));
        opened.iter().for_each(|slot| pair.reclaim_slot(*slot));
        let mut accepted = opened.iter().filter_map(|slot| pair.accept(*slot, 4096).expect("memory"));
        let mut peer = accepted.next().expect("it has opened one");
        assert_eq!(peer.send(&[round; 300]), Ok(300));
        pair.close(peer);
        let buf = pool.alloc(BufClass::Large).expect("the pool has enough");
        buf.append_with(100, |spare| spare.len() as u32);
        transport.send(conn, buf.slice(0..100));
        transport.receive(conn, true);
        let (mut received, mut has_ended) = (0, false);
        for event in (0..3).flat_map(|_| poll(&mut transport)) {
            match event {
                DriverEvent::Connected { .. } => {}
                DriverEvent::Data { data, .. } => {
                    assert!(data.bytes().iter().all(|byte| *byte == round), "of another connection");
                    received += data.len();
                }
                DriverEvent::Eof { .. } => has_ended = true,
                other => panic!("round {round}: {other:?} after {received} bytes"),
            }
        }
        assert_eq!((received, has_ended), (300, true), "round {round}");
        transport.close(conn);
        poll(&mut transport);
    }
}

/// The other side never reads: the connection is reset after a minute, and nothing is left to wait for.
#[test]
fn wait_never_slept_again_after_a_connection_closed_with_output() {
    let (mut transport, conn, _pair, _held) = connected("flush");
    poll(&mut transport);
    let pool = Pool::new(PoolConfig { small_count: 0, large_count: 4, huge_count: 0 });
    for _ in 0..2 {
        let buf = pool.alloc(BufClass::Large).expect("the pool has enough");
        buf.append_with(8192, |spare| spare.len() as u32);
        transport.send(conn, buf.slice(0..8192));
    }
    transport.close(conn);
    poll(&mut transport);
    assert_eq!(transport.stats().conns, 1, "its output waits");
    let mut events = Vec::with_capacity(LIMITS.events_max);
    for _ in 0..2 {
        transport.begin_poll(monotonic_ns() + FLUSH_NS_MAX);
        transport.take_news();
        transport.serve_all(&pool, &mut EventSink::new(&mut events, LIMITS.events_max));
    }
    assert_eq!(transport.stats().conns, 0);
    assert_ne!(transport.wait_time(), Some(Duration::ZERO));
}
