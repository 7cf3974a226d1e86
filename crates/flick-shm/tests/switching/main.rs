//! The transport switch with three processes: two ends, and the test as the monitor, which returns directions to the
//! kernel again and again, stops ends, and kills them. The ends are this binary, started again, with a socket as their
//! standard input. `FLICK_SHM_SWITCH_BYTES` sets the bytes that each end sends, `FLICK_SHM_SWITCH_KILLS` the kills.
#![cfg(not(loom))]

mod raw;
mod signals;
mod threads;

use std::fs::OpenOptions;
use std::io::{BufRead, BufReader, Write};
use std::net::{TcpListener, TcpStream};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use flick_shm::members::Member;
use flick_shm::segment::{Segment, SegmentConfig, Side};
use flick_shm::switch::{
    Freeze, Injection, Injector, PlainSteps, SwitchHolder, SwitchReceiver, SwitchSender, SwitchedReceive,
    SwitchedSend,
};
use rustix::io::Errno;
use rustix::net::{RecvFlags, SendFlags, recv, send};
use rustix::process::{Pid, Signal, kill_process, test_kill_process};

/// Variables that make the binary an end: its side, the file of the segment, the bytes that it sends.
const SIDE: &str = "FLICK_SHM_TEST_SIDE";
const SEGMENT: &str = "FLICK_SHM_TEST_SEGMENT";
const BYTES: &str = "FLICK_SHM_TEST_BYTES";
const SEED: &str = "FLICK_SHM_TEST_SEED";
/// Process of the monitor, if it is not the one that starts the ends.
const MONITOR_PID: &str = "FLICK_SHM_TEST_MONITOR";
/// Set if the sockets are TCP.
const TCP: &str = "FLICK_SHM_TEST_TCP";
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

/// Succession of a dead monitor.
struct Succession {
    monitor: Pid,
    /// Of the incoming direction, for a Unix socket.
    incoming: Injector<PlainSteps>,
    /// Of the outgoing direction, for TCP.
    outgoing: Injector<PlainSteps>,
    is_tcp: bool,
    is_injecting: bool,
}

/// One end: sends and receives, by whichever transport is right, and checks every byte.
struct End {
    side: Side,
    member: Member,
    sender: SwitchSender<PlainSteps>,
    receiver: SwitchReceiver<PlainSteps>,
    /// Bytes that it has sent and received.
    sent: u64,
    received: u64,
    socket: OwnedFd,
    random: Random,
    /// Whether it prints what it has sent.
    is_reporting: bool,
    succession: Option<Succession>,
}

impl End {
    /// Receives what a dead monitor has not injected, and ends its work. The kernel's socket is empty.
    fn succeed_monitor(&mut self, out: &mut [u8]) -> usize {
        let Some(Succession { monitor, incoming, is_tcp: false, .. }) = &mut self.succession else {
            self.receiver.kernel_received(&self.member, 0);
            return 0;
        };
        if test_kill_process(*monitor).is_ok() {
            self.receiver.kernel_received(&self.member, 0);
            return 0;
        }
        // The monitor may have written between the last look and its death.
        match recv(&self.socket, &mut *out, RecvFlags::DONTWAIT) {
            Ok((_, count @ 1..)) => {
                self.receiver.kernel_received(&self.member, count);
                return count;
            }
            Err(Errno::AGAIN) => self.receiver.kernel_received(&self.member, 0),
            _ => return 0,
        }
        let count = self.receiver.receive_left_over(&self.member, out).expect("honest peers");
        if count == 0 {
            incoming.complete_for(MONITOR).expect("honest peers");
        }
        count
    }

    /// Continues what a dead monitor has not injected of a TCP connection; returns whether bytes are left.
    fn continue_injection(&mut self) -> bool {
        let Some(Succession { monitor, outgoing, is_tcp: true, is_injecting, .. }) = &mut self.succession
        else {
            return false;
        };
        if !outgoing.is_frozen() {
            return false;
        }
        if !*is_injecting && test_kill_process(*monitor).is_err() {
            let written = raw::written_bytes(self.socket.as_fd());
            *is_injecting = outgoing.continue_for(MONITOR, written).expect("honest peers");
        }
        let mut bytes = [0; 4096];
        while *is_injecting {
            match outgoing.next(&mut bytes).expect("honest peers") {
                Injection::Done => *is_injecting = false,
                Injection::Write(count) => {
                    let flags = SendFlags::DONTWAIT | SendFlags::NOSIGNAL;
                    match send(&self.socket, &bytes[..count.div_ceil(2)], flags) {
                        Ok(count) => outgoing.injected(count),
                        Err(Errno::AGAIN | Errno::INTR) => return true,
                        Err(errno) => panic!("{errno}"),
                    }
                }
            }
        }
        outgoing.is_frozen()
    }

    /// Sends a message or a part; returns the bytes, `None` if the other end is gone.
    fn send(&mut self, bytes_max: u64) -> Option<usize> {
        let len = (1 + self.random.below(MESSAGE_BYTES_MAX as u64)).min(bytes_max - self.sent);
        let message: Vec<u8> = (self.sent..).take(len as usize).map(|at| pattern(self.side, at)).collect();
        let can_switch = self.random.below(2) == 0;
        let count = match self.sender.send(&self.member, &message, can_switch).expect("an honest receiver") {
            SwitchedSend::Sent(count, _) => count,
            SwitchedSend::Wait => 0,
            SwitchedSend::Kernel => {
                let sent = send(&self.socket, &message, SendFlags::DONTWAIT | SendFlags::NOSIGNAL);
                self.sender.kernel_sent(&self.member, sent.unwrap_or(0));
                match sent {
                    Ok(count) => count,
                    Err(Errno::AGAIN | Errno::INTR) => 0,
                    Err(Errno::PIPE | Errno::CONNRESET) => return None,
                    Err(errno) => panic!("{errno}"),
                }
            }
            other => panic!("{other:?} with one thread"),
        };
        self.sent += count as u64;
        if self.is_reporting && count > 0 {
            writeln!(std::io::stdout(), "sent {}.", self.sent).expect("the monitor reads");
        }
        Some(count)
    }

    /// Receives and checks; returns the bytes, `None` at the end of the stream.
    fn receive(&mut self) -> Option<usize> {
        let mut bytes = [0; 2 * MESSAGE_BYTES_MAX];
        let len = 1 + self.random.below(bytes.len() as u64 - 1) as usize;
        let before = self.received;
        let count = match self.receiver.receive(&self.member, &mut bytes[..len]).expect("an honest sender") {
            SwitchedReceive::Received(count, _) => count,
            SwitchedReceive::Kernel { .. } => {
                match recv(&self.socket, &mut bytes[..len], RecvFlags::DONTWAIT) {
                    Ok((_, 0)) | Err(Errno::CONNRESET) => return None,
                    Ok((_, count)) => {
                        self.receiver.kernel_received(&self.member, count);
                        count
                    }
                    Err(Errno::AGAIN | Errno::INTR) => self.succeed_monitor(&mut bytes[..len]),
                    Err(errno) => panic!("{errno}"),
                }
            }
            SwitchedReceive::Empty => 0,
            other => panic!("{other:?} with one thread"),
        };
        self.received += count as u64;
        let wrong =
            bytes[..count].iter().zip(before..).find(|(byte, at)| **byte != pattern(self.side.other(), *at));
        assert!(wrong.is_none(), "byte {} is wrong", wrong.map_or(0, |(_, at)| at));
        Some(count)
    }

    /// Runs until both streams have all their bytes, or the other end is gone.
    fn run(&mut self, bytes: u64) {
        let (mut idle, mut is_open, mut is_injecting) = (0, true, false);
        while self.received < bytes || (is_open && self.sent < bytes) || is_injecting {
            is_injecting = self.continue_injection();
            if self.random.below(2) == 0 {
                self.receiver.offer(&self.member).expect("a barrier");
            }
            let mut done = 0;
            if is_open && self.sent < bytes {
                let sent = self.send(bytes);
                is_open = sent.is_some();
                done += sent.unwrap_or(0);
            }
            if self.received < bytes {
                let Some(received) = self.receive() else { break };
                done += received;
            }
            match (done, self.random.below(4)) {
                (1.., _) => idle = 0,
                (0, 0) => std::thread::sleep(Duration::from_micros(self.random.below(50))),
                (0, _) => std::thread::yield_now(),
            }
            idle += u32::from(done == 0);
            assert!(idle < IDLE_MAX, "no progress: {} sent, {} received", self.sent, self.received);
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
    let monitor = Pid::from_raw(number(MONITOR_PID, 0) as i32);
    let number_of_end = 2 + u32::from(side == Side::One);
    let members = segment.members().expect("memory");
    members.join().expect("there are few processes");
    let mut end = End {
        side,
        member: members.add_thread().expect("there are few threads"),
        sent: 0,
        received: 0,
        sender: segment.switch_sender(0, side, 0).expect("slot 0"),
        receiver: segment.switch_receiver(0, side.other(), 0).expect("slot 0"),
        socket: std::io::stdin().as_fd().try_clone_to_owned().expect("a socket"),
        random: Random(number(SEED, 1)),
        is_reporting: bytes == u64::MAX,
        succession: monitor.map(|monitor| Succession {
            monitor,
            incoming: segment.injector(0, side.other(), 0, number_of_end).expect("slot 0"),
            outgoing: segment.injector(0, side, 0, number_of_end).expect("slot 0"),
            is_tcp: std::env::var_os(TCP).is_some(),
            is_injecting: false,
        }),
    };
    end.run(bytes);
    writeln!(std::io::stdout(), "received {}.", end.received).expect("the monitor reads");
}

/// An end as the monitor sees it.
struct Peer {
    /// `None` for a monitor that did not start the end.
    child: Option<Child>,
    /// The monitor's duplicate of its socket.
    socket: Option<OwnedFd>,
    /// The last totals that it has printed: sent and received.
    totals: Option<JoinHandle<(u64, u64)>>,
    /// Returns what the end sends to the kernel.
    injector: Injector<PlainSteps>,
    is_pending: bool,
}

/// Steps that a monitor has left before it kills itself.
static STEPS_LEFT: AtomicU64 = AtomicU64::new(u64::MAX);

/// Takes one step of an injection.
fn step() {
    if STEPS_LEFT.fetch_sub(1, Ordering::Relaxed) == 0 {
        kill_process(rustix::process::getpid(), Signal::KILL).expect("this process lives");
        std::thread::park();
    }
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
            step();
            match self.injector.next(&mut bytes).expect("honest ends") {
                Injection::Done => {
                    self.is_pending = false;
                    *cycles += 1;
                    return true;
                }
                Injection::Write(count) => {
                    let socket = self.socket.as_ref().expect("it is open");
                    step();
                    // In two parts, so that a monitor can die between them.
                    let part = count.div_ceil(2);
                    match send(socket, &bytes[..part], SendFlags::DONTWAIT | SendFlags::NOSIGNAL) {
                        Ok(count) => {
                            step();
                            self.injector.injected(count);
                        }
                        Err(Errno::AGAIN | Errno::INTR) => return false,
                        Err(errno) => self.injector.failed(errno.raw_os_error() as u32),
                    }
                }
            }
        }
    }

    fn child(&mut self) -> &mut Child {
        self.child.as_mut().expect("this process started it")
    }

    fn signal(&mut self, signal: Signal) {
        let pid = Pid::from_raw(self.child().id() as i32).expect("a process");
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

/// The ends, and what they need.
struct Started {
    peers: [Peer; 2],
    /// A monitor of its own, if the test is none.
    monitor: Option<Child>,
    _segment: Segment,
    /// The processes open the file through this one.
    _file: OwnedFd,
}

/// Returns the command that starts this binary as another process of the test.
fn command(test: &str, path: &str, seed: u64) -> Command {
    let mut command = Command::new(std::env::current_exe().expect("this binary"));
    command.args(["--exact", test, "--nocapture"]).env(SEGMENT, path).env(SEED, seed.to_string());
    command
}

fn start(is_tcp: bool, bytes: u64, seed: u64, has_monitor: bool) -> Started {
    let config = SegmentConfig { slots: 128, arena_bytes: 4096, huge_pages: false };
    let (segment, file) = Segment::create(&config).expect("memory files exist");
    let path = format!("/proc/{}/fd/{}", std::process::id(), file.as_raw_fd());
    let sockets = sockets(is_tcp);
    let copy = |socket: &OwnedFd| Stdio::from(socket.try_clone().expect("a copy"));
    let monitor = has_monitor.then(|| {
        let mut command = command("separate_monitor", &path, seed + 5);
        command
            .env(MONITOR_PID, "0")
            .stdin(copy(&sockets[0]))
            .stdout(Stdio::null())
            .stderr(copy(&sockets[1]));
        command.spawn().expect("this binary starts")
    });
    let monitor_pid = monitor.as_ref().map_or(0, Child::id).to_string();
    let peers = [Side::Zero, Side::One].into_iter().zip(sockets).map(|(side, socket)| {
        let index = u64::from(side == Side::One);
        let mut command = command("one_end", &path, 2 * seed + 3 + index);
        command.env(SIDE, index.to_string()).env(BYTES, bytes.to_string()).env(MONITOR_PID, &monitor_pid);
        if is_tcp {
            command.env(TCP, "1");
        }
        command.stdin(copy(&socket)).stdout(Stdio::piped());
        let mut child = command.spawn().expect("this binary starts");
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
        Peer { child: Some(child), socket: Some(socket), totals: Some(totals), injector, is_pending: false }
    });
    let mut peers = peers.collect::<Vec<_>>().into_iter();
    let peers = [peers.next().expect("side 0"), peers.next().expect("side 1")];
    Started { peers, monitor, _segment: segment, _file: file }
}

/// Both ends send all their bytes while the monitor downgrades, and stops one end for a moment now and then.
fn exchange(is_tcp: bool, bytes: u64) {
    let Started { mut peers, _segment, _file, .. } = start(is_tcp, bytes, 1, false);
    let (mut random, mut cycles, mut stops) = (Random(77), 0, 0_u64);
    let mut has_ended = [false; 2];
    while has_ended != [true; 2] {
        for at in 0..2 {
            let peer = &mut peers[at];
            if !has_ended[at] && peer.child().try_wait().expect("a child").is_some() {
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
        assert!(peer.child().wait().expect("a child").success(), "an end failed");
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
        let Started { mut peers, _segment, _file, .. } = start(false, u64::MAX, kill, false);
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
        peers[victim].child().wait().expect("a child");
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
        assert!(peers[survivor].child().wait().expect("a child").success(), "the other end failed");
        let ((sent, _), (_, received)) = (peers[victim].totals(), peers[survivor].totals());
        assert!(received >= sent, "{sent} bytes were sent before the kill, {received} were received");
        total += received;
    }
    println!("{kills} kills, {cycles} downgrades, {total} bytes");
}

/// A monitor in a process of its own, when this binary is started again: its standard input and error are the sockets.
#[test]
fn separate_monitor() {
    let (Ok(path), Err(_)) = (std::env::var(SEGMENT), std::env::var(SIDE)) else { return };
    let file = OpenOptions::new().read(true).write(true).open(path).expect("the first process lives");
    let segment = Segment::open(&file).expect("it is sealed");
    let peer = |side, socket: BorrowedFd<'_>| Peer {
        child: None,
        socket: Some(socket.try_clone_to_owned().expect("a socket")),
        totals: None,
        injector: segment.injector(0, side, 0, MONITOR).expect("slot 0"),
        is_pending: false,
    };
    let mut peers = [peer(Side::Zero, std::io::stdin().as_fd()), peer(Side::One, std::io::stderr().as_fd())];
    let (mut random, mut cycles) = (Random(number(SEED, 1)), 0);
    STEPS_LEFT.store(random.below(60), Ordering::Relaxed);
    loop {
        for peer in &mut peers {
            if peer.is_pending || random.below(3) == 0 {
                peer.downgrade(None, &mut cycles);
            }
        }
        std::thread::sleep(Duration::from_micros(random.below(20)));
    }
}

/// The monitor kills itself at a random step of an injection; the ends exchange all their bytes without it.
fn exchange_without_monitor(is_tcp: bool) {
    let kills = number("FLICK_SHM_SWITCH_KILLS", 10);
    let (mut deaths, mut frozen) = (0, 0);
    for kill in 0..kills {
        let bytes = 1_000_000;
        let Started { mut peers, monitor, _segment, _file } = start(is_tcp, bytes, kill, true);
        let mut monitor = monitor.expect("it was asked for");
        let mut has_died = false;
        while peers.iter_mut().any(|peer| peer.child().try_wait().expect("a child").is_none()) {
            // The ends see its death once it is reaped.
            if !has_died && monitor.try_wait().expect("a child").is_some() {
                has_died = true;
                deaths += 1;
                frozen += u32::from(peers.iter().any(|peer| peer.injector.is_frozen()));
            }
            std::thread::sleep(Duration::from_micros(100));
        }
        // The ends may be faster than the steps of the monitor.
        monitor.kill().expect("a child");
        monitor.wait().expect("a child");
        for peer in &mut peers {
            assert!(peer.child().wait().expect("a child").success(), "an end failed");
            assert_eq!(peer.totals().1, bytes);
        }
    }
    println!("{deaths} deaths in {kills} runs, in {frozen} of them a direction was frozen");
    assert!(frozen > 0);
}

#[test]
fn ends_whose_monitor_dies_exchange_all_their_bytes_by_a_unix_socket() {
    exchange_without_monitor(false);
}

#[test]
fn ends_whose_monitor_dies_exchange_all_their_bytes_by_tcp() {
    exchange_without_monitor(true);
}
