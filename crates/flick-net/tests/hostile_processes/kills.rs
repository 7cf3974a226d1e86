//! Processes that are stopped and killed at any moment. The test starts its own binary again as such a process.

use std::io::{BufRead, BufReader, Write};
use std::process::{Child, Command, Stdio};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use flick_shm::stream::{ShmStream, StreamConfig, StreamInterest};
use rustix::process::{Pid, Signal, kill_process};

use crate::random::{Random, number};
use crate::service::{self, Honest, SINK, Service};
use crate::with_services;

/// Variables that make the binary the other process.
const NAME: &str = "FLICK_NET_TEST_NAME";
const ID: &str = "FLICK_NET_TEST_ID";
/// Longest time from a death to its report. A loaded machine may be slower now and then, but not half of the times.
const REPORTED_MEDIAN_MAX: Duration = Duration::from_millis(50);
const REPORTED_MAX: Duration = Duration::from_secs(2);
/// Processes that run at a time.
const AT_A_TIME: u64 = 4;

/// The process, when this binary is started again; otherwise nothing. It prints each total after the send.
#[test]
fn other_side() {
    let (Ok(name), Ok(id)) = (std::env::var(NAME), std::env::var(ID)) else { return };
    let id = id.parse().expect("the test sets both");
    let mut stream = ShmStream::connect(&name, &StreamConfig::default()).expect("the service listens");
    stream.send(&[SINK, id]).expect("the service lives");
    let (mut sent, mut out) = (0, std::io::stdout().lock());
    loop {
        match stream.send(&service::bytes(id, sent, 1777)).expect("the service lives") {
            0 => drop(stream.wait(StreamInterest::Writable, Some(1000)).expect("the service lives")),
            count => sent += count as u64,
        }
        writeln!(out, "sent {sent}.").expect("the test reads");
    }
}

/// A process, and the thread that reads what it has printed.
struct Process {
    id: u8,
    child: Child,
    last: JoinHandle<u64>,
}

fn start(service: &Service, id: u8) -> Process {
    let mut command = Command::new(std::env::current_exe().expect("this binary"));
    command.args(["--exact", "kills::other_side", "--nocapture"]);
    command.env(NAME, &service.shm).env(ID, id.to_string()).stdout(Stdio::piped());
    let mut child = command.spawn().expect("this binary starts");
    let lines = BufReader::new(child.stdout.take().expect("it is piped")).lines();
    // The last line may be cut off by the kill.
    let total = |line: String| line.strip_prefix("sent ")?.strip_suffix('.')?.parse().ok();
    let last = std::thread::spawn(move || lines.map_while(Result::ok).filter_map(total).last().unwrap_or(0));
    Process { id, child, last }
}

#[test]
fn what_killed_processes_had_sent_is_delivered_and_their_end_is_reported_at_once() {
    let (seed, kills) = (number("FLICK_NET_HOSTILE_SEED", 1), number("FLICK_NET_HOSTILE_KILLS", 32));
    with_services(|service| {
        println!("seed {seed}");
        let (mut random, honest) = (Random(seed), Honest::start(service));
        let mut times = Vec::new();
        for _ in 0..kills / AT_A_TIME {
            let processes: Vec<Process> = (10..10 + AT_A_TIME as u8).map(|id| start(service, id)).collect();
            std::thread::sleep(Duration::from_micros(5000 + random.below(25_000)));
            for process in processes {
                times.extend(kill(service, process, &mut random));
            }
        }
        times.sort_unstable();
        println!("{} deaths of connected processes, reported after {:?}", times.len(), times);
        assert!(times.len() as u64 > kills / 4, "most processes had connected");
        let load = honest.check("kills");
        assert!(times[times.len() / 2] < REPORTED_MEDIAN_MAX + load, "{times:?}, {load:?} without a core");
        assert!(
            times.iter().all(|time| *time < REPORTED_MAX + 2 * load),
            "{times:?}, {load:?} without a core"
        );
    });
}

/// Kills a process. Returns how long its end took to be reported; `None` if it had sent nothing.
fn kill(service: &Service, mut process: Process, random: &mut Random) -> Option<Duration> {
    let pid = Pid::from_child(&process.child);
    if random.below(2) == 0 {
        kill_process(pid, Signal::STOP).expect("it lives");
        std::thread::sleep(Duration::from_micros(random.below(3000)));
        if random.below(2) == 0 {
            kill_process(pid, Signal::CONT).expect("it lives");
            std::thread::sleep(Duration::from_micros(random.below(1000)));
        }
    }
    process.child.kill().expect("it lives");
    process.child.wait().expect("it is dead");
    let died = Instant::now();
    let sent = process.last.join().expect("it only reads");
    // Without a line it may not even have connected; its end, if there is one, precedes that of the next with its
    // number.
    let wait = if sent > 0 { Duration::from_secs(10) } else { Duration::from_millis(50) };
    let end = service.ends.recv_timeout(wait);
    assert!(sent == 0 || end.is_ok(), "the death is not reported");
    let end = end.ok()?;
    assert!(end.id == process.id && end.has_failed, "{end:?}, not of {}", process.id);
    assert!(end.bytes >= sent, "{sent} bytes were sent, {} delivered", end.bytes);
    Some(end.at.saturating_duration_since(died))
}
