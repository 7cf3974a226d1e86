//! Streams that sleep without a time limit, beside processes that end, stop, or misuse the socket. The test starts its
//! own binary again as the other side. `FLICK_SHM_WATCH_KILLS` sets how often one is killed.
#![cfg(not(loom))]

mod raw;

use std::io::{BufRead, BufReader, Write};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use flick_shm::conn::RingRead;
use flick_shm::limits::PEERS_WATCHED_MAX;
use flick_shm::pairing::{PairListener, PairPolicy};
use flick_shm::stream::{ShmStream, StreamConfig, StreamError, StreamInterest, StreamTransport};
use flick_shm::watch::{PeerWatch, PeerWatchHandle, WatchError};
use rustix::net::{SendFlags, Shutdown, send, shutdown};
use rustix::process::{Pid, Signal, WaitOptions, kill_process, waitpid};

/// Variables that make the binary the other side: what it does, and the name it connects to.
const ROLE: &str = "FLICK_SHM_TEST_ROLE";
const NAME: &str = "FLICK_SHM_TEST_NAME";
/// Time within which the death of the other side must be reported. The promise is 50 ms; a loaded machine may be
/// slower.
const DEATH_SEEN: Duration = Duration::from_secs(1);
/// Time after which a side that waits has most likely fallen asleep. No test relies on it.
const ASLEEP: Duration = Duration::from_millis(60);

/// A thread that watches, and what it ended with.
struct Watching {
    handle: PeerWatchHandle,
    thread: JoinHandle<Result<(), WatchError>>,
}

impl Watching {
    fn start() -> Self {
        let watch = PeerWatch::new().expect("descriptors and memory");
        let handle = watch.handle();
        Self { handle, thread: std::thread::spawn(move || watch.run()) }
    }

    fn stop(self) {
        self.handle.stop();
        assert_eq!(self.thread.join().expect("it only watches"), Ok(()));
    }
}

fn listener(test: &str) -> (PairListener, String) {
    // A process that another test starts keeps a closed listener's name until it runs its own program.
    static NUMBER: AtomicU32 = AtomicU32::new(0);
    let number = NUMBER.fetch_add(1, Ordering::Relaxed);
    let name = format!("shm:test-{test}-{}-{number}", std::process::id());
    (PairListener::bind(&name, PairPolicy::SameUser).expect("the name is free"), name)
}

/// A stream that sleeps at once when it waits.
fn config() -> StreamConfig {
    StreamConfig { busy_poll_us: 0, ..StreamConfig::default() }
}

/// Two streams of this process that are connected.
fn streams() -> (ShmStream, ShmStream) {
    let (listener, name) = listener("watches");
    let (near, far) = std::thread::scope(|scope| {
        let accepting = scope.spawn(|| ShmStream::accept(&listener, &config()));
        (ShmStream::connect(&name, &config()), accepting.join().expect("it only accepts"))
    });
    (near.expect("the other side listens"), far.expect("the other side connects"))
}

/// Starts the other side and connects to it, when it has said so.
fn start(role: &str) -> (Child, ShmStream) {
    let (listener, name) = listener(role);
    let mut command = Command::new(std::env::current_exe().expect("this binary"));
    command.args(["--exact", "other_side", "--nocapture"]).env(ROLE, role).env(NAME, name);
    let child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().expect("this binary starts");
    let stream = ShmStream::accept(&listener, &config()).expect("the other side connects");
    assert_eq!(stream.transport(), StreamTransport::SharedMemory);
    (child, stream)
}

/// Ends a child and returns when it was dead.
fn kill(mut child: Child) -> Instant {
    child.kill().expect("it lives");
    let killed = Instant::now();
    child.wait().expect("it is dead");
    killed
}

/// Waits without a limit until bytes or the end are there.
fn receive(stream: &mut ShmStream, out: &mut [u8]) -> Result<RingRead, StreamError> {
    loop {
        match stream.receive(out)? {
            RingRead::Empty => assert!(stream.wait(StreamInterest::Readable, None)?),
            read => return Ok(read),
        }
    }
}

/// Receives until the end in a thread of its own; returns the number of bytes, the end and its time.
fn receive_to_end(mut stream: ShmStream) -> JoinHandle<(u64, StreamError, Instant)> {
    std::thread::spawn(move || {
        let (mut received, mut bytes) = (0, [0; 4000]);
        loop {
            match receive(&mut stream, &mut bytes) {
                Ok(RingRead::Bytes(count)) => {
                    assert!(bytes[..count].iter().zip(received..).all(|(byte, at)| *byte == at as u8));
                    received += count as u64;
                }
                Ok(read) => panic!("{read:?}"),
                Err(error) => return (received, error, Instant::now()),
            }
        }
    })
}

/// The other side, when this binary is started again; otherwise nothing.
#[test]
fn other_side() {
    let Ok(role) = std::env::var(ROLE) else { return };
    let name = std::env::var(NAME).expect("the first side sets both");
    let mut stream = ShmStream::connect(&name, &StreamConfig::default()).expect("the first side listens");
    match role.as_str() {
        "echo" => {
            let mut bytes = [0; 64];
            while let Ok(RingRead::Bytes(count)) = receive(&mut stream, &mut bytes) {
                assert_eq!(stream.send(&bytes[..count]), Ok(count));
            }
        }
        // Prints each total after the send has returned, until it is killed.
        "send" => {
            let (mut sent, mut out) = (0_u64, std::io::stdout().lock());
            loop {
                let bytes: [u8; 777] = std::array::from_fn(|at| (sent + at as u64) as u8);
                match stream.send(&bytes).expect("the first side lives") {
                    0 => drop(stream.wait(StreamInterest::Writable, None).expect("the first side lives")),
                    count => {
                        sent += count as u64;
                        writeln!(out, "sent {sent}.").expect("the first side reads");
                    }
                }
            }
        }
        "garbage" => {
            stream.send(b"here").expect("the first side lives");
            loop {
                let sent = send(stream.peer().socket(), &[1; 100], SendFlags::DONTWAIT | SendFlags::NOSIGNAL);
                if sent.is_err() {
                    std::thread::yield_now();
                }
            }
        }
        "shutdowns" => {
            stream.send(b"here").expect("the first side lives");
            loop {
                shutdown(stream.peer().socket(), Shutdown::Write).expect("it is a socket");
            }
        }
        role => panic!("unknown role {role}"),
    }
}

/// Returns the total of a whole line of the other side.
fn total(line: String) -> Option<u64> {
    line.strip_prefix("sent ")?.strip_suffix('.')?.parse().ok()
}

#[test]
fn bytes_published_before_a_kill_wake_a_sleep_without_limit_before_the_error() {
    let kills = std::env::var("FLICK_SHM_WATCH_KILLS").ok().and_then(|kills| kills.parse().ok());
    let watching = Watching::start();
    let mut slowest = Duration::ZERO;
    for kill_at in 0..kills.unwrap_or(20_u64) {
        let (mut child, mut stream) = start("send");
        stream.watch_peer(&watching.handle).expect("there is space");
        let lines = BufReader::new(child.stdout.take().expect("it is piped")).lines();
        let last = std::thread::spawn(move || lines.map_while(Result::ok).filter_map(total).last());
        let receiving = receive_to_end(stream);
        std::thread::sleep(Duration::from_millis(kill_at % 7));
        let died = kill(child);
        let (received, error, seen) = receiving.join().expect("it only receives");
        assert_eq!(error, StreamError::PeerGone);
        // The last line may be cut off by the kill.
        let last = last.join().expect("it only reads").unwrap_or(0);
        assert!(received >= last, "{last} bytes were sent before the kill, {received} were received");
        slowest = slowest.max(seen.saturating_duration_since(died));
    }
    println!("an error at most {slowest:?} after the kill");
    assert!(slowest < DEATH_SEEN);
    watching.stop();
}

/// Kills the other side while this one sleeps; returns the time until the error.
fn death_of(stream: ShmStream, child: Child) -> Duration {
    let receiving = receive_to_end(stream);
    std::thread::sleep(ASLEEP);
    let died = kill(child);
    let (received, error, seen) = receiving.join().expect("it only receives");
    assert_eq!((received, error), (0, StreamError::PeerGone));
    let delay = seen.saturating_duration_since(died);
    assert!(delay < DEATH_SEEN, "{delay:?}");
    delay
}

fn ask(stream: &mut ShmStream) {
    let mut reply = [0; 8];
    // The side that has accepted the processes may not have the connection yet.
    while stream.send(b"question").expect("it lives") == 0 {
        assert_eq!(stream.wait(StreamInterest::Writable, None), Ok(true));
    }
    assert_eq!(receive(stream, &mut reply), Ok(RingRead::Bytes(8)));
    assert_eq!(&reply, b"question");
}

#[test]
fn the_death_is_seen_whenever_the_watch_begins_and_without_one() {
    let watch = PeerWatch::new().expect("descriptors and memory");
    let handle = watch.handle();
    let mut early = start("echo");
    early.1.watch_peer(&handle).expect("there is space");
    ask(&mut early.1);
    let mut asleep = start("echo");
    asleep.1.watch_peer(&handle).expect("there is space");
    let dead = start("echo");
    let receiving = receive_to_end(asleep.1);
    std::thread::sleep(ASLEEP);
    let thread = std::thread::spawn(move || watch.run());
    std::thread::sleep(ASLEEP);
    let died = kill(asleep.0);
    let (_, error, seen) = receiving.join().expect("it only receives");
    assert_eq!(error, StreamError::PeerGone);
    let begun_asleep = seen.saturating_duration_since(died);
    assert!(begun_asleep < DEATH_SEEN, "{begun_asleep:?}");
    let early = death_of(early.1, early.0);
    let mut late = start("echo");
    ask(&mut late.1);
    late.1.watch_peer(&handle).expect("there is space");
    ask(&mut late.1);
    let late = death_of(late.1, late.0);
    // The socket of a process that is dead already.
    let (child, mut stream) = dead;
    kill(child);
    stream.watch_peer(&handle).expect("there is space");
    let (_, error, _) = receive_to_end(stream).join().expect("it only receives");
    assert_eq!(error, StreamError::PeerGone);
    handle.stop();
    assert_eq!(thread.join().expect("it only watches"), Ok(()));
    let mut without = start("echo");
    assert_eq!(without.1.watch_peer(&handle), Err(WatchError::Stopped));
    ask(&mut without.1);
    let without = death_of(without.1, without.0);
    println!("asleep {begun_asleep:?}, early {early:?}, late {late:?}, without {without:?}");
}

#[test]
fn a_side_that_waits_for_space_sees_the_death() {
    let watching = Watching::start();
    let (child, mut stream) = start("send");
    stream.watch_peer(&watching.handle).expect("there is space");
    let sending = std::thread::spawn(move || {
        loop {
            match stream.send(&[0; 5000]) {
                Ok(0) => match stream.wait(StreamInterest::Writable, None) {
                    Ok(is_ready) => assert!(is_ready),
                    Err(error) => return (error, Instant::now()),
                },
                Ok(_) => {}
                Err(error) => return (error, Instant::now()),
            }
        }
    });
    std::thread::sleep(ASLEEP);
    let died = kill(child);
    let (error, seen) = sending.join().expect("it only sends");
    assert_eq!(error, StreamError::PeerGone);
    let delay = seen.saturating_duration_since(died);
    assert!(delay < DEATH_SEEN, "{delay:?}");
    watching.stop();
}

/// Stops a child; it runs no more when this returns.
fn stop(process: Pid) {
    kill_process(process, Signal::STOP).expect("it lives");
    let status = waitpid(Some(process), WaitOptions::UNTRACED).expect("it is a child");
    assert!(status.is_some_and(|(_, status)| status.stopped()));
}

#[test]
fn a_process_that_is_stopped_and_continued_is_not_dead() {
    let watching = Watching::start();
    let (child, mut stream) = start("echo");
    stream.watch_peer(&watching.handle).expect("there is space");
    ask(&mut stream);
    let process = Pid::from_child(&child);
    for _ in 0..3 {
        stop(process);
        let asking = std::thread::spawn(move || {
            ask(&mut stream);
            stream
        });
        std::thread::sleep(ASLEEP);
        assert!(!asking.is_finished());
        kill_process(process, Signal::CONT).expect("it lives");
        stream = asking.join().expect("it is answered");
    }
    stop(process);
    death_of(stream, child);
    watching.stop();
}

#[test]
fn a_watch_that_stops_or_is_dropped_leaves_streams_that_see_the_death() {
    for is_dropped in [false, true] {
        let watching = Watching::start();
        let (child, mut stream) = start("echo");
        stream.watch_peer(&watching.handle).expect("there is space");
        ask(&mut stream);
        let receiving = receive_to_end(stream);
        std::thread::sleep(ASLEEP);
        if is_dropped {
            let Watching { handle, thread } = watching;
            handle.stop();
            drop(handle);
            assert_eq!(thread.join().expect("it only watches"), Ok(()));
        } else {
            watching.stop();
        }
        std::thread::sleep(ASLEEP);
        assert!(!receiving.is_finished());
        let died = kill(child);
        let (received, error, seen) = receiving.join().expect("it only receives");
        assert_eq!((received, error), (0, StreamError::PeerGone));
        assert!(seen.saturating_duration_since(died) < DEATH_SEEN);
    }
    // A watch that never ran.
    let watch = PeerWatch::new().expect("descriptors and memory");
    let (child, mut stream) = start("echo");
    stream.watch_peer(&watch.handle()).expect("there is space");
    drop(watch);
    ask(&mut stream);
    death_of(stream, child);
}

#[test]
fn the_child_of_a_fork_has_no_watch_and_leaves_that_of_its_parent_alone() {
    let watching = Watching::start();
    let (mut other, mut stream) = start("echo");
    stream.watch_peer(&watching.handle).expect("there is space");
    ask(&mut stream);
    let forked = raw::fork();
    if forked == 0 {
        // The watch of the parent does not wake the child.
        let has_seen_death = receive(&mut stream, &mut [0; 8]) == Err(StreamError::PeerGone);
        watching.handle.stop();
        let is_refused = stream.watch_peer(&watching.handle) == Err(WatchError::Forked);
        raw::exit(i32::from(!has_seen_death) + 2 * i32::from(!is_refused));
    }
    std::thread::sleep(ASLEEP);
    other.kill().expect("it lives");
    other.wait().expect("it is dead");
    let status = waitpid(Pid::from_raw(forked), WaitOptions::empty()).expect("it is a child");
    assert_eq!(status.and_then(|(_, status)| status.exit_status()), Some(0));
    assert_eq!(receive(&mut stream, &mut [0; 8]), Err(StreamError::PeerGone));
    let (child, mut stream) = start("echo");
    stream.watch_peer(&watching.handle).expect("the watch goes on");
    death_of(stream, child);
    watching.stop();
}

#[test]
fn slots_of_dropped_streams_are_used_again() {
    let watching = Watching::start();
    let (mut near, _far) = streams();
    near.watch_peer(&watching.handle).expect("there is space");
    for round in 0..2 * PEERS_WATCHED_MAX {
        // A second registration replaces the first.
        near.watch_peer(&watching.handle).expect("there is space");
        if round % 50 == 0 {
            let (mut short, mut other) = streams();
            short.watch_peer(&watching.handle).expect("there is space");
            other.watch_peer(&watching.handle).expect("there is space");
            assert_eq!(short.send(b"question"), Ok(8));
            assert_eq!(receive(&mut other, &mut [0; 8]), Ok(RingRead::Bytes(8)));
            if round % 100 == 0 {
                drop(short);
                assert_eq!(receive(&mut other, &mut [0; 8]), Ok(RingRead::Finished));
            }
        }
    }
    watching.stop();
}

#[test]
fn a_watch_sees_the_deaths_of_many_processes() {
    const PROCESSES: usize = 24;
    let watching = Watching::start();
    let mut living: Vec<_> = (0..PROCESSES)
        .map(|_| {
            let (child, mut stream) = start("echo");
            stream.watch_peer(&watching.handle).expect("there is space");
            ask(&mut stream);
            (child, stream)
        })
        .collect();
    let survivors = living.split_off(PROCESSES / 2);
    let (children, receiving): (Vec<_>, Vec<_>) =
        living.into_iter().map(|(child, stream)| (child, receive_to_end(stream))).unzip();
    std::thread::sleep(ASLEEP);
    let died: Vec<_> = children.into_iter().map(kill).collect();
    for (receiving, died) in receiving.into_iter().zip(died) {
        let (received, error, seen) = receiving.join().expect("it only receives");
        assert_eq!((received, error), (0, StreamError::PeerGone));
        assert!(seen.saturating_duration_since(died) < DEATH_SEEN);
    }
    for (child, mut stream) in survivors {
        ask(&mut stream);
        drop(stream);
        kill(child);
    }
    watching.stop();
}

#[test]
fn a_watch_that_is_full_refuses_a_stream() {
    let watch = PeerWatch::new().expect("descriptors and memory");
    let handle = watch.handle();
    let (near, far) = streams();
    let mut all = vec![near, far];
    while all.len() <= PEERS_WATCHED_MAX as usize {
        let (near, far) = streams();
        all.extend([near, far]);
    }
    let mut results = all.iter_mut().map(|stream| stream.watch_peer(&handle));
    assert!(results.by_ref().take(PEERS_WATCHED_MAX as usize).all(|result| result == Ok(())));
    assert_eq!(results.next(), Some(Err(WatchError::Full)));
    drop(results);
    drop(all.remove(0));
    assert_eq!(all.last_mut().expect("one was refused").watch_peer(&handle), Ok(()));
}

/// Returns how often a thread has gone to sleep.
fn switches(thread: &str) -> u64 {
    let status = std::fs::read_to_string(thread).expect("the thread lives");
    let line = status.lines().find_map(|line| line.strip_prefix("voluntary_ctxt_switches:"));
    line.and_then(|count| count.trim().parse().ok()).expect("the kernel counts")
}

#[test]
fn a_peer_that_misuses_the_socket_wakes_the_watch_once_a_millisecond_at_most() {
    for role in ["garbage", "shutdowns"] {
        let watch = PeerWatch::new().expect("descriptors and memory");
        let handle = watch.handle();
        let (to, from) = std::sync::mpsc::channel();
        let thread = std::thread::spawn(move || {
            let number = rustix::thread::gettid().as_raw_nonzero();
            to.send(format!("/proc/self/task/{number}/status")).expect("the test receives");
            watch.run()
        });
        let path = from.recv().expect("it begins");
        let (child, mut stream) = start(role);
        stream.watch_peer(&handle).expect("there is space");
        let mut bytes = [0; 16];
        assert_eq!(receive(&mut stream, &mut bytes), Ok(RingRead::Bytes(4)));
        let (before, begun) = (switches(&path), Instant::now());
        std::thread::sleep(Duration::from_millis(200));
        let sleeps = switches(&path) - before;
        // One report, and the sleep behind it, each millisecond at most; of garbage none.
        let most = if role == "garbage" { 2 } else { 2 + 2 * begun.elapsed().as_millis() as u64 };
        println!("{role}: {sleeps} sleeps of the watch in {:?}", begun.elapsed());
        assert!(sleeps <= most, "{role}: {sleeps} sleeps of the watch, at most {most} are expected");
        let receiving = receive_to_end(stream);
        let died = kill(child);
        let (_, error, seen) = receiving.join().expect("it only receives");
        assert_eq!(error, StreamError::PeerGone);
        assert!(seen.saturating_duration_since(died) < DEATH_SEEN);
        handle.stop();
        assert_eq!(thread.join().expect("it only watches"), Ok(()));
    }
}
