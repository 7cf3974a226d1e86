//! A set of clients against servers of its own process: echoes, ends, deaths and allocations, on every transport.
#![cfg(not(loom))]

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::os::unix::net::UnixListener;
use std::sync::atomic::{AtomicU32, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use flick_alloc_counter::CountingAllocator;
use flick_shm::client::{ClientAddress, ClientConfig, ClientEvent, ClientSet};
use flick_shm::conn::{RingConn, RingRead};
use flick_shm::limits::CLIENT_MOVES_MAX;
use flick_shm::pair::Pair;
use flick_shm::pairing::{PairListener, PairPolicy};
use flick_shm::stream::StreamError;
use rustix::event::{PollFd, PollFlags, Timespec, poll};

#[global_allocator]
static ALLOCATOR: CountingAllocator = CountingAllocator;

/// Longest wait of a test for an event.
const WAIT: Option<Timespec> = Some(Timespec { tv_sec: 20, tv_nsec: 0 });
/// Bytes that a server sends before it ends, more than a ring begins with.
const LAST_BYTES: usize = 3000;

/// A server's answer to its first bytes.
#[derive(Clone, Copy, PartialEq)]
enum Server {
    /// It sends everything back, until its clients are gone.
    Echo,
    /// It answers with `LAST_BYTES` and ends its side of the stream.
    Finish,
    /// It answers with `LAST_BYTES` and dies.
    Die,
}

fn name() -> String {
    static NUMBER: AtomicU32 = AtomicU32::new(0);
    format!("test-clients-{}-{}", std::process::id(), NUMBER.fetch_add(1, Ordering::Relaxed))
}

/// Serves one process in shared memory, of which the address is returned.
fn serve_shm(kind: Server) -> (ClientAddress, JoinHandle<()>) {
    let name = name();
    let listener = PairListener::bind(&name, PairPolicy::SameUser).expect("the name is free");
    let serving = std::thread::spawn(move || {
        let (peer, pair) = listener.accept().expect("the set connects");
        let mut pair = pair.expect("both can pair");
        let mut conns: Vec<RingConn> = Vec::new();
        let mut bytes = [0; 4096];
        while !peer.is_gone() {
            accept(&mut pair, &mut conns);
            for at in (0..conns.len()).rev() {
                match conns[at].receive(&mut bytes).expect("an honest peer") {
                    RingRead::Bytes(count) if kind == Server::Echo => send(&mut conns[at], &bytes[..count]),
                    RingRead::Bytes(_) => {
                        send(&mut conns[at], &[7; LAST_BYTES]);
                        if kind == Server::Die {
                            return;
                        }
                        conns[at].finish_sending().expect("an honest peer");
                    }
                    RingRead::Finished | RingRead::Reset => pair.close(conns.swap_remove(at)),
                    RingRead::Empty => {}
                }
            }
            std::thread::yield_now();
        }
    });
    (ClientAddress::Shm(name), serving)
}

fn accept(pair: &mut Pair, conns: &mut Vec<RingConn>) {
    let mut ready = Vec::new();
    pair.take_ready(|slot| ready.push(slot));
    for slot in ready {
        pair.reclaim_slot(slot);
        conns.extend(pair.accept(slot, 4096).expect("memory"));
    }
}

fn send(conn: &mut RingConn, bytes: &[u8]) {
    let mut sent = 0;
    while sent < bytes.len() && !conn.is_peer_gone() {
        sent += conn.send(&bytes[sent..]).expect("an honest peer");
        std::thread::yield_now();
    }
}

/// Serves connections of the kernel, a thread each.
fn serve_kernel<S: Read + Write + Send + 'static>(
    kind: Server,
    mut accept: impl FnMut() -> S + Send + 'static,
) -> JoinHandle<()> {
    std::thread::spawn(move || {
        loop {
            let mut stream = accept();
            std::thread::spawn(move || {
                let mut bytes = [0; 4096];
                while let Ok(count @ 1..) = stream.read(&mut bytes) {
                    if kind != Server::Echo {
                        let _ = stream.write_all(&[7; LAST_BYTES]);
                        return;
                    }
                    let _ = stream.write_all(&bytes[..count]);
                }
            });
        }
    })
}

/// Addresses, of which the paths are removed at the end.
struct Addresses(Vec<ClientAddress>);

impl Drop for Addresses {
    fn drop(&mut self) {
        for address in &self.0 {
            if let ClientAddress::Unix(path) = address {
                std::fs::remove_file(path).expect("the socket is there");
            }
        }
    }
}

/// An address of each transport.
fn addresses(kind: Server) -> Addresses {
    let tcp = TcpListener::bind("127.0.0.1:0").expect("a free port");
    let addr = tcp.local_addr().expect("it is bound");
    serve_kernel(kind, move || tcp.accept().expect("descriptors are left").0);
    let path = std::env::temp_dir().join(name());
    let unix = UnixListener::bind(&path).expect("the path is free");
    serve_kernel(kind, move || unix.accept().expect("descriptors are left").0);
    let path = path.to_str().expect("a plain path").to_owned();
    Addresses(vec![addr.into(), ClientAddress::Unix(path), serve_shm(kind).0])
}

/// Waits for events; none for `WAIT` is a failure.
fn wait(set: &mut ClientSet, events: &mut Vec<ClientEvent>) {
    let begun = Instant::now();
    events.clear();
    while events.is_empty() {
        assert!(begun.elapsed() < Duration::from_secs(20), "an event is lost");
        set.wait(events, WAIT).expect("the descriptors live");
    }
}

/// Waits until a connection is connected.
fn connected(set: &mut ClientSet, token: u32, address: &ClientAddress) {
    set.connect(token, address).expect("a server listens");
    let mut events = Vec::with_capacity(8);
    while !events.contains(&ClientEvent::Connected(token)) {
        wait(set, &mut events);
        assert!(!events.contains(&ClientEvent::Failed(token)), "{address}");
    }
}

/// Receives until the stream ends or fails.
fn receive_all(set: &mut ClientSet, token: u32) -> (Vec<u8>, Result<(), StreamError>) {
    let (mut all, mut bytes) = (Vec::new(), [0; 700]);
    let mut events = Vec::with_capacity(8);
    loop {
        match set.receive(token, &mut bytes) {
            Ok(RingRead::Bytes(count)) => all.extend_from_slice(&bytes[..count]),
            Ok(RingRead::Empty) => wait(set, &mut events),
            Ok(RingRead::Finished) => return (all, Ok(())),
            Ok(RingRead::Reset) => panic!("a reset is an error"),
            Err(error) => return (all, Err(error)),
        }
    }
}

/// One connection of the echo test.
#[derive(Clone, Copy, Default)]
struct Stream {
    is_connected: bool,
    sent: usize,
    received: usize,
}

fn pattern(token: u32, at: usize) -> u8 {
    (at * 31 + token as usize * 7 + (at >> 8)) as u8
}

/// Sends until the connection takes no more.
fn send_more(set: &mut ClientSet, token: u32, stream: &mut Stream, total: usize) {
    while stream.sent < total {
        let mut bytes = [0; 5000];
        let len = bytes.len().min(total - stream.sent).min(1 + stream.sent * 7 % 5000);
        (0..len).for_each(|at| bytes[at] = pattern(token, stream.sent + at));
        match set.send(token, &bytes[..len]).expect("the server lives") {
            0 => return set.request_writable(token).expect("the descriptors live"),
            count => stream.sent += count,
        }
    }
}

/// Exchanges `total` bytes on all connections at the same time.
fn exchange(set: &mut ClientSet, streams: &mut [Stream], total: usize) {
    let (mut events, mut bytes) = (Vec::with_capacity(64), [0; 3000]);
    for (token, stream) in streams.iter_mut().enumerate().filter(|(_, stream)| stream.is_connected) {
        (stream.sent, stream.received) = (0, 0);
        send_more(set, token as u32, stream, total);
    }
    while streams.iter().any(|stream| stream.received < total) {
        wait(set, &mut events);
        for event in &events {
            match *event {
                ClientEvent::Connected(token) => {
                    streams[token as usize].is_connected = true;
                    send_more(set, token, &mut streams[token as usize], total);
                }
                ClientEvent::Writable(token) => send_more(set, token, &mut streams[token as usize], total),
                ClientEvent::Readable(token) => {
                    let stream = &mut streams[token as usize];
                    if let RingRead::Bytes(count) = set.receive(token, &mut bytes).expect("the server lives")
                    {
                        let is_right = |at: usize| bytes[at] == pattern(token, stream.received + at);
                        assert!(
                            (0..count).all(is_right),
                            "a wrong byte of {token} behind {}",
                            stream.received
                        );
                        stream.received += count;
                    }
                }
                ClientEvent::Failed(token) => panic!("{token} has failed"),
                ClientEvent::Watched(_) => panic!("nothing is watched"),
            }
        }
    }
}

#[test]
fn connections_of_all_transports_echo_every_byte_without_allocations() {
    let addresses = addresses(Server::Echo);
    let conns = 30 * addresses.0.len();
    let mut set = ClientSet::new(&ClientConfig::new(conns as u32)).expect("descriptors are left");
    for token in 0..conns {
        set.connect(token as u32, &addresses.0[token % addresses.0.len()]).expect("a server listens");
    }
    let mut streams = vec![Stream::default(); conns];
    exchange(&mut set, &mut streams, 200_000);
    let before = flick_alloc_counter::allocations();
    exchange(&mut set, &mut streams, 20_000);
    // The events of the test itself are one vector.
    assert_eq!(flick_alloc_counter::allocations() - before, 1);
}

#[test]
fn event_that_was_asked_for_before_the_connection_was_there_never_came() {
    let addresses = addresses(Server::Echo);
    for address in &addresses.0 {
        let mut set = ClientSet::new(&ClientConfig::new(1)).expect("descriptors are left");
        set.connect(0, address).expect("a server listens");
        set.request_writable(0).expect("the descriptors live");
        let (mut all, mut events) = (Vec::new(), Vec::with_capacity(8));
        while all.len() < 2 {
            wait(&mut set, &mut events);
            all.append(&mut events);
        }
        assert_eq!(all, [ClientEvent::Connected(0), ClientEvent::Writable(0)], "{address}");
    }
}

#[test]
fn an_end_is_delivered_behind_the_last_byte() {
    let addresses = addresses(Server::Finish);
    for address in &addresses.0 {
        let mut set = ClientSet::new(&ClientConfig::new(1)).expect("descriptors are left");
        connected(&mut set, 0, address);
        assert_eq!(set.send(0, b"last words?"), Ok(11));
        assert_eq!(receive_all(&mut set, 0), (vec![7; LAST_BYTES], Ok(())), "{address}");
        set.close(0);
        assert_eq!(set.send(0, b"too late"), Err(StreamError::PeerGone));
    }
}

#[test]
fn a_dying_server_is_reported_behind_what_it_had_published() {
    for busy_poll_us in [0, 50] {
        let (address, serving) = serve_shm(Server::Die);
        let config = ClientConfig { busy_poll_us, ..ClientConfig::new(3) };
        let mut set = ClientSet::new(&config).expect("descriptors are left");
        (0..3).for_each(|token| connected(&mut set, token, &address));
        assert_eq!(set.send(1, b"die"), Ok(3));
        assert_eq!(receive_all(&mut set, 1), (vec![7; LAST_BYTES], Err(StreamError::PeerGone)));
        serving.join().expect("it only dies");
        for token in [0, 2] {
            assert_eq!(receive_all(&mut set, token), (vec![], Err(StreamError::PeerGone)));
        }
        assert_eq!(set.send(0, b"lost"), Err(StreamError::PeerGone));
        (0..3).for_each(|token| set.close(token));
        assert!(set.connect(0, &address).is_err(), "no process listens any more");
    }
}

#[test]
fn a_server_that_comes_again_is_paired_with_again() {
    let name = name();
    let mut set = ClientSet::new(&ClientConfig::new(2)).expect("descriptors are left");
    let address = ClientAddress::Shm(name.clone());
    for generation in 0..3 {
        let listener = PairListener::bind(&name, PairPolicy::SameUser).expect("the former one is closed");
        let accepting = std::thread::spawn(move || listener.accept().expect("the set connects"));
        set.connect(generation % 2, &address).expect("it listens");
        let mut events = Vec::with_capacity(4);
        set.wait(&mut events, Some(Timespec { tv_sec: 0, tv_nsec: 0 })).expect("the descriptors live");
        // It pairs and dies before it accepts the connection.
        drop(accepting.join().expect("it only accepts"));
        wait(&mut set, &mut events);
        assert_eq!(events, [ClientEvent::Failed(generation % 2)]);
        set.close(generation % 2);
    }
}

/// Waits until the other side has news of `count` slots, `known` apart, and returns them.
fn opened(pair: &mut Pair, count: usize, known: Option<u32>) -> Vec<u32> {
    let (begun, mut slots) = (Instant::now(), Vec::new());
    while slots.len() < count {
        pair.take_ready(|slot| {
            if Some(slot) != known && !slots.contains(&slot) {
                slots.push(slot);
            }
        });
        assert!(begun.elapsed() < Duration::from_secs(20), "nothing is opened");
        std::thread::yield_now();
    }
    slots
}

#[test]
fn a_connect_failed_when_the_service_had_been_reloaded() {
    let name = name();
    let listener = PairListener::bind(&name, PairPolicy::SameUser).expect("the name is free");
    let mut set = ClientSet::new(&ClientConfig::new(3)).expect("descriptors are left");
    let address = ClientAddress::Shm(name);
    let (reload, reloaded) = std::sync::mpsc::channel();
    let serving = std::thread::spawn(move || {
        let (_peer, former) = listener.accept().expect("the set connects");
        let mut former = former.expect("both can pair");
        let slot = opened(&mut former, 1, None)[0];
        let mut kept = former.accept(slot, 4096).expect("memory").expect("it is opened");
        reloaded.recv().expect("the test goes on");
        // What comes to the former worker from now on is refused; the next one gets a pair of its own.
        opened(&mut former, 2, Some(slot)).into_iter().for_each(|slot| former.refuse(slot));
        let (peer, pair) = listener.accept().expect("the set connects again");
        let (mut pair, mut conns) = (pair.expect("both can pair"), Vec::new());
        while conns.len() < 2 {
            accept(&mut pair, &mut conns);
            std::thread::yield_now();
        }
        conns.iter_mut().for_each(|conn| send(conn, b"new"));
        send(&mut kept, b"old");
        while !peer.is_gone() {
            std::thread::yield_now();
        }
    });
    connected(&mut set, 0, &address);
    reload.send(()).expect("it waits");
    let mut events = Vec::with_capacity(8);
    (1..3).for_each(|token| set.connect(token, &address).expect("it listens"));
    let mut connected = 0;
    while connected < 2 {
        wait(&mut set, &mut events);
        assert!(!events.iter().any(|event| matches!(event, ClientEvent::Failed(_))), "{events:?}");
        connected += events.iter().filter(|event| matches!(event, ClientEvent::Connected(1 | 2))).count();
    }
    for (token, expected) in [(0, b"old"), (1, b"new"), (2, b"new")] {
        let mut bytes = [0; 8];
        while set.receive(token, &mut bytes) == Ok(RingRead::Empty) {
            wait(&mut set, &mut events);
        }
        assert_eq!(&bytes[..3], expected, "{token}");
    }
    drop(set);
    serving.join().expect("it serves to the end");
}

#[test]
fn a_connect_that_every_process_refuses_fails_once() {
    let name = name();
    let listener = PairListener::bind(&name, PairPolicy::SameUser).expect("the name is free");
    let (ended, is_over) = std::sync::mpsc::channel();
    let serving = std::thread::spawn(move || {
        let mut pairs = Vec::new();
        while is_over.try_recv().is_err() {
            let mut sources = [PollFd::from_borrowed_fd(listener.socket(), PollFlags::IN)];
            let look = Timespec { tv_sec: 0, tv_nsec: 1_000_000 };
            if poll(&mut sources, Some(&look)) == Ok(1) {
                let (peer, pair) = listener.accept().expect("the set connects");
                pairs.push((peer, pair.expect("both can pair")));
            }
            for (_, pair) in &mut pairs {
                let mut slots = Vec::new();
                pair.take_ready(|slot| slots.push(slot));
                slots.into_iter().for_each(|slot| pair.refuse(slot));
            }
        }
        pairs.len()
    });
    let mut set = ClientSet::new(&ClientConfig::new(1)).expect("descriptors are left");
    set.connect(0, &ClientAddress::Shm(name)).expect("it listens");
    let mut events = Vec::with_capacity(4);
    wait(&mut set, &mut events);
    assert_eq!(events, [ClientEvent::Failed(0)]);
    set.wait(&mut events, Some(Timespec { tv_sec: 0, tv_nsec: 50_000_000 })).expect("the descriptors live");
    assert_eq!(events, [], "it is reported once");
    set.close(0);
    ended.send(()).expect("it serves");
    let pairs = serving.join().expect("it only refuses");
    assert_eq!(pairs as u32, 1 + CLIENT_MOVES_MAX);
}

#[test]
fn what_cannot_be_connected_fails_once() {
    let mut set = ClientSet::new(&ClientConfig::new(2)).expect("descriptors are left");
    assert!(set.connect(0, &ClientAddress::Shm(name())).is_err());
    assert!(set.connect(2, &ClientAddress::Shm(name())).is_err(), "the token is none of the set");
    let closed = TcpListener::bind("127.0.0.1:0").expect("a free port").local_addr().expect("it is bound");
    set.connect(0, &closed.into()).expect("the answer comes later");
    let mut events = Vec::with_capacity(4);
    wait(&mut set, &mut events);
    assert_eq!(events, [ClientEvent::Failed(0)]);
    set.wait(&mut events, Some(Timespec { tv_sec: 0, tv_nsec: 0 })).expect("the descriptors live");
    assert_eq!(events, [], "it is reported once");
    assert!(set.connect(0, &closed.into()).is_err(), "the token is in use");
}

#[test]
fn a_descriptor_of_the_caller_ends_a_wait() {
    let (address, _serving) = serve_shm(Server::Echo);
    let mut set = ClientSet::new(&ClientConfig::new(1)).expect("descriptors are left");
    connected(&mut set, 0, &address);
    let (listener, mut events) =
        (TcpListener::bind("127.0.0.1:0").expect("a free port"), Vec::with_capacity(2));
    set.watch(&listener, 9).expect("the descriptors live");
    let _connected = TcpStream::connect(listener.local_addr().expect("it is bound")).expect("it listens");
    wait(&mut set, &mut events);
    assert_eq!(events, [ClientEvent::Watched(9)]);
}
