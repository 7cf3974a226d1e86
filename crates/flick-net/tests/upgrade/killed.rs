//! A process that is killed while it sends through an upgraded connection. It is this binary, started again.
//! `FLICK_NET_UPGRADE_KILLS` sets how often.

use std::io::Read;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use flick_buffers::{BufClass, Pool, PoolConfig};
use flick_net::{AnyDriver, Driver, DriverEvent, DriverLimits, Endpoint, IoKind};

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
/// Longest time between the death of the process and the end of its connection, with other work on the machine.
const NOTICED_MAX: Duration = Duration::from_secs(5);

fn open() -> (AnyDriver, Pool) {
    let mut driver = AnyDriver::open(IoKind::Auto, LIMITS).expect("every kernel has a driver");
    driver.enable_upgrades();
    (driver, Pool::new(PoolConfig { small_count: 64, large_count: 128, huge_count: 0 }))
}

/// Sends and prints how much, until it is killed. Does nothing as a test of its own.
#[test]
fn process_that_is_killed() {
    let Ok(at) = std::env::var(ADDRESS) else { return };
    let at: Endpoint = at.parse().expect("an endpoint");
    let (mut driver, pool) = open();
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
        let mut events = Vec::new();
        driver.poll(pool, Some(Duration::from_millis(1)), &mut events).expect("the driver polls");
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

#[test]
fn killed_process_lost_bytes_that_it_had_sent_through_the_ring() {
    let (mut driver, pool) = open();
    let listener = driver.listen(&"127.0.0.1:0".parse().expect("an endpoint")).expect("loopback");
    let at = driver.local_addr(listener).expect("just opened").to_string();
    let kills = world::variable("FLICK_NET_UPGRADE_KILLS", 10);
    let mut slowest = Duration::ZERO;
    for round in 0..kills {
        let mut child = Command::new(std::env::current_exe().expect("this binary"))
            .args(["--exact", "killed::process_that_is_killed", "--nocapture"])
            .env(ADDRESS, &at)
            .stdout(Stdio::piped())
            .spawn()
            .expect("it starts again");
        let mut output = child.stdout.take().expect("a pipe");
        let lines = std::thread::spawn(move || {
            let mut text = String::new();
            output.read_to_string(&mut text).map(|_| text)
        });
        let mut receiver = Receiver { received: 0, answered: 0, is_over: false };
        while driver.shm_stats().is_none_or(|stats| stats.upgraded == 0) {
            receiver.poll(&mut driver, &pool);
        }
        let until = receiver.received + 1000 + round % 20 * 137_731;
        while receiver.received < until {
            receiver.poll(&mut driver, &pool);
        }
        child.kill().expect("it runs");
        let begun = Instant::now();
        while !receiver.is_over {
            receiver.poll(&mut driver, &pool);
            assert!(begun.elapsed() < NOTICED_MAX, "{:?}", driver.shm_stats());
        }
        slowest = slowest.max(begun.elapsed());
        child.wait().expect("it is dead");
        let text = lines.join().expect("no panic").expect("text");
        // The last line may be a part of a number.
        let complete = text.rsplit_once('\n').map_or("", |(complete, _)| complete);
        let sent = complete.lines().filter_map(|line| line.parse::<u64>().ok()).max().unwrap_or(0);
        assert!(receiver.received >= sent, "{} of {sent} bytes", receiver.received);
        assert_eq!(driver.shm_stats().map(|stats| stats.upgraded), Some(0));
    }
    println!("{kills} kills, noticed after {slowest:?} at most");
}
