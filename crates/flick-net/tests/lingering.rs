//! Connections that the driver has closed, and whose peers have not: how they end.

mod common;

use std::io::{Read, Write};
use std::net::{Shutdown, SocketAddr, TcpStream};
use std::time::{Duration, Instant};

use flick_buffers::{BufClass, LARGE_BYTES, Pool};
use flick_net::{AnyDriver, Driver, DriverEvent, DriverLimits, Endpoint, Handle, IoKind};
use rustix::net::{AddressFamily, SocketType, sockopt};

const LIMITS: DriverLimits = DriverLimits {
    conns_max: 4,
    shm_conns_max: 0,
    output_slices_max: 64,
    events_max: 64,
    receive_bytes: 16384,
};
/// Longest wait for an operation that takes microseconds.
const TEST_TIMEOUT: Duration = Duration::from_secs(10);

/// Bytes of a reply that the window of a small peer does not hold, and the sending socket does.
const REPLY_BYTES: usize = 60_000;

fn listen(driver: &mut AnyDriver) -> SocketAddr {
    let any: Endpoint = "127.0.0.1:0".parse().expect("an address");
    let listener = driver.listen(&any).expect("loopback");
    let Endpoint::Tcp(at) = driver.local_addr(listener).expect("it listens") else { panic!("not by TCP") };
    at
}

fn poll(driver: &mut AnyDriver, pool: &Pool) -> Vec<DriverEvent> {
    let mut events = Vec::with_capacity(64);
    driver.poll(pool, Some(Duration::from_millis(1)), &mut events).expect("a poll does not fail");
    events
}

/// Polls until a peer is accepted; a full table is no reason to give up.
fn accepted(driver: &mut AnyDriver, pool: &Pool) -> Handle {
    let end = Instant::now() + TEST_TIMEOUT;
    loop {
        assert!(Instant::now() < end, "no peer is accepted");
        let of = |event| if let DriverEvent::Accepted { conn, .. } = event { Some(conn) } else { None };
        if let Some(conn) = poll(driver, pool).into_iter().find_map(of) {
            return conn;
        }
    }
}

/// Sends a reply and closes; the kernel has all of it when this returns.
fn reply_and_close(driver: &mut AnyDriver, pool: &Pool, conn: Handle, bytes: usize) {
    for piece in vec![b'r'; bytes].chunks(LARGE_BYTES as usize) {
        let buf = pool.alloc(BufClass::Large).expect("there are buffers");
        let len = buf.append(piece);
        driver.send(conn, buf.slice(0..len));
    }
    driver.close(conn);
    let end = Instant::now() + TEST_TIMEOUT;
    while driver.is_flushing() {
        assert!(Instant::now() < end, "the reply is not sent");
        poll(driver, pool);
    }
}

/// A peer with a small window, which sends more and ends its side before it reads the reply.
fn check_late_input(io: IoKind) {
    let pool = common::pool();
    let Some(mut driver) = common::open(io, LIMITS) else { return };
    let at = listen(&mut driver);
    let socket = rustix::net::socket(AddressFamily::INET, SocketType::STREAM, None).expect("a socket");
    sockopt::set_socket_recv_buffer_size(&socket, 4096).expect("any size is allowed");
    rustix::net::connect(&socket, &at).expect("it listens");
    let mut peer = TcpStream::from(socket);
    let conn = accepted(&mut driver, &pool);
    reply_and_close(&mut driver, &pool, conn, REPLY_BYTES);
    peer.write_all(b"more input").expect("it is connected");
    peer.shutdown(Shutdown::Write).expect("it is connected");
    let reads = std::thread::spawn(move || {
        let mut got = Vec::new();
        peer.read_to_end(&mut got).map(|_| got.len())
    });
    let end = Instant::now() + TEST_TIMEOUT;
    while !reads.is_finished() {
        assert!(Instant::now() < end, "the reply does not end");
        poll(&mut driver, &pool);
    }
    let got = reads.join().expect("it does not panic");
    assert_eq!(got.expect("no reset"), REPLY_BYTES);
}

#[test]
fn input_behind_a_reply_made_the_close_a_reset_which_cut_the_reply_on_epoll() {
    check_late_input(IoKind::Epoll);
}

#[test]
fn input_behind_a_reply_made_the_close_a_reset_which_cut_the_reply_on_io_uring() {
    check_late_input(IoKind::Uring);
}

/// Returns whether the driver has closed the socket of a peer that has got the end of its reply.
fn is_gone(peer: &mut TcpStream) -> bool {
    // The first byte is answered by a reset then, at once, as it is the loopback.
    peer.write_all(b"x").is_err() || peer.write_all(b"x").is_err()
}

/// A table that is full of lingering connections, and one peer more.
fn check_one_slot(io: IoKind) {
    let pool = common::pool();
    let Some(mut driver) = common::open(io, LIMITS) else { return };
    let at = listen(&mut driver);
    let connect = || {
        let peer = TcpStream::connect(at).expect("it listens");
        peer.set_read_timeout(Some(TEST_TIMEOUT)).expect("a live socket");
        peer
    };
    let mut lingering: Vec<TcpStream> = Vec::new();
    for _ in 0..LIMITS.conns_max {
        let mut peer = connect();
        let conn = accepted(&mut driver, &pool);
        reply_and_close(&mut driver, &pool, conn, 8);
        peer.read_to_end(&mut Vec::new()).expect("no reset");
        lingering.push(peer);
    }
    let mut comes = connect();
    let conn = accepted(&mut driver, &pool);
    reply_and_close(&mut driver, &pool, conn, 8);
    comes.read_to_end(&mut Vec::new()).expect("no reset");
    let gone: Vec<bool> = lingering.iter_mut().map(is_gone).collect();
    assert_eq!(gone, [true, false, false, false], "the oldest one makes room");
}

#[test]
fn one_new_peer_ended_all_lingering_connections_on_epoll() {
    check_one_slot(IoKind::Epoll);
}

#[test]
fn one_new_peer_ended_all_lingering_connections_on_io_uring() {
    check_one_slot(IoKind::Uring);
}
