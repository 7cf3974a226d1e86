//! A connect to a port without a server that reaches its own socket, which the kernel lets happen by chance. Here the
//! socket is bound to that port first.

use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr, TcpListener};
use std::time::{Duration, Instant};

use flick_buffers::{Pool, PoolConfig};

use super::*;
use crate::driver::{Driver, DriverEvent, DriverLimits, Handle};
use crate::epoll::EpollDriver;
use crate::uring::UringDriver;

const LIMITS: DriverLimits = DriverLimits {
    conns_max: 8,
    shm_conns_max: 0,
    output_slices_max: 8,
    events_max: 64,
    receive_bytes: 16384,
};
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
    check(EpollDriver::new(LIMITS).expect("epoll"), any, EpollDriver::insert_connecting);
    let uring = UringDriver::new(LIMITS).expect("a kernel that grants io_uring");
    check(uring, any, UringDriver::insert_connecting);
}

#[test]
fn a_connect_that_reaches_its_own_socket_is_refused_and_frees_the_port() {
    check_each(SocketAddr::from((Ipv4Addr::LOCALHOST, 0)));
    check_each(SocketAddr::from((Ipv6Addr::LOCALHOST, 0)));
}
