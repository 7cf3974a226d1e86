//! A listener that peeks at the first byte of each connection and evicts silent ones.

use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::time::Duration;

use flick_net::limits::PREREAD_CONNS_MAX;
use flick_net::{
    AnyDriver, Driver, DriverLimits, Endpoint, IoKind, ListenSocket, Poller, PrereadConn, SharedListener,
};

/// Longest silence of a peer, by the test's own clock.
const SILENT_NS: u64 = 1_000;

struct Fixture {
    listener: SharedListener,
    poller: Poller,
    path: PathBuf,
    arrived: Vec<PrereadConn>,
}

impl Fixture {
    fn new(name: &str) -> Self {
        let path =
            std::env::temp_dir().join(format!("flick-shared-listener-{}-{name}.sock", std::process::id()));
        let socket = ListenSocket::open(&Endpoint::Unix(path.clone())).expect("a fresh path");
        let listener = SharedListener::new(socket, SILENT_NS).expect("a listening socket");
        let mut poller = Poller::new(1).expect("an epoll");
        poller.add(&listener, 7).expect("its descriptor can be polled");
        Self { listener, poller, path, arrived: Vec::new() }
    }

    fn connect(&self) -> UnixStream {
        UnixStream::connect(&self.path).expect("it listens")
    }

    /// Waits for an event and polls the listener.
    fn wait_and_poll(&mut self, now_ns: u64) {
        let mut reports = 0;
        let wait = Some(Duration::from_secs(10));
        self.poller.wait(wait, |token| reports += u32::from(token == 7)).expect("it waits");
        assert_eq!(reports, 1, "one event is reported in time");
        self.poll(now_ns);
    }

    fn poll(&mut self, now_ns: u64) {
        let arrived = &mut self.arrived;
        self.listener.poll(now_ns, |conn| arrived.push(conn)).expect("it polls");
    }

    fn finish(&mut self) {
        let arrived = &mut self.arrived;
        self.listener.finish(0, |conn| arrived.push(conn));
    }
}

#[test]
fn the_first_byte_is_peeked_at_and_not_consumed() {
    let mut fixture = Fixture::new("peek");
    let (mut early, mut late) = (fixture.connect(), fixture.connect());
    early.write_all(b"ab").expect("it is connected");
    fixture.wait_and_poll(0);
    assert_eq!(fixture.arrived.len(), 1, "a silent connection is not passed on");
    late.write_all(b"\x80").expect("it is connected");
    fixture.wait_and_poll(0);
    let first_bytes: Vec<u8> = fixture.arrived.iter().map(|conn| conn.first_byte).collect();
    assert_eq!(first_bytes, [b'a', 0x80]);
    drop((early, late));
    let mut read = Vec::new();
    let first = fixture.arrived.remove(0).socket;
    read_all(first, &mut read);
    assert_eq!(read, b"ab", "all input is still there");
    assert_eq!(fixture.listener.dropped(), 0);
}

/// A reload gives an address that services shared to one of them, with io_uring: the next generation waits at the same
/// socket, and the last accepts of the one before waited for a client, for ever.
#[test]
fn socket_that_the_next_generation_waits_at_blocked_the_last_accepts() {
    let limits = DriverLimits {
        conns_max: 4,
        shm_conns_max: 0,
        output_slices_max: 4,
        events_max: 8,
        receive_bytes: 4096,
    };
    let (done, is_done) = std::sync::mpsc::channel();
    std::thread::spawn(move || {
        // Not every kernel has such a driver.
        if let Ok(mut driver) = AnyDriver::open(IoKind::Uring, limits) {
            let socket = ListenSocket::open(&"127.0.0.1:0".parse().expect("an endpoint")).expect("loopback");
            let next = socket.duplicate().expect("a descriptor");
            let mut listener = SharedListener::new(socket, SILENT_NS).expect("a listening socket");
            driver.listen_on(next).expect("the socket listens");
            listener.finish(0, |_| {});
        }
        done.send(()).expect("the test waits");
    });
    is_done.recv_timeout(Duration::from_secs(10)).expect("it returns without a client");
}

fn read_all(socket: std::os::fd::OwnedFd, read: &mut Vec<u8>) {
    let mut stream = UnixStream::from(socket);
    stream.set_nonblocking(false).expect("a socket may block");
    stream.read_to_end(read).expect("the peer has closed");
}

#[test]
fn silent_connections_expire_and_the_oldest_is_evicted_first() {
    let mut fixture = Fixture::new("silent");
    let mut peers = Vec::new();
    for at in 0..=u64::from(PREREAD_CONNS_MAX) {
        peers.push(fixture.connect());
        fixture.wait_and_poll(at.min(SILENT_NS - 1));
    }
    assert_eq!((fixture.listener.dropped(), fixture.arrived.len()), (1, 0), "one too many was silent");
    assert_eq!(peers[0].read(&mut [0]).expect("it was closed"), 0);
    let due_ns = fixture.listener.deadline_ns().expect("the others expire later");
    fixture.poll(due_ns + SILENT_NS);
    assert_eq!(fixture.listener.dropped(), u64::from(PREREAD_CONNS_MAX) + 1);
    assert_eq!(fixture.listener.deadline_ns(), None);
}

#[test]
fn finish_refuses_new_peers_and_closes_silent_ones() {
    let mut fixture = Fixture::new("closed");
    let mut silent = fixture.connect();
    fixture.wait_and_poll(0);
    fixture.finish();
    assert!(!fixture.listener.is_open() && UnixStream::connect(&fixture.path).is_err());
    assert_eq!(silent.read(&mut [0]).expect("it was closed"), 0);
}

#[test]
fn peers_in_the_backlog_of_a_closed_shared_address_were_reset() {
    const BACKLOG: usize = 100;
    let mut fixture = Fixture::new("backlog");
    let (mut silent, mut accepted) = (fixture.connect(), fixture.connect());
    fixture.wait_and_poll(0);
    accepted.write_all(b"a").expect("it is connected");
    let mut waiting: Vec<_> = (0..BACKLOG).map(|_| fixture.connect()).collect();
    for peer in &mut waiting {
        peer.write_all(b"b").expect("it is connected");
    }
    fixture.finish();
    let first_bytes: Vec<u8> = fixture.arrived.iter().map(|conn| conn.first_byte).collect();
    assert_eq!(first_bytes.iter().filter(|byte| **byte == b'a').count(), 1);
    assert_eq!(first_bytes.iter().filter(|byte| **byte == b'b').count(), BACKLOG);
    assert_eq!(silent.read(&mut [0]).expect("it was closed"), 0);
}
