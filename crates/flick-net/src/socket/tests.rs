//! A connect to a port without a server that reaches its own socket, which the kernel lets happen by chance (here the
//! socket is bound to that port first), and the kernel's counts of bytes while bytes arrive.

use std::io::{Read, Write};
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr, TcpListener, TcpStream};
use std::time::{Duration, Instant};

use flick_buffers::{Pool, PoolConfig};

use super::*;
use crate::driver::{Driver, DriverEvent, DriverLimits, Handle};
use crate::epoll::EpollDriver;
use crate::uring::UringDriver;

/// Longest wait for what takes microseconds.
const TEST_TIMEOUT: Duration = Duration::from_secs(10);

/// Returns a socket that is connected to itself.
fn connected_to_itself(any: SocketAddr) -> (OwnedFd, ConnectStart, SocketAddr) {
    let socket = stream_socket(family_of(&any)).expect("a socket");
    rustix::net::bind(&socket, &any).expect("a free port");
    let Ok(Endpoint::Tcp(at)) = local_endpoint(&socket) else { panic!("a bound socket has an address") };
    let start = ConnectStart::of(rustix::net::connect(&socket, &at));
    assert!(!matches!(start, ConnectStart::Failed(_)), "the kernel connects it");
    (socket, start, at)
}

/// The driver reports the connection as refused, and its port can be listened on when it is closed.
fn check<D: Driver>(
    mut driver: D,
    any: SocketAddr,
    insert: impl Fn(&mut D, OwnedFd, ConnectStart) -> io::Result<Handle>,
) {
    let pool = Pool::new(PoolConfig { small_count: 8, large_count: 16, huge_count: 0 });
    let (socket, start, at) = connected_to_itself(any);
    let conn = insert(&mut driver, socket, start).expect("the table is empty");
    let (mut events, end) = (Vec::with_capacity(64), Instant::now() + TEST_TIMEOUT);
    while events.is_empty() {
        assert!(Instant::now() < end, "nothing is reported");
        driver.poll(&pool, Some(Duration::from_millis(1)), &mut events).expect("a poll does not fail");
    }
    let fault = ConnFault::Refused;
    assert!(
        matches!(events[..], [DriverEvent::Failed { conn: of, fault: found }] if of == conn && found == fault)
    );
    driver.close(conn);
    let mut listens = || {
        driver.poll(&pool, Some(Duration::ZERO), &mut events).expect("a poll does not fail");
        TcpListener::bind(at)
    };
    while let Err(error) = listens() {
        assert!(Instant::now() < end, "the port stays taken: {error}");
    }
}

fn check_each(any: SocketAddr) {
    check(EpollDriver::new(DriverLimits::FEW).expect("epoll"), any, EpollDriver::insert_connecting);
    let uring = UringDriver::new(DriverLimits::FEW).expect("a kernel that grants io_uring");
    check(uring, any, UringDriver::insert_connecting);
}

#[test]
fn a_connect_that_reaches_its_own_socket_is_refused_and_frees_the_port() {
    check_each(SocketAddr::from((Ipv4Addr::LOCALHOST, 0)));
    check_each(SocketAddr::from((Ipv6Addr::LOCALHOST, 0)));
}

#[test]
fn byte_that_arrived_between_two_looks_was_not_counted_as_read() {
    const READ_BYTES: usize = 100_000;
    const WRITES_AFTER: usize = 50_000;
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("port 0 is free");
    let mut sender = TcpStream::connect(listener.local_addr().expect("it is bound")).expect("it listens");
    let (mut receiver, _) = listener.accept().expect("there is a connection");
    sender.set_nodelay(true).expect("a socket can be");
    let sends = std::thread::spawn(move || {
        sender.write_all(&[b'a'; READ_BYTES]).expect("the receiver reads");
        sender.set_nonblocking(true).expect("a socket can be");
        for _ in 0..WRITES_AFTER {
            // It may be full: what follows is never read.
            let _ = sender.write(b"a");
        }
        sender
    });
    receiver.read_exact(&mut [0; READ_BYTES]).expect("they were sent");
    let mut found = 0;
    while !sends.is_finished() {
        if let Some(offsets) = stream_offsets(receiver.as_fd()) {
            assert_eq!(offsets, (0, READ_BYTES as u64));
            found += 1;
        }
    }
    assert!(found > 0, "bytes do not arrive all the time");
    drop(sends.join().expect("it does not panic"));
}
