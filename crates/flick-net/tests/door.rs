//! An address whose peers are told apart by their first byte: what a door takes in, hands out and lets go.

use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::time::Duration;

use flick_net::limits::DOOR_SILENT_MAX;
use flick_net::{Arrival, Door, Endpoint, ListenSocket, Watch};

/// How long a peer may say nothing, by the test's own clock.
const SILENT_NS: u64 = 1_000;

struct Fixture {
    door: Door,
    watch: Watch,
    path: PathBuf,
    arrived: Vec<Arrival>,
}

impl Fixture {
    fn new(name: &str) -> Self {
        let path = std::env::temp_dir().join(format!("flick-door-{}-{name}.sock", std::process::id()));
        let socket = ListenSocket::open(&Endpoint::Unix(path.clone())).expect("a fresh path");
        let door = Door::new(socket, SILENT_NS).expect("a listening socket");
        let mut watch = Watch::new(1).expect("an epoll");
        watch.add(&door, 7).expect("a door can be watched");
        Self { door, watch, path, arrived: Vec::new() }
    }

    fn dial(&self) -> UnixStream {
        UnixStream::connect(&self.path).expect("it listens")
    }

    /// Waits until there is something to look at, and looks.
    fn turn(&mut self, now_ns: u64) {
        let mut named = 0;
        let wait = Some(Duration::from_secs(10));
        self.watch.wait(wait, |token| named += u32::from(token == 7)).expect("it waits");
        assert_eq!(named, 1, "something was to happen");
        self.look(now_ns);
    }

    fn look(&mut self, now_ns: u64) {
        let arrived = &mut self.arrived;
        self.door.turn(now_ns, |arrival| arrived.push(arrival)).expect("it turns");
    }
}

#[test]
fn the_first_byte_is_looked_at_and_not_taken() {
    let mut fixture = Fixture::new("peek");
    let (mut early, mut late) = (fixture.dial(), fixture.dial());
    early.write_all(b"ab").expect("it is connected");
    fixture.turn(0);
    assert_eq!(fixture.arrived.len(), 1, "who is silent is not handed out");
    late.write_all(b"\x80").expect("it is connected");
    fixture.turn(0);
    let firsts: Vec<u8> = fixture.arrived.iter().map(|arrival| arrival.first).collect();
    assert_eq!(firsts, [b'a', 0x80]);
    drop((early, late));
    let mut read = Vec::new();
    let first = fixture.arrived.remove(0).socket;
    read_all(first, &mut read);
    assert_eq!(read, b"ab", "all is still there");
    assert_eq!(fixture.door.dropped(), 0);
}

fn read_all(socket: std::os::fd::OwnedFd, read: &mut Vec<u8>) {
    let mut stream = UnixStream::from(socket);
    stream.set_nonblocking(false).expect("a socket may block");
    stream.read_to_end(read).expect("the peer has closed");
}

#[test]
fn who_says_nothing_is_let_go_in_time_and_the_longest_silent_first() {
    let mut fixture = Fixture::new("silent");
    let mut peers = Vec::new();
    for at in 0..=u64::from(DOOR_SILENT_MAX) {
        peers.push(fixture.dial());
        fixture.turn(at.min(SILENT_NS - 1));
    }
    assert_eq!((fixture.door.dropped(), fixture.arrived.len()), (1, 0), "one too many was silent");
    assert_eq!(peers[0].read(&mut [0]).expect("it was closed"), 0);
    let due_ns = fixture.door.deadline_ns().expect("others may be silent no longer");
    fixture.look(due_ns + SILENT_NS);
    assert_eq!(fixture.door.dropped(), u64::from(DOOR_SILENT_MAX) + 1);
    assert_eq!(fixture.door.deadline_ns(), None);
}

#[test]
fn a_closed_door_lets_nobody_in() {
    let mut fixture = Fixture::new("closed");
    let mut silent = fixture.dial();
    fixture.turn(0);
    fixture.door.close();
    assert!(!fixture.door.is_open() && UnixStream::connect(&fixture.path).is_err());
    assert_eq!(silent.read(&mut [0]).expect("it was closed"), 0);
}
