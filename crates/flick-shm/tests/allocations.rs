//! Allocations after set-up: none.
#![cfg(not(loom))]

use std::os::unix::net::UnixStream;
use std::sync::{Arc, Barrier};

use flick_alloc_counter::CountingAllocator;
use flick_shm::conn::RingRead;
use flick_shm::pair::Pair;
use flick_shm::pairing::{PairListener, PairPolicy};
use flick_shm::segment::{Segment, SegmentConfig};
use flick_shm::stream::{ShmStream, StreamConfig, StreamInterest};
use flick_shm::watch::PeerWatch;

#[global_allocator]
static ALLOCATOR: CountingAllocator = CountingAllocator;

#[test]
fn neither_connections_nor_streams_allocate() {
    connections_come_and_go_without_allocations();
    a_stream_grows_and_waits_without_allocations();
    watched_streams_sleep_without_allocations();
}

fn streams(config: StreamConfig) -> (ShmStream, ShmStream) {
    let name = format!("shm:test-allocations-{}", std::process::id());
    let listener = PairListener::bind(&name, PairPolicy::SameUser).expect("the name is free");
    let connecting = std::thread::spawn(move || ShmStream::connect(&name, &config));
    let far = ShmStream::accept(&listener, &config).expect("it connects");
    (connecting.join().expect("it only connects").expect("this side listens"), far)
}

/// Sends eight bytes to the other side and gets eight from it, in either order, and sleeps for them.
fn exchange(stream: &mut ShmStream, is_first: bool) {
    let mut bytes = [7; 8];
    for is_sending in [is_first, !is_first] {
        while is_sending && stream.send(&bytes).expect("honest") == 0 {
            stream.wait(StreamInterest::Writable, None).expect("honest");
        }
        while !is_sending && stream.receive(&mut bytes).expect("honest") == RingRead::Empty {
            stream.wait(StreamInterest::Readable, None).expect("honest");
        }
    }
}

fn watched_streams_sleep_without_allocations() {
    let (mut near, mut far) = streams(StreamConfig { busy_poll_us: 0, ..StreamConfig::default() });
    let watch = PeerWatch::new().expect("descriptors and memory");
    let handle = watch.handle();
    near.watch_peer(&handle).expect("there is space");
    far.watch_peer(&handle).expect("there is space");
    let (begin, end) = (Barrier::new(4), Barrier::new(3));
    std::thread::scope(|scope| {
        let (begin, end) = (&begin, &end);
        scope.spawn(move || {
            begin.wait();
            watch.run()
        });
        for (stream, is_first) in [(&mut near, true), (&mut far, false)] {
            scope.spawn(move || {
                begin.wait();
                (0..1000).for_each(|_| exchange(stream, is_first));
                end.wait();
            });
        }
        begin.wait();
        let before = flick_alloc_counter::allocations();
        end.wait();
        assert_eq!(flick_alloc_counter::allocations(), before);
        handle.stop();
    });
}

fn a_stream_grows_and_waits_without_allocations() {
    let (mut near, mut far) = streams(StreamConfig { ring_bytes: 4096, ..StreamConfig::default() });
    let mut bytes = vec![7; 100_000];
    let before = flick_alloc_counter::allocations();
    let mut sent = 0;
    for _ in 0..1000 {
        sent += near.send(&bytes).expect("honest");
        let _ = near.wait(StreamInterest::Writable, Some(0)).expect("honest");
        while let RingRead::Bytes(count) = far.receive(&mut bytes).expect("honest") {
            sent -= count;
        }
    }
    assert_eq!((sent, far.wait(StreamInterest::Readable, Some(2))), (0, Ok(false)));
    assert_eq!(flick_alloc_counter::allocations(), before);
}

fn connections_come_and_go_without_allocations() {
    let (segment, file) = Segment::create(&SegmentConfig::default()).expect("memory files exist");
    let other = Segment::open(&file).expect("it is sealed");
    let (zero_socket, one_socket) = UnixStream::pair().expect("sockets exist");
    let mut zero = Pair::new(segment, Arc::new(zero_socket.into())).expect("both are attached");
    let mut one = Pair::new(other, Arc::new(one_socket.into())).expect("both are attached");
    let mut bytes = [0; 3000];
    let before = flick_alloc_counter::allocations();
    for round in 0..1000_u64 {
        let mut conn = zero.open(4096 << (round % 5)).expect("memory");
        let mut slot = None;
        one.take_ready(|ready| slot = Some(ready));
        let slot = slot.expect("a connection was opened");
        let mut peer = one.accept(slot, 4096).expect("memory").expect("it is new");
        for _ in 0..5 {
            conn.send(&bytes).expect("honest");
            zero.resize(&mut conn, 65536).expect("honest");
            peer.announce_sleep().expect("honest");
            let _ = one.prepare_sleep() && peer.is_idle().expect("honest");
            one.end_sleep();
            peer.cancel_sleep();
            assert!(matches!(peer.receive(&mut bytes), Ok(RingRead::Bytes(_))));
        }
        zero.close(conn);
        one.close(peer);
        // The side that opened reclaims after the other one.
        zero.reclaim();
        one.reclaim();
        zero.reclaim();
        zero.take_ready(|_| {});
        one.take_ready(|_| {});
        assert_eq!((zero.ring_bytes(), one.ring_bytes()), (0, 0));
    }
    assert_eq!(flick_alloc_counter::allocations(), before);
}
