//! The transport switch with three processes: two ends, and the test as the monitor, which returns directions to the
//! kernel again and again, stops ends, and kills them. The ends are this binary, started again, with a socket as their
//! standard input. `FLICK_SHM_SWITCH_BYTES` sets the bytes that each end sends, `FLICK_SHM_SWITCH_KILLS` the kills.
#![cfg(not(loom))]

use std::fs::OpenOptions;
use std::io::{BufRead, BufReader, Write};
use std::net::{TcpListener, TcpStream};
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::process::{Child, Command, Stdio};
use std::thread::JoinHandle;
use std::time::Duration;

use flick_shm::segment::{Segment, SegmentConfig, Side};
use flick_shm::switch::{
    Freeze, Injection, Injector, PlainSteps, SwitchHolder, SwitchReceiver, SwitchSender, SwitchedReceive,
    SwitchedSend,
};
use rustix::io::Errno;
use rustix::net::{RecvFlags, SendFlags, recv, send};
use rustix::process::{Pid, Signal, kill_process};

/// Variables that make the binary an end: its side, the file of the segment, the bytes that it sends.
const SIDE: &str = "FLICK_SHM_TEST_SIDE";
const SEGMENT: &str = "FLICK_SHM_TEST_SEGMENT";
const BYTES: &str = "FLICK_SHM_TEST_BYTES";
const SEED: &str = "FLICK_SHM_TEST_SEED";
/// Most bytes of a message.
const MESSAGE_BYTES_MAX: usize = 6000;
/// Number of the monitor as an injector.
const MONITOR: u32 = 1;
/// Attempts without progress after which an end gives up: it sleeps in each.
const IDLE_MAX: u32 = 200_000;

fn pattern(side: Side, offset: u64) -> u8 {
    let shift = if side == Side::Zero { 0 } else { 1000 };
    (((offset + shift) % 65_521).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32) as u8
}

struct Random(u64);

impl Random {
    fn below(&mut self, limit: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 >> 8) % limit
    }
}

fn number(variable: &str, otherwise: u64) -> u64 {
    std::env::var(variable).ok().and_then(|value| value.parse().ok()).unwrap_or(otherwise)
}

/// One end: sends and receives, by whichever transport is right, and checks every byte.
struct End {
    side: Side,
    sender: SwitchSender<PlainSteps>,
    receiver: SwitchReceiver<PlainSteps>,
    socket: OwnedFd,
    random: Random,
    /// Whether it prints what it has sent.
    is_reporting: bool,
}

impl End {
    /// Sends a message or a part; returns the bytes, `None` if the other end is gone.
    fn send(&mut self, bytes_max: u64) -> Option<usize> {
        let len = (1 + self.random.below(MESSAGE_BYTES_MAX as u64)).min(bytes_max - self.sender.sent());
        let message: Vec<u8> =
            (self.sender.sent()..).take(len as usize).map(|at| pattern(self.side, at)).collect();
        let can_switch = self.random.below(2) == 0;
        let count = match self.sender.send(&message, can_switch).expect("an honest receiver") {
            SwitchedSend::Sent(count, _) => count,
            SwitchedSend::Wait => 0,
            SwitchedSend::Kernel => {
                match send(&self.socket, &message, SendFlags::DONTWAIT | SendFlags::NOSIGNAL) {
                    Ok(count) => {
                        self.sender.kernel_sent(count);
                        count
                    }
                    Err(Errno::AGAIN | Errno::INTR) => 0,
                    Err(Errno::PIPE | Errno::CONNRESET) => return None,
                    Err(errno) => panic!("{errno}"),
                }
            }
        };
        if self.is_reporting && count > 0 {
            writeln!(std::io::stdout(), "sent {}.", self.sender.sent()).expect("the monitor reads");
        }
        Some(count)
    }

    /// Receives and checks; returns the bytes, `None` at the end of the stream.
    fn receive(&mut self) -> Option<usize> {
        let mut bytes = [0; 2 * MESSAGE_BYTES_MAX];
        let len = 1 + self.random.below(bytes.len() as u64 - 1) as usize;
        let before = self.receiver.received();
        let count = match self.receiver.receive(&mut bytes[..len]).expect("an honest sender") {
            SwitchedReceive::Received(count, _) => count,
            SwitchedReceive::Empty => 0,
            SwitchedReceive::Kernel => match recv(&self.socket, &mut bytes[..len], RecvFlags::DONTWAIT) {
                Ok((_, 0)) | Err(Errno::CONNRESET) => return None,
                Ok((_, count)) => {
                    self.receiver.kernel_received(count);
                    count
                }
                Err(Errno::AGAIN | Errno::INTR) => 0,
                Err(errno) => panic!("{errno}"),
            },
        };
        let wrong =
            bytes[..count].iter().zip(before..).find(|(byte, at)| **byte != pattern(self.side.other(), *at));
        assert!(wrong.is_none(), "byte {} is wrong", wrong.map_or(0, |(_, at)| at));
        Some(count)
    }

    /// Runs until both streams have all their bytes, or the other end is gone.
    fn run(&mut self, bytes: u64) {
        let (mut idle, mut is_open) = (0, true);
        while self.receiver.received() < bytes || (is_open && self.sender.sent() < bytes) {
            if self.random.below(2) == 0 {
                self.receiver.offer();
            }
            let mut done = 0;
            if is_open && self.sender.sent() < bytes {
                let sent = self.send(bytes);
                is_open = sent.is_some();
                done += sent.unwrap_or(0);
            }
            if self.receiver.received() < bytes {
                let Some(received) = self.receive() else { break };
                done += received;
            }
            match (done, self.random.below(4)) {
                (1.., _) => idle = 0,
                (0, 0) => std::thread::sleep(Duration::from_micros(self.random.below(50))),
                (0, _) => std::thread::yield_now(),
            }
            idle += u32::from(done == 0);
            assert!(
                idle < IDLE_MAX,
                "no progress: {} sent, {} received",
                self.sender.sent(),
                self.receiver.received()
            );
        }
    }
}

/// One end, when this binary is started again; otherwise nothing.
#[test]
fn one_end() {
    let Ok(side) = std::env::var(SIDE) else { return };
    let side = if side == "0" { Side::Zero } else { Side::One };
    let path = std::env::var(SEGMENT).expect("the monitor sets it");
    let file = OpenOptions::new().read(true).write(true).open(path).expect("the monitor lives");
    let segment = Segment::open(&file).expect("it is sealed");
    let bytes = number(BYTES, 0);
    let mut end = End {
        side,
        sender: segment.switch_sender(0, side, 0).expect("slot 0"),
        receiver: segment.switch_receiver(0, side.other(), 0).expect("slot 0"),
        socket: std::io::stdin().as_fd().try_clone_to_owned().expect("a socket"),
        random: Random(number(SEED, 1)),
        is_reporting: bytes == u64::MAX,
    };
    end.run(bytes);
    writeln!(std::io::stdout(), "received {}.", end.receiver.received()).expect("the monitor reads");
}

/// An end as the monitor sees it.
struct Peer {
    child: Child,
    /// The monitor's duplicate of its socket.
    socket: Option<OwnedFd>,
    /// The last totals that it has printed: sent and received.
    totals: Option<JoinHandle<(u64, u64)>>,
    /// Returns what the end sends to the kernel.
    injector: Injector<PlainSteps>,
    is_pending: bool,
}

impl Peer {
    fn totals(&mut self) -> (u64, u64) {
        self.totals.take().expect("asked once").join().expect("it only reads")
    }

    /// Returns this direction to the kernel, as far as the socket has space; returns whether it is there.
    fn downgrade(&mut self, hold: Option<SwitchHolder>, cycles: &mut u64) -> bool {
        if !self.is_pending && self.injector.freeze(hold) == Freeze::InKernel {
            return true;
        }
        self.is_pending = true;
        let mut bytes = [0; 4096];
        loop {
            match self.injector.next(&mut bytes).expect("honest ends") {
                Injection::Done => {
                    self.is_pending = false;
                    *cycles += 1;
                    return true;
                }
                Injection::Write(count) => {
                    let socket = self.socket.as_ref().expect("it is open");
                    match send(socket, &bytes[..count], SendFlags::DONTWAIT | SendFlags::NOSIGNAL) {
                        Ok(count) => self.injector.injected(count),
                        Err(Errno::AGAIN | Errno::INTR) => return false,
                        Err(errno) => self.injector.failed(errno.raw_os_error() as u32),
                    }
                }
            }
        }
    }

    fn signal(&self, signal: Signal) {
        let pid = Pid::from_raw(self.child.id() as i32).expect("a process");
        kill_process(pid, signal).expect("it is not reaped");
    }
}

fn sockets(is_tcp: bool) -> [OwnedFd; 2] {
    if is_tcp {
        let listener = TcpListener::bind("127.0.0.1:0").expect("loopback exists");
        let one = TcpStream::connect(listener.local_addr().expect("it is bound")).expect("it listens");
        [one.into(), listener.accept().expect("it connected").0.into()]
    } else {
        let (one, other) = UnixStream::pair().expect("Unix sockets exist");
        [one.into(), other.into()]
    }
}

fn start(is_tcp: bool, bytes: u64, seed: u64) -> (Segment, OwnedFd, [Peer; 2]) {
    let config = SegmentConfig { slots: 128, arena_bytes: 4096, huge_pages: false };
    let (segment, file) = Segment::create(&config).expect("memory files exist");
    let path = format!("/proc/{}/fd/{}", std::process::id(), file.as_raw_fd());
    let peers = [Side::Zero, Side::One].into_iter().zip(sockets(is_tcp)).map(|(side, socket)| {
        let number = if side == Side::Zero { "0" } else { "1" };
        let mut child = Command::new(std::env::current_exe().expect("this binary"))
            .args(["--exact", "one_end", "--nocapture"])
            .env(SIDE, number)
            .env(SEGMENT, &path)
            .env(BYTES, bytes.to_string())
            .env(SEED, (2 * seed + if side == Side::Zero { 3 } else { 4 }).to_string())
            .stdin(Stdio::from(socket.try_clone().expect("a copy")))
            .stdout(Stdio::piped())
            .spawn()
            .expect("this binary starts");
        let lines = BufReader::new(child.stdout.take().expect("it is piped")).lines();
        let totals = std::thread::spawn(move || {
            let (mut sent, mut received) = (0, 0);
            for line in lines.map_while(Result::ok) {
                // The last line may be cut off by a kill.
                let total = |what| line.strip_prefix(what)?.strip_suffix('.')?.parse().ok();
                sent = total("sent ").unwrap_or(sent);
                received = total("received ").unwrap_or(received);
            }
            (sent, received)
        });
        let injector = segment.injector(0, side, 0, MONITOR).expect("slot 0");
        Peer { child, socket: Some(socket), totals: Some(totals), injector, is_pending: false }
    });
    let mut peers = peers.collect::<Vec<_>>().into_iter();
    let both = [peers.next().expect("side 0"), peers.next().expect("side 1")];
    (segment, file, both)
}

/// Both ends send all their bytes while the monitor downgrades, and stops one end for a moment now and then.
fn exchange(is_tcp: bool, bytes: u64) {
    // The ends open the file through this process.
    let (_segment, _file, mut peers) = start(is_tcp, bytes, 1);
    let (mut random, mut cycles, mut stops) = (Random(77), 0, 0_u64);
    let mut has_ended = [false; 2];
    while has_ended != [true; 2] {
        for at in 0..2 {
            let peer = &mut peers[at];
            if !has_ended[at] && peer.child.try_wait().expect("a child").is_some() {
                has_ended[at] = true;
                // What it had published is injected, then its socket closes.
                while !peer.downgrade(Some(SwitchHolder::Monitor), &mut cycles) {
                    std::thread::yield_now();
                }
                peer.socket = None;
            } else if !has_ended[at] && (peer.is_pending || random.below(3) == 0) {
                peer.downgrade(None, &mut cycles);
            }
        }
        if random.below(40) == 0 && has_ended == [false; 2] {
            let stopped = &mut peers[random.below(2) as usize];
            stopped.signal(Signal::STOP);
            std::thread::sleep(Duration::from_micros(200 + random.below(600)));
            // A stopped sender does not keep its bytes back: the monitor returns them.
            stopped.downgrade(None, &mut cycles);
            stopped.signal(Signal::CONT);
            stops += 1;
        }
        std::thread::sleep(Duration::from_micros(random.below(60)));
    }
    for peer in &mut peers {
        assert!(peer.child.wait().expect("a child").success(), "an end failed");
        assert_eq!(peer.totals().1, bytes);
    }
    println!("{}: {cycles} downgrades, {stops} stops", if is_tcp { "TCP" } else { "Unix" });
    assert!(cycles > 0);
}

#[test]
fn bytes_arrive_through_a_unix_socket_and_rings_while_ends_are_stopped() {
    exchange(false, number("FLICK_SHM_SWITCH_BYTES", 20_000_000));
}

#[test]
fn bytes_arrive_through_tcp_and_rings_while_ends_are_stopped() {
    exchange(true, number("FLICK_SHM_SWITCH_BYTES", 20_000_000));
}

/// One end is killed at a random moment; the other one receives everything that the dead one had sent.
#[test]
fn a_killed_end_loses_no_byte_that_it_had_sent() {
    let kills = number("FLICK_SHM_SWITCH_KILLS", 20);
    let (mut random, mut cycles, mut total) = (Random(99), 0, 0);
    for kill in 0..kills {
        let (_segment, _file, mut peers) = start(false, u64::MAX, kill);
        let victim = random.below(2) as usize;
        for _ in 0..random.below(400) {
            for peer in &mut peers {
                if peer.is_pending || random.below(3) == 0 {
                    peer.downgrade(None, &mut cycles);
                }
            }
            std::thread::sleep(Duration::from_micros(random.below(40)));
        }
        peers[victim].signal(Signal::KILL);
        peers[victim].child.wait().expect("a child");
        // Outgoing first, then the direction that no end reads any more, then the socket.
        while !peers[victim].downgrade(Some(SwitchHolder::Monitor), &mut cycles) {
            std::thread::yield_now();
        }
        let survivor = 1 - victim;
        for _ in 0..5 {
            if peers[survivor].downgrade(Some(SwitchHolder::Monitor), &mut cycles) {
                break;
            }
        }
        peers[victim].socket = None;
        assert!(peers[survivor].child.wait().expect("a child").success(), "the other end failed");
        let ((sent, _), (_, received)) = (peers[victim].totals(), peers[survivor].totals());
        assert!(received >= sent, "{sent} bytes were sent before the kill, {received} were received");
        total += received;
    }
    println!("{kills} kills, {cycles} downgrades, {total} bytes");
}
