//! `flush` sends what was appended, without another poll.

mod common;

use std::io::Read;
use std::net::TcpStream;
use std::time::{Duration, Instant};

use flick_buffers::BufClass;
use flick_net::{Driver, DriverEvent, DriverLimits, Endpoint, IoKind};

const LIMITS: DriverLimits = DriverLimits {
    conns_max: 8,
    shm_conns_max: 0,
    output_slices_max: 64,
    events_max: 64,
    receive_bytes: 16384,
};
/// Longest wait for an operation that takes microseconds.
const TEST_TIMEOUT: Duration = Duration::from_secs(10);

fn check(kind: IoKind) {
    let pool = common::pool();
    let Some(mut driver) = common::open(kind, LIMITS) else { return };
    let any: Endpoint = "127.0.0.1:0".parse().expect("an address");
    let listener = driver.listen(&any).expect("loopback");
    let Endpoint::Tcp(at) = driver.local_addr(listener).expect("it listens") else { panic!("not by TCP") };
    let mut peer = TcpStream::connect(at).expect("it listens");
    peer.set_read_timeout(Some(TEST_TIMEOUT)).expect("a live socket");
    let (mut events, end) = (Vec::with_capacity(64), Instant::now() + TEST_TIMEOUT);
    let conn = loop {
        assert!(Instant::now() < end, "no peer is accepted");
        driver.poll(&pool, Some(Duration::from_millis(1)), &mut events).expect("a poll does not fail");
        if let Some(DriverEvent::Accepted { conn, .. }) = events.pop() {
            break conn;
        }
    };
    for word in [b"first", b"again"] {
        let buf = pool.alloc(BufClass::Small).expect("there are buffers");
        buf.append(word);
        driver.send(conn, buf.slice(0..5));
        driver.flush().expect("a flush does not fail");
        let mut came = [0; 5];
        peer.read_exact(&mut came).expect("it was sent");
        assert_eq!(&came, word);
        // The ring takes the result of the first send before it starts the next.
        driver.poll(&pool, Some(Duration::ZERO), &mut events).expect("a poll does not fail");
        assert!(events.is_empty(), "{events:?}");
    }
    driver.flush().expect("nothing to send is no error");
}

#[test]
fn flush_sends_without_a_poll_on_epoll() {
    check(IoKind::Epoll);
}

#[test]
fn flush_sends_without_a_poll_on_io_uring() {
    check(IoKind::Uring);
}
