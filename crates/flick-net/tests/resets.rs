//! Connections that are reset right behind data: the data is handed out, and the end is found.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::{Duration, Instant};

use flick_buffers::{Class, Pool, PoolConfig};
use flick_net::{AnyDriver, Driver, DriverLimits, Endpoint, Event, Handle, IoKind};

const LIMITS: DriverLimits =
    DriverLimits { conns_max: 8, output_slices_max: 64, events_max: 64, receive_bytes: 16384 };
/// How often it is played. The kernel forgets a reset now and then, behind large bodies only: for that there is
/// `FLICK_MOCKS=24000 cargo test -p flick --test reliability m2_`.
const ROUNDS: u32 = 2_000;
/// How long something may take that takes microseconds.
const PATIENCE: Duration = Duration::from_secs(10);

/// Polls until `wanted` has come, in so many polls as it takes; what came.
fn until(driver: &mut AnyDriver, pool: &Pool, wanted: impl Fn(&Event) -> bool) -> Vec<Event> {
    let (mut came, mut events, end) = (Vec::new(), Vec::with_capacity(64), Instant::now() + PATIENCE);
    while !came.iter().any(&wanted) {
        assert!(Instant::now() < end, "it does not come, only {came:?}");
        driver.poll(pool, Some(Duration::from_millis(1)), &mut events).expect("a poll does not fail");
        came.append(&mut events);
    }
    came
}

/// A driver with a connection whose peer answers what it is sent with `reply`, without reading all of it, and closes.
fn check(io: IoKind, rounds: u32) {
    let pool = Pool::new(PoolConfig { small_count: 8, large_count: 16, huge_count: 0 });
    let mut driver = AnyDriver::open(io, LIMITS).expect("this machine has it");
    let any: Endpoint = "127.0.0.1:0".parse().expect("an address");
    let listener = driver.listen(&any).expect("loopback");
    let Endpoint::Tcp(at) = driver.local_addr(listener).expect("it listens") else { panic!("not by TCP") };
    let (next, turn) = std::sync::mpsc::channel();
    let peers = std::thread::spawn(move || {
        while turn.recv().is_ok() {
            let mut peer = TcpStream::connect(at).expect("it listens");
            peer.read_exact(&mut [0]).expect("it is asked");
            peer.write_all(b"reply").expect("it is connected");
            // What is not read when it is closed makes the kernel reset the connection.
        }
    });
    for _ in 0..rounds {
        next.send(()).expect("the peer waits");
        let came = until(&mut driver, &pool, |event| matches!(event, Event::Accepted { .. }));
        let conn = came.iter().find_map(|event| match event {
            Event::Accepted { conn, .. } => Some(*conn),
            _ => None,
        });
        let conn = conn.expect("it was waited for");
        let ask = |driver: &mut AnyDriver| {
            let buf = pool.alloc(Class::Small).expect("there are buffers");
            buf.append(b"asked and unread");
            driver.send(conn, buf.slice(0..16));
        };
        let is_over = |event: &Event| matches!(event, Event::Failed { conn: of, .. } if *of == conn);
        driver.receive(conn, true);
        ask(&mut driver);
        let came = until(&mut driver, &pool, |event| matches!(event, Event::Data { .. }));
        if came.iter().any(is_over) {
            continue;
        }
        // The peer is done with it by then.
        until_gone(&driver, conn);
        ask(&mut driver);
        until(&mut driver, &pool, is_over);
    }
    drop(next);
    peers.join().expect("no peer fails");
}

fn until_gone(driver: &AnyDriver, conn: Handle) {
    let end = Instant::now() + PATIENCE;
    while !driver.is_gone(conn) {
        assert!(Instant::now() < end, "it does not close");
        std::thread::yield_now();
    }
}

#[test]
fn a_peer_that_has_reset_is_gone_and_sending_to_it_fails_on_io_uring() {
    check(IoKind::Uring, ROUNDS);
}

#[test]
fn a_peer_that_has_reset_is_gone_and_sending_to_it_fails_on_epoll() {
    check(IoKind::Epoll, ROUNDS);
}
