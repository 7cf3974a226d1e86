//! Two threads of each of two processes send on one direction; the second process is a child that is forked while the
//! threads of the first one send. The test receives, returns the direction to the kernel, stops and kills senders.
//! Each byte has the number of its sender, a bit for the first one of a send, and a part of the sender's pattern: so
//! that a byte that is lost, doubled, out of order or within another send shows. `FLICK_SHM_SENDERS_BYTES` sets the
//! bytes of each thread, `FLICK_SHM_SENDERS_KILLS` the kills.

use std::fs::OpenOptions;
use std::io::{BufRead, BufReader};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::process::{Child, Stdio};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, mpsc};
use std::time::Duration;

use flick_shm::members::{Member, Members};
use flick_shm::segment::{Segment, SegmentConfig, Side};
use flick_shm::switch::{
    Freeze, Injection, Injector, PlainSteps, SwitchReceiver, SwitchSender, SwitchedReceive, SwitchedSend,
};
use rustix::io::Errno;
use rustix::net::{RecvFlags, SendFlags, recv, send};
use rustix::process::{Pid, Signal, kill_process};

use super::raw;
use super::{BYTES, IDLE_MAX, Random, SEED, SEGMENT, TCP, command, number, sockets};

/// Threads of each process.
const THREADS: u64 = 2;
/// All sending threads.
const SENDERS: usize = 2 * THREADS as usize;
/// Most bytes of a message.
const MESSAGE_BYTES_MAX: u64 = 300;
/// Bit of the first byte of a send.
const FIRST: u8 = 0x20;
/// Bytes of each thread of the child, if they are others than those of its parent.
const CHILD_BYTES: &str = "FLICK_SHM_SENDERS_CHILD_BYTES";
/// Number of the test as an injector: no thread has it.
const TEST: u32 = 1000;

fn pattern(sender: usize, offset: u64) -> u8 {
    let number = ((offset + sender as u64 * 1000) % 65_521).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32;
    (number as u8 & 0x1f) | (sender as u8) << 6
}

/// Prints a line without a lock, which another thread could have at the fork.
fn print(line: &str) {
    let line = format!("{line}\n");
    assert_eq!(rustix::io::write(std::io::stdout(), line.as_bytes()), Ok(line.len()));
}

/// Injects as far as the socket has space; returns whether all is done.
fn inject(injector: &mut Injector<PlainSteps>, socket: BorrowedFd<'_>) -> bool {
    let mut bytes = [0; 4096];
    loop {
        match injector.next(&mut bytes).expect("honest peers") {
            Injection::Done => return true,
            Injection::Write(count) => {
                match send(socket, &bytes[..count], SendFlags::DONTWAIT | SendFlags::NOSIGNAL) {
                    Ok(count) => injector.injected(count),
                    Err(Errno::AGAIN | Errno::INTR) => return false,
                    Err(errno) => panic!("{errno}"),
                }
            }
        }
    }
}

/// State that the threads of a process share.
struct Senders {
    segment: Segment,
    members: Members,
    sender: SwitchSender<PlainSteps>,
    bytes: u64,
    is_tcp: bool,
    stalls: AtomicU64,
}

impl Senders {
    /// Bytes of each thread: those of a child that the test kills send until then.
    fn bytes_of(&self, sender: usize) -> u64 {
        if sender < THREADS as usize { self.bytes } else { super::number(CHILD_BYTES, self.bytes) }
    }

    fn run(&self, sender: usize) {
        let bytes = self.bytes_of(sender);
        let member = self.members.add_thread().expect("there are few threads");
        let number = member.injector_number();
        let mut injector = self.segment.injector(0, Side::Zero, 0, number).expect("slot 0");
        let (mut random, mut sent, mut idle) = (Random(super::number(SEED, 1) + 7 * sender as u64), 0, 0);
        let mut is_injecting = false;
        while sent < bytes || is_injecting {
            if is_injecting {
                is_injecting = !inject(&mut injector, std::io::stdin().as_fd());
            }
            let len = (1 + random.below(MESSAGE_BYTES_MAX)).min(bytes - sent);
            let mut message: Vec<u8> = (sent..sent + len).map(|at| pattern(sender, at)).collect();
            if let Some(first) = message.first_mut() {
                *first |= FIRST;
            }
            let count = match self.sender.send(&member, &message, random.below(2) == 0) {
                Ok(SwitchedSend::Sent(count, _)) => count,
                Ok(SwitchedSend::Wait) => 0,
                Ok(SwitchedSend::Kernel) => self.send_by_kernel(&member, &message),
                Ok(SwitchedSend::Stalled) => {
                    self.stalls.fetch_add(1, Ordering::Relaxed);
                    is_injecting |= !is_injecting && injector.freeze(None) == Freeze::Frozen;
                    0
                }
                other => panic!("{other:?}"),
            };
            sent += count as u64;
            idle = if count > 0 { 0 } else { idle + 1 };
            assert!(idle < IDLE_MAX, "sender {sender} makes no progress at {sent}");
            if count > 0 {
                print(&format!("sent {sender} {sent}."));
            } else if random.below(4) == 0 {
                std::thread::sleep(Duration::from_micros(random.below(50)));
            } else {
                std::thread::yield_now();
            }
        }
        self.members.remove_thread(member);
    }

    fn send_by_kernel(&self, member: &Member, message: &[u8]) -> usize {
        let sent = send(std::io::stdin(), message, SendFlags::DONTWAIT | SendFlags::NOSIGNAL);
        self.sender.kernel_sent(member, sent.unwrap_or(0));
        match sent {
            Ok(count) => count,
            Err(Errno::AGAIN | Errno::INTR) => {
                self.recount(member);
                0
            }
            Err(errno) => panic!("{errno}"),
        }
    }

    /// Counts the bytes of a thread that died while it wrote to the kernel.
    fn recount(&self, member: &Member) {
        if self.is_tcp && self.sender.is_uncounted() {
            let written = || Some(raw::written_bytes(std::io::stdin().as_fd()));
            self.sender.recount(member, written).expect("a barrier");
        }
    }

    /// Starts the threads of a process.
    fn start(self: &Arc<Self>, first: usize) -> Vec<std::thread::JoinHandle<()>> {
        (first..first + THREADS as usize)
            .map(|sender| {
                let senders = Arc::clone(self);
                std::thread::spawn(move || senders.run(sender))
            })
            .collect()
    }
}

/// The sending processes, when this binary is started again; otherwise nothing.
#[test]
fn forking_sender() {
    let (Ok(path), Err(_)) = (std::env::var(SEGMENT), std::env::var(super::SIDE)) else { return };
    let file = OpenOptions::new().read(true).write(true).open(path).expect("the test lives");
    let segment = Segment::open(&file).expect("it is sealed");
    let members = segment.members().expect("memory");
    let process = members.join().expect("there are few processes");
    let sender = segment.switch_sender(0, Side::Zero, 0).expect("slot 0");
    let (bytes, is_tcp) = (number(BYTES, 0), std::env::var_os(TCP).is_some());
    let senders = Arc::new(Senders { segment, members, sender, bytes, is_tcp, stalls: AtomicU64::new(0) });
    assert!(senders.sender.hold(process));
    let threads = senders.start(0);
    std::thread::sleep(Duration::from_micros(number(SEED, 1) * 37 % 2000));
    let reservation = senders.members.reserve().expect("there are few processes");
    assert!(senders.sender.hold(reservation.process()));
    let child = raw::fork();
    assert!(child >= 0, "a process");
    if child == 0 {
        let has_run = std::panic::catch_unwind(|| {
            assert_eq!(senders.members.process(), None, "a child is no member");
            assert_eq!(senders.members.activate(reservation), Some(reservation.process()));
            print(&format!("child {}.", std::process::id()));
            senders.start(THREADS as usize).into_iter().for_each(|thread| thread.join().expect("no failure"));
            print(&format!("stalls {}.", senders.stalls.load(Ordering::Relaxed)));
            assert!(!senders.sender.close(reservation.process()), "the parent has it open");
        });
        raw::exit(i32::from(has_run.is_err()));
    }
    threads.into_iter().for_each(|thread| thread.join().expect("no failure"));
    print(&format!("stalls {}.", senders.stalls.load(Ordering::Relaxed)));
    assert!(raw::has_succeeded_or_was_killed(child), "the child failed");
    senders.members.reap();
    assert!(senders.sender.close(process), "no process has it open");
}

/// Totals that the senders have printed.
#[derive(Default)]
struct Printed {
    sent: [AtomicU64; SENDERS],
    stalls: AtomicU64,
}

/// The receiving end, which is also the monitor.
struct Receiving {
    segment: Segment,
    members: Members,
    member: Member,
    receiver: SwitchReceiver<PlainSteps>,
    injector: Injector<PlainSteps>,
    /// Receiving and sending socket.
    sockets: [OwnedFd; 2],
    random: Random,
    totals: [u64; SENDERS],
    last: usize,
    is_injecting: bool,
    cycles: u64,
}

impl Receiving {
    fn check(&mut self, bytes: &[u8]) {
        for byte in bytes {
            let sender = usize::from(byte >> 6);
            let expected = pattern(sender, self.totals[sender]);
            assert_eq!(byte & !FIRST, expected, "sender {sender}, byte {}", self.totals[sender]);
            assert!(self.last == sender || byte & FIRST != 0, "{sender} is within a send of {}", self.last);
            self.last = sender;
            self.totals[sender] += 1;
        }
    }

    /// Receives once; returns the bytes.
    fn receive(&mut self) -> usize {
        let mut bytes = [0; 4096];
        let len = 1 + self.random.below(bytes.len() as u64) as usize;
        let count = match self.receiver.receive(&self.member, &mut bytes[..len]).expect("honest senders") {
            SwitchedReceive::Received(count, _) => count,
            SwitchedReceive::Empty => 0,
            SwitchedReceive::Kernel { .. } => {
                let read = recv(&self.sockets[0], &mut bytes[..len], RecvFlags::DONTWAIT);
                let count = read.map_or(0, |(_, count)| count);
                self.receiver.kernel_received(&self.member, count);
                if count == 0 { self.succeed_injector(&mut bytes[..len]) } else { count }
            }
            other => panic!("{other:?} with one thread"),
        };
        self.check(&bytes[..count]);
        count
    }

    /// Does what is left of the work of an injector that was killed; the kernel's socket was empty.
    fn succeed_injector(&mut self, out: &mut [u8]) -> usize {
        let present = self.injector.present();
        if present == 0 || present == TEST || self.members.is_injector_alive(present) {
            return 0;
        }
        if self.injector.discard_dead(present) {
            return 0;
        }
        // The injector may have written between the look and its death.
        if let Ok((_, count @ 1..)) = recv(&self.sockets[0], &mut *out, RecvFlags::DONTWAIT | RecvFlags::PEEK)
        {
            assert!(count > 0);
            return 0;
        }
        let count = self.receiver.receive_left_over(&self.member, out).expect("honest senders");
        if count == 0 && self.injector.complete_for(present).expect("honest senders") {
            self.cycles += 1;
        }
        count
    }

    fn downgrade(&mut self) {
        if self.is_injecting || self.injector.freeze(None) == Freeze::Frozen {
            self.is_injecting = !inject(&mut self.injector, self.sockets[1].as_fd());
            self.cycles += u64::from(!self.is_injecting);
        }
    }

    /// Takes one of the steps that a receiver and a monitor take; returns the bytes received.
    fn step(&mut self) -> usize {
        if self.random.below(2) == 0 {
            self.receiver.offer(&self.member).expect("a barrier");
        }
        let count = self.receive();
        if self.is_injecting || self.random.below(20) == 0 {
            self.downgrade();
        }
        if count == 0 {
            std::thread::sleep(Duration::from_micros(self.random.below(30)));
        }
        count
    }
}

/// A run: the first sending process, and the number of its child once it has printed it.
struct Run {
    first: Child,
    child: mpsc::Receiver<i32>,
    printed: Arc<Printed>,
    reading: std::thread::JoinHandle<()>,
    receiving: Receiving,
    _file: OwnedFd,
}

fn start(is_tcp: bool, bytes: u64, child_bytes: u64, seed: u64) -> Run {
    let config = SegmentConfig { slots: 128, arena_bytes: 4096, huge_pages: false };
    let (segment, file) = Segment::create(&config).expect("memory files exist");
    let path = format!("/proc/{}/fd/{}", std::process::id(), file.as_raw_fd());
    let [sending, receiving] = sockets(is_tcp);
    let mut command = command("threads::forking_sender", &path, seed + 3);
    command.env(BYTES, bytes.to_string()).env(CHILD_BYTES, child_bytes.to_string()).stdout(Stdio::piped());
    command.stdin(Stdio::from(sending.try_clone().expect("a copy")));
    if is_tcp {
        command.env(TCP, "1");
    }
    let mut first = command.spawn().expect("this binary starts");
    let lines = BufReader::new(first.stdout.take().expect("it is piped")).lines();
    let (tell, child) = mpsc::channel();
    let printed = Arc::new(Printed::default());
    let to = Arc::clone(&printed);
    let reading = std::thread::spawn(move || {
        for line in lines.map_while(Result::ok) {
            // A kill may cut the last line off.
            let Some(line) = line.strip_suffix('.') else { continue };
            let words: Vec<_> = line.split(' ').collect();
            let value = |at: usize| words.get(at).and_then(|word| word.parse::<u64>().ok()).unwrap_or(0);
            match words.first() {
                Some(&"sent") => to.sent[value(1) as usize].store(value(2), Ordering::Relaxed),
                Some(&"child") => drop(tell.send(value(1) as i32)),
                Some(&"stalls") => drop(to.stalls.fetch_add(value(1), Ordering::Relaxed)),
                _ => {}
            }
        }
    });
    let members = segment.members().expect("memory");
    members.join().expect("there are few processes");
    let receiving = Receiving {
        member: members.add_thread().expect("there are few threads"),
        members,
        receiver: segment.switch_receiver(0, Side::Zero, 0).expect("slot 0"),
        injector: segment.injector(0, Side::Zero, 0, TEST).expect("slot 0"),
        segment,
        sockets: [receiving, sending],
        random: Random(seed * 2 + 77),
        totals: [0; SENDERS],
        last: 0,
        is_injecting: false,
        cycles: 0,
    };
    Run { first, child, printed, reading, receiving, _file: file }
}

fn signal(process: i32, signal: Signal) {
    kill_process(Pid::from_raw(process).expect("a process"), signal).expect("it is not reaped");
}

/// All bytes arrive while the processes are stopped in turn.
fn send_all(is_tcp: bool) {
    let bytes = number("FLICK_SHM_SENDERS_BYTES", 800_000);
    let Run { mut first, child, printed, reading, mut receiving, _file } = start(is_tcp, bytes, bytes, 1);
    let (mut processes, mut stops) = (vec![first.id() as i32], 0);
    while receiving.totals != [bytes; SENDERS] {
        receiving.step();
        processes.extend(child.try_recv().ok());
        let all = receiving.totals.iter().sum::<u64>();
        if processes.len() == 2 && receiving.random.below(20) == 0 && all < SENDERS as u64 * bytes / 2 {
            let stopped = processes[receiving.random.below(2) as usize];
            signal(stopped, Signal::STOP);
            for _ in 0..receiving.random.below(200) {
                receiving.step();
            }
            signal(stopped, Signal::CONT);
            stops += 1;
        }
        assert!(first.try_wait().expect("a child").is_none_or(|status| status.success()), "a sender failed");
    }
    assert!(first.wait().expect("a child").success(), "a sender failed");
    reading.join().expect("it only reads");
    let stalls = printed.stalls.load(Ordering::Relaxed);
    println!("{is_tcp}: {} downgrades by the test, {stops} stops, {stalls} stalls", receiving.cycles);
    assert!(receiving.cycles > 0 && stops > 0);
    drop(receiving.segment);
}

#[test]
fn threads_of_a_process_and_its_child_send_on_one_direction_of_a_unix_socket() {
    send_all(false);
}

#[test]
fn threads_of_a_process_and_its_child_send_on_one_direction_of_tcp() {
    send_all(true);
}

/// The child is killed at a random moment: what it had sent arrives, and its parent sends everything.
#[test]
fn a_killed_child_loses_no_byte_that_it_had_sent_and_keeps_no_other_sender_back() {
    let (kills, bytes) = (number("FLICK_SHM_SENDERS_KILLS", 10), 20_000);
    let mut cycles = 0;
    for kill in 0..kills {
        let Run { mut first, child, printed, reading, mut receiving, _file } =
            start(false, bytes, u64::MAX, kill);
        let process = loop {
            receiving.step();
            if let Ok(process) = child.try_recv() {
                break process;
            }
        };
        for _ in 0..receiving.random.below(600) {
            receiving.step();
        }
        signal(process, Signal::KILL);
        let mut has_ended = false;
        loop {
            receiving.members.reap();
            let count = receiving.step();
            if has_ended && count == 0 && !receiving.is_injecting {
                break;
            }
            has_ended = first.try_wait().expect("a child").is_some_and(|status| {
                assert!(status.success(), "a sender failed");
                true
            });
        }
        receiving.downgrade();
        while receiving.step() > 0 {}
        reading.join().expect("it only reads");
        let sent = printed.sent.each_ref().map(|sent| sent.load(Ordering::Relaxed));
        assert_eq!(receiving.totals[..2], [bytes; 2]);
        for (sent, received) in sent.iter().zip(receiving.totals) {
            assert!(received >= *sent, "{sent} bytes were sent before the kill, {received} were received");
        }
        cycles += receiving.cycles;
    }
    println!("{kills} kills, {cycles} downgrades");
}
