//! Without a free file descriptor the listener pauses, no peer is lost and no poll busy-loops.
//! A test program of its own, because the limit is the process's.

use std::fs::File;
use std::io::{ErrorKind, Read, Write};
use std::net::TcpStream;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixStream};
use std::sync::Mutex;
use std::time::{Duration, Instant};

use flick_buffers::{Pool, PoolConfig};
use flick_net::{AnyDriver, Driver, DriverEvent, DriverLimits, Endpoint, IoKind};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

const LIMITS: DriverLimits = DriverLimits {
    conns_max: 64,
    shm_conns_max: 0,
    output_slices_max: 64,
    events_max: 64,
    receive_bytes: 16384,
};

/// Descriptors of the process, open ones included.
const DESCRIPTORS: u64 = 64;

fn check(kind: IoKind) {
    let mut driver = match AnyDriver::open(kind, LIMITS) {
        Ok(driver) => driver,
        Err(error) => return eprintln!("not tested: {error}"),
    };
    let pool = Pool::new(PoolConfig { small_count: 8, large_count: 64, huge_count: 0 });
    let listener = driver.listen(&"127.0.0.1:0".parse().expect("an endpoint")).expect("loopback");
    let at = driver.local_addr(listener).expect("just opened").to_string();
    let peer = TcpStream::connect(&at).expect("the driver listens");
    // Takes every free descriptor.
    let mut taken: Vec<File> = std::iter::from_fn(|| File::open("/dev/null").ok()).collect();
    let end = Instant::now() + Duration::from_secs(20);
    let mut events = Vec::new();
    while events.is_empty() {
        assert!(Instant::now() < end, "the driver reports nothing");
        driver.poll(&pool, Some(Duration::from_secs(1)), &mut events).expect("the driver polls");
    }
    let emfile = rustix::io::Errno::MFILE.raw_os_error();
    assert!(matches!(events[..], [DriverEvent::AcceptFailed { errno, .. }] if errno == emfile), "{events:?}");
    events.clear();
    check_paused(&mut driver, &pool);
    taken.clear();
    driver.accept(listener, true);
    while events.is_empty() {
        assert!(Instant::now() < end, "the pending peer is lost");
        driver.poll(&pool, Some(Duration::from_secs(1)), &mut events).expect("the driver polls");
    }
    assert!(matches!(events[..], [DriverEvent::Accepted { .. }]), "{events:?}");
    drop(peer);
}

/// Polls for 50 ms, in which a paused listener reports nothing: one wait, not thousands.
fn check_paused(driver: &mut AnyDriver, pool: &Pool) {
    let (pause_end, mut events, mut polls) = (Instant::now() + Duration::from_millis(50), Vec::new(), 0);
    while Instant::now() < pause_end {
        driver.poll(pool, Some(Duration::from_millis(50)), &mut events).expect("the driver polls");
        polls += 1;
    }
    assert!(polls <= 4 && events.is_empty(), "{polls} polls, {events:?}");
}

/// As [`check`], at an address of shared memory. The peer is no process that pairs: the driver accepts it, and closes.
fn check_shm(kind: IoKind) {
    let mut driver = match AnyDriver::open(kind, DriverLimits { shm_conns_max: 64, ..LIMITS }) {
        Ok(driver) => driver,
        Err(error) => return eprintln!("not tested: {error}"),
    };
    let pool = Pool::new(PoolConfig { small_count: 8, large_count: 64, huge_count: 0 });
    let name = format!("flick-descriptors-{}", std::process::id());
    let listener = driver.listen(&Endpoint::Shm(name.clone())).expect("the name is free");
    let at = SocketAddr::from_abstract_name(format!("flick-shm/{name}")).expect("a short name");
    let mut peer = UnixStream::connect_addr(&at).expect("the driver listens");
    peer.write_all(b"GET / HTTP/1.1\r\n").expect("the socket is open");
    let mut taken: Vec<File> = std::iter::from_fn(|| File::open("/dev/null").ok()).collect();
    let end = Instant::now() + Duration::from_secs(20);
    let mut events = Vec::new();
    while events.is_empty() {
        assert!(Instant::now() < end, "the driver reports nothing");
        driver.poll(&pool, Some(Duration::from_secs(1)), &mut events).expect("the driver polls");
    }
    let emfile = rustix::io::Errno::MFILE.raw_os_error();
    let is_it = matches!(events[..], [DriverEvent::AcceptFailed { listener: of, errno }]
        if of == listener && errno == emfile);
    assert!(is_it, "{events:?}");
    events.clear();
    check_paused(&mut driver, &pool);
    taken.clear();
    driver.accept(listener, true);
    peer.set_nonblocking(true).expect("a socket may be non-blocking");
    while peer.read(&mut [0; 1]).is_err_and(|error| error.kind() == ErrorKind::WouldBlock) {
        assert!(Instant::now() < end, "the pending peer is lost");
        driver.poll(&pool, Some(Duration::from_millis(10)), &mut events).expect("the driver polls");
    }
    assert!(events.is_empty(), "{events:?}");
}

/// As [`check_shm`], at the name at which processes claim connections of a listener: the platform does not resume it.
fn check_claims(kind: IoKind) {
    let mut driver = match AnyDriver::open(kind, DriverLimits { shm_conns_max: 64, ..LIMITS }) {
        Ok(driver) => driver,
        Err(error) => return eprintln!("not tested: {error}"),
    };
    driver.enable_upgrades();
    let pool = Pool::new(PoolConfig { small_count: 8, large_count: 64, huge_count: 0 });
    let listener = driver.listen(&"127.0.0.1:0".parse().expect("an endpoint")).expect("loopback");
    let port = driver.local_addr(listener).expect("just opened").port().expect("it has one");
    let at =
        SocketAddr::from_abstract_name(format!("flick-shm/flick-upgrade.{port}.0")).expect("a short name");
    let (end, mut events) = (Instant::now() + Duration::from_secs(20), Vec::new());
    // io_uring has a descriptor at hand when it begins to accept.
    driver.poll(&pool, Some(Duration::ZERO), &mut events).expect("the driver polls");
    let mut peer = UnixStream::connect_addr(&at).expect("the driver listens");
    peer.write_all(b"GET / HTTP/1.1\r\n").expect("the socket is open");
    let mut taken: Vec<File> = std::iter::from_fn(|| File::open("/dev/null").ok()).collect();
    check_paused(&mut driver, &pool);
    taken.clear();
    peer.set_nonblocking(true).expect("a socket may be non-blocking");
    while peer.read(&mut [0; 1]).is_err_and(|error| error.kind() == ErrorKind::WouldBlock) {
        assert!(Instant::now() < end, "the pending peer is lost");
        driver.poll(&pool, Some(Duration::from_secs(20)), &mut events).expect("the driver polls");
    }
    assert!(events.is_empty(), "{events:?}");
}

/// Accepts while many peers come, and stops when the first is reported.
fn check_burst(kind: IoKind) {
    let mut driver = match AnyDriver::open(kind, LIMITS) {
        Ok(driver) => driver,
        Err(error) => return eprintln!("not tested: {error}"),
    };
    driver.accept_singly();
    let pool = Pool::new(PoolConfig { small_count: 8, large_count: 64, huge_count: 0 });
    let listener = driver.listen(&"127.0.0.1:0".parse().expect("an endpoint")).expect("loopback");
    let at = driver.local_addr(listener).expect("just opened").to_string();
    let open = || std::fs::read_dir("/proc/self/fd").expect("Linux lists them").count();
    let peers: Vec<_> = (0..8).map(|_| TcpStream::connect(&at).expect("the driver listens")).collect();
    let (before, end) = (open(), Instant::now() + Duration::from_secs(20));
    let (mut events, mut accepted) = (Vec::new(), 0);
    while events.is_empty() {
        assert!(Instant::now() < end, "no peer is accepted");
        driver.poll(&pool, Some(Duration::from_secs(1)), &mut events).expect("the driver polls");
    }
    accepted += events.drain(..).filter(|event| matches!(event, DriverEvent::Accepted { .. })).count();
    driver.accept(listener, false);
    for _ in 0..4 {
        driver.poll(&pool, Some(Duration::from_millis(1)), &mut events).expect("the driver polls");
    }
    assert!(accepted == 1 && events.is_empty(), "{accepted}, {events:?}");
    // The request behind the first one may have been served already.
    assert!(open() <= before + 2, "{before} descriptors were open, now {}", open());
    driver.accept(listener, true);
    while accepted < peers.len() {
        assert!(Instant::now() < end, "{accepted} of all peers are accepted");
        driver.poll(&pool, Some(Duration::from_secs(1)), &mut events).expect("the driver polls");
        accepted += events.drain(..).filter(|event| matches!(event, DriverEvent::Accepted { .. })).count();
    }
}

/// All tests use descriptors of the whole process.
static DESCRIPTORS_IN_USE: Mutex<()> = Mutex::new(());

#[test]
fn a_burst_of_peers_took_descriptors_before_the_platform_knew() {
    let _in_use = DESCRIPTORS_IN_USE.lock();
    check_burst(IoKind::Epoll);
    check_burst(IoKind::Uring);
}

#[test]
fn out_of_descriptors_pauses_the_listener() {
    let _in_use = DESCRIPTORS_IN_USE.lock();
    let limit = getrlimit(Resource::Nofile);
    setrlimit(Resource::Nofile, Rlimit { current: Some(DESCRIPTORS), ..limit }).expect("lowering is allowed");
    check(IoKind::Epoll);
    check(IoKind::Uring);
    check_shm(IoKind::Epoll);
    check_shm(IoKind::Uring);
}

#[test]
fn one_claim_without_a_descriptor_ended_upgrades_to_shared_memory() {
    let _in_use = DESCRIPTORS_IN_USE.lock();
    let limit = getrlimit(Resource::Nofile);
    setrlimit(Resource::Nofile, Rlimit { current: Some(DESCRIPTORS), ..limit }).expect("lowering is allowed");
    check_claims(IoKind::Epoll);
    check_claims(IoKind::Uring);
}
