//! The input of a connection goes on in rings of another process, and comes back: bytes keep their order, whatever the
//! other process and the thread of this one do.

mod common;

use std::thread;
use std::time::{Duration, Instant};

use common::{open, pool};
use flick_net::{
    AnyDriver, Continuation, ContinuationEnd, Driver, DriverEvent, DriverLimits, Endpoint, Handle, IoKind,
    ListenSocket,
};
use flick_shm::conn::RingRead;
use flick_shm::pairing::{PairListener, PairPolicy, connect_pair};
use flick_shm::segment::SegmentConfig;
use flick_shm::stream::{ShmStream, StreamConfig, StreamInterest};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::net::{SocketFlags, accept_with};

const LIMITS: DriverLimits = DriverLimits {
    conns_max: 4,
    shm_conns_max: 4,
    output_slices_max: 64,
    events_max: 16,
    receive_bytes: 4096,
};
/// Longest time that a test waits for anything.
const WAIT_MAX: Duration = Duration::from_secs(20);

/// The thread that sends through the connection, and the listener for the other process.
struct Peers {
    own: ShmStream,
    continuation: Continuation,
    listener: PairListener,
    other: String,
}

impl Peers {
    fn connect(name: &str, continuation: Continuation) -> Self {
        let other = format!("{name}-other");
        let listener = PairListener::bind(&other, PairPolicy::SameUser).expect("the name is free");
        let own = ShmStream::connect(name, &StreamConfig::default()).expect("the driver listens");
        Self { own, continuation, listener, other }
    }

    fn send(&mut self, bytes: &[u8]) {
        send_all(&mut self.own, bytes);
    }

    /// Another process connects and does something, while the driver reads it.
    fn begin(&mut self, other: impl FnOnce(&str) + Send + 'static) -> thread::JoinHandle<()> {
        let name = self.other.clone();
        let other = thread::spawn(move || other(&name));
        let socket = accept_with(self.listener.socket(), SocketFlags::CLOEXEC | SocketFlags::NONBLOCK);
        self.continuation.begin(socket.expect("it connects"));
        other
    }

    fn end(&self) -> ContinuationEnd {
        let deadline = Instant::now() + WAIT_MAX;
        loop {
            let ends = self.continuation.ends();
            let mut sources = [PollFd::from_borrowed_fd(ends, PollFlags::IN)];
            poll(&mut sources, Some(&Timespec { tv_sec: 1, tv_nsec: 0 })).expect("it waits");
            match self.continuation.take_end() {
                Some(end) => return end,
                None => assert!(Instant::now() < deadline, "the driver reads on"),
            }
        }
    }
}

fn send_all(stream: &mut ShmStream, mut bytes: &[u8]) {
    while !bytes.is_empty() {
        let count = stream.send(bytes).expect("the driver reads");
        bytes = &bytes[count..];
        if !bytes.is_empty() {
            stream.wait(StreamInterest::Writable, Some(1000)).expect("the driver lives");
        }
    }
}

fn sends(bytes: &'static [u8]) -> impl FnOnce(&str) + Send {
    move |name| {
        let mut stream = ShmStream::connect(name, &StreamConfig::default()).expect("it listens");
        send_all(&mut stream, bytes);
    }
}

/// Publishes bytes and dies: the connection has no end, and the socket is closed.
fn dies_after(bytes: &'static [u8]) -> impl FnOnce(&str) + Send {
    move |name| {
        let config = SegmentConfig { slots: 128, arena_bytes: 64 << 10, huge_pages: false };
        let (peer, pair) = connect_pair(name, &config, PairPolicy::SameUser).expect("it listens");
        let mut pair = pair.expect("the driver has memory");
        let mut conn = pair.open(4096).expect("a slot is free");
        assert_eq!(conn.send(bytes).expect("nothing is wrong"), bytes.len());
        std::mem::forget(conn);
        drop((pair, peer));
    }
}

/// Events of a driver.
#[derive(Default)]
struct Seen {
    conn: Option<Handle>,
    accepted: usize,
    bytes: Vec<u8>,
    has_ended: bool,
    has_failed: bool,
}

/// Runs a driver that listens, until the connection has ended. `step` is called after each poll.
fn run(
    kind: IoKind,
    case: &str,
    peers: impl FnOnce(Peers) + Send + 'static,
    mut step: impl FnMut(&mut AnyDriver, &Seen),
) -> Option<Seen> {
    let (mut driver, pool) = (open(kind, LIMITS)?, pool());
    let name = format!("flick-continuation-{case}-{kind:?}-{}", std::process::id());
    let continuation = Continuation::new().expect("descriptors are left");
    let socket = ListenSocket::open(&Endpoint::Shm(name.clone())).expect("the name is free");
    driver.listen_on(socket.with_continuation(continuation.clone())).expect("it is the first");
    let peers = thread::spawn(move || peers(Peers::connect(&name, continuation)));
    let (mut seen, mut events, deadline) = (Seen::default(), Vec::new(), Instant::now() + WAIT_MAX);
    while !seen.has_ended && !seen.has_failed {
        assert!(Instant::now() < deadline, "the connection goes on: {:?}", seen.bytes);
        driver.poll(&pool, Some(Duration::from_millis(20)), &mut events).expect("the driver polls");
        for event in events.drain(..) {
            match event {
                DriverEvent::Accepted { conn, .. } => {
                    driver.receive(conn, true);
                    (seen.conn, seen.accepted) = (Some(conn), seen.accepted + 1);
                }
                DriverEvent::Data { conn, data } => {
                    assert_eq!(Some(conn), seen.conn);
                    seen.bytes.extend(data.bytes());
                }
                DriverEvent::Eof { .. } => seen.has_ended = true,
                DriverEvent::Failed { .. } => seen.has_failed = true,
                _ => {}
            }
        }
        step(&mut driver, &seen);
    }
    driver.close(seen.conn.expect("it was accepted"));
    driver.poll(&pool, Some(Duration::ZERO), &mut events).expect("the driver polls");
    peers.join().expect("no assertion failed");
    Some(seen)
}

fn check(case: &str, peers: fn(Peers), bytes: &[u8]) {
    for kind in [IoKind::Epoll, IoKind::Uring] {
        let Some(seen) = run(kind, case, peers, |_, _| {}) else { continue };
        assert_eq!(String::from_utf8_lossy(&seen.bytes), String::from_utf8_lossy(bytes));
        assert_eq!((seen.accepted, seen.has_failed), (1, false));
    }
}

#[test]
fn bytes_of_the_rings_lie_between_those_before_and_behind() {
    let peers = |mut peers: Peers| {
        for _ in 0..2 {
            peers.send(b"own ");
            let other = peers.begin(sends(b"rings "));
            assert_eq!(peers.end(), ContinuationEnd::OfRings);
            other.join().expect("no assertion failed");
        }
        peers.send(b"own");
        peers.own.finish_sending().expect("the driver lives");
    };
    check("order", peers, b"own rings own rings own");
}

#[test]
fn death_of_the_other_process_ends_the_rings_behind_what_it_had_published() {
    let peers = |mut peers: Peers| {
        let other = peers.begin(dies_after(b"rings "));
        assert_eq!(peers.end(), ContinuationEnd::OfRings);
        other.join().expect("no assertion failed");
        peers.send(b"own");
        peers.own.finish_sending().expect("the driver lives");
    };
    check("death", peers, b"rings own");
}

#[test]
fn process_that_connects_and_opens_nothing_ends_the_rings() {
    let peers = |mut peers: Peers| {
        let other = peers.begin(|name| {
            let config = SegmentConfig { slots: 128, arena_bytes: 64 << 10, huge_pages: false };
            drop(connect_pair(name, &config, PairPolicy::SameUser));
        });
        assert_eq!(peers.end(), ContinuationEnd::OfRings);
        other.join().expect("no assertion failed");
        peers.send(b"own");
        peers.own.finish_sending().expect("the driver lives");
    };
    check("nothing", peers, b"own");
}

#[test]
fn stop_leaves_the_rings_of_a_process_that_sends_on() {
    let peers = |mut peers: Peers| {
        let (much, is_much) = std::sync::mpsc::channel::<()>();
        let other = peers.begin(move |name| {
            let mut stream = ShmStream::connect(name, &StreamConfig::default()).expect("it listens");
            let (mut sent, end) = (0, Instant::now() + WAIT_MAX);
            while let Ok(count) = stream.send(&[b'r'; 1000]) {
                sent += count;
                // More than a ring and the one that it grew from hold, so the driver has read some of it.
                if sent > 4 << 20 {
                    let _ = much.send(());
                }
                if count == 0 && stream.wait(StreamInterest::Writable, Some(1000)).is_err() {
                    break;
                }
                assert!(Instant::now() < end, "the rings go on");
            }
        });
        is_much.recv().expect("it sends");
        peers.continuation.stop();
        assert_eq!(peers.end(), ContinuationEnd::OfRings);
        other.join().expect("no assertion failed");
        peers.send(b"own");
        peers.own.finish_sending().expect("the driver lives");
    };
    for kind in [IoKind::Epoll, IoKind::Uring] {
        let Some(seen) = run(kind, "stop", peers, |_, _| {}) else { continue };
        let own = seen.bytes.strip_suffix(b"own").expect("the own ring comes back");
        assert!(own.len() > 1 << 20 && own.iter().all(|byte| *byte == b'r'));
        assert_eq!((seen.accepted, seen.has_failed), (1, false));
    }
}

#[test]
fn stop_before_the_other_process_has_paired_was_never_answered() {
    let peers = |mut peers: Peers| {
        let other = peers.begin(|name| drop(ShmStream::connect(name, &StreamConfig::default())));
        peers.continuation.stop();
        assert_eq!(peers.end(), ContinuationEnd::OfRings);
        other.join().expect("no assertion failed");
        peers.send(b"own");
        peers.own.finish_sending().expect("the driver lives");
    };
    check("stop-early", peers, b"own");
}

#[test]
fn rings_overtook_bytes_that_waited_for_a_connection_that_was_paused() {
    for kind in [IoKind::Epoll, IoKind::Uring] {
        let (sent, is_sent) = std::sync::mpsc::channel::<()>();
        let peers = move |mut peers: Peers| {
            peers.send(b"first ");
            is_sent.recv().expect("the driver has paused");
            peers.send(b"own ");
            let other = peers.begin(dies_after(b"rings"));
            other.join().expect("no assertion failed");
            assert_eq!(peers.end(), ContinuationEnd::OfRings);
            peers.own.finish_sending().expect("the driver lives");
        };
        let (mut sent, mut resume_at) = (Some(sent), None);
        let seen = run(kind, "paused", peers, |driver, seen| {
            let Some(conn) = seen.conn else { return };
            if seen.bytes == b"first " && sent.is_some() {
                driver.receive(conn, false);
                sent.take().map(|sent| sent.send(()));
                resume_at = Some(Instant::now() + Duration::from_millis(200));
            }
            if resume_at.is_some_and(|at| at <= Instant::now()) {
                driver.receive(conn, true);
                resume_at = None;
            }
        });
        let Some(seen) = seen else { continue };
        assert_eq!(String::from_utf8_lossy(&seen.bytes), "first own rings");
        assert!(!seen.has_failed && seen.accepted == 1);
    }
}

#[test]
fn connection_that_the_service_closes_ends_the_rings() {
    for kind in [IoKind::Epoll, IoKind::Uring] {
        let peers = |mut peers: Peers| {
            let other = peers.begin(|name| {
                let mut stream = ShmStream::connect(name, &StreamConfig::default()).expect("it listens");
                send_all(&mut stream, b"rings");
                let end = Instant::now() + WAIT_MAX;
                // A wait may end without a reason, so only a read shows the end.
                while stream.receive(&mut [0]) == Ok(RingRead::Empty) {
                    assert!(Instant::now() < end, "it sees the end");
                    if stream.wait(StreamInterest::Readable, Some(1000)).is_err() {
                        break;
                    }
                }
            });
            assert_eq!(peers.end(), ContinuationEnd::OfConnection);
            other.join().expect("no assertion failed");
        };
        let Some(mut driver) = open(kind, LIMITS) else { continue };
        let pool = pool();
        let name = format!("flick-continuation-closed-{kind:?}-{}", std::process::id());
        let continuation = Continuation::new().expect("descriptors are left");
        let socket = ListenSocket::open(&Endpoint::Shm(name.clone())).expect("the name is free");
        driver.listen_on(socket.with_continuation(continuation.clone())).expect("it is the first");
        let peers = thread::spawn(move || peers(Peers::connect(&name, continuation)));
        let (mut events, end) = (Vec::new(), Instant::now() + WAIT_MAX);
        while !peers.is_finished() {
            assert!(Instant::now() < end, "the threads wait");
            driver.poll(&pool, Some(Duration::from_millis(20)), &mut events).expect("the driver polls");
            for event in events.drain(..) {
                match event {
                    DriverEvent::Accepted { conn, .. } => driver.receive(conn, true),
                    DriverEvent::Data { conn, .. } => driver.close(conn),
                    _ => {}
                }
            }
        }
        peers.join().expect("no assertion failed");
    }
}
