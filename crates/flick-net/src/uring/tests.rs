//! A reset that the kernel does not report is found by a probe; memory that the kernel may still send is not freed; a
//! kernel without memory for requests is asked again.

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::os::unix::net::UnixStream;
use std::time::{Duration, Instant};

use flick_buffers::{BufClass, Pool, PoolConfig};

use super::driver::{UringDriver, leaked_outputs};
use super::probe::ProbeState;
use super::sys::{Ring, reports_in_order};
use super::token::RequestToken;
use crate::driver::{Driver, DriverEvent, DriverLimits};
use crate::limits::{PROBES_MAX, RING_REQUESTS_MAX, RING_RETRY, RING_VECTORS_MAX, WRITE_SLICES_MAX};

const LIMITS: DriverLimits = DriverLimits {
    conns_max: 2048,
    shm_conns_max: 0,
    output_slices_max: 8,
    events_max: 64,
    receive_bytes: 16384,
};
/// Longest wait for one or two probes.
const PROBE_TIME_MAX: Duration = Duration::from_secs(30);

/// A connection whose peer has sent data and a reset, and whose receive reports nothing, behind `others` other
/// connections.
fn check(others: u32) {
    let mut driver = match UringDriver::new(LIMITS) {
        Ok(driver) => driver,
        Err(why) => return eprintln!("not tested: {why}"),
    };
    let pool = Pool::new(PoolConfig { small_count: 8, large_count: 16, huge_count: 0 });
    let listener = TcpListener::bind("127.0.0.1:0").expect("loopback");
    let at = listener.local_addr().expect("it listens");
    let (quiet, _silent) = UnixStream::pair().expect("a pair of sockets");
    for _ in 0..others {
        driver.adopt(quiet.try_clone().expect("a descriptor").into()).expect("a slot is free");
    }
    let mut peer = TcpStream::connect(at).expect("it listens");
    let (mut socket, _) = listener.accept().expect("a peer has connected");
    let handle = driver.adopt(socket.try_clone().expect("a descriptor").into()).expect("a slot is free");
    // The kernel's fault, imitated: the receive that is armed is one of another socket, and reports nothing.
    let conn = driver.conns.set_receiving(handle, true).expect("adopted just above");
    conn.part.arm_receive();
    driver.probes.set(&mut conn.part.probe, ProbeState::Recent);
    assert!(driver.ring.provide(&pool), "there are buffers");
    driver.ring.receive(&quiet, RequestToken::Receive(handle.index));
    // Closing with unread input makes the kernel send a reset.
    socket.write_all(b"unread").expect("it is connected");
    peer.write_all(b"data").expect("it is connected");
    drop(peer);
    let (mut came, mut events, end) = (Vec::new(), Vec::with_capacity(64), Instant::now() + PROBE_TIME_MAX);
    let is_end = |event: &DriverEvent| matches!(event, DriverEvent::Failed { .. } | DriverEvent::Eof { .. });
    while !came.iter().any(is_end) {
        assert!(Instant::now() < end, "the end is not reported, only {came:?}");
        driver.poll(&pool, None, &mut events).expect("a poll does not fail");
        came.append(&mut events);
    }
    assert!(driver.probes.due_ns().is_none(), "no connection is left to probe");
    let data = came.iter().find_map(|event| match event {
        DriverEvent::Data { data, .. } => Some(data.bytes().to_vec()),
        _ => None,
    });
    assert_eq!(data.as_deref(), Some(b"data".as_slice()), "the input before the reset is delivered");
}

#[test]
fn clients_would_get_the_bytes_of_others_from_kernels_that_report_out_of_order() {
    for release in ["6.15.0", "6.18.44-fc-v769", "6.12.35", "6.12.63-generic", "7.0.0-rc1", "6.15"] {
        assert!(reports_in_order(release), "{release}");
    }
    for release in ["6.12.0-55.9.1.el10.x86_64", "6.12.12-amd64", "6.14.0-15-generic", "6.13.7", "5.15.0", ""]
    {
        assert!(!reports_in_order(release), "{release}");
    }
}

#[test]
fn a_probe_finds_a_reset_that_the_kernel_does_not_report() {
    check(0);
}

#[test]
fn probes_reach_a_connection_behind_many_others() {
    check(PROBES_MAX + PROBES_MAX / 2);
}

/// A driver that ends while it sends to a peer that reads nothing, and how many buffers are in use behind its end.
/// `ends`: the kernel ends all of its requests.
fn check_end(ends: bool) -> u32 {
    let mut driver = match UringDriver::new(LIMITS) {
        Ok(driver) => driver,
        Err(why) => panic!("this kernel needs io_uring: {why}"),
    };
    let pool = Pool::new(PoolConfig { small_count: 8, large_count: 4096, huge_count: 0 });
    let (own, mut peer) = UnixStream::pair().expect("a pair of sockets");
    let handle = driver.adopt(own.into()).expect("a slot is free");
    let mut events = Vec::with_capacity(64);
    // More than the socket takes: the last send waits for the peer.
    let mut is_waiting = false;
    for _ in 0..1024 {
        let buf = pool.alloc(BufClass::Large).expect("one is free");
        let len = buf.append(&[b'x'; 16 * 1024]);
        driver.send(handle, buf.slice(0..len));
        driver.poll(&pool, Some(Duration::ZERO), &mut events).expect("a poll does not fail");
        events.clear();
        is_waiting = driver.backlog_bytes(handle) > 4 * 16 * 1024;
        if is_waiting {
            break;
        }
    }
    assert!(is_waiting, "the socket is full");
    if !ends {
        driver.ring.keep_one_request();
    }
    drop(driver);
    let mut received = [0; 4];
    peer.read_exact(&mut received).expect("it has been sent something");
    assert_eq!(&received, b"xxxx");
    pool.live_count(BufClass::Large)
}

#[test]
fn output_of_a_send_that_the_kernel_does_not_end_is_leaked_and_not_reused() {
    let before = leaked_outputs();
    assert_eq!(check_end(true), 0, "all memory is free again");
    assert_eq!(leaked_outputs(), before);
    assert!(check_end(false) > 0, "the kernel may still read the rest");
    assert_eq!(leaked_outputs(), before + 1);
}

#[test]
fn lack_of_memory_for_requests_ended_the_worker() {
    let mut driver = UringDriver::new(LIMITS).expect("a kernel that grants io_uring");
    let pool = Pool::new(PoolConfig { small_count: 8, large_count: 16, huge_count: 0 });
    let (own, mut peer) = UnixStream::pair().expect("a pair of sockets");
    let handle = driver.adopt(own.into()).expect("a slot is free");
    driver.receive(handle, true);
    let refusals = [libc::EAGAIN, libc::ENOMEM].repeat(10);
    driver.ring.refuse(&refusals);
    let (mut events, begin) = (Vec::with_capacity(64), Instant::now());
    // Each poll enters the kernel twice at most.
    for _ in 0..refusals.len() / 2 {
        driver.poll(&pool, None, &mut events).expect("the kernel has memory again later");
    }
    assert!(begin.elapsed() >= RING_RETRY * 10, "polls without memory are no busy loop");
    assert!(events.is_empty(), "{events:?}");
    peer.write_all(b"data").expect("it is connected");
    let end = Instant::now() + PROBE_TIME_MAX;
    while events.is_empty() {
        assert!(Instant::now() < end, "the request is lost");
        driver.poll(&pool, Some(Duration::from_millis(1)), &mut events).expect("a poll does not fail");
    }
    assert!(matches!(&events[..], [DriverEvent::Data { data, .. }] if data.bytes() == b"data"), "{events:?}");
}

/// Enters the kernel until all requests have their results; returns how many these are.
fn results(ring: &mut Ring) -> usize {
    let (mut count, end) = (0, Instant::now() + PROBE_TIME_MAX);
    while ring.requests() > 0 || ring.has_open_requests() {
        assert!(Instant::now() < end, "only {count} results");
        ring.enter(1, Some(Duration::from_millis(1))).expect("the kernel has memory");
        count += std::iter::from_fn(|| ring.next_completion()).count();
    }
    count
}

#[test]
fn request_that_found_a_full_queue_was_lost_for_lack_of_memory() {
    let mut ring = Ring::new().expect("a kernel that grants io_uring");
    let count = RING_REQUESTS_MAX as usize + 100;
    ring.refuse(&[libc::EAGAIN; 3]);
    for _ in 0..count {
        // There is none: each of these has a result at once.
        ring.cancel(RequestToken::Receive(0), RequestToken::Ignored);
    }
    assert_eq!(results(&mut ring), count);

    let (own, mut peer) = UnixStream::pair().expect("a pair of sockets");
    let pool = Pool::new(PoolConfig { small_count: 1, large_count: 0, huge_count: 0 });
    let buf = pool.alloc(BufClass::Small).expect("one is free");
    let len = buf.append(b"piece");
    let piece = buf.slice(0..len);
    let count = RING_VECTORS_MAX / WRITE_SLICES_MAX + 1;
    ring.refuse(&[libc::EAGAIN; 3]);
    let send = |ring: &mut Ring| {
        ring.send(&own, std::iter::repeat_n(&piece, WRITE_SLICES_MAX), RequestToken::Send(0))
    };
    let sent = (0..count).map(|_| send(&mut ring)).sum::<usize>();
    assert_eq!(sent, count * WRITE_SLICES_MAX * len as usize);
    assert_eq!(results(&mut ring), count);
    peer.read_exact(&mut vec![0; sent]).expect("all of it was sent");
}
