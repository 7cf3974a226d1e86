//! Clients that are slow, greedy, many or gone, and backends that come and go: H16, H18 to H23 with real sockets.

#[path = "http_stress/amplification.rs"]
mod amplification;
mod common;
#[path = "http_stress/slow_clients.rs"]
mod slow_clients;

use std::collections::BTreeSet;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::Mutex;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use common::client::connect;
use common::http::{self, Backend, exchange, filled};
use common::process::{descriptors, resident_kib};
use common::service::Service;
use common::{peers, wait};

/// Clients that reset, one after another.
const RESETS: usize = 2000;
/// Clients that read nothing.
const SLOW_READERS: usize = 100;
/// A body that no client reads.
const UNREAD_BYTES: usize = 20_000_000;
/// Maximum growth of the service's memory for all of them, in KiB.
const GROWTH_KIB_MAX: u64 = 64 * 1024;
/// Clients that send one byte and wait.
const SLOWLORIS: usize = 500;
/// Number of times that the backend goes down and comes back.
const FLAPS: usize = 10;

/// A backend on a free port that answers every request with a body of N bytes.
fn backend(size: usize) -> Backend {
    Backend::start_at(SocketAddr::from(([127, 0, 0, 1], 0)), filled, size).expect("port 0 is free")
}

fn balancer(backend: SocketAddr, extra: &[&str]) -> Service {
    let connect = format!("backends={backend}");
    let program = "examples/http_balancer/round_robin.flick";
    let args = ["run", program, "--listen", "client=127.0.0.1:0", "--connect", &connect, "--workers", "1"];
    Service::start(&[args.as_slice(), extra].concat())
}

/// As `get`, with a request that must not be repeated.
fn post(stream: &mut TcpStream, target: &str) -> Option<(u16, usize)> {
    http::post(stream, target).ok().map(|(status, body)| (status, body.len()))
}

/// Sends a request and reads its whole answer; status and body length.
fn get(stream: &mut TcpStream) -> Option<(u16, usize)> {
    exchange(stream, "/").ok().map(|(status, body)| (status, body.len()))
}

#[test]
fn h18_slow_heads_are_closed_without_harming_others() {
    let backend = backend(100);
    let service = balancer(backend.address, &["--client-request-timeout", "1s"]);
    let slow: Vec<TcpStream> = (0..SLOWLORIS)
        .map(|_| {
            let mut stream = connect(service.address);
            stream.write_all(b"GET / HTTP/1.1\r\nHost: a\r\nX-").expect("it is open");
            stream
        })
        .collect();
    let mut healthy = connect(service.address);
    let start = Instant::now();
    while start.elapsed() < Duration::from_millis(500) {
        assert_eq!(get(&mut healthy), Some((200, 100)), "a healthy client is served");
    }
    for mut stream in slow {
        // In good order or by a reset: it is over for them.
        let _ = stream.read_to_end(&mut Vec::new());
    }
    let took = start.elapsed();
    assert!(took < Duration::from_secs(4), "slow heads are cut after a second, not {took:?}");
    assert_eq!(get(&mut healthy), Some((200, 100)));
    drop(healthy);
    service.drained();
}

#[test]
fn h19_slow_readers_hold_no_memory() {
    let backend = backend(UNREAD_BYTES);
    let service =
        balancer(backend.address, &["--client-write-timeout", "10s", "--max-dedicated-connections", "1000"]);
    let before = resident_kib(service.pid());
    let clients: Vec<TcpStream> = (0..SLOW_READERS)
        .map(|_| {
            let mut stream = connect(service.address);
            stream.write_all(b"GET / HTTP/1.1\r\nHost: a\r\n\r\n").expect("it is open");
            stream
        })
        .collect();
    wait::until("the backend to be asked", || (backend.requests.load(Ordering::SeqCst) > 0).then_some(()));
    let start = Instant::now();
    while start.elapsed() < Duration::from_secs(1) {
        let now = resident_kib(service.pid());
        assert!(now <= before + GROWTH_KIB_MAX, "{before} KiB have become {now} KiB");
        std::thread::yield_now();
    }
    drop(clients);
    service.drained();
}

#[test]
fn h21_clients_that_reset_leave_nothing_behind() {
    let backend = backend(100_000);
    let service = balancer(backend.address, &[]);
    let mut healthy = connect(service.address);
    assert_eq!(get(&mut healthy), Some((200, 100_000)));
    let before = descriptors(service.pid());
    for _ in 0..RESETS {
        let mut stream = connect(service.address);
        stream.write_all(b"GET / HTTP/1.1\r\nHost: a\r\n\r\n").expect("it is open");
        let mut some = [0; 10];
        stream.read_exact(&mut some).expect("a reply begins");
        // Bytes that are unread when a socket is closed make the kernel reset it.
        drop(stream);
    }
    wait::until("the descriptors to be given back", || {
        (descriptors(service.pid()) <= before + 16).then_some(())
    });
    assert_eq!(get(&mut healthy), Some((200, 100_000)), "others are served");
    drop(healthy);
    service.drained();
}

/// Targets posted to the backend that flaps, and those of them that were posted more than once.
static POSTED: Mutex<(BTreeSet<String>, Vec<String>)> = Mutex::new((BTreeSet::new(), Vec::new()));

fn noting_posts(target: &str, size: usize) -> Vec<u8> {
    let mut posted = POSTED.lock().expect("no holder panics");
    if target.starts_with("/post-") && !posted.0.insert(target.to_owned()) {
        posted.1.push(target.to_owned());
    }
    filled(target, size)
}

/// Returns the number of times that it goes down and comes back, 200 ms each time.
fn flaps() -> usize {
    let seconds = std::env::var("FLICK_FLAP_SECONDS").ok().and_then(|text| text.parse::<usize>().ok());
    seconds.map_or(FLAPS, |seconds| seconds * 5)
}

#[test]
fn h22_flapping_backend() {
    let address = peers::free_address();
    let mut backend = Backend::start_at(address, noting_posts, 10).expect("it was free a moment ago");
    let service = balancer(address, &[]);
    let before = descriptors(service.pid());
    let (mut good, mut bad) = (0, 0);
    for _ in 0..flaps() {
        for is_up in [true, false] {
            if !is_up {
                backend.stop();
            }
            let start = Instant::now();
            while start.elapsed() < Duration::from_millis(100) {
                let mut client = connect(service.address);
                let number = good + bad;
                let reply = match number % 2 {
                    0 => get(&mut client),
                    _ => post(&mut client, &format!("/post-{number}")),
                };
                match reply {
                    Some((200, 10)) => good += 1,
                    // A backend that gets no time from a machine with much else to do is late.
                    Some((502..=504, 0)) => bad += 1,
                    other => panic!("neither an answer nor a refusal: {other:?}"),
                }
            }
            if !is_up {
                backend = wait::until("the port to be free", || Backend::start_at(address, noting_posts, 10));
            }
        }
    }
    println!("{good} answered, {bad} refused");
    assert!(good > 0 && bad > 0, "{good} answered, {bad} refused");
    let posted = POSTED.lock().expect("no holder panics");
    assert!(!posted.0.is_empty(), "the test does something");
    assert!(posted.1.is_empty(), "posted more than once: {:?}", posted.1);
    drop(posted);
    // It comes back once and for all.
    wait::until("the service to find it again", || {
        (get(&mut connect(service.address)) == Some((200, 10))).then_some(())
    });
    wait::until("the descriptors to be given back", || {
        (descriptors(service.pid()) <= before + 8).then_some(())
    });
    service.drained();
}

#[test]
fn h20_more_clients_than_descriptors() {
    let backend = backend(10);
    let connect_to = format!("backends={}", backend.address);
    let service = Service::start(&[
        "run",
        "examples/http_balancer/round_robin.flick",
        "--listen",
        "client=127.0.0.1:0",
        "--connect",
        &connect_to,
        "--workers",
        "1",
        "--max-connections",
        "64",
    ]);
    let mut healthy = connect(service.address);
    assert_eq!(get(&mut healthy), Some((200, 10)));
    let clients: Vec<TcpStream> = (0..300).map(|_| connect(service.address)).collect();
    assert_eq!(get(&mut healthy), Some((200, 10)), "who is in is served");
    drop(clients);
    assert_eq!(get(&mut connect(service.address)), Some((200, 10)), "it recovers");
    drop(healthy);
    service.drained();
}

/// The modes of slowhttptest: heads a field at a time, bodies a few bytes at a time, ranges, replies read five bytes at
/// a time.
const SLOW_MODES: [&str; 4] = ["-H", "-B", "-R", "-X"];
/// Connections of each mode, unless `FLICK_SLOW_CONNECTIONS` says otherwise (4000 is what the tool was written for).
const SLOW_CONNECTIONS: u32 = 250;
/// Seconds that an ordinary run lasts; with many connections it is three times as long.
const SLOW_SECONDS: u32 = 3;
/// Memory that a slow client may hold: a reply of 30,000 bytes that it does not read, and its session.
const SLOW_GROWTH_KIB: u64 = 48;

/// Requests between two looks at a service's memory, which take time.
const LOOK_EVERY: u64 = 16;

/// One mode of slowhttptest against a service.
fn slow(mode: &str, address: SocketAddr, connections: u32, seconds: u32) -> std::process::Child {
    let url = format!("http://{address}/");
    let (count, rate, seconds) = (connections.to_string(), connections.to_string(), seconds.to_string());
    let mut command = std::process::Command::new("slowhttptest");
    command.args([mode, "-c", &count, "-r", &rate, "-i", "1", "-l", &seconds, "-p", "2", "-u", &url]);
    peers::spawn(&mut command, "slowhttptest")
}

#[test]
fn h18_h19_slowhttptest_in_all_modes_harms_no_other_client() {
    let asked = std::env::var("FLICK_SLOW_CONNECTIONS").ok().and_then(|text| text.parse().ok());
    let connections = asked.unwrap_or(SLOW_CONNECTIONS);
    if connections <= SLOW_CONNECTIONS {
        check_slow(&SLOW_MODES, connections, SLOW_SECONDS);
    } else {
        // The tool takes a core for each thousand or so: one mode after the other.
        SLOW_MODES.iter().for_each(|mode| check_slow(&[mode], connections, 3 * SLOW_SECONDS));
    }
}

/// Clients are served while the tool plays some of its modes together.
fn check_slow(modes: &[&str], connections: u32, seconds: u32) {
    let backend = backend(30_000);
    let service = balancer(backend.address, &["--client-request-timeout", "2s"]);
    // One that is left alone tells what the machine has to do with the tool beside it.
    let other = balancer(backend.address, &[]);
    let [mut healthy, mut elsewhere] = [&service, &other].map(|service| connect(service.address));
    let timed = |client: &mut TcpStream| {
        let start = Instant::now();
        assert_eq!(get(client), Some((200, 30_000)), "a client that is there is served");
        start.elapsed()
    };
    timed(&mut healthy);
    let before = resident_kib(service.pid());
    let mut attacks: Vec<_> =
        modes.iter().map(|mode| slow(mode, service.address, connections, seconds)).collect();
    let (mut served, mut slowest, mut most) = (0_u64, Duration::ZERO, before);
    let (mut times, mut times_elsewhere) = (Vec::new(), Vec::new());
    while attacks.iter_mut().any(|attack| attack.try_wait().expect("our own child").is_none()) {
        // Both services have the same to do besides, or what new clients cost would count for one of them only.
        let start = Instant::now();
        times.push(timed(&mut healthy));
        assert_eq!(get(&mut connect(service.address)), Some((200, 30_000)), "a new client is served");
        slowest = slowest.max(start.elapsed());
        times_elsewhere.push(timed(&mut elsewhere));
        assert_eq!(get(&mut connect(other.address)), Some((200, 30_000)), "a new client is served there");
        served += 2;
        if served % LOOK_EVERY == 0 {
            most = most.max(resident_kib(service.pid()));
        }
    }
    println!(
        "{modes:?}: {served} served beside {connections} connections of each mode, two in {slowest:?} at most; {before} KiB became {most} KiB"
    );
    let [p99, p99_elsewhere] = [times, times_elsewhere].map(|mut times| {
        times.sort_unstable();
        times[times.len() * 99 / 100]
    });
    println!("{modes:?}: 99 of 100 within {p99:?}, of a service that is left alone {p99_elsewhere:?}");
    assert!(served > 20, "only {served} were served");
    let growth = GROWTH_KIB_MAX.max(u64::from(connections) * SLOW_GROWTH_KIB);
    assert!(most <= before + growth, "{before} KiB have become {most} KiB");
    drop((healthy, elsewhere));
    service.drained();
    other.drained();
}
