//! Streams between two threads: bytes, growth of rings, and waits.
#![cfg(not(loom))]

use std::sync::atomic::{AtomicU32, Ordering};

use flick_shm::conn::RingRead;
use flick_shm::pairing::{PairListener, PairPolicy};
use flick_shm::stream::{ShmStream, StreamConfig, StreamError, StreamInterest, StreamTransport};

/// Longest wait of a test for the other side.
const WAIT_MS: u32 = 20_000;
/// Bytes of a stream.
const STREAM_BYTES: usize = 20_000_000;
/// Period of the pattern of bytes; no power of two, so that a shifted ring shows.
const PERIOD: usize = 65_521;

fn streams(config: &StreamConfig) -> (ShmStream, ShmStream) {
    static NUMBER: AtomicU32 = AtomicU32::new(0);
    let number = NUMBER.fetch_add(1, Ordering::Relaxed);
    let name = format!("shm:test-streams-{}-{number}", std::process::id());
    let listener = PairListener::bind(&name, PairPolicy::SameUser).expect("the name is free");
    let (near, far) = std::thread::scope(|scope| {
        let accepting = scope.spawn(|| ShmStream::accept(&listener, config));
        (ShmStream::connect(&name, config), accepting.join().expect("it only accepts"))
    });
    let (near, far) = (near.expect("the other side listens"), far.expect("the other side connects"));
    assert_eq!(near.transport(), StreamTransport::SharedMemory);
    (near, far)
}

fn pattern() -> Vec<u8> {
    (0..PERIOD + STREAM_BYTES.min(400_000)).map(|at| ((at % PERIOD * 31) >> 3) as u8).collect()
}

/// Sends a stream in pieces of changing lengths.
fn send_all(stream: &mut ShmStream, pattern: &[u8]) {
    let (mut sent, mut piece) = (0, 1);
    while sent < STREAM_BYTES {
        piece = (piece * 7 + 13) % 300_000 + 1;
        let from = sent % PERIOD;
        let bytes = &pattern[from..from + piece.min(STREAM_BYTES - sent)];
        match stream.send(bytes).expect("the other side lives") {
            0 => assert!(stream.wait(StreamInterest::Writable, Some(WAIT_MS)).expect("the other side lives")),
            count => sent += count,
        }
    }
    stream.finish_sending().expect("the other side lives");
}

fn receive_all(stream: &mut ShmStream, pattern: &[u8]) {
    let (mut received, mut bytes, mut piece) = (0, vec![0; 300_000], 1);
    loop {
        piece = (piece * 11 + 5) % bytes.len() + 1;
        match stream.receive(&mut bytes[..piece]).expect("the other side lives") {
            RingRead::Bytes(count) => {
                let from = received % PERIOD;
                assert!(bytes[..count] == pattern[from..from + count], "a wrong byte behind {received}");
                received += count;
            }
            RingRead::Empty => {
                assert!(stream.wait(StreamInterest::Readable, Some(WAIT_MS)).expect("the other side lives"));
            }
            RingRead::Finished => break,
            RingRead::Reset => panic!("the stream was ended"),
        }
    }
    assert_eq!(received, STREAM_BYTES);
}

#[test]
fn every_byte_arrives_while_rings_grow_and_both_sides_sleep() {
    let pattern = &pattern();
    for (ring_bytes, ring_bytes_max, busy_poll_us) in
        [(4096, 1 << 20, 0), (4096, 1 << 20, 50), (4096, 4096, 0), (1 << 16, 1 << 18, 1), (1 << 20, 4096, 50)]
    {
        let config = StreamConfig { ring_bytes, ring_bytes_max, busy_poll_us, ..StreamConfig::default() };
        let (mut near, mut far) = streams(&config);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                receive_all(&mut far, pattern);
                send_all(&mut far, pattern);
            });
            send_all(&mut near, pattern);
            receive_all(&mut near, pattern);
        });
    }
}

#[test]
fn round_trips_arrive_when_sides_sleep_after_they_have_polled() {
    let (mut near, mut far) = streams(&StreamConfig::default());
    let exchange = |stream: &mut ShmStream, begins: bool| {
        for trip in 0..20_000_u32 {
            if begins || trip > 0 {
                assert_eq!(stream.send(&trip.to_le_bytes()), Ok(4));
            }
            let mut bytes = [0; 4];
            while stream.receive(&mut bytes) == Ok(RingRead::Empty) {
                assert_eq!(stream.wait(StreamInterest::Readable, Some(WAIT_MS)), Ok(true));
            }
            assert_eq!(u32::from_le_bytes(bytes), if begins { trip + 1 } else { trip });
            if trip % 1000 == 0 {
                // Long enough for the other side to sleep.
                let _ = rustix::event::poll(
                    &mut [],
                    Some(&rustix::event::Timespec { tv_sec: 0, tv_nsec: 1_000_000 }),
                );
            }
        }
        if !begins {
            stream.send(&20_000_u32.to_le_bytes()).expect("the other side lives");
        }
    };
    std::thread::scope(|scope| {
        scope.spawn(|| exchange(&mut far, false));
        exchange(&mut near, true);
    });
}

/// The other side answers and closes the stream before this one has sent its request.
#[test]
fn a_send_behind_the_end_of_a_closed_stream_lost_its_reply() {
    let (mut near, mut far) = streams(&StreamConfig::default());
    assert_eq!(far.send(b"overload"), Ok(8));
    drop(far);
    assert_eq!(near.send(b"request"), Ok(7), "it is discarded, as by a kernel whose socket is closed");
    let mut out = [0; 64];
    assert_eq!(near.receive(&mut out), Ok(RingRead::Bytes(8)));
    assert_eq!(&out[..8], b"overload");
    assert_eq!(near.receive(&mut out), Ok(RingRead::Finished));
    assert_eq!(near.send(b"request"), Err(StreamError::PeerGone));
}
