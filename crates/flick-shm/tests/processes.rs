//! Two processes: the test starts its own binary again as the other side. `FLICK_SHM_KILLS` sets how often the other
//! side is killed.
#![cfg(not(loom))]

use std::io::{BufRead, BufReader, IoSlice, Read, Write};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd};
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixListener, UnixStream};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use flick_shm::conn::RingRead;
use flick_shm::limits::HANDSHAKE_BYTES;
use flick_shm::pairing::{PairError, PairListener, PairPolicy};
use flick_shm::segment::{LAYOUT_VERSION, Segment, SegmentConfig, SegmentError};
use flick_shm::stream::{ShmStream, StreamConfig, StreamError, StreamInterest, StreamTransport};

/// Variables that make the binary the other side: what it does, and the name it connects to.
const ROLE: &str = "FLICK_SHM_TEST_ROLE";
const NAME: &str = "FLICK_SHM_TEST_NAME";
/// Longest wait of a test for the other side.
const WAIT_MS: u32 = 20_000;
/// Time within which the death of the other side must be reported. The promise is 50 ms; a loaded machine may be
/// slower.
const DEATH_SEEN: Duration = Duration::from_secs(1);
/// Period of the pattern of bytes; no power of two, so that a shifted ring shows.
const PERIOD: u64 = 65_521;

/// The byte at an offset of a stream.
fn pattern(offset: u64) -> u8 {
    ((offset % PERIOD).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32) as u8
}

fn fill(out: &mut [u8], offset: u64) {
    out.iter_mut().zip(offset..).for_each(|(byte, at)| *byte = pattern(at));
}

fn check(bytes: &[u8], offset: u64) {
    let wrong = bytes.iter().zip(offset..).find(|(byte, at)| **byte != pattern(*at));
    assert!(wrong.is_none(), "byte {} is wrong", wrong.map_or(0, |(_, at)| at));
}

/// Returns a listener with a name of its own.
fn listener(test: &str) -> (PairListener, String) {
    // A process that another test starts keeps a closed listener's name until it runs its own program.
    static NUMBER: AtomicU32 = AtomicU32::new(0);
    let number = NUMBER.fetch_add(1, Ordering::Relaxed);
    let name = format!("shm:test-{test}-{}-{number}", std::process::id());
    (PairListener::bind(&name, PairPolicy::SameUser).expect("the name is free"), name)
}

fn start(role: &str, name: &str) -> Child {
    start_by(Command::new(std::env::current_exe().expect("this binary")), role, name)
}

fn start_by(mut command: Command, role: &str, name: &str) -> Child {
    command.args(["--exact", "other_side", "--nocapture"]).env(ROLE, role).env(NAME, name);
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().expect("this binary starts")
}

/// Sends all bytes of a stream from `from` to `to`, with a wait whenever the ring is full.
fn send_all(stream: &mut ShmStream, from: u64, to: u64, piece: usize) {
    let (mut sent, mut bytes) = (from, vec![0; piece]);
    while sent < to {
        let len = piece.min((to - sent) as usize);
        fill(&mut bytes[..len], sent);
        match stream.send(&bytes[..len]).expect("the other side lives") {
            0 => assert!(stream.wait(StreamInterest::Writable, Some(WAIT_MS)).expect("the other side lives")),
            count => sent += count as u64,
        }
    }
}

/// Receives until the end of the stream, and checks every byte; returns how many there were.
fn receive_all(stream: &mut ShmStream) -> (u64, Result<(), StreamError>) {
    let (mut received, mut bytes) = (0, vec![0; 9000]);
    loop {
        match stream.receive(&mut bytes) {
            Ok(RingRead::Bytes(count)) => {
                check(&bytes[..count], received);
                received += count as u64;
            }
            Ok(RingRead::Finished) => return (received, Ok(())),
            Ok(RingRead::Empty) => match stream.wait(StreamInterest::Readable, Some(WAIT_MS)) {
                Ok(is_ready) => assert!(is_ready, "nothing came for {WAIT_MS} ms after {received} bytes"),
                Err(error) => return (received, Err(error)),
            },
            Ok(RingRead::Reset) => panic!("a stream reports a reset as an error"),
            Err(error) => return (received, Err(error)),
        }
    }
}

/// The other side, when this binary is started again; otherwise nothing.
#[test]
fn other_side() {
    let Ok(role) = std::env::var(ROLE) else { return };
    let name = std::env::var(NAME).expect("the first side sets both");
    let mut stream = ShmStream::connect(&name, &StreamConfig::default()).expect("the first side listens");
    assert_eq!(stream.transport(), StreamTransport::SharedMemory);
    match role.as_str() {
        "exchange" => {
            send_all(&mut stream, 0, 3_000_000, 3001);
            stream.finish_sending().expect("the first side lives");
            let (received, end) = receive_all(&mut stream);
            assert_eq!((received, end), (2_000_000, Ok(())));
        }
        // Prints each total after the send has returned, until it is killed.
        "send" => {
            let (mut sent, mut bytes, mut out) = (0_u64, [0; 777], std::io::stdout().lock());
            loop {
                fill(&mut bytes, sent);
                match stream.send(&bytes).expect("the first side lives") {
                    0 => drop(
                        stream.wait(StreamInterest::Writable, Some(WAIT_MS)).expect("the first side lives"),
                    ),
                    count => {
                        sent += count as u64;
                        writeln!(out, "sent {sent}.").expect("the first side reads");
                    }
                }
            }
        }
        "sleep" => {
            stream.send(b"here").expect("the first side lives");
            // A wait may end early.
            while stream.wait(StreamInterest::Readable, Some(WAIT_MS)).is_ok() {}
        }
        role => panic!("unknown role {role}"),
    }
}

#[test]
fn two_processes_exchange_bytes_in_both_directions() {
    let (listener, name) = listener("exchange");
    let mut child = start("exchange", &name);
    let mut stream = ShmStream::accept(&listener, &StreamConfig::default()).expect("the other side connects");
    assert_eq!(stream.transport(), StreamTransport::SharedMemory);
    assert_eq!(stream.peer().pid() as u32, child.id());
    let (received, end) = receive_all(&mut stream);
    assert_eq!((received, end), (3_000_000, Ok(())));
    send_all(&mut stream, 0, 2_000_000, 5000);
    stream.finish_sending().expect("the other side lives");
    assert!(child.wait().expect("it ends").success());
}

#[test]
fn process_in_another_pid_namespace_was_refused_with_the_error_success() {
    let (listener, name) = listener("namespace");
    let mut command = Command::new("unshare");
    command.args(["--map-root-user", "--pid", "--fork"]).arg(std::env::current_exe().expect("this binary"));
    // It has no number for this process, which the kernel shows it as 0.
    let mut child = start_by(command, "exchange", &name);
    let mut stream = ShmStream::accept(&listener, &StreamConfig::default()).expect("the other side connects");
    assert_eq!(stream.transport(), StreamTransport::SharedMemory);
    assert_eq!(receive_all(&mut stream), (3_000_000, Ok(())));
    send_all(&mut stream, 0, 2_000_000, 5000);
    stream.finish_sending().expect("the other side lives");
    assert!(child.wait().expect("it ends").success());
}

/// Returns the total of a whole line of the other side.
fn total(line: String) -> Option<u64> {
    line.strip_prefix("sent ")?.strip_suffix('.')?.parse().ok()
}

#[test]
fn bytes_published_before_a_kill_are_delivered_and_then_an_error() {
    let kills = std::env::var("FLICK_SHM_KILLS").ok().and_then(|kills| kills.parse().ok()).unwrap_or(20_u64);
    let (listener, name) = listener("kill");
    let mut slowest = Duration::ZERO;
    for kill in 0..kills {
        let mut child = start("send", &name);
        let mut stream = ShmStream::accept(&listener, &StreamConfig::default()).expect("it connects");
        let lines = BufReader::new(child.stdout.take().expect("it is piped")).lines();
        let last = std::thread::spawn(move || lines.map_while(Result::ok).filter_map(total).last());
        // Some are killed with a full ring, some while bytes flow.
        let (mut received, mut bytes) = (0, vec![0; 4000]);
        for _ in 0..kill % 50 {
            match stream.receive(&mut bytes).expect("it lives") {
                RingRead::Bytes(count) => {
                    check(&bytes[..count], received);
                    received += count as u64;
                }
                _ => drop(stream.wait(StreamInterest::Readable, Some(WAIT_MS)).expect("it lives")),
            }
        }
        child.kill().expect("it lives");
        child.wait().expect("it is dead");
        let died = Instant::now();
        let end = loop {
            match stream.receive(&mut bytes) {
                Ok(RingRead::Bytes(count)) => {
                    check(&bytes[..count], received);
                    received += count as u64;
                }
                Ok(RingRead::Empty) => match stream.wait(StreamInterest::Readable, Some(WAIT_MS)) {
                    Ok(_) => {}
                    Err(error) => break error,
                },
                other => panic!("{other:?}"),
            }
        };
        slowest = slowest.max(died.elapsed());
        assert_eq!(end, StreamError::PeerGone);
        // The last line may be cut off by the kill.
        let last = last.join().expect("it only reads").unwrap_or(0);
        assert!(received >= last, "{last} bytes were sent before the kill, {received} were received");
    }
    println!("{kills} kills, an error at most {slowest:?} after the death");
    assert!(slowest < DEATH_SEEN);
}

#[test]
fn a_sleeping_side_sees_the_death_of_the_other_at_once() {
    let (listener, name) = listener("sleep");
    let mut child = start("sleep", &name);
    let mut stream = ShmStream::accept(&listener, &StreamConfig::default()).expect("it connects");
    let mut bytes = [0; 16];
    while stream.receive(&mut bytes).expect("it lives") != RingRead::Bytes(4) {
        stream.wait(StreamInterest::Readable, Some(WAIT_MS)).expect("it lives");
    }
    let waiting = std::thread::spawn(move || {
        // A wait may end early.
        let end = (0..100).find_map(|_| stream.wait(StreamInterest::Readable, Some(WAIT_MS)).err());
        (end, Instant::now())
    });
    let killed = Instant::now();
    child.kill().expect("it lives");
    let (result, seen) = waiting.join().expect("it waits");
    assert_eq!(result, Some(StreamError::PeerGone));
    assert!(seen - killed < DEATH_SEEN, "{:?}", seen - killed);
    child.wait().expect("it is dead");
}

#[test]
fn waits_that_are_shorter_than_a_sleep_on_the_futex_see_the_death_of_the_other_process() {
    let (listener, name) = listener("short");
    let mut child = start("sleep", &name);
    let mut stream = ShmStream::accept(&listener, &StreamConfig::default()).expect("it connects");
    let mut bytes = [0; 16];
    while stream.receive(&mut bytes).expect("it lives") != RingRead::Bytes(4) {
        stream.wait(StreamInterest::Readable, Some(WAIT_MS)).expect("it lives");
    }
    // A wait may end early.
    assert!((0..5).any(|_| stream.wait(StreamInterest::Readable, Some(2)) == Ok(false)));
    child.kill().expect("it lives");
    child.wait().expect("it is dead");
    for timeout_ms in [0, 1] {
        let end = (0..3).find_map(|_| stream.wait(StreamInterest::Readable, Some(timeout_ms)).err());
        assert_eq!(end, Some(StreamError::PeerGone), "waits of {timeout_ms} ms");
    }
}

/// A wait that returned `true` instead would be followed by a send that takes nothing, again and again.
#[test]
fn bytes_of_a_dead_process_are_received_behind_a_wait_to_send_that_has_failed() {
    let (listener, name) = listener("unread");
    let mut child = start("sleep", &name);
    let mut stream = ShmStream::accept(&listener, &StreamConfig::default()).expect("it connects");
    stream.wait(StreamInterest::Readable, Some(WAIT_MS)).expect("it lives");
    let full = vec![0; 4096];
    while stream.send(&full).expect("it lives") > 0 {}
    child.kill().expect("it lives");
    child.wait().expect("it is dead");
    let end = (0..3).find_map(|_| stream.wait(StreamInterest::Writable, Some(WAIT_MS)).err());
    assert_eq!(end, Some(StreamError::PeerGone));
    let mut bytes = [0; 16];
    assert_eq!(stream.wait(StreamInterest::Readable, Some(WAIT_MS)), Ok(true));
    assert_eq!(stream.receive(&mut bytes), Ok(RingRead::Bytes(4)));
    let end = (0..3).find_map(|_| stream.wait(StreamInterest::Readable, Some(WAIT_MS)).err());
    assert_eq!(end, Some(StreamError::PeerGone));
}

fn raw_connection(name: &str) -> UnixStream {
    let name = format!("flick-shm/{}", name.strip_prefix("shm:").expect("a name"));
    let address = SocketAddr::from_abstract_name(name).expect("a short name");
    UnixStream::connect_addr(&address).expect("the test listens")
}

#[test]
fn a_process_that_asks_for_no_slots_gets_a_byte_stream() {
    let (listener, name) = listener("kernel");
    let mut raw = raw_connection(&name);
    raw.write_all(&[&hello(0, 0), &b"and bytes"[..]].concat()).expect("the socket is open");
    let mut stream = ShmStream::accept(&listener, &StreamConfig::default()).expect("the message is right");
    assert_eq!(stream.transport(), StreamTransport::Kernel(PairError::Segment(SegmentError::Config)));
    let mut bytes = [0; 64];
    let mut answer = [0; HANDSHAKE_BYTES];
    raw.read_exact(&mut answer).expect("an answer");
    assert_eq!(answer, hello(0, 0));
    assert_eq!(stream.receive(&mut bytes), Ok(RingRead::Bytes(9)));
    assert_eq!(&bytes[..9], b"and bytes");
    assert_eq!(stream.receive(&mut bytes), Ok(RingRead::Empty));
    assert_eq!(stream.send(b"reply"), Ok(5));
    drop(raw);
    assert!(stream.wait(StreamInterest::Readable, Some(WAIT_MS)).expect("the end is readable"));
    assert!(matches!(stream.receive(&mut bytes), Ok(RingRead::Finished) | Err(StreamError::PeerGone)));
}

/// A message of the handshake.
fn hello(status: u8, slots: u8) -> [u8; HANDSHAKE_BYTES] {
    let mut hello = [0; HANDSHAKE_BYTES];
    hello[..8].copy_from_slice(b"flickshm");
    (hello[8], hello[12], hello[16]) = (LAYOUT_VERSION as u8, status, slots);
    // An arena of 1 MiB, if there are slots.
    hello[26] = if slots == 0 { 0 } else { 16 };
    hello
}

/// A signal may arrive after its sleep has ended, and finds the sleep word of the next one.
#[test]
fn a_late_signal_wakes_a_stream_once() {
    let (listener, name) = listener("signal");
    let mut raw = raw_connection(&name);
    raw.write_all(&hello(1, 128)).expect("the socket is open");
    let mut stream = ShmStream::accept(&listener, &StreamConfig::default()).expect("the message is right");
    assert_eq!(stream.transport(), StreamTransport::SharedMemory);
    raw.write_all(&[1]).expect("the socket is open");
    assert_eq!(stream.wait(StreamInterest::Readable, Some(WAIT_MS)), Ok(true));
    assert_eq!(stream.wait(StreamInterest::Readable, Some(50)), Ok(false));
}

/// Connects to a process that answers with these bytes and descriptors. Returns the reason why the two are no pair;
/// `None` if they are.
fn answered(answer: &[u8], descriptors: &[BorrowedFd<'_>]) -> Option<PairError> {
    use rustix::net::{SendAncillaryBuffer, SendAncillaryMessage, SendFlags, sendmsg};
    static NUMBER: AtomicU32 = AtomicU32::new(0);
    let number = NUMBER.fetch_add(1, Ordering::Relaxed);
    let name = format!("test-answers-{}-{number}", std::process::id());
    let address = SocketAddr::from_abstract_name(format!("flick-shm/{name}")).expect("a short name");
    let listener = UnixListener::bind_addr(&address).expect("the name is free");
    let config = StreamConfig::default();
    let connecting = std::thread::spawn(move || ShmStream::connect(&name, &config));
    let (mut raw, _) = listener.accept().expect("it connects");
    let mut request = [0; HANDSHAKE_BYTES];
    raw.read_exact(&mut request).expect("it asks");
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(3))];
    let mut ancillary = SendAncillaryBuffer::new(&mut space);
    assert!(descriptors.is_empty() || ancillary.push(SendAncillaryMessage::ScmRights(descriptors)));
    sendmsg(&raw, &[IoSlice::new(answer)], &mut ancillary, SendFlags::empty()).expect("the socket is open");
    match connecting.join().expect("it only connects") {
        Ok(stream) => match stream.transport() {
            StreamTransport::Kernel(reason) => Some(reason),
            StreamTransport::SharedMemory => None,
        },
        Err(reason) => Some(reason),
    }
}

#[test]
fn wrong_answers_make_no_pair() {
    let (reader, _writer) = std::io::pipe().expect("pipes exist");
    let segment = |config: &SegmentConfig| Segment::create(config).expect("memory files exist").1;
    let asked = StreamConfig::default().segment;
    let file = segment(&asked);
    let more_slots = segment(&SegmentConfig { slots: 2 * asked.slots, ..asked });
    let more_bytes = segment(&SegmentConfig { arena_bytes: 2 * asked.arena_bytes, ..asked });
    let flags = rustix::fs::MemfdFlags::ALLOW_SEALING;
    let unsealed = rustix::fs::memfd_create("unsealed", flags).expect("memory files exist");
    rustix::fs::ftruncate(&unsealed, 1 << 20).expect("it can grow");
    let seals = rustix::fs::SealFlags::SHRINK | rustix::fs::SealFlags::GROW | rustix::fs::SealFlags::SEAL;
    let sealed = |bytes, seals| {
        let file = rustix::fs::memfd_create("zeros", flags).expect("memory files exist");
        rustix::fs::ftruncate(&file, bytes).expect("it can grow");
        rustix::fs::fcntl_add_seals(&file, seals).expect("it can be sealed");
        file
    };
    let read_only = sealed(1 << 20, seals | rustix::fs::SealFlags::WRITE);
    let (empty, zeros) = (sealed(0, seals), sealed(1 << 20, seals));
    let (yes, no) = (hello(1, 0), hello(0, 0));
    let segment_error = |error| Some(PairError::Segment(error));
    let [file, other] = [file.as_fd(), reader.as_fd()];
    assert_eq!(answered(&no, &[]), Some(PairError::Handshake));
    assert_eq!(answered(&no, &[file]), Some(PairError::Handshake));
    assert_eq!(answered(&yes, &[]), Some(PairError::Handshake));
    assert_eq!(answered(&yes[..20], &[file]), Some(PairError::Handshake));
    assert_eq!(answered(&[7; HANDSHAKE_BYTES], &[file]), Some(PairError::Handshake));
    assert_eq!(answered(&yes, &[other]), segment_error(SegmentError::NotSealed));
    for (file, error) in [
        (&unsealed, SegmentError::NotSealed),
        (&empty, SegmentError::Size),
        (&zeros, SegmentError::Magic),
        (&more_slots, SegmentError::Size),
        (&more_bytes, SegmentError::Size),
        (&read_only, SegmentError::System(rustix::io::Errno::PERM)),
    ] {
        assert_eq!(answered(&yes, &[file.as_fd()]), segment_error(error));
    }
    assert_eq!(answered(&yes, &[file]), None);
}

/// The process that accepts takes no descriptor: the kernel refuses them to the one that passes them.
#[test]
fn a_process_passed_descriptors_before_its_user_was_known() {
    use rustix::net::{SendAncillaryBuffer, SendAncillaryMessage, SendFlags, sendmsg};
    let (listener, name) = listener("rights");
    let raw = raw_connection(&name);
    let (reader, _writer) = std::io::pipe().expect("pipes exist");
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut ancillary = SendAncillaryBuffer::new(&mut space);
    let descriptors = [reader.as_fd()];
    assert!(ancillary.push(SendAncillaryMessage::ScmRights(&descriptors)));
    let sent = sendmsg(&raw, &[IoSlice::new(&hello(1, 128))], &mut ancillary, SendFlags::empty());
    // Kernels before 6.16 pass them, and close them when the message is received.
    let is_refused = sent == Err(rustix::io::Errno::PERM);
    assert!(is_refused || !kernel_is_at_least(6, 16), "{sent:?}");
    if is_refused {
        (&raw).write_all(&hello(1, 128)).expect("the socket is open");
    }
    let (_peer, pair) = listener.accept().expect("the message is right");
    assert!(pair.is_ok());
}

fn kernel_is_at_least(major: u32, minor: u32) -> bool {
    let release = std::fs::read_to_string("/proc/sys/kernel/osrelease").expect("/proc is mounted");
    let mut numbers = release.split(['.', '-']).map_while(|number| number.parse::<u32>().ok());
    (numbers.next(), numbers.next()) >= (Some(major), Some(minor))
}

#[test]
fn a_process_that_speaks_another_protocol_is_refused() {
    let (listener, name) = listener("foreign");
    let mut raw = raw_connection(&name);
    raw.write_all(b"GET / HTTP/1.1\r\nHost: example\r\n\r\n").expect("the socket is open");
    let refused = ShmStream::accept(&listener, &StreamConfig::default());
    assert_eq!(refused.err(), Some(PairError::Handshake));
}
