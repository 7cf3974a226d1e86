//! A process that is killed while it sends through an upgraded connection, or while it is stopped.
//! It is this binary, started again.
//! `FLICK_NET_UPGRADE_KILLS` sets how often.

use std::io::Read;
use std::process::{Child, Command, Stdio};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use flick_buffers::{BufClass, Pool, PoolConfig};
use flick_net::{AnyDriver, Driver, DriverEvent, DriverLimits, Endpoint, IoKind};
use rustix::process::{Pid, Signal, WaitOptions, kill_process, waitpid};

use super::world::{self, Side};

/// Makes this binary the process that sends, to this address.
const ADDRESS: &str = "FLICK_NET_UPGRADE_ADDRESS";
const LIMITS: DriverLimits = DriverLimits {
    conns_max: 4,
    shm_conns_max: 4,
    output_slices_max: 256,
    events_max: 16,
    receive_bytes: 16384,
};
/// Most bytes that the process has sent and not been answered.
const WINDOW_BYTES: u64 = 100_000;
/// Longest time between the death of the process and the end of its connection.
const NOTICED_MAX: Duration = Duration::from_millis(50);
/// Polls after which a driver that received nothing will receive nothing.
const QUIET_POLLS: u32 = 200;

/// Wait of a poll, in which a death that does not end it would be seen too late.
const POLL_MAX: Duration = Duration::from_secs(2);

fn open_with(mut driver: AnyDriver) -> (AnyDriver, Pool) {
    driver.enable_upgrades();
    (driver, Pool::new(PoolConfig { small_count: 64, large_count: 128, huge_count: 0 }))
}

/// Sends and prints how much, until it is killed. Does nothing as a test of its own.
#[test]
fn process_that_is_killed() {
    let Ok(at) = std::env::var(ADDRESS) else { return };
    let at: Endpoint = at.parse().expect("an endpoint");
    let (mut driver, pool) =
        open_with(AnyDriver::open(IoKind::Auto, LIMITS).expect("every kernel has a driver"));
    let conn = driver.connect(&at).expect("a slot is free");
    driver.receive(conn, true);
    let (mut events, mut sent, mut answered) = (Vec::new(), 0, 0);
    loop {
        if sent - answered < WINDOW_BYTES
            && let Some(buf) = pool.alloc(BufClass::Large)
        {
            let bytes = 1 + (sent % 7001) as u32;
            let count = bytes.min(buf.spare());
            buf.append_with(count, |spare| {
                let fill =
                    |(at, byte): (usize, &mut u8)| *byte = world::pattern(Side::Client, sent + at as u64);
                spare.iter_mut().enumerate().for_each(fill);
                count
            });
            driver.send(conn, buf.slice(0..count));
            sent += u64::from(count);
        }
        driver.poll(&pool, Some(Duration::from_millis(1)), &mut events).expect("the driver polls");
        for event in events.drain(..) {
            match event {
                DriverEvent::Data { data, .. } => answered += u64::from(data.len()) * 1000,
                DriverEvent::Failed { .. } | DriverEvent::Eof { .. } => return,
                _ => {}
            }
        }
        if driver.backlog_bytes(conn) == 0 && driver.shm_stats().is_some_and(|stats| stats.upgraded == 1) {
            println!("\n{sent}");
        }
    }
}

/// Counts what arrives, and answers a byte for each thousand.
struct Receiver {
    received: u64,
    answered: u64,
    is_over: bool,
}

impl Receiver {
    fn poll(&mut self, driver: &mut AnyDriver, pool: &Pool) {
        self.poll_for(driver, pool, POLL_MAX);
    }

    fn poll_for(&mut self, driver: &mut AnyDriver, pool: &Pool, wait: Duration) {
        let mut events = Vec::new();
        driver.poll(pool, Some(wait), &mut events).expect("the driver polls");
        for event in events {
            match event {
                DriverEvent::Accepted { conn, .. } => driver.receive(conn, true),
                DriverEvent::Data { conn, data } => {
                    for byte in data.bytes() {
                        assert_eq!(
                            *byte,
                            world::pattern(Side::Client, self.received),
                            "at {}",
                            self.received
                        );
                        self.received += 1;
                    }
                    let count = ((self.received - self.answered) / 1000) as u32;
                    if let Some(buf) = pool.alloc(BufClass::Large).filter(|_| count > 0) {
                        buf.append(&vec![7; count as usize]);
                        driver.send(conn, buf.slice(0..count));
                        self.answered += u64::from(count) * 1000;
                    }
                }
                DriverEvent::Eof { conn } => {
                    driver.close(conn);
                    self.is_over = true;
                }
                DriverEvent::Failed { .. } => self.is_over = true,
                DriverEvent::Drained { .. } => {}
                other => panic!("unexpected {other:?}"),
            }
        }
    }
}

/// A driver, and a process that is connected to it through rings.
struct Killed {
    driver: AnyDriver,
    pool: Pool,
    receiver: Receiver,
    child: Child,
    output: JoinHandle<(String, Instant)>,
}

impl Killed {
    /// Starts the process and waits for as many bytes from it.
    fn start(mut driver: AnyDriver, pool: Pool, at: &Endpoint, bytes: u64) -> Killed {
        let mut child = Command::new(std::env::current_exe().expect("this binary"))
            .args(["--exact", "killed::process_that_is_killed", "--nocapture"])
            .env(ADDRESS, at.to_string())
            .stdout(Stdio::piped())
            .spawn()
            .expect("it starts again");
        let mut stdout = child.stdout.take().expect("a pipe");
        let output = std::thread::spawn(move || {
            let mut text = String::new();
            stdout.read_to_string(&mut text).expect("text");
            (text, Instant::now())
        });
        let mut receiver = Receiver { received: 0, answered: 0, is_over: false };
        while driver.shm_stats().is_none_or(|stats| stats.upgraded == 0) {
            receiver.poll(&mut driver, &pool);
        }
        let until = receiver.received + bytes;
        while receiver.received < until {
            receiver.poll(&mut driver, &pool);
        }
        Killed { driver, pool, receiver, child, output }
    }

    /// Stops the process, and receives what it has sent.
    fn stop(&mut self) {
        let pid = Pid::from_child(&self.child);
        kill_process(pid, Signal::STOP).expect("it runs");
        let stopped = waitpid(Some(pid), WaitOptions::UNTRACED).expect("it is a child").expect("it changed");
        assert!(stopped.1.stopped());
        let mut before = u64::MAX;
        while self.receiver.received != before {
            before = self.receiver.received;
            (0..QUIET_POLLS)
                .for_each(|_| self.receiver.poll_for(&mut self.driver, &self.pool, Duration::ZERO));
        }
    }

    /// Kills the process. Returns how long its closed descriptors were not noticed, and the driver.
    fn kill(mut self) -> (Duration, AnyDriver, Pool) {
        self.child.kill().expect("it runs");
        while !self.receiver.is_over {
            self.receiver.poll(&mut self.driver, &self.pool);
        }
        let noticed = Instant::now();
        self.child.wait().expect("it is dead");
        let (text, died) = self.output.join().expect("no panic");
        // The last line may be a part of a number.
        let complete = text.rsplit_once('\n').map_or("", |(complete, _)| complete);
        let sent = complete.lines().filter_map(|line| line.parse::<u64>().ok()).max().unwrap_or(0);
        assert!(self.receiver.received >= sent, "{} of {sent} bytes", self.receiver.received);
        assert_eq!(self.driver.shm_stats().map(|stats| stats.upgraded), Some(0));
        (noticed.saturating_duration_since(died), self.driver, self.pool)
    }
}

fn check_kills(kind: IoKind, at: &Endpoint) {
    let (mut driver, mut pool) = match AnyDriver::open(kind, LIMITS) {
        Ok(driver) => open_with(driver),
        Err(error) => return eprintln!("not tested: {error}"),
    };
    let listener = driver.listen(at).expect("a free address");
    let at = driver.local_addr(listener).expect("just opened");
    let kills = world::variable("FLICK_NET_UPGRADE_KILLS", 25);
    let mut slowest = Duration::ZERO;
    for round in 0..kills {
        let mut killed = Killed::start(driver, pool, &at, 1000 + round % 20 * 137_731);
        if round % 2 == 0 {
            killed.stop();
        }
        let took;
        (took, driver, pool) = killed.kill();
        slowest = slowest.max(took);
    }
    println!("{kind:?}, {at}: {kills} kills, noticed after {slowest:?} at most");
    assert!(slowest < NOTICED_MAX, "noticed after {slowest:?}");
}

#[test]
fn killed_process_was_not_noticed_or_lost_bytes_through_tcp() {
    let at = "127.0.0.1:0".parse().expect("an endpoint");
    [IoKind::Epoll, IoKind::Uring].into_iter().for_each(|kind| check_kills(kind, &at));
}

#[test]
fn killed_process_was_not_noticed_or_lost_bytes_through_a_unix_socket() {
    let path = std::env::temp_dir().join(format!("flick-upgrade-killed-{}", std::process::id()));
    let at = Endpoint::Unix(path.clone());
    [IoKind::Epoll, IoKind::Uring].into_iter().for_each(|kind| check_kills(kind, &at));
    let _ = std::fs::remove_file(path);
}
