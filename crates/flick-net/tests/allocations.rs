//! A driver that has warmed up does not allocate.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::Duration;

use flick_alloc_counter::{CountingAllocator, allocations};
use flick_buffers::{BufClass, Pool, PoolConfig};
use flick_net::{AnyDriver, Driver, DriverEvent, DriverLimits, Endpoint, IoKind};

#[global_allocator]
static ALLOCATOR: CountingAllocator = CountingAllocator;

const LIMITS: DriverLimits = DriverLimits {
    conns_max: 64,
    shm_conns_max: 0,
    output_slices_max: 256,
    events_max: 64,
    receive_bytes: 16384,
};

const PEERS: usize = 8;

/// One round: every peer sends a request and gets it back, in several pieces the second time.
fn round(driver: &mut AnyDriver, pool: &Pool, events: &mut Vec<DriverEvent>, peers: &mut [TcpStream]) {
    for peer in peers.iter_mut() {
        peer.write_all(&[7; 60]).expect("the connection is up");
    }
    let mut owed = 60 * peers.len();
    while owed > 0 {
        driver.poll(pool, Some(Duration::from_secs(5)), events).expect("the driver polls");
        for event in events.drain(..) {
            match event {
                DriverEvent::Accepted { conn, .. } => driver.receive(conn, true),
                DriverEvent::Data { conn, data } => {
                    owed -= data.len() as usize;
                    let half = data.len() / 2;
                    driver.send(conn, data.sub(half..data.len()));
                    driver.send(conn, data.sub(0..half));
                    driver.receive(conn, false);
                    driver.receive(conn, true);
                }
                other => panic!("unexpected {other:?}"),
            }
        }
    }
    driver.poll(pool, Some(Duration::ZERO), events).expect("the driver polls");
    let mut reply = [0; 60];
    for peer in peers {
        peer.read_exact(&mut reply).expect("the connection is up");
        assert_eq!(reply, [7; 60]);
    }
}

fn check(kind: IoKind) {
    let mut driver = match AnyDriver::open(kind, LIMITS) {
        Ok(driver) => driver,
        Err(error) => return eprintln!("not tested: {error}"),
    };
    let pool = Pool::new(PoolConfig { small_count: 8, large_count: 64, huge_count: 0 });
    let listener = driver.listen(&"127.0.0.1:0".parse().expect("an endpoint")).expect("loopback");
    let at = driver.local_addr(listener).expect("just opened").to_string();
    let mut peers: Vec<TcpStream> =
        (0..PEERS).map(|_| TcpStream::connect(&at).expect("the driver listens")).collect();
    let mut events = Vec::with_capacity(LIMITS.events_max);
    for _ in 0..10 {
        round(&mut driver, &pool, &mut events, &mut peers);
    }
    let before = allocations();
    for _ in 0..500 {
        round(&mut driver, &pool, &mut events, &mut peers);
    }
    assert_eq!(allocations() - before, 0, "{} allocated after warming up", driver.name());
}

/// One connection of the driver to itself: requests and their echoes until `is_done`, and the end.
fn echo_round(
    driver: &mut AnyDriver,
    pool: &Pool,
    events: &mut Vec<DriverEvent>,
    at: &Endpoint,
    is_done: impl Fn(&AnyDriver) -> bool,
) {
    let client = driver.connect(at).expect("a slot is free");
    driver.receive(client, true);
    let request = pool.alloc(BufClass::Small).expect("a buffer is free");
    let len = request.append(&[7; 60]);
    driver.send(client, request.slice(0..len));
    let mut is_over = false;
    while !is_over {
        driver.poll(pool, Some(Duration::from_millis(1)), events).expect("the driver polls");
        for event in events.drain(..) {
            match event {
                DriverEvent::Accepted { conn, .. } => driver.receive(conn, true),
                DriverEvent::Connected { conn } => assert_eq!(conn, client),
                DriverEvent::Data { conn, data } => {
                    assert!(data.bytes().iter().all(|byte| *byte == 7));
                    if conn == client && is_done(driver) {
                        driver.close(client);
                    } else {
                        driver.send(conn, data);
                    }
                }
                DriverEvent::Eof { conn } => {
                    driver.close(conn);
                    is_over = true;
                }
                other => panic!("unexpected {other:?}"),
            }
        }
    }
}

/// One connection of the driver to itself, which moves to rings. Both ends count as one each.
fn upgrade_round(driver: &mut AnyDriver, pool: &Pool, events: &mut Vec<DriverEvent>, at: &Endpoint) {
    let upgrades = |driver: &AnyDriver| driver.shm_stats().expect("upgrades are on").upgrades;
    let before = upgrades(driver);
    echo_round(driver, pool, events, at, |driver| upgrades(driver) == before + 2);
}

fn check_shm(kind: IoKind) {
    let limits = DriverLimits { shm_conns_max: 64, ..LIMITS };
    let mut driver = match AnyDriver::open(kind, limits) {
        Ok(driver) => driver,
        Err(error) => return eprintln!("not tested: {error}"),
    };
    let pool = Pool::new(PoolConfig { small_count: 8, large_count: 64, huge_count: 0 });
    driver.busy_poll_rings(60);
    let at = Endpoint::Shm(format!("flick-allocations-{}", std::process::id()));
    driver.listen(&at).expect("the name is free");
    let mut events = Vec::with_capacity(LIMITS.events_max);
    for _ in 0..10 {
        echo_round(&mut driver, &pool, &mut events, &at, |_| true);
    }
    let before = allocations();
    for _ in 0..500 {
        echo_round(&mut driver, &pool, &mut events, &at, |_| true);
    }
    assert_eq!(allocations() - before, 0, "{} allocated for a connection of a pair", driver.name());
}

fn check_upgrades(kind: IoKind) {
    let limits = DriverLimits { shm_conns_max: 64, ..LIMITS };
    let mut driver = match AnyDriver::open(kind, limits) {
        Ok(driver) => driver,
        Err(error) => return eprintln!("not tested: {error}"),
    };
    driver.enable_upgrades();
    let pool = Pool::new(PoolConfig { small_count: 8, large_count: 64, huge_count: 0 });
    let listener = driver.listen(&"127.0.0.1:0".parse().expect("an endpoint")).expect("loopback");
    let at = driver.local_addr(listener).expect("just opened");
    let mut events = Vec::with_capacity(LIMITS.events_max);
    for _ in 0..10 {
        upgrade_round(&mut driver, &pool, &mut events, &at);
    }
    let before = allocations();
    for _ in 0..100 {
        upgrade_round(&mut driver, &pool, &mut events, &at);
    }
    assert_eq!(allocations() - before, 0, "{} allocated for a connection that moved to rings", driver.name());
}

#[test]
fn connections_that_move_to_rings_allocate_nothing_after_their_pair() {
    check_upgrades(IoKind::Epoll);
    check_upgrades(IoKind::Uring);
}

#[test]
fn connections_through_shared_memory_allocate_nothing_after_their_pair() {
    check_shm(IoKind::Epoll);
    check_shm(IoKind::Uring);
}

#[test]
fn epoll_allocates_nothing_after_warming_up() {
    check(IoKind::Epoll);
}

#[test]
fn uring_allocates_nothing_after_warming_up() {
    check(IoKind::Uring);
}
